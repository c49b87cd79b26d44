"""New tables: columns from those of a source, partitioning, sort order and properties."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyiceberg.exceptions import ValidationError
from pyiceberg.schema import Schema, assign_fresh_schema_ids

from lake.core.base.arrow import is_list
from lake.core.base.errors import BadInputError, RefusedError
from lake.core.base.options import Option
from lake.core.data.columns.logical_types import LogicalType
from lake.core.spec.properties.table_properties import FORMAT_VERSION, check_new, unknown_names
from lake.core.spec.types import transform_syntax
from lake.core.spec.types.arrow_schema import RESERVED_NAMES
from lake.core.spec.types.type_text import type_text
from lake.core.table.catalogs.trust import refuse_secrets

if TYPE_CHECKING:
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.table.sorting import SortOrder

    from lake.core.table.catalogs.catalog import Catalog, Table

# The first format version that has unknown, timestamp_ns and timestamptz_ns.
_NEW_TYPES_SINCE = 3
_WITH_VERSION_3 = f" (with {Option.PROPERTIES} format-version=3 it becomes {{}})"
_MOST_DIGITS = 38
_INT_BITS = 32
# Extension types whose values have the same meaning as values of the storage type.
_KEPT = frozenset({"arrow.json", "lake.int96"})
# The key in a field's metadata with the name of an extension type that PyArrow does not know.
EXTENSION = b"ARROW:extension:name"


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTable:
    """The schema, partitioning, sort order and properties of a new table."""

    schema: Schema
    spec: PartitionSpec
    sort_order: SortOrder
    properties: Mapping[str, str]

    def stage(self, catalog: Catalog, identifier: str, *, make_namespace: bool) -> Table:
        """Return the table, which is created by its first commit; see `Catalog.stage`."""
        return catalog.stage(
            identifier,
            self.schema,
            self.spec,
            self.sort_order,
            self.properties,
            make_namespace=make_namespace,
        )


@dataclass(frozen=True, slots=True)
class NewColumns:
    """Derives the columns of a new table from a source's columns.

    Args:
        format_version: the table's format version.
        warn: called with a text for each column whose type changes.
        text: the names of columns of text files: a column with only NULLs becomes a string.
    """

    format_version: int = 2
    warn: Callable[[str], None] = lambda _: None
    text: Collection[str] = ()

    def schema_of(self, source: pa.Schema) -> Schema:
        """Return a new table's schema for a source's columns, with fresh field ids; all are optional.

        Raises:
            BadInputError: a column has no name, or its type does not correspond to an Iceberg type.
            RefusedError: a column has a logical type that lake cannot store.
        """
        for name in source.names:
            if not name or source.names.count(name) > 1:
                problem = "a column without a name" if not name else f"two columns named {name}"
                raise BadInputError(f"the source has {problem}: no table can be created from it")
        plain = pa.schema([pa.field(item.name, self._new_type(item)) for item in source])
        with names_once():
            return assign_fresh_schema_ids(_without_ids(plain))

    def _new_type(self, item: pa.Field) -> pa.DataType:
        """Return the Arrow type of a new column.

        Raises:
            BadInputError: the type does not correspond to an Iceberg type of the format version.
        """
        kind = self._storable(item.type, item.name, keep_null=True)
        try:
            column = _without_ids(pa.schema([pa.field(item.name, kind)]))
            # Its JSON must be valid in metadata: Arrow allows a negative scale of a decimal, Iceberg does not.
            Schema.model_validate_json(column.model_dump_json())
        except (TypeError, ValueError, ValidationError) as error:
            raise BadInputError(
                f"column {item.name} is {type_text(item.type)}, which does not correspond to an Iceberg type"
            ) from error
        if _has_empty_struct(kind):
            raise BadInputError(
                f"column {item.name} is {type_text(item.type)}: a struct without fields cannot be stored"
            )
        extension = (item.metadata or {}).get(EXTENSION)
        if extension is not None:
            self._warn_of_extension(item.name, extension.decode(errors="replace"), kind)
        return kind

    def _storable(self, kind: pa.DataType, name: str, *, keep_null: bool = False) -> pa.DataType:
        """Return the Arrow type of a new column, or of a part of one, for a source's type."""
        types = pa.types
        if isinstance(kind, pa.BaseExtensionType):
            return self._storable_extension(kind, name)
        if types.is_dictionary(kind):
            return self._storable(kind.value_type, name)
        if types.is_struct(kind):
            # Data files cannot contain a struct with only unknown fields.
            keep = not all(types.is_null(item.type) for item in kind)
            parts = [
                (item.name, self._storable(item.type, f"{name}.{item.name}", keep_null=keep))
                for item in kind
            ]
            return pa.struct(parts)
        if types.is_map(kind):
            key = self._storable(kind.key_type, f"{name}.key")
            return pa.map_(key, self._storable(kind.item_type, f"{name}.value"))
        if is_list(kind):
            return pa.list_(self._storable(kind.value_type, f"{name}.element"))
        if types.is_null(kind):
            return self._storable_null(name, keep=keep_null)
        if types.is_timestamp(kind):
            return self._storable_timestamp(kind, name)
        return self._storable_primitive(kind, name)

    def _storable_extension(self, kind: pa.BaseExtensionType, name: str) -> pa.DataType:
        if isinstance(kind, LogicalType):
            raise RefusedError(
                f"column {name} is {type_text(kind)}, and lake cannot create a column of that type",
                hint="create the table first, with a column of the type binary or fixed for the bytes",
            )
        if kind == pa.uuid():
            return kind
        if kind == pa.bool8():
            return pa.bool_()
        stored = self._storable(kind.storage_type, name)
        if kind.extension_name not in _KEPT:
            self._warn_of_extension(name, kind.extension_name, stored)
        return stored

    def _warn_of_extension(self, name: str, extension: str, stored: pa.DataType) -> None:
        self.warn(
            f"column {name} has the extension type {extension}: the table stores its values as {type_text(stored)}"
        )

    def _storable_null(self, name: str, *, keep: bool) -> pa.DataType:
        """Return the type of a column whose type is unknown because all its values are NULL."""
        if any(name == column or name.startswith(f"{column}.") for column in self.text):
            return pa.string()
        if keep and self.format_version >= _NEW_TYPES_SINCE:
            return pa.null()
        hint = _WITH_VERSION_3.format("unknown") if keep else ""
        self.warn(
            f"column {name} has no type, because all values are NULL: it becomes a string{hint}"
        )
        return pa.string()

    def _storable_timestamp(self, kind: pa.TimestampType, name: str) -> pa.DataType:
        zone = None if kind.tz is None else "UTC"
        if kind.unit != "ns":
            return pa.timestamp("us", zone)
        if self.format_version >= _NEW_TYPES_SINCE:
            return pa.timestamp("ns", zone)
        hint = _WITH_VERSION_3.format("timestamptz_ns" if zone else "timestamp_ns")
        self._warn_of_nanoseconds(kind, name, hint)
        return pa.timestamp("us", zone)

    def _warn_of_nanoseconds(self, kind: pa.DataType, name: str, hint: str = "") -> None:
        self.warn(
            f"column {name} is {type_text(kind)}: the table has microseconds, and a value with nanoseconds "
            f"is refused{hint}"
        )

    def _storable_primitive(self, kind: pa.DataType, name: str) -> pa.DataType:
        types = pa.types
        if types.is_integer(kind):
            # An unsigned type needs one more bit. Iceberg has at most 64 bits, so values of uint64 are checked.
            bits = kind.bit_width + types.is_unsigned_integer(kind)
            return pa.int32() if bits <= _INT_BITS else pa.int64()
        if kind == pa.binary(0):
            # Parquet has no fixed-length type of length 0.
            return pa.binary()
        if types.is_decimal(kind) and kind.precision <= _MOST_DIGITS:
            return pa.decimal128(kind.precision, kind.scale)
        if kind == pa.time64("ns"):
            self._warn_of_nanoseconds(kind, name)
        for test, storable in (
            (types.is_float16, pa.float32()),
            (types.is_time, pa.time64("us")),
            (types.is_date, pa.date32()),
        ):
            if test(kind):
                return storable
        return kind


def _without_ids(schema: pa.Schema) -> Schema:
    """Return PyIceberg's schema for columns, including types of format version 3.

    Raises:
        ValueError: a type does not correspond to an Iceberg type.
    """
    from pyiceberg.io import pyarrow as converter  # noqa: PLC0415 - door: costs 0.2 s

    latest: Any = _NEW_TYPES_SINCE
    try:
        return converter._pyarrow_to_schema_without_ids(schema, format_version=latest)  # noqa: SLF001
    except converter.UnsupportedPyArrowTypeException as error:
        raise ValueError("a type does not correspond to an Iceberg type") from error


def refuse_reserved(names: Iterable[str]) -> None:
    """Refuse names of columns that Iceberg reserves for metadata of rows. Fields of structs may have such names.

    Source: Iceberg's MetadataColumns. Spark refuses to read a table with such a column.

    Raises:
        BadInputError: a name is reserved.
    """
    if found := sorted(RESERVED_NAMES.intersection(names)):
        raise BadInputError(
            f"the column name {found[0]} is reserved for Iceberg's metadata of rows",
            hint="rename the column in the source",
        )


def similar_names(schema: Schema, known: Collection[str] = ()) -> Iterator[tuple[str, str]]:
    """Yield pairs of full names, not both known, that differ only in case or in the form of their characters."""
    seen: dict[str, str] = {}
    for name in schema.column_names:
        first = seen.setdefault(unicodedata.normalize("NFC", name).casefold(), name)
        if first != name and not (first in known and name in known):
            yield first, name


@contextmanager
def names_once() -> Iterator[None]:
    """Refuse a schema in which two fields have the same full name: a column ``a.b``, and a field b of a column a.

    Raises:
        BadInputError: two fields have the same full name.
    """
    try:
        yield
    except ValueError as error:
        _, clash, rest = str(error).partition("multiple fields for name ")
        if not clash:
            raise
        raise BadInputError(f"two columns have the name {rest.rpartition(':')[0]}") from error


def warn_of_similar_names(
    schema: Schema, warn: Callable[[str], None], known: Collection[str] = ()
) -> None:
    """Warn about columns that engines which ignore case treat as one; see `similar_names`."""
    for first, other in similar_names(schema, known):
        warn(
            f"the column names {first} and {other} differ only in case or in the form of their characters: "
            "engines that ignore case, such as Spark, treat them as one"
        )


def new_table(
    schema: Schema,
    *,
    partition_by: str | None,
    sort_by: str | None,
    properties: Mapping[str, str],
    warn: Callable[[str], None],
) -> NewTable:
    """Check the definition of a new table, and return it with the default of its format version.

    Args:
        schema: its schema.
        partition_by: its partition transforms, as text.
        sort_by: its sort order, as text.
        properties: its properties.
        warn: called with a text for each definition that other engines may not understand.

    Raises:
        BadInputError: a name of a column is reserved.
        InvalidRequestError: a property or a term is not valid.
        RefusedError: a property contains a secret, or other engines cannot read such a table.
    """
    refuse_secrets(properties)
    refuse_reserved(item.name for item in schema.fields)
    check_new(properties, schema.column_names)
    for name in unknown_names(properties):
        warn(f"the table property {name} is stored, but Iceberg has no such property")
    warn_of_similar_names(schema, warn)
    spec = transform_syntax.partition_spec(partition_by, schema)
    transform_syntax.check_partition_names(spec.fields, schema)
    transform_syntax.refuse_unreadable(spec, schema)
    return NewTable(
        schema=schema,
        spec=spec,
        sort_order=transform_syntax.sort_order(sort_by, schema),
        properties={FORMAT_VERSION.name: FORMAT_VERSION.default, **properties},
    )


def schema_like(source: Schema) -> Schema:
    """Return a new table's schema like another table's, with fresh field ids and without default values."""
    return assign_fresh_schema_ids(source)


def schema_without(schema: Schema, name: str) -> Schema:
    """Return a schema without one of its top-level columns."""
    left = Schema(*(item for item in schema.fields if item.name != name))
    identifiers = [column for column in schema.identifier_field_ids if column in left.field_ids]
    return Schema(*left.fields, identifier_field_ids=identifiers)


def _has_empty_struct(kind: pa.DataType) -> bool:
    inner = [kind.field(index).type for index in range(kind.num_fields)]
    return (pa.types.is_struct(kind) and not inner) or any(_has_empty_struct(one) for one in inner)
