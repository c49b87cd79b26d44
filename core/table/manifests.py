"""The columnar metadata layer: what the rest of lake uses of manifests and manifest lists.

A manifest is a table of `ENTRY_COLUMNS`, a manifest list one of `MANIFEST_COLUMNS`; both stay Arrow
tables from file to file.
"""

from __future__ import annotations

from lake.core.table.manifest_decode import decode_manifest_rows
from lake.core.table.manifest_entries import entries_of, files_of
from lake.core.table.manifest_read import (
    live_manifests,
    read_manifest,
    read_manifest_list,
    read_manifest_lists,
    read_manifests,
)
from lake.core.table.manifest_schemas import (
    ADDED,
    DELETED,
    ENTRY_COLUMNS,
    EXISTING,
    MANIFEST_COLUMNS,
    MANIFEST_SCHEMA,
)
from lake.core.table.manifest_write import (
    describe_manifest,
    encode_manifest,
    encode_manifest_list,
)

__all__ = [
    "ADDED",
    "DELETED",
    "ENTRY_COLUMNS",
    "EXISTING",
    "MANIFEST_COLUMNS",
    "MANIFEST_SCHEMA",
    "decode_manifest_rows",
    "describe_manifest",
    "encode_manifest",
    "encode_manifest_list",
    "entries_of",
    "files_of",
    "live_manifests",
    "read_manifest",
    "read_manifest_list",
    "read_manifest_lists",
    "read_manifests",
]
