"""What the parts of one run of a follow share."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from lake.core.base.choices import SchemaMode
from lake.core.base.errors import InvalidRequestError, NotFoundError, RefusedError
from lake.core.base.options import Option
from lake.core.read.continuous.discovery import Common
from lake.core.read.continuous.facts import FollowFacts, FollowResult
from lake.core.read.continuous.handover.epochs import EpochOutput, make_output, recover
from lake.core.read.continuous.handover.pipe import Pipe
from lake.core.read.continuous.handover.state import Destination, State, StateStore, check_same
from lake.core.read.continuous.options import FollowOptions
from lake.core.read.continuous.position import Lag, Position
from lake.core.read.continuous.report import lag_of, standing
from lake.core.read.exports.destinations import Output, refuse_inside
from lake.core.read.exports.export import Noted
from lake.core.read.exports.formats import ARROW, PARQUET
from lake.core.read.scan.changing_keys import ChangingKeys
from lake.core.read.scan.execute import key_counts
from lake.core.spec.types.arrow_schema import schema_from_plain, schema_to_plain
from lake.core.table.catalogs.catalog import Table
from lake.core.table.catalogs.names import with_new_name
from lake.core.transaction.session import Session


class Run:
    """One run of a follow: the table as last loaded, the saved state, the output, the counts. Close it at the end.

    Args:
        session: the session.
        table: the table.
        options: the options.
        store: the store of the state; a new state is saved in it if there is none.

    Raises:
        InvalidRequestError: the options contradict the saved state.
        RefusedError: the state or the output belongs to another table or state.
        CorruptFileError: the state is damaged.
    """

    def __init__(
        self, session: Session, table: Table, options: FollowOptions, store: StateStore
    ) -> None:
        self.session, self.clock = session, session.clock
        self.table, self.options, self.store = table, options, store
        self._keys = (
            None if options.prune_with is None else ChangingKeys(session, options.prune_with)
        )
        self.found, self.done, self.noted = FollowFacts(), FollowResult(), Noted()
        self.started = self.clock.monotonic()
        self.pipe, self.destination = self._opened(options.output)
        self.state = self._state_to_continue()
        self.output = EpochOutput(
            self.destination.path or "", self.state.state_id, session.ids.uuid()
        )

    @property
    def position(self) -> Position | None:
        """Where the last saved discovery ends; None before the first one."""
        saved = self.state.position
        return None if saved is None else saved.position

    @property
    def common(self) -> Common:
        """What the next discovery has in common with those before it."""
        pinned = self.state.pinned
        return Common(
            pinned=None if pinned is None else schema_from_plain(pinned),
            ordinal=self.state.ordinal,
            keys=self._keys,
        )

    def close(self) -> None:
        """Remove temporary files."""
        if self._keys is not None:
            self._keys.close()

    def save(self, state: State) -> None:
        """Save a state, which becomes the run's.

        Raises:
            LockedError: another run, which the lock did not exclude, changed it.
        """
        self.state = self.store.save(state)

    def refresh(self) -> None:
        """Load the table again.

        Raises:
            NotFoundError: the table was dropped or renamed.
            RefusedError: another table has its name now.
        """
        try:
            now = self.table.catalog.load(self.table.identifier)
        except NotFoundError as error:
            raise with_new_name(
                error, self.table.catalog, self.table.identifier, self.state.table_uuid
            ) from error
        refuse_other_table(self.state, now)
        self.table = now

    def recover(self) -> None:
        """Complete or remove what a killed run left."""
        if self.pipe is None:
            before = self.state
            self.state = recover(self.store, before, self.output)
            self.done.epochs += self.state.epoch - before.epoch
            self.done.rows += self.state.totals.rows - before.totals.rows
            self.store.sweep(self.state, self.output.sweep)
        else:
            self.store.sweep(self.state)

    def result(self) -> FollowResult:
        """Return what was handed over, and where the follow is."""
        return replace(
            self.done,
            standing=standing(self.state, self.lag()),
            planning_failures=self.state.planning_failures,
            keys=None if self._keys is None else key_counts(self.noted),
        )

    def lag(self) -> Lag | None:
        """Return the lag; None before the first discovery, or if the branch does not exist any more."""
        with suppress(NotFoundError):
            return lag_of(self.table.metadata, self.options.branch, self.position)
        return None

    def _opened(self, output: Output | None) -> tuple[Pipe | None, Destination]:
        """Return the stream, or the folder, that rows go to."""
        if output is None:
            raise InvalidRequestError(f"{Option.FOLLOW} needs {Option.OUTPUT}")
        refuse_inside(output.path, self.table)
        if output.stream is None:
            path = os.path.realpath(output.path)
            return None, Destination(kind="folder", path=path, format=output.format)
        if output.format in {PARQUET, ARROW}:
            raise InvalidRequestError(
                f"{output.format} cannot be written to a stream that goes on",
                hint=f"choose csv, json or arrow with {Option.OUTPUT_FORMAT}",
            )
        pipe = Pipe(output.stream, output.format, self.clock)
        return pipe, Destination(kind="stream", path=None, format=output.format)

    def _state_to_continue(self) -> State:
        state = self.store.load()
        if state is not None:
            continued = check_same(state, self.table, self.options, self.destination)
            if state.table != continued.table:
                continued = self.store.save(continued)
                self.session.note(
                    f"table {state.table} has the name {continued.table} now: the scan goes on",
                    {"table_before": state.table},
                )
            return self._pinned(continued)
        if self.destination.path is not None:
            make_output(self.destination.path)
        new = State(
            state_id=self.session.ids.uuid(),
            table=self.table.identifier,
            table_uuid=str(self.table.metadata.table_uuid),
            branch=self.options.branch,
            options=self.options.pinned_choices(),
            output=self.destination,
            consumer=self.options.consumer,
        )
        return self.store.save(self._pinned(new))

    def _pinned(self, state: State) -> State:
        """Pin the table's current schema in the state if the options ask for it and none is pinned."""
        if self.options.schema is SchemaMode.FOLLOW:
            return state.changed(pinned=None)
        if state.pinned is None:
            return state.changed(pinned=schema_to_plain(self.table.schema))
        return state


def followed_table(session: Session, identifier: str, saved: Callable[[], State | None]) -> Table:
    """Load the table that is followed.

    Args:
        session: the session.
        identifier: the table's name.
        saved: returns the saved state; called only if there is no table with the name.

    Raises:
        NotFoundError: it does not exist; if the table of the state has another name now, the error says so.
    """
    try:
        return session.table(identifier)
    except NotFoundError as error:
        state = saved()
        if state is None:
            raise
        raise with_new_name(error, session.catalog, identifier, state.table_uuid) from error


def refuse_other_table(state: State, table: Table) -> None:
    """Refuse a table that is not the one of a state.

    Raises:
        RefusedError: the UUIDs differ.
    """
    uuid = str(table.metadata.table_uuid)
    if state.table_uuid != uuid:
        raise RefusedError(
            f"the state is of table {state.table} with the UUID {state.table_uuid}, "
            f"not of {table.identifier} with the UUID {uuid}",
            hint=f"if the table was created again, start with a new folder as {Option.STATE}",
        )
