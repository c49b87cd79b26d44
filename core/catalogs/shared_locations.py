"""Tables that lie in one folder: what one of them forgets, the other may need."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from lake.core import locations
from lake.core.catalogs.errors import catalog_errors
from lake.core.errors import NotFoundError, RefusedError
from lake.core.metadata.files import parse

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

    from lake.core.catalogs.catalog import Table


def refuse_shared_location(table: Table) -> None:
    """Refuse to delete files of a table whose folder is another one's too, such as one under two names.

    Only catalogs in databases are asked: others tell where a table lies one by one.

    Raises:
        RefusedError: there is such a table.
    """
    found = sorted(
        name
        for name, other in _tables_sharing_location(table)
        if _is_in_place_of(table.metadata, other)
    )
    if found:
        raise RefusedError(
            f"{table.identifier} shares its folder with {', '.join(found[:3])}, "
            "which may need what it no longer does",
            hint="--keep-files deletes nothing; a table with two names should lose one of them",
        )


def _is_in_place_of(own: TableMetadata, other: TableMetadata) -> bool:
    return own.table_uuid == other.table_uuid or _same(own.location) == _same(other.location)


def _tables_sharing_location(table: Table) -> Iterator[tuple[str, TableMetadata]]:
    """Yield the other tables whose metadata lies where the table's does: tables may share just that."""
    here = posixpath.dirname(_same(table.metadata_location))
    for name, place in table.catalog.metadata_locations():
        if name != table.identifier and posixpath.dirname(_same(place)) == here:
            # What is not there any more needs nothing.
            with suppress(NotFoundError), catalog_errors(f"table {name}"):
                yield name, parse(table.storage.read(place), place)


def _same(location: str) -> str:
    return locations.folded(location).rstrip("/")
