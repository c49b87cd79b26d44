"""Staged ingests in `lake replay`: listed, committed once, and by nobody else's leave."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import CommandLine
from table_support import ids_in, make_table


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


def test_a_staged_run_goes_by_its_job_id_as_well(staged: CommandLine) -> None:
    (found,) = staged.ok("replay", "db.t")["plan"]["checkpoints"]

    document = staged.ok("replay", "db.t", "--job", found["job_id"], "--completed", 1)

    assert document["status"] == "done"


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
