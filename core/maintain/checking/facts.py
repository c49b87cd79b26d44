"""What a check found, as its JSON document has it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lake.core.base.facts import Facts


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingFacts(Facts):
    """A finding with what its code means; `repair` is None if no repair mends it."""

    code: str
    severity: str
    place: str
    message: str
    effect: str
    remedy: str
    repair: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult(Facts):
    """The findings, of which the first of each code are described, and what was read."""

    level: str = ""
    findings: Sequence[FindingFacts] = ()
    errors: int = 0
    warnings: int = 0
    notes: int = 0
    snapshots: int = 0
    manifests: int = 0
    entries: int = 0
    files: int = 0
