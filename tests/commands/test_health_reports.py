"""`lake health` of one table, and the files that it writes."""

from __future__ import annotations

import csv
import json
import os
import sqlite3
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import IdentityTransform
from support.cli.command_line import CommandLine
from support.tables.delete_files import commit_deletes, equality_file, position_file
from support.tables.iceberg_tables import make_table, named_rows, open_session, pyiceberg_table
from support.tables.metadata_edits import edit_metadata

_BY_NAME = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "name"))
_ODD = 'a"b\\c\nd\x1b[31m'


def _view(lake: CommandLine, name: str = "db.t") -> dict[str, Any]:
    found: dict[str, Any] = lake.ok("health", name)["result"]["view"]
    return found


def _renamed(lake: CommandLine, name: str) -> None:
    with sqlite3.connect(lake.warehouse / "catalog.db") as database:
        database.execute("UPDATE iceberg_tables SET table_name = ?", (name,))


def test_a_histogram_has_all_files_and_bytes_that_pyiceberg_reads(lake: CommandLine) -> None:
    make_table(lake.warehouse)
    table = lake.table()
    for count in (1, 10, 300_000):
        table.append(named_rows(*range(count)))
    sizes = table.inspect.data_files()["file_size_in_bytes"]

    buckets = _view(lake)["file_sizes"]

    edges = [bucket["below_bytes"] for bucket in buckets]
    assert edges == [1 << 20, 8 << 20, 32 << 20, 128 << 20, 512 << 20, 1 << 30, None]
    low = 0
    for bucket in buckets:
        high = bucket["below_bytes"] or 1 << 62
        within = [size for size in sizes.to_pylist() if low <= size < high]
        assert (bucket["files"], bucket["bytes"]) == (len(within), sum(within))
        low = high
    assert [bucket["files"] for bucket in buckets[:2]] == [2, 1]


def test_the_partitions_with_the_most_files_come_first(lake: CommandLine) -> None:
    make_table(lake.warehouse, spec=_BY_NAME)
    table = lake.table()
    for number in range(3):
        names = [f"p{place:02}" for place in range(12) if place > 8 or number == 0]
        table.append(pa.table({"id": pa.array([number] * len(names), pa.int64()), "name": names}))
    counted = table.inspect.partitions()

    partitions = _view(lake)["partitions"]

    assert len(partitions) == 10
    assert {item["partition"] for item in partitions[:3]} == {"name=p09", "name=p10", "name=p11"}
    assert {(item["files"], item["ideal_files"]) for item in partitions[:3]} == {(3, 1)}
    files = dict(
        zip(
            (item["name"] for item in counted["partition"].to_pylist()),
            counted["file_count"].to_pylist(),
            strict=True,
        )
    )
    shown = {item["partition"].removeprefix("name="): item["files"] for item in partitions}
    assert shown == {name: files[name] for name in shown}
    assert "worst partitions" in lake("health", "db.t").stdout


def test_deletes_are_counted_by_kind(lake: CommandLine) -> None:
    make_table(lake.warehouse)
    lake.table().append(named_rows(*range(9)))
    path = lake.table().inspect.data_files()["file_path"][0].as_py()
    table = open_session(lake.warehouse).table("db.t")
    keys = equality_file(table, [{"id": 1}, {"id": 2}], ["id"])
    commit_deletes(table, position_file(table, [(path, 3)]), keys)

    assert _view(lake)["deletes"] == [
        {"kind": "position", "files": 1, "rows": 1},
        {"kind": "equality", "files": 1, "rows": 2},
    ]
    deletes = lake.table().inspect.delete_files()
    assert sorted(deletes["record_count"].to_pylist()) == [1, 2]


def test_commits_are_counted_by_day_and_by_writer(lake: CommandLine) -> None:
    make_table(lake.warehouse)
    for number in range(3):
        lake.table().append(named_rows(number, number + 10))
    lake.load("id,name\n7,x\n")
    days = ["2026-01-01T10:00:00Z", "2026-01-01T11:00:00Z", "2026-01-03T00:00:00Z"]

    def aged(document: dict[str, Any]) -> None:
        times = [_milliseconds(day) for day in (*days, "2026-01-03T23:59:59Z")]
        for snapshot, time in zip(document["snapshots"], times, strict=True):
            snapshot["timestamp-ms"] = time
        document["snapshot-log"] = []

    edit_metadata(lake.warehouse, aged)

    view = _view(lake)

    counted = [
        (day["day"], day["commits"], day["added_files"], day["added_rows"]) for day in view["days"]
    ]
    assert counted == [("2026-01-03", 2, 2, 3), ("2026-01-01", 2, 2, 4)]
    (unnamed, own) = view["writers"]
    assert (unnamed["writer"], unnamed["commits"]) == ("not named", 3)
    assert own["writer"].startswith("lake ")
    assert own["last_commit"] == "2026-01-03T23:59:59.000Z"


def test_the_last_rewrite_is_the_newest_snapshot_that_only_rewrites_files(
    lake: CommandLine,
) -> None:
    for number in range(2):
        lake.load(f"id,name\n{number},x\n", "--create")
    (row,) = lake.ok("health", "db.t")["result"]["tables"]
    assert row["last_rewrite"] is None

    lake.ok("compact", "db.t", "--rewrite-all")
    rewritten = lake.table().current_snapshot()
    lake.load("id,name\n7,x\n")

    (row,) = lake.ok("health", "db.t")["result"]["tables"]
    assert _milliseconds(row["last_rewrite"][:19] + "Z") == rewritten.timestamp_ms // 1000 * 1000
    assert row["last_commit"] > row["last_rewrite"]


def _milliseconds(time: str) -> int:
    return int(pc.strptime(time, format="%Y-%m-%dT%H:%M:%SZ", unit="ms").value)


def test_files_of_old_specs_and_orders_are_counted(lake: CommandLine) -> None:
    make_table(lake.warehouse)
    lake.table().append(named_rows(1))
    lake.table().append(named_rows(2))
    with lake.table().update_spec() as spec:
        spec.add_identity("name")
    with lake.table().update_sort_order() as order:
        order.asc("id", IdentityTransform())
    lake.load("id,name\n7,x\n")
    assert lake.table().sort_order().fields

    layout = _view(lake)["layout"]

    assert (layout["old_spec_files"], layout["old_order_files"]) == (2, 2)
    assert layout["storage"] == "local disk"
    lengths = lake.table().inspect.manifests()["length"]
    assert layout["manifest_bytes"] == pc.sum(lengths).as_py()
    assert "files of older partition specs" in lake("health", "db.t").stdout


def test_overlaps_in_the_sort_order_are_shown_by_partition(
    lake: CommandLine, tmp_path: Path
) -> None:
    source = tmp_path / "rows.csv"
    ranges = [("a", 0, 9), ("a", 5, 14), ("a", 7, 8), ("b", 0, 5), ("b", 4, 9), ("c", 1, 9)]
    for number, (part, first, last) in enumerate(ranges):
        source.write_text(f"id,part\n{first},{part}\n{last},{part}\n")
        new = ("--create", "--partition-by", "part") if number == 0 else ()
        lake.ok("ingest", "db.t", source, *new)
    assert _view(lake)["overlap"] is None
    lake.ok("alter", "db.t", "--sort-by", "id")

    overlap = _view(lake)["overlap"]

    assert overlap == {
        "files": 6,
        "unknown_files": 0,
        "average_depth": 1.67,
        "worst_depth": 3,
        "partitions": [
            {"partition": "part=a", "files": 3, "average_depth": 2.0, "worst_depth": 3},
            {"partition": "part=b", "files": 2, "average_depth": 1.5, "worst_depth": 2},
        ],
    }
    shown = lake("health", "db.t").stdout
    assert "overlap in the sort order" in shown
    assert "1.67 files on average, 3 at most" in shown
    page = tmp_path / "health.html"
    lake.ok("health", "db.*", "--html", page)
    assert "Overlap in the sort order" in page.read_text()

    lake.ok("compact", "db.t", "--where-overlap", "0")

    assert _view(lake)["overlap"]["partitions"] == []
    assert "sizes of files" in lake("health", "db.t").stdout
    lake.ok("alter", "db.t", "--sort-by", "bucket(4, id)")
    assert _view(lake)["overlap"] is None


def test_a_pattern_has_no_view(lake: CommandLine) -> None:
    make_table(lake.warehouse)

    assert "view" not in lake.ok("health")["result"]
    assert "view" not in lake.ok("health", "db.*")["result"]
    assert "view" in lake.ok("health", "db.t")["result"]


def test_a_report_of_an_empty_table_has_no_empty_parts(lake: CommandLine) -> None:
    make_table(lake.warehouse)

    result = lake("health", "db.t")

    assert result.exit_code == 0
    assert [line for line in result.stdout.splitlines() if line.startswith("db.t")]
    assert "layout" not in result.stdout


@pytest.mark.parametrize("suffix", ["parquet", "csv", "json"])
def test_rows_are_written_to_a_file(lake: CommandLine, tmp_path: Path, suffix: str) -> None:
    for name in ("db.t", "db.u"):
        make_table(lake.warehouse, name)
        pyiceberg_table(lake.warehouse, name).append(named_rows(1, 2, 3))
    broken = lake.table("db.u").metadata_location
    Path(broken.removeprefix("file://")).write_text("{")
    path = tmp_path / f"health.{suffix}"

    document = lake("--json", "health", "--sort", "name", "--output", path).json()

    first, second = _read(path)
    assert (first["table"], first["grade"], first["error"] or None) == ("db.t", "good", None)
    assert (int(first["files"]), int(first["rows"])) == (1, 3)
    assert (second["table"], second["error"]) == ("db.u", "corrupt")
    shown = document["result"]["tables"][0]["last_commit"]
    assert str(first["last_commit"]).replace(" ", "T")[:19] == shown[:19]
    again = lake("health", "--output", path)
    assert again.exit_code == 2
    assert "already exists" in again.stderr
    assert lake("health", "db.t", "--output", path, "--replace").exit_code == 0
    assert [row["table"] for row in _read(path)] == ["db.t"]


def _read(path: Path) -> list[dict[str, Any]]:
    if path.suffix == ".parquet":
        rows: list[dict[str, Any]] = pq.read_table(path).to_pylist()
        return rows
    if path.suffix == ".csv":
        with path.open(newline="") as file:
            return list(csv.DictReader(file))
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_standard_output_has_only_the_rows_that_are_written_to_it(lake: CommandLine) -> None:
    make_table(lake.warehouse)

    result = lake("health", "--output", "-", "--output-format", "csv")

    (row,) = csv.DictReader(result.stdout.splitlines())
    assert (row["table"], row["grade"], row["files"]) == ("db.t", "good", "0")
    assert "1 table: 1 good" in result.stderr


def test_an_output_is_one_file(lake: CommandLine, tmp_path: Path) -> None:
    make_table(lake.warehouse)

    folder = lake("health", "--output", tmp_path / "folder")
    assert (folder.exit_code, (tmp_path / "folder").exists()) == (2, False)
    alone = lake("health", "--replace")
    assert (alone.exit_code, "--replace needs --output" in alone.stderr) == (2, True)
    missing = lake("health", "--prometheus", tmp_path / "none" / "file.prom")
    assert missing.exit_code == 7


def test_metrics_are_replaced_as_a_whole(lake: CommandLine, tmp_path: Path) -> None:
    for name in ("db.t", "db.u"):
        make_table(lake.warehouse, name, history__expire__max_snapshot_age_ms="1")
    for number in range(12):
        lake.table("db.t").append(named_rows(number))
    path = tmp_path / "lake.prom"

    assert lake("health", "--prometheus", path).exit_code == 0

    samples = _samples(path.read_text())
    labels = 'catalog="lake",namespace="db",table="db.t"'
    assert samples[f"lake_health_grade{{{labels}}}"] == 1
    assert samples[f'lake_health_need{{{labels},command="expire"}}'] == 1
    assert samples[f"lake_health_files{{{labels}}}"] == 12
    assert samples[f"lake_health_readable{{{labels}}}"] == 1
    seconds = samples[f"lake_health_last_commit_timestamp_seconds{{{labels}}}"]
    head = lake.table("db.t").current_snapshot()
    assert seconds == head.timestamp_ms / 1000

    assert lake("health", "db.u", "--prometheus", path).exit_code == 0
    assert "db.t" not in path.read_text()
    assert [item.name for item in tmp_path.iterdir() if "unfinished" in item.name] == []


@pytest.mark.parametrize("option", ["--prometheus", "--html"])
def test_a_file_of_another_kind_is_not_replaced(
    lake: CommandLine, tmp_path: Path, option: str
) -> None:
    make_table(lake.warehouse)
    path = tmp_path / "report"
    for contents in ("# HELP lake_follow_up 1\n", "<title>Health</title>", "id\n"):
        path.write_text(contents)
        result = lake("health", option, path)
        assert (result.exit_code, path.read_text()) == (2, contents)
        assert f"{path} is not a" in result.stderr
    path.write_text("")
    for _ in range(2):
        lake.ok("health", option, path)
    assert path.read_text()


def test_metrics_of_very_many_tables_are_replaced(lake: CommandLine, tmp_path: Path) -> None:
    make_table(lake.warehouse)
    path = tmp_path / "lake.prom"
    lake.ok("health", "--prometheus", path)
    # 100,000 tables have 250 MB of metrics.
    os.truncate(path, 2**28)

    lake.ok("health", "--prometheus", path)

    assert path.stat().st_size < 2**16


def test_metrics_have_escaped_names(lake: CommandLine, tmp_path: Path) -> None:
    make_table(lake.warehouse)
    _renamed(lake, _ODD)
    path = tmp_path / "lake.prom"

    assert lake("health", "--prometheus", path).exit_code == 0

    escaped = _ODD.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
    named = [line for line in path.read_text().split("\n") if line.startswith("lake_health_grade{")]
    assert named == [f'lake_health_grade{{catalog="lake",namespace="db",table="db.{escaped}"}} 0']


def test_a_csv_file_contains_an_odd_name_as_it_is(lake: CommandLine, tmp_path: Path) -> None:
    make_table(lake.warehouse)
    _renamed(lake, _ODD)

    assert lake("health", "--output", tmp_path / "health.csv").exit_code == 0

    (row,) = _read(tmp_path / "health.csv")
    assert row["table"] == f"db.{_ODD}"


def _samples(text: str) -> dict[str, float]:
    """Parse Prometheus' text format: each metric has one description, and its samples are adjacent."""
    found: dict[str, float] = {}
    described: list[str] = []
    for line in text.splitlines():
        if line.startswith("# HELP "):
            described.append(line.split(" ", 3)[2])
        elif not line.startswith("#"):
            name, value = line.rsplit(" ", 1)
            assert name.startswith(f"{described[-1]}{{")
            found[name] = float(value)
    assert len(described) == len(set(described))
    return found


@pytest.mark.parametrize("option", ["--output", "--prometheus", "--html"])
@pytest.mark.parametrize("pattern", ["db.t", "*"])
def test_a_report_is_not_written_into_the_folder_of_a_table(
    lake: CommandLine, option: str, pattern: str
) -> None:
    make_table(lake.warehouse).append(named_rows(1))
    place = lake.warehouse / "db" / "t" / "data" / "health.csv"

    result = lake("--json", "health", pattern, option, place)

    assert result.exit_code == 3
    assert "is inside the folder of table db.t" in result.json()["error"]["message"]
    assert not place.exists()
