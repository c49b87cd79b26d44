"""What a load into many tables plans and what it did, as its JSON document has it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lake.core.base.facts import ErrorFacts, Facts, inlined


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutedTable(Facts):
    """The load of one table."""

    table: str
    snapshot_id: str | None = None
    """The snapshot of the load, or of an earlier one if the table contained the run; null without one."""
    rows: int = 0
    """Rows that were loaded."""
    created: bool = False
    """Whether the table was created."""
    new_columns: Sequence[str] = ()
    """Columns that were added to it."""
    status: str
    """How the load of this table ended."""
    error: ErrorFacts | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteResult(Facts):
    """What was loaded into each table; a rejected row belongs to none."""

    tables: Sequence[RoutedTable] = ()
    """The tables, and what was loaded into each."""
    rows_read: int = 0
    """Rows that were read."""
    rows_written: int = 0
    """Rows that were loaded."""
    rows_rejected: int = 0
    """Rows that could not be loaded; they belong to no table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteFacts(Facts):
    """How rows are divided among tables; a dry run has what would be loaded too."""

    route: str = ""
    """The column that divides rows among tables."""
    max_tables: int = 0
    """The most tables of the load."""
    files: int = 0
    """Files to load."""
    bytes: int = 0
    """Bytes of these files."""
    run_id: str | None = None
    """The run id; null without one."""
    planned: RouteResult | None = inlined()
