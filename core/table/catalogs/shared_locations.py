"""Tables that share folders: a file that one of them no longer references may be used by another."""

from __future__ import annotations

import os
import posixpath
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from typing import TYPE_CHECKING
from urllib.parse import quote

from lake.core.base import locations
from lake.core.base.errors import TRANSIENT_ERRORS, LakeError, NotFoundError, RefusedError
from lake.core.base.options import Option
from lake.core.table.catalogs.errors import catalog_errors, locked_error
from lake.core.table.metadata.files import is_metadata_name, parse, version_of
from lake.core.table.metadata.folders import Places, place_of
from lake.core.table.metadata.roots import roots_of

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

    from lake.core.io.storage.storage import Storage
    from lake.core.table.catalogs.catalog import Catalog, Table

_METADATA = "metadata"
_SHOWN = 3
# The catalog that lake creates in a warehouse folder.
EMBEDDED_DATABASE = "catalog.db"


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
    metadata, place, storage = table.metadata, table.metadata_location, table.storage
    require_own_folders(metadata, place, storage, table.identifier, hint)
    if found := names_of_table(table.catalog, metadata, place, storage, table.identifier):
        raise RefusedError(
            f"{table.identifier} shares its folder with {', '.join(found[:3])}, "
            "which may still use the files that would be deleted",
            hint=f"{hint}; if one table has two names, drop one of them",
        )
    refuse_other_databases(table, hint)


def refuse_other_databases(table: Table, hint: str) -> None:
    """Refuse to delete files of a table that another catalog in a folder above it contains.

    Raises:
        RefusedError: a database there contains the table, or another one in its folders.
        TimedOutError: another process locks the database.
    """
    if found := names_in_other_databases(
        table.catalog, table.metadata, table.metadata_location, table.storage
    ):
        raise RefusedError(
            f"another catalog contains {table.identifier} too: {', '.join(found[:_SHOWN])}",
            hint=f"{hint}; if that catalog is not used any more, drop the table there: its files stay",
        )


def require_own_folders(
    metadata: TableMetadata, place: str, storage: Storage, name: str, hint: str
) -> None:
    """Check that the table's folders belong to it, as far as its own files show it.

    A metadata file can be copied, and can contain any location. The next commit writes a new one into the location.

    Raises:
        RefusedError: the metadata file is outside of the table's folders, or a folder that the metadata names and
            that does not contain the file is that of another table, or inside it.
    """
    roots, home = roots_of(metadata), metadata.location
    if not any(is_inside(place, root) for root in roots):  # check: metadata-in-roots
        raise RefusedError(
            f"the metadata file of {name} is outside of the table's folders: {place}",
            hint=f"the files of such a table may belong to another one; {hint}",
        )
    for root in roots:
        # What is below the location is the table's if the location is.
        # check: roots-around-home
        if is_inside(place, root) or (root != home and is_inside(root, home)):
            continue
        for folder in _upwards(root):
            if _is_folder_of_other(metadata, storage, folder):  # check: folder-of-other-table
                raise RefusedError(
                    f"the folder {root} of {name} is inside the folder of another table: {folder}",
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
    entries = [entry for entry in catalog.metadata_locations() if entry[0] != own_name]
    return _sharing(entries, catalog, metadata, metadata_location, storage)


def names_in_other_databases(
    catalog: Catalog, metadata: TableMetadata, metadata_location: str, storage: Storage
) -> list[str]:
    """Return the same for the databases of other catalogs that are in a folder above the table.

    lake creates its catalog in the folder that contains the tables, and a copy of such a folder contains the same
    entries, so two catalogs easily contain one table.

    Raises:
        TimedOutError: another process locks such a database.
    """
    own = catalog.database and os.path.realpath(catalog.database)
    folders = dict.fromkeys(
        folder for root in (*roots_of(metadata), metadata_location) for folder in _upwards(root)
    )
    files = dict.fromkeys(
        os.path.realpath(os.path.join(parsed.path, EMBEDDED_DATABASE))
        for folder in folders
        if (parsed := locations.parse(folder)).is_local
    )
    entries = [  # check: catalog-in-folder-above
        entry for file in files if file != own and os.path.isfile(file) for entry in _entries(file)
    ]
    return _sharing(entries, catalog, metadata, metadata_location, storage)


def _entries(file: str) -> list[tuple[str, str]]:
    """Return names and metadata files of the tables in a SQLite database; none if it is not that of a catalog."""
    query = "SELECT table_namespace, table_name, metadata_location FROM iceberg_tables"
    try:
        with closing(sqlite3.connect(f"file:{quote(file)}?mode=ro", uri=True)) as connection:
            rows = connection.execute(query).fetchall()
    except sqlite3.DatabaseError as error:
        if refusal := locked_error(error, file):
            raise refusal from error
        return []
    return [
        (f"{space}.{name} in {file}", place)
        for space, name, place in rows
        if isinstance(place, str) and place
    ]


def _sharing(
    entries: list[tuple[str, str]],
    catalog: Catalog,
    metadata: TableMetadata,
    metadata_location: str,
    storage: Storage,
) -> list[str]:
    """Return the names of those entries that are a table, or whose folders contain its folders."""
    places = Places()
    roots = [places.of(root) for root in roots_of(metadata)]
    place = places.of(metadata_location)
    return sorted(
        name
        for name, other in _tables_near(entries, catalog, place, roots, storage, places)
        if metadata.table_uuid == other.table_uuid
        or _is_in_place_of(place, roots, places.of(other.location))  # check: place-of-other-table
    )


def _is_in_place_of(place: str, roots: list[str], other: str) -> bool:
    """Whether a folder of a table is that of another one, or is in it without a table's own layout."""
    return other in roots or any(
        root.startswith(f"{other}/") and not place.startswith(f"{root}/") for root in roots
    )


def _tables_near(
    entries: list[tuple[str, str]],
    catalog: Catalog,
    place: str,
    roots: list[str],
    storage: Storage,
    places: Places,
) -> Iterator[tuple[str, TableMetadata]]:
    """Yield the tables whose folders, by the names of their metadata files, may be or contain a table's folders."""
    here = posixpath.dirname(place)
    for name, entry in entries:
        folder = posixpath.dirname(places.of(entry))
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


def _is_folder_of_other(metadata: TableMetadata, storage: Storage, folder: str) -> bool:
    """Whether a folder contains the metadata of another table; one to which access is refused counts as empty.

    Raises:
        StorageError: the storage fails.
        TimedOutError: the storage is too busy or cannot be reached.
    """
    inner = locations.join(folder, _METADATA)
    try:
        versions = [
            (version, name)
            for name, is_folder in storage.list_folder(inner)
            if not is_folder and is_metadata_name(name) and not name.startswith(".")
            if (version := version_of(name)) is not None
        ]
    except TRANSIENT_ERRORS:  # check: transient-failure-of-other-folder
        raise
    except LakeError:
        return False
    if not versions:
        return False
    newest = locations.join(inner, max(versions)[1])
    try:
        with catalog_errors(newest):
            return parse(storage.read(newest), newest).table_uuid != metadata.table_uuid
    except LakeError:
        return True


def _upwards(root: str) -> Iterator[str]:
    """Yield a folder and those that contain it, without the root of the storage."""
    folder = root.rstrip("/")
    while locations.ownable(folder) and len(locations.parse(folder).path) > 1:
        yield folder
        folder = folder.rpartition("/")[0]


def is_inside(location: str, folder: str) -> bool:
    """Whether a location is below a folder, or the folder itself; on a local disk also through links."""
    one, other = place_of(location), place_of(folder)
    return one == other or one.startswith(f"{other}/")
