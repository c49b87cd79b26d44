"""One epoch of a watch after another: offer files, load them as one commit, and record that.

The order makes each step safe to repeat. The list of files is durable before one of them is read. The commit
carries the number of the epoch, and is refused if the branch has that epoch already. Files are moved or deleted only
after the commit is known.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from lake.core.errors import (
    BadInputError,
    LakeError,
    NotFoundError,
    RefusedError,
)
from lake.core.interrupts import uninterrupted
from lake.core.options import Option
from lake.core.outcome import Outcome, Status
from lake.core.routing.stream import Journal
from lake.core.session import Session
from lake.core.snapshots.streams import StreamEpoch, contains_epoch
from lake.core.sources.discovery import look_up_sources
from lake.core.storage.storage import Storage
from lake.core.watch.disposal import dispose, set_aside
from lake.core.watch.listing import WatchedFile, offsets_of
from lake.core.watch.options import Done, OnRewrite, WatchOptions
from lake.core.watch.runs import Totals, UnfinishedEpoch, with_new_plans
from lake.core.watch.state import Offer, StateStore, WatchState

if TYPE_CHECKING:
    from lake.core.catalogs.catalog import Table

# Loads files as an epoch, and returns what that did.
LoadEpoch = Callable[[Sequence[str], StreamEpoch, Journal], Outcome]
# Returns how many of the first files can be loaded together: a change of the schema begins a new epoch.
Barrier = Callable[[Sequence[str]], int]


@dataclass(slots=True)
class Epochs:
    """Loads the epochs of one watch.

    Args:
        session: the session.
        table: the table's name.
        options: what is watched.
        store: the state.
        storage: where the files are.
        load: loads an epoch.
        barrier: divides files by their schema.
        totals: what was done so far.
    """

    session: Session
    table: str
    options: WatchOptions
    store: StateStore
    storage: Storage
    load: LoadEpoch
    barrier: Barrier
    totals: Totals = field(default_factory=Totals)

    @property
    def state(self) -> WatchState:
        """The current state."""
        if self.store.state is None:
            raise LakeError("the state is not open")
        return self.store.state

    def resume(self) -> None:
        """Finish the epoch that an earlier run offered, with the list of files that it chose."""
        offer = self.state.offered
        if offer is None:
            return
        if not offer.loaded:
            offer = self._checked(offer)
        self._finish(offer)

    def commit(self, files: Sequence[WatchedFile]) -> None:
        """Load the first files as the next epoch: all of them, or those before a change of the schema."""
        taken = list(files[: max(1, self.barrier([file.path for file in files]))])
        offer = Offer(epoch=self.state.epoch + 1, files=tuple(taken))
        self._offer(offer)
        self._finish(offer)

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

    def _checked(self, offer: Offer) -> Offer:
        """Return an offer of an earlier run, whose files must still be there.

        Raises:
            NotFoundError: a file is gone.
            RefusedError: a file was changed since.
        """
        if offer.is_settled or (not offer.tables and self._is_committed(offer)):
            return offer
        found = look_up_sources(self.storage, (file.path for file in offer.files))
        files = []
        for file in offer.files:
            now = found[file.path]
            if now is None:
                raise NotFoundError(
                    f"{file.path} is gone; {self._name(offer)} was about to load it when an earlier run ended",
                    hint="put the file back, and run the command again",
                )
            version = replace(file, size=now.length, modified_ms=now.modified_ms)
            if version != file and offer.tables:
                raise RefusedError(
                    f"{file.path} was changed after {self._name(offer)} took it, and some tables contain that epoch",
                    hint="put the file back as it was, and run the command again",
                )
            if version != file and self.options.on_rewrite is not OnRewrite.AGAIN:
                raise RefusedError(
                    f"{file.path} was changed after {self._name(offer)} took it",
                    hint=f"{Option.ON_REWRITE} again loads the file as it is now",
                )
            files.append(version)
        changed = replace(offer, files=tuple(files))
        if changed != offer:
            self._offer(changed)
        return changed

    def _finish(self, offer: Offer) -> None:
        remaining: Offer | None = offer
        while remaining is not None and not remaining.loaded:
            remaining = self._loaded(remaining)
        if remaining is not None:
            dispose(self.session, self.storage, self.options, remaining.files, remaining.epoch)
            self._offer(None)

    def _loaded(self, offer: Offer) -> Offer | None:
        """Load an offer, or set its bad files aside; return what remains to be done of it."""
        if offer.is_settled:
            return self._record(
                offer, Outcome(command="ingest", table=self.table, status=Status.DONE)
            )
        try:
            outcome = self._load(offer)
        except BadInputError as error:
            return self._without_bad(offer, error)
        return self._record(offer, outcome)

    def _load(self, offer: Offer) -> Outcome:
        paths, epoch = [file.path for file in offer.files], self._epoch(offer)
        return with_new_plans(self.session, lambda: self.load(paths, epoch, self))

    def _record(self, offer: Offer, outcome: Outcome) -> Offer | None:
        """Record a loaded epoch; return it if its files remain to be moved or deleted."""
        number = offer.epoch
        if outcome.status is Status.PARTIAL:
            self.totals.add_commits(outcome)
            raise UnfinishedEpoch
        if outcome.status is Status.NOTHING_TO_DO and not self._is_committed(offer):
            # The files have no rows: the number is used again.
            number -= 1
        done = replace(
            self.state,
            epoch=number,
            table_uuid=self._uuid(),
            offered=None,
            files=self.state.files + len(offer.files),
        )
        self.totals.add(outcome, len(offer.files))
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
        if self.options.route is not None:
            return bool(self._offered.tables)
        return contains_epoch(self._table(), self.options.branch, self._epoch(offer))

    def _without_bad(self, offer: Offer, error: BadInputError) -> Offer | None:
        """Return an offer without the files that cannot be loaded, which nothing of was committed.

        Raises:
            BadInputError: the error is not one of single files, or they cannot be set aside.
        """
        bad = [file for file in offer.files if file.path in error.message]
        # Of files that contradict each other, the last one is at fault. A name may begin with another one.
        bad = [
            file
            for file in bad
            if not any(file.path != one.path and file.path in one.path for one in bad)
        ][-1:]
        if not bad or isinstance(error, NotFoundError) or self._offered.tables:
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
        if self.options.route is not None:
            return None
        try:
            return self.session.table(self.table)
        except NotFoundError:
            return None

    def _uuid(self) -> str | None:
        table = self._table()
        return str(table.metadata.table_uuid) if table else self.state.table_uuid
