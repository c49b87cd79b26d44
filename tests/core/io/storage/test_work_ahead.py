"""Threads work ahead of what is taken, if there is more than one thing to do."""

from __future__ import annotations

from threading import get_ident

import pytest

from lake.core.io.storage.work_ahead import computed


@pytest.mark.parametrize(("items", "in_threads"), [([], False), ([1], False), ([1, 2, 3, 4], True)])
def test_one_item_is_worked_on_without_a_thread(items: list[int], *, in_threads: bool) -> None:
    results = list(computed(lambda item: (10 * item, get_ident()), iter(items), 2))

    assert [value for value, _ in results] == [10 * item for item in items]
    assert all((thread != get_ident()) is in_threads for _, thread in results)
