"""Commits land once, or certainly not, or are reported as unknown with every file kept."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import requests
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import (
    BadRequestError,
    CommitFailedException,
    CommitStateUnknownException,
    ForbiddenError,
    ServerError,
    ServiceUnavailableError,
    ValidationError,
)
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from support.oracles.history_model import History
from support.tables.delete_files import position_file, vectors
from support.tables.iceberg_tables import (
    SCHEMA,
    FixedClock,
    after,
    applied_then,
    files_below,
    ids_in,
    inject,
    make_table,
    open_session,
    pyiceberg_catalog,
    pyiceberg_table,
    refused_with,
    stopped,
    write_file,
)
from support.tables.table_harness import TableHarness

from lake.cli.process.signals import SignalHandlers
from lake.core.base.errors import (
    BadInputError,
    CommitConflictError,
    CommitUnknownError,
    ConflictingFilesError,
    NotAuthorisedError,
    NotFoundError,
    RefusedError,
    StoppedError,
)
from lake.core.maintain.expiration.execute import execute as expire
from lake.core.maintain.expiration.plan import plan_expiration
from lake.core.maintain.expiration.retention import RetentionOptions
from lake.core.table.catalogs.sql import SqlBackend
from lake.core.table.snapshots.run_ids import RUN_ID
from lake.core.transaction.commit.commit import CommitRequest, Committed, commit_snapshot
from lake.core.transaction.commit.guards import RunGuard
from lake.core.transaction.commit.operations import (
    AppendFiles,
    Operation,
    OverwriteFiles,
    ReplacePartitions,
    RewriteFiles,
    RowDelta,
)

UNKNOWN = [
    CommitStateUnknownException("500"),
    ServerError("503 said another way"),
    ServiceUnavailableError("503"),
    TimeoutError("no answer"),
    ConnectionResetError("reset by peer"),
    requests.JSONDecodeError("not JSON", "<html>", 0),
]


class CommitTable(TableHarness):
    """A table, a session on it, and short ways to commit."""

    def __init__(self, warehouse: Path, **properties: str) -> None:
        super().__init__(warehouse, **properties)
        self.table = self.load()

    def commit(self, operation: Operation, **options: object) -> Committed:
        done = self.commit_on(self.table, operation, **options)
        self.table = done.table
        return done

    def append(self, *ids: int, **options: object) -> Committed:
        return self.commit(AppendFiles(added=[write_file(self.table, ids)]), **options)


@pytest.fixture
def harness(tmp_path: Path) -> CommitTable:
    return CommitTable(tmp_path)


def _unheard(commit: Callable[[], Any]) -> Any:
    stopped(commit)
    raise ConnectionResetError("reset by peer")


def _on_its_way(_: Callable[[], Any]) -> Any:
    stopped(lambda: None)
    raise TimeoutError("no answer")


@pytest.mark.parametrize(
    ("fault", "ids"), [(stopped, [1]), (_unheard, [1]), (_on_its_way, [])], ids=range(3)
)
def test_a_stop_while_a_commit_is_sent_spares_what_it_may_have_made_live(
    harness: CommitTable, fault: Callable[[Callable[[], Any]], Any], ids: list[int]
) -> None:
    before = files_below(harness.warehouse)
    inject(harness.session, [fault])
    with SignalHandlers() as handlers, suppress(CommitUnknownError):
        handlers.accept()
        harness.append(1)
    with pytest.raises(StoppedError):
        harness.session.interrupts.checkpoint()

    assert harness.ids == ids
    # A manifest and the list of manifests.
    assert sum(name.endswith(".avro") for name in files_below(harness.warehouse) - before) == 2


def test_whatever_breaks_a_commit_off_spares_what_it_may_have_made_live(
    harness: CommitTable,
) -> None:
    def broken_off(commit: Callable[[], Any]) -> Any:
        commit()
        raise KeyboardInterrupt

    inject(harness.session, [broken_off])
    with pytest.raises(KeyboardInterrupt):
        harness.append(1)

    assert harness.ids == [1]


def test_an_append_is_read_back_by_pyiceberg_with_the_summary_that_java_writes(
    harness: CommitTable,
) -> None:
    harness.append(1, 2)
    done = harness.append(3)

    summary = done.table.metadata.current_snapshot().summary
    assert harness.ids == [1, 2, 3]
    assert summary.operation.value == "append"
    expected = {
        "added-data-files": "1",
        "added-records": "1",
        "changed-partition-count": "1",
        "total-records": "3",
        "total-data-files": "2",
        "total-delete-files": "0",
        "total-position-deletes": "0",
        "total-equality-deletes": "0",
        "manifests-created": "1",
        "manifests-kept": "1",
        "manifests-replaced": "0",
    }
    assert {key: summary.additional_properties.get(key) for key in expected} == expected


def test_of_two_that_make_a_table_one_is_refused(tmp_path: Path) -> None:
    sessions = [open_session(tmp_path, FixedClock()) for _ in range(2)]
    staged = [
        session.catalog.stage("db.t", SCHEMA, UNPARTITIONED_PARTITION_SPEC, UNSORTED_SORT_ORDER, {})
        for session in sessions
    ]
    sessions[0].catalog.make_namespace("db.t")
    operations = [AppendFiles(added=[write_file(staged[n], [n])]) for n in range(2)]

    commit_snapshot(
        sessions[0], staged[0], operations[0], CommitRequest(operation_id=str(uuid.uuid4()))
    )
    with pytest.raises(CommitConflictError):
        commit_snapshot(
            sessions[1], staged[1], operations[1], CommitRequest(operation_id=str(uuid.uuid4()))
        )

    assert ids_in(tmp_path) == [0]


@pytest.mark.parametrize("served", [False, True])
@pytest.mark.parametrize("late", [False, True], ids=["planned", "sent once"])
def test_nothing_is_committed_to_another_table_of_the_same_name(
    harness: CommitTable, monkeypatch: pytest.MonkeyPatch, late: bool, served: bool
) -> None:
    """A server may have made the change before; PyIceberg's check of the UUID proves that nothing was sent."""
    monkeypatch.setattr(SqlBackend, "is_served", served)
    operation = AppendFiles(added=[write_file(harness.table, [1])])

    def replaced() -> None:
        pyiceberg_catalog(harness.warehouse).drop_table("db.t")
        make_table(harness.warehouse)

    def refused(_: Callable[[], Any]) -> None:
        written.write_text("{}")
        harness.session.catalog.written_metadata.append(str(written))
        replaced()
        raise CommitFailedException("another writer was faster")

    written = harness.warehouse / "db" / "t" / "metadata" / "00009-a.metadata.json"
    before = files_below(harness.warehouse)
    if late:
        inject(harness.session, [refused])
    else:
        replaced()

    unknown = late and served
    with pytest.raises(CommitUnknownError if unknown else NotFoundError):
        harness.commit(operation)

    assert harness.ids == []
    left = [name for name in files_below(harness.warehouse) - before if name.endswith(".avro")]
    assert bool(left) == unknown == written.exists()


@pytest.mark.parametrize("change", ["drop_table", "rename_table"])
def test_a_commit_to_a_table_that_is_gone_is_refused(harness: CommitTable, change: str) -> None:
    catalog = pyiceberg_catalog(harness.warehouse)
    new_name = ["db.u"] if change == "rename_table" else []
    written = [write_file(harness.table, [1])]
    before = files_below(harness.warehouse)
    inject(harness.session, [after(lambda: getattr(catalog, change)("db.t", *new_name))])

    with pytest.raises(NotFoundError, match="does not exist"):
        harness.commit(AppendFiles(added=written))

    assert files_below(harness.warehouse) == before


def test_a_commit_is_confirmed_though_the_table_is_dropped_at_once(harness: CommitTable) -> None:
    def dropped(commit: Callable[[], Any]) -> Any:
        answer = commit()
        pyiceberg_catalog(harness.warehouse).drop_table("db.t")
        return answer

    inject(harness.session, [dropped])
    done = harness.append(1)

    place = max(harness.warehouse.rglob("*.metadata.json"))
    assert list(done.snapshot_ids) == [done.table.metadata.current_snapshot_id]
    pyiceberg_catalog(harness.warehouse).register_table("db.t", str(place))
    assert harness.ids == [1]


@pytest.mark.parametrize("version", ["1", "2"])
def test_every_operation_leaves_a_table_that_pyiceberg_reads(tmp_path: Path, version: str) -> None:
    harness = CommitTable(tmp_path, format_version=version)
    first = write_file(harness.table, [1, 2])
    harness.commit(AppendFiles(added=[first]))
    second = write_file(harness.table, [3])
    base = harness.commit(AppendFiles(added=[second])).snapshot_id
    harness.commit(
        RewriteFiles(
            added=[write_file(harness.table, [1, 2, 3])],
            removed_paths=[first.path, second.path],
            base_snapshot_id=base,
            data_sequence_number=2 if version == "2" else None,
        )
    )
    assert harness.ids == [1, 2, 3]
    snapshot = harness.table.metadata.current_snapshot()
    assert snapshot.summary.operation.value == "replace"
    assert snapshot.summary.additional_properties["deleted-data-files"] == "2"

    harness.commit(
        ReplacePartitions(
            added=[write_file(harness.table, [9])], base_snapshot_id=snapshot.snapshot_id
        )
    )
    assert harness.ids == [9]
    assert harness.table.metadata.current_snapshot().summary.operation.value == "overwrite"

    assert ids_in(tmp_path, snapshot_id=base) == [1, 2, 3]


@pytest.mark.parametrize("attempt", range(5))
def test_a_commit_that_landed_and_was_reported_as_a_conflict_counts_once(
    harness: CommitTable, attempt: int
) -> None:
    refusal = CommitFailedException("409")
    inject(harness.session, [*[refused_with(refusal)] * attempt, applied_then(refusal)])

    harness.append(1)

    assert harness.ids == [1]
    assert len(harness.table.metadata.snapshots) == 1


def _expired(harness: CommitTable, then: Exception, *, applied: bool) -> Callable[..., Any]:
    """Other writers append twice and expire all snapshots but the last, then the catalog answers with an error."""

    def fault(commit: Callable[[], Any]) -> Any:
        if applied:
            commit()
        harness.append_elsewhere(8)
        harness.append_elsewhere(9)
        table = pyiceberg_table(harness.warehouse)
        expiry = table.maintenance.expire_snapshots()
        for item in table.metadata.snapshots[:-1]:
            expiry = expiry.by_id(item.snapshot_id)
        expiry.commit()
        raise then

    return fault


_REFUSALS = [CommitFailedException("409"), BadRequestError("400"), ForbiddenError("403")]


@pytest.mark.parametrize("version", ["1", "2", "3"])
@pytest.mark.parametrize("refusal", _REFUSALS, ids=repr)
def test_a_commit_that_landed_was_refused_and_has_expired_counts_once(
    tmp_path: Path, refusal: Exception, version: str
) -> None:
    harness = CommitTable(tmp_path, **{"format-version": version})
    harness.append(1)
    inject(harness.session, [_expired(harness, refusal, applied=True)])

    done = harness.append(2)

    assert len(done.snapshot_ids) == 1
    # Its data file and its manifest are live.
    assert harness.ids == [1, 2, 8, 9]


@pytest.mark.parametrize("version", ["1", "2", "3"])
def test_a_refused_commit_is_tried_again_though_other_snapshots_have_expired(
    tmp_path: Path, version: str
) -> None:
    harness = CommitTable(tmp_path, **{"format-version": version})
    harness.append(1)
    inject(harness.session, [_expired(harness, CommitFailedException("409"), applied=False)])

    done = harness.append(2)

    assert harness.ids == [1, 2, 8, 9]
    assert harness.table.metadata.current_snapshot_id == done.snapshot_id


@pytest.mark.parametrize("applied", [True, False])
def test_a_refusal_is_unknown_if_no_metadata_shows_the_snapshots_that_have_expired(
    tmp_path: Path, *, applied: bool
) -> None:
    kept = {
        "write.metadata.previous-versions-max": "1",
        "write.metadata.delete-after-commit.enabled": "true",
    }
    harness = CommitTable(tmp_path, **kept)
    harness.append(1)
    inject(harness.session, [_expired(harness, CommitFailedException("409"), applied=applied)])

    with pytest.raises(CommitUnknownError, match="did not confirm the commit"):
        harness.append(2)

    assert harness.ids == ([1, 2, 8, 9] if applied else [1, 8, 9])
    owned = [Path(name.removeprefix("file://")) for name in harness.session.protected_files]
    # The data file, the manifest and the list of manifests of each append.
    assert len(owned) == 6
    assert all(path.exists() for path in owned)


def test_a_run_that_is_in_the_table_is_not_committed_again(harness: CommitTable) -> None:
    marks = {RUN_ID: "2026-01-31"}
    landed = harness.append(1, summary=marks, guard=RunGuard(marks["lake.run-id"]))
    before = files_below(harness.warehouse)

    again = harness.append(1, summary=marks, guard=RunGuard(marks["lake.run-id"]))

    assert again.already
    assert again.snapshot_ids == landed.snapshot_ids
    assert harness.ids == [1]
    assert [name for name in files_below(harness.warehouse) - before if "metadata" in name] == []


def test_a_metadata_file_that_the_log_names_stays_though_its_commit_was_undone(
    harness: CommitTable,
) -> None:
    kept = harness.append(1).snapshot_id
    written: list[str] = []

    def undone(commit: Callable[[], Any]) -> None:
        commit()
        table = pyiceberg_table(harness.warehouse)
        written.append(table.metadata_location)
        table.manage_snapshots().rollback_to_snapshot(kept).commit()
        # Its reference is removed too: only the metadata log names it.
        table.maintenance.expire_snapshots().by_id(
            table.metadata.snapshots[-1].snapshot_id
        ).commit()
        raise CommitFailedException("409")

    inject(harness.session, [undone])
    harness.append(2)

    log = {entry.metadata_file for entry in harness.table.metadata.metadata_log}
    assert set(written) <= log
    assert all(Path(name.removeprefix("file://")).exists() for name in log)


def test_a_commit_refused_every_time_leaves_no_file_of_its_own_and_says_conflict(
    harness: CommitTable,
) -> None:
    before = files_below(harness.warehouse)
    inject(harness.session, [refused_with(CommitFailedException("409"))] * 5)
    file = write_file(harness.table, [1])

    with pytest.raises(CommitConflictError):
        harness.commit(AppendFiles(added=[file]))

    left = files_below(harness.warehouse) - before
    assert [name for name in left if not name.endswith(".parquet")] == []
    assert [round(wait, 1) for wait in harness.clock.waits] == pytest.approx(
        [0.1, 0.2, 0.4, 0.8], rel=0.2
    )
    assert harness.session.protected_files == set()


@pytest.mark.parametrize("error", UNKNOWN, ids=repr)
def test_an_error_after_the_commit_landed_is_a_success(
    harness: CommitTable, error: Exception
) -> None:
    inject(harness.session, [applied_then(error)])

    harness.append(1, 2)

    assert harness.ids == [1, 2]


@pytest.mark.parametrize("error", UNKNOWN, ids=repr)
def test_an_unanswered_commit_that_did_not_land_is_unknown_and_keeps_every_file(
    harness: CommitTable, error: Exception
) -> None:
    inject(harness.session, [refused_with(error)])
    file = write_file(harness.table, [1])

    with pytest.raises(CommitUnknownError) as caught:
        harness.commit(AppendFiles(added=[file]))

    names = files_below(harness.warehouse)
    assert any("snap-" in name for name in names)
    assert any(name.endswith(f"{caught.value.operation_id}-m0.avro") for name in names)
    # The data file, its manifest and the list.
    assert len(harness.session.protected_files) == 3


@pytest.mark.parametrize("answer", [CommitFailedException("c"), ConnectionError("lost")])
def test_whatever_a_look_after_the_commit_raises_no_file_is_removed(
    harness: CommitTable, answer: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: str) -> None:
        raise RuntimeError("a driver's own error")

    def lost(commit: Callable[[], Any]) -> Any:
        commit()
        monkeypatch.setattr(harness.session.catalog, "load", broken)
        raise answer

    inject(harness.session, [lost])
    before = files_below(harness.warehouse)
    with pytest.raises(CommitUnknownError):
        harness.append(1)

    assert harness.ids == [1]
    # Metadata, the list of manifests, a manifest and the rows.
    assert len(files_below(harness.warehouse) - before) == 4


@pytest.mark.parametrize("served", [True, False])
def test_a_refusal_on_the_way_is_believed_without_a_look_where_nothing_was_sent(
    harness: CommitTable, monkeypatch: pytest.MonkeyPatch, served: bool
) -> None:
    def broken(_: str) -> None:
        raise NotAuthorisedError("not allowed to look")

    def lost(_: Callable[[], Any]) -> Any:
        monkeypatch.setattr(harness.session.catalog, "load", broken)
        raise RefusedError("it sends its clients on to another host")

    monkeypatch.setattr(SqlBackend, "is_served", served)
    monkeypatch.setattr(SqlBackend, "writes_metadata", not served)
    before = files_below(harness.warehouse)
    inject(harness.session, [lost])
    with pytest.raises(CommitUnknownError if served else RefusedError):
        harness.append(1)

    # The rows; a manifest and the list of manifests stay where they may be live.
    assert len(files_below(harness.warehouse) - before) == (3 if served else 1)


def test_a_conflict_then_an_unanswered_attempt_is_unknown(harness: CommitTable) -> None:
    inject(
        harness.session,
        [refused_with(CommitFailedException("409")), refused_with(TimeoutError("504"))],
    )
    with pytest.raises(CommitUnknownError):
        harness.append(1)


def test_refused_credentials_are_reported_as_such_and_change_nothing(harness: CommitTable) -> None:
    inject(harness.session, [refused_with(ForbiddenError("403"))])
    with pytest.raises(NotAuthorisedError):
        harness.append(1)
    assert harness.session.protected_files == set()


NOT_ACCEPTED = [
    BadRequestError("400"),
    ValidationError("an unknown transform"),
    # What the library says of metadata that it cannot make.
    ValueError("Unrecognized filesystem type"),
]


@pytest.mark.parametrize("is_served", [False, True])
@pytest.mark.parametrize("answer", NOT_ACCEPTED)
def test_what_a_catalog_does_not_accept_is_tried_again_if_the_table_was_changed_meanwhile(
    harness: CommitTable, monkeypatch: pytest.MonkeyPatch, answer: Exception, is_served: bool
) -> None:
    harness.append(1)

    def refused(_: Any) -> Any:
        harness.append_elsewhere(2)
        raise answer

    monkeypatch.setattr(SqlBackend, "is_served", is_served)
    inject(harness.session, [refused])
    harness.append(3)

    assert harness.ids == [1, 2, 3]


@pytest.mark.parametrize("answer", NOT_ACCEPTED)
def test_what_a_catalog_does_not_accept_changed_nothing(
    harness: CommitTable, answer: Exception
) -> None:
    before = files_below(harness.warehouse)
    inject(harness.session, [refused_with(answer)])
    with pytest.raises(BadInputError, match="does not accept the commit"):
        harness.append(1)

    assert harness.ids == []
    # The data file is its caller's.
    assert len(files_below(harness.warehouse) - before) == 1


@pytest.mark.parametrize("answer", NOT_ACCEPTED[1:])
def test_what_is_not_understood_of_a_server_may_have_landed(
    harness: CommitTable, answer: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SqlBackend, "is_served", True)
    monkeypatch.setattr(SqlBackend, "writes_metadata", False)
    before = files_below(harness.warehouse)
    inject(harness.session, [refused_with(answer)])
    with pytest.raises(CommitUnknownError):
        harness.append(1)

    # A list of manifests, a manifest and the rows.
    assert len(files_below(harness.warehouse) - before) == 3


@pytest.mark.parametrize("answer", NOT_ACCEPTED)
def test_what_a_catalog_does_not_accept_after_it_landed_is_there(
    harness: CommitTable, answer: Exception
) -> None:
    inject(harness.session, [applied_then(answer)])
    harness.append(1)

    assert harness.ids == [1]


@pytest.mark.parametrize("times", range(1, 5))
def test_appends_of_other_writers_in_between_are_kept(harness: CommitTable, times: int) -> None:
    inject(harness.session, [after(lambda: harness.append_elsewhere(100))] * times)

    harness.append(1)

    assert harness.ids == [1, *[100] * times]


@pytest.mark.parametrize("version", [2, 3])
def test_a_commit_to_another_branch_in_between_takes_no_sequence_number_twice(
    tmp_path: Path, version: int
) -> None:
    history = History(tmp_path, version)
    history.append([(1, "n1"), (2, "n2")])
    session = open_session(tmp_path)
    base = session.table("db.t")
    assert history.head is not None
    base.handle.manage_snapshots().create_branch(history.head, "audit").commit()

    def commit_to_audit() -> None:
        # No rows are added: in version 3 the next row id does not show it.
        table = session.table("db.t")
        path = next(iter(history.live))
        deletes = (
            vectors(table, {path: [0]}) if version == 3 else [position_file(table, [(path, 0)])]
        )
        delta = RowDelta(added=[], deletes=deletes, base_snapshot_id=history.head)
        commit_snapshot(
            session, table, delta, CommitRequest(operation_id=str(uuid.uuid4()), branch="audit")
        )

    inject(history.session, [after(commit_to_audit)])
    history.append([(3, "n3")])

    numbers = [item.sequence_number for item in history.table.metadata.snapshots]
    assert sorted(numbers) == [1, 2, 3]
    assert ids_in(tmp_path) == [1, 2, 3]


def test_a_head_that_expired_meanwhile_is_not_an_error(
    harness: CommitTable, tmp_path: Path
) -> None:
    harness.append(1)
    harness.clock.now += 10 * 24 * 3_600_000
    other = open_session(harness.warehouse, harness.clock)
    other_append = AppendFiles(added=[write_file(other.table("db.t"), [2])])
    commit_snapshot(
        other, other.table("db.t"), other_append, CommitRequest(operation_id=str(uuid.uuid4()))
    )
    options = RetentionOptions(older_than=harness.clock.now - 2 * 24 * 3_600_000)
    expire(other, plan_expiration(other, other.table("db.t"), options))

    harness.append(3)

    assert harness.ids == [1, 2, 3]


def test_a_run_that_another_process_finished_meanwhile_is_not_committed_again(
    harness: CommitTable,
) -> None:
    guard = {"lake.run-id": "nightly"}

    def finish() -> None:
        other = open_session(harness.warehouse, harness.clock)
        table = other.table("db.t")
        commit_snapshot(
            other,
            table,
            AppendFiles(added=[write_file(table, [1])]),
            CommitRequest(operation_id=str(uuid.uuid4()), guard=RunGuard("nightly")),
            summary=guard,
        )

    inject(harness.session, [after(finish)])
    done = harness.append(1, summary=guard, guard=RunGuard("nightly"))

    assert done.already
    assert harness.ids == [1]


def test_a_rewrite_is_not_disturbed_by_appends_and_keeps_their_rows(harness: CommitTable) -> None:
    first = write_file(harness.table, [1])
    base = harness.commit(AppendFiles(added=[first])).snapshot_id
    inject(harness.session, [after(lambda: harness.append_elsewhere(2))])

    harness.commit(
        RewriteFiles(
            added=[write_file(harness.table, [1])],
            removed_paths=[first.path],
            base_snapshot_id=base,
            data_sequence_number=1,
        )
    )

    assert harness.ids == [1, 2]


def test_a_rewrite_of_files_that_left_meanwhile_names_them_and_changes_nothing(
    harness: CommitTable,
) -> None:
    first = write_file(harness.table, [1])
    base = harness.commit(AppendFiles(added=[first])).snapshot_id

    def drop() -> None:
        pyiceberg_table(harness.warehouse).delete("id == 1")

    inject(harness.session, [after(drop)])
    with pytest.raises(ConflictingFilesError) as caught:
        harness.commit(
            RewriteFiles(
                added=[write_file(harness.table, [1])],
                removed_paths=[first.path],
                base_snapshot_id=base,
                data_sequence_number=1,
            )
        )
    assert caught.value.paths == {first.path}
    assert harness.ids == []


def test_a_rewrite_after_a_rollback_behind_its_base_is_a_conflict(harness: CommitTable) -> None:
    first = write_file(harness.table, [1])
    start = harness.commit(AppendFiles(added=[first])).snapshot_id
    base = harness.append(2).snapshot_id

    def rollback() -> None:
        table = pyiceberg_table(harness.warehouse)
        table.manage_snapshots().rollback_to_snapshot(start).commit()

    inject(harness.session, [after(rollback)])
    with pytest.raises(CommitConflictError):
        harness.commit(
            RewriteFiles(
                added=[write_file(harness.table, [1])],
                removed_paths=[first.path],
                base_snapshot_id=base,
                data_sequence_number=1,
            )
        )
    assert harness.ids == [1]


@pytest.mark.parametrize("isolation", ["serializable", "snapshot"])
def test_an_overwrite_beside_an_append_obeys_the_isolation_level(
    harness: CommitTable, isolation: str
) -> None:
    first = write_file(harness.table, [1])
    base = harness.commit(AppendFiles(added=[first])).snapshot_id
    inject(harness.session, [after(lambda: harness.append_elsewhere(2))])
    operation = OverwriteFiles(
        added=[write_file(harness.table, [9])],
        removed_paths=[first.path],
        base_snapshot_id=base,
        isolation=isolation,
    )
    if isolation == "snapshot":
        harness.commit(operation)
        assert harness.ids == [2, 9]
    else:
        with pytest.raises(CommitConflictError):
            harness.commit(operation)
        assert harness.ids == [1, 2]


def test_many_small_appends_merge_their_manifests_without_losing_a_row(tmp_path: Path) -> None:
    harness = CommitTable(tmp_path, commit__manifest__min_count_to_merge="5")
    for index in range(12):
        harness.append(index)

    assert harness.ids == list(range(12))
    snapshot = harness.table.metadata.current_snapshot()
    table = pyiceberg_table(tmp_path)
    assert len(snapshot.manifests(table.io)) < 6
    assert snapshot.summary.additional_properties["total-data-files"] == "12"
    for index, old in enumerate(harness.table.metadata.snapshots):
        assert ids_in(tmp_path, snapshot_id=old.snapshot_id) == list(range(index + 1))


def test_manifests_with_removed_files_are_merged_as_they_are_written(tmp_path: Path) -> None:
    harness = CommitTable(tmp_path, commit__manifest__min_count_to_merge="9")
    files = [write_file(harness.table, [index]) for index in range(8)]
    for file in files:
        harness.commit(AppendFiles(added=[file]))
    before = files_below(tmp_path)
    removed = [file.path for file in files[::2]]
    base = harness.table.metadata.current_snapshot_id
    last = write_file(harness.table, [9])
    done = harness.commit(
        OverwriteFiles(added=[last], removed_paths=removed, base_snapshot_id=base)
    )

    assert harness.ids == [1, 3, 5, 7, 9]
    table = pyiceberg_table(tmp_path)
    snapshot = table.current_snapshot()
    (manifest,) = snapshot.manifests(table.io)
    entries = manifest.fetch_manifest_entry(table.io, discard_deleted=False)
    found = {entry.data_file.file_path: (entry.status.name, entry.snapshot_id) for entry in entries}
    appended = [item.snapshot_id for item in harness.table.metadata.snapshots[:8]]
    assert found == {
        last.path: ("ADDED", done.snapshot_id),
        **dict.fromkeys(removed, ("DELETED", done.snapshot_id)),
        **{
            file.path: ("EXISTING", owner)
            for file, owner in list(zip(files, appended, strict=True))[1::2]
        },
    }
    summary = snapshot.summary.additional_properties
    assert (summary["deleted-data-files"], summary["total-data-files"]) == ("4", "5")
    assert (summary["manifests-created"], summary["manifests-replaced"]) == ("1", "8")
    new = [path for path in files_below(tmp_path) - before if path.endswith(".avro")]
    assert len(new) == 2  # the manifest and the list


def test_manifests_without_remaining_files_become_one(tmp_path: Path) -> None:
    harness = CommitTable(tmp_path)
    files = [write_file(harness.table, [index]) for index in range(6)]
    for added in (files[:1], files[1:2], files[2:4], files[4:5], files[5:]):
        harness.commit(AppendFiles(added=added))
    appended = [item.snapshot_id for item in harness.table.metadata.snapshots]
    last = write_file(harness.table, [9])
    done = harness.commit(
        RewriteFiles(
            added=[last],
            removed_paths=[file.path for file in (*files[:3], files[4])],
            base_snapshot_id=appended[-1],
        )
    )

    assert harness.ids == [3, 5, 9]
    table = pyiceberg_table(tmp_path)
    snapshot = table.current_snapshot()
    found = [
        sorted(
            (entry.data_file.file_path, entry.status.name, entry.snapshot_id, entry.sequence_number)
            for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=False)
        )
        for manifest in snapshot.manifests(table.io)
    ]
    deleted = [
        (file.path, "DELETED", done.snapshot_id, number)
        for file, number in zip(files, (1, 2, 3, 3, 4), strict=False)
    ]
    assert found == [
        [(last.path, "ADDED", done.snapshot_id, 6)],
        sorted([deleted[0], deleted[1], deleted[4]]),
        sorted([deleted[2], (files[3].path, "EXISTING", appended[2], 3)]),
        [(files[5].path, "ADDED", appended[4], 5)],
    ]
    summary = snapshot.summary.additional_properties
    assert (summary["deleted-data-files"], summary["total-data-files"]) == ("4", "3")
    assert (summary["manifests-created"], summary["manifests-replaced"]) == ("3", "4")


def test_old_metadata_files_go_when_the_table_asks_for_it(tmp_path: Path) -> None:
    harness = CommitTable(
        tmp_path,
        write__metadata__delete_after_commit__enabled="true",
        write__metadata__previous_versions_max="2",
    )
    for index in range(6):
        harness.append(index)
    path = Path(harness.table.metadata_location.removeprefix("file://"))
    document = json.loads(path.read_text())
    live = harness.table.handle.inspect.files()["file_path"][0].as_py()
    document["metadata-log"].insert(0, {**document["metadata-log"][0], "metadata-file": live})
    path.write_text(json.dumps(document))
    harness.table = harness.session.table("db.t")
    harness.append(6)

    left = [name for name in files_below(tmp_path) if name.endswith("metadata.json")]
    assert len(left) == 3
    assert harness.ids == list(range(7))


def test_a_metadata_file_that_goes_while_the_table_is_loaded_is_not_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = CommitTable(
        tmp_path,
        write__metadata__delete_after_commit__enabled="true",
        write__metadata__previous_versions_max="1",
    )
    harness.append(0)
    found, others = SqlCatalog._convert_orm_to_iceberg, iter([1, 2])

    def slow(catalog: SqlCatalog, row: Any) -> Any:
        for number in others:
            harness.append_elsewhere(number)
        return found(catalog, row)

    monkeypatch.setattr(SqlCatalog, "_convert_orm_to_iceberg", slow)
    harness.table = harness.session.table("db.t")
    others = iter([4, 5])
    harness.append(3)

    assert harness.ids == [0, 1, 2, 3, 4, 5]
