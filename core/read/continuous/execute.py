"""Follow a table: discover, hand over, wait, in one thread.

Each step is saved before the next one begins: a discovery with all of its splits before a row is read, an epoch
before and after it is handed over. So the next run continues a killed one, wherever it was killed.
"""

from __future__ import annotations

import select
import tempfile
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from typing import Any, NoReturn

from lake.core.base.errors import (
    TRANSIENT_ERRORS,
    EngineError,
    LakeError,
    ReportedError,
    StoppedError,
)
from lake.core.base.facts import AlreadyRunning, RunFacts
from lake.core.base.outcome import InterruptedResult, Outcome, Status
from lake.core.base.progress import Meter, shown
from lake.core.io.storage.state_folder import StateFolder
from lake.core.read.continuous.discovery import Discovery, discover
from lake.core.read.continuous.handover.discovered import save_discovery
from lake.core.read.continuous.handover.hand_over import HandOver
from lake.core.read.continuous.handover.state import RING, StateStore
from lake.core.read.continuous.metrics import metrics_text, replace_metrics
from lake.core.read.continuous.options import FollowOptions
from lake.core.read.continuous.position import effect_of_skipping
from lake.core.read.continuous.protection import Protection
from lake.core.read.continuous.report import metric_values
from lake.core.read.continuous.run import Run, followed_table
from lake.core.read.continuous.stop_rules import StopRules
from lake.core.read.scan.execute import skipped_message
from lake.core.table.catalogs.catalog import Table
from lake.core.table.snapshots import ancestry
from lake.core.transaction.session import Session

# What may pass by itself, so that a service tries again.
_TRANSIENT = (*TRANSIENT_ERRORS, EngineError)
# A closed pipe is noticed after this many seconds without new rows.
_LOOK_SECONDS = 1.0
_METRICS_SECONDS = 1.0


def follow(session: Session, identifier: str, options: FollowOptions) -> Outcome:
    """Follow a table until a stop rule applies; see `FollowOptions`.

    Raises:
        GapError: history or files that were not read do not exist any more; nothing moved.
        InvalidRequestError: the options contradict the saved state.
        RefusedError: the state or the output belongs to another table or state.
        CorruptFileError: the state is damaged, or rows are missing.
        LockedError: another run held the state for the whole time to wait.
        StoppedError: a stop signal came while rows were handed over; the epoch was not.
    """
    with ExitStack() as stack:
        path = options.state or stack.enter_context(
            tempfile.TemporaryDirectory(prefix="lake-follow-")
        )
        folder = StateFolder.at(path, clock=session.clock, ids=session.ids)
        store = StateStore(folder, durable=options.state is not None)
        table = followed_table(session, identifier, store.load)
        if not stack.enter_context(folder.held("scan", options.wait)):
            return _already_running(table, options, folder.owner())
        with closing(_Follow(Run(session, table, options, store))) as following:
            return following.work()


def _already_running(table: Table, options: FollowOptions, owner: RunFacts) -> Outcome:
    return Outcome(
        status=Status.ALREADY_RUNNING,
        result=AlreadyRunning(owner),
        base_snapshot_id=ancestry.head_id(table.metadata, options.branch),
    )


class _Follow:
    """The work of one run. Close it at the end."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._hand_over = HandOver(run, self._take)
        self._protection = Protection(run)
        self._stop_rules = StopRules(run)
        self._discovered_at: float | None = None
        self._measured_at: float | None = None
        self._failed_epochs = 0
        # When the hand-over is tried again after a failure.
        self._retry_at = run.started
        # Whether the last discovery left something that is known already.
        self._behind = False
        self._until_reached = False
        # The warnings about keys so far; most discoveries have the same.
        self._warned: set[str] = set()

    def close(self) -> None:
        """Close the files."""
        self._hand_over.close()
        self._run.close()

    def work(self) -> Outcome:
        """Work until a stop rule applies."""
        try:
            self._run.recover()
            self._run.found.position = self._run.position
            if not self._run.position:
                self._run.found.strategy = self._run.options.first.strategy
            if self._run.options.once:
                self._once()
            else:
                self._continuously()
            if self._run.pipe is not None:
                self._run.pipe.close()
        except StoppedError as error:
            if self._hand_over.in_epoch or self._run.options.once:
                self._fail(error)
            self._run.done.stopped_by = "signal"
        except BrokenPipeError:
            self._run.done.stopped_by = "pipe"
        except LakeError as error:
            self._fail(error)
        self._protection.update(at_end=True)
        self._measure(failed=False, at_end=True)
        return self._outcome()

    # Loops

    def _once(self) -> None:
        """Read what there is now."""
        target = ancestry.head_id(self._run.table.metadata, self._run.options.branch)
        self._hand_over_all()
        while (discovery := self._discovered(target)) is not None:
            self._take(discovery)
            self._hand_over_all()
            if discovery.reached_target or self._stop_rules.apply():
                break
            self._run.refresh()
        self._run.done.stopped_by = self._run.done.stopped_by or "once"

    def _hand_over_all(self) -> None:
        while self._run.state.pending and not self._stop_rules.apply():
            self._hand_over.next_epoch()

    def _continuously(self) -> None:
        """Read what is added, until a stop rule applies."""
        interval = self._run.options.monitor_interval / 1000
        target = self._stop_rules.last_snapshot()
        tick = self._run.clock.monotonic()
        while not self._stop_rules.apply():
            now = self._run.clock.monotonic()
            paused = self._is_paused()
            if now >= tick and not paused:
                # Late ticks are not made up for.
                tick = now + interval
                self._tick(target)
            elif self._run.state.pending and now >= self._retry_at:
                self._retry_at = now + interval if self._try_epoch() else now
            elif self._behind and not self._run.state.pending:
                self._tick(target)
            elif self._until_reached and not self._run.state.pending:
                self._run.done.stopped_by = "until"
            elif self._run.state.pending:
                self._wait(self._retry_at - now if paused else min(tick, self._retry_at) - now)
            else:
                self._wait(tick - now)

    def _tick(self, target: int | None) -> None:
        """Look for new snapshots. A failure that may pass is counted."""
        try:
            self._run.refresh()
            discovery = self._discovered(target)
            if discovery is not None:
                self._take(discovery)
            self._until_reached = target is not None and not self._behind
        except _TRANSIENT as error:
            self._count_failure(error)
        else:
            if self._run.state.planning_failures:
                self._run.save(self._run.state.changed(planning_failures=0))
        self._measure(failed=False)

    def _count_failure(self, error: LakeError) -> None:
        count = self._run.state.planning_failures + 1
        totals = self._run.state.totals
        more = totals.model_copy(update={"planning_failures": totals.planning_failures + 1})
        self._run.save(self._run.state.changed(planning_failures=count, totals=more))
        self._behind = False
        self._refuse_too_many(error, count)

    def _refuse_too_many(self, error: LakeError, count: int) -> None:
        most = self._run.options.max_planning_failures
        if most >= 0 and count > most:
            raise error
        self._run.session.warn(f"a step failed and is tried again: {error.message}")

    def _try_epoch(self) -> bool:
        """Hand over the next epoch; return whether that failed for a reason that may pass."""
        try:
            if self._failed_epochs and self._run.pipe is None:
                # What is on the disk decides, not what this run remembers.
                self._run.state = self._run.store.load() or self._run.state
                self._run.recover()
            if self._run.state.pending:
                self._hand_over.next_epoch()
        except _TRANSIENT as error:
            self._failed_epochs += 1
            self._refuse_too_many(error, self._failed_epochs)
            self._hand_over.give_up()
            return True
        self._failed_epochs = 0
        self._measure(failed=False)
        return False

    def _wait(self, seconds: float) -> None:
        """Wait for the next tick, but not beyond the end of the run."""
        until = self._run.clock.monotonic() + min(
            max(seconds, 0.0), self._stop_rules.seconds_left()
        )
        with shown(self._run.session.progress, Meter("waiting for new snapshots")):
            while (rest := until - self._run.clock.monotonic()) > 0:
                if self._run.pipe is None:
                    self._run.clock.sleep(rest)
                else:
                    _refuse_broken(self._run.pipe.stream)
                    self._run.clock.sleep(min(rest, _LOOK_SECONDS))

    def _is_paused(self) -> bool:
        """Whether enough splits wait: as many as the last three discoveries found, or the most that may wait."""
        pending, history = self._run.state.pending_splits, self._run.state.history
        most = self._run.options.max_pending_splits
        if most is not None and pending >= most:
            return True
        return len(history) == RING and pending >= sum(history)

    # Discovery

    def _discovered(self, target: int | None) -> Discovery | None:
        with shown(self._run.session.progress, Meter("looking for new snapshots")):
            found = discover(
                self._run.table,
                self._run.position,
                self._run.options,
                now_ms=self._run.clock.now_ms(),
                target=target,
                common=self._run.common,
            )
        self._discovered_at = self._run.clock.monotonic()
        self._behind = found is not None and not found.reached_target
        return found

    def _take(self, discovery: Discovery) -> None:
        """Save a discovery with its splits, if it continues the saved position."""
        if not save_discovery(self._run, discovery):
            return
        self._warn_of(discovery)
        if discovery.replaces:
            self._hand_over.close()
        self._protection.update()

    def _warn_of(self, discovery: Discovery) -> None:
        """Warn of rows that are missing or too many: a run without an end reports them now."""
        session, gap = self._run.session, discovery.gap
        for message in discovery.keys.warnings if discovery.keys else ():
            if message not in self._warned:
                self._warned.add(message)
                session.warn(message)
        if gap is not None:
            effect = effect_of_skipping(gap, "handed over")
            session.warn(
                f"gap {gap.kind} in {self._run.table.identifier} after {gap.position}: "
                f"{'the whole table is read again' if discovery.replaces else effect}; "
                f"the scan goes on after {gap.resumed_at}"
            )
        if discovery.skipped:
            session.warn(
                skipped_message([(item.snapshot_id, item.operation) for item in discovery.skipped])
            )

    # Report

    def _outcome(self) -> Outcome:
        head = ancestry.head_id(self._run.table.metadata, self._run.options.branch)
        position = self._run.position
        moved = self._run.done.epochs or position != self._run.found.position
        done = Status.DONE if moved else Status.NOTHING_TO_DO
        return Outcome(
            status=Status.PARTIAL if self._run.done.gaps else done,
            base_snapshot_id=position.snapshot_id if position else None,
            plan=replace(self._run.found, head=None if head is None else str(head)),
            result=self._run.result(),
        )

    def _fail(self, error: ReportedError) -> NoReturn:
        """Raise an error with what the run did before it."""
        error.result = InterruptedResult(done=self._run.result(), own=error.result)
        with suppress(LakeError):
            self._measure(failed=True, at_end=True)
        raise error

    def _measure(self, *, failed: bool, at_end: bool = False) -> None:
        """Write the metrics file, at most once a second, and at the end."""
        path = self._run.options.metrics_file
        now = self._run.clock.monotonic()
        recent = self._measured_at is not None and now - self._measured_at < _METRICS_SECONDS
        if path is None or (recent and not at_end):
            return
        self._measured_at = now
        idle = None if self._discovered_at is None else round(now - self._discovered_at, 3)
        values = metric_values(self._run.state, self._run.lag(), idle_seconds=idle, failed=failed)
        labels = {"table": self._run.table.identifier, "state": self._run.store.folder.path}
        try:
            replace_metrics(path, metrics_text(labels, values), ids=self._run.session.ids)
        except LakeError as error:
            self._run.session.warn(f"the metrics were not written: {error.message}")


def _refuse_broken(stream: Any) -> None:
    """Raise an error if no process reads a stream any more.

    Raises:
        BrokenPipeError: the other end of the pipe is closed.
    """
    try:
        descriptor = stream.fileno()
    except (OSError, AttributeError):
        return
    poll = select.poll()
    poll.register(descriptor, 0)
    if any(events & select.POLLERR for _, events in poll.poll(0)):
        raise BrokenPipeError
