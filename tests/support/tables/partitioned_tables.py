"""A small table with one partition for each day, and snapshots of chosen ages."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from support.cli.command_line import CommandLine
from support.tables.metadata_edits import edit_metadata

HOUR_MS = 3_600_000


def add(lake: CommandLine, *rows: str, version: int = 2) -> None:
    source = lake.warehouse.parent / "rows.csv"
    source.write_text("id,day\n" + "".join(f"{row}\n" for row in rows))
    made = ("--create", "--partition-by", "day", "--property", f"format-version={version}")
    lake.ok("ingest", "db.t", source, *made)


def backdate(warehouse: Path, *hours: float) -> None:
    """Set how many hours ago each snapshot was committed, oldest first."""
    now_ms = time.time_ns() // 1_000_000

    def change(plain: dict[str, Any]) -> None:
        ages = zip(plain["snapshots"], hours, strict=True)
        times = {item["snapshot-id"]: now_ms - int(age * HOUR_MS) for item, age in ages}
        for item in (*plain["snapshots"], *plain["snapshot-log"]):
            item["timestamp-ms"] = times[item["snapshot-id"]]

    edit_metadata(warehouse, change)
