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
    """The exact number of rows; null if metadata does not show it, and with a filter."""
    rows_at_most: int | None = None
    """Rows without those that are certainly deleted; null with a filter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanFacts(Facts):
    """The plan; one of changes has no bounds of its rows."""

    snapshots: int = 0
    """Snapshots that are read."""
    files: int = 0
    """Data files to read."""
    delete_files: int = 0
    """Delete files that apply to them."""
    records: int = 0
    """Rows of the files, with deleted ones."""
    bounds: RowBounds | None = inlined()
    bytes: int = 0
    """Bytes to read."""
    splits: int = 0
    """The splits of the files."""
    skipped_files: int = 0
    """Data files that the filter excludes."""
    skipped_manifests: int = 0
    """Manifests that the filter excludes."""
    pruning: PruningFacts | None = omitted()
    """With `prune_with=`, what the keys exclude."""
