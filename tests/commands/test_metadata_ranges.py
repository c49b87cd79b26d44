"""Table metadata with numbers that do not fit their types: each command names them, and `check` reports them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.cli.command_line import CommandLine
from support.tables.metadata_edits import edit_metadata, metadata_path

Plain = dict[str, Any]
LONG, INT = 2**63, 2**31


def of_snapshot(key: str, value: int) -> Callable[[Plain], object]:
    return lambda plain: plain["snapshots"][0].update({key: value})


def new_snapshot_id(plain: Plain) -> None:
    plain["current-snapshot-id"] = plain["snapshots"][0]["snapshot-id"] = LONG
    plain["refs"]["main"]["snapshot-id"] = LONG


EDITS: dict[str, Callable[[Plain], object]] = {
    "snapshot id": new_snapshot_id,
    "parent": of_snapshot("parent-snapshot-id", -LONG - 1),
    "sequence number": of_snapshot("sequence-number", LONG - 1),
    "first row id": of_snapshot("first-row-id", LONG),
    "last sequence number": lambda plain: plain.update({"last-sequence-number": LONG - 1}),
    "next row id": lambda plain: plain.update({"next-row-id": LONG - 1}),
    "negative row id": lambda plain: plain.update({"next-row-id": -1}),
    "last column id": lambda plain: plain.update({"last-column-id": INT}),
    "column id": lambda plain: plain["schemas"][0]["fields"][0].update({"id": INT}),
    "partition id": lambda plain: plain.update({"last-partition-id": INT}),
    "time": lambda plain: plain.update({"last-updated-ms": LONG}),
    "ref": lambda plain: plain["refs"].update(
        {"old": {"snapshot-id": LONG, "type": "tag", "max-ref-age-ms": LONG}}
    ),
}


@pytest.mark.parametrize("name", EDITS)
def test_a_number_beyond_its_type_is_named_by_every_command(
    lake: CommandLine, tmp_path: Path, name: str
) -> None:
    source = tmp_path / "rows.csv"
    source.write_text("id\n1\n")
    lake.ok("create", "db.t", "id long", "--format-version", "3")
    lake.ok("ingest", "db.t", source)
    edit_metadata(lake.warehouse, EDITS[name])
    location = metadata_path(lake.warehouse)
    before = location.read_bytes()

    for command in (["scan", "db.t"], ["ingest", "db.t", source], ["register", "db.u", location]):
        found = lake(*command)
        assert found.exit_code == 7, found
        assert "has a number that no reader can use" in " ".join(found.stderr.split())
    found = lake("--json", "check", "db.t")
    assert found.exit_code == 7
    assert {item["code"] for item in found.json()["result"]["findings"]} == {"C008"}
    assert metadata_path(lake.warehouse) == location
    assert location.read_bytes() == before
