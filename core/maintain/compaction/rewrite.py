"""Rewrite groups of files on the engine: in the order of their rows, or sorted.

A small group that fits in one file is sorted by the task that reads it. The rows of a larger group are sent to tasks
by range of sort key, a few adjacent ranges per output file, so that a task sorts one range while it writes the one
before; the ranges are computed from a sample of the keys.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter

from lake.core.base.errors import LakeError
from lake.core.base.progress import Meter, showing
from lake.core.data.rows.content_hash import hash_together
from lake.core.data.rows.reader import FileSlice
from lake.core.data.rows.writer import WriteSettings
from lake.core.data.sorting.range_partitioning import (
    SAMPLED_PER_RANGE,
    SampledKeys,
    cuts,
    parts_of,
)
from lake.core.engine.tasks import Task
from lake.core.maintain.compaction.grouping import FileGroup, RowRange
from lake.core.maintain.compaction.plan import CompactionPlan
from lake.core.maintain.compaction.tasks import (
    ReceiveReport,
    ReceiveTask,
    RewriteTask,
    SampleTask,
    receive,
    rewrite,
    sample,
    send,
)
from lake.core.spec.types.arrow_schema import top_columns
from lake.core.table.manifests.data_files import DataFile
from lake.core.transaction.session import Session

# Groups are shuffled together up to this many bytes, because shuffled rows are stored on the executors' disks.
_SENT_BYTES = 16 * 1024**3
# The bytes that one task reads and sends.
_PIECE_BYTES = 64 * 1024 * 1024
_SAMPLED_FILES = 64


@dataclass(slots=True)
class Rewritten:
    """The state of one group's rewrite."""

    group: FileGroup
    slices: list[FileSlice]
    unfinished: int
    files: list[DataFile] = field(default_factory=list)
    rows: int = 0
    dropped: int = 0
    copied: int = 0
    decoded: Counter[str] = field(default_factory=Counter)


class Rewriter:
    """Rewrites a plan's groups.

    Args:
        session: the engine and progress.
        plan: the groups to rewrite.
        operation_id: part of every file's name.
        first_task: the number of its first task, also part of file names.
        between: is called after each task.
    """

    def __init__(
        self,
        session: Session,
        plan: CompactionPlan,
        operation_id: str,
        first_task: int,
        between: Callable[[], None],
    ) -> None:
        self.tasks = first_task
        self._session = session
        self._plan = plan
        self._operation_id = operation_id
        self._between = between
        self._engine = session.engine(plan.input_bytes)

    def groups(self, together: int) -> Iterator[Rewritten]:
        """Yield groups as they are completely rewritten."""
        direct = [group for group in self._plan.groups if self._is_read_by_its_writer(group)]
        shuffled = [group for group in self._plan.groups if not self._is_read_by_its_writer(group)]
        if direct:
            yield from self._rewrite_directly(direct)
        for batch in _batches(shuffled, together):
            yield from self._by_ranges(batch)

    def _is_read_by_its_writer(self, group: FileGroup) -> bool:
        if self._plan.order is None:
            return True
        enough_groups = len(self._plan.groups) >= self._engine.parallelism
        return group.output_files == 1 and (enough_groups or group.bytes <= _PIECE_BYTES)

    def _rewrite_directly(self, groups: Sequence[FileGroup]) -> Iterator[Rewritten]:
        plan, progress = self._plan, self._session.progress
        tasks: list[Task[RewriteTask]] = []
        owners: list[Rewritten] = []
        for group, slices in zip(groups, plan.slices(groups), strict=True):
            ranges = group.ranges() if plan.order is None else group.cut(group.bytes, 1)
            copies = plan.row_groups_to_copy(group) > 0
            state = Rewritten(group, slices, len(ranges))
            owners += [state] * len(ranges)
            tasks += [self._task(group, slices, rows, copies=copies) for rows in ranges]
        meter = Meter("rewriting", inputs=[task.input_bytes for task in tasks])
        results = self._engine.run(tasks, rewrite, storage=plan.table.storage, meter=meter)
        for result in showing(progress, meter, results):
            self._between()
            state, report = owners[result.task], result.value
            state.rows += report.rows
            state.dropped += report.dropped
            state.files += report.files
            state.copied += report.copied
            state.decoded.update(report.decoded)
            state.unfinished -= 1
            if state.unfinished == 0:
                yield state

    def _task(
        self,
        group: FileGroup,
        slices: Sequence[FileSlice],
        rows: RowRange,
        *,
        first: int = 0,
        bounds: Sequence[bytes] = (),
        parts: int = 1,
        copies: bool = False,
    ) -> Task[RewriteTask]:
        plan = self._plan
        inputs = group.files.slice(rows.first_file, rows.end_file - rows.first_file)
        payload = RewriteTask(
            task=self._next_task(),
            files=_cut(slices, rows),
            rows=rows.rows,
            reading=plan.reading(plan.deletes(inputs["number"].to_numpy())),
            write=self._writing(group),
            verify=plan.options.verify,
            first=first,
            bounds=bounds,
            parts=parts,
            copied_bytes=plan.copied_bytes if copies else None,
            most_copied_bytes=plan.options.most_copied_bytes,
            nan_counts=plan.nan_counts(inputs) if copies else (),
        )
        return Task(payload, rows.input_bytes)

    def _next_task(self) -> int:
        self.tasks += 1
        return self.tasks - 1

    def _writing(self, group: FileGroup) -> WriteSettings:
        plan = self._plan
        settings = plan.writing(self._operation_id)
        return replace(settings, order=plan.order_in(group), sort_order_id=plan.sort_order_id)

    # By ranges of keys

    def _by_ranges(self, groups: Sequence[FileGroup]) -> Iterator[Rewritten]:
        """Sort groups that need a shuffle: one task reads a row, another writes it."""
        slices = self._plan.slices(groups)
        states = [Rewritten(group, own, 0) for group, own in zip(groups, slices, strict=True)]
        writers = sum(group.output_files for group in groups)
        parts = parts_of(max(group.bytes // group.output_files for group in groups), writers)
        bounds = self._bounds(states, parts)
        senders: list[Task[RewriteTask]] = []
        receivers: list[ReceiveTask] = []
        owners: list[Rewritten] = []
        for state, cut in zip(states, bounds, strict=True):
            first = len(receivers)
            pieces = -(-state.group.bytes // _PIECE_BYTES)
            writers = len(cut) // parts + 1
            senders += [
                self._task(state.group, state.slices, rows, first=first, bounds=cut, parts=parts)
                for rows in state.group.cut(_PIECE_BYTES, pieces)
            ]
            receivers += [self._receiver(state.group) for _ in range(writers)]
            owners += [state] * writers
        meter = Meter("reading and sorting", inputs=[task.input_bytes for task in senders])
        reports: list[ReceiveReport] = []
        storage = self._plan.table.storage
        results = self._engine.exchange(
            senders, send, receive, receivers, storage=storage, meter=meter, parts=parts
        )
        for result in showing(self._session.progress, meter, results):
            self._between()
            self._add_result(owners[result.task], result.value)
            reports.append(result.value)
        if self._plan.options.verify:
            _check_hashes(reports)
        yield from states

    def _add_result(self, state: Rewritten, report: ReceiveReport) -> None:
        state.files += report.files
        state.rows += sum(sender.rows for sender in report.senders)
        state.dropped += sum(sender.dropped for sender in report.senders)

    def _receiver(self, group: FileGroup) -> ReceiveTask:
        return ReceiveTask(
            task=self._next_task(),
            write=self._writing(group),
            reading=self._plan.reading(()) if self._plan.options.verify else None,
        )

    def _bounds(self, states: Sequence[Rewritten], parts: int) -> list[list[bytes]]:
        """Return the bounds between the key ranges of each group, from a sample of its keys."""
        ranges = [state.group.output_files * parts for state in states]
        tasks: list[Task[SampleTask]] = []
        owners: list[int] = []
        for index, state in enumerate(states):
            if ranges[index] > 1:
                of_group = self._sample_tasks(state, ranges[index])
                tasks += of_group
                owners += [index] * len(of_group)
        samples: list[list[tuple[int, SampledKeys]]] = [[] for _ in states]
        meter = Meter("sampling sort keys", inputs=[task.input_bytes for task in tasks])
        storage = self._plan.table.storage
        results = self._engine.run(tasks, sample, storage=storage, meter=meter)
        for result in showing(self._session.progress, meter, results):
            samples[owners[result.task]].append((result.task, result.value))
        return [
            cuts([keys for _, keys in sorted(own, key=itemgetter(0))], count)
            for own, count in zip(samples, ranges, strict=True)
        ]

    def _sample_tasks(self, state: Rewritten, ranges: int) -> list[Task[SampleTask]]:
        """Return tasks that sample the keys of some files of a group, evenly chosen."""
        order, group = self._plan.order_in(state.group), state.group
        if order is None:
            return []
        reading = self._plan.reading(())
        columns = top_columns(reading.projection, order.column_ids)
        narrow = replace(reading, projection=columns)
        step = max(1, len(state.slices) // max(_SAMPLED_FILES, group.output_files))
        chosen = state.slices[::step]
        size = max(SAMPLED_PER_RANGE, SAMPLED_PER_RANGE * ranges // len(chosen))
        return [
            Task(
                SampleTask(task=number, files=[file], reading=narrow, order=order, sampled=size),
                file.size_bytes // max(1, len(reading.projection.fields)),
            )
            for number, file in enumerate(chosen)
        ]


def _batches(groups: Sequence[FileGroup], together: int) -> Iterator[list[FileGroup]]:
    """Combine adjacent groups, up to ``together`` groups and `_SENT_BYTES`."""
    batch: list[FileGroup] = []
    for group in groups:
        if batch and (len(batch) >= together or _bytes([*batch, group]) > _SENT_BYTES):
            yield batch
            batch = []
        batch.append(group)
    if batch:
        yield batch


def _bytes(groups: Sequence[FileGroup]) -> int:
    return sum(group.bytes for group in groups)


def _check_hashes(reports: Sequence[ReceiveReport]) -> None:
    """Compare every value that was read with every value that was written.

    Raises:
        LakeError: they differ.
    """
    read = hash_together(
        sender.content_hash or "" for report in reports for sender in report.senders
    )
    written = hash_together(report.content_hash or "" for report in reports)
    if read != written:  # check: values-sorted
        raise LakeError(
            f"the content hash of the rows read is {read}, of the rows written {written}; nothing was committed"
        )


def _cut(slices: Sequence[FileSlice], rows: RowRange) -> list[FileSlice]:
    """Return the slices of a group's files that a range covers."""
    files = list(slices[rows.first_file : rows.end_file])
    if not files:
        return []
    files[0] = replace(files[0], skip_rows=rows.skip)
    before = sum(file.record_count - file.skip_rows for file in files[:-1])
    files[-1] = replace(files[-1], take_rows=rows.rows - before)
    return files
