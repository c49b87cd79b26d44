"""Requests that a stop signal can end.

The clients wait for a store inside native code, where Python handles no signal, and the end of the process waits for
all threads of a pool. So each request is made by a thread that nothing waits for, and its caller waits for the answer
only as long as the command is not stopped. After the stop, an answer has a short time: that of a write decides
whether there is a file to remove. Then the store counts as silent, and nothing more is asked of it.

Threads that only read, for which nothing waits either, make their requests themselves: on a busy machine, handing
thousands of them over takes as long as the answers. What takes the results of these threads looks for the stop.
"""

from __future__ import annotations

import os
from _thread import LockType
from collections.abc import Callable
from concurrent.futures import Future, wait
from queue import SimpleQueue
from threading import Lock, Thread, local
from typing import Generic, TypeVar, cast

from lake.core.base.errors import TimedOutError
from lake.core.base.interrupts import STOPPED
from lake.core.io.objects.requests import timed_out

_T = TypeVar("_T")
# Raises what ends a wait.
Check = Callable[[], None]
# How long an answer may take after a stop.
_LAST_SECONDS = 1.5
# How often a thread that waits looks whether the command was stopped.
_LOOK_SECONDS = 0.25
# The hosts that did not answer after the stop of a command.
_silent: set[str] = set()
# Whether the thread makes its requests itself.
_reading = local()


def unchecked() -> None:
    """Let a wait go on: the default for `Check`."""


class _Request(Generic[_T]):
    """A request, and how it ended."""

    def __init__(self, work: Callable[[], _T]) -> None:
        self._work = work
        self._result: _T | None = None
        self._error: BaseException | None = None
        self.is_pending = Lock()
        self.is_pending.acquire()

    def make(self) -> None:
        """Make the request."""
        try:
            self._result = self._work()
        except BaseException as error:  # noqa: BLE001 - raised where the request is waited for
            self._error = error

    def has_ended(self, seconds: float) -> bool:
        """Wait for the answer, and return whether there is one."""
        if not self.is_pending.acquire(timeout=seconds):
            return False
        self.is_pending.release()
        return True

    def answer(self) -> _T:
        """Return what the request returned, or raise what it raised."""
        error, self._error = self._error, None
        if error is not None:
            try:
                raise error
            finally:
                del error
        return cast("_T", self._result)


class _Threads:
    """Threads that make requests; the end of the process does not wait for them."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Forget all threads, which do not exist in a fork."""
        # The locks of requests for which nothing waits any more.
        self.left = list[LockType]()
        self._waiting = SimpleQueue[_Request[object]]()
        self._idle = 0
        self._lock = Lock()
        # The requests that reading threads make themselves.
        self.read = 0

    def begin(self, request: _Request[object]) -> None:
        """Let an idle thread make a request, or a new one."""
        with self._lock:
            is_idle = self._idle > 0
            self._idle -= is_idle
        if is_idle:
            self._waiting.put(request)
        else:
            Thread(target=self._work, args=(request,), name="request", daemon=True).start()

    def make_here(self, work: Callable[[], _T]) -> _T:
        """Make a request in this thread."""
        with self._lock:
            self.read += 1
        try:
            return work()
        finally:
            with self._lock:
                self.read -= 1

    def _work(self, request: _Request[object]) -> None:
        while True:
            request.make()
            with self._lock:
                self._idle += 1
            request.is_pending.release()
            # An idle thread keeps no answer in memory.
            del request
            request = self._waiting.get()


_threads = _Threads()


os.register_at_fork(after_in_child=_threads.forget)


def has_requests() -> bool:
    """Whether requests are under way for which nothing waits.

    A store was silent after a stop, or was too slow, or what a thread reads was not needed.
    """
    return _threads.read > 0 or any(is_pending.locked() for is_pending in _threads.left)


def only_read() -> None:
    """Let this thread make its requests itself from now on. It writes nothing, and nothing waits for its end."""
    _reading.is_on = True


def answer_of(future: Future[_T]) -> _T:
    """Wait for the result of a thread that only reads; after a stop there is little time for it.

    Raises:
        TimedOutError: the command was stopped before the result came.
    """
    while not STOPPED.is_set():
        if _has_ended(future, _LOOK_SECONDS):
            return future.result()
    if _has_ended(future, _LAST_SECONDS):
        return future.result()
    raise TimedOutError("a server or a store did not answer before the command ended")


def _has_ended(future: Future[_T], seconds: float) -> bool:
    return future.done() or bool(wait([future], seconds).done)


def awaited(host: str, work: Callable[[], _T], check: Check = unchecked) -> _T:
    """Make a request in another thread and return its result.

    Args:
        host: what is asked, for the error.
        work: makes the request; its errors are raised here.
        check: called while the answer is waited for; raises what ends the wait. Only for requests that read.

    Raises:
        StoreError: the command was stopped, and there is no answer. Whether the request was processed is unknown.
        StoppedError: likewise, in the main thread.
    """
    if not STOPPED.is_set():
        _silent.clear()
        if check is unchecked and getattr(_reading, "is_on", False):
            return _threads.make_here(work)
    elif host in _silent:
        raise timed_out(host)
    request = _Request(work)
    try:
        _threads.begin(cast("_Request[object]", request))
        while not STOPPED.is_set():
            if request.has_ended(_LOOK_SECONDS):
                return request.answer()
            check()
    except BaseException:
        _wait_a_little(host, request)
        raise
    if _wait_a_little(host, request):
        return request.answer()
    raise timed_out(host)


def _wait_a_little(host: str, request: _Request[_T]) -> bool:
    has_ended = request.has_ended(_LAST_SECONDS)
    if not has_ended:
        _silent.add(host)
        _threads.left.append(request.is_pending)
    return has_ended
