"""Actors that take turns: one runs at a time, and at every hook the seed chooses the next one.

Each actor is a thread, but only the one that holds the baton runs. Threads that an actor starts ignore
the hooks, so everything that an actor does between two of its own hooks is atomic for all others.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from random import Random


class Broken(BaseException):
    """The world was stopped; raised in every actor, and not caught by its handlers."""


class Scheduler:
    """Runs actors to their end.

    Args:
        random: chooses the next actor.
        stay: the probability that an actor continues at a hook, in [0, 1).
    """

    def __init__(self, random: Random, stay: float = 0.5) -> None:
        self._random = random
        self._stay = stay
        self._turns: dict[str, threading.Semaphore] = {}
        self._names: dict[int, str] = {}
        self._runnable: list[str] = []
        self._over = threading.Event()
        self.failure: BaseException | None = None
        self.switches = 0
        self.trace: list[tuple[str, str]] = []

    def run(self, actors: dict[str, Callable[[], None]]) -> None:
        """Run actors until all have ended; raise the first failure."""
        self._turns = {name: threading.Semaphore(0) for name in actors}
        self._runnable = sorted(actors)
        threads = [
            threading.Thread(target=self._actor, args=item, name=item[0]) for item in actors.items()
        ]
        for thread in threads:
            thread.start()
        self._turns[self._random.choice(self._runnable)].release()
        for thread in threads:
            thread.join()
        if self.failure is not None:
            raise self.failure

    def actor(self) -> str | None:
        """The name of the actor of the current thread; None in other threads."""
        return self._names.get(threading.get_ident())

    def point(self, what: str) -> None:
        """Let the seed choose the next actor; does nothing in a thread that is not an actor's."""
        name = self.actor()
        if name is None:
            return
        self._check()
        self.trace.append((name, what))
        if self._random.random() < self._stay:
            return
        chosen = self._random.choice(self._runnable)
        if chosen != name:
            self.switches += 1
            self._turns[chosen].release()
            self._turns[name].acquire()
        self._check()

    def fail(self, error: BaseException) -> None:
        """Stop the world for a reason."""
        if self.failure is None:
            self.failure = error

    def _check(self) -> None:
        if self.failure is not None:
            raise Broken

    def _actor(self, name: str, work: Callable[[], None]) -> None:
        self._names[threading.get_ident()] = name
        self._turns[name].acquire()
        try:
            if self.failure is None:
                work()
        except Broken:
            pass
        except BaseException as error:
            self.fail(error)
        finally:
            del self._names[threading.get_ident()]
            self._runnable.remove(name)
            if self._runnable:
                self._turns[self._random.choice(self._runnable)].release()
