"""Entries of the run log of `lake maintain`, and logs that contain them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lake.core.base.clock import SystemClock
from lake.core.base.facts import ErrorFacts
from lake.core.base.units import iso_time
from lake.core.maintain.run_log.entries import Entry, ExpectedFacts, Measures
from lake.core.maintain.run_log.run_log import RunLog

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
DISK_FULL = ErrorFacts(kind="storage", message="the disk is full", hint="free space on it")


def entry(*, age_ms: int = 0, **changes: Any) -> Entry:
    """Return the entry of a compaction of `db.t` that did nothing and ended so long ago, with changes."""
    values = {
        "at": iso_time(SystemClock().now_ms() - age_ms),
        "run": "run-1",
        "host": "etl-1",
        "catalog": "prod",
        "table": "db.t",
        "table_uuid": "uuid-1",
        "action": "compact",
        "status": "done",
        "seconds": 2.0,
    }
    return Entry(**{**values, **changes})


def failed(*, age_ms: int = 0, **changes: Any) -> Entry:
    """Return the entry of an action that failed, with changes."""
    return entry(age_ms=age_ms, **{"status": "failed", "error": DISK_FULL, **changes})


def compacted(*, before_s: float = 3.0, after_s: float = 1.0, **changes: Any) -> Entry:
    """Return the entry of a compaction of 36 files of 1 GB that changed the seconds of a scan, with changes."""
    values = {
        "bytes": 1 << 30,
        "forecast": ExpectedFacts(
            before=36, after=6, bytes=1 << 30, seconds=1.5, partition_seconds=0.5
        ),
        "before": Measures(files=3_600, bytes=1 << 30, delete_files=4, scan_seconds=before_s),
        "after": Measures(files=6, bytes=1 << 30, delete_files=0, scan_seconds=after_s),
        "operation_id": "operation-1",
        "snapshot_ids": ("1", "2"),
    }
    return entry(**{**values, **changes})


def logged(path: Path, *entries: Entry) -> Path:
    """Append entries to a log, the oldest first, and return its path."""
    log = RunLog(str(path))
    for one in entries:
        log.append(one)
    return path
