"""Hand over the next epoch of what was discovered, to a folder or a stream."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from lake.core.base.choices import OnGap
from lake.core.base.errors import LakeError, NotFoundError, ReportedError
from lake.core.base.interrupts import uninterrupted
from lake.core.base.units import iso_time
from lake.core.read.continuous.discovery import Discovery, scan_again
from lake.core.read.continuous.handover.epochs import (
    Epoch,
    check_complete,
    commit_epoch,
    write_epoch,
)
from lake.core.read.continuous.handover.keys_file import load_keys
from lake.core.read.continuous.handover.pipe import Pipe
from lake.core.read.continuous.handover.splits_file import SplitsFile, SplitsHeader, greatest, least
from lake.core.read.continuous.handover.state import After, Pending, splits_name
from lake.core.read.continuous.handover.work import WorkItem, WorkRows, rows_of
from lake.core.read.continuous.position import Gap, GapError, GapKind, Position
from lake.core.read.continuous.run import Run
from lake.core.read.exports.export import Noted
from lake.core.spec.types.arrow_schema import schema_to_plain
from lake.core.table.snapshots import ancestry


class HandOver:
    """Hands over the pending splits of a run, one epoch a call. Close it at the end."""

    def __init__(self, run: Run, take: Callable[[Discovery], None]) -> None:
        self._run = run
        self._take = take
        self._splits: SplitsFile | None = None
        # The keys that the rows of these splits must have, as tasks receive them.
        self._keys = b""
        # Whether an epoch was begun and is not handed over.
        self.in_epoch = False

    def close(self) -> None:
        """Close the file of splits."""
        if self._splits is not None:
            self._splits.close()
            self._splits = None

    def give_up(self) -> None:
        """Forget an epoch that failed; it is read from the disk again."""
        self.close()
        self.in_epoch = False

    def next_epoch(self) -> None:
        """Hand over the next epoch.

        Raises:
            BrokenPipeError: no process reads the stream any more.
            CorruptFileError: a file cannot be read, or rows are missing.
            GapError: files of pending splits do not exist any more.
            RefusedError: the epoch's name exists in the output.
            StorageError: a disk fails.
        """
        first = self._run.state.pending[0]
        splits = self._splits_of(first)
        items = splits.next_epoch(first.next, self._run.options.epoch_size)
        source = rows_of(self._run.table, splits.work, items, self._keys)
        if self._run.pipe is not None and not self._run.pipe.accepts(source.plan.projection):
            self._run.done.stopped_by = "schema-change"
            return
        epoch = self._epoch(splits, first, items, source)
        self.in_epoch = True
        try:
            if self._run.pipe is None:
                self._to_folder(epoch)
            else:
                self._to_pipe(self._run.pipe, epoch, source, first)
        except NotFoundError as error:
            self._files_gone(items, error)
        finally:
            self._drop_splits()
        self.in_epoch = False

    def _to_folder(self, epoch: Epoch) -> None:
        noted: Noted = Noted()
        parts, after = write_epoch(
            self._run.session, self._run.state, self._run.output, epoch, noted
        )
        with uninterrupted():
            if parts:
                self._run.state = commit_epoch(
                    self._run.store, self._run.state, self._run.output, after
                )
            else:
                # An epoch without rows has no number.
                self._run.save(self._run.state.handed_over(after, with_rows=False))
            self._run.done.files += len(parts)
            self._run.done.bytes_written += after.written
            self._count_epoch(after, noted)

    def _to_pipe(self, pipe: Pipe, epoch: Epoch, source: WorkRows, first: Pending) -> None:
        noted: Noted = Noted()

        def save(reader: Any) -> None:
            self._run.save(self._run.state.changed(reader=reader))

        try:
            written = pipe.write(source, first.next, self._run.state.reader, save, noted)
        except ReportedError:
            with suppress(LakeError):
                save(pipe.reader)
            raise
        after = After(
            next=epoch.next,
            rows=written.rows,
            deleted=written.deleted,
            records=epoch.records,
            bytes=epoch.bytes,
            written=written.bytes,
            greatest_ms=epoch.greatest_ms,
            watermark_ms=epoch.watermark_ms,
        )
        check_complete(self._run.state, after, epoch.expected)
        if self._run.options.epoch_markers and written.rows:
            pipe.mark(epoch.number, first.end.snapshot_id)
        with uninterrupted():
            state = self._run.state.handed_over(after, with_rows=bool(written.rows))
            self._run.save(state)
            self._count_epoch(after, noted)

    def _count_epoch(self, after: After, noted: Noted) -> None:
        self._run.noted += noted
        self._run.done.epochs += bool(after.rows)
        self._run.done.rows += after.rows
        self.in_epoch = False

    def _splits_of(self, pending: Pending) -> SplitsFile:
        if self._splits is None or self._splits.discovery != pending.discovery:
            self.close()
            path = self._run.store.folder.file(splits_name(pending.discovery))
            splits = SplitsFile(path, self._run.state.state_id, pending)
            saved = splits.header.keys
            self._keys = b"" if saved is None else load_keys(self._run.store.folder, saved)
            self._splits = splits
        return self._splits

    def _drop_splits(self) -> None:
        """Remove the files of splits and keys of a discovery that is handed over."""
        splits = self._splits
        if splits is None or splits.discovery in {
            item.discovery for item in self._run.state.pending
        }:
            return
        self.close()
        # The next run removes them otherwise.
        with suppress(LakeError):
            self._run.store.sweep(self._run.state)

    def _epoch(
        self, splits: SplitsFile, first: Pending, items: Sequence[WorkItem], source: WorkRows
    ) -> Epoch:
        state, header = self._run.state, splits.header
        following = first.next + len(items)
        ends = following == first.count
        highest = greatest(state.greatest_ms, *(item.greatest for item in items))
        return Epoch(
            number=state.epoch + 1,
            source=source,
            format=self._run.destination.format,
            facts=self._facts(header, items, source, ends=ends),
            next=following,
            records=source.plan.records,
            bytes=source.plan.bytes,
            expected=header.records if ends else None,
            greatest_ms=highest,
            watermark_ms=self._watermark(splits, following, highest),
        )

    def _watermark(self, splits: SplitsFile, following: int, highest: int | None) -> int | None:
        """Return the watermark when the splits before an index are handed over; it never falls."""
        if self._run.options.watermark_column is None:
            return self._run.state.watermark_ms
        waiting = [item.least_ms for item in self._run.state.pending[1:]]
        lowest = least(splits.least_from(following), *waiting)
        reached = highest if lowest is None else lowest
        return greatest(self._run.state.watermark_ms, None if reached is None else reached - 1)

    def _facts(
        self, header: SplitsHeader, items: Sequence[WorkItem], source: WorkRows, *, ends: bool
    ) -> Mapping[str, Any]:
        snapshots: Sequence[str] = header.snapshots
        keys = header.keys
        complete = header.end.snapshot_id if ends else None
        if header.kind == "changes":
            snapshots = list(dict.fromkeys(str(item.snapshot_id) for item in items))
            complete = complete or snapshots[-1]
        return {
            "format": 1,
            "epoch": self._run.state.epoch + 1,
            "generation": header.generation,
            "kind": header.kind,
            "replaces": header.replaces,
            "table": self._run.table.identifier,
            "table_uuid": self._run.state.table_uuid,
            "branch": self._run.state.branch,
            "from_snapshot": header.start.snapshot_id if header.start else None,
            "to_snapshot": header.end.snapshot_id,
            "snapshots": snapshots,
            "skipped": [
                {"snapshot_id": number, "operation": operation}
                for number, operation in header.skipped
            ],
            "complete_through": complete,
            "schema_id": header.schema_id,
            "schema": schema_to_plain(source.plan.projection),
            "gap": header.gap,
            "dimension": keys.dimension if keys else None,
            "dimension_snapshot_id": keys.dimension_snapshot_id if keys else None,
            "written_at": iso_time(self._run.clock.now_ms()),
        }

    def _files_gone(self, items: Sequence[WorkItem], error: NotFoundError) -> None:
        """Apply the policy for gaps if files of pending splits do not exist any more.

        Raises:
            GapError: they do not, and the policy is not to read the table again.
            NotFoundError: something else is missing.
        """
        files = [
            file.path
            for item in items
            for file in [
                *item.files,
                *(f for p in (item.unit.parts if item.unit else ()) for f in p.files),
            ]
        ]
        found = self._run.table.storage.look_up(files)
        if None not in found.values():
            raise error
        self._run.refresh()
        position = self._run.position or Position.EMPTY
        head = ancestry.head_id(self._run.table.metadata, self._run.options.branch)
        gap = Gap(GapKind.FILES_GONE, position, None, head)
        if self._run.options.on_gap is not OnGap.TABLE:
            raise GapError(gap, self._run.table.identifier, self._run.options.branch) from error
        self._take(
            scan_again(
                self._run.table,
                position,
                self._run.options,
                gap,
                self._run.common,
            )
        )
