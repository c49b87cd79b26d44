"""Tables that share folders: a file that one of them no longer references may be used by another."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from lake.core import locations
from lake.core.catalogs.errors import catalog_errors
from lake.core.errors import TRANSIENT_ERRORS, BadInputError, LakeError, NotFoundError, RefusedError
from lake.core.metadata.files import is_metadata_name, parse, version_of
from lake.core.metadata.roots import roots_of
from lake.core.options import Option

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

    from lake.core.catalogs.catalog import Catalog, Table
    from lake.core.storage.storage import Storage

_METADATA = "metadata"


def refuse_shared_location(table: Table, hint: str | None = None) -> None:
    """Refuse to delete files of a table that shares its folders with another, such as a table under two names.

    Only database catalogs are searched for other tables: other catalogs return locations for one table at a time.

    Args:
        table: the table.
        hint: what the user can do; by default what helps if snapshots expire.

    Raises:
        RefusedError: another table shares a folder, or may do so; see `require_own_folders`.
    """
    hint = hint or f"with {Option.KEEP_FILES} no file is deleted"
    require_own_folders(table, hint)
    catalog, place = table.catalog, table.metadata_location
    found = names_of_table(catalog, table.metadata, place, table.storage, table.identifier)
    if found:
        raise RefusedError(
            f"{table.identifier} shares its folder with {', '.join(found[:3])}, "
            "which may still use the files that would be deleted",
            hint=f"{hint}; if one table has two names, drop one of them",
        )


def require_own_folders(table: Table, hint: str) -> None:
    """Check that the table's folders belong to it, as far as its own files show it.

    A metadata file can be copied, and can contain any location. The next commit writes a new one into the location.

    Args:
        table: the table.
        hint: what the user can do.

    Raises:
        RefusedError: the metadata file is outside of the table's folders, or a folder that the metadata names and
            that does not contain the file is that of another table, or inside it.
    """
    place = table.metadata_location
    if not any(_is_inside(place, root) for root in table.roots):
        raise RefusedError(
            f"the metadata file of {table.identifier} is outside of the table's folders: {place}",
            hint=f"the files of such a table may belong to another one; {hint}",
        )
    home = table.metadata.location
    for root in table.roots:
        # What is below the location is the table's if the location is.
        if _is_inside(place, root) or (root != home and _is_inside(root, home)):
            continue
        for folder in _upwards(root):
            if _is_folder_of_other(table, folder):
                raise RefusedError(
                    f"the folder {root} of {table.identifier} is inside the folder of another table: {folder}",
                    hint=f"its files may belong to that table; {hint}",
                )


def names_of_table(
    catalog: Catalog,
    metadata: TableMetadata,
    metadata_location: str,
    storage: Storage,
    own_name: str | None = None,
) -> list[str]:
    """Return the names of the tables in a database catalog that are a table, or whose folders contain its folders.

    Args:
        catalog: the catalog; one that is not a database returns no names.
        metadata: the table's metadata.
        metadata_location: the location of its metadata file.
        storage: the storage that contains it.
        own_name: the table's own name, which is left out.
    """
    roots = [comparable(root) for root in roots_of(metadata)]
    place = comparable(metadata_location)
    return sorted(
        name
        for name, other in _tables_near(catalog, place, roots, storage)
        if name != own_name
        and (
            metadata.table_uuid == other.table_uuid
            or _is_in_place_of(place, roots, comparable(other.location))
        )
    )


def _is_in_place_of(place: str, roots: list[str], other: str) -> bool:
    """Whether a folder of a table is that of another one, or is in it without a table's own layout."""
    return other in roots or any(
        root.startswith(f"{other}/") and not place.startswith(f"{root}/") for root in roots
    )


def _tables_near(
    catalog: Catalog, place: str, roots: list[str], storage: Storage
) -> Iterator[tuple[str, TableMetadata]]:
    """Yield the tables whose folders, by the names of their metadata files, may be or contain a table's folders."""
    here = posixpath.dirname(place)
    for name, entry in catalog.metadata_locations():
        folder = posixpath.dirname(comparable(entry))
        outer = posixpath.dirname(folder) if posixpath.basename(folder) == _METADATA else folder
        near = folder == here or any(
            root == outer
            or root.startswith(f"{outer}/")
            or (outer == folder and folder.startswith(f"{root}/"))
            for root in roots
        )
        if near:
            # A table without metadata does not use any file.
            with suppress(NotFoundError), catalog_errors(f"table {name}", catalog):
                yield name, parse(storage.read(entry), entry)


def _is_folder_of_other(table: Table, folder: str) -> bool:
    """Whether a folder contains the metadata of another table; one to which access is refused counts as empty.

    Raises:
        StorageError: the storage fails.
        TimedOutError: the storage is too busy or cannot be reached.
    """
    inner = locations.join(folder, _METADATA)
    try:
        versions = [
            (version, name)
            for name, is_folder in table.storage.list_folder(inner)
            if not is_folder and is_metadata_name(name) and not name.startswith(".")
            if (version := version_of(name)) is not None
        ]
    except TRANSIENT_ERRORS:
        raise
    except LakeError:
        return False
    if not versions:
        return False
    newest = locations.join(inner, max(versions)[1])
    try:
        with catalog_errors(newest):
            return parse(table.storage.read(newest), newest).table_uuid != table.metadata.table_uuid
    except LakeError:
        return True


def _upwards(root: str) -> Iterator[str]:
    """Yield a folder and those that contain it, without the root of the storage."""
    folder = root.rstrip("/")
    while locations.ownable(folder) and len(locations.parse(folder).path) > 1:
        yield folder
        folder = folder.rpartition("/")[0]


def _is_inside(location: str, folder: str) -> bool:
    """Whether a location is below a folder, or the folder itself; on a local disk also through links."""
    one, other = comparable(location), comparable(folder)
    return one == other or one.startswith(f"{other}/")


def comparable(location: str) -> str:
    """Return one text for all locations of a folder or metadata file; on a local disk also for those through links.

    Storage ignores the host of a local location, so it is left out.
    """
    text = locations.folded(location).rstrip("/")
    try:
        parsed = locations.parse(text)
    except BadInputError:
        return text
    if not parsed.is_local:
        return text
    folder, name = os.path.split(parsed.path)
    # A metadata file that is a link is not read.
    path = os.path.join(os.path.realpath(folder), name)
    return f"file://{path if is_metadata_name(name) else os.path.realpath(path)}".rstrip("/")
