"""The session: the components that one invocation uses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lake.core.base.clock import Clock, Ids, SystemClock, SystemIds
from lake.core.base.progress import Progress, Silent
from lake.core.base.redaction import Redactor
from lake.core.base.settings import Settings
from lake.core.table.catalogs.catalog import Catalog, Table
from lake.core.table.catalogs.selection import open_catalog
from lake.core.table.metadata.size import metadata_size_warning
from lake.core.transaction.run_context import RunContext

if TYPE_CHECKING:
    from lake.core.engine.tasks import Engine

# This process reads these bytes of manifests while Spark would begin.
PLANNED_HERE_BYTES = 64 * 1024 * 1024


@dataclass(kw_only=True)
class Session(RunContext):
    """A run's context with its settings, catalog and engine.

    Args:
        settings: the global options.
        catalog: where tables are loaded from and commits are sent to.
        roots_read: the roots in metadata files of tables, by the locations of the files, so that a command that works
            on many tables reads each file once.
    """

    settings: Settings
    catalog: Catalog
    roots_read: dict[str, Sequence[str]] = field(default_factory=dict)
    _engine: Engine | None = None
    # The table that several commands work on, as it was loaded last.
    _worked_on: Table | None = field(default=None, init=False)
    _started: dict[str, Engine] = field(default_factory=dict)

    def table(self, identifier: str) -> Table:
        """Load a table; warn if its metadata has grown too large."""
        table = self.catalog.load(identifier)
        if self._worked_on is not None:
            self.work_on(table)
        place = table.metadata_location, table.storage
        if heavy := metadata_size_warning(table.identifier, table.metadata, *place):
            self.warn(heavy)
        return table

    def work_on(self, table: Table | None) -> None:
        """Read each manifest of a table once, until the session works on another table, or on none."""
        before, self._worked_on = self._worked_on, table
        if table and before and table.is_still(before):
            table.storage.share(before.storage)

    def engine(self, input_bytes: int) -> Engine:
        """Return the engine for a plan that reads `input_bytes`; the first call of a command starts it."""
        if self._engine is None:
            self._engine = self.started(input_bytes)
        return self._engine

    def started(self, input_bytes: int) -> Engine:
        """Return the engine for a plan that reads `input_bytes`; it is started unless it runs already."""
        from lake.core.engine.selection import choose_engine, engine_name  # noqa: PLC0415 - no JVM before a plan

        kind = self.settings.engine
        name = engine_name(kind, input_bytes, self.settings)
        if name not in self._started:
            self._started[name] = choose_engine(kind, input_bytes, self.settings)
        return self._started[name]

    def manifest_engine(self, size: int) -> Engine | None:
        """Return the engine whose tasks read manifests of some bytes; None if this process reads them."""
        from lake.core.engine.selection import reads_manifests_on_spark  # noqa: PLC0415 - no JVM before a plan

        # Which engine reads and writes rows depends on their files alone.
        return self.started(size) if reads_manifests_on_spark(size, self.settings) else None

    def planning_engine(self, size: int) -> Engine | None:
        """Return the engine whose tasks read manifests of some bytes for a plan to read or write rows.

        Spark, if it was asked for, begins with the rows: a plan starts it sooner for many manifests only.
        """
        return self.manifest_engine(size) if size > PLANNED_HERE_BYTES else None

    def next_command(self) -> None:
        """Begin another command: its plan chooses the engine, among those that run already if it is one of them."""
        self.end_command()
        self.interrupts.next_command()

    def end_command(self) -> None:
        """End a command of several: it needs its engine no more."""
        self._engine = None

    @property
    def may_have_lost_attempts(self) -> bool:
        """Whether there may be files that tasks wrote but did not report."""
        return self._engine is not None and self._engine.may_have_lost_attempts

    def redactor(self) -> Redactor:
        """Return what masks the secrets of the catalog and of its tables; it does not know the environment."""
        redact = Redactor()
        for properties in (*self.secrets, self.catalog.configured, *self.catalog.vended):
            redact.learn(properties)
        return redact

    def close(self) -> None:
        """Stop the engine, if one was started; may be called twice."""
        while self._started:
            self._started.popitem()[1].stop()
        self._engine = None


def open_session(
    settings: Settings,
    progress: Progress | None = None,
    *,
    clock: Clock | None = None,
    ids: Ids | None = None,
) -> Session:
    """Build the session for the options; nothing is opened or started yet."""
    clock, ids = clock or SystemClock(), ids or SystemIds()
    return Session(
        settings=settings,
        catalog=open_catalog(settings, clock, ids),
        progress=progress or Silent(),
        clock=clock,
        ids=ids,
    )
