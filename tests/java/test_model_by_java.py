"""Any order of commands against a dictionary of rows: after each, `lake scan` reads what the model holds.

Appends, upserts in every mode, change logs, overwrites, deletes of other writers, compactions, expiries, new
columns and other partition specs, in tables of format version 1, 2 and 3. At the end Iceberg Java must agree.
"""

from __future__ import annotations

import itertools
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from pyiceberg.transforms import BucketTransform, IdentityTransform
from support.cli.command_line import CommandLine
from support.peers.java_peer import JavaPeer
from support.tables.delete_files import commit_deletes, equality_file, position_file
from support.tables.iceberg_tables import open_session
from support.tiers import examples

from lake.core.table.catalogs.catalog import Table
from lake.core.table.snapshots.live_files import live_files

pytestmark = pytest.mark.java

Row = dict[str, Any]
COLUMNS = pa.schema([("id", pa.int64()), ("part", pa.string()), ("value", pa.int64())])
IDS = st.lists(st.integers(0, 25), min_size=1, max_size=12)
PARTS = st.sampled_from(["x", "y z"])
REFUSED = 3


class CommandsAndModel(RuleBasedStateMachine):
    """One table, and what must be in it. `value` is another number in every row that was ever written."""

    java: JavaPeer

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="lake-model-"))
        self.warehouse = self.folder / "warehouse"
        self.lake = CommandLine(self.warehouse)
        self.rows: dict[tuple[Any, ...], Row] = {}
        self.key: Sequence[str] = ["id"]
        self.version = 2
        self.columns = COLUMNS
        self._values = itertools.count()
        self._files = itertools.count()

    @initialize(
        version=st.sampled_from([1, 2, 2, 3, 3]),
        layout=st.sampled_from(
            [(None, ["id"]), ("bucket(3, id)", ["id"]), ("part", ["id", "part"]), ("part", ["id"])]
        ),
        ids=IDS,
        part=PARTS,
    )
    def make(
        self, version: int, layout: tuple[str | None, list[str]], ids: list[int], part: str
    ) -> None:
        spec, self.key = layout
        self.version = version
        made = ["--create", "--property", f"format-version={version}"]
        made += ["--partition-by", spec] if spec else []
        new = self._new(ids, part)
        self._ingest(new, *made)
        self._put(new)

    # What rows are

    def _new(self, ids: Sequence[int], part: str) -> list[Row]:
        """Return new rows, one a key."""
        rows = {}
        for number in ids:
            row = {"id": number, "part": part, "value": next(self._values)}
            row |= {name: None for name in self.columns.names if name not in row}
            rows[self._key(row)] = row
        return list(rows.values())

    def _key(self, row: Row) -> tuple[Any, ...]:
        return tuple(row[name] for name in self.key)

    def _put(self, rows: Sequence[Row]) -> None:
        self.rows |= {self._key(row): row for row in rows}

    def _file(self, rows: Sequence[Row], schema: pa.Schema) -> Path:
        path = self.folder / f"{next(self._files)}.parquet"
        pq.write_table(pa.Table.from_pylist(list(rows), schema), path, row_group_size=5)
        return path

    def _ingest(self, rows: Sequence[Row], *options: object) -> None:
        self.lake.ok("ingest", "db.t", self._file(rows, self.columns), *options)

    def _table(self) -> Table:
        return open_session(self.warehouse).table("db.t")

    # What is done to them

    @rule(ids=IDS, part=PARTS)
    def append(self, ids: list[int], part: str) -> None:
        new = [row for row in self._new(ids, part) if self._key(row) not in self.rows]
        if new:
            self._ingest(new)
            self._put(new)

    @rule(
        ids=IDS, part=PARTS, mode=st.sampled_from(["position", "equality", "copy-on-write", None])
    )
    def upsert(self, ids: list[int], part: str, mode: str | None) -> None:
        new = self._new(ids, part)
        options = ["--upsert", "--key", ",".join(self.key)]
        options += ["--deletes", mode] if mode else []
        path = self._file(new, self.columns)
        result = self.lake("ingest", "db.t", path, *options)
        # Version 1 has no deletes; keys alone reach no row in another partition, or of another spec.
        if result.exit_code == REFUSED:
            assert mode == "equality" or self.version == 1, result
        else:
            assert result.exit_code == 0, result
            self._put(new)

    @precondition(lambda self: self.version > 1)
    @rule(ids=IDS, part=PARTS, deleted=IDS)
    def change_log(self, ids: list[int], part: str, deleted: list[int]) -> None:
        new = self._new(ids, part)
        gone = self._new(deleted, part)
        log = [*({"op": "+I", **row} for row in new), *({"op": "-D", **row} for row in gone)]
        schema = pa.schema([("op", pa.string()), *self.columns])
        options = [
            "--changes-column",
            "op",
            "--changes-mode",
            "upsert",
            "--key",
            ",".join(self.key),
        ]
        result = self.lake("ingest", "db.t", self._file(log, schema), *options)
        if result.exit_code != REFUSED:
            assert result.exit_code == 0, result
            self._put(new)
            for row in gone:
                self.rows.pop(self._key(row), None)

    @rule(ids=IDS, part=PARTS, limit=st.integers(0, 26))
    def overwrite(self, ids: list[int], part: str, limit: int) -> None:
        new = [row for row in self._new(ids, part) if row["id"] < limit]
        if new:
            self._ingest(new, "--overwrite-where", f"id < {limit}")
            self.rows = {key: row for key, row in self.rows.items() if row["id"] >= limit}
            self._put(new)

    @precondition(lambda self: self.version == 2 and self.rows)
    @rule(data=st.data())
    def another_writer_deletes_by_position(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.rows)))
        table = self._table()
        snapshot = table.metadata.current_snapshot()
        assert snapshot is not None
        for spec_id, entries in live_files(table, snapshot).by_spec.items():
            for path in entries["file_path"].to_pylist():
                values = pq.read_table(path.removeprefix("file://"))["value"].to_pylist()
                if spec_id == table.spec.spec_id and self.rows[key]["value"] in values:
                    place = values.index(self.rows.pop(key)["value"])
                    partition = _partition_of(table, path)
                    commit_deletes(
                        table, position_file(table, [(path, place)], partition=partition)
                    )
                    return

    @precondition(lambda self: self.version > 1)
    @rule(ids=IDS)
    def another_writer_deletes_by_key(self, ids: list[int]) -> None:
        table = self._table()
        if table.spec.is_unpartitioned():
            commit_deletes(table, equality_file(table, [{"id": n} for n in set(ids)], ["id"]))
            self.rows = {key: row for key, row in self.rows.items() if row["id"] not in ids}

    @rule(
        options=st.sampled_from(
            [
                [],
                ["--rewrite-all"],
                ["--rewrite-all", "--verify", "--remove-dangling-deletes"],
                ["--delete-file-threshold", "1", "--no-starting-sequence-number"],
                ["--rewrite-all", "--target-size", "1KB"],
            ]
        )
    )
    def compact(self, options: list[str]) -> None:
        self.lake.ok("compact", "db.t", *options)

    @rule()
    def expire(self) -> None:
        retention = ["--older-than", "0s", "--retain-last", "1", "--unsafe-retention"]
        self.lake.ok("expire", "db.t", *retention)

    @precondition(lambda self: len(self.columns) == len(COLUMNS))
    @rule(part=PARTS)
    def evolve(self, part: str) -> None:
        self.columns = self.columns.append(pa.field("more", pa.string()))
        for row in self.rows.values():
            row["more"] = None
        # An ingest without rows changes nothing, the columns neither.
        new = [row | {"more": "m"} for row in self._new([100], part)]
        self._ingest(new, "--evolve")
        self._put(new)

    @precondition(lambda self: self.version > 1)
    @rule(by_part=st.booleans())
    def repartition(self, by_part: bool) -> None:
        table = self._table()
        with table.handle.update_spec() as update:
            for field in table.spec.fields:
                update.remove_field(field.name)
            if by_part:
                update.add_field("part", IdentityTransform(), f"part_{next(self._files)}")
            else:
                update.add_field("id", BucketTransform(2), f"bucket_{next(self._files)}")

    # What must hold

    @invariant()
    def scan_reads_the_model(self) -> None:
        if not self.warehouse.exists():
            return
        output = self.folder / "read.parquet"
        self.lake.ok("scan", "db.t", "--output", output, "--replace")
        assert _shown(pq.read_table(output).to_pylist()) == _shown(list(self.rows.values()))

    def teardown(self) -> None:
        try:
            if self.warehouse.exists():
                found = self.java.sql(self.warehouse, "SELECT * FROM {c}.db.t")
                assert _shown(found) == _shown(list(self.rows.values()))
        finally:
            shutil.rmtree(self.folder)


def _partition_of(table: Table, path: str) -> tuple[bytes | None, ...]:
    from lake.core.table.manifests.api import files_of

    snapshot = table.metadata.current_snapshot()
    assert snapshot is not None
    entries = live_files(table, snapshot).by_spec[table.spec.spec_id]
    files = files_of(entries, spec=table.spec, schema=table.schema)
    return next(file.partition for file in files if file.path == path)


def _shown(rows: Sequence[Row]) -> list[str]:
    """Return rows in a form that can be compared; Spark leaves NULLs out of its JSON."""
    return sorted(
        repr(sorted((name, value) for name, value in row.items() if value is not None))
        for row in rows
    )


@pytest.mark.slow
def test_any_order_of_commands_leaves_the_rows_of_the_model(java: JavaPeer) -> None:
    CommandsAndModel.java = java
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        CommandsAndModel,
        settings=settings(
            max_examples=examples(15),
            stateful_step_count=8,
            deadline=None,
            # A history is short, and each step of making it shorter would take seconds.
            phases=[Phase.explicit, Phase.reuse, Phase.generate],
            suppress_health_check=list(HealthCheck),
        ),
    )
