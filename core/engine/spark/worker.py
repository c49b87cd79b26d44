"""The functions of Spark's Python workers, which convert rows with tasks to texts with results.

Everything that a task needs is in its row; storage properties, with secrets, are only in the binary column.
Failures are rows too, so that an error keeps its class and Spark's messages do not repeat its text. The rows of an
exchange are ordered by (reducer, slot, task, number): first failures, with reducer -2; then the ends of tasks, with
reducer -1; then for each reducer its payload, with slot and task -1, and the blobs in the order of slots, of tasks
and of sending.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from itertools import chain, groupby
from operator import itemgetter
from typing import Any

import pyarrow as pa

from lake.core.base.arrow import one_row
from lake.core.base.errors import EngineError, LakeError
from lake.core.engine.spark.task_reports import TaskReport
from lake.core.engine.spark.worker_locks import working
from lake.core.engine.task_functions import (
    decode_payload,
    encode_defect,
    encode_error,
    encode_value,
    resolve,
)
from lake.core.engine.tasks import TaskContext
from lake.core.io.storage.credentials import CredentialProvider, Credentials
from lake.core.io.storage.storage import Storage

# The input and output schemas of each step of a job, for Spark and for Arrow.
TASK_ROWS = (
    "tasks string, function string, batch string, folder string, secrets binary, shared binary"
)
RESULT_ROWS = "results string"
BLOB_ROWS = f"place int, reducer int, slot int, task int, number int, blob binary, {TASK_ROWS}"
_RESULT_SCHEMA = pa.schema([("results", pa.string())])
_BLOB_SCHEMA = pa.schema(
    [
        *[(name, pa.int32()) for name in ("place", "reducer", "slot", "task", "number")],
        ("blob", pa.binary()),
        *[(name, pa.string()) for name in ("tasks", "function", "batch", "folder")],
        ("secrets", pa.binary()),
        ("shared", pa.binary()),
    ]
)
# Results are joined to texts of about this many characters.
_TEXT_CHARACTERS = 256 * 1024
_FAILURE = -2
_SENT = -1
_PAYLOAD = -1

Row = dict[str, Any]


class _Failed(str):
    """An error that ended a task, as text."""

    __slots__ = ()


class _Ended(int):
    """The end of a task: the number of rows that it reported."""

    __slots__ = ()


class _Sent(str):
    """The end of the first half of a task: the reducers that it sent to, as a JSON list."""

    __slots__ = ()


def run_rows(rows: Iterator[tuple[Any, ...]]) -> Iterator[str]:
    """Run the tasks of each row, which has the values of TASK_ROWS, and yield texts.

    A text is ``{"attempt", "results", "ended", "sent"}``: Spark's number of this attempt; a list of ``[task, value]``
    that ends with ``[null, error]`` after a failure; the tasks, or in an exchange the reducers, that ended, as
    ``[task, rows]``; and the tasks of an exchange that have sent everything, as ``[task, reducers]``. There is at
    least one text, so that every successful attempt is reported.
    """
    _forget_archives()
    names = [column.split()[0] for column in TASK_ROWS.split(", ")]
    named = (dict(zip(names, row, strict=True)) for row in rows)
    yield from _texts(chain.from_iterable(map(_run_row, named)))


def run_tasks(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Do as `run_rows` for a server that runs plans only; rows are TASK_ROWS, results RESULT_ROWS."""
    yield from map(_record_of, run_rows(tuple(row.values()) for row in _rows(batches)))


def _run_row(row: Row) -> Iterator[tuple[int, str | _Ended]]:
    storage = _storage(row)
    with working(row["folder"]) as wanted:
        for number, payload in json.loads(row["tasks"]) if wanted else []:
            for value in _guarded(storage, _task_values(row, storage, number, payload)):
                yield number, value
                if isinstance(value, _Failed):
                    return


def _task_values(row: Row, storage: Storage, number: int, payload: Any) -> Iterator[str | _Ended]:
    with TaskReport(row["folder"], number) as report:
        context = TaskContext(
            storage, _attempt(row, number), on_report=report, shared=row["shared"]
        )
        function = resolve(row["function"])
        for value in function(decode_payload(function, payload), context):
            yield json.dumps(encode_value(value))
        yield _Ended(report.rows)


def send_blobs(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Run the first half of an exchange; rows are TASK_ROWS, results BLOB_ROWS.

    A row's ``tasks`` is ``{"tasks", "reducers", "parts", "places", "function", "payloads"}``: besides the tasks, the
    number of reducers, that of the slots of each, the keys by which Spark assigns a reducer's rows to its partition,
    and the function and the payloads of the second half. ``payloads`` is in one row only.
    """
    _forget_archives()
    for row in _rows(batches):
        with working(row["folder"]) as wanted:
            if wanted:
                yield from _send_row(row, json.loads(row["tasks"]))


def _send_row(row: Row, plan: dict[str, Any]) -> Iterator[pa.RecordBatch]:
    storage = _storage(row)
    places = plan["places"]
    for reducer, payload in enumerate(plan["payloads"]):
        yield _blob_record(
            {**row, "tasks": json.dumps(payload), "function": plan["function"]},
            place=places[reducer % len(places)],
            reducer=reducer,
            task=_PAYLOAD,
        )
    for task, payload in plan["tasks"]:
        reached: set[int] = set()
        for number, item in enumerate(_guarded(storage, _sent(row, storage, task, payload, plan))):
            if isinstance(item, _Failed):
                # Send it first to every partition, so that none reduces incomplete input.
                for place in places:
                    yield _blob_record({"tasks": item}, place=place, reducer=_FAILURE, task=task)
                return
            reducer, slot, blob = item
            reached.add(reducer)
            place = places[reducer % len(places)]
            yield _blob_record(
                {}, place=place, reducer=reducer, slot=slot, task=task, number=number, blob=blob
            )
        yield _blob_record(
            {"tasks": json.dumps(sorted(reached))}, place=places[0], reducer=_SENT, task=task
        )


def _sent(
    row: Row, storage: Storage, task: int, payload: Any, plan: dict[str, Any]
) -> Iterator[tuple[int, int, bytes]]:
    reducers = plan["reducers"]
    with TaskReport(row["folder"], task) as report:
        context = TaskContext(storage, _attempt(row, task), on_report=report)
        function = resolve(row["function"])
        for slot, blob in function(decode_payload(function, payload), context):
            reducer = slot // plan["parts"]
            if not 0 <= reducer < reducers:
                raise EngineError(f"task {task} sent to reducer {reducer} of {reducers}")
            yield reducer, slot, blob


def reduce_blobs(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Run the second half of an exchange; rows are BLOB_ROWS in order, results RESULT_ROWS, as of `run_rows`."""
    _forget_archives()
    yield from map(_record_of, _texts(_reduced(_rows(batches))))


def _reduced(rows: Iterator[Row]) -> Iterator[tuple[int, str | _Ended | _Sent]]:
    for reducer, group in groupby(rows, key=itemgetter("reducer")):
        first = next(group)
        if reducer == _FAILURE:
            yield reducer, _Failed(first["tasks"])
            return
        if reducer == _SENT:
            for row in chain([first], group):
                yield row["task"], _Sent(row["tasks"])
            continue
        blob = next(group, None)  # noqa: B031 - the rest of the group is read later, not again
        if blob is None:
            continue
        storage = _storage(first)
        blobs = (row["blob"] for row in chain([blob], group))
        with working(first["folder"]) as wanted:
            values = _reducer_values(first, storage, blobs) if wanted else iter(())
            for value in _guarded(storage, values):
                yield reducer, value
                if isinstance(value, _Failed):
                    return


def _reducer_values(first: Row, storage: Storage, blobs: Iterator[bytes]) -> Iterator[str | _Ended]:
    with TaskReport(first["folder"], first["reducer"]) as report:
        context = TaskContext(storage, _attempt(first, first["reducer"]), on_report=report)
        function = resolve(first["function"])
        payload = decode_payload(function, json.loads(first["tasks"]))
        for value in function(payload, blobs, context):
            yield json.dumps(encode_value(value))
        yield _Ended(report.rows)


def _guarded(storage: Storage, values: Iterator[Any]) -> Iterator[Any]:
    """Yield values; a failure becomes the last value."""
    try:
        yield from values
    except LakeError as error:
        yield _Failed(encode_error(error))
    except Exception as error:  # noqa: BLE001 - reported to the driver, which raises it
        yield _Failed(encode_defect(error, storage))


def _storage(row: Row) -> Storage:
    return Storage(renewed=CredentialProvider(Credentials.from_bytes(row["secrets"])))


def _attempt(row: Row, number: int) -> str:
    """Return a text that is unique to this attempt."""
    return f"{row['batch']}-{_attempt_number()}-{number}"


def _attempt_number() -> int:
    """Return Spark's number of this attempt, which counts from 0 through the whole application."""
    from pyspark import TaskContext  # noqa: PLC0415 - a worker has loaded it already

    context = TaskContext.get()
    return int(context.taskAttemptId()) if context else 0


def _rows(batches: Iterator[pa.RecordBatch]) -> Iterator[Row]:
    for batch in batches:
        names = batch.schema.names
        for index in range(batch.num_rows):
            yield {name: batch.column(name)[index].as_py() for name in names}


def _texts(results: Iterator[tuple[int, str | _Ended | _Sent]]) -> Iterator[str]:
    """Join results to texts."""
    parts: list[str] = []
    ended: list[str] = []
    sent: list[str] = []
    length = 0
    for number, value in results:
        if isinstance(value, _Ended):
            ended.append(f"[{number},{int(value)}]")
            continue
        if isinstance(value, _Sent):
            sent.append(f"[{number},{value}]")
            continue
        failed = isinstance(value, _Failed)
        parts.append(f"[null,{json.dumps(value)}]" if failed else f"[{number},{value}]")
        length += len(parts[-1])
        if length >= _TEXT_CHARACTERS:
            yield _text(parts, ended, sent)
            parts, ended, sent, length = [], [], [], 0
    yield _text(parts, ended, sent)


def _text(parts: list[str], ended: list[str], sent: list[str]) -> str:
    lists = f'"results":[{",".join(parts)}],"ended":[{",".join(ended)}],"sent":[{",".join(sent)}]'
    return f'{{"attempt":{_attempt_number()},{lists}}}'


def _record_of(text: str) -> pa.RecordBatch:
    return one_row(_RESULT_SCHEMA, {"results": text})


def _blob_record(
    row: Row,
    *,
    place: int,
    reducer: int,
    task: int,
    slot: int = -1,
    number: int = 0,
    blob: bytes = b"",
) -> pa.RecordBatch:
    values = {
        "place": place,
        "reducer": reducer,
        "slot": slot,
        "task": task,
        "number": number,
        "blob": blob,
    }
    return one_row(_BLOB_SCHEMA, {**row, **values})


def _forget_archives() -> None:
    """Remove Spark's jar from the import path.

    Spark adds it for clusters that ship PySpark in it, and every task reads the archives of the path again. That
    takes 60 ms of each task, although workers have imported all modules of the jar.
    """
    for path in [path for path in sys.path if path.endswith(".jar")]:
        sys.path.remove(path)
    for path in [path for path in sys.path_importer_cache if path.endswith(".jar")]:
        del sys.path_importer_cache[path]
