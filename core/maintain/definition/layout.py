"""Evolution of a table's partition spec and sort order."""

from __future__ import annotations

from collections.abc import Sequence

from pyiceberg.partitioning import PARTITION_FIELD_ID_START, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.sorting import SortOrder
from pyiceberg.transforms import VoidTransform

from lake.core.spec.types import transform_syntax


def evolved_spec(metadata: TableMetadata, schema: Schema, text: str) -> PartitionSpec:
    """Return the partition spec that a text describes, with an id of the table or the next one.

    A field that an earlier spec has keeps its id and name. In format version 1 the fields of the current spec keep
    their places, and those that are removed get the transform void, because readers identify them by their place.
    Source: https://iceberg.apache.org/spec/#partition-evolution and org.apache.iceberg.BaseUpdatePartitionSpec.

    Raises:
        InvalidRequestError: a term is not valid, or two fields would have one name.
        NotFoundError: a column does not exist.
        RefusedError: other engines could not read the table.
    """
    wanted = transform_syntax.partition_spec(text, schema)
    transform_syntax.refuse_unreadable(wanted, schema)
    last_id = metadata.last_partition_id or PARTITION_FIELD_ID_START - 1
    if metadata.format_version == 1:
        fields = _with_voids(metadata.spec().fields, wanted.fields, last_id)
    else:
        fields = _with_known_ids(metadata, wanted.fields, last_id)
    transform_syntax.check_partition_names(fields, schema)
    for spec in (metadata.spec(), *metadata.partition_specs):
        if spec.fields == fields:
            return spec
    next_id = max(spec.spec_id for spec in metadata.partition_specs) + 1
    return PartitionSpec(*fields, spec_id=next_id)


def _with_known_ids(
    metadata: TableMetadata, wanted: Sequence[PartitionField], last_id: int
) -> tuple[PartitionField, ...]:
    specs = (metadata.spec(), *reversed(metadata.partition_specs))
    known = [item for spec in specs for item in spec.fields]
    fields = []
    for item in wanted:
        found = next((one for one in known if _is_same(one, item)), None)
        if found is None:
            last_id += 1
            found = item.model_copy(update={"field_id": last_id})
        fields.append(found)
    return tuple(fields)


def _with_voids(
    current: Sequence[PartitionField], wanted: Sequence[PartitionField], last_id: int
) -> tuple[PartitionField, ...]:
    new = [item for item in wanted if not any(_is_same(one, item) for one in current)]
    names = {item.name for item in new}
    fields = []
    for item in current:
        if any(_is_same(item, one) for one in wanted):
            fields.append(item)
            continue
        name = f"{item.name}_{item.field_id}" if item.name in names else item.name
        fields.append(item.model_copy(update={"transform": VoidTransform(), "name": name}))
    for item in new:
        last_id += 1
        fields.append(item.model_copy(update={"field_id": last_id}))
    return tuple(fields)


def _is_same(one: PartitionField, other: PartitionField) -> bool:
    return one.source_id == other.source_id and one.transform == other.transform


def evolved_order(metadata: TableMetadata, schema: Schema, text: str) -> SortOrder:
    """Return the sort order that a text describes, with an id of the table or the next one; 0 if it is unsorted.

    Raises:
        InvalidRequestError: a term is not valid.
        NotFoundError: a column does not exist.
    """
    wanted = transform_syntax.sort_order(text, schema)
    if not wanted.fields:
        return SortOrder(order_id=0)
    for order in (metadata.sort_order(), *metadata.sort_orders):
        if order.fields == wanted.fields:
            return order
    next_id = max((order.order_id for order in metadata.sort_orders), default=0) + 1
    return SortOrder(*wanted.fields, order_id=next_id)
