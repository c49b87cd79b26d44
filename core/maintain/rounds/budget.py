"""The limits of a round: seconds, and bytes of data files that it may rewrite."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lake.core.base.units import format_duration, format_size

if TYPE_CHECKING:
    from lake.core.base.clock import Clock
    from lake.core.maintain.rounds.decisions import Decision

# The actions that read data files to rewrite them; a compaction can do a part of its work.
_REWRITES, _DIVISIBLE = frozenset({"compact", "deletes"}), "compact"


@dataclass(slots=True)
class Budget:
    """What is left of the limits.

    Args:
        clock: the clock.
        max_ms: the time after which nothing begins; None for no limit.
        bytes_left: the bytes that may still be rewritten; None for no limit.
        until: the end of the time, as the clock's monotonic time; None for no limit.
    """

    clock: Clock
    max_ms: int | None
    bytes_left: int | None
    until: float | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        if self.max_ms is not None:
            self.until = self.clock.monotonic() + self.max_ms / 1000

    def refusal(self, decision: Decision) -> str:
        """Return why an action does not begin; empty if it may."""
        if self.until is not None and self.clock.monotonic() >= self.until:
            return f"the {format_duration((self.max_ms or 0) / 1000)} have passed"
        if self.bytes_left is None or decision.action not in _REWRITES:
            return ""
        needed = decision.forecast.bytes if decision.forecast else 0
        if self.bytes_left <= 0 or (decision.action != _DIVISIBLE and needed > self.bytes_left):
            return f"it reads {format_size(needed)}, and {format_size(self.bytes_left)} are left"
        return ""

    def limit(self, action: str) -> int | None:
        """Return the most bytes that an action may rewrite; None if it has no limit, or cannot do a part."""
        return self.bytes_left if action == _DIVISIBLE else None

    def spend(self, rewritten: int | None) -> None:
        """Count what an action rewrote."""
        if self.bytes_left is not None:
            self.bytes_left = max(self.bytes_left - (rewritten or 0), 0)
