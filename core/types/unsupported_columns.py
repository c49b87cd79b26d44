"""Columns whose values lake can neither read nor write: variant, geometry and geography.

Their Parquet files mark the values in ways that PyArrow cannot write. In memory such a column has Arrow's type of
NULLs: a data file that lacks it gives NULLs, and where a file has it, reading is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyiceberg.types import GeographyType, GeometryType, IcebergType

from lake.core.errors import RefusedError
from lake.core.types.arrow_schema import parts_of
from lake.core.types.specification_types import VariantType

if TYPE_CHECKING:
    from pyiceberg.schema import Schema

UNSUPPORTED = (VariantType, GeometryType, GeographyType)


def has_unsupported(kind: IcebergType) -> bool:
    """Whether a type, or a part of it, is one of those above."""
    return any(True for _ in _unsupported(kind, ""))


def refuse_unsupported(schema: Schema) -> None:
    """Refuse to read or to write the values of all columns of a schema if one cannot be.

    Raises:
        RefusedError: it has such a column, or a part of a column.
    """
    for name, kind in _unsupported(schema.as_struct(), ""):
        raise unsupported(name, kind)


def unsupported(name: str, kind: IcebergType) -> RefusedError:
    """Return the error for a column."""
    return RefusedError(
        f"column {name} is of the type {kind}, whose values lake can neither read nor write",
        hint="A scan with --select of other columns works, and so do snapshots and expire; rewrite the files with "
        "an engine that knows the type.",
    )


def _unsupported(kind: IcebergType, name: str) -> Iterator[tuple[str, IcebergType]]:
    if isinstance(kind, UNSUPPORTED):
        yield name, kind
    for item in parts_of(kind):
        yield from _unsupported(item.field_type, f"{name}.{item.name}" if name else item.name)
