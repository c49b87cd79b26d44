"""Work that threads do before its results are taken."""

from __future__ import annotations

import threading

import pytest

from lake.core.io.work_ahead import computed


@pytest.mark.parametrize("count", [0, 1, 2, 9])
def test_results_come_in_the_order_of_their_items(count: int) -> None:
    assert list(computed(str, iter(range(count)), 2)) == [str(item) for item in range(count)]


def test_no_thread_starts_for_one_item() -> None:
    assert list(computed(lambda _: threading.current_thread(), [1])) == [threading.current_thread()]
    assert threading.current_thread() not in computed(lambda _: threading.current_thread(), [1, 2])
