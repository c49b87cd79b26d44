"""`lake health` and `lake maintain` learn costs from past runs, as `lake health --explain` shows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.cli.command_line import CommandLine
from support.cli.run_logs import entry, logged
from support.tables.iceberg_tables import make_table, named_rows

from lake.core.maintain.run_log.run_log import default_path

MB = 1 << 20
COMPACT = ("maintain", "--only", "compact", "--policy")


@pytest.fixture
def lake(warehouse: Path, tmp_path: Path) -> CommandLine:
    """`lake` on a table of six small files, with a policy that compacts it."""
    table = make_table(warehouse)
    for number in range(6):
        table.append(named_rows(number))
    (tmp_path / "policy.toml").write_text('["*".compact]\nwhen = "files > 1"\n')
    return CommandLine(warehouse)


def row_of(lake: CommandLine, *words: object) -> dict[str, Any]:
    """Return the row of the table."""
    (row,) = lake.ok("health", "db.t", *words)["result"]["tables"]
    found: dict[str, Any] = row
    return found


def forecast_of(lake: CommandLine, *words: object) -> dict[str, Any]:
    """Return the forecast of the compaction."""
    (found,) = [one for one in row_of(lake, *words)["forecasts"] if one["command"] == "compact"]
    return dict(found)


def test_without_past_runs_the_stated_costs_are_named(lake: CommandLine) -> None:
    text = lake("health", "db.t", "--explain").stdout

    assert "defaults: local disk, 0.5 ms a file, 1.5 ms a manifest, 150 MB/s" in text
    assert "takes 0.2 s (defaults)" in text
    costs = row_of(lake)["costs"]
    assert (costs["storage"], costs["runs"]) == ("local disk", 0)
    assert (costs["file_seconds"], costs["bytes_per_second"]) == (0.0005, 150_000_000)
    assert forecast_of(lake)["work_runs"] == 0


def test_past_runs_of_the_table_and_its_store_change_forecast_and_costs(
    lake: CommandLine, tmp_path: Path
) -> None:
    uuid = str(lake.table().metadata.table_uuid)
    slow = entry(
        table_uuid=uuid, store="file://", seconds=0.2 + 2 * 100 * MB / 50e6, bytes=100 * MB
    )
    log = logged(tmp_path / "runs.jsonl", *[slow] * 5)

    text = lake("health", "db.t", "--explain", "--log", log).stdout
    row = row_of(lake, "--log", log)

    assert "from 5 runs: local disk, 0.5 ms a file" in text
    assert "s (from 5 runs)" in text
    assert row["costs"]["runs"] == 5
    assert row["costs"]["bytes_per_second"] == 75_000_000
    assert forecast_of(lake, "--log", log)["work_runs"] == 5
    assert row_of(lake)["costs"]["runs"] == 0


def test_a_run_records_its_store_and_what_later_forecasts_need(
    lake: CommandLine, tmp_path: Path
) -> None:
    policy = tmp_path / "policy.toml"
    for number in range(2):
        lake.ok(*COMPACT, policy)
        for _ in range(6):
            lake.table().append(named_rows(number))

    lines = [json.loads(line) for line in Path(default_path()).read_text().splitlines()]

    assert [line["store"] for line in lines] == ["file://"] * 2
    assert all(line["after"]["measured_seconds"] > 0 for line in lines)
    assert all(line["after"]["manifest_bytes"] > 0 for line in lines)
    assert lines[0]["before"]["measured_seconds"] is None
    assert lines[0]["forecast"]["work_seconds"] == 0.2
    found = forecast_of(lake)
    assert found["work_runs"] == 2
    took = [line["seconds"] for line in lines]
    assert found["work_seconds"] == pytest.approx(sum(took) / 2, rel=0.05, abs=0.01)


def test_a_log_that_cannot_be_read_leaves_the_stated_costs(
    lake: CommandLine, tmp_path: Path
) -> None:
    log = Path(default_path())
    log.mkdir(parents=True)

    document = lake.ok("health", "db.t")

    assert document["result"]["tables"][0]["costs"]["runs"] == 0
    assert "costs are the stated ones" in document["warnings"][0]
    assert lake("health", "db.t", "--log", tmp_path).exit_code == 7
