"""Whether a table's data folder outside of its location belongs to it alone, as far as its catalog shows."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING

from lake.core import locations
from lake.core.catalogs.errors import catalog_errors
from lake.core.errors import LakeError, NotATableError, NotFoundError
from lake.core.inspection.names import namespaces_of
from lake.core.metadata.files import parse
from lake.core.metadata.roots import roots_of

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

    from lake.core.catalogs.catalog import Catalog, Table

_THREADS = 16


def own_data_folders(table: Table) -> list[str]:
    """Return the data folder that `write.data.path` names, unless another table may write to it.

    The metadata of all tables of the catalog is read if the folder is outside of the table's location. Tables of
    other catalogs are not known.
    """
    folder = table.data_location
    if _overlap(folder, table.metadata.location):
        return []
    try:
        others = [root for other in _other_tables(table) for root in roots_of(other)]
    except LakeError:
        # Any table that cannot be read may write to the folder.
        return []
    return [] if any(_overlap(folder, root) for root in others) else [folder]


def _overlap(one: str, other: str) -> bool:
    first, second = (locations.folded(item).rstrip("/") + "/" for item in (one, other))
    return first.startswith(second) or second.startswith(first)


def _other_tables(table: Table) -> Iterator[TableMetadata]:
    """Yield the metadata of the catalog's other tables, and of those of other catalogs in the same database.

    Raises:
        LakeError: a namespace cannot be listed, or a table cannot be read.
    """
    catalog = table.catalog

    def read(entry: tuple[str, str]) -> TableMetadata | None:
        name, place = entry
        with suppress(NotFoundError), catalog_errors(f"table {name}", catalog):
            return parse(table.storage.read(place), place)
        return None

    def load(name: str) -> TableMetadata | None:
        with suppress(NotFoundError, NotATableError):
            return catalog.load(name).metadata
        return None

    with ThreadPoolExecutor(_THREADS) as pool:
        places = catalog.metadata_locations()
        found = pool.map(read, places) if places else pool.map(load, _names(catalog))
        for metadata in found:
            if metadata is not None and metadata.table_uuid != table.metadata.table_uuid:
                yield metadata


def _names(catalog: Catalog) -> Iterator[str]:
    for namespace in namespaces_of(catalog):
        if namespace.error is not None:
            raise namespace.error
        yield from namespace.tables
