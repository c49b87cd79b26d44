"""List the files below a table's folders as columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from lake.core import locations
from lake.core.errors import RefusedError, StorageError
from lake.core.storage.file_names import FileNames

if TYPE_CHECKING:
    from lake.core.catalogs.catalog import Table
    from lake.core.storage.storage import StoredFile

LISTED = pa.schema([("path", pa.string()), ("bytes", pa.int64()), ("modified_ms", pa.int64())])
# The folder below a table's location to which files are moved.
TRASH = ".lake-trash"


def trash_folder(table: Table) -> str:
    """Return the folder of the files that were moved away."""
    return locations.join(table.metadata.location, TRASH)


def list_files(table: Table, more: Sequence[str], names: FileNames) -> pa.Table:
    """Return the files below the table's folders and others, without those that were moved away (`LISTED`).

    Raises:
        StorageError: the listing lacks the table's current metadata file, so it is not complete.
        RefusedError: the current metadata file is outside of the table's folders.
    """
    if not any(locations.within(table.metadata_location, root) for root in table.roots):
        raise RefusedError(
            f"the metadata file of {table.identifier} is outside of the table's folders: {table.metadata_location}",
            hint="the files of such a table may belong to another one; remove orphan files by hand",
        )
    folders = _outermost([*table.roots, *more])
    trash = locations.canonical(trash_folder(table)) + "/"
    parts = [
        _columns(
            file
            for file in table.storage.find_files(folder)
            if TRASH not in file.location
            or not locations.canonical(file.location).startswith(trash)
        )
        for folder in folders
    ]
    listed = pa.concat_tables([LISTED.empty_table(), *parts])
    current = names.of(pa.array([table.metadata_location], pa.string()))[0]
    if pc.index(names.of(listed["path"]), current).as_py() < 0:
        raise StorageError(
            f"the listing of {folders[0]} lacks {table.metadata_location}",
            hint="the storage did not list all files; nothing was changed",
        )
    return listed


def _outermost(folders: Sequence[str]) -> list[str]:
    """Return the folders that are not below another one, each once."""
    by_name = {locations.canonical(folder).rstrip("/"): folder for folder in reversed(folders)}
    return [
        folder
        for name, folder in by_name.items()
        if not any(name.startswith(f"{other}/") for other in by_name)
    ]


def _columns(files: Iterable[StoredFile]) -> pa.Table:
    found = list(files)
    return pa.table(
        [
            pa.array([file.location for file in found], pa.string()),
            pa.array([file.length for file in found], pa.int64()),
            pa.array([file.modified_ms for file in found], pa.int64()),
        ],
        schema=LISTED,
    )
