"""What the commands that inspect tables found, as their JSON documents have it."""

from __future__ import annotations

from dataclasses import dataclass

from lake.core.base.facts import Facts


@dataclass(frozen=True, slots=True, kw_only=True)
class InspectFacts(Facts):
    """The metadata table that was read; `rows_found` is None if its rows must be read to count them."""

    metadata_table: str = ""
    rows_found: int | None = None
