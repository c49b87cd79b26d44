"""Protect from expiry what a run has not handed over."""

from __future__ import annotations

from lake.core.read.continuous.consumers import protect
from lake.core.read.continuous.run import Run
from lake.core.table.refs.consumers import first_unread, ref_of

_PROTECT_SECONDS = 600.0


class Protection:
    """The ref of a run's consumer."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._protected: tuple[int | None, bool] | None = None
        self._protected_at: float | None = None

    def update(self, *, at_end: bool = False) -> None:
        """Let the consumer's ref protect what is not handed over, at most every ten minutes, and at the end."""
        name = self._run.options.consumer
        needed = self._needed()
        if name is None or needed == self._protected:
            return
        now = self._run.clock.monotonic()
        recent = self._protected_at is not None and now - self._protected_at < _PROTECT_SECONDS
        # The ref of the last run protects what a single run reads.
        known = self._run.options.once and ref_of(name) in self._run.table.metadata.refs
        if not at_end and (recent or known):
            return
        oldest, is_position = needed
        protect(
            self._run.session,
            self._run.table,
            name,
            self._run.options.branch,
            oldest,
            self._run.options.consumer_ttl,
            needs_position=is_position,
        )
        self._protected, self._protected_at = needed, now

    def _needed(self) -> tuple[int | None, bool]:
        """Return the oldest snapshot that is needed, and whether it is a position, that is, handed over."""
        if not self._run.state.pending:
            return (self._run.position.snapshot_id if self._run.position else None), True
        first = self._run.state.pending[0]
        start = None if first.start is None else first.start.position.snapshot_id
        if first.kind == "table":
            return first.end.position.snapshot_id, False
        if first.kind == "changes" and start is not None:
            return start, True
        return first_unread(self._run.table.metadata, self._run.options.branch, start), False
