"""The simulated processes of a world: each command has its own, which ends with the command."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from unittest.mock import patch

from lake.core.base import process_identity

_NAMED = (
    "lake.core.load.ingest.recovery",
    "lake.core.transaction.staging.claims",
    "lake.core.transaction.locks.local",
)
_ASKED = (
    "lake.core.transaction.staging.claims",
    "lake.core.transaction.locks.local",
    "lake.core.transaction.locks.s3",
)


class Processes:
    """Tracks the running processes.

    Args:
        actor: returns the name of the current actor.
    """

    def __init__(self, actor: Callable[[], str | None]) -> None:
        self._actor = actor
        self._numbers = itertools.count()
        # For each actor, the stack of its processes: each waits for the next one.
        self._running: dict[str | None, list[str]] = {}

    @contextmanager
    def one(self) -> Iterator[None]:
        """Execute the block as a new process of the actor."""
        running = self._running.setdefault(self._actor(), [])
        running.append(f"world#{next(self._numbers)}")
        try:
            yield
        finally:
            running.pop()

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Make lake use these processes."""
        with ExitStack() as stack:
            for module in _NAMED:
                stack.enter_context(patch(f"{module}.process_name", self._name))
            for module in _ASKED:
                stack.enter_context(patch(f"{module}.still_runs", self._runs))
            yield

    def _name(self) -> str:
        running = self._running.get(self._actor())
        return running[-1] if running else process_identity.process_name()

    def _runs(self, name: str) -> bool | None:
        if name.startswith("world#"):
            return any(name in running for running in self._running.values())
        return process_identity.still_runs(name)
