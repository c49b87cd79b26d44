"""`--explain`: everything that a plan leaves alone is counted by the reason, and listed with --verbose."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.cli.command_line import CommandLine
from support.tables.delete_files import commit_equality_delete, commit_position_delete
from support.tables.iceberg_tables import make_table
from support.tables.tidy_table import Tidy, planted_orphans

EXPIRE = ("expire", "db.t", "--older-than", "0s", "--unsafe-retention")


def tables_of(text: str) -> list[list[list[str]]]:
    """Return the tables that a command printed for a pipe: rows of cells, the first with the names of columns."""
    found: list[list[list[str]]] = [[]]
    for line in text.splitlines():
        cells = line.split("\t")
        if len(cells) < 2:
            continue
        if (found[-1] and len(cells) != len(found[-1][0])) or cells[0] == "reason":
            found.append([])
        found[-1].append(cells)
    return [table for table in found if table]


def explained(lake: CommandLine, *words: object) -> tuple[dict[str, Any], Counter[str], list[Any]]:
    """Return the plan, the number of things by the reason, and the rows of each of them."""
    plan = lake.ok(*words, "--dry-run", "--explain")["plan"]
    short = lake(*words, "--dry-run", "--explain")
    long = lake("--verbose", *words, "--dry-run", "--explain")
    assert (short.exit_code, long.exit_code) == (0, 0), long.stderr
    [groups] = [table for table in tables_of(short.stdout) if table[0][0] == "reason"]
    _, items = [table for table in tables_of(long.stdout) if table[0][0] == "reason"]
    counts: Counter[str] = Counter()
    name = next(
        cell
        for cell in groups[0]
        if cell in {"snapshots", "files", "manifests", "delete_files", "tables"}
    )
    place = groups[0].index(name)
    for row in groups[1:]:
        counts[row[0]] += int(row[place].replace(",", ""))
    return plan, counts, items[1:]


@pytest.fixture
def lake(tmp_path: Path) -> CommandLine:
    return CommandLine(tmp_path / "warehouse", engine="inline")


def test_each_kept_snapshot_is_shown_with_what_keeps_it(lake: CommandLine) -> None:
    table = make_table(lake.warehouse)
    ids = []
    for number in range(5):
        table.append(pa.table({"id": pa.array([number], pa.int64()), "name": ["n"]}))
        ids.append(str(table.metadata.current_snapshot_id))
    lake.ok("ref", "db.t", "--tag", "release", "--at", ids[0], "--retain", "30d")
    table.refresh().manage_snapshots().create_branch(
        int(ids[2]), "audit", min_snapshots_to_keep=2
    ).commit()

    plan, counts, items = explained(lake, *EXPIRE, "--retain-last", "3")

    assert counts == {"referenced": 3, "last-n": 2}
    assert plan["kept_snapshots"] == counts
    assert {row[1] for row in items} == set(ids)
    shown = {(kept["by"], kept["rule"]): kept["snapshots"] for kept in plan["left_alone"]}
    assert shown == {
        ("branch audit", None): 1,
        ("branch audit", "among the newest 2 (min-snapshots-to-keep of the branch)"): 1,
        ("branch main", None): 1,
        ("branch main", "among the newest 3 (retain-last)"): 1,
        ("tag release", "stays for 30 days (its max-ref-age-ms)"): 1,
    }

    plan, counts, _ = explained(lake, "expire", "db.t")

    assert counts == {"referenced": 3, "recent": 2}
    rule = "younger than 5 days (history.expire.max-snapshot-age-ms)"
    assert sum(kept["snapshots"] for kept in plan["left_alone"] if kept["rule"] == rule) == 2


def test_each_file_that_clean_keeps_is_shown_with_the_reason(tmp_path: Path) -> None:
    tidy = Tidy(tmp_path)
    planted_orphans(tidy)
    young = tidy.root / "data" / "00000-0-00000000-0000-0000-0000-000000000000.parquet"
    young.write_bytes(b"new")

    plan, counts, items = explained(tidy.lake, "clean", "db.t")

    kept = Counter({row["reason"]: row["files"] for row in plan["left_alone"]})
    assert kept == counts
    assert kept == {**plan["kept"], "reachable": plan["reachable"]}
    assert plan["listed"] == plan["orphans"] + sum(kept.values())
    assert Counter(row[0] for row in items) == plan["kept"]
    assert [row[0] for row in items if young.name in row[1]] == ["young"]


def test_each_manifest_that_stays_is_shown_with_the_reason(lake: CommandLine) -> None:
    for number in range(3):
        lake.load(f"id,day\n{number},a\n", *(["--create"] if number == 0 else []))
    lake.ok("manifests", "db.t", "--rewrite-all")

    plan, counts, items = explained(lake, "manifests", "db.t")

    assert (counts, len(items)) == ({"well-sized": 1}, 1)
    assert [kept["manifests"] for kept in plan["left_alone"]] == [1]
    for reason, more in (
        ("not-due", ("--if", "manifests > 100")),
        ("well-sized", ("--spec-id", "0")),
    ):
        _, counts, _ = explained(lake, "manifests", "db.t", *more)
        assert counts == {reason: 1}
    lake.ok("alter", "db.t", "--partition-by", "day")
    lake.load("id,day\n7,a\n")
    _, counts, _ = explained(lake, "manifests", "db.t", "--spec-id", "1")
    assert counts == {"other-spec": 1, "well-clustered": 1}


def test_each_delete_file_that_stays_is_shown_with_the_reason(lake: CommandLine) -> None:
    table = make_table(lake.warehouse)
    for number in range(2):
        rows = pa.table({"id": pa.array([number, 9], pa.int64()), "name": ["n", "m"]})
        table.append(rows)
    paths = table.inspect.data_files()["file_path"].to_pylist()
    commit_position_delete(lake.warehouse, paths[0], 0)
    commit_equality_delete(lake.warehouse, [9])

    plan, counts, items = explained(lake, "deletes", "db.t", "--rewrite")

    assert plan["position_deletes"] == 0
    assert counts["equality"] == 1
    assert sum(counts.values()) == len(items) == 2
    plan, counts, items = explained(lake, "deletes", "db.t", "--convert")
    assert (plan["equality_deletes"], counts, len(items)) == (1, {"position": 1}, 1)


def test_each_file_that_is_not_compacted_is_shown_with_the_reason(lake: CommandLine) -> None:
    for number in range(3):
        lake.load(f"id\n{number}\n", *(["--create"] if number == 0 else []))

    plan, counts, items = explained(lake, "compact", "db.t")

    assert counts == {"few-files": plan["left_alone"]["few-files"]["files"]} == {"few-files": 3}
    paths = set(lake.table().inspect.files()["file_path"].to_pylist())
    assert {row[2] for row in items} == paths


def test_each_action_that_is_not_due_is_shown_with_the_reason(lake: CommandLine) -> None:
    lake.load("id\n1\n", "--create")

    plan, counts, items = explained(lake, "maintain")

    assert sum(counts.values()) == len(items) == len(plan["left_alone"])
    assert {row[2] for row in items} == {row["action"] for row in plan["left_alone"]}


@pytest.mark.parametrize(
    "words",
    [
        ("compact", "db.t"),
        ("expire", "db.t"),
        ("clean", "db.t", "--delete"),
        ("manifests", "db.t"),
        ("deletes", "db.t", "--rewrite"),
        ("deletes", "db.t"),
        ("maintain",),
    ],
    ids=" ".join,
)
def test_only_a_plan_is_explained(lake: CommandLine, words: tuple[str, ...]) -> None:
    lake.load("id\n1\n", "--create")

    result = lake(*words, "--explain")

    assert (result.exit_code, "--explain needs --dry-run" in result.stderr) == (2, True)


def test_a_plan_that_is_written_is_explained_as_a_dry_run_is(
    lake: CommandLine, tmp_path: Path
) -> None:
    lake.load("id\n1\n", "--create")
    path = tmp_path / "plan.json"

    dry = lake("maintain", "--explain", "--dry-run").stdout
    written = lake("maintain", "--explain", "--plan", path).stdout

    assert written == dry
    assert "reason\taction\ttables" in written


def test_a_list_of_orphan_files_is_a_plan(tmp_path: Path) -> None:
    tidy = Tidy(tmp_path)

    assert "left_alone" in tidy.lake.ok("clean", "db.t", "--explain")["plan"]


def test_the_command_that_a_dry_run_prepares_explains_nothing(lake: CommandLine) -> None:
    for number in range(5):
        lake.load(f"id\n{number}\n", *(["--create"] if number == 0 else []))

    said = lake("compact", "db.t", "--dry-run", "--explain").stderr

    assert said.splitlines()[-1].endswith(" compact db.t")
