"""The state of a follow: a folder with a lock, `state.json`, and files of splits and keys of pending discoveries.

`state.json` is created atomically, and replaced durably by each step. Its contents are not trusted: a file that this
version does not understand is refused, and never replaced by a new state.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from lake.core.base.clock import UUID_FORM
from lake.core.base.errors import (
    CorruptFileError,
    InvalidRequestError,
    RefusedError,
)
from lake.core.base.interrupts import uninterrupted
from lake.core.base.options import Option
from lake.core.io.storage.state_folder import StateFolder
from lake.core.read.continuous.options import FollowOptions
from lake.core.read.continuous.position import Position
from lake.core.table.catalogs.catalog import Table

STATE_NAME = "state.json"
# A pinned schema may have many columns; everything else is a few kilobytes.
_MAX_BYTES = 16 * 1024 * 1024
_MAX_PENDING = 1_000
# The number of discoveries whose sizes decide about a pause.
RING = 3
_SPLITS = re.compile(r"splits-([1-9][0-9]{0,17})\.jsonl\.zst")
# Of a file of keys: the SHA-256 of its contents.
KEYS_NAME = r"^keys-[0-9a-f]{64}\.(bin|arrow)$"
_Uuid = Annotated[str, Field(pattern=rf"^{UUID_FORM}$")]
_SnapshotId = Annotated[str, Field(pattern=r"^[0-9]{1,19}$")]
_Count = Annotated[int, Field(ge=0, le=2**63 - 1)]
_Long = Annotated[int, Field(ge=-(2**63), le=2**63 - 1)]
_Text = Annotated[str, Field(max_length=100_000)]
_KeysName = Annotated[str, Field(pattern=KEYS_NAME)]
Kind = Literal["table", "append", "changes"]


class Saved(BaseModel):
    """A part of the state; unknown fields and other types are refused."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class SavedPosition(Saved):
    """A position as it is stored; without a snapshot it is before the table's first one."""

    snapshot_id: _SnapshotId | None
    timestamp_ms: _Long | None

    @classmethod
    def of(cls, position: Position) -> SavedPosition:
        """Return a position in this form."""
        return cls(**position.document())

    @property
    def position(self) -> Position:
        """The position."""
        return Position.from_plain(self.model_dump())


class Destination(Saved):
    """Where rows go: a folder, or a stream without a path."""

    kind: Literal["folder", "stream"]
    path: _Text | None
    format: _Text


class Pending(Saved):
    """A discovery whose splits are not all handed over.

    Args:
        discovery: its number.
        kind: what is read: the ``table``, appended rows, or changes.
        start: the position before the discovery.
        end: the position after it.
        file: the name of its file of splits.
        sha256: of that file's splits.
        count: the number of its splits.
        rows: the number of their rows by metadata.
        bytes: the bytes of their files.
        next: the index of the first split that was not handed over.
        rows_done: the rows that were handed over.
        rows_deleted: the rows of the same splits that delete files removed.
        records_read: the rows of these splits by metadata.
        bytes_read: the bytes of these splits.
        least_ms: the least value of the watermark column in the splits.
        greatest_ms: the greatest one.
        keys: the names of the files of the keys that its rows must have.
    """

    discovery: _Count
    kind: Kind
    start: SavedPosition | None
    end: SavedPosition
    file: _Text
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    count: _Count
    rows: _Count
    bytes: _Count
    next: _Count = 0
    rows_done: _Count = 0
    rows_deleted: _Count = 0
    records_read: _Count = 0
    bytes_read: _Count = 0
    least_ms: _Long | None = None
    greatest_ms: _Long | None = None
    keys: Annotated[tuple[_KeysName, ...], Field(max_length=2)] = ()

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.file != splits_name(self.discovery) or self.next >= self.count:
            raise ValueError("not a pending discovery")
        return self


class After(Saved):
    """What an epoch changes in the state when it is committed.

    Args:
        next: the first split after it.
        rows: its rows.
        deleted: the rows that delete files removed from its splits.
        records: the rows of its splits by metadata.
        bytes: the bytes of its splits.
        written: the bytes of its files.
        greatest_ms: the greatest value of the watermark column in its splits and in all earlier ones.
        watermark_ms: the watermark after it.
    """

    next: _Count
    rows: _Count
    deleted: _Count
    records: _Count
    bytes: _Count
    written: _Count
    greatest_ms: _Long | None = None
    watermark_ms: _Long | None = None


class Prepared(Saved):
    """An epoch whose hidden folder is complete and durable, and which may have been renamed.

    Args:
        epoch: its number.
        run: of the run that wrote the folder; None in a state of an earlier version.
        inode: of the output folder, by which an output that is not mounted is recognised.
        after: the changes of the state.
    """

    epoch: _Count
    run: _Uuid | None = None
    inode: _Count
    after: After


class ReaderPosition(Saved):
    """The first row that was not written to a stream: its split, and its index among the rows of the split."""

    split: _Count
    row: _Count


class Totals(Saved):
    """Counts since the state was created."""

    rows: _Count = 0
    bytes: _Count = 0
    gaps: _Count = 0
    skipped_snapshots: _Count = 0
    late_splits: _Count = 0
    splits: _Count = 0
    split_bytes: _Count = 0
    planning_failures: _Count = 0


class State(Saved):
    """Everything that a follow remembers.

    Args:
        format: of the file.
        state_id: names hidden folders of the output.
        table: the table's name.
        table_uuid: the table's UUID.
        branch: the branch that is followed.
        options: the options that define the rows, by name; they change only while nothing is pending.
        output: where rows go.
        generation: how often a gap made the complete table be read again.
        position: the newest snapshot that was discovered; None before the first discovery.
        discovery: the number of the last discovery with splits.
        pending: the discoveries that are not handed over, oldest first.
        reader: the position within the first split of a stream; None at its start.
        history: the number of splits of the last discoveries that found some.
        epoch: the number of the last epoch.
        ordinal: the `_change_ordinal` of the next commit.
        prepared: the epoch that is being renamed.
        planning_failures: the number of failed discoveries since the last success.
        watermark_ms: the watermark after the last epoch.
        greatest_ms: the greatest value of the watermark column in what was handed over.
        totals: counts since the state was created.
        consumer: the name of the consumer.
        pinned: the pinned schema.
        updated_ms: when it was saved.
    """

    format: Literal[1] = 1
    state_id: _Uuid
    table: _Text
    table_uuid: _Uuid
    branch: _Text
    options: Mapping[str, Any]
    output: Destination
    generation: _Count = 0
    position: SavedPosition | None = None
    discovery: _Count = 0
    pending: Annotated[tuple[Pending, ...], Field(max_length=_MAX_PENDING)] = ()
    reader: ReaderPosition | None = None
    history: Annotated[tuple[_Count, ...], Field(max_length=RING)] = ()
    epoch: _Count = 0
    ordinal: _Count = 0
    prepared: Prepared | None = None
    planning_failures: _Count = 0
    watermark_ms: _Long | None = None
    greatest_ms: _Long | None = None
    totals: Totals = Totals()
    consumer: _Text | None = None
    pinned: Mapping[str, Any] | None = None
    updated_ms: _Long = 0

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        numbers = [item.discovery for item in self.pending]
        if numbers != sorted(set(numbers)) or (numbers and numbers[-1] > self.discovery):
            raise ValueError("discoveries are not in order")
        if self.prepared is not None:
            if not self.pending or self.prepared.epoch != self.epoch + 1:
                raise ValueError("the prepared epoch is not the next one")
            if not self.pending[0].next < self.prepared.after.next <= self.pending[0].count:
                raise ValueError("the prepared epoch is not of the first pending discovery")
        if self.reader is not None and not self.pending:
            raise ValueError("nothing is pending for the reader")
        return self

    def changed(self, **fields: Any) -> State:
        """Return the state with other values of some fields."""
        return self.model_copy(update=fields)

    @property
    def pending_splits(self) -> int:
        """The number of splits that are not handed over."""
        return sum(item.count - item.next for item in self.pending)

    @property
    def pending_rows(self) -> int:
        """The number of their rows by metadata."""
        return sum(max(item.rows - item.records_read, 0) for item in self.pending)

    @property
    def pending_bytes(self) -> int:
        """The bytes of their files."""
        return sum(max(item.bytes - item.bytes_read, 0) for item in self.pending)

    def handed_over(self, after: After, *, with_rows: bool = True) -> State:
        """Return the state after the next epoch; an epoch without rows has no number."""
        first, *others = self.pending
        totals = self.totals.model_copy(
            update={
                "rows": self.totals.rows + after.rows,
                "bytes": self.totals.bytes + after.written,
                "splits": self.totals.splits + after.next - first.next,
                "split_bytes": self.totals.split_bytes + after.bytes,
            }
        )
        rest = first.model_copy(
            update={
                "next": after.next,
                "rows_done": first.rows_done + after.rows,
                "rows_deleted": first.rows_deleted + after.deleted,
                "records_read": first.records_read + after.records,
                "bytes_read": first.bytes_read + after.bytes,
            }
        )
        return self.changed(
            pending=tuple(others) if after.next == first.count else (rest, *others),
            epoch=self.epoch + with_rows,
            prepared=None,
            reader=None,
            totals=totals,
            watermark_ms=after.watermark_ms,
            greatest_ms=after.greatest_ms,
        )


def splits_name(discovery: int) -> str:
    """Return the name of a discovery's file of splits."""
    return f"splits-{discovery}.jsonl.zst"


class StateStore:
    """The state in its folder.

    Args:
        folder: the folder.
        durable: whether the state is kept; a run without a state folder keeps its state in memory, and only its
            files of splits in a temporary folder.
    """

    def __init__(self, folder: StateFolder, *, durable: bool = True) -> None:
        self.folder = folder
        self._durable = durable
        # The file's contents as this process knows them.
        self._stored: bytes | None = None

    def load(self) -> State | None:
        """Read the state; None if there is none.

        Raises:
            CorruptFileError: the file is damaged, or another program or version wrote it.
        """
        data = self.folder.read(STATE_NAME, limit=_MAX_BYTES)
        if data is None:
            return None
        try:
            state = State.model_validate_json(data)
        except (ValidationError, ValueError, RecursionError) as error:
            raise _corrupt(self.folder.file(STATE_NAME), _reason(data)) from error
        self._stored = data
        return state

    def save(self, state: State) -> State:
        """Create or replace the state durably; return it with the time of the change.

        Raises:
            LockedError: another run, which the lock did not exclude, changed it.
        """
        stamped = state.changed(updated_ms=self.folder.clock.now_ms())
        if not self._durable:
            return stamped
        data = _encoded(stamped)
        with uninterrupted():
            self.folder.replace(STATE_NAME, data, expected=self._is_known)
            self._stored = data
        return stamped

    def _is_known(self) -> bool:
        return self.folder.read(STATE_NAME, limit=_MAX_BYTES) == self._stored

    def sweep(self, state: State, sweep_output: Callable[[], None] = lambda: None) -> None:
        """Remove the files of splits and keys that the state does not name.

        Args:
            state: the state as it was saved.
            sweep_output: removes what the state does not name of the output.

        Raises:
            LockedError: another run has begun, or changed the state: it may name what this state does not.
        """
        kept = {name for item in state.pending for name in (item.file, *item.keys)}
        with self.folder.alone(self._is_known):  # check: sweep-alone
            sweep_output()
            for name in self.folder.names():
                if (_SPLITS.fullmatch(name) or re.fullmatch(KEYS_NAME, name)) and name not in kept:
                    self.folder.remove(name)


def check_same(state: State, table: Table, options: FollowOptions, output: Destination) -> State:
    """Check that a run continues a state; return the state with the run's options and the table's name.

    The state belongs to the table's UUID: a table that was renamed is the same table.

    Raises:
        RefusedError: it is another table's state.
        InvalidRequestError: an option differs that may not change, or not while splits are pending.
    """
    uuid = str(table.metadata.table_uuid)
    if state.table_uuid != uuid:
        raise RefusedError(
            f"the state is of table {state.table} with the UUID {state.table_uuid}, "
            f"not of {table.identifier} with the UUID {uuid}",
            hint=f"name a new folder with {Option.STATE}; if table {state.table} was renamed, give its new name",
        )
    state = state.changed(table=table.identifier)
    if state.branch != options.branch:
        raise InvalidRequestError(
            f"the state follows branch {state.branch}: {Option.BRANCH} cannot change",
            hint=f"name a new folder with {Option.STATE}",
        )
    if state.output != output:
        was = state.output.path or "standard output"
        raise InvalidRequestError(
            f"the state hands over {state.output.format} to {was}: "
            f"{Option.OUTPUT} and {Option.OUTPUT_FORMAT} cannot change",
            hint=f"name a new folder with {Option.STATE}",
        )
    different = options.changed_choices(state.options)
    if not different:
        return state
    if state.pending:
        raise InvalidRequestError(
            f"{', '.join(map(str, different))} cannot change while splits are pending "
            f"({state.pending_splits:,})",
            hint="run it once with the options as they were",
        )
    return state.changed(options=options.pinned_choices())


def _encoded(state: State) -> bytes:
    return state.model_dump_json().encode() + b"\n"


def _reason(data: bytes) -> str:
    """Return why the contents of a file are not a state."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return "it is not JSON"
    found = document.get("format") if isinstance(document, dict) else None
    if isinstance(found, int) and found != 1:
        return f"it has format {found}, which this version of lake does not know"
    return "it has missing, unknown or invalid fields"


def _corrupt(path: str, reason: str) -> CorruptFileError:
    return CorruptFileError(
        f"{path} is not the state of a follow: {reason}",
        hint="restore it from a backup, or start with a new state folder and decide what to read again",
    )
