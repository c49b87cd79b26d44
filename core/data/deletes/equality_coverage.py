"""Whether equality deletes that are written without reading the table apply to every old row.

They apply only within their own partition spec and partition, unless the spec is unpartitioned. Source:
https://iceberg.apache.org/spec/#scan-planning.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyiceberg.transforms import VoidTransform

from lake.core.base.errors import RefusedError
from lake.core.base.options import Option

if TYPE_CHECKING:
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.schema import Schema


def check_columns(schema: Schema, key: Sequence[int], *, hint: str | None = None) -> None:
    """Refuse keys for which equality deletes cannot be written.

    Raises:
        RefusedError: a column is nested.
    """
    top = {field.field_id: field for field in schema.fields}
    for number in key:
        if number not in top or not top[number].field_type.is_primitive:
            name = schema.find_column_name(number) or f"with id {number}"
            raise RefusedError(
                f"equality deletes by the nested column {name} are not supported",
                hint=hint,
            )


def check_partitions(schema: Schema, spec: PartitionSpec, key: Sequence[int], *, hint: str) -> None:
    """Refuse keys whose rows may change their partition.

    Raises:
        RefusedError: the key lacks a source column of the partition spec.
    """
    for field in spec.fields:
        if field.source_id not in key and not isinstance(field.transform, VoidTransform):
            source = schema.find_column_name(field.source_id)
            raise RefusedError(
                f"the source column {source} of the partition field {field.name} is not in the key: an equality "
                "delete applies only to its own partition, so an old row in another partition would remain",
                hint=f"add the column to {Option.KEY}, or use {hint}",
            )
