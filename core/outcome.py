"""The result of a command, in the one form that is printed and that scripts read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Status(StrEnum):
    """How a command ended, as in the JSON output."""

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
    """The result of one command.

    `plan` and `result` contain exactly the keys of the command's documented JSON. `details` are rows to show
    below the summary: (title, column names, rows). `notes` are lines for people below these tables.
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
    notes: Sequence[str] = ()
    details: Sequence[tuple[str, Sequence[str], Sequence[Sequence[Any]]]] = ()

    @property
    def exit_code(self) -> int:
        """0, or 6 if only a part was done."""
        return 6 if self.status is Status.PARTIAL else 0
