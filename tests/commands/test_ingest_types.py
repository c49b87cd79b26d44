"""Every type of Iceberg, from every typed source, through every distribution, read back by PyIceberg."""

from __future__ import annotations

import datetime as dt
import decimal
import tempfile
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    VoidTransform,
    YearTransform,
)
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)
from support.cli.command_line import CommandLine
from support.tables.iceberg_tables import make_table, pyiceberg_table
from support.tiers import examples

from lake.core.base.settings import Settings
from lake.core.engine.inline import InlineEngine
from lake.core.spec.types.arrow_schema import arrow_type
from lake.core.transaction.session import Session, open_session

_BEGIN, _END = dt.datetime(1, 1, 2), dt.datetime(9999, 12, 30)
_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
_PRIMITIVES: list[tuple[IcebergType, st.SearchStrategy[Any]]] = [
    (BooleanType(), st.booleans()),
    (IntegerType(), st.integers(-(2**31), 2**31 - 1)),
    (LongType(), st.integers(-(2**63), 2**63 - 1)),
    (FloatType(), st.floats(width=32)),
    (DoubleType(), st.floats()),
    (
        DecimalType(9, 2),
        # truncate() must not make a value that has more digits.
        st.integers(-(10**9) + 10**4, 10**9 - 1).map(lambda n: decimal.Decimal(n).scaleb(-2)),
    ),
    (
        DecimalType(38, 10),
        st.integers(-(10**30), 10**30).map(lambda n: decimal.Decimal(n).scaleb(-10)),
    ),
    (DateType(), st.dates(dt.date(1, 1, 2))),
    (TimeType(), st.times()),
    (TimestampType(), st.datetimes(_BEGIN, _END)),
    (TimestamptzType(), st.datetimes(_BEGIN, _END, timezones=st.just(dt.UTC))),
    (StringType(), _TEXT),
    (UUIDType(), st.uuids().map(lambda one: one.bytes)),
    (FixedType(5), st.binary(min_size=5, max_size=5)),
    (BinaryType(), st.binary(max_size=20)),
]
_TRANSFORMS: list[Transform[Any, Any]] = [
    IdentityTransform(),
    BucketTransform(3),
    TruncateTransform(2),
    YearTransform(),
    MonthTransform(),
    DayTransform(),
    HourTransform(),
    VoidTransform(),
]


def _kinds(nested: bool) -> st.SearchStrategy[tuple[IcebergType, st.SearchStrategy[Any]]]:
    primitive = st.sampled_from(_PRIMITIVES)
    if not nested:
        return primitive
    return st.one_of(primitive, primitive.map(_list), primitive.map(_map), primitive.map(_struct))


def _optional(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(st.none(), values)


def _list(
    inner: tuple[IcebergType, st.SearchStrategy[Any]],
) -> tuple[IcebergType, st.SearchStrategy[Any]]:
    kind, values = inner
    return ListType(100, kind, element_required=False), st.lists(_optional(values), max_size=3)


def _map(
    inner: tuple[IcebergType, st.SearchStrategy[Any]],
) -> tuple[IcebergType, st.SearchStrategy[Any]]:
    kind, values = inner
    return (
        MapType(101, StringType(), 102, kind, value_required=False),
        st.dictionaries(_TEXT, _optional(values), max_size=3).map(lambda d: list(d.items())),
    )


def _struct(
    inner: tuple[IcebergType, st.SearchStrategy[Any]],
) -> tuple[IcebergType, st.SearchStrategy[Any]]:
    kind, values = inner
    return (
        StructType(
            NestedField(103, "x", kind, required=False),
            NestedField(104, "y", LongType(), required=False),
        ),
        st.fixed_dictionaries({"x": _optional(values), "y": _optional(st.integers(-9, 9))}),
    )


@st.composite
def tables(draw: st.DrawFn, nested: bool = True) -> tuple[Schema, PartitionSpec, pa.Table]:
    """A schema, a spec over one of its columns and the number of the row, and rows."""
    kind, values = draw(_kinds(nested))
    rows = draw(st.lists(_optional(values), min_size=1, max_size=12))
    schema = Schema(
        NestedField(1, "row", LongType(), required=False),
        NestedField(2, "value", kind, required=False),
    )
    table = pa.table(
        {"row": pa.array(range(len(rows)), pa.int64()), "value": pa.array(rows, arrow_type(kind))}
    )
    fitting = [one for one in _TRANSFORMS if kind.is_primitive and _fits(one, kind)]
    by_value = [PartitionField(2, 1000, draw(st.sampled_from(fitting)), "p")] if fitting else []
    spec = PartitionSpec(*by_value, PartitionField(1, 1001, BucketTransform(2), "b"))
    return schema, spec, table


def _fits(transform: Transform[Any, Any], kind: IcebergType) -> bool:
    # NaN is one partition, but no two NaNs are equal: what PyIceberg shows of it proves nothing.
    if isinstance(kind, FloatType | DoubleType) and isinstance(transform, IdentityTransform):
        return False
    return transform.can_transform(kind)


class Exchanging(InlineEngine):
    """An engine that is not known to see all rows in one writer, so rows are exchanged."""

    name = "exchanging"


def _exchanging(setting: Settings) -> Session:
    session = open_session(setting)
    session._engine = Exchanging(2)
    return session


def _write(path: Path, rows: pa.Table, kind: str) -> None:
    half = max(rows.num_rows // 2, 1)
    for number, part in enumerate((rows.slice(0, half), rows.slice(half))):
        name = path / f"{number}.{kind}"
        if kind == "parquet":
            pq.write_table(part, name, row_group_size=2)
        else:
            with pa.ipc.new_file(name, rows.schema) as file:
                file.write_table(part, max_chunksize=3)


def _read(warehouse: Path) -> list[Any]:
    found = pyiceberg_table(warehouse).scan().to_arrow().sort_by("row")
    return [_comparable(value) for value in found["value"].to_pylist()]


def _comparable(value: Any) -> Any:
    """NaN equals itself, maps have no order, UUIDs are their bytes."""
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, uuid.UUID):
        return value.bytes
    if isinstance(value, dict):
        return {key: _comparable(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_comparable(one) for one in value]
    if isinstance(value, tuple):
        return tuple(_comparable(one) for one in value)
    return value


def _round_trip(
    lake: CommandLine, case: tuple[Schema, PartitionSpec, pa.Table], kind: str, *options: str
) -> None:
    schema, spec, rows = case
    with tempfile.TemporaryDirectory() as folder:
        warehouse, sources = Path(folder, "w"), Path(folder, "in")
        sources.mkdir()
        _write(sources, rows, kind)
        make_table(warehouse, schema=schema, spec=spec)
        here = CommandLine(warehouse, engine=lake.engine, open_session=lake.open_session)

        done = here.ok("ingest", "db.t", sources, *options)

        assert done["result"]["rows_written"] == rows.num_rows
        assert _read(warehouse) == [_comparable(value) for value in rows["value"].to_pylist()]


MANY = settings(
    max_examples=examples(25),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
# Each starts a JVM's session: a failure is shown as it was found.
FEW = settings(MANY, max_examples=examples(2), phases=[Phase.generate])


@MANY
@given(case=tables(), kind=st.sampled_from(["parquet", "arrow"]))
def test_every_type_survives_without_distribution(
    lake: CommandLine, case: tuple[Schema, PartitionSpec, pa.Table], kind: str
) -> None:
    _round_trip(lake, case, kind, "--distribution", "none")


@MANY
@given(case=tables(), kind=st.sampled_from(["parquet", "arrow"]))
def test_every_type_survives_an_exchange(
    lake: CommandLine, case: tuple[Schema, PartitionSpec, pa.Table], kind: str
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lake.core.load.ingest.plan._SMALLEST_TASK_BYTES", 1)
        _round_trip(CommandLine(lake.warehouse, open_session=_exchanging), case, kind)


@MANY
@given(data=st.data(), kind=st.sampled_from(["json", "csv"]))
def test_every_type_survives_a_scan_to_text_and_back(
    lake: CommandLine, data: st.DataObject, kind: str
) -> None:
    schema, spec, rows = data.draw(tables())
    with tempfile.TemporaryDirectory() as folder:
        warehouse, text = Path(folder, "w"), Path(folder, f"x.{kind}")
        make_table(warehouse, "db.a", schema=schema)
        make_table(warehouse, "db.t", schema=schema, spec=spec)
        here = CommandLine(warehouse)
        pq.write_table(rows, Path(folder, "x.parquet"))
        here.ok("ingest", "db.a", Path(folder, "x.parquet"))
        here.ok("scan", "db.a", "--output", text)

        here.ok("ingest", "db.t", text)

        assert _read(warehouse) == [_comparable(value) for value in rows["value"].to_pylist()]


@pytest.mark.spark
@FEW
@given(case=tables(), kind=st.sampled_from(["parquet", "arrow"]))
def test_every_type_survives_spark(
    lake: CommandLine, case: tuple[Schema, PartitionSpec, pa.Table], kind: str
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lake.core.load.ingest.plan._SMALLEST_TASK_BYTES", 1)
        _round_trip(CommandLine(lake.warehouse, engine="spark"), case, kind)


def test_a_decimal_whose_partition_value_has_too_many_digits_is_refused(
    lake: CommandLine, tmp_path: Path
) -> None:
    file = tmp_path / "rows.csv"
    file.write_text("value\n-9999999.99\n")
    by = ("--partition-by", "truncate(2, value)")
    lake.ok("create", "db.t", "value decimal(9, 2)", *by)

    failed = lake("--json", "ingest", "db.t", file)

    assert failed.exit_code == 7
    assert "-9999999.99 of column value" in failed.json()["error"]["message"]
    assert lake.ok("scan", "db.t")["result"]["rows"] == 0


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize(
    ("kind", "values", "by"),
    [
        ("decimal(9, 2)", ("1.50", "2.25"), "a, b, truncate(10, b)"),
        ("uuid", (str(uuid.UUID(int=1)), str(uuid.UUID(int=2))), "a, b"),
    ],
)
def test_several_partition_fields_have_values_of_one_type_of_fixed_size(
    lake: CommandLine, tmp_path: Path, version: int, kind: str, values: tuple[str, str], by: str
) -> None:
    file = tmp_path / "rows.csv"
    one, other = values
    file.write_text(f"id,a,b\n1,{one},{other}\n2,{other},{one}\n3,{one},\n")
    columns = ("id int", f"a {kind}", f"b {kind}")
    lake.ok("create", "db.t", *columns, "--partition-by", by, "--format-version", version)

    lake.ok("ingest", "db.t", file)
    lake.ok("delete", "db.t", "--where", f"b = '{other}'")

    rows = [(row["id"], str(row["a"]), row["b"] and str(row["b"])) for row in lake.rows(by="id")]
    assert rows == [(2, other, one), (3, one, None)]
    assert lake.ok("check", "db.t", "--deep")["result"]["errors"] == 0
