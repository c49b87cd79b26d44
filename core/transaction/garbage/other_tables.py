"""The folders of the other tables of a catalog: commands that look for files to delete spare these folders.

Only metadata shows that a table writes into the folder of another one, so the metadata of all tables is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa

from lake.core.base.errors import (
    TRANSIENT_ERRORS,
    LakeError,
    NotATableError,
    NotFoundError,
    RefusedError,
)
from lake.core.base.locations import store_of
from lake.core.base.options import Option
from lake.core.io.work_ahead import looked_up
from lake.core.table.catalogs.errors import catalog_errors
from lake.core.table.catalogs.names import namespaces_of, unaddressable_error
from lake.core.table.metadata.files import parse
from lake.core.table.metadata.folders import Folders, place_of
from lake.core.table.metadata.roots import roots_of

if TYPE_CHECKING:
    from lake.core.table.catalogs.catalog import Catalog, Table
    from lake.core.transaction.session import Session

_THREADS = 16


@dataclass(frozen=True, slots=True)
class _Entry:
    """Another table: its name, its metadata file if the catalog lists it, and its folders.

    Args:
        name: its name.
        place: the location of its metadata file; None if only the catalog knows it.
        folders: its folders; for a table that cannot be read, those that the location of its metadata file shows.
        problem: why it cannot be read; None if it was read.
        is_near: whether its files may be in the table's store.
    """

    name: str
    place: str | None
    folders: Sequence[str]
    problem: LakeError | None = None
    is_near: bool = True


class OtherTables:
    """The folders of a catalog's other tables in the folders of a table, read once when they are needed.

    Tables of other catalogs in the same database are among them.

    Args:
        session: the session of the invocation.
        table: the table.
        more: further folders that the user named.
        must_read: whether a table that cannot be read and may own files in the folders is an error; otherwise a
            warning counts it.
    """

    def __init__(
        self, session: Session, table: Table, more: Sequence[str] = (), *, must_read: bool = False
    ) -> None:
        self._session = session
        self._table = table
        self._more = more
        self._must_read = must_read

    def own(self, paths: pa.ChunkedArray) -> pa.ChunkedArray:
        """Return which files are in a folder of another table.

        Raises:
            StorageError: the catalog or a storage fails.
            TimedOutError: the catalog or a storage is too busy or cannot be reached.
            RefusedError: a table must be read and cannot.
        """
        return self._folders.mask(paths) if len(paths) else pa.chunked_array([], pa.bool_())

    @cached_property
    def _folders(self) -> Folders:
        table = self._table
        own = Folders([*table.roots, *self._more])
        shared: set[str] = set()
        unread: list[_Entry] = []
        try:
            for entry in _entries(table, unread, self._session.roots_read):
                shared.update(own.shared_with(entry.folders, table.metadata_location))
        except TRANSIENT_ERRORS:
            raise
        except LakeError as error:
            unread.append(_Entry(f"catalog {table.catalog.name}", None, (), error))
        for entry in unread:
            shared.update(_shown(own, entry, table.metadata_location))
        self._report(unread)
        return Folders(shared)

    def _report(self, unread: Sequence[_Entry]) -> None:
        near = [entry for entry in unread if entry.is_near and entry.problem is not None]
        if self._must_read and near:  # check: other-tables-readable
            first = min(near, key=lambda entry: entry.name)
            why = first.problem.message if first.problem else ""
            more = f" and {len(near) - 1} others" if near[1:] else ""
            raise RefusedError(
                f"{first.name}{more} cannot be read, and may own files in the folders of "
                f"{self._table.identifier}: {why}",
                hint="repair or drop what cannot be read; if none of its files are there, "
                f"{Option.IGNORE_UNREADABLE} goes on without it",
            )
        failed = [entry for entry in unread if entry.problem is not None]
        if failed:
            self._session.warn(
                f"not all other tables can be read ({len(failed)} failures, e.g. "
                f"{min(entry.name for entry in failed)}): files of theirs in the folders of "
                f"{self._table.identifier} are not recognized"
            )


def _shown(own: Folders, entry: _Entry, owned: str) -> Iterator[str]:
    """Yield the folders inside those of a table that the location of an unread table's metadata file shows."""
    if entry.place is None:
        return
    folder = place_of(entry.place).rpartition("/")[0]
    if (
        folder != place_of(owned).rpartition("/")[0]
        and folder not in own.places
        and own.contain(folder)
    ):
        yield folder
        above = folder.rpartition("/")[0]
        if entry.problem is not None and above not in own.places and own.contain(above):
            yield above


def _entries(
    table: Table, unread: list[_Entry], known: dict[str, Sequence[str]]
) -> Iterator[_Entry]:
    """Yield the catalog's other tables, and those of other catalogs in the same database.

    Args:
        table: the table.
        unread: receives the tables and namespaces that cannot be read for a reason that stays, or that are in another
            store, and without a problem the tables that have no metadata.
        known: the roots in metadata files that were read before, by the locations of the files. Files that were read
            are added, and those that the catalog does not list any more are removed.

    Raises:
        LakeError: the catalog, a namespace or a table near the given one cannot be read now.
    """
    catalog = table.catalog
    stores = {store_of(root) for root in table.roots}

    def read(listed: tuple[str, str | None]) -> _Entry:
        name, place = listed
        try:
            with catalog_errors(f"table {name}", catalog):
                if place is None:
                    return _Entry(name, None, roots_of(catalog.load(name).metadata))
                known[place] = roots_of(parse(table.storage.read(place), place))
                return _Entry(name, place, known[place])
        except (NotFoundError, NotATableError):
            # A table without metadata does not use any file.
            unread.append(_Entry(f"table {name}", place, ()))
        except LakeError as error:
            is_near = place is None or store_of(place) in stores
            if isinstance(error, TRANSIENT_ERRORS) and is_near:  # check: transient-failure-of-table
                raise type(error)(
                    f"table {name} cannot be read: {error.message}",
                    hint=f"its files may be in the folders of {table.identifier}; run the command again, or drop "
                    f"{name} if it is not needed",
                ) from error
            unread.append(_Entry(f"table {name}", place, (), error, is_near))
        return _Entry(name, place, ())

    places = catalog.metadata_locations()
    for gone in known.keys() - {place for _, place in places}:
        del known[gone]
    listed: Iterator[tuple[str, str | None]] = (
        iter(places) if places else ((name, None) for name in _names(catalog, unread))
    )
    others = [entry for entry in listed if entry[0] != table.identifier]
    unknown = list[tuple[str, str | None]]()
    for name, place in others:
        # A metadata file does not change.
        if place is not None and place in known:
            yield _Entry(name, place, known[place])
        else:
            unknown.append((name, place))
    yield from looked_up(read, unknown, _THREADS)


def table_of_file(table: Table, paths: Iterable[str]) -> tuple[str, str] | None:
    """Return the first file that is in a folder of another table of the catalog, and the folder; None if none is.

    Tables that cannot be read for a reason that stays are left out.

    Raises:
        StorageError: the catalog or a storage fails.
        TimedOutError: the catalog or a storage is too busy or cannot be reached.
    """
    places = {place_of(path.rpartition("/")[0]): path for path in paths}
    try:
        for entry in _entries(table, [], {}):
            for folder in entry.folders:
                other = Folders([folder])
                for place, path in places.items():
                    if other.contain(place):
                        return path, folder
    except TRANSIENT_ERRORS:
        raise
    except LakeError:
        # The catalog does not list its tables.
        return None
    return None


def _names(catalog: Catalog, unread: list[_Entry]) -> Iterator[str]:
    """Yield the names of a catalog's tables; for ``unread`` see `_entries`."""
    try:
        for namespace in namespaces_of(catalog):
            error = namespace.error
            # check: transient-failure-of-namespace
            if error is None or isinstance(error, TRANSIENT_ERRORS):
                yield from namespace.listed()
                # Their files may be in the folders of any table.
                unread += [
                    _Entry(f"table {name}", None, (), unaddressable_error(name))
                    for name in sorted(namespace.unaddressable)
                ]
            else:
                # check: next-namespaces
                unread.append(_Entry(f"namespace {namespace.name}", None, (), error))
    except NotImplementedError as error:
        raise RefusedError(f"catalog {catalog.name} does not list its tables") from error
