"""Which statistics of a file's footer hold, by its writer, the writer's version, and the types and order of a column.

A statistic that does not hold is treated as if it was missing: it becomes no bound and no count in a manifest, and
nothing is skipped or reported because of it.

Sources: ``Statistics``, ``ColumnOrder`` and ``TypeDefinedOrder`` in
https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift; PARQUET-251 and PARQUET-686
(bytes), PARQUET-1225 and IMPALA-6527 (NaN), PARQUET-1655 and ClickHouse/ClickHouse#83754 (decimals),
pola-rs/polars#29321 and apache/arrow#51097 (counts of NULLs); for ORC,
https://orc.apache.org/specification/ORCv1/#column-statistics and ORC-135.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

Version = tuple[int, int, int]

_CREATED_BY = re.compile(r"\s*(\S.*?)\s+(?:version\s*)?v?(\d+)\.(\d+)(?:\.(\d+))?")
_BYTES = frozenset({"BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY"})
_FLOATING = frozenset({"FLOAT", "DOUBLE"})
_NUMBERS = frozenset({"BOOLEAN", "INT32", "INT64"}) | _FLOATING
# Types whose values have no order, or none that Iceberg's types have. INT96 is a physical type.
_WITHOUT_ORDER = frozenset({"FLOAT16", "GEOGRAPHY", "GEOMETRY", "INT96", "INTERVAL", "VARIANT"})
_DECIMAL = "DECIMAL"

# Writers of wrong minima and maxima, with the version that corrected them (None: none did), by kind of column.
_WRONG_BYTES: dict[str, Version | None] = {"parquet-mr": (1, 10, 0), "parquet-cpp": (1, 3, 0)}
_WRONG_FLOATS: dict[str, Version | None] = {"parquet-cpp": (1, 4, 0), "impala": (2, 12, 0)}
_WRONG_DECIMALS: dict[str, Version | None] = {
    "parquet-cpp": None,
    "parquet-cpp-arrow": (4, 0, 0),
    "clickhouse": (25, 8, 0),
}
# Writers that count the NULLs of a column several times, and those that omit NULLs of repeated columns.
_MULTIPLIED_NULLS = frozenset({"polars"})
_OMITTED_NULLS = frozenset({"parquet-cpp", "parquet-cpp-arrow"})


@dataclass(frozen=True, slots=True)
class Writer:
    """The writer of a file: its name in lower case, and its version; None if the file does not say it."""

    name: str
    version: Version | None

    @classmethod
    def of(cls, created_by: str | None) -> Writer:
        """Parse Parquet's ``created_by``, such as ``parquet-mr version 1.8.2 (build …)``."""
        found = _CREATED_BY.match(created_by or "")
        if found is None:
            return cls((created_by or "").strip().lower(), None)
        major, minor, patch = (int(part or 0) for part in found.groups()[1:])
        return cls(found[1].lower(), (major, minor, patch))

    def is_in(self, wrong: dict[str, Version | None]) -> bool:
        """Whether it is one of these writers, before the version that corrected it."""
        if self.name not in wrong:
            return False
        corrected = wrong[self.name]
        return corrected is None or self.version is None or self.version < corrected


@dataclass(frozen=True, slots=True)
class ParquetColumn:
    """What a Parquet file declares about a column.

    Args:
        physical: the physical type, such as ``INT32``.
        logical: the logical type's name, or that of a converted type without one; ``NONE`` without either.
        unsigned: whether it is an unsigned integer.
        typed: whether the footer declares the order of the type for it. Without, the minimum and maximum are the
            deprecated ones.
        required: whether neither it nor a parent may be NULL.
        repeated: whether a row may have several values.
    """

    physical: str
    logical: str
    unsigned: bool
    typed: bool
    required: bool
    repeated: bool


def bounds_hold(writer: Writer, column: ParquetColumn) -> bool:
    """Whether the minima and maxima of a Parquet column are bounds of its values in Iceberg's order.

    A floating-point bound may still be NaN, which is not one, and a zero of one sign does not exclude the other.
    """
    if _WITHOUT_ORDER & {column.physical, column.logical}:
        return False
    # The deprecated ones were compared as signed numbers or signed bytes, whatever the type is.
    if not column.typed and (column.physical not in _NUMBERS or column.unsigned):
        return False
    if column.physical in _FLOATING:
        return not writer.is_in(_WRONG_FLOATS)
    if column.physical in _BYTES:
        is_wrong = column.logical == _DECIMAL and writer.is_in(_WRONG_DECIMALS)
        return not is_wrong and not writer.is_in(_WRONG_BYTES)
    return True


def null_count_holds(
    writer: Writer, column: ParquetColumn, nulls: int, values: int, *, bounded: bool
) -> bool:
    """Whether the number of NULLs that a Parquet column chunk declares is that of its values.

    Args:
        writer: the file's writer.
        column: the column.
        nulls: the declared number.
        values: the number of values of the chunk, with NULLs.
        bounded: whether the chunk has a minimum and a maximum.
    """
    if not 0 <= nulls <= values:
        return False
    if nulls and (column.required or (nulls == values and bounded)):
        return False
    if column.repeated and writer.name in _OMITTED_NULLS:
        return False
    return not nulls or writer.name not in _MULTIPLIED_NULLS


def orc_times_hold(values: int, low: int | None, high: int | None) -> bool:
    """Whether the statistics of a column of times of an ORC file are a range of its values.

    The writers of Hive 0.11 and 0.12 write none. Before ORC-135 the times were those of the writer's zone, so the
    range may be wrong by a day.

    Args:
        values: the number of values.
        low: the minimum in ms since 1970; None if the file has none.
        high: the maximum.
    """
    return not values or (low is not None and high is not None and low <= high)
