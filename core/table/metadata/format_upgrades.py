"""Upgrades of tables to format version 3, and encrypted tables.

PyIceberg 0.12 does not upgrade tables to version 3 (apache/iceberg-python#3622).
"""

from __future__ import annotations

from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil
from pyiceberg.table.update import (
    TableUpdate,
    UpgradeFormatVersionUpdate,
    _apply_table_update,
    _TableMetadataUpdateContext,
)

from lake.core.base.errors import RefusedError
from lake.core.spec.properties.table_properties import ENCRYPTION_KEY_ID


class UpgradeToVersion3(UpgradeFormatVersionUpdate):
    """``upgrade-format-version`` to 3; row ids start at 0."""


@_apply_table_update.register(UpgradeToVersion3)
def _upgrade(
    update: UpgradeToVersion3, base_metadata: TableMetadata, context: _TableMetadataUpdateContext
) -> TableMetadata:
    context.add_update(update)
    upgraded = base_metadata.model_copy(update={"format_version": 3, "next_row_id": 0})
    return TableMetadataUtil._construct_without_validation(upgraded)  # noqa: SLF001


def with_version_3_upgrade(update: TableUpdate) -> TableUpdate:
    """Return an update, or lake's replacement if PyIceberg does not implement it."""
    if isinstance(update, UpgradeFormatVersionUpdate) and update.format_version == 3:  # noqa: PLR2004
        return UpgradeToVersion3(format_version=3)
    return update


def refuse_encrypted(metadata: TableMetadata, name: str) -> None:
    """Refuse to change an encrypted table: its keys would be lost.

    Raises:
        RefusedError: the table is encrypted.
    """
    if ENCRYPTION_KEY_ID in metadata.properties:
        raise RefusedError(f"{name} is encrypted, which lake does not write")
