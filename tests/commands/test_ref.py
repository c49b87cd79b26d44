"""`lake ref` through the command line; PyIceberg reads the refs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from support.cli.command_line import CommandLine
from support.tables.iceberg_tables import after, ids_in
from support.tables.metadata_edits import edit_metadata

from lake.core.table.snapshots import ancestry


def add(lake: CommandLine, number: int, *options: object) -> int:
    return int(lake.load(f"id\n{number}\n", "--create", *options)["snapshot_ids"][0])


def refs(lake: CommandLine) -> dict[str, tuple[str, int]]:
    found = lake.table().metadata.refs
    return {name: (str(ref.snapshot_ref_type), ref.snapshot_id) for name, ref in found.items()}


def test_a_branch_is_created_filled_and_merged_by_a_fast_forward(lake: CommandLine) -> None:
    first = add(lake, 1)
    plan = lake.ok("ref", "db.t", "--branch-create", "audit", "--dry-run")["plan"]
    assert (plan["ref"], plan["to_snapshot"]) == ("audit", str(first))
    assert list(refs(lake)) == ["main"]

    lake.ok("ref", "db.t", "--branch-create", "audit", "--retain", "30d")
    again = lake.ok("ref", "db.t", "--branch-create", "audit")
    assert again["status"] == "nothing-to-do"
    second = add(lake, 2, "--branch", "audit")
    assert ids_in(lake.warehouse) == [1]

    lake.ok("ref", "db.t", "--fast-forward", "main", "--to", "audit")
    assert ids_in(lake.warehouse) == [1, 2]
    listed = lake.ok("ref", "db.t")["result"]["refs"]
    assert [(row["name"], row["type"], row["snapshot_id"]) for row in listed] == [
        ("main", "branch", str(second)),
        ("audit", "branch", str(second)),
    ]
    assert listed[1]["max_ref_age_ms"] == 30 * 24 * 3_600_000


def test_a_tag_is_created_as_a_branch_is_and_not_moved(lake: CommandLine) -> None:
    first = add(lake, 1)
    second = add(lake, 2)
    lake.ok("ref", "db.t", "--tag", "before", "--at", first, "--retain", "30d")
    lake.ok("ref", "db.t", "--tag", "now")
    found = refs(lake)
    assert (found["before"], found["now"]) == (("tag", first), ("tag", second))
    listed = lake.ok("tag", "db.t")["result"]["tags"]
    assert {row["name"]: row["max_ref_age_ms"] for row in listed} == {
        "before": 30 * 24 * 3_600_000,
        "now": None,
    }
    assert lake.ok("ref", "db.t", "--tag", "now")["status"] == "nothing-to-do"
    assert lake("ref", "db.t", "--tag", "now", "--at", first).exit_code == 3
    assert lake("ref", "db.t", "--branch-create", "now").exit_code == 3
    assert lake("ref", "db.t", "--tag", "x", "--branch-create", "y").exit_code == 2
    assert lake("ref", "db.t", "--retain", "1d").exit_code == 2
    assert refs(lake) == found


def test_a_dropped_branch_reports_the_snapshots_that_go_out_of_sight(lake: CommandLine) -> None:
    first = add(lake, 1)
    lake.ok("ref", "db.t", "--branch-create", "audit", "--at", first)
    own = add(lake, 2, "--branch", "audit")
    lake.ok("tag", "db.t", "kept")

    assert lake.ok("ref", "db.t", "--drop", "kept")["result"]["hidden_snapshots"] == []
    result = lake.ok("ref", "db.t", "--drop", "audit")["result"]
    assert result["hidden_snapshots"] == [str(own)]
    assert refs(lake) == {"main": ("branch", first)}


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("--fast-forward", "main", "--to", "audit"), 3),
        (("--fast-forward", "none", "--to", "audit"), 7),
        (("--fast-forward", "a-tag", "--to", "audit"), 7),
        (("--fast-forward", "main"), 2),
        (("--to", "main"), 2),
        (("--branch-create", "audit"), 3),
        (("--branch-create", "a-tag"), 3),
        (("--branch-create", "main"), 2),
        (("--branch-create", "123456"), 2),
        (("--branch-create", "new", "--at", "none"), 7),
        (("--branch-create", "new", "--drop", "audit"), 2),
        (("--drop", "main"), 3),
        (("--drop", "none"), 7),
        (("--at", "main"), 2),
        (("--dry-run",), 2),
    ],
)
def test_a_change_that_would_lose_or_confuse_commits_is_refused(
    lake: CommandLine, arguments: tuple[str, ...], code: int
) -> None:
    add(lake, 1)
    lake.ok("tag", "db.t", "a-tag")
    lake.ok("ref", "db.t", "--branch-create", "audit")
    add(lake, 2, "--branch", "audit")
    add(lake, 3)
    before = refs(lake)
    assert lake("ref", "db.t", *arguments).exit_code == code
    assert refs(lake) == before


def test_a_branch_that_another_writer_moves_meanwhile_is_not_moved(lake: CommandLine) -> None:
    add(lake, 1)
    lake.ok("ref", "db.t", "--branch-create", "audit")
    add(lake, 2, "--branch", "audit")
    other = lake.with_faults(after(lambda: add(lake, 3)))

    assert other("ref", "db.t", "--fast-forward", "main", "--to", "audit").exit_code == 4
    assert ids_in(lake.warehouse) == [1, 3]


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_branch_moves_forward_over_commits_that_rewrote_removed_and_merged_its_files(
    lake: CommandLine, version: int
) -> None:
    properties = {"format-version": version, "commit.manifest.min-count-to-merge": 2}
    options = [
        part for item in properties.items() for part in ("--property", "{}={}".format(*item))
    ]
    for number in range(1, 5):
        add(lake, number, *(options if number == 1 else ()))
    lake.ok("ref", "db.t", "--branch-create", "audit")
    on_audit = ("--branch", "audit")
    kind = "copy-on-write" if version == 1 else "position"
    add(lake, 2, "--upsert", "--key", "id", "--deletes", kind, *on_audit)
    lake.ok("compact", "db.t", "--rewrite-all", *on_audit)
    add(lake, 5, *on_audit)
    add(lake, 1, "--overwrite-where", "id = 1", *on_audit)
    lake.ok("manifests", "db.t", "--rewrite-all", *on_audit)

    lake.ok("ref", "db.t", "--fast-forward", "main", "--to", "audit")

    assert ids_in(lake.warehouse) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_branch_does_not_move_to_a_snapshot_with_a_wrong_parent(
    lake: CommandLine, version: int
) -> None:
    """It would lose the rows of its head; a program that mixes up branches commits such a snapshot."""
    add(lake, 1, "--property", f"format-version={version}")
    lake.ok("ref", "db.t", "--branch-create", "audit")
    staged = add(lake, 2, "--branch", "audit")
    head = add(lake, 3)

    def change(plain: dict[str, Any]) -> None:
        (found,) = (item for item in plain["snapshots"] if item["snapshot-id"] == staged)
        found["parent-snapshot-id"] = head
        if version > 1:
            plain["last-sequence-number"] += 1
            found["sequence-number"] = plain["last-sequence-number"]

    edit_metadata(lake.warehouse, change)

    for command in (
        ("ref", "db.t", "--fast-forward", "main", "--to", "audit"),
        ("cherry-pick", "db.t", str(staged)),
    ):
        refused = lake(*command)
        assert refused.exit_code == 7, refused
        assert "the parent is wrong" in refused.stderr
    assert ids_in(lake.warehouse) == [1, 3]


@contextmanager
def counted_walks() -> Iterator[Callable[[], int]]:
    """Count the snapshots that walks over histories visit."""
    real, visited = ancestry.ancestors, 0

    def counting(*arguments: Any) -> Iterator[Any]:
        nonlocal visited
        for item in real(*arguments):
            visited += 1
            yield item

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ancestry, "ancestors", counting)
        yield lambda: visited


def test_many_refs_of_a_long_history_are_walked_once(lake: CommandLine) -> None:
    """The work of 3,000 refs on as many snapshots each would take minutes."""
    first, count = add(lake, 1), 3000
    add(lake, 2)

    def change(plain: dict[str, Any]) -> None:
        oldest = plain["snapshots"][0]
        plain["snapshots"] = [
            *(
                {**oldest, "snapshot-id": number, "parent-snapshot-id": number - 1 or None}
                for number in range(1, count + 1)
            ),
            {**oldest, "parent-snapshot-id": count},
            *plain["snapshots"][1:],
        ]
        named = {f"t{number}": {"snapshot-id": count, "type": "tag"} for number in range(count)}
        plain["refs"].update(named)

    edit_metadata(lake.warehouse, change)
    with counted_walks() as visited:
        plan = lake.ok("rollback", "db.t", str(first), "--dry-run")["plan"]
        assert len(plan["hidden_snapshots"]) == 1
        plan = lake.ok("ref", "db.t", "--drop", "t1", "--dry-run")["plan"]
        assert plan["hidden_snapshots"] == []
    assert visited() < 20 * count
