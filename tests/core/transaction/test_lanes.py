"""Work on several tables at a time: which thread does what, and how all of them end."""

from __future__ import annotations

import signal
import threading
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as of_examples
from hypothesis import strategies as st
from support.tables.iceberg_tables import open_session

from lake.core.base.errors import StoppedError
from lake.core.base.progress import Meter
from lake.core.engine import selection
from lake.core.engine.inline import InlineEngine
from lake.core.engine.selection import INLINE_BYTES
from lake.core.transaction.lanes import usual_jobs, work_on_each
from lake.core.transaction.session import Session

_SECONDS = 10.0


class Gate:
    """Lets threads go on one at a time, in an order that a test chooses.

    Args:
        picks: chooses the thread that goes on, among those that wait.
        most: how many threads there are.
        items: the number of items.
    """

    def __init__(self, picks: list[int], most: int, items: int) -> None:
        self._picks = iter(picks)
        self._most, self._left = most, items
        self._waiting: list[threading.Event] = []
        self._lock = threading.Lock()

    def wait(self) -> None:
        """Wait until this thread goes on."""
        mine = threading.Event()
        with self._lock:
            self._waiting.append(mine)
            self._pick()
        assert mine.wait(_SECONDS)

    def leave(self) -> None:
        """Note that an item has ended; another one may go on."""
        with self._lock:
            self._left -= 1
            self._pick()

    def _pick(self) -> None:
        if self._waiting and len(self._waiting) == min(self._most, self._left):
            self._waiting.pop(next(self._picks, 0) % len(self._waiting)).set()


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Session:
    """A session on an empty warehouse."""
    return open_session(tmp_path_factory.mktemp("warehouse"))


def is_large(item: Any) -> bool:
    """Let no item be large."""
    del item
    return False


@of_examples(max_examples=30, deadline=None)
@given(
    items=st.integers(0, 7), jobs=st.integers(1, 4), picks=st.lists(st.integers(0, 9), max_size=20)
)
def test_each_item_is_done_once_and_its_steps_keep_their_order_whichever_thread_goes_on(
    session: Session, items: int, jobs: int, picks: list[int]
) -> None:
    gate, done = Gate(picks, jobs, items), dict[int, list[str]]()

    def work(lane: Session, item: int) -> None:
        for step in ("plan", "commit"):
            gate.wait()
            lane.warn(f"{step} of {item}")
        done[item] = lane.warnings.copy()
        lane.warnings.clear()
        gate.leave()

    work_on_each(session, jobs, range(items), work, is_large=is_large)

    # No thread has the warnings of another one.
    assert done == {item: [f"plan of {item}", f"commit of {item}"] for item in range(items)}


def test_large_items_are_done_by_the_main_thread_in_their_order_beside_the_others(
    session: Session,
) -> None:
    main, both = threading.get_ident(), threading.Barrier(3, timeout=_SECONDS)
    places: dict[str, int] = {}

    def work(lane: Session, item: str) -> None:
        assert lane is not session
        places[item] = threading.get_ident()
        if item in {"small 1", "small 2", "large 1"}:
            both.wait()

    items = ["small 1", "large 1", "small 2", "large 2"]
    work_on_each(session, 2, items, work, is_large=lambda item: item.startswith("large"))

    assert [item for item, place in places.items() if place == main] == ["large 1", "large 2"]


def test_one_job_uses_the_session_itself(session: Session) -> None:
    used: list[tuple[Session, int]] = []

    work_on_each(session, 1, [1, 2], lambda *given: used.append(given), is_large=lambda _: True)

    assert used == [(session, 1), (session, 2)]


def test_what_one_thread_protects_no_other_one_deletes(session: Session) -> None:
    def work(lane: Session, item: int) -> None:
        lane.protected_files.add(str(item))

    work_on_each(session, 2, [1, 2], work, is_large=is_large)

    assert session.protected_files >= {"1", "2"}


def test_a_stop_ends_each_thread_at_its_next_checkpoint_and_begins_nothing(
    session: Session,
) -> None:
    working, ends = threading.Barrier(3, timeout=_SECONDS), dict[str, str]()

    def work(lane: Session, item: str) -> None:
        try:
            working.wait()
            if item == "large":
                signal.raise_signal(signal.SIGTERM)
            while True:
                lane.interrupts.checkpoint()
        except StoppedError:
            ends[item] = "stopped"
            raise

    def stop(number: int, _frame: object) -> None:
        raise StoppedError(number)

    before = signal.signal(signal.SIGTERM, stop)
    try:
        with pytest.raises(StoppedError) as raised:
            work_on_each(
                session, 2, ["a", "b", "c", "large"], work, is_large=lambda item: item == "large"
            )
    finally:
        signal.signal(signal.SIGTERM, before)
    assert raised.value.signal_number == signal.SIGTERM
    assert ends == dict.fromkeys(("a", "b", "large"), "stopped")


def test_a_stop_while_the_main_thread_waits_for_the_others_is_raised(session: Session) -> None:
    ended = []

    def work(lane: Session, item: int) -> None:
        if item == 0:
            signal.raise_signal(signal.SIGTERM)
        try:
            while True:
                lane.interrupts.checkpoint()
        finally:
            ended.append(item)

    def stop(number: int, _frame: object) -> None:
        raise StoppedError(number)

    before = signal.signal(signal.SIGTERM, stop)
    try:
        with pytest.raises(StoppedError):
            work_on_each(session, 2, [0, 1, 2, 3], work, is_large=is_large)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert set(ended) <= {0, 1}


def test_a_defect_of_one_thread_ends_the_others_and_is_raised(session: Session) -> None:
    both, ended = threading.Barrier(2, timeout=_SECONDS), []

    def work(lane: Session, item: int) -> None:
        both.wait()
        if item == 0:
            raise ValueError(str(item))
        try:
            while True:
                lane.interrupts.checkpoint()
        finally:
            ended.append(item)

    with pytest.raises(ValueError, match="0"):
        work_on_each(session, 2, [0, 1, 2], work, is_large=is_large)
    assert ended == [1]


def test_all_threads_together_have_in_memory_what_one_command_may_have(session: Session) -> None:
    lock, used, most = threading.Lock(), 0, 0
    half = INLINE_BYTES // 2
    sizes = [half, half + 1, half, 1, INLINE_BYTES, half]

    def work(lane: Session, item: int) -> None:
        nonlocal used, most
        lane.engine(sizes[item])
        with lock:
            used += sizes[item]
            most = max(most, used)
        with lock:
            used -= sizes[item]
        lane.end_command()

    work_on_each(session, 4, range(len(sizes)), work, is_large=is_large)

    assert 0 < most <= INLINE_BYTES


def test_the_threads_share_the_cores(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lake.core.transaction.lanes.usable_cores", lambda: 8)
    found = []

    def work(lane: Session, item: int) -> None:
        del item
        found.append(lane.engine(1).parallelism)

    work_on_each(session, 3, range(3), work, is_large=is_large)

    assert found == [2, 2, 2]


class Spark(InlineEngine):
    """Stands for Spark."""

    stopped = 0

    def stop(self) -> None:
        self.stopped += 1


@pytest.fixture
def sparks(monkeypatch: pytest.MonkeyPatch) -> list[Spark]:
    """The engines that were started for plans that are too large for this process."""
    made: list[Spark] = []

    def choose(*_: object) -> Spark:
        made.append(Spark())
        return made[-1]

    monkeypatch.setattr(selection, "choose_engine", choose)
    return made


def test_there_is_one_spark_and_one_thread_at_a_time_uses_it(
    session: Session, sparks: list[Spark]
) -> None:
    lock, users, most = threading.Lock(), 0, 0

    def work(lane: Session, item: int) -> None:
        nonlocal users, most
        engine = lane.engine(INLINE_BYTES + item + 1)
        assert engine is sparks[0]
        with lock:
            users += 1
            most = max(most, users)
        with lock:
            users -= 1

    try:
        work_on_each(session, 3, range(6), work, is_large=lambda item: item < 2)
        assert (most, len(sparks), sparks[0].stopped) == (1, 1, 0)
    finally:
        session.close()
    assert sparks[0].stopped == 1


def test_an_engine_that_breaks_is_replaced_for_the_next_action(
    session: Session, sparks: list[Spark]
) -> None:
    def work(lane: Session, item: int) -> None:
        lane.engine(INLINE_BYTES + 1)
        if item == 0:
            # As after an error of the engine.
            lane.close()

    try:
        work_on_each(session, 2, [0, 1], work, is_large=lambda _: True)
        assert [spark.stopped for spark in sparks] == [1, 0]
    finally:
        session.close()


class Display:
    """A progress display that keeps what it shows."""

    step = None

    def __init__(self) -> None:
        self.meter: Meter | None = None
        self.phases: list[str] = []

    def show(self, meter: Meter | None) -> None:
        self.meter = meter
        self.phases.append(meter.read().phase if meter else "")


def test_progress_counts_the_items_and_comes_back_after_a_message(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    display = Display()
    monkeypatch.setattr(session, "progress", display)
    counts = []

    def work(lane: Session, item: int) -> None:
        # A message hides the display.
        lane.progress.show(None)
        lane.progress.show(Meter("rewriting"))
        assert display.meter is not None
        counts.append(display.meter.read())
        assert item < 3

    work_on_each(session, 2, range(3), work, is_large=is_large)

    assert {work.phase for work in counts} == {"working on tables"}
    assert {work.total_tasks for work in counts} == {3}
    assert display.phases[-1] == ""


@pytest.mark.parametrize(
    ("served", "warehouse", "jobs"),
    [
        (False, "/tables", 1),
        (False, "file:///tables", 1),
        (False, None, 1),
        (False, "s3://bucket/tables", 8),
        (False, "gs://bucket", 8),
        (True, "production", 8),
        (True, "/tables", 8),
    ],
)
def test_several_tables_are_done_at_a_time_where_a_server_or_a_store_answers(
    *, served: bool, warehouse: str | None, jobs: int
) -> None:
    configured = {} if warehouse is None else {"warehouse": warehouse}
    catalog: Any = SimpleNamespace(is_served=served, configured=configured)

    assert usual_jobs(catalog) == jobs
