"""Small files of other formats than Parquet that unpack to gigabytes: refused, unless the user raises the limit."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from support.cli.command_line import CommandLine

from lake.core.data.sources.batches import typed_batches
from lake.core.data.sources.discovery import Source
from lake.core.io.storage.storage import Storage

MIB = 1024 * 1024
# The first bytes of what Zstandard wrote.
ZSTD = bytes.fromhex("28b52ffd")


def write_arrow(path: Path, table: pa.Table, codec: str | None) -> None:
    """Write a table as an Arrow IPC file, or as a stream if the name says so."""
    make = pa.ipc.new_stream if path.suffix == ".arrows" else pa.ipc.new_file
    options = pa.ipc.IpcWriteOptions(compression=codec)
    with make(str(path), table.schema, options=options) as writer:
        writer.write_table(table)


@pytest.mark.parametrize("codec", ["zstd", "lz4"])
@pytest.mark.parametrize("name", ["small.arrow", "small.arrows"])
@pytest.mark.parametrize("kind", ["plain", "dictionary"])
def test_batches_of_arrow_files_above_the_limit_are_refused_and_it_can_be_raised(
    lake: CommandLine, monkeypatch: pytest.MonkeyPatch, name: str, codec: str, kind: str
) -> None:
    path = lake.warehouse.parent / name
    column = pa.array(["a" * 3 * MIB])
    write_arrow(
        path, pa.table({"x": column.dictionary_encode() if kind != "plain" else column}), codec
    )
    assert path.stat().st_size < MIB // 10
    monkeypatch.setenv("LAKE_MAX_PAGE_SIZE", "2MB")
    found = lake("ingest", "db.t", path, "--create", "--format", "arrow")
    assert found.exit_code == 3, found
    text = " ".join(found.stderr.split())
    place = "batch 1" if kind == "plain" else "a dictionary"
    assert f"{name} has values in {place} that unpack to 3.0 MB at once" in text
    monkeypatch.setenv("LAKE_MAX_PAGE_SIZE", "4MB")
    assert (
        lake.ok("ingest", "db.t", path, "--create", "--format", "arrow")["result"]["rows_read"] == 1
    )


@pytest.mark.parametrize("name", ["plain.arrow", "plain.arrows"])
def test_batches_that_are_large_in_the_file_too_are_read(
    lake: CommandLine, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    path = lake.warehouse.parent / name
    write_arrow(path, pa.table({"x": ["a" * 3 * MIB, "b"]}), None)
    monkeypatch.setenv("LAKE_MAX_PAGE_SIZE", "2MB")
    found = lake.ok("ingest", "db.t", path, "--create", "--format", "arrow")
    assert found["result"]["rows_read"] == 2


@pytest.mark.parametrize("name", ["small.arrow", "small.arrows"])
def test_a_buffer_of_a_negative_length_is_refused(lake: CommandLine, name: str) -> None:
    path = lake.warehouse.parent / name
    write_arrow(path, pa.table({"x": ["a" * 5000]}), "zstd")
    data = path.read_bytes()
    declared, negative = ((x).to_bytes(8, "little", signed=True) + ZSTD for x in (5000, -2))
    assert data.count(declared) == 1
    path.write_bytes(data.replace(declared, negative))
    found = lake("ingest", "db.t", path, "--create", "--format", "arrow")
    assert found.exit_code == 7, found
    text = " ".join(found.stderr.split())
    assert f"{name} has batch 1 that cannot be read: a buffer declares a length of -2 bytes" in text


@pytest.mark.parametrize("kind", ["dictionary", "views"])
def test_texts_that_rows_share_are_copied_in_parts(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "shared.arrow"
    text = pa.array(["a" * MIB], pa.string_view())
    _, views, data = text.buffers()
    columns = {
        "dictionary": pa.DictionaryArray.from_arrays(pa.array([0] * 4096, pa.int32()), ["a" * MIB]),
        "views": pa.Array.from_buffers(
            text.type, 4096, [None, pa.py_buffer(bytes(views) * 4096), data]
        ),
    }
    write_arrow(path, pa.table({"x": columns[kind]}), None)
    source = Source(path=str(path), format="arrow", size_bytes=path.stat().st_size)
    rows = [batch.num_rows for _, batch, _ in typed_batches(Storage({}), source, ["x"])]
    assert sum(rows) == 4096
    assert max(rows) == 16
