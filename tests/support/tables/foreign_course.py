"""What every command must do on tables that others wrote: one course of commands, judged after each step.

A maker writes the table; `Course` then runs the commands and compares the rows with a model, as PyIceberg and
the tests' own reader see them, or as whatever else the maker brings along.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.table import Table
from world.reference import Reference

from support.cli.command_line import CommandLine
from support.tables.iceberg_tables import pyiceberg_table

NAME = "db.t"
EPOCH = datetime.datetime(1969, 12, 31, 22)
# What each row holds beside its id; ``more`` and the wider ``n`` come with the second schema.
COLUMNS = ("part", "ts", "n", "more")
# Of the first schema, and how they are called in the second.
Values = tuple[str | None, datetime.datetime, int | None, str | None]
Rows = dict[int, Values]

# A partitioning by each transform, as Spark says it and as PyIceberg does.
TRANSFORMS = {
    "unpartitioned": "",
    "identity": "part",
    "bucket": "bucket(3, id)",
    "truncate": "truncate(1, part)",
    "year": "years(ts)",
    "month": "months(ts)",
    "day": "days(ts)",
    "hour": "hours(ts)",
}


def made(ids: range, **changed: Any) -> Rows:
    """Return rows with NULLs, times around 1970, and the given values instead of their own."""
    rows: Rows = {}
    for number in ids:
        values = {
            "part": [None, "a", "bb", "bc/d e"][number % 4],
            "ts": EPOCH + datetime.timedelta(minutes=97 * number),
            "n": None if number % 5 == 0 else number,
            "more": None,
        }
        rows[number] = tuple({**values, **changed}[name] for name in COLUMNS)  # type: ignore[assignment]
    return rows


def arrow(rows: Mapping[int, Values], *, second: bool = True) -> pa.Table:
    """Return rows as the first or the second schema has them."""
    part, ts, n, more = zip(*rows.values(), strict=True)
    columns = {
        "id": pa.array(list(rows), pa.int64()),
        "part" if not second else "label": pa.array(part, pa.string()),
        "ts": pa.array(ts, pa.timestamp("us")),
        "n": pa.array(n, pa.int64() if second else pa.int32()),
    }
    if second:
        columns["more"] = pa.array(more, pa.string())
    return pa.table(columns)


@dataclass
class Course:
    """A table that another program made, and what it should contain.

    Args:
        warehouse: where it is.
        folder: for sources.
        model: its rows.
        first: the rows of its first snapshot, and ``appended`` those that came by appends after it.
        judge: more to compare the rows with.
    """

    warehouse: Path
    folder: Path
    model: Rows
    first: Rows
    appended: Rows
    judge: Callable[[], Rows] | None = None
    engine: str = "inline"
    _count: int = field(default=0)

    @property
    def table(self) -> Table:
        return pyiceberg_table(self.warehouse, NAME)

    @property
    def lake(self) -> CommandLine:
        return CommandLine(self.warehouse, engine=self.engine)

    def source(self, rows: Mapping[int, Values]) -> Path:
        self._count += 1
        path = self.folder / f"source-{self._count}.parquet"
        pq.write_table(arrow(rows), path)
        return path

    def check(self, step: str) -> None:
        """Compare the rows with what all judges read."""
        metadata = self.table.metadata
        snapshot = metadata.current_snapshot()
        assert snapshot is not None
        reference = Reference()
        ids = [metadata.schema().find_field(name).field_id for name in ("id", *_names(self.table))]
        read = [
            tuple(dict(row).get(number) for number in ids)
            for row in reference.rows(metadata, snapshot)
        ]
        found = {row[0]: tuple(row[1:]) for row in read}
        assert len(found) == len(read), step
        assert found == self.model, step
        contents = {entry.content for entry in reference.contents(metadata, snapshot).entries}
        if contents == {0} or (2 not in contents and metadata.format_version == 2):
            theirs = rows_of(self.table.scan().to_arrow(), self.table)
            assert theirs == self.model, step
        if self.judge is not None:
            assert self.judge() == self.model, step

    def run(self) -> None:
        """Do all of it."""
        self.check("made")
        self.read()
        self.change()
        self.maintain()

    def read(self) -> None:
        """Read it in every way."""
        snapshots = self.lake.ok("snapshots", NAME)["result"]["snapshots"]
        assert len(snapshots) == len(self.table.metadata.snapshots)
        first = snapshots[-1]["snapshot_id"]
        assert self.scanned() == self.model
        assert self.scanned("--snapshot", first) == self.first
        assert self.scanned("--from-snapshot", first) == self.appended
        assert self.after_changes(first) == self.model

    def scanned(self, *options: object) -> Rows:
        return rows_of(self.output(*options), self.table)

    def output(self, *options: object) -> pa.Table:
        self._count += 1
        path = self.folder / f"read-{self._count}.parquet"
        self.lake.ok("scan", NAME, *options, "--output", path)
        return pq.read_table(path)

    def after_changes(self, first: str) -> Rows:
        """Return the first rows with all changes applied."""
        rows: Rows = dict(self.first)
        changes = self.output("--changes", "--from-snapshot", first)
        for change in changes.to_pylist():
            values = tuple(change[name] for name in _names(self.table))
            if change["_change_type"] == "delete":
                assert rows.pop(change["id"]) == values
            else:
                assert change["id"] not in rows
                rows[change["id"]] = values  # type: ignore[assignment]
        return rows

    def change(self) -> None:
        """Change it in every way that its version has."""
        version = self.table.metadata.format_version
        modes = ["copy-on-write"] + (["position", "equality"] if version > 1 else [])
        for number, mode in enumerate(modes):
            rows = made(range(3 + number, 9 + number), n=100 + number, more=mode)
            rows |= made(range(50 + number, 53 + number), more="new")
            self._run("--upsert", rows, "--upsert", "--key", "id", "--deletes", mode, mode=mode)
        rows = made(range(20, 22), n=7, more="replaced")
        self.model = {key: row for key, row in self.model.items() if row[2] != 7}
        self._run("--overwrite-where", rows, "--overwrite-where", "n = 7")
        self._run("append", made(range(70, 75), more="appended"))

    def _run(self, step: str, rows: Rows, *options: object, mode: str | None = None) -> None:
        if mode == "equality":
            rows, key = self._staying(rows)
            options = tuple(key if one == "id" else one for one in options)
            # Blind deletes reach no files of an older spec.
            self.lake.ok("compact", NAME, "--rewrite-all")
        self.lake.ok("ingest", NAME, self.source(rows), *options)
        self.model |= rows
        self.check(f"{step} {options}")

    def _staying(self, rows: Rows) -> tuple[Rows, str]:
        """Return rows that stay in their partitions, and a key that has all that makes these."""
        table = self.table
        sources = [table.schema().find_column_name(one.source_id) for one in table.spec().fields]
        key = ["id", *sorted({str(name) for name in sources} - {"id"})]
        named = {"label": 0, "ts": 1, "n": 2}
        stay = {
            number: (*self.model.get(number, row)[:3], "equality") for number, row in rows.items()
        }
        # No key may be NULL.
        return {
            number: row
            for number, row in stay.items()
            if all(row[named[name]] is not None for name in key[1:])
        }, ",".join(key)

    def maintain(self) -> None:
        """Compact and expire it; what is left is whole."""
        self.lake.ok("compact", NAME, "--rewrite-all", "--verify", "--remove-dangling-deletes")
        self.check("compact")
        self.lake.ok("expire", NAME, "--older-than", "0s", "--unsafe-retention", "--clean-metadata")
        self.check("expire")
        assert len(self.table.metadata.snapshots) == 1
        self._run("append", made(range(90, 93), more="last"))


def _names(table: Table) -> list[str]:
    names = table.schema().column_names
    return ["label" if "label" in names else "part", "ts", "n", "more"]


def rows_of(read: pa.Table, table: Table) -> Rows:
    """Return Arrow rows, whatever the schema was called then."""
    rows: Rows = {}
    for row in read.to_pylist():
        label = row["label"] if "label" in row else row["part"]
        assert row["id"] not in rows
        rows[row["id"]] = (label, row["ts"], row["n"], row.get("more"))
    return rows
