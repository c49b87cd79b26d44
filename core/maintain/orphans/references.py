"""The files that a table references, now or in its earlier metadata files that still exist."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from lake.core.table.manifests.api import read_list_additions
from lake.core.table.metadata.files import find_metadata
from lake.core.transaction.garbage.manifest_files import HeldNames, ManifestFiles
from lake.core.transaction.garbage.name_set import NameSet

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

    from lake.core.io.storage.file_names import FileNames
    from lake.core.table.catalogs.catalog import Table


def referenced_names(
    table: Table, current: HeldNames, listed: NameSet, manifests: ManifestFiles
) -> HeldNames:
    """Return the names of the files that the table or one of its earlier metadata files references.

    Raises:
        CorruptFileError: a metadata file, manifest list or manifest that exists cannot be read.
    """
    names, parts = manifests.names, [current]
    logs = pa.array(table.logged_files, pa.string())
    parts.append(HeldNames.of(names.of(logs)))
    seen = {item.snapshot_id for item in table.metadata.snapshots}
    for location in reversed(_existing(logs, listed, names).to_pylist()):
        if location != table.metadata_location:  # check: earlier-metadata
            earlier = find_metadata(table.storage, location)
            # A commit may delete the file after it was listed.
            if earlier is not None:
                parts += _earlier(table, earlier, seen, listed, manifests)
    return HeldNames.joined(parts)


def _earlier(
    table: Table,
    metadata: TableMetadata,
    seen: set[int],
    listed: NameSet,
    manifests: ManifestFiles,
) -> list[HeldNames]:
    """Return the names that an earlier metadata file's snapshots reference, and add these snapshots to ``seen``.

    Expiry deletes files of such snapshots, so what does not exist is left out.
    """
    gone = [item for item in metadata.snapshots if item.snapshot_id not in seen]
    ids = {item.snapshot_id for item in gone}
    seen |= ids
    statistics = [
        item.statistics_path
        for item in (*metadata.statistics, *metadata.partition_statistics)
        if item.snapshot_id in ids
    ]
    names = manifests.names
    lists = _existing(pa.array([item.manifest_list for item in gone], pa.string()), listed, names)
    parts = [HeldNames.of(names.of(pa.array(statistics, pa.string())), names.of(lists))]
    for found in read_list_additions(table.storage, lists.to_pylist()):
        own = names.of(found.rows["manifest_path"])
        rows = found.rows.filter(listed.has(own))
        parts += [HeldNames.of(own), manifests.held(metadata, rows)]
    return parts


def _existing(paths: pa.Array, listed: NameSet, names: FileNames) -> pa.Array:
    return paths.filter(listed.has(names.of(paths))).unique()
