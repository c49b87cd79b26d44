"""`lake ingest --upsert` does not read files that cannot contain one of the source's keys."""

from __future__ import annotations

import uuid
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.cli.command_line import CommandLine

FILES, ROWS = 4, 40


def keys_of(kind: str) -> pa.Array:
    numbers = range(FILES * ROWS)
    if kind == "uuid":
        raw = sorted(uuid.uuid5(uuid.NAMESPACE_OID, str(number)).bytes for number in numbers)
        return pa.ExtensionArray.from_storage(pa.uuid(), pa.array(raw, pa.binary(16)))
    if kind == "binary":
        return pa.array([number.to_bytes(4, "big") for number in numbers], pa.binary())
    if kind == "double":
        return pa.array([number / 8 - 7 for number in numbers], pa.float64())
    if kind == "decimal":
        return pa.array([Decimal(number).scaleb(-2) for number in numbers], pa.decimal128(9, 2))
    if kind == "string":
        return pa.array([f"key-{number:06d}" for number in numbers])
    return pa.array(numbers, pa.int64())


def load(lake: CommandLine, tmp_path: Path, kind: str, *options: object) -> pa.Table:
    """Create a table sorted by key, one file for each of some appends; returns its rows."""
    rows = pa.table({"k": keys_of(kind), "v": pa.array([0] * (FILES * ROWS), pa.int64())})
    for number in range(FILES):
        path = tmp_path / "part.parquet"
        pq.write_table(rows.slice(number * ROWS, ROWS), path)
        lake.ok("ingest", "db.t", path, *(() if number else ("--create", *options)))
    return rows


def damage_all_but(lake: CommandLine, tables: pa.Table, wanted: set[int]) -> int:
    """Replace the files that contain none of some keys with bytes that cannot be read; returns their number."""
    keys = tables["k"].to_pylist()
    chosen = {repr(keys[number]) for number in wanted}
    damaged = 0
    for path in Path(lake.warehouse).rglob("data/**/*.parquet"):
        if not chosen & {repr(key) for key in pq.read_table(path)["k"].to_pylist()}:
            path.write_bytes(b"x" * path.stat().st_size)
            damaged += 1
    return damaged


@pytest.mark.parametrize("kind", ["uuid", "binary", "double", "decimal", "string", "long"])
def test_files_without_a_key_are_not_read(lake: CommandLine, tmp_path: Path, kind: str) -> None:
    rows = load(lake, tmp_path, kind)
    # They are in the first and the last file, so that their range excludes nothing.
    wanted = {1, FILES * ROWS - 2}
    assert damage_all_but(lake, rows, wanted) == FILES - 2
    changed = rows.take(sorted(wanted)).set_column(1, "v", pa.array([1, 1], pa.int64()))
    pq.write_table(changed, tmp_path / "changed.parquet")
    result = lake.ok("ingest", "db.t", tmp_path / "changed.parquet", "--upsert", "--key", "k")
    assert result["result"]["rows_updated"] == 2
    assert result["result"]["rows_inserted"] == 0


def test_more_than_a_hundred_keys_choose_buckets(lake: CommandLine, tmp_path: Path) -> None:
    rows = pa.table({"k": pa.array(range(1000), pa.int64()), "v": pa.array([0] * 1000, pa.int64())})
    pq.write_table(rows, tmp_path / "rows.parquet")
    lake.ok(
        "ingest", "db.t", tmp_path / "rows.parquet", "--create", "--partition-by", "bucket(4, k)"
    )
    files = list(Path(lake.warehouse).rglob("data/**/*.parquet"))
    assert len(files) == 4
    keys = pq.read_table(files[0])["k"].to_pylist()
    assert len(keys) > 100
    for path in files[1:]:
        path.write_bytes(b"x" * path.stat().st_size)
    changed = pa.table({"k": pa.array(keys, pa.int64()), "v": pa.array(keys, pa.int64())})
    pq.write_table(changed, tmp_path / "changed.parquet")
    result = lake.ok("ingest", "db.t", tmp_path / "changed.parquet", "--upsert", "--key", "k")
    assert result["result"]["rows_updated"] == len(keys)


def test_keys_beyond_the_limit_choose_files_by_their_range(
    lake: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lake.core.load.upsert.target_keys._LIMIT_BYTES", 20)
    rows = load(lake, tmp_path, "uuid")
    assert damage_all_but(lake, rows, {1, 2}) == FILES - 1
    changed = rows.take([1, 2]).set_column(1, "v", pa.array([1, 1], pa.int64()))
    pq.write_table(changed, tmp_path / "changed.parquet")
    result = lake.ok("ingest", "db.t", tmp_path / "changed.parquet", "--upsert", "--key", "k")
    assert result["result"]["rows_updated"] == 2
