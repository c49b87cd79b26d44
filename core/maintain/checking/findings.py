"""The kinds of damage that a check can find, by code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from lake.core.base.plain import PlainData
from lake.core.maintain.checking.facts import FindingFacts

# The most findings of one code that are described; the others are counted.
MOST_DESCRIBED = 1000
ERROR = "error"
WARNING = "warning"
# Without an effect on readers, and on the status of a check.
NOTE = "note"


class Level(IntEnum):
    """How much a check reads; each level includes those before it."""

    METADATA = 0
    FILES = 1
    ROWS = 2
    DEEP = 3


class Kind(NamedTuple):
    """What a code means.

    Args:
        severity: `ERROR`, `WARNING` or `NOTE`.
        effect: what it means for readers.
        remedy: what mends it.
        repair: the name of the repair that can mend it (`lake.core.maintain.repair`); None if there is none.
    """

    severity: str
    effect: str
    remedy: str
    repair: str | None = None


_RESTORE = "restore the file from a backup, or roll back to an earlier snapshot"
_REWRITE = "rewrite the file by a compaction"
_ROLL_BACK = "roll back to an earlier snapshot"
_REGISTER = "register an earlier metadata file"
_REWRITE_LIST = "rewrite the manifests"
_UNREADABLE = "the snapshots that use it cannot be read"
_DELETES_FAIL = "readers fail, or return deleted rows"
_LOSE = "scans with a filter lose rows"
KINDS = {
    "G001": Kind(ERROR, "Iceberg Java does not load the table", _REGISTER),
    "G002": Kind(WARNING, "the table cannot be registered from it", "nothing, or restore the file"),
    "G003": Kind(WARNING, "the table may have replaced another one", "compare it with a backup"),
    "G004": Kind(WARNING, "each commit and each read is slow", "expire snapshots more often"),
    "G005": Kind(
        ERROR, "maintenance of one table may delete the other's files", "drop one of them"
    ),
    "G006": Kind(NOTE, "maintenance does not delete these files", "nothing, or rewrite the files"),
    "R001": Kind(
        ERROR,
        "the branch or tag cannot be read",
        f"drop the branch or tag; for main, {_REGISTER}",
        "refs",
    ),
    "R002": Kind(ERROR, "rows may be read with a wrong schema", _REGISTER),
    "R003": Kind(ERROR, "deletes may apply to wrong files", _REGISTER),
    "R004": Kind(ERROR, "readers return different snapshots, or fail", _REGISTER),
    "R005": Kind(ERROR, "readers of the history do not end", _REGISTER),
    "R006": Kind(WARNING, "incremental readers stop at the snapshot", _REGISTER),
    "R007": Kind(ERROR, "deletes may apply to wrong files", _REGISTER),
    "R008": Kind(WARNING, "time travel chooses a wrong snapshot", "nothing; name snapshots by id"),
    "C001": Kind(ERROR, "readers may use a wrong schema, spec or order", _REGISTER),
    "C002": Kind(ERROR, "readers fail, or return values of another column", _REGISTER),
    "C003": Kind(ERROR, "the next new column gets the id of another one", _REGISTER),
    "C004": Kind(ERROR, "the next partition field gets the id of another one", _REGISTER),
    "C005": Kind(ERROR, "readers fail, or return values of another column", _REGISTER),
    "C006": Kind(ERROR, "writers fail", "change the spec, the sort order or the schema"),
    "C007": Kind(ERROR, "Iceberg Java does not load the table", "rename the column"),
    "C008": Kind(ERROR, "Iceberg Java does not load the table", _REGISTER),
    "N001": Kind(ERROR, "new rows get the ids of other rows", _REGISTER),
    "N002": Kind(ERROR, "different rows have one id", _REWRITE),
    "N003": Kind(WARNING, "rows have no ids", _REWRITE_LIST),
    "L001": Kind(ERROR, "the snapshot cannot be read", _RESTORE),
    "L002": Kind(ERROR, "the snapshot cannot be read", _RESTORE),
    "L003": Kind(ERROR, "rows of the snapshot are missing", _RESTORE),
    "L004": Kind(ERROR, "the list belongs to another snapshot", _RESTORE),
    "L005": Kind(ERROR, _LOSE, _REWRITE_LIST),
    "L006": Kind(ERROR, "writers may remove deletes that still apply", _REWRITE_LIST),
    "L007": Kind(ERROR, "deletes may apply to wrong files", _RESTORE),
    "M001": Kind(ERROR, _UNREADABLE, _RESTORE),
    "M002": Kind(ERROR, _UNREADABLE, _RESTORE),
    "M003": Kind(ERROR, _UNREADABLE, _RESTORE),
    "M004": Kind(ERROR, "readers fail, or read deletes as data", _RESTORE),
    "M005": Kind(ERROR, _LOSE, _RESTORE),
    "M006": Kind(WARNING, "some readers refuse the manifest", _REWRITE_LIST),
    "E001": Kind(ERROR, "readers return its rows twice", _ROLL_BACK, "duplicate-files"),
    "E002": Kind(ERROR, _DELETES_FAIL, _ROLL_BACK),
    "E003": Kind(ERROR, _DELETES_FAIL, _ROLL_BACK),
    "E004": Kind(ERROR, _DELETES_FAIL, _ROLL_BACK),
    "E005": Kind(
        NOTE,
        "scans read the delete file in vain",
        "remove delete files that do not apply",
        "dangling-deletes",
    ),
    "E006": Kind(
        NOTE, "rows of the same commit are not deleted", "if they should be, delete them again"
    ),
    "E007": Kind(ERROR, "deletes may apply to wrong files", _RESTORE),
    "E008": Kind(ERROR, _DELETES_FAIL, _ROLL_BACK),
    "E009": Kind(WARNING, "planners do not know how the file is sorted", _REWRITE),
    "P001": Kind(ERROR, _LOSE, _REWRITE),
    "F001": Kind(ERROR, _UNREADABLE, _RESTORE, "missing-files"),
    "F002": Kind(ERROR, _DELETES_FAIL, _RESTORE, "missing-files"),
    "F003": Kind(ERROR, "readers may fail or miss rows", _RESTORE),
    "D001": Kind(ERROR, _UNREADABLE, _RESTORE),
    "D002": Kind(ERROR, "readers fail, or count wrong rows", _RESTORE),
    "D003": Kind(ERROR, _UNREADABLE, _RESTORE),
    "D004": Kind(ERROR, _LOSE, _REWRITE),
    "D005": Kind(ERROR, _LOSE, _REWRITE),
    "D006": Kind(ERROR, _DELETES_FAIL, _RESTORE),
    "D007": Kind(WARNING, "unknown: the file was not checked", "check it with its writer"),
    "D008": Kind(WARNING, "planners estimate badly", _REWRITE),
    "D009": Kind(ERROR, _UNREADABLE, _RESTORE),
    "V001": Kind(ERROR, _DELETES_FAIL, _RESTORE),
    "V002": Kind(ERROR, "readers may fail", _ROLL_BACK),
    "V003": Kind(ERROR, "readers fail, or return deleted rows", _ROLL_BACK),
    "V004": Kind(WARNING, "readers return rows that the file deletes", "delete the rows again"),
    "V005": Kind(
        WARNING,
        "writers may keep it forever",
        "remove delete files that do not apply",
        "dangling-deletes",
    ),
    "V006": Kind(ERROR, _DELETES_FAIL, _ROLL_BACK),
    "V007": Kind(WARNING, "some readers refuse the vector", "rewrite the vector"),
    "T001": Kind(
        WARNING, "planners that use the summary plan badly", "count the totals again", "totals"
    ),
    "T002": Kind(
        WARNING, "tools that show changes show wrong counts", "nothing; rows are not affected"
    ),
    "S001": Kind(
        WARNING, "planners ignore the statistics", "compute the statistics again", "statistics"
    ),
    "S002": Kind(
        WARNING,
        "planners may fail to read the statistics",
        "compute the statistics again, or remove their entry",
        "statistics",
    ),
    "S003": Kind(
        WARNING, "planners may fail to read the statistics", "compute the statistics again"
    ),
}


@dataclass(frozen=True, slots=True)
class Finding(PlainData):
    """One finding.

    Args:
        code: a key of `KINDS`.
        place: the file, snapshot or ref.
        message: what is wrong.
        branch: a branch whose head has the damage, main before others; None if it is not damage of a head.
    """

    code: str
    place: str
    message: str
    branch: str | None = None


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

    def rows(self) -> list[FindingFacts]:
        """Return the described findings with what their codes mean, errors first."""
        order = (ERROR, WARNING, NOTE)
        found = sorted(self.described, key=lambda item: order.index(KINDS[item.code].severity))
        return [
            FindingFacts(
                code=item.code,
                severity=KINDS[item.code].severity,
                place=item.place,
                message=item.message,
                effect=KINDS[item.code].effect,
                remedy=KINDS[item.code].remedy,
                repair=KINDS[item.code].repair,
                branch=item.branch,
            )
            for item in found
        ]
