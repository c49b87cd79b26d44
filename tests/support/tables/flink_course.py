"""All commands that change tables, on tables that Flink wrote: Flink's own rows are what they must leave."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from support.cli.command_line import CommandLine
from support.tables.flink_fixtures import FlinkFixture, canonical_rows


class FlinkCourse:
    """Takes a table that Flink wrote through all commands that change one.

    Args:
        fixture: the table, lent.
        folder: for files.
    """

    def __init__(self, fixture: FlinkFixture, folder: Path) -> None:
        self.fixture, self.folder = fixture, folder
        self.name = fixture.table
        self.lake = CommandLine(
            fixture.warehouse, engine="inline", catalog_type=fixture.catalog_type
        )
        self.keys = ",".join(fixture.truth["table"]["equality_columns"] or [])
        self._count = 0

    def read(self, *options: object) -> pa.Table:
        self._count += 1
        path = self.folder / f"{self.fixture.name}-{self._count}.parquet"
        self.lake.ok("scan", self.name, *options, "--output", path)
        return pq.read_table(path)

    def check(self, expected: pa.Table, step: str) -> None:
        assert canonical_rows(self.read()) == canonical_rows(expected), step

    def run(self) -> None:
        rows = self.read()
        assert canonical_rows(rows) == self.fixture.rows()
        snapshots = self.lake.ok("snapshots", self.name)["result"]["snapshots"]
        source = self.folder / f"{self.fixture.name}-all.parquet"
        pq.write_table(rows, source)
        # By hand: what came since a snapshot is what is there, less what was there.
        first = snapshots[-1]["snapshot_id"]
        changes = self.read("--changes", "--from-snapshot", first)
        self._check_changes(self.read("--snapshot", first), changes, rows)

        self.lake.ok("compact", self.name, "--rewrite-all", "--verify")
        self.check(rows, "compact")
        self._upsert(rows, source)
        self.lake.ok("ingest", self.name, source, "--overwrite")
        self.check(rows, "overwrite")
        self.lake.ok("ingest", self.name, source)
        self.check(pa.concat_tables([rows, rows]), "append")
        self.lake.ok("ingest", self.name, source, "--overwrite-where", "true")
        self.check(rows, "overwrite-where")
        options = ("--older-than", "0s", "--unsafe-retention", "--keep-checkpoints", "0s")
        self.lake.ok("compact", self.name, "--rewrite-all", "--remove-dangling-deletes")
        self.lake.ok("expire", self.name, *options)
        self.check(rows, "expire")
        assert len(self.lake.ok("snapshots", self.name)["result"]["snapshots"]) == 1

    def _upsert(self, rows: pa.Table, source: Path) -> None:
        """Replace every row by itself in each way that the table has."""
        if not self.keys:
            return
        version = self.fixture.truth["table"]["format_version"]
        for mode in ("copy-on-write", "position", "equality") if version > 1 else ():
            command = ("--upsert", "--key", self.keys, "--deletes", mode)
            self.lake.ok("ingest", self.name, source, *command)
            self.check(rows, f"upsert by {mode}")

    def _check_changes(self, before: pa.Table, changes: pa.Table, after: pa.Table) -> None:
        held = canonical_rows(before)
        names = before.column_names
        for row in changes.to_pylist():
            one = pa.Table.from_pylist([{name: row[name] for name in names}], schema=before.schema)
            (text,) = canonical_rows(one)
            if row["_change_type"] == "delete":
                held.remove(text)
            else:
                held.append(text)
        assert sorted(held) == canonical_rows(after)
