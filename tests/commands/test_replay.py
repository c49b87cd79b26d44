"""`lake replay` on tables and checkpoints of a real Flink: every one ends with exactly its truth, once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from support.cli.command_line import CommandLine
from support.tables import flink_fixtures
from support.tables.flink_fixtures import FlinkFixture, canonical_rows
from support.tables.iceberg_tables import pyiceberg_table

Flink = Callable[[str], FlinkFixture]

_NAMES = flink_fixtures.names()
# Those of which a checkpoint was kept: a job that finished removes its own.
_WITH_CHECKPOINT = [name for name in _NAMES if name not in {"a2-append-fv1", "f-overwrite-bounded"}]


def lake_on(fixture: FlinkFixture) -> CommandLine:
    return CommandLine(fixture.warehouse, catalog_type=fixture.catalog_type)


def arguments(fixture: FlinkFixture) -> list[str]:
    """Return what commits the fixture's newest completed checkpoint."""
    checkpoint = fixture.root / fixture.truth["replay"]["from_checkpoint"]
    overwrites = ["--replace-partitions"] if fixture.name.startswith("f") else []
    return ["replay", fixture.table, "--checkpoint", str(checkpoint), *overwrites]


def rows_of(fixture: FlinkFixture, folder: Path, *more: str) -> list[str]:
    output = folder / "rows.parquet"
    lake_on(fixture).ok("scan", fixture.table, "--output", output, "--replace", *more)
    return canonical_rows(pq.read_table(output))


def found_by(document: dict[str, Any], *, empty: bool = True) -> dict[tuple[str, int, int], str]:
    """Return each checkpoint's state by job, number and attempt."""
    return {
        (item["job_id"], int(item["checkpoint_id"]), item["attempt"]): item["state"]
        for item in document["plan"]["checkpoints"]
        if empty or item["data_files"] or item["delete_files"] or item["state"] != "pending"
    }


def expected_states(fixture: FlinkFixture) -> dict[tuple[str, int, int], set[str]]:
    """Return the states that agree with the truth."""
    return {
        (item["job"], item["checkpoint"], item["attempt"]): (
            {"pending"}
            if item["must_replay"]
            else {"committed-leftover"}
            if item["checkpoint_already_committed"]
            else {"superseded", "unproven"}
        )
        for item in fixture.truth["temp_manifests"]
    }


@pytest.mark.parametrize("name", _NAMES)
def test_the_listing_agrees_with_the_truth(flink: Flink, name: str) -> None:
    fixture = flink(name)

    document = lake_on(fixture).ok("replay", fixture.table)

    states, expected = found_by(document), expected_states(fixture)
    assert states.keys() == expected.keys()
    assert {key: state for key, state in states.items() if state not in expected[key]} == {}
    assert document["status"] == ("done" if "pending" in states.values() else "nothing-to-do")
    assert flink_fixtures.is_whole(name)


@pytest.mark.parametrize("name", _WITH_CHECKPOINT)
def test_a_checkpoint_leaves_its_states_as_the_listing_says(flink: Flink, name: str) -> None:
    fixture = flink(name)

    document = lake_on(fixture).ok(*arguments(fixture), "--dry-run")

    states, expected = found_by(document, empty=False), expected_states(fixture)
    # The state may still name a committed checkpoint whose manifests, and so its attempt, are gone.
    gone = {"committed-leftover"}
    assert {k: state for k, state in states.items() if state not in expected.get(k, gone)} == {}
    assert expected.keys() <= states.keys()
    assert document["status"] == "dry-run"
    assert flink_fixtures.is_whole(name)


@pytest.mark.parametrize("name", _WITH_CHECKPOINT)
def test_a_table_replayed_once_and_twice_has_exactly_the_rows_of_the_truth(
    flink_lent: Flink, name: str, tmp_path: Path
) -> None:
    fixture = flink_lent(name)
    manifests = [item for item in fixture.truth["temp_manifests"] if item["must_replay"]]
    numbers = {(item["job"], item["checkpoint"]) for item in manifests}
    assert rows_of(fixture, tmp_path) == fixture.rows()

    first = lake_on(fixture).ok(*arguments(fixture))
    assert first["status"] == ("done" if manifests else "nothing-to-do")
    assert first["result"]["committed_checkpoints"] == len(numbers)
    assert rows_of(fixture, tmp_path) == fixture.rows("full")
    assert [
        item["path"] for item in manifests if Path(item["path"].removeprefix("file:")).exists()
    ] == []

    second = lake_on(fixture).ok(*arguments(fixture))
    assert (second["status"], second["snapshot_ids"]) == ("nothing-to-do", [])
    assert rows_of(fixture, tmp_path) == fixture.rows("full")


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "b-append-pending",
        "b2-append-pending",
        "c-upsert",
        "c2-upsert-part",
        "c3-upsert-v3",
        "e2-crash-superseded",
        "f2-overwrite-pending",
        "n-dynamic",
    ],
)
def test_two_processes_at_once_commit_once(flink_lent: Flink, name: str, tmp_path: Path) -> None:
    fixture = flink_lent(name)

    running = [lake_on(fixture).start("--json", *arguments(fixture)) for _ in range(2)]
    ends = [process.communicate() for process in running]

    documents = [json.loads(stdout) for stdout, _ in ends]
    assert [process.returncode for process in running] == [0, 0], ends
    assert sorted(document["status"] for document in documents) == ["done", "nothing-to-do"]
    (loser,) = [item for item in documents if item["status"] == "nothing-to-do"]
    assert [row for row in loser["plan"]["checkpoints"] if row["state"] == "pending"] == []
    assert rows_of(fixture, tmp_path) == fixture.rows("full")


@pytest.mark.parametrize(
    "name", ["b-append-pending", "d-retract", "e2-crash-superseded", "j-partial"]
)
def test_the_operators_word_commits_what_the_checkpoint_would(
    flink_lent: Flink, name: str, tmp_path: Path
) -> None:
    fixture = flink_lent(name)
    replay = fixture.truth["replay"]

    document = lake_on(fixture).ok(
        "replay",
        fixture.table,
        "--job",
        replay["job"],
        "--completed",
        replay["pending_checkpoints"][-1],
    )

    assert document["result"]["committed_checkpoints"] == len(replay["pending_checkpoints"])
    assert rows_of(fixture, tmp_path) == fixture.rows("full")


def test_the_operators_word_reaches_no_further_than_its_number(
    flink_lent: Flink, tmp_path: Path
) -> None:
    fixture = flink_lent("b-append-pending")
    job = fixture.truth["replay"]["job"]
    lake = lake_on(fixture)

    first = lake.ok("replay", fixture.table, "--job", job, "--completed", 4)
    assert first["result"]["committed_checkpoints"] == 1
    assert first["result"]["skipped_checkpoints"] == 2

    lake.ok("replay", fixture.table, "--job", job, "--completed", 6)
    assert rows_of(fixture, tmp_path) == fixture.rows("full")


def test_a_manifest_that_a_newer_attempt_superseded_is_committed_on_nobodys_word(
    flink_lent: Flink,
) -> None:
    fixture = flink_lent("e2-crash-superseded")
    job = fixture.truth["replay"]["job"]

    document = lake_on(fixture).ok(
        "replay", fixture.table, "--job", job, "--completed", 3, "--assume-uncommitted"
    )

    assert document["status"] == "nothing-to-do"


def test_the_end_of_a_bounded_input_is_committed_on_the_operators_word_alone(
    flink_lent: Flink, tmp_path: Path
) -> None:
    fixture = flink_lent("i-endhang")
    lake, job = lake_on(fixture), fixture.truth["replay"]["job"]
    last = 2**63 - 1

    assert (
        lake.ok("replay", fixture.table, "--job", job, "--completed", last - 1)["snapshot_ids"]
        == []
    )
    document = lake.ok("replay", fixture.table, "--job", job, "--completed", last)

    assert document["result"]["committed_checkpoints"] == 1
    assert len(rows_of(fixture, tmp_path)) == len(fixture.rows()) + 80


def test_older_checkpoints_beside_the_newest_add_nothing(flink_lent: Flink, tmp_path: Path) -> None:
    fixture = flink_lent("b-append-pending")
    folder = (fixture.root / fixture.truth["replay"]["from_checkpoint"]).parent
    every = [part for path in sorted(folder.glob("chk-*")) for part in ("--checkpoint", path)]
    assert len(every) > 2

    lake_on(fixture).ok("replay", fixture.table, *every)

    assert rows_of(fixture, tmp_path) == fixture.rows("full")


def test_a_replay_goes_to_the_branch_that_the_job_wrote_to(
    flink_lent: Flink, tmp_path: Path
) -> None:

    fixture = flink_lent("b-append-pending")
    table = pyiceberg_table(fixture.warehouse, fixture.table)
    head = table.current_snapshot()
    assert head is not None
    table.manage_snapshots().create_branch(head.snapshot_id, "audit").commit()
    manifests = {Path(item["path"]) for item in fixture.truth["temp_manifests"]}
    kept = {path: path.read_bytes() for path in manifests}

    document = lake_on(fixture).ok(*arguments(fixture), "--branch", "audit")

    assert document["branch"] == "audit"
    assert rows_of(fixture, tmp_path) == fixture.rows()
    assert rows_of(fixture, tmp_path, "--snapshot", "audit") == fixture.rows("full")
    # What one branch has is committed on none a second time, whatever the other's own number says.
    for path, content in kept.items():
        path.write_bytes(content)
    again = lake_on(fixture).ok(*arguments(fixture))
    assert (again["status"], again["snapshot_ids"]) == ("nothing-to-do", [])


@pytest.mark.parametrize("name", ["b-append-pending", "g-leftover", "n-dynamic"])
def test_the_snapshot_of_a_savepoint_gets_a_tag_once(flink_lent: Flink, name: str) -> None:

    fixture = flink_lent(name)
    savepoint = fixture.root / fixture.truth["replay"]["from_checkpoint"]
    tag = f"savepoint-{int(savepoint.name.removeprefix('chk-'))}"

    preview = lake_on(fixture).ok(*arguments(fixture), "--tag", "--dry-run")
    first = lake_on(fixture).ok(*arguments(fixture), "--tag", "--retain", "30d")
    again = lake_on(fixture).ok(*arguments(fixture), "--tag")

    table = pyiceberg_table(fixture.warehouse, fixture.table)
    ref = table.metadata.refs[tag]
    number = int(tag.partition("-")[2])
    parents = {item.snapshot_id: item for item in table.metadata.snapshots}
    tagged = parents[ref.snapshot_id]
    assert tagged.summary is not None
    assert int(tagged.summary["flink.max-committed-checkpoint-id"] or "") >= number
    if tagged.parent_snapshot_id is not None:
        earlier = parents[tagged.parent_snapshot_id].summary
        assert earlier is not None
        assert int(earlier["flink.max-committed-checkpoint-id"] or "") < number
    assert ref.max_ref_age_ms == 30 * 86_400_000
    assert preview["plan"]["tags"] == [tag]
    assert [item["name"] for item in first["result"]["tags"]] == [tag]
    assert first["result"]["tags"] == again["result"]["tags"]
    assert (first["status"], again["status"]) == ("done", "nothing-to-do")


def test_a_tag_that_refers_to_another_snapshot_is_refused_before_the_commit(
    flink_lent: Flink,
) -> None:
    fixture = flink_lent("b-append-pending")
    lake = lake_on(fixture)
    savepoint = fixture.root / fixture.truth["replay"]["from_checkpoint"]
    tag = f"savepoint-{int(savepoint.name.removeprefix('chk-'))}"
    lake.ok("tag", fixture.table, tag)
    before = lake.ok("snapshots", fixture.table)["result"]

    refused = lake("--json", *arguments(fixture), "--tag")

    assert (refused.exit_code, tag in refused.json()["error"]["message"]) == (3, True)
    assert lake.ok("snapshots", fixture.table)["result"] == before
    assert lake("--json", "replay", fixture.table, "--tag").exit_code == 2


def test_status_shows_for_each_job_what_is_committed_and_what_is_pending(flink: Flink) -> None:
    fixture = flink("m-other-writer")
    replay = fixture.truth["replay"]

    document = lake_on(fixture).ok("replay", fixture.table, "--status")

    jobs = {job["job_id"]: job for job in document["result"]["jobs"]}
    mine = jobs.pop(replay["job"])
    assert mine["committed_checkpoint"] == str(replay["max_committed_by_job"][replay["job"]])
    assert mine["pending_checkpoints"] == [str(n) for n in replay["pending_checkpoints"]]
    assert mine["rows"] == fixture.truth["full"]["rows"] - fixture.truth["committed"]["rows"]
    assert mine["age_seconds"] > 0
    assert [(job["pending_checkpoints"], job["age_seconds"]) for job in jobs.values()] == [
        ([], None)
    ]


@pytest.mark.slow
def test_a_replay_loads_no_engine_and_starts_no_java(flink_lent: Flink, tmp_path: Path) -> None:
    fixture = flink_lent("c2-upsert-part")
    code = (
        "import json, sys; from lake.cli.main import main; code = main(json.loads(sys.argv[1]));"
        "heavy = {'pyspark', 'py4j', 'rich'} & set(sys.modules); print(code, sorted(heavy))"
    )
    words = lake_on(fixture).arguments("-q", *arguments(fixture))
    # A machine on which Java cannot be found: a command that wanted one would fail.
    environment = {**os.environ, "PATH": str(tmp_path), "JAVA_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", code, json.dumps(words)],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )

    assert done.stdout.splitlines()[-1:] == ["0 []"], done.stderr
    assert rows_of(fixture, tmp_path) == fixture.rows("full")


def test_a_listing_is_a_table_for_people(flink: Flink) -> None:
    fixture = flink("g-leftover")

    result = lake_on(fixture)("replay", fixture.table)

    assert "committed-leftover" in result.stdout
    assert "db.done_not_cleaned: 1 checkpoint, 0 pending" in result.stderr
    assert "next:" not in result.stderr


def test_a_listing_shows_rows_and_age_and_what_commits_the_checkpoints(flink: Flink) -> None:
    fixture = flink("b-append-pending")

    document = lake_on(fixture).ok("replay", fixture.table)
    result = lake_on(fixture)("replay", fixture.table)

    header, *lines = (line.split("\t") for line in result.stdout.splitlines())
    ages = [line[header.index("age")] for line in lines]
    assert [row["written_ms"] > 0 for row in document["plan"]["checkpoints"]] == [True] * 3
    assert [age[-1] in "smh" for age in ages] == [True] * 3, ages
    assert f"replay {fixture.table} --checkpoint PATH\n" in result.stderr
