"""Read all metadata that a table references, and report what contradicts it; nothing is changed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lake.core.checking.findings import ERROR, KINDS, Finding
from lake.core.errors import BadInputError, NotFoundError
from lake.core.manifests.api import DELETED, read_manifest_list, read_manifests
from lake.core.manifests.data_files import DATA
from lake.core.manifests.read import runs
from lake.core.manifests.schemas import MANIFEST_SCHEMA
from lake.core.outcome import Detail, Outcome, Status
from lake.core.snapshots.completeness import verify_manifest_list
from lake.core.storage.location_columns import normalize_locations

if TYPE_CHECKING:
    from pyiceberg.table.snapshots import Snapshot

    from lake.core.catalogs.catalog import Table

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
_LIVE = pa.schema(
    [
        ("path", pa.string()),
        ("manifest", pa.int64()),
        ("is_data", pa.bool_()),
        ("records", pa.int64()),
    ]
)


def check_table(table: Table) -> Outcome:
    """Check a table's metadata: refs, snapshots, manifest lists, manifests, entries and statistics.

    Manifests are read in windows of a bounded size, each manifest once.

    Raises:
        StorageError: the storage does not answer.
    """
    check = _Check(table)
    found = check.run()
    errors = sum(KINDS[item.code].severity == ERROR for item in found)
    status = Status.DAMAGED if errors else Status.SUSPECT if found else Status.DONE
    rows = [
        {
            "code": item.code,
            "severity": KINDS[item.code].severity,
            "place": item.place,
            "message": item.message,
            "effect": KINDS[item.code].effect,
            "remedy": KINDS[item.code].remedy,
        }
        for item in found
    ]
    shown = ("code", "severity", "place", "message")
    return Outcome(
        command="check",
        table=table.identifier,
        status=status,
        base_snapshot_id=table.metadata.current_snapshot_id,
        result={
            "findings": rows,
            "errors": errors,
            "warnings": len(rows) - errors,
            "snapshots": len(table.metadata.snapshots),
            "manifests": check.manifests.num_rows,
            "entries": check.entries,
        },
        details=[Detail("findings", shown, [[row[key] for key in shown] for row in rows])]
        if rows
        else [],
    )


class _Check:
    """The state of one check."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.metadata = table.metadata
        self.manifests = MANIFEST_SCHEMA.empty_table()
        self.entries = 0
        # The indices in `manifests` of each snapshot whose list could be read.
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
        seen: dict[str, int] = {}
        parts = []
        for snapshot in self.metadata.snapshots:
            place = f"snapshot {snapshot.snapshot_id}"
            if snapshot.schema_id is not None and snapshot.schema_id not in schemas:
                yield Finding("R002", place, f"schema {snapshot.schema_id} does not exist")
            if (snapshot.sequence_number or 0) > newest:
                text = f"sequence number {snapshot.sequence_number} is above the table's, {newest}"
                yield Finding("R003", place, text)
            rows, finding = self._list(snapshot)
            if finding:
                yield finding
            if rows is None:
                continue
            paths = normalize_locations(rows["manifest_path"]).to_pylist()
            is_new = []
            for path in paths:
                is_new.append(path not in seen)
                seen.setdefault(path, len(seen))
            self._lists[snapshot.snapshot_id] = np.array([seen[path] for path in paths], np.int64)
            parts.append(rows.select(MANIFEST_SCHEMA.names).filter(pa.array(is_new, pa.bool_())))
        self.manifests = pa.concat_tables([self.manifests, *parts])

    def _list(self, snapshot: Snapshot) -> tuple[pa.Table | None, Finding | None]:
        place = snapshot.manifest_list
        try:
            rows = read_manifest_list(self.table.storage, place)
        except NotFoundError as error:
            return None, Finding("L001", place, error.message)
        except BadInputError as error:
            return None, Finding("L002", place, error.message)
        newest = pc.max(rows["sequence_number"]).as_py()
        if newest is not None and newest > (snapshot.sequence_number or 0):
            text = (
                f"a manifest has sequence number {newest}, the snapshot {snapshot.sequence_number}"
            )
            return rows, Finding("L004", place, text)
        try:
            # Asks the entries too: summaries and counts of some writers are wrong without damage.
            verify_manifest_list(self.table.storage, self.metadata, snapshot, rows)
        except BadInputError as error:
            return rows, Finding("L003", place, error.message)
        return rows, None

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
        read = read_manifests(self.table.storage, chosen, self.metadata, columns=_COLUMNS)
        found: list[Finding] = []
        names = chosen["manifest_path"].combine_chunks()
        for entries in read.values():
            self.entries += entries.num_rows
            live = entries.filter(pc.not_equal(entries["status"], DELETED))
            found += self._entry_findings(live)
            owners = pc.index_in(live["manifest_path"].cast(pa.string()), value_set=names)
            positions = pa.array(window, pa.int64()).take(owners.combine_chunks())
            part = pa.table(
                [
                    pa.chunked_array([normalize_locations(live["file_path"])]),
                    pa.chunked_array([positions]),
                    pc.equal(live["content"], DATA),
                    live["record_count"],
                ],
                schema=_LIVE,
            )
            self._live = pa.concat_tables([self._live, part])
        return found

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
            counts = pc.value_counts(data["path"])
            twice = counts.filter(pc.greater(counts.field("counts"), 1)).field("values")
            for path in twice.to_pylist():
                yield Finding("E001", path, f"snapshot {snapshot_id} contains the file twice")
            yield from _totals(by_id[snapshot_id], data, held.num_rows - data.num_rows)

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
