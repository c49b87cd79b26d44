"""`lake deletes --convert` and `--rewrite` with limits: a part of the work per run, or several commits."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.cli.command_line import CommandLine
from support.tables.built_once import BuiltOnce
from support.tables.delete_files import commit_deletes, equality_file, position_file
from support.tables.iceberg_tables import open_session
from support.tiers import examples

import lake.core.maintain.compaction.execute as compaction
import lake.core.maintain.delete_conversion.execute as conversion
from lake.core.base.errors import BadInputError
from lake.core.maintain.compaction.options import CompactionOptions
from lake.core.maintain.compaction.plan import plan_compaction
from lake.core.maintain.delete_conversion.converted import CONVERTED
from lake.core.transaction.commit.commit import CommitRequest, commit_snapshot
from lake.core.transaction.commit.operations import AppendFiles


def create(lake: CommandLine, *options: str, version: str = "2") -> None:
    lake.ok("create", "db.t", "id long", "part string", "--format-version", version, *options)


def load(lake: CommandLine, ids: list[int], part: str = "a", *options: str) -> None:
    lake.load("id,part\n" + "".join(f"{number},{part}\n" for number in ids), *options)


def delete(lake: CommandLine, ids: list[int], partition: tuple[bytes, ...] = ()) -> None:
    """Delete rows by an equality delete file."""
    table = open_session(lake.warehouse).table("db.t")
    keys = [{"id": number} for number in ids]
    commit_deletes(table, equality_file(table, keys, ["id"], partition=partition))


def files_of_two(lake: CommandLine, count: int) -> None:
    """Load data files with the ids 0, 1, … and the ids 100, 101, …: an equality delete may apply to all of them."""
    for number in range(count):
        load(lake, [number, 100 + number])


def scanned(lake: CommandLine, *options: object) -> list[int]:
    output = lake.warehouse.parent / "out.csv"
    output.unlink(missing_ok=True)
    lake.ok("scan", "db.t", "--output", output, *options)
    return sorted(int(line.split(",")[0]) for line in output.read_text().splitlines()[1:])


def by_pyiceberg(lake: CommandLine, snapshot_id: str | None = None) -> list[int]:
    handle = lake.table()
    scan = handle.scan(snapshot_id=None if snapshot_id is None else int(snapshot_id))
    ids: list[int] = scan.to_arrow()["id"].to_pylist()
    return sorted(ids)


def kinds(lake: CommandLine) -> list[str]:
    return sorted(row["kind"] for row in lake.ok("deletes", "db.t")["result"]["delete_files"])


def limited(lake: CommandLine, *options: object) -> dict[str, Any]:
    """Run with limits; the exit code agrees with the status, and no commit changes a row."""
    before = scanned(lake)
    result = lake("--json", "deletes", "db.t", *options)
    document = result.json()
    assert result.exit_code == (6 if document["status"] == "partial" else 0), result.stderr
    for snapshot_id in document["snapshot_ids"]:
        assert scanned(lake, "--snapshot", snapshot_id) == before
    assert lake.ok("check", "db.t")["result"]["errors"] == 0
    return document


def is_unfinished(document: dict[str, Any]) -> bool:
    """Whether a run left delete files to later runs."""
    return bool(document["result"].get("remaining_deletes"))


@pytest.mark.parametrize("version", ["2", "3"])
def test_later_runs_continue_a_conversion(lake: CommandLine, version: str) -> None:
    create(lake, version=version)
    files_of_two(lake, 5)
    delete(lake, [1, 2, 104])

    runs = [limited(lake, "--convert", "--max-files", 2) for _ in range(3)]

    assert [run["status"] for run in runs] == ["done", "done", "done"]
    assert [run["plan"]["data_files"] for run in runs] == [2, 2, 1]
    assert [run["plan"]["remaining_files"] for run in runs] == [3, 1, 0]
    assert [run["result"]["removed_equality_deletes"] for run in runs] == [0, 0, 1]
    assert [run["result"]["remaining_deletes"] for run in runs] == [1, 1, 0]
    assert sum(run["result"]["deleted_rows"] for run in runs) == 3
    assert by_pyiceberg(lake) == scanned(lake) == [0, 3, 4, 100, 101, 102, 103]
    assert "equality" not in kinds(lake)
    assert limited(lake, "--convert", "--max-files", 2)["status"] == "nothing-to-do"


def test_a_part_without_deleted_rows_is_recorded_too(lake: CommandLine) -> None:
    create(lake)
    files_of_two(lake, 3)
    delete(lake, [50])
    runs = [limited(lake, "--convert", "--max-files", 1) for _ in range(3)]
    assert [run["status"] for run in runs] == ["done", "done", "done"]
    assert kinds(lake) == []


def test_deletes_of_other_writers_stay_for_a_later_conversion(lake: CommandLine) -> None:
    create(lake)
    files_of_two(lake, 4)
    delete(lake, [0, 103])
    limited(lake, "--convert", "--max-files", 2)
    delete(lake, [1, 102])
    load(lake, [0, 1])

    second = limited(lake, "--convert", "--max-files", 2)
    assert second["result"]["removed_equality_deletes"] == 1
    assert kinds(lake).count("equality") == 1
    runs = 0
    while is_unfinished(limited(lake, "--convert", "--max-files", 2)):
        runs += 1
    assert runs <= 1
    assert by_pyiceberg(lake) == [0, 1, 2, 3, 100, 101]


@pytest.mark.parametrize("count", [1, 3])
def test_files_that_a_compaction_adds_between_two_runs_are_read(
    lake: CommandLine, count: int
) -> None:
    create(lake)
    files_of_two(lake, 6)
    session = open_session(lake.warehouse)
    # The paths of new files are before those of the files that are converted.
    location = session.table("db.t").metadata.location
    lake.ok("alter", "db.t", "--set", f"write.data.path={location}/a")
    options = CompactionOptions(rewrite_all=True, max_group_files=1)
    planned = plan_compaction(session.table("db.t"), options)
    delete(lake, [0, 1, 2, 103, 104, 105])
    limited(lake, "--convert", "--max-files", 3)

    # The rewritten files keep the older sequence number, so that the deletes apply to them.
    compaction.execute(session, planned)

    expected = [3, 4, 5, 100, 101, 102]
    assert scanned(lake) == expected
    for _ in range(8):
        if not is_unfinished(limited(lake, "--convert", "--max-files", count)):
            break
    assert (by_pyiceberg(lake), kinds(lake).count("equality")) == (expected, 0)


def test_a_compaction_between_two_runs_resurrects_no_row(lake: CommandLine) -> None:
    create(lake)
    files_of_two(lake, 4)
    delete(lake, [0, 1, 102, 103])
    limited(lake, "--convert", "--max-files", 2)
    lake.ok("compact", "db.t", "--rewrite-all", "--max-group-files", "2")
    delete(lake, [2])
    for _ in range(8):
        if not is_unfinished(limited(lake, "--convert", "--max-files", 1)):
            break
    assert (by_pyiceberg(lake), kinds(lake).count("equality")) == ([3, 100, 101], 0)


def test_a_rollback_takes_back_what_was_recorded(lake: CommandLine) -> None:
    create(lake)
    files_of_two(lake, 3)
    delete(lake, [0, 1, 2])
    start = lake.ok("snapshots", "db.t")["result"]["snapshots"][0]["snapshot_id"]
    limited(lake, "--convert", "--max-files", 2)
    lake.ok("rollback", "db.t", start)

    done = limited(lake, "--convert", "--max-files", 2)

    assert (is_unfinished(done), done["plan"]["data_files"]) == (True, 2)
    assert limited(lake, "--convert")["result"]["deleted_rows"] == 1
    assert by_pyiceberg(lake) == [100, 101, 102]


@pytest.mark.parametrize(
    "text",
    ["", "[]", '{"sequence-number": 99, "until": "~"}', '{"sequence-number": "3", "until": "~"}'],
)
def test_a_record_that_cannot_be_true_is_ignored(lake: CommandLine, text: str) -> None:
    create(lake)
    files_of_two(lake, 3)
    delete(lake, [0, 1, 2])
    session = open_session(lake.warehouse)
    commit_snapshot(
        session,
        session.table("db.t"),
        AppendFiles(added=[]),
        CommitRequest(operation_id=session.ids.uuid()),
        summary={CONVERTED: text},
    )
    assert limited(lake, "--convert", "--max-files", 2)["plan"]["data_files"] == 2
    assert limited(lake, "--convert")["status"] == "done"
    assert by_pyiceberg(lake) == [100, 101, 102]


def test_a_record_of_a_filter_is_used_by_its_own_run_only(lake: CommandLine) -> None:
    create(lake)
    files_of_two(lake, 3)
    delete(lake, [0, 1, 2])
    where = ("--where", "id >= 0")
    for _ in range(2):
        found = limited(lake, "--convert", "--max-files", 2, *where)
        assert (found["plan"]["data_files"], found["plan"]["remaining_files"]) == (2, 1)
    parts = ("--partial-progress", "--max-commits", 3)
    done = limited(lake, "--convert", *parts, *where)
    assert (done["status"], len(done["snapshot_ids"])) == ("done", 3)
    assert by_pyiceberg(lake) == [100, 101, 102]


@pytest.mark.parametrize(("version", "commits"), [("2", 2), ("3", 4)])
def test_partial_progress_commits_a_conversion_in_parts(
    lake: CommandLine, version: str, commits: int
) -> None:
    create(lake, "--partition-by", "part", version=version)
    for number in range(4):
        load(lake, [number, 100 + number], "ab"[number // 2])
    delete(lake, [0, 1, 2, 3], (b"a",))
    delete(lake, [100, 101, 102, 103], (b"b",))

    done = limited(lake, "--convert", "--partial-progress", "--max-commits", commits)

    assert (done["status"], len(done["snapshot_ids"])) == ("done", commits)
    assert done["result"]["deleted_rows"] == 4
    assert (done["result"]["removed_equality_deletes"], kinds(lake).count("equality")) == (2, 0)
    # The delete file of a partition goes as soon as the partition is done.
    middle = done["snapshot_ids"][commits // 2 - 1]
    handle = lake.table()
    left = handle.inspect.delete_files(snapshot_id=int(middle)).to_pylist()
    assert [row["content"] for row in left].count(2) == 1
    assert by_pyiceberg(lake) == [2, 3, 100, 101]


def test_a_failure_after_a_commit_keeps_what_was_committed(
    lake: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(lake)
    files_of_two(lake, 4)
    delete(lake, [0, 1, 2, 3])
    real = conversion._write
    calls: list[int] = []

    def failing(*given: Any) -> Any:
        calls.append(1)
        if len(calls) == 2:
            raise BadInputError("the disk is on fire")
        return real(*given)

    monkeypatch.setattr(conversion, "_write", failing)
    found = limited(lake, "--convert", "--partial-progress", "--max-commits", 2)
    assert (found["status"], len(found["snapshot_ids"])) == ("partial", 1)
    assert any("the disk is on fire" in warning for warning in found["warnings"])
    again = limited(lake, "--convert")
    assert (again["plan"]["data_files"], again["status"]) == (2, "done")
    assert by_pyiceberg(lake) == [100, 101, 102, 103]


@pytest.mark.parametrize("other", ["append", "delete", "compaction", "rollback"])
def test_another_writer_between_two_commits_loses_nothing(
    lake: CommandLine, other: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(lake)
    files_of_two(lake, 4)
    delete(lake, [0, 1, 2, 3])
    start = lake.ok("snapshots", "db.t")["result"]["snapshots"][0]["snapshot_id"]
    real = conversion._commit
    calls: list[int] = []

    def overtaken(*given: Any) -> Any:
        calls.append(1)
        if len(calls) == 2:
            if other == "append":
                load(lake, [0])
            elif other == "delete":
                delete(lake, [100])
            elif other == "rollback":
                lake.ok("rollback", "db.t", start)
            else:
                session, plan = given[:2]
                options = CompactionOptions(rewrite_all=True)
                compaction.execute(session, plan_compaction(plan.table.refreshed(), options))
        return real(*given)

    monkeypatch.setattr(conversion, "_commit", overtaken)
    lake("deletes", "db.t", "--convert", "--partial-progress", "--max-commits", 2)
    expected = {"append": [0, 100, 101, 102, 103], "delete": [101, 102, 103]}
    assert scanned(lake) == expected.get(other, [100, 101, 102, 103])
    assert len(calls) > 1
    lake.ok("deletes", "db.t", "--convert")
    assert by_pyiceberg(lake) == expected.get(other, [100, 101, 102, 103])


MOVES = st.one_of(
    st.tuples(st.just("append"), st.lists(st.integers(0, 9), min_size=1, max_size=3)),
    st.tuples(st.just("delete"), st.lists(st.integers(0, 9), min_size=1, max_size=3, unique=True)),
    st.tuples(st.just("upsert"), st.integers(0, 9)),
    st.tuples(st.just("compact"), st.integers(1, 3)),
    st.tuples(st.just("partition"), st.booleans()),
    st.tuples(st.just("convert"), st.integers(1, 4)),
    st.tuples(st.just("parts"), st.integers(1, 4)),
)


@settings(deadline=None, max_examples=examples(10))
@given(st.lists(MOVES, min_size=4, max_size=10), st.sampled_from(["2", "3"]), st.booleans())
def test_no_commit_of_a_conversion_changes_a_row(
    moves: list[Any], version: str, partitioned: bool
) -> None:
    with TemporaryDirectory() as folder:
        lake = CommandLine(Path(folder) / "warehouse", engine="inline")
        by = ("--partition-by", "part")
        create(lake, *(by if partitioned else ()), version=version)
        for number in range(3):
            load(lake, [number, 9 - number])
        for move, value in moves:
            if move == "append":
                load(lake, value)
            elif move == "delete":
                delete(lake, value, (b"a",) * partitioned)
            elif move == "upsert":
                upsert = ("--upsert", "--key", "id,part", "--repair-duplicates")
                load(lake, [value], "a", *upsert)
            elif move == "compact":
                lake.ok("compact", "db.t", "--rewrite-all", "--max-group-files", value)
            elif move == "partition":
                partitioned = value
                lake.ok("alter", "db.t", "--partition-by", "part" if partitioned else "")
            elif move == "convert":
                limited(lake, "--convert", "--max-files", value)
            else:
                limited(lake, "--convert", "--partial-progress", "--max-commits", value)
        before = scanned(lake)
        for _ in range(30):
            if not is_unfinished(limited(lake, "--convert", "--max-files", 2)):
                break
        assert "equality" not in kinds(lake)
        assert by_pyiceberg(lake) == before


def position_deletes(built_once: BuiltOnce, kind: str) -> CommandLine:
    """Return a table of which rows of three data files are deleted by delete files of each and of all of them."""
    folder = built_once.folder(
        kind, lambda folder: _delete_positions(CommandLine(folder / "warehouse"), kind)
    )
    return CommandLine(folder / "warehouse")


def _delete_positions(lake: CommandLine, kind: str) -> None:
    scope = "file" if kind == "vector" else kind
    create(lake, "--property", f"write.delete.granularity={scope}")
    for start in (0, 10, 20):
        load(lake, list(range(start, start + 10)))
    handle = lake.table()
    paths = sorted(handle.inspect.data_files()["file_path"].to_pylist())
    table = open_session(lake.warehouse).table("db.t")
    for turn in range(3):
        table = commit_deletes(table, *(position_file(table, [(path, turn)]) for path in paths))
        shared = [(path, 5 + turn) for path in paths]
        table = commit_deletes(table, position_file(table, shared, names_file=False))
    if kind == "vector":
        lake.ok("alter", "db.t", "--format-version", "3")


@pytest.mark.parametrize("kind", ["file", "partition", "vector"])
def test_later_runs_continue_a_rewrite(built_once: BuiltOnce, kind: str) -> None:
    lake = position_deletes(built_once, kind)
    before = by_pyiceberg(lake)
    runs = []
    while not runs or is_unfinished(runs[-1]):
        runs.append(limited(lake, "--rewrite", "--max-files", 4))
        assert by_pyiceberg(lake) == before
        assert runs[-1]["plan"]["position_deletes"] <= 4
        assert len(runs) < 10
    assert len(runs) > 2
    assert runs[-1]["status"] == "done"
    assert limited(lake, "--rewrite")["status"] == "nothing-to-do"
    assert len(kinds(lake)) == (1 if kind == "partition" else 3)


@pytest.mark.parametrize("kind", ["file", "partition", "vector"])
def test_partial_progress_commits_a_rewrite_in_parts(built_once: BuiltOnce, kind: str) -> None:
    lake = position_deletes(built_once, kind)
    before = by_pyiceberg(lake)
    done = limited(lake, "--rewrite", "--partial-progress", "--max-commits", 3)
    assert done["status"] == "done"
    assert 1 < len(done["snapshot_ids"]) <= 3
    assert [by_pyiceberg(lake, one) for one in done["snapshot_ids"]] == [before] * len(
        done["snapshot_ids"]
    )
    assert done["result"]["removed_position_deletes"] >= 12
    assert lake.ok("deletes", "db.t", "--rewrite")["status"] == "nothing-to-do"


def test_files_are_merged_even_if_more_commits_are_allowed_than_there_are_merges(
    lake: CommandLine,
) -> None:
    create(lake)
    load(lake, [1, 2, 3])
    handle = lake.table()
    (path,) = handle.inspect.data_files()["file_path"].to_pylist()
    for place in (0, 1):
        table = open_session(lake.warehouse).table("db.t")
        commit_deletes(table, position_file(table, [(path, place)]))
    done = limited(lake, "--rewrite", "--partial-progress", "--max-commits", 5)
    assert (done["status"], len(done["snapshot_ids"]), len(kinds(lake))) == ("done", 1, 1)
    assert by_pyiceberg(lake) == [3]


def test_a_dry_run_shows_the_part(lake: CommandLine) -> None:
    create(lake)
    files_of_two(lake, 3)
    delete(lake, [0, 1, 2])
    plan = lake.ok("deletes", "db.t", "--convert", "--max-files", 2, "--dry-run")["plan"]
    assert (plan["data_files"], plan["remaining_files"], plan["equality_deletes"]) == (2, 1, 0)
    assert limited(lake, "--convert", "--max-files", 2)["plan"] == plan


@pytest.mark.parametrize(
    "options",
    [
        ("--max-files", "2"),
        ("--partial-progress",),
        ("--max-commits", "3"),
        ("--convert", "--max-files", "0"),
        ("--convert", "--max-commits", "0"),
        ("--rewrite", "--max-files", "1"),
    ],
)
def test_limits_that_do_not_fit_are_refused(lake: CommandLine, options: tuple[str, ...]) -> None:
    create(lake)
    result = lake("deletes", "db.t", *options)
    assert result.exit_code == 2
    assert options[-1 if len(options) == 1 else -2] in json.dumps(result.stderr)
