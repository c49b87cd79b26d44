"""The live entries of manifests as records that are written again, in the order of their partitions.

Entries with the metrics of columns take much memory. So they are read, sorted and encoded a few manifests at a time,
and their records wait on disk. As those of each window are sorted, a new manifest takes a range of each window.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lake.core.io.avro.container import runs
from lake.core.io.temporary_files import read_at, write_at, written
from lake.core.io.work_ahead import computed
from lake.core.table.manifests.api import (
    DELETED,
    EXISTING,
    MANIFEST_SCHEMA,
    ManifestContext,
    encode_entries,
    pack_manifest,
    read_manifests,
    weight_of,
)
from lake.core.table.manifests.clusters import Clustering, by_partition, clustering_of, even_pieces

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

    from lake.core.io.storage.storage import Storage

# The bytes of manifests that one thread reads at a time.
_WINDOW_BYTES = 2 * 1024 * 1024
# What `describe_manifest`, `by_partition` and `clustering_of` use.
_DESCRIBED = ("status", "sequence_number", "record_count", "partition", "manifest_path")
_ROW = "row"


class RecordSpool:
    """Stores encoded entries in a temporary file without a name; ranges of them can be read by several threads."""

    def __init__(self) -> None:
        """Make the file."""
        self._file = tempfile.TemporaryFile(prefix="lake-entries-", buffering=0)  # noqa: SIM115
        # The places of the first record of each window in the file, and the ends of its records from there.
        self._places: list[int] = []
        self._ends: list[npt.NDArray[np.int64]] = []
        self._size = 0

    def write(self, windows: Sequence[pa.LargeBinaryArray]) -> None:
        """Add the records of a window, in several arrays.

        Raises:
            StorageError: there is not enough space.
        """
        ends = [np.zeros(1, np.int64)]
        self._places.append(self._size)
        for records in windows:
            _, offsets, data = records.buffers()
            own = np.frombuffer(offsets, np.int64, len(records) + 1, records.offset * 8)
            ends.append(ends[-1][-1] + own[1:] - own[0])
            with written("the entries of manifests"):
                write_at(self._file.fileno(), memoryview(data or b"")[own[0] : own[-1]], self._size)
            self._size += int(own[-1] - own[0])
        self._ends.append(np.concatenate(ends))

    @property
    def starts(self) -> npt.NDArray[np.int64]:
        """The number of the first record of each window, and the number of all records."""
        return np.cumsum([0, *(len(ends) - 1 for ends in self._ends)])

    def read(self, window: int, first: int, last: int) -> pa.LargeBinaryArray:
        """Read the records of a window from ``first`` to before ``last``."""
        ends = self._ends[window][first : last + 1]
        place, size = self._places[window] + int(ends[0]), int(ends[-1] - ends[0])
        data = read_at(self._file.fileno(), size, place)
        buffers = [None, pa.py_buffer(np.ascontiguousarray(ends - ends[0])), pa.py_buffer(data)]
        return pa.Array.from_buffers(pa.large_binary(), last - first, buffers)

    def close(self) -> None:
        """Free the disk space."""
        self._file.close()


class ClusteredEntries:
    """The live entries of manifests with one spec and content, all of them with the status EXISTING.

    Args:
        context: what the entries have in common.
        sort_by: the partition fields by which they are sorted; empty for all.
    """

    def __init__(self, context: ManifestContext, sort_by: Sequence[str]) -> None:
        self._context = context
        self._sort_by = sort_by
        self._spool = RecordSpool()
        # The columns that `describe_manifest` uses, and the number of each record.
        self._described = pa.table({})
        # The number of entries that were read, those of deleted files among them.
        self.read = 0

    @property
    def live(self) -> int:
        """The number of entries."""
        return int(self._described.num_rows)

    def add(
        self, storage: Storage, metadata: TableMetadata, manifests: Sequence[Mapping[str, Any]]
    ) -> None:
        """Read manifests, some at a time on each processor.

        Args:
            storage: the storage that contains them.
            metadata: the table's metadata.
            manifests: their rows in the manifest list; at least one.

        Raises:
            CorruptFileError: a manifest cannot be read.
            RefusedError: it has fields that would be lost.
            StorageError: there is not enough space on disk.
            ValueError: an entry cannot be written again.
        """

        def encoded(some: list[Mapping[str, Any]]) -> tuple[int, pa.Table, list[pa.Array]]:
            listed = pa.Table.from_pylist(some, schema=MANIFEST_SCHEMA)
            found = read_manifests(storage, listed, metadata, rewritten=True, threads=1)
            entries = found[self._context.spec.spec_id]
            # check: deleted-entries
            live = entries.filter(pc.not_equal(entries["status"], DELETED))
            existing = pa.repeat(pa.scalar(EXISTING, pa.int32()), live.num_rows)
            place = live.schema.get_field_index("status")
            live = by_partition(
                live.set_column(place, live.schema.field(place), existing), self._sort_by
            )
            records = list(encode_entries(live, self._context))
            return entries.num_rows, live.select(_DESCRIBED).combine_chunks(), records

        windows = runs(manifests, weight_of, _WINDOW_BYTES)
        described = []
        for read, rows, records in computed(encoded, windows):
            self.read += read
            described.append(rows)
            self._spool.write(records)
        every = pa.concat_tables(described).unify_dictionaries().combine_chunks()
        self._described = every.append_column(_ROW, pa.array(np.arange(every.num_rows)))

    def divided(self, most: int) -> list[pa.Table]:
        """Return the entries in the order of their partitions, in pieces of at most ``most``, for new manifests.

        Returns:
            The columns that `describe_manifest` uses, and others.
        """
        return even_pieces(by_partition(self._described, self._sort_by), most)

    def packed(self, pieces: Sequence[pa.Table]) -> Iterator[tuple[pa.Table, bytes]]:
        """Yield pieces of the entries (`divided`) with the bytes of their manifests."""
        partition = self._described.schema.field("partition").type
        starts = self._spool.starts

        def pack(piece: pa.Table) -> tuple[pa.Table, bytes]:
            rows = piece[_ROW].to_numpy()
            return piece, pack_manifest([self._records(rows, starts)], partition, self._context)

        yield from computed(pack, pieces)

    def clustering(self, pieces: Sequence[pa.Table]) -> Clustering:
        """Return how the entries are clustered in the manifests that were read, and in pieces of them (`divided`)."""
        return clustering_of(self._described, pieces)

    def _records(
        self, rows: npt.NDArray[np.int64], starts: npt.NDArray[np.int64]
    ) -> pa.LargeBinaryArray:
        """Return the records with these numbers, in this order; those of one window are adjacent there."""
        order = np.argsort(rows)
        wanted = rows[order]
        ends = np.searchsorted(wanted, starts)
        found = []
        for window in np.flatnonzero(np.diff(ends)).tolist():
            first = int(wanted[ends[window]] - starts[window])
            last = int(wanted[ends[window + 1] - 1] - starts[window]) + 1
            if last - first != ends[window + 1] - ends[window]:
                raise AssertionError("the records of a window are sorted, but not adjacent")
            found.append(self._spool.read(window, first, last))
        back = np.empty(len(rows), np.int64)
        back[order] = np.arange(len(rows))
        return pa.concat_arrays(found).take(pa.array(back))

    def close(self) -> None:
        """Free the disk space."""
        self._spool.close()
