"""Random columns, rows, filters and files for tests of filters and pruning."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st
from pyiceberg.conversions import to_bytes
from pyiceberg.expressions import (
    And,
    BooleanExpression,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNaN,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    NotEqualTo,
    NotIn,
    NotNaN,
    NotNull,
    NotStartsWith,
    Or,
    StartsWith,
)
from pyiceberg.expressions.literals import (
    BinaryLiteral,
    BooleanLiteral,
    DateLiteral,
    DecimalLiteral,
    DoubleLiteral,
    FixedLiteral,
    FloatLiteral,
    Literal,
    LongLiteral,
    StringLiteral,
    TimeLiteral,
    TimestampLiteral,
    UUIDLiteral,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.typedef import Record
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
    LongType,
    StringType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from lake.core.spec.expressions.like import Like, NotLike
from lake.core.spec.types.bounds import comparable_type, truncate_lower, truncate_upper
from lake.core.table.manifests.schemas import ENTRY_COLUMNS

DAY = 86_400_000_000
MICROS = [0, -1, 1, -DAY, DAY, -DAY - 1, 40 * DAY, 17_501 * DAY + 3_600_000_001, -400 * DAY + 7]
TEXTS = ["", "a", "ab", "abc", "abcd", "abd", "b", "Z", "é", "\ud7ff", "\ue000", "\U0010ffff"]
FLOATS = [0.0, -0.0, 1.0, -1.5, 2.5, 2.0**100, math.inf, -math.inf]


def encode_bound(value: Any, type_: IcebergType) -> bytes:
    """Return a physical value's binary single-value form, as PyIceberg encodes it; decimals get the type's scale."""
    if isinstance(type_, DecimalType):
        value = value.quantize(Decimal(1).scaleb(-type_.scale), context=Context(prec=76))
    return bytes(to_bytes(type_, value))


@dataclass(frozen=True)
class Kind:
    """A type, its test values in physical form, and how a value becomes a literal."""

    type_: IcebergType
    pool: Sequence[Any]
    literal: Callable[[Any], Literal[Any]]
    transforms: Sequence[str] = ("identity", "void", "bucket[4]")
    extra: Sequence[Any] = ()

    def __repr__(self) -> str:
        return str(self.type_)

    @property
    def has_nan(self) -> bool:
        return isinstance(self.type_, FloatType | DoubleType)

    @property
    def is_text(self) -> bool:
        return isinstance(self.type_, StringType)


_TIMES = ("identity", "void", "bucket[3]", "year", "month", "day", "hour")
_NANOS = [micros * 1000 + extra for micros in MICROS for extra in (0, 1)]
_BYTES = [b"", b"a", b"ab", b"ab\xff", b"\xff\xff\xff", b"\x00", b"\x80", b"\x7f\xff\xff\xff\xff"]
_TRUNCATING = ("identity", "void", "bucket[4]", "truncate[2]", "truncate[10]")

KINDS = [
    Kind(BooleanType(), [True, False], BooleanLiteral, ("identity", "void")),
    Kind(IntegerType(), [0, 1, -1, 5, -12, 99, 2**31 - 9, 18 - 2**31], LongLiteral, _TRUNCATING),
    Kind(LongType(), [0, 1, -1, 7, -12, 10**12, 2**63 - 9, 18 - 2**63], LongLiteral, _TRUNCATING),
    Kind(FloatType(), FLOATS, FloatLiteral, ("identity", "void"), [math.nan]),
    Kind(DoubleType(), FLOATS, DoubleLiteral, ("identity", "void"), [math.nan]),
    Kind(
        DecimalType(9, 2),
        [Decimal(number).scaleb(-2) for number in (0, 1, -1, -128, -32768, 1250, 999_999_980)],
        DecimalLiteral,
        _TRUNCATING,
    ),
    Kind(
        DecimalType(38, 10),
        [Decimal((sign, (1, *(9,) * 37), -10)) for sign in (0, 1)] + [Decimal("0E-10")],
        DecimalLiteral,
        _TRUNCATING,
    ),
    Kind(DateType(), [0, 1, -1, -366, 17_501, 20_000], DateLiteral, _TIMES[:-1]),
    Kind(TimeType(), [0, 1, 3_600_000_000, DAY - 1], TimeLiteral),
    Kind(TimestampType(), MICROS, TimestampLiteral, _TIMES),
    Kind(TimestamptzType(), MICROS, TimestampLiteral, _TIMES),
    Kind(TimestampNanoType(), _NANOS, LongLiteral, _TIMES),
    Kind(TimestamptzNanoType(), _NANOS, LongLiteral, _TIMES),
    Kind(StringType(), TEXTS, StringLiteral, _TRUNCATING),
    Kind(UUIDType(), [bytes([first] * 16) for first in (0, 1, 127, 128, 255)], UUIDLiteral),
    Kind(FixedType(2), [b"\x00\x00", b"ab", b"\x80a", b"\xff\xff"], FixedLiteral),
    Kind(BinaryType(), _BYTES, BinaryLiteral, _TRUNCATING),
]

TEXT_OPS = {"starts-with", "not-starts-with", "like", "not-like"}
COMPARISONS = {
    "lt": LessThan,
    "lt-eq": LessThanOrEqual,
    "gt": GreaterThan,
    "gt-eq": GreaterThanOrEqual,
    "eq": EqualTo,
    "not-eq": NotEqualTo,
    "starts-with": StartsWith,
    "not-starts-with": NotStartsWith,
}
UNARY = {"is-null": IsNull, "not-null": NotNull, "is-nan": IsNaN, "not-nan": NotNaN}
SETS = {"in": In, "not-in": NotIn}
PATTERNS = {"like": Like, "not-like": NotLike}
# The operations that PyIceberg has, and all.
ALL_OPS = (*COMPARISONS, *UNARY, *SETS)
EVERY_OP = (*ALL_OPS, *PATTERNS)

kinds = st.sampled_from(KINDS)
patterns = st.lists(st.sampled_from(["%", "_", "a", "b", "é", "\\%", "\\\\"]), max_size=4).map(
    "".join
)


def values(kind: Kind, *, nulls: bool = True) -> st.SearchStrategy[Any]:
    """Draw a physical value of a kind, NaN and None among them."""
    return st.sampled_from([*kind.pool, *kind.extra, *([None] if nulls else [])])


@st.composite
def predicates(
    draw: Any, columns: Mapping[str, Kind], ops: Sequence[str] = EVERY_OP
) -> BooleanExpression:
    """Draw one unbound predicate on one of the columns."""
    name = draw(st.sampled_from(sorted(columns)))
    kind = columns[name]
    usable = [op for op in ops if op not in TEXT_OPS or kind.is_text]
    op = draw(st.sampled_from(usable))
    if op in UNARY:
        return UNARY[op](name)
    if op in SETS:
        chosen = draw(st.lists(st.sampled_from(kind.pool), min_size=1, max_size=4))
        return SETS[op](name, [kind.literal(value) for value in chosen])
    if op in PATTERNS:
        return PATTERNS[op](name, StringLiteral(draw(patterns)))
    return COMPARISONS[op](name, kind.literal(draw(st.sampled_from(kind.pool))))


@st.composite
def filters(
    draw: Any,
    columns: Mapping[str, Kind],
    ops: Sequence[str] = EVERY_OP,
    *,
    negations: bool = True,
    depth: int = 3,
) -> BooleanExpression:
    """Draw a filter of a few predicates."""
    joins = ["leaf", "and", "or", *(["not"] if negations else [])]
    join = draw(st.sampled_from(joins)) if depth else "leaf"
    if join == "leaf":
        return draw(predicates(columns, ops))
    below = filters(columns, ops, negations=negations, depth=depth - 1)
    if join == "not":
        return Not(draw(below))
    return (And if join == "and" else Or)(draw(below), draw(below))


def arrow_column(column: Sequence[Any], type_: IcebergType) -> pa.Array:
    """Return physical values as an Arrow column of the type."""
    arrow = comparable_type(type_)
    assert arrow is not None
    if pa.types.is_temporal(arrow):
        width = pa.int32() if pa.types.is_date32(arrow) else pa.int64()
        return pa.array(column, width).view(arrow)
    return pa.array(column, arrow)


@dataclass
class File:
    """A file's figures by field id, in plain values."""

    record_count: int
    partition: dict[int, Any] = field(default_factory=dict)
    content: int = 0
    value_counts: dict[int, int] = field(default_factory=dict)
    null_value_counts: dict[int, int] = field(default_factory=dict)
    nan_value_counts: dict[int, int] = field(default_factory=dict)
    lower_bounds: dict[int, bytes] = field(default_factory=dict)
    upper_bounds: dict[int, bytes] = field(default_factory=dict)

    def measure(self, field_id: int, kind: Kind, column: Sequence[Any], length: int = 2) -> None:
        """Add one column's metrics, bounds of text and bytes cut to a length."""
        plain = [value for value in column if value is not None]
        numbers = [value for value in plain if not (kind.has_nan and math.isnan(value))]
        self.value_counts[field_id] = len(column)
        self.null_value_counts[field_id] = len(column) - len(plain)
        if kind.has_nan:
            self.nan_value_counts[field_id] = len(plain) - len(numbers)
        if numbers:
            self._bound(field_id, kind, min(numbers), max(numbers), length)

    def _bound(self, field_id: int, kind: Kind, least: Any, most: Any, length: int) -> None:
        upper = most
        if isinstance(kind.type_, StringType | BinaryType):
            least, upper = truncate_lower(least, length), truncate_upper(most, length)
        self.lower_bounds[field_id] = encode_bound(least, kind.type_)
        if upper is not None:
            self.upper_bounds[field_id] = encode_bound(upper, kind.type_)

    def data_file(self) -> DataFile:
        """Return PyIceberg's object with the same figures."""
        return DataFile.from_args(
            content=DataFileContent(self.content),
            file_path="file.parquet",
            file_format=FileFormat.PARQUET,
            partition=Record(*self.partition.values()),
            record_count=self.record_count,
            file_size_in_bytes=1,
            value_counts=self.value_counts,
            null_value_counts=self.null_value_counts,
            nan_value_counts=self.nan_value_counts,
            lower_bounds=self.lower_bounds,
            upper_bounds=self.upper_bounds,
        )


_MAPS = (
    "value_counts",
    "null_value_counts",
    "nan_value_counts",
    "lower_bounds",
    "upper_bounds",
)


def entries_table(
    files: Sequence[File], partition_types: Mapping[int, IcebergType] | None = None
) -> pa.Table:
    """Return the columns of an entries table that pruning reads."""
    columns = {
        name: pa.array(
            [[{"key": k, "value": v} for k, v in getattr(file, name).items()] for file in files],
            ENTRY_COLUMNS[name],
        )
        for name in _MAPS
    }
    return pa.table(
        {
            "content": pa.array([file.content for file in files], pa.int32()),
            "record_count": pa.array([file.record_count for file in files], pa.int64()),
            "partition": _partitions(files, partition_types or {}),
            **columns,
        }
    )


def _partitions(files: Sequence[File], types: Mapping[int, IcebergType]) -> pa.Array:
    if not types:
        return pa.array([{} for _ in files], pa.struct([]))
    children = [
        arrow_column([file.partition[field_id] for file in files], type_)
        for field_id, type_ in types.items()
    ]
    return pa.StructArray.from_arrays(children, [str(field_id) for field_id in types])
