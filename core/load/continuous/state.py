"""The state of a watch: the epoch that is offered to the table, and the files that were loaded.

`state.json` says which epoch is offered, with the list of its files: it is durable before the first of them is read,
and a run after a crash takes this list, not a new one. The ledger of loaded files is kept in `done-<n>.jsonl.zst`,
each written once and named by the state; from time to time all of them become one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Self

import pyarrow as pa
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from lake.core.base.errors import CorruptFileError, InvalidRequestError
from lake.core.base.options import Option
from lake.core.base.plain import PlainData
from lake.core.data.sources.discovery import source_folder
from lake.core.io.storage.state_folder import StateFolder
from lake.core.load.continuous.files.listing import Sighting, WatchedFile
from lake.core.load.continuous.options import WatchOptions

FORMAT = 1
_STATE = "state.json"
_MOST_BYTES = 256 * 1024 * 1024
_MOST_LEDGER_BYTES = 1024 * 1024 * 1024
# With more files than this, the ledger is written as one.
_MOST_PARTS = 32
_PREFIX, _SUFFIX = "done-", ".jsonl.zst"
_PART = re.compile(rf"{_PREFIX}\d+(-(?P<revision>\d{{1,18}}))?{re.escape(_SUFFIX)}")
_Count = Annotated[int, Field(ge=0)]
_LedgerName = Annotated[str, Field(pattern=f"^{_PREFIX}[^/]*$")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer(PlainData):
    """An epoch whose files were chosen.

    Args:
        epoch: its number.
        files: its files.
        loaded: whether its commit is known, so that only the files remain to be moved or deleted.
        tables: the tables among which its rows are divided; empty before the first of their commits.
        settled: those of them whose commit is known.
    """

    epoch: int
    files: Annotated[tuple[WatchedFile, ...], Field(min_length=1)]
    loaded: bool = False
    tables: tuple[str, ...] = ()
    settled: tuple[str, ...] = ()

    @property
    def is_settled(self) -> bool:
        """Whether the commits of all tables are known."""
        return bool(self.tables) and set(self.tables) <= set(self.settled)


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchState(PlainData):
    """The state of a watch.

    Args:
        stream: the stream's id.
        table: the table's name.
        branch: the branch.
        table_uuid: the table's UUID; None until it exists.
        format: the version of this format.
        revision: increases with each change.
        epoch: the number of the last epoch that is in the table.
        offered: the epoch that is being loaded; None if there is none.
        ledger: the files of the ledger.
        files: the number of files that were loaded.
        excluded: the folders to which any run moved loaded or bad files: what is there is never new.
        source: the folder that is watched, resolved; None in a state of an earlier version.
        given_up: lists of the next epoch that were given up because a file was gone or changed. One of them is in
            the table after all if its commit arrives late.
        ahead: the files whose times are ahead of the clock, and when they were first listed as they are.
    """

    stream: str
    table: str
    branch: str
    table_uuid: str | None = None
    format: int = FORMAT
    revision: _Count = 0
    epoch: _Count = 0
    offered: Offer | None = None
    ledger: tuple[_LedgerName, ...] = ()
    files: _Count = 0
    excluded: tuple[str, ...] = ()
    source: str | None = None
    given_up: tuple[Offer, ...] = ()
    ahead: tuple[Sighting, ...] = ()

    def require(self, options: WatchOptions, table: str, uuid: str | None) -> None:
        """Check that the state belongs to a watch; a table that was renamed is the same table.

        Raises:
            InvalidRequestError: it is another stream's, table's or branch's.
        """
        is_same = uuid is not None and self.table_uuid == uuid
        for what, own, asked in (
            (f"{Option.STREAM}", self.stream, options.stream),
            ("table", table if is_same else self.table, table),
            (f"{Option.BRANCH}", self.branch, options.branch),
        ):
            if own != asked:
                raise InvalidRequestError(
                    f"{Option.STATE} {options.state} belongs to {what} {own}, not {asked}",
                    hint="each stream of a table needs a state folder of its own",
                )


_STATE_TYPE = TypeAdapter(WatchState)
_LEDGER_LINE: TypeAdapter[tuple[Any, ...]] = TypeAdapter(
    tuple[str, int, int | None] | tuple[str, int, int | None, str | None],
    config=ConfigDict(strict=True),
)


@dataclass(slots=True)
class StateStore:
    """Reads and writes the state in a folder; a second process that writes it as well is noticed.

    Args:
        folder: the folder.
        state: the state as this process last read or wrote it; None for a new folder.
        loaded: the files of the ledger by location: those that were loaded, or skipped.
    """

    folder: StateFolder
    state: WatchState | None = None
    loaded: dict[str, WatchedFile] = field(default_factory=dict)

    @classmethod
    def open(cls, folder: StateFolder) -> Self:
        """Read the state in a folder, and its ledger.

        Raises:
            CorruptFileError: a file cannot be read; nothing is assumed about what was loaded.
        """
        store = cls(folder, _read(folder))
        for name in store.state.ledger if store.state else ():
            store.loaded.update((file.path, file) for file in _ledger_part(folder, name))
        return store

    def save(self, state: WatchState) -> None:
        """Replace the state.

        Raises:
            LockedError: another process has changed it since this one read it.
        """
        before = self.state
        after = replace(state, revision=(before.revision if before else 0) + 1)
        data = json.dumps({"format": FORMAT, **after.to_plain()}, ensure_ascii=False).encode()
        # check: state-unchanged
        self.folder.replace(_STATE, data, expected=lambda: _read(self.folder) == before)
        self.state = after

    def finish(self, state: WatchState, files: Sequence[WatchedFile]) -> None:
        """Replace the state, and add files to the ledger that it names."""
        new = {file.path: file for file in files}
        names = (*state.ledger, _part_of(state))
        entries: Mapping[str, WatchedFile] = new
        if len(names) > _MOST_PARTS:
            entries, names = {**self.loaded, **new}, names[-1:]
        self._write_part(names[-1], entries)
        self.save(replace(state, ledger=names))
        self.loaded.update(new)
        self.sweep()

    def rewrite(self, state: WatchState, loaded: Mapping[str, WatchedFile]) -> None:
        """Replace the state and the whole ledger."""
        name = _part_of(state)
        self._write_part(name, loaded)
        self.save(replace(state, ledger=(name,)))
        self.loaded = dict(loaded)
        self.sweep()

    def _write_part(self, name: str, files: Mapping[str, WatchedFile]) -> None:
        """Write a part of the ledger, which a later run may have written and named already.

        Raises:
            LockedError: a later run has begun.
        """
        # check: part-of-latest-run
        self.folder.replace(name, _packed(files.values()), expected=lambda: True)

    def sweep(self) -> None:
        """Remove the files of ledgers that no state will name.

        Where the lock excludes no second run, the state may be newer than the one that this run knows, and a part may
        be written that the next state names. That of an older revision is not named any more: no save succeeds.
        """
        names = self.folder.names()
        state = _read(self.folder)
        if state is None:
            return
        for name in names:
            if (part := _PART.fullmatch(name)) and name not in state.ledger:
                written_at = int(part["revision"] or -1)
                if written_at < state.revision:  # check: part-of-older-revision
                    self.folder.remove(name)


def _read(folder: StateFolder) -> WatchState | None:
    data = folder.read(_STATE, limit=_MOST_BYTES)
    if data is None:
        return None
    path = folder.file(_STATE)
    try:
        plain = json.loads(data)
        version = plain["format"] if isinstance(plain, dict) else None
    except (ValueError, KeyError, RecursionError) as error:
        raise _corrupt(path) from error
    if version != FORMAT:
        raise CorruptFileError(
            f"{path} has the format {version!r}, which this version of lake does not know"
        )
    try:
        state = _STATE_TYPE.validate_json(data, strict=True)
    except ValidationError as error:
        raise _corrupt(path) from error
    offered, following = state.offered, state.epoch + 1
    epochs = [one.epoch for one in state.given_up]
    if offered is not None:
        epochs.append(offered.epoch + offered.loaded)
    if any(epoch != following for epoch in epochs):
        raise _corrupt(path)
    return state


def _corrupt(path: str) -> CorruptFileError:
    return CorruptFileError(
        f"{path} is damaged",
        hint="restore it from a backup; without it, what was loaded is not known",
    )


def _part_of(state: WatchState) -> str:
    """Return the name of the part of the ledger that is written next."""
    return f"{_PREFIX}{state.epoch}-{state.revision}{_SUFFIX}"


def _packed(files: Collection[WatchedFile]) -> bytes:
    lines = (json.dumps(_values(file), ensure_ascii=False) for file in files)
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        for line in lines:
            stream.write(f"{line}\n".encode())
        stream.write(f"{len(files)}\n".encode())
    return bytes(sink.getvalue())


def _values(file: WatchedFile) -> list[str | int | None]:
    """Return a line of the ledger: earlier versions know three values."""
    values: list[str | int | None] = [file.path, file.size, file.modified_ms]
    return values if file.tag is None else [*values, file.tag]


def _ledger_part(folder: StateFolder, name: str) -> Iterator[WatchedFile]:
    path = folder.file(name)
    data = folder.read(name, limit=_MOST_LEDGER_BYTES)
    if data is None:
        raise CorruptFileError(f"{path} is missing")
    try:
        with pa.CompressedInputStream(pa.BufferReader(data), "zstd") as stream:
            text = stream.read(_MOST_LEDGER_BYTES)
        yield from _files(text.decode().splitlines())
    except (ValueError, TypeError, pa.ArrowException, OSError, IndexError) as error:
        raise _corrupt(path) from error


def _files(lines: Sequence[str]) -> Iterable[WatchedFile]:
    """Return the files of a part of the ledger, whose last line is their number."""
    files = [WatchedFile(*_LEDGER_LINE.validate_json(line)) for line in lines[:-1]]
    if json.loads(lines[-1]) != len(files):
        raise ValueError("the number of lines is wrong")
    return files


def new_state(options: WatchOptions, table: str, **known: Any) -> WatchState:
    """Return the state of a watch that begins."""
    return WatchState(
        stream=options.stream,
        table=table,
        branch=options.branch,
        source=source_folder(options.source),
        **known,
    )
