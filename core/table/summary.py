"""A snapshot's summary, counted as Iceberg Java counts it.

Source: org.apache.iceberg.SnapshotSummary. Counters stand only where they are above zero; totals are the
parent's plus the difference, and are left out where the parent's is missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lake.core.table.files import DATA, EQUALITY_DELETES, POSITION_DELETES
from lake.core.table.partition_codes import partition_tuples
from lake.core.units import natural_number

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


@dataclass(slots=True)
class SummaryCounter:
    """Counts what one snapshot adds and removes."""

    counters: dict[str, int] = field(default_factory=dict)
    _partitions: set[tuple[int, Any]] = field(default_factory=set)

    def add(self, entries: pa.Table, spec_id: int) -> None:
        """Count added files (canonical entry columns)."""
        self._count(entries, spec_id, "added", "added", "added")

    def remove(self, entries: pa.Table, spec_id: int) -> None:
        """Count removed files (canonical entry columns)."""
        self._count(entries, spec_id, "deleted", "removed", "deleted")

    def manifests(self, *, created: int, kept: int, replaced: int) -> None:
        """Record what became of the parent's manifests (zeros are written too)."""
        self.counters["manifests-created"] = created
        self.counters["manifests-kept"] = kept
        self.counters["manifests-replaced"] = replaced

    def _count(self, entries: pa.Table, spec_id: int, data: str, other: str, records: str) -> None:
        for values in partition_tuples(entries["partition"]):
            self._partitions.add((spec_id, values))
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


def _stored_size(part: pa.Table) -> Any:
    # A deletion vector shares its Puffin file with others: its own size is its blob's.
    return pc.if_else(
        pc.is_valid(part["content_size_in_bytes"]),
        part["content_size_in_bytes"],
        part["file_size_in_bytes"],
    )
