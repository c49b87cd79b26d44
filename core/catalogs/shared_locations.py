"""Tables that share a location: a file that one of them no longer references may be used by another."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from lake.core import locations
from lake.core.catalogs.errors import catalog_errors
from lake.core.errors import NotFoundError, RefusedError
from lake.core.metadata.files import parse
from lake.core.options import Option

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

    from lake.core.catalogs.catalog import Table


def refuse_shared_location(table: Table) -> None:
    """Refuse to delete files of a table that shares its location with another, such as a table under two names.

    Only database catalogs are checked: other catalogs return locations for one table at a time.

    Raises:
        RefusedError: another table shares the location.
    """
    found = sorted(
        name
        for name, other in _tables_sharing_location(table)
        if _is_in_place_of(table.metadata, other)
    )
    if found:
        raise RefusedError(
            f"{table.identifier} shares its folder with {', '.join(found[:3])}, "
            "which may still use the files that would be deleted",
            hint=f"with {Option.KEEP_FILES} no file is deleted; if one table has two names, drop one of them",
        )


def _is_in_place_of(own: TableMetadata, other: TableMetadata) -> bool:
    return own.table_uuid == other.table_uuid or _same(own.location) == _same(other.location)


def _tables_sharing_location(table: Table) -> Iterator[tuple[str, TableMetadata]]:
    """Yield the other tables whose metadata is in the folder of the table's metadata."""
    here = posixpath.dirname(_same(table.metadata_location))
    for name, place in table.catalog.metadata_locations():
        if name != table.identifier and posixpath.dirname(_same(place)) == here:
            # A table without metadata does not use any file.
            with suppress(NotFoundError), catalog_errors(f"table {name}", table.catalog):
                yield name, parse(table.storage.read(place), place)


def _same(location: str) -> str:
    return locations.folded(location).rstrip("/")
