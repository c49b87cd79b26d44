"""Tasks of a change log: which rows each gets, and which row is reported if one is bad."""

from __future__ import annotations

import datetime
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import DoubleType, LongType, NestedField, StringType, StructType, TimestampType
from support.tables.random_rows import write_settings

from lake.core.base.errors import BadInputError
from lake.core.data.deletes.delta_writer import (
    DELETE,
    INSERT,
    UPDATE_AFTER,
    UPDATE_BEFORE,
    UPSERT,
    DeltaSettings,
)
from lake.core.data.sources.discovery import Source
from lake.core.engine.tasks import TaskContext
from lake.core.io.storage.storage import Storage
from lake.core.load.changelog_load.tasks import ChangesTask, send_changes
from lake.core.load.ingest.payloads import SourceUnit
from lake.core.load.upsert.row_kinds import UNKNOWN, row_kinds

SCHEMA = Schema(
    NestedField(1, "id", DoubleType(), required=False),
    NestedField(2, "at", TimestampType(), required=False),
    NestedField(
        3,
        "point",
        StructType(NestedField(4, "x", LongType(), required=True)),
        required=False,
    ),
    NestedField(5, "name", StringType(), required=True),
)
Row = dict[str, Any]


def send(folder: Path, batches: Sequence[Sequence[Row]]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Run the first half of an exchange; yield what it sends. Each batch is a row group."""
    point = pa.struct([("x", pa.int64())])
    types = [
        ("op", pa.string()),
        ("id", pa.float64()),
        ("at", pa.timestamp("us")),
        ("point", point),
    ]
    log = folder / "log.parquet"
    with pq.ParquetWriter(log, schema := pa.schema([*types, ("name", pa.string())])) as writer:
        for rows in batches:
            writer.write_table(pa.Table.from_pylist(list(rows), schema))
    write = write_settings(folder, SCHEMA)
    delta = DeltaSettings(write=write, key_ids=[1], mode=UPSERT, format_version=2)
    source = Source(path=str(log), format="parquet", size_bytes=log.stat().st_size)
    task = ChangesTask(
        task=0,
        write=write,
        units=[SourceUnit(source=source, input_bytes=1)],
        reducers=3,
        delta=delta,
        kinds="op",
        by_partition=False,
    )
    context = TaskContext(storage=Storage(), attempt="a", stopped=threading.Event())
    for reducer, blob in send_changes(task, context):
        for batch in pa.ipc.open_stream(blob):
            yield reducer, batch


def change(op: str | None, number: float | None, name: str | None = "n", **more: Any) -> Row:
    return {"op": op, "id": number, "name": name, "at": None, "point": None, **more}


def test_a_key_s_changes_go_to_one_reducer_in_their_order(tmp_path: Path) -> None:
    batches = [
        [change("+I", 1, "a"), change("+I", 2, "a"), change("-U", 3)],
        [change("-U", 1), change("-U", 2)],
        [],
        [change("+U", 1, "b"), change("-D", 2, None), change("+I", 3, "b"), change("+I", 1, "c")],
    ]
    found: dict[float, list[tuple[int, str | None, int]]] = {}
    for reducer, batch in send(tmp_path, batches):
        kinds = batch.column(batch.num_columns - 1).to_pylist()
        for row, kind in zip(batch.to_pylist(), kinds, strict=True):
            found.setdefault(row["id"], []).append((reducer, row["name"], kind))

    assert {len({reducer for reducer, _, _ in sent}) for sent in found.values()} == {1}
    assert {number: [(name, kind) for _, name, kind in sent] for number, sent in found.items()} == {
        1: [("a", INSERT), ("b", UPDATE_AFTER), ("c", INSERT)],
        2: [("a", INSERT), (None, DELETE)],
        3: [("b", INSERT)],
    }


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (change("+i+", 7, "q"), r"'\+i\+' in the column op.*in the row .*7.0.*\"q\""),
        (change(None, 7, "q"), "NULL in the column op.*in the row .*7.0"),
        (change("+I", None, "q"), 'NULL in the key column id, in the row .*"name": "q"'),
        (change("-D", float("nan"), "q"), 'NaN in the key column id, in the row .*"name": "q"'),
        (change("+U", 7, None), 'NULL in the required column name, in the row .*"id": 7.0'),
        (change("+I", 7, "q", point={"x": None}), "required column point.x"),
    ],
)
def test_a_bad_row_is_reported_with_its_values(tmp_path: Path, bad: Row, message: str) -> None:
    rows = [change("+I", number) for number in range(20)]
    with pytest.raises(BadInputError, match=message):
        list(send(tmp_path, [rows, [*rows, bad, *rows]]))


def test_a_bad_row_with_a_time_that_has_no_text_is_reported(tmp_path: Path) -> None:
    far = pa.scalar(2**62, pa.int64()).cast(pa.timestamp("us"))
    bad = change("+I", None, at=far)
    with pytest.raises(BadInputError, match=r"NULL in the key column id$"):
        list(send(tmp_path, [[bad]]))


def test_long_rows_are_cut_in_messages(tmp_path: Path) -> None:
    bad = change("+I", None, "x" * 10_000, at=datetime.datetime(2024, 1, 1))
    with pytest.raises(BadInputError) as caught:
        list(send(tmp_path, [[bad]]))

    assert len(caught.value.message) < 500


def test_kinds_have_short_and_long_names_in_any_case() -> None:
    texts = ["+I", " -u", "+U", "-D", "insert", "Update_Before", "UPDATE_AFTER", "delete", "", None]
    short = [INSERT, UPDATE_BEFORE, UPDATE_AFTER, DELETE]

    assert row_kinds(pa.array(texts)).tolist() == [*short, *short, UNKNOWN, UNKNOWN]
    assert row_kinds(pa.array([], pa.string())).dtype == np.int8
