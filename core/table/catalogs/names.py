"""List the namespaces, tables and views of a catalog by name; no table is loaded."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from pyiceberg.exceptions import NoSuchNamespaceError, RESTError

from lake.core.base import locations
from lake.core.base.errors import (
    TRANSIENT_ERRORS,
    BadInputError,
    LakeError,
    NotFoundError,
    SilentError,
    TimedOutError,
)
from lake.core.base.options import Option
from lake.core.io.work_ahead import looked_up
from lake.core.table.catalogs.errors import catalog_errors
from lake.core.table.catalogs.patterns import matches, may_match

if TYPE_CHECKING:
    from lake.core.table.catalogs.catalog import Catalog, Table

# Deeper namespaces are not listed: a server might nest them without an end.
_DEEPEST = 16
# A table is searched by its UUID among this many: each of them is read.
_MOST_SEARCHED = 50
# Names are compared with this many at most: each comparison takes some microseconds.
_MOST_COMPARED = 20_000
# The tables that one list of warnings names.
_MOST_NAMED = 10
# The namespaces that are listed at a time.
_THREADS = 8
# A catalog that gave no answer so often in a row is not asked for the rest. It may be slow for a few tables only.
_MOST_UNANSWERED = 16


@dataclass(frozen=True, slots=True)
class Namespace:
    """A namespace and the full names in it, sorted.

    Args:
        name: its name; levels are separated by dots.
        tables: its tables.
        views: its views; empty if the catalog does not list views.
        error: why its tables, or the namespaces in it, cannot be listed; None if they are.
        unaddressable: those of its tables whose names no command can have: a part of the name contains a dot.
    """

    name: str
    tables: tuple[str, ...] = ()
    views: tuple[str, ...] = ()
    error: LakeError | None = None
    unaddressable: frozenset[str] = frozenset()

    def listed(self) -> tuple[str, ...]:
        """Return its tables.

        Raises:
            LakeError: they, or the namespaces in it, cannot be listed.
        """
        if self.error is not None:
            raise self.error
        return self.tables


class Answers:
    """Whether a catalog answers, for threads that ask it for one table or namespace after the other.

    Each request without an answer takes as long as its time limits, and there may be thousands.
    """

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._unanswered = 0

    @contextmanager
    def of(self, what: str) -> Iterator[None]:
        """Ask for something in a block.

        Raises:
            TimedOutError: the catalog did not answer before, so it is not asked.
        """
        if self._unanswered >= _MOST_UNANSWERED:
            raise TimedOutError(
                f"{what} was not asked for: catalog {self._catalog.name} did not answer the {_MOST_UNANSWERED} "
                "requests before",
                hint="run the command again when the server of the catalog answers",
            )
        try:
            yield
        except SilentError:
            self._unanswered += 1
            raise
        except LakeError:
            self._unanswered = 0
            raise
        self._unanswered = 0

    def load_listed(self, name: str) -> Table | None:
        """Return a table that was listed, see `load_listed`."""
        with self.of(f"table {name}"):
            return load_listed(self._catalog, name)


def known_names(spaces: Sequence[Namespace]) -> Sequence[str]:
    """Return the names of tables and namespaces, and the globs of namespaces, that a pattern is compared with."""
    known = [text for space in spaces for text in (space.name, f"{space.name}.*")]
    names = [name for space in spaces for name in space.tables]
    if len(names) <= _MOST_COMPARED:
        known = [*names, *known]
    return known[:_MOST_COMPARED]


def unaddressable_error(name: str) -> BadInputError:
    """Return the error for a table that is listed, and that no command can name."""
    return BadInputError(
        f"no command can name the table {name}: a dot is within a part of its name",
        hint="rename it with the program that made it",
    )


def unaddressable_warnings(spaces: Iterable[Namespace], patterns: Sequence[str]) -> Iterator[str]:
    """Yield a sentence for each of the first tables that no command can name, and one for the others.

    Args:
        spaces: the namespaces that were listed.
        patterns: names, globs and namespaces; none for all tables.
    """
    found = [
        name
        for space in spaces
        for name in sorted(space.unaddressable)
        if not patterns or any(matches(name, space.name, pattern) for pattern in patterns)
    ]
    for name in found[:_MOST_NAMED]:
        yield unaddressable_error(name).message
    if (more := len(found) - _MOST_NAMED) > 0:
        yield f"no command can name {more:,} more tables with such names"


def load_listed(catalog: Catalog, name: str) -> Table | None:
    """Return a table that was listed; None if it was dropped meanwhile.

    Raises:
        NotATableError: it is a view.
        NotFoundError: the catalog still lists it, but its metadata file is missing.
        LakeError: it cannot be read.
    """
    try:
        return catalog.load(name)
    except NotFoundError:
        if is_listed(catalog, name):
            raise
        return None


def require_existing(catalog: Catalog) -> None:
    """Check that a catalog of files exists: reading a warehouse that was misspelt must not find it empty.

    Raises:
        NotFoundError: its database does not exist, or the folder that contains its tables.
    """
    place = catalog.database
    if place is None and not catalog.has_entries:
        folder = locations.parse(str(catalog.configured.get("warehouse", "")))
        place = folder.path if folder.is_local else None
    if place is None or os.path.exists(place):
        return
    folder_name = place if catalog.database is None else os.path.dirname(place)
    missing = (
        f"{folder_name} contains no catalog ({os.path.basename(place)})"
        if os.path.isdir(folder_name)
        else f"there is no folder {folder_name}"
    )
    raise NotFoundError(
        f"catalog {catalog.name} does not exist: {missing}",
        hint=f"check {Option.WAREHOUSE} and {Option.CATALOG}; a load with {Option.CREATE} makes a new one",
    )


def namespaces_of(
    catalog: Catalog, patterns: Sequence[str | None] = (None,)
) -> Iterator[Namespace]:
    """Yield all namespaces of a catalog, each before those in it. A catalog in SQLite is not created.

    Several are listed at a time: a server may be far away.

    Args:
        catalog: the catalog.
        patterns: what the caller looks for. The tables of a namespace from which none can select are left out.

    Raises:
        LakeError: the catalog cannot be opened, or does not list its namespaces.
    """
    if catalog.database is not None and not os.path.exists(catalog.database):
        return
    with catalog_errors(f"catalog {catalog.name}", catalog):
        level = set(catalog.handle.list_namespaces())
    found: dict[tuple[str, ...], Namespace] = {}
    list_one = partial(_listed, catalog, Answers(catalog), patterns)
    while level := level - found.keys():
        listed = dict(zip(level, looked_up(list_one, level, _THREADS), strict=True))
        found |= {names: space for names, (space, _) in listed.items()}
        level = {name for _, children in listed.values() for name in children}
    for names in sorted(found):
        yield found[names]


def _listed(
    catalog: Catalog,
    answers: Answers,
    patterns: Sequence[str | None],
    names: tuple[str, ...],
) -> tuple[Namespace, set[tuple[str, ...]]]:
    """Return a namespace and the names of those in it."""
    name = ".".join(names)
    if not any(may_match(name, pattern) for pattern in patterns):
        return Namespace(name), set()
    try:
        with answers.of(f"namespace {name}"), catalog_errors(f"namespace {name}", catalog):
            # A database may contain other values than texts.
            found = [tuple(map(str, table)) for table in catalog.handle.list_tables(names)]
            tables = {".".join(parts) for parts in found}
            views = _views(catalog, names)
    except LakeError as error:
        return Namespace(name, error=error), set()
    # Some catalogs list views among the tables.
    space = Namespace(
        name,
        tuple(sorted(tables - views)),
        tuple(sorted(views)),
        unaddressable=frozenset(
            ".".join(parts) for parts in found if any("." in part for part in parts)
        )
        - views,
    )
    try:
        return space, _children(catalog, names) if len(names) < _DEEPEST else set()
    except TRANSIENT_ERRORS as error:
        return replace(space, error=error), set()


def _views(catalog: Catalog, names: tuple[str, ...]) -> set[str]:
    try:
        return {".".join(map(str, view)) for view in catalog.handle.list_views(names)}
    except (NotImplementedError, RESTError):
        # A catalog may not support views, or may not allow every user to list them.
        return set()


def _children(catalog: Catalog, names: tuple[str, ...]) -> set[tuple[str, ...]]:
    """Return the namespaces in a namespace; none if the catalog has only one level, or refuses to list them.

    Raises:
        StorageError: the catalog fails.
        TimedOutError: the catalog is too busy or cannot be reached.
    """
    try:
        with catalog_errors(f"namespace {'.'.join(names)}", catalog):
            found = catalog.handle.list_namespaces(names)
    except TRANSIENT_ERRORS:  # check: transient-failure-of-inner-namespaces
        raise
    except (LakeError, NoSuchNamespaceError, NotImplementedError):
        return set()
    # Some catalogs answer with names relative to the namespace, or with all namespaces.
    return {
        tuple(child) for child in found if len(child) > len(names) and child[: len(names)] == names
    }


def is_listed(catalog: Catalog, name: str) -> bool:
    """Whether a catalog still lists a table; its metadata file may be missing.

    Raises:
        LakeError: the catalog cannot be read.
    """
    with catalog_errors(f"table {name}", catalog):
        return bool(catalog.handle.table_exists(tuple(name.split("."))))


def has_namespace(catalog: Catalog, name: str) -> bool:
    """Whether a namespace exists.

    Raises:
        LakeError: the catalog cannot be read.
    """
    with catalog_errors(f"namespace {name}", catalog):
        return bool(catalog.handle.namespace_exists(tuple(name.split("."))))


def name_of(catalog: Catalog, uuid: str) -> str | None:
    """Return the name of the table with a UUID; None if it is not found among a few tables that the catalog lists."""
    try:
        listed = catalog.metadata_locations()
    except LakeError:
        return None
    # Tables of other catalogs in the same database have longer names.
    names = [name for name, _ in listed if " of " not in name]
    if len(names) > _MOST_SEARCHED:
        return None
    for name in names:
        with suppress(LakeError):
            if str(catalog.load(name).metadata.table_uuid) == uuid:
                return name
    return None


def renamed_error(identifier: str, uuid: str, name: str) -> NotFoundError:
    """Return the error for a table that has another name now."""
    return NotFoundError(
        f"table {identifier} does not exist: the table with the UUID {uuid} has the name {name} now",
        hint=f"give the name {name}: the position belongs to the UUID, and the run goes on",
    )


def with_new_name(
    error: NotFoundError, catalog: Catalog, identifier: str, uuid: str
) -> NotFoundError:
    """Return the error for a missing table whose UUID is known, with the table's name now if it is found."""
    if name := name_of(catalog, uuid):
        return renamed_error(identifier, uuid, name)
    return NotFoundError(
        error.message,
        hint="if the table was renamed, give its new name: the position belongs to the UUID "
        f"{uuid}, and the run goes on",
    )
