"""Execute a compaction: rewrite groups on the engine, check the new files, commit them as `replace`.

A group whose files another writer changed in the meantime is planned again, up to three times in all; it does not
delay the other groups.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import replace

from lake.core.base.errors import (
    CommitConflictError,
    CommitUnknownError,
    ConflictingFilesError,
    CorruptFileError,
    LakeError,
    RefusedError,
    TimedOutError,
)
from lake.core.base.facts import NoFacts
from lake.core.base.outcome import Detail, Outcome, Status, first_rows
from lake.core.base.units import format_size
from lake.core.data.rows.reader import FileSlice
from lake.core.engine.tasks import Task
from lake.core.maintain.compaction import dangling_deletes as dangling
from lake.core.maintain.compaction.concurrency.base_keeper import BaseKeeper
from lake.core.maintain.compaction.dangling_deletes import dangling_deletes
from lake.core.maintain.compaction.facts import CompactionFacts, DepthFacts
from lake.core.maintain.compaction.grouping import FileGroup
from lake.core.maintain.compaction.plan import CompactionPlan, depth_now, plan_compaction
from lake.core.maintain.compaction.rewrite import Rewriter, Rewritten
from lake.core.maintain.compaction.tally import Losses, Tally, described, others_since
from lake.core.maintain.compaction.tasks import CompareTask, compare
from lake.core.maintain.compaction.verify import Disagreement, check_rows, metric_differences
from lake.core.spec.properties.table_properties import Use, warnings
from lake.core.table.manifests.api import entries_of
from lake.core.table.manifests.data_files import DataFile
from lake.core.table.snapshots import ancestry
from lake.core.table.snapshots.live_files import live_files
from lake.core.transaction.commit.commit import CommitRequest, commit_snapshot
from lake.core.transaction.commit.operations import RewriteFiles
from lake.core.transaction.session import Session
from lake.core.transaction.staging.failed_attempts import remove_lost_attempts
from lake.core.transaction.staging.operation_files import staged

# A group that was lost this often in one run is left for the next one: its writer is not likely to pause.
_ROUNDS = 3
# With a busy concurrent writer the head often changes before the commit; rewritten files are worth more attempts.
_COMMIT_TRIES = 3
_SHOWN_GROUPS = 50
# The columns of a dry run's tables.
_COLUMNS = ("group", "partition", "files", "bytes", "rows", "output files", "reason")


def preview(plan: CompactionPlan, *, verbose: bool = False, explain: bool = False) -> Outcome:
    """Describe a plan without executing it.

    Args:
        plan: the plan.
        verbose: list all groups and partitions, instead of the first ones.
        explain: also show the files that are left alone: by reason and partition, and with `verbose` each of them.
    """
    outcome = _outcome(plan, Status.DRY_RUN)
    groups = CompactionFacts.of(outcome.plan).file_groups
    shown, notes = first_rows(groups, _SHOWN_GROUPS, "groups", every=verbose)
    # The partition of an unpartitioned table has no name.
    named = any(group.partition for group in groups)
    rows = [
        (
            group.number,
            *([group.partition] if named else []),
            group.files,
            group.bytes,
            group.rows,
            group.expected_output_files,
            ", ".join(group.reasons),
        )
        for group in shown
    ]
    columns = [name for name in _COLUMNS if name != "partition" or named]
    outcome = replace(outcome, details=[Detail("groups", columns, rows)], notes=notes)
    return plan.explained().explain(outcome, verbose=verbose) if explain else outcome


def execute(session: Session, plan: CompactionPlan, operation_id: str | None = None) -> Outcome:
    """Rewrite and commit; groups that conflict with other writers are planned again, up to three times in all.

    Args:
        session: the invocation's.
        plan: the groups to rewrite.
        operation_id: the id of the first commit; None for a new one.

    Raises:
        CommitConflictError: nothing could be committed.
        CommitUnknownError: the catalog did not answer; no file was deleted.
        CorruptFileError: a file contradicts the table's metadata; nothing was committed.
        LakeError: the rows written differ from the rows read; nothing was committed.
    """
    if not plan.groups and not plan.options.remove_dangling_deletes:
        return _outcome(plan, Status.NOTHING_TO_DO, Tally())
    for ignored in warnings(plan.table.properties, [Use.WRITE]):
        session.warn(ignored)
    run = _Run(session, plan, operation_id or session.ids.uuid())
    stopped = False
    try:
        with closing(run), staged(session, plan.table, run.operation_id):
            run.all_rounds()
    except CommitUnknownError:
        raise
    except LakeError as error:
        if not run.tally.snapshot_ids:
            raise
        # Groups that were committed stay committed; the files of the others were removed.
        stopped = True
        session.warn(f"stopped before {run.next_step}: {error.message}")
        run.tally.totals.failed_groups = len(plan.groups) - run.tally.groups
    if run.tally.snapshot_ids:
        run.tally.totals.depth = run.depth()
    status = Status.PARTIAL if stopped or run.tally.totals.failed_groups else Status.DONE
    if not run.tally.snapshot_ids:
        status = Status.NOTHING_TO_DO
    return _outcome(plan, status, run.tally, run.tally.operation_id)


class _Run:
    """One execution: up to three rounds of rewriting and committing.

    The names of all files that it writes contain one id, which is also the operation id of the first commit.
    """

    def __init__(self, session: Session, plan: CompactionPlan, operation_id: str) -> None:
        self.session = session
        self.plan = plan
        self.operation_id = operation_id
        self.tally = Tally()
        self.next_step = "all groups were committed"
        self._table = plan.table
        self._losses = Losses()
        self._keeper = BaseKeeper(session, plan, operation_id)
        # The numbers of the plan's groups that are committed or lost.
        self._settled: set[int] = set()
        self._conflict: CommitConflictError | None = None
        self._wrong: list[Disagreement] = []
        self._failed: list[FileGroup] = []
        self._tasks = 0
        self._commits = 0

    def close(self) -> None:
        """Remove what the run keeps in the table only while it works."""
        self._keeper.end(self._table)

    def all_rounds(self) -> None:
        """Rewrite and commit, then do so again for the groups that conflicted.

        Raises:
            CommitConflictError: nothing could be committed.
        """
        gone: list[FileGroup] = []
        for rounds_left in reversed(range(_ROUNDS)):
            self.session.interrupts.checkpoint()
            lost = self._round()
            self._failed = gone + lost
            self.tally.totals.failed_groups = len(self._failed)
            if not lost or not rounds_left or self.session.has_ended or not self._plan_again(lost):
                break
            planned = {path for group in self.plan.groups for path in group.paths}
            gone += [group for group in lost if not planned & set(group.paths)]
        if self._conflict is not None:
            self._name_writers()
            if not self.tally.snapshot_ids:
                raise self._conflict
        self._warn_of_metrics()
        # All reported files that still exist are committed.
        self.next_step = "the files of lost tasks were removed"
        remove_lost_attempts(self.session, self._table, self.operation_id, [])
        if self.plan.options.remove_dangling_deletes:
            self.next_step = "the delete files that apply to no data file were removed"
            self._remove_dangling()

    def depth(self) -> DepthFacts | None:
        """Return how deep files overlap after the commits; None if that is not asked, or not known."""
        try:
            engine_of = self.session.planning_engine
            return depth_now(self.plan, self._table, engine_of=engine_of)
        except LakeError as error:
            self.session.warn(f"the files were rewritten, and cannot be compared: {error.message}")
            return None

    def _name_writers(self) -> None:
        """Name the groups that are left for the next run, and the writers that changed their files."""
        lost = self._losses.of(self._failed)
        if lost:
            self.tally.totals.lost_groups = lost
            self.session.warn(described(lost))

    def _round(self) -> list[FileGroup]:
        """Rewrite and commit all groups of the plan; return those that conflicted.

        Raises:
            TimedOutError: the time of the run has ended; what was rewritten until then was committed.
        """
        self._failed = []
        self.plan = self.plan.with_statistics()
        waiting: list[Rewritten] = []
        for number, done in enumerate(self._checked(), start=1):
            self.session.interrupts.checkpoint()
            if done.group.number in self._settled:
                self._discard([done])
            else:
                waiting.append(done)
            has_ended = self.plan.options.partial_progress and self.session.has_ended
            if has_ended or len(waiting) >= self._groups_per_commit():
                self._commit(waiting)
                waiting = []
            if has_ended and number < len(self.plan.groups):
                raise TimedOutError("the time of the run has ended")
        if waiting:
            self._commit(waiting)
        return self._failed

    def _groups_per_commit(self) -> int:
        return self.plan.options.limits.per_commit(len(self.plan.groups))

    def _plan_again(self, conflicting: Sequence[FileGroup]) -> bool:
        """Plan the files of conflicting groups on the refreshed table; False if there is nothing to do."""
        before = {path for group in conflicting for path in group.paths}
        try:
            options = self.plan.options
            if options.idle_learned_at_ms is not None:
                options = replace(options, idle_learned_at_ms=self.session.clock.now_ms())
            fresh = plan_compaction(
                self._table.refreshed(),
                options,
                branch=self.plan.branch,
                engine_of=self.session.planning_engine,
            ).with_names()
        except RefusedError as error:
            self.session.warn(f"conflicting groups were not planned again: {error.message}")
            return False
        groups = [group for group in fresh.groups if before & set(group.paths)]
        self.plan = replace(fresh, groups=groups)
        self._table = fresh.table
        self._keeper.begin(self.plan)
        self._settled = set()
        return bool(groups)

    def _look(self) -> None:
        """Keep the plan valid; groups that cannot be committed any more are lost."""
        if not self._keeper.is_due:
            return
        with suppress(LakeError):
            now = self._table.refreshed()
            since_id, remaining = self._keeper.validated_id, self._open_groups()
            affected = self._keeper.look(now, remaining)
            hit = [group for group in remaining if affected & set(group.paths)]
            if hit:
                self._conflict = ConflictingFilesError("rows were deleted meanwhile", affected)
                self._lose(hit, since_id)

    def _open_groups(self) -> list[FileGroup]:
        return [group for group in self.plan.groups if group.number not in self._settled]

    # Rewriting

    def _checked(self) -> Iterator[Rewritten]:
        """Yield groups that are completely rewritten and have passed the checks."""
        doubtful: list[tuple[Rewritten, list[Disagreement]]] = []
        for done in self._rewritten():
            check_rows(done.group.rows, done.rows, done.files, dropped=done.dropped)
            differences = metric_differences(
                done.group.files,
                done.files,
                schema=self.plan.table.schema,
                spec=self.plan.spec,
                fewer_rows=done.dropped > 0,
            )
            certain = any(item.certain for item in differences)
            if not differences or (self.plan.options.verify and not certain):
                yield done
            else:
                doubtful.append((done, differences))
        for done, differences in doubtful:
            self._compare(done, differences)
            yield done

    def _compare(self, done: Rewritten, differences: Sequence[Disagreement]) -> None:
        """Compare every value, to decide whether the new rows or the metadata of the old files are wrong.

        Raises:
            LakeError: the rows differ, or the metadata of the new files does not describe them.
            CorruptFileError: values that the metadata of the old files counts are read as NULL, because a file does
                not contain their column.
        """
        worst = max(differences, key=lambda item: (item.certain, not item.of_bounds))
        payload = CompareTask(
            reading=self.plan.reading(self.plan.deletes(done.group.numbers)),
            before=done.slices,
            after=[FileSlice.of(file) for file in done.files],
            files=done.files,
        )
        engine = self.session.engine(self.plan.input_bytes)
        missing: set[int] = set()
        for result in engine.run([Task(payload)], compare, storage=self.plan.table.storage):
            if not result.value.same:
                raise LakeError(f"{worst.text}; nothing was committed")
            missing |= set(result.value.missing)
            if result.value.described is not None:
                self._check_new(done, result.value.described)
        for item in differences:
            if item.lost_in in missing:  # check: lost-values
                raise CorruptFileError(
                    f"{item.text}, because a file does not contain the column: the table's metadata or the file is "
                    "wrong",
                    hint="nothing was committed",
                )
        if worst.certain:
            self._wrong.append(worst)

    def _check_new(self, done: Rewritten, rows: DataFile) -> None:
        """Compare the metadata of new files with the rows that were read from them.

        Raises:
            LakeError: the metadata does not describe the rows.
        """
        schema, spec = self.plan.table.schema, self.plan.spec
        read = entries_of([rows], spec=spec, schema=schema, status=1, snapshot_id=0)
        for item in metric_differences(read, done.files, schema=schema, spec=spec):
            if item.certain:
                raise LakeError(f"in the new files, {item.text}; nothing was committed")

    def _warn_of_metrics(self) -> None:
        """Warn once that bounds or counts of old files were wrong; the rewrite corrected them."""
        if count := len(self._wrong):
            groups = "a group of files" if count == 1 else f"{count} groups of files"
            what = "bounds" if self._wrong[0].of_bounds else "counts"
            self.session.warn(
                f"the metadata of {groups} had wrong {what} ({self._wrong[0].text}), so filters may have skipped "
                f"rows; the {what} of the new files are correct"
            )

    def _rewritten(self) -> Iterator[Rewritten]:
        """Yield groups whose tasks have all finished."""
        rewriter = Rewriter(self.session, self.plan, self.operation_id, self._tasks, self._look)
        try:
            yield from rewriter.groups(self._groups_per_commit())
        finally:
            self._tasks = rewriter.tasks

    # Committing

    def _commit(self, groups: Sequence[Rewritten]) -> None:
        """Commit groups in one snapshot, without those that conflict."""
        lost = [item for item in groups if item.group.number in self._settled]
        self._discard(lost)
        remaining = [item for item in groups if item.group.number not in self._settled]
        tries = _COMMIT_TRIES
        while remaining:
            try:
                self._commit_once(remaining)
            except ConflictingFilesError as error:
                self._conflict = error
                failed = [
                    item for item in remaining if error.paths & set(item.group.paths)
                ] or remaining
            except CommitConflictError as error:
                self._conflict = error
                tries -= 1
                failed = [] if tries else remaining
            else:
                return
            self._discard(failed)
            self._lose([item.group for item in failed], self._keeper.validated_id)
            numbers = {item.group.number for item in failed}
            remaining = [item for item in remaining if item.group.number not in numbers]

    def _lose(self, groups: Sequence[FileGroup], since_id: int | None) -> None:
        """Note the groups that are lost in this round, and the commits since a snapshot that may be the reason."""
        self._failed += groups
        self._settled |= {group.number for group in groups}
        if groups:
            with suppress(LakeError):
                # What is not known only lacks in the warning.
                self._table = self._table.refreshed()
            writers = others_since(
                self._table.metadata,
                self.plan.branch,
                since_id,
                own=self.tally.snapshot_ids,
                files_changed=isinstance(self._conflict, ConflictingFilesError),
            )
            self._losses.add([(group, self.plan.partition_of(group)) for group in groups], writers)

    def _commit_once(self, groups: Sequence[Rewritten]) -> None:
        # The operation id identifies a commit, so every further commit needs a new one.
        operation_id = self.session.ids.uuid() if self._commits else self.operation_id
        self._commits += 1
        # Refreshed: other writers may have committed while the rows were rewritten.
        committed = commit_snapshot(
            self.session,
            self._table.refreshed(),
            self._operation(groups),
            CommitRequest(operation_id=operation_id, branch=self.plan.branch),
        )
        self._table = committed.table
        self._settled |= {item.group.number for item in groups}
        self.tally.add(groups, committed, operation_id)

    def _operation(self, groups: Sequence[Rewritten]) -> RewriteFiles:
        base = self.plan.base
        added = [file for item in groups for file in item.files]
        removed = [path for item in groups for path in item.group.paths]
        # Expiry deletes a path that a snapshot removes, even if another snapshot adds it.
        if base is None or {file.path for file in added} & set(removed):
            raise LakeError("the rewrite would remove a file that it adds; nothing was committed")
        return RewriteFiles(
            added=added,
            removed_paths=removed,
            base_snapshot_id=self._keeper.validated_id or base.snapshot_id,
            data_sequence_number=base.sequence_number if self.plan.keeps_sequence_number else None,
        )

    def _remove_dangling(self) -> None:
        """Remove delete files that apply to no data file, in a separate commit on the current head."""
        self.session.interrupts.checkpoint()
        table = self._table.refreshed()
        head = ancestry.branch_head(table.metadata, self.plan.branch)
        if head is None:
            return
        removed = dangling_deletes(
            live_files(
                table,
                head,
                columns=dangling.COLUMNS,
                with_deletes=False,
                engine_of=self.session.planning_engine,
            )
        )
        if not removed:
            return
        operation_id = self.session.ids.uuid()
        operation = RewriteFiles(
            added=[], removed_paths=[], base_snapshot_id=head.snapshot_id, removed_deletes=removed
        )
        request = CommitRequest(operation_id=operation_id, branch=self.plan.branch)
        committed = commit_snapshot(self.session, table, operation, request)
        self.tally.add([], committed, operation_id)

    def _discard(self, groups: Sequence[Rewritten]) -> None:
        unused = [file.path for item in groups for file in item.files]
        if self.plan.table.storage.delete(unused).failed:
            self.session.warn("some files of groups that were not committed could not be removed")


def _more_files(plan: CompactionPlan, tally: Tally | None) -> list[str]:
    """Return a warning if a compaction makes, or is expected to make, more files than it removes."""
    before = sum(group.files.num_rows for group in plan.groups)
    by_size = sum(group.output_files for group in plan.groups)
    after = sum(group.expected_files for group in plan.groups)
    if tally is not None:
        before, after = tally.totals.rewritten_files, tally.totals.added_files
    if after <= before:
        return []
    cause = f"the target size is {format_size(plan.options.target_size)}"
    if by_size <= before:
        cause = f"partition spec {plan.spec.spec_id} puts their rows into more partitions"
    about = "about " if tally is None else ""
    return [f"the rewrite turns {before:,} files into {about}{after:,}: {cause}"]


def _outcome(
    plan: CompactionPlan,
    status: Status,
    tally: Tally | None = None,
    operation_id: str | None = None,
) -> Outcome:
    return Outcome(
        status=status,
        operation_id=operation_id,
        base_snapshot_id=plan.base.snapshot_id if plan.base else None,
        snapshot_ids=tally.snapshot_ids if tally else [],
        warnings=_more_files(plan, tally),
        plan=plan.facts(),
        result=tally.totals if tally else NoFacts(),
    )
