"""Work that threads do before its results are taken."""

from __future__ import annotations

import threading

import pytest

from lake.core.io.work_ahead import computed


@pytest.mark.parametrize("count", [0, 1, 2, 9])
def test_results_come_in_the_order_of_their_items(count: int) -> None:
    assert list(computed(str, iter(range(count)), 2)) == [str(item) for item in range(count)]


@pytest.mark.parametrize("count", [1, 2])
def test_all_items_are_left_to_threads(count: int) -> None:
    """Callers hold locks of the class on Python 3.11, with which they must not wait themselves."""
    assert threading.current_thread() not in computed(
        lambda _: threading.current_thread(), range(count)
    )
