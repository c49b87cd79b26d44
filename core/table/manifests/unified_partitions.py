"""The partitions of manifest entries of several specs, as values of one type. Source: Iceberg's Partitioning."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from pyiceberg.transforms import VoidTransform
from pyiceberg.types import NestedField, StructType

from lake.core.base.arrow import one_array
from lake.core.spec.types.single_values import (
    partition_struct,
    partition_type,
    searched_schemas,
    struct_array,
)

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata


def unified_partition_type(metadata: TableMetadata) -> StructType:
    """Return the fields of all partition specs by id, named as in the newest spec that has them.

    Fields whose source column was dropped are left out. Source: Iceberg's Partitioning.partitionType.
    """
    schema, schemas = metadata.schema(), searched_schemas(metadata)
    active = {
        field.field_id
        for spec in metadata.specs().values()
        for field in spec.fields
        if schema.find_column_name(field.source_id) is not None
    }
    found: dict[int, NestedField] = {}
    void: set[int] = set()
    for _, spec in sorted(metadata.specs().items(), reverse=True):
        kinds = partition_type(spec, schemas).fields
        for field, kind in zip(spec.fields, kinds, strict=True):
            earlier = found.get(field.field_id)
            if field.field_id not in active:
                continue
            if earlier is None:
                found[field.field_id] = kind
                if isinstance(field.transform, VoidTransform):
                    void.add(field.field_id)
            elif field.field_id in void and not isinstance(field.transform, VoidTransform):
                void.remove(field.field_id)
                found[field.field_id] = NestedField(
                    field.field_id, earlier.name, kind.field_type, required=False
                )
    return StructType(*(found[number] for number in sorted(found)))


def unified_partitions(partitions: pa.ChunkedArray, unified: StructType) -> pa.StructArray:
    """Return the partitions of entries of one spec as structs of the fields of all specs.

    Args:
        partitions: the partitions; children are named by field id.
        unified: the type of the result, from `unified_partition_type`.

    Returns:
        structs whose children are named by field id; a field that the spec does not have is NULL.
    """
    column, kind = one_array(partitions), partition_struct(unified)
    children = []
    for item in kind:
        place = column.type.get_field_index(item.name)
        found = pa.nulls(len(column)) if place < 0 else column.field(place)
        children.append(found if found.type == item.type else found.cast(item.type))
    return struct_array(children, kind, len(column))
