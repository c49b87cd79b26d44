"""Read all metadata that a table references, and report what contradicts it; nothing is changed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lake.core.arrow import one_array
from lake.core.avro.container import runs
from lake.core.checking import footers
from lake.core.checking.findings import ERROR, WARNING, Finding, Findings, Level
from lake.core.checking.stored_files import StoredFiles
from lake.core.errors import BadInputError, CommitConflictError, NotFoundError
from lake.core.keys.encoding import hash_keys
from lake.core.manifests.api import (
    DELETED,
    read_list_additions,
    read_manifest_list,
    read_manifests,
)
from lake.core.manifests.data_files import DATA
from lake.core.manifests.schemas import MANIFEST_SCHEMA
from lake.core.outcome import Detail, Outcome, Status
from lake.core.progress import Meter, shown
from lake.core.snapshots.completeness import (
    FileCounts,
    RunningCounts,
    missing_files_message,
    verify_manifest_list,
)
from lake.core.storage.location_columns import normalize_locations

if TYPE_CHECKING:
    from pyiceberg.table.snapshots import Snapshot

    from lake.core.catalogs.catalog import Table
    from lake.core.session import Session

# Checks of a table whose snapshots expire meanwhile.
_ATTEMPTS = 3
_WINDOW_BYTES = 32 * 1024 * 1024
_EQUALITY = 2
_COLUMNS = (
    "status",
    "content",
    "sequence_number",
    "file_path",
    "file_format",
    "record_count",
    "file_size_in_bytes",
    "equality_ids",
    "content_offset",
    "content_size_in_bytes",
)
# The live entries of all manifests. Paths are hashed: the names of millions of files would not fit into memory.
_LIVE = pa.schema(
    [
        ("path", pa.uint64()),
        ("manifest", pa.int32()),
        ("is_data", pa.bool_()),
        ("records", pa.int64()),
    ]
)
_FILE = ("file_path", "file_size_in_bytes", "content_offset")


def check_table(session: Session, table: Table, level: Level) -> Outcome:
    """Check a table: refs, snapshots, manifest lists, manifests, entries, statistics; files and footers if wanted.

    Manifests are read in windows of a bounded size, each manifest once. If files are missing and snapshots expired
    meanwhile, the table as it is then is checked instead.

    Raises:
        CommitConflictError: snapshots expired during each check, so what is missing may have been theirs.
        StorageError: the storage does not answer.
    """
    for _ in range(_ATTEMPTS):
        check = _Check(table, level)
        with shown(session.progress, Meter("checking")):
            found = Findings.of(check.run())
        if not found.count(ERROR) and not found.counts["S002"]:
            break
        now = table.refreshed()
        if _ids(table) <= _ids(now):
            break
        table = now
    else:
        raise CommitConflictError(
            f"snapshots of {table.identifier} expired during each of {_ATTEMPTS} checks",
            hint="run the command again while no snapshots expire",
        )
    errors, warnings = found.count(ERROR), found.count(WARNING)
    status = Status.DAMAGED if errors else Status.SUSPECT if warnings else Status.DONE
    rows = found.rows()
    shown_columns = ("code", "severity", "place", "message")
    return Outcome(
        command="check",
        table=table.identifier,
        status=status,
        base_snapshot_id=table.metadata.current_snapshot_id,
        result={
            "level": level.name.lower(),
            "findings": rows,
            "errors": errors,
            "warnings": warnings,
            "snapshots": len(table.metadata.snapshots),
            "manifests": check.manifests.num_rows,
            "entries": check.entries,
            "files": check.files,
        },
        details=[
            Detail("findings", shown_columns, [[row[key] for key in shown_columns] for row in rows])
        ]
        if rows
        else [],
    )


def _ids(table: Table) -> set[int]:
    return {item.snapshot_id for item in table.metadata.snapshots}


class _Check:
    """The state of one check."""

    def __init__(self, table: Table, level: Level) -> None:
        self.table = table
        self.level = level
        self.metadata = table.metadata
        self.manifests = MANIFEST_SCHEMA.empty_table()
        self.entries = 0
        # The number of different files whose presence was checked.
        self.files = 0
        self._stored = StoredFiles(table)
        self._seen = np.empty(0, np.uint64)
        self._footers = footers.Footers(table)
        self._vectors: list[footers.VectorEnd] = []
        # The indices in `manifests` of each head whose list could be read.
        self._lists: dict[int, Any] = {}
        self._unread: set[int] = set()
        self._live = _LIVE.empty_table()

    def run(self) -> list[Finding]:
        """Return the findings, from refs down to entries."""
        return [
            *self._refs(),
            *self._snapshots(),
            *self._manifest_files(),
            *self._heads(),
            *self._vector_findings(),
            *self._statistics(),
        ]

    def _refs(self) -> Iterator[Finding]:
        known = {item.snapshot_id for item in self.metadata.snapshots}
        for name, ref in sorted(self.metadata.refs.items()):
            if ref.snapshot_id not in known:
                yield Finding("R001", name, f"snapshot {ref.snapshot_id} does not exist")

    def _snapshots(self) -> Iterator[Finding]:
        schemas = {item.schema_id for item in self.metadata.schemas}
        newest = getattr(self.metadata, "last_sequence_number", 0)
        for snapshot in self.metadata.snapshots:
            place = f"snapshot {snapshot.snapshot_id}"
            if snapshot.schema_id is not None and snapshot.schema_id not in schemas:
                yield Finding("R002", place, f"schema {snapshot.schema_id} does not exist")
            if (snapshot.sequence_number or 0) > newest:
                text = f"sequence number {snapshot.sequence_number} is above the table's, {newest}"
                yield Finding("R003", place, text)
        yield from self._manifest_lists()

    def _manifest_lists(self) -> Iterator[Finding]:
        owners: dict[str, list[Snapshot]] = {}
        for snapshot in self.metadata.snapshots:
            owners.setdefault(snapshot.manifest_list, []).append(snapshot)
        heads = {ref.snapshot_id for ref in self.metadata.refs.values()}
        seen: dict[str, int] = {}
        parts, unreadable = [], list[str]()
        running, newest = RunningCounts(), 0
        indices = np.zeros(0, np.int64)
        for found in read_list_additions(self.table.storage, list(owners), unreadable):
            is_new = []
            start = 0
            paths = normalize_locations(found.rows["manifest_path"]).to_pylist()
            sequence_numbers = found.rows["sequence_number"].to_numpy()
            counts = running.of(found)
            for number, location in enumerate(found.locations):
                end = start + found.sizes[number]
                is_new += [path not in seen for path in paths[start:end]]
                own = np.array([seen.setdefault(path, len(seen)) for path in paths[start:end]], int)
                own_newest = max(sequence_numbers[start:end].tolist(), default=0)
                if found.inherited[number]:
                    own = np.concatenate((indices, own))
                    own_newest = max(newest, own_newest)
                start, indices, newest = end, own, own_newest
                for snapshot in owners[location]:
                    if snapshot.snapshot_id in heads:
                        self._lists[snapshot.snapshot_id] = indices
                    yield from self._list(snapshot, newest, counts[number])
            parts.append(
                found.rows.select(MANIFEST_SCHEMA.names).filter(pa.array(is_new, pa.bool_()))
            )
        self.manifests = pa.concat_tables([self.manifests, *parts])
        for location in unreadable:
            yield self._unreadable(location)

    def _list(self, snapshot: Snapshot, newest: int, counts: FileCounts) -> Iterator[Finding]:
        place = snapshot.manifest_list
        if newest > (snapshot.sequence_number or 0):
            text = (
                f"a manifest has sequence number {newest}, the snapshot {snapshot.sequence_number}"
            )
            yield Finding("L004", place, text)
        elif missing_files_message(self.metadata, snapshot, counts):
            storage = self.table.storage
            try:
                # Asks the entries too: summaries and counts of some writers are wrong without damage.
                rows = read_manifest_list(storage, place)
                verify_manifest_list(storage, self.metadata, snapshot, rows)
            except BadInputError as error:
                yield Finding("L003", place, error.message)

    def _unreadable(self, location: str) -> Finding:
        try:
            read_manifest_list(self.table.storage, location)
        except NotFoundError as error:
            return Finding("L001", location, error.message)
        except BadInputError as error:
            return Finding("L002", location, error.message)
        return Finding("L002", location, "two reads of the list differ")

    def _manifest_files(self) -> Iterator[Finding]:
        specs = self.metadata.specs()
        rows = self.manifests.to_pylist()
        known = []
        for index, row in enumerate(rows):
            if row["partition_spec_id"] in specs:
                known.append(index)
            else:
                self._unread.add(index)
                text = f"partition spec {row['partition_spec_id']} does not exist"
                yield Finding("M003", row["manifest_path"], text)
        for window in runs(known, lambda index: int(rows[index]["manifest_length"]), _WINDOW_BYTES):
            try:
                yield from self._read(window)
            except BadInputError:
                # At least one is damaged: read each separately, so that the finding names it.
                for index in window:
                    place = rows[index]["manifest_path"]
                    try:
                        yield from self._read([index])
                    except NotFoundError as error:
                        self._unread.add(index)
                        yield Finding("M001", place, error.message)
                    except BadInputError as error:
                        self._unread.add(index)
                        yield Finding("M002", place, error.message)

    def _read(self, window: list[int]) -> list[Finding]:
        chosen = self.manifests.take(pa.array(window, pa.int64()))
        read = read_manifests(self.table.storage, chosen, self.metadata, columns=self._columns())
        found: list[Finding] = []
        parts = []
        names = chosen["manifest_path"].combine_chunks()
        for entries in read.values():
            self.entries += entries.num_rows
            live = entries.filter(pc.not_equal(entries["status"], DELETED))
            found += self._entry_findings(live)
            owners = pc.index_in(live["manifest_path"].cast(pa.string()), value_set=names)
            positions = pa.array(window, pa.int32()).take(owners.combine_chunks())
            part = pa.table(
                [
                    pa.chunked_array([pa.array(_hashes(live))]),
                    pa.chunked_array([positions]),
                    pc.equal(live["content"], DATA),
                    live["record_count"],
                ],
                schema=_LIVE,
            )
            parts.append(part)
            if self.level >= Level.FILES:
                found += self._file_findings(live)
        self._live = pa.concat_tables([self._live, *parts])
        return found

    def _file_findings(self, live: pa.Table) -> Iterator[Finding]:
        """Check the files that were not checked before."""
        hashes, first = np.unique(_hashes(live, _FILE), return_index=True)
        is_new = ~np.isin(hashes, self._seen, assume_unique=True)
        self._seen = np.union1d(self._seen, hashes[is_new])
        new = live.take(pa.array(np.sort(first[is_new])))
        self.files += new.num_rows
        damaged = list(self._stored.findings(new))
        yield from damaged
        if self.level >= Level.ROWS:
            places = pa.array({item.place for item in damaged}, pa.string())
            whole = new.filter(pc.invert(pc.is_in(new["file_path"], value_set=places)))
            for report in self._footers.reports(whole):
                self._vectors += report.vectors
                yield from report.findings

    def _columns(self) -> tuple[str, ...]:
        return (*_COLUMNS, *footers.COLUMNS) if self.level >= Level.ROWS else _COLUMNS

    def _vector_findings(self) -> Iterator[Finding]:
        """Compare the last position of each deletion vector with the number of rows of its data file."""
        if not self._vectors:
            return
        names = pa.table({"file_path": [item.data_file for item in self._vectors]})
        data = self._live.filter(self._live["is_data"])
        at = pc.index_in(pa.array(_hashes(names)), value_set=data["path"].combine_chunks())
        counts = data["records"].take(at).to_pylist()
        for item, count in zip(self._vectors, counts, strict=True):
            if count is not None and item.last >= count:
                text = f"deletes row {item.last} of {item.data_file}, which has {count} rows"
                yield Finding("V002", item.place, text)

    def _entry_findings(self, live: pa.Table) -> Iterator[Finding]:
        lengths = pc.fill_null(pc.list_value_length(live["equality_ids"]), 0)
        bad = pc.and_(pc.equal(live["content"], _EQUALITY), pc.equal(lengths, 0))
        for path in live["file_path"].filter(bad).to_pylist():
            yield Finding("E002", path, "an equality delete file without column ids")
        end = pc.add(live["content_offset"], live["content_size_in_bytes"])
        beyond = pc.fill_null(pc.greater(end, live["file_size_in_bytes"]), fill_value=False)
        for path in live["file_path"].filter(beyond).to_pylist():
            yield Finding("E003", path, "a deletion vector ends after the end of its file")

    def _heads(self) -> Iterator[Finding]:
        """Check what the heads of branches and tags contain as a whole."""
        by_id = {item.snapshot_id: item for item in self.metadata.snapshots}
        for snapshot_id in sorted({ref.snapshot_id for ref in self.metadata.refs.values()}):
            wanted = self._lists.get(snapshot_id)
            if wanted is None or self._unread.intersection(wanted.tolist()):
                continue
            held = self._live.filter(
                pc.is_in(self._live["manifest"], value_set=pa.array(wanted, pa.int64()))
            )
            data = held.filter(held["is_data"])
            for path in self._duplicates(data):
                yield Finding("E001", path, f"snapshot {snapshot_id} contains the file twice")
            yield from _totals(by_id[snapshot_id], data, held.num_rows - data.num_rows)

    def _duplicates(self, data: pa.Table) -> list[str]:
        """Return the paths that several entries of one snapshot have."""
        hashes, counts = np.unique(data["path"].to_numpy(), return_counts=True)
        suspect = pa.array(hashes[counts > 1], pa.uint64())
        if not len(suspect):
            return []
        # Different paths may have one hash, so the paths are read again.
        owners = data.filter(pc.is_in(data["path"], value_set=suspect))["manifest"].unique()
        by_spec = read_manifests(
            self.table.storage,
            self.manifests.take(owners),
            self.metadata,
            columns=("status", "content", "file_path"),
            live_only=True,
        )
        paths = []
        for entries in by_spec.values():
            chosen = pc.and_(
                pc.equal(entries["content"], DATA),
                pc.is_in(pa.array(_hashes(entries)), value_set=suspect),
            )
            paths.append(normalize_locations(entries["file_path"].filter(chosen)))
        counted = pc.value_counts(pa.concat_arrays(paths))
        twice = counted.filter(pc.greater(counted.field("counts"), 1)).field("values")
        return sorted(twice.to_pylist())

    def _statistics(self) -> Iterator[Finding]:
        known = {item.snapshot_id for item in self.metadata.snapshots}
        for item in (*self.metadata.statistics, *self.metadata.partition_statistics):
            place = item.statistics_path
            if item.snapshot_id not in known:
                yield Finding("S001", place, f"snapshot {item.snapshot_id} does not exist")
            try:
                size = self.table.storage.size(place)
            except BadInputError as error:
                yield Finding("S002", place, error.message)
                continue
            if size != item.file_size_in_bytes:
                text = f"has {size} bytes, the metadata declares {item.file_size_in_bytes}"
                yield Finding("S002", place, text)


def _hashes(entries: pa.Table, columns: Sequence[str] = _FILE[:1]) -> npt.NDArray[np.uint64]:
    """Return a hash per entry, equal for entries of the same file."""
    arrays = [
        normalize_locations(entries[name]) if name == "file_path" else one_array(entries[name])
        for name in columns
    ]
    return hash_keys(pa.RecordBatch.from_arrays(arrays, names=list(columns)))


def _totals(snapshot: Snapshot, data: pa.Table, deletes: int) -> Iterator[Finding]:
    summary = snapshot.summary.additional_properties if snapshot.summary else {}
    actual = {
        "total-data-files": data.num_rows,
        "total-delete-files": deletes,
        "total-records": pc.sum(data["records"]).as_py() or 0,
    }
    for key, number in actual.items():
        text = summary.get(key)
        if text is not None and text != str(number):
            message = f"{key} is {text[:40]}, the manifests contain {number}"
            yield Finding("T001", f"snapshot {snapshot.snapshot_id}", message)
