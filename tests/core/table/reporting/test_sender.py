"""The thread that sends reports."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from lake.core.table.reporting import sender as module
from lake.core.table.reporting.sender import Sender


def test_reports_are_sent_in_their_order_and_waited_for() -> None:
    sent: list[tuple[str, Any]] = []

    def send(address: str, report: Any) -> bool:
        sent.append((address, report))
        return True

    sender = Sender(send)
    for number in range(20):
        sender.add("address", number)
    sender.drain(10)

    assert sent == [("address", number) for number in range(20)]


def test_a_server_that_takes_none_is_asked_three_times() -> None:
    asked: list[Any] = []

    def send(_address: str, report: Any) -> bool:
        asked.append(report)
        return False

    sender = Sender(send)
    for number in range(10):
        sender.add("address", number)
        sender.drain(10)
    sender.add("address", 10)

    assert asked == [0, 1, 2]


def test_a_server_that_hangs_gets_a_bounded_number_and_is_not_waited_for_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_MOST_WAITING", 3)
    begun, ended, asked = threading.Event(), threading.Event(), []

    def send(_address: str, report: Any) -> bool:
        asked.append(report)
        begun.set()
        return ended.wait(30)

    sender = Sender(send)
    sender.add("address", 0)
    assert begun.wait(30)
    for number in range(1, 10):
        sender.add("address", number)
    sender.drain(0.01)
    assert asked == [0]
    ended.set()
    sender.drain(30)

    assert asked == [0, 1, 2, 3]


def test_a_thread_that_ended_for_lack_of_reports_is_started_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_IDLE_SECONDS", 0.0)
    sent: list[Any] = []
    threads: set[threading.Thread] = set()

    def send(_address: str, report: Any) -> bool:
        sent.append(report)
        threads.add(threading.current_thread())
        return True

    sender = Sender(send)
    sender.add("address", 1)
    sender.drain(10)
    for thread in threads:
        thread.join(30)
    sender.add("address", 2)
    sender.drain(10)

    assert (sent, len(threads)) == ([1, 2], 2)


def test_a_system_without_threads_sends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    sender = Sender(lambda *_: True)

    sender.add("address", 1)
    sender.drain(10)
