"""Watch a folder or bucket: list, take what is new, and load it epoch by epoch until there is a reason to stop."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from lake.core.base.choices import OnCopy, OnRewrite
from lake.core.base.errors import LakeError, NotFoundError, RefusedError
from lake.core.base.facts import AlreadyRunning
from lake.core.base.options import Option
from lake.core.base.outcome import Outcome, Status
from lake.core.io.storage.state_folder import StateFolder
from lake.core.io.storage.storage import Storage
from lake.core.load.continuous.epochs import Epochs
from lake.core.load.continuous.facts import WatchFacts, WatchResult, WatchStatus
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
from lake.core.load.continuous.loader import ending_in_order
from lake.core.load.continuous.options import WatchOptions
from lake.core.load.continuous.runner import ContinuousLoad
from lake.core.load.continuous.state import StateStore, WatchState, new_state
from lake.core.load.routing.stream import newest_of_all
from lake.core.table.catalogs.names import name_of, renamed_error
from lake.core.table.catalogs.trust import storage_properties

if TYPE_CHECKING:
    from lake.core.load.continuous.loader import Loader
    from lake.core.table.catalogs.catalog import Table
    from lake.core.transaction.session import Session

_LOOKS_PER_INTERVAL = 10
_LEAST_SECONDS = 1.0
_SHOWN = 20


def preview_watch(loader: Loader, options: WatchOptions) -> Outcome:
    """Describe what the next run would load; nothing is written."""
    watch = _opened(loader, options)
    watch.plan = watch.planned(watch.new_files())
    return watch.outcome(Status.DRY_RUN)


def _opened(loader: Loader, options: WatchOptions) -> _Watch:
    """Return a watch that writes nothing."""
    options = replace(options, source=resolved(options.source))
    check_overlap(options)
    store = StateStore.open(_folder(loader.session, options))
    watch = _Watch(loader=loader, options=options, store=store)
    if store.state is not None:
        watch.require_table(watch.table_now())
        adopt_source(store, options)
        watch.ahead = store.state.ahead
    return watch


def watch_status(loader: Loader, options: WatchOptions) -> Outcome:
    """Report where a watch is, from its state and the folder; nothing is written, and the lock is not needed.

    Raises:
        NotFoundError: there is no state.
        RefusedError: the state is of another folder, or a loaded file was changed.
    """
    watch = _opened(loader, options)
    if watch.store.state is None:
        raise NotFoundError(f"there is no state of a watch in {options.state}")
    watch.plan = watch.planned(watch.new_files())
    return replace(watch.outcome(Status.DONE), result=watch.standing())


def run_watch(
    loader: Loader, options: WatchOptions, compact: Callable[[], Outcome] | None
) -> Outcome:
    """Load new files, epoch by epoch, until the options or a signal say to stop.

    Args:
        loader: loads the epochs.
        options: what is watched.
        compact: compacts the table if that is due; None to never do it.

    Raises:
        RefusedError: the state does not go with the table, or a loaded file was changed.
        BadInputError: a file cannot be loaded, and bad files are not set aside.
        CommitUnknownError: the outcome of an epoch is unknown; the next run finds out.
        LockedError: another run works with the state.
    """
    options = replace(options, source=resolved(options.source))
    check_overlap(options)
    folder = _folder(loader.session, options)
    with folder.held("ingest", options.wait) as alone:
        if not alone:
            return Outcome(
                status=Status.ALREADY_RUNNING,
                result=AlreadyRunning(folder.owner()),
            )
        return _Watch(loader=loader, options=options, store=StateStore.open(folder)).run(compact)


def _folder(session: Session, options: WatchOptions) -> StateFolder:
    return StateFolder.at(options.state, clock=session.clock, ids=session.ids)


@dataclass(slots=True, kw_only=True)
class _Watch(ContinuousLoad[Sequence[WatchedFile]]):
    """One run of a watch."""

    options: WatchOptions
    store: StateStore
    epochs: Epochs | None = None
    # The files that were found and not loaded, as of the last listing.
    waiting: list[WatchedFile] = field(default_factory=list)
    # The files of the last listing whose times are ahead of the clock.
    ahead: tuple[Sighting, ...] = ()
    # Files that seem to be loaded ones in another folder.
    known_copies: list[str] = field(default_factory=list)
    _reported: set[str] = field(default_factory=set)
    _skipped: list[WatchedFile] = field(default_factory=list)
    # The files to load before the next look.
    _due: list[WatchedFile] = field(default_factory=list)
    _due_at: float = 0.0
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

    @property
    def stream(self) -> WatchOptions:
        """The options of the stream."""
        return self.options

    @property
    def epoch_number(self) -> int:
        """The number of the last epoch that the state notes as loaded."""
        return self.store.state.epoch if self.store.state else 0

    def begin(self) -> None:
        """Open the state, load the epoch that a killed run offered, and look at the folder."""
        is_renamed = self._open()
        self.ahead = self.store.state.ahead if self.store.state else ()
        if self.loader.route is not None:
            self.totals.tables = {}
        self.epochs = epochs = Epochs(
            self.loader,
            self.options,
            self.store,
            self.storage,
            self.totals,
            skip=skipped(self.options),
        )
        self.plan = self.planned(())
        state = self.store.state
        if state is not None and state.offered is not None and not state.offered.loaded:
            self._check_places(state.offered.files)
        epochs.resume()
        with ending_in_order():
            self.loader.report()
        if is_renamed:
            rename_source(self.store, self.options)
            self._copies = None
        self._due = self._look()
        self._due_at = self.session.clock.monotonic()
        if self._due:
            self._due_at += self.options.commit_interval / 1000
        self.plan = self.planned(self._due)

    def next_work(self) -> Sequence[WatchedFile] | None:
        """Return the files of the next epoch, after a wait until there are enough or the interval has ended."""
        if self.options.once:
            return first_epoch(self._due, self.options) if self._due else None
        clock, seconds = self.session.clock, self.options.commit_interval / 1000
        look = max(_LEAST_SECONDS, seconds / _LOOKS_PER_INTERVAL)
        while not self._due:
            clock.sleep(min(look, seconds))
            new = self._look()
            if new and (is_full(new, self.options) or clock.monotonic() >= self._due_at):
                self._due_at = clock.monotonic() + seconds
                self._due = new
        return first_epoch(self._due, self.options)

    def load(self, work: Sequence[WatchedFile]) -> Mapping[str, int] | None:
        """Load files as the next epoch."""
        if self.epochs is None:
            raise LakeError("the epochs are not open")
        self._check_places(self._due)
        gone = self.epochs.commit(work)
        self._due = [file for file in self._due if file not in gone]
        self.waiting = [file for file in self.waiting if file not in gone]
        return {"files": len(gone)}

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
        options, route, state = self.options, self.loader.route, self.store.state
        table, newest = self.newest()
        if route is not None and state is None:
            newest = newest_of_all(self.session, route, options.branch, options.stream)
        uuid = str(table.metadata.table_uuid) if table else None
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
        if route is None and state.epoch > (newest.number if newest else 0):
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
        if table is not None or state.table_uuid is None or self.loader.route is not None:
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
        # Without arguments, `super` does not find the class: its slots made another one of it.
        return None if self.loader.route is not None else super(_Watch, self).table_now()

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
        settle_ms = self.options.settle
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
        settle_ms = self.options.settle
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
                f"change for {self.options.settle / 1000:g} s ({Option.SETTLE}) between two looks"
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

    def planned(self, new: Sequence[WatchedFile]) -> WatchFacts:
        """Return the plan as it is shown."""
        route = self.loader.route
        return WatchFacts(
            route=route.column if route else None,
            max_tables=route.max_tables if route else None,
            source=self.options.source,
            stream=self.options.stream,
            state=self.options.state,
            epoch=self.epoch_number,
            files=len(new),
            bytes=sum(file.size for file in new),
        )

    def standing(self) -> WatchStatus:
        """Return where the watch is."""
        state, (oldest, age_ms) = self.store.state, self._oldest()
        offered = state.offered if state else None
        stuck = offered if offered is not None and not offered.loaded else None
        return WatchStatus(
            epoch=self.epoch_number,
            files_total=state.files if state else 0,
            stuck_epoch=stuck.epoch if stuck else None,
            stuck_files=[file.path for file in stuck.files[:_SHOWN]] if stuck else [],
            lag_files=len(self.waiting),
            oldest_file=oldest,
            oldest_file_ms=age_ms,
            files_known=self.known_copies,
            files_ahead=len(self.ahead),
        )

    def _oldest(self) -> tuple[str | None, int | None]:
        """Return the oldest file that waits, and its age; None if no file with a time waits."""
        times = ((one.modified_ms, one.path) for one in self.waiting if one.modified_ms is not None)
        modified_ms, path = min(times, default=(None, None), key=lambda item: item[0])
        if modified_ms is None:
            return None, None
        return path, max(0, self.session.clock.now_ms() - modified_ms)

    def describe(self) -> str:
        """Return what is watched."""
        return f"watching {self.options.source}"

    def count_waiting(self) -> tuple[str, int | None]:
        """Return how many files wait."""
        return "files", len(self.waiting)

    def metrics(self) -> Mapping[str, float | None]:
        """Return what the file of metrics contains."""
        standing = self.standing()
        return {
            "epoch": standing.epoch,
            "lag_files": standing.lag_files,
            "oldest_file_ms": standing.oldest_file_ms,
            "stuck_epoch": standing.stuck_epoch or 0,
            "set_aside_total": self.totals.set_aside,
        }

    @property
    def is_odd(self) -> bool:
        """Whether files were left out."""
        return bool(self.known_copies or self.totals.set_aside)

    def facts(self) -> WatchResult:
        """Return the result."""
        totals = self.totals
        return WatchResult(
            rows=totals.rows,
            tables=None if totals.tables is None else list(totals.tables.values()),
            epochs=totals.epochs,
            files_loaded=totals.files,
            files_set_aside=totals.set_aside,
            files_skipped=list(totals.skipped),
            files_known=self.known_copies,
            lag_files=len(self.waiting),
            oldest_file_ms=self._oldest()[1],
            compactions=self.compactions,
            stopped_by=self.stopped_by,
        )
