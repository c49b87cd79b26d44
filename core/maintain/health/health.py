"""Measure the tables of a catalog, several at a time; each becomes one row, and its entries are released."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from lake.core.base.choices import HealthSort
from lake.core.base.errors import LakeError, NotATableError, NotFoundError
from lake.core.base.outcome import Outcome, Status
from lake.core.base.progress import Meter, shown
from lake.core.io.storage.work_ahead import ahead
from lake.core.maintain.health.costs import costs_of
from lake.core.maintain.health.facts import HealthFacts, HealthResult, ViewFacts
from lake.core.maintain.health.files import write_prometheus, write_rows
from lake.core.maintain.health.grade import BAD, DUE, GOOD, wasted
from lake.core.maintain.health.measure import measured, selected, unreadable
from lake.core.maintain.health.report import details, notes
from lake.core.maintain.health.survey import MOST_ENTRIES
from lake.core.maintain.health.table_view import view_details, view_of
from lake.core.read.exports.destinations import refuse_inside
from lake.core.table.catalogs.names import load_listed, require_existing
from lake.core.table.catalogs.patterns import is_glob

if TYPE_CHECKING:
    from lake.core.read.exports.destinations import Output
    from lake.core.transaction.session import Session

# More would wait for Python's lock, and each has the entries of a table in memory.
_THREADS = 8
# What no row shows, because it takes listings of folders or of other programs' state.
NOT_LOOKED_AT = ("orphans", "pending checkpoints", "other branches")
_RANKS = {None: 0, BAD: 1, DUE: 2, GOOD: 3}


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthOptions:
    """How the tables are shown.

    Args:
        sort: the order of the rows.
        fail_on: the best grade that makes the outcome suspect; None for none.
        explain: show the thresholds of other tools beside the measures.
        prometheus: the metrics file to replace; None for none.
        output: where rows are written; None for nowhere.
    """

    sort: HealthSort = HealthSort.NEED
    fail_on: str | None = None
    explain: bool = False
    prometheus: str | None = None
    output: Output | None = None

    @property
    def paths(self) -> list[str]:
        """What is written to; empty texts for streams."""
        return [self.prometheus or "", self.output.path if self.output else ""]


def health(session: Session, patterns: Sequence[str], options: HealthOptions) -> Outcome:
    """Return a row for each table that a pattern selects; without patterns, for each table of the catalog.

    A table that cannot be read is a row with its error.

    Raises:
        RefusedError: a file would be written into the folder of a table.
        NotFoundError: a pattern selects nothing, or the catalog does not exist.
        NotATableError: a pattern is the name of a view.
        BadInputError: a file cannot be written.
        LakeError: the catalog cannot be read.
    """
    now_ms = session.clock.now_ms()
    with shown(session.progress, Meter("reading metadata")):
        alone = _one(session, patterns, now_ms, options.paths)
        rows = _several(session, patterns, now_ms, options.paths) if alone is None else [alone.row]
    rows.sort(key=_order(options.sort))
    view = alone.view if alone else None
    # Standard output then has the rows only.
    is_streamed = options.output is not None and options.output.stream is not None
    if options.output is not None:
        write_rows(rows, options.output)
    if options.prometheus is not None:
        write_prometheus(rows, options.prometheus, session.catalog.name, ids=session.ids)
    result = HealthResult(tables=rows, not_looked_at=NOT_LOOKED_AT, view=view)
    shown_rows = details(result, now_ms, explain=options.explain)
    return Outcome(
        status=_status(rows, options.fail_on),
        result=result,
        details=[] if is_streamed else [*shown_rows, *(view_details(view) if view else ())],
        notes=notes(result, explain=options.explain),
    )


class _Alone(NamedTuple):
    """A table that was named, and its view if it could be read."""

    row: HealthFacts
    view: ViewFacts | None = None


def _one(
    session: Session, patterns: Sequence[str], now_ms: int, paths: Sequence[str]
) -> _Alone | None:
    """Return the row of a table that is named; None if the patterns select tables among those of the catalog."""
    if len(patterns) != 1 or "." not in patterns[0] or is_glob(patterns[0]):
        return None
    name = patterns[0]
    namespace = name.rpartition(".")[0]
    try:
        table = session.catalog.load(name)
    except NotATableError:
        raise
    except NotFoundError:
        # It may be the name of a namespace, or of a table whose metadata is missing.
        return None
    except LakeError as error:
        return _Alone(unreadable(namespace, name, error))
    for path in paths:
        refuse_inside(path, table)
    try:
        row, found = measured(table, namespace, now_ms, most_entries=None)
    except LakeError as error:
        return _Alone(unreadable(namespace, name, error))
    if found is None:
        return _Alone(row)
    return _Alone(row, view_of(found, row.metadata_bytes, costs_of(table.metadata.location)))


def _several(
    session: Session, patterns: Sequence[str], now_ms: int, paths: Sequence[str]
) -> list[HealthFacts]:
    require_existing(session.catalog)
    names, rows = selected(session.catalog, patterns)

    def row(item: tuple[str, str]) -> HealthFacts | None:
        namespace, name = item
        try:
            table = load_listed(session.catalog, name)
        except NotATableError:
            return None
        except LakeError as error:
            return unreadable(namespace, name, error)
        if table is None:
            return None
        for path in paths:
            refuse_inside(path, table)
        try:
            return measured(table, namespace, now_ms, most_entries=MOST_ENTRIES)[0]
        except LakeError as error:
            return unreadable(namespace, name, error)

    meter = Meter("reading tables", tasks=len(names))
    with shown(session.progress, meter), ThreadPoolExecutor(_THREADS) as threads:
        for found in ahead(threads, row, names, 2 * _THREADS):
            meter.advance(tasks=1)
            if found is not None:
                rows.append(found)
    return rows


def _status(rows: Sequence[HealthFacts], fail_on: str | None) -> Status:
    if any(row.error is not None for row in rows):
        return Status.PARTIAL
    failing = {None: set(), DUE: {DUE, BAD}, BAD: {BAD}}[fail_on]
    return Status.SUSPECT if any(row.grade in failing for row in rows) else Status.DONE


def _order(sort: HealthSort) -> Callable[[HealthFacts], tuple[object, ...]]:
    """Return the key of the order; rows of equal measures are sorted by their names."""

    def number(row: HealthFacts) -> float:
        if sort is HealthSort.NEED:
            return wasted(row)
        measures = {
            HealthSort.FILES: row.reading.files,
            HealthSort.BYTES: row.reading.bytes,
            HealthSort.GROWTH: row.growth_bytes,
        }
        return measures.get(sort) or 0

    def key(row: HealthFacts) -> tuple[object, ...]:
        name = row.table or row.namespace
        if sort is HealthSort.NAME:
            return (name,)
        rank = _RANKS[row.grade] if sort is HealthSort.NEED else 0
        return (rank, -number(row), name)

    return key
