"""The components that one invocation works with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lake.core.catalogs.catalog import Table, TableCatalog, open_catalog
from lake.core.clock import Clock, Ids, SystemClock, SystemIds
from lake.core.errors import StoppedError
from lake.core.progress import Progress, Silent
from lake.core.settings import Settings

if TYPE_CHECKING:
    from lake.core.engine.tasks import Engine


@dataclass
class Session:
    """Everything replaceable: catalog, clock, ids, progress, engine.

    `warnings` gathers what the user should know though the command succeeded. `owned` holds the
    canonical paths of files that a snapshot holds or may hold: whatever fails afterwards, they stay.
    `stopped` is a stop that waited until a commit had landed: what is left to do heeds it by `go_on`. A command of
    a `single_commit` is over then, and calls `work_is_over`.
    """

    settings: Settings
    catalog: TableCatalog
    clock: Clock = field(default_factory=SystemClock)
    ids: Ids = field(default_factory=SystemIds)
    progress: Progress = field(default_factory=Silent)
    warnings: list[str] = field(default_factory=list)
    owned: set[str] = field(default_factory=set)
    stopped: StoppedError | KeyboardInterrupt | None = None
    single_commit: bool = False
    work_is_over: Callable[[], None] = lambda: None
    _engine: Engine | None = None

    def table(self, identifier: str) -> Table:
        """Load a table; warn if its metadata grew too large."""
        from lake.core.catalogs.metadata_size import heavy_metadata  # noqa: PLC0415 - loaded with a table only

        table = self.catalog.load(identifier)
        if heavy := heavy_metadata(table):
            self.warn(heavy)
        return table

    def warn(self, message: str) -> None:
        """Tell the user something, once."""
        if message not in self.warnings:
            self.warnings.append(message)

    def landed(self) -> None:
        """Note that a commit has landed: who stops a command that has nothing else to do stops it too late."""
        if self.single_commit:
            self.work_is_over()

    def go_on(self) -> None:
        """Raise the stop that waited for a commit, if there was one."""
        if self.stopped is not None:
            raise self.stopped

    def engine(self, input_bytes: int) -> Engine:
        """Return the engine for a plan that reads so many bytes, starting it on first use."""
        if self._engine is None:
            from lake.core.engine.selection import choose_engine  # noqa: PLC0415 - no JVM before a plan

            self._engine = choose_engine(self.settings.engine, input_bytes, self.settings)
        return self._engine

    @property
    def may_have_lost_attempts(self) -> bool:
        """Whether files may lie about that tasks wrote but never reported."""
        return self._engine is not None and self._engine.may_have_lost_attempts

    def close(self) -> None:
        """Stop the engine, if one was started; may be called twice."""
        if self._engine is not None:
            self._engine.stop()
            self._engine = None


def open_session(settings: Settings, progress: Progress | None = None) -> Session:
    """Build the session that the options ask for; nothing is opened or started yet."""
    return Session(settings=settings, catalog=open_catalog(settings), progress=progress or Silent())
