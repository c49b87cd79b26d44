"""`lake cherry-pick` and `lake publish` through the command line; PyIceberg reads the rows."""

from __future__ import annotations

from typing import Any

import pytest
from support.cli.command_line import CommandLine
from support.tables.iceberg_tables import after, applied_then, ids_in
from support.tables.metadata_edits import edit_metadata, read_metadata


def add(lake: CommandLine, *numbers: int, options: tuple[object, ...] = ()) -> str:
    source = lake.warehouse.parent / f"{'-'.join(map(str, numbers))}.csv"
    source.write_text("".join(f"{item}\n" for item in ("id", *numbers)))
    return str(lake.ok("ingest", "db.t", source, "--create", *options)["snapshot_ids"][0])


def on_audit(lake: CommandLine, *numbers: int, options: tuple[object, ...] = ()) -> str:
    return add(lake, *numbers, options=("--branch", "audit", *options))


def stage(lake: CommandLine, wap_id: str, *numbers: int) -> str:
    """Add rows as a snapshot without a branch, as Spark with spark.wap.id does."""
    lake.ok("ref", "db.t", "--branch-create", "staged")
    found = add(lake, *numbers, options=("--branch", "staged"))
    lake.ok("ref", "db.t", "--drop", "staged")

    def mark(plain: dict[str, Any]) -> None:
        (snapshot,) = (item for item in plain["snapshots"] if str(item["snapshot-id"]) == found)
        snapshot["summary"]["wap.id"] = wap_id

    edit_metadata(lake.warehouse, mark)
    return found


def head_summary(lake: CommandLine) -> dict[str, str]:
    plain = read_metadata(lake.warehouse)
    head = plain["current-snapshot-id"]
    (found,) = (item["summary"] for item in plain["snapshots"] if item["snapshot-id"] == head)
    return dict(found)


def test_a_snapshot_on_the_head_moves_the_branch_and_another_append_is_committed_again(
    lake: CommandLine,
) -> None:
    add(lake, 1)
    lake.ok("ref", "db.t", "--branch-create", "audit")
    second, third = on_audit(lake, 2), on_audit(lake, 3)

    plan = lake.ok("cherry-pick", "db.t", second, "--dry-run")["plan"]
    assert plan == {
        "source_snapshot": second,
        "operation": "append",
        "wap_id": None,
        "fast_forward": True,
        "added_files": 1,
        "added_rows": 1,
        "removed_files": 0,
    }
    assert ids_in(lake.warehouse) == [1]
    done = lake.ok("cherry-pick", "db.t", second)
    assert (done["result"], done["snapshot_ids"]) == (plan, [second])

    add(lake, 4)
    done = lake.ok("cherry-pick", "db.t", "audit")
    assert not done["result"]["fast_forward"]
    assert ids_in(lake.warehouse) == [1, 2, 3, 4]
    assert head_summary(lake)["source-snapshot-id"] == third
    assert [item["name"] for item in lake.ok("ref", "db.t")["result"]["refs"]] == ["main", "audit"]


def test_a_snapshot_is_applied_once(lake: CommandLine) -> None:
    first = add(lake, 1)
    lake.ok("ref", "db.t", "--branch-create", "audit")
    second = on_audit(lake, 2)
    add(lake, 3)
    lake.ok("cherry-pick", "db.t", second)
    for snapshot in (first, second):
        refused = lake("cherry-pick", "db.t", snapshot)
        assert refused.exit_code == 3
        assert "already" in refused.stderr
    # Also after the snapshot that applied it expired, while its file is live.
    add(lake, 4)
    lake.ok("expire", "db.t", "--older-than", "0s", "--unsafe-retention")
    assert lake("cherry-pick", "db.t", second).exit_code == 3
    # And after its file was rewritten.
    lake.ok("compact", "db.t", "--rewrite-all")
    lake.ok("expire", "db.t", "--older-than", "0s", "--unsafe-retention")
    assert lake("cherry-pick", "db.t", second).exit_code == 3
    assert ids_in(lake.warehouse) == [1, 2, 3, 4]


def test_a_pick_of_a_pick_is_not_applied_where_the_first_snapshot_is(lake: CommandLine) -> None:
    add(lake, 1)
    for branch in ("audit", "other"):
        lake.ok("ref", "db.t", "--branch-create", branch)
    on_audit(lake, 2)
    add(lake, 3, options=("--branch", "other"))
    first = add(lake, 4)
    (second,) = lake.ok("cherry-pick", "db.t", first, "--branch", "audit")["snapshot_ids"]
    (third,) = lake.ok("cherry-pick", "db.t", second, "--branch", "other")["snapshot_ids"]
    # Its file is not live any more, but its rows are.
    lake.ok("compact", "db.t", "--rewrite-all")
    lake.ok("compact", "db.t", "--rewrite-all", "--branch", "audit")

    refused = [lake("cherry-pick", "db.t", item) for item in (second, third)]
    refused.append(lake("cherry-pick", "db.t", third, "--branch", "audit"))

    assert [item.exit_code for item in refused] == [3, 3, 3]
    assert all("already" in item.stderr for item in refused)
    assert ids_in(lake.warehouse) == [1, 4]


def test_a_pick_of_a_published_snapshot_is_not_applied_where_it_was_published(
    lake: CommandLine,
) -> None:
    add(lake, 1)
    lake.ok("ref", "db.t", "--branch-create", "audit")
    on_audit(lake, 2)
    stage(lake, "w1", 3)
    add(lake, 4)
    lake.ok("publish", "db.t", "--wap-id", "w1")
    published = ("publish", "db.t", "--wap-id", "w1", "--branch", "audit")
    (copy,) = lake.ok(*published)["snapshot_ids"]
    lake.ok("compact", "db.t", "--rewrite-all")
    # The staged snapshot expires.
    lake.ok("expire", "db.t", "--older-than", "0s", "--unsafe-retention", "--retain-last", "2")

    refused = lake("cherry-pick", "db.t", copy)

    assert refused.exit_code == 3
    assert ids_in(lake.warehouse) == [1, 3, 4]


@pytest.mark.parametrize("retained", [False, True])
def test_a_pick_of_a_snapshot_from_the_expired_history_of_a_branch_is_not_applied_to_it(
    lake: CommandLine, retained: bool
) -> None:
    add(lake, 1)
    lake.ok("ref", "db.t", "--branch-create", "audit")
    on_audit(lake, 2)
    first = add(lake, 3)
    add(lake, 4)
    lake.ok("compact", "db.t", "--rewrite-all")
    (copy,) = lake.ok("cherry-pick", "db.t", first, "--branch", "audit")["snapshot_ids"]
    if retained:
        lake.ok("ref", "db.t", "--tag", "eod", "--at", first)
    lake.ok("expire", "db.t", "--older-than", "0s", "--unsafe-retention")

    refused = lake("cherry-pick", "db.t", copy)

    assert refused.exit_code == 3
    assert ids_in(lake.warehouse) == [1, 3, 4]


def test_a_run_that_the_branch_contains_is_not_applied_to_it(lake: CommandLine) -> None:
    add(lake, 1)
    lake.ok("ref", "db.t", "--branch-create", "audit")
    second = on_audit(lake, 2, options=("--run-id", "two"))
    add(lake, 2, options=("--run-id", "two"))
    assert lake("cherry-pick", "db.t", second).exit_code == 3

    third = on_audit(lake, 3, options=("--run-id", "three"))
    lake.ok("cherry-pick", "db.t", third)
    again = lake.ok("ingest", "db.t", lake.warehouse.parent / "3.csv", "--run-id", "three")
    assert again["status"] == "nothing-to-do"
    assert ids_in(lake.warehouse) == [1, 2, 3]


@pytest.mark.parametrize("commits", [0, 1], ids=["at once", "after a commit"])
def test_a_run_is_not_loaded_again_after_the_snapshot_that_was_picked_expired(
    lake: CommandLine, commits: int
) -> None:
    add(lake, 1)
    lake.ok("ref", "db.t", "--branch-create", "audit")
    add(lake, 3)
    second = on_audit(lake, 2, options=("--run-id", "two"))
    lake.ok("cherry-pick", "db.t", second)
    lake.ok("ref", "db.t", "--drop", "audit")
    # The pick is newer, and stays.
    lake.ok("expire", "db.t", "--older-than", "0s", "--unsafe-retention", "--retain-last", "2")
    for number in range(commits):
        add(lake, 4 + number)

    again = lake.ok("ingest", "db.t", lake.warehouse.parent / "2.csv", "--run-id", "two")

    assert again["status"] == "nothing-to-do"
    assert ids_in(lake.warehouse) == [1, 2, 3, *range(4, 4 + commits)]


@pytest.mark.parametrize("expires", ["nothing", "the first", "all"])
def test_a_run_comes_to_a_branch_with_a_pick_of_a_pick(lake: CommandLine, expires: str) -> None:
    now = ("--older-than", "0s", "--unsafe-retention", "--retain-last")
    add(lake, 1)
    for branch in ("audit", "other"):
        lake.ok("ref", "db.t", "--branch-create", branch)
    on_audit(lake, 5)
    add(lake, 6, options=("--branch", "other"))
    first = on_audit(lake, 2, options=("--run-id", "two"))
    (second,) = lake.ok("cherry-pick", "db.t", first, "--branch", "other")["snapshot_ids"]
    if expires == "the first":
        lake.ok("ref", "db.t", "--drop", "audit")
        lake.ok("expire", "db.t", *now, "3")
    add(lake, 3)
    lake.ok("cherry-pick", "db.t", second)
    if expires != "nothing":
        lake.ok("ref", "db.t", "--drop", "other")
        if expires == "all":
            lake.ok("ref", "db.t", "--drop", "audit")
        add(lake, 4)
        lake.ok("expire", "db.t", *now, "1")

    again = lake.ok("ingest", "db.t", lake.warehouse.parent / "2.csv", "--run-id", "two")

    assert again["status"] == "nothing-to-do"
    assert ids_in(lake.warehouse).count(2) == 1


def test_a_replacement_of_partitions_is_applied_unless_they_changed(lake: CommandLine) -> None:
    add(lake, 1, 2, options=("--partition-by", "id"))
    lake.ok("ref", "db.t", "--branch-create", "audit")
    replaced = on_audit(lake, 1, 1, options=("--replace-partitions",))
    add(lake, 3)
    done = lake.ok("cherry-pick", "db.t", replaced)["result"]
    assert (done["added_files"], done["removed_files"], done["added_rows"]) == (1, 1, 2)
    assert ids_in(lake.warehouse) == [1, 1, 2, 3]

    lake.ok("ref", "db.t", "--branch-create", "other")
    replaced = add(lake, 2, 2, options=("--branch", "other", "--replace-partitions"))
    add(lake, 2)
    assert lake("cherry-pick", "db.t", replaced).exit_code == 4
    assert ids_in(lake.warehouse) == [1, 1, 2, 2, 3]


@pytest.mark.parametrize(
    "options", [("--overwrite",), ("--upsert", "--key", "id"), ("--overwrite-where", "id = 2")]
)
def test_a_change_that_depends_on_other_files_is_applied_as_a_fast_forward_only(
    lake: CommandLine, options: tuple[str, ...]
) -> None:
    add(lake, 1, 2)
    lake.ok("ref", "db.t", "--branch-create", "audit")
    changed = on_audit(lake, 2, options=options)
    lake.ok("cherry-pick", "db.t", changed)
    rows = ids_in(lake.warehouse)
    lake.ok("rollback", "db.t", f"{head_parent(lake)}")
    add(lake, 3)
    assert lake("cherry-pick", "db.t", changed).exit_code == 3
    assert ids_in(lake.warehouse) == [1, 2, 3]
    assert rows in ([2], [1, 2])


def head_parent(lake: CommandLine) -> str:
    plain = read_metadata(lake.warehouse)
    head = plain["current-snapshot-id"]
    (found,) = (item for item in plain["snapshots"] if item["snapshot-id"] == head)
    return str(found["parent-snapshot-id"])


def test_a_staged_snapshot_is_published_once(lake: CommandLine) -> None:
    add(lake, 1)
    staged = stage(lake, "load-2", 2)
    add(lake, 3)
    assert ids_in(lake.warehouse) == [1, 3]

    assert lake.ok("publish", "db.t", "--wap-id", "load-2", "--dry-run")["status"] == "dry-run"
    result = lake.ok("publish", "db.t", "--wap-id", "load-2")["result"]
    assert (result["source_snapshot"], result["wap_id"]) == (staged, "load-2")
    summary = head_summary(lake)
    assert summary["published-wap-id"] == "load-2"
    assert summary["source-snapshot-id"] == staged
    assert lake("publish", "db.t", "--wap-id", "load-2").exit_code == 3
    assert ids_in(lake.warehouse) == [1, 2, 3]


def test_wap_ids_that_are_unknown_published_or_not_unique_are_refused(lake: CommandLine) -> None:
    add(lake, 1)
    stage(lake, "two", 2)
    stage(lake, "three", 3)
    stage(lake, "three", 4)
    unknown = lake("publish", "db.t", "--wap-id", "one")
    assert unknown.exit_code == 7
    assert "its WAP ids: three, two" in unknown.stderr
    assert lake("publish", "db.t", "--wap-id", "three").exit_code == 3
    # Published as a fast-forward, and staged again under the same id.
    assert lake.ok("publish", "db.t", "--wap-id", "two")["result"]["fast_forward"]
    again = stage(lake, "two", 2)
    add(lake, 5)
    assert lake("cherry-pick", "db.t", again).exit_code == 3
    assert ids_in(lake.warehouse) == [1, 2, 5]


def test_of_two_processes_that_apply_one_snapshot_one_succeeds(lake: CommandLine) -> None:
    add(lake, 1)
    lake.ok("ref", "db.t", "--branch-create", "audit")
    second = on_audit(lake, 2)
    add(lake, 3)
    other = lake.with_faults(after(lambda: lake.ok("cherry-pick", "db.t", second)))
    assert other("cherry-pick", "db.t", second).exit_code == 3
    assert ids_in(lake.warehouse) == [1, 2, 3]


def test_a_commit_by_another_process_does_not_prevent_an_append(lake: CommandLine) -> None:
    add(lake, 1)
    lake.ok("ref", "db.t", "--branch-create", "audit")
    second = on_audit(lake, 2)
    add(lake, 3)
    lake.with_faults(after(lambda: add(lake, 4))).ok("cherry-pick", "db.t", second)
    assert ids_in(lake.warehouse) == [1, 2, 3, 4]


def test_a_snapshot_that_expires_meanwhile_is_not_applied(lake: CommandLine) -> None:
    add(lake, 1)
    lake.ok("ref", "db.t", "--branch-create", "audit")
    second = on_audit(lake, 2)
    lake.ok("ref", "db.t", "--drop", "audit")
    add(lake, 3)
    expire = ("expire", "db.t", "--snapshot", second)
    other = lake.with_faults(after(lambda: lake.ok(*expire)))
    assert other("cherry-pick", "db.t", second).exit_code == 7
    assert ids_in(lake.warehouse) == [1, 3]


def test_a_response_that_is_lost_after_the_commit_is_found_and_not_repeated(
    lake: CommandLine,
) -> None:
    add(lake, 1)
    lake.ok("ref", "db.t", "--branch-create", "audit")
    second = on_audit(lake, 2)
    add(lake, 3)
    lost = lake.with_faults(applied_then(OSError("connection reset")))
    assert lost.ok("cherry-pick", "db.t", second)["status"] == "done"
    assert ids_in(lake.warehouse) == [1, 2, 3]


def summarise(lake: CommandLine, snapshot: str, **values: str) -> None:
    """Change the summary of a snapshot."""

    def change(plain: dict[str, Any]) -> None:
        (found,) = (item for item in plain["snapshots"] if str(item["snapshot-id"]) == snapshot)
        found["summary"].update({name.replace("_", "-"): text for name, text in values.items()})

    edit_metadata(lake.warehouse, change)


def test_a_snapshot_that_kept_files_of_the_partitions_that_it_claims_to_replace_is_refused(
    lake: CommandLine,
) -> None:
    """Its application would remove the rows of these files."""
    add(lake, 1, 2, options=("--partition-by", "truncate(10, id)"))
    lake.ok("ref", "db.t", "--branch-create", "audit")
    third = on_audit(lake, 3)
    add(lake, 50)
    summarise(lake, third, operation="overwrite", replace_partitions="true")

    refused = lake("cherry-pick", "db.t", third)

    assert refused.exit_code == 3, refused
    assert "kept 1 files in them" in refused.stderr
    assert ids_in(lake.warehouse) == [1, 2, 50]


def test_a_rewrite_that_claims_to_be_an_append_is_refused(lake: CommandLine) -> None:
    """Its files contain rows that the branch has already."""
    add(lake, 1)
    add(lake, 2)
    lake.ok("ref", "db.t", "--branch-create", "audit")
    lake.ok("compact", "db.t", "--rewrite-all", "--branch", "audit")
    rewritten = str(read_metadata(lake.warehouse)["snapshots"][-1]["snapshot-id"])
    add(lake, 3)
    summarise(lake, rewritten, operation="append")

    refused = lake("cherry-pick", "db.t", rewritten)

    assert refused.exit_code == 3, refused
    assert "removed 2 files" in refused.stderr
    assert ids_in(lake.warehouse) == [1, 2, 3]


def test_a_snapshot_whose_files_are_gone_is_not_applied(lake: CommandLine) -> None:
    add(lake, 1)
    before = set((lake.warehouse / "db" / "t" / "data").rglob("*.parquet"))
    staged = stage(lake, "w", 2)
    (file,) = set((lake.warehouse / "db" / "t" / "data").rglob("*.parquet")) - before
    add(lake, 3)
    content = file.read_bytes()

    for broken in (lambda: file.write_bytes(content[:-1]), file.unlink):
        broken()
        for command in (("publish", "db.t", "--wap-id", "w"), ("cherry-pick", "db.t", staged)):
            refused = lake(*command)
            assert refused.exit_code == 7, refused
            assert str(file) in refused.stderr
    assert ids_in(lake.warehouse) == [1, 3]
    file.write_bytes(content)
    lake.ok("publish", "db.t", "--wap-id", "w")
    assert ids_in(lake.warehouse) == [1, 2, 3]


def test_an_id_that_the_branch_contains_is_not_published_as_a_fast_forward_either(
    lake: CommandLine,
) -> None:
    add(lake, 1)
    stage(lake, "two", 2)
    add(lake, 3)
    lake.ok("publish", "db.t", "--wap-id", "two")
    # The staged snapshot expires, and a repeated job stages the same rows on the head.
    lake.ok("expire", "db.t", "--older-than", "0s", "--unsafe-retention", "--retain-last", "2")
    again = stage(lake, "two", 2)

    refused = [lake("publish", "db.t", "--wap-id", "two"), lake("cherry-pick", "db.t", again)]

    assert [item.exit_code for item in refused] == [3, 3]
    assert all("contains WAP id two already" in item.stderr for item in refused)
    assert ids_in(lake.warehouse) == [1, 2, 3]
