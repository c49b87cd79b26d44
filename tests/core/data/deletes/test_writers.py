"""Delete files that lake writes, read by PyArrow and PyIceberg; what is left of them after an error."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.deletion_vector import deletion_vectors_from_puffin_file
from pyiceberg.table.puffin import PuffinFile
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType
from support.tables.random_rows import write_settings
from support.tiers import examples

from lake.core.base.errors import RefusedError
from lake.core.data.deletes.row_positions import RowPositions
from lake.core.data.deletes.writers import (
    DeletedRows,
    PositionWriter,
    open_equality_writer,
    open_position_writer,
)
from lake.core.data.rows.writer import WriteSettings, open_writer
from lake.core.io.storage.storage import Storage
from lake.core.spec.types.arrow_schema import arrow_schema
from lake.core.table.manifests.data_files import EQUALITY_DELETES, POSITION_DELETES, DataFile

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "name", StringType(), required=False),
    NestedField(3, "pos", LongType(), required=False),
)
BY_NAME = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "name"), spec_id=4)
PATH, POS = 2147483546, 2147483545


def positions(rows: Iterable[int]) -> RowPositions:
    return RowPositions(np.array(sorted(rows), np.int64))


def open_positions(write: WriteSettings, version: int) -> PositionWriter:
    names = write.file_names(task=3, attempt="a")
    return open_position_writer(Storage(), write, format_version=version, names=names)


def deleted(path: str, rows: Iterable[int], earlier: Iterable[int] = ()) -> DeletedRows:
    return DeletedRows(
        path=path,
        spec_id=4,
        partition=(b"x y",),
        positions=positions(rows),
        earlier=positions(earlier),
    )


def local(file: DataFile) -> Path:
    return Path(file.path.removeprefix("file://"))


def files_below(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def test_rows_of_each_data_file_go_to_a_file_that_names_it(tmp_path: Path) -> None:
    write = write_settings(tmp_path, SCHEMA, BY_NAME)
    with open_positions(write, 2) as writer:
        writer.add(deleted("file:///b.parquet", [5, 2**40, 0]))
        writer.add(deleted("file:///a.parquet", [7, 9], earlier=[9]))
        writer.add(deleted("file:///c.parquet", [9], earlier=[9, 10]))
        files = writer.close()

    assert [file.referenced_data_file for file in files] == [
        "file:///b.parquet",
        "file:///a.parquet",
    ]
    assert [file.record_count for file in files] == [3, 1]
    for file in files:
        assert (file.content, file.format, file.spec_id) == (POSITION_DELETES, "PARQUET", 4)
        assert file.partition == (b"x y",)
        assert file.equality_ids is None
        assert file.sort_order_id is None
        assert file.size_bytes == local(file).stat().st_size
        assert file.lower_bounds[PATH] == file.upper_bounds[PATH]
        assert file.path.startswith(f"file://{tmp_path}/name=x+y/00003-a-{write.operation_id}-")
        assert file.path.endswith("-deletes.parquet")
    stored = pq.read_table(local(files[0]), partitioning=None)
    assert stored.to_pydict() == {
        "file_path": ["file:///b.parquet"] * 3,
        "pos": [0, 5, 2**40],
    }
    columns = pq.ParquetFile(local(files[0])).schema
    assert "required binary field_id=2147483546 file_path (String)" in str(columns)
    assert "required int64 field_id=2147483545 pos" in str(columns)


def test_a_path_too_long_for_statistics_still_names_the_data_file(tmp_path: Path) -> None:
    long = f"file:///{'x' * 9000}.parquet"
    with open_positions(write_settings(tmp_path, SCHEMA, BY_NAME), 2) as writer:
        writer.add(deleted(long, [3, 8]))
        (file,) = writer.close()

    assert file.lower_bounds == {PATH: long.encode(), POS: (3).to_bytes(8, "little")}
    assert file.upper_bounds == {PATH: long.encode(), POS: (8).to_bytes(8, "little")}


def test_many_positions_are_written_in_row_groups_that_fit_in_memory(tmp_path: Path) -> None:
    write = write_settings(tmp_path, SCHEMA, BY_NAME)
    with open_positions(write, 2) as writer:
        writer.add(deleted("file:///a.parquet", range(0, 5_000_000, 2)))
        (file,) = writer.close()

    stored = pq.read_table(local(file), partitioning=None)
    assert np.array_equal(stored["pos"].to_numpy(), np.arange(0, 5_000_000, 2))
    assert pa.compute.unique(stored["file_path"]).to_pylist() == ["file:///a.parquet"]
    assert len(file.split_offsets) == 3
    assert file.size_bytes < 20_000_000


def test_a_table_property_of_delete_files_goes_before_that_of_data_files(tmp_path: Path) -> None:
    write = write_settings(
        tmp_path,
        SCHEMA,
        BY_NAME,
        write__parquet__compression_codec="gzip",
        write__delete__parquet__compression_codec="snappy",
        write__metadata__metrics__column__pos="none",
    )
    with open_positions(write, 2) as writer:
        writer.add(deleted("file:///a.parquet", [1]))
        (file,) = writer.close()

    assert pq.ParquetFile(local(file)).metadata.row_group(0).column(0).compression == "SNAPPY"
    assert file.value_counts == {PATH: 1, POS: 1}


ROWS = st.sets(st.one_of(st.integers(0, 50), st.integers(0, 2**40)), max_size=20)


@settings(deadline=None, max_examples=examples(40))
@given(st.lists(st.tuples(ROWS, ROWS), max_size=4))
def test_vectors_of_one_puffin_file_hold_old_and_new_positions(
    tmp_path_factory: pytest.TempPathFactory, data_files: list[tuple[set[int], set[int]]]
) -> None:
    folder = tmp_path_factory.mktemp("vectors")
    with open_positions(write_settings(folder, SCHEMA, BY_NAME), 3) as writer:
        for number, (new, old) in enumerate(data_files):
            writer.add(deleted(f"file:///{number}.parquet", new, old))
        entries = writer.close()

    expected = {
        f"file:///{number}.parquet": sorted(new | old)
        for number, (new, old) in enumerate(data_files)
        if new - old
    }
    assert [entry.referenced_data_file for entry in entries] == list(expected)
    assert [entry.record_count for entry in entries] == [len(rows) for rows in expected.values()]
    assert len(files_below(folder)) == bool(expected)
    if not expected:
        return
    (path,) = files_below(folder)
    data = path.read_bytes()
    read = deletion_vectors_from_puffin_file(PuffinFile(data))
    assert [one.referenced_data_file for one in read] == list(expected)
    # PyIceberg cannot show a vector whose smallest position is above 2^32.
    shown = {path for path, rows in expected.items() if rows[0] < 2**32}
    assert {
        one.referenced_data_file: one.to_vector().to_pylist()
        for one in read
        if one.referenced_data_file in shown
    } == {path: expected[path] for path in shown}
    for entry in entries:
        assert (entry.path, entry.format, entry.size_bytes) == (
            f"file://{path}",
            "PUFFIN",
            len(data),
        )
        assert entry.content == POSITION_DELETES
        start, size = entry.content_offset or 0, entry.content_size_bytes or 0
        found = RowPositions.from_blob(data[start : start + size], "x")
        assert found.to_numpy().tolist() == expected[entry.referenced_data_file or ""]


def test_equality_deletes_contain_the_key_alone_and_are_in_the_rows_partition(
    tmp_path: Path,
) -> None:
    write = write_settings(tmp_path, SCHEMA, BY_NAME)
    columns = SCHEMA.select("id", "name")
    keys = pa.RecordBatch.from_pydict(
        {"id": [1, 2, 3], "name": ["x", "y", "x"]}, schema=arrow_schema(columns)
    )
    names = write.file_names(task=0, attempt="a")
    with open_equality_writer(
        Storage(), write, columns=columns, equality_ids=[2, 1], names=names
    ) as writer:
        writer.write(keys)
        files = writer.close()

    assert [(file.partition, file.record_count) for file in files] == [((b"x",), 2), ((b"y",), 1)]
    for file in files:
        assert file.content == EQUALITY_DELETES
        assert file.equality_ids == (1, 2)
        assert file.path.endswith("-deletes.parquet")
    first = pq.read_table(local(files[0]), partitioning=None)
    assert first.to_pydict() == {"id": [1, 3], "name": ["x", "x"]}
    assert first.schema.field(0).metadata[b"PARQUET:field_id"] == b"1"
    assert not first.schema.field(0).nullable
    assert files[0].lower_bounds[1] == (1).to_bytes(8, "little")
    assert files[0].upper_bounds[1] == (3).to_bytes(8, "little")


def test_equality_deletes_roll_at_their_own_target_size(tmp_path: Path) -> None:
    write = write_settings(tmp_path, SCHEMA, write__delete__target_file_size_bytes="200000")
    names = write.file_names(task=0, attempt="a")
    columns = SCHEMA.select("id")
    scattered = np.random.default_rng(1).integers(0, 2**62, 200_000)
    with open_equality_writer(
        Storage(), write, columns=columns, equality_ids=[1], names=names
    ) as writer:
        for start in range(0, len(scattered), 10_000):
            part = pa.array(scattered[start : start + 10_000])
            writer.write(pa.RecordBatch.from_arrays([part], schema=arrow_schema(columns)))
        files = writer.close()

    assert len(files) > 4
    assert max(file.size_bytes for file in files) < 400_000
    stored = [pq.read_table(local(file))["id"].to_numpy() for file in files]
    assert np.array_equal(np.concatenate(stored), scattered)


def test_names_of_one_task_never_repeat(tmp_path: Path) -> None:
    write = write_settings(tmp_path, SCHEMA)
    names = write.file_names(task=0, attempt="a")
    row = pa.RecordBatch.from_pylist([{"id": 1}], schema=arrow_schema(SCHEMA))
    data = open_writer(Storage(), write, task=0, attempt="a", names=names)
    equality = open_equality_writer(Storage(), write, columns=SCHEMA, equality_ids=[1], names=names)
    by_position = open_position_writer(Storage(), write, format_version=2, names=names)
    vectors = open_position_writer(Storage(), write, format_version=3, names=names)
    with data, equality, by_position, vectors:
        data.write(row)
        equality.write(row)
        by_position.add(deleted("file:///a.parquet", [1]))
        vectors.add(deleted("file:///a.parquet", [1]))
        files = [*data.close(), *equality.close(), *by_position.close(), *vectors.close()]

    stems = {Path(file.path).name.removesuffix(".parquet").split(".")[0] for file in files}
    numbers = {stem.removesuffix("-deletes")[-5:] for stem in stems}
    assert len(files) == len(numbers) == 4


@pytest.mark.parametrize("version", [2, 3])
def test_after_an_error_nothing_is_left(tmp_path: Path, version: int) -> None:
    with (
        pytest.raises(ZeroDivisionError),
        open_positions(write_settings(tmp_path, SCHEMA), version) as writer,
    ):
        writer.add(deleted("file:///a.parquet", [1]))
        writer.add(deleted("file:///b.parquet", [1]))
        assert files_below(tmp_path)
        raise ZeroDivisionError

    assert files_below(tmp_path) == []


@pytest.mark.parametrize("version", [2, 3])
def test_a_writer_left_without_close_takes_its_files_away(tmp_path: Path, version: int) -> None:
    with open_positions(write_settings(tmp_path, SCHEMA), version) as writer:
        writer.add(deleted("file:///a.parquet", [1]))

    assert files_below(tmp_path) == []


def test_format_version_1_has_no_delete_files(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match="version 1"):
        open_positions(write_settings(tmp_path, SCHEMA), 1)
