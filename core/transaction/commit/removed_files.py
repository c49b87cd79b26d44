"""The live files of a parent snapshot that a commit removes, and those that it requires."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from lake.core.base.errors import CommitConflictError, ConflictingFilesError, RefusedError
from lake.core.io.avro.container import runs
from lake.core.table.manifests.api import MANIFEST_SCHEMA, read_manifest, read_manifests, weight_of
from lake.core.table.manifests.data_files import DATA
from lake.core.table.snapshots.delete_scopes import referenced_paths
from lake.core.transaction.commit import conflicts
from lake.core.transaction.commit.operations import DeleteKey, EntryTable

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

    from lake.core.io.storage.storage import Storage
    from lake.core.table.manifests.decode import Manifest

_DELETE_COLUMNS = (
    "content",
    "file_path",
    "file_format",
    "content_offset",
    "referenced_data_file",
    "lower_bounds",
    "upper_bounds",
)
# Manifests that are searched together.
_WINDOW_BYTES = 8 * 1024 * 1024
AGAIN = "run the command again"


@dataclass(frozen=True)
class Removal:
    """The entries to remove.

    Args:
        paths: data files; delete files that apply to one of them alone are removed too.
        manifests: the data manifests that contain them.
        deletes: delete files.
    """

    paths: frozenset[str] = frozenset()
    manifests: frozenset[str] = frozenset()
    deletes: frozenset[DeleteKey] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.paths or self.deletes)

    def affects(self, storage: Storage, manifest: Manifest, metadata: TableMetadata) -> bool:
        """Whether some live entries of a manifest are removed; reads only the columns that are needed."""
        if manifest["content"] == DATA:
            return manifest["manifest_path"] in self.manifests
        entries = read_manifest(
            storage, manifest, metadata, columns=_DELETE_COLUMNS, live_only=True
        )
        return bool(pc.any(self.matches(entries, is_data=False), min_count=0).as_py())

    def matches(self, entries: pa.Table, *, is_data: bool) -> pa.Array:
        """Return for each entry of a data or delete manifest whether it is removed."""
        if is_data:
            return pc.is_in(entries["file_path"], value_set=self._texts)
        for_one = pc.is_in(referenced_paths(entries), value_set=self._texts.cast(pa.large_binary()))
        return pc.or_(for_one, pa.array(_keyed(entries, self.deletes), pa.bool_()))

    @cached_property
    def _texts(self) -> pa.Array:
        return _texts(self.paths)


@dataclass(frozen=True)
class FoundFiles:
    """Live data files.

    Args:
        entries: their entries, by spec: path and partition.
        manifests: the data manifests that contain them.
    """

    entries: Sequence[pa.Table]
    manifests: frozenset[str]

    @cached_property
    def partitions(self) -> dict[str, conflicts.Partition]:
        """The path of each file to (spec id, partition)."""
        found: dict[str, conflicts.Partition] = {}
        for entries in self.entries:
            paths = entries["file_path"].to_pylist()
            found.update(zip(paths, conflicts.partitions_of(entries), strict=True))
        return found


def find_live(
    storage: Storage,
    metadata: TableMetadata,
    current: Sequence[Manifest],
    wanted: frozenset[str],
) -> FoundFiles:
    """Find data files among the live ones of a manifest list.

    Raises:
        ConflictingFilesError: some are no longer live.
    """
    values = _texts(wanted)
    kept: list[pa.Table] = []
    paths: set[str] = set()
    manifests: set[str] = set()
    columns = ["file_path", "partition"]
    searched = manifests_of(current, data=True) if wanted else []
    for some in runs(searched, weight_of, _WINDOW_BYTES):
        listed = pa.Table.from_pylist(some, schema=MANIFEST_SCHEMA)
        found = read_manifests(storage, listed, metadata, columns=columns, live_only=True)
        for entries in found.values():
            matches = entries.filter(pc.is_in(entries["file_path"], value_set=values))
            manifests.update(matches["manifest_path"].cast(pa.string()).unique().to_pylist())
            paths.update(matches["file_path"].to_pylist())
            kept.append(matches.combine_chunks())
    missing = wanted - paths
    if missing:  # check: replaced-files-live
        shown = ", ".join(sorted(missing)[:3])
        raise ConflictingFilesError(
            f"{len(missing)} files that the change requires are no longer in the table: {shown}",
            frozenset(missing),
            hint=AGAIN,
        )
    return FoundFiles(kept, frozenset(manifests))


def refuse_live(
    storage: Storage,
    metadata: TableMetadata,
    current: Sequence[Manifest],
    added: Sequence[EntryTable],
) -> None:
    """Refuse to add data files that a manifest list contains as live files: their rows would be doubled.

    Raises:
        RefusedError: some of the files are live.
    """
    paths = pa.chunked_array(
        [chunk for part in added for chunk in part.entries["file_path"].chunks], pa.string()
    ).combine_chunks()
    found: list[str] = []
    for row in manifests_of(current, data=True) if len(paths) else ():
        live = read_manifest(storage, row, metadata, columns=["file_path"], live_only=True)
        found += live["file_path"].filter(pc.is_in(live["file_path"], paths)).to_pylist()
    if found:
        raise RefusedError(
            f"{len(found)} of the files are in the table already, e.g. {sorted(found)[0]}",
            hint="nothing was changed; a file that is added again would double its rows",
        )


def specs_of_live(
    storage: Storage, metadata: TableMetadata, current: Sequence[Manifest], *, except_spec: int
) -> set[int]:
    """Return the partition specs of the live data files in a manifest list, except one spec."""
    spec_ids: set[int] = set()
    for row in manifests_of(current, data=True):
        spec_id = row["partition_spec_id"]
        if spec_id == except_spec or spec_id in spec_ids:
            continue
        # A list may lack the counts; there are few manifests of other specs to read.
        entries = read_manifest(storage, row, metadata, columns=["status"], live_only=True)
        if entries.num_rows:
            spec_ids.add(spec_id)
    return spec_ids


def check_sole_spec(
    storage: Storage, metadata: TableMetadata, current: Sequence[Manifest], spec_id: int
) -> None:
    """Check that all live data files have one partition spec.

    Raises:
        CommitConflictError: some have another spec.
    """
    others = specs_of_live(storage, metadata, current, except_spec=spec_id)
    if others:
        raise CommitConflictError(
            f"data files with other partition specs ({', '.join(map(str, sorted(others)))}) were committed "
            "meanwhile; the equality deletes do not apply to them",
            hint=AGAIN,
        )


def manifests_of(current: Sequence[Manifest], *, data: bool) -> list[Manifest]:
    """Return the rows of a manifest list for data manifests, or for delete manifests."""
    return [row for row in current if (row["content"] == DATA) == data]


def keys_of(entries: pa.Table) -> list[DeleteKey]:
    """Return the keys of delete files."""
    columns = (entries["file_path"].to_pylist(), entries["content_offset"].to_pylist())
    return [DeleteKey(path, offset) for path, offset in zip(*columns, strict=True)]


def _keyed(entries: pa.Table, wanted: frozenset[DeleteKey]) -> list[bool]:
    if not wanted:
        return [False] * entries.num_rows
    return [key in wanted for key in keys_of(entries)]


def _texts(values: frozenset[str]) -> pa.Array:
    return pa.array(sorted(values), pa.string())


class ManifestEntries(NamedTuple):
    """The live entries of a manifest.

    Args:
        manifest: its row in the manifest list.
        entries: its live entries, to be written again.
        extra: for each entry whether an older one of the same file remains.
    """

    manifest: Manifest
    entries: pa.Table
    extra: pa.Array


def find_extra_entries(
    storage: Storage,
    metadata: TableMetadata,
    manifests: Sequence[Manifest],
    paths: frozenset[str],
) -> Iterator[ManifestEntries]:
    """Yield the entries of data manifests, and which of them are not the oldest ones of the given files.

    The oldest entry has the lowest sequence number. Among equal ones it is in the last manifest of the list, because
    the newest manifest is the first one.
    """
    read = [
        (row, read_manifest(storage, row, metadata, live_only=True, rewritten=True))
        for row in manifests
    ]
    oldest: dict[str, tuple[int, int, int]] = {}
    for number, (_, entries) in enumerate(read):
        numbers = pc.fill_null(entries["sequence_number"], 0).to_pylist()
        for place, path in enumerate(entries["file_path"].to_pylist()):
            if path in paths:
                key = (numbers[place], -number, place)
                oldest[path] = min(oldest.get(path, key), key)
    kept = {(-number, place) for _, number, place in oldest.values()}
    for number, (row, entries) in enumerate(read):
        extra = [
            path in paths and (number, place) not in kept
            for place, path in enumerate(entries["file_path"].to_pylist())
        ]
        yield ManifestEntries(row, entries, pa.array(extra, pa.bool_()))
