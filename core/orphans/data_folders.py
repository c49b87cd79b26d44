"""Whether a table's data folder outside of its location belongs to it alone, as far as its catalog shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lake.core import locations
from lake.core.errors import LakeError
from lake.core.garbage.other_tables import other_tables
from lake.core.metadata.roots import roots_of

if TYPE_CHECKING:
    from lake.core.catalogs.catalog import Table


def own_data_folders(table: Table) -> list[str]:
    """Return the data folder that `write.data.path` names, unless another table may write to it.

    The metadata of all tables of the catalog is read if the folder is outside of the table's location. Tables of
    other catalogs are not known.
    """
    folder = table.data_location
    if _overlap(folder, table.metadata.location):
        return []
    try:
        others = [root for other in other_tables(table) for root in roots_of(other)]
    except LakeError:
        # Any table that cannot be read may write to the folder.
        return []
    return [] if any(_overlap(folder, root) for root in others) else [folder]


def _overlap(one: str, other: str) -> bool:
    first, second = (locations.folded(item).rstrip("/") + "/" for item in (one, other))
    return first.startswith(second) or second.startswith(first)
