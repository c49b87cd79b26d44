"""The run of a continuous load: epoch after epoch from files, a table or a topic, until there is a reason to stop."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar

from lake.core.base.errors import (
    CorruptFileError,
    LakeError,
    NotFoundError,
    RefusedError,
    ReportedError,
    StoppedError,
)
from lake.core.base.facts import Facts, NoFacts
from lake.core.base.options import Option
from lake.core.base.outcome import InterruptedResult, Outcome, Status
from lake.core.load.continuous.facts import StreamResult
from lake.core.load.continuous.loader import Stopped, between_epochs, ending_in_order
from lake.core.load.continuous.monitor import Monitor, Monitored
from lake.core.load.continuous.totals import Totals
from lake.core.table.snapshots import ancestry
from lake.core.table.snapshots.branch_notes import history_of, key_of
from lake.core.table.snapshots.streams import STREAM_NOTES, StreamEpoch, newest_epoch

if TYPE_CHECKING:
    from lake.core.load.continuous.loader import Loader
    from lake.core.table.catalogs.catalog import Table
    from lake.core.transaction.session import Session

Work = TypeVar("Work")


class UnfinishedEpoch(Exception):  # noqa: N818 - reported by the outcome
    """Tables of an epoch were not loaded: the next run loads them."""


@dataclass(slots=True, kw_only=True)
class ContinuousLoad(ABC, Generic[Work]):
    """One run of a continuous load. A subclass knows where the rows of its epochs come from.

    Args:
        loader: loads the epochs.
        totals: what the run did.
        compactions: how many of its epochs were followed by a compaction.
        stopped_by: why it ended: `once`, `signal` or `error`; None while it goes on.
        base_snapshot_id: the head of the branch when the run began.
        plan: the plan as it is shown.
    """

    loader: Loader
    totals: Totals = field(default_factory=Totals)
    compactions: int = 0
    stopped_by: str | None = None
    base_snapshot_id: int | None = None
    plan: Facts = NoFacts()

    @property
    def session(self) -> Session:
        """The session."""
        return self.loader.session

    @property
    def table(self) -> str:
        """The table's name."""
        return self.loader.table

    # What a subclass knows

    @property
    @abstractmethod
    def stream(self) -> Monitored:
        """The options of the stream."""

    @property
    @abstractmethod
    def epoch_number(self) -> int:
        """The number of the last epoch in the table; 0 if there is none."""

    @abstractmethod
    def begin(self) -> None:
        """Check the stream against the table and the source, finish what a killed run began, and set `plan`."""

    @abstractmethod
    def next_work(self) -> Work | None:
        """Wait for the rows of the next epoch; return None if the run is to end. Stops are raised inside."""

    @abstractmethod
    def load(self, work: Work) -> Mapping[str, int] | None:
        """Load rows as the next epoch and record it.

        Returns:
            What was loaded, counted by kind; None if this run committed nothing.
        """

    @abstractmethod
    def describe(self) -> str:
        """Return what is loaded, for the first line: ``watching FOLDER``."""

    @abstractmethod
    def count_waiting(self) -> tuple[str, int | None]:
        """Return what waits (``files``, ``snapshots``, ``messages``), and how much of it; None if that is unknown."""

    @abstractmethod
    def metrics(self) -> Mapping[str, float | None]:
        """Return what the file of metrics contains of this load."""

    @abstractmethod
    def facts(self) -> StreamResult:
        """Return the result."""

    @property
    def is_odd(self) -> bool:
        """Whether the run left something out, so that it is not entirely done."""
        return False

    # The run

    def run(self, compact: Callable[[], Outcome] | None) -> Outcome:
        """Load epoch after epoch until the options or a signal say to stop.

        Args:
            compact: compacts the table if that is due; None to never do it.

        Raises:
            LakeError: an epoch was not loaded. The error's result contains what was loaded before it.
        """
        with self.session.interrupts.several_commits():
            try:
                self._load_all(compact)
            except Stopped:
                self.stopped_by = "signal"
            except UnfinishedEpoch:
                self.stopped_by = "error"
            except ReportedError as error:
                with suppress(Stopped), ending_in_order():
                    self.loader.report()
                if self.totals.epochs:
                    # A stop's own result is that of its epoch only.
                    own = NoFacts() if isinstance(error, StoppedError) else error.result
                    error.result = InterruptedResult(done=self.facts(), own=own)
                with suppress(LakeError):
                    self.show(failed=True)
                raise
        return self.outcome()

    def _load_all(self, compact: Callable[[], Outcome] | None) -> None:
        self.begin()
        with ending_in_order():
            self.loader.report()
            self.show()
            first = f"{self.describe()} as stream {self.stream.stream} after epoch"
            self._say(f"{first} {self.epoch_number}; ")
        if self.epoch_number and self.base_snapshot_id is not None:
            # A killed run may have committed the last epoch and not compacted after it.
            self._compact(compact)
        while True:
            with between_epochs(self.session):
                work = self.next_work()
            if work is None:
                self.stopped_by = "once"
                return
            loaded = self.load(work)
            with ending_in_order():
                self.loader.report()
                self.show()
                if loaded is not None:
                    counts = "".join(f"{name}: {count:,}; " for name, count in loaded.items())
                    self._say(f"epoch {self.epoch_number}: {counts}", **loaded)
            if loaded is not None:
                self._compact(compact)

    def _compact(self, compact: Callable[[], Outcome] | None) -> None:
        """Compact the table, if that is wanted and due.

        Raises:
            Stopped: a stop arrived after the commit: it comes before a compaction, which may take long.
            CorruptFileError: a file of the table is damaged. Other failures are warnings: the rows are loaded.
        """
        if compact is None:
            return
        with between_epochs(self.session):
            pass
        try:
            outcome = compact()
        except CorruptFileError:
            raise
        except LakeError as error:
            self.session.warn(f"the rows are loaded, but the compaction failed: {error.message}")
            return
        self.compactions += outcome.status in {Status.DONE, Status.PARTIAL}

    # The table

    def table_now(self) -> Table | None:
        """Return the table; None if there is none yet."""
        try:
            return self.session.table(self.table)
        except NotFoundError:
            return None

    def newest(self) -> tuple[Table | None, StreamEpoch | None]:
        """Return the table, and the newest epoch of the stream in it; note the head when the run began."""
        table = self.table_now()
        branch, stream = self.stream.branch, self.stream.stream
        if table is None:
            return None, None
        if self.base_snapshot_id is None and not self.totals.epochs:
            self.base_snapshot_id = ancestry.head_id(table.metadata, branch)
        return table, newest_epoch(table, branch, stream)

    def is_noted(self, table: Table) -> bool:
        """Whether the table notes that the branch has had an epoch of the stream; it may have been rolled back."""
        notes = STREAM_NOTES.all_notes(table.metadata, self.stream.branch)
        return key_of(self.stream.stream) in dict(notes)

    def require_no_epoch(self, table: Table) -> None:
        """Check that a branch whose history has no epoch of the stream has none that expired.

        Raises:
            RefusedError: it may have one: rows would be loaded twice.
        """
        branch = self.stream.branch
        history = list(history_of(table.metadata, branch)) if self.is_noted(table) else []
        if history and not ancestry.is_first(table.metadata, history[-1]):
            raise RefusedError(
                f"the position of stream {self.stream.stream} in {self.table} is not known: branch {branch} was "
                "rolled back, and older snapshots have expired",
                hint=f"empty the table, or load what is missing and choose another {Option.STREAM}",
            )

    def lost_start(self) -> RefusedError:
        """Return the error for a stream whose start is not known, because its first epoch was rolled back."""
        return RefusedError(
            f"the start of stream {self.stream.stream} in {self.table} is not known: branch {self.stream.branch} was "
            "rolled back to a snapshot before the stream's first epoch",
            hint=f"choose another {Option.STREAM}, and its start",
        )

    # What is shown

    @property
    def _monitor(self) -> Monitor:
        return Monitor.of(self.session, self.table, self.stream)

    def _say(self, text: str, **facts: object) -> None:
        name, number = self.count_waiting()
        waiting = "unknown" if number is None else f"{number:,}"
        lag = {f"lag_{name}": waiting if number is None else number}
        self._monitor.say(
            f"{text}{name} waiting: {waiting}", epoch=self.epoch_number, **facts, **lag
        )

    def show(self, *, failed: bool = False) -> None:
        """Replace the file of metrics."""
        rows = self.totals.rows
        totals = {
            "epochs_total": self.totals.epochs,
            "rows_total": rows.rows_written if rows else 0,
            "rows_rejected_total": rows.rows_rejected if rows else 0,
        }
        self._monitor.looked({**self.metrics(), **totals}, failed=failed)

    def outcome(self, status: Status | None = None) -> Outcome:
        """Return the outcome; the status follows from what was done if it is None."""
        if status is None:
            is_changed = self.compactions or self.totals.epochs
            status = Status.DONE if is_changed else Status.NOTHING_TO_DO
            if self.is_odd or self.stopped_by == "error":
                status = Status.PARTIAL
        snapshot_id = self.totals.snapshot_id
        ids: Sequence[int] = () if snapshot_id is None else (snapshot_id,)
        return Outcome(
            status=status,
            operation_id=self.totals.operation_id,
            base_snapshot_id=self.base_snapshot_id,
            snapshot_ids=ids,
            plan=self.plan,
            result=NoFacts() if status is Status.DRY_RUN else self.facts(),
        )
