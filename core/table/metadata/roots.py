"""The roots of a table: the folders whose files belong to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lake.core.spec.properties.table_properties import DATA_PATH, METADATA_PATH

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata


def roots_of(metadata: TableMetadata) -> list[str]:
    """Return the locations whose files belong to this table alone."""
    chosen = (setting.of(metadata.properties) for setting in (DATA_PATH, METADATA_PATH))
    return [metadata.location, *(location for location in chosen if location)]
