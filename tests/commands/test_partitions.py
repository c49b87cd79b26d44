"""`lake partitions` and `lake compact --idle` through the command line."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from support.cli.command_line import CommandLine
from support.tables.partitioned_tables import add, backdate

from lake.core.maintain.health import costs

DAYS = ("2026-01-01", "2026-01-02")


def listed(lake: CommandLine, *options: object) -> dict[str, Any]:
    found = lake.ok("partitions", "db.t", *options)["result"]["partitions"]
    return {row["partition"]: row for row in found}


def test_partitions_are_listed_with_their_sizes_and_last_changes(lake: CommandLine) -> None:
    add(lake, "1,2026-01-01", "2,2026-01-02", "3,2026-01-02")
    add(lake, "4,2026-01-02")
    backdate(lake.warehouse, 5, 2)

    found = listed(lake, "--idle", "3h")
    assert list(found) == ["day=2026-01-01", "day=2026-01-02"]
    assert [row["files"] for row in found.values()] == [1, 2]
    assert [row["rows"] for row in found.values()] == [1, 3]
    assert [row["idle"] for row in found.values()] == [True, False]
    snapshots = lake.table().snapshots()
    sizes = lake.table().inspect.files()
    assert sum(row["bytes"] for row in found.values()) == sum(
        sizes["file_size_in_bytes"].to_pylist()
    )
    assert len(snapshots) == 2
    assert found["day=2026-01-01"]["last_change"] < found["day=2026-01-02"]["last_change"]
    assert list(listed(lake, "--where", "day = '2026-01-02'")) == ["day=2026-01-02"]
    assert listed(lake)["day=2026-01-02"]["idle"] is None


def test_uuids_and_nanoseconds_are_named_as_iceberg_java_names_them(lake: CommandLine) -> None:
    columns = ("u uuid", "at timestamp_ns", "zoned timestamptz_ns")
    every = ("--partition-by", "u, at, zoned", "--format-version", "3")
    lake.ok("create", "db.t", *columns, *every)
    uuid, at = "00000000-0000-0000-0000-0000000000aa", "1969-12-31T23:59:59.999999999"
    lake.load(f"u,at,zoned\n{uuid},{at},{at}Z\n,,\n")

    at = at.replace(":", "%3A")
    named = f"u={uuid}/at={at}/zoned={at}%2B00%3A00"
    assert set(listed(lake)) == {named, "u=null/at=null/zoned=null"}
    assert len(list(lake.warehouse.glob(f"db/t/data/{named}/*.parquet"))) == 1


def test_a_delete_changes_its_partition_and_makes_the_number_of_rows_uncertain(
    lake: CommandLine,
) -> None:
    add(lake, "1,2026-01-01", "2,2026-01-02", "3,2026-01-02")
    source = lake.warehouse.parent / "changed.csv"
    source.write_text("id,day\n2,2026-01-02\n")
    lake.ok("ingest", "db.t", source, "--upsert", "--key", "id,day", "--deletes", "equality")
    backdate(lake.warehouse, 9, 1)

    found = listed(lake, "--idle", "2h")
    assert found["day=2026-01-01"]["idle"] is True
    changed = found["day=2026-01-02"]
    assert changed["idle"] is False
    assert (changed["delete_files"], changed["rows"], changed["rows_at_most"]) == (1, None, 3)


def test_a_rewrite_is_not_a_change(lake: CommandLine) -> None:
    for number in range(3):
        add(lake, f"{number},2026-01-01")
    lake.ok("compact", "db.t", "--min-input-files", "2")
    backdate(lake.warehouse, 9, 8, 7, 0.1)

    row = listed(lake, "--idle", "1h")["day=2026-01-01"]
    assert row["last_change"] is None
    # All rows were rewritten, so it is not known how long ago the last one arrived.
    assert row["idle"] is False
    assert listed(lake, "--idle", "1m")["day=2026-01-01"]["idle"] is True


def test_a_change_whose_snapshot_has_expired_is_older_than_the_others(lake: CommandLine) -> None:
    add(lake, "1,2026-01-01")
    add(lake, "2,2026-01-02")
    backdate(lake.warehouse, 50, 2)
    lake.ok("expire", "db.t", "--older-than", "30h", "--retain-last", "1")

    found = listed(lake, "--idle", "1h")
    assert found["day=2026-01-01"]["last_change"] is None
    assert [row["idle"] for row in found.values()] == [True, True]
    assert [row["idle"] for row in listed(lake, "--idle", "3h").values()] == [False, False]


def test_a_table_without_partitions_has_one(lake: CommandLine) -> None:
    source = lake.warehouse.parent / "rows.csv"
    source.write_text("id\n1\n2\n")
    lake.ok("ingest", "db.t", source, "--create")
    assert [row["rows"] for row in listed(lake).values()] == [2]
    assert "(not partitioned)" in lake("partitions", "db.t").stdout


def test_waiting_ends_when_all_partitions_of_the_filter_are_idle(lake: CommandLine) -> None:
    add(lake, "1,2026-01-01", "2,2026-01-02")
    add(lake, "3,2026-01-02")
    backdate(lake.warehouse, 9, 0)

    wait = ("--idle", "1h", "--timeout", "10ms", "--wait-for")
    assert list(listed(lake, *wait, "day = '2026-01-01'")) == ["day=2026-01-01"]
    late = lake("partitions", "db.t", *wait, "day = '2026-01-02'")
    assert late.exit_code == 10
    assert "day=2026-01-02 changed in the last 1h 00m" in late.stderr
    # A partition that does not exist yet is not complete.
    assert lake("partitions", "db.t", *wait, "day = '2026-01-03'").exit_code == 10


@pytest.mark.parametrize(
    "options",
    [
        ("--timeout", "1s"),
        ("--wait-for", "id = 1"),
        ("--wait-for", "id = 1", "--where", "id = 1", "--idle", "1s"),
    ],
)
def test_options_that_contradict_each_other_are_refused(
    lake: CommandLine, options: tuple[str, ...]
) -> None:
    add(lake, "1,2026-01-01")
    assert lake("partitions", "db.t", *options).exit_code == 2


def test_a_compaction_leaves_partitions_alone_that_changed_recently(lake: CommandLine) -> None:
    for number in range(3):
        add(lake, f"{number},2026-01-01", f"1{number},2026-01-02")
    add(lake, "9,2026-01-02")
    backdate(lake.warehouse, 9, 8, 7, 1)

    compact = ("compact", "db.t", "--min-input-files", "2")
    none = lake.ok(*compact, "--idle", "10h")
    assert (none["status"], none["plan"]["busy_partitions"]) == ("nothing-to-do", 2)
    assert "2 partitions changed too recently" in lake(*compact, "--idle", "10h").stdout
    some = lake.ok(*compact, "--idle", "2h")
    assert some["plan"]["busy_partitions"] == 1
    assert (some["result"]["rewritten_files"], some["result"]["rows_out"]) == (3, 3)
    assert [row["files"] for row in listed(lake).values()] == [1, 4]
    # The compaction itself does not make its partition busy.
    assert lake.ok(*compact, "--idle", "2h", "--rewrite-all")["plan"]["busy_partitions"] == 1


def change_rows(lake: CommandLine, times: int) -> None:
    """Let a writer that lake does not know delete rows of the second day, one a commit."""
    table = lake.table()
    for number in range(times):
        table.delete(f"id = {100 + number}")


def test_partitions_of_a_writer_that_changes_rows_are_left_alone_by_its_rhythm(
    lake: CommandLine,
) -> None:
    for number in range(3):
        add(lake, f"{number},2026-01-01", f"1{number},2026-01-02")
    add(lake, *(f"{100 + number},2026-01-02" for number in range(12)))
    compact = ("compact", "db.t", "--min-input-files", "2")
    change_rows(lake, 11)
    # What has just been loaded is compacted at once: nothing shows that the writer goes on.
    assert lake.ok(*compact, "--dry-run")["plan"].get("busy_partitions") is None

    minutes = [200, 199, 198, 197, *(22 - 2 * number for number in range(11))]
    backdate(lake.warehouse, *(number / 60 for number in minutes))
    plan = lake.ok(*compact, "--dry-run")["plan"]
    assert (plan["busy_partitions"], plan["left_alone"]["busy"]["files"]) == (1, 4)
    rhythm = plan["rhythm"]
    assert (rhythm["commits"], rhythm["interval_ms"], rhythm["idle_ms"]) == (11, 120_000, 360_000)
    assert [group["partition"] for group in plan["file_groups"]] == ["day=2026-01-01"]
    told = lake(*compact, "--dry-run", "--explain")
    assert "busy\tday=2026-01-02\t4" in told.stdout
    assert (
        "1 partition is left to a writer without a name (a change of rows every 2m 00s)"
        in told.stderr
    )

    every = lake.ok(*compact, "--dry-run", "--idle", "0s")["plan"]
    assert (every["groups"], "busy_partitions" in every, "rhythm" in every) == (2, False, False)
    assert "rhythm" not in lake.ok(*compact, "--dry-run", "--rewrite-all")["plan"]
    auto = lake.ok(*compact, "--idle", "auto")
    assert (auto["result"]["rewritten_files"], auto["plan"]["busy_partitions"]) == (3, 1)
    assert lake.ok(*compact)["status"] == "nothing-to-do"

    minutes = [number + 30 for number in [*minutes, 1]]
    backdate(lake.warehouse, *(number / 60 for number in minutes))
    assert lake.ok(*compact)["result"]["rewritten_files"] == 4
    assert sorted(lake.table().scan().to_arrow()["id"].to_pylist()) == [*range(3), 10, 11, 12, 111]


@pytest.mark.parametrize("version", [1, 2])
def test_a_delete_without_a_partition_changes_all_of_them(lake: CommandLine, version: int) -> None:
    add(lake, "1,2026-01-01", "2,2026-01-02", version=version)
    # In format version 1 the field stays, and is void.
    lake.ok("alter", "db.t", "--partition-by", "")
    if version == 1:
        lake.ok("alter", "db.t", "--format-version", "2")
    source = lake.warehouse.parent / "changed.csv"
    source.write_text("id,day\n2,2026-01-02\n")
    lake.ok("ingest", "db.t", source, "--upsert", "--key", "id", "--deletes", "equality")
    backdate(lake.warehouse, 9, 1)

    assert {row["idle"] for row in listed(lake, "--idle", "2h").values()} == {False}


def test_files_that_overlap_in_busy_partitions_are_left_alone(lake: CommandLine) -> None:
    for number in range(3):
        add(lake, *(f"{key},{day}" for key in (number, 20 - number) for day in DAYS))
    add(lake, f"9,{DAYS[1]}")
    backdate(lake.warehouse, 9, 8, 7, 1)
    compact = ("compact", "db.t", "--where-overlap", "1", "--by", "id", "--idle", "2h")

    plan = lake.ok(*compact, "--dry-run")["plan"]
    done = lake.ok(*compact)

    assert (plan["input_files"], plan["left_alone"]["busy"]["files"]) == (3, 4)
    assert [group["partition"] for group in plan["file_groups"]] == [f"day={DAYS[0]}"]
    assert (done["result"]["rewritten_files"], done["plan"]["busy_partitions"]) == (3, 1)
    assert [row["files"] for row in listed(lake).values()] == [1, 4]
    every = lake.ok(*compact[:-2], "--idle", "0s", "--dry-run")["plan"]
    assert (every["input_files"], "busy" in every["left_alone"]) == (4, False)


def test_a_forecast_of_maintenance_leaves_out_the_partitions_of_live_writers(
    lake: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    dear = replace(costs.OBJECT_STORE, file=1.0)
    monkeypatch.setattr("lake.core.maintain.health.measure.costs_of", lambda _: dear)
    for number in range(8):
        add(lake, *(f"{number},{day}" for day in DAYS))
    add(lake, *(f"{100 + number},{DAYS[1]}" for number in range(12)))
    change_rows(lake, 11)
    minutes = [*range(209, 200, -1), *(22 - 2 * number for number in range(11))]
    backdate(lake.warehouse, *(number / 60 for number in minutes))
    maintain = ("maintain", "db.t", "--only", "compact")

    plan = lake.ok(*maintain, "--dry-run")["plan"]
    (action,) = lake.ok(*maintain)["result"]["actions"]
    after = lake.ok(*maintain, "--dry-run")["plan"]

    assert plan["due"][0]["forecast"]["before"] == 8
    assert (action["status"], action["forecast"]["before"]) == ("done", 8)
    assert [row["files"] for row in listed(lake).values()] == [1, 9]
    assert after["due"] == []
    for left in (plan["left_alone"], after["left_alone"]):
        (reason,) = (row["reason"] for row in left if row["action"] == "compact")
        assert reason.startswith("1 partition is left to a writer without a name")
        assert reason.endswith(f": day={DAYS[1]}")
