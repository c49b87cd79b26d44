"""Staged ingests in `lake replay`: listed, and committed once, by one process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import LongType, NestedField, StringType
from support.cli.command_line import CommandLine
from support.tables.iceberg_tables import ids_in, make_table, pyiceberg_table

from lake.core.base.process_identity import process_name
from lake.core.table.flink.commits import job_id_of

KEYED = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "name", StringType(), required=False),
    identifier_field_ids=[1],
)
BY_BUCKET = PartitionSpec(PartitionField(1, 1000, BucketTransform(4), "b"))


@pytest.fixture
def staged(lake: CommandLine, tmp_path: Path) -> CommandLine:
    """A table with a run of the id ``r1``, written and not committed."""
    make_table(lake.warehouse)
    source = tmp_path / "rows.csv"
    source.write_text("id,name\n1,a\n2,b\n")
    lake.ok("ingest", "db.t", source, "--stage", "--run-id", "r1")
    return lake


def manifests(lake: CommandLine) -> list[Path]:
    return sorted((lake.warehouse / "db/t/metadata").glob("*-*-00000-0-1-0000?.avro"))


def test_a_staged_run_is_listed_with_how_it_is_called(staged: CommandLine) -> None:
    (found,) = staged.ok("replay", "db.t")["plan"]["checkpoints"]

    assert (found["state"], found["checkpoint_id"]) == ("pending", "1")
    assert (found["data_files"], found["rows"]) == (1, 2)
    assert "run r1" in found["reason"]
    assert "replay db.t --all-staged\n" in staged("replay", "db.t").stderr


def test_a_staged_run_is_committed_once_though_it_is_young(staged: CommandLine) -> None:
    first = staged.ok("replay", "db.t", "--job", "r1", "--completed", 1)
    second = staged.ok("replay", "db.t", "--job", "r1", "--completed", 1)

    assert (first["status"], first["result"]["committed_checkpoints"]) == ("done", 1)
    assert (second["status"], second["snapshot_ids"]) == ("nothing-to-do", [])
    assert ids_in(staged.warehouse) == [1, 2]
    assert manifests(staged) == []
    # The run's id is in the table: an ingest of that id has nothing to do either.
    again = staged.ok("ingest", "db.t", "/nowhere.csv", "--run-id", "r1")
    assert again["status"] == "nothing-to-do"


def test_what_a_killed_replay_left_of_a_committed_run_goes_with_the_next(
    staged: CommandLine,
) -> None:
    left = {path: path.read_bytes() for path in manifests(staged)}
    staged.ok("replay", "db.t", "--job", "r1", "--completed", 1)
    for path, data in left.items():
        path.write_bytes(data)
    (first,) = left
    claim = first.parent / f"lake-commit-{first.name[:32]}-killed"
    claim.write_text('{"process": "", "written_at_ms": 0}')

    listed = staged.ok("replay", "db.t")
    assert [item["state"] for item in listed["plan"]["checkpoints"]] == ["committed-leftover"]
    assert manifests(staged) == list(left)
    again = staged.ok("replay", "db.t", "--job", "r1", "--completed", 1)

    assert (again["status"], again["snapshot_ids"]) == ("nothing-to-do", [])
    assert (manifests(staged), claim.exists()) == ([], False)
    assert ids_in(staged.warehouse) == [1, 2]


@pytest.mark.parametrize("text", ["", "[]", '{"process": "x"}', "[" * 4000])
def test_a_claim_without_an_owner_does_not_stop_a_discard(staged: CommandLine, text: str) -> None:
    (first,) = manifests(staged)
    claim = first.parent / f"lake-commit-{first.name[:32]}-odd"
    claim.write_text(text)

    document = staged.ok("ingest", "db.t", "--discard", "r1")

    assert (document["status"], manifests(staged), claim.exists()) == ("done", [], False)


def test_a_staged_run_goes_by_its_job_id_as_well(staged: CommandLine) -> None:
    (found,) = staged.ok("replay", "db.t")["plan"]["checkpoints"]

    document = staged.ok("replay", "db.t", "--job", found["job_id"], "--completed", 1)

    assert document["status"] == "done"


@pytest.mark.slow
def test_two_processes_commit_a_staged_run_once(staged: CommandLine) -> None:
    arguments = ("--json", "replay", "db.t", "--job", "r1", "--completed", "1")
    running = [staged.start(*arguments) for _ in range(2)]
    ends = [process.communicate() for process in running]

    assert [process.returncode for process in running] == [0, 0], ends
    statuses = sorted(json.loads(stdout)["status"] for stdout, _ in ends)
    assert statuses == ["done", "nothing-to-do"]
    assert ids_in(staged.warehouse) == [1, 2]


def test_a_staged_run_is_committed_to_no_other_branch(lake: CommandLine, tmp_path: Path) -> None:
    table = make_table(lake.warehouse)
    source = tmp_path / "rows.csv"
    source.write_text("id,name\n1,a\n")
    lake.ok("ingest", "db.t", source)
    table = table.refresh()
    table.manage_snapshots().create_branch(table.current_snapshot().snapshot_id, "b").commit()
    lake.ok("ingest", "db.t", source, "--stage", "--run-id", "r1", "--branch", "b")

    (found,) = lake.ok("replay", "db.t")["plan"]["checkpoints"]
    refusal = lake("replay", "db.t", "--job", "r1", "--completed", 1)
    assert (found["state"], refusal.exit_code) == ("foreign", 3), refusal
    assert "run r1 is for branch b" in refusal.stderr

    document = lake.ok("replay", "db.t", "--job", "r1", "--completed", 1, "--branch", "b")
    assert (document["status"], document["branch"]) == ("done", "b")
    assert ids_in(lake.warehouse) == [1]


def test_a_discarded_run_is_nothing_to_replay(staged: CommandLine) -> None:
    staged.ok("ingest", "db.t", "--discard", "r1")

    assert staged.ok("replay", "db.t")["plan"]["checkpoints"] == []
    result = staged("replay", "db.t", "--job", "r1", "--completed", 1)
    assert (result.exit_code, "no job wrote to the table" in result.stderr) == (7, True), result


def test_a_run_without_all_its_manifests_is_broken(lake: CommandLine, tmp_path: Path) -> None:
    make_table(lake.warehouse)
    source = tmp_path / "rows.csv"
    source.write_text("id,name\n1,a\n1,b\n")
    lake.ok(
        *("ingest", "db.t", source, "--stage", "--run-id", "r1"),
        *("--upsert", "--key", "id", "--deletes", "equality"),
    )
    paths = manifests(lake)
    assert len(paths) == 2
    paths[1].unlink()

    (found,) = lake.ok("replay", "db.t")["plan"]["checkpoints"]
    result = lake("replay", "db.t", "--job", "r1", "--completed", 1)

    assert (found["state"], result.exit_code) == ("broken", 3)
    assert ids_in(lake.warehouse) == []


@pytest.mark.parametrize(
    "finish",
    [
        ["replay", "db.t", "--job", "r1", "--completed", "1"],
        ["ingest", "db.t", "/nowhere.csv", "--changes-column", "op", "--changes-mode", "upsert"],
    ],
    ids=["replay", "ingest"],
)
def test_staged_deletes_conflict_with_rows_of_a_spec_that_they_do_not_reach(
    lake: CommandLine, tmp_path: Path, finish: list[str]
) -> None:
    made = make_table(lake.warehouse, schema=KEYED, spec=BY_BUCKET)
    log = tmp_path / "log.csv"
    log.write_text("op,id,name\n+U,1,ours\n")
    change = ["--changes-column", "op", "--changes-mode", "upsert"]
    lake.ok("ingest", "db.t", log, *change, "--stage", "--run-id", "r1")
    with made.update_spec() as update:
        update.remove_field("b")
        update.add_field("id", BucketTransform(8), "b8")
    log.write_text("op,id,name\n+I,1,theirs\n")
    lake.ok("ingest", "db.t", log, *change)

    failed = lake(*finish, *(["--run-id", "r1"] if finish[0] == "ingest" else []))

    assert failed.exit_code in {3, 4}, failed.stderr
    assert lake.ok("scan", "db.t")["result"]["preview"] == [{"id": 1, "name": "theirs"}]
    assert lake.ok("replay", "db.t")["plan"]["checkpoints"][0]["state"] == "pending"


NOTHING = "nothing-to-do"
ALL = ("replay", "db.t", "--all-staged")


def stage(lake: CommandLine, run_id: str, text: str, *more: str) -> None:
    """Stage rows of CSV as a run; the table has the columns id and name."""
    source = lake.warehouse.parent / f"{run_id}.csv"
    source.write_text(text)
    lake.ok("ingest", "db.t", source, "--stage", "--run-id", run_id, *more)


def rows_of(lake: CommandLine) -> list[tuple[int, str]]:
    return sorted((row["id"], row["name"]) for row in lake.rows())


CHANGES = ("--changes-column", "op", "--changes-mode", "upsert")


def test_all_staged_appends_are_one_snapshot_that_lists_their_runs(staged: CommandLine) -> None:
    stage(staged, "r2", "id,name\n3,c\n")
    stage(staged, "r3", "id,name\n4,d\n")

    preview = staged.ok(*ALL, "--dry-run")
    done = staged.ok(*ALL)
    again = staged.ok(*ALL)

    assert (preview["status"], preview["plan"]["pending"]) == ("dry-run", 3)
    assert preview["plan"]["left_runs"] == []
    assert (done["status"], len(done["snapshot_ids"])) == ("done", 1)
    assert done["result"]["committed_runs"] == ["r1", "r2", "r3"]
    assert (again["status"], again["snapshot_ids"]) == ("nothing-to-do", [])
    table = pyiceberg_table(staged.warehouse)
    (snapshot,) = table.metadata.snapshots
    assert snapshot.summary is not None
    assert snapshot.summary.operation.value == "append"
    assert json.loads(snapshot.summary["lake.run-ids"]) == ["r1", "r2", "r3"]
    assert rows_of(staged) == [(1, "a"), (2, "b"), (3, "c"), (4, "d")]
    assert manifests(staged) == []


def test_each_run_of_a_common_snapshot_is_recognised_also_after_that_expired(
    staged: CommandLine,
) -> None:
    stage(staged, "r2", "id,name\n3,c\n")
    staged.ok(*ALL)
    before = rows_of(staged)

    for run_id in ("r1", "r2"):
        assert staged.ok("ingest", "db.t", "/x.csv", "--run-id", run_id)["status"] == NOTHING
    stage(staged, "r3", "id,name\n5,e\n")
    staged.ok(*ALL)
    staged.ok("compact", "db.t", "--rewrite-all")
    expire = ("expire", "db.t", "--older-than", "0s", "--unsafe-retention", "--retain-last", "1")
    staged.ok(*expire)

    for run_id in ("r1", "r2", "r3"):
        assert staged.ok("ingest", "db.t", "/x.csv", "--run-id", run_id)["status"] == NOTHING
    assert rows_of(staged) == [*before, (5, "e")]


def test_staged_deletes_apply_to_the_runs_written_before_them_only(lake: CommandLine) -> None:
    make_table(lake.warehouse, schema=KEYED)
    stage(lake, "r1", "id,name\n1,old\n2,old\n")
    stage(lake, "r2", "op,id,name\n+U,1,new\n-D,2,\n", *CHANGES)
    stage(lake, "r3", "id,name\n2,again\n")
    stage(lake, "r4", "op,id,name\n+I,3,x\n", *CHANGES)

    done = lake.ok(*ALL)

    assert done["result"]["committed_runs"] == ["r1", "r2", "r3", "r4"]
    assert len(done["snapshot_ids"]) == 4
    preview = lake.ok("scan", "db.t")["result"]["preview"]
    assert sorted((row["id"], row["name"]) for row in preview) == [
        (1, "new"),
        (2, "again"),
        (3, "x"),
    ]
    table = lake.table()
    assert len(table.metadata.metadata_log) == 1


def test_broken_and_claimed_runs_are_reported_and_left(staged: CommandLine) -> None:
    stage(staged, "r2", "id,name\n3,c\n")
    stage(staged, "r3", "id,name\n4,d\n")
    folder = staged.warehouse / "db/t/metadata"
    claim = folder / f"lake-commit-{job_id_of('r2')}-00000000-0000-0000-0000-000000000000"
    claim.write_text(json.dumps({"process": process_name(), "written_at_ms": 0}))
    (broken,) = folder.glob(f"{job_id_of('r3')}-*.avro")
    broken.write_bytes(broken.read_bytes()[:100])

    preview = staged.ok(*ALL, "--dry-run")
    done = staged("--json", *ALL)

    assert done.exit_code == 6
    document = done.json()
    assert document["status"] == "partial"
    assert document["result"]["committed_runs"] == ["r1"]
    left = document["result"]["left_runs"]
    assert sorted(run["state"] for run in left) == ["broken", "pending"]
    assert preview["plan"]["left_runs"] == left
    assert len(document["warnings"]) == 2
    assert ids_in(staged.warehouse) == [1, 2]
    claim.unlink()
    assert staged("--json", *ALL).json()["result"]["committed_runs"] == ["r2"]
    assert ids_in(staged.warehouse) == [1, 2, 3]


@pytest.mark.slow
@pytest.mark.parametrize(("run_id", "committed"), [("mine", True), (None, False)])
def test_a_killed_load_is_committed_only_if_a_user_named_it(
    staged: CommandLine, run_id: str | None, *, committed: bool
) -> None:
    staged.ok("ingest", "db.t", "--discard", "r1")
    written = kill_before_commit(staged, run_id)

    done = staged("--json", *ALL)

    assert done.exit_code == (0 if committed else 6), done.stdout
    assert ids_in(staged.warehouse) == ([7] if committed else [])
    assert len(done.json()["result"]["left_runs"]) == (0 if committed else 1)
    assert bool(manifests(staged)) != committed
    assert written


def kill_before_commit(lake: CommandLine, run_id: str | None) -> list[Path]:
    """Leave the files of a load that was killed before its commit; return its manifests."""
    source = lake.warehouse.parent / "killed.csv"
    source.write_text("id,name\n7,g\n")
    named = ["--run-id", run_id] if run_id else []
    words = ["--warehouse", str(lake.warehouse), "ingest", "db.t", str(source), *named]
    code = (
        "import os, sys\n"
        "from lake.core.load.ingest import load\n"
        "load.commit_snapshot = lambda *a, **k: os._exit(9)\n"
        "from lake.cli.main import main\n"
        f"main({words!r})\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True)
    assert ended.returncode == 9, ended
    return manifests(lake)


@pytest.mark.slow
def test_a_finisher_and_two_replays_of_all_runs_commit_each_once(staged: CommandLine) -> None:
    for number in range(2, 6):
        stage(staged, f"r{number}", f"id,name\n{number + 10},x\n")
    running = [staged.start("--json", *ALL) for _ in range(2)]
    running += [
        staged.start("--json", "ingest", "db.t", "/nowhere.csv", "--run-id", f"r{number}")
        for number in (1, 3)
    ]
    ends = [process.communicate() for process in running]

    assert {process.returncode for process in running} <= {0, 6}, ends
    assert staged("--json", *ALL).json()["status"] == NOTHING
    assert ids_in(staged.warehouse) == [1, 2, 12, 13, 14, 15]
    assert manifests(staged) == []


def test_runs_of_another_branch_are_not_committed(staged: CommandLine) -> None:
    staged.ok(*ALL)
    table = pyiceberg_table(staged.warehouse)
    head = table.current_snapshot()
    assert head is not None
    table.manage_snapshots().create_branch(head.snapshot_id, "b").commit()
    stage(staged, "r2", "id,name\n3,c\n", "--branch", "b")

    assert staged.ok(*ALL)["status"] == NOTHING
    assert staged.ok(*ALL, "--branch", "b")["result"]["committed_runs"] == ["r2"]
    assert ids_in(staged.warehouse) == [1, 2]


@pytest.mark.parametrize(
    "more",
    [["--checkpoint", "/x"], ["--job", "r1", "--completed", "1"], ["--assume-uncommitted"]],
)
def test_all_staged_runs_cannot_be_combined_with_a_choice_of_checkpoints(
    staged: CommandLine, more: list[str]
) -> None:
    result = staged(*ALL, *more)

    assert (result.exit_code, "--all-staged" in result.stderr) == (2, True)
    assert manifests(staged)
