"""Measure one table for its row, and select tables by patterns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from lake.core.base.errors import LakeError
from lake.core.base.units import iso_time
from lake.core.maintain.expiration.retention import RetentionOptions
from lake.core.maintain.health.costs import Costs, costs_of
from lake.core.maintain.health.facts import CostFacts, HealthFacts, ReadingFacts
from lake.core.maintain.health.grade import grade_of
from lake.core.maintain.health.history import history_of
from lake.core.maintain.health.past import NOTHING, Past
from lake.core.maintain.health.survey import MOST_ENTRIES, Survey, survey
from lake.core.table.catalogs.names import known_names, namespaces_of
from lake.core.table.catalogs.patterns import matches, may_match, unmatched

if TYPE_CHECKING:
    from lake.core.table.catalogs.catalog import Catalog, Table
    from lake.core.table.catalogs.names import Namespace


class Selected(NamedTuple):
    """The tables that patterns select.

    Args:
        names: their namespaces and names.
        failed: a row for each namespace that cannot be listed.
        spaces: all namespaces of the catalog.
    """

    names: list[tuple[str, str]]
    failed: list[HealthFacts]
    spaces: list[Namespace]


def selected(catalog: Catalog, patterns: Sequence[str], *, list_all: bool = False) -> Selected:
    """Return the tables that patterns select.

    Args:
        catalog: the catalog.
        patterns: names, globs and namespaces; none for all tables.
        list_all: whether the tables of namespaces that no pattern can select from are listed too.

    Raises:
        NotFoundError: a pattern selects nothing.
        LakeError: the catalog cannot be read.
    """
    wanted: Sequence[str | None] = list(patterns) or [None]
    names: list[tuple[str, str]] = []
    failed: list[HealthFacts] = []
    used: set[str | None] = {None}
    spaces = list(namespaces_of(catalog, [None] if list_all else wanted))
    for space in spaces:
        for pattern in wanted:
            listed = (space.name, *space.tables, *space.views)
            if any(matches(name, space.name, pattern) for name in listed):
                used.add(pattern)
        names += [
            (space.name, name)
            for name in space.tables
            if name not in space.unaddressable
            and any(matches(name, space.name, pattern) for pattern in wanted)
        ]
        if space.error is not None:
            hidden = [pattern for pattern in wanted if may_match(space.name, pattern)]
            used.update(hidden)
            if hidden:
                failed.append(unreadable(space.name, None, space.error))
    for pattern in wanted:
        if pattern is not None and pattern not in used:
            raise unmatched(pattern, known_names(spaces))
    return Selected(names, failed, spaces)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the actions would be asked to do; forecasts are made for it.

    Args:
        retention: the options of the expiration.
        compaction: the options of the compaction, see `compaction_options`.
    """

    retention: RetentionOptions = field(default_factory=RetentionOptions)
    compaction: Mapping[str, object] = field(default_factory=dict)


def measured(  # noqa: PLR0913 - each option is used alone
    table: Table,
    namespace: str,
    now_ms: int,
    *,
    most_entries: int | None,
    asked: Asked | None = None,
    with_bounds: bool = False,
    past: Past = NOTHING,
    earlier: Survey | None = None,
) -> tuple[HealthFacts, Survey | None]:
    """Return the row of a table, and what its manifests contain if they were read.

    Args:
        table: the table.
        namespace: the name of its namespace.
        now_ms: the time, in ms since 1970.
        most_entries: the most entries of manifests that are read; None for all.
        asked: what the actions would be asked to do; None for what they do by default.
        with_bounds: also read the bounds of the sort columns.
        past: what past runs show about costs.
        earlier: what its manifests contained before, see `survey`.

    Raises:
        LakeError: its manifests cannot be read, or a property has a value that is not allowed.
    """
    metadata, unknown, asked = table.metadata, [], asked or Asked()
    size: int | None = None
    try:
        size = table.storage.size(table.metadata_location)
    except LakeError:
        unknown.append("the size of the metadata file")
    history = history_of(metadata, size, now_ms, asked.retention)
    if history.refused is not None:
        unknown.append(f"old snapshots: {history.refused}")
    if history.growth_bytes is None:
        unknown.append("growth")
    head = metadata.current_snapshot()
    row = HealthFacts(
        namespace=namespace,
        table=table.identifier,
        reading=ReadingFacts(),
        snapshots=history.snapshots,
        oldest_snapshot=None if history.oldest_ms is None else iso_time(history.oldest_ms),
        metadata_bytes=size,
        last_commit=None if head is None else iso_time(head.timestamp_ms),
        last_rewrite=None if history.rewritten_ms is None else iso_time(history.rewritten_ms),
        growth_bytes=history.growth_bytes,
    )
    found = survey(
        table,
        most_entries=most_entries,
        with_bounds=with_bounds,
        compaction=asked.compaction,
        earlier=earlier,
    )
    if not isinstance(found, Survey):
        unknown.append(f"manifests: more than {MOST_ENTRIES:,} files; name this table alone")
        return replace(row, reading=found, unknown=unknown), None
    if found.deletes.least != found.deletes.most:
        unknown.append("deleted rows")
    costs = past.costs(costs_of(metadata.location), metadata.location)
    grade = grade_of(found, history, costs, past)
    row = replace(
        row,
        reading=found.facts(),
        grade=grade.grade,
        needs=grade.needs,
        scan=grade.scan,
        partition_scan=grade.partition_scan,
        forecasts=grade.forecasts,
        costs=_cost_facts(costs),
        unknown=unknown,
    )
    return row, found


def _cost_facts(costs: Costs) -> CostFacts:
    return CostFacts(
        storage=costs.storage,
        runs=costs.runs,
        file_seconds=round(costs.file, 6),
        manifest_seconds=round(costs.manifest, 6),
        bytes_per_second=round(1 / costs.data_byte),
    )


def unreadable(namespace: str, name: str | None, error: LakeError) -> HealthFacts:
    """Return the row of a table or a namespace that cannot be read."""
    return HealthFacts(namespace=namespace, table=name, reading=ReadingFacts(), error=error.facts())
