"""The folders of the other tables of a catalog: commands that look for files to delete spare these folders.

Only metadata shows that a table writes into the folder of another one, so the metadata of all tables is read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING

import pyarrow as pa

from lake.core.catalogs.errors import catalog_errors
from lake.core.catalogs.names import namespaces_of
from lake.core.catalogs.shared_locations import comparable
from lake.core.errors import (
    TRANSIENT_ERRORS,
    LakeError,
    NotATableError,
    NotFoundError,
    RefusedError,
)
from lake.core.locations import store_of
from lake.core.metadata.files import parse
from lake.core.metadata.roots import roots_of

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

    from lake.core.catalogs.catalog import Catalog, Table
    from lake.core.session import Session

_THREADS = 16


def other_tables(table: Table, unread: list[str] | None = None) -> Iterator[TableMetadata]:
    """Yield the metadata of the catalog's other tables, and of those of other catalogs in the same database.

    A table without metadata does not use any file and is left out.

    Args:
        table: the table.
        unread: receives the names of tables and namespaces that cannot be read for a reason that stays, or that are
            in another store; None to raise the error.

    Raises:
        LakeError: the catalog, a namespace or a table cannot be read.
    """
    catalog = table.catalog
    places = catalog.metadata_locations()

    def read(entry: tuple[str, str | None]) -> TableMetadata | None:
        name, place = entry
        try:
            with suppress(NotFoundError, NotATableError), catalog_errors(f"table {name}", catalog):
                if place is None:
                    return catalog.load(name).metadata
                return parse(table.storage.read(place), place)
        except LakeError as error:
            if unread is None:
                raise
            if isinstance(error, TRANSIENT_ERRORS) and is_near(place):
                raise type(error)(
                    f"table {name} cannot be read: {error.message}",
                    hint=f"its files may be in the folders of {table.identifier}; run the command again, or drop "
                    f"{name} if it is not needed",
                ) from error
            unread.append(f"table {name}")
        return None

    def is_near(place: str | None) -> bool:
        """Whether a table may be in the same store, which answers now and then."""
        return place is None or store_of(place) in {store_of(root) for root in table.roots}

    entries: Iterator[tuple[str, str | None]] = (
        iter(places) if places else ((name, None) for name in _names(catalog, unread))
    )
    with ThreadPoolExecutor(_THREADS) as pool:
        others = (entry for entry in entries if entry[0] != table.identifier)
        for metadata in pool.map(read, others):
            if metadata is not None:
                yield metadata


def in_folders_of_others(
    session: Session, table: Table, folders: Sequence[str], paths: pa.ChunkedArray
) -> pa.ChunkedArray:
    """Return which files are in a folder of another table of the catalog.

    A warning counts the tables and namespaces that cannot be read for a reason that stays.

    Args:
        session: the session of the invocation.
        table: the table.
        folders: the folders that contain the files.
        paths: the files.

    Raises:
        StorageError: the catalog or a storage fails.
        TimedOutError: the catalog or a storage is too busy or cannot be reached.
    """
    unread: list[str] = []
    shared: set[str] = set()
    own = _Folders(table, folders)
    try:
        for metadata in other_tables(table, unread):
            for root in roots_of(metadata):
                shared.update(own.shared_with(root))
    except TRANSIENT_ERRORS:
        raise
    except LakeError:
        unread.append(f"catalog {table.catalog.name}")
    if unread:
        session.warn(
            f"not all other tables can be read ({len(unread)} failures, e.g. {min(unread)}): files of theirs in the "
            f"folders of {table.identifier} are not recognized"
        )
    return _below(shared, paths)


def table_of_file(table: Table, paths: Iterable[str]) -> tuple[str, str] | None:
    """Return the first file that is in a folder of another table of the catalog, and the folder; None if none is.

    Tables that cannot be read for a reason that stays are left out.

    Raises:
        StorageError: the catalog or a storage fails.
        TimedOutError: the catalog or a storage is too busy or cannot be reached.
    """
    folders = {comparable(path.rpartition("/")[0]): path for path in paths}
    try:
        for metadata in other_tables(table, []):
            for root in roots_of(metadata):
                other = comparable(root)
                for folder, path in folders.items():
                    if folder == other or folder.startswith(f"{other}/"):
                        return path, root
    except TRANSIENT_ERRORS:
        raise
    except LakeError:
        # The catalog does not list its tables.
        return None
    return None


def in_folders_of_nested(table: Table, paths: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return which files are in a folder of a table whose metadata file is in the table's folders.

    Unlike `in_folders_of_others`, it reads the metadata of such tables only, and knows those of databases only.

    Args:
        table: the table.
        paths: the files.
    """
    shared: set[str] = set()
    own = _Folders(table, table.roots)
    for name, place in table.catalog.metadata_locations():
        if name == table.identifier or not own.contain_metadata_of_other(place):
            continue
        folder = place.rpartition("/")[0]
        roots = [folder]
        try:
            with suppress(NotFoundError), catalog_errors(f"table {name}", table.catalog):
                roots += roots_of(parse(table.storage.read(place), place))
        except LakeError:
            roots.append(folder.rpartition("/")[0])
        shared.update(item for root in roots for item in own.shared_with(root, inside=True))
    return _below(shared, paths)


def _below(folders: Collection[str], paths: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return which files are below folders (`comparable`)."""
    if not folders:
        return pa.chunked_array([pa.repeat(pa.scalar(value=False), len(paths))])
    wanted = tuple(f"{folder}/" for folder in folders)
    known: dict[str, bool] = {}
    found = []
    for path in paths.to_pylist():
        folder = path.rpartition("/")[0]
        if folder not in known:
            known[folder] = f"{comparable(folder)}/".startswith(wanted)
        found.append(known[folder])
    return pa.chunked_array([pa.array(found, pa.bool_())])


class _Folders:
    """Folders of a table, compared with those of others.

    Args:
        table: the table.
        folders: its folders.
    """

    def __init__(self, table: Table, folders: Sequence[str]) -> None:
        self._place = comparable(table.metadata_location)
        self._folders = {comparable(folder) for folder in folders}

    def contain_metadata_of_other(self, place: str) -> bool:
        """Whether a metadata file is below the folders, but not beside the table's own."""
        folder = comparable(place).rpartition("/")[0]
        is_below = any(folder.startswith(f"{own}/") for own in self._folders)
        return is_below and folder != self._place.rpartition("/")[0]

    def shared_with(self, root: str, *, inside: bool = False) -> Iterator[str]:
        """Yield the folders (`comparable`) in those of the table that belong to a table with the given root.

        Args:
            root: a folder of the other table.
            inside: whether to yield only folders inside those of the table.
        """
        other = comparable(root)
        for folder in self._folders:
            if other.startswith(f"{folder}/") or (other == folder and not inside):
                yield other
            elif (
                not inside
                and folder.startswith(f"{other}/")
                # A folder with the table's metadata file is the table's, wherever it is.
                and not self._place.startswith(f"{folder}/")
            ):
                yield folder


def _names(catalog: Catalog, unread: list[str] | None) -> Iterator[str]:
    """Yield the names of a catalog's tables; for ``unread`` see `other_tables`."""
    try:
        for namespace in namespaces_of(catalog):
            error = namespace.error
            if error is None or unread is None or isinstance(error, TRANSIENT_ERRORS):
                yield from namespace.listed()
            else:
                unread.append(f"namespace {namespace.name}")
    except NotImplementedError as error:
        raise RefusedError(f"catalog {catalog.name} does not list its tables") from error
