"""The status file of a process that makes one round after the other: a probe of a container reads it.

It is JSON and replaced whole: ``at`` (the heartbeat), ``since``, ``host``, ``state`` (``working``, ``waiting``, or
``stopped`` if the process has ended), ``rounds``, ``next_round`` (null while one works), ``last`` (the end of the
last round: ``at``, ``status``, ``actions``, ``failed``, ``rest`` and ``error``; null before), ``running`` (``table``
and ``action`` of each action that runs) and ``action`` (the first one of them, null between).
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from lake.core.base.errors import LakeError
from lake.core.base.outcome import Outcome, Status
from lake.core.base.process_identity import host_name
from lake.core.base.units import iso_time
from lake.core.io.storage.atomic_files import has_keys, replace_text, require_own
from lake.core.maintain.rounds.facts import RoundResult

if TYPE_CHECKING:
    from lake.core.base.clock import Clock, Ids
    from lake.core.base.errors import ReportedError

_HEARTBEAT_SECONDS = 5.0
# A longer file is not one of these.
_LARGEST = 65_536
_IDLE: Mapping[str, Any] = {"action": None, "running": []}
_DONE = frozenset({Status.DONE, Status.PARTIAL})
_OWN_KEYS = frozenset({"at", "since", "state"})


class StatusFile:
    """A status file.

    Args:
        path: where it is written; None for nowhere.
        clock: the clock.
        ids: makes the names of temporary files.
    """

    def __init__(self, path: str | None, clock: Clock, ids: Ids) -> None:
        self._path = path
        self._clock = clock
        self._ids = ids
        self._lock = threading.Lock()
        self._facts: dict[str, Any] = {
            "since": iso_time(clock.now_ms()),
            "host": host_name(),
            "state": "working",
            "rounds": 0,
            "next_round": None,
            "action": None,
            "running": [],
            "last": None,
        }

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Write the file at once and then every few seconds, until the block ends.

        Raises:
            InvalidRequestError: another file has this name.
            LakeError: it cannot be written at the beginning.
        """
        if self._path is None:
            yield
            return
        require_own(self._path, "a status file", partial(has_keys, _OWN_KEYS), _LARGEST)
        self._write()
        ended = threading.Event()

        def beat() -> None:
            while not ended.wait(_HEARTBEAT_SECONDS):
                self._write_if_possible()

        thread = threading.Thread(target=beat, name="lake-status", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
            self._set({**_IDLE, "state": "stopped", "next_round": None})

    @property
    def rounds(self) -> int:
        """The number of rounds that have ended."""
        found: int = self._facts["rounds"]
        return found

    def remove(self) -> None:
        """Remove the file: it has a name that is refused."""
        if self._path is None:
            return
        with self._lock, suppress(OSError):
            os.unlink(self._path)
            self._path = None

    def begin_round(self) -> None:
        """Note that a round begins."""
        self._set({"state": "working", "next_round": None})

    def set_running(self, running: Callable[[], Sequence[tuple[str, str]]]) -> None:
        """Note the tables and actions that run.

        Args:
            running: returns them; called while no other thread notes its own, so that the newest are noted last.
        """
        with self._lock:
            found = [{"table": table, "action": action} for table, action in running()]
            self._facts |= {"action": found[0] if found else None, "running": found}
        self._write_if_possible()

    def end_round(self, ending: Outcome | ReportedError, next_ms: int) -> None:
        """Note how a round ended, and when the next one begins, in ms since 1970."""
        result = RoundResult.of(ending.result)
        last = {
            "at": iso_time(self._clock.now_ms()),
            "status": str(ending.status),
            "actions": sum(item.status in _DONE for item in result.actions),
            "failed": len(result.failed),
            "rest": len(result.rest),
            "error": None if isinstance(ending, Outcome) else ending.kind,
        }
        waiting = {**_IDLE, "state": "waiting", "rounds": self.rounds + 1}
        self._set({**waiting, "last": last, "next_round": iso_time(next_ms)})

    def _set(self, facts: Mapping[str, Any]) -> None:
        with self._lock:
            self._facts |= facts
        self._write_if_possible()

    def _write_if_possible(self) -> None:
        """Write the file; a full disk makes the heartbeat old, which the probe sees."""
        with suppress(LakeError):
            self._write()

    def _write(self) -> None:
        if self._path is None:
            return
        with self._lock:
            text = json.dumps({"at": iso_time(self._clock.now_ms()), **self._facts})
            replace_text(self._path, f"{text}\n", ids=self._ids)
