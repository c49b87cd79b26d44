"""The files that a table references, now or in its earlier metadata files that still exist."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from lake.core.table.manifests.api import read_list_additions, read_manifests
from lake.core.table.metadata.files import find_metadata
from lake.core.transaction.garbage.manifest_files import HeldNames
from lake.core.transaction.garbage.name_set import NameSet

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

    from lake.core.io.storage.file_names import FileNames
    from lake.core.table.catalogs.catalog import Table


def referenced_names(
    table: Table, current: HeldNames, listed: NameSet, names: FileNames
) -> HeldNames:
    """Return the names of the files that the table or one of its earlier metadata files references.

    Args:
        table: the table.
        current: the names of the files that its snapshots reference.
        listed: the names of the files that exist.
        names: computes names.

    Raises:
        CorruptFileError: a metadata file, manifest list or manifest that exists cannot be read.
    """
    parts = [current]
    logs = pa.array(table.logged_files, pa.string())
    parts.append(HeldNames.of(names.of(logs)))
    seen = {item.snapshot_id for item in table.metadata.snapshots}
    for location in reversed(_existing(logs, listed, names).to_pylist()):
        if location != table.metadata_location:  # check: earlier-metadata
            earlier = find_metadata(table.storage, location)
            # A commit may delete the file after it was listed.
            if earlier is not None:
                parts += [
                    HeldNames.of(each) for each in _earlier(table, earlier, seen, listed, names)
                ]
    return HeldNames.joined(parts)


def _earlier(
    table: Table, metadata: TableMetadata, seen: set[int], listed: NameSet, names: FileNames
) -> list[pa.Array]:
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
    lists = _existing(pa.array([item.manifest_list for item in gone], pa.string()), listed, names)
    parts = [names.of(pa.array(statistics, pa.string())), names.of(lists)]
    for found in read_list_additions(table.storage, lists.to_pylist()):
        parts += _manifest_names(table, metadata, found.rows, listed, names)
    return parts


def _manifest_names(
    table: Table, metadata: TableMetadata, manifests: pa.Table, listed: NameSet, names: FileNames
) -> list[pa.Array]:
    own = names.of(manifests["manifest_path"])
    manifests = manifests.filter(listed.has(own))
    by_spec = read_manifests(
        table.storage, manifests, metadata, columns=("status", "file_path"), live_only=True
    )
    return [own, *(names.of(entries["file_path"]) for entries in by_spec.values())]


def _existing(paths: pa.Array, listed: NameSet, names: FileNames) -> pa.Array:
    return paths.filter(listed.has(names.of(paths))).unique()
