"""The deleted rows of a task's data files: by position, by a deletion vector, or by their keys."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import pyarrow as pa

from lake.core.base.arrow import Mask
from lake.core.base.errors import CorruptFileError
from lake.core.data.deletes.equality import MEMORY_BYTES, EqualityDeletes
from lake.core.data.deletes.equality_files import read_deleted_keys
from lake.core.data.deletes.position_files import PositionFile, read_vector
from lake.core.data.deletes.row_positions import RowPositions
from lake.core.data.deletes.spilled_equality import RowKeys
from lake.core.data.rows.reader import FileDeletes, FileSlice, ReadSettings, read_batches, read_keys
from lake.core.io.storage.opened_ahead import each_looked_up, each_opened, itself
from lake.core.io.storage.storage import Storage
from lake.core.table.manifests.data_files import EQUALITY_DELETES, POSITION_DELETES, DeleteFile
from lake.core.table.snapshots.delete_scopes import PUFFIN, is_global

_T = TypeVar("_T")
Partition = tuple[int, tuple[bytes | None, ...]]
# The partition (None for the whole table) and the compared columns, ascending.
Group = tuple[Partition | None, tuple[int, ...]]


class EqualityGroups:
    """The equality deletes of a scan, grouped by the columns that they compare and by the partition.

    The keys of a group are read on first use and then kept, until `keep_only`.
    """

    def __init__(
        self, storage: Storage, deletes: Iterable[DeleteFile], settings: ReadSettings
    ) -> None:
        self._storage = storage
        self._settings = settings
        self._files = grouped(deletes, settings)
        self._read: dict[Group, EqualityDeletes] = {}

    def get(self, group: Group, memory_bytes: int) -> EqualityDeletes:
        """Return one group; if it was not read before, it takes about ``memory_bytes``."""
        if group not in self._read:
            keys = read_deleted_keys(self._storage, self._files[group], group[1], self._settings)
            self._read[group] = EqualityDeletes.load(keys, memory_bytes=memory_bytes)
        return self._read[group]

    def keep_only(self, groups: Iterable[Group]) -> None:
        """Release all groups except the given ones."""
        for group in self._read.keys() - set(groups):
            self._read.pop(group).close()

    def close(self) -> None:
        """Release all groups."""
        self.keep_only([])


class Deletes:
    """The deletes of files that are read together; delete files are read on first use.

    `dropped` counts the rows that were deleted so far. Close it at the end.
    """

    def __init__(
        self,
        storage: Storage,
        settings: ReadSettings,
        files: Iterable[FileSlice],
        groups: EqualityGroups | None = None,
        *,
        memory_bytes: int = MEMORY_BYTES,
    ) -> None:
        """Take the delete files of the settings.

        Args:
            storage: the storage that contains them.
            settings: the settings with the delete files.
            files: the files that will be read.
            groups: equality deletes that are also used for other files; None for those of the settings.
            memory_bytes: the approximate limit for the keys of equality deletes, both stored and while in use.
        """
        self.dropped = 0
        self._storage = storage
        self._settings = settings
        self._files = list(files)
        self._known = frozenset(self._files)
        positions = [item for item in settings.deletes if item.content == POSITION_DELETES]
        self._positions = _Positions(storage, positions, {file.path for file in self._files})
        equality = [item for item in settings.deletes if item.content == EQUALITY_DELETES]
        self._memory_bytes = memory_bytes
        self._shares = groups is not None
        self._groups = groups or EqualityGroups(storage, equality, settings)
        self._latest = {
            group: max(item.sequence_number for item in items)
            for group, items in grouped(equality, settings).items()
        }
        self._by_scope: dict[Partition | None, list[Group]] = defaultdict(list)
        for group in self._latest:
            self._by_scope[group[0]].append(group)
        self._on_disk: dict[Group, dict[str, RowPositions]] = {}
        self._groups.keep_only(self._latest)

    def close(self) -> None:
        """Release what only these files needed."""
        if not self._shares:
            self._groups.close()

    def of(self, file: FileSlice) -> FileDeletes | None:
        """Return the deletes of one of the files; None if there are none.

        Raises:
            ValueError: the file is not one of those given at construction.
            CorruptFileError: a delete file contradicts its format or the table's metadata.
            RefusedError: its format is not known.
        """
        return self._of(file)

    def _of(self, file: FileSlice) -> _FileDeletes | None:
        if file not in self._known:
            raise ValueError(f"{file.path} is not one of the files that were given")
        found = _FileDeletes(self, file.sequence_number, [], [])
        positions = self._positions.of(file)
        if positions is not None:
            found.positions.append(positions)
        for group in self._groups_of(file):
            deletes = self._load(group)
            if deletes.in_memory:
                found.groups.append((group[1], deletes))
            else:
                found.positions.append(self._find_spilled(group, deletes, file.path))
        return found if found.positions or found.groups else None

    def prepare(self, file: FileSlice) -> None:
        """Read in a thread what deletes rows of a file by position, so that `of` need not wait for a store."""
        self._positions.read(file)

    def each_opened(
        self, items: Iterable[_T], file_of: Callable[[_T], FileSlice] = itself
    ) -> Iterator[_T]:
        """Yield items in their order, the file of each open and prepared; see `opened_ahead.each_opened`."""
        return each_opened(self._storage, items, file_of, lambda item: self.prepare(file_of(item)))

    def each_prepared(
        self, items: Iterable[_T], file_of: Callable[[_T], FileSlice] = itself
    ) -> Iterator[_T]:
        """Yield items in their order, each after its file was prepared; see `each_looked_up`."""
        return each_looked_up(
            self._storage, items, lambda item: self.prepare(file_of(item)), file_of
        )

    def positions_of(self, file: FileSlice) -> RowPositions:
        """Return the rows of a file that are deleted by position or by a deletion vector."""
        found = RowPositions()
        if (positions := self._positions.of(file)) is not None:
            found.update(positions)
        return found

    def all_positions_of(self, file: FileSlice) -> RowPositions:
        """Return all deleted rows of a file, whether by position, by a vector or by their keys; reads its keys."""
        found = RowPositions()
        own = self._of(file)
        if own is None:
            return found
        for positions in own.positions:
            found.update(positions)
        if own.groups:
            for start, keys in read_keys(self._storage, file, self._settings, own.key_ids):
                keep = own.keep(start, keys.num_rows, keys)
                if keep is not None:
                    found.add(np.flatnonzero(~keep) + start)
        return found

    def _groups_of(self, file: FileSlice) -> list[Group]:
        scopes = (None, (file.spec_id, file.partition))
        groups = [group for scope in scopes for group in self._by_scope.get(scope, ())]
        return [group for group in groups if file.sequence_number < self._latest[group]]

    def _load(self, group: Group) -> EqualityDeletes:
        return self._groups.get(group, self._memory_bytes // len(self._latest))

    def _find_spilled(self, group: Group, deletes: EqualityDeletes, path: str) -> RowPositions:
        """Return the rows of a file deleted by keys that do not fit in memory; computed for all files together."""
        if group not in self._on_disk:
            found: dict[str, RowPositions] = {}
            for number, positions in deletes.deleted_rows(self._rows_of(group)):
                at = self._files[number].path
                found.setdefault(at, RowPositions()).add(positions)
            self._on_disk[group] = found
        return self._on_disk[group].get(path, RowPositions())

    def _rows_of(self, group: Group) -> Iterator[RowKeys]:
        for number, file in enumerate(self._files):
            if group in self._groups_of(file):
                for start, keys in read_keys(self._storage, file, self._settings, group[1]):
                    yield RowKeys(number, start, file.sequence_number, keys)


class _Positions:
    """The position delete files and deletion vectors of some data files."""

    def __init__(self, storage: Storage, deletes: Iterable[DeleteFile], paths: set[str]) -> None:
        self._storage = storage
        self._of_file: dict[str, list[DeleteFile]] = defaultdict(list)
        self._of_partition: dict[Partition, list[PositionFile]] = defaultdict(list)
        for item in deletes:
            if item.referenced_data_file is not None:
                self._of_file[item.referenced_data_file].append(item)
            else:
                shared = PositionFile(storage, item, paths)
                self._of_partition[item.spec_id, item.partition].append(shared)
        # Slices of one file are read consecutively.
        self._last: tuple[str | None, RowPositions | None] = (None, None)
        self._ahead: dict[str, RowPositions | None] = {}

    def read(self, file: FileSlice) -> None:
        """Read the deleted positions of a file for the next `of`."""
        if self._last[0] != file.path:
            self._ahead[file.path] = self._read(file)

    def of(self, file: FileSlice) -> RowPositions | None:
        """Return the deleted positions of a file; None if there are none."""
        if self._last[0] != file.path:
            is_read = file.path in self._ahead
            found = self._ahead.pop(file.path) if is_read else self._read(file)
            self._last = (file.path, found)
        return self._last[1]

    def _read(self, file: FileSlice) -> RowPositions | None:
        deletes = self._of_file.get(file.path, ())
        vectors = [item for item in deletes if item.format == PUFFIN]
        if vectors:
            return read_vector(self._storage, _single_vector(vectors, file))
        own = [PositionFile(self._storage, item, {file.path}) for item in deletes]
        found = RowPositions()
        for item in (*own, *self._of_partition.get((file.spec_id, file.partition), ())):
            # check: position-deletes-of-own-commit
            if file.sequence_number <= item.sequence_number:
                found.update(item.of(file.path))
        return found if len(found) else None


def _single_vector(vectors: Sequence[DeleteFile], file: FileSlice) -> DeleteFile:
    if len(vectors) > 1:
        raise CorruptFileError(f"several deletion vectors reference {file.path}")
    if vectors[0].sequence_number < file.sequence_number:
        raise CorruptFileError(f"the deletion vector of {file.path} is older than the file")
    return vectors[0]


@dataclass(slots=True)
class _FileDeletes:
    """The deletes of one data file."""

    deletes: Deletes
    sequence_number: int
    positions: list[RowPositions]
    groups: list[tuple[Sequence[int], EqualityDeletes]]

    @property
    def key_ids(self) -> Sequence[int]:
        """The ids of the columns that `keep` needs."""
        return list(dict.fromkeys(column for ids, _ in self.groups for column in ids))

    def keep(self, start: int, rows: int, keys: pa.RecordBatch) -> Mask | None:
        """Return which rows are not deleted; None if all are kept."""
        deleted = np.zeros(rows, np.bool_)
        for positions in self.positions:
            deleted |= positions.mask(start, rows)
        for ids, deletes in self.groups:
            compared = keys.select([str(column) for column in ids])
            deleted |= deletes.deleted(compared, self.sequence_number)
        count = int(np.count_nonzero(deleted))
        self.deletes.dropped += count
        return ~deleted if count else None

    def leaves(self, start: int, rows: int) -> bool:
        """Return whether a row of a range may be kept; if none can be, they count as dropped."""
        deleted = np.zeros(rows, np.bool_)
        for positions in self.positions:
            deleted |= positions.mask(start, rows)
        if deleted.all():
            self.deletes.dropped += rows
            return False
        return True


def read_rows(
    storage: Storage,
    files: Iterable[FileSlice],
    settings: ReadSettings,
    deletes: Deletes,
    *,
    whole: bool = True,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of files that are not deleted; see `lake.core.data.rows.reader.read_batches`.

    If ``whole``, all of them are taken, so deletes are read before the rows of their files are.
    """
    for file in deletes.each_opened(files) if whole else each_opened(storage, files):
        yield from read_batches(storage, file, settings, deletes)


def grouped(deletes: Iterable[DeleteFile], settings: ReadSettings) -> dict[Group, list[DeleteFile]]:
    """Return equality deletes by the partition to which they apply and by the columns that they compare."""
    groups: dict[Group, list[DeleteFile]] = defaultdict(list)
    for item in deletes:
        everywhere = is_global(settings.specs[item.spec_id])
        scope = None if everywhere else (item.spec_id, item.partition)
        groups[scope, tuple(sorted(set(item.equality_ids or ())))].append(item)
    return dict(groups)
