"""In which data manifests a partition's live files lie."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from lake.core.commit.conflicts import Partition, places
from lake.core.commit.removed_files import manifests_of
from lake.core.manifests.api import read_manifest

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

    from lake.core.manifests.decode import Manifest
    from lake.core.storage.storage import Storage


class LivePartitions:
    """Finds the manifests of partitions; each is read once for all steps of a commit.

    Args:
        storage: where manifests lie.
        fresh: entries, with ``spec_id``, of manifests that the commit wrote, as far as they are at hand.
    """

    def __init__(self, storage: Storage, fresh: Mapping[str, pa.Table]) -> None:
        self._storage = storage
        self._fresh = fresh
        self._read: dict[str, frozenset[Partition]] = {}

    def holders(
        self,
        metadata: TableMetadata,
        current: Sequence[Manifest],
        wanted: frozenset[Partition] | None,
    ) -> list[Manifest]:
        """Return the data manifests of a list with live files in the partitions; None means in any."""
        return [
            manifest
            for manifest in manifests_of(current, data=True)
            if (found := self._of(metadata, manifest)) and (wanted is None or found & wanted)
        ]

    def _of(self, metadata: TableMetadata, manifest: Manifest) -> frozenset[Partition]:
        path = manifest["manifest_path"]
        if path not in self._read:
            entries = self._fresh.get(path)
            if entries is None:
                entries = read_manifest(
                    self._storage, manifest, metadata, columns=["partition"], live_only=True
                )
            self._read[path] = frozenset(places(entries))
        return self._read[path]
