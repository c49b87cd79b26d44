"""Names of a table's new files, which never repeat, not even between two attempts at one task."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from lake.core import paths
from lake.core.rows.partitioning import Partition, partition_path

if TYPE_CHECKING:
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.schema import Schema


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
        from pyiceberg.table.locations import load_location_provider  # noqa: PLC0415

        self._data_location = data_location
        self._hashed = properties.get("write.object-storage.enabled", "false").lower() == "true"
        self._provider = load_location_provider(
            location, {**properties, "write.data.path": data_location}
        )
        self._stem = f"{task:05d}-{attempt}-{operation_id}"
        self._count = 0

    def new_path(self, ending: str, folder: str = "") -> str:
        """Return the path of a file whose name ends so, in a partition's folder."""
        self._count += 1
        name = f"{self._stem}-{self._count:05d}{ending}"
        if not folder:
            return str(self._provider.new_data_location(name))
        if self._hashed:
            return str(self._provider.new_data_location(f"{folder}/{name}"))
        return paths.join(self._data_location, folder, name)


def folder_of(spec: PartitionSpec, schema: Schema, partition: Partition) -> str:
    """Return the folder of a partition's files; empty for a table without partitions."""
    return partition_path(spec, schema, partition) if partition else ""
