"""`lake scan --prune-with`: rows without a partner are skipped, and no row with a partner is lost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.cli.command_line import CommandLine

ROWS = 400


@pytest.fixture
def tables(lake: CommandLine, tmp_path: Path) -> None:
    """A fact of 400 rows in 8 buckets, and a dimension of 40 stores, two of them in NZ."""
    fact = pa.table(
        {
            "id": pa.array(range(ROWS), pa.int64()),
            "store": pa.array([None if n % 50 == 49 else n % 40 for n in range(ROWS)], pa.int32()),
            "amount": pa.array([n / 2 for n in range(ROWS)]),
        }
    )
    stores = pa.table(
        {
            "id": pa.array(range(40), pa.int64()),
            "country": ["NZ" if n in (3, 21) else "AU" for n in range(40)],
            "since": pa.array([0] * 40, pa.date32()),
        }
    )
    pq.write_table(fact, tmp_path / "fact.parquet")
    pq.write_table(stores, tmp_path / "stores.parquet")
    lake.ok(
        *("ingest", "db.fact", tmp_path / "fact.parquet", "--create"),
        *("--partition-by", "bucket(8, store)"),
    )
    lake.ok("ingest", "db.stores", tmp_path / "stores.parquet", "--create")


def partners(stores: set[int]) -> list[int]:
    return [n for n in range(ROWS) if n % 50 != 49 and n % 40 in stores]


def read(lake: CommandLine, *options: object) -> list[dict[str, Any]]:
    result = lake("scan", "db.fact", "--output", "-", "--output-format", "json", *options)
    assert result.exit_code == 0, result
    return [json.loads(line) for line in result.stdout.splitlines()]


def ids(rows: list[dict[str, Any]]) -> list[int]:
    return sorted(row["id"] for row in rows)


NZ = ("--prune-with", "db.stores where country = 'NZ'", "--on", "store=id")


def plan_of(lake: CommandLine, *options: object) -> dict[str, Any]:
    return dict(lake.ok("scan", "db.fact", "--plan", *options)["plan"])


@pytest.mark.usefixtures("tables")
def test_rows_of_the_partners_are_read_and_the_other_files_are_not(lake: CommandLine) -> None:
    rows = read(lake, *NZ)
    assert set(partners({3, 21})) <= set(ids(rows)) < set(range(ROWS))
    assert ids(read(lake, *NZ, "--matching")) == partners({3, 21})
    assert ids(read(lake, *NZ, "--matching", "--no-prune")) == partners({3, 21})
    assert ids(read(lake, *NZ, "--no-prune")) == list(range(ROWS))
    assert ids(read(lake, *NZ, "--matching", "--where", "id < 100", "--select", "id")) == [
        number for number in partners({3, 21}) if number < 100
    ]


@pytest.mark.usefixtures("tables")
def test_the_plan_shows_what_the_keys_exclude(lake: CommandLine) -> None:
    head = lake.ok("scan", "db.stores", "--plan")["base_snapshot_id"]
    plan = plan_of(lake, *NZ)
    found = plan["pruning"]
    assert found["status"] == "exact"
    assert (found["dimension"], found["dimension_snapshot_id"]) == ("db.stores", head)
    assert (found["keys"], found["key_bytes"], found["limit_bytes"]) == (2, 8, 8 << 20)
    assert found["files_before"] == found["files_after"] + sum(found["by"].values())
    assert found["files_after"] == plan["files"] < found["files_before"]
    assert found["partitions_after"] < found["partitions_before"]
    assert found["bytes_after"] == plan["bytes"] < found["bytes_before"]
    assert found["reasons"] == []
    assert "pruning" not in plan_of(lake)
    off = plan_of(lake, *NZ, "--no-prune")["pruning"]
    assert (off["status"], off["files_after"]) == ("none", off["files_before"])


@pytest.mark.usefixtures("tables")
def test_the_result_counts_rows_without_partner(lake: CommandLine, tmp_path: Path) -> None:
    out = tmp_path / "out.parquet"
    result = lake.ok("scan", "db.fact", *NZ, "--matching", "--output", out)
    counted = result["result"]
    assert counted["rows"] == len(partners({3, 21}))
    assert counted["rows"] + counted["rows_without_partner"] == result["plan"]["records"]
    assert counted["row_groups_skipped"] == 0


@pytest.mark.usefixtures("tables")
@pytest.mark.parametrize("name", ["keys.csv", "keys.json", "keys.parquet"])
def test_keys_are_read_from_files(lake: CommandLine, tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    if name.endswith("csv"):
        path.write_text("other;key\nx;3\ny;21\nz;\n")
    elif name.endswith("json"):
        path.write_text('{"key": 3}\n{"key": null}\n{"key": 21}\n')
    else:
        pq.write_table(pa.table({"key": pa.array([3, 21, None], pa.int16())}), path)
    options = ("--prune-with", path, "--on", "store=key", "--matching")
    assert ids(read(lake, *options)) == partners({3, 21})


@pytest.mark.usefixtures("tables")
def test_a_file_without_the_column_or_with_another_type_is_refused(
    lake: CommandLine, tmp_path: Path
) -> None:
    path = tmp_path / "keys.csv"
    path.write_text("key\nthree\n")
    for on, code in (("store=key", 7), ("store=other", 7)):
        result = lake("scan", "db.fact", "--prune-with", path, "--on", on)
        assert result.exit_code == code, result
    assert lake("scan", "db.fact", "--prune-with", "no.csv", "--on", "id").exit_code == 7


@pytest.mark.usefixtures("tables")
def test_a_past_snapshot_of_the_partners_can_be_read(lake: CommandLine, tmp_path: Path) -> None:
    lake.ok("tag", "db.stores", "before")
    path = "db.stores"
    first = lake.ok("scan", path, "--plan")["base_snapshot_id"]
    more = tmp_path / "more.csv"
    more.write_text("id\n4\n")
    lake.ok("ingest", path, more, "--overwrite-where", "id >= 0")
    options = ("--prune-with", "db.stores@before where id = 3", "--on", "store=id", "--matching")
    assert ids(read(lake, *options)) == partners({3})
    plan = plan_of(lake, *options[:4])
    assert plan["pruning"]["dimension_snapshot_id"] == first
    now = ("--prune-with", path, "--on", "store=id", "--matching")
    assert ids(read(lake, *now)) == partners({4})


@pytest.mark.usefixtures("tables")
def test_the_fact_can_be_read_at_a_snapshot_and_by_increments(
    lake: CommandLine, tmp_path: Path
) -> None:
    first = lake.ok("scan", "db.fact", "--plan")["base_snapshot_id"]
    more = pa.table({"id": [1000, 1001], "store": pa.array([3, 4], pa.int32()), "amount": [0.0, 1]})
    pq.write_table(more, tmp_path / "more.parquet")
    lake.ok("ingest", "db.fact", tmp_path / "more.parquet")
    assert ids(read(lake, *NZ, "--matching", "--snapshot", first)) == partners({3, 21})
    assert ids(read(lake, *NZ, "--matching", "--from-snapshot", first)) == [1000]
    plan = plan_of(lake, *NZ, "--from-snapshot", first)
    assert (plan["pruning"]["files_before"], plan["files"]) == (2, 1)


@pytest.mark.usefixtures("tables")
def test_no_keys_read_nothing(lake: CommandLine) -> None:
    options = ("--prune-with", "db.stores where country = 'XX'", "--on", "store=id")
    document = lake.ok("scan", "db.fact", *options)
    assert document["status"] == "nothing-to-do"
    assert document["plan"]["pruning"]["keys"] == 0
    assert read(lake, *options) == []


@pytest.mark.usefixtures("tables")
def test_too_many_keys_are_ranges_or_nothing_or_an_error(lake: CommandLine) -> None:
    some = ("--prune-with", "db.stores where id in (3, 21)", "--on", "store=id")
    for limit, status in (("7B", "range"), ("8B", "exact"), ("9B", "exact"), ("0", "exact")):
        document = lake.ok("scan", "db.fact", *some, "--prune-limit", limit, "--plan")
        assert document["plan"]["pruning"]["status"] == status
        assert bool(document["warnings"]) == (status == "range")
    tight = ("--prune-limit", "7B")
    for overflow, status in (("range", "range"), ("none", "none")):
        chosen = (*some, *tight, "--prune-overflow", overflow)
        found = plan_of(lake, *chosen)["pruning"]
        assert (found["status"], found["keys"]) == (status, None)
        assert found["reasons"]
        assert set(partners({3, 21})) <= set(ids(read(lake, *chosen)))
        assert ids(read(lake, *chosen, "--matching")) == partners({3, 21})
    failed = lake("scan", "db.fact", *some, *tight, "--prune-overflow", "fail")
    assert failed.exit_code == 3
    assert "--prune-limit" in failed.stderr


@pytest.mark.usefixtures("tables")
@pytest.mark.parametrize(
    ("options", "code"),
    [
        (("--prune-with", "db.stores", "--on", "store=country"), 2),
        (("--prune-with", "db.stores", "--on", "amount=id"), 2),
        (("--prune-with", "db.stores", "--on", "store=since"), 2),
        (("--prune-with", "db.stores", "--on", "store=id=x"), 2),
        (("--prune-with", "db.stores", "--on", "store=id,store=since"), 2),
        (("--prune-with", "db.stores"), 2),
        (("--on", "store=id"), 2),
        (("--matching",), 2),
        (("--no-prune",), 2),
        (("--prune-limit", "1MB"), 2),
        (("--prune-with", "db.stores", "--on", "store=id", "--prune-overflow", "x"), 2),
        (("--prune-with", "db.stores", "--on", "nothing=id"), 7),
        (("--prune-with", "db.stores", "--on", "store=nothing"), 7),
        (("--prune-with", "db.nothing", "--on", "store=id"), 7),
        (("--prune-with", "db.stores where nothing = 1", "--on", "store=id"), 7),
    ],
)
def test_wrong_options_are_refused(
    lake: CommandLine, options: tuple[object, ...], code: int
) -> None:
    result = lake("scan", "db.fact", *options)
    assert result.exit_code == code, result


def test_row_groups_without_a_key_are_skipped(lake: CommandLine, tmp_path: Path) -> None:
    rows = pa.table({"id": pa.array(range(5000), pa.int64()), "name": ["x" * 40] * 5000})
    pq.write_table(rows, tmp_path / "rows.parquet", row_group_size=500)
    pq.write_table(pa.table({"id": pa.array([700, 4100])}), tmp_path / "keys.parquet")
    lake.ok(
        *("ingest", "db.t", tmp_path / "rows.parquet", "--create"),
        *("--property", "write.parquet.row-group-size-bytes=2000"),
    )
    groups = sum(
        pq.ParquetFile(path).metadata.num_row_groups
        for path in Path(lake.warehouse).rglob("data/*.parquet")
    )
    assert groups > 2
    document = lake.ok(
        *("scan", "db.t", "--prune-with", tmp_path / "keys.parquet", "--on", "id"),
        *("--select", "name", "--matching", "--output", tmp_path / "out.parquet"),
    )
    assert document["result"]["rows"] == 2
    assert document["result"]["row_groups_skipped"] == groups - 2


def test_floats_join_as_in_sql(lake: CommandLine, tmp_path: Path) -> None:
    values = [0.0, -0.0, float("nan"), None, 1.5]
    pq.write_table(
        pa.table({"id": range(5), "x": pa.array(values, pa.float64())}), tmp_path / "a.parquet"
    )
    keys = pa.array([-0.0, float("nan"), None, 0.1], pa.float32())
    pq.write_table(pa.table({"x": keys}), tmp_path / "k.parquet")
    lake.ok("ingest", "db.t", tmp_path / "a.parquet", "--create", "--partition-by", "x")
    lake.ok("ingest", "db.k", tmp_path / "k.parquet", "--create")
    found = lake(
        *("scan", "db.t", "--prune-with", "db.k", "--on", "x", "--matching"),
        *("--output", "-", "--output-format", "json"),
    )
    assert sorted(json.loads(line)["id"] for line in found.stdout.splitlines()) == [0, 1, 2]


def test_changes_of_rows_with_a_partner_are_shown_and_no_others_are_made_up(
    lake: CommandLine, tmp_path: Path
) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text("id,v\n" + "".join(f"{number},0\n" for number in range(20)))
    lake.ok("ingest", "db.t", rows, "--create", "--property", "write.format.default=parquet")
    first = lake.ok("scan", "db.t", "--plan")["base_snapshot_id"]
    rows.write_text("id,v\n3,1\n15,1\n")
    lake.ok(
        *("ingest", "db.t", rows, "--upsert", "--key", "id", "--deletes", "copy-on-write"),
    )
    rows.write_text("id,v\n30,2\n31,2\n")
    lake.ok("ingest", "db.t", rows)
    keys = tmp_path / "keys.csv"
    keys.write_text("id\n3\n31\n")

    def changes(*options: object) -> list[tuple[int, str]]:
        shown = lake(
            *("scan", "db.t", "--changes", "--from-snapshot", first, *options),
            *("--output", "-", "--output-format", "json"),
        )
        assert shown.exit_code == 0, shown
        found = map(json.loads, shown.stdout.splitlines())
        return sorted((row["id"], row["_change_type"]) for row in found)

    chosen = ("--prune-with", keys, "--on", "id")
    every = changes()
    assert set(changes(*chosen)) <= set(every)
    assert {row for row in every if row[0] in (3, 31)} <= set(changes(*chosen))
    assert changes(*chosen, "--matching") == [(3, "delete"), (3, "insert"), (31, "insert")]
    plan = lake.ok("scan", "db.t", "--changes", "--from-snapshot", first, *chosen, "--plan")
    assert plan["plan"]["pruning"]["files_after"] == plan["plan"]["files"]
