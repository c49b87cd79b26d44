"""Measure the tables of a catalog, several at a time; each becomes one row, and its entries are released."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from lake.core.base.choices import HealthSort
from lake.core.base.errors import LakeError, NotATableError, NotFoundError
from lake.core.base.outcome import Outcome, Status
from lake.core.base.progress import Meter, shown
from lake.core.io.work_ahead import looked_up
from lake.core.maintain.health.costs import costs_of
from lake.core.maintain.health.facts import HealthFacts, HealthResult, ViewFacts
from lake.core.maintain.health.files import require_prometheus, write_prometheus, write_rows
from lake.core.maintain.health.grade import BAD, DUE
from lake.core.maintain.health.measure import measured, selected, unreadable
from lake.core.maintain.health.order import FirstViews, order_of
from lake.core.maintain.health.page.page import MOST_SECTIONS, Shown, require_page, write_page
from lake.core.maintain.health.past import NOTHING, Past
from lake.core.maintain.health.report import details, notes
from lake.core.maintain.health.survey import MOST_ENTRIES
from lake.core.maintain.health.table_view import view_details, view_of
from lake.core.read.exports.destinations import refuse_inside
from lake.core.table.catalogs.names import Answers, require_existing, unaddressable_error
from lake.core.table.catalogs.patterns import is_glob, matches

if TYPE_CHECKING:
    from lake.core.read.exports.destinations import Output
    from lake.core.table.catalogs.catalog import Table
    from lake.core.transaction.session import Session

# More would wait for Python's lock, and each has the entries of a table in memory.
_THREADS = 8
# What no row shows, because it takes listings of folders or of other programs' state.
NOT_LOOKED_AT = ("orphans", "pending checkpoints", "other branches")


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthOptions:
    """How the tables are shown.

    Args:
        sort: the order of the rows.
        fail_on: the best grade that makes the outcome suspect; None for none.
        explain: show the thresholds of other tools beside the measures.
        prometheus: the metrics file to replace; None for none.
        html: the page to replace; None for none.
        output: where rows are written; None for nowhere.
        past: what past runs show about costs.
    """

    sort: HealthSort = HealthSort.NEED
    fail_on: str | None = None
    explain: bool = False
    prometheus: str | None = None
    html: str | None = None
    output: Output | None = None
    past: Past = NOTHING

    @property
    def paths(self) -> list[str]:
        """What is written to; empty texts for streams."""
        return [self.prometheus or "", self.html or "", self.output.path if self.output else ""]


def health(session: Session, patterns: Sequence[str], options: HealthOptions) -> Outcome:
    """Return a row for each table that a pattern selects; without patterns, for each table of the catalog.

    A table that cannot be read is a row with its error.

    Raises:
        RefusedError: a file would be written into the folder of a table.
        InvalidRequestError: a page or metrics would replace another file.
        NotFoundError: a pattern selects nothing, or the catalog does not exist.
        NotATableError: a pattern is the name of a view.
        BadInputError: a file cannot be written.
        LakeError: the catalog cannot be read.
    """
    if options.prometheus is not None:
        require_prometheus(options.prometheus)
    if options.html is not None:
        require_page(options.html)
    now_ms = session.clock.now_ms()
    order = order_of(options.sort)
    views = FirstViews(MOST_SECTIONS, order)
    with shown(session.progress, Meter("reading metadata")):
        alone = _one(session, patterns, now_ms, options)
        if alone is not None:
            views.add(*alone)
        rows = [alone.row] if alone else _several(session, patterns, now_ms, options, views)
    rows.sort(key=order)
    view = alone.view if alone else None
    # Standard output then has the rows only.
    is_streamed = options.output is not None and options.output.stream is not None
    if options.output is not None:
        write_rows(rows, options.output)
    if options.prometheus is not None:
        write_prometheus(rows, options.prometheus, session.catalog.name, ids=session.ids)
    if options.html is not None:
        redact = session.redactor()
        redact.learn_environment(os.environ)
        write_page(
            options.html,
            Shown(
                catalog=session.catalog.name,
                patterns=patterns,
                now_ms=now_ms,
                rows=rows,
                views=views.first(),
                not_looked_at=NOT_LOOKED_AT,
            ),
            redact,
            ids=session.ids,
        )
    result = HealthResult(tables=rows, not_looked_at=NOT_LOOKED_AT, view=view)
    shown_rows = details(result, now_ms, explain=options.explain)
    return Outcome(
        status=_status(rows, options.fail_on),
        result=result,
        details=[] if is_streamed else [*shown_rows, *(view_details(view) if view else ())],
        notes=notes(result, explain=options.explain),
    )


class _Measured(NamedTuple):
    """A table, and its view if it could be read and is shown."""

    row: HealthFacts
    view: ViewFacts | None = None


def _one(
    session: Session, patterns: Sequence[str], now_ms: int, options: HealthOptions
) -> _Measured | None:
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
        return _Measured(unreadable(namespace, name, error))
    for path in options.paths:
        refuse_inside(path, table)
    try:
        return _looked_at(table, namespace, now_ms, options.past, most_entries=None, viewed=True)
    except LakeError as error:
        return _Measured(unreadable(namespace, name, error))


def _several(
    session: Session,
    patterns: Sequence[str],
    now_ms: int,
    options: HealthOptions,
    views: FirstViews,
) -> list[HealthFacts]:
    """Return the rows of the selected tables; views are added if a page is written."""
    require_existing(session.catalog)
    names, rows, spaces = selected(session.catalog, patterns)
    rows += [
        unreadable(space.name, name, unaddressable_error(name))
        for space in spaces
        for name in sorted(space.unaddressable)
        if not patterns or any(matches(name, space.name, pattern) for pattern in patterns)
    ]

    answers = Answers(session.catalog)

    def one(item: tuple[str, str]) -> _Measured | None:
        namespace, name = item
        try:
            table = answers.load_listed(name)
        except NotATableError:
            return None
        except LakeError as error:
            return _Measured(unreadable(namespace, name, error))
        if table is None:
            return None
        for path in options.paths:
            refuse_inside(path, table)
        try:
            viewed = options.html is not None
            return _looked_at(
                table, namespace, now_ms, options.past, most_entries=MOST_ENTRIES, viewed=viewed
            )
        except LakeError as error:
            return _Measured(unreadable(namespace, name, error))

    meter = Meter("reading tables", tasks=len(names))
    with shown(session.progress, meter):
        for found in looked_up(one, names, _THREADS):
            meter.advance(tasks=1)
            if found is not None:
                rows.append(found.row)
                views.add(*found)
    return rows


def _looked_at(
    table: Table,
    namespace: str,
    now_ms: int,
    past: Past,
    *,
    most_entries: int | None,
    viewed: bool,
) -> _Measured:
    """Return the row of a table, and if asked for its view; its entries are released.

    Raises:
        LakeError: its manifests cannot be read, or a property has a value that is not allowed.
    """
    row, found = measured(
        table, namespace, now_ms, most_entries=most_entries, with_bounds=viewed, past=past
    )
    if found is None or not viewed:
        return _Measured(row)
    location = table.metadata.location
    costs = past.costs(costs_of(location), location)
    return _Measured(row, view_of(found, row.metadata_bytes, costs))


def _status(rows: Sequence[HealthFacts], fail_on: str | None) -> Status:
    if any(row.error is not None for row in rows):
        return Status.PARTIAL
    failing = {None: set(), DUE: {DUE, BAD}, BAD: {BAD}}[fail_on]
    return Status.SUSPECT if any(row.grade in failing for row in rows) else Status.DONE
