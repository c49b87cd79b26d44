"""What a check found, as its JSON document has it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lake.core.base.facts import Facts


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingFacts(Facts):
    """A finding with what its code means; `repair` is None if no repair mends it."""

    code: str
    """The code of the finding, as `F001`."""
    severity: str
    """`error`, `warning` or `note`."""
    place: str
    """The snapshot, manifest or file."""
    message: str
    """What is wrong."""
    effect: str
    """What it means for readers and writers."""
    remedy: str
    """What to do."""
    repair: str | None
    """The name of the repair that may mend it; null without one."""
    branch: str | None
    """A branch whose head has the damage, `main` before others; null if it is not damage of a head."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult(Facts):
    """The findings, of which the first of each code are described, and what was read."""

    level: str = ""
    """How much was read: `metadata`, `files`, `rows` or `deep`."""
    findings: Sequence[FindingFacts] = ()
    """The findings, the first 1,000 of each code."""
    errors: int = 0
    """The number of all errors."""
    warnings: int = 0
    """The number of all warnings."""
    notes: int = 0
    """The number of all notes."""
    snapshots: int = 0
    """Snapshots that were examined."""
    manifests: int = 0
    """Manifests that were examined."""
    entries: int = 0
    """Entries of manifests that were examined."""
    files: int = 0
    """Files that were looked up."""
    engine: str = "inline"
