"""A table's sort orders: whether lake can sort by one, and which one has given fields."""

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
    """Return the fields of a table's sort order (empty if it is unsorted); None if lake cannot sort by it."""
    order = metadata.sort_order()
    return order_fields(order, schema)


def order_fields(order: SortOrder, schema: Schema) -> SortFields | None:
    """Return an order's fields; None if a column was dropped or a transform is not known."""
    fields = tuple(order.fields)
    known = all(
        not isinstance(field.transform, UnknownTransform) and is_sortable(field.source_id, schema)
        for field in fields
    )
    return fields if known else None


def is_sortable(column: int, schema: Schema) -> bool:
    """Whether the column exists and has one primitive value per row."""
    try:
        # Fields inside a list or a map do not have an accessor.
        schema.accessor_for_field(column)
    except ValueError:
        return False
    return schema.find_type(column).is_primitive


def partition_fields(spec: PartitionSpec) -> SortFields:
    """Return the order that groups the rows of each partition."""
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
    """Return the id of the table's sort order with exactly these fields; the current order is preferred."""
    orders = [metadata.sort_order(), *metadata.sort_orders]
    # check: sort-order-of-files
    same = (order.order_id for order in orders if fields and tuple(order.fields) == tuple(fields))
    return next(same, None)
