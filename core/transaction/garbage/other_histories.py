"""Histories of the table that another catalog may continue: states of it that the table's own history does not have.

Every commit writes a metadata file that names those before it. Two catalogs that contain one table write theirs into
one folder, and each deletes files that the other still needs. The files of the table's own history are those that its
log names, and those that the logs of these files name, however short a log is. Any other metadata file with the
table's UUID is a state of another history. A commit that failed leaves such a file, too. If a mark in its name shows
that lake wrote it for a commit through the table's own catalog, it failed. Else only the user knows which it is, and
declares it by the property `lake.abandoned-metadata`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lake.core.base import locations
from lake.core.base.clock import UUID_FORM
from lake.core.base.errors import CorruptFileError, RefusedError
from lake.core.base.options import Option
from lake.core.io.storage.atomic_files import is_draft
from lake.core.io.work_ahead import ReadingThreads
from lake.core.spec.properties.table_properties import ABANDONED_METADATA, METADATA_PATH
from lake.core.table.metadata.commit_marks import has_mark, mark_of
from lake.core.table.metadata.files import VERSION_HINT, is_metadata_name, version_of
from lake.core.table.metadata.folders import Folders, Places
from lake.core.table.metadata.histories import StateOfTable, find_document, state_in
from lake.core.table.metadata.roots import roots_of, unlisted

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

    from lake.core.io.storage.storage import Storage
    from lake.core.table.catalogs.catalog import Catalog, Table
    from lake.core.transaction.session import Session

_THREADS = 16
# A commit of another writer ends within these waits: its metadata file is in the log then, or removed.
_WAITS = (0.2, 0.8, 2, 4, 8)
# A state that is older than this, by the clock of its writer, is not that of a commit that is about to end.
_IN_FLIGHT_MS = 600_000
_TRIES = 12
# The names that HadoopTableOperations of Iceberg Java gives to the metadata files of a table, and to those that it is
# about to rename; lake has its own for these.
_OF_FOLDER = re.compile(r"v[0-9]+\..*", re.DOTALL | re.IGNORECASE)
_UNNAMED = re.compile(rf"{UUID_FORM}\..*", re.DOTALL | re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class OtherHistory:
    """A history that the table's own one does not contain.

    Args:
        newest: the location of its newest metadata file.
        updated_ms: the time of its last commit, in milliseconds since 1970; 0 if it is not known.
        is_logged: whether the table's log names the file, although it is outside the table's folders.
    """

    newest: str
    updated_ms: int = 0
    is_logged: bool = False

    @property
    def name(self) -> str:
        """The name of the file, by which the history can be declared abandoned."""
        return self.newest.rpartition("/")[2]

    def is_after(self, place: str, updated_ms: int) -> bool:
        """Whether it may be newer than a metadata file that was written at a time."""
        own, version = version_of(place), version_of(self.newest)
        return own is None or version is None or version >= own or self.updated_ms > updated_ms


def refuse_continued(session: Session, table: Table, hint: str) -> None:
    """Refuse to delete files that another catalog may need, because it contains the table and continues it.

    Raises:
        RefusedError: there may be such a catalog.
        CorruptFileError: metadata files are removed again and again.
    """
    found = find_other_histories(session, table)
    if not found:  # check: continued-elsewhere
        return
    first, more = found[0], len(found) - 1
    others = f" and {more} other files are" if more else " is"
    if first.is_logged:
        reason = (
            f"the log of {table.identifier} names {first.newest}, which is outside of the table's folders: the "
            "metadata may be that of a copy"
        )
    else:
        reason = (
            f"{first.newest}{others} not in the history of {table.identifier}: another catalog may contain the "
            "table, or a commit failed"
        )
    raise RefusedError(
        reason,
        hint=f"{hint}; if no other catalog contains the table, record that with {Option.NO_OTHER_CATALOG}",
    )


def find_other_histories(session: Session, table: Table) -> list[OtherHistory]:
    """Return the histories of a table that another catalog may continue, the newest first.

    Raises:
        CorruptFileError: metadata files are removed again and again.
    """
    waits = iter(_WAITS)
    for _ in range(_TRIES):
        listed = _Listed.of(table.storage, table.metadata, table.metadata_location)
        # What was committed since the table was loaded is in its log now.
        now = table.refreshed()
        mark = _mark(now.catalog)
        histories = _Histories(now.storage, now.metadata, now.metadata_location, listed, mark)
        found = histories.find(in_folder=not now.catalog.has_entries)
        if histories.removed:
            continue
        own = version_of(now.metadata_location) or 0
        since_ms = session.clock.now_ms() - _IN_FLIGHT_MS
        if not any(
            (version_of(item.newest) or own) >= own and item.updated_ms > since_ms for item in found
        ):
            return found
        wait = next(waits, None)
        if wait is None:
            return found
        session.clock.sleep(wait)
    raise CorruptFileError(f"metadata files of {table.identifier} are removed while they are read")


def histories_beside(storage: Storage, metadata: TableMetadata, place: str) -> list[OtherHistory]:
    """Return the histories that a metadata file does not contain, for a table that is not in a catalog yet."""
    listed = _Listed.of(storage, metadata, place)
    return _Histories(storage, metadata, place, listed).find(in_folder=False)


@dataclass(frozen=True, slots=True)
class _Listed:
    """What the folders contain that may have metadata files of a table.

    Args:
        folders: the folders, comparable.
        files: the locations of all files, comparable, by which each is read.
        place_of: returns what is comparable of a location.
    """

    folders: frozenset[str]
    files: Mapping[str, str]
    place_of: Callable[[str], str]

    @classmethod
    def of(cls, storage: Storage, metadata: TableMetadata, place: str) -> _Listed:
        own, beside = METADATA_PATH.of(metadata.properties), place.rpartition("/")[0]
        named = [
            beside,
            locations.join(metadata.location, "metadata"),
            *([own] if own else []),
        ]
        place_of = Places().of
        folders = {place_of(folder): folder for folder in named}
        files = {
            f"{key}/{name}": locations.join(folder, name)
            for key, folder in folders.items()
            for name, is_folder in storage.list_folder(folder)
            if not is_folder
        }
        # Some servers keep metadata files elsewhere, but a table with snapshots has other files in these folders.
        if metadata.snapshots and not files:  # check: histories-listed
            raise unlisted(beside, place)
        return cls(frozenset(folders), files, place_of)

    def metadata_files(self) -> Iterator[str]:
        """Yield the metadata files, comparable."""
        for key in self.files:
            name = key.rpartition("/")[2]
            is_hidden = name.startswith(".") or _UNNAMED.fullmatch(name) or is_draft(name)
            if is_metadata_name(name) and not is_hidden:
                yield key

    def may_contain(self, location: str) -> bool:
        """Whether a file is there, or is in another folder, of which that is not known."""
        key = self.place_of(location)
        return key in self.files or key.rpartition("/")[0] not in self.folders


@dataclass(slots=True)
class _Histories:
    """The search for the histories of a table.

    Args:
        storage: the storage of the table's files.
        metadata: the table's metadata.
        place: the location of its metadata file.
        listed: the files in its folders, listed before the metadata was read.
        mark: the mark of its catalog; None if the catalog does not mark the files that commits write.
        removed: whether a file was removed before it could be read.
    """

    storage: Storage
    metadata: TableMetadata
    place: str
    listed: _Listed
    mark: str | None = None
    removed: bool = False
    _states: dict[str, StateOfTable | None] = field(default_factory=dict)

    def find(self, *, in_folder: bool) -> list[OtherHistory]:
        """Return the histories, the newest first.

        Args:
            in_folder: whether the table is one of a Hadoop catalog, whose history is what its folder contains.
        """
        abandoned = frozenset(ABANDONED_METADATA.of(self.metadata.properties))
        paths = [key for key in self.listed.metadata_files() if not _is_hint(key)]
        known = self._history(self._logged(), paths)
        for key in [key for key in paths if _name(key) in abandoned and key not in known]:
            known |= self._history([key], paths)
        if in_folder:
            # Another catalog may have the state that the folder's history began with.
            others = {key for key in paths if not _OF_FOLDER.fullmatch(_name(key))}
        else:
            others = {key for key in paths if key not in known}  # check: versions-off-the-log
            others |= self._of_hadoop(paths)
        found = self._alive({key for key in others if _name(key) not in abandoned})
        found = {key: state for key, state in found.items() if not self._failed(key, state, known)}
        named = {self.listed.place_of(path) for state in found.values() for path in state.log}
        histories = [
            OtherHistory(self.listed.files[key], state.updated_ms)
            for key, state in found.items()
            if key not in named
        ]
        histories.sort(key=lambda item: (item.updated_ms, item.newest), reverse=True)
        return [*histories, *self._outside(abandoned)]

    def _logged(self) -> list[str]:
        log = [entry.metadata_file for entry in self.metadata.metadata_log]
        return list(map(self.listed.place_of, (*log, self.place)))

    def _history(self, log: list[str], paths: Collection[str]) -> set[str]:
        """Return the metadata files that a log names, and those that the logs of these name.

        Args:
            log: files, comparable, the oldest first.
            paths: the files for which the answer is needed.
        """
        known = set(log)
        waiting = list(reversed(log))
        while waiting and not known.issuperset(paths):
            key = waiting.pop()
            # The log of the oldest file names most. The others name more only if that one does not exist.
            state = self._state(key) if key in self.listed.files else None
            if state is None:
                continue
            before = list(map(self.listed.place_of, state.log))
            waiting = [path for path in reversed(before) if path not in known]
            known.update(waiting)
        return known

    def _of_hadoop(self, paths: Iterable[str]) -> set[str]:
        """Return the newest metadata file of a Hadoop catalog: a folder with such files is a table of it."""
        named = [key for key in paths if _OF_FOLDER.fullmatch(_name(key))]
        own = _OF_FOLDER.fullmatch(_name(self.listed.place_of(self.place))) is not None
        has_hint = any(_is_hint(key) for key in self.listed.files)
        return (
            {max(named, key=lambda key: version_of(key) or 0)}
            if named and (has_hint or not own)
            else set()
        )

    def _outside(self, abandoned: frozenset[str]) -> list[OtherHistory]:
        """Return the newest file in the log that is outside of the table's folders, unless it is abandoned."""
        roots = Folders(roots_of(self.metadata))
        outside = [
            entry.metadata_file
            for entry in self.metadata.metadata_log
            if not roots.contain(self.listed.place_of(entry.metadata_file))
        ]
        if not outside or _name(outside[-1]) in abandoned:
            return []
        return [OtherHistory(outside[-1], is_logged=True)]

    def _alive(self, keys: Collection[str]) -> dict[str, StateOfTable]:
        """Return those states of the table that a catalog can still use: their newest snapshot exists.

        A writer whose commit failed removes the manifest list of its snapshot, but not always the metadata file.
        """
        own = str(self.metadata.table_uuid).lower()
        ordered = sorted(keys)
        with ReadingThreads(_THREADS) as pool:
            states = dict(zip(ordered, pool.map(self._state, ordered), strict=True))
        return {
            key: state
            for key, state in states.items()
            if state is not None and state.table_uuid == own and self._is_readable(state)
        }

    def _failed(self, key: str, state: StateOfTable, known: Collection[str]) -> bool:
        """Whether a commit through the table's own catalog wrote a state: it is not in the history, so it failed.

        The commit was to the state before. If that is not known, a catalog that continued it may have this one. If it
        does not exist, it has dropped out of a log. That of such a catalog names it, so it was the table's own one.
        """
        if self.mark is None or not has_mark(key, self.mark) or not state.log:
            return False
        before = state.log[-1]
        # check: newer-than-backup
        return self.listed.place_of(before) in known or not self.listed.may_contain(before)

    def _is_readable(self, state: StateOfTable) -> bool:
        newest = state.newest_list
        return newest is None or (newest != "" and self.listed.may_contain(newest))

    def _state(self, key: str) -> StateOfTable | None:
        """Return the state in a metadata file; None if it is not metadata or does not exist any more."""
        if key not in self._states:
            try:
                document = find_document(self.storage, self.listed.files[key])
            except CorruptFileError:
                # A process was killed while it wrote the file.
                document = {}
            if document is None:
                self.removed = True
            self._states[key] = state_in(document) if document else None
        return self._states[key]


def _mark(catalog: Catalog) -> str | None:
    """Return the mark of the files that commits through a catalog write; None if they have none."""
    if not catalog.writes_metadata:
        return None
    return mark_of(catalog.name, catalog.configured, catalog.database)


def _name(key: str) -> str:
    return key.rpartition("/")[2]


def _is_hint(key: str) -> bool:
    return _name(key).lower() == VERSION_HINT
