"""Where a table may lie: the folders whose files are its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata


def roots_of(metadata: TableMetadata) -> list[str]:
    """Return the locations whose files belong to a table alone."""
    chosen = (metadata.properties.get(key) for key in ("write.data.path", "write.metadata.path"))
    return [metadata.location, *(place for place in chosen if place)]
