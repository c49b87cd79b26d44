"""Background writes can be read at once, report their failures, and end before the caller does."""

from __future__ import annotations

import signal
import threading
from concurrent.futures import Future, wait
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.faults.memory_storage import MemoryStorage
from support.tables.iceberg_tables import files_below, ids_in, make_table, open_session, write_file

from lake.core.base.errors import NotAuthorisedError, NotFoundError, StoppedError
from lake.core.io.storage import background_writer
from lake.core.io.storage.background_writer import WriteBehind
from lake.core.io.storage.storage import Storage
from lake.core.transaction.commit.commit import CommitRequest, commit_snapshot
from lake.core.transaction.commit.operations import AppendFiles


class Gated(MemoryStorage):
    """Writes nothing before the gate opens, and refuses what is called so."""

    def __init__(self) -> None:
        super().__init__({"old": b"there already"})
        self.gate = threading.Event()
        self.begun: list[str] = []

    def write(self, location: str, data: bytes | pa.Buffer, *, durable: bool = True) -> None:
        self.begun.append(location)
        assert self.gate.wait(30)
        if "refused" in location:
            raise NotAuthorisedError(location)
        self.files[location] = bytes(data)


def text(data: bytes, _location: str) -> tuple[str, int]:
    return data.decode(), len(data)


def test_what_is_under_way_is_read_as_if_it_were_there() -> None:
    slow = Gated()
    with WriteBehind(slow) as storage:
        storage.write("new", b"content")

        assert slow.files == {"old": b"there already"}
        assert (storage.read("new"), storage.read("old")) == (b"content", b"there already")
        assert [storage.built_from(name, "text", text) for name in ("new", "old")] == [
            "content",
            "there already",
        ]
        with pytest.raises(NotFoundError):
            storage.read("other")
        slow.gate.set()
        storage.settle()
        assert slow.files["new"] == b"content"
        assert storage.read("new") == b"content"


def test_many_are_written_at_once_and_settling_waits_for_all() -> None:
    slow = Gated()
    with WriteBehind(slow) as storage:
        for number in range(40):
            storage.write(f"{number}", b"x")
        threading.Timer(0.05, slow.gate.set).start()
        storage.settle()

        assert len(slow.files) == 41


def test_a_write_that_fails_is_reported_when_settling() -> None:
    slow = Gated()
    slow.gate.set()
    with WriteBehind(slow) as storage:
        storage.write("first", b"x")
        storage.write("refused", b"x")
        with pytest.raises(NotAuthorisedError):
            storage.settle()


def test_after_giving_up_nothing_is_written_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = Gated()

    def opening(futures: list[Future[None]]) -> None:
        # Not sooner: on a busy machine all of them would be written before the others are cancelled.
        slow.gate.set()
        wait(futures)

    monkeypatch.setattr(background_writer, "wait", opening)
    with WriteBehind(slow) as storage:
        for number in range(40):
            storage.write(f"{number}", b"x")
        storage.give_up()
        written = set(slow.files)

    assert set(slow.files) == written == {"old", *slow.begun}
    assert len(written) < 41


def test_a_stop_while_a_write_begins_leaves_no_write_that_nothing_waits_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def stop(number: int, _frame: object) -> None:
        raise StoppedError(number)

    def begun(*arguments: Any, **options: Any) -> Future[None]:
        future = submit(*arguments, **options)
        signal.raise_signal(signal.SIGTERM)
        return future

    slow = Gated()
    before = signal.signal(signal.SIGTERM, stop)
    try:
        with WriteBehind(slow) as storage:
            submit = storage._pool.submit
            monkeypatch.setattr(storage._pool, "submit", begun)
            threading.Timer(0.2, slow.gate.set).start()
            with pytest.raises(StoppedError):
                storage.write("new", b"x")
            storage.give_up()
            written = set(slow.files)
    finally:
        signal.signal(signal.SIGTERM, before)

    assert set(slow.files) == written


def test_an_error_in_the_block_is_not_hidden_by_a_write_that_fails() -> None:
    slow = Gated()
    slow.gate.set()
    with pytest.raises(ZeroDivisionError), WriteBehind(slow) as storage:
        storage.write("refused", b"x")
        raise ZeroDivisionError


def test_only_so_much_is_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background_writer, "_PENDING_BYTES", 100)
    slow = Gated()
    slow.gate.set()
    with WriteBehind(slow) as storage:
        for number in range(10):
            storage.write(f"{number}", b"x" * 60)
            assert storage._bytes <= 180
        storage.settle()

    assert len(slow.files) == 11


def test_a_manifest_that_cannot_be_written_leaves_nothing_of_the_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_table(tmp_path)
    session = open_session(tmp_path)
    table = session.table("db.t")
    operation = AppendFiles(added=[write_file(table, [1])])
    before = files_below(tmp_path)
    real = Storage.write

    def full(
        self: Storage, location: str, data: bytes | pa.Buffer, *, durable: bool = True
    ) -> None:
        real(self, location, data, durable=durable)
        if "-m0.avro" in location:
            raise NotAuthorisedError("no space left")

    monkeypatch.setattr(Storage, "write", full)
    with pytest.raises(NotAuthorisedError, match="no space left"):
        commit_snapshot(session, table, operation, CommitRequest(operation_id=session.ids.uuid()))

    assert files_below(tmp_path) == before
    assert ids_in(tmp_path) == []
