"""When a follow stops by itself."""

from __future__ import annotations

from lake.core.read.continuous.run import Run
from lake.core.table.snapshots import ancestry


class StopRules:
    """The rules by which a run ends without a signal."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def last_snapshot(self) -> int | None:
        """Return the snapshot at which the run ends; None for none.

        Raises:
            NotFoundError: there is no such snapshot.
        """
        until = self._run.options.until
        if until is None or until.snapshot is None:
            return None
        found = ancestry.resolve(
            self._run.table.metadata, until.snapshot, branch=self._run.options.branch
        )
        return found.snapshot_id

    def seconds_left(self) -> float:
        """Return the time until the run ends by itself."""
        until = self._run.options.until
        left = float("inf")
        if until is not None and until.after_ms is not None:
            left = self._run.started + until.after_ms / 1000 - self._run.clock.monotonic()
        if until is not None and until.time_ms is not None:
            left = (until.time_ms - self._run.clock.now_ms()) / 1000
        return max(left, 0.0)

    def apply(self) -> bool:
        """Apply the rules, between epochs; return whether the run has ended."""
        most = self._run.options.max_epochs
        if most is not None and self._run.done.epochs >= most:
            self._run.done.stopped_by = "max-epochs"
        elif not self.seconds_left():
            self._run.done.stopped_by = "until"
        return self._run.done.stopped_by is not None
