"""The interface of engines: Spark, or this process for small plans.

A task's payload and its results are dataclasses that travel as JSON, and its function is a function of a module
below `lake.core`. Spark's workers receive the function's name (``"lake.core.maintain.compaction.tasks:rewrite"``) and
rebuild the payload as the type of its first parameter; the driver rebuilds each result as the type that the function
yields. So only rows are pickled, and the same function runs in this process, in a local Spark and on a cluster.
"""

from __future__ import annotations

import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from lake.core.base.errors import EngineError, StoppedError
from lake.core.base.plain import PlainData
from lake.core.base.progress import Meter
from lake.core.io.storage.storage import Storage

Payload = TypeVar("Payload", bound=PlainData | Mapping[str, Any])
ReducePayload = TypeVar("ReducePayload", bound=PlainData | Mapping[str, Any])
Result = TypeVar("Result", bound=PlainData | Mapping[str, Any])


@dataclass(frozen=True, slots=True)
class Task(Generic[Payload]):
    """A unit of work.

    Args:
        payload: the argument of the function. It must not contain secrets, because Spark's UI shows it.
        input_bytes: the bytes that the task reads, for progress and for the choice of an engine.
    """

    payload: Payload
    input_bytes: int = 0


@dataclass(frozen=True, slots=True)
class TaskResult(Generic[Result]):
    """One value that a task's function yielded, and the index of the task."""

    task: int
    value: Result


@dataclass(slots=True)
class TaskContext:
    """What a task's function receives in addition to its payload.

    Args:
        storage: reads and writes files with the table's storage properties.
        attempt: a text that differs between two attempts at one task, so that file names never repeat.
        stopped: set when the batch of tasks ends early; long loops check it between batches. Spark kills
            its workers instead, and no ``finally`` block runs there: the driver knows the names of the
            tasks' files and removes them.
        on_report: called with what the task has done so far, see `report`.
        shared: data that all tasks of the batch receive (see `Engine.run`).
    """

    storage: Storage
    attempt: str
    stopped: threading.Event = field(default_factory=threading.Event)
    on_report: Callable[[int, float], None] | None = None
    shared: bytes = b""

    def report(self, rows: int, share: float = 0.0) -> None:
        """Report the rows that the task has read so far, and the part of its input, 0 to 1, for progress only."""
        if self.on_report is not None:
            self.on_report(rows, share)

    def check_cancelled(self) -> None:
        """Stop the task if its batch has ended early.

        Raises:
            StoppedError: the batch has ended early.
        """
        if self.stopped.is_set():
            raise StoppedError(signal.SIGTERM)


# A task function: (payload, context) -> an iterator of results.
TaskFunction = Callable[[Payload, TaskContext], Iterator[Result]]
# The first half of an exchange: (payload, context) -> an iterator of (slot number, bytes).
MapFunction = Callable[[Payload, TaskContext], Iterator[tuple[int, bytes]]]
# The second half: (payload, blobs of one reducer, context) -> an iterator of results.
ReduceFunction = Callable[[Payload, Iterator[bytes], TaskContext], Iterator[Result]]


class Engine(Protocol):
    """Runs tasks and returns their results as they finish."""

    name: str
    parallelism: int

    @property
    def may_have_lost_attempts(self) -> bool:
        """Whether attempts at tasks may have been lost, whose files still exist."""

    def start_in_background(self, modules: Sequence[str] = ()) -> None:
        """Start what takes long to start; the first tasks wait for it, and raise its failure.

        Args:
            modules: the modules of the task functions, which workers may import meanwhile.
        """

    def run(
        self,
        tasks: Sequence[Task[Payload]],
        function: TaskFunction[Payload, Result],
        *,
        storage: Storage,
        meter: Meter | None = None,
        shared: bytes = b"",
    ) -> Iterator[TaskResult[Result]]:
        """Run ``function``, a function of a module below lake.core, on every task; results come as tasks finish.

        Closing the iterator, an error, or `stop` cancels the running tasks; after that no task writes any
        more (except on a Spark Connect server, which does not report it). A `LakeError` that a task raises is
        raised here with its own class, message and hint. The meter counts the tasks and what they report.
        After the last result, `require_ended` checks that each task ended once.
        Every task receives ``shared`` in its context; Spark transports it as binary data, which its UI does not show.
        """

    def exchange(
        self,
        tasks: Sequence[Task[Payload]],
        map_function: MapFunction[Payload],
        reduce_function: ReduceFunction[ReducePayload, Result],
        reduce_payloads: Sequence[ReducePayload],
        *,
        storage: Storage,
        meter: Meter | None = None,
        parts: int = 1,
    ) -> Iterator[TaskResult[Result]]:
        """Run ``map_function`` on every task, collect the bytes by slot number, and reduce them.

        Each reducer has ``parts`` slots, so reducer ``i`` has those from ``i * parts`` on. It receives
        ``reduce_payloads[i]``, and the blobs in the order of slots, of tasks and of sending;
        ``TaskResult.task`` is its number. A reducer that receives no blob is not called. The meter counts the
        tasks first, and the reducers in a second stage. After the last result, `require_ended` checks that each task,
        and each reducer that received a blob, ended once.
        """

    def stop(self) -> None:
        """Cancel the running tasks and end the engine. May be called twice."""


def require_ended(what: str, expected: Iterable[int], ended: Iterable[int]) -> None:
    """Check that everything that an engine was given ended exactly once.

    Args:
        what: ``task`` or ``reducer``.
        expected: the numbers that were given.
        ended: the numbers that ended, as reported.

    Raises:
        EngineError: one is missing, was not given, or ended twice.
    """
    given, counted = set(expected), Counter(ended)
    lost = given - counted.keys()
    if lost:
        raise EngineError(
            f"the engine lost {len(lost)} {what}{'s' * (len(lost) > 1)} of {len(given)}"
        )
    wrong = sorted(number for number, count in counted.items() if count > 1 or number not in given)
    if wrong:
        raise EngineError(f"the engine ended {what} {wrong[0]} more than once, or was not given it")
