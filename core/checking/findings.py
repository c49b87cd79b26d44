"""The kinds of damage that a check can find, by code."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

ERROR = "error"
WARNING = "warning"


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
