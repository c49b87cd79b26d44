"""Validate that a plan still holds after the commits made since it was planned, by Iceberg Java's rules.

Source: MergingSnapshotProducer.validate* and validationHistory. Validation always starts from the snapshot
on which the plan was made: from the head, only the deletes of the last commit would be seen.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from lake.core.base.errors import CommitConflictError, ConflictingFilesError, CorruptFileError
from lake.core.spec.types.partition_codes import partition_tuples
from lake.core.table.manifests.api import read_manifest, read_manifest_list
from lake.core.table.manifests.data_files import EQUALITY_DELETES
from lake.core.table.manifests.schemas import ADDED
from lake.core.table.snapshots import ancestry
from lake.core.table.snapshots.completeness import missing_added_files_message
from lake.core.table.snapshots.delete_scopes import is_global, referenced_paths
from lake.core.table.snapshots.pruning import prune_files

if TYPE_CHECKING:
    from pyiceberg.expressions import BooleanExpression
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot

    from lake.core.io.storage.storage import Storage

_ADDS_DATA = frozenset({"append", "overwrite"})
_ADDS_DELETES = frozenset({"overwrite", "delete", "replace"})  # check: deletes-of-replace-snapshots
_ALL = _ADDS_DATA | _ADDS_DELETES
Partition = tuple[int, tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class CommitsSince:
    """The commits to a branch after a base snapshot.

    Raises:
        CommitConflictError: the base is no longer an ancestor, so the commits since are unknown.
    """

    storage: Storage
    metadata: TableMetadata
    head_id: int | None
    base_id: int | None

    def _snapshots(self, operations: frozenset[str]) -> list[Snapshot]:
        between, complete = ancestry.since(self.metadata, self.head_id, self.base_id)
        if not complete:  # check: complete-history
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
            # Added files must be known completely: a conflict may be among missing ones.
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
                is_added = pc.and_(
                    pc.equal(entries["status"], ADDED),
                    pc.equal(entries["snapshot_id"], snapshot.snapshot_id),
                )
                yield entries.filter(is_added)

    def added_data(self) -> Iterator[pa.Table]:
        """Yield entries of data files added since, one table per spec."""
        return self._added(0, _ADDS_DATA)

    def written_data(self) -> Iterator[pa.Table]:
        """Yield entries of data files added since, also of rewritten ones, one table per spec."""
        return self._added(0, _ALL)

    def added_deletes(self) -> Iterator[pa.Table]:
        """Yield entries of delete files added since, one table per spec."""
        return self._added(1, _ADDS_DELETES)


def refuse_new_data(
    since: CommitsSince,
    matching: BooleanExpression | None,
    partitions: frozenset[Partition] | None = None,
) -> None:
    """Refuse data files added since that may contain rows of the filter, or are in the partitions.

    Raises:
        CommitConflictError: there is such a file.
    """
    for entries in since.added_data():  # check: conflict-with-added-data
        if matching is not None and entries.num_rows:
            spec = since.metadata.specs()[entries["spec_id"][0].as_py()]
            mask = prune_files(entries, spec, since.metadata.schema(), matching)
            entries = entries.filter(mask)  # noqa: PLW2901
        _refuse_any(since, entries, partitions, "files")


def refuse_old_data(since: CommitsSince) -> None:
    """Refuse data files written since with an older data sequence number, to which earlier deletes may apply.

    Raises:
        CommitConflictError: there is such a file.
    """
    for entries in since.written_data():
        is_old = pc.not_equal(entries["sequence_number"], entries["file_sequence_number"])
        _refuse_any(since, entries.filter(pc.fill_null(is_old, fill_value=True)), None, "files")


def refuse_new_deletes(since: CommitsSince, partitions: frozenset[Partition] | None = None) -> None:
    """Refuse delete files added since that apply to the whole table or may apply to the partitions.

    Their bounds describe deleted keys and positions, not rows, so no filter can exclude one.

    Raises:
        CommitConflictError: there is such a file.
    """
    for entries in since.added_deletes():  # check: conflict-with-added-deletes
        _refuse_any(since, entries, partitions, "delete files")


def refuse_new_deletes_for(
    since: CommitsSince, files: Mapping[str, Partition], *, ignore_equality: bool
) -> None:
    """Refuse deletes added since that may apply to the given files.

    Args:
        since: the commits.
        files: path to (spec id, partition) of the files that are being replaced.
        ignore_equality: True if the new files keep the old sequence number, so that newer equality
            deletes still apply to them.

    Raises:
        ConflictingFilesError: there are such deletes; its paths name the files to which they may apply.
    """
    affected: set[str] = set()
    for entries in since.added_deletes():
        if ignore_equality:  # check: equality-deletes-of-replaced-files
            entries = entries.filter(pc.not_equal(entries["content"], EQUALITY_DELETES))  # noqa: PLW2901
        targets = referenced_paths(entries).to_pylist()
        contents = entries["content"].to_pylist()
        for content, partition, target in zip(
            contents, partitions_of(entries), targets, strict=True
        ):
            affected |= _affected_by(content, partition, target, files, since.metadata)
    if affected:  # check: deletes-of-replaced-files
        shown = ", ".join(sorted(affected)[:3])
        raise ConflictingFilesError(
            f"found new deletes for {len(affected)} replaced data files: {shown}",
            frozenset(affected),
            hint="run the command again: the new plan includes the new deletes",
        )


def _affected_by(
    content: int,
    deleted: Partition,
    target: bytes | None,
    files: Mapping[str, Partition],
    metadata: TableMetadata,
) -> set[str]:
    """Return the files to which a delete file may apply; only its target, if it has one."""
    if target is not None:
        return {target.decode(errors="replace")} & files.keys()
    spec = metadata.specs().get(deleted[0])
    # check: global-equality-deletes
    if content == EQUALITY_DELETES and (spec is None or is_global(spec)):
        return set(files)
    return {path for path, partition in files.items() if partition == deleted}


def _refuse_any(
    since: CommitsSince, entries: pa.Table, partitions: frozenset[Partition] | None, noun: str
) -> None:
    if partitions is not None and entries.num_rows:
        entries = entries.filter(pa.array(in_partitions(entries, partitions)))
    if entries.num_rows:
        raise CommitConflictError(
            f"found {entries.num_rows} conflicting {noun} committed after snapshot {since.base_id}, "
            f"e.g. {entries['file_path'][0].as_py()}",
            hint="run the command again",
        )


def in_partitions(entries: pa.Table, partitions: frozenset[Partition]) -> list[bool]:
    """Return for each entry whether its (spec id, partition) is one of the given ones."""
    return [partition in partitions for partition in partitions_of(entries)]


def partitions_of(entries: pa.Table) -> list[Partition]:
    """Return each entry's (spec id, partition values); equal tuples mean equal partitions."""
    return list(
        zip(entries["spec_id"].to_pylist(), partition_tuples(entries["partition"]), strict=True)
    )
