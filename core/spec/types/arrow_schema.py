"""Iceberg schemas as Arrow schemas, and both as plain data for tasks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import pyarrow as pa
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.types import (
    IcebergType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StructType,
)

from lake.core.base.errors import (
    CorruptFileError,
    InvalidRequestError,
    RefusedError,
    unknown_column,
)
from lake.core.base.plain import Codec
from lake.core.base.units import whole_number
from lake.core.spec.types.arrow_types import primitive_type
from lake.core.spec.types.default_values import enable_defaults
from lake.core.spec.types.format_versions import ROW_LINEAGE_SINCE
from lake.core.spec.types.specification_types import enable_types

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

FIELD_ID = b"PARQUET:field_id"
# Columns of every version 3 table, stored only for rows that were moved (ids reserved by the specification).
ROW_ID = 2147483540
LAST_UPDATED = 2147483539
_LINEAGE_NAMES = ("_row_id", "_last_updated_sequence_number")
RESERVED_NAMES = frozenset({"_file", "_pos", "_deleted", "_spec_id", "_partition", *_LINEAGE_NAMES})


def arrow_schema(schema: Schema) -> pa.Schema:
    """Return the Arrow schema of lake's batches for an Iceberg schema, with field ids at every level.

    Raises:
        RefusedError: the schema contains a type that lake does not support.
    """
    return pa.schema([arrow_field(field) for field in schema.fields])


def arrow_field(field: NestedField) -> pa.Field:
    """Return the Arrow field of an Iceberg field."""
    return pa.field(
        field.name,
        arrow_type(field.field_type),
        nullable=field.optional,
        metadata={FIELD_ID: str(field.field_id).encode()},
    )


def arrow_type(field_type: IcebergType) -> pa.DataType:
    """Return the Arrow type of an Iceberg type."""
    if isinstance(field_type, StructType):
        return pa.struct([arrow_field(field) for field in field_type.fields])
    if isinstance(field_type, ListType):
        return pa.list_(arrow_field(field_type.element_field))
    if isinstance(field_type, MapType):
        return pa.map_(arrow_field(field_type.key_field), arrow_field(field_type.value_field))
    found = primitive_type(field_type)
    if found is None:
        raise RefusedError(f"columns of type {field_type} are not supported")
    return found


def parts_of(field_type: IcebergType) -> Sequence[NestedField]:
    """Return the fields inside a type: a struct's, a list's element, a map's key and value."""
    if isinstance(field_type, StructType):
        return field_type.fields
    if isinstance(field_type, ListType):
        return (field_type.element_field,)
    return (field_type.key_field, field_type.value_field) if isinstance(field_type, MapType) else ()


def list_of(list_type: ListType, element: IcebergType) -> ListType:
    """Return a list type with another element type; a copy of the type would keep its cached element field."""
    return ListType(list_type.element_id, element, list_type.element_required)


def map_of(map_type: MapType, key: IcebergType, value: IcebergType) -> MapType:
    """Return a map type with other key and value types; see `list_of`."""
    return MapType(map_type.key_id, key, map_type.value_id, value, map_type.value_required)


def field_id(field: pa.Field) -> int | None:
    """Return the Iceberg field id that an Arrow field carries, if any."""
    raw = (field.metadata or {}).get(FIELD_ID)
    return None if raw is None else whole_number(raw.decode(errors="replace"))


def struct_field_ids(fields: Iterable[pa.Field]) -> frozenset[int]:
    """Return the ids of Arrow fields and of their nested fields in structs."""
    found: set[int] = set()
    for item in fields:
        number = field_id(item)
        found |= set() if number is None else {number}
        found |= struct_field_ids(item.type) if pa.types.is_struct(item.type) else set()
    return frozenset(found)


def field_path(schema: Schema, field_id: int) -> tuple[NestedField, ...] | None:
    """Return the fields from a column down to a field; None if the path goes through a list or map."""
    return _path_in(schema.fields, field_id)


def _path_in(fields: Iterable[NestedField], field_id: int) -> tuple[NestedField, ...] | None:
    for field in fields:
        if field.field_id == field_id:
            return (field,)
        if isinstance(field.field_type, StructType):
            below = _path_in(field.field_type.fields, field_id)
            if below is not None:
                return (field, *below)
    return None


def top_columns(schema: Schema, ids: Sequence[int]) -> Schema:
    """Return the top-level columns that contain the given fields; the first column if no field is given."""
    # The name of a column may contain a dot, so names do not show which column contains a field.
    found = [item for item in schema.fields if Schema(item).field_ids.intersection(ids)]
    return Schema(*(found or schema.fields[:1]), schema_id=schema.schema_id)


def moved_schema(schema: Schema, metadata: TableMetadata) -> Schema:
    """Return the schema for rows that are moved from one file of a table to another.

    If the table has row ids, rows keep them: the row lineage columns are appended to the schema.
    Source: https://iceberg.apache.org/spec/#row-lineage.

    Raises:
        RefusedError: a column has the name of a row lineage column.
    """
    if metadata.format_version < ROW_LINEAGE_SINCE:
        return schema
    for item in schema.fields:
        if item.name in _LINEAGE_NAMES:
            raise RefusedError(
                f"the column name {item.name} is reserved for row lineage: rows of the table cannot be moved to "
                "other files",
                hint="rename the column",
            )
    row_id, last_updated = _LINEAGE_NAMES
    return Schema(
        *schema.fields,
        NestedField(ROW_ID, row_id, LongType(), required=False),
        NestedField(LAST_UPDATED, last_updated, LongType(), required=False),
        schema_id=schema.schema_id,
    )


def schema_to_plain(schema: Schema) -> dict[str, Any]:
    """Return a schema as JSON-ready values."""
    plain: dict[str, Any] = schema.model_dump(mode="json", by_alias=True)
    return plain


def schema_from_plain(plain: Any) -> Schema:
    """Rebuild a schema.

    Raises:
        CorruptFileError: the values do not describe a schema.
    """
    # In a Spark worker this is the first code that needs the types.
    enable_types()
    enable_defaults()
    try:
        return Schema.model_validate(plain)
    except ValueError as error:
        raise CorruptFileError("not a schema") from error


PlainSchema = Annotated[Schema, Codec(schema_to_plain, schema_from_plain)]


def spec_to_plain(spec: PartitionSpec) -> dict[str, Any]:
    """Return a partition spec as JSON-ready values."""
    plain: dict[str, Any] = spec.model_dump(mode="json", by_alias=True)
    return plain


def spec_from_plain(plain: Any) -> PartitionSpec:
    """Rebuild a partition spec."""
    try:
        return PartitionSpec.model_validate(plain)
    except ValueError as error:
        raise CorruptFileError("not a partition spec") from error


def find_id(schema: Schema, name: str) -> int | None:
    """Return the id of a column, which may be inside structs; None if there is none."""
    try:
        return schema.find_field(name).field_id
    except ValueError:
        return None


def project_schema(schema: Schema, names: Sequence[str], *, case_sensitive: bool = True) -> Schema:
    """Return the part of a schema that names (``a`` or ``a.b``) select, in the schema's order.

    Raises:
        NotFoundError: a name is not a column.
        InvalidRequestError: a name is that of a field inside the keys of a map.
    """
    for name in names:
        try:
            schema.find_field(name, case_sensitive=case_sensitive)
        except ValueError as error:
            raise unknown_column(name, [field.name for field in schema.fields]) from error
        if not schema.select(name, case_sensitive=case_sensitive).fields:
            raise InvalidRequestError(
                f"{name} is part of a key of a map, and keys are read as a whole",
                hint="name the map instead",
            )
    return schema.select(*names, case_sensitive=case_sensitive)
