"""Whether what others committed since a plan was made leaves it true, by Iceberg Java's rules.

Source: MergingSnapshotProducer.validate* and validationHistory. The question is always asked from the
snapshot that the plan was made on: asked from the head, deletes of all but the last commit go unseen.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from lake.core.errors import CommitConflictError, ConflictingFilesError, CorruptFileError
from lake.core.manifests.api import read_manifest, read_manifest_list
from lake.core.manifests.data_files import EQUALITY_DELETES
from lake.core.manifests.schemas import ADDED
from lake.core.snapshots import ancestry
from lake.core.snapshots.completeness import missing_added_files_message
from lake.core.snapshots.delete_scopes import is_global, referenced_paths
from lake.core.snapshots.pruning import prune_files
from lake.core.types.partition_codes import partition_tuples

if TYPE_CHECKING:
    from pyiceberg.expressions import BooleanExpression
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot

    from lake.core.storage.storage import Storage

_ADDS_DATA = frozenset({"append", "overwrite"})
_ADDS_DELETES = frozenset({"overwrite", "delete", "replace"})
Partition = tuple[int, tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class CommitsSince:
    """What was committed to a branch after a base snapshot.

    Raises:
        CommitConflictError: the base is no longer an ancestor, so what happened cannot be known.
    """

    storage: Storage
    metadata: TableMetadata
    head_id: int | None
    base_id: int | None

    def _snapshots(self, operations: frozenset[str]) -> list[Snapshot]:
        between, complete = ancestry.since(self.metadata, self.head_id, self.base_id)
        if not complete:
            raise CommitConflictError(
                f"cannot determine the history since snapshot {self.base_id}: "
                "the table was rolled back or its snapshots expired meanwhile",
                hint="run the command again",
            )
        return [
            snapshot
            for snapshot in between
            if snapshot.summary is None or snapshot.summary.operation.value in operations
        ]

    def _added(self, content: int, operations: frozenset[str]) -> Iterator[pa.Table]:
        for snapshot in self._snapshots(operations):
            manifests = read_manifest_list(self.storage, snapshot.manifest_list)
            # What was added is in no doubt: a conflict may be among what is missing.
            if message := missing_added_files_message(self.metadata, snapshot, manifests):
                raise CorruptFileError(message)
            own = manifests.filter(
                pc.and_(
                    pc.equal(manifests["added_snapshot_id"], snapshot.snapshot_id),
                    pc.equal(manifests["content"], content),
                )
            )
            for row in own.to_pylist():
                entries = read_manifest(self.storage, row, self.metadata)
                mine = pc.and_(
                    pc.equal(entries["status"], ADDED),
                    pc.equal(entries["snapshot_id"], snapshot.snapshot_id),
                )
                yield entries.filter(mine)

    def added_data(self) -> Iterator[pa.Table]:
        """Yield entries of data files added since, one spec a table."""
        return self._added(0, _ADDS_DATA)

    def added_deletes(self) -> Iterator[pa.Table]:
        """Yield entries of delete files added since, one spec a table."""
        return self._added(1, _ADDS_DELETES)


def refuse_new_data(
    since: CommitsSince,
    matching: BooleanExpression | None,
    partitions: frozenset[Partition] | None = None,
) -> None:
    """Refuse data files added since that may hold rows of the filter, or lie in the partitions.

    Raises:
        CommitConflictError: there is one.
    """
    for entries in since.added_data():
        if matching is not None and entries.num_rows:
            spec = since.metadata.specs()[entries["spec_id"][0].as_py()]
            mask = prune_files(entries, spec, since.metadata.schema(), matching)
            entries = entries.filter(mask)  # noqa: PLW2901
        _refuse_any(since, entries, partitions, "files")


def no_new_deletes(since: CommitsSince, partitions: frozenset[Partition] | None = None) -> None:
    """Refuse delete files added since, of the whole table or that may apply to the partitions.

    Their bounds speak of deleted keys and positions, not of rows, so no filter can excuse one.

    Raises:
        CommitConflictError: there is one.
    """
    for entries in since.added_deletes():
        _refuse_any(since, entries, partitions, "delete files")


def no_new_deletes_for(
    since: CommitsSince, files: Mapping[str, Partition], *, ignore_equality: bool
) -> None:
    """Refuse deletes added since that may apply to the given files.

    Args:
        since: what was committed.
        files: path to (spec id, partition) of the files that are being replaced.
        ignore_equality: True when the new files keep the old sequence number, so that newer equality
            deletes still apply to them.

    Raises:
        ConflictingFilesError: there are some; its paths name the files they may apply to.
    """
    hit: set[str] = set()
    for entries in since.added_deletes():
        if ignore_equality:
            entries = entries.filter(pc.not_equal(entries["content"], EQUALITY_DELETES))  # noqa: PLW2901
        targets = referenced_paths(entries).to_pylist()
        kinds = entries["content"].to_pylist()
        for kind, place, target in zip(kinds, places(entries), targets, strict=True):
            hit |= _touched(kind, place, target, files, since.metadata)
    if hit:
        some = ", ".join(sorted(hit)[:3])
        raise ConflictingFilesError(
            f"found new deletes for {len(hit)} replaced data files: {some}",
            frozenset(hit),
            hint="run the command again: it will plan with the new deletes",
        )


def _touched(
    content: int,
    place: Partition,
    target: bytes | None,
    files: Mapping[str, Partition],
    metadata: TableMetadata,
) -> set[str]:
    """Return the files that a delete file may apply to; its target is the one that it is for alone."""
    if target is not None:
        return {target.decode(errors="replace")} & files.keys()
    spec = metadata.specs().get(place[0])
    if content == EQUALITY_DELETES and (spec is None or is_global(spec)):
        return set(files)
    return {path for path, partition in files.items() if partition == place}


def _refuse_any(
    since: CommitsSince, entries: pa.Table, partitions: frozenset[Partition] | None, what: str
) -> None:
    if partitions is not None and entries.num_rows:
        entries = entries.filter(pa.array(in_partitions(entries, partitions)))
    if entries.num_rows:
        raise CommitConflictError(
            f"found {entries.num_rows} conflicting {what} committed since snapshot {since.base_id}, "
            f"e.g. {entries['file_path'][0].as_py()}",
            hint="run the command again",
        )


def in_partitions(entries: pa.Table, partitions: frozenset[Partition]) -> list[bool]:
    """Return for each entry whether its (spec id, partition) is among the given."""
    return [place in partitions for place in places(entries)]


def places(entries: pa.Table) -> list[Partition]:
    """Return each entry's (spec id, partition values), which are equal where the partitions are."""
    return list(
        zip(entries["spec_id"].to_pylist(), partition_tuples(entries["partition"]), strict=True)
    )
