"""The content of a snapshot according to the specification, read without any of lake's code.

fastavro reads manifests, PyArrow reads files, pyroaring reads deletion vectors. Files are immutable, so each is
read once; `missing` checks that they still exist.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import fastavro
import pyarrow.parquet as pq
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot
from pyroaring import BitMap64

DATA, POSITIONS, EQUALITY = 0, 1, 2
EXISTING, ADDED, DELETED = 0, 1, 2
_PATH, _POS = 2147483546, 2147483545
_FIELD_ID = b"PARQUET:field_id"

# A row by field id; None values are omitted.
Row = frozenset[tuple[int, Any]]


@dataclass(frozen=True)
class Entry:
    """A live entry of a snapshot."""

    content: int
    path: str
    format: str
    sequence: int
    file_sequence: int
    spec_id: int
    partition: tuple[Any, ...]
    records: int
    size: int
    equality_ids: tuple[int, ...] = ()
    referenced: str | None = None
    offset: int | None = None
    length: int | None = None

    @property
    def key(self) -> tuple[str, int | None]:
        return self.path, self.offset


@dataclass(frozen=True)
class Contents:
    """A snapshot's live entries, and every file that it needs with its length (None: not recorded)."""

    entries: tuple[Entry, ...]
    files: dict[str, int | None]


def local(location: str) -> str:
    """Return the path of a local file for any spelling of its location."""
    return location.removeprefix("file://").removeprefix("file:")


class Reference:
    """Reads a table's snapshots.

    Args:
        local: returns the path of a local file with a file's content.
    """

    def __init__(self, local: Callable[[str], str] = local) -> None:
        self._local = local
        self._avro: dict[str, list[dict[str, Any]]] = {}
        self._rows: dict[str, list[dict[int, Any]]] = {}
        self._contents: dict[str, Contents] = {}
        self._read_as: dict[str, tuple[int, ...]] = {}

    def renewed(self) -> Reference:
        """Return one that only knows files that were not overwritten since they were read."""
        found = Reference(self._local)
        same = {path for path, known in self._read_as.items() if self._version(path) == known}
        found._avro = {path: self._avro[path] for path in self._avro.keys() & same}
        found._rows = {path: self._rows[path] for path in self._rows.keys() & same}
        found._read_as = {path: self._read_as[path] for path in same}
        return found

    def contents(self, metadata: TableMetadata, snapshot: Snapshot) -> Contents:
        """Return what is live; asserts the rules on sequence numbers and on unique paths."""
        known = self._contents.get(snapshot.manifest_list)
        if known is None:
            known = self._contents[snapshot.manifest_list] = self._read(metadata, snapshot)
        return known

    def _read(self, metadata: TableMetadata, snapshot: Snapshot) -> Contents:
        files: dict[str, int | None] = {snapshot.manifest_list: None}
        entries: list[Entry] = []
        for manifest in self._records(snapshot.manifest_list):
            path = manifest["manifest_path"]
            assert path not in files, f"manifest {path} is listed twice"
            files[path] = manifest["manifest_length"]
            sequence = manifest.get("sequence_number") or 0
            assert sequence <= (snapshot.sequence_number or 0) or metadata.format_version == 1
            for record in self._records(path):
                if record["status"] != DELETED:
                    entries.append(_entry(record, manifest, metadata))
                    files[entries[-1].path] = entries[-1].size
        keys = [entry.key for entry in entries]
        doubled = {key for key in keys if keys.count(key) > 1} if len(set(keys)) < len(keys) else ()
        assert not doubled, f"snapshot {snapshot.snapshot_id} holds {doubled} more than once"
        return Contents(tuple(entries), files)

    def partitions(self, metadata: TableMetadata, snapshot: Snapshot) -> Counter[tuple[int, ...]]:
        """Return the spec and the counts of each partition of a snapshot; see `simulation._COUNTS`."""
        sums: dict[tuple[int, tuple[Any, ...]], list[int]] = {}
        for entry in self.contents(metadata, snapshot).entries:
            counts = sums.setdefault((entry.spec_id, entry.partition), [0] * 7)
            if entry.content == DATA:
                added = (entry.records, 1, entry.size, 0, 0, 0, 0)
            elif entry.content == POSITIONS:
                added = (0, 0, 0, entry.records, int(entry.format != "PUFFIN"), 0, 0)
            else:
                added = (0, 0, 0, 0, 0, entry.records, 1)
            counts[:] = map(sum, zip(counts, added, strict=True))
        return Counter((spec_id, *counts) for (spec_id, _), counts in sums.items())

    def rows(self, metadata: TableMetadata, snapshot: Snapshot) -> list[Row]:
        """Return the rows of a snapshot, with the schema of the snapshot."""
        schema = (
            metadata.schema_by_id(snapshot.schema_id) if snapshot.schema_id is not None else None
        )
        ids = {field.field_id for field in (schema or metadata.schema()).fields}
        live = self.contents(metadata, snapshot).entries
        unpartitioned = {
            spec.spec_id for spec in metadata.partition_specs if spec.is_unpartitioned()
        }
        return [
            frozenset((name, value) for name, value in row.items() if name in ids)
            for _, _, row in self._live_rows(live, unpartitioned)
        ]

    def places(
        self, metadata: TableMetadata, snapshot: Snapshot
    ) -> list[tuple[Entry, int, dict[int, Any]]]:
        """Return the live rows of a snapshot with their data files and positions."""
        live = self.contents(metadata, snapshot).entries
        unpartitioned = {
            spec.spec_id for spec in metadata.partition_specs if spec.is_unpartitioned()
        }
        return list(self._live_rows(live, unpartitioned))

    def _live_rows(
        self, live: Iterable[Entry], unpartitioned: set[int]
    ) -> Iterator[tuple[Entry, int, dict[int, Any]]]:
        positions, keys = self._positions(live), self._keys(live)
        for entry in live:
            if entry.content != DATA:
                continue
            gone = {
                place
                for place, sequence, of in positions.get(entry.path, ())
                if sequence >= entry.sequence and of in {None, (entry.spec_id, entry.partition)}
            }
            applying = [
                (ids, values)
                for ids, values, delete in keys
                if delete.sequence > entry.sequence
                and (
                    delete.spec_id in unpartitioned
                    or (delete.spec_id, delete.partition) == (entry.spec_id, entry.partition)
                )
            ]
            for place, row in enumerate(self._file(entry.path)):
                if place in gone:
                    continue
                if any(tuple(map(row.get, ids)) in values for ids, values in applying):
                    continue
                yield entry, place, row

    def _positions(
        self, live: Iterable[Entry]
    ) -> dict[str, list[tuple[int, int, tuple[int, tuple[Any, ...]] | None]]]:
        """Return by data file the deleted positions, with the delete's sequence number and scope."""
        found = defaultdict(list)
        for entry in live:
            if entry.content != POSITIONS:
                continue
            if entry.format == "PUFFIN":
                assert entry.referenced
                assert entry.length
                assert entry.offset is not None
                path = self._local(entry.path)
                for place in vector(path, entry.offset, entry.length):
                    found[entry.referenced].append((place, entry.sequence, None))
            else:
                scope = (entry.spec_id, entry.partition)
                for row in self._file(entry.path):
                    found[row[_PATH]].append((row[_POS], entry.sequence, scope))
        return found

    def _keys(self, live: Iterable[Entry]) -> list[tuple[tuple[int, ...], set[Any], Entry]]:
        return [
            (
                entry.equality_ids,
                {tuple(map(row.get, entry.equality_ids)) for row in self._file(entry.path)},
                entry,
            )
            for entry in live
            if entry.content == EQUALITY
        ]

    def _file(self, path: str) -> list[dict[int, Any]]:
        if path not in self._rows:
            self._read_as[path] = self._version(path)
            with pq.ParquetFile(self._local(path)) as file:
                table = file.read(use_threads=False)
            ids = [int(field.metadata[_FIELD_ID]) for field in table.schema]
            columns = [column.to_pylist() for column in table.columns]
            self._rows[path] = [
                {name: value for name, value in zip(ids, row, strict=True) if value is not None}
                for row in zip(*columns, strict=True)
            ]
        return self._rows[path]

    def _records(self, path: str) -> list[dict[str, Any]]:
        if path not in self._avro:
            self._read_as[path] = self._version(path)
            with open(self._local(path), "rb") as file:
                self._avro[path] = list(fastavro.reader(file))  # type: ignore[arg-type]
        return self._avro[path]

    def _version(self, path: str) -> tuple[int, ...]:
        try:
            found = os.stat(self._local(path))
        except FileNotFoundError:
            return ()
        return found.st_ino, found.st_size, found.st_mtime_ns


def missing(files: dict[str, int | None], local: Callable[[str], str] = local) -> list[str]:
    """Return the files that do not exist, or have another length than was recorded.

    Args:
        files: the length of each, None if it is not known.
        local: returns the path of a local file with a file's content.
    """
    bad = []
    for path, size in files.items():
        try:
            found = os.stat(local(path)).st_size
        except FileNotFoundError:
            bad.append(f"{path} is gone")
            continue
        if size is not None and found != size:
            bad.append(f"{path} has {found} bytes, not {size}")
    return bad


def _entry(record: dict[str, Any], manifest: dict[str, Any], metadata: TableMetadata) -> Entry:
    file = record["data_file"]
    inherited = manifest.get("sequence_number") or 0
    added = record["status"] == ADDED
    sequence = record.get("sequence_number")
    file_sequence = record.get("file_sequence_number")
    assert added or sequence is not None or metadata.format_version == 1 or inherited == 0
    content = file.get("content") or DATA
    assert (content == DATA) == ((manifest.get("content") or 0) == 0)
    return Entry(
        content=content,
        path=file["file_path"],
        format=file["file_format"],
        sequence=inherited if sequence is None else sequence,
        file_sequence=inherited if file_sequence is None else file_sequence,
        spec_id=manifest["partition_spec_id"],
        partition=tuple(file["partition"].values()),
        records=file["record_count"],
        size=file["file_size_in_bytes"],
        equality_ids=tuple(file.get("equality_ids") or ()),
        referenced=file.get("referenced_data_file"),
        offset=file.get("content_offset"),
        length=file.get("content_size_in_bytes"),
    )


def vector(path: str, offset: int, length: int) -> list[int]:
    """Return the positions of a deletion vector."""
    with open(local(path), "rb") as file:
        file.seek(offset)
        blob = file.read(length)
    # Length, magic, bitmap, checksum.
    assert blob[4:8] == b"\xd1\xd3\x39\x64"
    return list(BitMap64.deserialize(blob[8:-4]))
