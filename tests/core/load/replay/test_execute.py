"""A replay leaves what Flink's own restore would have left, once, even if two processes replay the same."""

from __future__ import annotations

import subprocess
import sys
import threading
import uuid
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyiceberg.exceptions import CommitFailedException
from support.cli.command_line import CommandLine
from support.tables.flink_fixtures import FlinkFixture, canonical_rows, lent, names, shared
from support.tables.iceberg_tables import (
    FixedClock,
    after,
    files_below,
    ids_in,
    inject,
    make_table,
    open_session,
    pyiceberg_table,
    refused_with,
    write_file,
)
from support.tables.replay_plans import (
    JOB,
    OPERATOR,
    checkpoint,
    plan,
    plan_of,
    session_on,
    temporary_manifest,
    write_manifest,
)

from lake.core.base.errors import (
    CommitConflictError,
    CommitUnknownError,
    ConflictingFilesError,
    StorageError,
)
from lake.core.base.outcome import Outcome, Status
from lake.core.load.replay.execute import execute
from lake.core.load.replay.facts import ReplayResult
from lake.core.load.replay.model import COMMITTED_LEFTOVER, UNPROVEN, FoundCheckpoint, ReplayPlan
from lake.core.table.catalogs import pyiceberg_patches
from lake.core.table.catalogs.catalog import Table
from lake.core.table.flink.state import FLINK_SINK, ICEBERG_SINK
from lake.core.table.manifests.data_files import DataFile
from lake.core.table.snapshots import ancestry
from lake.core.transaction.commit.commit import CommitRequest, commit_snapshot
from lake.core.transaction.commit.operations import AppendFiles
from lake.core.transaction.session import Session

TESTS = Path(__file__).parents[3]


def _pending() -> list[str]:
    found = []
    for name in names():
        with shared(name) as fixture:
            if any(item["must_replay"] for item in fixture.truth["temp_manifests"]):
                found.append(name)
    return found


# What Flink says of a commit that lake says in other words, or that depends on how manifests were merged.
_OTHERWISE = {"operation", "files"}


@pytest.mark.parametrize("name", _pending())
def test_a_replay_makes_the_snapshots_that_flink_made(name: str) -> None:
    with lent(name) as fixture:
        session = session_on(fixture)
        before = session.table(fixture.table).metadata
        plan = plan_of(session, fixture, replace_partitions=name.startswith("f"))

        outcome = execute(session, plan)

        assert outcome.status is Status.DONE
        after = session.table(fixture.table).metadata
        made = list(ancestry.ancestors(after, after.current_snapshot_id))[::-1]
        made = made[len(list(ancestry.ancestors(before, before.current_snapshot_id))) :]
        assert [snapshot.snapshot_id for snapshot in made] == list(outcome.snapshot_ids)
        flinks: list[dict[str, Any]] = fixture.truth["flink_restore_on_a_copy"]["new_snapshots"]
        for snapshot, flink in zip(made, flinks, strict=True):
            assert snapshot.summary is not None
            assert snapshot.summary.operation.value == flink["operation"]
            ours = snapshot.summary.additional_properties
            common = {key: value for key, value in flink.items() if key not in _OTHERWISE}
            assert {key: ours.get(key) for key in common} == common


def _rows(fixture: FlinkFixture, folder: Path) -> list[str]:
    output = folder / "rows.parquet"
    lake = CommandLine(fixture.warehouse, catalog_type=fixture.catalog_type)
    lake.ok("scan", fixture.table, "--output", output, "--replace")
    return canonical_rows(pq.read_table(output))


def _must_replay(fixture: FlinkFixture) -> dict[bool, list[Path]]:
    found: dict[bool, list[Path]] = {True: [], False: []}
    for item in fixture.truth["temp_manifests"]:
        found[item["must_replay"]].append(Path(item["path"]))
    return found


@pytest.mark.parametrize("name", _pending())
def test_the_rows_are_all_there_once_and_a_second_replay_finds_nothing_to_do(
    name: str, tmp_path: Path
) -> None:
    with lent(name) as fixture:
        session = session_on(fixture)
        planned = plan_of(session, fixture, replace_partitions=name.startswith("f"))

        first = execute(session, planned)
        again = execute(session_on(fixture), planned)

        assert (first.status, again.status) == (Status.DONE, Status.NOTHING_TO_DO)
        assert again.snapshot_ids == ()
        assert _rows(fixture, tmp_path) == fixture.rows("full")
        manifests = _must_replay(fixture)
        assert [path for path in manifests[True] if path.exists()] == []
        assert [path for path in manifests[False] if not path.exists()] == []
        files = sum(item.data_files + item.delete_files for item in planned.found)
        data_files = ReplayResult.of(first.result).data_files
        assert first.result == ReplayResult(
            committed_checkpoints=len(planned.found),
            data_files=data_files,
            delete_files=files - data_files,
        )


_RACER = """
import sys, time
from support.tables.flink_fixtures import FlinkFixture
from support.tables.replay_plans import plan_of, session_on
from lake.core.load.replay.execute import execute
fixture = FlinkFixture(sys.argv[1])
session = session_on(fixture)
plan = plan_of(session, fixture)
print("ready", flush=True)
sys.stdin.readline()
print(execute(session, plan).status, flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["c2-upsert-part", "c3-upsert-v3", "j-partial", "b2-append-pending"]
)
def test_processes_that_replay_the_same_at_once_commit_once(name: str, tmp_path: Path) -> None:
    with lent(name) as fixture:
        racers = [
            subprocess.Popen(
                [sys.executable, "-c", _RACER, name],
                cwd=TESTS,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for _ in range(3)
        ]
        for racer in racers:
            assert racer.stdout is not None
            assert racer.stdout.readline() == "ready\n"
        statuses = []
        for racer in racers:
            assert racer.stdin is not None
            racer.stdin.write("\n")
            racer.stdin.flush()
        for racer in racers:
            assert racer.stdout is not None
            statuses.append(racer.stdout.read().strip())
            assert racer.wait(60) == 0

        assert sorted(statuses) == ["done", "nothing-to-do", "nothing-to-do"]
        assert _rows(fixture, tmp_path) == fixture.rows("full")


class Job:
    """A table with the pending checkpoints of a job, each a row with the checkpoint's number."""

    def __init__(self, warehouse: Path, **properties: str) -> None:
        pyiceberg_patches.apply()
        self.warehouse = warehouse
        make_table(warehouse, **properties)
        self.clock = FixedClock()
        self.session = self.open()
        self.counter = 0

    def open(self) -> Session:
        return open_session(self.warehouse, self.clock)

    @property
    def table(self) -> Table:
        return self.open().table("db.t")

    def take(
        self, number: int, *files: DataFile, folder: str | None = None, **more: Any
    ) -> FoundCheckpoint:
        """Leave a checkpoint's manifests; without files, one data file."""
        table, manifests = self.table, []
        for deletes in (False, True):
            part = [
                file
                for file in files or [write_file(table, [number])]
                if (file.content != 0) == deletes
            ]
            if part:
                self.counter += 1
                path = write_manifest(
                    table, part, checkpoint_id=number, counter=self.counter, folder=folder
                )
                manifests.append(temporary_manifest(table, Path(path.removeprefix("file://"))))
        return checkpoint(number, manifests, **more)

    def commit_as(self, number: int, *taken: FoundCheckpoint, **more: str) -> None:
        """Let another process commit checkpoints in the job's name, as the restarted job does."""
        session = self.open()
        execute(session, plan(session.table("db.t"), taken, sink=ICEBERG_SINK))
        assert self.labels[-1] == str(number)

    def append(self, *ids: int) -> None:
        session = self.open()
        table = session.table("db.t")
        operation = AppendFiles(added=[write_file(table, ids)])
        commit_snapshot(session, table, operation, CommitRequest(operation_id=str(uuid.uuid4())))

    def replay(self, *taken: FoundCheckpoint, **more: Any) -> Outcome:
        return execute(self.session, self.plan(*taken, **more))

    def plan(self, *taken: FoundCheckpoint, **more: Any) -> ReplayPlan:
        return plan(self.session.table("db.t"), taken, **more)

    @property
    def labels(self) -> list[str | None]:
        """The checkpoint that each snapshot of the table is labelled with."""
        snapshots = pyiceberg_table(self.warehouse).metadata.snapshots
        return [
            item.summary.additional_properties.get("flink.max-committed-checkpoint-id")
            for item in snapshots
            if item.summary
        ]

    @property
    def ids(self) -> list[int]:
        return ids_in(self.warehouse)

    @property
    def left(self) -> list[str]:
        """The temporary manifests that are still there."""
        return sorted(name for name in files_below(self.warehouse) if JOB in name)


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)


def test_a_replay_after_other_commits_in_between_is_made_on_them(job: Job) -> None:
    taken = [job.take(4), job.take(5)]
    inject(job.session, [after(lambda: job.append(100)), after(lambda: job.append(101))])

    outcome = job.replay(*taken)

    assert job.ids == [4, 5, 100, 101]
    assert job.labels == [None, None, "5"]
    assert len(outcome.snapshot_ids) == 1


def test_checkpoints_that_the_job_commits_meanwhile_are_left_to_it(job: Job) -> None:
    taken = [job.take(4), job.take(5), job.take(6)]
    inject(job.session, [after(lambda: job.commit_as(4, taken[0]))])

    outcome = job.replay(*taken)

    assert job.ids == [4, 5, 6]
    assert job.labels == ["4", "6"]
    result = ReplayResult.of(outcome.result)
    assert (result.committed_checkpoints, result.skipped_checkpoints) == (2, 1)
    assert job.left == []


def test_when_the_job_commits_all_of_them_meanwhile_nothing_is_done(job: Job) -> None:
    taken = [job.take(4), job.take(5)]
    inject(job.session, [after(lambda: job.commit_as(5, *taken))])

    outcome = job.replay(*taken)

    assert outcome.status is Status.NOTHING_TO_DO
    assert ReplayResult.of(outcome.result).committed_checkpoints == 0
    assert job.ids == [4, 5]
    assert job.labels == ["4", "5"]


def test_another_operator_or_job_with_the_same_numbers_proves_nothing(job: Job) -> None:
    taken = [job.take(4)]
    elsewhere = [job.take(9, operator_id="c" * 32), job.take(9, job_id="d" * 32)]
    job.replay(*elsewhere)

    assert job.replay(*taken).status is Status.DONE
    assert job.ids == [4, 9, 9]


def test_an_unproven_checkpoint_is_known_by_its_files_not_its_number(job: Job) -> None:
    job.commit_as(8, job.take(8))
    lost = job.take(3, state=UNPROVEN)
    stale = job.plan(lost)
    other = job.open()

    assert execute(other, plan(other.table("db.t"), [lost])).status is Status.DONE
    again = execute(job.session, stale)

    assert again.status is Status.NOTHING_TO_DO
    assert job.ids == [3, 8]
    assert job.labels == ["8", "8"]


def test_an_unproven_checkpoint_that_the_job_passed_meanwhile_is_left_out(job: Job) -> None:
    unproven = job.take(5, state=UNPROVEN)
    stale = job.plan(unproven)
    job.commit_as(6, job.take(6))

    assert execute(job.session, stale).status is Status.NOTHING_TO_DO
    assert job.ids == [6]


def test_half_a_checkpoint_committed_by_someone_meanwhile_is_a_conflict(job: Job) -> None:
    first, second = (write_file(job.table, [number]) for number in (1, 2))
    unproven = job.take(5, first, second, state=UNPROVEN)

    def add_one() -> None:
        session = job.open()
        commit_snapshot(
            session,
            session.table("db.t"),
            AppendFiles(added=[first]),
            CommitRequest(operation_id=str(uuid.uuid4())),
        )

    inject(job.session, [after(add_one)])
    with pytest.raises(CommitConflictError, match="a part of checkpoint 5"):
        job.replay(unproven)

    assert job.ids == [1]
    assert len(job.left) == 1


def test_files_that_came_and_went_meanwhile_are_not_committed_again(job: Job) -> None:
    file = write_file(job.table, [1])
    unproven = job.take(5, file, state=UNPROVEN)
    stale = job.plan(unproven)
    session = job.open()
    table = session.table("db.t")
    commit_snapshot(
        session, table, AppendFiles(added=[file]), CommitRequest(operation_id=str(uuid.uuid4()))
    )
    pyiceberg_table(job.warehouse).delete("id == 1")

    assert execute(job.session, stale).status is Status.NOTHING_TO_DO
    assert job.ids == []


def test_a_rollback_of_the_branch_meanwhile_is_a_conflict(job: Job) -> None:
    job.append(1)
    start = job.table.metadata.current_snapshot_id
    job.append(2)
    taken = job.take(5)

    def roll_back() -> None:
        table = pyiceberg_table(job.warehouse)
        table.manage_snapshots().rollback_to_snapshot(start or 0).commit()

    inject(job.session, [after(roll_back)])
    with pytest.raises(CommitConflictError, match="rolled back"):
        job.replay(taken)

    assert job.ids == [1]
    assert len(job.left) == 1


def test_threads_that_replay_the_same_plan_commit_once(job: Job) -> None:
    planned = job.plan(*[job.take(number, state=UNPROVEN) for number in range(1, 6)])
    gate = threading.Barrier(4)
    statuses: list[Status] = []

    def race() -> None:
        session = job.open()
        session.catalog.handle  # noqa: B018 - opened before the start
        gate.wait()
        statuses.append(execute(session, planned).status)

    threads = [threading.Thread(target=race) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(statuses) == [Status.DONE, *[Status.NOTHING_TO_DO] * 3]
    assert job.ids == [1, 2, 3, 4, 5]


def test_an_unknown_outcome_removes_nothing(job: Job) -> None:
    taken = [job.take(4), job.take(5)]
    before = files_below(job.warehouse)
    inject(job.session, [refused_with(TimeoutError("no answer"))])

    with pytest.raises(CommitUnknownError):
        job.replay(*taken)

    assert before <= files_below(job.warehouse)
    assert len(job.left) == 2


def test_a_replay_refused_every_time_leaves_all_as_it_was(job: Job) -> None:
    taken = [job.take(4), job.take(5)]
    before = files_below(job.warehouse)
    inject(job.session, [refused_with(CommitFailedException("409"))] * 5)

    with pytest.raises(CommitConflictError):
        job.replay(*taken)

    assert files_below(job.warehouse) == before


def test_manifests_at_a_configured_place_are_removed_and_others_elsewhere_stay(
    tmp_path: Path,
) -> None:
    shared_folder = tmp_path / "flink/manifests"
    job = Job(tmp_path / "warehouse", flink__manifests__location=f"file://{shared_folder}")
    elsewhere = tmp_path / "elsewhere/metadata"
    taken = [
        job.take(1, folder=f"file://{shared_folder}"),
        job.take(2, folder=f"file://{elsewhere}"),
    ]

    job.replay(*taken)

    assert list(shared_folder.iterdir()) == []
    assert len(list(elsewhere.iterdir())) == 1
    (warning,) = job.session.warnings
    assert f"1 files could not be removed, e.g. {elsewhere}/" in warning
    assert job.ids == [1, 2]


def test_a_live_manifest_that_a_checkpoint_names_is_not_removed(job: Job) -> None:
    job.replay(job.take(1))
    (live,) = (job.warehouse / "db/t/metadata").glob("*-m0.avro")
    named = temporary_manifest(job.table, live)

    job.replay(checkpoint(1, [named], state=COMMITTED_LEFTOVER))

    assert live.exists()
    assert job.ids == [1]


def test_a_manifest_that_cannot_be_removed_is_a_warning(job: Job) -> None:
    taken = job.take(1)
    manifest = Path(taken.manifests[0].path)
    manifest.unlink()
    manifest.mkdir()

    assert job.replay(taken).status is Status.DONE
    assert "could not be removed" in job.session.warnings[0]


@pytest.mark.parametrize("state", [None, COMMITTED_LEFTOVER])
def test_remains_that_cannot_be_searched_for_are_a_warning(
    job: Job, monkeypatch: pytest.MonkeyPatch, state: str | None
) -> None:
    if state is not None:
        job.replay(job.take(1))
    left = job.take(1, **({} if state is None else {"state": state}))

    def gone(*_: Any) -> Any:
        raise StorageError("the storage is gone")

    with monkeypatch.context() as patch:
        patch.setattr("lake.core.load.replay.execute.remove_committed", gone)
        status = job.replay(left).status

    assert status is (Status.DONE if state is None else Status.NOTHING_TO_DO)
    assert "the storage is gone" in job.session.warnings[0]
    assert job.ids == [1]


def test_a_vector_for_a_file_that_has_one_already_is_a_conflict(tmp_path: Path) -> None:
    job = Job(tmp_path, format_version="3")
    data = write_file(job.table, [1, 2])

    def vector(name: str) -> DataFile:
        return DataFile(
            path=f"{job.table.data_location}/{name}",
            format="PUFFIN",
            content=1,
            spec_id=0,
            record_count=1,
            size_bytes=100,
            referenced_data_file=data.path,
            content_offset=4,
            content_size_bytes=40,
        )

    job.replay(job.take(1, data, vector("first")))
    second = job.take(2, vector("second"))

    with pytest.raises(ConflictingFilesError):
        job.replay(second)
    assert len(job.left) == 1


def test_a_job_on_a_branch_is_replayed_there(job: Job) -> None:
    job.append(1)
    table = pyiceberg_table(job.warehouse)
    head = table.metadata.current_snapshot_id
    table.manage_snapshots().create_branch(snapshot_id=head, branch_name="flink").commit()

    outcome = job.replay(job.take(4), branch="flink")

    assert outcome.base_snapshot_id == head
    assert job.ids == [1]
    assert ids_in(job.warehouse, snapshot_id=outcome.snapshot_ids[0]) == [1, 4]


def test_several_jobs_are_replayed_in_one_request(job: Job) -> None:
    taken = [
        job.take(4),
        job.take(5),
        job.take(7, job_id="d" * 32),
        job.take(8, operator_id="e" * 32),
    ]

    outcome = job.replay(*taken, sink=FLINK_SINK)

    assert job.labels == ["5", "7", "8"]
    assert len(outcome.snapshot_ids) == 3
    assert len(job.table.metadata.metadata_log) == 1


def test_a_plan_without_jobs_changes_nothing(job: Job) -> None:
    taken = job.take(4)
    listing = ReplayPlan(
        table=job.session.table("db.t"), branch="main", base_snapshot_id=None, found=(taken,)
    )

    outcome = execute(job.session, listing)

    assert outcome.status is Status.NOTHING_TO_DO
    assert ReplayResult.of(outcome.result).skipped_checkpoints == 1
    assert job.labels == []


def test_a_staged_ingest_that_was_finished_otherwise_is_not_committed(job: Job) -> None:
    staged = job.take(1, run="nightly")
    stale = job.plan(staged)
    session = job.open()
    table = session.table("db.t")
    commit_snapshot(
        session,
        table,
        AppendFiles(added=[write_file(table, [1])]),
        CommitRequest(operation_id=str(uuid.uuid4())),
        summary={"lake.run-id": "nightly"},
    )

    assert execute(job.session, stale).status is Status.NOTHING_TO_DO
    assert job.ids == [1]
    assert OPERATOR in job.left[0]
