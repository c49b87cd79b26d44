"""`lake deletes --convert` through the command line; PyIceberg reads the tables afterwards."""

from __future__ import annotations

import math
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.table import StaticTable
from support.cli.command_line import CommandLine
from support.tables import flink_fixtures
from support.tables.delete_files import commit_deletes, equality_file
from support.tables.flink_fixtures import canonical_rows
from support.tables.iceberg_tables import open_session
from support.tables.partitioned_tables import add
from support.tiers import examples

import lake.core.maintain.compaction.execute as compaction
import lake.core.maintain.delete_conversion.execute as conversion
from lake.core.maintain.compaction.options import CompactionOptions
from lake.core.maintain.compaction.plan import plan_compaction


def upsert(lake: CommandLine, text: str, key: str, kind: str = "equality") -> None:
    lake.load(text, "--upsert", "--key", key, "--deletes", kind)


def rows(lake: CommandLine) -> list[Any]:
    target = lake.warehouse.parent / "out.csv"
    target.unlink(missing_ok=True)
    lake.ok("scan", "db.t", "--output", target)
    return sorted(target.read_text().splitlines()[1:])


def kinds(lake: CommandLine) -> list[str]:
    return sorted(row["kind"] for row in lake.ok("deletes", "db.t")["result"]["delete_files"])


@pytest.mark.parametrize("version", ["2", "3"])
def test_the_rows_stay_and_no_equality_delete_is_left(lake: CommandLine, version: str) -> None:
    created = ("--create", "--property", f"format-version={version}", "--partition-by", "day")
    lake.load("id,day,x\n1,a,1\n2,a,1\n3,b,1\n4,b,1\n", *created)
    upsert(lake, "id,day,x\n1,a,2\n4,b,2\n", "id,day", "position")
    upsert(lake, "id,day,x\n2,a,3\n4,b,3\n", "id,day")
    upsert(lake, "id,day,x\n2,a,4\n", "id,day")
    before = rows(lake)

    dry = lake.ok("deletes", "db.t", "--convert", "--dry-run")
    assert rows(lake) == before
    assert dry["plan"]["equality_deletes"] == 3

    done = lake.ok("deletes", "db.t", "--convert")
    assert done["result"]["removed_equality_deletes"] == 3
    assert done["result"]["deleted_rows"] == 3
    assert set(kinds(lake)) == {"position" if version == "2" else "vector"}
    assert rows(lake) == before
    assert lake.ok("check", "db.t")["result"]["errors"] == 0
    assert lake.ok("deletes", "db.t", "--convert")["status"] == "nothing-to-do"


@pytest.mark.parametrize("version", ["2", "3"])
def test_rows_of_a_partition_whose_column_was_dropped_are_deleted(
    lake: CommandLine, version: str
) -> None:
    created = ("--create", "--property", f"format-version={version}", "--partition-by", "day")
    lake.load("id,day,x\n1,a,1\n2,a,1\n3,b,1\n4,,1\n", *created)
    lake.ok("alter", "db.t", "--partition-by", "")
    # Iceberg's writers compare with the current spec only.
    with lake.table().update_schema() as change:
        change.delete_column("day")
    upsert(lake, "id,x\n2,2\n4,2\n", "id")
    expected = ["1,1", "2,2", "3,1", "4,2"]
    assert rows(lake) == expected

    assert lake.ok("deletes", "db.t", "--convert")["result"]["deleted_rows"] == 2
    assert rows(lake) == expected
    upsert(lake, "id,x\n3,3\n", "id", "position")
    assert rows(lake) == ["1,1", "2,2", "3,3", "4,2"]
    assert lake.ok("check", "db.t", "--deep")["result"]["errors"] == 0
    if version == "2":
        found = lake.table().scan().to_arrow()
        assert sorted(found.to_pylist(), key=lambda row: row["id"]) == [
            {"id": 1, "x": 1},
            {"id": 2, "x": 2},
            {"id": 3, "x": 3},
            {"id": 4, "x": 2},
        ]


IDS = st.none() | st.integers(1, 4)
NUMBERS = st.none() | st.sampled_from([math.nan, 0.5, -7.0])
ROWS = st.lists(st.tuples(IDS, NUMBERS, st.sampled_from("ab")), min_size=1, max_size=5)
KEYS = st.sampled_from([("id",), ("number",), ("number", "id"), ("id", "more")])
MOVES = st.one_of(
    st.tuples(st.just("append"), ROWS),
    st.tuples(st.just("delete"), KEYS, ROWS),
    st.tuples(st.just("rename"), st.just(())),
    st.tuples(st.just("partition"), st.booleans()),
    st.tuples(st.just("convert"), st.just(())),
)
NAMES = ("id", "number", "part")


def same(value: Any) -> Any:
    """Make NaNs equal."""
    return "NaN" if isinstance(value, float) and math.isnan(value) else value


@settings(deadline=None, max_examples=examples(12))
@given(
    st.lists(MOVES, min_size=2, max_size=8), st.sampled_from(["2", "3"]), st.booleans(), st.data()
)
def test_the_rows_are_those_of_a_model(
    moves: list[Any], version: str, partitioned: bool, data: st.DataObject
) -> None:
    with TemporaryDirectory() as folder:
        lake = CommandLine(Path(folder) / "warehouse", engine="inline")
        by = ("--partition-by", "part") if partitioned else ()
        columns = ("id long", "number double", "part string", "more long")
        lake.ok("create", "db.t", *columns, "--format-version", version, *by)
        model: list[dict[str, Any]] = []
        for move, *given_ in moves:
            if move == "append":
                added = [dict(zip(NAMES, row, strict=True)) | {"more": None} for row in given_[0]]
                source = Path(folder) / "rows.parquet"
                kinds_ = (pa.int64(), pa.float64(), pa.string())
                arrays = [
                    pa.array([row[name] for row in added], kind)
                    for name, kind in zip(NAMES, kinds_, strict=True)
                ]
                pq.write_table(pa.table(dict(zip(NAMES, arrays, strict=True))), source)
                lake.ok("ingest", "db.t", source)
                model += [{**row, "by_part": partitioned} for row in added]
            elif move == "delete":
                keys, rows_ = given_
                wanted = [dict(zip(NAMES, row, strict=True)) | {"more": None} for row in rows_]
                part = data.draw(st.sampled_from("ab"))
                table = open_session(lake.warehouse).table("db.t")
                chosen = [{name: row[name] for name in keys} for row in wanted]
                where = (part.encode(),) if partitioned else ()
                commit_deletes(table, equality_file(table, chosen, keys, partition=where))
                gone = {tuple(same(row[name]) for name in keys) for row in wanted}
                model = [
                    row
                    for row in model
                    if (partitioned and not (row["by_part"] and row["part"] == part))
                    or tuple(same(row[name]) for name in keys) not in gone
                ]
            elif move == "rename":
                lake.ok("alter", "db.t", "--rename-column", "more=other")
                lake.ok("alter", "db.t", "--rename-column", "other=more")
            elif move == "partition":
                partitioned = given_[0]
                lake.ok("alter", "db.t", "--partition-by", "part" if partitioned else "")
            else:
                lake.ok("deletes", "db.t", "--convert")
        lake.ok("deletes", "db.t", "--convert")

        read = lake.table().scan().to_arrow()
        assert "equality" not in kinds(lake)
        expected, found = (
            sorted(str([same(row[name]) for name in (*NAMES, "more")]) for row in table_rows)
            for table_rows in (model, read.to_pylist())
        )
        assert found == expected
        assert lake.ok("check", "db.t")["result"]["errors"] == 0


@pytest.mark.parametrize("name", flink_fixtures.names(deletes=True))
def test_tables_of_flink_keep_their_rows(name: str, tmp_path: Path) -> None:
    with flink_fixtures.lent(name) as fixture:
        lake = CommandLine(fixture.warehouse, catalog_type=fixture.catalog_type, engine="inline")
        done = lake.ok("deletes", fixture.table, "--convert")
        output = tmp_path / "rows.parquet"
        lake.ok("scan", fixture.table, "--output", output)
        location = lake.ok("show", fixture.table)["result"]["metadata_location"]
        read = StaticTable.from_metadata(location).scan().to_arrow()

        assert done["result"]["removed_equality_deletes"] > 0
        assert canonical_rows(pq.read_table(output)) == fixture.rows()
        assert canonical_rows(read) == fixture.rows()


def test_a_table_of_version_1_is_refused(lake: CommandLine) -> None:
    lake.load("id\n1\n", "--create", "--property", "format-version=1")
    result = lake("deletes", "db.t", "--convert")
    assert result.exit_code == 3
    assert "format version 1" in result.stderr


@pytest.mark.parametrize("version", ["2", "3"])
def test_null_and_negative_zero_are_compared(lake: CommandLine, version: str) -> None:
    created = ("--create", "--property", f"format-version={version}")
    lake.load("k,n,x\n1.5,1,1\nNaN,2,1\n,3,1\n-0.0,4,1\n0.0,4,1\n2.5,,1\n", *created)
    upsert(lake, "k,n,x\n1.5,1,2\n-0.0,4,2\n", "k,n")
    upsert(lake, "k,n,x\n9.5,1,3\n", "n")
    before = rows(lake)
    lake.ok("deletes", "db.t", "--convert")
    assert "equality" not in kinds(lake)
    assert rows(lake) == before


def test_deletes_that_match_no_row_are_removed(lake: CommandLine) -> None:
    add(lake, "1,2026-01-01", "3,2026-01-01")
    upsert(lake, "id,day\n2,2026-01-01\n", "id,day")
    before = rows(lake)
    done = lake.ok("deletes", "db.t", "--convert")
    assert (done["result"]["added_deletes"], done["result"]["deleted_rows"]) == (0, 0)
    assert (kinds(lake), rows(lake)) == ([], before)


@pytest.mark.parametrize("other", ["append", "upsert", "compaction"])
def test_a_concurrent_writer_loses_nothing(
    lake: CommandLine, other: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.load("id,x\n1,1\n2,1\n3,1\n", "--create")
    upsert(lake, "id,x\n2,2\n", "id")
    real = conversion._commit
    calls: list[int] = []

    def overtaken(*given: Any) -> Any:
        calls.append(1)
        if len(calls) == 1:
            if other == "append":
                lake.load("id,x\n2,9\n")
            elif other == "upsert":
                upsert(lake, "id,x\n3,9\n", "id")
            else:
                # As another engine would: without lake's lock.
                session, plan = given[:2]
                options = CompactionOptions(rewrite_all=True)
                compaction.execute(session, plan_compaction(plan.table, options))
        return real(*given)

    monkeypatch.setattr(conversion, "_commit", overtaken)
    lake.ok("deletes", "db.t", "--convert")
    expected = {
        "append": ["1,1", "2,2", "2,9", "3,1"],
        "upsert": ["1,1", "2,2", "3,9"],
        "compaction": ["1,1", "2,2", "3,1"],
    }
    assert rows(lake) == expected[other]
    # The deletes of the other upsert stay for the next conversion.
    assert ("equality" in kinds(lake)) == (other == "upsert")
    assert len(calls) == (2 if other == "compaction" else 1)
    lake.ok("deletes", "db.t", "--convert")
    assert (rows(lake), "equality" in kinds(lake)) == (expected[other], False)


@pytest.mark.parametrize("other", ["compaction", "rollback"])
def test_data_files_of_earlier_commits_are_planned_for(
    lake: CommandLine, other: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.load("id,x\n1,1\n3,1\n", "--create")
    start = lake.ok("snapshots", "db.t")["result"]["snapshots"][0]["snapshot_id"]
    upsert(lake, "id,x\n2,2\n", "id")
    real = conversion._commit
    calls: list[int] = []

    def overtaken(*given: Any) -> Any:
        calls.append(1)
        if len(calls) == 1 and other == "rollback":
            lake.ok("rollback", "db.t", start)
        elif len(calls) == 1:
            session, plan = given[:2]
            options = CompactionOptions(rewrite_all=True)
            compaction.execute(session, plan_compaction(plan.table, options))
        return real(*given)

    monkeypatch.setattr(conversion, "_commit", overtaken)
    done = lake.ok("deletes", "db.t", "--convert")
    assert rows(lake) == (["1,1", "3,1"] if other == "rollback" else ["1,1", "2,2", "3,1"])
    assert done["status"] == ("nothing-to-do" if other == "rollback" else "done")
    assert len(calls) == (1 if other == "rollback" else 2)


def test_options_of_a_conversion_need_it(lake: CommandLine) -> None:
    add(lake, "1,2026-01-01")
    result = lake("deletes", "db.t", "--dry-run")
    assert result.exit_code != 0
    assert "--convert" in result.stderr


@pytest.mark.parametrize("version", ["2", "3"])
def test_a_filter_limits_the_conversion_to_partitions(lake: CommandLine, version: str) -> None:
    created = ("--create", "--property", f"format-version={version}", "--partition-by", "day")
    lake.load("id,day,x\n1,a,1\n2,a,1\n3,b,1\n4,b,1\n", *created)
    upsert(lake, "id,day,x\n1,a,2\n4,b,2\n", "id,day")
    upsert(lake, "id,day,x\n2,a,3\n4,b,3\n", "id,day", "position")
    before = rows(lake)

    done = lake.ok("deletes", "db.t", "--convert", "--where", "day = 'a'")

    assert (done["result"]["removed_equality_deletes"], done["result"]["deleted_rows"]) == (1, 1)
    assert done["plan"]["data_files"] == 1
    left = lake.ok("deletes", "db.t")["result"]["delete_files"]
    assert [row["partition"] for row in left if row["kind"] == "equality"] == ["day=b"]
    assert rows(lake) == before
    again = lake.ok("deletes", "db.t", "--convert", "--where", "day = 'a'")
    assert again["status"] == "nothing-to-do"
    lake.ok("deletes", "db.t", "--convert")
    assert ("equality" in kinds(lake), rows(lake)) == (False, before)


def test_a_filter_does_not_leave_out_deletes_of_all_partitions(lake: CommandLine) -> None:
    lake.load("id,day,x\n1,a,1\n2,a,1\n3,b,1\n", "--create")
    upsert(lake, "id,day,x\n1,a,2\n", "id,day")
    lake.ok("alter", "db.t", "--partition-by", "day")
    before = rows(lake)
    done = lake.ok("deletes", "db.t", "--convert", "--where", "day = 'b'")
    assert done["result"]["removed_equality_deletes"] == 1
    assert rows(lake) == before
