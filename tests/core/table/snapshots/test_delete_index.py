"""Delete files are paired with data files as the specification says, and bounds leave out only what cannot hit."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, IdentityTransform, VoidTransform
from pyiceberg.types import DoubleType, LongType, NestedField, StringType
from support.oracles.delete_rules import applies
from support.tiers import examples

from lake.core.base.errors import CorruptFileError
from lake.core.spec.types.single_values import partition_struct, partition_type
from lake.core.table.manifests.schemas import ENTRY_COLUMNS
from lake.core.table.snapshots.delete_index import DATA_BOUNDS, DELETE_COLUMNS, DeleteIndex

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "x", DoubleType(), required=False),
    NestedField(3, "s", StringType(), required=False),
)
SPECS = {
    0: PartitionSpec(spec_id=0),
    1: PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "x"), spec_id=1),
    2: PartitionSpec(
        PartitionField(2, 1000, IdentityTransform(), "x"),
        PartitionField(1, 1001, BucketTransform(4), "b"),
        spec_id=2,
    ),
    3: PartitionSpec(PartitionField(2, 1000, VoidTransform(), "x"), spec_id=3),
}
GLOBAL = {0, 3}
# NaN is one partition, and 0.0 another than -0.0.
XS: Sequence[float | None] = [None, 1.0, 0.0, -0.0, math.nan]


@dataclass(frozen=True)
class File:
    path: str
    spec_id: int
    partition: tuple[Any, ...]
    sequence_number: int


@dataclass(frozen=True)
class Delete(File):
    content: int
    format: str = "PARQUET"
    referenced_data_file: str | None = None
    # Whether equal bounds show that, instead of a name.
    by_bounds: bool = False


def partitions(spec_id: int) -> st.SearchStrategy[tuple[Any, ...]]:
    x = st.sampled_from(XS)
    return {
        0: st.just(()),
        1: st.tuples(x),
        2: st.tuples(x, st.sampled_from([None, 0, 1])),
        3: st.just((None,)),
    }[spec_id]


@st.composite
def worlds(draw: st.DrawFn) -> tuple[list[File], list[Delete]]:
    data = []
    for number in range(draw(st.integers(1, 8))):
        spec_id = draw(st.sampled_from(sorted(SPECS)))
        place = draw(partitions(spec_id))
        data.append(File(f"d{number}", spec_id, place, draw(st.integers(0, 5))))
    deletes = []
    targets = st.sampled_from([*[file.path for file in data], "elsewhere"])
    for number in range(draw(st.integers(0, 8))):
        spec_id = draw(st.sampled_from(sorted(SPECS)))
        kind = draw(st.sampled_from(["partition", "path", "bounds", "key"]))
        deletes.append(
            Delete(
                f"x{number}",
                spec_id,
                draw(partitions(spec_id)),
                draw(st.integers(0, 6)),
                content=2 if kind == "key" else 1,
                referenced_data_file=draw(targets) if kind in {"path", "bounds"} else None,
                by_bounds=kind == "bounds",
            )
        )
    for file in data:
        if draw(st.integers(0, 3)) == 0:
            number = draw(st.integers(file.sequence_number, 6))
            deletes.append(
                Delete("v", file.spec_id, file.partition, number, 1, "PUFFIN", file.path)
            )
    return data, draw(st.permutations(deletes))


def entries(files: Sequence[File], spec_id: int) -> pa.Table:
    """Return manifest entries."""
    kind = partition_struct(partition_type(SPECS[spec_id], [SCHEMA]))
    rows = []
    for file in files:
        row: dict[str, Any] = {
            "status": 1,
            "content": 0,
            "sequence_number": file.sequence_number,
            "file_path": file.path,
            "file_format": "PARQUET",
            "partition": dict(zip(kind.names, file.partition, strict=True)),
            "record_count": 10,
            "file_size_in_bytes": 1,
        }
        if isinstance(file, Delete):
            row |= {"content": file.content, "file_format": file.format}
            if file.content == 2:
                row["equality_ids"] = [1]
            if file.format == "PUFFIN":
                row |= {"content_offset": 4, "content_size_in_bytes": 40}
            if file.by_bounds and file.referenced_data_file:
                bound = [{"key": 2147483546, "value": file.referenced_data_file.encode()}]
                row |= {"lower_bounds": bound, "upper_bounds": bound}
            else:
                row["referenced_data_file"] = file.referenced_data_file
        rows.append(row)
    return table_of(rows, kind)


def table_of(rows: Sequence[Mapping[str, Any]], partition: pa.DataType) -> pa.Table:
    return pa.table(
        {
            name: pa.array(
                [row.get(name) for row in rows], partition if name == "partition" else kind
            )
            for name, kind in ENTRY_COLUMNS.items()
        }
    )


def by_spec(files: Sequence[Any]) -> dict[int, list[Any]]:
    found: dict[int, list[Any]] = {}
    for file in files:
        found.setdefault(file.spec_id, []).append(file)
    return found


def index_of(deletes: Sequence[Delete]) -> tuple[DeleteIndex, list[Delete]]:
    """Return the index and the delete files by their ordinals."""
    groups = by_spec(deletes)
    tables = {spec_id: entries(files, spec_id) for spec_id, files in groups.items()}
    index = DeleteIndex(
        {spec_id: table.select(DELETE_COLUMNS) for spec_id, table in tables.items()},
        SPECS,
        [SCHEMA],
    )
    return index, [delete for files in groups.values() for delete in files]


@settings(deadline=None, max_examples=examples(300))
@given(worlds(), st.data())
def test_pairs_are_those_of_the_specification(
    world: tuple[list[File], list[Delete]], choice: st.DataObject
) -> None:
    data, deletes = world
    index, ordered = index_of(deletes)
    for spec_id, files in by_spec(data).items():
        pairs = index.pair(spec_id, entries(files, spec_id).drop_columns(list(DATA_BOUNDS)))
        expected = [
            [n for n, delete in enumerate(ordered) if applies(delete, file, deletes, GLOBAL)]
            for file in files
        ]
        for row, wanted in enumerate(expected):
            assert pairs.ordinals(np.array([row])).tolist() == wanted
            assert pairs.counts[row] == len(wanted)
            own = [n for n in wanted if ordered[n].referenced_data_file is not None]
            assert pairs.deleted_rows[row] == 10 * len(own)
        records = np.arange(1, len(files) + 1)
        reached = [found.tolist() for found in pairs.reach(records)]
        for n in range(len(ordered)):
            own = [row for row, wanted in enumerate(expected) if n in wanted]
            assert reached[0][n] == len(own)
            assert reached[1][n] == sum(row + 1 for row in own)
            numbers = [files[row].sequence_number for row in own]
            assert (reached[2][n] in own) == bool(own)
            if own:
                assert files[reached[2][n]].sequence_number == min(numbers)
        some = sorted(choice.draw(st.sets(st.integers(0, len(files) - 1))))
        union = sorted({n for row in some for n in expected[row]})
        found = pairs.ordinals(np.array(some, np.int64))
        assert found.tolist() == union
        for ordinal, described in zip(union, index.describe(found), strict=True):
            delete = ordered[ordinal]
            assert described.path == delete.path
            assert described.sequence_number == delete.sequence_number
            assert described.referenced_data_file == delete.referenced_data_file
            assert described.content == delete.content


VALUES: Mapping[int, st.SearchStrategy[Any]] = {
    1: st.one_of(st.none(), st.integers(-3, 12)),
    2: st.one_of(st.none(), st.sampled_from([math.nan, -0.0, 0.0, 1.5, 2.5])),
    3: st.one_of(st.none(), st.text("ab\ud7ff\U0010ffff", max_size=3)),
}
Row = tuple[Any, ...]


def shape(value: Any) -> Any:
    """Return what two key values have in common iff they are equal."""
    if isinstance(value, float):
        return "nan" if math.isnan(value) else struct.pack("<d", value)
    return value


def encoded(column: int, value: Any, *, upper: bool) -> bytes | None:
    """Return a bound as writers store it, texts cut to one character."""
    if column == 1:
        return struct.pack("<q", value)
    if column == 2:
        return struct.pack("<d", value)
    text = value[:1]
    if upper and len(value) > 1:
        nexts = {"a": "b", "b": "c", "\ud7ff": "\ue000", "\U0010ffff": None}
        text = nexts[text]
    return None if text is None else text.encode(errors="surrogatepass")


def metrics(rows: Sequence[Row], ids: Sequence[int], *, complete: bool) -> dict[str, Any]:
    """Return what a writer keeps of columns; an incomplete one keeps no NULL counts."""
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in DATA_BOUNDS}
    for place, column in enumerate(ids):
        values = [row[place] for row in rows]
        some = [v for v in values if v is not None and not (isinstance(v, float) and math.isnan(v))]
        found["value_counts"].append({"key": column, "value": len(values)})
        if complete:
            nulls = sum(v is None for v in values)
            found["null_value_counts"].append({"key": column, "value": nulls})
        if some:
            for name, value, upper in (
                ("lower_bounds", min(some), False),
                ("upper_bounds", max(some), True),
            ):
                bound = encoded(column, value, upper=upper)
                if bound is not None:
                    found[name].append({"key": column, "value": bound})
    return dict(found)


@settings(deadline=None, max_examples=examples(300))
@given(st.data())
def test_bounds_leave_out_no_delete_of_a_key_that_a_file_has(choice: st.DataObject) -> None:
    rows = st.lists(st.tuples(*VALUES.values()), min_size=1, max_size=4)
    data = choice.draw(st.lists(rows, min_size=1, max_size=4))
    kind = partition_struct(partition_type(SPECS[0], [SCHEMA]))
    shared = {"status": 1, "file_format": "PARQUET", "partition": {}, "record_count": 1}
    data_rows: list[dict[str, Any]] = [
        shared
        | {"content": 0, "sequence_number": 1, "file_path": f"d{n}", "file_size_in_bytes": 1}
        | metrics(found, [1, 2, 3], complete=choice.draw(st.booleans()))
        for n, found in enumerate(data)
    ]
    deletes = []
    delete_rows: list[dict[str, Any]] = []
    for n in range(choice.draw(st.integers(1, 4))):
        ids = choice.draw(st.permutations([1, 2, 3]))[: choice.draw(st.integers(1, 3))]
        keys = choice.draw(st.lists(st.tuples(*(VALUES[i] for i in ids)), min_size=1, max_size=3))
        deletes.append((ids, keys))
        delete_rows.append(
            shared
            | {"content": 2, "sequence_number": 2, "file_path": f"x{n}", "equality_ids": ids}
            | {"file_size_in_bytes": 1}
            | metrics(keys, ids, complete=choice.draw(st.booleans()))
        )
    index = DeleteIndex({0: table_of(delete_rows, kind)}, SPECS, [SCHEMA])
    pairs = index.pair(0, table_of(data_rows, kind))
    for row, found in enumerate(data):
        hit = {
            n
            for n, (ids, keys) in enumerate(deletes)
            if {tuple(shape(v) for v in key) for key in keys}
            & {tuple(shape(one[i - 1]) for i in ids) for one in found}
        }
        assert hit <= set(pairs.ordinals(np.array([row])).tolist())


def test_bounds_leave_out_deletes_of_keys_beside_those_of_a_file() -> None:
    kind = partition_struct(partition_type(SPECS[0], [SCHEMA]))
    shared = {"status": 1, "partition": {}, "record_count": 1, "file_size_in_bytes": 1}
    shared["file_format"] = "PARQUET"
    columns = [1, 2, 3]
    files = [[(5, 1.0, "m")], [(50, 1.0, "m")]]
    deletes = [([1], [(5,)]), ([1], [(6,)]), ([3], [("z",)]), ([1, 3], [(50, "m")])]
    data = [
        shared
        | {"content": 0, "sequence_number": 1, "file_path": f"d{n}"}
        | metrics(rows, columns, complete=True)
        for n, rows in enumerate(files)
    ]
    keys = [
        shared
        | {"content": 2, "sequence_number": 2, "file_path": f"x{n}", "equality_ids": ids}
        | metrics(rows, ids, complete=True)
        for n, (ids, rows) in enumerate(deletes)
    ]
    pairs = DeleteIndex({0: table_of(keys, kind)}, SPECS, [SCHEMA]).pair(0, table_of(data, kind))

    assert pairs.ordinals(np.array([0])).tolist() == [0]
    assert pairs.ordinals(np.array([1])).tolist() == [3]


def test_a_second_vector_for_one_file_is_refused() -> None:
    vector = Delete("v", 0, (), 3, 1, "PUFFIN", "d")
    with pytest.raises(CorruptFileError, match="several deletion vectors reference d"):
        index_of([vector, vector])


def test_a_vector_for_no_file_is_refused() -> None:
    with pytest.raises(CorruptFileError, match="does not reference a data file"):
        index_of([Delete("v", 0, (), 3, 1, "PUFFIN")])


def test_a_vector_older_than_its_file_is_refused() -> None:
    index, _ = index_of([Delete("v", 0, (), 3, 1, "PUFFIN", "d")])
    with pytest.raises(CorruptFileError, match="older than the file"):
        index.pair(0, entries([File("d", 0, (), 4)], 0))


def test_an_equality_delete_of_no_columns_is_refused() -> None:
    table = entries([Delete("x", 0, (), 3, 2)], 0)
    nothing = pa.array([None], pa.list_(pa.int32()))
    place = table.column_names.index("equality_ids")
    with pytest.raises(CorruptFileError, match="names no columns"):
        DeleteIndex({0: table.set_column(place, "equality_ids", nothing)}, SPECS, [SCHEMA])
