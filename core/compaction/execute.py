"""Carry a compaction out: groups to files on the engine, checked, then committed as `replace`.

A group whose files others changed meanwhile is planned once more; the other groups are not held up by it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from lake.core.compaction.options import CompactionOptions
from lake.core.compaction.plan import FileGroup, plan_groups
from lake.core.compaction.verify import ContentHash, check_figures, hash_all
from lake.core.engine import Task, TaskContext
from lake.core.errors import (
    CommitConflictError,
    CommitUnknownError,
    ConflictingFilesError,
    LakeError,
    NotFoundError,
    StoppedError,
)
from lake.core.expressions import bind_filter, parse_filter
from lake.core.outcome import Outcome, Status
from lake.core.rows.reader import FileSlice, ReadSettings, read_ahead, read_batches
from lake.core.rows.writer import WriteSettings, open_writer
from lake.core.session import Session
from lake.core.table import lineage
from lake.core.table.catalog import Table
from lake.core.table.commit import commit_snapshot, require_writable
from lake.core.table.files import DataFile
from lake.core.table.live import live_files
from lake.core.table.manifests import files_of
from lake.core.table.operations import RewriteFiles
from lake.core.table.staging import staged

if TYPE_CHECKING:
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.table.snapshots import Snapshot

_REWRITE = "lake.core.compaction.execute:rewrite"
_COLUMNS = (
    "status",
    "snapshot_id",
    "sequence_number",
    "file_sequence_number",
    "content",
    "file_path",
    "file_format",
    "partition",
    "record_count",
    "file_size_in_bytes",
    "value_counts",
    "null_value_counts",
    "lower_bounds",
    "upper_bounds",
    "sort_order_id",
    "split_offsets",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionPlan:
    """A decided compaction of one snapshot of a branch."""

    table: Table
    branch: str
    base: Snapshot | None
    options: CompactionOptions
    groups: Sequence[FileGroup]
    spec: PartitionSpec

    @property
    def input_bytes(self) -> int:
        """Bytes to read."""
        return sum(group.bytes for group in self.groups)

    def facts(self) -> dict[str, int]:
        """Return the plan as it is shown."""
        return {
            "groups": len(self.groups),
            "input_files": sum(group.entries.num_rows for group in self.groups),
            "input_bytes": self.input_bytes,
            "input_delete_files": 0,
            "expected_output_files": sum(group.output_files for group in self.groups),
        }


@dataclass(slots=True)
class _Rewritten:
    """What became of one group."""

    group: FileGroup
    parts: int
    files: list[DataFile] = field(default_factory=list)
    rows: int = 0
    content: list[str] = field(default_factory=list)

    @property
    def complete(self) -> bool:
        return self.parts == 0


@dataclass(slots=True)
class _Tally:
    """What was done, over all commits and both rounds."""

    files_in: int = 0
    files_out: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    rows: int = 0
    failed: int = 0
    snapshot_ids: list[int] = field(default_factory=list)

    def add(self, groups: Sequence[_Rewritten], snapshot_id: int) -> None:
        self.snapshot_ids.append(snapshot_id)
        for item in groups:
            self.files_in += item.group.entries.num_rows
            self.bytes_in += item.group.bytes
            self.files_out += len(item.files)
            self.bytes_out += sum(file.size_bytes for file in item.files)
            self.rows += item.rows


def plan_compaction(
    table: Table, options: CompactionOptions, *, branch: str = lineage.MAIN
) -> CompactionPlan:
    """Choose what to rewrite in a branch's head.

    Raises:
        RefusedError: the table cannot be written, or has deletes that cannot be applied yet.
        NotFoundError: there is no such branch, spec or column.
    """
    require_writable(table)
    specs = table.metadata.specs()
    spec_id = table.spec.spec_id if options.spec_id is None else options.spec_id
    if spec_id not in specs:
        known = ", ".join(str(item) for item in sorted(specs))
        raise NotFoundError(f"the table has no partition spec {spec_id}", hint=f"specs: {known}")
    head = lineage.branch_head(table.metadata, branch)
    groups: list[FileGroup] = []
    condition = None
    if options.where is not None:
        condition = bind_filter(parse_filter(options.where), table.schema)
    if head is not None:
        found = live_files(table, head, condition, columns=_COLUMNS)
        found.refuse_deletes(table.identifier)
        groups = plan_groups(found.by_spec, options, spec_id)
    return CompactionPlan(
        table=table, branch=branch, base=head, options=options, groups=groups, spec=specs[spec_id]
    )


def preview(plan: CompactionPlan) -> Outcome:
    """Describe a plan without carrying it out."""
    rows = [
        [group.number, group.entries.num_rows, group.bytes, group.rows, group.output_files]
        for group in plan.groups
    ]
    outcome = _outcome(plan, Status.DRY_RUN, None, None)
    columns = ["group", "files", "bytes", "rows", "output files"]
    return replace(outcome, details=[("groups", columns, rows)])


def execute(session: Session, plan: CompactionPlan) -> Outcome:
    """Rewrite and commit; groups that clash with other writers are planned once more.

    Raises:
        CommitConflictError: nothing could be committed.
        CommitUnknownError: the catalog did not answer; every file stays.
        LakeError: what was written differs from what was read; nothing was committed.
    """
    if not plan.groups:
        return _outcome(plan, Status.NOTHING_TO_DO, None, _Tally())
    operation_id = session.ids.uuid()
    tally = _Tally()
    clashed: CommitConflictError | None = None
    with staged(session, plan.table, operation_id):
        failed, clashed = _round(session, plan, operation_id, tally)
        again = _again(plan, failed) if failed else None
        if again is not None:
            failed, clashed = _round(session, again, operation_id, tally)
        tally.failed = len(failed)
    if clashed is not None and not tally.snapshot_ids:
        raise clashed
    status = Status.PARTIAL if tally.failed else Status.DONE
    return _outcome(plan, status, operation_id, tally)


def _round(
    session: Session, plan: CompactionPlan, operation_id: str, tally: _Tally
) -> tuple[list[FileGroup], CommitConflictError | None]:
    """Rewrite all groups and commit; return the groups that clashed."""
    failed: list[FileGroup] = []
    clashed: CommitConflictError | None = None
    waiting: list[_Rewritten] = []
    share = len(plan.groups)
    if plan.options.partial_progress:
        share = -(-len(plan.groups) // plan.options.max_commits)
    for done in _rewrite_groups(session, plan, operation_id):
        waiting.append(done)
        if len(waiting) >= share:
            error = _commit(session, plan, operation_id, waiting, failed, tally)
            clashed, waiting = error or clashed, []
    if waiting:
        clashed = _commit(session, plan, operation_id, waiting, failed, tally) or clashed
    return failed, clashed


def _again(plan: CompactionPlan, failed: Sequence[FileGroup]) -> CompactionPlan | None:
    """Plan the clashed groups' files once more on the table as it is; None if nothing is left to do."""
    fresh = plan_compaction(plan.table.refreshed(), plan.options, branch=plan.branch)
    before = {path for group in failed for path in group.paths}
    groups = [group for group in fresh.groups if before & set(group.paths)]
    return replace(fresh, groups=groups) if groups else None


# Rewriting


def _rewrite_groups(
    session: Session, plan: CompactionPlan, operation_id: str
) -> Iterator[_Rewritten]:
    """Yield groups as they are completely rewritten and checked."""
    engine = session.engine(plan.input_bytes)
    tasks: list[Task] = []
    owners: list[int] = []
    states: dict[int, _Rewritten] = {}
    for group in plan.groups:
        parts = group.parts()
        states[group.number] = _Rewritten(group, len(parts))
        for part in parts:
            tasks.append(_task(plan, group, part, operation_id, len(tasks), alone=len(parts) == 1))
            owners.append(group.number)
    session.progress.start("rewriting", tasks=len(tasks), total_bytes=plan.input_bytes)
    for result in engine.run(tasks, _REWRITE, storage=plan.table.storage):
        state = states[owners[result.task]]
        state.parts -= 1
        state.files += [DataFile.from_plain(file) for file in result.value["files"]]
        state.rows += result.value["rows"]
        state.content.append(result.value["content"])
        session.progress.advance(
            tasks=1, done_bytes=tasks[result.task].input_bytes, rows=result.value["rows"]
        )
        if state.complete:
            check_figures(
                state.group.entries,
                state.files,
                rows_read=state.rows,
                schema=plan.table.schema,
                spec=plan.spec,
            )
            yield state
    session.progress.finish()
    missing = [number for number, state in states.items() if not state.complete]
    if missing:
        raise LakeError(f"the engine lost {len(missing)} groups: nothing of them was committed")


def _task(
    plan: CompactionPlan,
    group: FileGroup,
    part: pa.Table,
    operation_id: str,
    number: int,
    *,
    alone: bool,
) -> Task:
    table, options = plan.table, plan.options
    write = WriteSettings.of(
        table, operation_id, target_bytes=options.write_max_bytes, spec=plan.spec
    )
    if alone and group.output_files > 1:
        write = replace(write, rows_per_file=-(-group.rows // group.output_files))
    reading = ReadSettings(
        projection=table.schema,
        schema=table.schema,
        specs=table.metadata.specs(),
        name_mapping=table.properties.get("schema.name-mapping.default"),
    )
    spec = table.metadata.specs()[part["spec_id"][0].as_py()]
    files = [
        FileSlice.of(file).to_plain() for file in files_of(part, spec=spec, schema=table.schema)
    ]
    payload = {
        "files": files,
        "reading": reading.to_plain(),
        "write": write.to_plain(),
        "task": number,
        "verify": options.verify,
    }
    return Task(payload, int(pc.sum(part["file_size_in_bytes"]).as_py() or 0))


def rewrite(payload: Mapping[str, Any], context: TaskContext) -> Iterator[Mapping[str, Any]]:
    """Task: read files in order, write their rows, and yield what was written."""
    settings = WriteSettings.from_plain(payload["write"])
    reading = ReadSettings.from_plain(payload["reading"])
    files = [FileSlice.from_plain(file) for file in payload["files"]]
    content = ContentHash() if payload["verify"] else None
    with open_writer(
        context.storage, settings, task=payload["task"], attempt=context.attempt
    ) as writer:
        # One thread decodes while this one encodes: both cores work on one output file.
        for batch in read_ahead(_batches(context, files, reading)):
            if context.stopped.is_set():
                raise StoppedError(15)
            if content is not None:
                content.add(batch)
            writer.write(batch)
        written = writer.close()
        if content is not None:
            _compare(context, content, written, reading)
    yield {
        "files": [file.to_plain() for file in written],
        "rows": writer.rows,
        "content": content.text() if content is not None else "",
    }


def _compare(
    context: TaskContext, content: ContentHash, written: list[DataFile], reading: ReadSettings
) -> None:
    """Read the written files again and compare every value."""
    slices = [FileSlice.of(file) for file in written]
    again = hash_all(read_ahead(_batches(context, slices, reading)))
    if again != content.text():
        raise LakeError(
            f"the content hash was {content.text()} and is {again}: nothing was committed"
        )


def _batches(
    context: TaskContext, files: Sequence[FileSlice], reading: ReadSettings
) -> Iterator[pa.RecordBatch]:
    for file in files:
        yield from read_batches(context.storage, file, reading)


# Committing


def _commit(
    session: Session,
    plan: CompactionPlan,
    operation_id: str,
    done: Sequence[_Rewritten],
    failed: list[FileGroup],
    tally: _Tally,
) -> CommitConflictError | None:
    """Commit groups in one snapshot, leaving out those that clash; return the clash, if any."""
    left = list(done)
    clashed: CommitConflictError | None = None
    while left:
        try:
            committed = commit_snapshot(
                session,
                plan.table,
                _operation(plan, left),
                # The files' id marks the only commit; further ones need marks of their own.
                operation_id=operation_id if not tally.snapshot_ids else session.ids.uuid(),
                branch=plan.branch,
            )
        except CommitUnknownError:
            raise
        except ConflictingFilesError as error:
            hit = [item for item in left if error.paths & set(item.group.paths)]
            clashed = error
        except CommitConflictError as error:
            hit, clashed = left, error
        else:
            tally.add(left, committed.snapshot_id)
            return clashed
        hit = hit or left
        _discard(session, plan.table, hit)
        failed += [item.group for item in hit]
        gone = {item.group.number for item in hit}
        left = [item for item in left if item.group.number not in gone]
    return clashed


def _operation(plan: CompactionPlan, groups: Sequence[_Rewritten]) -> RewriteFiles:
    base = plan.base
    if base is None:
        raise LakeError("a plan with groups has no base snapshot")
    keeps = plan.options.starting_sequence_number and plan.table.metadata.format_version > 1
    return RewriteFiles(
        added=[file for item in groups for file in item.files],
        removed_paths=[path for item in groups for path in item.group.paths],
        base_snapshot_id=base.snapshot_id,
        data_sequence_number=base.sequence_number if keeps else None,
    )


def _discard(session: Session, table: Table, groups: Sequence[_Rewritten]) -> None:
    unused = [file.path for item in groups for file in item.files]
    if table.storage.delete(unused).failed:
        session.warn("some files of groups that were not committed could not be removed")


def _outcome(
    plan: CompactionPlan, status: Status, operation_id: str | None, tally: _Tally | None
) -> Outcome:
    result = {}
    if tally is not None:
        result = {
            "rewritten_files": tally.files_in,
            "added_files": tally.files_out,
            "rewritten_bytes": tally.bytes_in,
            "added_bytes": tally.bytes_out,
            "removed_delete_files": 0,
            "rows_in": tally.rows,
            "rows_out": tally.rows,
            "rows_dropped_by_deletes": 0,
            "failed_groups": tally.failed,
        }
    return Outcome(
        command="compact",
        table=plan.table.identifier,
        branch=plan.branch,
        status=status,
        operation_id=operation_id,
        base_snapshot_id=plan.base.snapshot_id if plan.base else None,
        snapshot_ids=tally.snapshot_ids if tally else [],
        plan=plan.facts(),
        result=result,
    )
