"""Several snapshots in one request: all or none, each as if it had been committed alone."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import IdentityTransform
from support.tables.iceberg_tables import (
    after,
    applied_then,
    files_below,
    ids_in,
    inject,
    refused_with,
    write_file,
)
from support.tables.table_harness import TableHarness
from support.tiers import examples

from lake.core.base.errors import (
    BadInputError,
    CommitConflictError,
    CommitUnknownError,
    ConflictingFilesError,
    RefusedError,
)
from lake.core.spec.properties.table_properties import SNAPSHOT
from lake.core.table.catalogs import pyiceberg_patches
from lake.core.table.catalogs.catalog import Table
from lake.core.table.manifests.data_files import DataFile
from lake.core.transaction.commit.added_entries import entry_tables
from lake.core.transaction.commit.commit import CommitRequest, Committed, commit_snapshots
from lake.core.transaction.commit.guards import RunGuard
from lake.core.transaction.commit.operations import (
    AppendFiles,
    DeleteKey,
    EntryTable,
    Operation,
    OverwriteFiles,
    ReplacePartitions,
    RowDelta,
    SnapshotStep,
)

BY_ID = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "id"))


class SequenceTable(TableHarness):
    """A table, a session on it, and short ways to commit several steps."""

    def __init__(self, warehouse: Path, **options: object) -> None:
        pyiceberg_patches.apply()
        super().__init__(warehouse, **options)
        self.table = self.load()
        self.asked = 0

    def commit(self, *operations: Operation, **options: Any) -> Committed:
        steps = [SnapshotStep(operation=operation) for operation in operations]
        return self.decide(lambda _: steps, **options)

    def decide(
        self, decide: Callable[[Table], Sequence[SnapshotStep]], **options: Any
    ) -> Committed:
        def counting(table: Table) -> Sequence[SnapshotStep]:
            self.asked += 1
            return decide(table)

        request = CommitRequest(operation_id=str(uuid.uuid4()), **options)
        done = commit_snapshots(self.session, self.table, counting, request)
        self.table = done.table
        return done

    def append(self, *ids: int) -> AppendFiles:
        return AppendFiles(added=[self.file(*ids)])

    def file(self, *ids: int) -> DataFile:
        partitioned = not self.table.spec.is_unpartitioned()
        partition = (struct.pack("<q", ids[0]),) if partitioned else ()
        return write_file(self.table, ids, partition=partition)

    def metadata_files(self) -> set[str]:
        return {name for name in files_below(self.warehouse) if name.endswith(".avro")}


@pytest.fixture
def harness(tmp_path: Path) -> SequenceTable:
    return SequenceTable(tmp_path)


@pytest.mark.parametrize("version", ["1", "2", "3"])
def test_each_step_is_a_snapshot_on_the_one_before(tmp_path: Path, version: str) -> None:
    harness = SequenceTable(tmp_path, format_version=version)
    harness.commit(harness.append(1))

    done = harness.commit(harness.append(2, 3), harness.append(4), harness.append(5))

    metadata = done.table.metadata
    made = [metadata.snapshot_by_id(snapshot_id) for snapshot_id in done.snapshot_ids]
    parents = [metadata.snapshots[0].snapshot_id, *done.snapshot_ids[:-1]]
    assert [item.parent_snapshot_id for item in made if item] == parents
    numbers = [0, 0, 0] if version == "1" else [2, 3, 4]
    assert [item.sequence_number for item in made if item] == numbers
    totals = [item.summary["total-records"] for item in made if item and item.summary]
    assert totals == ["3", "4", "5"]
    assert len({item.summary["lake.operation-id"] for item in made if item and item.summary}) == 1
    assert [ids_in(tmp_path, snapshot_id=item) for item in done.snapshot_ids] == [
        [1, 2, 3],
        [1, 2, 3, 4],
        [1, 2, 3, 4, 5],
    ]
    if version == "3":
        assert [(item.first_row_id, item.added_rows) for item in made if item] == [
            (1, 2),
            (3, 1),
            (4, 1),
        ]
        assert metadata.next_row_id == 5


def test_only_the_last_step_was_ever_the_branchs_head(harness: SequenceTable) -> None:
    first = harness.commit(harness.append(1)).snapshot_id

    done = harness.commit(harness.append(2), harness.append(3))

    assert [entry.snapshot_id for entry in done.table.metadata.snapshot_log] == [
        first,
        done.snapshot_ids[-1],
    ]
    assert done.snapshot_id == done.snapshot_ids[-1]


def test_time_never_runs_backwards_from_step_to_step(harness: SequenceTable) -> None:
    harness.commit(harness.append(1))
    harness.clock.now -= 50_000

    done = harness.commit(harness.append(2), harness.append(3))

    times = [item.timestamp_ms for item in done.table.metadata.snapshots]
    assert times == sorted(times)


def test_a_step_may_remove_what_the_step_before_it_added(harness: SequenceTable) -> None:
    first, second = harness.file(1, 2), harness.file(3)

    done = harness.commit(
        AppendFiles(added=[first]),
        OverwriteFiles(
            added=[second],
            removed_paths=[first.path],
            base_snapshot_id=None,
            # What the steps before it add is new since the base, like any writer's files.
            isolation=SNAPSHOT,
        ),
        ReplacePartitions(added=[harness.file(4)], validates=False),
    )

    assert [ids_in(harness.warehouse, snapshot_id=item) for item in done.snapshot_ids] == [
        [1, 2],
        [3],
        [4],
    ]


def test_steps_on_another_branch_leave_main_alone(harness: SequenceTable) -> None:
    harness.commit(harness.append(1))
    harness.pyiceberg.manage_snapshots().create_branch(
        snapshot_id=harness.table.metadata.current_snapshot_id or 0, branch_name="audit"
    ).commit()
    harness.table = harness.table.refreshed()

    done = harness.commit(harness.append(2), harness.append(3), branch="audit")

    assert harness.ids == [1]
    assert done.table.metadata.refs["audit"].snapshot_id == done.snapshot_id
    assert ids_in(harness.warehouse, snapshot_id=done.snapshot_id) == [1, 2, 3]


def test_after_a_conflict_the_steps_are_decided_again_on_the_new_head(
    harness: SequenceTable,
) -> None:
    steps = {number: SnapshotStep(operation=harness.append(number)) for number in (1, 2, 3)}

    def decide(table: Table) -> list[SnapshotStep]:
        taken = {1} if table.metadata.snapshots else set()
        return [step for number, step in steps.items() if number not in taken]

    inject(harness.session, [after(lambda: harness.append_elsewhere(1))])
    done = harness.decide(decide)

    assert harness.asked == 2
    assert harness.ids == [1, 2, 3]
    assert list(done.steps) == [steps[2], steps[3]]
    assert len(done.table.metadata.snapshots) == 3


def test_what_was_written_for_steps_that_fell_away_is_removed(harness: SequenceTable) -> None:
    steps = [SnapshotStep(operation=harness.append(number)) for number in (1, 2, 3)]

    def decide(table: Table) -> list[SnapshotStep]:
        return steps[1:] if table.metadata.snapshots else steps

    inject(harness.session, [after(lambda: harness.append_elsewhere(1))])
    harness.decide(decide)

    held = {
        name
        for snapshot in harness.pyiceberg.metadata.snapshots
        for name in [
            snapshot.manifest_list,
            *(item.manifest_path for item in snapshot.manifests(harness.pyiceberg.io)),
        ]
    }
    assert {Path(name).name for name in held} == {
        Path(name).name for name in harness.metadata_files()
    }


def test_when_nothing_is_left_to_do_nothing_is_committed(harness: SequenceTable) -> None:
    before = files_below(harness.warehouse)

    done = harness.decide(lambda _: [])

    assert (done.already, done.snapshot_ids, done.steps) == (True, (), ())
    assert files_below(harness.warehouse) == before


def test_when_nothing_is_left_after_a_conflict_its_manifests_go(harness: SequenceTable) -> None:
    step = SnapshotStep(operation=harness.append(1))
    inject(harness.session, [after(lambda: harness.append_elsewhere(1))])

    done = harness.decide(lambda table: [] if table.metadata.snapshots else [step])

    assert (done.already, done.snapshot_ids) == (True, ())
    assert harness.ids == [1]
    assert len(harness.metadata_files()) == 2


def test_a_guard_is_looked_for_on_the_first_attempt_too(harness: SequenceTable) -> None:
    guard = {"lake.run-id": "nightly"}
    marked = SnapshotStep(operation=harness.append(1), summary=guard)
    first = harness.decide(lambda _: [marked], guard=RunGuard("nightly"))

    again = harness.commit(harness.append(2), guard=RunGuard("nightly"))

    assert again.already
    assert again.snapshot_ids == first.snapshot_ids
    assert harness.ids == [1]


@pytest.mark.parametrize("attempt", range(3))
def test_steps_that_landed_and_were_reported_as_a_conflict_count_once(
    harness: SequenceTable, attempt: int
) -> None:
    refusal = CommitFailedException("409")
    inject(harness.session, [*[refused_with(refusal)] * attempt, applied_then(refusal)])

    done = harness.commit(harness.append(1), harness.append(2))

    assert harness.ids == [1, 2]
    assert len(done.snapshot_ids) == 2
    assert len(done.steps) == 2


def test_steps_that_are_refused_every_time_leave_no_manifest(harness: SequenceTable) -> None:
    inject(harness.session, [refused_with(CommitFailedException("409"))] * 5)

    with pytest.raises(CommitConflictError):
        harness.commit(harness.append(1), harness.append(2))

    assert harness.metadata_files() == set()
    assert harness.session.protected_files == set()


def test_an_unanswered_request_that_did_not_land_keeps_every_file(harness: SequenceTable) -> None:
    inject(harness.session, [refused_with(TimeoutError("no answer"))])

    with pytest.raises(CommitUnknownError) as caught:
        harness.commit(harness.append(1), harness.append(2))

    assert caught.value.operation_id
    assert len(harness.metadata_files()) == 4
    # Two data files, and what leads to them.
    assert len(harness.session.protected_files) == 6


def test_a_later_step_that_does_not_hold_lets_none_of_them_happen(harness: SequenceTable) -> None:
    gone = OverwriteFiles(
        added=[harness.file(2)], removed_paths=["nowhere.parquet"], base_snapshot_id=None
    )
    with pytest.raises(ConflictingFilesError):
        harness.commit(harness.append(1), gone)

    assert harness.ids == []
    assert harness.metadata_files() == set()


def test_many_steps_merge_their_manifests_as_single_commits_do(tmp_path: Path) -> None:
    harness = SequenceTable(tmp_path, commit__manifest__min_count_to_merge="5")

    done = harness.commit(*(harness.append(number) for number in range(12)))

    counts = [
        len(snapshot.manifests(harness.pyiceberg.io))
        for snapshot in harness.pyiceberg.metadata.snapshots
    ]
    assert counts == [1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3, 4]
    for number, snapshot_id in enumerate(done.snapshot_ids, 1):
        assert ids_in(tmp_path, snapshot_id=snapshot_id) == list(range(number))


def test_a_merge_after_a_conflict_has_the_numbers_of_the_attempt_that_landed(
    tmp_path: Path,
) -> None:
    harness = SequenceTable(tmp_path, commit__manifest__min_count_to_merge="3")
    inject(harness.session, [after(lambda: harness.append_elsewhere(100))])

    done = harness.commit(*(harness.append(number) for number in range(4)))

    assert harness.ids == [0, 1, 2, 3, 100]
    numbers = {
        entry.sequence_number
        for manifest in done.table.metadata.current_snapshot().manifests(harness.pyiceberg.io)
        for entry in manifest.fetch_manifest_entry(harness.pyiceberg.io)
    }
    assert numbers == {1, 2, 3, 4, 5}


def vector(target: str) -> DataFile:
    return DataFile(
        path=f"{target}.puffin",
        format="PUFFIN",
        content=1,
        spec_id=0,
        record_count=1,
        size_bytes=100,
        referenced_data_file=target,
        content_offset=4,
        content_size_bytes=40,
    )


def test_a_second_vector_for_a_file_is_refused_among_steps_too(tmp_path: Path) -> None:
    harness = SequenceTable(tmp_path, format_version="3")
    data = harness.file(1, 2)
    steps = [
        RowDelta(added=[data], deletes=[vector(data.path)], validates=False),
        RowDelta(added=[], deletes=[vector(data.path)], validates=False),
    ]

    with pytest.raises(ConflictingFilesError) as caught:
        harness.commit(*steps)

    assert caught.value.paths == {data.path}
    assert harness.metadata_files() == set()


def test_a_vector_may_take_the_place_of_the_step_befores(tmp_path: Path) -> None:
    harness = SequenceTable(tmp_path, format_version="3")
    data = harness.file(1, 2)
    first = vector(data.path)
    second = replace(first, path="new.puffin")

    done = harness.commit(
        RowDelta(added=[data], deletes=[first], validates=False),
        RowDelta(
            added=[],
            deletes=[second],
            replaced_deletes=[_key(first)],
            validates=False,
        ),
    )

    summary = done.table.metadata.current_snapshot().summary
    assert summary["total-delete-files"] == "1"
    assert (summary["added-dvs"], summary["removed-dvs"]) == ("1", "1")


def _key(file: DataFile) -> DeleteKey:
    return DeleteKey(file.path, file.content_offset)


def test_files_may_come_as_columns(tmp_path: Path) -> None:
    harness = SequenceTable(tmp_path, spec=BY_ID)
    files = [harness.file(number) for number in (1, 2)]
    columns = entry_tables(files, harness.table.metadata)

    done = harness.commit(AppendFiles(added=columns), AppendFiles(added=[harness.file(3)]))

    assert harness.ids == [1, 2, 3]
    summary = done.table.metadata.snapshots[0].summary
    assert summary["changed-partition-count"] == "2"


def test_partitions_are_replaced_without_validation_where_nothing_was_read(tmp_path: Path) -> None:
    harness = SequenceTable(tmp_path, spec=BY_ID)
    base = harness.commit(harness.append(1), harness.append(2)).snapshot_id
    harness.commit(harness.append(1))

    with pytest.raises(CommitConflictError):
        harness.commit(ReplacePartitions(added=[harness.file(1)], base_snapshot_id=base))
    done = harness.commit(ReplacePartitions(added=[harness.file(1)], validates=False))

    assert harness.ids == [1, 2]
    assert done.table.metadata.current_snapshot().summary["replace-partitions"] == "true"


def test_encrypted_files_and_unknown_specs_are_refused(harness: SequenceTable) -> None:
    (columns,) = entry_tables([harness.file(1)], harness.table.metadata)
    index = columns.entries.schema.get_field_index("key_metadata")
    locked = columns.entries.set_column(index, "key_metadata", pa.array([b"key"]))
    with pytest.raises(RefusedError, match="encrypted"):
        harness.commit(AppendFiles(added=[EntryTable(0, locked)]))
    with pytest.raises(BadInputError, match="no partition spec 7"):
        harness.commit(AppendFiles(added=[EntryTable(7, columns.entries)]))
    assert harness.metadata_files() == set()


@settings(max_examples=examples(8), deadline=None)
@given(kinds=st.lists(st.sampled_from(["append", "replace", "overwrite"]), min_size=1, max_size=6))
def test_steps_leave_what_the_same_commits_one_by_one_leave(
    tmp_path_factory: pytest.TempPathFactory, kinds: list[str]
) -> None:
    together = SequenceTable(
        tmp_path_factory.mktemp("together"), commit__manifest__min_count_to_merge="3"
    )
    alone = SequenceTable(
        tmp_path_factory.mktemp("alone"), commit__manifest__min_count_to_merge="3"
    )
    for harness in (together, alone):
        operations, live = [], []
        for number, kind in enumerate(kinds):
            file = harness.file(number)
            if kind == "append":
                operations.append(AppendFiles(added=[file]))
                live.append(file.path)
            elif kind == "replace":
                operations.append(ReplacePartitions(added=[file], validates=False))
                live = [file.path]
            else:
                operations.append(
                    OverwriteFiles(
                        added=[file],
                        removed_paths=live[:1],
                        base_snapshot_id=None,
                        isolation=SNAPSHOT,
                    )
                    if live
                    else AppendFiles(added=[file])
                )
                live = [*live[1:], file.path]
        if harness is together:
            harness.commit(*operations)
        else:
            for operation in operations:
                harness.commit(operation)
    summaries = []
    for harness in (together, alone):
        observed = []
        for snapshot in harness.table.metadata.snapshots:
            summary = dict(snapshot.summary.additional_properties)
            summary.pop("lake.operation-id")
            # Parquet files differ by a few bytes with their names.
            for key in [key for key in summary if "size" in key]:
                summary.pop(key)
            observed.append((snapshot.summary.operation, summary))
            observed.append(ids_in(harness.warehouse, snapshot_id=snapshot.snapshot_id))
        summaries.append(observed)
    assert summaries[0] == summaries[1]


def test_snapshots_of_one_commit_get_ids_of_their_own(
    harness: SequenceTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = iter([7, 7, 7, 8])
    monkeypatch.setattr(type(harness.session.ids), "snapshot_id", lambda _: next(drawn))

    done = harness.commit(*(AppendFiles(added=[write_file(harness.table, [n])]) for n in range(2)))

    assert done.snapshot_ids == (7, 8)
    assert ids_in(harness.warehouse) == [0, 1]
