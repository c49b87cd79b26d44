"""Warn when table metadata has grown so large that every commit and read becomes slow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lake.core.base.errors import LakeError
from lake.core.base.options import Option
from lake.core.base.units import format_size

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

    from lake.core.io.storage.storage import Storage

_HEAVY_BYTES = 5 * 1024 * 1024
# The maximum size of a snapshot and of a field, with usual summaries and names.
_SNAPSHOT_BYTES = 1024
_FIELD_BYTES = 64
# The assumed compression ratio of a compressed file.
_PACKED_TIMES = 8


def metadata_size_warning(
    identifier: str, metadata: TableMetadata, location: str, storage: Storage
) -> str | None:
    """Return a warning if a table's metadata file has 5 MB or more, else None."""
    if _estimated_bytes(metadata) < _HEAVY_BYTES:
        return None
    size = heavy_metadata_bytes(location, storage)
    if size is None:
        return None
    return (
        f"the metadata of {identifier} has {format_size(size)} (snapshots {len(metadata.snapshots):,}, "
        f"schemas {len(metadata.schemas):,}), and every commit writes all of it: expire snapshots more often "
        f"({Option.CLEAN_METADATA} removes schemas)"
    )


def heavy_metadata_bytes(location: str, storage: Storage) -> int | None:
    """Return the size of a metadata file if it has about 5 MB of text or more, else None."""
    try:
        size = storage.size(location)
    except LakeError:
        return None
    packed = ".gz" in location.rpartition("/")[2]
    return None if size < _HEAVY_BYTES // (_PACKED_TIMES if packed else 1) else size


def _estimated_bytes(metadata: TableMetadata) -> int:
    """Estimate an upper bound of the metadata size without reading the file."""
    fields = sum(len(schema.fields) for schema in metadata.schemas)
    return _SNAPSHOT_BYTES * len(metadata.snapshots) + _FIELD_BYTES * fields
