"""Hooks at every read, list, write and delete of lake's storage, and a world's time and names in all libraries.

The files are real. Deletes and background writes run one after another in the calling thread, so that each is a
separate point.
"""

from __future__ import annotations

import functools
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Self
from unittest.mock import patch

import pyiceberg.table.update as updates
from pyiceberg.table import snapshots
from support.faults.store_time import store_time_of_commands

from lake.core.base.errors import LakeError
from lake.core.io.avro.container import Block
from lake.core.io.storage import atomic_files, storage
from lake.core.io.storage.storage import Storage
from lake.core.maintain.compaction import run as compaction
from lake.core.maintain.compaction.concurrency import base_keeper, rhythm
from lake.core.maintain.definition import drop
from lake.core.maintain.orphans import trash
from lake.core.table.manifests import decode
from lake.core.transaction.garbage import other_histories
from lake.core.transaction.locks import table_lock
from world.catalog import MARK

Hook = Callable[[str, str], None]
# A call, and the name of its point; the effect has happened when the call returns.
CALLS = {
    "_open": "read",
    "open_output": "create",
    "persist": "persist",
    "size": "look",
    "is_folder": "look",
    "list_folder": "list",
    "find": "list",
    "make_folder": "create",
    "_delete_one": "delete",
}


@contextmanager
def hooked(before: Hook, after: Hook | None = None) -> Iterator[None]:
    """Call a hook with the name and the location, before (and after) each call of storage."""
    with (
        patch.object(storage, "ReadingThreads", _OneByOne),
        patch("lake.core.io.storage.background_writer.ThreadPoolExecutor", _OneByOne),
    ):
        patches = [
            patch.object(Storage, name, _wrapped(getattr(Storage, name), kind, before, after))
            for name, kind in CALLS.items()
        ]
        replace = _called(atomic_files.replace, "create", before, after)
        patches.append(patch.object(atomic_files, "replace", replace))
        patches.append(patch.object(trash, "move", _moved(trash.move, before, after)))
        for one in patches:
            one.start()
        try:
            yield
        finally:
            for one in patches:
                one.stop()


def _wrapped(real: Any, kind: str, before: Hook, after: Hook | None) -> Any:
    def call(self: Storage, location: str, *rest: Any, **named: Any) -> Any:
        before(kind, location)
        try:
            return real(self, location, *rest, **named)
        finally:
            if after is not None:
                after(kind, location)

    return call


def _called(real: Any, kind: str, before: Hook, after: Hook | None) -> Any:
    def call(path: str, *rest: Any, **options: Any) -> Any:
        before(kind, path)
        try:
            return real(path, *rest, **options)
        finally:
            if after is not None:
                after(kind, path)

    return call


def _moved(real: Any, before: Hook, after: Hook | None) -> Any:
    """Return a move that counts as the deletion of the file where it was; its time stays."""

    def call(of: Storage, source: str, target: str, *rest: Any, **named: Any) -> Any:
        before("delete", source)
        try:
            return real(of, source, target, *rest, **named)
        finally:
            if after is not None:
                after("delete", source)

    return call


class _OneByOne:
    """An executor that works in its caller's thread."""

    def __init__(self, _threads: int) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def map(self, function: Callable[[Any], Any], values: Any) -> Iterator[Any]:
        return map(function, values)

    def submit(self, function: Callable[..., Any], *values: Any, **named: Any) -> Future[Any]:
        """Run it at once; only errors of storage itself are kept for the caller."""
        done: Future[Any] = Future()
        try:
            done.set_result(function(*values, **named))
        except LakeError as error:
            done.set_exception(error)
        return done

    def shutdown(self) -> None:
        pass


@contextmanager
def unlocked() -> Iterator[None]:
    """Let runs of compact and expire overlap: correctness must not depend on their lock.

    Before Python 3.12, a `cached_property` locks its class while it is computed, and an actor that waits for a lock
    never takes its turn.
    """

    def run(session: Any, table: Any, work: Callable[..., Any], **_: Any) -> Any:
        return work(table, session.ids.uuid())

    def computed(attribute: Any, instance: Any, _: Any = None) -> Any:
        if instance is None:
            return attribute
        values = vars(instance)
        if attribute.attrname not in values:
            values[attribute.attrname] = attribute.func(instance)
        return values[attribute.attrname]

    with (
        patch.object(functools.cached_property, "__get__", computed),
        patch.object(table_lock, "with_table_lock", run),
        # These import the function when they are loaded.
        patch.object(drop, "with_table_lock", run),
        patch.object(compaction, "with_table_lock", run),
    ):
        yield


@contextmanager
def attentive_compactions(*, always: bool) -> Iterator[None]:
    """Let compactions look at the table after each task, as those do that take long; and learn rhythms early."""
    seconds = 0.0 if always else base_keeper._SECONDS
    commits, span_ms = (3, 0) if always else (rhythm._LEAST_COMMITS, rhythm._LEAST_SPAN_MS)
    with (
        patch.object(base_keeper, "_SECONDS", seconds),
        patch.object(rhythm, "_LEAST_COMMITS", commits),
        patch.object(rhythm, "_LEAST_SPAN_MS", span_ms),
    ):
        yield


@contextmanager
def seeded_libraries(
    now_ms: Callable[[], int], new_uuid: Callable[[], uuid.UUID]
) -> Iterator[None]:
    """Give libraries and stores the world's time and names.

    The mark of a catalog depends on the machine and on the folder.
    """

    class Now:
        @staticmethod
        def now() -> datetime:
            return datetime.fromtimestamp(now_ms() / 1000, UTC)

    class Clock:
        @staticmethod
        def time() -> float:
            return now_ms() / 1000

    with (
        patch.object(updates, "datetime", Now),
        patch.object(snapshots, "time", Clock),
        patch.object(uuid, "uuid4", new_uuid),
        patch.object(other_histories, "mark_of", lambda *_: MARK),
        store_time_of_commands(),
    ):
        yield


@contextmanager
def file_times(written_ms: Callable[[str], int | None]) -> Iterator[None]:
    """Set the times of files to a world's time."""

    def stored(location: str, info: Any) -> Any:
        return replace(_real_stored(location, info), modified_ms=written_ms(location))

    def local_file(location: str, path: str) -> Any:
        file = _real_local_file(location, path)
        return file and replace(file, modified_ms=written_ms(location))

    with (
        patch.object(storage, "_stored", stored),
        patch.object(storage, "_local_file", local_file),
    ):
        yield


_real_stored = storage._stored
_real_local_file = storage._local_file
_KEPT_TABLES = 1024


@contextmanager
def remembered_decoding() -> Iterator[None]:
    """Cache decoded bytes: a world reads the same manifests many times."""
    with patch.object(decode, "decode", _decode):
        yield


def _decode(
    layout: Any,
    blocks: Any,
    columns: Any,
    *,
    name: str,
    reduced: Callable[[Any], Any] | None = None,
) -> Any:
    data = tuple((block.objects, bytes(block.data)) for block in blocks)
    # Readers want different parts of the same rows.
    decoded = _decode_once(layout, data, tuple(columns), name)
    return decoded if reduced is None else reduced(decoded)


@functools.lru_cache(_KEPT_TABLES)
def _decode_once(layout: Any, data: Any, columns: Any, name: str) -> Any:
    return _real_decode(layout, [Block(*one) for one in data], columns, name=name)


_real_decode = decode.decode
