"""Which rows of a task's data files are deleted: by position, by a deletion vector, or by their keys."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lake.core.deletes.equality import MEMORY_BYTES, EqualityDeletes
from lake.core.deletes.equality_files import read_deleted_keys
from lake.core.deletes.position_files import PositionFile, read_vector
from lake.core.deletes.row_positions import RowPositions
from lake.core.deletes.spilled_equality import RowKeys
from lake.core.errors import CorruptFileError
from lake.core.manifests.data_files import EQUALITY_DELETES, POSITION_DELETES, DeleteFile
from lake.core.rows.reader import FileDeletes, FileSlice, ReadSettings, read_batches, read_keys
from lake.core.snapshots.delete_scopes import PUFFIN, is_global
from lake.core.storage.storage import Storage

Mask = npt.NDArray[np.bool_]
Partition = tuple[int, tuple[bytes | None, ...]]
# The part of the table (None for all of it) and the columns compared, ascending.
Group = tuple[Partition | None, tuple[int, ...]]


class EqualityGroups:
    """The equality deletes of a scan, in groups that compare the same columns in the same part of the table.

    The keys of a group are read when first needed and then kept, until `keep_only`.
    """

    def __init__(
        self, storage: Storage, deletes: Iterable[DeleteFile], settings: ReadSettings
    ) -> None:
        self._storage = storage
        self._settings = settings
        self._files = _grouped(deletes, settings)
        self._read: dict[Group, EqualityDeletes] = {}

    def get(self, group: Group, memory_bytes: int) -> EqualityDeletes:
        """Return one group, which takes about so much memory if it was not read before."""
        if group not in self._read:
            keys = read_deleted_keys(self._storage, self._files[group], group[1], self._settings)
            self._read[group] = EqualityDeletes.load(keys, memory_bytes=memory_bytes)
        return self._read[group]

    def keep_only(self, groups: Iterable[Group]) -> None:
        """Let go of all groups but some."""
        for group in self._read.keys() - set(groups):
            self._read.pop(group).close()

    def close(self) -> None:
        """Let go of all groups."""
        self.keep_only([])


class Deletes:
    """What deletes rows of the files that are read together; delete files are read when first needed.

    `dropped` counts the rows that were left out so far. Close it at the end.
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
        """Take what the settings' delete files delete.

        Args:
            storage: where they lie.
            settings: name them.
            files: what will be read.
            groups: equality deletes that are kept for other files too; None for those of the settings.
            memory_bytes: about what the keys of equality deletes may take, now and while they are used.
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
            for group, items in _grouped(equality, settings).items()
        }
        self._by_scope: dict[Partition | None, list[Group]] = defaultdict(list)
        for group in self._latest:
            self._by_scope[group[0]].append(group)
        self._on_disk: dict[Group, dict[str, RowPositions]] = {}
        self._groups.keep_only(self._latest)

    def close(self) -> None:
        """Let go of what only these files needed."""
        if not self._shares:
            self._groups.close()

    def of(self, file: FileSlice) -> FileDeletes | None:
        """Return what deletes rows of one of the files, None if nothing does.

        Raises:
            ValueError: it is none of the files that this was made for.
            CorruptFileError: a delete file is not what its format or the table's metadata promises.
            RefusedError: its format is not known.
        """
        if file not in self._known:
            raise ValueError(f"what deletes rows of {file.path} was not asked for")
        found = _OfFile(self, file.sequence_number, [], [])
        positions = self._positions.of(file)
        if positions is not None:
            found.positions.append(positions)
        for group in self._groups_of(file):
            deletes = self._load(group)
            if deletes.in_memory:
                found.groups.append((group[1], deletes))
            else:
                found.positions.append(self._looked_up(group, deletes, file.path))
        return found if found.positions or found.groups else None

    def positions_of(self, file: FileSlice) -> RowPositions:
        """Return the rows of a file that are deleted by position or by a deletion vector."""
        found = RowPositions()
        if (positions := self._positions.of(file)) is not None:
            found.update(positions)
        return found

    def _groups_of(self, file: FileSlice) -> list[Group]:
        scopes = (None, (file.spec_id, file.partition))
        groups = [group for scope in scopes for group in self._by_scope.get(scope, ())]
        return [group for group in groups if file.sequence_number < self._latest[group]]

    def _load(self, group: Group) -> EqualityDeletes:
        return self._groups.get(group, self._memory_bytes // len(self._latest))

    def _looked_up(self, group: Group, deletes: EqualityDeletes, path: str) -> RowPositions:
        """Return which rows of a file are deleted by keys that do not fit in memory, asked for all files at once."""
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
    """Position delete files and deletion vectors of some data files."""

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
        # Slices of one file are read one after the other.
        self._last: tuple[str | None, RowPositions | None] = (None, None)

    def of(self, file: FileSlice) -> RowPositions | None:
        """Return the deleted positions of a file, None if there are none."""
        if self._last[0] != file.path:
            self._last = (file.path, self._read(file))
        return self._last[1]

    def _read(self, file: FileSlice) -> RowPositions | None:
        mine = self._of_file.get(file.path, ())
        vectors = [item for item in mine if item.format == PUFFIN]
        if vectors:
            return read_vector(self._storage, _only(vectors, file))
        own = [PositionFile(self._storage, item, {file.path}) for item in mine]
        found = RowPositions()
        for item in (*own, *self._of_partition.get((file.spec_id, file.partition), ())):
            if file.sequence_number <= item.sequence_number:
                found.update(item.of(file.path))
        return found if len(found) else None


def _only(vectors: Sequence[DeleteFile], file: FileSlice) -> DeleteFile:
    if len(vectors) > 1:
        raise CorruptFileError(f"several deletion vectors are for {file.path}")
    if vectors[0].sequence_number < file.sequence_number:
        raise CorruptFileError(f"the deletion vector of {file.path} is older than the file")
    return vectors[0]


@dataclass(slots=True)
class _OfFile:
    """What deletes rows of one data file."""

    deletes: Deletes
    sequence_number: int
    positions: list[RowPositions]
    groups: list[tuple[Sequence[int], EqualityDeletes]]

    @property
    def key_ids(self) -> Sequence[int]:
        """The ids of the columns that `keep` is to be given."""
        return list(dict.fromkeys(column for ids, _ in self.groups for column in ids))

    def keep(self, start: int, rows: int, keys: pa.RecordBatch) -> Mask | None:
        """Return which rows are not deleted; None for all."""
        gone = np.zeros(rows, np.bool_)
        for positions in self.positions:
            gone |= positions.mask(start, rows)
        for ids, deletes in self.groups:
            mine = keys.select([str(column) for column in ids])
            gone |= deletes.deleted(mine, self.sequence_number)
        count = int(np.count_nonzero(gone))
        self.deletes.dropped += count
        return ~gone if count else None

    def leaves(self, start: int, rows: int) -> bool:
        """Return whether a row of a range may be left; if none is, they count as dropped."""
        gone = np.zeros(rows, np.bool_)
        for positions in self.positions:
            gone |= positions.mask(start, rows)
        if gone.all():
            self.deletes.dropped += rows
            return False
        return True


def read_rows(
    storage: Storage, files: Iterable[FileSlice], settings: ReadSettings, deletes: Deletes
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of files that are not deleted; see `lake.core.rows.reader.read_batches`."""
    for file in files:
        yield from read_batches(storage, file, settings, deletes)


def _grouped(
    deletes: Iterable[DeleteFile], settings: ReadSettings
) -> dict[Group, list[DeleteFile]]:
    groups: dict[Group, list[DeleteFile]] = defaultdict(list)
    for item in deletes:
        everywhere = is_global(settings.specs[item.spec_id])
        scope = None if everywhere else (item.spec_id, item.partition)
        groups[scope, tuple(sorted(set(item.equality_ids or ())))].append(item)
    return dict(groups)
