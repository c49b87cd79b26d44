"""The syntax of partition specs and sort orders: ``day(ts), bucket(16, id)`` and ``a desc nulls last, b``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from pyiceberg.partitioning import PARTITION_FIELD_ID_START, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
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
from pyiceberg.types import FixedType, IcebergType

from lake.core.base.errors import InvalidRequestError, RefusedError, unknown_column
from lake.core.base.options import Option
from lake.core.spec.types.sort_orders import is_sortable
from lake.core.spec.types.specification_types import VariantType
from lake.core.spec.types.type_text import type_text

_LARGEST, _MOST_DIGITS, _SHOWN = 2**31 - 1, 10, 80
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
_SORT = re.compile(r"^(.+?)(?:\s+(asc|desc))?(?:\s+nulls\s+(first|last))?$", re.IGNORECASE)


def _applies(transform: Transform[Any, Any], kind: IcebergType) -> bool:
    # A variant is not primitive: Iceberg Java does not load a table with such a field.
    return not isinstance(kind, VariantType) and transform.can_transform(kind)


def _possible(kind: IcebergType, column: str) -> str | None:
    """Return the hint that lists the transforms of a column of a type."""
    known = {
        column: IdentityTransform(),
        f"bucket(N, {column})": BucketTransform(1),
        f"truncate(W, {column})": TruncateTransform(1),
        **{f"{name}({column})": _PLAIN[name] for name in ("year", "month", "day", "hour")},
    }
    possible = [text for text, one in known.items() if _applies(one, kind)]
    return f"possible: {', '.join(possible)}" if possible else None


def partition_spec(text: str | None, schema: Schema) -> PartitionSpec:
    """Parse ``day(ts), bucket(16, id), name`` for a schema; fields get the names that Spark gives them.

    Raises:
        InvalidRequestError: a term cannot be parsed, its transform does not apply to the column, or a row may have
            several values of the column.
        NotFoundError: a column does not exist.
    """
    fields = []
    for position, term in enumerate(_terms(text or "")):
        transform, column = _parse_term(term)
        source = _column(schema, column)
        if source.field_type.is_primitive and not is_sortable(source.field_id, schema):
            raise InvalidRequestError(f"cannot partition by {column}: it is inside a list or map")
        if not _applies(transform, source.field_type):
            raise InvalidRequestError(
                f"cannot partition {column} ({type_text(source.field_type)}) by {transform}",
                hint=_possible(source.field_type, column),
            )
        name = column.replace(".", "_")
        if not isinstance(transform, IdentityTransform):
            name = f"{name}_{_SUFFIX[str(transform).partition('[')[0]]}"
        field_id = PARTITION_FIELD_ID_START + position
        fields.append(PartitionField(source.field_id, field_id, transform, name))
    names = [field.name for field in fields]
    if len(set(names)) != len(names):
        raise InvalidRequestError(f"{Option.PARTITION_BY} names a field twice: {', '.join(names)}")
    return PartitionSpec(*fields)


def check_partition_names(fields: Sequence[PartitionField], schema: Schema) -> None:
    """Refuse names of partition fields that engines do not accept.

    Raises:
        InvalidRequestError: two are equal, or one is the name of another column.
    """
    names = [item.name for item in fields]
    columns = {item.name: item.field_id for item in schema.fields}
    for item in fields:
        if names.count(item.name) > 1:
            raise InvalidRequestError(
                f"{Option.PARTITION_BY}: two fields have the name {item.name}"
            )
        is_own = (
            isinstance(item.transform, IdentityTransform | VoidTransform)
            and columns.get(item.name) == item.source_id
        )
        if item.name in columns and not is_own:
            raise InvalidRequestError(
                f"{Option.PARTITION_BY}: the partition field {item.name} has the name of a column",
                hint="rename the column",
            )


def partition_terms(spec: PartitionSpec, schema: Schema) -> list[str]:
    """Return the fields of a partition spec as `partition_spec` parses them; a dropped column has a number only."""
    return [
        term_text(str(item.transform), column_name(schema, item.source_id)) for item in spec.fields
    ]


def column_name(schema: Schema, number: int) -> str:
    """Return the name of a column; ``column 3`` if it was dropped."""
    return schema.find_column_name(number) or f"column {number}"


def sort_terms(order: SortOrder, schema: Schema) -> list[str]:
    """Return the fields of a sort order as `sort_order` parses them; directions are always named."""
    return [
        f"{term_text(str(item.transform), str(schema.find_column_name(item.source_id)))} "
        f"{item.direction.name.lower()} "
        f"nulls {'last' if item.null_order is NullOrder.NULLS_LAST else 'first'}"
        for item in order.fields
    ]


def term_text(transform: str, column: str) -> str:
    """Return ``bucket(16, id)`` for the transform ``bucket[16]`` of the column ``id``."""
    kind, _, width = transform.rstrip("]").partition("[")
    if kind == "identity":
        return column
    return f"{kind}({width}, {column})" if width else f"{kind}({column})"


def refuse_unreadable(spec: PartitionSpec, schema: Schema) -> None:
    """Refuse a partitioning of a new table whose manifests Iceberg Java cannot read.

    Iceberg Java reads fixed values in manifests as if a length preceded them, which Avro does not write.

    Raises:
        RefusedError: a field is the identity transform of a fixed-length column.
    """
    for field in spec.fields:
        kind = schema.find_type(field.source_id)
        if isinstance(field.transform, IdentityTransform) and isinstance(kind, FixedType):
            name = schema.find_column_name(field.source_id)
            raise RefusedError(
                f"Iceberg Java cannot read a table that is partitioned by the values of {name} ({kind})",
                hint=f"Partition it by bucket(16, {name}), or make the column binary.",
            )


def sort_order(text: str | None, schema: Schema) -> SortOrder:
    """Parse ``a desc nulls last, bucket(16, b)`` for a schema (defaults: ascending, nulls first).

    Raises:
        InvalidRequestError: a term cannot be parsed, or its values have no order.
        NotFoundError: a column does not exist.
    """
    fields = [_sort_field(term, schema) for term in _terms(text or "")]
    return SortOrder(*fields) if fields else SortOrder(order_id=0)


def _sort_field(term: str, schema: Schema) -> SortField:
    found = _SORT.match(term)
    if not found or " " in found[1].partition("(")[0]:
        raise InvalidRequestError(f"not a sort term: {term!r}", hint="write it as: a desc, b")
    descending = (found[2] or "asc").lower() == "desc"
    nulls = (found[3] or ("last" if descending else "first")).lower()
    transform, column = _parse_term(found[1])
    source = _sortable(schema, column)
    if not _applies(transform, source.field_type):
        raise InvalidRequestError(
            f"cannot sort {column} ({type_text(source.field_type)}) by {transform}",
            hint=_possible(source.field_type, column),
        )
    return SortField(
        source_id=source.field_id,
        transform=transform,
        direction=SortDirection.DESC if descending else SortDirection.ASC,
        null_order=NullOrder.NULLS_LAST if nulls == "last" else NullOrder.NULLS_FIRST,
    )


def curve_columns(text: str, schema: Schema) -> tuple[int, ...]:
    """Parse ``a, b`` for a curve; return the columns' ids.

    Raises:
        InvalidRequestError: there is no column, a column is repeated, or its values have no order.
        NotFoundError: a column does not exist.
    """
    found = tuple(_sortable(schema, name).field_id for name in _terms(text))
    if not found or len(set(found)) < len(found):
        raise InvalidRequestError(f"not the columns of a curve: {text!r}", hint="write it as: a, b")
    return found


def _sortable(schema: Schema, name: str) -> Any:
    source = _column(schema, name)
    if not is_sortable(source.field_id, schema):
        raise InvalidRequestError(f"cannot sort by {name} ({type_text(source.field_type)})")
    return source


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
    digits = found[2] or found[4] or "0"
    # Iceberg's numbers have 32 bits; to read thousands of digits raises an error.
    number = int(digits) if len(digits) <= _MOST_DIGITS else _LARGEST + 1
    if number > _LARGEST:
        raise InvalidRequestError(
            f"the number in {term[:_SHOWN]!r} is too large", hint=f"the largest is {_LARGEST}"
        )
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
        raise unknown_column(name, [field.name for field in schema.fields]) from error
