"""Whether equality deletes that are written without a look at the table reach every old row.

They act in their own partition spec and partition only, unless the spec has no partitions. Source:
https://iceberg.apache.org/spec/#scan-planning.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyiceberg.transforms import VoidTransform

from lake.core.commit.removed_files import specs_of_live
from lake.core.errors import RefusedError
from lake.core.manifests.api import read_manifest_list
from lake.core.snapshots.delete_scopes import is_global

if TYPE_CHECKING:
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.table.snapshots import Snapshot
    from pyiceberg.table.update import TableRequirement

    from lake.core.catalogs.catalog import Table


def check_columns(schema: Schema, key: Sequence[int], *, hint: str | None = None) -> None:
    """Refuse keys that equality deletes cannot be written by.

    Raises:
        RefusedError: a column is nested.
    """
    top = {field.field_id: field for field in schema.fields}
    for number in key:
        if number not in top or not top[number].field_type.is_primitive:
            name = schema.find_column_name(number) or f"with id {number}"
            raise RefusedError(
                f"equality deletes by column {name}, which is nested, are not written yet",
                hint=hint,
            )


def check_partitions(schema: Schema, spec: PartitionSpec, key: Sequence[int], *, hint: str) -> None:
    """Refuse keys whose rows may change their partition.

    Raises:
        RefusedError: the key lacks a column that partitions derive from.
    """
    for field in spec.fields:
        if field.source_id not in key and not isinstance(field.transform, VoidTransform):
            source = schema.find_column_name(field.source_id)
            raise RefusedError(
                f"the source column {source} of the partition field {field.name} is not in the key: an old "
                "row is deleted in its new row's partition only, so one in another partition would stay",
                hint=f"add the column to --key, or use {hint}",
            )


def check_specs(table: Table, snapshot: Snapshot) -> None:
    """Refuse tables with files that deletes of the current partition spec do not reach.

    Raises:
        RefusedError: there are files of another spec.
    """
    if is_global(table.spec):
        return
    listed = read_manifest_list(table.storage, snapshot.manifest_list)
    numbers = specs_of_live(
        table.storage, table.metadata, listed.to_pylist(), but=table.spec.spec_id
    )
    if numbers:
        raise RefusedError(
            f"{table.identifier} has files of other partition specs ({', '.join(map(str, sorted(numbers)))}), "
            "whose rows equality deletes of the current one do not reach",
            hint="use --deletes position",
        )


def sole_spec(table: Table, spec_id: int | None = None) -> int | None:
    """Return the spec that all data files must have when such deletes are committed; None for any.

    Args:
        table: the table.
        spec_id: what the deletes were written with; None for the table's own.
    """
    if table.creating:
        return None
    spec = table.spec if spec_id is None else table.metadata.specs()[spec_id]
    return None if is_global(spec) else spec.spec_id


def same_spec(table: Table, spec_id: int | None = None) -> tuple[TableRequirement, ...]:
    """Return what a commit of such deletes requires: that new rows still get the spec they were written for."""
    if table.creating:
        return ()
    from pyiceberg.table.update import AssertDefaultSpecId  # noqa: PLC0415

    wanted = table.spec.spec_id if spec_id is None else spec_id
    return (AssertDefaultSpecId(default_spec_id=wanted),)
