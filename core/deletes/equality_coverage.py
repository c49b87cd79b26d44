"""Whether equality deletes that are written without reading the table apply to every old row.

They apply only within their own partition spec and partition, unless the spec is unpartitioned. Source:
https://iceberg.apache.org/spec/#scan-planning.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyiceberg.table.update import AssertDefaultSpecId, TableRequirement
from pyiceberg.transforms import VoidTransform

from lake.core.commit.removed_files import specs_of_live
from lake.core.errors import RefusedError
from lake.core.manifests.api import read_manifest_list
from lake.core.options import Option
from lake.core.snapshots.delete_scopes import is_global

if TYPE_CHECKING:
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.table.snapshots import Snapshot

    from lake.core.catalogs.catalog import Table


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


def check_specs(table: Table, snapshot: Snapshot) -> None:
    """Refuse tables with files to which deletes of the current partition spec do not apply.

    Raises:
        RefusedError: there are files with another spec.
    """
    if is_global(table.spec):
        return
    listed = read_manifest_list(table.storage, snapshot.manifest_list)
    numbers = specs_of_live(
        table.storage, table.metadata, listed.to_pylist(), except_spec=table.spec.spec_id
    )
    if numbers:
        raise RefusedError(
            f"{table.identifier} has files with other partition specs ({', '.join(map(str, sorted(numbers)))}); "
            "equality deletes of the current spec do not apply to them",
            hint=f"use {Option.DELETES} position",
        )


def sole_spec(table: Table, spec_id: int | None = None) -> int | None:
    """Return the spec that all data files must have when such deletes are committed; None for any spec.

    Args:
        table: the table.
        spec_id: the spec with which the deletes were written; None for the table's current one.
    """
    if table.creating:
        return None
    spec = table.spec if spec_id is None else table.metadata.specs()[spec_id]
    return None if is_global(spec) else spec.spec_id


def same_spec(table: Table, spec_id: int | None = None) -> tuple[TableRequirement, ...]:
    """Return the requirement of a commit of such deletes: new rows still use the spec of the deletes."""
    if table.creating:
        return ()
    wanted = table.spec.spec_id if spec_id is None else spec_id
    return (AssertDefaultSpecId(default_spec_id=wanted),)
