"""The state of a watch: the epoch that is offered to the table, and the files that were loaded.

`state.json` says which epoch is offered, with the list of its files: it is durable before the first of them is read,
and a run after a crash takes this list, not a new one. The ledger of loaded files is kept in `done-<n>.jsonl.zst`,
each written once and named by the state; from time to time all of them become one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import pyarrow as pa

from lake.core.errors import CorruptFileError, InvalidRequestError, LockedError
from lake.core.options import Option
from lake.core.plain import PlainData
from lake.core.storage.state_folder import StateFolder
from lake.core.watch.listing import WatchedFile
from lake.core.watch.options import WatchOptions

FORMAT = 1
_STATE = "state.json"
_MOST_BYTES = 256 * 1024 * 1024
_MOST_LEDGER_BYTES = 1024 * 1024 * 1024
# With more files than this, the ledger is written as one.
_MOST_PARTS = 32
_PREFIX, _SUFFIX = "done-", ".jsonl.zst"


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
    files: tuple[WatchedFile, ...]
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
    """

    stream: str
    table: str
    branch: str
    table_uuid: str | None = None
    format: int = FORMAT
    revision: int = 0
    epoch: int = 0
    offered: Offer | None = None
    ledger: tuple[str, ...] = ()
    files: int = 0
    excluded: tuple[str, ...] = ()

    def require(self, options: WatchOptions, table: str) -> None:
        """Check that the state belongs to a watch.

        Raises:
            InvalidRequestError: it is another stream's, table's or branch's.
        """
        for what, own, asked in (
            (f"{Option.STREAM}", self.stream, options.stream),
            ("table", self.table, table),
            (f"{Option.BRANCH}", self.branch, options.branch),
        ):
            if own != asked:
                raise InvalidRequestError(
                    f"{Option.STATE} {options.state} belongs to {what} {own}, not {asked}",
                    hint="each stream of a table needs a state folder of its own",
                )


@dataclass(slots=True)
class StateStore:
    """Reads and writes the state in a folder; a second process that writes it as well is noticed.

    Args:
        folder: the folder.
        state: the state as this process last read or wrote it; None for a new folder.
        loaded: the loaded files by location.
    """

    folder: StateFolder
    state: WatchState | None = None
    loaded: dict[str, tuple[int, int | None]] = field(default_factory=dict)

    @classmethod
    def open(cls, folder: StateFolder) -> Self:
        """Read the state in a folder, and its ledger.

        Raises:
            CorruptFileError: a file cannot be read; nothing is assumed about what was loaded.
        """
        store = cls(folder, _read(folder))
        for name in store.state.ledger if store.state else ():
            store.loaded.update((file.path, file.version) for file in _ledger_part(folder, name))
        return store

    def save(self, state: WatchState) -> None:
        """Replace the state.

        Raises:
            LockedError: another process has changed it since this one read it.
        """
        before = self.state
        after = replace(state, revision=(before.revision if before else 0) + 1)
        data = json.dumps({"format": FORMAT, **after.to_plain()}, ensure_ascii=False).encode()
        if not self.folder.replace(_STATE, data, expected=lambda: _read(self.folder) == before):
            raise LockedError(
                f"another run changed the state in {self.folder.path} while this one worked",
                hint="run the stream once at a time",
            )
        self.state = after

    def finish(self, state: WatchState, files: Sequence[WatchedFile]) -> None:
        """Replace the state, and add files to the ledger that it names."""
        new = {file.path: file.version for file in files}
        names = (*state.ledger, f"{_PREFIX}{state.epoch}-{state.revision}{_SUFFIX}")
        entries: Mapping[str, tuple[int, int | None]] = new
        if len(names) > _MOST_PARTS:
            entries, names = {**self.loaded, **new}, names[-1:]
        self.folder.replace(names[-1], _packed(entries))
        self.save(replace(state, ledger=names))
        self.loaded.update(new)
        self.sweep()

    def sweep(self) -> None:
        """Remove the files of ledgers that the state does not name."""
        known = self.state.ledger if self.state else ()
        for name in self.folder.names():
            if name.startswith(_PREFIX) and name.endswith(_SUFFIX) and name not in known:
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
        state = WatchState.from_plain(plain)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _corrupt(path) from error
    if not _is_sound(state):
        raise _corrupt(path)
    return state


def _is_sound(state: WatchState) -> bool:
    numbers = (state.revision, state.epoch, state.files)
    texts = (state.stream, state.table, state.branch, *state.ledger, *state.excluded)
    offered = state.offered
    return (
        all(type(number) is int and number >= 0 for number in numbers)
        and all(isinstance(text, str) for text in texts)
        and all("/" not in name and name.startswith(_PREFIX) for name in state.ledger)
        and (state.table_uuid is None or isinstance(state.table_uuid, str))
        and (
            offered is None
            or (offered.epoch == state.epoch + (not offered.loaded) and bool(offered.files))
        )
        and all(_is_file(file) for file in (offered.files if offered else ()))
        and all(isinstance(name, str) for name in (_tables(offered) if offered else ()))
    )


def _tables(offer: Offer) -> tuple[str, ...]:
    return (*offer.tables, *offer.settled)


def _is_file(file: WatchedFile) -> bool:
    modified = file.modified_ms
    return (
        isinstance(file.path, str)
        and type(file.size) is int
        and (modified is None or type(modified) is int)
    )


def _corrupt(path: str) -> CorruptFileError:
    return CorruptFileError(
        f"{path} is damaged",
        hint="restore it from a backup; without it, what was loaded is not known",
    )


def _packed(entries: Mapping[str, tuple[int, int | None]]) -> bytes:
    lines = (json.dumps([path, *version], ensure_ascii=False) for path, version in entries.items())
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        for line in lines:
            stream.write(f"{line}\n".encode())
        stream.write(f"{len(entries)}\n".encode())
    return bytes(sink.getvalue())


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
    files = [WatchedFile(*json.loads(line)) for line in lines[:-1]]
    if json.loads(lines[-1]) != len(files) or not all(map(_is_file, files)):
        raise ValueError("the number of lines is wrong")
    return files


def new_state(options: WatchOptions, table: str, **known: Any) -> WatchState:
    """Return the state of a watch that begins."""
    return WatchState(stream=options.stream, table=table, branch=options.branch, **known)
