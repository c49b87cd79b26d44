"""List the namespaces, tables and views of a catalog by name; no table is loaded."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyiceberg.exceptions import NoSuchNamespaceError, RESTError

from lake.core.catalogs.errors import catalog_errors
from lake.core.errors import TRANSIENT_ERRORS, LakeError

if TYPE_CHECKING:
    from lake.core.catalogs.catalog import Catalog

# Deeper namespaces are not listed: a server might nest them without an end.
_DEEPEST = 16


@dataclass(frozen=True, slots=True)
class Namespace:
    """A namespace and the full names in it, sorted.

    Args:
        name: its name; levels are separated by dots.
        tables: its tables.
        views: its views; empty if the catalog does not list views.
        error: why its tables, or the namespaces in it, cannot be listed; None if they are.
    """

    name: str
    tables: tuple[str, ...] = ()
    views: tuple[str, ...] = ()
    error: LakeError | None = None

    def listed(self) -> tuple[str, ...]:
        """Return its tables.

        Raises:
            LakeError: they, or the namespaces in it, cannot be listed.
        """
        if self.error is not None:
            raise self.error
        return self.tables


def namespaces_of(catalog: Catalog) -> Iterator[Namespace]:
    """Yield all namespaces of a catalog, each before those in it. A catalog in SQLite is not created.

    Raises:
        LakeError: the catalog cannot be opened, or does not list its namespaces.
    """
    if catalog.database is not None and not os.path.exists(catalog.database):
        return
    with catalog_errors(f"catalog {catalog.name}", catalog):
        pending = sorted(set(catalog.handle.list_namespaces()), reverse=True)
    while pending:
        names = pending.pop()
        found = _listed(catalog, names)
        if found.error is None and len(names) < _DEEPEST:
            try:
                pending += sorted(_children(catalog, names), reverse=True)
            except TRANSIENT_ERRORS as error:
                found = replace(found, error=error)
        yield found


def _listed(catalog: Catalog, names: tuple[str, ...]) -> Namespace:
    name = ".".join(names)
    try:
        with catalog_errors(f"namespace {name}", catalog):
            # A database may contain other values than texts.
            tables = {".".join(map(str, table)) for table in catalog.handle.list_tables(names)}
            views = _views(catalog, names)
    except LakeError as error:
        return Namespace(name, error=error)
    # Some catalogs list views among the tables.
    return Namespace(name, tuple(sorted(tables - views)), tuple(sorted(views)))


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
    except TRANSIENT_ERRORS:
        raise
    except (LakeError, NoSuchNamespaceError, NotImplementedError):
        return set()
    # Some catalogs answer with names relative to the namespace, or with all namespaces.
    return {
        tuple(child) for child in found if len(child) > len(names) and child[: len(names)] == names
    }
