"""Staged ingests in `lake replay`: listed, and committed once, by one process."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import LongType, NestedField, StringType
from support.cli.command_line import CommandLine
from support.tables.iceberg_tables import ids_in, make_table

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
    refusal = lake.ok("replay", "db.t", "--job", "r1", "--completed", 1)
    assert (found["state"], refusal["status"]) == ("foreign", "nothing-to-do")

    document = lake.ok("replay", "db.t", "--job", "r1", "--completed", 1, "--branch", "b")
    assert (document["status"], document["branch"]) == ("done", "b")
    assert ids_in(lake.warehouse) == [1]


def test_a_discarded_run_is_nothing_to_replay(staged: CommandLine) -> None:
    staged.ok("ingest", "db.t", "--discard", "r1")

    assert staged.ok("replay", "db.t")["plan"]["checkpoints"] == []
    assert staged.ok("replay", "db.t", "--job", "r1", "--completed", 1)["status"] == "nothing-to-do"


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
