"""The places and names that Iceberg's writers give to the files of a table.

A file that no snapshot references belongs to a table only if its place and its name show it: a folder that a table's
location or properties name may also contain files of others.

Sources: Iceberg's OutputFileFactory, LocationProviders, SnapshotProducer, BaseMetastoreTableOperations,
HadoopTableOperations, ComputeTableStatsSparkAction and PartitionStatsHandler; PyIceberg's WriteTask.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from enum import Enum, auto
from functools import cached_property
from typing import TYPE_CHECKING

from lake.core.base import locations
from lake.core.base.clock import UUID_FORM
from lake.core.data.rows.file_names import hashed, owner_of
from lake.core.spec.types.partition_paths import quoted
from lake.core.table.flink.manifest_names import parse_name
from lake.core.table.metadata.files import is_metadata_name

if TYPE_CHECKING:
    from lake.core.table.catalogs.catalog import Table

_UUID = rf"(?i:{UUID_FORM})"
# A partition id, a task id, the id of the operation, and the number of the file, which PyIceberg leaves out.
_DATA = re.compile(
    rf"[0-9]{{5,}}-[^/]*{_UUID}[^/]*?(?:-[0-9]{{5,}})?(?:-deletes|-eq-deletes|-pos-deletes)?"
    r"\.(?:parquet|orc|avro|puffin)"
)
_METADATA = re.compile(
    rf"snap-[0-9]+-[0-9]+-{_UUID}\.avro"
    rf"|(?:optimized-m-)?{_UUID}(?:-m[0-9]+)?\.avro"
    rf"|[^/]*{_UUID}\.(?:stats|puffin)"
    rf"|partition-stats-[0-9]+-{_UUID}\.(?:parquet|orc|avro)"
    rf"|[0-9]+-{_UUID}(?:\.gz)?\.metadata\.json(?:\.gz)?"
    r"|v[0-9]+(?:\.gz)?\.metadata\.json(?:\.gz)?"
)
# What the formats of Iceberg's files are called in the folders that belong to the table by Iceberg's own layout.
_DATA_ENDINGS = (".parquet", ".orc", ".avro", ".puffin")
_METADATA_ENDINGS = (*_DATA_ENDINGS, ".stats")
_HASH = re.compile(r"([01]{4}/[01]{4}/[01]{4}/[01]{8})([/-])(.+)", re.DOTALL)


class Place(Enum):
    """What the location of a file shows."""

    OWN = auto()
    # In a folder in which this table has no files.
    OTHER_FOLDER = auto()
    # With a name that Iceberg's writers do not make.
    OTHER_NAME = auto()


class TableLayout:
    """Decides whether the place and the name of a file are those of a table's files.

    The folders ``data`` and ``metadata`` in the table's location contain the table's files only, with any name that
    ends as those of Iceberg's formats. In every other folder that the table's location, `write.data.path` or
    `write.metadata.path` contains, files belong to the table only where files are that it references, in folders of
    its partitions, with names as Iceberg's writers make them.

    Args:
        table: the table.
        folders_in_use: returns the folders (`locations.canonical`, without a slash at the end) that contain files
            that the table references; called at most once.
    """

    def __init__(self, table: Table, folders_in_use: Callable[[], Collection[str]]) -> None:
        location = _prefix(table.metadata.location).rstrip("/")
        self._folders_in_use = folders_in_use
        self._data = _prefix(locations.join(location, "data"))
        self._metadata = _prefix(locations.join(location, "metadata"))
        self._metadata_folder = _prefix(table.metadata_folder).rstrip("/")
        self._current = locations.canonical(table.metadata_location).rpartition("/")[0]
        # The innermost one first: a folder may contain another one.
        self._roots = sorted({_prefix(root) for root in table.roots}, key=len, reverse=True)
        self._data_root = _prefix(table.data_location)
        self._owner = owner_of(self._data_root.rstrip("/"), location)
        self._partitions = {
            tuple(f"{quoted(field.name)}=" for field in spec.fields)
            for spec in table.metadata.specs().values()
        }

    @cached_property
    def _used(self) -> Collection[str]:
        return self._folders_in_use()

    def place_of(self, name: str) -> Place:
        """Return what a location (`locations.canonical`) below the table's folders shows."""
        folder, _, last = name.rpartition("/")
        if name.startswith(self._data):
            return Place.OWN if last.lower().endswith(_DATA_ENDINGS) else Place.OTHER_NAME
        if name.startswith(self._metadata):
            is_own = is_metadata_name(last) or last.lower().endswith(_METADATA_ENDINGS)
            return Place.OWN if is_own else Place.OTHER_NAME
        if folder == self._metadata_folder and is_name_of_metadata(last):
            is_used = folder == self._current or folder in self._used
            return Place.OWN if is_used else Place.OTHER_FOLDER
        if not self._is_in_use(name, folder):  # check: folder-of-property
            return Place.OTHER_FOLDER
        return Place.OWN if _DATA.fullmatch(last) else Place.OTHER_NAME  # check: names-of-writers

    def _is_in_use(self, name: str, folder: str) -> bool:
        """Whether a file is in the folder of a partition in which the table references files."""
        for root in self._roots:
            if name.startswith(root):
                found = self._spread(name, root)
                if found is not None:
                    return found
                return self._is_partition(folder.removeprefix(root.rstrip("/"))) and (
                    folder in self._used
                )
        return False

    def _spread(self, name: str, root: str) -> bool | None:
        """Whether a file is where writers spread the table's files by a hash; None if its path has no hash."""
        found = _HASH.fullmatch(name.removeprefix(root))
        if found is None:
            return None
        bits, mark, rest = found.groups()
        if root == self._data_root and self._owner:
            if not rest.startswith(f"{self._owner}/"):
                return False
            rest = rest.removeprefix(f"{self._owner}/")
        if hashed(rest) != bits or not (mark == "/" or "/" not in rest):
            return False
        is_used = any(f"{folder}/".startswith(root) for folder in self._used)
        # The folder of the partition may be left out, as the hash spreads the files.
        return is_used and ("/" not in rest or self._is_partition(rest.rpartition("/")[0]))

    def _is_partition(self, folder: str) -> bool:
        parts = tuple(part for part in folder.split("/") if part)
        return any(
            len(parts) == len(fields) and all(map(str.startswith, parts, fields))
            for fields in self._partitions
        )


def is_name_of_metadata(name: str) -> bool:
    """Whether a file's name is one that Iceberg's writers give to metadata files, manifests and statistics."""
    return bool(_METADATA.fullmatch(name)) or parse_name(name) is not None


def _prefix(folder: str) -> str:
    return locations.canonical(folder).rstrip("/") + "/"


def prefixes(folders: Iterable[str]) -> tuple[str, ...]:
    """Return the beginnings of the canonical locations below folders."""
    return tuple({_prefix(folder) for folder in folders})
