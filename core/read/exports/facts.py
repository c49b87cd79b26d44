"""What a read of a table gave, as its JSON document has it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lake.core.base.facts import Facts, inlined, omitted


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyCounts(Facts):
    """What the keys of a scan excluded while it was read."""

    row_groups_skipped: int = 0
    """With `prune_with=`, row groups that were not read."""
    rows_without_partner: int = 0
    """With `prune_with=`, rows that were read and left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadResult(Facts):
    """The rows that were written or shown."""

    rows: int = 0
    """Rows that were written or shown."""
    bytes_written: int | None = None
    """Bytes that were written; null for a stream and a device."""
    files: int = 0
    """Files that were written."""
    preview: Sequence[Mapping[str, Any]] | None = omitted()
    """Without `output=`, the first rows: 20 of them, or as many as `limit=` allows."""
    keys: KeyCounts | None = inlined()
