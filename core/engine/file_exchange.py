"""An exchange among processes of one machine: each task writes what it sends to a file, which the reducers read.

So the bytes do not pass through a JVM, and Spark SQL need not start.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any

from lake.core.base.errors import EngineError
from lake.core.base.plain import PlainData
from lake.core.base.progress import Meter
from lake.core.engine.task_functions import (
    decode_payload,
    decode_result,
    encode_value,
    name_of,
    resolve,
)
from lake.core.engine.tasks import MapFunction, ReduceFunction, Task, TaskContext, TaskResult
from lake.core.io.temporary_files import read_at, write_at, written

# The offset and the size of a blob in its file.
_Extent = tuple[int, int]
# The number of a blob's file, its offset and its size.
_Place = tuple[int, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class SendTask(PlainData):
    """Call the named function with a payload, and write what it sends to a file of a folder."""

    function: str
    payload: Mapping[str, Any]
    folder: str
    reducers: int
    parts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SentFile(PlainData):
    """The file that one task wrote, and the places of each slot's blobs in the order of sending."""

    path: str
    extents: Mapping[int, Sequence[_Extent]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReduceTask(PlainData):
    """Call the named function with a payload and the blobs of one reducer, which are in files, in order."""

    function: str
    payload: Mapping[str, Any]
    paths: Sequence[str]
    places: Sequence[_Place]


def exchange_by_files(  # noqa: PLR0913 - as `Engine.exchange` and what it needs
    run: Callable[..., Iterator[TaskResult[Any]]],
    tasks: Sequence[Task[Any]],
    map_function: MapFunction[Any],
    reduce_function: ReduceFunction[Any, Any],
    reduce_payloads: Sequence[Any],
    *,
    folder: str,
    meter: Meter,
    parts: int,
) -> Iterator[TaskResult[Any]]:
    """Do as `Engine.exchange` by two calls of ``run``, which does as `Engine.run` with a storage.

    The files are in ``folder``, which is made, and removed at the end.
    """
    os.mkdir(folder, 0o700)
    try:
        function = name_of(map_function)
        sending = [
            Task(
                SendTask(
                    function=function,
                    payload=encode_value(task.payload),
                    folder=folder,
                    reducers=len(reduce_payloads),
                    parts=parts,
                ),
                task.input_bytes,
            )
            for task in tasks
        ]
        sent: list[SentFile | None] = [None] * len(tasks)
        with closing(run(sending, send_to_file, meter=meter)) as results:  # type: ignore[type-var]
            for result in results:
                sent[result.task] = result.value
        files = [file for file in sent if file is not None]
        filled = sorted({slot // parts for file in files for slot in file.extents})
        function = name_of(reduce_function)
        reducing = [
            _reduce_task(
                files, range(one * parts, (one + 1) * parts), function, reduce_payloads[one]
            )
            for one in filled
        ]
        meter.next_stage(len(filled))
        with closing(run(reducing, reduce_from_files, meter=meter)) as results:  # type: ignore[type-var]
            for result in results:
                yield TaskResult(filled[result.task], decode_result(reduce_function, result.value))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _reduce_task(
    files: Sequence[SentFile], slots: Sequence[int], function: str, payload: Any
) -> Task[ReduceTask]:
    mine = [file for file in files if any(slot in file.extents for slot in slots)]
    places = [
        (number, start, length)
        for slot in slots
        for number, file in enumerate(mine)
        for start, length in file.extents.get(slot, ())
    ]
    task = ReduceTask(
        function=function,
        payload=encode_value(payload),
        paths=[file.path for file in mine],
        places=places,
    )
    return Task(task, sum(length for _, _, length in places))


def send_to_file(task: SendTask, context: TaskContext) -> Iterator[SentFile]:
    """Run the first half of an exchange for one task; reports the file."""
    function = resolve(task.function)
    path = os.path.join(task.folder, context.attempt)
    extents: dict[int, list[_Extent]] = {}
    end = 0
    with open(path, "xb", buffering=0, opener=_private) as file:
        for slot, blob in function(decode_payload(function, task.payload), context):
            reducer = slot // task.parts
            if not 0 <= reducer < task.reducers:
                raise EngineError(f"a task sent to reducer {reducer} of {task.reducers}")
            with written("rows that are exchanged"):
                write_at(file.fileno(), blob, end)
            extents.setdefault(slot, []).append((end, len(blob)))
            end += len(blob)
    yield SentFile(path=path, extents=extents)


def reduce_from_files(task: ReduceTask, context: TaskContext) -> Iterator[Mapping[str, Any]]:
    """Run the second half of an exchange for one reducer; yields the JSON-ready results."""
    function = resolve(task.function)
    with closing(_blobs(task)) as blobs:
        for value in function(decode_payload(function, task.payload), blobs, context):
            yield encode_value(value)


def _blobs(task: ReduceTask) -> Generator[bytes]:
    for number, places in groupby(task.places, key=itemgetter(0)):
        with open(task.paths[number], "rb", buffering=0) as file:
            for _, start, length in places:
                yield read_at(file.fileno(), length, start)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
