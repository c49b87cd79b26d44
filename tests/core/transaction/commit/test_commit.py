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


class World(TableHarness):
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
def world(tmp_path: Path) -> World:
    return World(tmp_path)


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
    world: World, fault: Callable[[Callable[[], Any]], Any], ids: list[int]
) -> None:
    before = files_below(world.warehouse)
    inject(world.session, [fault])
    with SignalHandlers(), suppress(CommitUnknownError):
        world.append(1)
    with pytest.raises(StoppedError):
        world.session.interrupts.checkpoint()

    assert world.ids == ids
    # A manifest and the list of manifests.
    assert sum(name.endswith(".avro") for name in files_below(world.warehouse) - before) == 2


def test_whatever_breaks_a_commit_off_spares_what_it_may_have_made_live(world: World) -> None:
    def broken_off(commit: Callable[[], Any]) -> Any:
        commit()
        raise KeyboardInterrupt

    inject(world.session, [broken_off])
    with pytest.raises(KeyboardInterrupt):
        world.append(1)

    assert world.ids == [1]


def test_an_append_is_read_back_by_pyiceberg_with_the_summary_that_java_writes(
    world: World,
) -> None:
    world.append(1, 2)
    done = world.append(3)

    summary = done.table.metadata.current_snapshot().summary
    assert world.ids == [1, 2, 3]
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
    world: World, monkeypatch: pytest.MonkeyPatch, late: bool, served: bool
) -> None:
    """A server may have made the change before; PyIceberg's check of the UUID proves that nothing was sent."""
    monkeypatch.setattr(SqlBackend, "is_served", served)
    operation = AppendFiles(added=[write_file(world.table, [1])])

    def replaced() -> None:
        pyiceberg_catalog(world.warehouse).drop_table("db.t")
        make_table(world.warehouse)

    def refused(_: Callable[[], Any]) -> None:
        written.write_text("{}")
        world.session.catalog.written_metadata.append(str(written))
        replaced()
        raise CommitFailedException("another writer was faster")

    written = world.warehouse / "db" / "t" / "metadata" / "00009-a.metadata.json"
    before = files_below(world.warehouse)
    if late:
        inject(world.session, [refused])
    else:
        replaced()

    unknown = late and served
    with pytest.raises(CommitUnknownError if unknown else NotFoundError):
        world.commit(operation)

    assert world.ids == []
    left = [name for name in files_below(world.warehouse) - before if name.endswith(".avro")]
    assert bool(left) == unknown == written.exists()


@pytest.mark.parametrize("change", ["drop_table", "rename_table"])
def test_a_commit_to_a_table_that_is_gone_is_refused(world: World, change: str) -> None:
    catalog = pyiceberg_catalog(world.warehouse)
    new_name = ["db.u"] if change == "rename_table" else []
    written = [write_file(world.table, [1])]
    before = files_below(world.warehouse)
    inject(world.session, [after(lambda: getattr(catalog, change)("db.t", *new_name))])

    with pytest.raises(NotFoundError, match="does not exist"):
        world.commit(AppendFiles(added=written))

    assert files_below(world.warehouse) == before


def test_a_commit_is_confirmed_though_the_table_is_dropped_at_once(world: World) -> None:
    def dropped(commit: Callable[[], Any]) -> Any:
        answer = commit()
        pyiceberg_catalog(world.warehouse).drop_table("db.t")
        return answer

    inject(world.session, [dropped])
    done = world.append(1)

    place = max(world.warehouse.rglob("*.metadata.json"))
    assert list(done.snapshot_ids) == [done.table.metadata.current_snapshot_id]
    pyiceberg_catalog(world.warehouse).register_table("db.t", str(place))
    assert world.ids == [1]


@pytest.mark.parametrize("version", ["1", "2"])
def test_every_operation_leaves_a_table_that_pyiceberg_reads(tmp_path: Path, version: str) -> None:
    world = World(tmp_path, format_version=version)
    first = write_file(world.table, [1, 2])
    world.commit(AppendFiles(added=[first]))
    second = write_file(world.table, [3])
    base = world.commit(AppendFiles(added=[second])).snapshot_id
    world.commit(
        RewriteFiles(
            added=[write_file(world.table, [1, 2, 3])],
            removed_paths=[first.path, second.path],
            base_snapshot_id=base,
            data_sequence_number=2 if version == "2" else None,
        )
    )
    assert world.ids == [1, 2, 3]
    snapshot = world.table.metadata.current_snapshot()
    assert snapshot.summary.operation.value == "replace"
    assert snapshot.summary.additional_properties["deleted-data-files"] == "2"

    world.commit(
        ReplacePartitions(
            added=[write_file(world.table, [9])], base_snapshot_id=snapshot.snapshot_id
        )
    )
    assert world.ids == [9]
    assert world.table.metadata.current_snapshot().summary.operation.value == "overwrite"

    assert ids_in(tmp_path, snapshot_id=base) == [1, 2, 3]


@pytest.mark.parametrize("attempt", range(5))
def test_a_commit_that_landed_and_was_reported_as_a_conflict_counts_once(
    world: World, attempt: int
) -> None:
    refusal = CommitFailedException("409")
    inject(world.session, [*[refused_with(refusal)] * attempt, applied_then(refusal)])

    world.append(1)

    assert world.ids == [1]
    assert len(world.table.metadata.snapshots) == 1


def test_a_run_that_is_in_the_table_is_not_committed_again(world: World) -> None:
    marks = {RUN_ID: "2026-01-31"}
    landed = world.append(1, summary=marks, guard=RunGuard(marks["lake.run-id"]))
    before = files_below(world.warehouse)

    again = world.append(1, summary=marks, guard=RunGuard(marks["lake.run-id"]))

    assert again.already
    assert again.snapshot_ids == landed.snapshot_ids
    assert world.ids == [1]
    assert [name for name in files_below(world.warehouse) - before if "metadata" in name] == []


def test_a_metadata_file_that_the_log_names_stays_though_its_commit_was_undone(
    world: World,
) -> None:
    kept = world.append(1).snapshot_id
    written: list[str] = []

    def undone(commit: Callable[[], Any]) -> None:
        commit()
        table = pyiceberg_catalog(world.warehouse).load_table("db.t")
        written.append(table.metadata_location)
        table.manage_snapshots().rollback_to_snapshot(kept).commit()
        # Its reference is removed too: only the metadata log names it.
        table.maintenance.expire_snapshots().by_id(
            table.metadata.snapshots[-1].snapshot_id
        ).commit()
        raise CommitFailedException("409")

    inject(world.session, [undone])
    world.append(2)

    log = {entry.metadata_file for entry in world.table.metadata.metadata_log}
    assert set(written) <= log
    assert all(Path(name.removeprefix("file://")).exists() for name in log)


def test_a_commit_refused_every_time_leaves_no_file_of_its_own_and_says_conflict(
    world: World,
) -> None:
    before = files_below(world.warehouse)
    inject(world.session, [refused_with(CommitFailedException("409"))] * 5)
    file = write_file(world.table, [1])

    with pytest.raises(CommitConflictError):
        world.commit(AppendFiles(added=[file]))

    left = files_below(world.warehouse) - before
    assert [name for name in left if not name.endswith(".parquet")] == []
    assert [round(wait, 1) for wait in world.clock.waits] == pytest.approx(
        [0.1, 0.2, 0.4, 0.8], rel=0.2
    )
    assert world.session.protected_files == set()


@pytest.mark.parametrize("error", UNKNOWN, ids=repr)
def test_an_error_after_the_commit_landed_is_a_success(world: World, error: Exception) -> None:
    inject(world.session, [applied_then(error)])

    world.append(1, 2)

    assert world.ids == [1, 2]


@pytest.mark.parametrize("error", UNKNOWN, ids=repr)
def test_an_unanswered_commit_that_did_not_land_is_unknown_and_keeps_every_file(
    world: World, error: Exception
) -> None:
    inject(world.session, [refused_with(error)])
    file = write_file(world.table, [1])

    with pytest.raises(CommitUnknownError) as caught:
        world.commit(AppendFiles(added=[file]))

    names = files_below(world.warehouse)
    assert any("snap-" in name for name in names)
    assert any(name.endswith(f"{caught.value.operation_id}-m0.avro") for name in names)
    # The data file, its manifest and the list.
    assert len(world.session.protected_files) == 3


@pytest.mark.parametrize("answer", [CommitFailedException("c"), ConnectionError("lost")])
def test_whatever_a_look_after_the_commit_raises_no_file_is_removed(
    world: World, answer: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: str) -> None:
        raise RuntimeError("a driver's own error")

    def lost(commit: Callable[[], Any]) -> Any:
        commit()
        monkeypatch.setattr(world.session.catalog, "load", broken)
        raise answer

    inject(world.session, [lost])
    before = files_below(world.warehouse)
    with pytest.raises(CommitUnknownError):
        world.append(1)

    assert world.ids == [1]
    # Metadata, the list of manifests, a manifest and the rows.
    assert len(files_below(world.warehouse) - before) == 4


@pytest.mark.parametrize("served", [True, False])
def test_a_refusal_on_the_way_is_believed_without_a_look_where_nothing_was_sent(
    world: World, monkeypatch: pytest.MonkeyPatch, served: bool
) -> None:
    def broken(_: str) -> None:
        raise NotAuthorisedError("not allowed to look")

    def lost(_: Callable[[], Any]) -> Any:
        monkeypatch.setattr(world.session.catalog, "load", broken)
        raise RefusedError("it sends its clients on to another host")

    monkeypatch.setattr(SqlBackend, "is_served", served)
    monkeypatch.setattr(SqlBackend, "writes_metadata", not served)
    before = files_below(world.warehouse)
    inject(world.session, [lost])
    with pytest.raises(CommitUnknownError if served else RefusedError):
        world.append(1)

    # The rows; a manifest and the list of manifests stay where they may be live.
    assert len(files_below(world.warehouse) - before) == (3 if served else 1)


def test_a_conflict_then_an_unanswered_attempt_is_unknown(world: World) -> None:
    inject(
        world.session,
        [refused_with(CommitFailedException("409")), refused_with(TimeoutError("504"))],
    )
    with pytest.raises(CommitUnknownError):
        world.append(1)


def test_refused_credentials_are_reported_as_such_and_change_nothing(world: World) -> None:
    inject(world.session, [refused_with(ForbiddenError("403"))])
    with pytest.raises(NotAuthorisedError):
        world.append(1)
    assert world.session.protected_files == set()


NOT_ACCEPTED = [
    BadRequestError("400"),
    ValidationError("an unknown transform"),
    # What the library says of metadata that it cannot make.
    ValueError("Unrecognized filesystem type"),
]


@pytest.mark.parametrize("is_served", [False, True])
@pytest.mark.parametrize("answer", NOT_ACCEPTED)
def test_what_a_catalog_does_not_accept_is_tried_again_if_the_table_was_changed_meanwhile(
    world: World, monkeypatch: pytest.MonkeyPatch, answer: Exception, is_served: bool
) -> None:
    world.append(1)

    def refused(_: Any) -> Any:
        world.append_elsewhere(2)
        raise answer

    monkeypatch.setattr(SqlBackend, "is_served", is_served)
    inject(world.session, [refused])
    world.append(3)

    assert world.ids == [1, 2, 3]


@pytest.mark.parametrize("answer", NOT_ACCEPTED)
def test_what_a_catalog_does_not_accept_changed_nothing(world: World, answer: Exception) -> None:
    before = files_below(world.warehouse)
    inject(world.session, [refused_with(answer)])
    with pytest.raises(BadInputError, match="does not accept the commit"):
        world.append(1)

    assert world.ids == []
    # The data file is its caller's.
    assert len(files_below(world.warehouse) - before) == 1


@pytest.mark.parametrize("answer", NOT_ACCEPTED[1:])
def test_what_is_not_understood_of_a_server_may_have_landed(
    world: World, answer: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SqlBackend, "is_served", True)
    monkeypatch.setattr(SqlBackend, "writes_metadata", False)
    before = files_below(world.warehouse)
    inject(world.session, [refused_with(answer)])
    with pytest.raises(CommitUnknownError):
        world.append(1)

    # A list of manifests, a manifest and the rows.
    assert len(files_below(world.warehouse) - before) == 3


@pytest.mark.parametrize("answer", NOT_ACCEPTED)
def test_what_a_catalog_does_not_accept_after_it_landed_is_there(
    world: World, answer: Exception
) -> None:
    inject(world.session, [applied_then(answer)])
    world.append(1)

    assert world.ids == [1]


@pytest.mark.parametrize("times", range(1, 5))
def test_appends_of_other_writers_in_between_are_kept(world: World, times: int) -> None:
    inject(world.session, [after(lambda: world.append_elsewhere(100))] * times)

    world.append(1)

    assert world.ids == [1, *[100] * times]


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


def test_a_head_that_expired_meanwhile_is_not_an_error(world: World, tmp_path: Path) -> None:
    world.append(1)
    world.clock.now += 10 * 24 * 3_600_000
    other = open_session(world.warehouse, world.clock)
    other_append = AppendFiles(added=[write_file(other.table("db.t"), [2])])
    commit_snapshot(
        other, other.table("db.t"), other_append, CommitRequest(operation_id=str(uuid.uuid4()))
    )
    options = RetentionOptions(older_than_ms=world.clock.now - 2 * 24 * 3_600_000)
    expire(other, plan_expiration(other, other.table("db.t"), options))

    world.append(3)

    assert world.ids == [1, 2, 3]


def test_a_run_that_another_process_finished_meanwhile_is_not_committed_again(world: World) -> None:
    guard = {"lake.run-id": "nightly"}

    def finish() -> None:
        other = open_session(world.warehouse, world.clock)
        table = other.table("db.t")
        commit_snapshot(
            other,
            table,
            AppendFiles(added=[write_file(table, [1])]),
            CommitRequest(operation_id=str(uuid.uuid4()), guard=RunGuard("nightly")),
            summary=guard,
        )

    inject(world.session, [after(finish)])
    done = world.append(1, summary=guard, guard=RunGuard("nightly"))

    assert done.already
    assert world.ids == [1]


def test_a_rewrite_is_not_disturbed_by_appends_and_keeps_their_rows(world: World) -> None:
    first = write_file(world.table, [1])
    base = world.commit(AppendFiles(added=[first])).snapshot_id
    inject(world.session, [after(lambda: world.append_elsewhere(2))])

    world.commit(
        RewriteFiles(
            added=[write_file(world.table, [1])],
            removed_paths=[first.path],
            base_snapshot_id=base,
            data_sequence_number=1,
        )
    )

    assert world.ids == [1, 2]


def test_a_rewrite_of_files_that_left_meanwhile_names_them_and_changes_nothing(
    world: World,
) -> None:
    first = write_file(world.table, [1])
    base = world.commit(AppendFiles(added=[first])).snapshot_id

    def drop() -> None:
        pyiceberg_catalog(world.warehouse).load_table("db.t").delete("id == 1")

    inject(world.session, [after(drop)])
    with pytest.raises(ConflictingFilesError) as caught:
        world.commit(
            RewriteFiles(
                added=[write_file(world.table, [1])],
                removed_paths=[first.path],
                base_snapshot_id=base,
                data_sequence_number=1,
            )
        )
    assert caught.value.paths == {first.path}
    assert world.ids == []


def test_a_rewrite_after_a_rollback_behind_its_base_is_a_conflict(world: World) -> None:
    first = write_file(world.table, [1])
    start = world.commit(AppendFiles(added=[first])).snapshot_id
    base = world.append(2).snapshot_id

    def rollback() -> None:
        table = pyiceberg_catalog(world.warehouse).load_table("db.t")
        table.manage_snapshots().rollback_to_snapshot(start).commit()

    inject(world.session, [after(rollback)])
    with pytest.raises(CommitConflictError):
        world.commit(
            RewriteFiles(
                added=[write_file(world.table, [1])],
                removed_paths=[first.path],
                base_snapshot_id=base,
                data_sequence_number=1,
            )
        )
    assert world.ids == [1]


@pytest.mark.parametrize("isolation", ["serializable", "snapshot"])
def test_an_overwrite_beside_an_append_obeys_the_isolation_level(
    world: World, isolation: str
) -> None:
    first = write_file(world.table, [1])
    base = world.commit(AppendFiles(added=[first])).snapshot_id
    inject(world.session, [after(lambda: world.append_elsewhere(2))])
    operation = OverwriteFiles(
        added=[write_file(world.table, [9])],
        removed_paths=[first.path],
        base_snapshot_id=base,
        isolation=isolation,
    )
    if isolation == "snapshot":
        world.commit(operation)
        assert world.ids == [2, 9]
    else:
        with pytest.raises(CommitConflictError):
            world.commit(operation)
        assert world.ids == [1, 2]


def test_many_small_appends_merge_their_manifests_without_losing_a_row(tmp_path: Path) -> None:
    world = World(tmp_path, commit__manifest__min_count_to_merge="5")
    for index in range(12):
        world.append(index)

    assert world.ids == list(range(12))
    snapshot = world.table.metadata.current_snapshot()
    table = pyiceberg_catalog(tmp_path).load_table("db.t")
    assert len(snapshot.manifests(table.io)) < 6
    assert snapshot.summary.additional_properties["total-data-files"] == "12"
    for index, old in enumerate(world.table.metadata.snapshots):
        assert ids_in(tmp_path, snapshot_id=old.snapshot_id) == list(range(index + 1))


def test_manifests_with_removed_files_are_merged_as_they_are_written(tmp_path: Path) -> None:
    world = World(tmp_path, commit__manifest__min_count_to_merge="9")
    files = [write_file(world.table, [index]) for index in range(8)]
    for file in files:
        world.commit(AppendFiles(added=[file]))
    before = files_below(tmp_path)
    removed = [file.path for file in files[::2]]
    base = world.table.metadata.current_snapshot_id
    last = write_file(world.table, [9])
    done = world.commit(OverwriteFiles(added=[last], removed_paths=removed, base_snapshot_id=base))

    assert world.ids == [1, 3, 5, 7, 9]
    table = pyiceberg_catalog(tmp_path).load_table("db.t")
    snapshot = table.current_snapshot()
    (manifest,) = snapshot.manifests(table.io)
    entries = manifest.fetch_manifest_entry(table.io, discard_deleted=False)
    found = {entry.data_file.file_path: (entry.status.name, entry.snapshot_id) for entry in entries}
    appended = [item.snapshot_id for item in world.table.metadata.snapshots[:8]]
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


def test_old_metadata_files_go_when_the_table_asks_for_it(tmp_path: Path) -> None:
    world = World(
        tmp_path,
        write__metadata__delete_after_commit__enabled="true",
        write__metadata__previous_versions_max="2",
    )
    for index in range(6):
        world.append(index)
    path = Path(world.table.metadata_location.removeprefix("file://"))
    document = json.loads(path.read_text())
    live = world.table.handle.inspect.files()["file_path"][0].as_py()
    document["metadata-log"].insert(0, {**document["metadata-log"][0], "metadata-file": live})
    path.write_text(json.dumps(document))
    world.table = world.session.table("db.t")
    world.append(6)

    left = [name for name in files_below(tmp_path) if name.endswith("metadata.json")]
    assert len(left) == 3
    assert world.ids == list(range(7))


def test_a_metadata_file_that_goes_while_the_table_is_loaded_is_not_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(
        tmp_path,
        write__metadata__delete_after_commit__enabled="true",
        write__metadata__previous_versions_max="1",
    )
    world.append(0)
    found, others = SqlCatalog._convert_orm_to_iceberg, iter([1, 2])

    def slow(catalog: SqlCatalog, row: Any) -> Any:
        for number in others:
            world.append_elsewhere(number)
        return found(catalog, row)

    monkeypatch.setattr(SqlCatalog, "_convert_orm_to_iceberg", slow)
    world.table = world.session.table("db.t")
    others = iter([4, 5])
    world.append(3)

    assert world.ids == [0, 1, 2, 3, 4, 5]
