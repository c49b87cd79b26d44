"""Generate unique names of a table's new files, also for several attempts at one task."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import mmh3

from lake.core.base import locations
from lake.core.base.errors import RefusedError
from lake.core.spec.properties.table_properties import DATA_PATH, OBJECT_STORAGE, PARTITIONED_PATHS
from lake.core.spec.types.partition_paths import partition_path
from lake.core.spec.types.transforms import Partition

if TYPE_CHECKING:
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.schema import Schema

# Properties of old tables for the location of files, which Iceberg no longer supports.
_OUTDATED = ("write.object-storage.path", "write.folder-storage.path")
_HASH_BITS = 20
_HASH_PARTS = (slice(0, 4), slice(4, 8), slice(8, 12), slice(12, _HASH_BITS))


class FileNames:
    """Generates the names of the files that one attempt at a task writes.

    Source: Iceberg's OutputFileFactory and LocationProviders.
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
        """Set the parts of the names.

        Args:
            location: the table's location.
            data_location: the folder of its data files.
            properties: the table's properties that begin with ``write.``.
            operation_id: the commit's UUID.
            task: the number of the task.
            attempt: a text that is unique to this attempt at the task.
        """
        self._folder = data_location.rstrip("/")
        self._spread = OBJECT_STORAGE.of(properties)
        self._by_partition = not self._spread or PARTITIONED_PATHS.of(properties)
        self._owner = owner_of(self._folder, location.rstrip("/")) if self._spread else ""
        self._stem = f"{task:05d}-{attempt}-{operation_id}"
        self._count = 0

    def new_path(self, ending: str, folder: str = "") -> str:
        """Return the path of a new file with the given suffix in a partition's folder."""
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
    """Refuse a table whose properties define the location of files in an unsupported way.

    Raises:
        RefusedError: it has such a property.
    """
    considered = _OUTDATED if OBJECT_STORAGE.of(properties) else _OUTDATED[1:]
    found = [key for key in considered if key in properties]
    if found and not DATA_PATH.is_set(properties):
        raise RefusedError(
            f"the table's property {found[0]} sets the location of its files, which Iceberg no longer supports",
            hint="set write.data.path to this location instead",
        )


def hashed(name: str) -> str:
    """Return the hashed folders of a name, e.g. ``1000/1100/0011/10101111``."""
    bits = f"{mmh3.hash(name, signed=False):032b}"[-_HASH_BITS:]
    return "/".join(bits[part] for part in _HASH_PARTS)


def folder_of(spec: PartitionSpec, schema: Schema, partition: Partition) -> str:
    """Return the folder of a partition's files; empty for a table without partitions."""
    return partition_path(spec, schema, partition) if partition else ""


def owner_of(folder: str, location: str) -> str:
    """Return the last two parts of a table's location, which identify its files in a shared folder."""
    if folder.startswith(location):
        return ""
    names = [name for name in locations.parse(location).path.split("/") if name]
    return "/".join(names[-2:])
