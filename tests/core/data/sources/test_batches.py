"""Rows of a source arrive whole, in bounded batches, or not at all."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.tiers import examples

from lake.core.base.errors import BadInputError, LakeError
from lake.core.data.schemas.new_tables import NewColumns
from lake.core.data.sources.batches import source_batches, source_columns, split_parquet
from lake.core.data.sources.discovery import Position, Source
from lake.core.io.storage.storage import Storage

MIXED = pa.table(
    {
        "id": range(300),
        "text": [f"é{n}" for n in range(300)],
        "list": [[n] * (n % 4) for n in range(300)],
        "word": pa.array([f"{n % 5}" for n in range(300)]).dictionary_encode(),
        "in": [{"x": n} for n in range(300)],
    }
)


def source_of(path: Path, kind: str = "parquet") -> Source:
    return Source(path=str(path), format=kind, size_bytes=path.stat().st_size)


def rows_of(source: Source, schema: pa.Schema) -> list[dict[str, Any]]:
    batches = source_batches(Storage(), source, NewColumns().schema_of(schema))
    return [row for batch in batches for row in batch.to_pylist()]


@pytest.mark.slow
@pytest.mark.parametrize("short", [0, 100])
def test_a_tiny_parquet_file_that_expands_a_millionfold_is_read_in_bounded_batches(
    tmp_path: Path, short: int
) -> None:
    rows = pa.table({"text": ["short"] * short + ["x" * (1 << 20)] * 500})
    path = tmp_path / "x.parquet"
    pq.write_table(rows, path, dictionary_pagesize_limit=1 << 26, compression="zstd")
    assert path.stat().st_size < 1000

    sizes = [
        batch.nbytes
        for batch in source_batches(Storage(), source_of(path), NewColumns().schema_of(rows.schema))
    ]

    assert sum(sizes) > 500 << 20
    assert max(sizes) <= 16 << 20


def test_a_large_arrow_batch_is_cut(tmp_path: Path) -> None:
    rows = pa.table({"id": range(5_000_000)})
    with pa.ipc.new_file(tmp_path / "x.arrow", rows.schema) as file:
        file.write_table(rows)

    source = source_of(tmp_path / "x.arrow", "arrow")
    sizes = [
        batch.num_rows
        for batch in source_batches(Storage(), source, NewColumns().schema_of(rows.schema))
    ]

    assert sum(sizes) == 5_000_000
    assert max(sizes) <= 64 * 1024


@settings(
    max_examples=examples(30),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(rows=st.integers(1, 300), group=st.integers(1, 60), target=st.integers(1, 5000))
def test_pieces_of_a_parquet_file_hold_each_row_once(
    tmp_path: Path, rows: int, group: int, target: int
) -> None:
    path = tmp_path / "x.parquet"
    pq.write_table(MIXED.slice(0, rows), path, row_group_size=group)
    whole = source_of(path)

    pieces = split_parquet(Storage(), whole, target)

    ids = [row["id"] for piece in pieces for row in rows_of(piece, MIXED.schema)]
    assert ids == list(range(rows))
    assert sum(piece.size_bytes for piece in pieces) <= whole.size_bytes
    assert len(pieces) == 1 or all(len(piece.row_groups or ()) for piece in pieces)


@pytest.mark.parametrize("kind", ["file", "stream", "parquet"])
def test_broken_bytes_give_an_error_or_the_rows_and_never_end_the_process(
    tmp_path: Path, kind: str
) -> None:
    path = tmp_path / "x"
    if kind == "parquet":
        pq.write_table(MIXED, path, write_page_checksum=True)
    else:
        make = pa.ipc.new_file if kind == "file" else pa.ipc.new_stream
        with make(path, MIXED.schema) as writer:
            writer.write_table(MIXED, max_chunksize=100)
    sound, pick = path.read_bytes(), random.Random(7)
    refused = 0
    for _ in range(150):
        broken = bytearray(sound)
        for _ in range(pick.choice([1, 1, 3])):
            broken[pick.randrange(len(broken))] = pick.randrange(256)
        path.write_bytes(broken[: pick.choice([len(broken), pick.randrange(len(broken))])])
        source = source_of(path, "parquet" if kind == "parquet" else "arrow")
        try:
            source_columns(Storage(), source, None, infer=False)
            assert len(rows_of(source, MIXED.schema)) == 300 or kind == "stream"
        except LakeError:
            refused += 1
    assert refused > 50


def test_a_value_that_does_not_fit_is_named_with_its_row_in_the_file(tmp_path: Path) -> None:
    times = pa.array([1000] * 2500 + [1001] + [1000] * 10, pa.timestamp("ns"))
    pq.write_table(pa.table({"at": times}), tmp_path / "x.parquet", row_group_size=1000)

    with pytest.raises(
        BadInputError, match=r"column at of .*x\.parquet, row 2501: .* is not a valid timestamp"
    ):
        rows_of(source_of(tmp_path / "x.parquet"), pa.schema([("at", pa.timestamp("us"))]))


def test_text_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    raw = pa.array([b"ok", b"\xff"], pa.binary())
    text = pa.Array.from_buffers(pa.string(), 2, raw.buffers())
    pq.write_table(pa.table({"s": text}), tmp_path / "x.parquet")

    with pytest.raises(LakeError):
        rows_of(source_of(tmp_path / "x.parquet"), pa.schema([("s", pa.string())]))


def test_a_null_row_column_and_missing_columns_are_null(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": pa.nulls(2), "b": [1, 2]}), tmp_path / "x.parquet")
    wanted = pa.schema([("c", pa.string()), ("a", pa.int64()), ("b", pa.int64())])

    assert rows_of(source_of(tmp_path / "x.parquet"), wanted) == [
        {"c": None, "a": None, "b": 1},
        {"c": None, "a": None, "b": 2},
    ]


@pytest.mark.parametrize("name", ["rows.csv", "rows.csv.gz", "rows.json", "rows.parquet"])
def test_the_position_grows_from_nothing_to_the_whole_source(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    rows = pa.table({"id": pa.array(range(400_000)), "text": pa.array(["x" * 40] * 400_000)})
    if name.endswith("parquet"):
        pq.write_table(rows, path, row_group_size=100_000)
    elif "csv" in name:
        with pa.output_stream(path, compression="gzip" if name.endswith("gz") else None) as file:
            arrow_csv.write_csv(rows, file)
    else:
        path.write_text("".join(f'{{"id": {number}, "text": "x"}}\n' for number in range(400_000)))
    position = Position()
    schema = NewColumns().schema_of(rows.schema)
    source = source_of(path, name.split(".")[1])
    batches = source_batches(Storage(), source, schema, position=position)
    shares = [position.share for _ in batches]

    assert shares == sorted(shares)
    assert len(shares) > 1
    assert position.share == 1.0
