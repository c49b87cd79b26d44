"""A table that is made by the ingest which first fills it: the columns that it gets."""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager

import pyarrow as pa
from pyiceberg.exceptions import ValidationError
from pyiceberg.schema import Schema, assign_fresh_schema_ids

from lake.core.errors import BadInputError
from lake.core.rows.schema import RESERVED_NAMES


def schema_of(source: pa.Schema) -> Schema:
    """Return a new table's schema for a source's columns, with fresh field ids; all are optional.

    Raises:
        BadInputError: a column has no name, or its type has no Iceberg type.
    """
    for name in source.names:
        if not name or source.names.count(name) > 1:
            said = "a column without a name" if not name else f"two columns named {name}"
            raise BadInputError(f"the source has {said}: it cannot become a table")
    from pyiceberg.io.pyarrow import _pyarrow_to_schema_without_ids  # noqa: PLC0415 - 0.2 s

    plain = pa.schema([pa.field(item.name, _new_type(item)) for item in source])
    with names_once():
        return assign_fresh_schema_ids(_pyarrow_to_schema_without_ids(plain))


def refuse_reserved(names: Iterable[str]) -> None:
    """Refuse names of columns under which Iceberg's readers give metadata of rows; inside structs they are free.

    Source: Iceberg's MetadataColumns, for which Spark refuses to read a table that has such a column.

    Raises:
        BadInputError: there is such a name.
    """
    if found := sorted(RESERVED_NAMES.intersection(names)):
        raise BadInputError(
            f"the column name {found[0]} is reserved for metadata of Iceberg's rows",
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
    """Refuse to make a schema in which two fields have one full name, as a.b and the b in a have.

    Raises:
        BadInputError: two have.
    """
    try:
        yield
    except ValueError as error:
        _, clash, said = str(error).partition("multiple fields for name ")
        if not clash:
            raise
        raise BadInputError(f"two columns have the name {said.rpartition(':')[0]}") from error


def schema_like(source: Schema) -> Schema:
    """Return a new table's schema like another table's, with fresh field ids and without default values."""
    return assign_fresh_schema_ids(source)


def _new_type(item: pa.Field) -> pa.DataType:
    """Return the Arrow type that a new column has.

    Raises:
        BadInputError: no Iceberg type of format version 2 holds it.
    """
    from pyiceberg.io.pyarrow import (  # noqa: PLC0415
        UnsupportedPyArrowTypeException,
        _pyarrow_to_schema_without_ids,
    )

    kind = _storable(item.type)
    try:
        made = _pyarrow_to_schema_without_ids(pa.schema([pa.field(item.name, kind)]))
        # What metadata would say of it must be understood again: a decimal's scale may be negative only here.
        Schema.model_validate_json(made.model_dump_json())
    except (TypeError, ValueError, ValidationError, UnsupportedPyArrowTypeException) as error:
        raise BadInputError(
            f"column {item.name} is {item.type}, which no Iceberg type holds"
        ) from error
    if _has_empty_struct(kind):
        raise BadInputError(
            f"column {item.name} is {item.type}: a struct without fields holds nothing"
        )
    return kind


def _has_empty_struct(kind: pa.DataType) -> bool:
    inner = [kind.field(index).type for index in range(kind.num_fields)]
    return (pa.types.is_struct(kind) and not inner) or any(_has_empty_struct(one) for one in inner)


def _storable(kind: pa.DataType) -> pa.DataType:
    """Return the Arrow type that a new column of a source's type has."""
    if isinstance(kind, pa.BaseExtensionType):
        # A UUID stays one; other extensions are stored as what they wrap.
        return kind if kind == pa.uuid() else _storable(kind.storage_type)
    if pa.types.is_dictionary(kind):
        return _storable(kind.value_type)
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(item.name, _storable(item.type)) for item in kind])
    if pa.types.is_map(kind):
        return pa.map_(_storable(kind.key_type), _storable(kind.item_type))
    if is_list(kind):
        return pa.list_(_storable(kind.value_type))
    return _storable_primitive(kind)


def is_list(kind: pa.DataType) -> bool:
    """Whether Arrow has the type's values as lists, of whatever layout."""
    types = pa.types
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _storable_primitive(kind: pa.DataType) -> pa.DataType:
    types = pa.types
    if types.is_integer(kind):
        # Unsigned ones need a bit more; nothing is wider than 64 bits, so there values are checked.
        return pa.int32() if kind.bit_width + types.is_unsigned_integer(kind) <= 32 else pa.int64()  # noqa: PLR2004
    if kind == pa.binary(0):
        # Parquet knows no values of no length but texts'.
        return pa.binary()
    if types.is_timestamp(kind):
        return pa.timestamp("us", None if kind.tz is None else "UTC")
    for test, storable in (
        (types.is_float16, pa.float32()),
        (types.is_null, pa.string()),
        (types.is_time, pa.time64("us")),
        (types.is_date, pa.date32()),
    ):
        if test(kind):
            return storable
    return kind
