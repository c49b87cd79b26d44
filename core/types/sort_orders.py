"""A table's sort orders: whether lake can sort by one, and which one some fields are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import UnknownTransform, VoidTransform

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.table.metadata import TableMetadata

SortFields = tuple[SortField, ...]


def table_order(metadata: TableMetadata, schema: Schema) -> SortFields | None:
    """Return the fields of a table's sort order, none for an unsorted one; None if lake cannot sort by it."""
    order = metadata.sort_order()
    return order_fields(order, schema)


def order_fields(order: SortOrder, schema: Schema) -> SortFields | None:
    """Return an order's fields; None if a column is gone, or a transform is not known."""
    fields = tuple(order.fields)
    known = all(
        not isinstance(field.transform, UnknownTransform) and is_sortable(field.source_id, schema)
        for field in fields
    )
    return fields if known else None


def is_sortable(column: int, schema: Schema) -> bool:
    """Whether a schema has a column and each row one plain value of it."""
    try:
        # What lies inside a list or a map has no accessor.
        schema.accessor_for_field(column)
    except ValueError:
        return False
    return schema.find_type(column).is_primitive


def partition_fields(spec: PartitionSpec) -> SortFields:
    """Return the order in which each partition's rows lie together."""
    return tuple(
        SortField(
            source_id=field.source_id,
            transform=field.transform,
            direction=SortDirection.ASC,
            null_order=NullOrder.NULLS_FIRST,
        )
        for field in spec.fields
        if not isinstance(field.transform, VoidTransform)
    )


def order_id_of(metadata: TableMetadata, fields: Sequence[SortField]) -> int | None:
    """Return the id of the table's sort order that has just these fields, the current one first."""
    orders = [metadata.sort_order(), *metadata.sort_orders]
    same = (order.order_id for order in orders if fields and tuple(order.fields) == tuple(fields))
    return next(same, None)
