"""Plan an ingest: its source files, columns and distribution. Reads headers, writes nothing."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from lake.core.base.errors import (
    BadInputError,
    CommitConflictError,
    InvalidRequestError,
    LakeError,
    NotFoundError,
    RefusedError,
)
from lake.core.base.facts import EarlierRunFacts
from lake.core.base.locations import canonical, parse, public_form
from lake.core.base.options import Option
from lake.core.base.process_identity import user_name
from lake.core.base.progress import Meter, shown
from lake.core.base.units import iso_time
from lake.core.data.columns.defaults import defaulted_fields
from lake.core.data.deletes.writers import check_delete_files
from lake.core.data.rows.live_slices import SLICE_COLUMNS, SPLIT_COLUMNS, all_slices
from lake.core.data.rows.reader import FileSlice, ReadSettings
from lake.core.data.rows.writer import WriteSettings
from lake.core.data.schemas import new_tables
from lake.core.data.schemas.new_tables import NewTable
from lake.core.data.schemas.source_checks import SourceColumns
from lake.core.data.sorting.sort_keys import RowOrder, described_order
from lake.core.data.sources.csv.lines import delimiter_of
from lake.core.data.sources.discovery import CSV, Source, find_sources
from lake.core.data.sources.text_format import UTF_8
from lake.core.data.sources.type_notes import TypeNote
from lake.core.engine.selection import engine_name
from lake.core.load.ingest.facts import (
    ColumnFacts,
    IngestFacts,
    RemovalFacts,
    TypeNoteFacts,
    WriteDefaultFacts,
)
from lake.core.load.ingest.options import (
    APPEND,
    OVERWRITE,
    OVERWRITE_WHERE,
    REPLACING,
    UPSERT,
    Frame,
    IngestOptions,
    LoadRequest,
)
from lake.core.load.ingest.rejects import RejectSettings, check_rejects
from lake.core.load.ingest.source_columns import (
    absent_columns,
    asked_version,
    check_names,
    columns_of_files,
    merged_columns,
    missing_columns,
    missing_defaults,
    new_columns,
    refuse_lacking,
    source_storage,
    target_schema,
    with_text_formats,
    without_column,
)
from lake.core.load.ingest.units import Unit, units_of_files, units_of_slices
from lake.core.spec.expressions.filters import bind_filter, filter_columns
from lake.core.spec.expressions.parser import parse_filter
from lake.core.spec.properties.table_properties import (
    DELETE_ISOLATION,
    DISTRIBUTION,
    HASH,
    MERGE_DISTRIBUTION,
    NONE,
    RANGE,
    UPSERT_ENABLED,
    Use,
    warnings,
)
from lake.core.spec.types.arrow_schema import arrow_schema, moved_schema
from lake.core.spec.types.sort_orders import partition_fields, table_order
from lake.core.spec.types.transform_syntax import column_name
from lake.core.spec.types.type_text import type_text
from lake.core.spec.types.unsupported_columns import refuse_unsupported
from lake.core.table.catalogs.catalog import Table
from lake.core.table.snapshots import ancestry
from lake.core.table.snapshots.live_files import LiveFiles, live_files
from lake.core.table.snapshots.referenced_files import find_referenced
from lake.core.table.snapshots.run_ids import COMMAND, SOURCE, SOURCE_DIGEST, USER, find_on_branch
from lake.core.transaction.commit.guards import earlier_run
from lake.core.transaction.commit.preconditions import check_commits, require_writable
from lake.core.transaction.removals import Removals, removals_of
from lake.core.transaction.session import Session
from lake.core.transaction.staging.claims import discarding, expired_base, find_staged_run
from lake.core.transaction.staging.staged_run import StagedRun, shown_run

if TYPE_CHECKING:
    from pyiceberg.expressions import BooleanExpression
    from pyiceberg.schema import Schema

_DIGEST = 16
# The number of sources that a snapshot's summary names.
_NAMED = 3
_SMALLEST_TASK_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierRun:
    """What an earlier run of the same id has done.

    Args:
        already: it has landed, so there is nothing to do.
        run: what it has left, if anything.
    """

    already: bool = False
    run: StagedRun | None = None

    @property
    def needs_no_source(self) -> bool:
        """Whether the source need not be read: the run has landed, or only lacks its commit."""
        return self.already or (self.run is not None and self.run.problem is None)


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestPlan:
    """A decided ingest.

    Args:
        request: what was asked.
        table: the target; its `creating` is not empty when it will be made.
        new_table: the table that will be made.
        schema: what rows are written as: the table's, or with new columns behind.
        units: what is read.
        source: the live files of the table whose rows are read, if it is one.
        distribution: ``none``, ``hash`` or ``range``.
        order: in which each task's rows are written, if any.
        sort_order_id: the table's sort order, if that is it.
        engine: the name of the engine that will run it.
        formats: the sources' formats.
        source_files: how many files there are.
        condition: rows that an overwrite replaces; None for all.
        removals: what an overwrite removes; None if it is not known yet, or nothing is removed.
        removed: paths of live files that the overwrite removes entirely.
        rewritten: live files of which some rows may stay, None for none.
        also_read_bytes: estimated bytes that are read from the table itself.
        base_snapshot_id: the branch's head that all this was decided on.
        defaults: write defaults, as JSON by full name, of the columns that a source lacks.
        missing: the columns that a source lacks.
        absent: those of them that every source lacks.
        type_notes: why columns of text files are inferred as text.
        earlier: what an earlier run of the same id has done.
        digest: identifies the files; None for other sources, and for epochs of streams.
    """

    request: LoadRequest
    table: Table
    schema: Schema
    new_table: NewTable | None = None
    units: Sequence[Unit] = ()
    source: LiveFiles | None = None
    distribution: str = NONE
    order: RowOrder | None = None
    sort_order_id: int | None = None
    engine: str = "inline"
    formats: Sequence[str] = ()
    source_files: int = 0
    condition: BooleanExpression | None = None
    removals: Removals | None = None
    removed: Sequence[str] = ()
    rewritten: LiveFiles | None = None
    also_read_bytes: int = 0
    base_snapshot_id: int | None = None
    defaults: Mapping[str, str] = field(default_factory=dict)
    missing: frozenset[str] = frozenset()
    absent: frozenset[str] = frozenset()
    type_notes: Sequence[TypeNote] = ()
    earlier: EarlierRun = EarlierRun()
    digest: str | None = None

    @property
    def options(self) -> IngestOptions:
        """What a user asks for."""
        return self.request.options

    @property
    def is_stageable(self) -> bool:
        """Whether files of the table as it is are all that will be committed."""
        return not self.table.creating and not self.evolves

    @property
    def input_bytes(self) -> int:
        """Bytes of all sources and of the table's files that are read."""
        sources = sum(unit.input_bytes for unit in self.units)
        rewritten = self.rewritten.bytes if self.rewritten else 0
        return sources + rewritten + self.also_read_bytes

    @property
    def divisible_bytes(self) -> int:
        """The input bytes, by which the engine is chosen; 0 if one task reads all of them.

        Spark gives such a load its start only, which takes longer than most loads of one file.
        """
        alone = len(self.units) <= 1 and not self.rewritten and not self.also_read_bytes
        return 0 if alone else self.input_bytes

    @property
    def text_files(self) -> list[Source]:
        """The sources that are text files."""
        sources = [unit.read.source for unit in self.units]
        return [source for source in sources if source is not None and source.is_text]

    @property
    def evolves(self) -> bool:
        """Whether the table gets new columns."""
        return self.schema is not self.table.schema and self.schema != self.table.schema

    def reading(self, units: Sequence[Unit]) -> ReadSettings | None:
        """Return how units of another table are read, None for other sources."""
        if self.source is None:
            return None
        numbers = sorted({unit.number for unit in units if unit.number is not None})
        deletes = self.source.deletes_of(np.array(numbers, np.int64))
        return ReadSettings.of(self.source.table, deletes=deletes)

    def files_to_rewrite(self) -> list[tuple[FileSlice, ReadSettings]]:
        """Return the live files of which some rows may stay, each with how it is read: with row ids, if any."""
        if self.rewritten is None:
            return []
        projection = self.moved_schema
        return [
            (
                file,
                ReadSettings.of(
                    self.table,
                    schema=self.schema,
                    projection=projection,
                    deletes=self.rewritten.deletes_of(np.array([number])),
                ),
            )
            for number, file in enumerate(all_slices(self.rewritten))
        ]

    @property
    def moved_schema(self) -> Schema:
        """What rows of the table are written as when they move to another file."""
        return moved_schema(self.schema, self.table.metadata)

    def settings(self, operation_id: str) -> WriteSettings:
        """Return how rows are written as they come."""
        return WriteSettings.of(
            self.table, operation_id, target_bytes=self.options.target_size, schema=self.schema
        )

    def reject_settings(self, operation_id: str) -> RejectSettings | None:
        """Return how rows that cannot be loaded are set aside; None if the first of them is an error."""
        if self.options.rejects is None:
            return None
        return RejectSettings(
            folder=self.table.data_location,
            name=f"lake-rejects-{operation_id}",
            limit=self.options.max_rejects,
            with_columns=self.options.mode not in {APPEND, *REPLACING},
        )

    def ordered_settings(self, operation_id: str) -> WriteSettings:
        """Return how rows are written by those who sort them, if they are to be sorted."""
        settings = self.settings(operation_id)
        return replace(settings, order=self.order, sort_order_id=self.sort_order_id)


def plan_ingest(session: Session, identifier: str, request: LoadRequest) -> IngestPlan:
    """Look at sources and table and decide; nothing is written.

    Raises:
        BadInputError: a source cannot be read or does not fit the table.
        RefusedError: the table cannot be written.
    """
    options, earlier = request.options, EarlierRun()
    existing = (
        table_of_frame(session, identifier)
        if request.frame
        else existing_table(session, identifier, options)
    )
    if existing is not None:
        require_writable(existing, options.branch)
        head_id = _head_id(existing, options.branch)
        earlier = _earlier(session, existing, request)
        if earlier.needs_no_source:
            if not earlier.already and not options.stage:
                session.warn(
                    f"{_shown_load(request)} was written before: its source is not read again"
                )
            return IngestPlan(
                request=request,
                table=existing,
                schema=existing.schema,
                base_snapshot_id=head_id,
                earlier=earlier,
            )
        if request.replaced_head not in {None, head_id}:
            raise CommitConflictError(f"another writer changed {identifier}: nothing was changed")
    if request.rejects_file is not None:
        check_rejects(request.rejects_file, may_exist=request.epoch is not None)
    if options.from_table:
        plan = _plan_from_table(session, identifier, existing, request, options.from_table)
    elif request.frame is not None and existing is not None:
        plan = _plan_from_frame(session, existing, request, request.frame)
    else:
        plan = _plan_from_files(session, identifier, existing, request)
    if options.stage and not plan.is_stageable:
        raise InvalidRequestError(
            f"{Option.STAGE} and {Option.EVOLVE} contradict each other if the source has new columns",
            hint="a staged load cannot add columns to the table",
        )
    _check_properties(session, plan)
    plan = _with_removals(plan)
    if plan.rewritten is not None or options.mode not in {APPEND, *REPLACING}:
        # Rows that move to new files, or are replaced by key, would lose their values there.
        refuse_unsupported(plan.schema)
    if plan.rewritten is not None:
        for ignored in warnings(plan.table.properties, [Use.OVERWRITE]):
            session.warn(ignored)
    distribution = distribution_of(session, plan.table, options)
    order, sort_order_id = order_of(session, plan.table, plan.schema, distribution)
    return replace(
        plan,
        earlier=earlier,
        distribution=distribution,
        order=order,
        sort_order_id=sort_order_id,
        engine=engine_name(session.settings.engine, plan.divisible_bytes, session.settings),
    )


def _check_properties(session: Session, plan: IngestPlan) -> None:
    """Check the table's properties that the load depends on; warn about those that it does not honour."""
    properties, mode = plan.table.properties, plan.options.mode
    settings = plan.settings("")
    settings.check_data_files()
    if plan.table.creating:
        check_commits(properties)
        check_delete_files(settings)
    if mode in REPLACING:
        DELETE_ISOLATION.of(properties)
    if mode == APPEND:
        UPSERT_ENABLED.of(properties)
    for ignored in warnings(properties, [Use.WRITE, Use.LOAD]):
        session.warn(ignored)


def _earlier(session: Session, table: Table, request: LoadRequest) -> EarlierRun:
    guard, branch = request.guard, request.options.branch
    already = guard is not None and guard.is_held(table, branch, session.clock.now_ms())
    run = _lying_there(session, table, request)
    if run is not None and request.epoch is not None and not already:
        run = _with_expiry(table, branch, run)
    if run is not None and request.epoch is None and not already:
        _refuse_append(request.options, run)
    return EarlierRun(already=already, run=run)


def _refuse_append(options: IngestOptions, run: StagedRun) -> None:
    """Refuse to finish a run that adds rows by a load that replaces rows: no load of that kind leaves a run."""
    if options.mode in REPLACING and run.problem is None:
        raise RefusedError(
            f"{shown_run(run.marks.name)} was written before, and its rows replace no others",
            hint=f"commit it with lake replay, or {discarding(run.marks.name)}; or choose another {Option.RUN_ID}",
        )


def _with_expiry(table: Table, branch: str, run: StagedRun) -> StagedRun:
    """Return an epoch's staged run, with a problem if snapshots since it was written have expired.

    A branch's notes of its streams do not grow old, so such an epoch was not committed, and can be written again.
    """
    expired = expired_base(table, branch, run.marks) if run.problem is None else None
    if expired is None:
        return run
    wanted = {canonical(file.path) for file in run.files}
    is_referenced = bool(find_referenced(table.storage, table.metadata, wanted))
    return run if is_referenced else replace(run, problem=expired)


def _lying_there(session: Session, table: Table, request: LoadRequest) -> StagedRun | None:
    name = request.epoch or request.options.run_id
    if name is None:
        return None
    try:
        return find_staged_run(table, name)
    except (LakeError, OSError) as error:
        session.warn(f"whether {shown_run(name)} was written before cannot be seen: {error}")
        return None


def _shown_load(request: LoadRequest) -> str:
    return shown_run(request.epoch or request.options.run_id or "")


def existing_table(session: Session, identifier: str, options: IngestOptions) -> Table | None:
    """Return the table to load into; None if it does not exist and may be created.

    Raises:
        NotFoundError: it does not exist, and the options do not create it.
        InvalidRequestError: a branch other than main of a new table.
    """
    try:
        return session.table(identifier)
    except NotFoundError as error:
        if not options.create:
            raise _missing(error, f"add {Option.CREATE} to create the table") from error
    if options.branch != ancestry.MAIN:
        raise InvalidRequestError(f"a new table has no branch {options.branch}: its first is main")
    return None


def table_of_frame(session: Session, identifier: str) -> Table:
    """Return the table that takes the rows of a frame, which creates none.

    Raises:
        NotFoundError: it does not exist.
    """
    try:
        return session.table(identifier)
    except NotFoundError as error:
        how = f"create it with `lake create {identifier} 'NAME TYPE' …`, or check the name, catalog and warehouse"
        raise _missing(error, how) from error


def _missing(error: NotFoundError, how: str) -> NotFoundError:
    """Return the error for a missing table: the name of a similar one, and how it is created."""
    similar = error.hint if error.hint and error.hint.endswith("?") else None
    return NotFoundError(error.message, hint=" ".join(filter(None, (similar, how))))


# From another table


def _plan_from_table(
    session: Session,
    identifier: str,
    existing: Table | None,
    request: LoadRequest,
    source_name: str,
) -> IngestPlan:
    options, chosen = request.options, request.table_files
    source = session.table(source_name) if chosen is None else chosen.table
    refuse_unsupported(source.schema)
    columns = SourceColumns(source_name, arrow_schema(source.schema))
    if (kinds := request.changes_column) is not None:
        _refuse_kinds(existing, kinds)
        columns = without_column(columns, kinds)
    if existing is None and any(defaulted_fields(source.schema.fields)):
        session.warn(f"the new table does not get the write defaults of {source_name}")
    table, new = existing, None
    if table is None:
        new = _new_table(session, options, _schema_like(source, request))
        table = new.stage(session.catalog, identifier, make_namespace=False)
    head = ancestry.branch_head(source.metadata, ancestry.MAIN)
    schema = target_schema(session, table, [columns], request)
    refuse_lacking(table, [columns], request)
    found = chosen
    if found is None and head is not None:
        found = live_files(source, head, columns=SLICE_COLUMNS)
    files = [] if found is None else all_slices(found)
    return IngestPlan(
        request=request,
        table=table,
        new_table=new,
        schema=schema,
        units=units_of_slices(files),
        source=found,
        formats=["table"],
        source_files=len(files),
        base_snapshot_id=_head_id(table, options.branch),
        defaults=missing_defaults(table.schema, [columns]),
        missing=missing_columns(table.schema, [columns]),
        absent=absent_columns(table.schema, [columns]),
    )


def _schema_like(source: Table, request: LoadRequest) -> Schema:
    """Return the schema of a new table for the rows of another."""
    version, schema = asked_version(request.options), source.schema
    if request.changes_column is not None:
        schema = new_tables.schema_without(schema, request.changes_column)
    for name in schema.column_names:
        kind = schema.find_type(name)
        if kind.minimum_format_version() > version:
            raise RefusedError(
                f"column {name} of {source.identifier} is of the type {type_text(kind)}, which tables of "
                f"format version {version} do not have",
                hint=f"use {Option.PROPERTIES} format-version={kind.minimum_format_version()}",
            )
    return new_tables.schema_like(schema)


def _refuse_kinds(existing: Table | None, kinds: str) -> None:
    """Refuse a column of the row kind that the table has too."""
    if existing and kinds in {item.name for item in existing.schema.fields}:
        raise InvalidRequestError(
            f"{Option.CHANGES_COLUMN} {kinds} is a column of the table: it cannot also contain "
            "the row kind"
        )


def _plan_from_frame(
    session: Session, table: Table, request: LoadRequest, frame: Frame
) -> IngestPlan:
    columns = SourceColumns("the DataFrame", frame.columns(table.schema))
    head = _head_id(table, request.options.branch)
    return IngestPlan(
        request=request,
        table=table,
        schema=target_schema(session, table, [columns], request),
        formats=["spark"],
        base_snapshot_id=frame.base_snapshot_id if frame.written else head,
        defaults=missing_defaults(table.schema, [columns]),
        missing=missing_columns(table.schema, [columns]),
        absent=absent_columns(table.schema, [columns]),
    )


# From files


def _plan_from_files(
    session: Session, identifier: str, existing: Table | None, request: LoadRequest
) -> IngestPlan:
    options, storage = request.options, source_storage(session, existing)
    known = existing.schema if existing else None
    notes: list[TypeNote] = []
    with shown(session.progress, Meter("listing and checking files")):
        found = find_sources(storage, request.paths, options.format)
        files = with_text_formats(session, storage, found, known, request)
        columns = columns_of_files(storage, files, known, notes, options)
    for note in notes:
        session.warn(note.text)
    if existing is None:
        check_names(session, files, columns, None, request)
    for name in request.left_out:
        columns = [without_column(one, name) for one in columns]
    if (kinds := request.changes_column) is not None:
        _refuse_kinds(existing, kinds)
        columns = [without_column(one, kinds) for one in columns]
    table, new = existing, None
    if table is None:
        if not any(len(one.columns) for one in columns):
            raise BadInputError("the source is empty: it has no columns to make a table of")
        schema = new_columns(session, columns, asked_version(options)).schema_of(
            merged_columns(columns)
        )
        new = _new_table(session, options, schema)
        table = new.stage(session.catalog, identifier, make_namespace=False)
    schema = target_schema(session, table, columns, request)
    if existing is not None:
        check_names(session, files, columns, known, request)
    refuse_lacking(table, columns, request)  # check: columns-of-upsert
    return IngestPlan(
        request=request,
        table=table,
        new_table=new,
        schema=schema,
        units=units_of_files(storage, files),
        formats=list(dict.fromkeys(file.format for file in files)),
        source_files=len(files),
        base_snapshot_id=_head_id(table, options.branch),
        defaults=missing_defaults(table.schema, columns),
        missing=missing_columns(table.schema, columns),
        absent=absent_columns(table.schema, columns, files),
        type_notes=notes,
        digest=_digest(session, existing, files, request),
    )


def _digest(
    session: Session, existing: Table | None, files: Sequence[Source], request: LoadRequest
) -> str | None:
    """Return what identifies the files of a load; warn if a snapshot of the branch contains the same ones."""
    options = request.options
    if request.epoch is not None or request.origin or request.stdin is not None:
        return None
    facts = sorted(f"{canonical(file.path)}\0{file.size_bytes}\0{_time_ns(file)}" for file in files)
    digest = hashlib.sha256("\n".join(facts).encode(errors="surrogatepass")).hexdigest()[:_DIGEST]
    if existing is not None and options.mode == APPEND:
        found = find_on_branch(existing.metadata, options.branch, {SOURCE_DIGEST: digest})
        if found is not None:
            session.warn(
                f"the same files were loaded before, in snapshot {found.snapshot_id} of "
                f"{iso_time(found.timestamp_ms)}: their rows are added once more ({Option.RUN_ID} loads them once)"
            )
    return digest


def _time_ns(file: Source) -> int | None:
    """Return the time of a local file; an object is identified by its name and size."""
    place = parse(file.path)
    try:
        return os.stat(place.path).st_mtime_ns if place.is_local else None
    except OSError:
        return None


def origin_of(plan: IngestPlan) -> dict[str, str]:
    """Return what the summary of the load's snapshot says about its source, command and user; it has no secrets."""
    options, request = plan.options, plan.request
    names = list(request.origin) or [name for name, _ in request.places.values()]
    names = names or list(options.sources) or [options.from_table or ""]
    shown = ["standard input" if name == "-" else public_form(name) for name in names[:_NAMED]]
    more = f" and {len(names) - len(shown)} more" if len(names) > len(shown) else ""
    way = "" if options.mode == APPEND else f" ({options.mode})"
    found = {SOURCE: f"{', '.join(shown)}{more}", COMMAND: f"ingest{way}", USER: user_name()}
    if request.frame is not None:
        found |= {COMMAND: f"Spark write{way}"}
    return {**found, **({SOURCE_DIGEST: plan.digest} if plan.digest else {})}


def _new_table(session: Session, options: IngestOptions, schema: Schema) -> NewTable:
    return new_tables.new_table(
        schema,
        partition_by=options.partition_by,
        sort_by=options.sort_by,
        properties=options.properties,
        warn=session.warn,
    )


# From tables and from files


def _head_id(table: Table, branch: str) -> int | None:
    head = None if table.creating else ancestry.branch_head(table.metadata, branch)
    return head.snapshot_id if head else None


def distribution_of(session: Session, table: Table, options: IngestOptions) -> str:
    """Return how the rows of a load are distributed among the writers of a table.

    Raises:
        InvalidRequestError: ranges need an order, and there is none.
    """
    partitioned = not table.spec.is_unpartitioned()
    asked = options.distribution
    if asked is None and options.mode == UPSERT:
        asked = MERGE_DISTRIBUTION.of(table.properties)
    wanted = asked or DISTRIBUTION.of(table.properties)
    if wanted == RANGE and options.mode in {APPEND, *REPLACING}:
        if not partitioned and not table.metadata.sort_order().fields:
            raise InvalidRequestError(
                "range distribution needs a sort order or a partition spec: "
                f"{table.identifier} has neither",
                hint=f"{Option.DISTRIBUTION} none writes rows in the order of the source",
            )
        return RANGE
    if wanted == RANGE:
        session.warn("rows that are changed by key are distributed by hash instead of by range")
    if wanted == HASH and not partitioned and options.distribution:
        session.warn("the table is unpartitioned: hash distribution shuffles nothing")
    if wanted == NONE or not partitioned:
        return NONE
    return HASH


def order_of(
    session: Session, table: Table, schema: Schema, distribution: str
) -> tuple[RowOrder | None, int | None]:
    """Return the order in which each task writes, and the id of the table's sort order if it is that.

    Source: Iceberg's SparkWriteUtil: rows are grouped by partition, and sorted by the table's order within it.
    """
    metadata = table.metadata
    fields = table_order(metadata, schema)
    if fields is None:
        session.warn(
            f"{table.identifier} has a sort order that lake does not know: files are unsorted"
        )
    partitions = partition_fields(table.spec)
    if fields:
        return RowOrder(fields=(*partitions, *fields)), metadata.default_sort_order_id
    if distribution == RANGE:
        return RowOrder(fields=partitions), None
    return None, None


def _with_removals(plan: IngestPlan) -> IngestPlan:
    """Find the live files that an overwrite removes or rewrites."""
    options, table = plan.options, plan.table
    condition = None
    if options.overwrite_where is not None:
        condition = bind_filter(parse_filter(options.overwrite_where), plan.schema)
        plan = replace(plan, condition=condition)
    if options.mode not in {OVERWRITE, OVERWRITE_WHERE} or plan.base_snapshot_id is None:
        return plan
    head = table.metadata.snapshot_by_id(plan.base_snapshot_id)
    if head is None:
        raise CommitConflictError(
            f"snapshot {plan.base_snapshot_id} of {table.identifier} expired while rows were written",
            hint="write them again",
        )
    fields = () if condition is None else filter_columns(condition)
    found = live_files(table, head, condition, columns=SPLIT_COLUMNS, fields=fields)
    whole, partly = found.split(condition)
    if partly.count:
        # Refused now, not when rows are moved.
        moved_schema(plan.schema, table.metadata)
    return replace(
        plan,
        removals=removals_of(whole, partly),
        removed=whole.paths,
        rewritten=partly if partly.count else None,
    )


def tasks_for(plan: IngestPlan, parallelism: int) -> list[list[Unit]]:
    """Combine adjacent units into tasks, to use all cores if it is worth it and to write files near the target size.

    A small input becomes one task, because each task writes a separate file.
    """
    total = sum(unit.weight for unit in plan.units)
    wanted = wanted_tasks(plan, parallelism)
    groups: list[list[Unit]] = []
    taken = 0
    for unit in plan.units:
        if not groups or taken >= total * len(groups) / wanted:
            groups.append([])
        groups[-1].append(unit)
        taken += unit.weight
    return groups


def wanted_tasks(plan: IngestPlan, parallelism: int) -> int:
    """Return the number of writing tasks: it uses all cores if worth it, with files near the target size."""
    if plan.options.write_parallelism is not None:
        return plan.options.write_parallelism
    total = sum(unit.weight for unit in plan.units)
    target = plan.settings("").target_bytes
    for_cores = min(parallelism, -(-total // _SMALLEST_TASK_BYTES))
    return max(1, for_cores, -(-total // target))


def _distinct(texts: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(texts))


def _loaded_run(request: LoadRequest, table: Table) -> EarlierRunFacts:
    run_id = request.epoch.stream if request.epoch else request.options.run_id
    return earlier_run(request.guard, table, request.options.branch, run_id)


def _removed(plan: IngestPlan) -> RemovalFacts | None:
    if plan.removals:
        return RemovalFacts.from_removals(plan.removals)
    return RemovalFacts() if plan.options.mode in REPLACING and not plan.table.creating else None


def describe(plan: IngestPlan) -> IngestFacts:
    """Return the plan for the outcome."""
    return IngestFacts(
        mode=plan.options.mode,
        creates_table=bool(plan.table.creating),
        sources=list(plan.options.sources) or [plan.options.from_table],
        files=plan.source_files,
        bytes=sum(unit.input_bytes for unit in plan.units),
        format=", ".join(plan.formats) or None,
        delimiters=_distinct(delimiter_of(file) for file in plan.text_files if file.format == CSV),
        encodings=_distinct(file.text.encoding or UTF_8 for file in plan.text_files),
        schema=[
            ColumnFacts(name=item.name, type=str(item.field_type), required=item.required)
            for item in plan.schema.fields
        ],
        new_columns=[
            name for name in plan.schema.column_names if name not in plan.table.schema.column_names
        ],
        type_notes=[
            TypeNoteFacts(column=item.column, file=item.path, row=item.row, value=item.value)
            for item in plan.type_notes
        ],
        filled_columns=[] if plan.request.partial else sorted(plan.missing),
        write_defaults=[
            WriteDefaultFacts(name=name, value=json.loads(text))
            for name, text in plan.defaults.items()
        ],
        partition_spec=[
            f"{item.transform}({column_name(plan.schema, item.source_id)}) as {item.name}"
            for item in plan.table.spec.fields
        ],
        distribution=plan.distribution,
        sorted_by=described_order(plan.order, plan.schema) if plan.order else None,
        engine=plan.engine,
        removed_files=plan.removals.files if plan.removals else 0,
        rewritten_files=plan.removals.rewritten_files if plan.removals else 0,
        loaded_run=_loaded_run(plan.request, plan.table) if plan.earlier.already else None,
        removed=_removed(plan),
    )
