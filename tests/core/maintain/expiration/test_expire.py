"""Expiring deletes exactly what nothing kept reaches, and never a row that someone can still read."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table.update import SetCurrentSchemaUpdate
from pyiceberg.types import StringType
from support.oracles.history_model import History
from support.tables.iceberg_tables import (
    after,
    applied_then,
    files_below,
    ids_in,
    inject,
    open_session,
    refused_with,
    write_file,
)
from support.tables.table_harness import TableHarness

from lake.core.base.errors import (
    CommitConflictError,
    CommitUnknownError,
    InvalidRequestError,
    LakeError,
    RefusedError,
)
from lake.core.base.outcome import Outcome, Status
from lake.core.maintain.expiration.execute import execute
from lake.core.maintain.expiration.facts import ExpirationFacts
from lake.core.maintain.expiration.plan import plan_expiration
from lake.core.maintain.expiration.retention import RetentionOptions, plan_retention
from lake.core.transaction.commit.commit import CommitRequest, commit_snapshot
from lake.core.transaction.commit.operations import AppendFiles, RewriteFiles

DAY_MS = 24 * 3_600_000


class ExpiringTable(TableHarness):
    """A table whose snapshots are a day apart."""

    @property
    def table(self) -> Any:
        return self.load()

    def append(self, *ids: int, **summary: str) -> int:
        self.clock.now += DAY_MS
        table = self.table
        named = {key.replace("__", ".").replace("_", "-"): value for key, value in summary.items()}
        added = AppendFiles(added=[write_file(table, ids)])
        return self.commit_on(table, added, summary=named).snapshot_id

    def rewrite_all(self, *ids: int) -> int:
        self.clock.now += DAY_MS
        table = self.table
        rewrite = RewriteFiles(
            added=[write_file(table, ids)],
            removed_paths=self.live_paths(),
            base_snapshot_id=table.metadata.current_snapshot_id,
            data_sequence_number=table.metadata.last_sequence_number,
        )
        return self.commit_on(table, rewrite).snapshot_id

    def expire(self, days: float | None = None, **options: Any) -> Outcome:
        moment = None if days is None else self.clock.now - int(days * DAY_MS)
        flags = {
            key: options.pop(key) for key in ("clean_metadata", "keep_files") if key in options
        }
        plan = plan_expiration(
            self.session, self.table, RetentionOptions(older_than=moment, **options), **flags
        )
        return execute(self.session, plan)

    def reachable(self) -> set[str]:
        """Everything that the table's metadata reaches, by PyIceberg's reading."""
        table = self.pyiceberg
        found = {table.metadata_location}
        found.update(entry.metadata_file for entry in table.metadata.metadata_log)
        for snapshot in table.metadata.snapshots:
            found.add(snapshot.manifest_list)
            for manifest in snapshot.manifests(table.io):
                found.add(manifest.manifest_path)
                entries = manifest.fetch_manifest_entry(table.io, discard_deleted=True)
                found.update(entry.data_file.file_path for entry in entries)
        return {path.removeprefix(f"file://{self.warehouse}/") for path in found}


@pytest.fixture
def harness(tmp_path: Path) -> ExpiringTable:
    return ExpiringTable(tmp_path)


def test_what_is_left_is_exactly_what_the_table_reaches(harness: ExpiringTable) -> None:
    for index in range(6):
        harness.append(index)
    harness.rewrite_all(*range(6))
    for index in range(6, 9):
        harness.append(index)

    outcome = harness.expire(days=1.5)

    assert outcome.status is Status.DONE
    assert ExpirationFacts.of(outcome.result).snapshots == 8
    assert ExpirationFacts.of(outcome.result).data_files == 6
    assert ExpirationFacts.of(outcome.result).failed_deletes == 0
    assert files_below(harness.warehouse) == harness.reachable()
    assert ids_in(harness.warehouse) == list(range(9))


@pytest.mark.parametrize("days", [-30, 0, 1])
def test_a_writer_whose_clock_was_behind_makes_nothing_old(
    harness: ExpiringTable, days: int
) -> None:
    made = [harness.append(number) for number in range(5)]
    metadata = harness.table.metadata
    moments = {item.snapshot_id: item.timestamp_ms for item in metadata.snapshots}
    # As old as, or older than, what it was built on.
    moments[made[3]] = moments[made[1]] + days * DAY_MS
    unordered = metadata.model_copy(
        update={
            "snapshots": [
                item.model_copy(update={"timestamp_ms": moments[item.snapshot_id]})
                for item in metadata.snapshots
            ]
        }
    )

    options = RetentionOptions(older_than=moments[made[2]])
    retention = plan_retention(unordered, options, harness.clock.now)

    assert set(retention.expired) == set(made[:2])


def test_expiring_again_commits_and_deletes_nothing(harness: ExpiringTable) -> None:
    for index in range(4):
        harness.append(index)
    harness.expire(days=1.5)
    before, location = files_below(harness.warehouse), harness.table.metadata_location

    outcome = harness.expire(days=1.5)

    assert outcome.status is Status.NOTHING_TO_DO
    assert harness.table.metadata_location == location
    assert files_below(harness.warehouse) == before


def test_the_parent_of_the_oldest_kept_snapshot_is_still_named(harness: ExpiringTable) -> None:
    ids = [harness.append(index) for index in range(4)]
    harness.expire(days=1.5)

    kept = {item.snapshot_id: item for item in harness.table.metadata.snapshots}
    assert kept.keys() == set(ids[2:])
    assert kept[ids[2]].parent_snapshot_id == ids[1]


def test_tags_and_branches_keep_their_files(harness: ExpiringTable) -> None:
    first = harness.append(0)
    second = harness.append(1)
    harness.pyiceberg.manage_snapshots().create_tag(first, "audit").create_branch(
        second, "experiment"
    ).commit()
    harness.rewrite_all(0, 1)
    harness.append(2)

    harness.expire(days=0.5, unsafe_retention=True)

    assert ids_in(harness.warehouse, snapshot_id=first) == [0]
    assert ids_in(harness.warehouse, snapshot_id=second) == [0, 1]
    assert set(harness.table.metadata.refs) == {"main", "audit", "experiment"}


def test_refs_beyond_their_age_go_and_main_never_does(harness: ExpiringTable) -> None:
    first = harness.append(0)
    harness.pyiceberg.manage_snapshots().create_tag(first, "old", max_ref_age_ms=DAY_MS).commit()
    harness.append(1)
    harness.append(2)

    outcome = harness.expire(days=1.5)

    assert ExpirationFacts.of(outcome.result).refs == 1
    assert set(harness.table.metadata.refs) == {"main"}


def test_a_number_of_snapshots_is_kept_though_they_are_old(harness: ExpiringTable) -> None:
    for index in range(5):
        harness.append(index)
    harness.clock.now += 30 * DAY_MS

    harness.expire(days=5, retain_last=3)

    assert len(harness.table.metadata.snapshots) == 3


def test_the_tables_own_shorter_age_is_honoured(tmp_path: Path) -> None:
    harness = ExpiringTable(tmp_path, history__expire__max_snapshot_age_ms="1000")
    for index in range(3):
        harness.append(index)
    harness.clock.now += 2000

    harness.expire()

    assert len(harness.table.metadata.snapshots) == 1


def test_less_than_a_day_is_refused_unless_the_user_insists(harness: ExpiringTable) -> None:
    harness.append(1)
    harness.append(2)
    with pytest.raises(RefusedError):
        harness.expire(days=0.5)
    assert len(harness.table.metadata.snapshots) == 2

    harness.clock.now += DAY_MS // 2
    harness.expire(days=0.25, unsafe_retention=True)
    assert len(harness.table.metadata.snapshots) == 1


def test_keeping_no_snapshot_at_all_is_an_invalid_request() -> None:
    with pytest.raises(InvalidRequestError):
        RetentionOptions(retain_last=0)


def test_a_table_without_garbage_collection_is_refused(tmp_path: Path) -> None:
    harness = ExpiringTable(tmp_path, gc__enabled="false")
    harness.append(1)
    with pytest.raises(RefusedError):
        harness.expire(days=2)


def test_a_snapshot_can_be_expired_by_name_but_not_the_head_of_a_branch(
    harness: ExpiringTable,
) -> None:
    first, second = harness.append(0), harness.append(1)
    harness.expire(snapshot_ids=(first,))
    assert [item.snapshot_id for item in harness.table.metadata.snapshots] == [second]
    with pytest.raises(RefusedError):
        harness.expire(snapshot_ids=(second,))


@pytest.mark.parametrize("victim", ["snap-", "-m0.avro"])
@pytest.mark.parametrize("damage", ["missing", "cut"])
def test_unreadable_metadata_of_a_kept_snapshot_stops_everything(
    harness: ExpiringTable, victim: str, damage: str
) -> None:
    for index in range(3):
        harness.append(index)
    table = harness.pyiceberg
    head = table.metadata.current_snapshot()
    location = (
        head.manifest_list if victim == "snap-" else head.manifests(table.io)[0].manifest_path
    )
    path = Path(location.removeprefix("file://"))
    data = path.read_bytes()
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(data[:-40])
    before = files_below(harness.warehouse)

    with pytest.raises(LakeError) as caught:
        harness.expire(days=1.5)

    assert caught.value.exit_code == 7
    assert path.name in caught.value.message
    assert files_below(harness.warehouse) == before
    assert len(harness.table.metadata.snapshots) == 3


def test_a_missing_manifest_of_an_expired_snapshot_is_reported_and_the_rest_goes(
    harness: ExpiringTable,
) -> None:
    harness.append(0)
    table = harness.pyiceberg
    manifest = table.metadata.current_snapshot().manifests(table.io)[0].manifest_path
    harness.rewrite_all(0)
    harness.append(1)
    Path(manifest.removeprefix("file://")).unlink()

    outcome = harness.expire(days=0.5, unsafe_retention=True)

    assert outcome.status is Status.PARTIAL
    assert outcome.exit_code == 6
    assert any(manifest in warning for warning in harness.session.warnings)
    assert ids_in(harness.warehouse) == [0, 1]


def test_a_rollback_in_the_moment_of_the_commit_loses_nothing(harness: ExpiringTable) -> None:
    first = harness.append(0)
    harness.append(1)
    harness.append(2)

    def rollback() -> None:
        harness.pyiceberg.manage_snapshots().rollback_to_snapshot(first).commit()

    inject(harness.session, [after(rollback)])
    harness.expire(days=1.5)

    assert ids_in(harness.warehouse) == [0]
    assert harness.table.metadata.current_snapshot_id == first


def test_a_tag_made_in_the_moment_of_the_commit_is_put_back_with_its_files(
    harness: ExpiringTable,
) -> None:
    first = harness.append(0)
    harness.rewrite_all(0)
    harness.append(1)
    harness.append(2)

    def tag() -> None:
        harness.pyiceberg.manage_snapshots().create_tag(first, "audit").commit()

    inject(harness.session, [after(tag)])
    harness.expire(days=1.5)

    assert harness.table.metadata.refs["audit"].snapshot_id == first
    assert ids_in(harness.warehouse, snapshot_id=first) == [0]
    sequence = harness.table.metadata.last_sequence_number
    harness.append(3)
    assert harness.table.metadata.last_sequence_number == sequence + 1
    assert ids_in(harness.warehouse) == [0, 1, 2, 3]


def test_a_tag_is_put_back_in_format_version_3_and_its_rows_keep_their_ids(tmp_path: Path) -> None:
    history = History(tmp_path, 3)
    history.append([(1, "n1"), (2, "n2")])
    first = history.head
    assert first is not None
    for number in (3, 4):
        history.session.clock.sleep(2 * DAY_MS / 1000)
        history.append([(number, "n")])
    before = history.table.metadata.snapshot_by_id(first)

    def tag() -> None:
        history.session.table("db.t").handle.manage_snapshots().create_tag(first, "audit").commit()

    inject(history.session, [after(tag)])
    now = history.session.clock.now_ms()
    options = RetentionOptions(older_than=now - DAY_MS - 1)
    table = history.session.table("db.t")
    outcome = execute(history.session, plan_expiration(history.session, table, options))

    assert outcome.exit_code == 0
    metadata = history.session.table("db.t").metadata
    assert metadata.refs["audit"].snapshot_id == first
    found = metadata.snapshot_by_id(first)
    assert found.manifest_list == before.manifest_list
    assert metadata.next_row_id == 4
    history.table = history.session.table("db.t")
    history.append([(5, "n5")])
    assert ids_in(tmp_path) == [1, 2, 3, 4, 5]
    assert ids_in(tmp_path, snapshot_id=first) == [1, 2]


def test_files_go_with_a_snapshot_that_the_first_attempt_was_to_keep(
    harness: ExpiringTable,
) -> None:
    harness.append(0)
    harness.append(1)
    harness.clock.now += 1
    table = harness.session.table("db.t")
    options = RetentionOptions(older_than=harness.clock.now, retain_last=1, unsafe_retention=True)
    plan = plan_expiration(harness.session, table, options)
    inject(harness.session, [after(lambda: harness.rewrite_all(0, 1))])
    execute(harness.session, plan)

    data = {name for name in files_below(harness.warehouse) if name.endswith(".parquet")}
    assert len(harness.table.metadata.snapshots) == 1
    assert len(data) == 1
    assert ids_in(harness.warehouse) == [0, 1]


def test_an_append_in_the_moment_of_the_commit_does_not_stop_it(harness: ExpiringTable) -> None:
    for index in range(4):
        harness.append(index)

    def append() -> None:
        other = open_session(harness.warehouse, harness.clock)
        table = other.table("db.t")
        commit_snapshot(
            other,
            table,
            AppendFiles(added=[write_file(table, [9])]),
            CommitRequest(operation_id=str(uuid.uuid4())),
        )

    inject(harness.session, [after(append)])
    harness.expire(days=1.5)

    assert ids_in(harness.warehouse) == [0, 1, 2, 3, 9]
    assert len(harness.table.metadata.snapshots) == 3
    assert files_below(harness.warehouse) >= harness.reachable()


def test_what_is_committed_during_the_run_stays_though_a_later_moment_is_asked_for(
    harness: ExpiringTable,
) -> None:
    harness.append(0)
    harness.append(1)
    harness.clock.now += 1
    inject(harness.session, [after(lambda: harness.append(2)), after(lambda: harness.append(3))])

    harness.expire(days=-1000, unsafe_retention=True)

    assert ids_in(harness.warehouse) == [0, 1, 2, 3]
    assert len(harness.table.metadata.snapshots) == 2


def test_an_answer_lost_after_the_commit_still_deletes_what_it_should(
    harness: ExpiringTable,
) -> None:
    for index in range(4):
        harness.append(index)
    inject(harness.session, [applied_then(TimeoutError("504"))])

    outcome = harness.expire(days=1.5)

    assert ExpirationFacts.of(outcome.result).snapshots == 2
    assert files_below(harness.warehouse) == harness.reachable()


def test_an_unanswered_commit_deletes_nothing(harness: ExpiringTable) -> None:
    for index in range(4):
        harness.append(index)
    before = files_below(harness.warehouse)
    inject(harness.session, [refused_with(TimeoutError("504"))])

    with pytest.raises(CommitUnknownError):
        harness.expire(days=1.5)

    assert files_below(harness.warehouse) >= before


def test_a_commit_that_is_always_refused_deletes_nothing(harness: ExpiringTable) -> None:
    for index in range(4):
        harness.append(index)
    before = files_below(harness.warehouse)
    inject(harness.session, [refused_with(CommitFailedException("409"))] * 5)

    with pytest.raises(CommitConflictError):
        harness.expire(days=1.5)

    assert files_below(harness.warehouse) == before


@pytest.mark.parametrize("kind", ["branch", "tag"])
def test_a_ref_that_is_created_in_the_moment_of_the_commit_keeps_its_snapshot(
    harness: ExpiringTable, kind: str
) -> None:
    limits = {
        "write.metadata.delete-after-commit.enabled": "true",
        "write.metadata.previous-versions-max": "1",
    }
    harness.pyiceberg.transaction().set_properties(limits).commit_transaction()
    first, second = harness.append(0), harness.append(1)
    harness.append(2)
    harness.append(3)

    def race(commit: Any) -> Any:
        getattr(harness.pyiceberg.manage_snapshots(), f"create_{kind}")(first, "audit").commit()
        try:
            return commit()
        finally:
            # Now the log of metadata files does not reach back to the state before the commit.
            for _ in range(2):
                harness.append(4)

    inject(harness.session, [race])
    harness.expire(days=1.5)

    table = harness.pyiceberg
    assert table.metadata.refs["audit"].snapshot_id == first
    assert table.metadata.snapshot_by_id(second) is None
    assert ids_in(harness.warehouse, snapshot_id=first) == [0]


def test_files_outside_the_tables_own_folders_are_reported_and_kept(
    harness: ExpiringTable, tmp_path: Path
) -> None:
    table = harness.table
    file = write_file(table, [0])
    elsewhere = tmp_path / "elsewhere.parquet"
    Path(file.path.removeprefix("file://")).rename(elsewhere)
    from dataclasses import replace

    harness.clock.now += DAY_MS
    commit_snapshot(
        harness.session,
        table,
        AppendFiles(added=[replace(file, path=f"file://{elsewhere}")]),
        CommitRequest(operation_id=str(uuid.uuid4())),
    )
    harness.rewrite_all(0)
    harness.append(1)

    harness.expire(days=0.5, unsafe_retention=True)

    assert elsewhere.exists()
    assert any("outside" in warning for warning in harness.session.warnings)


def test_metadata_only_leaves_every_file(harness: ExpiringTable) -> None:
    for index in range(4):
        harness.append(index)
    before = files_below(harness.warehouse)

    outcome = harness.expire(days=1.5, keep_files=True)

    assert ExpirationFacts.of(outcome.result).snapshots == 2
    assert ExpirationFacts.of(outcome.result).manifest_lists == 0
    assert files_below(harness.warehouse) >= before


def test_unused_schemas_and_specs_go_only_when_asked(harness: ExpiringTable) -> None:
    harness.append(0)
    with harness.pyiceberg.update_schema() as update:
        update.add_column("extra", StringType())
    with harness.pyiceberg.update_spec() as update:
        update.add_identity("name")
    with harness.pyiceberg.update_spec() as update:
        update.remove_field("name")
    harness.rewrite_all(0)
    harness.append(1)
    harness.expire(days=0.5, unsafe_retention=True)
    assert len(harness.table.metadata.schemas) == 2

    harness.expire(days=0.5, unsafe_retention=True, clean_metadata=True)
    assert len(harness.table.metadata.schemas) == 1
    assert len(harness.table.metadata.partition_specs) <= 2
    assert ids_in(harness.warehouse) == [0, 1]


def test_a_schema_that_comes_into_use_again_meanwhile_stays(harness: ExpiringTable) -> None:
    harness.append(0)
    with harness.pyiceberg.update_schema() as update:
        update.add_column("extra", StringType())
    harness.append(1)
    table = harness.pyiceberg
    back = SetCurrentSchemaUpdate(schema_id=0)
    inject(harness.session, [after(lambda: table.catalog.commit_table(table, (), (back,)))])

    harness.expire(days=0.5, unsafe_retention=True, clean_metadata=True)

    assert [item.schema_id for item in harness.table.metadata.schemas] == [0, 1]
    assert len(harness.table.metadata.snapshots) == 1
