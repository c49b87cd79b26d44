"""Change logs that lake's delta writer wrote, commit by commit, read and worked on by Iceberg Java."""

from __future__ import annotations

import datetime
import decimal
import random
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.peers.java_peer import JavaPeer
from support.tables.iceberg_tables import open_session, pyiceberg_catalog
from support.tables.random_rows import batch_of
from support.tiers import in_turn

from lake.core.data.deletes.delta_writer import (
    DELETE,
    INSERT,
    RETRACT,
    UPDATE_AFTER,
    UPDATE_BEFORE,
    UPSERT,
    DeltaFiles,
    DeltaSettings,
    DeltaWriter,
)
from lake.core.data.rows.writer import WriteSettings
from lake.core.table.catalogs.catalog import Table
from lake.core.transaction.commit.commit import CommitRequest, commit_snapshot
from lake.core.transaction.commit.operations import RowDelta
from lake.core.transaction.session import Session

pytestmark = pytest.mark.java

Row = dict[str, Any]
Change = tuple[int, Row]
COLUMNS = "id BIGINT, part STRING, value BIGINT, note STRING"
MERGE_ON_READ = "'write.delete.mode' = 'merge-on-read'"


@dataclass
class ChangeLogTable:
    """A table of Java's making, to which lake commits change logs."""

    warehouse: Path
    java: JavaPeer
    version: int
    columns: str = COLUMNS
    partitions: str = ""
    snapshots: list[tuple[int, list[Row]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        pyiceberg_catalog(self.warehouse).create_namespace("db")
        by = f"PARTITIONED BY ({self.partitions}) " if self.partitions else ""
        self.java.sql(
            self.warehouse,
            f"CREATE TABLE lake.db.t ({self.columns}) USING iceberg {by}"
            f"TBLPROPERTIES ('format-version' = '{self.version}', {MERGE_ON_READ})",
        )
        self.session: Session = open_session(self.warehouse)
        self.table: Table = self.session.table("db.t")

    def commit(
        self, batches: Sequence[Sequence[Change]], key: Sequence[str], mode: str
    ) -> DeltaFiles:
        """Write the batches by one writer and commit what it wrote."""
        self.table = self.session.table("db.t")
        operation_id = str(uuid.uuid4())
        schema = self.table.schema
        delta = DeltaSettings(
            write=WriteSettings.of(self.table, operation_id),
            key_ids=[schema.find_field(name).field_id for name in key],
            mode=mode,
            format_version=self.version,
        )
        with DeltaWriter(self.table.storage, delta, task=0, attempt="a") as writer:
            for changes in batches:
                rows = batch_of(schema, [row for _, row in changes])
                writer.write(rows, np.array([kind for kind, _ in changes], np.int8))
            files = writer.close()
        operation = RowDelta(
            added=files.data,
            deletes=files.deletes,
            base_snapshot_id=self.table.metadata.current_snapshot_id,
            validates=False,
        )
        done = commit_snapshot(
            self.session, self.table, operation, CommitRequest(operation_id=operation_id)
        )
        self.table = done.table
        return files

    def remember(self, rows: Iterable[Row]) -> None:
        """Keep what the newest snapshot must hold."""
        number = self.table.metadata.current_snapshot_id
        assert number is not None
        self.snapshots.append((number, [dict(row) for row in rows]))

    def rows(self, suffix: str = "") -> list[str]:
        return shown(self.java.sql(self.warehouse, f"SELECT * FROM lake.db.t {suffix}"))

    def check(self) -> None:
        """Compare every snapshot, as Java reads it, with what it must hold."""
        for number, expected in self.snapshots:
            assert self.rows(f"VERSION AS OF {number}") == shown(expected)

    def compact(self) -> None:
        self.java.sql(
            self.warehouse,
            "CALL lake.system.rewrite_data_files(table => 'db.t', "
            "options => map('rewrite-all', 'true', 'remove-dangling-deletes', 'true'))",
        )


def shown(rows: Iterable[Row]) -> list[str]:
    return sorted(repr(sorted(row.items())) for row in rows)


def upsert_log(
    dice: random.Random, model: dict[Any, Row], key: Sequence[str], count: int
) -> list[list[Change]]:
    """Make changes of few keys, so that they meet again and again; ``model`` is left as they leave it."""
    batches: list[list[Change]] = [[], [], []]
    for batch in batches:
        for _ in range(count // len(batches)):
            kind = dice.choice([INSERT, INSERT, UPDATE_BEFORE, UPDATE_AFTER, DELETE])
            row = {
                "id": dice.randrange(count // 2),
                "part": dice.choice([None, "x", "y/z"]),
                "value": dice.randrange(10**6),
                "note": dice.choice([None, "", "n" * 50]),
            }
            if kind == DELETE:
                row |= {name: None for name in row if name not in key}
            batch.append((kind, row))
            identity = tuple(row[name] for name in key)
            if kind == DELETE:
                model.pop(identity, None)
            elif kind != UPDATE_BEFORE:
                model[identity] = row
    return batches


@pytest.mark.parametrize(
    ("partitions", "key", "version"),
    in_turn(
        [
            ("", ["id"]),
            ("", ["part", "id"]),
            ("bucket(3, id)", ["id"]),
            ("part, truncate(20, id)", ["id", "part"]),
        ],
        [2, 3],
    ),
)
def test_java_reads_upserts_and_works_on_with_them(
    warehouse: Path, java: JavaPeer, version: int, partitions: str, key: list[str]
) -> None:
    target = ChangeLogTable(warehouse, java, version, partitions=partitions)
    dice = random.Random(f"{version} {partitions} {key}")
    model: dict[Any, Row] = {}
    for _ in range(4):
        target.commit(upsert_log(dice, model, key, 120), key, UPSERT)
        target.remember(model.values())
    target.check()

    # Java adds its own deletes to files that have lake's: of version 3 it must read and merge vectors.
    java.sql(warehouse, "DELETE FROM lake.db.t WHERE value % 3 = 0")
    model = {place: row for place, row in model.items() if row["value"] % 3}
    assert target.rows() == shown(model.values())
    target.commit(upsert_log(dice, model, key, 120), key, UPSERT)
    assert target.rows() == shown(model.values())
    target.compact()
    assert target.rows() == shown(model.values())
    target.commit(upsert_log(dice, model, key, 60), key, UPSERT)
    assert target.rows() == shown(model.values())


def retract_log(dice: random.Random, model: dict[Any, Row], count: int) -> list[list[Change]]:
    """Make changes that contain every old row before the new one."""
    changes: list[Change] = []
    for _ in range(count):
        number = dice.randrange(count // 3)
        old = model.pop(number, None)
        new = None
        if old is None or dice.random() < 0.7:
            new = {
                "id": number,
                "part": dice.choice([None, "x", "y"]),
                "value": dice.randrange(10**6),
                "note": dice.choice([None, "a"]),
            }
            model[number] = new
        if old is not None:
            changes.append((UPDATE_BEFORE if new else DELETE, old))
        if new is not None:
            changes.append((UPDATE_AFTER if old else INSERT, new))
    cut = dice.randrange(len(changes))
    return [changes[:cut], changes[cut:]]


@pytest.mark.parametrize(
    ("partitions", "version"), in_turn([("",), ("part",), ("bucket(2, id), part",)], [2, 3])
)
def test_java_reads_retractions_of_rows_that_move_between_partitions(
    warehouse: Path, java: JavaPeer, version: int, partitions: str
) -> None:
    target = ChangeLogTable(warehouse, java, version, partitions=partitions)
    dice = random.Random(f"{version} {partitions}")
    model: dict[Any, Row] = {}
    for _ in range(4):
        target.commit(retract_log(dice, model, 90), ["id"], RETRACT)
        target.remember(model.values())

    target.check()
    target.compact()
    assert target.rows() == shown(model.values())


UTC = datetime.UTC
KEYS: dict[str, list[Any]] = {
    "BOOLEAN": [True, False, None],
    "INT": [-1, 0, 2**31 - 1, None],
    "FLOAT": [0.0, -0.0, 1.5, float("inf"), None],
    "DOUBLE": [0.0, -0.0, -1e300, float("-inf"), None],
    "DECIMAL(9, 2)": [decimal.Decimal("-1.25"), decimal.Decimal("1.25"), None],
    "DECIMAL(30, 5)": [decimal.Decimal("-1e20"), decimal.Decimal("0.00001"), None],
    "DATE": [datetime.date(1969, 12, 31), datetime.date(2024, 2, 29), None],
    "TIMESTAMP": [
        datetime.datetime(1969, 12, 31, 23, 59, 59, 999999, UTC),
        datetime.datetime(2024, 1, 1, tzinfo=UTC),
        None,
    ],
    "TIMESTAMP_NTZ": [
        datetime.datetime(1969, 12, 31, 23, 59, 59, 999999),
        datetime.datetime(2024, 1, 1),
        None,
    ],
    "STRING": ["", "a", "a\x00", "\U0001f600", "\uffff", "x" * 300, None],
    "BINARY": [b"", b"\x00", b"\xff" * 20, None],
}


@pytest.mark.parametrize("version", [2, 3])
def test_java_finds_keys_of_every_type(warehouse: Path, java: JavaPeer, version: int) -> None:
    columns = ", ".join(f"k{place} {kind}" for place, kind in enumerate(KEYS))
    target = ChangeLogTable(warehouse, java, version, columns=f"{columns}, value BIGINT")
    names = [f"k{place}" for place in range(len(KEYS))]
    usual = {name: values[0] for name, values in zip(names, KEYS.values(), strict=True)}
    keys = [
        {**usual, name: value}
        for name, values in zip(names, KEYS.values(), strict=True)
        for value in values[1:]
    ]
    inserted = [(INSERT, {**key, "value": place}) for place, key in enumerate(keys)]
    updated = [(UPDATE_AFTER, {**key, "value": place + 1000}) for place, key in enumerate(keys)]
    gone = [(DELETE, {**key, "value": None}) for key in keys[::4]]

    target.commit([inserted], names, UPSERT)
    assert values_in(target) == list(range(len(keys)))
    target.commit([updated[::2], gone], names, UPSERT)
    assert values_in(target) == sorted(
        place + 1000 if place % 2 == 0 else place for place in range(len(keys)) if place % 4
    )
    target.commit([[(DELETE, {**key, "value": None}) for key in keys]], names, UPSERT)
    assert values_in(target) == []


def values_in(target: ChangeLogTable) -> list[int]:
    rows = target.java.sql(target.warehouse, "SELECT value FROM lake.db.t")
    return sorted(row["value"] for row in rows)


@pytest.mark.parametrize(("version", "form"), [(2, "PARQUET"), (3, "PUFFIN")])
def test_java_sees_what_each_delete_file_is_for(
    warehouse: Path, java: JavaPeer, version: int, form: str
) -> None:
    target = ChangeLogTable(warehouse, java, version)
    row = {"id": 1, "part": "x", "value": 1, "note": None}
    again = [(INSERT, row), (UPDATE_AFTER, {**row, "value": 2}), (INSERT, {**row, "id": 2})]
    files = target.commit([again, again], ["id"], UPSERT)

    listed = java.sql(
        warehouse,
        "SELECT content, file_format, record_count, equality_ids, referenced_data_file, "
        "file_size_in_bytes FROM lake.db.t.delete_files ORDER BY content",
    )
    (data,) = files.data
    by_position, equality = sorted(files.deletes, key=lambda file: file.content)
    assert listed == [
        {
            "content": 1,
            "file_format": form,
            "record_count": 4,
            "equality_ids": None,
            "referenced_data_file": data.path,
            "file_size_in_bytes": by_position.size_bytes,
        },
        {
            "content": 2,
            "file_format": "PARQUET",
            "record_count": 2,
            "equality_ids": [1],
            "referenced_data_file": None,
            "file_size_in_bytes": equality.size_bytes,
        },
    ]
    summary = java.sql(warehouse, "SELECT operation, summary FROM lake.db.t.snapshots")[0]
    expected = {
        "added-data-files": "1",
        "added-records": "6",
        "added-delete-files": "2",
        "added-equality-delete-files": "1",
        "added-equality-deletes": "2",
        "added-position-deletes": "4",
        "total-records": "6",
    }
    assert {name: summary["summary"].get(name) for name in expected} == expected
