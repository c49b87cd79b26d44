"""What a scan, or a scan of changes, plans, as its JSON document has it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lake.core.base.facts import Facts, inlined, omitted

if TYPE_CHECKING:
    from lake.core.read.scan.scan_keys import PruningFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class RowBounds(Facts):
    """The rows of all files, if metadata shows it, and the most that there can be; None if they are not known."""

    rows: int | None = None
    rows_at_most: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanFacts(Facts):
    """The plan; one of changes has no bounds of its rows."""

    snapshots: int = 0
    files: int = 0
    delete_files: int = 0
    records: int = 0
    bounds: RowBounds | None = inlined()
    bytes: int = 0
    splits: int = 0
    skipped_files: int = 0
    skipped_manifests: int = 0
    pruning: PruningFacts | None = omitted()
