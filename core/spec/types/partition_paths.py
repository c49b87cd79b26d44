"""Partition paths, as used in folders and in summaries. Source: PartitionSpec.partitionToPath."""

from __future__ import annotations

from collections.abc import Sequence
from struct import error as StructError  # noqa: N812 - a class with a module's name
from typing import TYPE_CHECKING, Any
from urllib.parse import quote_plus
from uuid import UUID

from pyiceberg.conversions import from_bytes
from pyiceberg.types import TimestampNanoType, TimestamptzNanoType, UUIDType

from lake.core.base.errors import BadInputError
from lake.core.spec.types.default_values import nanoseconds_text
from lake.core.spec.types.single_values import partition_type, source_type

if TYPE_CHECKING:
    from pyiceberg.partitioning import PartitionField, PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.types import IcebergType


def partition_path(spec: PartitionSpec, schema: Schema, partition: Sequence[bytes | None]) -> str:
    """Return the path of a partition, e.g. ``ts_day=2013-01-01/id_bucket=3``.

    Args:
        spec: the partition's spec.
        schema: a schema with the spec's source columns.
        partition: the single value of each field of the spec.
    """
    kinds = partition_type(spec, [schema]).fields
    parts = []
    for field, kind, value in zip(spec.fields, kinds, partition, strict=True):
        text = human_value(field, [schema], kind.field_type, value)
        parts.append(f"{quoted(field.name)}={quoted(text)}")
    return "/".join(parts)


def human_value(
    field: PartitionField, schemas: Sequence[Schema], kind: IcebergType, value: bytes | None
) -> str:
    """Return a partition value as people read it, e.g. ``2013-01-01`` for a day.

    Raises:
        BadInputError: it is not a value of the type.
    """
    source = source_type(field.source_id, schemas)
    try:
        internal = _internal(value, kind)
    except (StructError, ValueError) as error:
        raise BadInputError(
            f"the partition field {field.name} has a value that is not {kind}"
        ) from error
    if isinstance(kind, TimestampNanoType | TimestamptzNanoType) and internal is not None:
        # PyIceberg writes the number.
        return nanoseconds_text(kind, internal)
    try:
        return field.transform.to_human_string(source, internal)
    except OverflowError:
        # PyIceberg does not support dates after the year 9999.
        return str(internal)


def quoted(text: str) -> str:
    """Return a name or a value as it is written in a path."""
    # Like Java's URLEncoder, which also escapes the tilde.
    return quote_plus(text, safe="*-._", errors="surrogatepass").replace("~", "%7E")


def _internal(value: bytes | None, kind: Any) -> Any:
    """Return a single value as PyIceberg's transforms represent it (ints for dates and times)."""
    if value is None:
        return None
    found: Any = from_bytes(kind, value)
    return UUID(bytes=found) if isinstance(kind, UUIDType) else found
