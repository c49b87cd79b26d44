"""Task functions for tests of the engines; workers import this module as ``lake.core.drill``."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from lake.core.base import errors
from lake.core.data.sorting.range_partitioning import SampledKeys
from lake.core.engine.tasks import TaskContext

# The functions' module: engines accept functions of the core only.
__name__ = "lake.core.drill"

Payload = Mapping[str, Any]
Values = Iterator[Mapping[str, Any]]


def twice(payload: Payload, context: TaskContext) -> Values:
    yield {"n": payload["n"]}
    yield {"n": payload["n"], "attempt": context.attempt}


def report(payload: Payload, context: TaskContext) -> Iterator[SampledKeys]:
    yield SampledKeys(rows=payload["n"], keys=[bytes([payload["n"]])])


def misreport(payload: Payload, context: TaskContext) -> Iterator[SampledKeys]:
    """Yield a value that may have another shape."""
    yield payload["value"]


def fail(payload: Payload, context: TaskContext) -> Values:
    """Raise one of lake's errors, or any other."""
    if payload.get("class"):
        raise getattr(errors, payload["class"])(payload["message"], hint=payload.get("hint"))
    if "raise" in payload:
        raise ZeroDivisionError(payload["raise"])
    yield {"fine": True}


def unspeakable(payload: Payload, context: TaskContext) -> Values:
    yield {"bytes": b"not JSON"}


def secrets(payload: Payload, context: TaskContext) -> Values:
    yield {"length": len(context.storage.credentials.properties[payload["key"]])}


def leak(payload: Payload, context: TaskContext) -> Values:
    raise RuntimeError(f"the server said {context.storage.credentials.properties[payload['key']]}")
    yield {}


def wait_for(payload: Payload, context: TaskContext) -> Values:
    """End when a file appears, if one is named."""
    name = payload.get("file")
    while name and not Path(name).exists() and not context.stopped.is_set():
        time.sleep(0.02)
    yield {"waited": bool(name)}


def write_on(payload: Payload, context: TaskContext) -> Values:
    """Write to a file until stopped; number 0 ends at once."""
    if not payload["n"]:
        yield {}
        return
    folder = Path(payload["folder"])
    path = folder / f"{payload['n']}-{os.getpid()}"
    while not context.stopped.is_set():
        with path.open("a") as file:
            file.write("x")
        time.sleep(0.01)
    yield {}


def die(payload: Payload, context: TaskContext) -> Values:
    os.kill(os.getpid(), signal.SIGKILL)
    yield {}


def die_once(payload: Payload, context: TaskContext) -> Values:
    """Die, unless an attempt has died already."""
    died = Path(payload["died"])
    if not died.exists():
        died.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    yield {"n": payload["n"]}


def send(payload: Payload, context: TaskContext) -> Iterator[tuple[int, bytes]]:
    """Send what the payload says, and leave a line in a file for each call."""
    if payload.get("calls"):
        with Path(payload["calls"]).open("a") as file:
            file.write(f"{payload['n']}\n")
    if payload.get("class"):
        raise getattr(errors, payload["class"])(payload["message"])
    for reducer, text in payload["blobs"]:
        yield reducer, text.encode()


def send_much(payload: Payload, context: TaskContext) -> Iterator[tuple[int, bytes]]:
    for number in range(payload["count"]):
        yield number % payload["reducers"], bytes([number % 256]) * payload["bytes"]


def receive(payload: Payload, blobs: Iterator[bytes], context: TaskContext) -> Values:
    yield {"payload": dict(payload), "texts": [blob.decode() for blob in blobs]}


def receive_first(payload: Payload, blobs: Iterator[bytes], context: TaskContext) -> Values:
    yield {"first": next(blobs).decode()}


def measure(payload: Payload, blobs: Iterator[bytes], context: TaskContext) -> Values:
    yield {"bytes": sum(len(blob) for blob in blobs)}


def fail_reducer(payload: Payload, blobs: Iterator[bytes], context: TaskContext) -> Values:
    raise errors.CorruptFileError("the blobs are not what they should be", hint="look")
    yield {}
