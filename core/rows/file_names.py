"""Names of a table's new files, which never repeat, not even between two attempts at one task."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import mmh3

from lake.core import locations
from lake.core.errors import RefusedError
from lake.core.properties.table_properties import DATA_PATH, OBJECT_STORAGE, PARTITIONED_PATHS
from lake.core.types.partition_paths import partition_path
from lake.core.types.transforms import Partition

if TYPE_CHECKING:
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.schema import Schema

# Where older writers put files; Iceberg writes no more to tables that have only these.
_OUTDATED = ("write.object-storage.path", "write.folder-storage.path")
_HASH_BITS = 20
_HASH_PARTS = (slice(0, 4), slice(4, 8), slice(8, 12), slice(12, _HASH_BITS))


class FileNames:
    """Gives the names of all files that one attempt at a task writes.

    Source of their form: Iceberg's OutputFileFactory and LocationProviders.
    """

    def __init__(
        self,
        *,
        location: str,
        data_location: str,
        properties: Mapping[str, str],
        operation_id: str,
        task: int,
        attempt: str,
    ) -> None:
        """Take what makes names unique.

        Args:
            location: the table's.
            data_location: where its data files go.
            properties: the table's that begin with ``write.``.
            operation_id: the commit's UUID.
            task: its number.
            attempt: a text that no other attempt at the task has.
        """
        self._folder = data_location.rstrip("/")
        self._spread = OBJECT_STORAGE.of(properties)
        self._by_partition = not self._spread or PARTITIONED_PATHS.of(properties)
        self._owner = _owner(self._folder, location.rstrip("/")) if self._spread else ""
        self._stem = f"{task:05d}-{attempt}-{operation_id}"
        self._count = 0

    def new_path(self, ending: str, folder: str = "") -> str:
        """Return the path of a file whose name ends so, in a partition's folder."""
        self._count += 1
        name = f"{self._stem}-{self._count:05d}{ending}"
        if folder and self._by_partition:
            name = f"{folder}/{name}"
        return locations.join(self._folder, self._spread_over(name) if self._spread else name)

    def _spread_over(self, name: str) -> str:
        if self._owner:
            return f"{hashed(name)}/{self._owner}/{name}"
        return f"{hashed(name)}/{name}" if self._by_partition else f"{hashed(name)}-{name}"


def refuse_outdated(properties: Mapping[str, str]) -> None:
    """Refuse to choose where files go for a table that says so in a way that is no longer understood.

    Raises:
        RefusedError: it does.
    """
    considered = _OUTDATED if OBJECT_STORAGE.of(properties) else _OUTDATED[1:]
    found = [key for key in considered if key in properties]
    if found and not DATA_PATH.is_set(properties):
        raise RefusedError(
            f"the table says by {found[0]} where its files go, which Iceberg does not take any more",
            hint="set its property write.data.path to that place",
        )


def hashed(name: str) -> str:
    """Return the folders that a name is spread over, e.g. ``1000/1100/0011/10101111``."""
    bits = f"{mmh3.hash(name, signed=False):032b}"[-_HASH_BITS:]
    return "/".join(bits[part] for part in _HASH_PARTS)


def folder_of(spec: PartitionSpec, schema: Schema, partition: Partition) -> str:
    """Return the folder of a partition's files; empty for a table without partitions."""
    return partition_path(spec, schema, partition) if partition else ""


def _owner(folder: str, location: str) -> str:
    """Return what tells a table's files in a folder outside of it: its own last two names."""
    if folder.startswith(location):
        return ""
    names = [name for name in locations.parse(location).path.split("/") if name]
    return "/".join(names[-2:])
