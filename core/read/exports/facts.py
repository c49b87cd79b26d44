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
    rows_without_partner: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadResult(Facts):
    """The rows that were written or shown; `bytes_written` is None for a stream and a device."""

    rows: int = 0
    bytes_written: int | None = None
    files: int = 0
    preview: Sequence[Mapping[str, Any]] | None = omitted()
    keys: KeyCounts | None = inlined()
