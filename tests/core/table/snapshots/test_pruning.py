"""What pruning leaves out holds no matching row, and it leaves out what PyIceberg leaves out."""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.expressions import (
    AlwaysFalse,
    AlwaysTrue,
    BooleanExpression,
    EqualTo,
    GreaterThan,
    In,
    IsNaN,
    IsNull,
    LessThan,
    Not,
    NotEqualTo,
    NotIn,
    NotNaN,
    NotNull,
    NotStartsWith,
    StartsWith,
)
from pyiceberg.expressions.visitors import (
    _InclusiveMetricsEvaluator,
    _StrictMetricsEvaluator,
    expression_evaluator,
    inclusive_projection,
    manifest_evaluator,
    strict_projection,
)
from pyiceberg.manifest import ManifestContent, ManifestFile, PartitionFieldSummary
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.transforms import TimeTransform, parse_transform
from pyiceberg.typedef import Record
from pyiceberg.types import (
    DateType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
)
from support.tables.random_filters import (
    ALL_OPS,
    EVERY_OP,
    KINDS,
    File,
    Kind,
    arrow_column,
    encode_bound,
    entries_table,
    filters,
    kinds,
    values,
)
from support.tiers import examples

from lake.core.spec.expressions.filters import bind_filter, row_mask
from lake.core.spec.expressions.parser import parse_filter
from lake.core.table.manifests.schemas import MANIFEST_COLUMNS
from lake.core.table.snapshots.pruning import prune_files, prune_manifests, strict_files

# Operations for which lake and PyIceberg say the same; for the others lake leaves out more.
SAME_OPS = (
    "is-null",
    "not-null",
    "is-nan",
    "lt",
    "lt-eq",
    "gt",
    "gt-eq",
    "eq",
    "in",
    "starts-with",
)
COMPARING = ("lt", "lt-eq", "gt", "gt-eq", "eq", "in", "is-null", "not-null")
PYICEBERG_KINDS = [kind for kind in KINDS if "_ns" not in repr(kind)]

X = 1
PARTITION_ID = 1000


def schema_of(kind: Kind) -> Schema:
    return Schema(NestedField(X, "x", kind.type_, required=False))


def partitioned(transform: str, field_id: int = PARTITION_ID, spec_id: int = 1) -> PartitionSpec:
    name = f"x_{field_id}"
    return PartitionSpec(
        PartitionField(X, field_id, parse_transform(transform), name), spec_id=spec_id
    )


def result_type(kind: Kind, transform: str) -> IcebergType:
    return parse_transform(transform).result_type(kind.type_)


def transformed(kind: Kind, transform: str) -> Callable[[Any], Any]:
    return parse_transform(transform).transform(kind.type_)


def measured(kind: Kind, column: Sequence[Any], length: int = 2) -> File:
    file = File(record_count=len(column))
    file.measure(X, kind, column, length)
    return file


def rows(kind: Kind) -> st.SearchStrategy[list[Any]]:
    return st.lists(values(kind), min_size=1, max_size=4)


def rounded(kind: Kind, column: Sequence[Any]) -> list[Any]:
    """Return a column without NaN, which PyIceberg's evaluators order in another way."""
    return [
        None if kind.has_nan and value is not None and math.isnan(value) else value
        for value in column
    ]


@settings(deadline=None, max_examples=examples(200))
@given(data=st.data(), kind=st.sampled_from(PYICEBERG_KINDS), same=st.booleans())
def test_metrics_leave_out_what_pyiceberg_leaves_out(data: Any, kind: Kind, same: bool) -> None:
    ops = SAME_OPS if same else ALL_OPS
    expression = data.draw(filters({"x": kind}, ops, negations=not kind.has_nan and not same))
    files = [measured(kind, data.draw(rows(kind))) for _ in range(4)]
    for file in files:
        for figures in (file.value_counts, file.null_value_counts, file.nan_value_counts):
            if data.draw(st.integers(0, 4)) == 0:
                figures.clear()
    evaluator = _InclusiveMetricsEvaluator(schema_of(kind), expression)
    theirs = [evaluator.eval(file.data_file()) for file in files]
    ours = kept_of(files, kind, expression)
    if same:
        assert ours == theirs
    assert not any(mine and not their for mine, their in zip(ours, theirs, strict=True))


def kept_of(files: Sequence[File], kind: Kind, expression: BooleanExpression) -> list[bool]:
    schema = schema_of(kind)
    mask = prune_files(
        entries_table(files), UNPARTITIONED_PARTITION_SPEC, schema, bind_filter(expression, schema)
    )
    assert mask.null_count == 0
    return mask.to_pylist()


def sure_of(files: Sequence[File], kind: Kind, expression: BooleanExpression) -> list[bool]:
    schema = schema_of(kind)
    mask = strict_files(
        entries_table(files), UNPARTITIONED_PARTITION_SPEC, schema, bind_filter(expression, schema)
    )
    assert mask.null_count == 0
    return mask.to_pylist()


@settings(deadline=None, max_examples=examples(200))
@given(data=st.data(), kind=st.sampled_from(PYICEBERG_KINDS), same=st.booleans())
def test_metrics_make_sure_of_no_more_than_pyiceberg_does(
    data: Any, kind: Kind, same: bool
) -> None:
    ops = COMPARING if same else tuple(op for op in ALL_OPS if not op.endswith("starts-with"))
    expression = data.draw(filters({"x": kind}, ops, negations=False))
    files = [measured(kind, data.draw(rows(kind))) for _ in range(4)]
    evaluator = _StrictMetricsEvaluator(schema_of(kind), expression)
    theirs = [evaluator.eval(file.data_file()) for file in files]
    ours = sure_of(files, kind, expression)
    if same:
        assert ours == theirs
    assert not any(mine and not their for mine, their in zip(ours, theirs, strict=True))


transforms = kinds.flatmap(lambda kind: st.tuples(st.just(kind), st.sampled_from(kind.transforms)))


@settings(deadline=None, max_examples=examples(250))
@given(data=st.data(), drawn=transforms, same=st.booleans())
def test_partitions_leave_out_what_pyiceberg_leaves_out(
    data: Any, drawn: tuple[Kind, str], same: bool
) -> None:
    kind, transform = drawn
    if "_ns" in repr(kind):
        return
    ops = SAME_OPS if same else ALL_OPS
    expression = data.draw(filters({"x": kind}, ops, negations=not kind.has_nan and not same))
    column = data.draw(st.lists(values(kind), min_size=1, max_size=6))
    schema, spec = schema_of(kind), partitioned(transform)
    files = partition_files(kind, transform, column)
    project = inclusive_projection(schema, spec)(expression)
    evaluate = expression_evaluator(
        Schema(*spec.partition_type(schema).fields), project, case_sensitive=True
    )
    theirs = [evaluate(Record(*file.partition.values())) for file in files]
    entries = entries_table(files, {PARTITION_ID: result_type(kind, transform)})
    ours = prune_files(entries, spec, schema, bind_filter(expression, schema)).to_pylist()
    early = is_time(transform) and any(value < 0 for value in kind.pool)
    if same and not early:
        assert ours == theirs
    if not early:
        assert not any(mine and not their for mine, their in zip(ours, theirs, strict=True))


def is_time(transform: str) -> bool:
    return isinstance(parse_transform(transform), TimeTransform)


def partition_files(kind: Kind, transform: str, column: Sequence[Any]) -> list[File]:
    apply = transformed(kind, transform)
    return [File(record_count=1, partition={PARTITION_ID: apply(value)}) for value in column]


@settings(deadline=None, max_examples=examples(150))
@given(data=st.data(), drawn=transforms)
def test_partitions_make_sure_of_no_more_than_pyiceberg_does(
    data: Any, drawn: tuple[Kind, str]
) -> None:
    kind, transform = drawn
    if "_ns" in repr(kind):
        return
    expression = data.draw(filters({"x": kind}, ALL_OPS, negations=not kind.has_nan))
    column = data.draw(st.lists(values(kind), min_size=1, max_size=6))
    schema, spec = schema_of(kind), partitioned(transform)
    files = partition_files(kind, transform, column)
    project = strict_projection(schema, spec)(expression)
    evaluate = expression_evaluator(
        Schema(*spec.partition_type(schema).fields), project, case_sensitive=True
    )
    entries = entries_table(files, {PARTITION_ID: result_type(kind, transform)})
    ours = strict_files(entries, spec, schema, bind_filter(expression, schema)).to_pylist()
    for mine, file in zip(ours, files, strict=True):
        assert not mine or evaluate(Record(*file.partition.values()))


@st.composite
def partition_sets(draw: Any, drawn: tuple[Kind, str]) -> list[Any]:
    kind, transform = drawn
    return [transformed(kind, transform)(value) for value in draw(rows(kind))]


def summary_of(type_: IcebergType, column: Sequence[Any]) -> dict[str, Any]:
    plain = [value for value in column if value is not None]
    numbers = [value for value in plain if not (isinstance(value, float) and math.isnan(value))]
    return {
        "contains_null": len(plain) < len(column),
        "contains_nan": len(numbers) < len(plain),
        "lower_bound": encode_bound(min(numbers), type_) if numbers else None,
        "upper_bound": encode_bound(max(numbers), type_) if numbers else None,
    }


def manifests_table(lists: Sequence[Any], spec_ids: Sequence[int]) -> pa.Table:
    return pa.table(
        {
            "manifest_path": [str(number) for number in range(len(lists))],
            "partition_spec_id": pa.array(spec_ids, pa.int32()),
            "partitions": pa.array(lists, MANIFEST_COLUMNS["partitions"]),
        }
    )


def metadata_of(schema: Schema, *specs: PartitionSpec) -> TableMetadata:
    metadata = new_table_metadata(
        schema,
        UNPARTITIONED_PARTITION_SPEC,
        UNSORTED_SORT_ORDER,
        "file:///t",
        {"format-version": "3"},
    )
    return metadata.model_copy(update={"partition_specs": list(specs)})


@settings(deadline=None, max_examples=examples(250))
@given(data=st.data(), kind=st.sampled_from(PYICEBERG_KINDS), same=st.booleans())
def test_summaries_leave_out_the_manifests_that_pyiceberg_leaves_out(
    data: Any, kind: Kind, same: bool
) -> None:
    # PyIceberg looks at each bound alone: it keeps a manifest between the values of "in".
    ops = [op for op in SAME_OPS if op != "in"] if same else ALL_OPS
    expression = data.draw(filters({"x": kind}, ops, negations=not kind.has_nan and not same))
    schema = schema_of(kind)
    late = [name for name in kind.transforms if not is_time(name) or all(v >= 0 for v in kind.pool)]
    chosen = data.draw(st.lists(st.sampled_from(late), min_size=1, max_size=3))
    specs = [partitioned(name, PARTITION_ID + i, i) for i, name in enumerate(chosen)]
    lists, spec_ids, theirs = [], [], []
    for _ in range(4):
        number = data.draw(st.integers(0, len(chosen) - 1))
        type_ = result_type(kind, chosen[number])
        column = data.draw(partition_sets((kind, chosen[number])))
        lists.append([summary_of(type_, column)])
        spec_ids.append(number)
        evaluate = manifest_evaluator(
            specs[number], schema, inclusive_projection(schema, specs[number])(expression)
        )
        theirs.append(evaluate(manifest_file(lists[-1])))
    table = manifests_table(lists, spec_ids)
    bound = bind_filter(expression, schema)
    pruned = prune_manifests(table, metadata_of(schema, *specs), bound, schema=schema)
    kept = set(pruned["manifest_path"].to_pylist())
    ours = [str(number) in kept for number in range(4)]
    if same:
        assert ours == theirs
    assert not any(mine and not their for mine, their in zip(ours, theirs, strict=True))


def manifest_file(summaries: Sequence[dict[str, Any]]) -> ManifestFile:
    return ManifestFile.from_args(
        manifest_path="m.avro",
        manifest_length=1,
        partition_spec_id=0,
        content=ManifestContent.DATA,
        partitions=[
            PartitionFieldSummary(
                one["contains_null"], one["contains_nan"], one["lower_bound"], one["upper_bound"]
            )
            for one in summaries
        ],
    )


Y, STRUCT, Z = 2, 3, 4


@settings(deadline=None, max_examples=examples(300))
@given(data=st.data(), drawn=transforms, other=kinds)
def test_no_matching_row_is_ever_left_out_and_sure_files_match_whole(
    data: Any, drawn: tuple[Kind, str], other: Kind
) -> None:
    judge_pruning(data, drawn, other, EVERY_OP)


@settings(deadline=None, max_examples=examples(400))
@given(data=st.data(), transform=st.sampled_from(["identity", "truncate[2]", "bucket[4]"]))
def test_patterns_leave_out_no_matching_row_and_sure_files_match_whole(
    data: Any, transform: str
) -> None:
    judge_pruning(data, (TEXT, transform), TEXT, ["like", "not-like"])


def judge_pruning(data: Any, drawn: tuple[Kind, str], other: Kind, ops: Sequence[str]) -> None:
    kind, transform = drawn
    schema = three_columns(kind, other)
    expression = data.draw(filters({"x": kind, "y": other, "s.z": other}, ops))
    bound = bind_filter(expression, schema)
    cells = st.tuples(values(kind), values(other), st.booleans(), values(other))
    files, batches = [], []
    for partition, group in grouped(kind, transform, data.draw(st.lists(cells, max_size=12))):
        file = File(record_count=len(group), partition={PARTITION_ID: partition})
        file.measure(X, kind, [row[0] for row in group])
        file.measure(Y, other, [row[1] for row in group])
        file.measure(Z, other, [row[3] if row[2] else None for row in group])
        forget(data, file)
        files.append(file)
        batches.append(batch_of(schema, kind, other, group))
    entries = entries_table(files, {PARTITION_ID: result_type(kind, transform)})
    spec = partitioned(transform)
    kept = prune_files(entries, spec, schema, bound).to_pylist()
    sure = strict_files(entries, spec, schema, bound).to_pylist()
    for batch, keep, whole in zip(batches, kept, sure, strict=True):
        found = row_mask(bound, batch, schema).to_pylist()
        assert keep or not any(found)
        assert not whole or all(found)
    summaries = [
        [summary_of(result_type(kind, transform), [f.partition[PARTITION_ID]])] for f in files
    ]
    table = manifests_table(summaries, [1] * len(files))
    reached = prune_manifests(table, metadata_of(schema, spec), bound, schema=schema)
    reached_names = set(reached["manifest_path"].to_pylist())
    for number, batch in enumerate(batches):
        assert str(number) in reached_names or not any(row_mask(bound, batch, schema).to_pylist())


def three_columns(kind: Kind, other: Kind) -> Schema:
    return Schema(
        NestedField(X, "x", kind.type_, required=False),
        NestedField(Y, "y", other.type_, required=False),
        NestedField(STRUCT, "s", StructType(NestedField(Z, "z", other.type_)), required=False),
    )


def grouped(kind: Kind, transform: str, cells: Any) -> list[tuple[Any, list[Any]]]:
    groups: dict[str, tuple[Any, list[Any]]] = {}
    for row in cells:
        partition = transformed(kind, transform)(row[0])
        groups.setdefault(repr(partition), (partition, []))[1].append(row)
    return list(groups.values())


def forget(data: Any, file: File) -> None:
    """Drop some figures, as writers do."""
    for figures in (
        file.value_counts,
        file.null_value_counts,
        file.nan_value_counts,
        file.lower_bounds,
        file.upper_bounds,
    ):
        for field_id in (X, Y, Z):
            if data.draw(st.integers(0, 6)) == 0:
                figures.pop(field_id, None)


def batch_of(schema: Schema, kind: Kind, other: Kind, group: Sequence[Any]) -> pa.RecordBatch:
    inner = arrow_column([row[3] for row in group], other.type_)
    missing = pa.array([not row[2] for row in group])
    struct = pa.StructArray.from_arrays([inner], ["z"], mask=missing)
    columns = [
        arrow_column([row[0] for row in group], kind.type_),
        arrow_column([row[1] for row in group], other.type_),
        struct,
    ]
    return pa.RecordBatch.from_arrays(columns, ["x", "y", "s"])


LONG = next(kind for kind in KINDS if isinstance(kind.type_, LongType))
TEXT = next(kind for kind in KINDS if isinstance(kind.type_, StringType))
DOUBLE = next(kind for kind in KINDS if isinstance(kind.type_, DoubleType))
FLOAT = next(kind for kind in KINDS if isinstance(kind.type_, FloatType))


def test_a_column_added_later_leaves_out_nothing() -> None:
    file = File(record_count=3)
    for expression in (
        EqualTo("x", 1),
        IsNull("x"),
        NotNull("x"),
        LessThan("x", 0),
        In("x", [1, 2]),
    ):
        assert kept_of([file], LONG, expression) == [True]
        assert sure_of([file], LONG, expression) == [False]


def test_bounds_without_counts_leave_out_but_make_nothing_sure() -> None:
    file = measured(LONG, [5, 7])
    file.value_counts.clear()
    file.null_value_counts.clear()
    assert kept_of([file], LONG, GreaterThan("x", 7)) == [False]
    assert kept_of([file], LONG, GreaterThan("x", 6)) == [True]
    assert sure_of([file], LONG, GreaterThan("x", 4)) == [False]


def test_an_unknown_bound_excludes_no_value_of_a_set() -> None:
    below, above = measured(LONG, [-5]), measured(LONG, [5])
    below.lower_bounds.clear()
    above.upper_bounds.clear()
    assert kept_of([below, above], LONG, In("x", [-20, -10])) == [True, False]
    assert kept_of([below, above], LONG, In("x", [10, 20])) == [False, True]


def test_doubles_are_sure_only_where_nan_is_ruled_out() -> None:
    with_nan, without = measured(DOUBLE, [1.0, math.nan]), measured(DOUBLE, [1.0, 2.5])
    unknown = measured(DOUBLE, [1.0, 2.5])
    unknown.nan_value_counts.clear()
    files = [with_nan, without, unknown]
    assert sure_of(files, DOUBLE, LessThan("x", 5.0)) == [False, True, False]
    assert sure_of(files, DOUBLE, NotEqualTo("x", 5.0)) == [True, True, True]
    assert sure_of(files, DOUBLE, NotNaN("x")) == [False, True, False]
    assert sure_of(files, DOUBLE, IsNaN("x")) == [False, False, False]


def test_nan_bounds_are_not_believed() -> None:
    file = measured(DOUBLE, [1.0, 2.5])
    file.lower_bounds[X] = encode_bound(math.nan, DOUBLE.type_)
    assert kept_of([file], DOUBLE, GreaterThan("x", 100.0)) == [True]
    file = measured(DOUBLE, [1.0, 2.5])
    file.upper_bounds[X] = encode_bound(math.nan, DOUBLE.type_)
    assert kept_of([file], DOUBLE, LessThan("x", -100.0)) == [True]
    assert sure_of([file], DOUBLE, GreaterThan("x", -100.0)) == [False]


def test_a_file_of_nan_holds_rows_that_are_not_less() -> None:
    file = measured(DOUBLE, [math.nan, math.nan])
    assert kept_of([file], DOUBLE, Not(LessThan("x", 1.0))) == [True]
    assert kept_of([file], DOUBLE, NotEqualTo("x", 1.0)) == [True]
    assert kept_of([file], DOUBLE, NotNull("x")) == [True]
    assert kept_of([file], DOUBLE, LessThan("x", 1.0)) == [False]
    assert kept_of([file], DOUBLE, NotNaN("x")) == [False]
    assert sure_of([file], DOUBLE, NotIn("x", [1.0, 2.0])) == [True]


def test_a_file_of_nulls_matches_only_is_null() -> None:
    file = measured(LONG, [None, None])
    assert kept_of([file], LONG, IsNull("x")) == [True]
    assert sure_of([file], LONG, IsNull("x")) == [True]
    for expression in (NotEqualTo("x", 1), NotIn("x", [1, 2]), EqualTo("x", 1), NotNull("x")):
        assert kept_of([file], LONG, expression) == [False]
        assert sure_of([file], LONG, expression) == [False]


def test_a_float_literal_is_rounded_as_the_column_is() -> None:
    tenth = pa.array([0.1], pa.float32())[0].as_py()
    file = measured(FLOAT, [tenth])
    assert kept_of([file], FLOAT, EqualTo("x", 0.1)) == [True]
    assert sure_of([file], FLOAT, EqualTo("x", 0.1)) == [True]


def test_negative_zero_equals_zero() -> None:
    file = measured(DOUBLE, [0.0])
    for expression in (EqualTo("x", -0.0), In("x", [-0.0, 9.0])):
        assert kept_of([file], DOUBLE, expression) == [True]
        assert sure_of([file], DOUBLE, expression) == [True]


def test_prefixes_are_judged_by_both_bounds() -> None:
    files = [measured(TEXT, column, 16) for column in (["aa", "ab"], ["ab", "abc"], ["abz", "ac"])]
    assert kept_of(files, TEXT, StartsWith("x", "ab")) == [True, True, True]
    assert sure_of(files, TEXT, StartsWith("x", "ab")) == [False, True, False]
    assert kept_of(files, TEXT, NotStartsWith("x", "ab")) == [True, False, True]
    assert kept_of(files, TEXT, StartsWith("x", "b")) == [False, False, False]
    assert sure_of(files, TEXT, NotStartsWith("x", "b")) == [True, True, True]
    assert kept_of(files, TEXT, StartsWith("x", "")) == [True, True, True]


def test_patterns_are_judged_by_their_prefix_and_by_files_of_one_value() -> None:
    files = [measured(TEXT, column) for column in (["ab", "ab"], ["ac", "ad"], ["b", None], ["b"])]
    assert kept_by("x like 'a_%'", files) == [True, True, False, False]
    assert kept_by("x like '_b'", files) == [True, True, False, False]
    assert kept_by("x not like 'a_'", files) == [False, True, True, True]
    assert sure_by("x like '_b'", files) == [True, False, False, False]
    assert sure_by("x not like 'a_'", files) == [False, False, False, True]


def kept_by(text: str, files: Sequence[File]) -> list[bool]:
    schema = schema_of(TEXT)
    bound = bind_filter(parse_filter(text), schema)
    spec = UNPARTITIONED_PARTITION_SPEC
    return prune_files(entries_table(files), spec, schema, bound).to_pylist()


def sure_by(text: str, files: Sequence[File]) -> list[bool]:
    schema = schema_of(TEXT)
    bound = bind_filter(parse_filter(text), schema)
    spec = UNPARTITIONED_PARTITION_SPEC
    return strict_files(entries_table(files), spec, schema, bound).to_pylist()


@pytest.mark.parametrize(
    ("transform", "text", "kept", "sure"),
    [
        ("identity", "x like '_b'", [True, False, False], [True, False, False]),
        ("identity", "x not like '_b'", [False, True, False], [False, True, False]),
        ("truncate[1]", "x like 'a_'", [True, False, False], [False, False, False]),
        ("truncate[1]", "x not like 'a_'", [True, True, True], [False, True, False]),
        ("bucket[4]", "x like 'a_'", [True, True, True], [False, False, False]),
    ],
)
def test_patterns_are_judged_by_partitions(
    transform: str, text: str, kept: list[bool], sure: list[bool]
) -> None:
    schema = schema_of(TEXT)
    files = [
        File(1, partition={PARTITION_ID: transformed(TEXT, transform)(value)})
        for value in ("ab", "b", None)
    ]
    entries = entries_table(files, {PARTITION_ID: result_type(TEXT, transform)})
    bound = bind_filter(parse_filter(text), schema)
    assert prune_files(entries, partitioned(transform), schema, bound).to_pylist() == kept
    assert strict_files(entries, partitioned(transform), schema, bound).to_pylist() == sure


def test_text_around_the_surrogates_is_ordered_by_code_point() -> None:
    file = measured(TEXT, ["a\ud7ffz"], 2)
    for value, kept in (("a\ud7ffz", True), ("a\ue000", True), ("a\ue000a", False)):
        assert kept_of([file], TEXT, EqualTo("x", value)) == [kept]


@settings(deadline=None, max_examples=examples(100))
@given(data=st.data(), kind=kinds)
def test_a_large_set_of_values_is_searched_whole(data: Any, kind: Kind) -> None:
    numbers = data.draw(st.lists(st.integers(-1000, 1000), min_size=201, max_size=260, unique=True))
    files = [
        measured(LONG, data.draw(st.lists(st.integers(-1100, 1100), min_size=1))) for _ in range(5)
    ]
    wanted = [
        any(low <= number <= high for number in numbers)
        for low, high in (
            (
                int.from_bytes(f.lower_bounds[X], "little", signed=True),
                int.from_bytes(f.upper_bounds[X], "little", signed=True),
            )
            for f in files
        )
    ]
    assert kept_of(files, LONG, In("x", numbers)) == wanted


def test_delete_files_are_judged_by_partition_alone() -> None:
    file = measured(LONG, [5, 7])
    file.content = 2
    assert kept_of([file], LONG, GreaterThan("x", 100)) == [True]
    assert sure_of([file], LONG, GreaterThan("x", 1)) == [False]
    file.partition = {PARTITION_ID: 5}
    entries = entries_table([file], {PARTITION_ID: LONG.type_})
    schema = schema_of(LONG)
    bound = bind_filter(EqualTo("x", 6), schema)
    assert prune_files(entries, partitioned("identity"), schema, bound).to_pylist() == [False]


def test_files_without_rows_hold_no_matches_and_unknown_counts_hold_any() -> None:
    files = [File(record_count=0), File(record_count=-1), File(record_count=2)]
    assert kept_of(files, LONG, AlwaysTrue()) == [False, True, True]
    assert sure_of(files, LONG, AlwaysTrue()) == [True, False, True]
    assert kept_of(files, LONG, AlwaysFalse()) == [False, False, False]


def test_a_nested_field_whose_count_is_short_may_be_null() -> None:
    schema = three_columns(LONG, LONG)
    file = File(record_count=3)
    file.value_counts, file.null_value_counts = {Z: 2}, {Z: 0}
    file.lower_bounds = file.upper_bounds = {Z: encode_bound(5, LONG.type_)}
    entries = entries_table([file])
    spec = UNPARTITIONED_PARTITION_SPEC
    null, five = (bind_filter(one, schema) for one in (IsNull("s.z"), EqualTo("s.z", 5)))
    assert prune_files(entries, spec, schema, null).to_pylist() == [True]
    assert strict_files(entries, spec, schema, five).to_pylist() == [False]
    file.nan_value_counts = {Z: 2}
    doubles = three_columns(DOUBLE, DOUBLE)
    nan = bind_filter(IsNaN("s.z"), doubles)
    assert strict_files(entries_table([file]), spec, doubles, nan).to_pylist() == [False]


@pytest.mark.parametrize("transform", ["void", "zorder[3]"])
def test_partitions_of_void_and_unknown_transforms_leave_out_nothing(transform: str) -> None:
    schema = schema_of(LONG)
    files = [File(record_count=1, partition={PARTITION_ID: None})]
    entries = entries_table(files, {PARTITION_ID: LONG.type_})
    bound = bind_filter(EqualTo("x", 1), schema)
    assert prune_files(entries, partitioned(transform), schema, bound).to_pylist() == [True]


def test_a_spec_with_a_dropped_source_column_leaves_out_by_the_others() -> None:
    schema = schema_of(LONG)
    gone = PartitionField(99, 1001, parse_transform("identity"), "gone")
    spec = PartitionSpec(gone, *partitioned("identity").fields, spec_id=1)
    files = [File(record_count=1, partition={1001: "a", PARTITION_ID: value}) for value in (1, 2)]
    entries = entries_table(files, {1001: StringType(), PARTITION_ID: LONG.type_})
    bound = bind_filter(EqualTo("x", 1), schema)
    assert prune_files(entries, spec, schema, bound).to_pylist() == [True, False]
    one = summary_of(LONG.type_, [2])
    lists = [[summary_of(StringType(), ["a"]), one], [one], None]
    table = manifests_table(lists, [1, 1, 1])
    kept = prune_manifests(table, metadata_of(schema, spec), bound, schema=schema)
    assert kept["manifest_path"].to_pylist() == ["1", "2"]


def test_manifests_of_an_unknown_spec_stay() -> None:
    schema = schema_of(LONG)
    table = manifests_table([[summary_of(LONG.type_, [2])]] * 2, [1, 8])
    bound = bind_filter(EqualTo("x", 1), schema)
    kept = prune_manifests(
        table, metadata_of(schema, partitioned("identity")), bound, schema=schema
    )
    assert kept["partition_spec_id"].to_pylist() == [8]
    assert kept.schema == table.schema


def test_a_summary_that_explains_no_missing_bound_leaves_out_nothing() -> None:
    schema = schema_of(LONG)
    silent = {
        "contains_null": False,
        "contains_nan": None,
        "lower_bound": None,
        "upper_bound": None,
    }
    broken = {**summary_of(LONG.type_, [2]), "lower_bound": b"xyz"}
    table = manifests_table([[silent], [broken]], [1, 1])
    bound = bind_filter(EqualTo("x", 1), schema)
    kept = prune_manifests(
        table, metadata_of(schema, partitioned("identity")), bound, schema=schema
    )
    assert kept.num_rows == 2


def test_a_manifest_of_null_and_nan_partitions_may_hold_what_is_not_null() -> None:
    schema = schema_of(DOUBLE)
    table = manifests_table([[summary_of(DOUBLE.type_, [None, math.nan])]], [1])
    metadata = metadata_of(schema, partitioned("identity"))
    for expression, kept in (
        (NotNull("x"), 1),
        (NotEqualTo("x", 1.0), 1),
        (IsNaN("x"), 1),
        (NotNaN("x"), 0),
        (EqualTo("x", 1.0), 0),
    ):
        bound = bind_filter(expression, schema)
        assert prune_manifests(table, metadata, bound, schema=schema).num_rows == kept


def test_partition_values_written_before_a_promotion_are_compared() -> None:
    schema = schema_of(LONG)
    files = [File(record_count=1, partition={PARTITION_ID: value}) for value in (1, 2)]
    entries = entries_table(files, {PARTITION_ID: IntegerType()})
    bound = bind_filter(GreaterThan("x", 1), schema)
    assert prune_files(entries, partitioned("identity"), schema, bound).to_pylist() == [False, True]


def test_a_partition_of_another_type_than_expected_leaves_out_nothing() -> None:
    kind = next(kind for kind in KINDS if isinstance(kind.type_, TimestampType))
    schema = schema_of(kind)
    files = [File(record_count=1, partition={PARTITION_ID: "no number"})]
    entries = entries_table(files, {PARTITION_ID: StringType()})
    bound = bind_filter(GreaterThan("x", "2024-01-01T00:00:00"), schema)
    assert prune_files(entries, partitioned("day"), schema, bound).to_pylist() == [True]
    assert strict_files(entries, partitioned("day"), schema, bound).to_pylist() == [False]


@pytest.mark.parametrize("transform", ["year", "month", "day"])
@pytest.mark.parametrize("text", ["0001-01-01", "1969-12-31", "1970-01-01", "9999-12-31"])
def test_days_from_the_first_to_the_last_year_are_found(transform: str, text: str) -> None:
    kind = next(kind for kind in KINDS if isinstance(kind.type_, DateType))
    schema = schema_of(kind)
    bound = bind_filter(EqualTo("x", text), schema)
    day = bound.literal.value
    correct = transformed(kind, transform)(day)
    # Early writers wrote a day too late for days before 1970.
    candidates = [correct - 1, correct, correct + 1]
    files = [File(record_count=1, partition={PARTITION_ID: value}) for value in candidates]
    entries = entries_table(files, {PARTITION_ID: result_type(kind, transform)})
    kept = prune_files(entries, partitioned(transform), schema, bound).to_pylist()
    assert kept == [False, True, correct < 0]


def test_partitions_before_1970_may_be_one_too_great() -> None:
    kind = next(kind for kind in KINDS if isinstance(kind.type_, DateType))
    schema, spec = schema_of(kind), partitioned("year")
    files = [File(record_count=1, partition={PARTITION_ID: year}) for year in (-2, -1, 0)]
    entries = entries_table(files, {PARTITION_ID: IntegerType()})
    before = bind_filter(LessThan("x", "1969-01-01"), schema)
    assert prune_files(entries, spec, schema, before).to_pylist() == [True, True, False]
    after = bind_filter(GreaterThan("x", "1968-06-01"), schema)
    assert strict_files(entries, spec, schema, after).to_pylist() == [False, False, True]
    apart = bind_filter(NotEqualTo("x", "1968-06-01"), schema)
    assert strict_files(entries, spec, schema, apart).to_pylist() == [False, False, True]


def test_hours_beyond_an_int_leave_out_nothing() -> None:
    kind = next(kind for kind in KINDS if isinstance(kind.type_, TimestampType))
    schema = schema_of(kind)
    bound = bind_filter(GreaterThan("x", 2**63 - 5), schema)
    files = [File(record_count=1, partition={PARTITION_ID: 7})]
    entries = entries_table(files, {PARTITION_ID: IntegerType()})
    assert prune_files(entries, partitioned("hour"), schema, bound).to_pylist() == [True]


@pytest.mark.parametrize("number", [-128, -32768, 127, 0])
def test_decimals_at_the_edge_of_a_byte_hash_into_their_bucket(number: int) -> None:
    # Murmur3 of the shortest two's complement bytes, as the specification's appendix B has it.
    kind = next(kind for kind in KINDS if repr(kind) == "decimal(9, 2)")
    value = Decimal(number).scaleb(-2)
    raw = number.to_bytes({-128: 1, -32768: 2}.get(number, 1), "big", signed=True)
    from mmh3 import hash as murmur3

    bucket = (murmur3(raw) & 0x7FFFFFFF) % 4
    schema = schema_of(kind)
    files = [File(record_count=1, partition={PARTITION_ID: one}) for one in range(4)]
    entries = entries_table(files, {PARTITION_ID: IntegerType()})
    bound = bind_filter(EqualTo("x", value), schema)
    kept = prune_files(entries, partitioned("bucket[4]"), schema, bound)
    assert pc.indices_nonzero(kept).to_pylist() == [bucket]


def test_whole_columns_of_lists_are_never_judged() -> None:
    schema = Schema(NestedField(X, "x", ListType(2, LongType()), required=False))
    entries = entries_table([File(record_count=3)])
    bound = bind_filter(IsNull("x"), schema)
    spec = UNPARTITIONED_PARTITION_SPEC
    assert prune_files(entries, spec, schema, bound).to_pylist() == [True]
    assert strict_files(entries, spec, schema, bound).to_pylist() == [False]


def test_no_files_give_an_empty_mask() -> None:
    schema = schema_of(LONG)
    bound = bind_filter(EqualTo("x", 1), schema)
    entries = entries_table([], {PARTITION_ID: LONG.type_})
    spec = partitioned("identity")
    assert len(prune_files(entries, spec, schema, bound)) == 0
    assert len(strict_files(entries, spec, schema, bound)) == 0
    empty = manifests_table([], [])
    kept = prune_manifests(empty, metadata_of(schema, spec), bound, schema=schema)
    assert kept.num_rows == 0


def test_a_filter_releases_the_statistics_of_files_once_they_are_judged() -> None:
    files = [measured(TEXT, ["a", "b"]), measured(TEXT, ["c"])]
    gc.collect()
    gc.disable()
    try:
        before = pa.total_allocated_bytes()
        kept_by("x = 'a' or x > 'd' and x is not null", files)
        assert pa.total_allocated_bytes() == before
    finally:
        gc.enable()
