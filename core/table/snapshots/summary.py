"""A snapshot's summary, computed as Iceberg Java computes it.

Source: org.apache.iceberg.SnapshotSummary. Counters are written only if they are above zero; totals are the
parent's plus the difference, and are omitted if the parent's are missing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from lake.core.base.units import natural_number
from lake.core.spec.properties.table_properties import PARTITION_SUMMARIES
from lake.core.spec.types.partition_codes import partition_tuples
from lake.core.spec.types.partition_paths import partition_path
from lake.core.spec.types.single_values import partition_type, single_values
from lake.core.table.manifests.data_files import DATA, EQUALITY_DELETES, POSITION_DELETES
from lake.core.table.metadata.summaries import properties_of

if TYPE_CHECKING:
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot

# Marks a snapshot that replaced the partitions it added files to.
REPLACE_PARTITIONS = "replace-partitions"
_TOTALS = {
    "total-records": ("added-records", "deleted-records"),
    "total-files-size": ("added-files-size", "removed-files-size"),
    "total-data-files": ("added-data-files", "deleted-data-files"),
    "total-delete-files": ("added-delete-files", "removed-delete-files"),
    "total-position-deletes": ("added-position-deletes", "removed-position-deletes"),
    "total-equality-deletes": ("added-equality-deletes", "removed-equality-deletes"),
}

# What the totals of a snapshot are counted from.
COUNTED_COLUMNS = (
    "content",
    "file_format",
    "record_count",
    "file_size_in_bytes",
    "content_size_in_bytes",
)

# The totals by the names that they have in lake's output.
TOTALS = {
    "rows_at_most": "total-records",
    "files": "total-data-files",
    "delete_files": "total-delete-files",
    "bytes": "total-files-size",
}


# The order in which Java writes the counters of a partition.
_OF_PARTITIONS = (
    "added-data-files",
    "deleted-data-files",
    "added-equality-delete-files",
    "removed-equality-delete-files",
    "added-position-delete-files",
    "removed-position-delete-files",
    "added-delete-files",
    "removed-delete-files",
    "added-dvs",
    "removed-dvs",
    "added-records",
    "deleted-records",
    "added-files-size",
    "removed-files-size",
    "added-position-deletes",
    "removed-position-deletes",
    "added-equality-deletes",
    "removed-equality-deletes",
)


@cache
def engine_marks() -> Mapping[str, str]:
    """Return the summary keys that identify the software that wrote a snapshot.

    The metadata of the installed distributions is parsed once per process.

    Lake writes the manifests and the summary, PyIceberg sends the commit: ``iceberg-version`` names both.
    """
    own = version("lake-iceberg")
    return {
        "engine-name": "lake",
        "engine-version": own,
        "iceberg-version": f"lake {own}, PyIceberg {version('pyiceberg')}",
    }


def declared_totals(snapshot: Snapshot | None) -> dict[str, int | None]:
    """Return the `TOTALS` that a snapshot's summary declares, and its rows; None for what it does not.

    ``rows`` is None if there are delete files, which delete some of the ``rows_at_most`` rows. Without a snapshot,
    all are 0.
    """
    if snapshot is None:
        return {"rows": 0, **dict.fromkeys(TOTALS, 0)}
    summary = properties_of(snapshot)
    totals = {name: natural_number(summary.get(key) or "") for name, key in TOTALS.items()}
    is_exact = totals["delete_files"] == 0
    return {"rows": totals["rows_at_most"] if is_exact else None, **totals}


def counted_totals(by_spec: Mapping[int, pa.Table]) -> dict[str, str]:
    """Return all totals of a snapshot, counted from its live entries (`COUNTED_COLUMNS`)."""
    counter = SummaryCounter()
    for entries in by_spec.values():
        counter.count_files(entries)
    return {total: str(counter.counters.get(plus, 0)) for total, (plus, _) in _TOTALS.items()}


@dataclass(slots=True)
class SummaryCounter:
    """Counts what one snapshot adds and removes."""

    counters: dict[str, int] = field(default_factory=dict)
    _partitions: set[tuple[int, Any]] = field(default_factory=set)
    # Entries with their spec, and whether they were added.
    _parts: list[tuple[pa.Table, int, bool]] = field(default_factory=list)

    def add(self, entries: pa.Table, spec_id: int) -> None:
        """Count added files (canonical entry columns)."""
        self._count(entries, spec_id, "added", "added", "added")
        self._parts.append((entries, spec_id, True))

    def remove(self, entries: pa.Table, spec_id: int) -> None:
        """Count removed files (canonical entry columns)."""
        self._count(entries, spec_id, "deleted", "removed", "deleted")
        self._parts.append((entries, spec_id, False))

    def manifests(self, *, created: int, kept: int, replaced: int) -> None:
        """Record how many manifests of the parent were kept or replaced (zeros are written too)."""
        self.counters["manifests-created"] = created
        self.counters["manifests-kept"] = kept
        self.counters["manifests-replaced"] = replaced

    def _count(self, entries: pa.Table, spec_id: int, data: str, other: str, records: str) -> None:
        for values in partition_tuples(entries["partition"]):
            self._partitions.add((spec_id, values))
        self.count_files(entries, data, other, records)

    def count_files(
        self, entries: pa.Table, data: str = "added", other: str = "added", records: str = "added"
    ) -> None:
        """Count files (`COUNTED_COLUMNS`) without their partitions; the words begin the names of the counters."""
        content = entries["content"]
        for kind in (DATA, POSITION_DELETES, EQUALITY_DELETES):
            part = entries.filter(pc.equal(content, kind))
            if part.num_rows == 0:
                continue
            rows = int(pc.sum(part["record_count"]).as_py() or 0)
            self._bump(f"{other}-files-size", int(pc.sum(_stored_size(part)).as_py() or 0))
            if kind == DATA:
                self._bump(f"{data}-data-files", part.num_rows)
                self._bump(f"{records}-records", rows)
            else:
                self._count_deletes(part, kind, other, rows)

    def _count_deletes(self, part: pa.Table, kind: int, other: str, rows: int) -> None:
        self._bump(f"{other}-delete-files", part.num_rows)
        if kind == EQUALITY_DELETES:
            self._bump(f"{other}-equality-delete-files", part.num_rows)
            self._bump(f"{other}-equality-deletes", rows)
            return
        vectors = int(pc.sum(pc.equal(part["file_format"], "PUFFIN")).as_py() or 0)
        self._bump(f"{other}-dvs", vectors)
        self._bump(f"{other}-position-delete-files", part.num_rows - vectors)
        self._bump(f"{other}-position-deletes", rows)

    def _bump(self, key: str, amount: int) -> None:
        if amount > 0:
            self.counters[key] = self.counters.get(key, 0) + amount

    def summary(self, previous: Mapping[str, str] | None) -> dict[str, str]:
        """Return the counters and totals; ``previous`` is the parent's summary, None for the first."""
        counted = {key: str(value) for key, value in self.counters.items()}
        counted["changed-partition-count"] = str(len(self._partitions))
        for total, (plus, minus) in _TOTALS.items():
            before = 0 if previous is None else natural_number(previous.get(total, ""))
            if before is not None:
                after = before + self.counters.get(plus, 0) - self.counters.get(minus, 0)
                if after >= 0:
                    counted[total] = str(after)
        return counted

    def partitions(self, metadata: TableMetadata) -> dict[str, str]:
        """Return the counters of each changed partition, unless there are more than the table's limit.

        None are returned if the schema has lost a source column of the spec: the paths of its partitions are
        not known.
        """
        most, changed = PARTITION_SUMMARIES.of(metadata.properties), len(self._partitions)
        specs, schema = metadata.specs(), metadata.schema()
        known = frozenset(schema.field_ids)
        of_known = all(
            item.source_id in known
            for spec_id, _ in self._partitions
            for item in specs[spec_id].fields
        )
        if not 0 < changed <= most or not of_known:
            return {}
        by_path: dict[str, SummaryCounter] = {}
        for entries, spec_id, is_added in self._parts:
            for path, part in _by_path(entries, specs[spec_id], schema):
                counter = by_path.setdefault(path, SummaryCounter())
                (counter.add if is_added else counter.remove)(part, spec_id)
        # The partition of an unpartitioned table does not have a path.
        named = {f"partitions.{path}": item.joined() for path, item in by_path.items() if path}
        return {"partition-summaries-included": "true", **named}

    def joined(self) -> str:
        """Return the counters as one text."""
        counted = ((key, self.counters.get(key)) for key in _OF_PARTITIONS)
        return ",".join(f"{key}={value}" for key, value in counted if value)


def _by_path(
    entries: pa.Table, spec: PartitionSpec, schema: Schema
) -> Iterator[tuple[str, pa.Table]]:
    """Yield the entries of each partition with its path."""
    places: dict[tuple[Any, ...], list[int]] = {}
    for place, values in enumerate(partition_tuples(entries["partition"])):
        places.setdefault(values, []).append(place)
    kinds = partition_type(spec, [schema]).fields
    for rows in places.values():
        part = entries.take(pa.array(rows))
        first = part["partition"].slice(0, 1).combine_chunks()
        partition = [
            single_values(pc.struct_field(first, str(kind.field_id)), kind.field_type)[0]
            for kind in kinds
        ]
        yield partition_path(spec, schema, partition), part


def _stored_size(part: pa.Table) -> Any:
    # A deletion vector shares its Puffin file with others: its own size is that of its blob.
    return pc.if_else(
        pc.is_valid(part["content_size_in_bytes"]),
        part["content_size_in_bytes"],
        part["file_size_in_bytes"],
    )
