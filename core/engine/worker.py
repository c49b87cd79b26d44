"""What runs where the rows are: find a task's function by name, run it, and carry errors home whole."""

from __future__ import annotations

import importlib
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from lake.core import errors
from lake.core.engine import TaskContext
from lake.core.errors import EngineError, LakeError
from lake.core.table.storage import Storage

# Task functions are named by text that travels through Spark: no other code may be named so.
_PACKAGE = "lake.core."


def resolve(name: str) -> Callable[..., Any]:
    """Return the function that ``"module:function"`` names.

    Raises:
        EngineError: it lies outside lake's core or does not exist.
    """
    module, _, function = name.partition(":")
    if not module.startswith(_PACKAGE):
        raise EngineError(f"not a task function: {name!r}")
    try:
        found = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise EngineError(f"no such task function: {name}") from error
    if not callable(found):
        raise EngineError(f"not a task function: {name!r}")
    return found  # type: ignore[no-any-return]


def context_for(
    storage: Storage, attempt: str, stopped: threading.Event | None = None
) -> TaskContext:
    """Return what a task function is given beside its payload."""
    return TaskContext(storage=storage, attempt=attempt, stopped=stopped or threading.Event())


def encode_error(error: LakeError) -> str:
    """Return an error as text that `decode_error` rebuilds."""
    return json.dumps(
        {"class": type(error).__name__, "message": error.message, "hint": error.hint}
    )


def decode_error(text: str) -> LakeError:
    """Rebuild a task's error with its own class, message and hint."""
    plain = json.loads(text)
    found = getattr(errors, str(plain["class"]), LakeError)
    if not (isinstance(found, type) and issubclass(found, LakeError)):
        found = LakeError
    try:
        return found(plain["message"], hint=plain["hint"])
    except TypeError:
        # Classes with more to say than a message are not raised in tasks.
        return LakeError(plain["message"], hint=plain["hint"])


def echo(payload: Mapping[str, Any], context: TaskContext) -> Iterator[Mapping[str, Any]]:
    """Give a payload back: what an engine runs to show that it is there."""
    yield {"payload": dict(payload), "attempt": context.attempt}
