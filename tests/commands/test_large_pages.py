"""Small Parquet files that unpack to gigabytes: refused within seconds, unless the user raises the limit."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.cli.command_line import CommandLine
from support.tables.parquet_footers import with_unpacked_size

from lake.core.data.formats.parquet.batch_sizes import batch_rows
from lake.core.data.formats.parquet.page_sizes import dictionary_size, short_entries

MIB = 1024 * 1024


@pytest.mark.parametrize("codec", ["brotli", "gzip"])
@pytest.mark.parametrize(
    "sizes", [[3 * MIB, 3 * MIB], [1] * 5000 + [3 * MIB] + [1] * 5000], ids=["all rows", "one row"]
)
def test_values_above_the_limit_are_refused_and_it_can_be_raised(
    lake: CommandLine, monkeypatch: pytest.MonkeyPatch, codec: str, sizes: list[int]
) -> None:
    path = lake.warehouse.parent / "small.parquet"
    column = pa.array(["a" * size for size in sizes])
    nested = pa.MapArray.from_arrays(range(len(sizes) + 1), column, pa.array(range(len(sizes))))
    pq.write_table(pa.table({"m": nested}), path, compression=codec, use_dictionary=False)
    assert path.stat().st_size < MIB
    lake.ok("create", "db.t", "m map<string, long>")
    monkeypatch.setenv("LAKE_MAX_PAGE_SIZE", "2MB")

    for command in (["ingest", "db.t", path], ["add-files", "db.t", path]):
        found = lake(*command)
        assert found.exit_code == 3, found
        assert "in column m.key_value.key that unpack to" in " ".join(found.stderr.split())
        assert "LAKE_MAX_PAGE_SIZE=4GB" in " ".join(found.stderr.split())
    assert lake.table().current_snapshot() is None

    monkeypatch.setenv("LAKE_MAX_PAGE_SIZE", "16MB")
    assert lake.ok("ingest", "db.t", path)["result"]["rows_read"] == len(sizes)
    monkeypatch.setenv("LAKE_MAX_PAGE_SIZE", "2MB")
    assert lake("scan", "db.t", "--output", "-", "--output-format", "json").exit_code == 3
    monkeypatch.setenv("LAKE_MAX_PAGE_SIZE", "many")
    assert lake("ingest", "db.t", path).exit_code == 2


def test_values_that_are_large_in_the_file_too_are_read(
    lake: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = lake.warehouse.parent / "random.parquet"
    values = [Random(number).randbytes(3 * MIB) for number in range(2)]
    pq.write_table(pa.table({"x": values}), path, use_dictionary=False)
    monkeypatch.setenv("LAKE_MAX_PAGE_SIZE", "2MB")
    assert lake.ok("ingest", "db.t", path, "--create")["result"]["rows_read"] == 2


def test_large_columns_of_small_pages_are_read(
    lake: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = lake.warehouse.parent / "wide.parquet"
    texts = pa.array([f"{number:0100}" for number in range(50_000)])
    pq.write_table(pa.table({"x": texts}), path, use_dictionary=False)
    monkeypatch.setenv("LAKE_MAX_PAGE_SIZE", "2MB")
    assert lake.ok("ingest", "db.t", path, "--create")["result"]["rows_read"] == 50_000


@pytest.mark.parametrize("texts", [["a" * MIB], ["a" * MIB, "b" * MIB]], ids=len)
def test_a_row_that_repeats_long_entries_of_a_dictionary_is_refused(
    lake: CommandLine, monkeypatch: pytest.MonkeyPatch, texts: list[str]
) -> None:
    path = lake.warehouse.parent / "repeated.parquet"
    pq.write_table(pa.table({"x": [texts * 20, texts * 20]}), path, compression="zstd")
    assert path.stat().st_size < MIB
    monkeypatch.setenv("LAKE_MAX_PAGE_SIZE", "8MB")
    found = lake("ingest", "db.t", path, "--create")
    assert found.exit_code == 3, found
    assert "that unpack to" in " ".join(found.stderr.split())


@pytest.mark.parametrize("codec", ["brotli", "gzip", "zstd", "lz4"])
@pytest.mark.parametrize("command", ["ingest", "add-files"])
def test_a_small_size_in_the_footer_is_not_believed(
    lake: CommandLine, monkeypatch: pytest.MonkeyPatch, command: str, codec: str
) -> None:
    path = lake.warehouse.parent / "lies.parquet"
    pq.write_table(pa.table({"x": ["a" * 3 * MIB]}), path, compression=codec, use_dictionary=False)
    with_unpacked_size(path, 100)
    lake.ok("create", "db.t", "x string")
    monkeypatch.setenv("LAKE_MAX_PAGE_SIZE", "2MB")
    found = lake(command, "db.t", path)
    assert found.exit_code == 3, found
    assert "in column x that unpack to 3.0 MB at once" in " ".join(found.stderr.split())
    monkeypatch.setenv("LAKE_MAX_PAGE_SIZE", "4MB")
    lake.ok(command, "db.t", path)


def test_small_pages_of_one_row_are_refused_whatever_the_footer_says(
    lake: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = lake.warehouse.parent / "row.parquet"
    table = pa.table({"x": [["a" * MIB] * 20]})
    pq.write_table(table, path, compression="zstd", use_dictionary=False, data_page_size=MIB)
    with_unpacked_size(path, 100)
    monkeypatch.setenv("LAKE_MAX_PAGE_SIZE", "8MB")
    found = lake("ingest", "db.t", path, "--create")
    assert found.exit_code == 3, found
    assert "that unpack to 20.0 MB at once" in " ".join(found.stderr.split())


def test_a_dictionary_is_measured_whatever_the_footer_says(tmp_path: Path) -> None:
    path = tmp_path / "dictionary.parquet"
    repeated = pa.DictionaryArray.from_arrays(pa.array([0] * 4096, pa.int32()), ["a" * MIB])
    pq.write_table(pa.table({"x": repeated}), path, compression="zstd")
    with_unpacked_size(path, 1)
    with pa.OSFile(str(path)) as file:
        rows = batch_rows(pq.ParquetFile(file), file, 0, [0], 16 * MIB, path=str(path))
    assert rows < 64


def test_a_page_before_the_dictionary_does_not_bound_its_entries(tmp_path: Path) -> None:
    path = tmp_path / "dictionary.parquet"
    repeated = pa.DictionaryArray.from_arrays(pa.array([0] * 4096, pa.int32()), ["a" * MIB])
    pq.write_table(pa.table({"x": repeated}), path, compression="zstd")
    data = path.read_bytes()
    # The header of a page begins with its type, a number of one byte: 2, a dictionary, becomes 0, data.
    assert data[4:6] == b"\x15\x04"
    path.write_bytes(data[:5] + b"\x00" + data[6:])
    with pa.OSFile(str(path)) as file:
        chunk = pq.ParquetFile(file).metadata.row_group(0).column(0)
        assert dictionary_size(file, chunk, str(path)) is None


def test_the_entries_of_a_small_dictionary_are_not_read(tmp_path: Path) -> None:
    path = tmp_path / "dictionary.parquet"
    pq.write_table(pa.table({"x": ["a", "b"] * 50_000}), path, compression="zstd")
    with pa.OSFile(str(path)) as file:
        parquet = pq.ParquetFile(file)
        chunk = parquet.metadata.row_group(0).column(0)
        assert dictionary_size(file, chunk, str(path)) == 10
        read = CountedReads(file)
        assert batch_rows(parquet, read, 0, [0], 16 * MIB, path=str(path)) == 100_000
    assert read.bytes <= 256


@pytest.mark.parametrize("codec", ["zstd", "snappy", "gzip", "none"])
@pytest.mark.parametrize(
    ("others", "expected"),
    [
        ([], (5, 6)),
        (["x" * 255, "é"], (2, 255)),
        (["x" * 256], None),
        (["a\0\0\0"], None),
        ([""], None),
    ],
    ids=["short", "shorter", "long", "zeros", "empty"],
)
def test_the_entries_of_a_dictionary_of_short_texts_are_found(
    tmp_path: Path, codec: str, others: list[str], expected: tuple[int, int] | None
) -> None:
    path = tmp_path / "dictionary.parquet"
    texts = [f"name{number}" for number in range(50)]
    pq.write_table(pa.table({"x": [*texts[:20], *others, *texts[20:]]}), path, compression=codec)
    with pa.OSFile(str(path)) as file:
        chunk = pq.ParquetFile(file).metadata.row_group(0).column(0)
        assert short_entries(file, chunk, str(path)) == expected


class CountedReads:
    """A file that counts the bytes that are read."""

    def __init__(self, file: pa.NativeFile) -> None:
        self._file = file
        self.bytes = 0

    def seek(self, at: int) -> None:
        self._file.seek(at)

    def read(self, size: int) -> bytes:
        self.bytes += size
        return bytes(self._file.read(size))
