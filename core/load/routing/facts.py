"""What a load into many tables plans and what it did, as its JSON document has it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lake.core.base.facts import ErrorFacts, Facts, inlined


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutedTable(Facts):
    """The load of one table; `snapshot_id` is that of an earlier load if the table contained the run."""

    table: str
    snapshot_id: str | None = None
    rows: int = 0
    created: bool = False
    new_columns: Sequence[str] = ()
    status: str
    error: ErrorFacts | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteResult(Facts):
    """What was loaded into each table; a rejected row belongs to none."""

    tables: Sequence[RoutedTable] = ()
    rows_read: int = 0
    rows_written: int = 0
    rows_rejected: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteFacts(Facts):
    """How rows are divided among tables; a dry run has what would be loaded too."""

    route: str = ""
    max_tables: int = 0
    files: int = 0
    bytes: int = 0
    run_id: str | None = None
    planned: RouteResult | None = inlined()
