"""Plan a rewrite of position deletes: which delete files others replace, and whose rows these delete.

In format version 2, few position delete files replace many: one for each data file, or those of a partition together.
In format version 3, deletion vectors replace position delete files. Source: Iceberg Java's
RewritePositionDeleteFilesSparkAction.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from lake.core.base.arrow import Int64s, Mask
from lake.core.base.facts import Facts
from lake.core.data.rows.live_slices import SLICE_COLUMNS, slices_at
from lake.core.data.rows.reader import FileSlice
from lake.core.maintain.delete_conversion.facts import RewriteFacts, RewriteResult
from lake.core.maintain.delete_conversion.plan import (
    EQUALITY,
    ONE_FOR_ITS_FILE,
    ONLY_SMALL_FILE,
    OTHER_PARTITION,
    RIGHT_SIZE,
    VECTOR,
    DeletePlan,
    KeptDeletes,
    Written,
    head_with_deletes,
    in_partitions,
)
from lake.core.spec.properties.table_properties import DELETE_FILE_BYTES, DELETE_GRANULARITY, FILE
from lake.core.spec.types.format_versions import DELETION_VECTORS_SINCE
from lake.core.table.manifests.data_files import POSITION_DELETES, DeleteFile
from lake.core.table.snapshots import ancestry
from lake.core.table.snapshots.live_files import LiveFiles, live_files
from lake.core.transaction.commit.operations import DeleteKey, RewriteDeletes

if TYPE_CHECKING:
    from lake.core.spec.types.transforms import Partition
    from lake.core.table.catalogs.catalog import Table

_TASK_FILES = 10_000
# A delete file of a partition is small below this part of the target size, as for Iceberg Java.
_SMALL = 0.75


@dataclass(frozen=True, kw_only=True)
class _Choice:
    """The live files, and which of their delete files are removed, by ordinal."""

    found: LiveFiles
    applied: Mask
    chosen: Mask

    def first(self, most: int, granularity: str, *, vectors: bool) -> Self:
        """Return the first of the chosen delete files; a part of those that are merged has at least two.

        Delete files that may apply to several data files come first: after them, those of each data file do.
        """
        index = self.found.delete_index
        ordinals = np.flatnonzero(self.chosen)
        groups: dict[Any, list[int]] = defaultdict(list)
        for ordinal, item in zip(ordinals.tolist(), index.describe(ordinals), strict=True):
            shared = item.referenced_data_file is None
            partition = (
                item.spec_id,
                [(value is not None, value or b"") for value in item.partition],
            )
            if not self.applied[ordinal]:
                key: tuple[Any, ...] = (0, ordinal)
            elif vectors:
                # A vector replaces all position deletes of its data file, so those of this file alone go together.
                # Those of several files go last: as long as a file has no vector, they apply to it.
                key = (2, ordinal) if shared else (1, item.referenced_data_file)
            elif granularity == FILE:
                key = (1, ordinal) if shared else (2, item.referenced_data_file)
            else:
                key = (1, str(partition))
            groups[key].append(ordinal)
        taken: list[int] = []
        for key in sorted(groups):
            room, group = most - len(taken), groups[key]
            is_whole = vectors and key[0] == 1
            if room <= 0 or (is_whole and taken and len(group) > room):
                break
            if not is_whole and len(group) > 1:
                group = group[:room]
                if len(group) == 1:
                    break
            taken += group
        chosen = np.zeros(index.count, np.bool_)
        chosen[taken] = True
        return replace(self, chosen=chosen)


@dataclass(frozen=True, kw_only=True)
class RewritePlan(DeletePlan):
    """A planned rewrite of position deletes of one snapshot; data files are in the order of partitions and paths.

    Args:
        read: the delete files whose positions are written again: the chosen ones, and for deletion vectors all others
            of the data files, as a vector replaces them.
        files: the data files for which there may be new deletes.
        dangling: how many of the chosen delete files apply to no data file.
        choice: the live files, and which of their delete files are chosen; None if none is.
    """

    read: Sequence[DeleteFile] = ()
    files: Sequence[FileSlice] = ()
    dangling: int = 0
    choice: _Choice | None = None

    @property
    def size(self) -> int:
        """The number of delete files that are removed."""
        return len(self.chosen)

    @property
    def least(self) -> int:
        """Two delete files: one file replaces several."""
        return 2

    @property
    def compares_keys(self) -> bool:
        """Whether the compared columns of the data files are read."""
        return False

    @property
    def input_bytes(self) -> int:
        """The size of the delete files."""
        return sum(item.content_size_bytes or item.size_bytes for item in self.read)

    def choosing(self, choice: _Choice) -> Self:
        """Return the plan with other delete files that are removed."""
        found, chosen = choice.found, choice.chosen
        index = found.delete_index
        counts = {key: pairing.count_position_files(chosen) for key, pairing in found.pairs.items()}
        read = chosen & choice.applied
        for key, pairing in found.pairs.items():
            if self._writes_vectors:
                read[pairing.position_files(np.flatnonzero(counts[key]))] = True
        return replace(
            self,
            choice=choice,
            chosen=index.describe(np.flatnonzero(chosen)),
            read=index.describe(np.flatnonzero(read)),
            files=sorted(
                slices_at(found, np.flatnonzero(np.concatenate([*counts.values()]))), key=_order
            ),
            dangling=int(np.count_nonzero(chosen & ~choice.applied)),
        )

    def limited(self, most: int | None) -> Self:
        """Return the part of the plan that removes the first delete files."""
        if most is None or self.choice is None or self.size <= most:
            return self
        part = self.choice.first(most, self.granularity, vectors=self._writes_vectors)
        plan = self.choosing(part)
        return replace(plan, remaining=self.size - plan.size)

    @property
    def _writes_vectors(self) -> bool:
        return self.table.metadata.format_version >= DELETION_VECTORS_SINCE

    def parts(self, parallelism: int) -> Iterator[slice]:  # noqa: ARG002
        """Yield many data files at once, as each task writes files of its own; shared files need whole partitions."""
        start = 0
        for place in range(1, len(self.files)):
            new = _place(self.files[place]) != _place(self.files[place - 1])
            if place - start >= _TASK_FILES and (new or self.granularity == FILE):
                yield slice(start, place)
                start = place
        yield slice(start, len(self.files))

    @cached_property
    def _by_path(self) -> dict[str, list[DeleteFile]]:
        found = defaultdict(list)
        for item in self.read:
            if item.referenced_data_file is not None:
                found[item.referenced_data_file].append(item)
        return found

    @cached_property
    def _by_partition(self) -> dict[tuple[int, Partition], list[DeleteFile]]:
        found = defaultdict(list)
        for item in self.read:
            if item.referenced_data_file is None:
                found[item.spec_id, item.partition].append(item)
        return found

    def deletes_of(self, places: slice) -> tuple[DeleteFile, ...]:
        """Return the position delete files that may apply to some of the data files."""
        files = self.files[places]
        shared = dict.fromkeys(_place(file) for file in files)
        return (
            *(item for file in files for item in self._by_path.get(file.path, ())),
            *(item for place in shared for item in self._by_partition.get(place, ())),
        )

    def operation(self, written: Written) -> RewriteDeletes:
        """Return the change of the table."""
        return RewriteDeletes(
            deletes=written.deletes,
            replaced_deletes=[DeleteKey(item.path, item.content_offset) for item in self.chosen],
            referenced_paths=written.hit,
            base_snapshot_id=self.base_id,
            data_sequence_number=max(item.sequence_number for item in (*self.chosen, *self.read)),
        )

    def facts(self) -> RewriteFacts:
        """Return the plan's figures for the outcome."""
        return RewriteFacts(
            position_deletes=len(self.chosen),
            position_rows=sum(item.record_count for item in self.chosen),
            dangling=self.dangling,
            data_files=len(self.files),
            remaining_files=self.remaining,
            input_bytes=self.input_bytes,
            kind=self.kind,
            granularity=self.granularity,
        )

    def result(self, before: Facts, written: Written) -> RewriteResult:
        """Return what was done, together with what was done before."""
        done = RewriteResult.of(before)
        done.removed_position_deletes += len(self.chosen)
        done.added_deletes += len(written.deletes)
        done.deleted_rows += written.rows
        read = sum(item.record_count for item in {*self.chosen, *self.read})
        done.dropped_rows += read - written.rows
        return done


def plan_rewrite(
    table: Table, branch: str = ancestry.MAIN, where: str | None = None
) -> RewritePlan:
    """Plan the rewrite of a branch's position deletes; reads manifests only.

    Args:
        table: the table.
        branch: the branch.
        where: a filter; position deletes of partitions that have no such rows stay.

    Raises:
        NotFoundError: there is no such branch or column.
        BadInputError: the filter is not valid.
        InvalidRequestError: a table property for delete files has a value that is not allowed.
        RefusedError: the format version does not support delete files.
        CorruptFileError: a manifest does not match its list, or a delete file's entry is not valid.
    """
    vectors = table.metadata.format_version >= DELETION_VECTORS_SINCE
    granularity = FILE if vectors else DELETE_GRANULARITY.of(table.properties)
    head = head_with_deletes(table, branch)
    nothing = RewritePlan(table=table, branch=branch, base=head, granularity=granularity)
    found = None if head is None else live_files(table, head, columns=SLICE_COLUMNS)
    if found is None or not found.delete_manifests.num_rows:
        return nothing
    applied = _applied(found)
    allowed = in_partitions(found, where)
    chosen = _chosen(found, applied, allowed, granularity, vectors=vectors)
    nothing = replace(nothing, kept=_kept(found, allowed, chosen, granularity))
    if not chosen.any():
        return nothing
    return nothing.choosing(_Choice(found=found, applied=applied, chosen=chosen))


def _applied(found: LiveFiles) -> Mask:
    """Return for each delete file whether positions of it, or its vector, apply to a data file."""
    index = found.delete_index
    applied = np.zeros(index.count, np.bool_)
    for pairing in found.pairs.values():
        every = np.arange(pairing.data_files)
        applied[pairing.position_files(every)] = True
        applied[pairing.vectors(every)] = True
    return applied


def _chosen(
    found: LiveFiles, applied: Mask, allowed: Mask, granularity: str, *, vectors: bool
) -> Mask:
    """Return which of the allowed delete files are removed: those that others can replace, and dangling ones."""
    index = found.delete_index
    is_position = (index.content == POSITION_DELETES) & allowed
    is_file = is_position & ~index.is_vector
    chosen: Mask = is_position & ~applied
    if vectors:
        chosen |= is_file
    elif granularity == FILE:
        chosen |= is_file & index.paths.is_null().to_numpy(zero_copy_only=False)
        for pairing in found.pairs.values():
            several = np.flatnonzero(pairing.count_position_files(is_file) > 1)
            chosen[pairing.position_files(several)] = True
    else:
        chosen[_small(found, np.flatnonzero(is_file & applied))] = True
    chosen &= is_position
    return chosen


def _kept(found: LiveFiles, allowed: Mask, chosen: Mask, granularity: str) -> KeptDeletes:
    """Return the delete files that are left alone, by the reason."""
    index = found.delete_index
    every = np.ones(index.count, np.bool_)
    sizes = [x["file_size_in_bytes"].to_numpy() for x in index.by_spec.values()]
    is_large = np.concatenate([np.zeros(0, np.int64), *sizes]) >= _small_bytes(found)
    reasons = {
        EQUALITY: index.content != POSITION_DELETES,
        VECTOR: np.asarray(index.is_vector, np.bool_),
        OTHER_PARTITION: ~allowed,
    }
    if granularity == FILE:
        reasons[ONE_FOR_ITS_FILE] = every
    else:
        reasons |= {RIGHT_SIZE: is_large, ONLY_SMALL_FILE: every}
    return KeptDeletes.of(index, chosen, reasons)


def _small_bytes(found: LiveFiles) -> float:
    return _SMALL * DELETE_FILE_BYTES.of(found.table.properties)


def _small(found: LiveFiles, ordinals: Int64s) -> list[int]:
    """Return the small delete files of partitions that have several."""
    most = _small_bytes(found)
    groups: dict[tuple[int, Partition], list[int]] = defaultdict(list)
    described = found.delete_index.describe(ordinals)
    for ordinal, item in zip(ordinals.tolist(), described, strict=True):
        if item.size_bytes < most:
            groups[item.spec_id, item.partition].append(ordinal)
    return [ordinal for group in groups.values() if len(group) > 1 for ordinal in group]


def _place(file: FileSlice) -> tuple[int, Partition]:
    return file.spec_id, file.partition


def _order(file: FileSlice) -> tuple[Any, ...]:
    values = [(value is not None, value or b"") for value in file.partition]
    return file.spec_id, values, file.path
