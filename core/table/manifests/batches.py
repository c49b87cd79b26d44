"""Work on many manifests in batches, by this process or by the tasks of an engine.

Only the batches that are worked on at a time are in memory, and what the work on each of them returns.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table.metadata import TableMetadataUtil

from lake.core.base.plain import Codec, PlainData, base64_text
from lake.core.engine.tasks import Engine, Task, TaskContext

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

    from lake.core.io.storage.storage import Storage

Payload = TypeVar("Payload", bound=PlainData)
Result = TypeVar("Result", bound=PlainData)
# Returns the engine whose tasks read manifests of some bytes; None if this process reads them.
EngineOf = Callable[[int], Engine | None]

# The bytes of the manifests of a batch of this process, and of a task.
_BATCH_BYTES = 64 * 1024 * 1024
_TASK_BYTES = 8 * 1024 * 1024
# A batch has at most this number of manifests: the rows of manifest lists take memory too.
_MOST = 10_000
# Lengths that lists declare may be wrong: their sum must not overflow.
_LONGEST = 1 << 40
# Tasks for each core that an engine has at a time: their results wait in memory.
_TASKS_PER_CORE = 4
# What manifests do not need of a table's metadata, and what may be large.
_LEFT_OUT: dict[str, Any] = {
    "current_snapshot_id": None,
    "snapshots": [],
    "snapshot_log": [],
    "metadata_log": [],
    "refs": {},
    "statistics": [],
    "partition_statistics": [],
    "properties": {},
}


def _packed(table: pa.Table) -> str:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(sink, table.schema, options=options) as stream:
        stream.write_table(table)
    return base64_text(sink.getvalue())


def _unpacked(text: str) -> pa.Table:
    return pa.ipc.open_stream(base64.b64decode(text)).read_all()


# A table in the payload or in a result of a task.
PackedTable = Annotated[pa.Table, Codec(_packed, _unpacked)]


def metadata_of(context: TaskContext) -> TableMetadata:
    """Return a table's metadata in a task: without its snapshots, logs, refs, statistics and properties."""
    return _parsed(context.shared)


def in_this_process(_: int) -> None:
    """Return no engine: this process reads manifests of any size."""


def bytes_of(manifests: pa.Table) -> int:
    """Return the bytes of manifests, as their list declares them."""
    return int(pc.sum(manifests["manifest_length"]).as_py() or 0)


def each_batch(
    engine_of: EngineOf,
    storage: Storage,
    manifests: pa.Table,
    metadata: TableMetadata,
    here: Callable[[pa.Table], Iterator[Result]],
    task: Callable[[Payload, TaskContext], Iterator[Result]],
    payload: Callable[[pa.Table], Payload],
) -> Iterator[Result]:
    """Yield what the work on each batch of manifests returns, in the order of the manifests.

    Args:
        engine_of: returns the engine for manifests of some bytes; None for this process.
        storage: the storage that contains the manifests.
        manifests: their rows in the manifest list (`MANIFEST_COLUMNS`).
        metadata: the table's metadata, for specs and schemas.
        here: does the work in this process.
        task: does it in a task, which has the metadata in its context (`metadata_of`).
        payload: returns a task's payload for its batch.

    Raises:
        LakeError: the work on a batch raises it.
    """
    engine = engine_of(bytes_of(manifests))
    if engine is not None:
        yield from in_tasks(engine, storage, manifests, metadata, task, payload)
        return
    for batch in _batches(manifests, _BATCH_BYTES):
        yield from here(batch)


def in_tasks(
    engine: Engine,
    storage: Storage,
    manifests: pa.Table,
    metadata: TableMetadata,
    task: Callable[[Payload, TaskContext], Iterator[Result]],
    payload: Callable[[pa.Table], Payload],
) -> Iterator[Result]:
    """Yield what an engine's tasks return of batches of manifests, as `each_batch` does."""
    shared = metadata.model_copy(update=_LEFT_OUT).model_dump_json().encode()
    wave: list[Task[Payload]] = []
    most = _TASKS_PER_CORE * engine.parallelism

    def run() -> Iterator[Result]:
        found: list[list[Result]] = [[] for _ in wave]
        for result in engine.run(wave, task, storage=storage, shared=shared):
            found[result.task].append(result.value)
        for values in found:
            yield from values

    for batch in _batches(manifests, _TASK_BYTES):
        wave.append(Task(payload(batch), bytes_of(batch)))
        if len(wave) == most:
            yield from run()
            wave.clear()
    if wave:
        yield from run()


def _batches(manifests: pa.Table, most_bytes: int) -> Iterator[pa.Table]:
    """Divide manifests into batches of about some bytes, in their order."""
    ends = np.cumsum(np.clip(manifests["manifest_length"].to_numpy(), 0, _LONGEST))
    start = 0
    while start < len(ends):
        before = ends[start - 1] if start else 0
        end = int(np.searchsorted(ends, before + most_bytes, side="right"))
        end = min(max(end, start + 1), start + _MOST)
        yield manifests.slice(start, end - start)
        start = end


@lru_cache(maxsize=1)
def _parsed(shared: bytes) -> TableMetadata:
    return TableMetadataUtil.parse_raw(shared.decode())
