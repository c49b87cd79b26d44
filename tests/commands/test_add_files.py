"""`lake add-files` through the command line, on files that PyArrow wrote; PyIceberg reads the rows too."""

from __future__ import annotations

import os
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.exceptions import CommitFailedException
from support.cli.command_line import CommandLine
from support.tables.iceberg_tables import (
    after,
    applied_then,
    ids_in,
    inject,
    open_session,
    pyiceberg_catalog,
)

from lake.core.transaction.session import Session

MAPPING = "schema.name-mapping.default"


@pytest.fixture
def folder(lake: CommandLine) -> Path:
    """A folder for files, beside the warehouse."""
    found = lake.warehouse.parent / "landing"
    found.mkdir()
    return found


def write(path: Path, table: pa.Table | dict[str, Any], **options: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    made = table if isinstance(table, pa.Table) else pa.table(table)
    pq.write_table(made, path, **options)
    return path


def numbered(names: dict[str, int], table: pa.Table) -> pa.Table:
    """Give columns field ids."""
    fields = [
        item.with_metadata({"PARQUET:field_id": str(names[item.name])}) for item in table.schema
    ]
    return table.cast(pa.schema(fields))


def create(lake: CommandLine, *columns: str, by: str | None = None) -> None:
    lake.ok("create", "db.t", *columns, *(("--partition-by", by) if by else ()))


def refused(lake: CommandLine, *arguments: object, code: int = 3) -> str:
    found = lake("add-files", "db.t", *arguments)
    assert found.exit_code == code, found
    assert lake.table().current_snapshot() is None
    return " ".join(found.stderr.split())


def test_files_without_ids_are_added_by_name_where_they_are(
    lake: CommandLine, folder: Path
) -> None:
    create(lake, "id long", "name string", "x double")
    first = write(folder / "a.parquet", {"name": ["a", None], "id": pa.array([1, 2], pa.int32())})
    second = write(folder / "b.parquet", {"id": [3, 4], "x": pa.array([0.5, None], pa.float32())})
    before = (first.read_bytes(), second.read_bytes())

    planned = lake.ok("add-files", "db.t", folder, "--dry-run")
    assert planned["status"] == "dry-run"
    assert planned["plan"] == {
        "added_files": 2,
        "added_rows": 4,
        "added_bytes": len(before[0]) + len(before[1]),
        "partitions": 1,
        "files_with_ids": 0,
        "sets_name_mapping": True,
        "files_in_table": 0,
        "files_elsewhere": 2,
    }
    table = lake.table()
    assert table.current_snapshot() is None
    assert MAPPING not in table.properties

    done = lake.ok("add-files", "db.t", folder)
    assert done["result"] == planned["plan"]
    table = lake.table()
    assert table.current_snapshot().summary["added-records"] == "4"
    assert MAPPING in table.properties
    expected = [
        {"id": 1, "name": "a", "x": None},
        {"id": 2, "name": None, "x": None},
        {"id": 3, "name": None, "x": 0.5},
        {"id": 4, "name": None, "x": None},
    ]
    assert sorted(table.scan().to_arrow().to_pylist(), key=lambda row: row["id"]) == expected
    assert sorted(lake.scanned(), key=lambda row: row["id"]) == expected
    assert lake.scanned("--where", "id = 3") == expected[2:3]
    assert (first.read_bytes(), second.read_bytes()) == before
    assert len(list(folder.iterdir())) == 2


def test_files_with_ids_are_read_by_them_also_after_a_rename(
    lake: CommandLine, folder: Path
) -> None:
    create(lake, "id long", "name string")
    made = pa.table({"name": ["a", "b"], "id": [1, 2]})
    path = write(folder / "a.parquet", numbered({"id": 1, "name": 2}, made))
    lake.ok("alter", "db.t", "--rename-column", "name=title")
    done = lake.ok("add-files", "db.t", path)["result"]
    assert (done["files_with_ids"], done["sets_name_mapping"]) == (1, False)
    assert lake.scanned() == [{"id": 1, "title": "a"}, {"id": 2, "title": "b"}]
    assert MAPPING not in lake.table().properties


def test_nested_columns_are_found_with_and_without_ids(lake: CommandLine, folder: Path) -> None:
    kinds = ("s struct<a: int, b: string>", "l list<struct<c: long>>", "m map<string, int>")
    create(lake, "id long", *kinds)
    kind = pa.schema(
        {
            "id": pa.int64(),
            "s": pa.struct({"b": pa.string(), "a": pa.int32()}),
            "l": pa.list_(pa.struct({"c": pa.int32()})),
            "m": pa.map_(pa.string(), pa.int32()),
        }
    )
    values = [
        {"id": 1, "s": {"b": "x", "a": 5}, "l": [{"c": 1}, {"c": None}], "m": [("k", 1)]},
        {"id": 2, "s": None, "l": [], "m": []},
        {"id": 3, "s": None, "l": None, "m": None},
    ]
    path = write(folder / "a.parquet", pa.Table.from_pylist(values, kind))
    lake.ok("add-files", "db.t", path)
    assert lake.scanned() == [
        {"id": 1, "s": {"a": 5, "b": "x"}, "l": [{"c": 1}, {"c": None}], "m": {"k": 1}},
        {"id": 2, "s": None, "l": [], "m": {}},
        {"id": 3, "s": None, "l": None, "m": None},
    ]
    found = lake.table().scan().to_arrow()
    assert found.to_pylist()[:2] == [
        {"id": 1, "s": {"a": 5, "b": "x"}, "l": [{"c": 1}, {"c": None}], "m": [("k", 1)]},
        {"id": 2, "s": None, "l": [], "m": []},
    ]
    # A file that PyIceberg wrote for the same columns has ids at every level.
    other = pyiceberg_catalog(lake.warehouse).create_table("db.other", lake.table().schema())
    other.append(found)
    (written,) = (Path(other.location().removeprefix("file://")) / "data").glob("*.parquet")
    copied = folder / "b.parquet"
    copied.write_bytes(written.read_bytes())
    assert lake.ok("add-files", "db.t", copied)["result"]["files_with_ids"] == 1
    assert ids_in(lake.warehouse) == [1, 1, 2, 2, 3, 3]
    assert lake.scanned("--where", "s.a = 5")[1] == lake.scanned()[0]


@pytest.mark.parametrize(
    ("kind", "column", "text"),
    [
        ("int", pa.array([1], pa.int64()), "long"),
        ("long", pa.array([1], pa.uint32()), "unsigned 32-bit integer"),
        ("int", pa.array(["1"]), "string"),
        ("string", pa.array([b"a"]), "binary"),
        ("binary", pa.array(["a"]), "string"),
        ("float", pa.array([1.0]), "double"),
        ("decimal(5, 2)", pa.array([Decimal("1.000")]), "decimal(4, 3)"),
        ("decimal(5, 2)", pa.array([Decimal("1.00")], pa.decimal128(9, 2)), "decimal(9, 2)"),
        ("timestamp", pa.array([1], pa.timestamp("us", "UTC")), "timestamptz"),
        ("timestamptz", pa.array([1], pa.timestamp("us")), "timestamp"),
        ("timestamp", pa.array([1], pa.timestamp("ns")), "timestamp_ns"),
        ("timestamp", pa.array([1], pa.date32()), "date"),
        ("string", pa.nulls(1), "unknown"),
        ("uuid", pa.array([b"a" * 16], pa.binary(16)), "fixed[16]"),
        ("list<int>", pa.array([1]), "long"),
        ("struct<a: int>", pa.array([[1]]), "list"),
    ],
)
def test_a_type_that_iceberg_does_not_promote_is_refused(
    lake: CommandLine, folder: Path, kind: str, column: pa.Array, text: str
) -> None:
    create(lake, f"c {kind}")
    said = refused(lake, write(folder / "a.parquet", {"c": column}))
    assert "column c of file://" in said
    assert f"a.parquet has type {text}" in said


def test_types_that_are_stored_alike_or_promoted_are_read_as_the_tables(
    lake: CommandLine, folder: Path
) -> None:
    create(
        lake,
        *("l long", "d double", "n decimal(9, 2)", "t timestamp", "z timestamptz", "u uuid"),
        *("s string", "b binary", "i timestamptz", "day date"),
    )
    moment = datetime(1969, 12, 31, 23, 59, 59, 999000)
    made = pa.table(
        {
            "l": pa.array([7], pa.int16()),
            "d": pa.array([0.5], pa.float32()),
            "n": pa.array([Decimal("-1.25")], pa.decimal128(4, 2)),
            "t": pa.array([moment], pa.timestamp("ms")),
            "z": pa.array([moment], pa.timestamp("us", "Europe/Berlin")),
            "u": pa.array([b"\x01" * 16], pa.uuid()),
            "s": pa.array(["a"], pa.large_string()).dictionary_encode(),
            "b": pa.array([b"a"], pa.large_binary()),
            "day": pa.array([date(2026, 1, 31)], pa.date64()),
        }
    )
    lake.ok("add-files", "db.t", write(folder / "a.parquet", made))
    old = pa.table({"i": pa.array([moment], pa.timestamp("us"))})
    write(folder / "b.parquet", old, use_deprecated_int96_timestamps=True)
    lake.ok("add-files", "db.t", folder / "b.parquet")
    (found,) = lake.scanned(
        "--where", "l = 7 and d = 0.5 and n = -1.25 and s = 'a' and day = '2026-01-31'"
    )
    assert found["t"] == "1969-12-31T23:59:59.999000"
    (found,) = lake.scanned("--where", "t = '1969-12-31T23:59:59.999'")
    assert found["l"] == 7
    assert len(lake.scanned("--where", "i = '1969-12-31T23:59:59.999Z'")) == 1


def test_columns_of_another_table_are_refused(lake: CommandLine, folder: Path) -> None:
    create(lake, "id long not null", "name string")
    said = refused(lake, write(folder / "a.parquet", {"id": [1], "other": [1]}))
    assert "has the column other, which the table does not have" in said
    said = refused(lake, write(folder / "b.parquet", {"name": ["a"]}))
    assert "does not have the required column id" in said
    said = refused(lake, write(folder / "c.parquet", {"id": [1, None]}))
    assert "column id is required" in said
    said = refused(lake, write(folder / "d.parquet", {"id": [1, 2]}, write_statistics=False))
    assert "column id is required" in said
    swapped = numbered({"id": 2, "name": 1}, pa.table({"id": [1], "name": ["a"]}))
    said = refused(lake, write(folder / "e.parquet", swapped))
    assert "its ids are another table's" in said
    unknown = numbered({"id": 1, "name": 9}, pa.table({"id": [1], "name": ["a"]}))
    assert "(id 9 is not a column's)" in refused(lake, write(folder / "f.parquet", unknown))
    half = pa.table({"id": [1], "name": ["a"]})
    half = half.cast(
        pa.schema([half.schema.field(0).with_metadata({"PARQUET:field_id": "1"}), half.schema[1]])
    )
    assert "some of its columns only" in refused(lake, write(folder / "g.parquet", half))
    # Statistics show that the required column has no NULL.
    lake.ok("add-files", "db.t", write(folder / "h.parquet", {"id": [1, 2]}))
    assert ids_in(lake.warehouse) == [1, 2]


def test_an_own_name_mapping_is_used_and_kept(lake: CommandLine, folder: Path) -> None:
    create(lake, "id long", "name string")
    mapping = '[{"field-id": 1, "names": ["id", "number"]}]'
    lake.ok("alter", "db.t", "--set", f"{MAPPING}={mapping}")
    said = refused(lake, write(folder / "a.parquet", {"name": ["a"]}))
    assert "name mapping lacks it" in said
    both = write(folder / "c.parquet", {"id": [1], "number": [2]})
    assert "several columns of one id" in refused(lake, both, code=7)
    done = lake.ok("add-files", "db.t", write(folder / "b.parquet", {"number": [1]}))
    assert not done["result"]["sets_name_mapping"]
    assert ids_in(lake.warehouse) == [1]
    assert lake.table().properties[MAPPING] == mapping


def test_a_file_is_added_once_on_all_branches(lake: CommandLine, folder: Path) -> None:
    create(lake, "id long")
    lake.ok("add-files", "db.t", write(folder / "0.parquet", {"id": [0]}))
    lake.ok("ref", "db.t", "--branch-create", "audit")
    path = write(folder / "a.parquet", {"id": [1]})
    lake.ok("add-files", "db.t", path, "--branch", "audit")
    for name in (path, f"file://{path}", folder / "x" / ".." / "a.parquet", folder):
        found = lake("add-files", "db.t", name)
        assert found.exit_code == 3, found
        assert "are or were in db.t" in found.stderr or "folder . or .." in found.stderr
    assert ids_in(lake.warehouse) == [0]
    # A file that a commit removed is referenced by the snapshot that removed it.
    lake.ok("compact", "db.t", "--rewrite-all")
    assert lake("add-files", "db.t", folder / "0.parquet").exit_code == 3
    assert lake("add-files", "db.t", path, path).exit_code == 7


def test_a_run_id_is_added_once(lake: CommandLine, folder: Path) -> None:
    create(lake, "id long")
    path = write(folder / "a.parquet", {"id": [1]})
    lake.ok("add-files", "db.t", path, "--run-id", "one")
    again = lake.ok("add-files", "db.t", path, "--run-id", "one")
    assert (again["status"], again["snapshot_ids"]) == ("nothing-to-do", [])
    assert "contains this run already" in lake("add-files", "db.t", path, "--run-id", "one").stdout
    assert ids_in(lake.warehouse) == [1]


@pytest.mark.parametrize("run", [(), ("--run-id", "one")])
def test_two_runs_at_one_time_add_a_file_once(
    lake: CommandLine, folder: Path, run: tuple[str, ...]
) -> None:
    create(lake, "id long")
    path = write(folder / "a.parquet", {"id": [1]})
    beside = CommandLine(lake.warehouse)

    def session_with(*faults: Any) -> Any:
        def opened(settings: Any) -> Session:
            session = open_session(Path(settings.warehouse))
            inject(session, list(faults))
            return session

        return opened

    lake.open_session = session_with(after(lambda: beside.ok("add-files", "db.t", path, *run)))
    found = lake("add-files", "db.t", path, *run)
    assert found.exit_code == (0 if run else 3), found
    assert ids_in(lake.warehouse) == [1]
    # The commit happened, and its answer was lost.
    other = write(folder / "b.parquet", {"id": [2]})
    lake.open_session = session_with(applied_then(CommitFailedException("lost")))
    assert lake("add-files", "db.t", other, *(("--run-id", "two") if run else ())).exit_code == 0
    assert ids_in(lake.warehouse) == [1, 2]


def test_a_change_of_the_columns_meanwhile_is_a_conflict(lake: CommandLine, folder: Path) -> None:
    create(lake, "id long")
    path = write(folder / "a.parquet", {"id": [1]})
    beside = CommandLine(lake.warehouse)

    def opened(settings: Any) -> Session:
        session = open_session(Path(settings.warehouse))
        change = ("alter", "db.t", "--rename-column", "id=number")
        inject(session, [after(lambda: beside.ok(*change))])
        return session

    lake.open_session = opened
    found = lake("add-files", "db.t", path)
    assert found.exit_code == 4, found
    lake.open_session = None
    assert lake.scanned() == []


def test_files_of_tables_are_refused(lake: CommandLine, folder: Path) -> None:
    create(lake, "id long")
    location = lake.table().location()
    home = Path(location.removeprefix("file://"))
    for name in ("data", "metadata"):
        path = write(home / name / "a.parquet", {"id": [1]})
        assert "to which db.t is written" in refused(lake, path)
        linked = folder / name
        linked.symlink_to(home / name)
        assert "to which db.t is written" in refused(lake, linked / "a.parquet")
        path.unlink()
    lake.ok("create", "db.other", "id long")
    other = lake.table("db.other").location()
    path = write(Path(other.removeprefix("file://")) / "data" / "a.parquet", {"id": [1]})
    assert "in a folder of another table" in refused(lake, path)


def test_who_deletes_the_files_is_said(lake: CommandLine, folder: Path) -> None:
    create(lake, "id long")
    location = lake.table().location()
    inside = Path(location.removeprefix("file://")) / "imports" / "a.parquet"
    write(inside, {"id": [1]})
    outside = write(folder / "b.parquet", {"id": [2]})
    found = lake("add-files", "db.t", inside, outside)
    assert found.exit_code == 0, found
    said = found.stdout + found.stderr
    assert "1 of the files are in the table's folders: `lake expire`" in said
    assert "1 of the files are outside the table's folders: lake never deletes them" in said
    lake.ok("compact", "db.t", "--rewrite-all")
    lake.ok("expire", "db.t", "--older-than", "0s", "--unsafe-retention")
    assert (inside.exists(), outside.exists()) == (False, True)
    assert ids_in(lake.warehouse) == [1, 2]


def test_a_file_under_two_names_is_not_added_twice(lake: CommandLine, folder: Path) -> None:
    create(lake, "id long")
    path = write(folder / "a.parquet", {"id": [1]})
    second = folder / "second.parquet"
    second.hardlink_to(path)
    assert "the same file under two names" in refused(lake, path, second)

    lake.ok("add-files", "db.t", path)

    again = lake("add-files", "db.t", second)
    assert again.exit_code == 3, again
    assert "is the same file as" in " ".join(again.stderr.split())


def test_links_and_odd_names_are_refused(lake: CommandLine, folder: Path) -> None:
    create(lake, "id long")
    path = write(folder / "a.parquet", {"id": [1]})
    link = folder / "link.parquet"
    link.symlink_to(path)
    assert "symbolic link" in refused(lake, link)
    for name in ("a#b.parquet", "a?b.parquet", "a\nb.parquet"):
        assert "control character" in refused(lake, write(folder / "odd" / name, {"id": [1]}))


def test_files_that_are_not_whole_parquet_files_are_refused(
    lake: CommandLine, folder: Path
) -> None:
    create(lake, "id long")
    whole = write(folder / "a.parquet", {"id": list(range(1000))}, compression="none").read_bytes()
    bad = folder / "bad.parquet"
    for data in (
        b"",
        b"id\n1\n",
        whole[:-1],
        whole[:100],
        # The footer, its length and the last magic bytes, without the rows.
        whole[:4] + whole[-(int.from_bytes(whole[-8:-4], "little") + 8) :],
        whole[:-8] + (2**31 - 1).to_bytes(4, "little") + whole[-4:],
        whole[:-8] + (5).to_bytes(4, "little") + whole[-4:],
    ):
        bad.write_bytes(data)
        assert "bad.parquet" in refused(lake, bad, code=7)
    assert "has no rows" in refused(lake, write(bad, {"id": pa.array([], pa.int64())}))
    bad.unlink()
    os.mkfifo(bad)
    assert lake("add-files", "db.t", bad).exit_code == 7
    # One file of several is enough.
    bad.unlink()
    bad.write_bytes(b"")
    refused(lake, folder, code=7)


def test_statistics_that_contradict_each_other_are_refused(lake: CommandLine, folder: Path) -> None:
    create(lake, "id long")
    low, high = 0x1111222233334444, 0x5555666677778888
    path = write(folder / "a.parquet", {"id": [low, high]}, use_dictionary=False)
    data = path.read_bytes()
    first, last = low.to_bytes(8, "little"), high.to_bytes(8, "little")
    swapped = data.replace(first, b"-" * 8).replace(last, first).replace(b"-" * 8, last)
    assert swapped != data
    path.write_bytes(swapped)
    assert "is greater than the greatest" in refused(lake, path, code=7)


def test_encrypted_files_are_refused(lake: CommandLine, folder: Path) -> None:
    create(lake, "id long")
    path = write(folder / "a.parquet", {"id": [1]})
    data = path.read_bytes()
    path.write_bytes(b"PARE" + data[4:-4] + b"PARE")
    assert lake("add-files", "db.t", path).exit_code in {3, 7}


def test_partitions_come_from_bounds_that_leave_one_value(lake: CommandLine, folder: Path) -> None:
    create(lake, "id long", "ts timestamp", "s string", by="day(ts), truncate(2, s), bucket(4, id)")
    days = [datetime(1969, 12, 31, 1), datetime(1969, 12, 31, 23, 59, 59, 999999)]
    whole = {"id": [7, 7], "ts": days, "s": ["abc", "abd"]}
    lake.ok("add-files", "db.t", write(folder / "a.parquet", whole))
    nothing = {"id": [8], "ts": pa.nulls(1, pa.timestamp("us")), "s": pa.nulls(1, pa.string())}
    done = lake.ok("add-files", "db.t", write(folder / "b.parquet", nothing))
    assert done["result"]["partitions"] == 1
    # The same partitions as if the rows were loaded.
    lake.ok("ingest", "db.t", folder / "a.parquet", folder / "b.parquet")
    (first, *more) = lake.ok("partitions", "db.t")["result"]["partitions"]
    assert {item["files"] for item in (first, *more)} == {2}
    assert ids_in(lake.warehouse) == [7, 7, 7, 7, 8, 8]
    assert len(lake.scanned("--where", "ts < '1970-01-01' and s = 'abc' and id = 7")) == 2


@pytest.mark.parametrize(
    ("by", "values", "said"),
    [
        ("id", {"id": [1, 2]}, "may have rows of several partitions: its column id"),
        ("id", {"id": [1, None]}, "may have rows of several partitions: its column id"),
        ("bucket(1, id)", {"id": [1, 2]}, "may have rows of several partitions: its column id"),
        ("day(ts)", {"ts": [datetime(2026, 1, 1), datetime(2026, 1, 2)]}, "its column ts"),
        ("truncate(1, s)", {"s": ["a", "b"]}, "its column s"),
        ("x", {"x": [1.0]}, "does not show the values of the column x"),
        ("ts", {"ts": pa.array([1], pa.timestamp("ms"))}, "does not show the values of the column"),
        ("day(ts)", {"id": [1]}, "has no column ts, and no folder ts=VALUE"),
        ("s", {"id": [1]}, "has no column s, and no folder s=VALUE"),
    ],
)
def test_a_partition_that_the_footer_does_not_show_is_refused(
    lake: CommandLine, folder: Path, by: str, values: dict[str, Any], said: str
) -> None:
    create(lake, "id long", "ts timestamp", "s string", "x double", by=by)
    assert said in refused(lake, write(folder / "a.parquet", values))


def test_a_partition_without_statistics_is_refused(lake: CommandLine, folder: Path) -> None:
    create(lake, "id long", by="id")
    path = write(folder / "a.parquet", {"id": [1]}, write_statistics=False)
    assert "does not show the values of the column id" in refused(lake, path)


def test_the_values_of_folders_are_those_of_columns_that_files_do_not_have(
    lake: CommandLine, folder: Path
) -> None:
    create(lake, "id long", "country string", "day date", "n int", by="country, day, n")
    for number, (country, day, n) in enumerate(
        [("D%2FE", "2026-01-31", "07"), ("a b", "1969-12-31", "__HIVE_DEFAULT_PARTITION__")]
    ):
        path = folder / f"country={country}" / f"day={day}" / f"n={n}" / "a.parquet"
        write(path, {"id": [number]})
    done = lake.ok("add-files", "db.t", folder)["result"]
    assert (done["added_files"], done["partitions"]) == (2, 2)
    expected = [
        {"id": 0, "country": "D/E", "day": "2026-01-31", "n": 7},
        {"id": 1, "country": "a b", "day": "1969-12-31", "n": None},
    ]
    assert sorted(lake.scanned(), key=lambda row: row["id"]) == expected
    assert lake.scanned("--where", "country = 'D/E' and n = 7") == expected[:1]
    assert lake.scanned("--where", "n is null") == expected[1:]
    found = lake.rows()
    assert sorted((row["id"], row["country"], row["n"]) for row in found if row["n"]) == [
        (0, "D/E", 7)
    ]


def test_a_plus_in_a_folder_is_a_space_of_iceberg_where_the_column_shows_it(
    lake: CommandLine, folder: Path
) -> None:
    create(lake, "id long", "country string", by="country")
    named = [("a+b", "a b"), ("a+b", "a+b"), ("a%2Bb", "a+b"), ("a b", "a b"), ("a+b", None)]
    for number, (country, value) in enumerate(named):
        path = folder / f"country={country}" / f"{number}.parquet"
        write(path, {"id": [number]} | ({} if value is None else {"country": [value]}))
    lake.ok("add-files", "db.t", folder)

    rows = lake.rows(by="id")
    # Writers that leave the column out do not write a space so.
    assert [row["country"] for row in rows] == [value or "a+b" for _, value in named]
    other = write(folder / "country=a%2Bb" / "other.parquet", {"id": [9], "country": ["a b"]})
    assert "another value" in lake("add-files", "db.t", other).stderr


@pytest.mark.parametrize(
    ("where", "values", "said"),
    [
        ("country=DE", {"id": [1], "country": ["FR"]}, "its column country has another value"),
        ("country=DE", {"id": [1], "country": [None]}, "its column country has another value"),
        ("country=null", {"id": [1]}, "means NULL or the text null"),
        ("country=DE/country=FR", {"id": [1]}, "several folders for the column country"),
        ("country=DE/id=1", {"name": ["a"]}, "they would be lost"),
        (
            "country=__HIVE_DEFAULT_PARTITION__",
            {"id": [1], "country": ["__HIVE_DEFAULT_PARTITION__"]},
            "another value",
        ),
    ],
)
def test_folders_that_contradict_files_or_the_table_are_refused(
    lake: CommandLine, folder: Path, where: str, values: dict[str, Any], said: str
) -> None:
    create(lake, "id long", "country string", "name string", by="country")
    if values.get("country") == [None]:
        values = {**values, "country": pa.nulls(1, pa.string())}
    assert said in refused(lake, write(folder / where / "a.parquet", values))


def test_a_folder_that_agrees_with_the_column_is_accepted_and_other_texts_are_not(
    lake: CommandLine, folder: Path
) -> None:
    create(lake, "id long not null", "n int", by="n, id")
    good = {"id": [5], "n": pa.array([7], pa.int16())}
    lake.ok("add-files", "db.t", write(folder / "n=07" / "id=5" / "a.parquet", good))
    absent = write(folder / "n=8" / "id=6" / "b.parquet", {"n": pa.array([8], pa.int32())})
    lake.ok("add-files", "db.t", absent)
    assert sorted(row["id"] * 10 + row["n"] for row in lake.scanned()) == [57, 68]
    for where in ("n=x", "n=7.5", "n=99999999999", "id=__HIVE_DEFAULT_PARTITION__/n=1"):
        path = write(folder / where / "c.parquet", {"n": pa.array([1], pa.int32())})
        assert lake("add-files", "db.t", path).exit_code == 3


@pytest.mark.parametrize("seed", range(12))
def test_a_damaged_file_is_refused_or_read_as_it_was_described(
    lake: CommandLine, folder: Path, seed: int
) -> None:
    create(lake, "id long", "name string", "x double")
    made = pa.table({"id": [1, 2, 3], "name": ["a", "b", None], "x": [0.5, 1.5, 2.5]})
    data = write(folder / "a.parquet", made).read_bytes()
    path = folder / "b.parquet"
    chance = Random(f"added {seed}")
    end = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    found = bytearray(data)
    for _ in range(chance.choice((1, 2))):
        found[chance.randrange(end, len(data))] ^= 1 << chance.randrange(8)
    path.write_bytes(bytes(found))
    done = lake("add-files", "db.t", path)
    assert done.exit_code in {0, 3, 7}, done
    if done.exit_code:
        assert "b.parquet" in done.stderr
        assert lake.table().current_snapshot() is None
    else:
        assert lake("scan", "db.t", "--output", "-", "--output-format", "json").exit_code in {
            0,
            3,
            7,
        }


@pytest.mark.parametrize(
    "edits",
    [
        [("--rename-column", "a=b"), ("--add-column", "a int")],
        [("--drop-column", "a"), ("--add-column", "a int")],
        [("--rename-column", "a=c", "--rename-column", "c=a")],
        [("--drop-column", "a"), ("--rename-column", "c=a")],
        [("--drop-column", "s.x"), ("--add-column", "s.x int")],
    ],
)
def test_a_column_does_not_get_the_name_of_another_one_in_files_without_ids(
    lake: CommandLine, folder: Path, edits: list[tuple[str, ...]]
) -> None:
    columns = {"a": pa.array([1, 2], pa.int32()), "c": pa.array([5, 6], pa.int32())}
    parts = pa.array([{"x": 7, "y": 8}] * 2, pa.struct([("x", pa.int32()), ("y", pa.int32())]))
    file = write(folder / "a.parquet", {**columns, "s": parts})
    lake.ok("create", "db.t", "--from", file)
    lake.ok("add-files", "db.t", file)
    *first, last = edits
    for edit in first:
        lake.ok("alter", "db.t", *edit)
    before = lake.rows()

    refused = lake("alter", "db.t", *last)

    assert refused.exit_code == 3, refused
    assert "files without field ids" in refused.stderr
    assert lake.rows() == before
    # The new files have ids.
    lake.ok("compact", "db.t", "--rewrite-all", "--verify")
    lake.ok("alter", "db.t", "--unset", MAPPING)
    lake.ok("alter", "db.t", *last)
    values = [list(row.values()) for row in lake.rows()]
    kept = [list(row.values()) for row in before]
    if "--add-column" in last and last[1] == "a int":
        kept = [[*row, None] for row in kept]
    elif "--add-column" in last:
        kept = [[*row[:-1], {**row[-1], "x": None}] for row in kept]
    assert values == kept


def test_a_load_does_not_add_a_column_with_the_name_of_another_one_in_files_without_ids(
    lake: CommandLine, folder: Path
) -> None:
    file = write(folder / "a.parquet", {"a": [1, 2], "c": [5, 6]})
    lake.ok("create", "db.t", "--from", file)
    lake.ok("add-files", "db.t", file)
    lake.ok("alter", "db.t", "--rename-column", "a=b")
    before = lake.rows()

    for dry_run in ([], ["--dry-run"]):
        refused = lake("ingest", "db.t", file, "--evolve", *dry_run)
        assert refused.exit_code == 3, refused
    assert lake.rows() == before
    lake.load("c,d\n7,8\n", "--evolve")
    assert len(lake.rows()) == 3
