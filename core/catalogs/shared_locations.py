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

    from lake.core.catalogs.catalog import Catalog, Table
    from lake.core.storage.storage import Storage


def refuse_shared_location(table: Table) -> None:
    """Refuse to delete files of a table that shares its location with another, such as a table under two names.

    Only database catalogs are checked: other catalogs return locations for one table at a time.

    Raises:
        RefusedError: another table shares the location.
    """
    catalog, place = table.catalog, table.metadata_location
    found = names_of_table(catalog, table.metadata, place, table.storage, table.identifier)
    if found:
        raise RefusedError(
            f"{table.identifier} shares its folder with {', '.join(found[:3])}, "
            "which may still use the files that would be deleted",
            hint=f"with {Option.KEEP_FILES} no file is deleted; if one table has two names, drop one of them",
        )


def names_of_table(
    catalog: Catalog,
    metadata: TableMetadata,
    metadata_location: str,
    storage: Storage,
    own_name: str | None = None,
) -> list[str]:
    """Return the names of the tables in a database catalog that are a table, or are in its place.

    Args:
        catalog: the catalog; one that is not a database returns no names.
        metadata: the table's metadata.
        metadata_location: the location of its metadata file.
        storage: the storage that contains it.
        own_name: the table's own name, which is left out.
    """
    return sorted(
        name
        for name, other in _tables_sharing_location(catalog, metadata_location, storage)
        if name != own_name and _is_in_place_of(metadata, other)
    )


def _is_in_place_of(own: TableMetadata, other: TableMetadata) -> bool:
    return own.table_uuid == other.table_uuid or _same(own.location) == _same(other.location)


def _tables_sharing_location(
    catalog: Catalog, metadata_location: str, storage: Storage
) -> Iterator[tuple[str, TableMetadata]]:
    """Yield the tables whose metadata is in the folder of a metadata file."""
    here = posixpath.dirname(_same(metadata_location))
    for name, place in catalog.metadata_locations():
        if posixpath.dirname(_same(place)) == here:
            # A table without metadata does not use any file.
            with suppress(NotFoundError), catalog_errors(f"table {name}", catalog):
                yield name, parse(storage.read(place), place)


def _same(location: str) -> str:
    return locations.folded(location).rstrip("/")
