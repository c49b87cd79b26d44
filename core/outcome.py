"""What a command did, in the one shape that is printed and that scripts read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Status(StrEnum):
    """How a command ended (`cli.md`'s words)."""

    DONE = "done"
    NOTHING_TO_DO = "nothing-to-do"
    DRY_RUN = "dry-run"
    PARTIAL = "partial"
    REFUSED = "refused"
    CONFLICT = "conflict"
    UNKNOWN = "unknown"
    ALREADY_RUNNING = "already-running"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One command's end.

    `plan` and `result` hold exactly the keys that the command line's contract names. `details` are rows to
    show people under the summary: (title, column names, rows).
    """

    command: str
    table: str
    status: Status
    branch: str | None = None
    operation_id: str | None = None
    base_snapshot_id: int | None = None
    snapshot_ids: Sequence[int] = ()
    plan: Mapping[str, Any] = field(default_factory=dict)
    result: Mapping[str, Any] = field(default_factory=dict)
    warnings: Sequence[str] = ()
    details: Sequence[tuple[str, Sequence[str], Sequence[Sequence[Any]]]] = ()

    @property
    def exit_code(self) -> int:
        """0, or 6 when only a part was done."""
        return 6 if self.status is Status.PARTIAL else 0
