"""How many rows each of several equality delete files deletes: the keys of a row are looked up once for all.

Rule: https://iceberg.apache.org/spec/#scan-planning.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lake.core.data.deletes.equality import INDEX_BYTES
from lake.core.data.deletes.equality_files import read_deleted_keys
from lake.core.data.keys.index import NOT_FOUND, KeyIndex
from lake.core.table.manifests.data_files import DeleteFile

if TYPE_CHECKING:
    from lake.core.data.rows.reader import ReadSettings
    from lake.core.io.storage.storage import Storage

# The maximum memory of the delete files of a key, in addition to the index.
_OWNER_BYTES = 40


@dataclass(slots=True)
class LoadedKeys:
    """The keys of equality delete files that compare the same columns, read one file after the other."""

    batches: list[pa.RecordBatch] = field(default_factory=list)
    files: list[DeleteFile] = field(default_factory=list)
    # The number of the file of each batch.
    owners: list[int] = field(default_factory=list)

    @property
    def needed_bytes(self) -> int:
        """The approximate memory of counting with these keys."""
        return sum(
            3 * batch.nbytes + (INDEX_BYTES + _OWNER_BYTES) * batch.num_rows
            for batch in self.batches
        )

    def add(self, file: DeleteFile, batches: Sequence[pa.RecordBatch]) -> None:
        """Add the keys of a file."""
        self.owners += [len(self.files)] * len(batches)
        self.files.append(file)
        self.batches += batches


def load_keys(
    storage: Storage,
    files: Sequence[DeleteFile],
    ids: Sequence[int],
    settings: ReadSettings,
    *,
    memory_bytes: int,
) -> Iterator[LoadedKeys | DeleteFile]:
    """Read equality delete files that compare the same columns; yield as many at once as fit in memory.

    Yields:
        Keys, or a delete file whose keys alone do not fit in memory.

    Raises:
        CorruptFileError: a file contradicts its format or the table's metadata.
        RefusedError: its format is not known, or a key column is nested.
    """
    loaded = LoadedKeys()
    for file in files:
        own = LoadedKeys()
        for batch, _ in read_deleted_keys(storage, [file], ids, settings):
            own.batches.append(batch)
            if own.needed_bytes > memory_bytes:
                break
        if own.needed_bytes > memory_bytes:
            yield file
            continue
        if loaded.files and loaded.needed_bytes + own.needed_bytes > memory_bytes:
            yield loaded
            loaded = LoadedKeys()
        loaded.add(file, own.batches)
    if loaded.files:
        yield loaded


class EqualityCounts:
    """Counts the rows that each of some equality delete files deletes; pass each row's keys once.

    A row that several of them delete counts for each.
    """

    def __init__(self, loaded: LoadedKeys) -> None:
        """Index keys and release the batches."""
        self.files = tuple(loaded.files)
        self.rows = np.zeros(len(self.files), np.int64)
        self._sequences = np.array([file.sequence_number for file in self.files], np.int64)
        self.latest = int(self._sequences.max(initial=-1))
        self._index: KeyIndex | None = None
        if not loaded.batches:
            return
        table = pa.Table.from_batches(loaded.batches).combine_chunks()
        sizes = [batch.num_rows for batch in loaded.batches]
        owners = np.repeat(np.array(loaded.owners, np.int64), sizes)
        loaded.batches.clear()
        self._index = KeyIndex.build(table)
        found = [self._index.find(batch) for batch in table.to_batches()]
        # The files of each key, without repetitions, in the order of the keys' numbers.
        pairs = np.concatenate([np.zeros(0, np.int64), *found]) * len(self.files) + owners
        keys, self._owners = np.divmod(np.unique(pairs), len(self.files))
        counts = np.bincount(keys, minlength=table.num_rows)
        self._starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])

    def add(self, keys: pa.RecordBatch, sequence_number: int) -> None:
        """Count rows of a data file, given its data sequence number."""
        if self._index is None or sequence_number >= self.latest:
            return
        rows = self._index.find(keys)
        rows = rows[rows != NOT_FOUND]
        starts = self._starts[rows]
        counts = self._starts[rows + 1] - starts
        # For each row, the places of the files of its key.
        ends = np.cumsum(counts)
        places = np.arange(int(ends[-1]) if len(ends) else 0) + np.repeat(
            starts - (ends - counts), counts
        )
        owners = self._owners[places]
        owners = owners[self._sequences[owners] > sequence_number]
        self.rows += np.bincount(owners, minlength=len(self.files))
