"""The objects that every step of a run needs, whichever table it works on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from lake.core.base.clock import Clock, Ids, SystemClock, SystemIds
from lake.core.base.errors import OutOfTimeError
from lake.core.base.interrupts import Interrupts
from lake.core.base.progress import Progress, Silent


@dataclass(kw_only=True)
class RunContext:
    """Clock, identifiers, progress, warnings, and the files that must not be deleted.

    Args:
        clock: reports the time and waits.
        ids: makes identifiers that never repeat.
        progress: receives phases and their progress.
        interrupts: decides when a stop signal may interrupt the run.
        warnings: what the user needs to know although the command succeeded.
        announce: called with each warning when it occurs; None to show warnings at the end only.
        note: called with what must be known if the process is killed, and its facts by their names in the output.
        retried: called before a commit is tried again.
        protected_files: canonical locations of files that a snapshot references or may reference. They are never
            deleted, whatever fails afterwards.
        begun: the clock's monotonic time at which the process began that does only this; None if it does more.
        until: the clock's monotonic time after which no further part of the work begins; None for no limit.
        secrets: settings whose values must not be printed, if their names are names of secrets.
    """

    clock: Clock = field(default_factory=SystemClock)
    ids: Ids = field(default_factory=SystemIds)
    progress: Progress = field(default_factory=Silent)
    interrupts: Interrupts = field(default_factory=Interrupts)
    warnings: list[str] = field(default_factory=list)
    announce: Callable[[str], None] | None = None
    note: Callable[[str, Mapping[str, str]], None] = lambda _text, _facts: None
    retried: Callable[[], None] = lambda: None
    protected_files: set[str] = field(default_factory=set)
    begun: float | None = None
    until: float | None = None
    secrets: list[Mapping[str, object]] = field(default_factory=list, repr=False)

    def warn(self, message: str) -> None:
        """Add a warning, once."""
        if message not in self.warnings:
            self.warnings.append(message)
            if self.announce is not None:
                self.announce(message)

    @property
    def has_ended(self) -> bool:
        """Whether the time of the run has ended."""
        return self.until is not None and self.clock.monotonic() >= self.until

    def require_time(self, ending: str, hint: str | None = None) -> None:
        """Check that the time of the run has not ended.

        Args:
            ending: what is done and what is not, if the work ends now.
            hint: what the user can do then.

        Raises:
            OutOfTimeError: it has ended.
        """
        if self.has_ended:
            raise OutOfTimeError(f"the time has ended: {ending}", hint=hint)
