"""The folders of the other tables of a catalog: commands that look for files to delete spare these folders.

Only metadata shows that a table writes into the folder of another one, so the metadata of all tables is read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from lake.core import locations
from lake.core.catalogs.errors import catalog_errors
from lake.core.catalogs.names import namespaces_of
from lake.core.catalogs.shared_locations import comparable
from lake.core.errors import LakeError, NotATableError, NotFoundError
from lake.core.metadata.files import parse
from lake.core.metadata.roots import roots_of
from lake.core.storage.location_columns import normalize_locations

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
        unread: receives the names of tables that cannot be read; None to raise the error.

    Raises:
        LakeError: a namespace cannot be listed, or a table cannot be read.
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
        except LakeError:
            if unread is None:
                raise
            unread.append(name)
        return None

    entries: Iterator[tuple[str, str | None]] = (
        iter(places) if places else ((name, None) for name in _names(catalog))
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

    A warning counts the tables that cannot be read.

    Args:
        session: the session of the invocation.
        table: the table.
        folders: the folders that contain the files.
        paths: the files.
    """
    unread: list[str] = []
    prefixes: set[str] = set()
    own = _Folders(table, folders)
    try:
        for metadata in other_tables(table, unread):
            for root in roots_of(metadata):
                prefixes.update(own.shared_with(root))
    except LakeError:
        unread.append("those of a namespace that cannot be listed")
    if unread:
        session.warn(
            f"{len(unread)} tables of the catalog cannot be read, e.g. {min(unread)}: files of theirs in the folders "
            f"of {table.identifier} are not recognized"
        )
    return _below(prefixes, paths)


def in_folders_of_nested(table: Table, paths: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return which files are in a folder of a table whose metadata file is in the table's folders.

    Unlike `in_folders_of_others`, it reads the metadata of such tables only, and knows those of databases only.

    Args:
        table: the table.
        paths: the files.
    """
    prefixes: set[str] = set()
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
        prefixes.update(prefix for root in roots for prefix in own.shared_with(root, inside=True))
    return _below(prefixes, paths)


def _below(prefixes: Collection[str], paths: pa.ChunkedArray) -> pa.ChunkedArray:
    names = normalize_locations(paths)
    found = pa.array([False] * len(names), pa.bool_())
    for prefix in prefixes:
        normal = normalize_locations([f"{prefix}x"])[0].as_py().removesuffix("x")
        found = pc.or_(found, pc.starts_with(names, normal))
    return pa.chunked_array([found], pa.bool_())


class _Folders:
    """Folders of a table, compared with those of others.

    Args:
        table: the table.
        folders: its folders.
    """

    def __init__(self, table: Table, folders: Sequence[str]) -> None:
        self._place = comparable(table.metadata_location)
        self._spelled = {
            comparable(folder): locations.canonical(folder).rstrip("/") for folder in folders
        }

    def contain_metadata_of_other(self, place: str) -> bool:
        """Whether a metadata file is below the folders, but not beside the table's own."""
        folder = comparable(place).rpartition("/")[0]
        is_below = any(folder.startswith(f"{own}/") for own in self._spelled)
        return is_below and folder != self._place.rpartition("/")[0]

    def shared_with(self, root: str, *, inside: bool = False) -> Iterator[str]:
        """Yield the folders of the table, as it spells them, that belong to a table with the given root.

        Args:
            root: a folder of the other table.
            inside: whether to yield only folders inside those of the table.
        """
        other = comparable(root)
        for folder, spelled in self._spelled.items():
            if other.startswith(f"{folder}/") or (other == folder and not inside):
                yield f"{spelled}{other.removeprefix(folder)}/"
            elif inside:
                continue
            elif folder.startswith(f"{other}/") and not self._place.startswith(f"{folder}/"):
                # A folder with the table's metadata file is the table's, wherever it is.
                yield f"{spelled}/"


def _names(catalog: Catalog) -> Iterator[str]:
    for namespace in namespaces_of(catalog):
        if namespace.error is not None:
            raise namespace.error
        yield from namespace.tables
