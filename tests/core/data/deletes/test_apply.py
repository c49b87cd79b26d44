"""Rows are left out exactly as a model of the specification leaves them out, however files are cut and read."""

from __future__ import annotations

import itertools
import math
import struct
import threading
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.expressions import And, EqualTo, GreaterThanOrEqual, IsNull, LessThan
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DoubleType, LongType, NestedField, StringType
from support.oracles.delete_rules import applies
from support.tables.random_rows import shown
from support.tiers import examples

from lake.core.base.errors import CorruptFileError, RefusedError
from lake.core.data.deletes.apply import Deletes, EqualityGroups, read_rows
from lake.core.data.deletes.puffin import PuffinWriter
from lake.core.data.deletes.row_positions import RowPositions
from lake.core.data.deletes.written_positions import found_rows
from lake.core.data.keys.columns import key_schema
from lake.core.data.rows.reader import FileSlice, ReadSettings, read_batches, read_positions
from lake.core.io.storage.storage import Storage
from lake.core.spec.expressions.filters import bind_filter
from lake.core.spec.types.arrow_schema import arrow_schema
from lake.core.table.manifests.data_files import DeleteFile

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "s", StringType(), required=False),
    NestedField(3, "x", DoubleType(), required=False),
    NestedField(4, "d", LongType(), required=False),
)
SPECS = {
    0: PartitionSpec(spec_id=0),
    1: PartitionSpec(PartitionField(4, 1000, IdentityTransform(), "d"), spec_id=1),
}
VALUES = {
    1: st.one_of(st.none(), st.integers(0, 6)),
    2: st.sampled_from([None, "", "a", "ab", "ü"]),
    3: st.sampled_from([None, math.nan, 0.0, -0.0, 1.5]),
}
GROUP_ROWS = 3
Row = tuple[Any, ...]


def numbered(schema: pa.Schema, ids: Sequence[int]) -> pa.Schema:
    fields = zip(schema, ids, strict=True)
    return pa.schema(
        [item.with_metadata({b"PARQUET:field_id": str(n).encode()}) for item, n in fields]
    )


def put(folder: Path, rows: pa.Table, group_rows: int = 10**6) -> dict[str, Any]:
    """Write a Parquet file; return what describes it."""
    path = folder / f"{uuid.uuid4()}.parquet"
    pq.write_table(rows, path, row_group_size=group_rows)
    size = path.stat().st_size
    return {"path": f"file://{path}", "size_bytes": size, "record_count": rows.num_rows}


def data_file(folder: Path, rows: Sequence[Row], spec_id: int, number: int) -> FileSlice:
    columns = [
        pa.array([row[place] for row in rows], item.type)
        for place, item in enumerate(arrow_schema(SCHEMA))
    ]
    table = pa.Table.from_arrays(columns, schema=arrow_schema(SCHEMA))
    partition = () if spec_id == 0 else (struct.pack("<q", rows[0][3]),)
    return FileSlice(
        **put(folder, table, GROUP_ROWS),
        spec_id=spec_id,
        partition=partition,
        sequence_number=number,
    )


def position_file(
    folder: Path, places: Sequence[tuple[str, int]], group_rows: int = 4, **more: Any
) -> DeleteFile:
    kind = pa.schema([pa.field("a", pa.string()), pa.field("b", pa.int64())])
    rows = pa.table(
        [[path for path, _ in places], [position for _, position in places]],
        schema=numbered(kind, [2147483546, 2147483545]),
    )
    return DeleteFile(content=1, **put(folder, rows, group_rows), **more)


def equality_file(folder: Path, ids: Sequence[int], keys: Sequence[Row], **more: Any) -> DeleteFile:
    """Write an equality delete file; its columns stand in the order of the ids and have names of their own."""
    fields = [arrow_schema(SCHEMA).field(n - 1).with_name(f"k{n}") for n in ids]
    columns = [
        pa.array([key[place] for key in keys], fields[place].type) for place in range(len(ids))
    ]
    rows = pa.Table.from_arrays(columns, schema=pa.schema(fields))
    return DeleteFile(content=2, equality_ids=tuple(ids), **put(folder, rows), **more)


def vector_file(folder: Path, data: FileSlice, positions: set[int], number: int) -> DeleteFile:
    location = f"file://{folder}/{uuid.uuid4()}.puffin"
    blob = RowPositions(np.array(sorted(positions), np.int64)).to_blob()
    with PuffinWriter(Storage(), location) as writer:
        offset, size = writer.add_vector(blob, data_file=data.path, positions=len(positions))
        total = writer.close()
    return DeleteFile(
        path=location,
        format="PUFFIN",
        content=1,
        spec_id=data.spec_id,
        partition=data.partition,
        record_count=len(positions),
        size_bytes=total,
        sequence_number=number,
        referenced_data_file=data.path,
        content_offset=offset,
        content_size_bytes=size,
    )


class DeleteModel:
    """Data files, delete files, and which rows are left by the rule."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.rows: dict[str, list[Row]] = {}
        self.files: list[FileSlice] = []
        self.deletes: list[DeleteFile] = []
        # What each delete file deletes: (path, position) pairs, or ids and keys.
        self.places: dict[int, set[tuple[str, int]]] = {}
        self.keys: dict[int, tuple[Sequence[int], list[Row]]] = {}

    def add_data(self, rows: Sequence[Row], spec_id: int, number: int) -> FileSlice:
        file = data_file(self.folder, rows, spec_id, number)
        self.files.append(file)
        self.rows[file.path] = list(rows)
        return file

    def add_positions(self, delete: DeleteFile, places: set[tuple[str, int]]) -> None:
        self.places[len(self.deletes)] = places
        self.deletes.append(delete)

    def add_keys(self, delete: DeleteFile, ids: Sequence[int], keys: list[Row]) -> None:
        self.keys[len(self.deletes)] = (ids, keys)
        self.deletes.append(delete)

    def is_deleted(self, file: FileSlice, position: int) -> bool:
        row = self.rows[file.path][position]
        for number, delete in enumerate(self.deletes):
            if applies(delete, file, self.deletes, {0}):
                if number in self.places:
                    if (file.path, position) in self.places[number]:
                        return True
                else:
                    ids, keys = self.keys[number]
                    if shown([row[n - 1] for n in ids]) in {shown(list(key)) for key in keys}:
                        return True
        return False

    def left(self, file: FileSlice) -> list[int]:
        return [n for n in range(len(self.rows[file.path])) if not self.is_deleted(file, n)]

    def settings(self, **more: Any) -> ReadSettings:
        ids = {column for delete in self.deletes for column in delete.equality_ids or ()}
        return ReadSettings(
            **{
                "projection": SCHEMA,
                "schema": SCHEMA,
                "specs": SPECS,
                "deletes": tuple(self.deletes),
                "key_types": key_schema(ids, [SCHEMA]) if ids else None,
                **more,
            }
        )


@st.composite
def built(draw: st.DrawFn, folder: Path) -> DeleteModel:
    model = DeleteModel(folder)
    for _ in range(draw(st.integers(1, 3))):
        spec_id, day = draw(st.sampled_from([0, 1])), draw(st.integers(1, 2))
        rows = draw(st.lists(st.tuples(*VALUES.values()), min_size=1, max_size=11))
        model.add_data([(*row, day) for row in rows], spec_id, draw(st.integers(1, 4)))
    for _ in range(draw(st.integers(0, 4))):
        kind = draw(st.sampled_from(["partition", "file", "key", "key", "vector"]))
        target = draw(st.sampled_from(model.files))
        place: dict[str, Any] = {"spec_id": target.spec_id, "partition": target.partition}
        number = draw(st.integers(1, 5))
        if kind == "key":
            ids = draw(st.permutations([1, 2, 3]))[: draw(st.integers(1, 3))]
            keys = draw(st.lists(st.tuples(*(VALUES[n] for n in ids)), min_size=1, max_size=4))
            if draw(st.booleans()):
                place = {"spec_id": 0, "partition": ()}
            delete = equality_file(folder, ids, keys, sequence_number=number, **place)
            model.add_keys(delete, ids, keys)
            continue
        if kind == "vector":
            known = {d.referenced_data_file for d in model.deletes if d.format == "PUFFIN"}
            if target.path in known:
                continue
            positions = draw(st.sets(st.integers(0, 11), min_size=1))
            number = max(number, target.sequence_number)
            delete = vector_file(folder, target, positions, number)
            model.add_positions(delete, {(target.path, n) for n in positions})
            continue
        paths = [target.path] if kind == "file" else [file.path for file in model.files]
        found = draw(
            st.lists(st.tuples(st.sampled_from(paths), st.integers(0, 11)), min_size=1, max_size=9)
        )
        if kind == "file":
            place["referenced_data_file"] = target.path
        # Not sorted, and with repetitions: no reader may rely on the order.
        delete = position_file(folder, found, sequence_number=number, **place)
        model.add_positions(delete, set(found))
    return model


def cuts(draw: st.DrawFn, file: FileSlice, rows: int) -> list[FileSlice]:
    """Cut a file: not at all, by rows, or by row groups."""
    way = draw(st.sampled_from(["whole", "rows", "bytes"]))
    if way == "rows":
        at = sorted({0, rows, *draw(st.lists(st.integers(0, rows), max_size=2))})
        return [replace(file, skip_rows=a, take_rows=b - a) for a, b in itertools.pairwise(at)]
    if way == "bytes":
        metadata = pq.read_metadata(file.path.removeprefix("file://"))
        starts = [
            metadata.row_group(n).column(0).dictionary_page_offset
            for n in range(metadata.num_row_groups)
        ]
        at = sorted({0, file.size_bytes, *draw(st.sets(st.sampled_from(starts)))})
        return [replace(file, start=a, length=b - a) for a, b in itertools.pairwise(at)]
    return [file]


FILTERS: Mapping[str, Any] = {
    "none": (None, lambda row: True),
    "id >= 4": (
        bind_filter(GreaterThanOrEqual("id", 4), SCHEMA),
        lambda row: row[0] is not None and row[0] >= 4,
    ),
    "1 <= id < 3": (
        bind_filter(And(GreaterThanOrEqual("id", 1), LessThan("id", 3)), SCHEMA),
        lambda row: row[0] is not None and 1 <= row[0] < 3,
    ),
    "s is NULL": (bind_filter(IsNull("s"), SCHEMA), lambda row: row[1] is None),
    "s = a": (bind_filter(EqualTo("s", "a"), SCHEMA), lambda row: row[1] == "a"),
}


@settings(deadline=None, max_examples=examples(150))
@given(st.data())
def test_what_is_left_is_what_the_model_leaves(
    tmp_path_factory: pytest.TempPathFactory, choice: st.DataObject
) -> None:
    draw = choice.draw
    model = draw(built(tmp_path_factory.mktemp("model")))
    condition, matches = FILTERS[draw(st.sampled_from(sorted(FILTERS)))]
    projection = SCHEMA.select(*draw(st.sampled_from([["id", "s", "x", "d"], ["x"], ["s", "d"]])))
    places = [item.field_id - 1 for item in projection.fields]
    reading = model.settings(
        projection=projection,
        row_filter=condition,
        batch_bytes=draw(st.sampled_from([1, 64, 1 << 20])),
    )
    slices = [part for file in model.files for part in cuts(draw, file, len(model.rows[file.path]))]
    # Keys that do not fit in memory are looked up beforehand.
    memory = draw(st.sampled_from([1 << 20, 1]))
    deletes = Deletes(Storage(), reading, slices, memory_bytes=memory)
    found: dict[str, list[tuple[int, str]]] = {file.path: [] for file in model.files}
    for part in slices:
        for positions, batch in read_positions(Storage(), part, reading, deletes):
            assert batch.schema == arrow_schema(projection)
            assert batch.num_rows == len(positions)
            rows = zip(*(column.to_pylist() for column in batch.columns), strict=True)
            found[part.path] += [
                (int(at), shown(list(row))) for at, row in zip(positions, rows, strict=True)
            ]
    deletes.close()
    for file in model.files:
        rows = model.rows[file.path]
        assert found[file.path] == [
            (n, shown([rows[n][place] for place in places]))
            for n in model.left(file)
            if matches(rows[n])
        ]
    if condition is None:
        gone = sum(len(model.rows[f.path]) - len(model.left(f)) for f in model.files)
        assert deletes.dropped == gone


@pytest.fixture
def model(tmp_path: Path) -> DeleteModel:
    """One unpartitioned file of ten rows, ids 0 to 9."""
    model = DeleteModel(tmp_path)
    model.add_data([(n, f"n{n}", None, 1) for n in range(10)], 0, 1)
    return model


def ids(model: DeleteModel, *deletes: DeleteFile, **more: Any) -> list[int]:
    """Return the ids that are left of the first file."""
    model.deletes = list(deletes)
    reading = model.settings(**more)
    found = Deletes(Storage(), reading, model.files)
    batches = read_batches(Storage(), model.files[0], reading, found)
    return [row["id"] for batch in batches for row in batch.to_pylist()]


HERE: Mapping[str, Any] = {"spec_id": 0, "sequence_number": 2}


def test_settings_with_deletes_are_not_read_without_them(model: DeleteModel) -> None:
    model.deletes = [position_file(model.folder, [(model.files[0].path, 0)], **HERE)]
    with pytest.raises(ValueError, match="delete files"):
        next(read_batches(Storage(), model.files[0], model.settings()))


def test_files_that_deletes_were_not_made_for_are_not_read_with_them(model: DeleteModel) -> None:
    model.deletes = [position_file(model.folder, [(model.files[0].path, 0)], **HERE)]
    deletes = Deletes(Storage(), model.settings(), model.files)
    other = replace(model.files[0], skip_rows=1)
    with pytest.raises(ValueError, match="is not one of the files"):
        next(read_batches(Storage(), other, model.settings(), deletes))


@pytest.mark.parametrize(
    "damage",
    [
        lambda rows: rows.set_column(1, rows.schema.field(1), pa.array([-1, 2], pa.int64())),
        lambda rows: rows.set_column(1, rows.schema.field(1), pa.array([None, 2], pa.int64())),
        lambda rows: rows.set_column(
            1, rows.schema.field(1).with_type(pa.string()), pa.array(["1", "2"])
        ),
        lambda rows: rows.set_column(
            1, rows.schema.field(1).with_type(pa.float64()), pa.array([1.0, 2.0])
        ),
        lambda rows: rows.drop_columns(["b"]),
        lambda rows: rows.drop_columns(["a"]),
        lambda rows: rows.slice(1),
    ],
    ids=["negative", "NULL", "text", "float", "no positions", "no paths", "a row less"],
)
def test_broken_position_deletes_are_refused(model: DeleteModel, damage: Any) -> None:
    path = model.files[0].path
    delete = position_file(model.folder, [(path, 1), (path, 2)], **HERE)
    assert ids(model, delete) == [0, *range(3, 10)]

    place = delete.path.removeprefix("file://")
    pq.write_table(damage(pq.read_table(place)), place)
    with pytest.raises(CorruptFileError):
        ids(model, delete)


def test_position_deletes_without_field_ids_are_read_by_name(model: DeleteModel) -> None:
    path = model.files[0].path
    delete = position_file(model.folder, [(path, 1), (path, 2)], **HERE)
    place = delete.path.removeprefix("file://")
    rows = pa.table({"row": [None, None], "pos": [3, 4], "file_path": [path, path]})
    pq.write_table(rows, place)

    assert ids(model, delete) == [0, 1, 2, *range(5, 10)]


def test_a_position_delete_file_names_more_files_than_are_read(model: DeleteModel) -> None:
    path = model.files[0].path
    places = [(f"elsewhere{n}", 1) for n in range(300)] + [(path, 7)]
    delete = position_file(model.folder, places, group_rows=50, **HERE)
    assert ids(model, delete) == [*range(7), 8, 9]

    for number in range(250):
        model.files.append(replace(model.files[0], path=f"elsewhere{number}"))
    assert ids(model, delete) == [*range(7), 8, 9]


@pytest.mark.parametrize(
    "damage",
    [
        lambda rows: rows.drop_columns(["k2"]),
        lambda rows: rows.slice(1),
        lambda rows: rows.set_column(
            0, rows.schema.field(0).with_type(pa.string()), pa.array(["1", "2"])
        ),
    ],
    ids=["no key", "a row less", "text"],
)
def test_broken_equality_deletes_are_refused(model: DeleteModel, damage: Any) -> None:
    delete = equality_file(model.folder, [1, 2], [(1, "n1"), (2, "n3")], **HERE)
    assert ids(model, delete) == [0, *range(2, 10)]

    place = delete.path.removeprefix("file://")
    pq.write_table(damage(pq.read_table(place)), place)
    with pytest.raises(CorruptFileError):
        ids(model, delete)


def test_a_vector_of_another_cardinality_is_refused(model: DeleteModel) -> None:
    delete = vector_file(model.folder, model.files[0], {1, 2}, 2)
    assert ids(model, delete) == [0, *range(3, 10)]
    with pytest.raises(CorruptFileError, match="2 positions"):
        ids(model, replace(delete, record_count=3))


def test_positions_behind_the_end_of_a_file_delete_nothing(model: DeleteModel) -> None:
    path = model.files[0].path
    assert ids(model, position_file(model.folder, [(path, 10**12)], **HERE)) == list(range(10))


def test_delete_files_of_another_format_than_their_entries_say_are_refused(
    model: DeleteModel,
) -> None:
    delete = position_file(model.folder, [(model.files[0].path, 1)], **HERE)
    with pytest.raises(CorruptFileError, match="Avro"):
        ids(model, replace(delete, format="AVRO"))
    with pytest.raises(CorruptFileError, match="cannot be read"):
        ids(model, replace(equality_file(model.folder, [1], [(1,)], **HERE), format="ORC"))
    with pytest.raises(RefusedError, match="LANCE"):
        ids(model, replace(delete, format="LANCE"))


def test_two_vectors_of_a_file_are_refused(model: DeleteModel) -> None:
    delete = vector_file(model.folder, model.files[0], {1, 2}, 2)
    with pytest.raises(CorruptFileError, match="several"):
        ids(model, delete, delete)


def test_keys_are_read_once_for_all_files_and_forgotten_when_not_needed(
    model: DeleteModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lake.core.data.deletes import apply

    real, reads = apply.read_deleted_keys, []

    def counting(*arguments: Any) -> Iterator[Any]:
        reads.append(arguments)
        return real(*arguments)

    monkeypatch.setattr(apply, "read_deleted_keys", counting)
    model.add_data([(n, "x", None, 1) for n in range(3)], 0, 1)
    model.deletes = [equality_file(model.folder, [1], [(1,)], **HERE)]
    reading = model.settings()
    groups = EqualityGroups(Storage(), model.deletes, reading)
    for file in (*model.files, *model.files):
        deletes = Deletes(Storage(), reading, [file], groups)
        assert sum(b.num_rows for b in read_batches(Storage(), file, reading, deletes)) > 0
        assert deletes.dropped == 1
        deletes.close()
    assert len(reads) == 1

    nothing = replace(reading, deletes=())
    Deletes(Storage(), nothing, model.files, groups)
    deletes = Deletes(Storage(), reading, model.files, groups)
    list(read_batches(Storage(), model.files[0], reading, deletes))
    assert len(reads) == 2
    groups.close()


class Far(Storage):
    """A store whose answers about some files come when as many requests wait as there are such files.

    Args:
        late: the files whose requests are answered together.
    """

    def __init__(self, late: Sequence[str] = ()) -> None:
        super().__init__()
        self.asked: Counter[str] = Counter()
        self._disk, self._late = Storage(), frozenset(late)
        self._together = threading.Barrier(max(len(late), 1), timeout=10.0)

    def s3(self, location: str) -> Any:
        """Return some store."""
        return object(), location

    def _wait(self, location: str) -> None:
        self.asked[location] += 1
        if location in self._late:
            self._together.wait()

    def _open(self, location: str, **options: Any) -> Any:
        self._wait(location)
        return self._disk._open(location, **options)

    def read_part(self, location: str, start: int, size: int) -> bytes:
        """Return bytes of a file."""
        self._wait(location)
        return self._disk.read_part(location, start, size)


def _far_model(folder: Path, kind: str, files: int = 4) -> DeleteModel:
    """Return files of three rows, the second of which is deleted by a file of its own, or by one of the partition."""
    model, places = DeleteModel(folder), []
    for number in range(files):
        rows = [(number * 10 + place, "a", 0.0, 1) for place in range(3)]
        file = model.add_data(rows, 0, 1)
        places.append((file.path, 1))
        more = {"spec_id": 0, "sequence_number": 2}
        if kind == "vector":
            delete = vector_file(folder, file, {1}, 2)
        elif kind == "own":
            delete = position_file(folder, places[-1:], referenced_data_file=file.path, **more)
        else:
            continue
        model.add_positions(delete, {places[-1]})
    if kind == "shared":
        model.add_positions(position_file(folder, places, **more), set(places))
    return model


def _ids_far(storage: Storage, model: DeleteModel, files: Sequence[FileSlice]) -> list[int]:
    reading = model.settings()
    with closing(Deletes(storage, reading, files)) as deletes:
        batches = read_rows(storage, files, reading, deletes)
        return [number for batch in batches for number in batch.column(0).to_pylist()]


@pytest.mark.parametrize("kind", ["vector", "own"])
def test_the_deletes_of_files_in_a_store_are_read_at_the_same_time(
    tmp_path: Path, kind: str
) -> None:
    model = _far_model(tmp_path, kind)
    late = [delete.path for delete in model.deletes]
    storage = Far(late)

    found = _ids_far(storage, model, model.files)

    assert found == [number * 10 + place for number in range(4) for place in (0, 2)]
    assert {path: storage.asked[path] for path in late} == dict.fromkeys(late, 1)
    assert set(storage.asked.values()) == {1}


def test_a_delete_file_of_many_files_in_a_store_is_read_once(tmp_path: Path) -> None:
    model, storage = _far_model(tmp_path, "shared", files=20), Far()

    found = _ids_far(storage, model, model.files)

    assert found == [number * 10 + place for number in range(20) for place in (0, 2)]
    assert storage.asked[model.deletes[0].path] == 1


def test_the_vector_of_a_file_in_a_store_is_read_once_for_its_parts(tmp_path: Path) -> None:
    model, storage = _far_model(tmp_path, "vector"), Far()
    parts = [
        replace(file, skip_rows=skipped, take_rows=taken)
        for file in model.files
        for skipped, taken in ((0, 2), (2, 1))
    ]

    found = _ids_far(storage, model, parts)

    assert found == [number * 10 + place for number in range(4) for place in (0, 2)]
    assert [storage.asked[delete.path] for delete in model.deletes] == [1] * 4


def test_the_deletes_of_files_that_may_not_be_read_are_not_read(tmp_path: Path) -> None:
    model, storage = _far_model(tmp_path, "vector"), Far()
    reading = model.settings()
    with closing(Deletes(storage, reading, model.files)) as deletes:
        next(read_rows(storage, model.files, reading, deletes, whole=False))

    assert sum(storage.asked[delete.path] for delete in model.deletes) == 1


def test_earlier_positions_of_files_in_a_store_are_read_at_the_same_time(tmp_path: Path) -> None:
    model = _far_model(tmp_path, "vector")
    storage = Far([delete.path for delete in model.deletes])
    found = [(file, RowPositions(np.array([0]))) for file in model.files]
    with closing(Deletes(storage, model.settings(), model.files)) as deletes:
        rows = list(found_rows(deletes, found))

    assert [(item.path, item.earlier.to_numpy().tolist()) for item in rows] == [
        (file.path, [1]) for file in model.files
    ]


def test_a_broken_vector_in_a_store_is_reported_in_the_place_of_its_file(tmp_path: Path) -> None:
    model = _far_model(tmp_path, "vector")
    model.deletes[2] = replace(model.deletes[2], record_count=5)
    storage, reading = Far(), model.settings()
    with closing(Deletes(storage, reading, model.files)) as deletes:
        batches = read_rows(storage, model.files, reading, deletes)
        assert [next(batches).column(0).to_pylist() for _ in range(2)] == [[0, 2], [10, 12]]
        with pytest.raises(CorruptFileError, match="has 1 positions"):
            next(batches)
