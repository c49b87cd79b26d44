"""The API of manifests and manifest lists for the rest of lake.

A manifest is a table of `ENTRY_COLUMNS`, a manifest list is one of `MANIFEST_COLUMNS`; both remain Arrow
tables from reading to writing.
"""

from __future__ import annotations

from lake.core.table.manifests.decode import decode_manifest_rows
from lake.core.table.manifests.encode import (
    ManifestContext,
    ManifestListHeader,
    describe_manifest,
    encode_entries,
    encode_manifest,
    encode_manifest_list,
    pack_manifest,
)
from lake.core.table.manifests.entries import entries_of, files_of
from lake.core.table.manifests.read import (
    ListAdditions,
    joined_entries,
    live_manifests,
    read_list_additions,
    read_manifest,
    read_manifest_list,
    read_manifests,
    weight_of,
)
from lake.core.table.manifests.schemas import (
    ADDED,
    DELETED,
    ENTRY_COLUMNS,
    EXISTING,
    MANIFEST_COLUMNS,
    MANIFEST_SCHEMA,
)

__all__ = [
    "ADDED",
    "DELETED",
    "ENTRY_COLUMNS",
    "EXISTING",
    "MANIFEST_COLUMNS",
    "MANIFEST_SCHEMA",
    "ListAdditions",
    "ManifestContext",
    "ManifestListHeader",
    "decode_manifest_rows",
    "describe_manifest",
    "encode_entries",
    "encode_manifest",
    "encode_manifest_list",
    "entries_of",
    "files_of",
    "joined_entries",
    "live_manifests",
    "pack_manifest",
    "read_list_additions",
    "read_manifest",
    "read_manifest_list",
    "read_manifests",
    "weight_of",
]
