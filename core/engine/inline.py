"""Tasks in this process, on a few threads: for plans too small for Spark."""

from __future__ import annotations

import os
import queue
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import IO, Any

from lake.core.engine import Task, TaskResult
from lake.core.engine.worker import context_for, resolve
from lake.core.table.storage import Storage

_WAIT_SECONDS = 0.2


class InlineEngine:
    """Runs task functions on a thread pool; PyArrow's readers and writers leave the interpreter free."""

    name = "inline"

    def __init__(self, parallelism: int | None = None) -> None:
        self.parallelism = parallelism or min(os.cpu_count() or 1, 8)
        self._stopped = threading.Event()

    def run(
        self, tasks: Sequence[Task], function: str, *, storage: Storage
    ) -> Iterator[TaskResult]:
        """Run the function on every task; results come as tasks give them."""
        run = resolve(function)

        def work(index: int) -> Iterator[Any]:
            context = context_for(storage, f"i{index}", self._stopped)
            for value in run(tasks[index].payload, context):
                yield TaskResult(index, value)

        yield from self._spread(len(tasks), work)

    def exchange(
        self,
        tasks: Sequence[Task],
        map_function: str,
        reduce_function: str,
        reduce_payloads: Sequence[Mapping[str, Any]],
        *,
        storage: Storage,
    ) -> Iterator[TaskResult]:
        """Spill what tasks send to one temporary file per reducer, then reduce."""
        send, reduce = resolve(map_function), resolve(reduce_function)
        with tempfile.TemporaryDirectory(prefix="lake-exchange-") as folder:
            spill = _Spill(folder, len(reduce_payloads))

            def map_one(index: int) -> Iterator[Any]:
                context = context_for(storage, f"i{index}", self._stopped)
                for reducer, blob in send(tasks[index].payload, context):
                    spill.add(reducer, index, blob)
                yield from ()

            for _ in self._spread(len(tasks), map_one):
                pass
            spill.close()
            filled = spill.filled()

            def reduce_one(position: int) -> Iterator[Any]:
                reducer = filled[position]
                context = context_for(storage, f"r{reducer}", self._stopped)
                blobs = spill.read(reducer)
                for value in reduce(reduce_payloads[reducer], blobs, context):
                    yield TaskResult(reducer, value)

            yield from self._spread(len(filled), reduce_one)

    def stop(self) -> None:
        """Tell running tasks to end; those between two batches do so at once."""
        self._stopped.set()

    def _spread(
        self, count: int, work: Callable[[int], Iterator[Any]]
    ) -> Iterator[TaskResult]:
        """Run ``work`` for each number on the pool and yield what it gives, as it comes."""
        results: queue.Queue[Any] = queue.Queue(maxsize=1024)
        done = object()
        cancelled = threading.Event()

        def put(item: Any) -> None:
            while not cancelled.is_set():
                try:
                    results.put(item, timeout=_WAIT_SECONDS)
                except queue.Full:
                    continue
                return

        def one(index: int) -> None:
            try:
                if not cancelled.is_set():
                    values = work(index)
                    for value in values:
                        put(value)
                        if cancelled.is_set():
                            values.close()  # type: ignore[attr-defined]
                            break
            except BaseException as error:  # noqa: BLE001 - raised again in the caller's thread
                put(error)
            finally:
                put(done)

        left = count
        pool = ThreadPoolExecutor(self.parallelism, thread_name_prefix="task")
        try:
            for index in range(count):
                pool.submit(one, index)

            while left:
                try:
                    item = results.get(timeout=_WAIT_SECONDS)
                except queue.Empty:
                    continue
                if item is done:
                    left -= 1
                elif isinstance(item, BaseException):
                    raise item
                else:
                    yield item
        finally:
            cancelled.set()
            if left:
                self._stopped.set()
            pool.shutdown(wait=True, cancel_futures=True)


class _Spill:
    """Blobs per reducer on disk, given back in the order of their tasks."""

    def __init__(self, folder: str, reducers: int) -> None:
        self._paths = [os.path.join(folder, f"{number}") for number in range(reducers)]
        self._files: dict[int, IO[bytes]] = {}
        self._index: dict[int, list[tuple[int, int, int]]] = {}
        self._lock = threading.Lock()

    def add(self, reducer: int, task: int, blob: bytes) -> None:
        """Keep a blob."""
        with self._lock:
            if reducer not in self._files:
                self._files[reducer] = open(self._paths[reducer], "wb")  # noqa: SIM115 - closed in close()
            file = self._files[reducer]
            self._index.setdefault(reducer, []).append((task, file.tell(), len(blob)))
            file.write(blob)

    def close(self) -> None:
        """End writing."""
        for file in self._files.values():
            file.close()

    def filled(self) -> list[int]:
        """Return the reducers that were sent anything."""
        return sorted(self._index)

    def read(self, reducer: int) -> Iterator[bytes]:
        """Yield a reducer's blobs by task, each task's in its own order."""
        with open(self._paths[reducer], "rb") as file:
            for _, start, length in sorted(self._index[reducer]):
                file.seek(start)
                yield file.read(length)
