"""Files that no snapshot references and that are kept all the same, each with its reason."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from enum import StrEnum
from fnmatch import fnmatchcase
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from lake.core.base import locations
from lake.core.base.errors import CorruptFileError, NotFoundError, RefusedError
from lake.core.io.work_ahead import ReadingThreads
from lake.core.table.metadata.files import (
    VERSION_HINT,
    is_metadata_name,
    read_metadata,
    version_of,
)
from lake.core.transaction.garbage.table_layout import Place, TableLayout, prefixes
from lake.core.transaction.staging.manifest_files import find_manifests
from lake.core.transaction.staging.temporary_manifests import read_temporary_manifests

if TYPE_CHECKING:
    from lake.core.io.storage.file_names import FileNames
    from lake.core.table.catalogs.catalog import Table

_HEAD_BYTES = 4096
_THREADS = 16
_UUID = re.compile(rb'"table-uuid"\s*:\s*"([0-9A-Fa-f-]{36})"')
# The names of lake's locks, claims and journals.
_OWN = ("lake.", "lake-")


class KeepReason(StrEnum):
    """Why a file that no snapshot references is kept."""

    CHECKPOINT = "checkpoint"
    LAKE = "lake"
    METADATA = "metadata"
    OTHER_TABLE = "other-table"
    OUTSIDE = "outside"
    FOREIGN = "foreign"
    HIDDEN = "hidden"
    EXCLUDED = "excluded"
    PREFIX_MISMATCH = "prefix-mismatch"
    YOUNG = "young"
    NO_TIME = "no-time"
    GONE = "gone"


_BY_PLACE = {
    Place.OWN: None,
    Place.OTHER_FOLDER: KeepReason.OUTSIDE,
    Place.OTHER_NAME: KeepReason.FOREIGN,
}


def checkpoint_names(table: Table, names: FileNames) -> pa.Array:
    """Return the names of the temporary manifests of Flink jobs and staged runs, and of the files they list.

    Those of committed checkpoints are among them: their files are referenced by snapshots, too.

    Raises:
        CorruptFileError: a manifest cannot be read, so it is not known which files its job still needs.
    """
    manifests = find_manifests(table)
    paths = [pa.array([file.location for file in manifests], pa.string())]
    for reading in read_temporary_manifests(table, manifests):
        if reading.manifest is not None:
            paths.append(pc.cast(reading.manifest.entries["file_path"], pa.string()))
        elif reading.foreign is None:
            raise CorruptFileError(
                f"{reading.location} cannot be read, and may list files of a checkpoint: {reading.problem}",
                hint="if the job will not be restored, delete this file; then run the command again",
            )
    return pa.concat_arrays([names.of(column) for column in paths])


def kept_metadata(table: Table, paths: Sequence[str], more: Sequence[str]) -> set[str]:
    """Return version hints, and the metadata files that are not in the table's log and must stay.

    A metadata file whose version is not less than the current one may be about to become the current one.

    Args:
        table: the table.
        paths: files that the table does not reference.
        more: further folders that the user named.

    Raises:
        RefusedError: a metadata file in the table's folders is another table's.
    """
    found = [
        path
        for path in paths
        if is_metadata_name(path) and not path.rpartition("/")[2].startswith(".")
    ]
    hints = {path for path in found if path.rpartition("/")[2].lower() == VERSION_HINT}
    files = [path for path in found if path not in hints]
    with ReadingThreads(_THREADS) as pool:
        uuids = dict(zip(files, pool.map(partial(_uuid_of, table), files), strict=True))
    own = str(table.metadata.table_uuid)
    beside = locations.canonical(table.metadata_location).rpartition("/")[0]
    named = prefixes(more)
    for path, uuid in uuids.items():
        name = locations.canonical(path)
        is_shared = name.rpartition("/")[0] == beside or name.startswith(named)
        if uuid is not None and uuid != own and is_shared:  # check: metadata-of-other-tables
            raise RefusedError(
                f"{path} is the metadata of another table ({uuid}), in the folder of {table.identifier}",
                hint="the two tables share their folders; move one of them before orphan files are removed",
            )
    current = version_of(table.metadata_location)
    return hints | {
        path for path, uuid in uuids.items() if uuid != own or not _is_before(path, current)
    }


def is_earlier_metadata(table: Table, path: str) -> bool:
    """Whether the name of a metadata file is that of an earlier version than the current one."""
    return _is_before(path, version_of(table.metadata_location))


def _is_before(path: str, current: int | None) -> bool:
    """Whether a metadata file is of an earlier version than the current one; False if that is not known."""
    version = version_of(path)
    return version is not None and current is not None and version < current


def _uuid_of(table: Table, path: str) -> str | None:
    """Return the UUID of the table to which a metadata file belongs; None if it cannot be read."""
    try:
        head = table.storage.read_part(path, 0, _HEAD_BYTES)
        if found := _UUID.search(head):
            return found[1].decode().lower()
        return str(read_metadata(table.storage, path).table_uuid)
    except (CorruptFileError, NotFoundError, RefusedError, ValueError):
        # An inventory contains files that are gone.
        return None


def by_name(
    table: Table,
    paths: Iterable[str],
    excluded: Sequence[str],
    named: Sequence[str],
    folders_in_use: Callable[[], Collection[str]],
) -> list[KeepReason | None]:
    """Return why files are kept by their names alone; None for files that are not.

    Args:
        table: the table.
        paths: the files.
        excluded: patterns of paths below the folders.
        named: further folders that the user named, to which only this table writes.
        folders_in_use: see `TableLayout`.
    """
    decide = _ByName(table, excluded, named, TableLayout(table, folders_in_use))
    return [decide(path) for path in paths]


class _ByName:
    def __init__(
        self, table: Table, excluded: Sequence[str], named: Sequence[str], layout: TableLayout
    ) -> None:
        self._excluded = excluded
        self._layout = layout
        self._fields = tuple(
            {f"{item.name}=" for spec in table.metadata.specs().values() for item in spec.fields}
        )
        self._metadata = prefixes(
            [table.metadata_folder, locations.join(table.metadata.location, "metadata")]
        )
        self._named = prefixes(named)
        self._roots = prefixes([*named, *table.roots])

    def __call__(self, path: str) -> KeepReason | None:
        name = locations.canonical(path)
        below = self._below(name)
        parts = below.split("/")
        if name.startswith(self._metadata) and parts[-1].startswith(_OWN):
            return KeepReason.LAKE
        if any(
            part.startswith((".", "_")) and not part.startswith(self._fields or "/")
            for part in parts
        ):
            return KeepReason.HIDDEN
        if any(fnmatchcase(below, pattern) for pattern in self._excluded):
            return KeepReason.EXCLUDED
        if self._named and name.startswith(self._named):
            return None
        return _BY_PLACE[self._layout.place_of(name)]

    def _below(self, name: str) -> str:
        """Return the part of a path below the outermost folder that contains it."""
        roots = [root for root in self._roots if name.startswith(root)]
        return name.removeprefix(min(roots, key=len, default=""))
