"""Which live files of a parent snapshot a commit removes, and which it counts on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from lake.core.commit import conflicts
from lake.core.commit.operations import DeleteKey
from lake.core.errors import CommitConflictError, ConflictingFilesError
from lake.core.manifests.api import read_manifest
from lake.core.manifests.data_files import DATA
from lake.core.snapshots.delete_scopes import referenced_paths

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

    from lake.core.manifests.decode import Manifest
    from lake.core.storage.storage import Storage

_DELETE_COLUMNS = (
    "content",
    "file_path",
    "file_format",
    "content_offset",
    "referenced_data_file",
    "lower_bounds",
    "upper_bounds",
)
AGAIN = "run the command again"


@dataclass(frozen=True, slots=True)
class Removal:
    """What goes from the live entries.

    Args:
        paths: data files; the delete files that are for one of them alone go too.
        manifests: the data manifests in which they are.
        deletes: delete files.
    """

    paths: frozenset[str] = frozenset()
    manifests: frozenset[str] = frozenset()
    deletes: frozenset[DeleteKey] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.paths or self.deletes)

    def among(self, storage: Storage, manifest: Manifest, metadata: TableMetadata) -> bool:
        """Whether some of a manifest's live entries go; only what tells that is read of it."""
        if manifest["content"] == DATA:
            return manifest["manifest_path"] in self.manifests
        found = read_manifest(storage, manifest, metadata, columns=_DELETE_COLUMNS, live_only=True)
        return bool(pc.any(self.hits(found, is_data=False), min_count=0).as_py())

    def hits(self, entries: pa.Table, *, is_data: bool) -> pa.Array:
        """Return for each entry of a manifest of data or of delete files whether it goes."""
        if is_data:
            return pc.is_in(entries["file_path"], value_set=_texts(self.paths))
        for_one = pc.is_in(
            referenced_paths(entries), value_set=_texts(self.paths, pa.large_binary())
        )
        return pc.or_(for_one, pa.array(_keyed(entries, self.deletes), pa.bool_()))


@dataclass(frozen=True, slots=True)
class FoundFiles:
    """Live data files.

    Args:
        places: path to (spec id, partition).
        manifests: the data manifests in which they are.
    """

    places: dict[str, conflicts.Partition]
    manifests: frozenset[str]


def find_live(
    storage: Storage,
    metadata: TableMetadata,
    current: Sequence[Manifest],
    wanted: frozenset[str],
) -> FoundFiles:
    """Return where data files lie among the live ones of a manifest list.

    Raises:
        ConflictingFilesError: some are no longer live.
    """
    values = _texts(wanted)
    found: dict[str, conflicts.Partition] = {}
    manifests: set[str] = set()
    columns = ["file_path", "partition"]
    for row in manifests_of(current, data=True) if wanted else ():
        entries = read_manifest(storage, row, metadata, columns=columns, live_only=True)
        hits = entries.filter(pc.is_in(entries["file_path"], value_set=values))
        if hits.num_rows:
            manifests.add(row["manifest_path"])
            found.update(zip(hits["file_path"].to_pylist(), conflicts.places(hits), strict=True))
    missing = wanted - found.keys()
    if missing:
        some = ", ".join(sorted(missing)[:3])
        raise ConflictingFilesError(
            f"{len(missing)} files that the change counts on are no longer in the table: {some}",
            frozenset(missing),
            hint=AGAIN,
        )
    return FoundFiles(found, frozenset(manifests))


def specs_of_live(
    storage: Storage, metadata: TableMetadata, current: Sequence[Manifest], *, but: int
) -> set[int]:
    """Return the partition specs, but one, of the live data files of a manifest list."""
    found: set[int] = set()
    for row in manifests_of(current, data=True):
        spec_id = row["partition_spec_id"]
        if spec_id == but or spec_id in found:
            continue
        # A list may lack the counts; the few manifests of other specs tell.
        entries = read_manifest(storage, row, metadata, columns=["status"], live_only=True)
        if entries.num_rows:
            found.add(spec_id)
    return found


def check_sole_spec(
    storage: Storage, metadata: TableMetadata, current: Sequence[Manifest], spec_id: int
) -> None:
    """Check that all live data files have a partition spec.

    Raises:
        CommitConflictError: some have another.
    """
    others = specs_of_live(storage, metadata, current, but=spec_id)
    if others:
        raise CommitConflictError(
            f"files of other partition specs ({', '.join(map(str, sorted(others)))}) were committed "
            "meanwhile, whose rows equality deletes do not reach",
            hint=AGAIN,
        )


def manifests_of(current: Sequence[Manifest], *, data: bool) -> list[Manifest]:
    """Return a manifest list's rows that are of data files, or of delete files."""
    return [row for row in current if (row["content"] == DATA) == data]


def keys_of(entries: pa.Table) -> list[DeleteKey]:
    """Return the names of delete files."""
    columns = (entries["file_path"].to_pylist(), entries["content_offset"].to_pylist())
    return [DeleteKey(path, offset) for path, offset in zip(*columns, strict=True)]


def _keyed(entries: pa.Table, wanted: frozenset[DeleteKey]) -> list[bool]:
    if not wanted:
        return [False] * entries.num_rows
    return [key in wanted for key in keys_of(entries)]


def _texts(values: frozenset[str], kind: pa.DataType | None = None) -> pa.Array:
    return pa.array(sorted(values), pa.string()).cast(kind or pa.string())
