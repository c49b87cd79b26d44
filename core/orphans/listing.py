"""List the files below a table's folders as columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from lake.core import locations
from lake.core.errors import BadInputError, RefusedError, StorageError
from lake.core.orphans.inventory import INVENTORY, read_inventory
from lake.core.storage.file_names import FileNames

if TYPE_CHECKING:
    from lake.core.catalogs.catalog import Table
    from lake.core.storage.storage import StoredFile

# The folder below a table's location to which files are moved.
TRASH = ".lake-trash"


def trash_folder(table: Table) -> str:
    """Return the folder of the files that were moved away."""
    return locations.join(table.metadata.location, TRASH)


def list_files(
    table: Table, more: Sequence[str], names: FileNames, inventory: str | None
) -> pa.Table:
    """Return the files below the table's folders and others, without those that were moved away (`INVENTORY`).

    Args:
        table: the table.
        more: further folders.
        names: compares locations as files.
        inventory: an inventory that contains the folders' files. The metadata folder is listed nevertheless, as
            newer metadata references files that the inventory contains.

    Raises:
        BadInputError: the inventory cannot be read, or contains no file of these folders.
        StorageError: the listing lacks the table's current metadata file, so it is not complete.
        RefusedError: the current metadata file is outside of the table's folders.
    """
    if not any(locations.within(table.metadata_location, root) for root in table.roots):
        raise RefusedError(
            f"the metadata file of {table.identifier} is outside of the table's folders: {table.metadata_location}",
            hint="the files of such a table may belong to another one; remove orphan files by hand",
        )
    folders = _outermost([*table.roots, *more])
    if inventory is None:
        parts = [_columns(table.storage.find_files(folder)) for folder in folders]
    else:
        beside = table.metadata_location.rpartition("/")[0]
        parts = [
            _columns(table.storage.find_files(beside)),
            *_in_inventory(table, inventory, folders, beside, names),
        ]
    listed = _without_trash(table, pa.concat_tables([INVENTORY.empty_table(), *parts]), names)
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


def _in_inventory(
    table: Table, inventory: str, folders: Sequence[str], beside: str, names: FileNames
) -> list[pa.Table]:
    """Return the inventory's files below the folders, except those in the metadata folder."""

    def keep(paths: pa.Array) -> pa.Array:
        return pc.and_not(_is_below(paths, folders, names), _is_below(paths, [beside], names))

    parts = [part for part in read_inventory(table.storage, inventory, keep) if part.num_rows]
    if not parts:
        raise BadInputError(
            f"{inventory} contains no file below {folders[0]}",
            hint="choose the inventory of the bucket that contains the table",
        )
    return parts


def _without_trash(table: Table, listed: pa.Table, names: FileNames) -> pa.Table:
    away = pc.match_substring(listed["path"], TRASH)
    if not pc.any(away, min_count=0).as_py():
        return listed
    away = pc.and_(away, _is_below(listed["path"], [trash_folder(table)], names))
    return listed.filter(pc.invert(away))


def _is_below(paths: pa.Array, folders: Sequence[str], names: FileNames) -> pa.Array:
    own = names.of(paths)
    prefixes = names.of(pa.array([f"{folder.rstrip('/')}/" for folder in folders], pa.string()))
    return reduce(pc.or_, [pc.starts_with(own, prefix) for prefix in prefixes.to_pylist()])


def _columns(files: Iterable[StoredFile]) -> pa.Table:
    found = list(files)
    return pa.table(
        [
            pa.array([file.location for file in found], pa.string()),
            pa.array([file.length for file in found], pa.int64()),
            pa.array([file.modified_ms for file in found], pa.int64()),
        ],
        schema=INVENTORY,
    )
