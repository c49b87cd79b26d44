"""Plan the conversion of equality deletes to position deletes or deletion vectors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lake.core.base.arrow import Int64s, Mask, one_array
from lake.core.base.facts import Facts
from lake.core.data.rows.live_slices import SLICE_COLUMNS, parts_by_rows, slices_at
from lake.core.data.rows.reader import FileSlice
from lake.core.maintain.delete_conversion.converted import EVERY_RUN, Converted, added_by
from lake.core.maintain.delete_conversion.facts import ConversionFacts, ConversionResult
from lake.core.maintain.delete_conversion.plan import (
    OTHER_PARTITION,
    POSITION,
    VECTOR,
    DeletePlan,
    KeptDeletes,
    Written,
    head_with_deletes,
    in_partitions,
)
from lake.core.spec.properties.table_properties import SNAPSHOT
from lake.core.table.manifests.data_files import EQUALITY_DELETES, POSITION_DELETES, DeleteFile
from lake.core.table.snapshots import ancestry
from lake.core.table.snapshots.delete_scopes import PUFFIN
from lake.core.table.snapshots.live_files import LiveFiles, live_files
from lake.core.transaction.commit.operations import DeleteKey, RowDelta

if TYPE_CHECKING:
    from pyiceberg.table.snapshots import Snapshot

    from lake.core.table.catalogs.catalog import Table

# The order in which data files are read: those that the record of an earlier run continues with, those that were
# added after its beginning, and those for which there are only newer deletes.
_NEXT, _ADDED, _AGAIN = range(3)


@dataclass(frozen=True, kw_only=True)
class _Work:
    """The data files to which equality deletes are to be applied, and how far earlier runs came.

    Args:
        found: the live files.
        chosen: the equality deletes to convert, by ordinal.
        earlier: what earlier runs recorded; None if they recorded nothing about the chosen deletes.
        record: what is recorded of this run so far: no data file.
    """

    found: LiveFiles
    chosen: Mask
    earlier: Converted | None
    record: Converted

    @cached_property
    def _since(self) -> Mask:
        """The chosen deletes that were not there when the earlier runs began."""
        if self.earlier is None:
            return self.chosen
        tables = self.found.delete_index.by_spec.values()
        had = [added_by(entries, self.earlier.sequence_number) for entries in tables]
        since: Mask = self.chosen & ~np.concatenate(had)
        return since

    @cached_property
    def _applied(self) -> Mask:
        """The data files to which earlier runs applied all deletes that were there when they began."""
        return self._of_files(None if self.earlier is None else self.earlier.contains)

    @cached_property
    def affected(self) -> Int64s:
        """The numbers of the data files to which chosen deletes are to be applied."""
        masks = [np.zeros(0, np.bool_)]
        base = 0
        for pairing in self.found.pairs.values():
            applied = self._applied[base : base + pairing.data_files]
            base += pairing.data_files
            count = np.where(
                applied,
                pairing.count_equality_files(self._since),
                pairing.count_equality_files(self.chosen),
            )
            masks.append(pairing.touched_by_key(count == 0))
        return np.flatnonzero(np.concatenate(masks))

    @cached_property
    def order(self) -> tuple[Int64s, npt.NDArray[np.int8], pa.Array]:
        """The numbers of the data files in the order in which they are read, when each is read, and their paths."""
        numbers = self.affected
        had = self._of_files((self.earlier or self.record).had)
        turns = np.where(self._applied, _AGAIN, np.where(had, _NEXT, _ADDED)).astype(np.int8)
        every = [one_array(entries["file_path"]) for entries in self.found.by_spec.values()]
        paths = pa.chunked_array(every, pa.string()).take(pa.array(numbers))
        by_path = pc.sort_indices(paths).to_numpy()
        order = by_path[np.argsort(turns[numbers[by_path]], kind="stable")]
        return numbers[order], turns[numbers[order]], one_array(paths).take(pa.array(order))

    def _of_files(self, test: Any) -> Mask:
        """Return the result of a test of entries for each data file."""
        parts = [
            np.zeros(entries.num_rows, np.bool_) if test is None else test(entries)
            for entries in self.found.by_spec.values()
        ]
        return np.concatenate([np.zeros(0, np.bool_), *parts])

    def needed_by(self, numbers: Int64s) -> Mask:
        """Return the chosen deletes, by ordinal, that are still to be applied to some data files."""
        index = self.found.delete_index
        needed, again = (np.zeros(index.count, np.bool_) for _ in range(2))
        for spec_id, own, rows in self.found.places(numbers):
            pairing, applied = self.found.pairs[spec_id], self._applied[numbers[own]]
            needed[pairing.ordinals(rows[~applied])] = True
            again[pairing.ordinals(rows[applied])] = True
        # check: newer-equality-deletes
        found: Mask = (needed & self.chosen) | (again & self._since)
        return found

    def recorded(self, most: int) -> Converted:
        """Return what is true after the first data files were read."""
        _, turns, paths = self.order
        counts = np.bincount(turns, minlength=_AGAIN + 1)
        uncovered = int(counts[_NEXT] + counts[_ADDED])
        if most > uncovered:
            return replace(self.record, until=paths[most - 1].as_py())
        before = self.earlier or self.record
        last = min(most, int(counts[_NEXT]))
        until = paths[last - 1].as_py() if last else before.until
        return replace(self.record, sequence_number=before.sequence_number, until=until)

    def restarts(self, most: int) -> bool:
        """Whether a partial conversion must start over: too many files were added since it began."""
        turns = self.order[1]
        return bool(len(turns) and turns[0] == _ADDED and np.sum(turns == _ADDED) > most)


@dataclass(frozen=True, kw_only=True)
class ConversionPlan(DeletePlan):
    """A planned conversion of equality deletes of one snapshot.

    Args:
        work: the data files; None if there are no equality deletes.
        order: the numbers of the data files that are read.
        record: what is true after the conversion; None if nothing remains.
    """

    work: _Work | None = None
    order: Int64s = field(default_factory=lambda: np.zeros(0, np.int64))
    record: Converted | None = None

    @property
    def compares_keys(self) -> bool:
        """Whether the compared columns of the data files are read."""
        return True

    @property
    def size(self) -> int:
        """The number of data files."""
        return len(self.order)

    @cached_property
    def _numbers(self) -> Int64s:
        return np.sort(self.order)

    @cached_property
    def files(self) -> Sequence[FileSlice]:
        """The data files that are read, in the order of their numbers."""
        return slices_at(self.work.found, self._numbers) if self.work else ()

    @property
    def input_bytes(self) -> int:
        """The size of the data files, of which only the compared columns are read."""
        return sum(file.size_bytes for file in self.files)

    def limited(self, most: int | None) -> Self:
        """Return the part of the plan that reads the first data files."""
        work = self.work
        if most is None or work is None or self.size <= most:
            return self
        if work.earlier is not None and work.restarts(most):
            work = replace(work, earlier=None)
        order = work.order[0]
        index = work.found.delete_index
        # check: last-reader-of-equality-deletes
        done = work.chosen & ~work.needed_by(np.sort(order[most:]))
        return replace(
            self,
            work=work,
            chosen=index.describe(np.flatnonzero(done)),
            order=order[:most],
            record=work.recorded(most),
            remaining=len(order) - most,
        )

    def parts(self, parallelism: int) -> Iterator[slice]:
        """Yield adjacent data files, by their rows."""
        return parts_by_rows(self.files, parallelism)

    def deletes_of(self, places: slice) -> tuple[DeleteFile, ...]:
        """Return all delete files that may apply to some of the data files."""
        return self.work.found.deletes_of(self._numbers[places]) if self.work else ()

    def operation(self, written: Written) -> RowDelta:
        """Return the change of the table."""
        return RowDelta(
            added=[],
            deletes=written.deletes,
            replaced_deletes=[
                *(DeleteKey(item.path) for item in self.chosen),
                *self._superseded(written),
            ],
            base_snapshot_id=self.base_id,
            isolation=SNAPSHOT,
            ignore_equality=True,
        )

    def _superseded(self, written: Written) -> list[DeleteKey]:
        """Return the vectors, and the delete files for one data file, whose positions new vectors contain."""
        if not any(file.format == PUFFIN for file in written.deletes):
            return []
        hit = set(written.hit)
        return [
            DeleteKey(item.path, item.content_offset)
            for item in self.deletes_of(slice(None))
            if item.content == POSITION_DELETES and item.referenced_data_file in hit
        ]

    @property
    def summary(self) -> Mapping[str, str]:
        """Additional entries of the snapshot's summary."""
        return {} if self.record is None else self.record.summary()

    def facts(self) -> ConversionFacts:
        """Return the plan's figures for the outcome."""
        return ConversionFacts(
            equality_deletes=len(self.chosen),
            equality_rows=sum(item.record_count for item in self.chosen),
            data_files=len(self.files),
            remaining_files=self.remaining,
            input_bytes=self.input_bytes,
            kind=self.kind,
        )

    def result(self, before: Facts, written: Written) -> ConversionResult:
        """Return what was done, together with what was done before."""
        done = ConversionResult.of(before)
        done.removed_equality_deletes += len(self.chosen)
        done.added_deletes += len(written.deletes)
        done.changed_data_files += len(written.hit)
        done.deleted_rows += written.rows
        return done


def plan_conversion(
    table: Table, branch: str = ancestry.MAIN, where: str | None = None, run: str = EVERY_RUN
) -> ConversionPlan:
    """Plan the conversion of a branch's equality deletes; reads manifests only.

    Args:
        table: the table.
        branch: the branch.
        where: a filter; equality deletes of partitions that have no such rows stay.
        run: with a filter, the id of the run: only its own commits record what it need not read again.

    Raises:
        NotFoundError: there is no such branch or column.
        BadInputError: the filter is not valid.
        RefusedError: the format version does not support delete files.
        CorruptFileError: a manifest does not match its list, or a delete file's entry is not valid.
    """
    head = head_with_deletes(table, branch)
    nothing = ConversionPlan(table=table, branch=branch, base=head)
    columns = (*SLICE_COLUMNS, "file_sequence_number")
    found = None if head is None else live_files(table, head, columns=columns)
    if head is None or found is None or not found.delete_manifests.num_rows:
        return nothing
    index = found.delete_index
    is_equality = index.content == EQUALITY_DELETES
    chosen = is_equality & in_partitions(found, where)
    reasons = {
        VECTOR: np.asarray(index.is_vector, np.bool_),
        POSITION: ~is_equality,
        OTHER_PARTITION: is_equality,
    }
    nothing = replace(nothing, kept=KeptDeletes.of(index, chosen, reasons))
    if not chosen.any():
        return nothing
    own = EVERY_RUN if where is None else run
    work = _Work(
        found=found,
        chosen=chosen,
        earlier=_earlier(found, chosen, head, own),
        record=Converted(
            sequence_number=head.sequence_number or 0,
            until="",
            run=own,
            schema_id=table.schema.schema_id,
        ),
    )
    return replace(
        nothing,
        work=work,
        chosen=index.describe(np.flatnonzero(chosen)),
        order=work.affected,
    )


def _earlier(found: LiveFiles, chosen: Mask, head: Snapshot, run: str) -> Converted | None:
    """Return what earlier runs recorded, if it concerns one of the chosen deletes."""
    record = Converted.find(found.table, head, run)
    if record is None:
        return None
    tables = found.delete_index.by_spec.values()
    had = np.concatenate([record.had(entries) for entries in tables])
    return record if (chosen & had).any() else None
