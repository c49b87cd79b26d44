"""Columns whose values lake cannot read or write: variant, geometry and geography.

Their Parquet files have annotations that PyArrow cannot write. In memory such a column has Arrow's null
type: it is NULL for a data file that lacks it, and a data file that contains it is not read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyiceberg.types import GeographyType, GeometryType, IcebergType

from lake.core.base.errors import RefusedError
from lake.core.base.options import Option
from lake.core.spec.types.arrow_schema import parts_of
from lake.core.spec.types.specification_types import VariantType

if TYPE_CHECKING:
    from pyiceberg.schema import Schema

UNSUPPORTED = (VariantType, GeometryType, GeographyType)


def has_unsupported(field_type: IcebergType) -> bool:
    """Whether a type is unsupported or contains an unsupported type."""
    return any(True for _ in _unsupported(field_type, ""))


def refuse_unsupported(schema: Schema) -> None:
    """Refuse to read or write values of a schema with an unsupported column.

    Raises:
        RefusedError: a column has an unsupported type, or contains one.
    """
    for name, kind in _unsupported(schema.as_struct(), ""):
        raise unsupported(name, kind)


def unsupported(name: str, field_type: IcebergType) -> RefusedError:
    """Return the error for a column."""
    return RefusedError(
        f"column {name} is of the type {field_type}, whose values lake cannot read or write",
        hint=f"Select other columns with {Option.SELECT}. The commands snapshots and expire work; rewrite the files "
        "with an engine that supports the type.",
    )


def _unsupported(field_type: IcebergType, name: str) -> Iterator[tuple[str, IcebergType]]:
    if isinstance(field_type, UNSUPPORTED):
        yield name, field_type
    for item in parts_of(field_type):
        yield from _unsupported(item.field_type, f"{name}.{item.name}" if name else item.name)
