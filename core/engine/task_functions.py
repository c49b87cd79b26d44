"""Task functions by name, and their payloads, results and errors as they travel between driver and workers."""

from __future__ import annotations

import importlib
import inspect
import json
import traceback
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any, get_args, get_type_hints

from lake.core.base import errors
from lake.core.base.errors import EngineError, LakeError
from lake.core.base.plain import PlainData
from lake.core.base.redaction import Redactor
from lake.core.engine.tasks import TaskContext
from lake.core.io.storage.errors import storage_error
from lake.core.io.storage.storage import Storage

# Spark's workers receive the names of task functions: a name must not select any other code.
_PACKAGE = "lake.core."
_TRACE_LIMIT = 4000
_SHOWN = 200


def name_of(function: Callable[..., Any]) -> str:
    """Return the name ``"module:function"`` by which workers find a task's function.

    Raises:
        EngineError: it is not a function that a module below lake's core defines under its name.
    """
    name = f"{function.__module__}:{function.__qualname__}"
    if resolve(name) is not function:
        raise EngineError(f"not a task function: {name!r} is another function")
    return name


def resolve(name: str) -> Callable[..., Any]:
    """Return the function that ``"module:function"`` names.

    Raises:
        EngineError: it is not below lake's core or does not exist.
    """
    module, _, function = name.partition(":")
    if not module.startswith(_PACKAGE):
        raise EngineError(f"not a task function: {name!r}")
    try:
        found = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise EngineError(f"no such task function: {name} ({error})") from error
    if not callable(found):
        raise EngineError(f"not a task function: {name!r}")
    return found  # type: ignore[no-any-return]


def encode_value(value: PlainData | Mapping[str, Any]) -> dict[str, Any]:
    """Return a task's payload, or one of its results, as JSON-ready values."""
    return value.to_plain() if isinstance(value, PlainData) else dict(value)


def decode_payload(function: Callable[..., Any], plain: Mapping[str, Any]) -> Any:
    """Rebuild a task's payload as the type of its function's first parameter."""
    payload_type = _payload_type(function)
    return plain if payload_type is None else payload_type.from_plain(plain)


def decode_result(function: Callable[..., Any], plain: Any) -> Any:
    """Rebuild a task's result as the type that its function yields.

    Raises:
        EngineError: the value has other fields than the type, or fields that cannot be decoded.
    """
    result_type = _result_type(function)
    if result_type is None:
        return plain
    name = f"{function.__module__}:{function.__qualname__}"
    if not isinstance(plain, dict):
        raise EngineError(
            f"{name} returned a {type(plain).__name__} instead of a {result_type.__name__}"
        )
    unknown = sorted(plain.keys() - result_type.field_names())
    if unknown:
        raise EngineError(f"{name} returned unknown fields: {', '.join(unknown)[:_SHOWN]}")
    try:
        return result_type.from_plain(plain)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        text = f"{name} returned an invalid {result_type.__name__}: {type(error).__name__}"
        raise EngineError(text) from error


@cache
def _payload_type(function: Callable[..., Any]) -> type[PlainData] | None:
    """Return the dataclass that a function takes; None if it takes a mapping."""
    first = next(iter(inspect.signature(function).parameters))
    return _plain_type(get_type_hints(function).get(first))


@cache
def _result_type(function: Callable[..., Any]) -> type[PlainData] | None:
    """Return the dataclass that a function yields; None if it yields mappings."""
    yielded = get_args(get_type_hints(function).get("return"))
    return _plain_type(yielded[0]) if yielded else None


def _plain_type(hint: Any) -> type[PlainData] | None:
    return hint if isinstance(hint, type) and issubclass(hint, PlainData) else None


def encode_error(error: LakeError, trace: str = "") -> str:
    """Return an error as text that `decode_error` rebuilds."""
    return json.dumps(
        {
            "class": type(error).__name__,
            "message": error.message,
            "hint": error.hint,
            "trace": trace,
        }
    )


def encode_defect(error: Exception, storage: Storage) -> str:
    """Return any other exception of a task as a LakeError, without the storage's secrets."""
    redact = Redactor()
    for properties in storage.credentials.parts():
        redact.learn(properties)
    known = storage_error(error) if isinstance(error, OSError) else None
    if known is not None:
        return encode_error(type(known)(redact(known.message), hint=known.hint))
    trace = redact("".join(traceback.format_exception(error)), limit=None)
    message = redact(f"a task failed: {type(error).__name__}: {error}")
    return encode_error(EngineError(message), trace[-_TRACE_LIMIT:])


def decode_error(text: str) -> LakeError:
    """Rebuild a task's error with its own class, message and hint; its trace becomes a note."""
    plain = json.loads(text)
    found = getattr(errors, str(plain["class"]), LakeError)
    if not (isinstance(found, type) and issubclass(found, LakeError)):
        found = LakeError
    try:
        error = found(plain["message"], hint=plain["hint"])
    except TypeError:
        # Classes that need more than a message are not raised in tasks.
        error = LakeError(plain["message"], hint=plain["hint"])
    if plain.get("trace"):
        error.add_note(plain["trace"])
    return error


def echo(payload: Mapping[str, Any], context: TaskContext) -> Iterator[Mapping[str, Any]]:
    """Return the payload: a task that shows that an engine works."""
    yield {"payload": dict(payload), "attempt": context.attempt}


def scatter(payload: Mapping[str, Any], _context: TaskContext) -> Iterator[tuple[int, bytes]]:
    """Send each of a payload's ``blobs`` (pairs of reducer and text): shows that an exchange works."""
    for reducer, text in payload["blobs"]:
        yield reducer, text.encode()


def gather(
    payload: Mapping[str, Any], blobs: Iterator[bytes], context: TaskContext
) -> Iterator[Mapping[str, Any]]:
    """Return the texts that `scatter` sent to one reducer."""
    texts = [blob.decode() for blob in blobs]
    yield {"payload": dict(payload), "texts": texts, "attempt": context.attempt}
