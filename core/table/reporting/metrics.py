"""The metrics of a report: durations and counters."""

from __future__ import annotations

from typing import Any

_COUNT, _BYTES = "count", "bytes"


def duration(seconds: float) -> dict[str, Any]:
    """Return what was done once and took some seconds."""
    return {
        "count": 1,
        "time-unit": "nanoseconds",
        "total-duration": max(round(seconds * 1e9), 0),
    }


def counter(name: str, value: int) -> dict[str, Any]:
    """Return a counter; its name shows whether it counts bytes."""
    return {"unit": _BYTES if name.endswith("-bytes") else _COUNT, "value": value}
