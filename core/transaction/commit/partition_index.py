"""Find the data manifests that contain live files of given partitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from lake.core.table.manifests.api import read_manifest
from lake.core.transaction.commit.conflicts import Partition, partitions_of
from lake.core.transaction.commit.removed_files import manifests_of

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

    from lake.core.io.storage.storage import Storage
    from lake.core.table.manifests.decode import Manifest


class LivePartitions:
    """Finds the manifests of partitions; each manifest is read once for all steps of a commit.

    Args:
        storage: the storage that contains the manifests.
        written_entries: entries, with ``spec_id``, of manifests that this commit wrote, as far as they are in memory.
    """

    def __init__(self, storage: Storage, written_entries: Mapping[str, pa.Table]) -> None:
        self._storage = storage
        self._written_entries = written_entries
        self._read: dict[str, frozenset[Partition]] = {}

    def holders(
        self,
        metadata: TableMetadata,
        current: Sequence[Manifest],
        wanted: frozenset[Partition] | None,
    ) -> list[Manifest]:
        """Return the data manifests in a list with live files in the given partitions; None means all partitions."""
        return [
            manifest
            for manifest in manifests_of(current, data=True)
            if (live := self._of(metadata, manifest)) and (wanted is None or live & wanted)
        ]

    def _of(self, metadata: TableMetadata, manifest: Manifest) -> frozenset[Partition]:
        path = manifest["manifest_path"]
        if path not in self._read:
            entries = self._written_entries.get(path)
            if entries is None:
                entries = read_manifest(
                    self._storage, manifest, metadata, columns=["partition"], live_only=True
                )
            self._read[path] = frozenset(partitions_of(entries))
        return self._read[path]
