"""The journal of an expiry: there while its list is unfinished, finished by the next run, never believed."""

from __future__ import annotations

import json
import uuid
from dataclasses import replace
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
from support.tables.metadata_edits import edit_metadata
from support.tables.table_harness import TableHarness

from lake.cli.process.signals import SignalHandlers
from lake.core.base.errors import (
    CommitUnknownError,
    NotAuthorisedError,
    StoppedError,
    TimedOutError,
)
from lake.core.base.outcome import Outcome, Status
from lake.core.io.storage import deletion
from lake.core.io.storage.storage import Storage
from lake.core.maintain.expiration import journal, ref_recovery
from lake.core.maintain.expiration.execute import execute
from lake.core.maintain.expiration.facts import ExpirationFacts
from lake.core.maintain.expiration.plan import plan_expiration
from lake.core.maintain.expiration.retention import RetentionOptions
from lake.core.transaction.commit.operations import AppendFiles, RewriteFiles

DAY_MS = 24 * 3_600_000


class Killed(BaseException):
    """The process ends here."""


class ExpirableTable(TableHarness):
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
        options = RetentionOptions(older_than=self.clock.now - 2 * DAY_MS)
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


@pytest.fixture(autouse=True)
def _catalog_of_a_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check no more than a server does, which cannot require that there are no new refs."""
    monkeypatch.setattr(ref_recovery.AssertNoOtherRefs, "validate", lambda *_: None)


@pytest.fixture
def harness(tmp_path: Path) -> ExpirableTable:
    return ExpirableTable(tmp_path)


def test_nothing_is_left_of_a_run_that_ends(harness: ExpirableTable) -> None:
    assert harness.expire().status is Status.DONE

    assert not harness.leftovers()


def test_the_next_run_deletes_what_a_killed_one_did_not(
    harness: ExpirableTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.killed_while_deleting(monkeypatch)
    assert len(harness.journals) == 1

    done = harness.expire()

    assert done.status is Status.DONE
    assert ExpirationFacts.of(done.result).data_files == 3
    assert not harness.leftovers()
    assert ids_in(harness.warehouse) == [0, 1, 2, 3]
    assert harness.expire().status is Status.NOTHING_TO_DO


def test_a_tag_that_a_killed_run_lost_comes_back_before_a_file_goes(
    harness: ExpirableTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.killed_at_the_commit(monkeypatch, harness.tag)
    harness.append(4)

    harness.expire()

    assert ids_in(harness.warehouse, snapshot_id=harness.first) == [0]
    assert harness.pyiceberg.metadata.refs["audit"].snapshot_id == harness.first
    assert not harness.leftovers()
    # Its files have the sequence number at which they were added, which the snapshot has no more.
    checked = CommandLine(harness.warehouse).ok("check", "db.t", "--deep")
    assert checked["result"]["findings"] == []


def test_a_tag_that_is_older_than_its_limit_does_not_come_back(
    harness: ExpirableTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    def tag() -> None:
        changes = harness.pyiceberg.manage_snapshots()
        changes.create_tag(harness.first, "audit", max_ref_age_ms=1).commit()

    harness.killed_at_the_commit(monkeypatch, tag)
    harness.append(4)

    harness.expire()

    assert "audit" not in harness.pyiceberg.metadata.refs
    assert harness.pyiceberg.metadata.snapshot_by_id(harness.first) is None
    assert not harness.leftovers()


def test_a_branch_that_was_dropped_after_a_killed_run_does_not_come_back(
    harness: ExpirableTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    def branch() -> None:
        changes = harness.pyiceberg.manage_snapshots()
        changes.create_branch(harness.load().metadata.current_snapshot_id or 0, "audit").commit()

    # The killed run did not remove the branch: it is on a younger snapshot.
    harness.killed_at_the_commit(monkeypatch, branch)
    harness.pyiceberg.manage_snapshots().remove_branch("audit").commit()
    harness.append(4)
    harness.clock.now += 10 * DAY_MS
    harness.append(5)

    harness.expire()

    assert set(harness.pyiceberg.metadata.refs) == {"main"}
    assert ids_in(harness.warehouse) == [0, 1, 2, 3, 4, 5]
    assert not harness.leftovers()


def test_a_tag_that_is_older_than_the_limit_of_the_table_does_not_come_back(
    harness: ExpirableTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = {"history.expire.max-ref-age-ms": str(DAY_MS)}
    harness.pyiceberg.transaction().set_properties(limit).commit_transaction()

    harness.killed_at_the_commit(monkeypatch, harness.tag)
    harness.expire()

    assert "audit" not in harness.pyiceberg.metadata.refs
    assert not harness.leftovers()


@pytest.mark.parametrize("kills", [1, 2])
def test_a_lost_tag_comes_back_before_another_run_deletes_the_files_that_it_shares(
    harness: ExpirableTable, monkeypatch: pytest.MonkeyPatch, kills: int
) -> None:
    harness.killed_at_the_commit(monkeypatch, harness.tag, only=harness.first)
    if kills == 2:
        # The second journal lists what the lost tag needs; its name may come before or after the first one's.
        harness.killed_at_the_commit(monkeypatch, lambda: None)
    assert len(harness.journals) == kills

    harness.expire()

    assert harness.pyiceberg.metadata.refs["audit"].snapshot_id == harness.first
    assert ids_in(harness.warehouse, snapshot_id=harness.first) == [0]
    assert not harness.leftovers()


def test_a_tag_made_in_the_moment_of_the_commit_comes_back_though_others_committed_since(
    harness: ExpirableTable,
) -> None:
    session = open_session(harness.warehouse, harness.clock)
    options = RetentionOptions(older_than=harness.clock.now - 2 * DAY_MS)
    plan = plan_expiration(session, session.table("db.t"), options)

    def race(commit: Any) -> Any:
        harness.pyiceberg.manage_snapshots().create_tag(harness.first, "audit").commit()
        answer = commit()
        harness.append(4)
        return answer

    inject(session, [race])
    execute(session, plan)

    assert harness.pyiceberg.metadata.refs["audit"].snapshot_id == harness.first
    assert ids_in(harness.warehouse, snapshot_id=harness.first) == [0]


def test_a_tag_comes_back_though_the_log_of_metadata_files_is_shorter_than_what_others_committed(
    harness: ExpirableTable,
) -> None:
    short = {"write.metadata.previous-versions-max": "1"}
    harness.pyiceberg.transaction().set_properties(short).commit_transaction()

    def race(commit: Any) -> Any:
        harness.tag()
        answer = commit()
        for number in (4, 5, 6):
            harness.append(number)
        return answer

    harness.expire(race)

    assert harness.pyiceberg.metadata.refs["audit"].snapshot_id == harness.first
    assert ids_in(harness.warehouse, snapshot_id=harness.first) == [0]


def _point_at_nothing(harness: ExpirableTable) -> None:
    """Let the table have a tag of a snapshot that it does not have, as a server may leave it."""
    tag = {"snapshot-id": harness.first, "type": "tag"}
    edit_metadata(harness.warehouse, lambda plain: plain["refs"].update(audit=tag))


def test_a_tag_comes_back_whose_snapshot_alone_was_removed(harness: ExpirableTable) -> None:
    def race(commit: Any) -> Any:
        harness.tag()
        answer = commit()
        _point_at_nothing(harness)
        return answer

    harness.expire(race)

    assert harness.pyiceberg.metadata.refs["audit"].snapshot_id == harness.first
    assert ids_in(harness.warehouse, snapshot_id=harness.first) == [0]
    assert not harness.leftovers()


def test_no_file_goes_while_a_tag_points_to_a_snapshot_that_cannot_be_restored(
    harness: ExpirableTable,
) -> None:
    before = files_below(harness.warehouse)

    def race(commit: Any) -> Any:
        answer = commit()
        _point_at_nothing(harness)
        return answer

    outcome = harness.expire(race)

    assert outcome.status is Status.PARTIAL
    assert before <= files_below(harness.warehouse)


def test_a_tag_that_cannot_be_looked_for_keeps_its_files_until_it_can(
    harness: ExpirableTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = open_session(harness.warehouse, harness.clock)
    options = RetentionOptions(older_than=harness.clock.now - 2 * DAY_MS)
    plan = plan_expiration(session, session.table("db.t"), options)
    tags = harness.pyiceberg.manage_snapshots()
    inject(session, [after(lambda: tags.create_tag(harness.first, "audit").commit())])
    read = Storage.read

    def failing(storage: Storage, location: str, **limits: Any) -> bytes:
        if location.endswith(".metadata.json"):
            raise TimedOutError("the store does not answer")
        return read(storage, location, **limits)

    with monkeypatch.context() as patched:
        patched.setattr(Storage, "read", failing)
        assert execute(session, plan).status is Status.PARTIAL
    harness.expire()

    assert harness.pyiceberg.metadata.refs["audit"].snapshot_id == harness.first
    assert ids_in(harness.warehouse, snapshot_id=harness.first) == [0]
    assert not harness.leftovers()


def test_an_unanswered_commit_keeps_the_journal_for_the_next_run(harness: ExpirableTable) -> None:
    session = open_session(harness.warehouse, harness.clock)
    options = RetentionOptions(older_than=harness.clock.now - 2 * DAY_MS)
    plan = plan_expiration(session, session.table("db.t"), options)
    inject(session, [refused_with(ConnectionError("reset"))])

    with pytest.raises(CommitUnknownError) as error:
        execute(session, plan)
    assert error.value.operation_id is not None
    assert error.value.operation_id in harness.journals[0].name
    harness.expire()

    assert not harness.leftovers()


def test_a_file_that_an_unanswered_run_named_too_counts_once(harness: ExpirableTable) -> None:
    session = open_session(harness.warehouse, harness.clock)
    options = RetentionOptions(older_than=harness.clock.now - 2 * DAY_MS)
    plan = plan_expiration(session, session.table("db.t"), options)
    inject(session, [refused_with(OSError("gone"))])
    with pytest.raises(CommitUnknownError):
        execute(session, plan)
    before = files_below(harness.warehouse)

    outcome = harness.expire()

    gone = before - files_below(harness.warehouse)
    assert gone
    planned = ExpirationFacts.of(outcome.plan)
    assert planned.files == sum("lake-" not in name for name in gone)
    assert outcome.result == replace(planned, failed_deletes=0)
    assert harness.leftovers() == set()


def test_what_is_stopped_while_its_commit_is_sent_is_finished_by_the_next_run(
    harness: ExpirableTable,
) -> None:
    session = open_session(harness.warehouse, harness.clock)
    inject(session, [stopped])
    options = RetentionOptions(older_than=harness.clock.now - 2 * DAY_MS)
    with pytest.raises(StoppedError), SignalHandlers() as handlers:
        handlers.accept()
        execute(session, plan_expiration(session, session.table("db.t"), options))
    assert len(harness.journals) == 1

    harness.expire()

    assert not harness.leftovers()
    assert ids_in(harness.warehouse) == [0, 1, 2, 3]


def test_a_refused_commit_leaves_no_journal(harness: ExpirableTable) -> None:
    session = open_session(harness.warehouse, harness.clock)
    options = RetentionOptions(older_than=harness.clock.now - 2 * DAY_MS)
    plan = plan_expiration(session, session.table("db.t"), options)
    inject(session, [after(harness.expire)])
    execute(session, plan)

    assert not harness.leftovers()


def planted(harness: ExpirableTable, **changes: Any) -> Path:
    """Write a journal that lists live files, one of another folder, and an unused one."""
    folder = harness.warehouse / "db" / "t"
    dead = folder / "data" / "dead.parquet"
    outside = harness.warehouse / "outside.parquet"
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
        "table-uuid": str(harness.pyiceberg.metadata.table_uuid),
        "created-ms": harness.clock.now,
        "snapshots": ["12345"],
        "refs": [],
        "files": {"data_files": [[path, 1] for path in [*named, dotted]]},
        **changes,
    }
    path = folder / "metadata" / f"lake-journal-{operation}.json"
    path.write_text(json.dumps(document))
    return path


def test_a_journal_is_for_its_user_alone_and_others_leave_it(
    harness: ExpirableTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.killed_while_deleting(monkeypatch)
    (path,) = harness.journals
    assert path.stat().st_mode & 0o777 == 0o600

    def refused(storage: Storage, location: str, *rest: Any, **more: Any) -> bytes:
        if location.endswith(path.name):
            raise NotAuthorisedError(f"not allowed to read {location}")
        return real(storage, location, *rest, **more)

    real = Storage.read
    with monkeypatch.context() as patched:
        patched.setattr(Storage, "read", refused)
        outcome = harness.expire()

    assert (outcome.status, harness.journals) == (Status.NOTHING_TO_DO, [path])
    harness.expire()
    assert not harness.journals


def test_a_journal_is_not_believed(harness: ExpirableTable) -> None:
    harness.expire()
    before = files_below(harness.warehouse)
    planted(harness)

    harness.expire()

    # Only files below the table that no snapshot uses are gone.
    assert files_below(harness.warehouse) == before | {"outside.parquet"}
    assert ids_in(harness.warehouse) == [0, 1, 2, 3]


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
    harness: ExpirableTable, changes: dict[str, Any]
) -> None:
    harness.expire()
    path = planted(harness, **changes)
    before = files_below(harness.warehouse)

    assert harness.expire().status is Status.NOTHING_TO_DO

    assert files_below(harness.warehouse) == before - {str(path.relative_to(harness.warehouse))}


def test_a_journal_cut_anywhere_is_removed(harness: ExpirableTable) -> None:
    harness.expire()
    path = planted(harness)
    before, whole = files_below(harness.warehouse), path.read_bytes()
    for length in range(0, len(whole), 211):
        path.write_bytes(whole[:length])
        harness.expire()
        assert files_below(harness.warehouse) == before - {str(path.relative_to(harness.warehouse))}


def test_a_journal_whose_run_may_still_commit_is_left_alone_for_a_day(
    harness: ExpirableTable,
) -> None:
    harness.expire()
    present = str(harness.pyiceberg.metadata.current_snapshot_id)
    path = planted(harness, snapshots=[present])
    harness.expire()
    assert path.exists()
    harness.clock.now += DAY_MS + 1
    harness.expire()
    assert not path.exists()
    # A clock that was wrong when it was written does not keep it for ever.
    path = planted(harness, snapshots=[present], **{"created-ms": harness.clock.now + 2 * DAY_MS})
    harness.expire()
    assert not path.exists()


def test_a_run_that_slept_asks_again_before_it_deletes(
    harness: ExpirableTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was stopped in a delete; files of its list have come back to life meanwhile."""
    monkeypatch.setattr(deletion, "_DELETE_THREADS", 1)
    table = harness.pyiceberg
    old = [entry["file_path"] for entry in table.inspect.all_files().to_pylist()]
    dead = sorted(set(old) - {task.file.file_path for task in table.scan().plan_files()})
    real, back = Storage._delete_one, []

    def delete(self: Storage, location: str, *rest: Any) -> str | None:
        failure = real(self, location, *rest)
        if location in dead and not back:
            back.extend(path for path in dead if path != location)
            harness.pyiceberg.add_files(back)
            harness.clock.now += 5000
        return failure

    monkeypatch.setattr(Storage, "_delete_one", delete)
    harness.expire()

    assert len(back) == 2
    assert all(Path(path.removeprefix("file://")).exists() for path in back)
    assert len(ids_in(harness.warehouse)) == 6
