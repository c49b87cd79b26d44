"""The files of expired snapshots that are the table's own to delete."""

from __future__ import annotations

from functools import reduce
from itertools import product
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lake.core import locations as paths
from lake.core.catalogs.catalog import Table
from lake.core.expiration.nested_tables import FOLDERS, NestedTables
from lake.core.metadata import files as metadata_files
from lake.core.session import Session
from lake.core.storage.location_columns import normalize_locations

# Characters that every reader takes as they are, and the parts of a path that may mean another one.
_PLAIN, _HIDDEN = r"^[A-Za-z0-9_=+,@:~%/. -]*$", "/."
# Names that table metadata may have; see `metadata_files.is_metadata_name`.
_TELLING = r"(?i)\.metadata\.json|version-hint"


def own_files(table: Table, files: pa.Table) -> pa.Table:
    """Return those files that are the table's own to delete, and not table metadata."""
    usual = _usual(table, files["path"])
    if pc.all(usual, min_count=0).as_py():
        return files
    nested = NestedTables(table.storage, table.roots)
    mask = [
        plain or _may_go(table, nested, path)
        for plain, path in zip(usual.to_pylist(), files["path"].to_pylist(), strict=True)
    ]
    return files.filter(pa.array(mask, pa.bool_()))


def warn_of_others(session: Session, count: int) -> None:
    """Warn of files that only expired snapshots reach and that are not the table's own."""
    if count:
        session.warn(
            f"{count} files lie outside the table's own folders, or in another's within them, or are its "
            "metadata, and are not deleted"
        )


def _usual(table: Table, locations: Any) -> pa.Array:
    """Return which locations plainly satisfy `_may_go`: most do, and a look at each would take long."""
    names = normalize_locations(locations)
    found = pa.array([False] * len(names), pa.bool_())
    for root, folder in product(table.roots, FOLDERS):
        prefix = normalize_locations([f"{root.rstrip('/')}/{folder}/"])[0].as_py()
        if not paths.deletable(f"{prefix}x", table.roots):
            continue
        plain = pc.starts_with(names, prefix)
        for name in FOLDERS:
            # One more could be a table within this one.
            count = pc.count_substring(names, f"/{name}/")
            plain = pc.and_(plain, pc.equal(count, prefix.count(f"/{name}/")))
        found = pc.or_(found, plain)
    current = table.metadata_location.rsplit("/", 1)[-1]
    odd = [
        pc.invert(pc.match_substring_regex(names, _PLAIN)),
        pc.match_substring(names, _HIDDEN),
        pc.match_substring_regex(names, _TELLING),
        pc.match_substring(names, current),
    ]
    return pc.and_(found, pc.invert(reduce(pc.or_, odd)))


def _may_go(table: Table, nested: NestedTables, path: str) -> bool:
    """Whether a file that snapshots name is the table's own, and none of those that tell what the table is."""
    return (
        paths.deletable(path, table.roots)
        and not metadata_files.is_metadata_name(path)
        and path.rsplit("/", 1)[-1] != table.metadata_location.rsplit("/", 1)[-1]
        and not nested.owns(path)
    )
