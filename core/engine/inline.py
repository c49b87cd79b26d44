"""Tasks in this process, on a few threads: for plans too small for Spark."""

from __future__ import annotations

import json
import os
import tempfile
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from lake.core.base.clock import Ids, SystemIds
from lake.core.base.errors import EngineError, LakeError
from lake.core.base.progress import Meter
from lake.core.engine.task_functions import (
    decode_payload,
    decode_result,
    encode_value,
    name_of,
    resolve,
)
from lake.core.engine.tasks import (
    MapFunction,
    Payload,
    ReduceFunction,
    ReducePayload,
    Result,
    Task,
    TaskContext,
    TaskFunction,
    TaskResult,
    require_ended,
)
from lake.core.engine.thread_stream import Pool
from lake.core.io.storage.errors import is_refusal, storage_error
from lake.core.io.storage.storage import Storage
from lake.core.io.temporary_files import read_at, write_at

_MAX_THREADS = 8


def usable_cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class InlineEngine:
    """Runs task functions on threads; PyArrow's readers and writers leave the interpreter free."""

    name = "inline"
    may_have_lost_attempts = False

    def __init__(self, parallelism: int | None = None, *, ids: Ids | None = None) -> None:
        self.parallelism = parallelism or min(usable_cores(), _MAX_THREADS)
        self._ids = ids or SystemIds()
        self._pools: set[Pool[Any]] = set()
        self._stopped = False

    def start_in_background(self, modules: Sequence[str] = ()) -> None:
        """Do nothing: threads start at once."""

    def run(
        self,
        tasks: Sequence[Task[Payload]],
        function: TaskFunction[Payload, Result],
        *,
        storage: Storage,
        meter: Meter | None = None,
        shared: bytes = b"",
    ) -> Iterator[TaskResult[Result]]:
        """Run the function on every task; results come as tasks give them."""
        run, meter = resolve(name_of(function)), meter or Meter("running")
        with self._pool() as (pool, batch):

            def work(index: int) -> Generator[TaskResult[Result]]:
                def values(attempt: str) -> Iterator[TaskResult[Result]]:
                    context = _context(storage, attempt, pool, meter, index, shared)
                    for value in _typed(run(_payload(run, tasks[index].payload), context)):
                        yield TaskResult(index, _result(run, value))

                yield from _with_renewed(storage, f"{batch}-{index}", values)
                meter.finish(index)

            yield from _each("task", len(tasks), work, pool)

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
        """Spill what tasks send to a temporary file, then reduce."""
        send, reduce = resolve(name_of(map_function)), resolve(name_of(reduce_function))
        meter = meter or Meter("running")
        with tempfile.TemporaryFile(prefix="lake-exchange-") as file:
            spill = _Spill(file.fileno(), len(reduce_payloads), parts)
            self._send(spill, tasks, send, storage, meter)
            meter.next_stage(len(spill.filled()))
            yield from self._reduce(spill, reduce, reduce_payloads, storage, meter)

    def stop(self) -> None:
        """Cancel the running tasks and wait for them; a task stops between two batches."""
        self._stopped = True
        pools = list(self._pools)
        for pool in pools:
            pool.cancel()
        for pool in pools:
            pool.join()

    def _send(
        self,
        spill: _Spill,
        tasks: Sequence[Task[Any]],
        send: Callable[..., Iterator[tuple[int, bytes]]],
        storage: Storage,
        meter: Meter,
    ) -> None:
        with self._pool() as (pool, batch):

            def work(index: int) -> Generator[None]:
                context = _context(storage, f"{batch}-{index}", pool, meter, index)
                for slot, blob in _typed(send(_payload(send, tasks[index].payload), context)):
                    spill.add(slot, index, blob)
                    # Each step hands control back, so that a cancelled task ends here.
                    yield None
                meter.finish(index)

            for _ in _each("task", len(tasks), work, pool):
                pass

    def _reduce(
        self,
        spill: _Spill,
        reduce: Callable[..., Iterator[Any]],
        payloads: Sequence[Any],
        storage: Storage,
        meter: Meter,
    ) -> Iterator[TaskResult[Any]]:
        filled = spill.filled()
        with self._pool() as (pool, batch):

            def work(position: int) -> Generator[TaskResult[Any]]:
                reducer = filled[position]
                context = _context(storage, f"{batch}-{reducer}", pool, meter, position)
                for value in _typed(
                    reduce(_payload(reduce, payloads[reducer]), spill.read(reducer), context)
                ):
                    yield TaskResult(reducer, _result(reduce, value))
                meter.finish(position)

            yield from _each("reducer", len(filled), work, pool)

    @contextmanager
    def _pool(self) -> Iterator[tuple[Pool[Any], str]]:
        """Give a pool that `stop` knows of, and a text that no other batch of tasks has."""
        if self._stopped:
            raise EngineError("the engine was stopped")
        pool: Pool[Any] = Pool(self.parallelism)
        self._pools.add(pool)
        try:
            yield pool, self._ids.uuid().split("-")[0]
        finally:
            self._pools.discard(pool)


def _each(
    what: str, count: int, work: Callable[[int], Generator[Any]], pool: Pool[Any]
) -> Iterator[Any]:
    """Run ``work`` for 0 … count - 1, yield the results, and check that each ended once."""
    ended: list[int] = []

    def counted(number: int) -> Generator[Any]:
        yield from work(number)
        ended.append(number)

    yield from pool.spread(count, counted)
    require_ended(what, range(count), ended)


def _context(
    storage: Storage,
    attempt: str,
    pool: Pool[Any],
    meter: Meter,
    number: int,
    shared: bytes = b"",
) -> TaskContext:
    """Return a task's context; the meter receives what the task reports under its number."""
    return TaskContext(storage, attempt, pool.stopped, partial(meter.report, number), shared)


def _typed(values: Iterator[Any]) -> Iterator[Any]:
    """Yield a task's results; translate errors of a disk or store as Spark's workers do."""
    try:
        yield from values
    except OSError as error:
        known = storage_error(error)
        if known is None:
            raise
        raise known from error


def _with_renewed(
    storage: Storage, attempt: str, values: Callable[[str], Iterator[TaskResult[Result]]]
) -> Iterator[TaskResult[Result]]:
    """Yield a task's results; if its store refused it and credentials can be renewed, run it once more."""
    if not storage.renewed.can_refresh:
        yield from values(attempt)
        return
    number, _ = storage.renewed.current()
    try:
        # Its results count only when it has finished, as on Spark.
        given = list(values(attempt))
    except LakeError as error:
        if not (is_refusal(error) and storage.renewed.renew(number)):
            raise
        given = list(values(f"{attempt}-again"))
    yield from given


def _payload(function: Callable[..., Any], payload: Any) -> Any:
    """Return a payload as a task receives it."""
    return decode_payload(function, _plain(encode_value(payload)))


def _result(function: Callable[..., Any], value: Any) -> Any:
    """Return a task's result as the driver receives it."""
    return decode_result(function, _plain(encode_value(value)))


def _plain(value: Any) -> Any:
    """Return a value as it arrives when it travels through Spark; what JSON cannot hold is an error."""
    return json.loads(json.dumps(value))


class _Spill:
    """Blobs of many reducers in one file, given back in the order of their slots and tasks."""

    def __init__(self, descriptor: int, reducers: int, parts: int) -> None:
        self._descriptor = descriptor
        self._reducers = reducers
        self._parts = parts
        self._end = 0
        self._index: dict[int, list[tuple[int, int, int, int]]] = {}
        self._lock = threading.Lock()

    def add(self, slot: int, task: int, blob: bytes) -> None:
        """Keep a blob.

        Raises:
            EngineError: there is no such reducer.
        """
        reducer = slot // self._parts
        if not 0 <= reducer < self._reducers:
            raise EngineError(f"task {task} sent to reducer {reducer} of {self._reducers}")
        with self._lock:
            start, self._end = self._end, self._end + len(blob)
            self._index.setdefault(reducer, []).append((slot, task, start, len(blob)))
        write_at(self._descriptor, blob, start)

    def filled(self) -> list[int]:
        """Return the reducers that were sent anything."""
        return sorted(self._index)

    def read(self, reducer: int) -> Iterator[bytes]:
        """Yield a reducer's blobs by slot and task, each task's in its own order."""
        for _, _, start, length in sorted(self._index[reducer]):
            yield read_at(self._descriptor, length, start)
