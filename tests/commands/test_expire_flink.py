"""`lake expire` on tables that Flink writes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.cli.command_line import CommandLine
from support.tables import flink_fixtures
from support.tables.iceberg_tables import make_table, pyiceberg_table

ALL = ("--older-than", "0s", "--unsafe-retention")
JOB = {
    "flink.job-id": "0123456789abcdef0123456789abcdef",
    "flink.operator-id": "cbc357ccb763df2852fee8c4fc7d55f2",
    "flink.max-committed-checkpoint-id": "40",
}


@pytest.fixture
def busy(warehouse: Path) -> Any:
    """A table with one snapshot, then a job's, then two that others made."""
    table = make_table(warehouse)
    for number in range(4):
        rows = pa.table({"id": pa.array([number], pa.int64()), "name": ["n"]})
        table.append(rows, snapshot_properties=JOB if number == 1 else {})
    return table


def left_in(warehouse: Path) -> list[int]:
    return [s.snapshot_id for s in pyiceberg_table(warehouse).snapshots()]


def test_snapshots_up_to_a_jobs_commit_are_kept_and_reported(
    lake: CommandLine, warehouse: Path, busy: Any
) -> None:
    ids = left_in(warehouse)

    promised = lake.ok("expire", "db.t", *ALL, "--dry-run")
    done = lake.ok("expire", "db.t", *ALL)

    assert left_in(warehouse) == ids[1:]
    assert promised["plan"]["snapshots"] == done["result"]["snapshots"] == 1
    assert promised["warnings"] == done["warnings"]
    (warning,) = done["warnings"]
    assert all(text in warning for text in (JOB["flink.job-id"], JOB["flink.operator-id"]))
    assert "kept 2 snapshots of main, " in warning
    again = lake.ok("expire", "db.t", *ALL)
    assert (again["status"], again["warnings"]) == ("nothing-to-do", [warning])


def test_people_see_which_checkpoints_are_kept(lake: CommandLine, busy: Any) -> None:
    shown = lake("expire", "db.t", *ALL, "--dry-run").stdout

    assert "\t".join([*JOB.values(), "main", "3", "2"]) in shown


@pytest.mark.parametrize("time", ["0s", "1ms"])
def test_a_job_that_needs_it_no_longer_keeps_nothing(
    lake: CommandLine, warehouse: Path, busy: Any, time: str
) -> None:
    done = lake.ok("expire", "db.t", *ALL, "--keep-checkpoints", time)

    assert (done["result"]["snapshots"], done["warnings"]) == (3, [])
    assert len(left_in(warehouse)) == 1


def test_no_warning_is_given_if_nothing_more_is_kept(lake: CommandLine, busy: Any) -> None:
    assert lake.ok("expire", "db.t", *ALL, "--retain-last", "3")["warnings"] == []


def test_a_named_snapshot_that_a_job_needs_is_refused(
    lake: CommandLine, warehouse: Path, busy: Any
) -> None:
    ids = left_in(warehouse)

    refused = lake("--json", "expire", "db.t", "--snapshot", str(ids[2]))
    done = lake.ok("expire", "db.t", "--snapshot", str(ids[2]), "--keep-checkpoints", "0s")

    assert refused.exit_code == 3
    assert "--keep-checkpoints 0s" in refused.json()["error"]["hint"]
    assert done["result"]["snapshots"] == 1


@pytest.mark.parametrize("time", ["soon", "-1d", "7"])
def test_an_invalid_age_is_refused(lake: CommandLine, busy: Any, time: str) -> None:
    assert lake("expire", "db.t", *ALL, "--keep-checkpoints", time).exit_code == 2


def test_many_jobs_make_few_warnings(lake: CommandLine, warehouse: Path) -> None:
    table = make_table(warehouse)
    for number in range(9):
        rows = pa.table({"id": pa.array([number], pa.int64()), "name": ["n"]})
        table.append(rows, snapshot_properties={**JOB, "flink.job-id": f"job-{number}"})

    warnings = lake.ok("expire", "db.t", *ALL)["warnings"]

    # The newest one's commit is the head, which stays anyway.
    assert len(warnings) == 6
    assert "job-7" in warnings[0]
    assert "3 other Flink jobs too" in warnings[-1]


@pytest.mark.parametrize("name", flink_fixtures.names())
def test_what_flink_restores_from_is_the_same_after_an_expiry(flink_lent: Any, name: str) -> None:
    fixture = flink_lent(name)
    lake = CommandLine(fixture.warehouse, catalog_type=fixture.catalog_type)
    before = lake.ok("snapshots", fixture.table)["result"]["snapshots"]
    others = temporary_manifests(fixture.root)

    document = lake.ok("expire", fixture.table, *ALL, "--keep-checkpoints", "36500d")

    after = lake.ok("snapshots", fixture.table)["result"]["snapshots"]
    assert document["status"] in {"done", "nothing-to-do"}
    assert restored_from(after) == restored_from(before)
    assert temporary_manifests(fixture.root) == others


def restored_from(rows: list[dict[str, Any]]) -> dict[str, str]:
    """The checkpoint of each job that is found first, newest snapshot first, no parent missing between."""
    found: dict[str, str] = {}
    for row, parent in zip(rows, [*rows[1:], None], strict=True):
        if row["job_id"]:
            found.setdefault(row["job_id"], row["checkpoint_id"])
        if parent is not None:
            assert row["parent_id"] == parent["snapshot_id"]
    return found


def temporary_manifests(root: Path) -> dict[Path, bytes]:
    name = re.compile(r"[0-9a-f]{32}-[0-9a-f]{32}-\d{5}-\d+-\d+-\d{5}.*\.avro")
    return {path: path.read_bytes() for path in root.rglob("*.avro") if name.fullmatch(path.name)}
