"""Tables that lie in one folder: what one of them forgets, the other may need."""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING

from lake.core import paths
from lake.core.errors import BadInputError, RefusedError
from lake.core.table.opening import catalog_errors

if TYPE_CHECKING:
    from lake.core.table.catalog import Table


def refuse_neighbours(table: Table) -> None:
    """Refuse to delete files of a table whose folder is another one's too, such as one under two names.

    Only catalogs in databases are asked: others tell where a table lies one by one.

    Raises:
        RefusedError: there is such a table.
    """
    here = _folder(table.metadata_location)
    others = sorted(
        name
        for name, place in _tables(table)
        if name != table.identifier and _folder(place) == here
    )
    if others:
        raise RefusedError(
            f"{table.identifier} shares its folder with {', '.join(others[:3])}, "
            "which may need what it no longer does",
            hint="--keep-files deletes nothing; a table with two names should lose one of them",
        )


def _tables(table: Table) -> list[tuple[str, str]]:
    """Return name and metadata file of all tables of a database; those of other catalogs in it are named so."""
    handle = table.catalog.handle
    engine = getattr(handle, "engine", None)
    if engine is None:
        return []
    from pyiceberg.catalog.sql import IcebergTables  # noqa: PLC0415 - such a catalog loaded it
    from sqlalchemy import select  # noqa: PLC0415

    columns = (
        IcebergTables.catalog_name,
        IcebergTables.table_namespace,
        IcebergTables.table_name,
        IcebergTables.metadata_location,
    )
    with catalog_errors(f"catalog {table.catalog.name}"), engine.connect() as connection:
        rows = connection.execute(select(*columns)).all()
    return [
        (f"{space}.{name}" if catalog == handle.name else f"{space}.{name} of {catalog}", place)
        for catalog, space, name, place in rows
        if place
    ]


def _folder(location: str) -> str:
    try:
        return posixpath.dirname(paths.canonical(location))
    except BadInputError:
        return location
