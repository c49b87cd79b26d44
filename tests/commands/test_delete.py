"""`lake delete` through the command line: exactly the rows that a filter selects leave the table."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from support.cli.command_line import CommandLine
from support.tables.delete_files import commit_deletes, commit_equality_delete, position_file
from support.tables.iceberg_tables import (
    after,
    applied_then,
    files_below,
    open_session,
    refused_with,
)
from support.tiers import chosen, examples

from lake.core.transaction.locks.table_lock import with_table_lock

Row = tuple[int, str | None, float | None]
POSITION, COPY = ("--deletes", "position"), ("--deletes", "copy-on-write")
_numbers = itertools.count()


def source(lake: CommandLine, rows: list[Row]) -> Path:
    """Write a Parquet file of rows."""
    lake.warehouse.parent.mkdir(parents=True, exist_ok=True)
    path = lake.warehouse.parent / f"source-{next(_numbers):04d}.parquet"
    types = {"id": pa.int64(), "part": pa.string(), "value": pa.float64()}
    columns = [pa.array([row[at] for row in rows], kind) for at, kind in enumerate(types.values())]
    pq.write_table(pa.table(columns, names=list(types)), path)
    return path


def load(lake: CommandLine, rows: list[Row], *options: object) -> None:
    lake.ok("ingest", "db.t", source(lake, rows), *options)


def create(lake: CommandLine, rows: list[Row], version: int = 2, *options: object) -> None:
    load(lake, rows, "--create", "--property", f"format-version={version}", *options)


def delete(lake: CommandLine, where: str, *options: object) -> dict[str, Any]:
    """Delete rows of db.t; return the result's numbers."""
    done: dict[str, Any] = lake.ok("delete", "db.t", "--where", where, *options)["result"]
    return done


def rows_of(lake: CommandLine, *options: object) -> list[Row]:
    """Return the rows that `lake scan` gives, sorted."""
    path = lake.warehouse.parent / f"scan-{next(_numbers):04d}.parquet"
    lake.ok("scan", "db.t", "--output", path, *options)
    found = pq.read_table(path).select(["id", "part", "value"]).to_pylist()
    return sorted(((row["id"], row["part"], row["value"]) for row in found), key=repr)


def ids(lake: CommandLine, *options: object) -> list[int]:
    return sorted(row[0] for row in rows_of(lake, *options))


def by_pyiceberg(lake: CommandLine) -> list[int]:
    """Return the ids that PyIceberg reads; it does not read deletion vectors of lake's kind in version 3."""
    table = lake.table()
    return sorted(table.scan().to_arrow()["id"].to_pylist())


def is_sound(lake: CommandLine) -> bool:
    return lake.ok("check", "db.t", "--deep")["result"]["errors"] == 0


ROWS: list[Row] = [
    (1, "a", 1.0),
    (2, "a", None),
    (3, "b", 1.0),
    (4, "b", 2.0),
    (5, None, 1.0),
    (6, "c", 3.0),
    (7, "c", 4.0),
]


# Which rows


@pytest.mark.parametrize(
    ("version", "mode"), [(1, COPY), (2, COPY), (2, POSITION), (3, COPY), (3, POSITION)]
)
def test_the_rows_for_which_the_filter_is_true_go_and_no_others(
    lake_on: CommandLine, version: int, mode: tuple[str, str]
) -> None:
    create(lake_on, ROWS, version, "--partition-by", "part")
    # NULL is neither equal nor unequal to anything.
    done = delete(lake_on, "value <> 1 or part = 'c'", *mode)

    assert ids(lake_on) == [1, 2, 3, 5]
    assert done["rows"] == 3
    # All rows of c match, those of b in part.
    assert done["data_files_removed"] == 1
    assert (done["data_files_rewritten"], done["delete_files"]) == (
        (1, 0) if mode == COPY else (0, 1)
    )
    assert is_sound(lake_on)
    assert lake_on.ok("delete", "db.t", "--where", "part = 'c'")["status"] == "nothing-to-do"


FILTERS: dict[str, Callable[[Row], bool]] = {
    "part = 'a'": lambda row: row[1] == "a",
    "part is null": lambda row: row[1] is None,
    "id < 4": lambda row: row[0] < 4,
    "id >= 2 and id < 6": lambda row: 2 <= row[0] < 6,
    "value > 1": lambda row: row[2] is not None and row[2] > 1,
    "not (value > 1)": lambda row: row[2] is not None and row[2] <= 1,
    "part = 'b' or value is null": lambda row: row[1] == "b" or row[2] is None,
    "part in ('a', 'b') and value <> 2": lambda row: (
        row[1] in {"a", "b"} and row[2] is not None and row[2] != 2
    ),
    "true": lambda _: True,
    "false": lambda _: False,
}
KEYS = st.integers(0, 7)
SOME_ROWS = st.lists(
    st.tuples(
        KEYS,
        st.sampled_from(["a", "b", None]),
        st.none() | st.integers(0, 3).map(float),
    ),
    max_size=6,
    unique_by=lambda row: row[0],
)


@given(
    version=st.sampled_from([1, 2, 3]),
    spec=st.sampled_from(["", "part", "bucket(2, id)", "truncate(2, id), part"]),
    file_format=st.sampled_from(["parquet", "parquet", "orc", "avro"]),
    steps=st.lists(
        st.tuples(SOME_ROWS, st.sampled_from(["append", "position", "equality", "copy-on-write"]))
        | st.tuples(st.sampled_from(sorted(FILTERS)), st.sampled_from([*POSITION[1:], *COPY[1:]])),
        min_size=2,
        max_size=5,
    ),
)
@settings(
    deadline=None,
    max_examples=examples(15),
    suppress_health_check=[HealthCheck.too_slow],
    # A world takes a second: shrinking one would take minutes.
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)
def test_deletions_between_loads_of_any_mode_leave_what_a_list_has(
    version: int,
    spec: str,
    file_format: str,
    steps: list[tuple[Any, str]],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    lake = CommandLine(tmp_path_factory.mktemp("world") / "warehouse", engine="inline")
    by = ("--partition-by", spec) if spec else ()
    create(lake, ROWS, version, *by, "--property", f"write.format.default={file_format}")
    expected = list(ROWS)
    for what, mode in steps:
        if isinstance(what, str):
            chosen = "copy-on-write" if version == 1 else mode
            gone = [row for row in expected if FILTERS[what](row)]
            counted = lake.ok("delete", "db.t", "--where", what, "--dry-run", "--count")["plan"]
            assert counted["rows"] == len(gone)
            done = lake.ok("delete", "db.t", "--where", what, "--deletes", chosen)
            assert done["result"].get("rows", 0) == len(gone)
            expected = [row for row in expected if not FILTERS[what](row)]
        elif mode == "append":
            load(lake, what)
            expected += what
        else:
            chosen = "copy-on-write" if version == 1 or (spec and mode == "equality") else mode
            keys = [row[0] for row in what]
            load(lake, what, "--upsert", "--key", "id", "--deletes", chosen, "--repair-duplicates")
            expected = [row for row in expected if row[0] not in keys] + what
        assert rows_of(lake) == sorted(expected, key=repr)
    assert is_sound(lake)


def test_a_deletion_without_a_filter_is_not_a_command(lake: CommandLine) -> None:
    create(lake, ROWS)
    for given_options in ((), ("--where", " ")):
        result = lake("delete", "db.t", *given_options)
        assert (result.exit_code, "--where" in result.stderr) == (2, True)
    assert ids(lake) == [1, 2, 3, 4, 5, 6, 7]
    assert delete(lake, "true")["rows"] == 7
    assert ids(lake) == []


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (("--where", "nothing = 1"), 7, "columns: id, part, value"),
        (("--where", "id = 'x'"), 7, "id"),
        (("--where", "id = 1", "--branch", "other"), 7, "no branch named other"),
        (("--where", "id = 1", "--deletes", "equality"), 2, "position, copy-on-write"),
        (("--where", "id = 1", "--max-rows", "-1"), 2, "--max-rows"),
        (("--where", "id = 1", "--run-id", ""), 2, "--run-id"),
        (("--where", "id = 1", "--count"), 2, "--dry-run"),
        (("--where", "id = 1", "--deletes", "position"), 3, "use --deletes copy-on-write"),
    ],
)
def test_what_cannot_be_done_is_refused_by_name(
    lake: CommandLine, options: tuple[str, ...], code: int, message: str
) -> None:
    create(lake, ROWS, 1)
    before = files_below(lake.warehouse)
    result = lake("delete", "db.t", *options)
    assert (result.exit_code, message in result.stderr) == (code, True), result
    assert files_below(lake.warehouse) == before


# Which files


def test_files_of_which_all_rows_match_are_not_read(lake: CommandLine) -> None:
    create(lake, ROWS, 2, "--partition-by", "part")
    load(lake, [(20, "z", 5.0), (21, "z", 6.0)])
    for path in lake.warehouse.rglob("*.parquet"):
        if "part=a" in str(path) or "part=z" in str(path):
            path.write_bytes(b"not a Parquet file")

    done = delete(lake, "part = 'a' or id >= 20")
    assert done == {
        "rows": 4,
        "data_files_removed": 2,
        "data_files_rewritten": 0,
        "delete_files": 0,
    }
    assert ids(lake) == [3, 4, 5, 6, 7]


@pytest.mark.parametrize(
    ("property_", "mode"), [(None, "copy-on-write"), ("merge-on-read", "position")]
)
def test_the_tables_property_decides_how_rows_leave_a_file(
    lake: CommandLine, property_: str | None, mode: str
) -> None:
    given_property = ("--property", f"write.delete.mode={property_}") if property_ else ()
    create(lake, ROWS, 2, *given_property)
    shown = lake.ok("delete", "db.t", "--where", "id = 4", "--dry-run")
    assert shown["plan"]["deletes"] == mode
    done = delete(lake, "id = 4")
    assert (done["data_files_rewritten"], done["delete_files"]) == (
        (1, 0) if mode == "copy-on-write" else (0, 1)
    )
    assert by_pyiceberg(lake) == [1, 2, 3, 5, 6, 7]


def test_a_file_of_which_no_row_is_left_is_removed_and_not_rewritten(lake: CommandLine) -> None:
    # The bounds of a file do not show that every row matches.
    create(lake, [(1, "a", 1.0), (3, "a", 3.0)])
    done = delete(lake, "id in (1, 3)", *COPY)
    assert (done["rows"], done["data_files_removed"], done["data_files_rewritten"]) == (2, 1, 0)
    assert ids(lake) == []


def test_files_of_earlier_partition_specs_are_searched_too(lake: CommandLine) -> None:
    create(lake, ROWS, 2, "--partition-by", "part")
    lake.ok("alter", "db.t", "--partition-by", "bucket(2, id)")
    load(lake, [(8, "a", 1.0), (9, "b", 1.0)])
    assert delete(lake, "part = 'a' or id = 9", *POSITION)["rows"] == 4
    assert by_pyiceberg(lake) == [3, 4, 5, 6, 7]
    assert delete(lake, "value = 1", *COPY)["rows"] == 2
    assert by_pyiceberg(lake) == [4, 6, 7]


def test_rows_that_stay_keep_the_tables_order(lake: CommandLine) -> None:
    create(lake, ROWS, 2, "--sort-by", "id desc")
    delete(lake, "id = 4", *COPY)
    table = lake.table()
    assert table.scan().to_arrow()["id"].to_pylist() == [7, 6, 5, 3, 2, 1]
    (entry,) = table.inspect.files().to_pylist()
    assert entry["sort_order_id"] == 1


# Rows that are deleted already


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("kind", ["position", "equality", "shared"])
def test_a_row_that_is_deleted_already_does_not_count(
    lake: CommandLine, version: int, kind: str
) -> None:
    create(lake, ROWS, version)
    if kind == "equality":
        commit_equality_delete(lake.warehouse, [1, 6])
    elif kind == "position" or version == 3:
        delete(lake, "id in (1, 6)", *POSITION)
    else:
        table = open_session(lake.warehouse).table("db.t")
        (path,) = (task.file.file_path for task in lake.table().scan().plan_files())
        commit_deletes(table, position_file(table, [(path, 0), (path, 5)], names_file=False))
    shown = lake.ok("delete", "db.t", "--where", "id < 4", "--dry-run", "--count")
    assert shown["plan"]["rows"] == 2
    assert delete(lake, "id < 4", *POSITION)["rows"] == 2
    assert ids(lake) == [4, 5, 7]
    # The whole file goes; metadata does not show how many rows were left in it.
    assert delete(lake, "id > 0")["rows"] == 3
    assert ids(lake) == []


def test_a_dry_run_bounds_the_rows_and_changes_nothing(lake: CommandLine) -> None:
    create(lake, ROWS, 2, "--partition-by", "part")
    before = files_below(lake.warehouse)
    where = ("--where", "part = 'a' or (part = 'b' and value = 2)")

    plan = lake.ok("delete", "db.t", *where, "--dry-run")["plan"]
    assert (plan["rows"], plan["rows_at_least"], plan["rows_at_most"]) == (None, 2, 4)
    assert (plan["data_files_removed"], plan["data_files_examined"]) == (1, 1)
    assert {item["partition"] for item in plan["partitions"]} == {"part=a", "part=b"}
    counted = lake.ok("delete", "db.t", *where, "--dry-run", "--count")["plan"]
    assert counted["rows"] == 3
    assert {item["partition"]: item["rows_at_most"] for item in counted["partitions"]} == {
        "part=a": 2,
        "part=b": 1,
    }
    assert files_below(lake.warehouse) == before

    shown = lake("delete", "db.t", *where, "--dry-run", "--count")
    assert "would delete 3 rows in 2 files (1 of them in part) of 2 partitions" in shown.stderr
    (next_line,) = (line for line in shown.stderr.splitlines() if "next: " in line)
    assert next_line.endswith("(part = 'b' and value = 2)\"") or "--dry-run" not in next_line
    assert "--count" not in next_line


# Limits and repetition


@pytest.mark.parametrize("where", ["part = 'a'", "value = 1"])
def test_more_rows_than_allowed_are_refused_and_nothing_changes(
    lake: CommandLine, where: str
) -> None:
    create(lake, ROWS, 2, "--partition-by", "part")
    before = files_below(lake.warehouse)
    result = lake("--json", "delete", "db.t", "--where", where, "--max-rows", 1)
    assert (result.exit_code, result.json()["status"]) == (3, "refused")
    assert "--max-rows allows 1" in result.json()["error"]["message"]
    assert files_below(lake.warehouse) == before
    assert ids(lake) == [1, 2, 3, 4, 5, 6, 7]
    rows = 2 if where == "part = 'a'" else 3
    assert delete(lake, where, "--max-rows", rows)["rows"] == rows


def test_a_run_deletes_once(lake: CommandLine) -> None:
    create(lake, ROWS)
    assert delete(lake, "part = 'a'", "--run-id", "request-7")["rows"] == 2
    load(lake, [(8, "a", 1.0)])
    again = lake.ok("delete", "db.t", "--where", "part = 'a'", "--run-id", "request-7")
    assert again["status"] == "nothing-to-do"
    assert again["plan"]["earlier_run"]["run_id"] == "request-7"
    assert ids(lake) == [3, 4, 5, 6, 7, 8]
    text = lake("delete", "db.t", "--where", "part = 'a'", "--run-id", "request-7").stdout
    assert 'run "request-7" was committed on' in text
    assert delete(lake, "part = 'a'", "--run-id", "request-8")["rows"] == 1


def test_of_two_processes_with_one_run_id_one_deletes(lake: CommandLine) -> None:
    create(lake, ROWS)

    def other() -> None:
        delete(CommandLine(lake.warehouse), "id = 1", "--run-id", "r", *COPY)
        load(CommandLine(lake.warehouse), [(9, "z", 1.0)])

    # Locks are not on every storage, so the commit decides.
    racing = lake.with_faults(after(lambda: _without_lock(other)))
    before = racing("--json", "delete", "db.t", "--where", "part = 'b'", "--run-id", "r", *COPY)
    assert before.json()["status"] == "nothing-to-do", before
    assert ids(lake) == [2, 3, 4, 5, 6, 7, 9]
    table = lake.table()
    live = {task.file.file_path.rsplit("/", 1)[1] for task in table.scan().plan_files()}
    first = {entry.file_path.rsplit("/", 1)[1] for entry in _all_files(table)}
    on_disk = {path.name for path in (lake.warehouse / "db/t/data").rglob("*.parquet")}
    assert on_disk == live | first


def _all_files(table: Any) -> list[Any]:
    """Return the data files of every snapshot."""
    return [
        task.file
        for snapshot in table.metadata.snapshots
        for task in table.scan(snapshot_id=snapshot.snapshot_id).plan_files()
    ]


def _without_lock(work: Callable[[], None]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "lake.core.transaction.locks.table_lock.with_table_lock",
            lambda session, table, work, **_: work(table.refreshed(), session.ids.uuid()),
        )
        work()


# Other writers


@pytest.mark.parametrize("mode", [POSITION, COPY])
def test_rows_that_are_appended_meanwhile_are_considered_too(
    lake: CommandLine, mode: tuple[str, str]
) -> None:
    create(lake, ROWS)
    other = after(lambda: load(lake, [(8, "a", 1.0), (9, "b", 1.0)]))
    assert delete(lake.with_faults(other), "part = 'a'", *mode)["rows"] == 3
    assert ids(lake) == [3, 4, 5, 6, 7, 9]
    assert is_sound(lake)


@pytest.mark.parametrize("mode", [POSITION, COPY])
def test_a_deletion_that_always_loses_is_a_conflict_and_leaves_no_file(
    lake: CommandLine, mode: tuple[str, str]
) -> None:
    create(lake, ROWS)
    racing = [after(lambda n=n: load(lake, [(10 + n, "a", 1.0)])) for n in range(6)]
    result = lake.with_faults(*racing)("--json", "delete", "db.t", "--where", "part = 'a'", *mode)
    assert (result.exit_code, result.json()["status"]) == (4, "conflict")
    assert ids(lake)[:7] == [1, 2, 3, 4, 5, 6, 7]
    table = lake.table()
    live = {task.file.file_path.rsplit("/", 1)[1] for task in table.scan().plan_files()}
    assert {path.name for path in (lake.warehouse / "db/t/data").rglob("*.parquet")} == live


@pytest.mark.parametrize("mode", [POSITION, COPY])
def test_under_snapshot_isolation_rows_that_are_appended_meanwhile_stay(
    lake: CommandLine, mode: tuple[str, str]
) -> None:
    create(lake, ROWS, 2, "--property", "write.delete.isolation-level=snapshot")
    other = after(lambda: load(lake, [(8, "a", 1.0)]))
    assert delete(lake.with_faults(other), "part = 'a'", *mode)["rows"] == 2
    assert ids(lake) == [3, 4, 5, 6, 7, 8]


def test_files_that_cannot_contain_matching_rows_are_not_a_conflict(lake: CommandLine) -> None:
    create(lake, ROWS, 2, "--partition-by", "part")
    before = lake.table().metadata.current_snapshot_id
    racing = lake.with_faults(after(lambda: load(lake, [(8, "z", 1.0)])))
    done = racing.ok("delete", "db.t", "--where", "part = 'b' and id = 3")
    metadata = lake.table().metadata
    snapshot = metadata.current_snapshot()
    assert snapshot is not None
    # The rollback that undoes the deletion keeps the other commit.
    assert done["base_snapshot_id"] == str(snapshot.parent_snapshot_id) != str(before)
    lake.ok("rollback", "db.t", done["base_snapshot_id"])
    assert ids(lake) == [1, 2, 3, 4, 5, 6, 7, 8]


OTHERS: dict[str, Callable[[CommandLine], object]] = {
    "compact": lambda lake: lake.ok("compact", "db.t", "--rewrite-all"),
    "delete": lambda lake: _without_lock(lambda: delete(lake, "id = 2", *POSITION)),
    "delete whole": lambda lake: _without_lock(lambda: delete(lake, "part = 'a'")),
    "copy": lambda lake: _without_lock(lambda: delete(lake, "id = 2", *COPY)),
    "upsert": lambda lake: load(lake, [(2, "a", 7.0)], "--upsert", "--key", "id"),
    "equality": lambda lake: commit_equality_delete(lake.warehouse, [2]),
    "overwrite": lambda lake: load(lake, [(2, "a", 7.0)], "--overwrite-where", "part = 'a'"),
}


ONE, BOTH = "id = 1", "id < 8 and part = 'a'"


MODES = [(2, POSITION, ONE), (3, POSITION, BOTH), (2, COPY, BOTH), (3, COPY, ONE)]


@pytest.mark.parametrize(
    ("other", "version", "mode", "where"),
    [
        (other, *case)
        for number, other in enumerate(sorted(OTHERS))
        # The last one copies rows that the other commit changes.
        for case in chosen([MODES[number % 3], MODES[3]], MODES)
    ],
)
def test_whatever_commits_meanwhile_no_row_is_lost_or_comes_back(
    lake: CommandLine, other: str, version: int, mode: tuple[str, str], where: str
) -> None:
    create(lake, ROWS[:2], version)
    load(lake, ROWS[2:])
    racing = lake.with_faults(
        after(lambda: _without_lock(lambda: OTHERS[other](CommandLine(lake.warehouse))))
    )
    racing.ok("delete", "db.t", "--where", where, *mode)
    gone = {1} | ({2} if where == BOTH else set())
    changed = {"delete": {2}, "delete whole": {1, 2}, "copy": {2}, "equality": {2}}
    left = set(range(1, 8)) - gone - changed.get(other, set())
    if other == "overwrite":
        left = {2, 3, 4, 5, 6, 7} - (gone - {1})
    assert ids(lake) == sorted(left)
    values = {row[0]: row[2] for row in rows_of(lake)}
    if other in {"upsert", "overwrite"} and where == ONE:
        assert values[2] == 7.0
    assert is_sound(lake)


@pytest.mark.parametrize("mode", [POSITION, COPY])
def test_after_an_unknown_outcome_no_file_is_deleted(
    lake: CommandLine, mode: tuple[str, str]
) -> None:
    create(lake, ROWS)
    lost = lake.with_faults(*[refused_with(CommitStateUnknownException("no answer"))] * 9)
    before = files_below(lake.warehouse)
    result = lost("--json", "delete", "db.t", "--where", "id = 4", *mode)
    assert (result.exit_code, result.json()["status"]) == (5, "unknown")
    assert files_below(lake.warehouse) > before
    assert ids(lake) == [1, 2, 3, 4, 5, 6, 7]


def test_a_commit_whose_answer_is_lost_is_found(lake: CommandLine) -> None:
    create(lake, ROWS)
    lost = lake.with_faults(applied_then(CommitFailedException("no answer")))
    assert delete(lost, "id = 4")["rows"] == 1
    assert ids(lake) == [1, 2, 3, 5, 6, 7]


@pytest.mark.parametrize("mode", [POSITION, COPY])
def test_a_deletion_that_fails_leaves_no_file(
    lake: CommandLine, mode: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    create(lake, ROWS, 2, "--partition-by", "part")
    before = files_below(lake.warehouse)

    def fails(*_: object, **__: object) -> None:
        raise OSError("the disk is gone")

    monkeypatch.setattr("lake.core.maintain.row_deletion.execute.commit_snapshot", fails)
    assert lake("delete", "db.t", "--where", "value = 1", *mode).exit_code != 0
    assert files_below(lake.warehouse) == before


def test_a_file_with_other_rows_than_its_entry_says_is_not_replaced(lake: CommandLine) -> None:
    create(lake, ROWS)
    (path,) = (lake.warehouse / "db/t/data").rglob("*.parquet")
    rows = pq.read_table(path)
    pq.write_table(pa.concat_tables([rows, rows.slice(0, 1)]), path)
    result = lake("delete", "db.t", "--where", "id = 4", *COPY)
    assert result.exit_code == 7
    assert "has 8 rows, but the table's metadata says 7" in result.stderr
    assert len(list((lake.warehouse / "db/t/data").rglob("*.parquet"))) == 1


def test_a_deletion_that_cannot_get_the_lock_fails(lake: CommandLine) -> None:
    create(lake, ROWS)
    session = open_session(lake.warehouse)

    def work(*_: object) -> Any:
        for options in ((), ("--wait", "1s")):
            result = lake("--json", "delete", "db.t", "--where", "id = 1", *options)
            assert (result.exit_code, result.json()["error"]["kind"]) == (8, "locked")
        return lake.ok("snapshots", "db.t")

    with_table_lock(session, session.table("db.t"), work, command="compact")
    assert ids(lake) == [1, 2, 3, 4, 5, 6, 7]
    assert delete(lake, "id = 1", "--wait", "1s")["rows"] == 1


# What readers see


def test_a_branch_loses_rows_and_main_does_not(lake: CommandLine) -> None:
    create(lake, ROWS)
    lake.ok("ref", "db.t", "--branch-create", "audit")
    assert delete(lake, "part = 'a'", "--branch", "audit")["rows"] == 2
    assert ids(lake) == [1, 2, 3, 4, 5, 6, 7]
    assert ids(lake, "--snapshot", "audit") == [3, 4, 5, 6, 7]
    text = lake("delete", "db.t", "--where", "id = 3", "--branch", "audit").stdout
    assert "deleted 1 row, rewrote 1 file" in text
    assert " --branch audit" in text.split(" rollback db.t ")[1]


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("mode", [POSITION, COPY])
def test_the_changes_of_a_deletion_are_its_rows(
    lake: CommandLine, version: int, mode: tuple[str, str]
) -> None:
    create(lake, ROWS, version, "--partition-by", "part")
    before = lake.ok("snapshots", "db.t")["result"]["snapshots"][0]["snapshot_id"]
    delete(lake, "part = 'a' or id = 4", *mode)
    path = lake.warehouse.parent / "changes.json"
    lake.ok("scan", "db.t", "--changes", "--from-snapshot", before, "--output", path)
    changes = [json.loads(line) for line in path.read_text().splitlines()]
    assert sorted((row["_change_type"], row["id"]) for row in changes) == [
        ("delete", 1),
        ("delete", 2),
        ("delete", 4),
    ]
    assert lake.ok("snapshots", "db.t")["result"]["snapshots"][0]["operation"] == (
        "delete" if mode == POSITION else "overwrite"
    )


@pytest.mark.parametrize("verb", ["delete", "upsert", "convert"])
def test_a_file_that_is_listed_twice_gets_no_two_vectors(lake: CommandLine, verb: str) -> None:
    create(lake, ROWS)
    file = source(lake, [(8, "d", 8.0), (9, "d", 9.0)])
    for _ in range(2):
        lake.table().add_files([f"file://{file}"], check_duplicate_files=False)
    if verb == "convert":
        commit_equality_delete(lake.warehouse, [8])
    lake.ok("alter", "db.t", "--format-version", "3")
    before = ids(lake)
    commands = {
        "delete": ["delete", "db.t", "--where", "id = 9", *POSITION],
        "upsert": ["ingest", "db.t", file, "--upsert", "--key", "id", "--repair-duplicates"],
        "convert": ["deletes", "db.t", "--convert"],
    }
    result = lake("--json", *commands[verb])
    # Every reader refuses a table with several vectors for one data file.
    assert (result.exit_code, ids(lake)) == (3, before)
    error = result.json()["error"]
    assert "lists the data file" in error["message"]
    assert "--repair duplicate-files" in error["hint"]
    lake.ok("compact", "db.t", "--rewrite-all")
    lake.ok(*commands[verb])
    assert is_sound(lake)
