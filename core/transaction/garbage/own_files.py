"""The files of expired snapshots that are the table's own to delete."""

from __future__ import annotations

from functools import reduce
from itertools import product
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lake.core.base import locations as paths
from lake.core.io.storage.location_columns import normalize_locations
from lake.core.table.catalogs.catalog import Table
from lake.core.table.metadata import files as metadata_files
from lake.core.transaction.garbage.nested_tables import FOLDERS, NestedTables
from lake.core.transaction.garbage.other_tables import OtherTables
from lake.core.transaction.session import Session

# Characters that every reader takes literally, and a part of a path that may refer to another path.
_PLAIN, _HIDDEN = r"^[A-Za-z0-9_=+,@:~%/. -]*$", "/."
# Names that table metadata may have; see `metadata_files.is_metadata_name`.
_METADATA = r"(?i)\.metadata\.json|version-hint"


def own_files(table: Table, files: pa.Table, others: OtherTables) -> pa.Table:
    """Return the files that belong to the table and are not table metadata.

    Raises:
        LakeError: see `OtherTables.own`.
    """
    found = in_own_folders(table, files)
    return found.filter(pc.invert(others.own(found["path"])))  # check: owned-by-other-tables


def in_own_folders(table: Table, files: pa.Table) -> pa.Table:
    """Return the files in the table's folders that are neither table metadata nor in a table nested there."""
    if not files.num_rows:
        return files
    obvious = _obviously_own(table, files["path"])
    if pc.all(obvious, min_count=0).as_py():
        return files
    nested = NestedTables(table.storage, table.roots)
    mask = [
        plain or _may_delete(table, nested, path)
        for plain, path in zip(obvious.to_pylist(), files["path"].to_pylist(), strict=True)
    ]
    return files.filter(pa.array(mask, pa.bool_()))


def warn_of_others(session: Session, count: int) -> None:
    """Warn about files that only expired snapshots reference and that do not belong to the table."""
    if count:
        session.warn(
            f"{count} files are not deleted, because they are outside the table's folders, in a nested "
            "table's folders, or table metadata"
        )


def _obviously_own(table: Table, locations: Any) -> pa.Array:
    """Return which locations obviously satisfy `_may_delete`. Most do, and a check of each is slow."""
    names = normalize_locations(locations)
    found = pa.array([False] * len(names), pa.bool_())
    for root, folder in product(table.roots, FOLDERS):
        prefix = normalize_locations([f"{root.rstrip('/')}/{folder}/"])[0].as_py()
        if not paths.deletable(f"{prefix}x", table.roots):
            continue
        plain = pc.starts_with(names, prefix)
        for name in FOLDERS:
            # Another such part could belong to a nested table.
            count = pc.count_substring(names, f"/{name}/")
            plain = pc.and_(plain, pc.equal(count, prefix.count(f"/{name}/")))
        found = pc.or_(found, plain)
    current = table.metadata_location.rsplit("/", 1)[-1]
    special = [
        pc.invert(pc.match_substring_regex(names, _PLAIN)),
        pc.match_substring(names, _HIDDEN),
        pc.ends_with(names, "/"),
        pc.match_substring_regex(names, _METADATA),
        pc.match_substring(names, current),
    ]
    return pc.and_(found, pc.invert(reduce(pc.or_, special)))


def _may_delete(table: Table, nested: NestedTables, path: str) -> bool:
    """Whether a file that snapshots reference belongs to the table and is not table metadata."""
    return (
        paths.deletable(path, table.roots)  # check: inside-own-roots
        and not metadata_files.is_metadata_name(path)  # check: metadata-by-name
        and path.rsplit("/", 1)[-1] != table.metadata_location.rsplit("/", 1)[-1]
        and not nested.owns(path)  # check: outside-nested-tables
    )
