"""One epoch of a watch after another: offer files, load them as one commit, and record that.

The order makes each step safe to repeat. The list of files is durable before one of them is read. The commit
carries the number of the epoch, and is refused if the branch has that epoch already. Files are moved or deleted only
after the commit is known.

A list of which a file is gone or was changed before its commit is given up, and the files are listed again. Its
commit may still arrive, if the process that sent it was killed: so such lists are kept until the branch has an epoch
of their number, and one that is there after all is taken for what it is.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from lake.core.base import locations
from lake.core.base.errors import (
    BadInputError,
    LakeError,
    NotAuthorisedError,
    NotFoundError,
    RefusedError,
    StorageError,
)
from lake.core.base.interrupts import uninterrupted
from lake.core.base.outcome import Outcome, Status
from lake.core.io.storage.storage import Storage
from lake.core.load.continuous.files.disposal import compared, dispose, set_aside
from lake.core.load.continuous.files.listing import WatchedFile, offsets_of
from lake.core.load.continuous.options import Done, WatchOptions
from lake.core.load.continuous.runner import UnfinishedEpoch
from lake.core.load.continuous.schema_changes import count_before_new_schema
from lake.core.load.continuous.state import Offer, StateStore, WatchState
from lake.core.load.ingest.options import LoadRequest
from lake.core.table.snapshots.streams import StreamEpoch, contains_epoch, newest_epoch
from lake.core.transaction.staging.claims import find_staged_run

if TYPE_CHECKING:
    from lake.core.load.continuous.loader import Loader
    from lake.core.load.continuous.totals import Totals
    from lake.core.table.catalogs.catalog import Table
    from lake.core.transaction.session import Session

# Lists that were given up and may be committed late; more of one epoch are not expected.
_MOST_GIVEN_UP = 32


@dataclass(slots=True)
class Epochs:
    """Loads the epochs of one watch.

    Args:
        loader: loads an epoch.
        options: what is watched.
        store: the state.
        storage: where the files are.
        totals: what was done so far.
        skip: the locations of files that are not loaded.
    """

    loader: Loader
    options: WatchOptions
    store: StateStore
    storage: Storage
    totals: Totals
    skip: Collection[str] = ()
    # The files of the present epoch that wait no more.
    _gone: set[WatchedFile] = field(default_factory=set)

    @property
    def session(self) -> Session:
        """The session."""
        return self.loader.session

    @property
    def state(self) -> WatchState:
        """The current state."""
        if self.store.state is None:
            raise LakeError("the state is not open")
        return self.store.state

    def resume(self) -> None:
        """Finish the epoch that an earlier run offered, with the list of files that it chose.

        Nothing is loaded if a file of the list is gone, or is not the same any more, before the list was committed:
        then the files are listed again.
        """
        late = self._late()
        if late is not None:
            self._finish(self._note(late, late.epoch))
            return
        offer = self.state.offered  # check: offer-continued
        if offer is not None and not offer.loaded:
            offer = self._checked(offer)
        if offer is not None:
            self._finish(offer)

    def commit(self, files: Sequence[WatchedFile]) -> Collection[WatchedFile]:
        """Load the first files as the next epoch: all of them, or those before a change of the schema.

        Returns:
            The files that wait no more: those that were loaded, set aside, or left to the next listing.
        """
        taken = files[: max(1, self._count_of_one_schema(files))]
        offer = Offer(epoch=self.state.epoch + 1, files=tuple(taken))
        self._gone = set()
        self._offer(offer)  # check: offer-before-load
        self._finish(offer)
        return self._gone

    def _count_of_one_schema(self, files: Sequence[WatchedFile]) -> int:
        """Return how many of the first files can be loaded together: a change of the schema begins a new epoch."""
        options = self.loader.options
        if not options.evolve:
            return len(files)
        name = self.loader.table if self.loader.route is None else None
        sources = replace(options, sources=[file.path for file in files])
        return count_before_new_schema(self.session, name, sources)

    def note_skipped(self, files: Sequence[WatchedFile]) -> None:
        """Note files that the user said to skip: they are not loaded by this run or a later one."""
        if not files:
            return
        self.totals.skipped += [file.path for file in files]
        for file in files:
            self.session.warn(f"{file.path} is skipped: its rows are not loaded")
        with uninterrupted():
            self.store.finish(self.state, files)

    @property
    def settled(self) -> Collection[str]:
        """The tables of the offered epoch of which the commit is noted."""
        return self._offered.settled

    def begin(self, tables: Sequence[str]) -> None:
        """Note the tables of the offered epoch."""
        if self._offered.tables != tuple(tables):
            self._offer(replace(self._offered, tables=tuple(tables)))

    def settle(self, table: str) -> None:
        """Note that a table contains the offered epoch."""
        self._offer(replace(self._offered, settled=(*self._offered.settled, table)))

    @property
    def _offered(self) -> Offer:
        if self.state.offered is None:
            raise LakeError("no epoch is offered")
        return self.state.offered

    def _offer(self, offer: Offer | None) -> None:
        with uninterrupted():
            self.store.save(replace(self.state, offered=offer))

    def _checked(self, offer: Offer) -> Offer | None:
        """Return an offer of an earlier run if it can be loaded as it is; None if its files are listed again.

        Raises:
            RefusedError: a file is gone or was changed, and tables contain a part of the epoch; or the branch has
                the epoch of another run.
        """
        if offer.is_settled or (not offer.tables and self._is_committed(offer)):
            return offer
        missing = self._missing(offer)
        if not missing or self._is_staged(offer):
            return offer
        self._require_not_begun(offer, missing[0])
        given_up = self.state.given_up if offer.tables else (*self.state.given_up, offer)
        self._report_missing(offer, missing)
        with uninterrupted():
            state = replace(self.state, offered=None, given_up=given_up[-_MOST_GIVEN_UP:])
            self.store.save(state)
        return None

    def _missing(self, offer: Offer) -> Sequence[WatchedFile]:
        """Return the files of an offer that are gone, are not as they were listed, or are to be skipped."""
        same, _ = compared(self.storage, offer.files)
        kept = {file for file in same if file.path not in self.skip}
        return [file for file in offer.files if file not in kept]

    def _report_missing(self, offer: Offer, missing: Sequence[WatchedFile]) -> None:
        changed = set(compared(self.storage, missing)[1])
        why = "was changed" if missing[0] in changed else "is gone"
        if missing[0].path in self.skip:
            why = "is skipped"
        more = f" (and {len(missing) - 1} more)" if len(missing) > 1 else ""
        self.session.warn(
            f"{missing[0].path}{more} {why} before {self._name(offer)} was committed: the files are listed again"
        )

    def _is_staged(self, offer: Offer) -> bool:
        """Whether an earlier run has written all rows of an offer, so that its files are not read again."""
        table = self._table()
        if table is None:
            return False
        run = find_staged_run(table, self._epoch(offer))
        return run is not None and run.problem is None

    def _require_not_begun(self, offer: Offer, missing: WatchedFile) -> None:
        """Check that no table contains a part of an epoch.

        Raises:
            RefusedError: one contains it, so that its files must not change.
        """
        if not any(self._is_begun(name, offer) for name in offer.tables):
            return
        raise RefusedError(
            f"{missing.path} is gone or was changed after {self._name(offer)} took it, and some tables contain that "
            "epoch",
            hint="put the file back as it was, and run the command again",
        )

    def _is_begun(self, table: str, offer: Offer) -> bool:
        if table in offer.settled:
            return True
        try:
            found = newest_epoch(
                self.session.table(table), self.options.branch, self.options.stream
            )
        except NotFoundError:
            return False
        return found is not None and found.number >= offer.epoch

    def _late(self) -> Offer | None:
        """Return a list that was given up and that the branch contains after all; None if there is none."""
        for offer in self.state.given_up:
            with suppress(RefusedError):
                if contains_epoch(self._table(), self.options.branch, self._epoch(offer)):
                    return offer
        return None

    def _finish(self, offer: Offer | None) -> None:
        remaining = offer
        while remaining is not None and not remaining.loaded:
            remaining = self._loaded(remaining)
        if remaining is not None:
            dispose(self.session, self.storage, self.options, remaining.files, remaining.epoch)
            self._offer(None)

    def _loaded(self, offer: Offer) -> Offer | None:
        """Load an offer, or leave out files that cannot be loaded; return what remains to be done of it."""
        if offer.is_settled:
            return self._record(offer, Outcome(status=Status.DONE))
        try:
            return self._record(offer, self._load(offer))
        except RefusedError:
            late = self._late()
            if late is None:
                raise
            return self._note(late, late.epoch)
        except (BadInputError, StorageError, NotAuthorisedError) as error:
            if self._offered.tables or self._is_committed(offer):
                raise
            missing = self._missing(offer)
            return self._without(offer, missing) if missing else self._without_bad(offer, error)

    def _without(self, offer: Offer, missing: Sequence[WatchedFile]) -> Offer | None:
        """Return an offer without files that are gone or were changed while it was loaded; None if none is left."""
        self._report_missing(offer, missing)
        rest = tuple(file for file in offer.files if file not in missing)
        remaining = replace(offer, files=rest) if rest else None
        self._gone.update(missing)
        with uninterrupted():
            given_up = (*self.state.given_up, offer)[-_MOST_GIVEN_UP:]
            self.store.save(replace(self.state, offered=remaining, given_up=given_up))
        return remaining

    def _load(self, offer: Offer) -> Outcome:
        paths, epoch = [file.path for file in offer.files], self._epoch(offer)
        options = replace(self.loader.options, sources=paths)
        request = LoadRequest(options=options, epoch=epoch)
        return self.loader.load(lambda: request, journal=self)

    def _record(self, offer: Offer, outcome: Outcome) -> Offer | None:
        """Record a loaded epoch; return it if its files remain to be moved or deleted.

        Raises:
            RefusedError: the branch has another epoch with its number.
        """
        number = offer.epoch
        if outcome.status is Status.PARTIAL:
            self.totals.add_commits(outcome)
            raise UnfinishedEpoch
        is_empty = outcome.status is Status.NOTHING_TO_DO
        # check: list-given-up
        if (is_empty or self.state.given_up) and not self._is_committed(offer) and is_empty:
            # The files have no rows: the number is used again.
            number -= 1
        self.totals.add(outcome, len(offer.files))
        return self._note(offer, number)

    def _note(self, offer: Offer, number: int) -> Offer | None:
        """Note the files of an epoch that is in the table; return it if they remain to be moved or deleted."""
        done = replace(
            self.state,
            epoch=number,
            table_uuid=self._uuid(),
            offered=None,
            given_up=() if number == offer.epoch else self.state.given_up,
            files=self.state.files + len(offer.files),
        )
        self._gone.update(offer.files)
        with uninterrupted():
            if self.options.done is Done.KEEP:
                self.store.finish(done, offer.files)
                return None
            loaded = Offer(epoch=number, files=offer.files, loaded=True)
            self.store.save(replace(done, offered=loaded))
        return loaded

    def _is_committed(self, offer: Offer) -> bool:
        """Whether the branch has an epoch.

        Raises:
            RefusedError: it has this or a later epoch of another run.
        """
        if self.loader.route is not None:
            return bool(self._offered.tables)
        return contains_epoch(self._table(), self.options.branch, self._epoch(offer))

    def _without_bad(self, offer: Offer, error: LakeError) -> Offer | None:
        """Return an offer without the files that cannot be loaded, which nothing of was committed.

        Raises:
            LakeError: the error is not one of single files, or they cannot be set aside.
        """
        is_of_file = isinstance(error, BadInputError) and not isinstance(error, NotFoundError)
        # An error of a store may be that of the next file too.
        bad = [
            file
            for file in offer.files
            if file.path in error.message and (is_of_file or locations.parse(file.path).is_local)
        ]
        # Of files that contradict each other, the last one is at fault. A name may begin with another one.
        bad = [
            file
            for file in bad
            if not any(file.path != one.path and file.path in one.path for one in bad)
        ][-1:]
        if not bad:
            raise error
        if self.options.bad_files is None:
            before = offer.files[: offer.files.index(bad[0])]
            if not before:
                raise error
            # The files before it are loaded, and the next epoch begins with it.
            shorter = replace(offer, files=before)
            self._offer(shorter)
            return shorter
        rest = tuple(file for file in offer.files if file not in bad)
        self._gone.update(bad)
        remaining = replace(offer, files=rest) if rest else None
        self._offer(remaining)
        set_aside(self.storage, bad[0], self.options.bad_files, error.message, self.session.ids)
        self.totals.set_aside += 1
        self.session.warn(f"{bad[0].path} was moved to {self.options.bad_files}: {error.message}")
        return remaining

    def _epoch(self, offer: Offer) -> StreamEpoch:
        return StreamEpoch(self.options.stream, offer.epoch, offsets_of(offer.files))

    def _name(self, offer: Offer) -> str:
        return str(self._epoch(offer))

    def _table(self) -> Table | None:
        if self.loader.route is not None:
            return None
        try:
            return self.session.table(self.loader.table)
        except NotFoundError:
            return None

    def _uuid(self) -> str | None:
        table = self._table()
        return str(table.metadata.table_uuid) if table else self.state.table_uuid
