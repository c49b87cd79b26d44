"""Watch a folder or bucket: list, take what is new, and load it epoch by epoch until there is a reason to stop."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from lake.core.base.errors import LakeError, NotFoundError, RefusedError, ReportedError
from lake.core.base.options import Option
from lake.core.base.outcome import Outcome, Status
from lake.core.io.storage.state_folder import StateFolder
from lake.core.io.storage.storage import Storage
from lake.core.load.continuous.epochs import CommonSchema, Epochs, LoadEpoch
from lake.core.load.continuous.files.disposal import check_overlap, check_places
from lake.core.load.continuous.files.known import Copies, adopt_source, rename_source, skipped
from lake.core.load.continuous.files.listing import (
    Sighting,
    WatchedFile,
    comparable,
    find_files,
    first_epoch,
    is_ahead,
    is_full,
    is_quiescent,
    resolved,
)
from lake.core.load.continuous.monitor import Monitor
from lake.core.load.continuous.options import OnCopy, OnRewrite, WatchOptions
from lake.core.load.continuous.runs import Stopped, UnfinishedEpoch, between_epochs, compacted
from lake.core.load.continuous.state import StateStore, WatchState, new_state
from lake.core.load.routing.stream import newest_of_all
from lake.core.table.catalogs.names import name_of, renamed_error
from lake.core.table.catalogs.trust import storage_properties
from lake.core.table.snapshots import ancestry
from lake.core.table.snapshots.streams import newest_epoch
from lake.core.transaction.session import Session

if TYPE_CHECKING:
    from lake.core.table.catalogs.catalog import Table


_LOOKS_PER_INTERVAL = 10
_LEAST_SECONDS = 1.0
_SHOWN = 20


@dataclass(frozen=True, slots=True)
class Steps:
    """What the epochs of a watch consist of.

    Args:
        load: loads an epoch.
        common_schema: divides files by their schema.
        compact: compacts the table if that is due; None to never do it.
    """

    load: LoadEpoch
    common_schema: CommonSchema
    compact: Callable[[], Outcome] | None = None


def preview_watch(session: Session, table: str, options: WatchOptions) -> Outcome:
    """Describe what the next run would load; nothing is written."""
    watch = _opened(session, table, options)
    new = watch.new_files()
    return watch.outcome(Status.DRY_RUN, plan={**watch.plan(new)})


def _opened(session: Session, table: str, options: WatchOptions) -> _Watch:
    """Return a watch that writes nothing."""
    options = replace(options, source=resolved(options.source))
    check_overlap(options)
    store = StateStore.open(_folder(session, options))
    watch = _Watch(session, table, options, store)
    if store.state is not None:
        watch.require_table(watch.table_now())
        adopt_source(store, options)
        watch.ahead = store.state.ahead
    return watch


def watch_status(session: Session, table: str, options: WatchOptions) -> Outcome:
    """Report where a watch is, from its state and the folder; nothing is written, and the lock is not needed.

    Raises:
        NotFoundError: there is no state.
        RefusedError: the state is of another folder, or a loaded file was changed.
    """
    watch = _opened(session, table, options)
    if watch.store.state is None:
        raise NotFoundError(f"there is no state of a watch in {options.state}")
    plan = watch.plan(watch.new_files())
    return replace(watch.outcome(Status.DONE, plan=plan), result=watch.standing())


def run_watch(session: Session, table: str, options: WatchOptions, steps: Steps) -> Outcome:
    """Load new files, epoch by epoch, until the options or a signal say to stop.

    Raises:
        RefusedError: the state does not go with the table, or a loaded file was changed.
        BadInputError: a file cannot be loaded, and bad files are not set aside.
        CommitUnknownError: the outcome of an epoch is unknown; the next run finds out.
        LockedError: another run works with the state.
    """
    options = replace(options, source=resolved(options.source))
    check_overlap(options)
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
            with suppress(LakeError):
                watch.show(failed=True)
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
    # The files of the last listing whose times are ahead of the clock.
    ahead: tuple[Sighting, ...] = ()
    # Files that seem to be loaded ones in another folder.
    known_copies: list[str] = field(default_factory=list)
    _reported: set[str] = field(default_factory=set)
    _skipped: list[WatchedFile] = field(default_factory=list)
    _is_checked: bool = False
    _copies: Copies | None = None
    _storage: Storage | None = None

    @property
    def copies(self) -> Copies:
        """Finds copies of loaded files."""
        if self._copies is None:
            self._copies = Copies(self.storage, self.store.loaded)
        return self._copies

    @property
    def storage(self) -> Storage:
        """The storage of the files."""
        if self._storage is None:
            table = self.table_now()
            configured = storage_properties(self.session.catalog.configured)
            self._storage = table.storage if table else Storage(configured)
        return self._storage

    def run(self, steps: Steps) -> Outcome:
        """Load what is new, once or again and again."""
        is_renamed = self._open()
        self.ahead = self.store.state.ahead if self.store.state else ()
        self.epochs = Epochs(
            self.session,
            self.table,
            self.options,
            self.store,
            self.storage,
            steps.load,
            steps.common_schema,
            skip=skipped(self.options),
        )
        if self.options.route is not None:
            self.epochs.totals.tables = {}
        plan = self.plan(())
        try:
            state = self.store.state
            if state is not None and state.offered is not None and not state.offered.loaded:
                self._check_places(state.offered.files)
            self.epochs.resume()
            if is_renamed:
                rename_source(self.store, self.options)
                self._copies = None
            first = self._look()
            plan = self.plan(first)
            if self.base_snapshot_id is not None and self.epochs.state.epoch:
                # A killed run may have committed the last epoch and not compacted after it.
                self.compactions += compacted(self.session, steps.compact)
            self.monitor.say(
                f"watching {self.options.source} as stream {self.options.stream} after epoch "
                f"{self.epochs.state.epoch}; files waiting: {len(self.waiting):,}",
                epoch=self.epochs.state.epoch,
                lag_files=len(self.waiting),
            )
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
                new = self._look()

    def _load_all(self, epochs: Epochs, steps: Steps, files: Sequence[WatchedFile]) -> None:
        """Load files, in as many epochs as they need."""
        waiting = list(files)
        self._check_places(waiting)
        while waiting:
            gone = epochs.commit(first_epoch(waiting, self.options))
            waiting = [file for file in waiting if file not in gone]
            self.waiting = [file for file in self.waiting if file not in gone]
            self.show()
            self.monitor.say(
                f"epoch {epochs.state.epoch}: files: {len(gone):,}; waiting: {len(self.waiting):,}",
                epoch=epochs.state.epoch,
                files=len(gone),
                lag_files=len(self.waiting),
            )
            self.compactions += compacted(self.session, steps.compact)
            with between_epochs():
                self.session.interrupts.checkpoint()

    def _check_places(self, files: Sequence[WatchedFile]) -> None:
        """Check once, before the first load, that files can be moved or deleted."""
        if files and not self._is_checked:
            check_places(self.storage, self.options, files, self.session.ids)
            self._is_checked = True

    # The beginning

    def _open(self) -> bool:
        """Check the state against the table and the folder; begin one if there is none.

        Returns:
            Whether the ledger has other names for the files of the folder.

        Raises:
            RefusedError: the table or the folder is another one, or the table is ahead of the state.
        """
        table, options, state = self.table_now(), self.options, self.store.state
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
            return False
        self.require_table(table)
        is_renamed = adopt_source(self.store, options)
        if None not in {state.table_uuid, uuid} and state.table_uuid != uuid:
            raise RefusedError(
                f"{options.state} belongs to another table with the name {self.table}",
                hint="a new table needs a new state folder",
            )
        is_offered = state.offered is not None and not state.offered.loaded
        last = state.epoch + (is_offered or bool(state.given_up))
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
        state = self._with_name(state)
        self.store.sweep()
        self._exclude(state)
        return is_renamed

    def require_table(self, table: Table | None) -> None:
        """Check that the state belongs to the watch.

        Raises:
            InvalidRequestError: it is another stream's, table's or branch's.
            NotFoundError: the table of the state has another name now.
        """
        state = self.store.state
        if state is None:
            return
        uuid = str(table.metadata.table_uuid) if table else None
        state.require(self.options, self.table, uuid)
        if table is not None or state.table_uuid is None or self.options.route is not None:
            return
        if name := name_of(self.session.catalog, state.table_uuid):
            raise renamed_error(self.table, state.table_uuid, name)

    def _with_name(self, state: WatchState) -> WatchState:
        """Note the name of a table that was renamed."""
        if state.table == self.table:
            return state
        renamed = replace(state, table=self.table)
        self.store.save(renamed)
        self.session.note(
            f"table {state.table} has the name {self.table} now: the stream goes on",
            {"table_before": state.table},
        )
        return self.store.state or renamed

    def _exclude(self, state: WatchState) -> None:
        """Note the folders to which this run moves files, before it moves any."""
        folders = {*state.excluded, *map(comparable, self.options.targets)}
        if folders != set(state.excluded):
            self.store.save(replace(state, excluded=tuple(sorted(folders))))

    def table_now(self) -> Table | None:
        """Return the table; None if there is none yet, or if rows are divided among several."""
        if self.options.route is not None:
            return None
        try:
            return self.session.table(self.table)
        except NotFoundError:
            return None

    # Listing

    def _look(self) -> list[WatchedFile]:
        """Return the new files, and note those that are to be skipped."""
        new = self.new_files()
        if self.epochs is not None:
            self.epochs.note_skipped(self._skipped)
            self._report_unskipped()
            self._note_ahead(new)
            self.show()
        return new

    def _report_unskipped(self) -> None:
        """Warn once of names to skip that no file has."""
        wanted = skipped(self.options)
        found = {name for path, name in wanted.items() if path in self.store.loaded}
        for name in [name for name in self.options.skip if name not in found | self._reported]:
            self._reported.add(name)
            self.session.warn(f"{Option.SKIP} {name}: no file that waits has this name")

    def new_files(self) -> list[WatchedFile]:
        """Return the quiescent files that were not loaded, by name.

        Raises:
            RefusedError: a loaded file was changed.
        """
        now_ms, loaded = self.session.clock.now_ms(), self.store.loaded
        state, skip = self.store.state, skipped(self.options)
        found = find_files(self.storage, self.options, state.excluded if state else ())
        unknown = [file for file in found if not self._is_known(file)]
        self._skipped = [file for file in unknown if file.path in skip]
        self.waiting = self._without_copies([file for file in unknown if file.path not in skip])
        settle_ms = self.options.settle_ms
        stable = self._unchanged_ahead(now_ms)
        quiescent = [
            file for file in self.waiting if is_quiescent(file, now_ms, settle_ms) or file in stable
        ]
        rewritten = [file for file in quiescent if file.path in loaded]
        if rewritten and self.options.on_rewrite is OnRewrite.FAIL:
            raise RefusedError(
                f"{rewritten[0].path} was changed after it was loaded",
                hint=f"{Option.ON_REWRITE} ignore keeps the rows as they are, again loads the file once more",
            )
        if self.options.on_rewrite is OnRewrite.IGNORE:
            self.waiting = [file for file in self.waiting if file.path not in loaded]
            return [file for file in quiescent if file.path not in loaded]
        return quiescent

    def _unchanged_ahead(self, now_ms: int) -> Collection[WatchedFile]:
        """Return files whose times are ahead of the clock, and that did not change between two listings."""
        settle_ms = self.options.settle_ms
        before = {one.file: one.seen_ms for one in self.ahead}
        self.ahead = tuple(
            Sighting(file, min(before.get(file, now_ms), now_ms))
            for file in self.waiting
            if is_ahead(file, now_ms, settle_ms)
        )
        # check: settled-source-file
        return {one.file for one in self.ahead if now_ms - one.seen_ms >= settle_ms}

    def _note_ahead(self, new: Collection[WatchedFile]) -> None:
        """Note files whose times are ahead of the clock for the next listing, and report those that wait."""
        state = self.store.state
        if state is not None and set(state.ahead) != set(self.ahead):
            self.store.save(replace(state, ahead=self.ahead))
        waiting = [one.file for one in self.ahead if one.file not in new]
        unreported = [file for file in waiting if file.path not in self._reported]
        self._reported.update(file.path for file in waiting)
        if unreported:
            more = f" (and {len(unreported) - 1} more files)" if len(unreported) > 1 else ""
            self.session.warn(
                f"the time of {unreported[0].path}{more} is ahead of this machine's clock: it waits until it did not "
                f"change for {self.options.settle_ms / 1000:g} s ({Option.SETTLE_MS}) between two looks"
            )

    def _is_known(self, file: WatchedFile) -> bool:
        """Whether a file was loaded as it is."""
        known = self.store.loaded.get(file.path)
        return known is not None and known.version == file.version

    def _without_copies(self, files: Sequence[WatchedFile]) -> list[WatchedFile]:
        """Return files without those that seem to be loaded ones in another folder, which are reported."""
        if self.options.on_copy is OnCopy.LOAD:
            return list(files)
        new: list[WatchedFile] = []
        copies: dict[str, str] = {}
        for file in files:
            original = None if file.path in self.store.loaded else self.copies.original(file)
            if original is None:
                new.append(file)
            else:
                copies[file.path] = original
        if self.options.on_copy is OnCopy.REPORT:
            self._report_copies(copies)
        return new

    def _report_copies(self, copies: Mapping[str, str]) -> None:
        """Warn once of files that are not loaded because they seem to be copies."""
        new = [path for path in copies if path not in self._reported]
        self._reported.update(copies)
        self.known_copies = sorted(copies)
        if not new:
            return
        more = f" (and {len(new) - 1} more files)" if len(new) > 1 else ""
        self.session.warn(
            f"{new[0]}{more} is not loaded: it has the name, the size and the contents or time of {copies[new[0]]}, "
            f"which was loaded; {Option.ON_COPY} ignore accepts this, {Option.ON_COPY} load loads such files"
        )

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

    def standing(self) -> dict[str, Any]:
        """Return where the watch is."""
        state, now_ms = self.store.state, self.session.clock.now_ms()
        offered = state.offered if state else None
        oldest = min(
            (file for file in self.waiting if file.modified_ms is not None),
            key=lambda file: file.modified_ms or 0,
            default=None,
        )
        begun = offered is not None and not offered.loaded
        return {
            "epoch": state.epoch if state else 0,
            "files_total": state.files if state else 0,
            "stuck_epoch": offered.epoch if offered and begun else None,
            "stuck_files": [file.path for file in offered.files[:_SHOWN]]
            if offered and begun
            else [],
            "lag_files": len(self.waiting),
            "oldest_file": oldest.path if oldest else None,
            "oldest_file_ms": max(0, now_ms - (oldest.modified_ms or 0)) if oldest else None,
            "files_known": self.known_copies,
            "files_ahead": len(self.ahead),
        }

    @property
    def monitor(self) -> Monitor:
        """Shows the progress."""
        return Monitor.of(self.session, self.table, self.options)

    def show(self, *, failed: bool = False) -> None:
        """Replace the file of metrics."""
        facts = self.facts()
        standing = self.standing()
        self.monitor.looked(
            {
                **{name: standing[name] for name in ("epoch", "lag_files", "oldest_file_ms")},
                "stuck_epoch": standing["stuck_epoch"] or 0,
                "epochs_total": facts.get("epochs", 0),
                "rows_total": facts.get("rows_written") or 0,
                "rows_rejected_total": facts.get("rows_rejected") or 0,
                "set_aside_total": facts.get("files_set_aside", 0),
            },
            failed=failed,
        )

    def facts(self) -> dict[str, Any]:
        """Return the result."""
        now_ms = self.session.clock.now_ms()
        times = [file.modified_ms for file in self.waiting if file.modified_ms is not None]
        return {
            **(self.epochs.totals.facts() if self.epochs else {}),
            "files_skipped": list(self.epochs.totals.skipped) if self.epochs else [],
            "files_known": self.known_copies,
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
            is_odd = self.known_copies or (totals and totals.set_aside)
            if is_odd or self.stopped_by == "error":
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
