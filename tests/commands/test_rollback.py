"""`lake rollback` through the command line; PyIceberg reads the rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyiceberg.exceptions import CommitFailedException
from support.cli.command_line import CommandLine
from support.tables.iceberg_tables import ids_in


def add(lake: CommandLine, number: int, *options: object) -> int:
    return int(lake.load(f"id\n{number}\n", "--create", *options)["snapshot_ids"][0])


def test_a_branch_is_set_back_and_forward_again(lake: CommandLine) -> None:
    first, second, third = (add(lake, number) for number in (1, 2, 3))

    shown = lake.ok("rollback", "db.t", first, "--dry-run")["plan"]
    assert shown == {
        "from_snapshot": str(third),
        "to_snapshot": str(first),
        "rows_before": 3,
        "rows_before_at_most": 3,
        "rows_after": 1,
        "rows_after_at_most": 1,
        "hidden_snapshots": [str(third), str(second)],
    }
    assert ids_in(lake.warehouse) == [1, 2, 3]
    assert lake.ok("rollback", "db.t", first)["result"] == shown
    assert ids_in(lake.warehouse) == [1]
    assert lake.ok("rollback", "db.t", first)["status"] == "nothing-to-do"
    assert lake("rollback", "db.t", third).exit_code == 3
    assert lake.ok("rollback", "db.t", third, "--any")["result"]["hidden_snapshots"] == []
    assert ids_in(lake.warehouse) == [1, 2, 3]
    add(lake, 4)
    assert ids_in(lake.warehouse) == [1, 2, 3, 4]


def test_rows_that_deletes_remove_are_not_counted_as_rows(lake: CommandLine) -> None:
    add(lake, 1)
    second = add(lake, 1, "--upsert", "--key", "id", "--deletes", "position")
    lake.ok("compact", "db.t")
    shown = lake.ok("rollback", "db.t", second, "--dry-run")["plan"]
    assert (shown["rows_before"], shown["rows_after"], shown["rows_after_at_most"]) == (1, None, 2)
    assert "(1 → 2 rows or less)" in lake("rollback", "db.t", second).stderr


def test_snapshots_that_a_tag_or_another_branch_contains_stay_in_sight(lake: CommandLine) -> None:
    first, second, third = (add(lake, number) for number in (1, 2, 3))
    lake.ok("tag", "db.t", "kept", "--at", second)
    result = lake.ok("rollback", "db.t", first)["result"]
    assert result["hidden_snapshots"] == [str(third)]


def test_another_branch_is_set_back_and_keeps_its_retention(lake: CommandLine) -> None:
    first, second = (add(lake, number) for number in (1, 2))
    table = lake.table()
    table.manage_snapshots().create_branch(second, "audit", min_snapshots_to_keep=7).commit()
    lake.ok("rollback", "db.t", first, "--branch", "audit")
    refs = lake.table().metadata.refs
    assert (refs["audit"].snapshot_id, refs["audit"].min_snapshots_to_keep) == (first, 7)
    assert refs["main"].snapshot_id == second


def test_a_load_with_a_run_id_that_went_out_of_sight_loads_its_rows_again(
    lake: CommandLine,
) -> None:
    first = add(lake, 1)
    add(lake, 2, "--run-id", "two")
    document = lake.ok("rollback", "db.t", first)
    assert "1 loads with a run id leave the branch" in document["warnings"][0]
    add(lake, 2, "--run-id", "two")
    assert ids_in(lake.warehouse) == [1, 2]


def test_the_epochs_of_a_stream_that_go_out_of_sight_are_reported(lake: CommandLine) -> None:
    first = add(lake, 1)
    drop = lake.warehouse.parent / "drop"
    drop.mkdir()
    (drop / "2.csv").write_text("id\n2\n")
    state = ("--state", lake.warehouse.parent / "state")
    watch = ("--watch", drop, "--stream", "drop", *state, "--once", "--settle", "0s")
    lake.ok("ingest", "db.t", *watch)
    assert ids_in(lake.warehouse) == [1, 2]

    document = lake.ok("rollback", "db.t", first)
    assert [text.partition(" leave ")[0] for text in document["warnings"]] == [
        "epochs of stream drop"
    ]
    (drop / "3.csv").write_text("id\n3\n")
    document = lake.ok("ingest", "db.t", *watch)
    assert "later epochs were rolled back" in document["warnings"][0]
    assert ids_in(lake.warehouse) == [1, 3]
    assert lake.ok("ingest", "db.t", *watch)["warnings"] == []


def test_a_commit_that_arrives_meanwhile_is_not_hidden(lake: CommandLine, warehouse: Path) -> None:
    first = add(lake, 1)
    add(lake, 2)

    def appending(real: Any) -> Any:
        add(lake, 3)
        return real()

    other = lake.with_faults(appending)
    assert other("rollback", "db.t", first).exit_code == 4
    assert ids_in(lake.warehouse) == [1, 2, 3]


def test_an_answer_that_is_lost_after_the_commit_is_found_out(
    lake: CommandLine, warehouse: Path
) -> None:
    first = add(lake, 1)
    add(lake, 2)

    def lost(real: Any) -> Any:
        real()
        raise ConnectionError("the answer was lost")

    other = lake.with_faults(lost)
    assert other("rollback", "db.t", first).exit_code == 0
    assert ids_in(lake.warehouse) == [1]


@pytest.mark.parametrize("landed", [True, False])
@pytest.mark.parametrize("kept", [100, 1])
def test_a_refused_change_that_others_replaced_is_found_in_the_log(
    lake: CommandLine, kept: int, *, landed: bool
) -> None:
    first = add(lake, 1)
    add(lake, 2)
    log = {
        "write.metadata.previous-versions-max": str(kept),
        "write.metadata.delete-after-commit.enabled": "true",
    }
    lake.ok("alter", "db.t", *(f"--set={name}={value}" for name, value in log.items()))

    def refused(real: Any) -> Any:
        if landed:
            real()
        add(lake, 3)
        add(lake, 4)
        raise CommitFailedException("409")

    result = lake.with_faults(refused)("rollback", "db.t", first)

    # If the log of files does not reach back, that of main shows what was done, and not what was not done.
    assert result.exit_code == (0 if landed else 5 if kept == 1 else 4), result
    assert ids_in(lake.warehouse) == ([1, 3, 4] if landed else [1, 2, 3, 4])
    logged = [entry.metadata_file for entry in lake.table().metadata.metadata_log]
    assert all(Path(location.removeprefix("file://")).exists() for location in logged)


@pytest.mark.parametrize("hidden", ["by an expiry", "in another branch", "by an earlier move"])
def test_a_refused_change_that_the_log_of_main_does_not_show_remains_unknown(
    lake: CommandLine, hidden: str
) -> None:
    first = add(lake, 1)
    second = add(lake, 2)
    lake.ok("alter", "db.t", "--set=write.metadata.previous-versions-max=1")
    branch = "audit" if hidden == "in another branch" else "main"
    if branch == "audit":
        lake.table().manage_snapshots().create_branch(second, "audit").commit()
    if hidden == "by an earlier move":
        # Then the log names the snapshot, from before the command.
        lake.ok("rollback", "db.t", first)
        lake.ok("rollback", "db.t", second, "--any")

    def refused(real: Any) -> Any:
        if hidden != "by an earlier move":
            real()
        add(lake, 3, "--branch", branch)
        add(lake, 4, "--branch", branch)
        if hidden == "by an expiry":
            lake.ok(
                "expire", "db.t", "--older-than", "0s", "--retain-last", "1", "--unsafe-retention"
            )
        raise CommitFailedException("409")

    result = lake.with_faults(refused)("rollback", "db.t", first, "--branch", branch)

    assert result.exit_code == 5, result


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("none",), 7),
        (("main", "--branch", "none"), 7),
        (("main", "--branch", "lake-consumer-x"), 3),
    ],
)
def test_what_cannot_be_right_is_refused(
    lake: CommandLine, arguments: tuple[str, ...], code: int
) -> None:
    add(lake, 1)
    assert lake("rollback", "db.t", *arguments).exit_code == code


def test_a_branch_is_not_set_to_a_snapshot_whose_files_are_gone(lake: CommandLine) -> None:
    first, second = add(lake, 1), add(lake, 2)
    table = lake.table()
    snapshot = table.snapshot_by_id(first)
    assert snapshot is not None
    listed = Path(snapshot.manifest_list.removeprefix("file://"))
    content = listed.read_bytes()

    for broken in (lambda: listed.write_bytes(content[:-1]), listed.unlink):
        broken()
        refused = lake("rollback", "db.t", first)
        assert refused.exit_code == 7, refused
        assert str(listed) in refused.stderr
    assert ids_in(lake.warehouse) == [1, 2]
    # A branch whose own files are gone can be set back.
    listed.write_bytes(content)
    head = table.snapshot_by_id(second)
    assert head is not None
    Path(head.manifest_list.removeprefix("file://")).unlink()
    lake.ok("rollback", "db.t", first)
    assert ids_in(lake.warehouse) == [1]


def test_a_commit_is_undone_without_its_id(lake: CommandLine) -> None:
    first, second, third = (add(lake, number) for number in (1, 2, 3))

    assert lake.ok("rollback", "db.t", "--last")["result"]["to_snapshot"] == str(second)
    lake.ok("rollback", "db.t", third, "--any")
    assert lake.ok("rollback", "db.t", "main~2", "--dry-run")["plan"]["to_snapshot"] == str(first)
    assert lake.ok("rollback", "db.t", f"{third}~")["result"]["to_snapshot"] == str(second)
    assert ids_in(lake.warehouse) == [1, 2]


def test_a_parent_that_is_not_retained_is_not_found(lake: CommandLine) -> None:
    add(lake, 1)
    add(lake, 2)

    failed = lake("rollback", "db.t", "main~2")
    assert failed.exit_code == 7
    assert "retains 1 parents of main, so main~2 does not exist" in failed.stderr
    assert lake("rollback", "db.t", "main~1~1").exit_code == 7


def test_a_ref_whose_name_looks_like_a_parent_is_that_ref(lake: CommandLine) -> None:
    first, _, third = (add(lake, number) for number in (1, 2, 3))
    lake.ok("tag", "db.t", "main~1", "--at", first)

    shown = lake.ok("rollback", "db.t", "main~1", "--dry-run")["plan"]
    assert (shown["from_snapshot"], shown["to_snapshot"]) == (str(third), str(first))


def test_a_rollback_without_a_snapshot_lists_those_to_choose_from(lake: CommandLine) -> None:
    ids = [add(lake, number) for number in range(5)]

    failed = lake("rollback", "db.t")
    assert failed.exit_code == 2
    for number in (1, 2, 3):
        assert f"main~{number} is {ids[-1 - number]} (" in failed.stderr
    assert str(ids[0]) not in failed.stderr
    assert "lake snapshots db.t" in failed.stderr
    assert lake("rollback", "db.t", ids[0], "--last").exit_code == 2
    assert ids_in(lake.warehouse) == list(range(5))
