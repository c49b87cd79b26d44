"""Options that limit the work of one run: later runs do what remains."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from support.cli.command_line import CommandLine
from support.tables.delete_files import commit_deletes, equality_file
from support.tables.iceberg_tables import ids_in, open_session
from support.tables.partitioned_tables import add


def six_files(lake: CommandLine) -> None:
    for number in range(6):
        lake.load(f"id\n{number}\n", "--create")


def six_files_with_an_equality_delete(lake: CommandLine) -> None:
    lake.ok("create", "db.t", "id long", "--format-version", "2")
    six_files(lake)
    table = open_session(lake.warehouse).table("db.t")
    commit_deletes(table, equality_file(table, [{"id": 3}], ["id"]))


def six_position_delete_files(lake: CommandLine) -> None:
    lake.load("id\n" + "".join(f"{number}\n" for number in range(10)), "--create")
    for number in range(6):
        lake.load(f"id\n{number}\n", "--upsert", "--key", "id", "--deletes", "position")


def six_old_partitions(lake: CommandLine) -> None:
    add(lake, *(f"{number},2020-01-0{number + 1}" for number in range(6)))


# How a table is prepared, the command without a limit, the limit, and the ids in the end.
Case = tuple[Callable[[CommandLine], None], tuple[str, ...], tuple[str, ...], list[int]]
_COMPACT = ("compact", "db.t", "--min-input-files", "2")
_PARTITIONS = ("expire-partitions", "db.t", "--by", "day", "--older-than", "30d")
CASES: dict[str, Case] = {
    "compact": (six_files, _COMPACT, ("--max-files", "3"), [*range(6)]),
    "compact by Spark's name": (
        six_files,
        _COMPACT,
        ("--option", "max-files-to-rewrite=3"),
        [*range(6)],
    ),
    "convert": (
        six_files_with_an_equality_delete,
        ("deletes", "db.t", "--convert"),
        ("--max-files", "2"),
        [0, 1, 2, 4, 5],
    ),
    "rewrite": (
        six_position_delete_files,
        ("deletes", "db.t", "--rewrite"),
        ("--max-files", "3"),
        [*range(10)],
    ),
    "expire-partitions": (six_old_partitions, _PARTITIONS, ("--max", "2"), []),
}


def run(lake: CommandLine, *words: str) -> dict[str, Any]:
    """Run a command whose exit code must be that of its status."""
    result = lake("--json", *words)
    document = result.json()
    assert result.exit_code == {"partial": 6}.get(document["status"], 0), result.stderr
    return document


@pytest.mark.parametrize("case", CASES)
def test_later_runs_do_what_a_limit_leaves(lake: CommandLine, case: str) -> None:
    prepare, words, limit, expected = CASES[case]
    prepare(lake)

    assert run(lake, *words, *limit, "--dry-run")["status"] == "dry-run"
    statuses = []
    while "nothing-to-do" not in statuses:
        statuses.append(run(lake, *words, *limit)["status"])
        assert len(statuses) < 9

    # A run that removes rows reports that it did not remove all.
    unfinished = "partial" if case == "expire-partitions" else "done"
    assert len(statuses) > 2
    assert statuses == [*[unfinished] * (len(statuses) - 2), "done", "nothing-to-do"]
    assert ids_in(lake.warehouse) == expected


@pytest.mark.parametrize("case", CASES)
def test_a_limit_that_leaves_nothing_makes_no_difference(lake: CommandLine, case: str) -> None:
    prepare, words, limit, _ = CASES[case]
    prepare(lake)
    enough = [text.replace(text[-1], "9") if text[-1].isdigit() else text for text in limit]

    assert run(lake, *words, *enough)["status"] == "done"
    assert run(lake, *words)["status"] == "nothing-to-do"


def test_the_files_that_remain_are_reported(lake: CommandLine) -> None:
    six_files(lake)
    words = ("compact", "db.t", "--max-files", "5")

    shown = lake(*words, "--dry-run")
    assert "in 1 group into about 1 file; 1 file remains; nothing was written" in shown.stderr
    assert run(lake, *words, "--dry-run")["plan"]["remaining_files"] == 1
    done = lake(*words)
    assert done.exit_code == 0
    assert "5 rows unchanged; 1 file remains" in done.stdout + done.stderr
