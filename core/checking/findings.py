"""The kinds of damage that a check can find, by code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, NamedTuple

# The most findings of one code that are described; the others are counted.
MOST_DESCRIBED = 1000
ERROR = "error"
WARNING = "warning"


class Level(IntEnum):
    """How much a check reads; each level includes those before it."""

    METADATA = 0
    FILES = 1
    ROWS = 2


class Kind(NamedTuple):
    """What a code means.

    Args:
        severity: `ERROR` or `WARNING`.
        effect: what it means for readers.
        remedy: what mends it.
    """

    severity: str
    effect: str
    remedy: str


_RESTORE = "restore the file from a backup, or roll back to an earlier snapshot"
_REWRITE = "rewrite the file by a compaction"
KINDS = {
    "R001": Kind(ERROR, "the branch or tag cannot be read", "drop the branch or tag"),
    "R002": Kind(
        ERROR, "rows may be read with a wrong schema", "register an earlier metadata file"
    ),
    "R003": Kind(ERROR, "deletes may apply to wrong files", "register an earlier metadata file"),
    "L001": Kind(ERROR, "the snapshot cannot be read", _RESTORE),
    "L002": Kind(ERROR, "the snapshot cannot be read", _RESTORE),
    "L003": Kind(ERROR, "rows of the snapshot are missing", _RESTORE),
    "L004": Kind(ERROR, "the list belongs to another snapshot", _RESTORE),
    "M001": Kind(ERROR, "the snapshots that use it cannot be read", _RESTORE),
    "M002": Kind(ERROR, "the snapshots that use it cannot be read", _RESTORE),
    "M003": Kind(ERROR, "the snapshots that use it cannot be read", _RESTORE),
    "E001": Kind(ERROR, "readers return its rows twice", "roll back to an earlier snapshot"),
    "E002": Kind(ERROR, "readers fail, or return deleted rows", "roll back to an earlier snapshot"),
    "E003": Kind(ERROR, "readers fail, or return deleted rows", "roll back to an earlier snapshot"),
    "F001": Kind(ERROR, "the snapshots that use it cannot be read", _RESTORE),
    "F002": Kind(ERROR, "readers fail, or return deleted rows", _RESTORE),
    "F003": Kind(ERROR, "readers may fail or miss rows", _RESTORE),
    "D001": Kind(ERROR, "the snapshots that use it cannot be read", _RESTORE),
    "D002": Kind(ERROR, "readers fail, or count wrong rows", _RESTORE),
    "D003": Kind(ERROR, "the snapshots that use it cannot be read", _RESTORE),
    "D004": Kind(ERROR, "scans with a filter lose rows", _REWRITE),
    "D005": Kind(ERROR, "scans with a filter lose rows", _REWRITE),
    "D006": Kind(ERROR, "readers fail, or return deleted rows", _RESTORE),
    "D007": Kind(WARNING, "unknown: the file was not checked", "check it with its writer"),
    "D008": Kind(WARNING, "planners estimate badly", _REWRITE),
    "V001": Kind(ERROR, "readers fail, or return deleted rows", _RESTORE),
    "V002": Kind(ERROR, "readers may fail", "roll back to an earlier snapshot"),
    "T001": Kind(
        WARNING, "planners that use the summary plan badly", "nothing; rows are not affected"
    ),
    "S001": Kind(WARNING, "planners ignore the statistics", "compute the statistics again"),
    "S002": Kind(
        WARNING, "planners may fail to read the statistics", "compute the statistics again"
    ),
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding.

    Args:
        code: a key of `KINDS`.
        place: the file, snapshot or ref.
        message: what is wrong.
    """

    code: str
    place: str
    message: str


@dataclass(slots=True)
class Findings:
    """The findings of a check.

    Args:
        described: the first findings of each code.
        counts: the number of findings by code.
    """

    described: list[Finding] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    @classmethod
    def of(cls, found: Iterable[Finding]) -> Findings:
        """Collect findings."""
        findings = cls()
        for item in found:
            findings.counts[item.code] += 1
            if findings.counts[item.code] <= MOST_DESCRIBED:
                findings.described.append(item)
        return findings

    def count(self, severity: str) -> int:
        """Return the number of findings of a severity."""
        return sum(
            number for code, number in self.counts.items() if KINDS[code].severity == severity
        )

    def rows(self) -> list[dict[str, Any]]:
        """Return the described findings with what their codes mean."""
        return [
            {
                "code": item.code,
                "severity": KINDS[item.code].severity,
                "place": item.place,
                "message": item.message,
                "effect": KINDS[item.code].effect,
                "remedy": KINDS[item.code].remedy,
            }
            for item in self.described
        ]
