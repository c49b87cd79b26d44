"""How long the tests of each file take, by tier: what a run prints at its end, and the record that orders files.

``data/seconds.json`` is the record. A run with ``--record-seconds`` writes what it measured into it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from support import tiers

RECORD = Path(__file__).parents[1] / "data" / "seconds.json"
TIER = "tier"
_ROOT = Path(__file__).parents[2]
_SLOWEST = 5

# The seconds by file and tier.
Seconds = Mapping[str, Mapping[str, float]]


def recorded() -> dict[str, dict[str, float]]:
    """Return the record."""
    found: dict[str, dict[str, float]] = json.loads(RECORD.read_text())
    return found


def measured(reports: Iterable[pytest.TestReport]) -> dict[str, dict[str, float]]:
    """Return what a run took; a test counts with its fixtures."""
    found: dict[str, dict[str, float]] = {}
    for report in reports:
        # A report of a process that crashed has no properties.
        properties: dict[str, Any] = dict(report.user_properties)
        if tier := properties.get(TIER):
            spent = found.setdefault(report.nodeid.partition("::")[0], {})
            spent[tier] = spent.get(tier, 0.0) + report.duration
    return found


def record(seconds: Seconds) -> None:
    """Replace what the record says about files and tiers; files that are gone leave it."""
    merged = recorded()
    for file, by_tier in seconds.items():
        rounded = {tier: round(spent) for tier, spent in by_tier.items()}
        merged[file] = {**merged.get(file, {}), **rounded}
    RECORD.write_text(text_of({file: merged[file] for file in merged if (_ROOT / file).exists()}))


def text_of(seconds: Seconds) -> str:
    """Return a record with one line for each file."""
    lines = [f" {json.dumps(file)}: {json.dumps(seconds[file])}" for file in sorted(seconds)]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def longest_first(items: list[pytest.Item], seconds: Seconds) -> None:
    """Order files so that no process is left with a long one when the others have ended.

    One that has no record comes first, because it may be long. The tests of a cluster are one unit, as for xdist.
    """
    chosen: dict[str, set[tuple[str, str]]] = {}
    for item in items:
        file = item.nodeid.partition("::")[0]
        chosen.setdefault(tiers.unit_of(file), set()).add((file, tiers.tier_of(item)))
    total = {
        unit: sum(seconds.get(file, {}).get(tier, float("inf")) for file, tier in parts)
        for unit, parts in chosen.items()
    }
    items.sort(key=lambda item: -total[tiers.unit_of(item.nodeid.partition("::")[0])])


def report_of(seconds: Seconds) -> list[str]:
    """Return a line for each tier with its seconds, and with the files that took most of them."""
    lines = []
    for tier in (tiers.QUICK, *tiers.OTHERS):
        by_file = {file: found[tier] for file, found in seconds.items() if tier in found}
        slowest = sorted(by_file, key=lambda file: -by_file[file])[:_SLOWEST]
        if by_file:
            named = ", ".join(f"{file} {by_file[file]:.0f}" for file in slowest)
            lines.append(f"{tier}: {sum(by_file.values()):.0f} s of tests, most in {named}")
    return lines
