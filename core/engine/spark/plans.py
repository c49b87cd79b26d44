"""Plans of Spark jobs for a batch of tasks: the rows of plain data, and the transformation of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import mmh3

from lake.core.engine.spark.worker import (
    BLOB_ROWS,
    RESULT_ROWS,
    reduce_blobs,
    run_tasks,
    send_blobs,
)
from lake.core.engine.task_functions import encode_value
from lake.core.engine.tasks import Task
from lake.core.io.storage.credentials import Credentials

# A job costs some hundredths of a second: small tasks share one, but each core gets several for balance.
_JOB_BYTES = 8 * 1024 * 1024
_FEWEST_PER_CORE = 4
_MOST_PER_CORE = 16

# The values of a row of TASK_ROWS.
TaskRow = tuple[str, str, str, str, bytes, bytes]
_SEED = 42


@dataclass(frozen=True, slots=True)
class Plan:
    """A batch of tasks for Spark.

    Args:
        function: the name of the function that the tasks call.
        groups: the JSON-ready tasks of each row.
        tasks: the number of tasks.
        build: transforms a frame of TASK_ROWS to one of RESULT_ROWS.
        shuffled: whether the plan contains a shuffle.
        shared: data that every task receives.
    """

    function: str
    groups: Sequence[Any]
    tasks: int
    build: Callable[[Any], Any]
    shuffled: bool = False
    shared: bytes = b""

    def rows(self, batch: str, folder: str, credentials: Credentials) -> list[TaskRow]:
        """Return the rows; ``folder`` contains the workers' locks and is empty on a cluster."""
        secrets = credentials.to_bytes()
        return [
            (json.dumps(group), self.function, batch, folder, secrets, self.shared)
            for group in self.groups
        ]


def run(tasks: Sequence[Task[Any]], function: str, cores: int, shared: bytes = b"") -> Plan:
    """Return the plan of independent tasks for a number of cores."""
    groups = list(_groups(tasks, _jobs(tasks, cores)))
    return Plan(function, groups, len(tasks), _run, shared=shared)


def exchange(
    tasks: Sequence[Task[Any]],
    map_function: str,
    reduce_function: str,
    reduce_payloads: Sequence[Any],
    cores: int,
    *,
    parts: int = 1,
) -> Plan:
    """Return the plan of tasks that send and reducers that receive, for a number of cores."""
    jobs = _jobs(tasks, cores)
    partitions = min(len(reduce_payloads), jobs)
    shared = {
        "reducers": len(reduce_payloads),
        "parts": parts,
        "places": keys_of_partitions(partitions),
        "function": reduce_function,
    }
    # The first row contains the reducers' payloads.
    payloads: list[Any] = [encode_value(payload) for payload in reduce_payloads]
    groups = [
        {**shared, "tasks": group, "payloads": [] if number else payloads}
        for number, group in enumerate(_groups(tasks, jobs))
    ]
    build = partial(_exchange, max(1, partitions))
    return Plan(map_function, groups, len(tasks), build, shuffled=True)


def _run(frame: Any) -> Any:
    return frame.mapInArrow(run_tasks, RESULT_ROWS)


def _exchange(partitions: int, frame: Any) -> Any:
    sent = frame.mapInArrow(send_blobs, BLOB_ROWS)
    placed = sent.repartition(partitions, "place").sortWithinPartitions(
        "reducer", "slot", "task", "number"
    )
    return placed.mapInArrow(reduce_blobs, RESULT_ROWS)


def murmur3(value: int) -> int:
    """Return Spark's hash of a 32-bit integer, signed: `org.apache.spark.sql.catalyst.expressions.Murmur3Hash`."""
    return mmh3.hash(value.to_bytes(4, "little", signed=True), _SEED)


def keys_of_partitions(partitions: int) -> list[int]:
    """Return for each partition a key that Spark places in it: ``pmod(murmur3(key), partitions)``.

    Only the balance of the partitions depends on it: the rows of a reducer share a key, so they meet wherever Spark
    places it.
    """
    keys: dict[int, int] = {}
    key = 0
    while len(keys) < partitions:
        keys.setdefault(murmur3(key) % partitions, key)
        key += 1
    return [keys[number] for number in range(partitions)]


def _jobs(tasks: Sequence[Task[Any]], cores: int) -> int:
    """Return the approximate number of jobs for the tasks."""
    by_size = sum(task.input_bytes for task in tasks) // _JOB_BYTES
    return min(max(by_size, _FEWEST_PER_CORE * cores), _MOST_PER_CORE * cores)


def _groups(tasks: Sequence[Task[Any]], most: int) -> Iterator[list[tuple[int, Any]]]:
    """Divide tasks into consecutive groups of similar count and bytes; yield lists of (number, payload)."""
    count_limit = -(-len(tasks) // most)
    bytes_limit = sum(task.input_bytes for task in tasks) / most
    group: list[tuple[int, Any]] = []
    size = 0
    for number, task in enumerate(tasks):
        group.append((number, encode_value(task.payload)))
        size += task.input_bytes
        if len(group) >= count_limit or size > bytes_limit:
            yield group
            group, size = [], 0
    if group:
        yield group
