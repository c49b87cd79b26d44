"""`lake deletes --rewrite` through the command line; PyIceberg reads the tables before and afterwards."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.cli.command_line import CommandLine
from support.tables.built_once import BuiltOnce
from support.tables.delete_files import commit_deletes, position_file
from support.tables.iceberg_tables import open_session
from support.tiers import examples

import lake.core.maintain.compaction.execute as compaction
import lake.core.maintain.delete_conversion.execute as conversion
from lake.core.data.deletes import writers
from lake.core.maintain.compaction.options import CompactionOptions
from lake.core.maintain.compaction.plan import plan_compaction


def load(lake: CommandLine, text: str, *options: str) -> None:
    lake.load(f"id,part\n{text}", *options)


def upsert(lake: CommandLine, text: str, *options: str) -> None:
    load(lake, text, "--upsert", "--key", "id,part", "--deletes", "position", *options)


def rows(lake: CommandLine) -> list[tuple[Any, ...]]:
    return sorted((row["id"], row["part"]) for row in lake.rows())


def scanned(lake: CommandLine) -> list[int]:
    """Return the ids by lake: PyIceberg does not read equality deletes."""
    output = lake.warehouse.parent / "scanned.csv"
    output.unlink(missing_ok=True)
    lake.ok("scan", "db.t", "--output", output)
    return sorted(int(line.split(",")[0]) for line in output.read_text().splitlines()[1:])


def listed(lake: CommandLine) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = lake.ok("deletes", "db.t")["result"]["delete_files"]
    return found


def data_files(lake: CommandLine) -> list[tuple[str, tuple[bytes, ...]]]:
    """Return the paths and partitions of the data files, by path."""
    files = lake.table().inspect.data_files().to_pylist()
    values = [[value for value in row["partition"].values() if value is not None] for row in files]
    parts = [tuple(value.encode() for value in some) for some in values]
    return sorted(zip([row["file_path"] for row in files], parts, strict=True))


def delete(
    lake: CommandLine,
    places: list[tuple[str, int]],
    partition: tuple[bytes, ...] = (),
    **named: Any,
) -> None:
    table = open_session(lake.warehouse).table("db.t")
    commit_deletes(table, position_file(table, places, partition=partition, **named))


def create(lake: CommandLine, *options: str) -> None:
    lake.ok("create", "db.t", "id long", "part string", "--format-version", "2", *options)


def granularity(value: str) -> tuple[str, str]:
    return "--property", f"write.delete.granularity={value}"


@pytest.mark.parametrize(("kind", "after"), [("file", 3), ("partition", 2), ("vector", 3)])
def test_few_delete_files_replace_many(lake: CommandLine, kind: str, after: int) -> None:
    create(lake, "--partition-by", "part", *granularity("file" if kind == "vector" else kind))
    for numbers in ((1, 2, 3), (4, 5)):
        load(lake, "".join(f"{number},a\n" for number in numbers))
    load(lake, "1,b\n2,b\n3,b\n")
    for path, partition in data_files(lake):
        delete(lake, [(path, 0)], partition)
        delete(lake, [(path, 0), (path, 1)], partition)
    if kind == "vector":
        lake.ok("alter", "db.t", "--format-version", "3")
    before, paths, numbers = rows(lake), data_files(lake), [row["path"] for row in listed(lake)]
    assert len(before) == 2
    dry = lake.ok("deletes", "db.t", "--rewrite", "--dry-run")
    assert dry["plan"]["position_deletes"] == 6
    assert [row["path"] for row in listed(lake)] == numbers

    done = lake.ok("deletes", "db.t", "--rewrite")

    assert done["plan"] == dry["plan"]
    assert done["result"] == {
        "removed_position_deletes": 6,
        "added_deletes": after,
        "deleted_rows": 6,
        "dropped_rows": 3,
        "remaining_deletes": 0,
    }
    assert (rows(lake), data_files(lake)) == (before, paths)
    found = listed(lake)
    assert (len(found), sum(row["dangling"] for row in found)) == (after, 0)
    assert {row["kind"] for row in found} == {"vector" if kind == "vector" else "position"}
    assert len({row["path"] for row in found}) == (1 if kind == "vector" else after)
    newest = lake.ok("snapshots", "db.t")["result"]["snapshots"][0]
    assert newest["operation"] == "replace"
    assert lake.ok("check", "db.t")["result"]["errors"] == 0
    assert lake.ok("deletes", "db.t", "--rewrite")["status"] == "nothing-to-do"


@pytest.mark.parametrize("version", ["2", "3"])
def test_positions_of_files_that_are_gone_are_dropped(lake: CommandLine, version: str) -> None:
    create(lake)
    load(lake, "1,a\n2,a\n")
    load(lake, "3,a\n4,a\n")
    (one, _), _ = data_files(lake)
    gone = one.replace(".parquet", "-gone.parquet")
    delete(lake, [(one, 1), (gone, 0)])
    delete(lake, [(gone, 1)], names_file=False)
    delete(lake, [(gone, 1), (gone, 7)], names_file=False)
    if version == "3":
        lake.ok("alter", "db.t", "--format-version", "3")
    before = rows(lake)

    done = lake.ok("deletes", "db.t", "--rewrite")

    assert (done["plan"]["dangling"], done["plan"]["position_deletes"]) == (2, 3)
    assert (done["result"]["deleted_rows"], done["result"]["dropped_rows"]) == (1, 4)
    assert [row["data_file"] for row in listed(lake)] == [one]
    assert rows(lake) == before


def test_new_delete_files_apply_to_no_later_data_file(lake: CommandLine) -> None:
    create(lake, *granularity("partition"))
    load(lake, "1,a\n2,a\n3,a\n")
    ((path, _),) = data_files(lake)
    delete(lake, [(path, 0)])
    delete(lake, [(path, 1)])
    numbers = [row["sequence_number"] for row in listed(lake)]
    load(lake, "4,a\n")
    before = rows(lake)

    lake.ok("deletes", "db.t", "--rewrite")

    (row,) = listed(lake)
    assert (row["sequence_number"], row["data_files"]) == (max(numbers), 1)
    assert rows(lake) == before


def test_old_deletes_of_a_younger_data_file_stay_without_effect(lake: CommandLine) -> None:
    create(lake)
    load(lake, "1,a\n2,a\n3,a\n")
    load(lake, "8,a\n9,a\n")
    path, other = (item for item, _ in data_files(lake))
    if pq.read_metadata(path.removeprefix("file://")).num_rows == 2:
        path, other = other, path
    delete(lake, [(path, 0), (other, 0)])
    handle = lake.table()
    handle.delete("id < 8")
    handle.add_files([path])
    delete(lake, [(path, 1)])
    assert scanned(lake) == [1, 3, 9]

    lake.ok("deletes", "db.t", "--rewrite")

    # Before, PyIceberg applied the old delete file to the data file of the same name.
    assert rows(lake) == [(1, "a"), (3, "a"), (9, "a")]
    assert scanned(lake) == [1, 3, 9]
    assert lake.ok("deletes", "db.t", "--rewrite")["status"] == "nothing-to-do"


def test_large_files_of_a_partition_stay(
    lake: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writers, "_ROW_GROUP_ROWS", 2)
    target = ("--property", "write.delete.target-file-size-bytes=100")
    create(lake, *granularity("partition"), *target)
    for start in range(0, 20, 5):
        load(lake, "".join(f"{number},a\n" for number in range(start, start + 5)))
    for path, _ in data_files(lake):
        delete(lake, [(path, place) for place in (0, 2, 3)])
    lake.ok("alter", "db.t", "--set", "write.delete.target-file-size-bytes=100000")
    before = rows(lake)
    lake.ok("deletes", "db.t", "--rewrite")
    (row,) = listed(lake)
    assert (row["data_files"], row["rows"]) == (4, 12)
    assert rows(lake) == before
    lake.ok("alter", "db.t", "--set", "write.delete.target-file-size-bytes=100")
    assert lake.ok("deletes", "db.t", "--rewrite")["status"] == "nothing-to-do"


PLACES = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3)), min_size=1, max_size=5)
MOVES = st.one_of(
    st.tuples(st.just("append"), st.sampled_from("ab")),
    st.tuples(st.just("delete"), PLACES, st.booleans()),
    st.tuples(st.just("upsert"), st.integers(0, 20), st.sampled_from("ab")),
    st.tuples(st.just("compact"), st.just(None)),
    st.tuples(st.just("partition"), st.booleans()),
    st.tuples(st.just("rewrite"), st.just(None)),
    st.tuples(st.just("part"), st.integers(2, 5), st.booleans()),
)


@settings(deadline=None, max_examples=examples(12))
@given(
    st.lists(MOVES, min_size=3, max_size=9),
    st.sampled_from(["file", "partition"]),
    st.booleans(),
    st.booleans(),
)
def test_no_row_changes(moves: list[Any], scope: str, partitioned: bool, upgraded: bool) -> None:
    with TemporaryDirectory() as folder:
        lake = CommandLine(Path(folder) / "warehouse", engine="inline")
        by = ("--partition-by", "part") if partitioned else ()
        create(lake, *by, *granularity(scope))
        load(lake, "1,a\n2,a\n3,b\n4,b\n")
        count = 4
        for move, *values in [*moves, ("upgrade",) * upgraded or ("rewrite",), ("rewrite",)]:
            if move == "append":
                load(lake, "".join(f"{count + n},{values[0]}\n" for n in range(1, 5)))
                count += 4
            elif move == "delete":
                delete_some(lake, values[0], named=values[1])
            elif move == "upsert":
                upsert(lake, f"{values[0]},{values[1]}\n")
            elif move == "compact":
                lake.ok("compact", "db.t", "--rewrite-all", "--where", "id < 4")
            elif move == "partition":
                lake.ok("alter", "db.t", "--partition-by", "part" if values[0] else "")
            elif move == "part":
                before, paths = rows(lake), data_files(lake)
                limit = "--max-commits" if values[1] else "--max-files"
                parts = ("--partial-progress",) * values[1]
                result = lake("deletes", "db.t", "--rewrite", limit, values[0], *parts)
                assert result.exit_code in (0, 6)
                assert (rows(lake), data_files(lake)) == (before, paths)
                assert lake.ok("check", "db.t")["result"]["errors"] == 0
            elif move == "upgrade":
                lake.ok("alter", "db.t", "--format-version", "3")
            else:
                before, paths = rows(lake), data_files(lake)
                lake.ok("deletes", "db.t", "--rewrite")
                assert (rows(lake), data_files(lake)) == (before, paths)
                assert not any(row["dangling"] for row in listed(lake))
                assert lake.ok("check", "db.t")["result"]["errors"] == 0
                assert lake.ok("deletes", "db.t", "--rewrite")["status"] == "nothing-to-do"


def delete_some(lake: CommandLine, chosen: list[tuple[int, int]], *, named: bool) -> None:
    """Delete rows of the data files of one partition of the current spec by one delete file."""
    table = open_session(lake.warehouse).table("db.t")
    fields = len(table.spec.fields)
    files = [item for item in data_files(lake) if len(item[1]) == fields]
    if not files:
        return
    partition = files[chosen[0][0] % len(files)][1]
    own = [path for path, place in files if place == partition]
    places = {(own[file % len(own)], row) for file, row in chosen}
    if named:
        places = {place for place in places if place[0] == min(places)[0]}
    delete(lake, sorted(places), partition, names_file=named)


@pytest.mark.parametrize("version", ["2", "3"])
@pytest.mark.parametrize("other", ["append", "upsert", "equality", "compaction", "rewrite"])
def test_a_concurrent_writer_loses_nothing(
    built_once: BuiltOnce, other: str, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def build(folder: Path) -> None:
        lake = CommandLine(folder / "warehouse")
        create(lake, *granularity("partition"))
        load(lake, "1,a\n2,a\n3,a\n")
        load(lake, "4,a\n5,a\n6,a\n")
        for path, _ in data_files(lake):
            delete(lake, [(path, 0)])
            delete(lake, [(path, 1)])
        lake.ok("alter", "db.t", "--format-version", version) if version == "3" else None

    lake = CommandLine(built_once.folder(f"version {version}", build) / "warehouse")
    left = [row[0] for row in rows(lake)]
    real = conversion._commit
    calls: list[int] = []

    def overtaken(*given: Any) -> Any:
        calls.append(1)
        if len(calls) == 1:
            session, plan = given[:2]
            if other == "append":
                load(lake, "7,a\n")
            elif other in {"upsert", "equality"}:
                kind = "position" if other == "upsert" else "equality"
                load(lake, f"{left[0]},a\n", "--upsert", "--key", "id,part", "--deletes", kind)
            elif other == "compaction":
                # As another engine would: without lake's lock.
                options = CompactionOptions(rewrite_all=True)
                compaction.execute(session, plan_compaction(plan.table, options))
            else:
                conversion.execute(session, plan.table, "main", session.ids.uuid(), made[0])
        return real(*given)

    made: list[Any] = []
    first = conversion.execute

    def noted(*given: Any) -> Any:
        made.append(given[4])
        return first(*given)

    monkeypatch.setattr(conversion, "execute", noted)
    monkeypatch.setattr(conversion, "_commit", overtaken)
    done = lake.ok("deletes", "db.t", "--rewrite")
    expected = [*left, 7] if other == "append" else left
    assert scanned(lake) == expected
    if other in {"compaction", "rewrite"}:
        assert done["status"] == "nothing-to-do" or len(calls) > 1
    if other != "equality":
        assert [row[0] for row in rows(lake)] == expected
    lake.ok("deletes", "db.t", "--convert")
    assert [row[0] for row in rows(lake)] == expected
    assert lake.ok("check", "db.t")["result"]["errors"] == 0


def test_a_data_file_that_another_writer_removes_gets_no_deletes(
    lake: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(lake)
    load(lake, "1,a\n2,a\n3,a\n")
    load(lake, "4,a\n5,a\n6,a\n")
    delete(lake, [(path, 0) for path, _ in data_files(lake)])
    lake.ok("alter", "db.t", "--format-version", "3")
    real = conversion._commit
    calls: list[int] = []

    def overtaken(*given: Any) -> Any:
        calls.append(1)
        if len(calls) == 1:
            load(lake, "7,a\n", "--overwrite-where", "id >= 4")
        return real(*given)

    monkeypatch.setattr(conversion, "_commit", overtaken)
    lake.ok("deletes", "db.t", "--rewrite")
    assert [(row["rows"], row["dangling"]) for row in listed(lake)] == [(1, False)]
    assert [row[0] for row in rows(lake)] == [2, 3, 7]


@pytest.mark.parametrize("other", ["", "--convert"])
def test_options_that_do_not_fit_are_refused(lake: CommandLine, other: str) -> None:
    create(lake)
    result = lake("deletes", "db.t", "--dry-run" if not other else "--rewrite", *other.split())
    assert result.exit_code == 2
    assert "--rewrite" in result.stderr


def test_a_table_of_version_1_is_refused(lake: CommandLine) -> None:
    load(lake, "1,a\n", "--create", "--property", "format-version=1")
    result = lake("deletes", "db.t", "--rewrite")
    assert result.exit_code == 3
    assert "format version 1" in result.stderr


def test_changes_across_a_rewrite_are_those_of_the_rows(lake: CommandLine) -> None:
    create(lake)
    load(lake, "1,a\n2,a\n3,a\n")
    ((path, _),) = data_files(lake)
    delete(lake, [(path, 0)])
    delete(lake, [(path, 1)])
    start = lake.ok("snapshots", "db.t")["result"]["snapshots"][0]["snapshot_id"]
    lake.ok("deletes", "db.t", "--rewrite")
    load(lake, "4,a\n")
    output = lake.warehouse.parent / "changes.csv"
    lake.ok("scan", "db.t", "--changes", "--from-snapshot", start, "--output", output)
    lines = output.read_text().splitlines()[1:]
    assert [line.split(",")[0] for line in lines] == ["4"]


@pytest.mark.parametrize("version", ["2", "3"])
def test_a_filter_limits_the_rewrite_to_partitions(lake: CommandLine, version: str) -> None:
    create(lake, "--partition-by", "part")
    load(lake, "1,a\n2,a\n3,a\n4,b\n5,b\n6,b\n")
    for path, partition in data_files(lake):
        delete(lake, [(path, 0)], partition)
        delete(lake, [(path, 1)], partition, names_file=False)
    if version == "3":
        lake.ok("alter", "db.t", "--format-version", "3")
    others = [row for row in listed(lake) if row["partition"] == "part=b"]
    before = rows(lake)

    lake.ok("deletes", "db.t", "--rewrite", "--where", "part = 'a' and id > 0")

    assert [row for row in listed(lake) if row["partition"] == "part=b"] == others
    assert len([row for row in listed(lake) if row["partition"] == "part=a"]) == 1
    assert rows(lake) == before
    again = lake.ok("deletes", "db.t", "--rewrite", "--where", "part = 'a'")
    assert again["status"] == "nothing-to-do"
    nothing = lake.ok("deletes", "db.t", "--rewrite", "--where", "part = 'c'")
    assert nothing["status"] == "nothing-to-do"
    assert lake("deletes", "db.t", "--rewrite", "--where", "nothing = 1").exit_code != 0


@pytest.mark.parametrize("version", ["2", "3"])
def test_a_vector_contains_the_positions_of_delete_files_that_stay(
    lake: CommandLine, version: str
) -> None:
    create(lake, "--partition-by", "part")
    load(lake, "1,a\n2,a\n3,a\n4,b\n")
    (one, _), (two, _) = data_files(lake)
    path = one if "part=a" in one else two
    delete(lake, [(path, 0)], (b"a",))
    # It names the data file, but its entry has another partition.
    delete(lake, [(path, 1)], (b"b",))
    if version == "3":
        lake.ok("alter", "db.t", "--format-version", "3")
    before = rows(lake)
    assert before == [(3, "a"), (4, "b")]
    for part in ("a", "b", "a"):
        lake.ok("deletes", "db.t", "--rewrite", "--where", f"part = '{part}'")
        assert rows(lake) == before
        assert scanned(lake) == [3, 4]
