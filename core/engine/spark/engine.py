"""Tasks on Spark: rows of plain data go out, `mapInArrow` runs them, results come back as tasks finish."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any

from lake.core.clock import Clock, Ids, SystemClock, SystemIds
from lake.core.engine.spark import plans
from lake.core.engine.spark.conf import SparkConf
from lake.core.engine.spark.jobs import ConnectJobs, DriverJobs, Jobs, Piece
from lake.core.engine.spark.plans import Plan
from lake.core.engine.spark.pyspark_internals import MEMORY_HINT
from lake.core.engine.spark.startup import Launch
from lake.core.engine.spark.worker_locks import end_workers
from lake.core.engine.task_functions import decode_error, name_of
from lake.core.engine.tasks import (
    MapFunction,
    Payload,
    ReduceFunction,
    ReducePayload,
    Task,
    TaskFunction,
    TaskResult,
)
from lake.core.engine.thread_stream import Pool
from lake.core.errors import EngineError
from lake.core.settings import Settings
from lake.core.storage.credentials import CredentialProvider, Credentials
from lake.core.storage.errors import is_refusal
from lake.core.storage.storage import Storage

_JOIN_SECONDS = 5.0
# Spark looks every 2 s for cancelled tasks, and kills their workers 2 s later.
_KILL_SECONDS = 6.0
_POLL_SECONDS = 0.1
# Between the end of its connections and that of a process.
_END_SECONDS = 0.3


@dataclass(slots=True)
class _Attempts:
    """What is known of Spark's attempts at tasks, which it numbers from 0 through the application.

    A task whose attempt came to nothing gets another one later, with a larger number. So as long as no number
    reaches the count of the tasks there was one attempt at each.

    Args:
        doubtful: numbers do not tell: others use the application too, or tasks get a second attempt in time.
        tasks: how many Spark was given.
        numbers: of attempts that gave results; any thread may append.
    """

    doubtful: bool
    tasks: int = 0
    numbers: list[int] = field(default_factory=list)

    @property
    def may_be_lost(self) -> bool:
        """Whether there may have been an attempt that gave no result."""
        return bool(self.tasks) and (self.doubtful or max(self.numbers, default=0) >= self.tasks)


@dataclass(frozen=True, slots=True)
class _Batch:
    """One call of `run` or `exchange`: its name, its threads, and where its workers hold their locks."""

    name: str
    jobs: Jobs
    pool: Pool[TaskResult]
    folder: Path | None
    attempts: _Attempts

    def stream(self, plan: Plan, storage: Storage) -> Iterator[TaskResult]:
        """Run a plan's tasks and yield their results."""
        pieces = _Pieces(plan, partial(self._pieces, plan), storage.renewed)
        self.attempts.tasks += len(plan.groups) + (len(pieces) if plan.shuffled else 0)

        def work(index: int) -> Generator[TaskResult]:
            self.jobs.tag(self.name)
            for told in pieces.run(index):
                self.attempts.numbers.append(told["attempt"])
                yield from _results(told["results"])

        yield from self.pool.spread(len(pieces), work)

    def _pieces(self, plan: Plan, credentials: Credentials) -> list[Piece]:
        return self.jobs.pieces(plan.rows(self.name, str(self.folder or ""), credentials), plan)

    def end_workers(self, clock: Clock) -> None:
        """Return when none of its tasks runs: killed here, given time to be killed by Spark elsewhere."""
        if self.folder:
            end_workers(str(self.folder), clock)
            return
        deadline = clock.monotonic() + _KILL_SECONDS
        with suppress(EngineError):
            while self.jobs.running() and clock.monotonic() < deadline:
                clock.sleep(_POLL_SECONDS)


class _Pieces:
    """The parts of a plan, with credentials that are fresh when a part begins.

    Workers cannot renew them: they know nothing of the catalog. A part whose store refused its credentials runs
    once more with those that the catalog vends then; one that takes longer than they live fails for good.
    """

    def __init__(
        self, plan: Plan, make: Callable[[Credentials], list[Piece]], renewed: CredentialProvider
    ) -> None:
        self._plan = plan
        self._make = make
        self._renewed = renewed
        self._lock = Lock()
        self._number, credentials = renewed.current()
        self._pieces = make(credentials)

    def __len__(self) -> int:
        return len(self._pieces)

    def run(self, index: int) -> list[dict[str, Any]]:
        """Run a part and return what its workers told."""
        # What is before a shuffle is computed once: only a refusal is worth doing that again.
        number, piece = self._piece(index, fresh=not self._plan.shuffled)
        told = [json.loads(text) for text in piece()]
        if any(map(_is_refused, told)) and self._renewed.renew(number):
            _, piece = self._piece(index, fresh=True)
            told = [json.loads(text) for text in piece()]
        return told

    def _piece(self, index: int, *, fresh: bool) -> tuple[int, Piece]:
        with self._lock:
            number, credentials = self._renewed.current()
            if fresh and number != self._number:
                self._number, self._pieces = number, self._make(credentials)
            return self._number, self._pieces[index]


class SparkEngine:
    """Runs task functions on Spark's executors, or on the cores of this machine.

    The JVM starts with the first tasks, or with `start_in_background`.
    """

    name = "spark"

    def __init__(
        self, settings: Settings, *, clock: Clock | None = None, ids: Ids | None = None
    ) -> None:
        self._clock = clock or SystemClock()
        self._conf = SparkConf.of(settings.master, settings.spark_conf)
        self._remote = settings.remote
        self._ids = ids or SystemIds()
        self.parallelism = (
            self._conf.cluster_parallelism if self._remote else self._conf.parallelism
        )
        self._launch: Launch | None = None
        self._batches: list[_Batch] = []
        self._attempts = _Attempts(doubtful=bool(self._remote) or self._conf.speculates)
        self._stopped = False

    @property
    def may_have_lost_attempts(self) -> bool:
        """Whether tasks may have been tried more often than they gave results."""
        return self._attempts.may_be_lost

    def start_in_background(self) -> None:
        """Begin to start Spark and return at once; a failure is raised by the first use."""
        if self._launch is None and not self._stopped:
            self._launch = Launch(self._conf, self._remote)

    def run(
        self,
        tasks: Sequence[Task[Payload]],
        function: TaskFunction[Payload],
        *,
        storage: Storage,
    ) -> Iterator[TaskResult]:
        """Run the function on every task; results come as tasks, or small groups of them, finish."""
        name = name_of(function)
        with self._batch() as batch:
            yield from batch.stream(plans.run(tasks, name, self.parallelism), storage)

    def exchange(
        self,
        tasks: Sequence[Task[Payload]],
        map_function: MapFunction[Payload],
        reduce_function: ReduceFunction[ReducePayload],
        reduce_payloads: Sequence[ReducePayload],
        *,
        storage: Storage,
    ) -> Iterator[TaskResult]:
        """Send what tasks give through Spark's shuffle, one key for each reducer, and reduce it.

        The map function must give the same for the same payload: Spark runs it again when it loses an
        executor, while some reducers may have read what it gave before.
        """
        send, reduce = name_of(map_function), name_of(reduce_function)
        plan = plans.exchange(tasks, send, reduce, reduce_payloads, self.parallelism)
        with self._batch() as batch:
            yield from batch.stream(plan, storage)

    def stop(self) -> None:
        """End Spark and every process of it on this machine; may be called twice."""
        self._stopped = True
        launch, self._launch = self._launch, None
        if launch is None:
            return
        batches = list(self._batches)
        # First, or its threads would take the JVM's end for a failure.
        for batch in batches:
            batch.pool.cancel()
        launch.end()
        for batch in batches:
            batch.pool.join()
            if batch.folder:
                batch.end_workers(self._clock)
        launch.remove()
        launch.make_archive()

    @contextmanager
    def _batch(self) -> Iterator[_Batch]:
        """Give a batch that `stop` knows of; after the block none of its tasks runs."""
        self.start_in_background()
        if self._launch is None:
            raise EngineError("the engine was stopped")
        launch, running = self._launch, self._launch.running()
        jobs: Jobs = ConnectJobs(running.spark) if self._remote else DriverJobs(running.spark)
        name = self._ids.uuid().split("-")[0]
        folder = launch.folder / f"batch-{name}" if running.is_local else None
        if folder:
            folder.mkdir()
        pool: Pool[TaskResult] = Pool(
            self.parallelism,
            on_cancel=partial(self._cancel, jobs, name),
            join_seconds=_JOIN_SECONDS,
        )
        batch = _Batch(name, jobs, pool, folder, self._attempts)
        self._batches.append(batch)
        try:
            yield batch
        except BaseException as error:
            # Some of its tasks may never have begun.
            self._attempts.doubtful = True
            failed = isinstance(error, EngineError) and not self._stopped
            # What is asked of a JVM that ended fails in many ways, none of which tells why.
            if failed and running.jvm and (ended := running.jvm.ended(_END_SECONDS)):
                raise EngineError(ended, hint=MEMORY_HINT) from error
            raise
        finally:
            self._batches.remove(batch)
            if pool.stopped.is_set() and not self._stopped:
                batch.end_workers(self._clock)

    def _cancel(self, jobs: Jobs, name: str) -> None:
        # Spark may be the reason why the batch ends.
        if not self._stopped or self._remote or not self._conf.is_local:
            with suppress(EngineError):
                jobs.cancel(name)


def _is_refused(told: Mapping[str, Any]) -> bool:
    """Whether a part ended because a store refused its credentials."""
    if not told["results"] or told["results"][-1][0] is not None:
        return False
    return is_refusal(decode_error(told["results"][-1][1]))


def _results(pairs: Sequence[tuple[int | None, Any]]) -> Iterator[TaskResult]:
    for task, value in pairs:
        if task is None:
            raise decode_error(value)
        yield TaskResult(task, value)
