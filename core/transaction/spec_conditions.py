"""What a commit of equality deletes requires of partition specs: the deletes apply within their own spec only.

Source: https://iceberg.apache.org/spec/#scan-planning.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyiceberg.table.update import AssertDefaultSpecId, TableRequirement

from lake.core.base.errors import RefusedError
from lake.core.base.options import Option
from lake.core.table.manifests.api import read_manifest_list
from lake.core.table.snapshots.delete_scopes import is_global
from lake.core.transaction.commit.removed_files import specs_of_live

if TYPE_CHECKING:
    from pyiceberg.table.snapshots import Snapshot

    from lake.core.table.catalogs.catalog import Table


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
