"""Watch a folder or bucket: list, take what is new, and load it epoch by epoch until there is a reason to stop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from lake.core.catalogs.trust import storage_properties
from lake.core.errors import NotFoundError, RefusedError, ReportedError
from lake.core.options import Option
from lake.core.outcome import Outcome, Status
from lake.core.routing.stream import newest_of_all
from lake.core.session import Session
from lake.core.snapshots import ancestry
from lake.core.snapshots.streams import newest_epoch
from lake.core.storage.state_folder import StateFolder
from lake.core.storage.storage import Storage
from lake.core.watch.epochs import Barrier, Epochs, LoadEpoch
from lake.core.watch.listing import (
    WatchedFile,
    comparable,
    find_files,
    first_epoch,
    is_full,
    is_settled,
)
from lake.core.watch.options import OnRewrite, WatchOptions
from lake.core.watch.runs import Stopped, UnfinishedEpoch, between_epochs, compacted
from lake.core.watch.state import StateStore, WatchState, new_state

if TYPE_CHECKING:
    from lake.core.catalogs.catalog import Table


_LOOKS_PER_INTERVAL = 10
_LEAST_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Steps:
    """What the epochs of a watch consist of.

    Args:
        load: loads an epoch.
        barrier: divides files by their schema.
        compact: compacts the table if that is due; None to never do it.
    """

    load: LoadEpoch
    barrier: Barrier
    compact: Callable[[], Outcome] | None = None


def preview_watch(session: Session, table: str, options: WatchOptions) -> Outcome:
    """Describe what the next run would load; nothing is written."""
    store = StateStore.open(_folder(session, options))
    watch = _Watch(session, table, options, store)
    new = watch.new_files()
    return watch.outcome(Status.DRY_RUN, plan={**watch.plan(new)})


def run_watch(session: Session, table: str, options: WatchOptions, steps: Steps) -> Outcome:
    """Load new files, epoch by epoch, until the options or a signal say to stop.

    Raises:
        RefusedError: the state does not go with the table, or a loaded file was changed.
        BadInputError: a file cannot be loaded, and bad files are not set aside.
        CommitUnknownError: the outcome of an epoch is unknown; the next run finds out.
        LockedError: another run works with the state.
    """
    folder = _folder(session, options)
    with folder.held("ingest", options.wait_ms) as alone, session.interrupts.several_commits():
        if not alone:
            owner = folder.owner()
            return Outcome(
                command="ingest",
                table=table,
                branch=options.branch,
                status=Status.ALREADY_RUNNING,
                result={"running": owner},
            )
        watch = _Watch(session, table, options, StateStore.open(folder))
        try:
            return watch.run(steps)
        except ReportedError as error:
            if watch.epochs is not None and watch.epochs.totals.epochs:
                error.result = watch.facts()
            raise


def _folder(session: Session, options: WatchOptions) -> StateFolder:
    return StateFolder.at(options.state, clock=session.clock, ids=session.ids)


@dataclass(slots=True)
class _Watch:
    """One run of a watch."""

    session: Session
    table: str
    options: WatchOptions
    store: StateStore
    epochs: Epochs | None = None
    compactions: int = 0
    stopped_by: str | None = None
    base_snapshot_id: int | None = None
    # The files that were found and not loaded, as of the last listing.
    waiting: list[WatchedFile] = field(default_factory=list)
    _storage: Storage | None = None

    @property
    def storage(self) -> Storage:
        """The storage of the files."""
        if self._storage is None:
            table = self._table()
            configured = storage_properties(self.session.catalog.configured)
            self._storage = table.storage if table else Storage(configured)
        return self._storage

    def run(self, steps: Steps) -> Outcome:
        """Load what is new, once or again and again."""
        self._open()
        self.epochs = Epochs(
            self.session,
            self.table,
            self.options,
            self.store,
            self.storage,
            steps.load,
            steps.barrier,
        )
        if self.options.route is not None:
            self.epochs.totals.tables = {}
        plan = self.plan(())
        try:
            self.epochs.resume()
            first = self.new_files()
            plan = self.plan(first)
            if self.base_snapshot_id is not None and self.epochs.state.epoch:
                # A killed run may have committed the last epoch and not compacted after it.
                self.compactions += compacted(self.session, steps.compact)
            self._work(self.epochs, steps, first)
        except Stopped:
            self.stopped_by = "signal"
        except UnfinishedEpoch:
            self.stopped_by = "error"
        return self.outcome(plan=plan)

    def _work(self, epochs: Epochs, steps: Steps, first: Sequence[WatchedFile]) -> None:
        if self.options.once:
            self._load_all(epochs, steps, first)
            self.stopped_by = "once"
            return
        clock, seconds = self.session.clock, self.options.commit_interval_ms / 1000
        look = max(_LEAST_SECONDS, seconds / _LOOKS_PER_INTERVAL)
        due = clock.monotonic()
        new = list(first)
        while True:
            if new and (is_full(new, self.options) or clock.monotonic() >= due):
                due = clock.monotonic() + seconds
                self._load_all(epochs, steps, new)
            with between_epochs():
                clock.sleep(min(look, seconds))
                new = self.new_files()

    def _load_all(self, epochs: Epochs, steps: Steps, files: Sequence[WatchedFile]) -> None:
        """Load files, in as many epochs as they need."""
        waiting = list(files)
        while waiting:
            before = epochs.totals.files + epochs.totals.set_aside
            epochs.commit(first_epoch(waiting, self.options))
            taken = epochs.totals.files + epochs.totals.set_aside - before
            waiting = waiting[taken:]
            self.waiting = self.waiting[taken:]
            self.compactions += compacted(self.session, steps.compact)
            with between_epochs():
                self.session.interrupts.checkpoint()

    # The beginning

    def _open(self) -> None:
        """Check the state against the table; begin one if there is none.

        Raises:
            RefusedError: the table is another one, or is ahead of the state.
        """
        table, options, state = self._table(), self.options, self.store.state
        newest = newest_epoch(table, options.branch, options.stream) if table else None
        if options.route is not None and state is None:
            newest = newest_of_all(self.session, options.route, options.branch, options.stream)
        uuid = str(table.metadata.table_uuid) if table else None
        self.base_snapshot_id = ancestry.head_id(table.metadata, options.branch) if table else None
        if state is None:
            if newest is not None and not options.resume:
                raise RefusedError(
                    f"{self.table} contains {newest}, but {options.state} has no state of it",
                    hint=f"restore the folder; if loaded files were moved or deleted, {Option.RESUME} takes the "
                    "files that are left for new ones",
                )
            epoch = newest.number if newest else 0
            begun = new_state(options, self.table, table_uuid=uuid, epoch=epoch)
            self.store.save(replace(begun, excluded=tuple(map(comparable, options.targets))))
            return
        state.require(options, self.table)
        if None not in {state.table_uuid, uuid} and state.table_uuid != uuid:
            raise RefusedError(
                f"{options.state} belongs to another table with the name {self.table}",
                hint="a new table needs a new state folder",
            )
        last = state.epoch + (state.offered is not None and not state.offered.loaded)
        if newest is not None and newest.number > last:
            raise RefusedError(
                f"{self.table} contains {newest}, but the state in {options.state} ends at epoch {state.epoch}",
                hint="restore the newest state; the files of the missing epochs are not known",
            )
        if options.route is None and state.epoch > (newest.number if newest else 0):
            self.session.warn(
                f"{options.state} ends at epoch {state.epoch} of stream {options.stream}, and {self.table} contains "
                f"{newest or 'none of them'}: later epochs were rolled back, and their files are not loaded again"
            )
        self.store.sweep()
        self._exclude(state)

    def _exclude(self, state: WatchState) -> None:
        """Note the folders to which this run moves files, before it moves any."""
        folders = {*state.excluded, *map(comparable, self.options.targets)}
        if folders != set(state.excluded):
            self.store.save(replace(state, excluded=tuple(sorted(folders))))

    def _table(self) -> Table | None:
        """Return the table; None if there is none yet, or if rows are divided among several."""
        if self.options.route is not None:
            return None
        try:
            return self.session.table(self.table)
        except NotFoundError:
            return None

    # Listing

    def new_files(self) -> list[WatchedFile]:
        """Return the settled files that were not loaded, by name.

        Raises:
            RefusedError: a loaded file was changed.
        """
        now_ms, loaded = self.session.clock.now_ms(), self.store.loaded
        state = self.store.state
        found = find_files(self.storage, self.options, state.excluded if state else ())
        self.waiting = [file for file in found if loaded.get(file.path) != file.version]
        settled = [
            file for file in self.waiting if is_settled(file, now_ms, self.options.settle_ms)
        ]
        rewritten = [file for file in settled if file.path in loaded]
        if rewritten and self.options.on_rewrite is OnRewrite.FAIL:
            raise RefusedError(
                f"{rewritten[0].path} was changed after it was loaded",
                hint=f"{Option.ON_REWRITE} ignore keeps the rows as they are, again loads the file once more",
            )
        if self.options.on_rewrite is OnRewrite.IGNORE:
            self.waiting = [file for file in self.waiting if file.path not in loaded]
            return [file for file in settled if file.path not in loaded]
        return settled

    # The outcome

    def plan(self, new: Sequence[WatchedFile]) -> dict[str, Any]:
        """Return the plan as it is shown."""
        state: WatchState | None = self.store.state
        route = self.options.route
        routed = {"route": route.column, "max_tables": route.max_tables} if route else {}
        return {
            **routed,
            "source": self.options.source,
            "stream": self.options.stream,
            "state": self.options.state,
            "epoch": state.epoch if state else 0,
            "files": len(new),
            "bytes": sum(file.size for file in new),
        }

    def facts(self) -> dict[str, Any]:
        """Return the result."""
        now_ms = self.session.clock.now_ms()
        times = [file.modified_ms for file in self.waiting if file.modified_ms is not None]
        return {
            **(self.epochs.totals.facts() if self.epochs else {}),
            "lag_files": len(self.waiting),
            "oldest_file_ms": max(0, now_ms - min(times)) if times else None,
            "compactions": self.compactions,
            "stopped_by": self.stopped_by,
        }

    def outcome(self, status: Status | None = None, *, plan: dict[str, Any]) -> Outcome:
        """Return the outcome of the run."""
        totals = self.epochs.totals if self.epochs else None
        if status is None:
            is_changed = self.compactions or (totals and totals.epochs)
            status = Status.DONE if is_changed else Status.NOTHING_TO_DO
            if (totals and totals.set_aside) or self.stopped_by == "error":
                status = Status.PARTIAL
        return Outcome(
            command="ingest",
            table=self.table,
            branch=self.options.branch,
            status=status,
            operation_id=totals.operation_id if totals else None,
            base_snapshot_id=self.base_snapshot_id,
            snapshot_ids=(totals.snapshot_id,) if totals and totals.snapshot_id else (),
            plan=plan,
            result={} if status is Status.DRY_RUN else self.facts(),
        )
