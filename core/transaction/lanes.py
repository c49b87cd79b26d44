"""Work on several tables at a time: each thread has a session of its own, and all share one catalog and one Spark."""

from __future__ import annotations

import signal
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar

from lake.core.base import locations
from lake.core.base.errors import InvalidRequestError, StoppedError
from lake.core.base.interrupts import STOPPED, Interrupts
from lake.core.base.options import Option
from lake.core.base.progress import Meter, shown
from lake.core.engine.inline import InlineEngine, usable_cores
from lake.core.engine.selection import INLINE_BYTES, engine_name
from lake.core.transaction.session import Session
from lake.core.transaction.shares import Shares

if TYPE_CHECKING:
    from lake.core.base.progress import Progress, Step
    from lake.core.base.settings import Settings
    from lake.core.engine.tasks import Engine
    from lake.core.table.catalogs.catalog import Catalog

T = TypeVar("T")
# The main thread waits in steps, so that a signal's exception reaches it on every platform.
_WAIT_SECONDS = 0.2
_PHASE = "working on tables"
_MOST_JOBS = 64
# The tables at a time if each waits for a server or for a store most of the time.
_FAR_JOBS = 8


def require_jobs(jobs: int | None) -> None:
    """Check how many tables are worked on at a time; None for `usual_jobs`.

    Raises:
        InvalidRequestError: the number is not allowed.
    """
    if jobs is not None and not 1 <= jobs <= _MOST_JOBS:
        raise InvalidRequestError(f"{Option.JOBS} {jobs} is not between 1 and {_MOST_JOBS}")


def usual_jobs(catalog: Catalog) -> int:
    """Return how many tables are worked on at a time if the user does not say.

    One, if the tables are on a local disk in a local catalog: threads share one processor. More, if commits are sent
    to a server or the warehouse is in an object store.
    """
    warehouse = str(catalog.configured.get("warehouse") or "")
    is_far = catalog.is_served or bool(warehouse and not locations.parse(warehouse).is_local)
    return _FAR_JOBS if is_far else 1


def needs_spark(input_bytes: int, settings: Settings) -> bool:
    """Return whether Spark does a plan that reads `input_bytes`."""
    return engine_name(settings.engine, input_bytes, settings) != InlineEngine.name


def work_on_each(
    session: Session,
    jobs: int,
    items: Sequence[T],
    work: Callable[[Session, T], None],
    *,
    is_large: Callable[[T], bool],
) -> None:
    """Work on items, several at a time; one job, or one item, is done in order and with the session itself.

    Large items are done one after the other in this thread, beside the others. A stop signal ends all threads, each
    after the part in hand; it is raised when they have ended.

    Args:
        session: the session. Each thread has another one with its catalog, clock and protected files.
        jobs: how many small items are done at a time.
        items: the items; each thread takes the next one.
        work: does an item. After an exception nothing else begins.
        is_large: whether an item needs Spark.

    Raises:
        StoppedError: the user stopped the run.
    """
    if jobs == 1 or len(items) == 1:
        for item in items:
            work(session, item)
        return
    _Lanes(session, jobs, items, work, is_large).run()


class _Lanes(Generic[T]):
    """The threads of one run."""

    def __init__(
        self,
        session: Session,
        jobs: int,
        items: Sequence[T],
        work: Callable[[Session, T], None],
        is_large: Callable[[T], bool],
    ) -> None:
        self._session = session
        self._work = work
        self._large = [item for item in items if is_large(item)]
        self._small = deque(item for item in items if not is_large(item))
        self._meter = Meter(_PHASE, tasks=len(items))
        shared = _Shared(session, min(jobs, max(len(self._small), 1)))
        # The main thread gets the signals, and shows the phases of its items.
        self._main = _lane(session, shared, session.progress, session.interrupts)
        self._sessions = [
            _lane(session, shared, _LaneProgress(session.progress, self._meter), Interrupts())
            for _ in range(min(jobs, len(self._small)))
        ]
        self._failure: BaseException | None = None

    def run(self) -> None:
        """Do all items."""
        with shown(self._session.progress, self._meter):
            started: list[threading.Event] = []
            try:
                for lane in self._sessions:
                    ended = threading.Event()
                    thread = threading.Thread(
                        target=self._do_small, args=(lane, ended), name="lane", daemon=True
                    )
                    thread.start()
                    started.append(ended)
                self._do_large()
                _wait_for(started)
            except StoppedError as stop:
                self._stop(stop.signal_number)
                raise
            except BaseException:
                self._stop(signal.SIGTERM)
                raise
            finally:
                self._small.clear()
                _wait_for(started)
                for lane in (*self._sessions, self._main):
                    lane.close_own()
        if self._failure is not None:
            raise self._failure

    def _do_large(self) -> None:
        for item in self._large:
            if self._failure is not None:
                return
            self._do(self._main, item)
        # A stop had no effect after the last commit of an item.
        self._main.next_command()

    def _do_small(self, lane: _Lane, ended: threading.Event) -> None:
        try:
            # A signal is noted before its exception reaches the main thread.
            while not STOPPED.is_set():
                try:
                    item = self._small.popleft()
                except IndexError:
                    return
                self._do(lane, item)
            if self._small:
                self._fail(StoppedError(signal.SIGTERM))
        except StoppedError as stop:
            # The main thread raises it, unless it comes from a task that another program stopped.
            self._fail(stop)
        except BaseException as error:  # noqa: BLE001 - raised again in the main thread
            self._fail(error)
        finally:
            ended.set()

    def _do(self, lane: _Lane, item: T) -> None:
        try:
            self._work(lane, item)
        finally:
            lane.end_command()
        self._meter.advance(tasks=1)

    def _fail(self, error: BaseException) -> None:
        if self._failure is None:
            self._failure = error
            self._stop(error.signal_number if isinstance(error, StoppedError) else signal.SIGTERM)

    def _stop(self, number: int) -> None:
        """Let each thread stop at its next checkpoint, and take nothing new."""
        self._small.clear()
        for lane in self._sessions:
            lane.interrupts.request(StoppedError(number))


def _wait_for(ended: Sequence[threading.Event]) -> None:
    # Not by `Thread.join`: if a signal interrupts it, Python 3.11 takes a running thread for one that has ended.
    for event in ended:
        while not event.wait(_WAIT_SECONDS):
            pass


class _Shared:
    """What the threads share.

    Args:
        session: the session whose Spark they use.
        lanes: the number of threads that use engines in this process.
    """

    def __init__(self, session: Session, lanes: int) -> None:
        self.session = session
        # All threads together have in memory what one command has without them.
        self.memory = Shares(INLINE_BYTES)
        self.spark = Shares(1)
        self.parallelism = max(usable_cores() // lanes, 1)


@dataclass(kw_only=True)
class _Lane(Session):
    """The session of a thread: its engine is given back at the end of each command."""

    shared: _Shared
    _given: Callable[[], None] | None = field(default=None, init=False)

    def engine(self, input_bytes: int) -> Engine:
        """Return the engine for a plan; wait until there is memory for it, or until no other thread uses Spark."""
        if self._engine is None:
            is_inline = not needs_spark(input_bytes, self.settings)
            shares = self.shared.memory if is_inline else self.shared.spark
            part = shares.take(input_bytes if is_inline else 1, self.interrupts.checkpoint)
            self._given = lambda: shares.give_back(part)
            if not is_inline:
                self._engine = self.shared.session.started(input_bytes)
            else:
                # What has most of the memory may have most of the cores, as other threads wait for memory.
                cores = max(usable_cores() * part // shares.limit, self.shared.parallelism)
                self._engine = InlineEngine(cores, ids=self.ids)
                self._started[InlineEngine.name] = self._engine
        return self._engine

    def manifest_engine(self, _size: int) -> None:
        """Return no engine: with many tables, each thread reads the manifests of its own."""

    def end_command(self) -> None:
        """Give the engine back."""
        given, self._given = self._given, None
        self._engine = None
        if given is not None:
            given()

    def close(self) -> None:
        """Stop the engine of the command, which failed; other threads use engines of their own."""
        if self._engine is not None and self._engine not in self._started.values():
            self.shared.session.close()
        self.close_own()

    def close_own(self) -> None:
        """Stop the engines of this thread."""
        super().close()
        self.end_command()


def _lane(session: Session, shared: _Shared, progress: Progress, interrupts: Interrupts) -> _Lane:
    return _Lane(
        settings=session.settings,
        catalog=session.catalog,
        clock=session.clock,
        ids=session.ids,
        progress=progress,
        interrupts=interrupts,
        announce=session.announce,
        note=session.note,
        retried=session.retried,
        # The same set: what one thread protects, no other one deletes.
        protected_files=session.protected_files,
        until=session.until,
        secrets=session.secrets,
        shared=shared,
    )


class _LaneProgress:
    """The progress of one of several threads: how many items are done is shown, and not the phases of each."""

    def __init__(self, display: Progress, overall: Meter) -> None:
        self.meter: Meter | None = None
        self.step: Step | None = None
        self._display = display
        self._overall = overall

    def show(self, meter: Meter | None) -> None:
        """Hide the display for None; show it again with the next phase."""
        self.meter = meter
        if meter is None:
            self._display.show(None)
        elif self._display.meter is None:
            self._display.show(self._overall)
