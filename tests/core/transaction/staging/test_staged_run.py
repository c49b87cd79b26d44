"""Manifests of staged runs: read back as written, and never trusted beyond that."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import IdentityTransform
from support.faults.store_time import store_time_of_commands
from support.tables.iceberg_tables import (
    FixedClock,
    files_below,
    make_table,
    open_session,
    write_file,
)

from lake.core.base.errors import CommitConflictError, CommitUnknownError, RefusedError
from lake.core.base.process_identity import process_name
from lake.core.table.catalogs.sql import SqlBackend
from lake.core.table.flink.commits import job_id_of
from lake.core.table.manifests.data_files import EQUALITY_DELETES
from lake.core.table.snapshots.run_ids import OPERATION_ID
from lake.core.transaction import store_clock
from lake.core.transaction.staging.claims import (
    claim_available,
    claim_for_commit,
    discard_run,
    find_staged_run,
    remove_leftovers,
)
from lake.core.transaction.staging.staged_run import (
    RunMarks,
    StagedRun,
    find_run,
    manifest_locations,
    publish_manifests,
    remove_manifests,
)

OPERATION = "0a1b2c3d-0000-4000-8000-123456789abc"
MARKS = RunMarks(run_id="r", operation_id=OPERATION, written_ms=5)


@pytest.fixture
def session(warehouse: Path) -> Iterator[Any]:
    make_table(warehouse)
    with store_time_of_commands():
        yield open_session(warehouse, FixedClock())


def named(table: Any, ids: list[int], **changes: Any) -> Any:
    """A file with the operation's id in its name."""
    file = write_file(table, ids)
    path = file.path.replace(".parquet", f"-{OPERATION}.parquet")
    Path(file.path.removeprefix("file://")).rename(path.removeprefix("file://"))
    return replace(file, path=path, **changes)


def run_of(table: Any, **changes: Any) -> StagedRun:
    run = StagedRun(
        marks=MARKS,
        data=[named(table, [1, 2]), named(table, [3])],
        deletes=[named(table, [1], content=EQUALITY_DELETES, equality_ids=(1,))],
    )
    return replace(run, **changes)


def test_a_run_is_read_back_as_it_was_laid_down(session: Any) -> None:
    table = session.table("db.t")
    run = run_of(table)

    publish_manifests(table, run)

    assert find_run(table, "r") == run
    assert find_run(table, job_id_of("r")) == run
    assert find_run(table, "other") is None
    assert remove_manifests(table, "r") == []
    assert find_run(table, "r") is None


def test_partition_values_come_back(warehouse: Path) -> None:
    make_table(warehouse, spec=PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "name")))
    table = open_session(warehouse).table("db.t")
    parts = [(b"x",), (None,)]
    files = [replace(named(table, [n]), partition=part) for n, part in enumerate(parts)]

    publish_manifests(table, StagedRun(marks=MARKS, data=files))

    found = find_run(table, "r")
    assert found is not None
    assert [file.partition for file in found.data] == parts


def test_deletes_alone_are_a_whole_run(session: Any) -> None:
    table = session.table("db.t")
    run = run_of(table, data=[])

    publish_manifests(table, run)

    assert find_run(table, "r") == replace(run, data=[])


@settings(deadline=None)
@given(run_id=st.one_of(st.text(min_size=1), st.uuids().map(str), st.uuids().map(lambda u: u.hex)))
def test_every_id_has_one_place_and_its_own(run_id: str) -> None:
    job_id = job_id_of(run_id)

    assert len(job_id) == 32
    assert set(job_id) <= set("0123456789abcdef")
    assert job_id_of(job_id) == job_id
    assert job_id_of(f"{run_id} ") != job_id


@pytest.mark.parametrize("number", [0, 1])
def test_one_manifest_of_two_is_not_a_run(session: Any, number: int) -> None:
    table = session.table("db.t")
    publish_manifests(table, run_of(table))
    table.storage.delete([manifest_locations(table, "r")[number]])

    found = find_run(table, "r")

    assert found is not None
    assert found.problem is not None
    assert found.marks.operation_id == OPERATION


def test_a_manifest_of_another_run_in_its_place_is_not_taken_for_it(session: Any) -> None:
    table = session.table("db.t")
    publish_manifests(table, run_of(table, marks=replace(MARKS, run_id="other")))
    for theirs, own in zip(
        manifest_locations(table, "other"), manifest_locations(table, "r"), strict=True
    ):
        table.storage.write(own, table.storage.read(theirs))

    found = find_run(table, "r")

    assert found is not None
    assert found.marks.run_id == "r"


@pytest.mark.parametrize("odd", ["", "0", "..", "%", OPERATION.upper(), f"{OPERATION}x"])
def test_a_header_that_names_no_operation_has_no_file_deleted(session: Any, odd: str) -> None:
    table = session.table("db.t")
    publish_manifests(table, run_of(table, marks=replace(MARKS, operation_id=odd)))
    before = files_below(Path(table.metadata.location.removeprefix("file://")) / "data")

    found = find_staged_run(table, "r")
    assert found is not None
    gone = discard_run(session, table, found.marks)

    assert (gone.files, find_run(table, "r")) == (0, None)
    assert files_below(Path(table.metadata.location.removeprefix("file://")) / "data") == before


def test_a_claim_holds_a_withdrawal_back_until_its_block_ends(session: Any) -> None:
    table = session.table("db.t")
    publish_manifests(table, run_of(table))

    with claim_for_commit(session, table, [MARKS]):
        with pytest.raises(RefusedError):
            discard_run(session, table, MARKS)
    gone = discard_run(session, table, MARKS)

    assert gone.files == 3


def test_a_claim_whose_outcome_is_unknown_holds_it_back_for_ten_minutes(session: Any) -> None:
    table = session.table("db.t")
    publish_manifests(table, run_of(table))
    with pytest.raises(CommitUnknownError), claim_for_commit(session, table, [MARKS]):
        raise CommitUnknownError("504")

    with pytest.raises(RefusedError):
        discard_run(session, table, MARKS)
    session.clock.now += 10 * 60_000
    gone = discard_run(session, table, MARKS)

    assert gone.files == 3
    assert files_below(Path(table.metadata_folder.removeprefix("file://"))) == {
        Path(table.metadata_location).name
    }


def test_a_writer_on_another_machine_counts_for_ten_minutes(session: Any) -> None:
    table = session.table("db.t")
    marks = replace(MARKS, writer="elsewhere#1@1", written_ms=session.clock.now)
    publish_manifests(table, run_of(table, marks=marks))

    with pytest.raises(RefusedError):
        discard_run(session, table, marks)
    session.clock.now += 10 * 60_000
    assert discard_run(session, table, marks).files == 3


def test_a_claim_of_a_machine_whose_clock_is_behind_is_as_young_as_the_store_says(
    session: Any,
) -> None:
    table, now_ms = session.table("db.t"), session.clock.now
    marks = replace(MARKS, writer="elsewhere#1@1", written_ms=now_ms - 3_600_000)
    publish_manifests(table, run_of(table, marks=marks))
    path = manifest_locations(table, "r")[0].removeprefix("file://")
    os.utime(path, (now_ms / 1000, now_ms / 1000))

    with pytest.raises(RefusedError, match="may be being committed"):
        discard_run(session, table, marks)
    session.clock.now += 10 * 60_000
    assert discard_run(session, table, marks).files == 3


def test_a_machine_whose_clock_is_ahead_discards_no_run_that_another_machine_claimed(
    session: Any,
) -> None:
    table = session.table("db.t")
    marks = replace(MARKS, writer="elsewhere#1@1", written_ms=session.clock.now)
    publish_manifests(table, run_of(table, marks=marks))
    session.clock.now += 3_600_000

    with (
        patch.object(store_clock, "_ahead_ms", lambda *_: 3_600_000),
        pytest.raises(RefusedError, match="ahead of the clock of the store"),
    ):
        discard_run(session, table, marks)
    assert find_run(table, "r") is not None
    assert discard_run(session, table, marks).files == 3


def test_the_last_request_of_a_dead_writer_may_be_on_its_way_to_a_server(
    session: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = session.table("db.t")
    place, _, _ = process_name().partition("#")
    marks = replace(MARKS, writer=f"{place}#{2**22 + 1}@1", written_ms=session.clock.now)
    publish_manifests(table, run_of(table, marks=marks))
    monkeypatch.setattr(SqlBackend, "is_served", True)

    with pytest.raises(RefusedError):
        discard_run(session, table, marks)
    monkeypatch.setattr(SqlBackend, "is_served", False)
    assert discard_run(session, table, marks).files == 3


def test_a_run_that_is_withdrawn_or_being_withdrawn_is_not_committed(session: Any) -> None:
    table = session.table("db.t")
    with pytest.raises(CommitConflictError), claim_for_commit(session, table, [MARKS]):
        pytest.fail("there is nothing to commit")
    publish_manifests(table, run_of(table))
    table.storage.write(f"{table.metadata_folder}/lake-withdrawal-{job_id_of('r')}", b"")

    with pytest.raises(CommitConflictError), claim_for_commit(session, table, [MARKS]):
        pytest.fail("it is being withdrawn")

    found = find_staged_run(table, "r")
    assert found is not None
    assert found.problem is not None


def test_a_run_that_was_discarded_and_written_again_is_not_the_one_that_was_read(
    session: Any,
) -> None:
    table = session.table("db.t")
    publish_manifests(table, run_of(table))
    discard_run(session, table, MARKS)
    again = replace(MARKS, operation_id="00000000-0000-4000-8000-000000000002")
    publish_manifests(table, run_of(table, marks=again))

    with pytest.raises(CommitConflictError, match="written again"):
        with claim_for_commit(session, table, [MARKS]):
            pytest.fail("its files are deleted")
    with claim_available(session, table, [MARKS]) as there:
        assert there == frozenset()

    with claim_available(session, table, [again]) as there:
        assert there == {"r"}
    with claim_for_commit(session, table, [again]):
        pass


def test_what_a_snapshot_holds_is_spared(session: Any) -> None:
    from lake.core.transaction.commit.commit import CommitRequest, commit_snapshot
    from lake.core.transaction.commit.operations import AppendFiles

    table = session.table("db.t")
    run = run_of(table)
    publish_manifests(table, run)
    operation_id = str(uuid.uuid4())
    commit_snapshot(
        session, table, AppendFiles(added=run.data[:1]), CommitRequest(operation_id=operation_id)
    )
    # Only the table shows it: this process forgets that it was its own commit.
    session.protected_files.clear()

    gone = discard_run(session, session.table("db.t"), MARKS)

    assert (gone.committed, gone.files) == (1, 2)
    assert Path(run.data[0].path.removeprefix("file://")).exists()
    summary = session.table("db.t").metadata.snapshots[0].summary
    assert summary.additional_properties[OPERATION_ID] == operation_id


@pytest.mark.parametrize("ended", ["withdrawn", "cleared"])
def test_metadata_that_a_snapshot_uses_outlives_the_run_it_is_named_after(
    session: Any, ended: str
) -> None:
    from lake.core.transaction.commit.commit import CommitRequest, commit_snapshot
    from lake.core.transaction.commit.operations import AppendFiles

    table = session.table("db.t")
    run = run_of(table)
    publish_manifests(table, run)
    # The run landed long ago; its files are compacted away, but what it merged is live.
    commit_snapshot(
        session,
        table,
        AppendFiles(added=[write_file(table, [9])]),
        CommitRequest(operation_id=OPERATION),
    )
    folder = Path(table.metadata_folder.removeprefix("file://"))
    (folder / f"{OPERATION}-m7.avro").write_bytes(b"nobody's")
    live = {path.name for path in folder.glob(f"*{OPERATION}*")} - {f"{OPERATION}-m7.avro"}
    table = session.table("db.t")

    if ended == "withdrawn":
        discard_run(session, table, MARKS)
    else:
        remove_leftovers(table, run, by_other=True)

    assert {path.name for path in folder.glob(f"*{OPERATION}*")} == live
    assert len(live) == 2
    assert find_run(table, "r") is None
