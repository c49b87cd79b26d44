"""The meter of a phase: what tasks report, from any thread and in any order, counts once."""

from __future__ import annotations

import threading

from hypothesis import given
from hypothesis import strategies as st

from lake.core.base.progress import Meter

TASKS = 5
REPORTS = st.tuples(
    st.integers(0, TASKS - 1),
    st.integers(0, 1000),
    st.floats(0, 1) | st.sampled_from([-1.0, 2.0]),
    st.booleans(),
)


@given(st.lists(REPORTS, max_size=50))
def test_what_is_done_never_decreases_and_never_exceeds_the_total(
    reports: list[tuple[int, int, float, bool]],
) -> None:
    meter = Meter("reading", inputs=[10, 20, 30, 40, 0])
    before = meter.read()
    for task, rows, share, ends in reports:
        if ends:
            meter.finish(task, rows)
        else:
            meter.report(task, rows, share)
        work = meter.read()
        assert before.done_bytes <= work.done_bytes <= work.total_bytes == 100
        assert before.tasks <= work.tasks <= work.total_tasks == TASKS
        assert before.rows <= work.rows
        before = work
    for task in range(TASKS):
        meter.finish(task)
    assert meter.read().done_bytes == 100
    assert meter.read().tasks == TASKS


def test_a_task_that_is_attempted_twice_counts_once() -> None:
    meter = Meter("reading", inputs=[100])
    meter.report(0, 60, 0.6)
    meter.report(0, 10, 0.1)
    assert meter.read().rows == 60
    meter.finish(0, rows=100)
    meter.finish(0, rows=100)
    meter.report(0, 100, 1.0)

    work = meter.read()
    assert (work.tasks, work.rows, work.done_bytes) == (1, 100, 100)


def test_the_second_stage_counts_its_own_tasks() -> None:
    meter = Meter("sorting", inputs=[5, 5], then="writing")
    meter.finish(0)
    meter.next_stage(3)
    meter.next_stage(3)
    meter.finish(0, rows=7)

    work = meter.read()
    assert (work.phase, work.tasks, work.total_tasks, work.rows) == ("writing", 1, 3, 7)


def test_reports_from_many_threads_are_all_counted() -> None:
    meter = Meter("reading", tasks=1000)

    def work() -> None:
        for _ in range(100):
            meter.advance(tasks=1, rows=2)

    threads = [threading.Thread(target=work) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert (meter.read().tasks, meter.read().rows) == (1000, 2000)
