"""Load the rows of files into many tables, one commit after the other; a repetition with the same id ends it."""

from __future__ import annotations

import filecmp
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from pyiceberg.schema import Schema

from lake.core.base.errors import (
    CommitUnknownError,
    InvalidRequestError,
    LakeError,
    NotFoundError,
    RefusedError,
    StoppedError,
)
from lake.core.base.facts import NoFacts
from lake.core.base.options import Option
from lake.core.base.outcome import Detail, Outcome, Status, first_rows
from lake.core.data.schemas.source_checks import SourceColumns, check_sources
from lake.core.data.sources.discovery import ARROW
from lake.core.data.sources.text_format import AS_SHOWN
from lake.core.load.ingest.facts import IngestFacts, IngestResult
from lake.core.load.ingest.options import LoadRequest
from lake.core.load.ingest.rejects import (
    check_rejects,
    rejects_schema,
    remove_rejects,
    write_rejects,
)
from lake.core.load.routing.facts import RoutedTable, RouteFacts, RouteResult
from lake.core.load.routing.options import RouteOptions, refuse_others
from lake.core.load.routing.split import Split, left_out, split_source
from lake.core.load.routing.stream import Journal
from lake.core.load.routing.targets import Target
from lake.core.load.run import load, load_epoch
from lake.core.table.snapshots.streams import contains_epoch

if TYPE_CHECKING:
    from lake.core.load.changelog_load.plan import ChangeOptions
    from lake.core.load.upsert.options import UpsertOptions
    from lake.core.table.catalogs.catalog import Table
    from lake.core.transaction.session import Session

_SHOWN = 20


@dataclass(slots=True)
class _Run:
    """The tables that were loaded so far."""

    tables: list[RoutedTable] = field(default_factory=list)
    snapshots: list[int] = field(default_factory=list)

    def result(self, split: Split) -> RouteResult:
        return RouteResult(
            tables=self.tables,
            rows_read=split.rows_read,
            rows_written=sum(item.rows for item in self.tables if item.error is None),
            rows_rejected=split.rejects.rows,
        )

    @property
    def failed(self) -> int:
        return sum(item.error is not None for item in self.tables)

    @property
    def may_have_committed(self) -> bool:
        unknown = any(
            item.error and item.error.kind == CommitUnknownError.kind for item in self.tables
        )
        return bool(self.snapshots) or unknown


def run_route(
    session: Session,
    request: LoadRequest,
    route: RouteOptions,
    by_key: UpsertOptions | ChangeOptions | None,
    landed: Callable[[Outcome], None],
    *,
    journal: Journal | None = None,
    dry_run: bool = False,
) -> Outcome:
    """Divide the rows of files by a column, and load each part into its own table.

    Args:
        session: the session.
        request: the files, and what is asked of each load.
        route: how rows are divided.
        by_key: the options of loads by key; None for appends.
        landed: called with the outcome of each commit, after it was noted.
        journal: notes which tables contain the epoch of a stream; None for other loads.
        dry_run: describe what would be loaded only.

    Raises:
        BadInputError: a file cannot be read, or a row cannot be loaded and is not set aside; nothing was loaded.
        RefusedError: there are too many tables, or one contains the stream's epoch of another run; nothing was
            loaded.
        InvalidRequestError: options contradict each other.
    """
    refuse_others(request.options)
    run = _Run()
    with tempfile.TemporaryDirectory(prefix="lake-route-") as folder:
        _check_rejects(request, folder)
        split = split_source(session, request, route, by_key, folder)
        targets = [target for target in split.targets if target.rows or target.error is not None]
        _warn(session, split, targets, evolve=request.options.evolve)
        with nullcontext() if dry_run else _rejects(request, split, folder, run):
            if journal is not None:
                for target in targets:
                    _contains_epoch(target.table, request)
                journal.begin([target.identifier for target in targets])
            loads = _Loads(session, request, by_key, landed, journal, dry_run)
            _load_all(loads, split, targets, run)
    return _outcome(session, request.options.run_id, route, split, run, dry_run=dry_run)


@dataclass(frozen=True, slots=True)
class _Loads:
    """Loads each part into its table."""

    session: Session
    request: LoadRequest
    by_key: UpsertOptions | ChangeOptions | None
    landed: Callable[[Outcome], None]
    journal: Journal | None
    dry_run: bool

    def load(self, target: Target) -> Outcome:
        """Load the part of a table, and note it."""
        if target.error is not None:
            raise target.error
        request, options = self.request, self.request.options
        if target.table is not None:
            found = SourceColumns("the source", target.source_columns())
            check_sources(target.table.schema, [found], evolve=options.evolve)
        once = replace(
            request,
            options=replace(
                options,
                sources=target.files,
                format=ARROW,
                text=AS_SHOWN,
                rejects=None,
                max_rejects=None,
            ),
            stdin=None,
            left_out=left_out(target, options),
            origin=request.origin or options.sources,
        )

        def load_once() -> Outcome:
            return load(self.session, target.identifier, once, self.by_key, dry_run=self.dry_run)

        return load_once() if self.journal is None else load_epoch(self.session, load_once)

    def settle(self, target: Target) -> None:
        """Note a table that was loaded, after a check that another run of the stream was not faster."""
        if self.journal is None:
            return
        # A table all of whose rows were rejected is not created.
        with suppress(NotFoundError):
            _contains_epoch(self.session.table(target.identifier), self.request)
        self.journal.settle(target.identifier)

    def is_settled(self, target: Target) -> bool:
        """Whether the stream noted before that the table contains the epoch."""
        return self.journal is not None and target.identifier in self.journal.settled


def _load_all(loads: _Loads, split: Split, targets: Sequence[Target], run: _Run) -> None:
    session = loads.session
    same = _Same(session, targets)
    with session.interrupts.several_commits():
        for target in targets:
            try:
                session.interrupts.checkpoint()
                same.refuse(target)
                if loads.is_settled(target):
                    # An earlier run has loaded it.
                    settled = RoutedTable(table=target.identifier, status=str(Status.NOTHING_TO_DO))
                    run.tables.append(settled)
                    same.note(target)
                    continue
                outcome = loads.load(target)
                run.snapshots += outcome.snapshot_ids
                run.tables.append(_loaded(target, outcome))
                loads.settle(target)
                same.note(target)
                session.interrupts.release()
                loads.landed(outcome)
            except StoppedError as error:
                error.result = run.result(split)
                raise
            except LakeError as error:
                session.warn(f"{target.identifier} was not loaded: {error.message}")
                run.tables.append(_failed(target, error))
    if run.failed and run.snapshots and loads.request.guard is None:
        session.warn(
            "the same command would load the rows of the other tables again, because it has no "
            f"{Option.RUN_ID}: load the tables that failed alone"
        )


def _contains_epoch(table: Table | None, request: LoadRequest) -> bool:
    epoch, branch = request.epoch, request.options.branch
    return epoch is not None and contains_epoch(table, branch, epoch)


class _Same:
    """Finds names that a catalog which ignores case gives to one table: its second load would look repeated."""

    def __init__(self, session: Session, targets: Sequence[Target]) -> None:
        self._session = session
        self._loaded: dict[str, str] = {}
        folded = Counter(target.identifier.casefold() for target in targets)
        self._similar = {name for name, count in folded.items() if count > 1}

    def refuse(self, target: Target) -> None:
        """Refuse a table that was loaded under another name.

        Raises:
            RefusedError: it was.
        """
        other = self._loaded.get(self._uuid(target))
        if other is not None:  # check: one-name-per-table
            raise RefusedError(
                f"{target.identifier} is the same table as {other}: the catalog ignores case",
                hint="write the values in one case",
            )

    def note(self, target: Target) -> None:
        """Remember a table that was loaded."""
        if uuid := self._uuid(target):
            self._loaded[uuid] = target.identifier

    def _uuid(self, target: Target) -> str:
        if target.identifier.casefold() not in self._similar:
            return ""
        try:
            return str(self._session.table(target.identifier).metadata.table_uuid)
        except NotFoundError:
            return ""


# Rows that no table receives


def _check_rejects(request: LoadRequest, folder: str) -> None:
    """Refuse a path that rejected rows cannot be written to; a repeated run may find its own file there."""
    path = request.options.rejects
    if path is not None and request.epoch is not None:
        check_rejects(path, may_exist=True)
    elif path is not None:
        repeated = request.options.run_id is not None and os.path.isfile(path)
        check_rejects(_second_path(path, folder) if repeated else path)


def _second_path(path: str, folder: str) -> str:
    return os.path.join(folder, f"repeated{os.path.splitext(path)[1]}")


@contextmanager
def _rejects(request: LoadRequest, split: Split, folder: str, run: _Run) -> Iterator[None]:
    """Write the rejected rows before the block commits; remove them if it commits nothing."""
    path, created = request.rejects_file, False
    if path is not None and request.epoch is not None:
        # A repetition of an epoch rejects the same rows; a killed run may have left a part of the file.
        remove_rejects(path)
    if path is not None and split.rejects.rows:
        created = _write_rejects(path, split, folder)
    if request.epoch is not None:
        # An epoch of rejected rows alone is complete too.
        yield
        return
    try:
        yield
    finally:
        if path is not None and created and not run.may_have_committed:
            with suppress(FileNotFoundError):
                os.unlink(path)


def _write_rejects(path: str, split: Split, folder: str) -> bool:
    """Write the rejected rows to a file; return False if an earlier run has written the same rows there.

    Raises:
        InvalidRequestError: the file has other content.
    """
    there = os.path.lexists(path)
    draft = _second_path(path, folder) if there else path
    schema = rejects_schema(Schema(), with_columns=False)
    write_rejects(split.source.storage, schema, split.rejects.files, draft)
    if there and not filecmp.cmp(draft, path, shallow=False):  # check: rejects-of-first-run
        raise InvalidRequestError(
            f"{path} already exists, with other rows than this run rejects",
            hint=f"choose a new file for {Option.REJECTS}",
        )
    return not there


# The outcome


def _warn(session: Session, split: Split, targets: Sequence[Target], *, evolve: bool) -> None:
    """Warn of what is inferred about columns that a table gets."""
    source = split.source
    if any(target.table is None and target.error is None for target in targets):
        for warning in source.warnings:
            session.warn(warning)
    made = {
        name
        for target in targets
        for name in target.source_columns().names
        if target.table is None or (evolve and name not in target.table.schema.column_names)
    }
    for note in source.notes:
        if note.column in made:
            session.warn(note.text)


def _loaded(target: Target, outcome: Outcome) -> RoutedTable:
    plan, status = IngestFacts.of(outcome.plan), outcome.status
    changes = status is not Status.NOTHING_TO_DO
    earlier = plan.loaded_run.snapshot_id if plan.loaded_run else None
    written = IngestResult.of(outcome.result).rows_written
    rows = target.rows if status is Status.DRY_RUN else written
    return RoutedTable(
        table=target.identifier,
        snapshot_id=str(outcome.snapshot_ids[-1]) if outcome.snapshot_ids else earlier,
        rows=rows if changes else 0,
        created=plan.creates_table and changes,
        new_columns=plan.new_columns if changes else (),
        status=str(status),
    )


def _failed(target: Target, error: LakeError) -> RoutedTable:
    return RoutedTable(table=target.identifier, status=error.status, error=error.facts())


def _outcome(
    session: Session,
    run_id: str | None,
    route: RouteOptions,
    split: Split,
    run: _Run,
    *,
    dry_run: bool,
) -> Outcome:
    source, statuses = split.source, {item.status for item in run.tables}
    if dry_run:
        status = Status.DRY_RUN
    elif run.failed:
        status = Status.PARTIAL
    elif statuses <= {Status.NOTHING_TO_DO}:
        status = Status.NOTHING_TO_DO
    else:
        status = Status.DONE
    columns = ["table", "rows", "status", "new columns"]
    shown, notes = first_rows(run.tables, _SHOWN, "tables", every=session.settings.verbose)
    rows = [[item.table, item.rows, item.status, ", ".join(item.new_columns)] for item in shown]
    result = run.result(split)
    return Outcome(
        status=status,
        snapshot_ids=run.snapshots,
        plan=RouteFacts(
            route=route.column,
            max_tables=route.max_tables,
            files=len(source.files),
            bytes=sum(file.size_bytes for file in source.files),
            run_id=run_id,
            planned=result if dry_run else None,
        ),
        result=NoFacts() if dry_run else result,
        details=[Detail("tables", columns, rows)],
        notes=notes,
    )
