"""List the tables of a catalog, or of all configured catalogs, with the sizes that their newest snapshots declare."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from lake.core.base.errors import LakeError, NotATableError
from lake.core.base.facts import ErrorFacts
from lake.core.base.outcome import Detail, Outcome, Status
from lake.core.base.progress import Meter, shown
from lake.core.base.units import iso_time
from lake.core.io.work_ahead import looked_up
from lake.core.read.inspection.facts import SizeFacts, TableFacts, TablesResult
from lake.core.table.catalogs.configuration import read_configuration
from lake.core.table.catalogs.names import (
    Answers,
    known_names,
    namespaces_of,
    require_existing,
    unaddressable_warnings,
)
from lake.core.table.catalogs.patterns import matches, may_match, unmatched
from lake.core.table.catalogs.selection import open_catalog
from lake.core.table.snapshots.summary import declared_totals

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

    from lake.core.table.catalogs.catalog import Catalog
    from lake.core.table.catalogs.names import Namespace
    from lake.core.transaction.session import Session

_THREADS = 16


def list_tables(session: Session, pattern: str | None, *, all_catalogs: bool = False) -> Outcome:
    """Return the tables whose names match a pattern, and the views by name.

    A table, namespace or catalog that cannot be read becomes a row with its error; the others are still read.

    Args:
        session: the session.
        pattern: a glob of names such as ``db.*``, or the name of a namespace; None for all tables.
        all_catalogs: list the tables of all configured catalogs, not those of the session's catalog.

    Raises:
        NotFoundError: no namespace, table or view matches the pattern, or the catalog does not exist.
        LakeError: the session's catalog cannot be read.
    """
    result = TablesResult()
    catalogs = (
        _all_catalogs(session) if all_catalogs else iter([(session.catalog.name, session.catalog)])
    )
    known: list[str] = []
    with shown(session.progress, Meter("reading metadata")):
        for name, catalog in catalogs:
            prefix = f"{name}." if all_catalogs else ""
            try:
                if isinstance(catalog, LakeError):
                    raise catalog
                require_existing(catalog)
                found, spaces = _tables_of(catalog, pattern)
                known += known_names(spaces)
            except LakeError as error:
                if not all_catalogs:
                    raise
                result.tables.append(_failed(name, "", None, error))
                continue
            finally:
                if not isinstance(catalog, LakeError):
                    _hide_secrets(session, catalog)
            for text in unaddressable_warnings(spaces, [pattern] if pattern else []):
                session.warn(text)
            result.tables += found.tables
            result.views += [f"{prefix}{view}" for view in found.views]
            result.namespaces += [f"{prefix}{namespace}" for namespace in found.namespaces]
    if pattern and not (result.tables or result.views or result.namespaces):
        raise unmatched(pattern, known)
    notes = [_note(row, row.error) for row in result.tables if row.error is not None]
    return Outcome(
        status=Status.PARTIAL if notes else Status.DONE,
        result=result,
        details=[_detail(result, with_catalog=all_catalogs)],
        notes=notes,
    )


def _all_catalogs(session: Session) -> Iterator[tuple[str, Catalog | LakeError]]:
    """Yield all configured catalogs, or why one of them cannot be used; without any, the session's catalog."""
    configured = sorted(read_configuration().catalogs)
    if not configured:
        yield session.catalog.name, session.catalog
    for name in configured:
        try:
            settings = replace(session.settings, catalog=name, warehouse=None)
            yield name, open_catalog(settings, session.clock, session.ids)
        except LakeError as error:
            yield name, error


def _hide_secrets(session: Session, catalog: Catalog) -> None:
    """Keep what another catalog's configuration and tables contain out of the output."""
    if catalog is session.catalog:
        return
    session.secrets += (catalog.configured, *catalog.vended)


def _tables_of(catalog: Catalog, pattern: str | None) -> tuple[TablesResult, Sequence[Namespace]]:
    """Return the rows of a catalog's tables, and the names of its views and namespaces; and all namespaces.

    Raises:
        LakeError: the catalog cannot be read.
    """
    tables: list[tuple[str, str]] = []
    result = TablesResult()
    spaces = list(namespaces_of(catalog, [pattern]))
    for space in spaces:
        matching = [name for name in space.tables if matches(name, space.name, pattern)]
        seen = [name for name in space.views if matches(name, space.name, pattern)]
        tables += [(space.name, name) for name in matching if name not in space.unaddressable]
        result.views += seen
        if matching or seen or matches(space.name, space.name, pattern):
            result.namespaces.append(space.name)
        if space.error is not None and may_match(space.name, pattern):
            result.tables.append(_failed(catalog.name, space.name, None, space.error))
    answers = Answers(catalog)
    for row in looked_up(lambda item: _row(catalog, answers, *item), tables, _THREADS):
        if row is None:
            continue
        if isinstance(row, str):
            result.views.append(row)
        else:
            result.tables.append(row)
    result.views.sort()
    return result, spaces


def _row(catalog: Catalog, answers: Answers, namespace: str, name: str) -> TableFacts | str | None:
    """Return a table's row, the name of a view that was listed as a table, or None if it was dropped meanwhile."""
    try:
        table = answers.load_listed(name)
    except NotATableError:
        return name
    except LakeError as error:
        return _failed(catalog.name, namespace, name, error)
    if table is None:
        return None
    metadata = table.metadata
    return TableFacts(
        catalog=catalog.name,
        namespace=namespace,
        table=name,
        table_uuid=str(metadata.table_uuid),
        location=metadata.location,
        format_version=metadata.format_version,
        sizes=sizes_of(metadata),
    )


def sizes_of(metadata: TableMetadata) -> SizeFacts:
    """Return the totals that a table's current snapshot declares (`declared_totals`), and its time."""
    snapshot = metadata.current_snapshot()
    time = None if snapshot is None else iso_time(snapshot.timestamp_ms)
    return SizeFacts(**declared_totals(snapshot), last_commit=time)


def _failed(catalog: str, namespace: str, name: str | None, error: LakeError) -> TableFacts:
    return TableFacts(
        catalog=catalog,
        namespace=namespace,
        table=name,
        sizes=SizeFacts(),
        error=error.facts(),
    )


def _note(row: TableFacts, error: ErrorFacts) -> str:
    place = row.table or row.namespace or row.catalog
    return f"{place}: {error.message}" + (f" ({error.hint})" if error.hint else "")


def _detail(result: TablesResult, *, with_catalog: bool) -> Detail:
    columns = ["table", "format", "rows", "files", "size_bytes", "delete_files", "last_commit"]
    found: list[list[str | int | None]] = [
        [
            row.table or f"{row.namespace}.*".removeprefix("."),
            f"v{row.format_version}" if row.error is None else row.error.kind,
            _rows(row.sizes),
            row.sizes.files,
            row.sizes.bytes,
            row.sizes.delete_files,
            row.sizes.last_commit,
        ]
        for row in result.tables
    ]
    if with_catalog:
        columns.insert(0, "catalog")
        found = [[row.catalog, *cells] for row, cells in zip(result.tables, found, strict=True)]
        listed = [view.partition(".") for view in result.views]
        found += [[catalog, view, "view", *[None] * 5] for catalog, _, view in listed]
    else:
        found += [[view, "view", *[None] * 5] for view in result.views]
    return Detail("tables", columns, found)


def _rows(sizes: SizeFacts) -> str | int | None:
    if sizes.rows is not None or sizes.rows_at_most is None:
        return sizes.rows
    return f"{sizes.rows_at_most:,} or less"
