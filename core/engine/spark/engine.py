"""Run tasks on Spark: send them as rows of plain data, and yield their results."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any

from lake.core.base.clock import Clock, Ids, SystemClock, SystemIds
from lake.core.base.errors import EngineError
from lake.core.base.progress import Meter
from lake.core.base.settings import Settings
from lake.core.engine.file_exchange import exchange_by_files
from lake.core.engine.spark import plans
from lake.core.engine.spark.conf import SparkConf
from lake.core.engine.spark.jobs import ConnectJobs, DriverJobs, Jobs, Piece
from lake.core.engine.spark.plans import Plan
from lake.core.engine.spark.pyspark_internals import MEMORY_HINT
from lake.core.engine.spark.startup import Launch
from lake.core.engine.spark.task_reports import read_reports
from lake.core.engine.spark.worker_locks import end_workers
from lake.core.engine.task_functions import decode_error, decode_result, name_of
from lake.core.engine.tasks import (
    MapFunction,
    Payload,
    ReduceFunction,
    ReducePayload,
    Result,
    Task,
    TaskFunction,
    TaskResult,
    require_ended,
)
from lake.core.engine.thread_stream import Pool
from lake.core.io.storage.credentials import CredentialProvider, Credentials
from lake.core.io.storage.errors import is_refusal
from lake.core.io.storage.storage import Storage

_JOIN_SECONDS = 5.0
# Spark checks for cancelled tasks every 2 s, and kills their workers 2 s later.
_KILL_SECONDS = 6.0
_POLL_SECONDS = 0.1
# The time between the end of a process's connections and its exit.
_END_SECONDS = 0.3
_WORKER_MODULE = "lake.core.engine.spark.worker"


@dataclass(slots=True)
class _Attempts:
    """Spark's attempts at tasks, which are numbered from 0 through the whole application.

    A task whose attempt failed gets another attempt with a larger number. So if all numbers are less than the count
    of tasks, each task had one attempt.

    Args:
        doubtful: whether the numbers prove nothing, because others use the application or Spark speculates.
        tasks: the number of tasks given to Spark.
        numbers: the numbers of attempts with results; any thread may append.
    """

    doubtful: bool
    tasks: int = 0
    numbers: list[int] = field(default_factory=list)

    @property
    def may_be_lost(self) -> bool:
        """Whether an attempt may have ended without a result."""
        return bool(self.tasks) and (self.doubtful or max(self.numbers, default=0) >= self.tasks)


@dataclass(frozen=True, slots=True)
class _Batch:
    """One call of `run` or `exchange`: its name, its threads, and the folder of its workers' locks."""

    name: str
    jobs: Jobs
    pool: Pool[TaskResult[Any]]
    folder: Path | None
    attempts: _Attempts

    def stream(
        self,
        plan: Plan,
        function: Callable[..., Iterator[Result]],
        storage: Storage,
        meter: Meter,
        reducers: int = 0,
    ) -> Iterator[TaskResult[Result]]:
        """Run a plan's tasks, and its reducers if it has any, and yield the results, which ``function`` yields."""
        pieces = _Pieces(plan, partial(self._pieces, plan), storage.renewed)
        self.attempts.tasks += len(plan.groups) + (len(pieces) if plan.shuffled else 0)
        ended: list[int] = []
        sent: list[tuple[int, list[int]]] = []

        def work(index: int) -> Generator[TaskResult[Result]]:
            self.jobs.tag(self.name)
            for reported in pieces.run(index):
                self.attempts.numbers.append(reported["attempt"])
                if plan.shuffled:
                    meter.next_stage(reducers)
                for task, rows in reported["ended"]:
                    meter.finish(task, rows)
                    ended.append(task)
                sent.extend(reported["sent"])
                yield from _results(function, reported["results"])

        yield from self.pool.spread(len(pieces), work)
        if plan.shuffled:
            require_ended("task", range(plan.tasks), (task for task, _ in sent))
            require_ended("reducer", {one for _, reached in sent for one in reached}, ended)
        else:
            require_ended("task", range(plan.tasks), ended)

    def _pieces(self, plan: Plan, credentials: Credentials) -> list[Piece]:
        return self.jobs.pieces(plan.rows(self.name, str(self.folder or ""), credentials), plan)

    def read_reports(self, meter: Meter) -> None:
        """Report to the meter what running tasks on this machine have done; on a cluster nothing is known."""
        if self.folder:
            read_reports(str(self.folder), meter)

    def end_workers(self, clock: Clock) -> None:
        """Wait until none of its tasks runs: kill local workers, and give Spark time to kill remote ones."""
        if self.folder:
            end_workers(str(self.folder), clock)
            return
        deadline = clock.monotonic() + _KILL_SECONDS
        with suppress(EngineError):
            while self.jobs.running() and clock.monotonic() < deadline:
                clock.sleep(_POLL_SECONDS)


class _Pieces:
    """The parts of a plan, each with fresh credentials when it begins.

    Workers cannot renew credentials, because they have no catalog. A part whose store refused its credentials runs
    once more with newly vended ones; a part that takes longer than their lifetime fails permanently.
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
        """Run a part and return the reports of its workers."""
        # Stages before a shuffle are computed once; repeat them only after a refusal.
        number, piece = self._piece(index, fresh=not self._plan.shuffled)
        reported = [json.loads(text) for text in piece()]
        if any(map(_is_refused, reported)) and self._renewed.renew(number):
            _, piece = self._piece(index, fresh=True)
            reported = [json.loads(text) for text in piece()]
        return reported

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
        """Whether attempts at tasks may have ended without results."""
        return self._attempts.may_be_lost

    def start_in_background(self, modules: Sequence[str] = ()) -> None:
        """Start Spark in the background; the first use raises its failure."""
        if self._launch is None and not self._stopped:
            self._launch = Launch(self._conf, self._remote, (_WORKER_MODULE, *modules))

    def run(
        self,
        tasks: Sequence[Task[Payload]],
        function: TaskFunction[Payload, Result],
        *,
        storage: Storage,
        meter: Meter | None = None,
        shared: bytes = b"",
    ) -> Iterator[TaskResult[Result]]:
        """Run the function on every task; results come as tasks, or small groups of them, finish."""
        name = name_of(function)
        meter = meter or Meter("running")
        self.start_in_background([function.__module__])
        with self._batch(meter) as batch, meter.polled_by(partial(batch.read_reports, meter)):
            plan = plans.run(tasks, name, self.parallelism, shared)
            yield from batch.stream(plan, function, storage, meter)

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
        """Send the output of tasks to reducers: on this machine by files, otherwise through Spark's shuffle."""
        meter = meter or Meter("running")
        self.start_in_background([map_function.__module__, reduce_function.__module__])
        if self._launch is not None and self._conf.is_local and not self._remote:
            yield from exchange_by_files(
                partial(self.run, storage=storage),
                tasks,
                map_function,
                reduce_function,
                reduce_payloads,
                folder=str(self._launch.folder / f"exchange-{self._ids.uuid()}"),
                meter=meter,
                parts=parts,
            )
        else:
            yield from self._shuffle(
                tasks,
                map_function,
                reduce_function,
                reduce_payloads,
                storage=storage,
                meter=meter,
                parts=parts,
            )

    def _shuffle(
        self,
        tasks: Sequence[Task[Any]],
        map_function: MapFunction[Any],
        reduce_function: ReduceFunction[Any, Any],
        reduce_payloads: Sequence[Any],
        *,
        storage: Storage,
        meter: Meter,
        parts: int = 1,
    ) -> Iterator[TaskResult[Any]]:
        """Send the output of tasks through Spark's shuffle, with one key for each reducer, and reduce it.

        The map function must be deterministic: Spark runs it again when it loses an executor, while some reducers
        may have read its earlier output.
        """
        send, reduce = name_of(map_function), name_of(reduce_function)
        plan = plans.exchange(tasks, send, reduce, reduce_payloads, self.parallelism, parts=parts)
        with self._batch(meter) as batch:
            yield from batch.stream(plan, reduce_function, storage, meter, len(reduce_payloads))

    def stop(self) -> None:
        """End Spark and all of its processes on this machine. May be called twice."""
        self._stopped = True
        launch, self._launch = self._launch, None
        if launch is None:
            return
        batches = list(self._batches)
        # Cancel first; otherwise its threads would report the JVM's end as a failure.
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
    def _batch(self, meter: Meter) -> Iterator[_Batch]:
        """Provide a batch that `stop` can cancel; after the block none of its tasks runs."""
        if self._launch is None:
            raise EngineError("the engine was stopped")
        launch = self._launch
        with meter.waiting_for("starting Spark"):
            running = launch.running()
        jobs: Jobs = ConnectJobs(running.spark) if self._remote else DriverJobs(running.spark)
        name = self._ids.uuid().split("-")[0]
        folder = launch.folder / f"batch-{name}" if running.is_local else None
        if folder:
            folder.mkdir()
        pool: Pool[TaskResult[Any]] = Pool(
            self.parallelism,
            on_cancel=partial(self._cancel, jobs, name),
            join_seconds=_JOIN_SECONDS,
        )
        batch = _Batch(name, jobs, pool, folder, self._attempts)
        self._batches.append(batch)
        try:
            yield batch
        except BaseException as error:
            # Some of its tasks may not have begun.
            self._attempts.doubtful = True
            failed = isinstance(error, EngineError) and not self._stopped
            # Calls to an ended JVM fail in many ways, none of which contains the reason.
            if failed and running.jvm and (ended := running.jvm.ended(_END_SECONDS)):
                raise EngineError(ended, hint=MEMORY_HINT) from error
            raise
        finally:
            self._batches.remove(batch)
            if pool.stopped.is_set() and not self._stopped:
                batch.end_workers(self._clock)

    def _cancel(self, jobs: Jobs, name: str) -> None:
        # Spark itself may have failed.
        if not self._stopped or self._remote or not self._conf.is_local:
            with suppress(EngineError):
                jobs.cancel(name)


def _is_refused(reported: Mapping[str, Any]) -> bool:
    """Whether a part ended because a store refused its credentials."""
    if not reported["results"] or reported["results"][-1][0] is not None:
        return False
    return is_refusal(decode_error(reported["results"][-1][1]))


def _results(
    function: Callable[..., Iterator[Result]], pairs: Sequence[tuple[int | None, Any]]
) -> Iterator[TaskResult[Result]]:
    for task, value in pairs:
        if task is None:
            raise decode_error(value)
        yield TaskResult(task, decode_result(function, value))
