"""How far back a branch's snapshots reach, whatever program expired them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.cli.command_line import CommandLine
from support.tables.iceberg_tables import (
    make_table,
    open_session,
    pyiceberg_table,
)

from lake.core.base.errors import NotFoundError
from lake.core.load.replay.survey import retained_since


def made(warehouse: Path, version: int) -> Any:
    table = make_table(warehouse, format_version=str(version))
    for number in range(4):
        table.append(pa.table({"id": pa.array([number], pa.int64()), "name": ["x"]}))
    return pyiceberg_table(warehouse)


def since(warehouse: Path, branch: str = "main") -> int | None:
    return retained_since(open_session(warehouse).table("db.t").metadata, branch)


@pytest.mark.parametrize("version", [1, 2])
def test_a_whole_history_reaches_back_for_ever(warehouse: Path, version: int) -> None:
    made(warehouse, version)

    assert since(warehouse) is None


def test_a_table_without_snapshots_has_its_whole_history(warehouse: Path) -> None:
    make_table(warehouse)

    assert since(warehouse) is None


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("kept", [1, 2])
@pytest.mark.parametrize("by", ["lake", "pyiceberg"])
def test_an_expired_history_reaches_back_to_its_oldest_snapshot(
    warehouse: Path, version: int, kept: int, by: str
) -> None:
    table = made(warehouse, version)
    snapshots = table.snapshots()
    if by == "lake":
        CommandLine(warehouse).ok(
            *("expire", "db.t", "--older-than", "0s", "--unsafe-retention"),
            *("--retain-last", kept),
        )
    else:
        gone = [item.snapshot_id for item in snapshots[:-kept]]
        table.maintenance.expire_snapshots().by_ids(gone).commit()

    assert since(warehouse) == snapshots[-kept].timestamp_ms


def test_a_history_that_was_cut_behind_a_deletion_of_everything_is_seen(warehouse: Path) -> None:
    table = made(warehouse, 2)
    table.delete()
    table.append(pa.table({"id": pa.array([9], pa.int64()), "name": ["x"]}))
    snapshots = table.snapshots()
    table.maintenance.expire_snapshots().by_ids([s.snapshot_id for s in snapshots[:-1]]).commit()

    assert since(warehouse) == snapshots[-1].timestamp_ms


def test_a_snapshot_missing_in_between_ends_it(warehouse: Path) -> None:
    table = made(warehouse, 2)
    snapshots = table.snapshots()
    CommandLine(warehouse).ok("expire", "db.t", "--snapshot", snapshots[1].snapshot_id)

    assert since(warehouse) == snapshots[2].timestamp_ms


def test_a_branch_has_a_history_of_its_own(warehouse: Path) -> None:
    table = made(warehouse, 2)
    table.manage_snapshots().create_branch(table.snapshots()[0].snapshot_id, "early").commit()
    CommandLine(warehouse).ok("expire", "db.t", "--snapshot", table.snapshots()[1].snapshot_id)

    assert since(warehouse, "early") is None
    assert since(warehouse) is not None
    with pytest.raises(NotFoundError):
        since(warehouse, "nowhere")
