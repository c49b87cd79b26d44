"""`lake expire-partitions` through the command line; PyIceberg reads what is left."""

from __future__ import annotations

import datetime as dt
import itertools
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import parse_transform
from pyiceberg.types import LongType, NestedField, TimestampType
from support.cli.command_line import CommandLine
from support.tables.iceberg_tables import ids_in, pyiceberg_catalog
from support.tables.partitioned_tables import add, backdate
from support.tiers import examples


def now() -> dt.datetime:
    """Return the time: a run of all tests may begin on the day before."""
    return dt.datetime.now(dt.UTC)


def day(ago: int) -> str:
    return (now() - dt.timedelta(days=ago)).date().isoformat()


def expire(lake: CommandLine, *options: object) -> dict[str, Any]:
    return lake.ok("expire-partitions", "db.t", *options)


def test_partitions_whose_whole_range_is_old_go_and_the_others_stay(lake: CommandLine) -> None:
    add(lake, f"1,{day(40)}", f"2,{day(31)}", f"3,{day(30)}", f"4,{day(0)}", "5,")
    before = lake.table().current_snapshot()

    wanted = ("--by", "day", "--older-than", "30d")
    shown = expire(lake, *wanted, "--dry-run")
    assert shown["plan"]["partitions"] == 2
    assert ids_in(lake.warehouse) == [1, 2, 3, 4, 5]
    done = expire(lake, *wanted)
    assert {key: done["result"][key] for key in ("partitions", "data_files", "rows")} == {
        "partitions": 2,
        "data_files": 2,
        "rows": 2,
    }
    assert done["result"] == shown["plan"] | {"older_than": done["result"]["older_than"]}
    # Of the day that contains the limit some rows may be younger; NULL does not give a time.
    assert ids_in(lake.warehouse) == [3, 4, 5]
    assert "1 partitions have a value that does not give a time" in done["warnings"][0]
    after = lake.table().current_snapshot()
    assert before is not None
    assert after is not None
    assert after.parent_snapshot_id == before.snapshot_id
    assert after.summary is not None
    assert after.summary.operation.value == "delete"
    assert expire(lake, *wanted)["status"] == "nothing-to-do"


@settings(max_examples=examples(40), deadline=None)
@given(data=st.data())
def test_no_row_that_is_young_enough_ever_goes(
    data: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    warehouse = tmp_path_factory.mktemp("warehouse")
    lake = CommandLine(warehouse)
    transform = data.draw(st.sampled_from(["year", "month", "day", "hour", "identity"]))
    limit = data.draw(st.datetimes(dt.datetime(1965, 1, 1), dt.datetime(2026, 6, 1)))
    near = st.timedeltas(dt.timedelta(days=-800), dt.timedelta(days=800))
    times = data.draw(st.lists(st.none() | near.map(lambda d: limit + d), max_size=8))
    schema = Schema(
        NestedField(1, "id", LongType(), required=False),
        NestedField(2, "ts", TimestampType(), required=False),
    )
    field = PartitionField(2, 1000, parse_transform(transform), "part")
    catalog = pyiceberg_catalog(warehouse)
    catalog.create_namespace("db")
    table = catalog.create_table("db.t", schema, partition_spec=PartitionSpec(field))
    rows = pa.table(
        {"id": pa.array(range(len(times)), pa.int64()), "ts": pa.array(times, pa.timestamp("us"))}
    )
    if times:
        table.append(rows)

    by = data.draw(st.sampled_from(["part", "ts"]))
    older = f"{limit.isoformat()}Z"
    lake.ok("expire-partitions", "db.t", "--by", by, "--older-than", older)

    limit_ms = int((limit - dt.datetime(1970, 1, 1)) / dt.timedelta(milliseconds=1) // 1)
    cut = dt.datetime(1970, 1, 1) + dt.timedelta(milliseconds=limit_ms)
    assert ids_in(lake.warehouse) == [
        number for number, time in enumerate(times) if not (time and _end(time, transform) <= cut)
    ]


def _end(time: dt.datetime, transform: str) -> dt.datetime:
    """Return the end of a row's partition, calculated with Python's calendar."""
    day_of = time.replace(hour=0, minute=0, second=0, microsecond=0)
    first = day_of.replace(day=1)
    if transform == "year":
        return first.replace(year=time.year + 1, month=1)
    if transform == "month":
        return (first + dt.timedelta(days=32)).replace(day=1)
    if transform == "day":
        return day_of + dt.timedelta(days=1)
    if transform == "hour":
        return day_of.replace(hour=time.hour) + dt.timedelta(hours=1)
    # The next millisecond.
    return time.replace(microsecond=time.microsecond // 1000 * 1000) + dt.timedelta(milliseconds=1)


@pytest.mark.parametrize(
    ("text_format", "old", "young"),
    [
        ("%Y-%m-%d", 40, 30),
        ("%Y%m%d", 40, 30),
        ("%Y/%m", 70, 0),
        ("%Y-%m-%d %H", 40, 0),
        ("week %G-%V-%u", 9000, 27),
    ],
)
def test_a_format_gives_texts_a_time(
    lake: CommandLine, text_format: str, old: int, young: int
) -> None:
    source = lake.warehouse.parent / "rows.csv"
    moments = (
        (now() - dt.timedelta(old)).replace(hour=23),
        (now() - dt.timedelta(young)).replace(hour=0),
    )
    first, second = (moment.strftime(text_format) for moment in moments)
    source.write_text(f'id,p\n1,"x{first}"\n2,"x{second}"\n3,other\n4,\n')
    lake.ok("ingest", "db.t", source, "--create", "--partition-by", "p")

    wanted = ("--by", "p", "--older-than", "30d", "--format", f"x{text_format}")
    assert expire(lake, *wanted)["result"]["partitions"] == 1
    assert ids_in(lake.warehouse) == [2, 3, 4]


@pytest.mark.parametrize(
    "text_format",
    [
        # Minutes where months are meant.
        "%Y-%M-%d",
        "%Y-%d",
        # Python ignores a week without a weekday, and a half day without its hours.
        "%Y-%W",
        "%Y-%m-%d-%I",
        "%Y-%m-%d %I %%p",
    ],
)
def test_a_format_that_reads_one_time_as_another_is_refused(
    lake: CommandLine, text_format: str
) -> None:
    source = lake.warehouse.parent / "rows.csv"
    source.write_text(f'id,p\n1,"{now().strftime(text_format)}"\n')
    lake.ok("ingest", "db.t", source, "--create", "--partition-by", "p")

    wanted = ("--by", "p", "--older-than", "0s", "--unsafe-retention", "--format", text_format)
    found = lake("expire-partitions", "db.t", *wanted)
    assert (found.exit_code, ids_in(lake.warehouse)) == (2, [1]), found
    assert "does not read a time as it writes it" in found.stderr


def test_digits_without_separators_give_a_time_only_if_none_is_missing(lake: CommandLine) -> None:
    source = lake.warehouse.parent / "rows.csv"
    # Python reads 202012 as 2 January 2020.
    source.write_text("id,p,q\n1,202012,2020-12-9\n2,20201209,2020-12-09\n")
    lake.ok("ingest", "db.t", source, "--create", "--partition-by", "p, q")

    wanted = ("--by", "p", "--older-than", "30d", "--format", "%Y%m%d")
    assert expire(lake, *wanted)["result"]["partitions"] == 1
    assert ids_in(lake.warehouse) == [1]
    wanted = ("--by", "q", "--older-than", "30d", "--format", "%Y-%m-%d")
    assert expire(lake, *wanted)["result"]["partitions"] == 1
    assert ids_in(lake.warehouse) == []


def test_a_digit_is_not_missed_because_another_number_has_it(lake: CommandLine) -> None:
    source = lake.warehouse.parent / "rows.csv"
    source.write_text("id,p\n1,2020 112\n2,2020 1102\n")
    lake.ok("ingest", "db.t", source, "--create", "--partition-by", "p")

    expire(lake, "--by", "p", "--older-than", "30d", "--format", "%Y %m%d")
    assert ids_in(lake.warehouse) == [1]


def test_the_oldest_go_first_if_there_are_more_than_the_maximum(lake: CommandLine) -> None:
    add(lake, f"1,{day(60)}", f"2,{day(70)}", f"3,{day(50)}", f"4,{day(1)}")

    wanted = ("expire-partitions", "db.t", "--by", "day", "--older-than", "30d", "--max", "2")
    result = lake("--json", *wanted)
    assert (result.exit_code, result.json()["result"]["partitions_left"]) == (6, 1)
    assert ids_in(lake.warehouse) == [3, 4]
    assert lake("--json", *wanted).exit_code == 0
    assert ids_in(lake.warehouse) == [4]


def test_files_of_another_spec_go_only_if_all_their_rows_are_old(lake: CommandLine) -> None:
    add(lake, f"1,{day(60)}")
    table = lake.table()
    with table.update_spec() as change:
        change.remove_field("day")
    for rows in (
        [f"2,{day(70)}", f"3,{day(50)}"],
        [f"4,{day(70)}", f"5,{day(1)}"],
        [f"6,{day(2)}"],
    ):
        add(lake, *rows)

    done = expire(lake, "--by", "day", "--older-than", "30d")
    assert ids_in(lake.warehouse) == [4, 5, 6]
    assert (done["result"]["data_files"], done["result"]["files_kept"]) == (2, 1)
    assert "1 files of another partition spec" in " ".join(done["warnings"])


def test_delete_files_leave_with_their_partitions(lake: CommandLine) -> None:
    add(lake, f"1,{day(60)}", f"2,{day(60)}", f"3,{day(1)}", f"4,{day(1)}")
    source = lake.warehouse.parent / "changed.csv"
    for kind in ("equality", "position"):
        source.write_text(f"id,day\n2,{day(60)}\n4,{day(1)}\n")
        upsert = ("--upsert", "--key", "id,day", "--deletes", kind)
        lake.ok("ingest", "db.t", source, *upsert)
    table = lake.table()
    assert table.inspect.delete_files().num_rows == 4

    done = expire(lake, "--by", "day", "--older-than", "30d")
    assert (done["result"]["partitions"], done["result"]["delete_files"]) == (1, 2)
    assert done["result"]["rows"] in {None, 2}
    table = lake.table()
    left = table.inspect.delete_files()["partition"].to_pylist()
    assert [str(item["day"]) for item in left] == [day(1)] * 2


def test_a_partition_goes_by_its_last_change(lake: CommandLine) -> None:
    add(lake, "1,2026-01-01", "2,2026-01-02", "3,2026-01-03")
    add(lake, "4,2026-01-02")
    backdate(lake.warehouse, 24 * 50, 24 * 10)

    wanted = ("--strategy", "update-time", "--older-than", "30d")
    assert expire(lake, *wanted)["result"]["partitions"] == 2
    assert ids_in(lake.warehouse) == [2, 4]


@pytest.mark.parametrize("version", [1, 2])
def test_rows_that_are_in_no_partition_stay(lake: CommandLine, version: int) -> None:
    add(lake, "1,2026-01-01", "2,2026-01-02", version=version)
    # In format version 1 the field stays, and is void.
    lake.ok("alter", "db.t", "--partition-by", "")
    add(lake, "3,2026-01-01")
    backdate(lake.warehouse, 24 * 50, 24 * 40)

    wanted = ("--strategy", "update-time", "--older-than", "30d")
    assert expire(lake, *wanted)["result"]["partitions"] == 2
    assert ids_in(lake.warehouse) == [3]


def test_a_partition_whose_last_change_is_not_known_stays_until_it_is_certainly_old(
    lake: CommandLine,
) -> None:
    for number in range(3):
        add(lake, f"{number},2026-01-0{number + 1}")
    add(lake, "9,2026-01-09")
    backdate(lake.warehouse, 24 * 50, 24 * 40, 24 * 20, 24 * 10)
    # The second and the third snapshot expire: their rows may be as new as the last one, for all that is known.
    snapshots = list(lake.table().snapshots())
    named = itertools.chain.from_iterable(
        ("--snapshot", item.snapshot_id) for item in snapshots[1:3]
    )
    lake.ok("expire", "db.t", *named)

    wanted = ("--strategy", "update-time", "--older-than")
    assert expire(lake, *wanted, "30d")["result"]["partitions"] == 1
    assert ids_in(lake.warehouse) == [1, 2, 9]
    assert expire(lake, *wanted, "9d")["result"]["partitions"] == 3


def test_a_file_that_is_added_meanwhile_goes_too_and_a_younger_one_stays(
    lake: CommandLine, tmp_path: Path
) -> None:
    add(lake, f"1,{day(60)}", f"2,{day(1)}")
    late = tmp_path / "late.csv"
    late.write_text(f"id,day\n3,{day(60)}\n4,{day(1)}\n")

    def meanwhile(real: Any) -> Any:
        lake.ok("ingest", "db.t", late)
        return real()

    other = lake.with_faults(meanwhile)
    done = other.ok("expire-partitions", "db.t", "--by", "day", "--older-than", "30d")
    assert done["result"]["data_files"] == 2
    assert ids_in(lake.warehouse) == [2, 4]


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (("--older-than", "1h", "--by", "day"), 3),
        (("--older-than", "30d"), 2),
        (("--older-than", "30d", "--by", "none"), 7),
        (("--older-than", "30d", "--by", "day", "--strategy", "update-time"), 2),
        (("--older-than", "30d", "--by", "day", "--strategy", "none"), 2),
        (("--older-than", "30d", "--by", "day", "--format", "%m-%d"), 2),
        (("--older-than", "30d", "--by", "day", "--format", "%Y-%Y"), 2),
        (("--older-than", "30d", "--by", "day", "--max", "0"), 2),
        (("--older-than", "soon", "--by", "day"), 2),
        (("--by", "day"), 2),
    ],
)
def test_what_cannot_be_right_is_refused_and_nothing_changes(
    lake: CommandLine, options: tuple[str, ...], code: int
) -> None:
    add(lake, f"1,{day(60)}")
    assert lake("--json", "expire-partitions", "db.t", *options).exit_code == code
    assert ids_in(lake.warehouse) == [1]


def test_a_field_that_has_another_column_in_another_spec_is_refused(lake: CommandLine) -> None:
    source = lake.warehouse.parent / "rows.csv"
    source.write_text(f"id,made,seen\n1,{day(60)},{day(1)}\n")
    lake.ok("create", "db.t", "id long", "made date", "seen date")
    for column in ("made", "seen"):
        with lake.table().update_spec() as change:
            change.add_field(column, "day", "d")
        lake.ok("ingest", "db.t", source)
        if column == "made":
            with lake.table().update_spec() as change:
                change.remove_field("d")

    refused = lake("expire-partitions", "db.t", "--by", "d", "--older-than", "30d")
    assert (refused.exit_code, ids_in(lake.warehouse)) == (2, [1, 1]), refused
    assert "made, seen" in refused.stderr
    assert expire(lake, "--by", "seen", "--older-than", "30d")["status"] == "nothing-to-do"
    assert expire(lake, "--by", "made", "--older-than", "30d")["result"]["rows"] == 2


def test_a_field_that_does_not_give_a_time_is_refused(lake: CommandLine) -> None:
    source = lake.warehouse.parent / "rows.csv"
    source.write_text("id\n1\n")
    lake.ok("ingest", "db.t", source, "--create", "--partition-by", "bucket(4, id)")
    found = lake("expire-partitions", "db.t", "--older-than", "30d", "--by", "id")
    assert found.exit_code == 2
    assert "does not give a time" in found.stderr
