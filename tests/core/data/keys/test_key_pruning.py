"""What a set of keys leaves out contains no row with one of them, and exact evidence leaves out everything else."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.transforms import parse_transform
from pyiceberg.types import IcebergType, LongType, NestedField, StringType, StructType
from support.tables.random_filters import (
    KINDS,
    File,
    Kind,
    arrow_column,
    encode_bound,
    entries_table,
    kinds,
    values,
)
from support.tiers import examples

from lake.core.data.keys.key_pruning import KeyPruner
from lake.core.data.keys.key_set import KeyCollector, KeySet, key_types, normal_keys, without_nulls
from lake.core.data.keys.row_keys import RowKeys
from lake.core.table.manifests.schemas import MANIFEST_COLUMNS

X, STRUCT, Z = 1, 2, 3
FIRST, SECOND = 1000, 1001
LONG = next(kind for kind in KINDS if isinstance(kind.type_, LongType))
TEXT = next(kind for kind in KINDS if isinstance(kind.type_, StringType))


def schema_of(kind: Kind, other: Kind) -> Schema:
    return Schema(
        NestedField(X, "x", kind.type_, required=False),
        NestedField(STRUCT, "s", StructType(NestedField(Z, "z", other.type_)), required=False),
    )


def key_set(
    schema: Schema, ids: Sequence[int], keys: Sequence[Sequence[Any]], *, limit: int = 0
) -> KeySet:
    types = key_types(schema, ids)
    columns = [
        arrow_column([key[position] for key in keys], kind)
        for position, kind in enumerate(types.values())
    ]
    collector = KeyCollector(types, limit)
    collector.add(without_nulls(normal_keys(columns, types)))
    return collector.finish()


def plain(value: Any) -> Any:
    """Return a value that equals those with which it joins."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    return value


def joins(row: Sequence[Any], keys: Sequence[Sequence[Any]]) -> bool:
    if any(value is None for value in row):
        return False
    return any([plain(value) for value in row] == [plain(value) for value in key] for key in keys)


def partition_of(item: PartitionField, kind: Kind, value: Any) -> Any:
    return item.transform.transform(kind.type_)(value)


def summary_of(type_: IcebergType, value: Any) -> dict[str, Any]:
    is_nan = isinstance(value, float) and math.isnan(value)
    bound = None if value is None or is_nan else encode_bound(value, type_)
    return {
        "contains_null": value is None,
        "contains_nan": is_nan,
        "lower_bound": bound,
        "upper_bound": bound,
    }


def manifests_table(lists: Sequence[Any]) -> pa.Table:
    count = len(lists)
    return pa.table(
        {
            "manifest_path": pa.array([str(number) for number in range(count)], pa.string()),
            "partition_spec_id": pa.array([1] * count, pa.int32()),
            "partitions": pa.array(lists, MANIFEST_COLUMNS["partitions"]),
            "added_files_count": pa.array([1] * count, pa.int32()),
            "existing_files_count": pa.array([0] * count, pa.int32()),
        }
    )


def metadata_of(schema: Schema, spec: PartitionSpec) -> TableMetadata:
    metadata = new_table_metadata(
        schema,
        UNPARTITIONED_PARTITION_SPEC,
        UNSORTED_SORT_ORDER,
        "file:///t",
        {"format-version": "3"},
    )
    return metadata.model_copy(update={"partition_specs": [spec]})


def forget(data: Any, file: File) -> None:
    """Drop some figures, as writers do."""
    figures = (file.value_counts, file.null_value_counts, file.nan_value_counts)
    for known in (*figures, file.lower_bounds, file.upper_bounds):
        for column in (X, Z):
            if data.draw(st.integers(0, 6)) == 0:
                known.pop(column, None)


def entries_of(files: Sequence[File], types: dict[int, IcebergType]) -> pa.Table:
    table = entries_table(files, types)
    return table.append_column("file_size_in_bytes", pa.array([1] * len(files), pa.int64()))


@settings(deadline=None, max_examples=examples(400))
@given(data=st.data(), kind=kinds, other=kinds)
def test_no_file_with_a_partner_is_ever_left_out(data: Any, kind: Kind, other: Kind) -> None:
    schema = schema_of(kind, other)
    fields = [
        PartitionField(X, FIRST, parse_transform(data.draw(st.sampled_from(kind.transforms))), "p"),
        PartitionField(
            Z, SECOND, parse_transform(data.draw(st.sampled_from(other.transforms))), "q"
        ),
    ]
    used = data.draw(st.sampled_from([fields, fields[:1], fields[1:], []]))
    spec = PartitionSpec(*used, spec_id=1)
    kind_of = {X: kind, Z: other}
    types = {
        item.field_id: item.transform.result_type(kind_of[item.source_id].type_) for item in used
    }
    cells = st.tuples(values(kind), values(other))
    rows = data.draw(st.lists(cells, max_size=14))
    groups: dict[str, list[Any]] = {}
    for row in rows:
        value = dict(zip((X, Z), row, strict=True))
        partition = {
            item.field_id: partition_of(item, kind_of[item.source_id], value[item.source_id])
            for item in used
        }
        number = data.draw(st.integers(0, 1))
        groups.setdefault(f"{partition!r}{number}", [partition]).append(row)
    files = []
    for partition, *group in groups.values():
        file = File(record_count=len(group), partition=partition)
        file.measure(X, kind, [row[0] for row in group])
        file.measure(Z, other, [row[1] for row in group])
        forget(data, file)
        files.append(file)
    ids, positions = data.draw(
        st.sampled_from([((X, Z), (0, 1)), ((Z, X), (1, 0)), ((X,), (0,)), ((Z,), (1,))])
    )
    known = st.sampled_from(rows) if rows else cells
    drawn = data.draw(st.lists(cells | known, max_size=8))
    keys = [[row[position] for position in positions] for row in drawn]
    chosen = key_set(schema, ids, keys, limit=data.draw(st.sampled_from([0, 1])))

    entries = entries_of(files, types).append_column("number", pa.array(range(len(files))))
    summaries = [
        [summary_of(types[item.field_id], file.partition[item.field_id]) for item in used]
        for file in files
    ]
    pruner = KeyPruner(KeySet.from_bytes(chosen.to_bytes()), schema)
    kept_files = set(pruner.prune_files(entries, spec)["number"].to_pylist())
    manifests = pruner.prune_manifests(manifests_table(summaries), metadata_of(schema, spec))
    kept_manifests = set(map(int, manifests["manifest_path"].to_pylist()))
    groups_kept = RowKeys(chosen.types, chosen).groups_match(entries, schema).tolist()
    for number, (_, *group) in enumerate(groups.values()):
        if any(joins([row[position] for position in positions], keys) for row in group):
            assert number in kept_files
            assert number in kept_manifests
            assert groups_kept[number]
    assert KeyPruner(None, schema).prune_files(entries, spec).num_rows == len(files)


@pytest.mark.parametrize("transform", ["identity", "bucket[4]", "truncate[10]"])
@settings(deadline=None, max_examples=examples(60))
@given(numbers=st.lists(st.integers(-100, 100), max_size=5), data=st.data())
def test_the_partitions_of_the_keys_are_exactly_those_that_are_kept(
    transform: str, numbers: list[int], data: Any
) -> None:
    schema = schema_of(LONG, LONG)
    item = PartitionField(X, FIRST, parse_transform(transform), "p")
    spec = PartitionSpec(item, spec_id=1)
    stored = data.draw(st.lists(st.integers(-100, 100), min_size=1, max_size=20))
    partitions = [partition_of(item, LONG, number) for number in stored]
    result = item.transform.result_type(LongType())
    entries = entries_of(
        [File(1, partition={FIRST: partition}) for partition in partitions], {FIRST: result}
    ).append_column("number", pa.array(range(len(stored))))
    pruner = KeyPruner(key_set(schema, [X], [[number] for number in numbers]), schema)
    kept = pruner.prune_files(entries, spec)["number"].to_pylist()
    wanted = {partition_of(item, LONG, number) for number in numbers}
    assert kept == [number for number, found in enumerate(partitions) if found in wanted]


def test_pairs_of_columns_are_compared_as_pairs_not_column_by_column() -> None:
    schema = schema_of(LONG, TEXT)
    files = []
    for number, text in ((1, "a"), (1, "b"), (2, "a"), (2, "b")):
        file = File(record_count=1)
        file.measure(X, LONG, [number])
        file.measure(Z, TEXT, [text])
        files.append(file)
    keys = key_set(schema, [X, Z], [[1, "a"], [2, "b"]])
    entries = entries_of(files, {}).append_column("number", pa.array(range(4)))
    pruner = KeyPruner(keys, schema)
    kept = pruner.prune_files(entries, UNPARTITIONED_PARTITION_SPEC)
    assert kept["number"].to_pylist() == [0, 3]
    assert pruner.counts.by.bounds == 2


@pytest.mark.parametrize("limit", [23, 24, 25])
def test_keys_are_given_up_only_beyond_the_limit(limit: int) -> None:
    schema = schema_of(LONG, LONG)
    keys = key_set(schema, [X], [[number] for number in (7, 3, 3, 5)], limit=limit)
    assert keys.exact == (limit >= 24)
    assert keys.rows["1"].to_pylist() == ([3, 7] if limit == 23 else [3, 5, 7])


def test_texts_count_their_bytes_and_four_for_their_length() -> None:
    schema = schema_of(TEXT, TEXT)
    assert key_set(schema, [X], [["é"], [""], ["é"]]).size_bytes == 2 + 4 + 4
    assert key_set(schema, [X], [["é"], [""]], limit=10).exact
    assert not key_set(schema, [X], [["é"], [""]], limit=9).exact


def test_no_keys_leave_nothing() -> None:
    schema = schema_of(LONG, LONG)
    file = File(record_count=3)
    pruner = KeyPruner(key_set(schema, [X], [[None]]), schema)
    assert pruner.prune_files(entries_of([file], {}), UNPARTITIONED_PARTITION_SPEC).num_rows == 0
    spec = PartitionSpec(spec_id=1)
    assert pruner.prune_manifests(manifests_table([[]]), metadata_of(schema, spec)).num_rows == 0
    assert pruner.counts.by.manifest == 1


def test_fields_that_exclude_nothing_are_named() -> None:
    schema = schema_of(LONG, LONG)
    spec = PartitionSpec(PartitionField(X, FIRST, parse_transform("void"), "gone"), spec_id=1)
    entries = entries_of([File(1, partition={FIRST: None})], {FIRST: LongType()})
    pruner = KeyPruner(key_set(schema, [X], [[1]]), schema)
    assert pruner.prune_files(entries, spec).num_rows == 1
    assert pruner.reasons == ["partition field gone (void) excludes no file"]
