"""The roots of a table: the folders whose files belong to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lake.core.base.errors import StorageError
from lake.core.spec.properties.table_properties import DATA_PATH, METADATA_PATH

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata


def roots_of(metadata: TableMetadata) -> list[str]:
    """Return the locations whose files belong to this table alone."""
    chosen = (setting.of(metadata.properties) for setting in (DATA_PATH, METADATA_PATH))
    return [metadata.location, *(location for location in chosen if location)]


def unlisted(folder: str, location: str) -> StorageError:
    """Return the error for a storage, or a proxy in front of it, that lists nothing in a folder with a file."""
    return StorageError(
        f"the storage lists nothing in {folder}, which contains {location}",
        hint="run the command again when the storage lists the files of this folder",
    )
