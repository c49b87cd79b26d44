"""Metadata files that grow until nobody can load them: every commit writes them anew, and every reader reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lake.core.errors import LakeError
from lake.core.units import format_size

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

    from lake.core.catalogs.catalog import Table

_HEAVY_BYTES = 5 * 1024 * 1024
# What one takes at most, for usual summaries and names.
_SNAPSHOT_BYTES = 1024
_FIELD_BYTES = 64
# How many times its length a packed file holds.
_PACKED_TIMES = 8


def metadata_size_warning(table: Table) -> str | None:
    """Return what to tell of a table whose metadata file has 5 MB or more, else None."""
    metadata = table.metadata
    if _most(metadata) < _HEAVY_BYTES:
        return None
    location = table.metadata_location
    try:
        size = table.storage.size(location)
    except LakeError:
        return None
    if size < _HEAVY_BYTES // (_PACKED_TIMES if ".gz" in location.rpartition("/")[2] else 1):
        return None
    return (
        f"the metadata of {table.identifier} has {format_size(size)} (snapshots {len(metadata.snapshots):,}, "
        f"schemas {len(metadata.schemas):,}): every commit writes it anew, so expire more often "
        "(--clean-metadata for schemas)"
    )


def _most(metadata: TableMetadata) -> int:
    """Return about how long it is at most, without a look at the file."""
    fields = sum(len(schema.fields) for schema in metadata.schemas)
    return _SNAPSHOT_BYTES * len(metadata.snapshots) + _FIELD_BYTES * fields
