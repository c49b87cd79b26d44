"""Which live files of a parent snapshot a commit removes, and which it counts on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from lake.core.errors import ConflictingFilesError, RefusedError
from lake.core.table import validation
from lake.core.table.delete_scopes import PUFFIN, referenced_paths
from lake.core.table.files import DATA, POSITION_DELETES, DataFile
from lake.core.table.manifest_schemas import DELETED
from lake.core.table.manifests import read_manifest
from lake.core.table.operations import DeleteKey

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

    from lake.core.table.storage import Storage

# Deletion vectors came with format version 3, and took the place of position delete files.
_VECTORS_SINCE = 3
_AGAIN = "run the command again"


@dataclass(frozen=True, slots=True)
class Removal:
    """What goes from the live entries.

    Args:
        paths: data files; the delete files that are for one of them alone go too.
        deletes: delete files.
    """

    paths: frozenset[str] = frozenset()
    deletes: frozenset[DeleteKey] = frozenset()

    columns = (
        "status",
        "content",
        "file_path",
        "content_offset",
        "referenced_data_file",
        "lower_bounds",
        "upper_bounds",
    )

    def __bool__(self) -> bool:
        return bool(self.paths or self.deletes)

    def hits(self, entries: pa.Table) -> pa.Array:
        """Return for each entry (with at least `columns`) whether it goes."""
        is_data = pc.equal(entries["content"], DATA)
        by_path = pc.is_in(entries["file_path"], value_set=_texts(self.paths))
        for_one = pc.is_in(
            referenced_paths(entries), value_set=_texts(self.paths, pa.large_binary())
        )
        by_key = pa.array(_keyed(entries, self.deletes), pa.bool_())
        return pc.if_else(is_data, by_path, pc.or_(for_one, by_key))


def find_live(
    storage: Storage, metadata: TableMetadata, current: pa.Table, wanted: frozenset[str]
) -> dict[str, validation.Partition]:
    """Return where (spec, partition) data files lie among the live ones of a manifest list.

    Raises:
        ConflictingFilesError: some are no longer live.
    """
    values = _texts(wanted)
    found: dict[str, validation.Partition] = {}
    columns = ["status", "file_path", "partition"]
    for row in _manifests(current, data=True) if wanted else ():
        entries = _live(read_manifest(storage, row, metadata, columns=columns))
        hits = entries.filter(pc.is_in(entries["file_path"], value_set=values))
        found.update(zip(hits["file_path"].to_pylist(), validation.places(hits), strict=True))
    missing = wanted - found.keys()
    if missing:
        some = ", ".join(sorted(missing)[:3])
        raise ConflictingFilesError(
            f"{len(missing)} files that the change counts on are no longer in the table: {some}",
            frozenset(missing),
            hint=_AGAIN,
        )
    return found


def check_deletes(
    storage: Storage,
    metadata: TableMetadata,
    current: pa.Table,
    added: Sequence[DataFile],
    replaced: frozenset[DeleteKey],
) -> None:
    """Check that a table may get delete files, that those they replace are live, and no vector gets a twin.

    Raises:
        RefusedError: the table's format version has no such delete files.
        ConflictingFilesError: a replaced one is gone, or another writer made a vector for the same file.
    """
    _check_version(metadata.format_version, added)
    vectors = frozenset(
        file.referenced_data_file
        for file in added
        if file.format == PUFFIN and file.referenced_data_file is not None
    )
    if not (vectors or replaced):
        return
    live: set[DeleteKey] = set()
    twins: set[str] = set()
    for row in _manifests(current, data=False):
        columns = (*Removal.columns, "file_format")
        entries = _live(read_manifest(storage, row, metadata, columns=columns))
        mine = pa.array(_keyed(entries, replaced), pa.bool_())
        live.update(_keys(entries.filter(mine)))
        others = entries.filter(pc.and_(pc.invert(mine), pc.equal(entries["file_format"], PUFFIN)))
        twins |= vectors & set(others["referenced_data_file"].to_pylist())
    if twins or replaced - live:
        touched = frozenset(twins) or vectors
        raise ConflictingFilesError(
            f"other deletes were committed meanwhile for {', '.join(sorted(touched)[:3])}",
            touched,
            hint=_AGAIN,
        )


def _check_version(version: int, added: Sequence[DataFile]) -> None:
    if version == 1 and added:
        raise RefusedError(
            "a table of format version 1 has no row-level deletes",
            hint="upgrade the table to format version 2, or rewrite whole files",
        )
    for file in added:
        is_vector = file.format == PUFFIN
        if file.content == POSITION_DELETES and is_vector != (version >= _VECTORS_SINCE):
            kind = "deletion vectors" if is_vector else "position delete files"
            raise RefusedError(f"a table of format version {version} takes no new {kind}")


def _manifests(current: pa.Table, *, data: bool) -> list[dict[str, object]]:
    return [row for row in current.to_pylist() if (row["content"] == DATA) == data]


def _live(entries: pa.Table) -> pa.Table:
    return entries.filter(pc.not_equal(entries["status"], DELETED))


def _keys(entries: pa.Table) -> list[DeleteKey]:
    columns = (entries["file_path"].to_pylist(), entries["content_offset"].to_pylist())
    return [DeleteKey(path, offset) for path, offset in zip(*columns, strict=True)]


def _keyed(entries: pa.Table, wanted: frozenset[DeleteKey]) -> list[bool]:
    if not wanted:
        return [False] * entries.num_rows
    return [key in wanted for key in _keys(entries)]


def _texts(values: frozenset[str], kind: pa.DataType | None = None) -> pa.Array:
    return pa.array(sorted(values), pa.string()).cast(kind or pa.string())
