"""The journal of an expiry: there while its list is unfinished, finished by the next run, never believed."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import pytest
from support.cli.command_line import CommandLine
from support.tables.iceberg_tables import (
    after,
    files_below,
    ids_in,
    inject,
    open_session,
    refused_with,
    stopped,
    write_file,
)
from support.tables.table_harness import TableHarness

from lake.cli.process.signals import SignalHandlers
from lake.core.base.errors import (
    CommitUnknownError,
    NotAuthorisedError,
    StoppedError,
    TimedOutError,
)
from lake.core.base.outcome import Outcome, Status
from lake.core.io.storage import storage
from lake.core.io.storage.storage import Storage
from lake.core.maintain.expiration import journal
from lake.core.maintain.expiration.execute import execute
from lake.core.maintain.expiration.plan import plan_expiration
from lake.core.maintain.expiration.retention import RetentionOptions
from lake.core.transaction.commit.operations import AppendFiles, RewriteFiles
from lake.core.transaction.garbage.reachability import KINDS

DAY_MS = 24 * 3_600_000


class Killed(BaseException):
    """The process ends here."""


class World(TableHarness):
    """A table of which one old snapshot can go, with files of its own."""

    def __init__(self, warehouse: Path) -> None:
        super().__init__(warehouse)
        for number in range(3):
            self.append(number)
        table = self.load()
        rewrite = RewriteFiles(
            added=[write_file(table, range(3))],
            removed_paths=self.live_paths(),
            base_snapshot_id=table.metadata.current_snapshot_id or 0,
        )
        self.first = table.metadata.snapshots[0].snapshot_id
        self.commit_on(table, rewrite)
        self.clock.now += 10 * DAY_MS
        self.append(3)

    def append(self, number: int) -> None:
        table = self.load()
        self.commit_on(table, AppendFiles(added=[write_file(table, [number])]))

    def expire(self, *faults: Any, only: int | None = None) -> Outcome:
        """Expire all old snapshots, or only one."""
        session = open_session(self.warehouse, self.clock)
        options = RetentionOptions(older_than_ms=self.clock.now - 2 * DAY_MS)
        if only is not None:
            options = RetentionOptions(snapshot_ids=(only,))
        plan = plan_expiration(session, session.table("db.t"), options)
        inject(session, list(faults))
        return execute(session, plan)

    def tag(self) -> None:
        self.pyiceberg.manage_snapshots().create_tag(self.first, "audit").commit()

    def killed_at_the_commit(
        self, monkeypatch: pytest.MonkeyPatch, fault: Any, *, only: int | None = None
    ) -> None:
        """Let an expiry be killed when its commit has succeeded."""

        def killed(commit: Any) -> Any:
            fault()
            commit()
            raise Killed

        with monkeypatch.context() as patched, pytest.raises(Killed):
            # Nothing of a killed process runs on.
            patched.setattr(journal, "remove", lambda *_: None)
            self.expire(killed, only=only)

    def killed_while_deleting(self, monkeypatch: pytest.MonkeyPatch, spared: int = 1) -> None:
        """Let an expiry be killed when it has deleted ``spared`` files."""
        real, left = Storage._delete_one, [spared]

        def delete(storage: Storage, location: str, *rest: Any) -> str | None:
            if not left[0]:
                raise Killed
            left[0] -= 1
            return real(storage, location, *rest)

        with monkeypatch.context() as patched, pytest.raises(Killed):
            patched.setattr(Storage, "_delete_one", delete)
            self.expire()

    @property
    def journals(self) -> list[Path]:
        return list((self.warehouse / "db" / "t" / "metadata").glob("lake-*"))

    def held(self) -> set[str]:
        """Return the files that retained snapshots need, below the warehouse."""
        found = self.pyiceberg.inspect
        paths = [
            *found.all_files()["file_path"].to_pylist(),
            *found.all_manifests()["path"].to_pylist(),
        ]
        paths += [item.manifest_list for item in self.pyiceberg.metadata.snapshots]
        return {path.removeprefix(f"file://{self.warehouse}/") for path in paths}

    def leftovers(self) -> set[str]:
        return {
            name
            for name in files_below(self.warehouse) - self.held()
            if ".metadata.json" not in name
        }


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_nothing_is_left_of_a_run_that_ends(world: World) -> None:
    assert world.expire().status is Status.DONE

    assert not world.leftovers()


def test_the_next_run_deletes_what_a_killed_one_did_not(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.killed_while_deleting(monkeypatch)
    assert len(world.journals) == 1

    done = world.expire()

    assert done.status is Status.DONE
    assert done.result["data_files"] == 3
    assert not world.leftovers()
    assert ids_in(world.warehouse) == [0, 1, 2, 3]
    assert world.expire().status is Status.NOTHING_TO_DO


def test_a_tag_that_a_killed_run_lost_comes_back_before_a_file_goes(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.killed_at_the_commit(monkeypatch, world.tag)
    world.append(4)

    world.expire()

    assert ids_in(world.warehouse, snapshot_id=world.first) == [0]
    assert world.pyiceberg.metadata.refs["audit"].snapshot_id == world.first
    assert not world.leftovers()
    # Its files have the sequence number at which they were added, which the snapshot has no more.
    checked = CommandLine(world.warehouse).ok("check", "db.t", "--deep")
    assert checked["result"]["findings"] == []


def test_a_tag_that_is_older_than_its_limit_does_not_come_back(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def tag() -> None:
        changes = world.pyiceberg.manage_snapshots()
        changes.create_tag(world.first, "audit", max_ref_age_ms=1).commit()

    world.killed_at_the_commit(monkeypatch, tag)
    world.append(4)

    world.expire()

    assert "audit" not in world.pyiceberg.metadata.refs
    assert world.pyiceberg.metadata.snapshot_by_id(world.first) is None
    assert not world.leftovers()


@pytest.mark.parametrize("kills", [1, 2])
def test_a_lost_tag_comes_back_before_another_run_deletes_the_files_that_it_shares(
    world: World, monkeypatch: pytest.MonkeyPatch, kills: int
) -> None:
    world.killed_at_the_commit(monkeypatch, world.tag, only=world.first)
    if kills == 2:
        # The second journal lists what the lost tag needs; its name may come before or after the first one's.
        world.killed_at_the_commit(monkeypatch, lambda: None)
    assert len(world.journals) == kills

    world.expire()

    assert world.pyiceberg.metadata.refs["audit"].snapshot_id == world.first
    assert ids_in(world.warehouse, snapshot_id=world.first) == [0]
    assert not world.leftovers()


def test_a_tag_made_in_the_moment_of_the_commit_comes_back_though_others_committed_since(
    world: World,
) -> None:
    session = open_session(world.warehouse, world.clock)
    options = RetentionOptions(older_than_ms=world.clock.now - 2 * DAY_MS)
    plan = plan_expiration(session, session.table("db.t"), options)

    def race(commit: Any) -> Any:
        world.pyiceberg.manage_snapshots().create_tag(world.first, "audit").commit()
        answer = commit()
        world.append(4)
        return answer

    inject(session, [race])
    execute(session, plan)

    assert world.pyiceberg.metadata.refs["audit"].snapshot_id == world.first
    assert ids_in(world.warehouse, snapshot_id=world.first) == [0]


def test_a_tag_that_cannot_be_looked_for_keeps_its_files_until_it_can(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = open_session(world.warehouse, world.clock)
    options = RetentionOptions(older_than_ms=world.clock.now - 2 * DAY_MS)
    plan = plan_expiration(session, session.table("db.t"), options)
    tags = world.pyiceberg.manage_snapshots()
    inject(session, [after(lambda: tags.create_tag(world.first, "audit").commit())])
    read = Storage.read

    def failing(storage: Storage, location: str, **limits: Any) -> bytes:
        if location.endswith(".metadata.json"):
            raise TimedOutError("the store does not answer")
        return read(storage, location, **limits)

    with monkeypatch.context() as patched:
        patched.setattr(Storage, "read", failing)
        assert execute(session, plan).status is Status.PARTIAL
    world.expire()

    assert world.pyiceberg.metadata.refs["audit"].snapshot_id == world.first
    assert ids_in(world.warehouse, snapshot_id=world.first) == [0]
    assert not world.leftovers()


def test_an_unanswered_commit_keeps_the_journal_for_the_next_run(world: World) -> None:
    session = open_session(world.warehouse, world.clock)
    options = RetentionOptions(older_than_ms=world.clock.now - 2 * DAY_MS)
    plan = plan_expiration(session, session.table("db.t"), options)
    inject(session, [refused_with(ConnectionError("reset"))])

    with pytest.raises(CommitUnknownError) as error:
        execute(session, plan)
    assert error.value.operation_id is not None
    assert error.value.operation_id in world.journals[0].name
    world.expire()

    assert not world.leftovers()


def test_a_file_that_an_unanswered_run_named_too_counts_once(world: World) -> None:
    session = open_session(world.warehouse, world.clock)
    options = RetentionOptions(older_than_ms=world.clock.now - 2 * DAY_MS)
    plan = plan_expiration(session, session.table("db.t"), options)
    inject(session, [refused_with(OSError("gone"))])
    with pytest.raises(CommitUnknownError):
        execute(session, plan)
    before = files_below(world.warehouse)

    outcome = world.expire()

    gone = before - files_below(world.warehouse)
    assert gone
    assert sum(outcome.result[kind] for kind in KINDS) == sum("lake-" not in name for name in gone)
    assert outcome.result == {**outcome.plan, "failed_deletes": 0}
    assert world.leftovers() == set()


def test_what_is_stopped_while_its_commit_is_sent_is_finished_by_the_next_run(world: World) -> None:
    session = open_session(world.warehouse, world.clock)
    inject(session, [stopped])
    options = RetentionOptions(older_than_ms=world.clock.now - 2 * DAY_MS)
    with pytest.raises(StoppedError), SignalHandlers():
        execute(session, plan_expiration(session, session.table("db.t"), options))
    assert len(world.journals) == 1

    world.expire()

    assert not world.leftovers()
    assert ids_in(world.warehouse) == [0, 1, 2, 3]


def test_a_refused_commit_leaves_no_journal(world: World) -> None:
    session = open_session(world.warehouse, world.clock)
    options = RetentionOptions(older_than_ms=world.clock.now - 2 * DAY_MS)
    plan = plan_expiration(session, session.table("db.t"), options)
    inject(session, [after(world.expire)])
    execute(session, plan)

    assert not world.leftovers()


def planted(world: World, **changes: Any) -> Path:
    """Write a journal that lists live files, one of another folder, and an unused one."""
    folder = world.warehouse / "db" / "t"
    dead = folder / "data" / "dead.parquet"
    outside = world.warehouse / "outside.parquet"
    for path in (dead, outside):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")
    live = sorted({*folder.glob("data/*.parquet")} - {dead})
    operation = str(uuid.uuid4())
    dotted = f"file://{folder}/data/../../../outside.parquet"
    metadata = sorted(folder.glob("metadata/*.json"))
    named = [f"file://{path}" for path in (*live, dead, outside, *metadata)]
    document = {
        "format": 1,
        "operation-id": operation,
        "table-uuid": str(world.pyiceberg.metadata.table_uuid),
        "created-ms": world.clock.now,
        "snapshots": ["12345"],
        "refs": [],
        "files": {"data_files": [[path, 1] for path in [*named, dotted]]},
        **changes,
    }
    path = folder / "metadata" / f"lake-journal-{operation}.json"
    path.write_text(json.dumps(document))
    return path


def test_a_journal_is_for_its_user_alone_and_others_leave_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.killed_while_deleting(monkeypatch)
    (path,) = world.journals
    assert path.stat().st_mode & 0o777 == 0o600

    def refused(storage: Storage, location: str, *rest: Any, **more: Any) -> bytes:
        if location.endswith(path.name):
            raise NotAuthorisedError(f"not allowed to read {location}")
        return real(storage, location, *rest, **more)

    real = Storage.read
    with monkeypatch.context() as patched:
        patched.setattr(Storage, "read", refused)
        outcome = world.expire()

    assert (outcome.status, world.journals) == (Status.NOTHING_TO_DO, [path])
    world.expire()
    assert not world.journals


def test_a_journal_is_not_believed(world: World) -> None:
    world.expire()
    before = files_below(world.warehouse)
    planted(world)

    world.expire()

    # Only files below the table that no snapshot uses are gone.
    assert files_below(world.warehouse) == before | {"outside.parquet"}
    assert ids_in(world.warehouse) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "changes",
    [
        {"format": 2},
        {"table-uuid": "0f0e0d0c-0b0a-4000-8000-000000000000"},
        {"operation-id": "another"},
        {"files": []},
        {"files": {"data_files": [["a", "b"]]}},
        {"files": {"data_files": [["a"]]}},
        {"files": {"data_files": [["a", 2**70]]}},
        {"snapshots": [1]},
        {"snapshots": "1"},
        {"created-ms": None},
        {"refs": [None]},
    ],
    ids=str,
)
def test_a_journal_of_another_kind_is_removed_and_deletes_nothing(
    world: World, changes: dict[str, Any]
) -> None:
    world.expire()
    path = planted(world, **changes)
    before = files_below(world.warehouse)

    assert world.expire().status is Status.NOTHING_TO_DO

    assert files_below(world.warehouse) == before - {str(path.relative_to(world.warehouse))}


def test_a_journal_cut_anywhere_is_removed(world: World) -> None:
    world.expire()
    path = planted(world)
    before, whole = files_below(world.warehouse), path.read_bytes()
    for length in range(0, len(whole), 211):
        path.write_bytes(whole[:length])
        world.expire()
        assert files_below(world.warehouse) == before - {str(path.relative_to(world.warehouse))}


def test_a_journal_whose_run_may_still_commit_is_left_alone_for_a_day(world: World) -> None:
    world.expire()
    present = str(world.pyiceberg.metadata.current_snapshot_id)
    path = planted(world, snapshots=[present])
    world.expire()
    assert path.exists()
    world.clock.now += DAY_MS + 1
    world.expire()
    assert not path.exists()
    # A clock that was wrong when it was written does not keep it for ever.
    path = planted(world, snapshots=[present], **{"created-ms": world.clock.now + 2 * DAY_MS})
    world.expire()
    assert not path.exists()


def test_a_run_that_slept_asks_again_before_it_deletes(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was stopped in a delete; files of its list have come back to life meanwhile."""
    monkeypatch.setattr(storage, "_DELETE_THREADS", 1)
    table = world.pyiceberg
    old = [entry["file_path"] for entry in table.inspect.all_files().to_pylist()]
    dead = sorted(set(old) - {task.file.file_path for task in table.scan().plan_files()})
    real, back = Storage._delete_one, []

    def delete(self: Storage, location: str, *rest: Any) -> str | None:
        failure = real(self, location, *rest)
        if location in dead and not back:
            back.extend(path for path in dead if path != location)
            world.pyiceberg.add_files(back)
            world.clock.now += 5000
        return failure

    monkeypatch.setattr(Storage, "_delete_one", delete)
    world.expire()

    assert len(back) == 2
    assert all(Path(path.removeprefix("file://")).exists() for path in back)
    assert len(ids_in(world.warehouse)) == 6
