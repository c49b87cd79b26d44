"""A table that is made by the ingest which first fills it: its schema, partition spec and sort order."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyiceberg.partitioning import PARTITION_FIELD_ID_START, PartitionField, PartitionSpec
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder
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

from lake.core.errors import BadInputError, InvalidRequestError, NotFoundError

_TERM = re.compile(
    r"^(?:(\w+)\s*\(\s*(?:(\d+)\s*,\s*)?([^(),]+?)\s*(?:,\s*(\d+)\s*)?\)|([^(),]+))$"
)
_PLAIN: dict[str, Transform[Any, Any]] = {
    "identity": IdentityTransform(),
    "year": YearTransform(),
    "years": YearTransform(),
    "month": MonthTransform(),
    "months": MonthTransform(),
    "day": DayTransform(),
    "days": DayTransform(),
    "date": DayTransform(),
    "hour": HourTransform(),
    "hours": HourTransform(),
    "void": VoidTransform(),
}
_SUFFIX = {
    "bucket": "bucket",
    "truncate": "trunc",
    "year": "year",
    "month": "month",
    "day": "day",
    "hour": "hour",
    "void": "null",
}
_SORT = re.compile(r"^(\S+)(?:\s+(asc|desc))?(?:\s+nulls\s+(first|last))?$", re.IGNORECASE)


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
    return assign_fresh_schema_ids(_pyarrow_to_schema_without_ids(plain))


def schema_like(source: Schema) -> Schema:
    """Return a new table's schema like another table's, with fresh field ids."""
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
        _pyarrow_to_schema_without_ids(pa.schema([pa.field(item.name, kind)]))
    except (TypeError, ValueError, UnsupportedPyArrowTypeException) as error:
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


def partition_spec(text: str | None, schema: Schema) -> PartitionSpec:
    """Parse ``day(ts), bucket(16, id), name`` for a schema; fields are named as Spark names them.

    Raises:
        InvalidRequestError: a term cannot be read, or its transform does not fit the column.
        NotFoundError: a column does not exist.
    """
    fields = []
    for position, term in enumerate(_terms(text or "")):
        transform, column = _parse_term(term)
        source = _column(schema, column)
        if not transform.can_transform(source.field_type):
            raise InvalidRequestError(
                f"cannot partition {column} ({source.field_type}) by {transform}"
            )
        name = column.replace(".", "_")
        if not isinstance(transform, IdentityTransform):
            name = f"{name}_{_SUFFIX[str(transform).partition('[')[0]]}"
        field_id = PARTITION_FIELD_ID_START + position
        fields.append(PartitionField(source.field_id, field_id, transform, name))
    names = [field.name for field in fields]
    if len(set(names)) != len(names):
        raise InvalidRequestError(f"--partition-by names a field twice: {', '.join(names)}")
    return PartitionSpec(*fields)


def sort_order(text: str | None, schema: Schema) -> SortOrder:
    """Parse ``a desc nulls last, b`` for a schema (defaults: ascending, nulls first).

    Raises:
        InvalidRequestError: a term cannot be read.
        NotFoundError: a column does not exist.
    """
    fields = []
    for term in _terms(text or ""):
        found = _SORT.match(term)
        if not found:
            raise InvalidRequestError(f"not a sort term: {term!r}", hint="write it as: a desc, b")
        descending = (found[2] or "asc").lower() == "desc"
        nulls = (found[3] or ("last" if descending else "first")).lower()
        fields.append(
            SortField(
                source_id=_column(schema, found[1]).field_id,
                transform=IdentityTransform(),
                direction=SortDirection.DESC if descending else SortDirection.ASC,
                null_order=NullOrder.NULLS_LAST if nulls == "last" else NullOrder.NULLS_FIRST,
            )
        )
    return SortOrder(*fields) if fields else SortOrder(order_id=0)


def _terms(text: str) -> Iterator[str]:
    """Split at commas outside parentheses."""
    depth, begin = 0, 0
    for index, char in enumerate(text):
        depth += (char == "(") - (char == ")")
        if char == "," and depth == 0:
            yield text[begin:index].strip()
            begin = index + 1
    if text.strip():
        yield text[begin:].strip()


def _parse_term(term: str) -> tuple[Transform[Any, Any], str]:
    found = _TERM.match(term)
    if not found:
        raise InvalidRequestError(
            f"not a partition term: {term!r}", hint="write it as: day(ts), bucket(16, id), name"
        )
    if found[5]:
        return IdentityTransform(), found[5].strip()
    function, column = found[1].lower(), found[3]
    number = int(found[2] or found[4] or 0)
    if function in _PLAIN and not number:
        return _PLAIN[function], column
    if function == "bucket" and number:
        return BucketTransform(number), column
    if function == "truncate" and number:
        return TruncateTransform(number), column
    raise InvalidRequestError(
        f"not a partition transform: {term!r}",
        hint="known: identity, year, month, day, hour, bucket(N, col), truncate(W, col), void",
    )


def _column(schema: Schema, name: str) -> Any:
    try:
        return schema.find_field(name)
    except ValueError as error:
        columns = ", ".join(field.name for field in schema.fields)
        raise NotFoundError(f"no column named {name}", hint=f"columns: {columns}") from error
