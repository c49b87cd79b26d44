"""Plan an ingest: its source files, columns and distribution. Reads headers, writes nothing."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyiceberg.transforms import VoidTransform
from pyiceberg.types import UnknownType

from lake.core.catalogs.catalog import Table
from lake.core.catalogs.trust import storage_properties
from lake.core.columns.defaults import defaulted_fields, filled_columns, json_text
from lake.core.commit.guards import Guard, RunGuard, StreamGuard
from lake.core.commit.preconditions import check_commits, require_writable
from lake.core.deletes.writers import check_delete_files
from lake.core.engine.selection import engine_name
from lake.core.errors import (
    BadInputError,
    CommitConflictError,
    InvalidRequestError,
    LakeError,
    NotFoundError,
    RefusedError,
    StoppedError,
)
from lake.core.expressions.filters import bind_filter
from lake.core.expressions.parser import parse_filter
from lake.core.ingest import table_creation
from lake.core.ingest.payloads import SourceUnit
from lake.core.ingest.rejects import RejectSettings, check_rejects
from lake.core.ingest.removals import NOT_KNOWN, Removals, removals_of
from lake.core.ingest.schema_checks import SourceColumns, check_sources, is_text, named_files
from lake.core.ingest.schema_evolution import evolved
from lake.core.ingest.table_creation import EXTENSION, NewTable
from lake.core.locations import canonical
from lake.core.options import Option
from lake.core.progress import Meter, shown
from lake.core.properties.table_properties import (
    DELETE_ISOLATION,
    DISTRIBUTION,
    DISTRIBUTIONS,
    FORMAT_VERSION,
    HASH,
    MERGE_DISTRIBUTION,
    NONE,
    RANGE,
    UPSERT_ENABLED,
    Use,
    warnings,
)
from lake.core.rows.reader import FileSlice, ReadSettings, slices_of
from lake.core.rows.writer import WriteSettings
from lake.core.session import Session
from lake.core.snapshots import ancestry
from lake.core.snapshots.live_files import LiveFiles, live_files
from lake.core.snapshots.referenced_files import find_referenced
from lake.core.snapshots.streams import StreamEpoch
from lake.core.sorting.sort_keys import RowOrder, described_order
from lake.core.sources.batches import source_columns, split_parquet
from lake.core.sources.csv_files import delimiter_of
from lake.core.sources.discovery import CSV, Source, find_sources
from lake.core.sources.sniffing import with_format
from lake.core.sources.text_format import AS_SHOWN, UTF_8, TextFormat
from lake.core.sources.type_notes import TypeNote
from lake.core.staging.claims import expired_base, find_staged_run
from lake.core.staging.staged_run import StagedRun, shown_run
from lake.core.storage.storage import Storage
from lake.core.types import transform_syntax
from lake.core.types.arrow_schema import arrow_schema, moved_schema
from lake.core.types.sort_orders import partition_fields, table_order
from lake.core.types.unsupported_columns import refuse_unsupported
from lake.core.units import iso_time, natural_number

if TYPE_CHECKING:
    from pyiceberg.expressions import BooleanExpression
    from pyiceberg.schema import Schema

APPEND, OVERWRITE, OVERWRITE_WHERE, REPLACE, UPSERT = (
    "append",
    "overwrite",
    "overwrite-where",
    "replace-partitions",
    "upsert",
)
_REPLACING = frozenset({OVERWRITE, OVERWRITE_WHERE, REPLACE})
_OLDEST_VERSION = 1
_PIECE_BYTES = 128 * 1024 * 1024
_MOST_WRITERS = 10_000
_SMALLEST_TASK_BYTES = 64 * 1024 * 1024
_DIGEST = 8
# Rows of text files are about this many times as large as in Parquet.
_TEXT_RATIO = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestOptions:
    """The options of a load.

    Args:
        sources: files, globs, folders and URLs; ``-`` for standard input.
        stdin: a local file with the contents of standard input, if it is a source.
        from_table: a table whose rows are loaded instead of files.
        table_files: those of its files to load; None for all of its main branch.
        format: the format of the files; None to recognise it by their names.
        create: create the table if it does not exist.
        partition_by: partition transforms of a new table.
        sort_by: sort order of a new table.
        properties: properties of a new table.
        evolve: add new columns of the source to the table.
        mode: append, or what the rows replace: `OVERWRITE`, `OVERWRITE_WHERE`, `REPLACE`, or rows with equal keys.
        where: filter of the rows that `OVERWRITE_WHERE` replaces.
        distribution: how rows are distributed among writers; None for the table's property.
        target_bytes: size of a data file in bytes; None for the table's property.
        run_id: an id by which a repetition of this load is recognised.
        epoch: the epoch of a stream that this load is, by which a repetition is recognised; None for other loads.
        branch: the branch to load into.
        changes_column: a column of the source that contains the row kind; it is not loaded.
        stage: write all files and commit nothing.
        allow_empty: let a source without rows replace the table's rows.
        text: how text files are written.
        rejects: a local path for rows that cannot be loaded; if None, such a row is an error. See `rejects_file`.
        max_rejects: the largest number of such rows; None for any.
        write_parallelism: the number of tasks that write data files; None to choose it by the size of the source.
        places: for files whose rows come from elsewhere, what rejected rows show as file and as number of a row.
        added: for files that have more columns in a file beside them, that file; see `Source.added`.
        replaced_head: the head that an overwrite was decided for; another one is a conflict. None for any.
        no_upsert: append also to a table whose property says that loads replace rows by key.
        left_out: columns of the files that are not loaded.
        partial: let the source lack required columns, for rows that are completed from the table.

    Raises:
        InvalidRequestError: a value is not allowed or contradicts another.
    """

    sources: Sequence[str] = ()
    stdin: str | None = None
    from_table: str | None = None
    table_files: LiveFiles | None = None
    format: str | None = None
    create: bool = False
    partition_by: str | None = None
    sort_by: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    evolve: bool = False
    mode: str = APPEND
    where: str | None = None
    distribution: str | None = None
    target_bytes: int | None = None
    run_id: str | None = None
    epoch: StreamEpoch | None = None
    branch: str = ancestry.MAIN
    changes_column: str | None = None
    stage: bool = False
    allow_empty: bool = False
    text: TextFormat = AS_SHOWN
    rejects: str | None = None
    max_rejects: int | None = None
    places: Mapping[str, tuple[str, Sequence[int]]] = field(default_factory=dict)
    added: Mapping[str, str] = field(default_factory=dict)
    replaced_head: int | None = None
    write_parallelism: int | None = None
    no_upsert: bool = False
    left_out: Collection[str] = ()
    partial: bool = False

    def __post_init__(self) -> None:
        if not self.sources and not self.from_table:
            raise InvalidRequestError("nothing to load", hint=f"give files, or {Option.FROM_TABLE}")
        if self.sources and self.from_table:
            raise InvalidRequestError(f"files and {Option.FROM_TABLE} contradict each other")
        if self.from_table and self.format:
            raise InvalidRequestError(
                f"{Option.FROM_TABLE} and {Option.FORMAT} contradict each other"
            )
        self._check_rejects()
        if self.from_table and self.text != AS_SHOWN:
            raise InvalidRequestError(
                f"{Option.FROM_TABLE} and options of text files contradict each other"
            )
        if self.changes_column and not self.text.header:
            raise InvalidRequestError(
                f"{Option.CHANGES_COLUMN} needs files with a header: it names a column of the file"
            )
        if (self.partition_by or self.sort_by or self.properties) and not self.create:
            raise InvalidRequestError(
                f"{Option.PARTITION_BY}, {Option.SORT_BY} and {Option.PROPERTIES} need {Option.CREATE}"
            )
        if self.distribution not in {None, *DISTRIBUTIONS}:
            raise InvalidRequestError(
                f"{Option.DISTRIBUTION} {self.distribution!r} is not one of none, hash, range"
            )
        if self.write_parallelism is not None:
            _check_parallelism(self.write_parallelism)
        if self.run_id is not None and not self.run_id.strip():
            raise InvalidRequestError(f"{Option.RUN_ID} is empty")
        if self.allow_empty and self.mode not in {OVERWRITE, OVERWRITE_WHERE}:
            raise InvalidRequestError(
                f"{Option.ALLOW_EMPTY} needs {Option.OVERWRITE} or {Option.OVERWRITE_WHERE}"
            )
        if self.stage and (self.create or self.mode in _REPLACING):
            option = Option.CREATE if self.create else Option(self.mode.replace("-", "_"))
            raise InvalidRequestError(
                f"{Option.STAGE} and {option} contradict each other",
                hint=f"{Option.STAGE} supports appends to an existing table, and changes by key that do not read "
                "the table's rows",
            )

    @property
    def guard(self) -> Guard | None:
        """What shows that the load is committed; None if no repetition of it is recognised."""
        if self.epoch is not None:
            return StreamGuard(self.epoch)
        return None if self.run_id is None else RunGuard(self.run_id)

    @property
    def rejects_file(self) -> str | None:
        """The file for rows that cannot be loaded: each epoch of a stream has its own.

        A repetition of an epoch writes the same file. An epoch of the same number with other rows writes another one:
        so no file is replaced that contains rows of a committed epoch.
        """
        if self.rejects is None or self.epoch is None:
            return self.rejects
        stem, suffix = os.path.splitext(self.rejects)
        digest = hashlib.sha256(self.epoch.text.encode()).hexdigest()[:_DIGEST]
        return f"{stem}-epoch-{self.epoch.number:010d}-{digest}{suffix}"

    def _check_rejects(self) -> None:
        if self.max_rejects is not None and self.rejects is None:
            raise InvalidRequestError(f"{Option.MAX_REJECTS} needs {Option.REJECTS}")
        if self.max_rejects is not None and self.max_rejects < 0:
            raise InvalidRequestError(f"{Option.MAX_REJECTS} {self.max_rejects} is negative")


def _check_parallelism(number: int) -> None:
    if not 1 <= number <= _MOST_WRITERS:
        raise InvalidRequestError(
            f"{Option.WRITE_PARALLELISM} {number} is not between 1 and {_MOST_WRITERS:,}"
        )


@dataclass(frozen=True, slots=True)
class Unit:
    """A file, or a piece of one, that one task reads, and about what it weighs.

    `number` is a data file's place among the live files of the source table.
    """

    read: SourceUnit
    weight: int
    number: int | None = None

    @property
    def input_bytes(self) -> int:
        """Bytes that are read."""
        return self.read.input_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestPlan:
    """A decided ingest.

    Args:
        options: what was asked.
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
        removed: paths of live files that go whole.
        rewritten: live files of which some rows may stay, None for none.
        also_read_bytes: about what is read of the table beside these.
        base_snapshot_id: the branch's head that all this was decided on.
        defaults: write defaults, as JSON by full name, of the columns that a source lacks.
        missing: the columns that a source lacks.
        absent: those of them that every source lacks.
        type_notes: why columns of text files are inferred as text.
        already: an earlier run of the same id has landed, so there is nothing to do.
        run: what an earlier run of the same id has left, if anything.
    """

    options: IngestOptions
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
    already: bool = False
    run: StagedRun | None = None

    @property
    def is_settled(self) -> bool:
        """Whether the source need not be read: the run has landed, or only lacks its commit."""
        return self.already or (self.run is not None and self.run.problem is None)

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
        specs, projection = self.table.metadata.specs(), self.moved_schema
        files = [
            file
            for spec_id, entries in self.rewritten.by_spec.items()
            for file in slices_of(entries, spec=specs[spec_id], schema=self.table.schema)
        ]
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
            for number, file in enumerate(files)
        ]

    @property
    def moved_schema(self) -> Schema:
        """What rows of the table are written as when they move to another file."""
        return moved_schema(self.schema, self.table.metadata)

    def settings(self, operation_id: str) -> WriteSettings:
        """Return how rows are written as they come."""
        return WriteSettings.of(
            self.table, operation_id, target_bytes=self.options.target_bytes, schema=self.schema
        )

    def reject_settings(self, operation_id: str) -> RejectSettings | None:
        """Return how rows that cannot be loaded are set aside; None if the first of them is an error."""
        if self.options.rejects is None:
            return None
        return RejectSettings(
            folder=self.table.data_location,
            name=f"lake-rejects-{operation_id}",
            limit=self.options.max_rejects,
            with_columns=self.options.mode not in {APPEND, *_REPLACING},
        )

    def ordered_settings(self, operation_id: str) -> WriteSettings:
        """Return how rows are written by those who sort them, if they are to be sorted."""
        settings = self.settings(operation_id)
        return replace(settings, order=self.order, sort_order_id=self.sort_order_id)


def plan_ingest(session: Session, identifier: str, options: IngestOptions) -> IngestPlan:
    """Look at sources and table and decide; nothing is written.

    Raises:
        BadInputError: a source cannot be read or does not fit the table.
        RefusedError: the table cannot be written.
    """
    existing, earlier = _existing(session, identifier, options), None
    if existing is not None:
        require_writable(existing, options.branch)
        ancestry.branch_head(existing.metadata, options.branch)
        earlier = _earlier(session, existing, options)
        if earlier.is_settled:
            if not earlier.already and not options.stage:
                session.warn(
                    f"{_shown_load(options)} was written before: its source is not read again"
                )
            return earlier
        if options.replaced_head not in {None, earlier.base_snapshot_id}:
            raise CommitConflictError(f"another writer changed {identifier}: nothing was changed")
    if options.rejects_file is not None:
        check_rejects(options.rejects_file, may_exist=options.epoch is not None)
    if options.from_table:
        plan = _plan_from_table(session, identifier, existing, options, options.from_table)
    else:
        plan = _plan_from_files(session, identifier, existing, options)
    if options.stage and not plan.is_stageable:
        raise InvalidRequestError(
            f"{Option.STAGE} and {Option.EVOLVE} contradict each other if the source has new columns",
            hint="a staged load cannot add columns to the table",
        )
    _check_properties(session, plan)
    plan = _with_removals(plan)
    if plan.rewritten is not None or options.mode not in {APPEND, *_REPLACING}:
        # Rows that move to new files, or are replaced by key, would lose their values there.
        refuse_unsupported(plan.schema)
    if plan.rewritten is not None:
        for ignored in warnings(plan.table.properties, [Use.OVERWRITE]):
            session.warn(ignored)
    distribution = _distribution(session, plan.table, options)
    order, sort_order_id = _order(session, plan, distribution)
    return replace(
        plan,
        run=earlier.run if earlier else None,
        distribution=distribution,
        order=order,
        sort_order_id=sort_order_id,
        engine=engine_name(session.settings.engine, plan.input_bytes, session.settings),
    )


def _check_properties(session: Session, plan: IngestPlan) -> None:
    """Check the table's properties that the load depends on; warn about those that it does not honour."""
    properties, mode = plan.table.properties, plan.options.mode
    settings = plan.settings("")
    settings.check_data_files()
    if plan.table.creating:
        check_commits(properties)
        check_delete_files(settings)
    if mode in _REPLACING:
        DELETE_ISOLATION.of(properties)
    if mode == APPEND:
        UPSERT_ENABLED.of(properties)
    for ignored in warnings(properties, [Use.WRITE, Use.LOAD]):
        session.warn(ignored)


def _earlier(session: Session, table: Table, options: IngestOptions) -> IngestPlan:
    """Return the plan's part that depends on an earlier run with the same id."""
    guard, now_ms = options.guard, session.clock.now_ms()
    already = guard is not None and guard.is_held(table, options.branch, now_ms)
    run = _lying_there(session, table, options)
    if run is not None and options.epoch is not None and not already:
        run = _with_expiry(table, options.branch, run)
    return IngestPlan(
        options=options,
        table=table,
        schema=table.schema,
        already=already,
        run=run,
        base_snapshot_id=_head_id(table, options.branch),
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


def _lying_there(session: Session, table: Table, options: IngestOptions) -> StagedRun | None:
    name = options.epoch or options.run_id
    if name is None:
        return None
    try:
        return find_staged_run(table, name)
    except StoppedError:
        raise
    except (LakeError, OSError) as error:
        session.warn(f"whether {shown_run(name)} was written before cannot be seen: {error}")
        return None


def _shown_load(options: IngestOptions) -> str:
    return shown_run(options.epoch or options.run_id or "")


def _existing(session: Session, identifier: str, options: IngestOptions) -> Table | None:
    try:
        return session.table(identifier)
    except NotFoundError as error:
        if not options.create:
            raise NotFoundError(
                error.message, hint=f"add {Option.CREATE} to create the table"
            ) from error
    if options.branch != ancestry.MAIN:
        raise InvalidRequestError(f"a new table has no branch {options.branch}: its first is main")
    return None


# From another table


def _plan_from_table(
    session: Session,
    identifier: str,
    existing: Table | None,
    options: IngestOptions,
    source_name: str,
) -> IngestPlan:
    chosen = options.table_files
    source = session.table(source_name) if chosen is None else chosen.table
    refuse_unsupported(source.schema)
    columns = SourceColumns(source_name, arrow_schema(source.schema))
    if existing is None and any(defaulted_fields(source.schema.fields)):
        session.warn(f"the new table does not get the write defaults of {source_name}")
    table, new = existing, None
    if table is None:
        new = _new_table(session, options, _schema_like(source, options))
        table = new.stage(session.catalog, identifier, make_namespace=False)
    head = ancestry.branch_head(source.metadata, ancestry.MAIN)
    found = chosen or (None if head is None else live_files(source, head))
    files = [] if found is None else _slices(found)
    return IngestPlan(
        options=options,
        table=table,
        new_table=new,
        schema=_target_schema(session, table, [columns], options),
        units=[
            Unit(SourceUnit(file=piece, input_bytes=bytes_read), bytes_read, number)
            for number, file in enumerate(files)
            for piece, bytes_read in _pieces(file)
        ],
        source=found,
        formats=["table"],
        source_files=len(files),
        base_snapshot_id=_head_id(table, options.branch),
        defaults=_defaults(table.schema, [columns]),
        missing=_missing(table.schema, [columns]),
        absent=_absent(table.schema, [columns]),
    )


def _schema_like(source: Table, options: IngestOptions) -> Schema:
    """Return the schema of a new table for the rows of another."""
    version = _asked_version(options)
    for name in source.schema.column_names:
        kind = source.schema.find_type(name)
        if kind.minimum_format_version() > version:
            raise RefusedError(
                f"column {name} of {source.identifier} is of the type {kind}, which tables of format version "
                f"{version} do not have",
                hint=f"use {Option.PROPERTIES} format-version={kind.minimum_format_version()}",
            )
    return table_creation.schema_like(source.schema)


def _slices(found: LiveFiles) -> list[FileSlice]:
    specs = found.table.metadata.specs()
    return [
        item
        for spec_id, entries in found.by_spec.items()
        for item in slices_of(entries, spec=specs[spec_id], schema=found.schema)
    ]


def _pieces(file: FileSlice) -> list[tuple[FileSlice, int]]:
    """Cut a data file into ranges of bytes; a row group belongs to the range that it begins in."""
    if file.size_bytes <= _PIECE_BYTES:
        return [(file, file.size_bytes)]
    starts = range(0, file.size_bytes, _PIECE_BYTES)
    return [
        (
            replace(file, start=start, length=_PIECE_BYTES),
            min(_PIECE_BYTES, file.size_bytes - start),
        )
        for start in starts
    ]


# From files


def _plan_from_files(
    session: Session, identifier: str, existing: Table | None, options: IngestOptions
) -> IngestPlan:
    storage = _source_storage(session, existing)
    names = [options.stdin if name == "-" and options.stdin else name for name in options.sources]
    known = existing.schema if existing else None
    notes: list[TypeNote] = []
    with shown(session.progress, Meter("listing and checking files")):
        found = find_sources(storage, names, options.format)
        files = _with_text_formats(session, storage, found, known, options)
        columns = _columns_of(storage, files, known, notes, options)
    for note in notes:
        session.warn(note.text)
    for name in options.left_out:
        columns = [_without(one, name) for one in columns]
    if (kinds := options.changes_column) is not None:
        if existing and kinds in {item.name for item in existing.schema.fields}:
            raise InvalidRequestError(
                f"{Option.CHANGES_COLUMN} {kinds} is a column of the table: it cannot also contain "
                "the row kind"
            )
        columns = [_without(one, kinds) for one in columns]
    table, new = existing, None
    if table is None:
        if not any(len(one.columns) for one in columns):
            raise BadInputError("the source is empty: it has no columns to make a table of")
        schema = _new_columns(session, columns, _asked_version(options)).schema_of(_merged(columns))
        new = _new_table(session, options, schema)
        table = new.stage(session.catalog, identifier, make_namespace=False)
    pieces = [piece for file in files for piece in split_parquet(storage, file, _PIECE_BYTES)]
    return IngestPlan(
        options=options,
        table=table,
        new_table=new,
        schema=_target_schema(session, table, columns, options),
        units=[
            Unit(SourceUnit(source=piece, input_bytes=piece.size_bytes), _weight(piece))
            for piece in pieces
        ],
        formats=list(dict.fromkeys(file.format for file in files)),
        source_files=len(files),
        base_snapshot_id=_head_id(table, options.branch),
        defaults=_defaults(table.schema, columns),
        missing=_missing(table.schema, columns),
        absent=_absent(table.schema, columns),
        type_notes=notes,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class FileColumns:
    """The columns of all files of a load, without regard to a table.

    Args:
        storage: the storage of the files.
        files: the files.
        columns: the columns of each that has a readable line.
        schema: the schema of a new table of all of them.
        notes: why columns of text files are inferred as text.
        warnings: what a new table does not keep of the columns' types.
    """

    storage: Storage
    files: Sequence[Source]
    columns: Sequence[SourceColumns]
    schema: Schema
    notes: Sequence[TypeNote]
    warnings: Sequence[str]


def read_file_columns(session: Session, options: IngestOptions) -> FileColumns:
    """Read the columns of files; types that text files lack are inferred from all of their rows.

    Raises:
        BadInputError: a file cannot be read, or the files have no columns. Files of an epoch may have none.
    """
    storage = _source_storage(session, None)
    names = [options.stdin if name == "-" and options.stdin else name for name in options.sources]
    notes: list[TypeNote] = []
    warned: list[str] = []
    with shown(session.progress, Meter("listing and checking files")):
        found = find_sources(storage, names, options.format)
        files = _with_text_formats(session, storage, found, None, options)
        columns = _columns_of(storage, files, None, notes, options)
    if options.epoch is None and not any(len(one.columns) for one in columns):
        raise BadInputError("the source is empty: it has no columns")
    made = replace(_new_columns(session, columns, _asked_version(options)), warn=warned.append)
    return FileColumns(
        storage=storage,
        files=files,
        columns=columns,
        schema=made.schema_of(_merged(columns) if columns else pa.schema([])),
        notes=notes,
        warnings=warned,
    )


def schema_with_columns(
    session: Session, table: Table, columns: Sequence[SourceColumns], options: IngestOptions
) -> Schema:
    """Return a table's schema with the sources' new columns.

    Raises:
        BadInputError: the columns do not fit the table.
    """
    return _target_schema(session, table, columns, replace(options, evolve=True))


def columns_of_layout(options: IngestOptions, schema: Schema) -> set[str]:
    """Return the top-level columns of a new table by which it is partitioned or sorted."""
    spec = transform_syntax.partition_spec(options.partition_by, schema)
    order = transform_syntax.sort_order(options.sort_by, schema)
    ids = [item.source_id for item in spec.fields]
    ids += [item.source_id for item in order.fields]
    return {str(schema.find_column_name(column)).split(".")[0] for column in ids}


def count_before_new_schema(
    session: Session, identifier: str | None, options: IngestOptions
) -> int:
    """Return how many of the first sources can be loaded in one commit so that it does not mix schemas.

    These are the sources before the first one that changes the table's schema; or, if the first one does, those with
    the same columns. A source that cannot be read ends them too. The sources are names of files. Without a table,
    all of them count as changing the schema.

    Raises:
        BadInputError: the sources do not exist.
    """
    existing = _existing(session, identifier, options) if identifier is not None else None
    storage = _source_storage(session, existing)
    first: _Needed | None = None
    known: dict[str, bool] = {}
    for number, name in enumerate(options.sources):
        try:
            needed = _needed_schema(
                session, storage, existing, replace(options, sources=[name]), known
            )
        except BadInputError:
            return max(number, 1)
        first = first or needed
        if first.changes != needed.changes or (first.changes and first.columns != needed.columns):
            return number
    return len(options.sources)


@dataclass(frozen=True, slots=True)
class _Needed:
    """Whether a source changes the table's schema, and the source's columns as text."""

    changes: bool
    columns: str


def _needed_schema(
    session: Session,
    storage: Storage,
    existing: Table | None,
    options: IngestOptions,
    known: dict[str, bool],
) -> _Needed:
    schema = existing.schema if existing else None
    found = find_sources(storage, options.sources, options.format)
    files = _with_text_formats(session, storage, found, schema, options)
    columns = _columns_of(storage, files, schema, [], options)
    if options.changes_column is not None:
        columns = [_without(one, options.changes_column) for one in columns]
    text = "".join(one.columns.to_string(show_schema_metadata=False) for one in columns)
    if text not in known:
        known[text] = existing is None or (
            _target_schema(session, existing, columns, options) != existing.schema
        )
    return _Needed(known[text], text)


def _source_storage(session: Session, existing: Table | None) -> Storage:
    configured = session.catalog.configured
    return existing.storage if existing else Storage(storage_properties(configured))


def _with_text_formats(
    session: Session,
    storage: Storage,
    files: Sequence[Source],
    known: Schema | None,
    options: IngestOptions,
) -> list[Source]:
    """Return the files with the formats of their texts; warn of what is found out about them."""
    names = [item.name for item in known.fields] if known else []
    formatted: list[Source] = []
    by_note: dict[str, list[str]] = {}
    for file in files:
        source, notes = with_format(storage, file, options.text, names)
        formatted.append(replace(source, added=options.added.get(file.path)))
        for note in notes:
            by_note.setdefault(note, []).append(file.path)
    for note, paths in by_note.items():
        session.warn(f"{named_files(paths)} {'is' if len(paths) == 1 else 'are'} {note}")
    return formatted


def _new_columns(
    session: Session, sources: Sequence[SourceColumns], format_version: int
) -> table_creation.NewColumns:
    """Return the settings for creating a table's columns from the sources' columns."""
    text = {name for source in sources if is_text(source) for name in source.columns.names}
    return table_creation.NewColumns(format_version, session.warn, text)


def _asked_version(options: IngestOptions) -> int:
    """Return the format version of a new table; an invalid one is refused when the table is created."""
    version = options.properties.get(FORMAT_VERSION.name, FORMAT_VERSION.default)
    return natural_number(str(version)) or _OLDEST_VERSION


def _without(source: SourceColumns, name: str) -> SourceColumns:
    """Return a source's columns without the one that contains the row kind."""
    index = source.columns.get_field_index(name)
    if index < 0:
        raise BadInputError(f"{source.name} has no column {name}, which must contain the row kind")
    return replace(source, columns=source.columns.remove(index))


def _weight(piece: Source) -> int:
    packed = piece.path.endswith((".gz", ".bz2", ".zst", ".lz4"))
    return piece.size_bytes // _TEXT_RATIO if piece.is_text and not packed else piece.size_bytes


def _columns_of(
    storage: Storage,
    files: Sequence[Source],
    known: Schema | None,
    notes: list[TypeNote],
    options: IngestOptions,
) -> list[SourceColumns]:
    """Return each file's columns, text files without a line left out.

    Types that text files lack are the table's; without a table they are inferred from the first text file,
    all of it, and the later ones are read as that type.
    """
    found: list[SourceColumns] = []
    asked = known is None or options.evolve
    skip_bad = options.rejects is not None
    for file in files:
        infer = asked and not _all_known(storage, file, known, skip_bad=skip_bad)
        columns = source_columns(storage, file, known, infer=infer, notes=notes, skip_bad=skip_bad)
        if columns is None:
            continue
        found.append(SourceColumns(file.path, columns, file))
        if known is None and file.is_text:
            known = table_creation.NewColumns(text=columns.names).schema_of(columns)
    return found


def _all_known(storage: Storage, file: Source, known: Schema | None, *, skip_bad: bool) -> bool:
    """Whether the beginning of a text file contains known columns only."""
    if known is None or not file.is_text:
        return False
    columns = source_columns(storage, file, known, infer=False, skip_bad=skip_bad)
    # Columns of the type unknown get one now.
    typed = {item.name for item in known.fields if not isinstance(item.field_type, UnknownType)}
    return columns is not None and set(columns.names) <= typed


def _merged(columns: Sequence[SourceColumns], settled: Collection[str] = ()) -> pa.Schema:
    """Return all sources' columns without the settled ones; if numbers differ in width, with the wider type.

    Raises:
        BadInputError: the types of a column of two sources cannot be merged.
    """
    plain = [
        pa.schema([_bare(item) for item in one.columns if item.name not in settled])
        for one in columns
    ]
    try:
        return pa.unify_schemas(plain, promote_options="permissive")
    except pa.ArrowException as error:
        raise BadInputError(f"the sources' columns do not go together: {error}") from error


def _bare(item: pa.Field) -> pa.Field:
    """Return a field without metadata that is specific to one file; it may keep the name of an extension type."""
    metadata = {name: value for name, value in (item.metadata or {}).items() if name == EXTENSION}
    return pa.field(item.name, item.type, metadata=metadata or None)


def _new_table(session: Session, options: IngestOptions, schema: Schema) -> NewTable:
    return table_creation.new_table(
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


def _target_schema(
    session: Session, table: Table, columns: Sequence[SourceColumns], options: IngestOptions
) -> Schema:
    if options.create and not table.creating:
        _warn_of_differences(session, table, options)
    check_sources(table.schema, columns, evolve=options.evolve, partial=options.partial)
    if not options.evolve or table.creating or not columns:
        return table.schema
    metadata = table.metadata
    next_id = max(item.schema_id for item in metadata.schemas) + 1
    known = {item.name for item in table.schema.fields}
    table_creation.refuse_reserved(
        name for source in columns for name in source.columns.names if name not in known
    )
    settled = {
        item.name
        for item in table.schema.fields
        if item.field_type.is_primitive and not isinstance(item.field_type, UnknownType)
    }
    made = _new_columns(session, columns, metadata.format_version)
    merged = _merged(columns, settled)
    schema = evolved(table.schema, metadata.last_column_id, next_id, merged, made)
    _refuse_typed_partitions(table, schema)
    table_creation.warn_of_similar_names(schema, session.warn, table.schema.column_names)
    return schema


def _refuse_typed_partitions(table: Table, schema: Schema) -> None:
    """Refuse to give a type to a column of the type unknown by whose values the table is partitioned."""
    for part in table.spec.fields:
        kind = table.schema.find_type(part.source_id)
        is_void = isinstance(part.transform, VoidTransform)
        if (
            isinstance(kind, UnknownType)
            and kind != schema.find_type(part.source_id)
            and not is_void
        ):
            name = schema.find_column_name(part.source_id)
            raise RefusedError(
                f"{Option.EVOLVE} cannot give column {name} a type: the table is partitioned by its values",
                hint="Remove the column from the partition spec first.",
            )


def _defaults(schema: Schema, sources: Sequence[SourceColumns]) -> dict[str, str]:
    """Return the write defaults of the columns that a source lacks: as JSON, by full name."""
    return {
        name: json_text(item)
        for source in sources
        for name, item in filled_columns(schema.fields, source.columns)
    }


def _missing(schema: Schema, sources: Sequence[SourceColumns]) -> frozenset[str]:
    """Return the names of the columns that a source lacks."""
    names = {item.name for item in schema.fields}
    return frozenset(name for source in sources for name in names - set(source.columns.names))


def _absent(schema: Schema, sources: Sequence[SourceColumns]) -> frozenset[str]:
    """Return the names of the columns that every source lacks."""
    known = {name for source in sources for name in source.columns.names}
    return frozenset(item.name for item in schema.fields) - known


def _warn_of_differences(session: Session, table: Table, options: IngestOptions) -> None:
    """Warn if the existing table differs from the requested new table."""
    if options.partition_by is not None:
        asked = transform_syntax.partition_spec(options.partition_by, table.schema)
        if not asked.compatible_with(table.spec):
            terms = (
                ", ".join(transform_syntax.partition_terms(table.spec, table.schema)) or "nothing"
            )
            session.warn(
                f"{table.identifier} already exists and is partitioned by {terms}; "
                f"{Option.PARTITION_BY} is ignored"
            )
    if options.sort_by is not None:
        order = transform_syntax.sort_order(options.sort_by, table.schema)
        if order.fields != table.metadata.sort_order().fields:
            session.warn(
                f"{table.identifier} exists with another sort order: {Option.SORT_BY} is ignored"
            )
    version = str(table.metadata.format_version)
    have = {**table.properties, "format-version": version}
    if any(have.get(key) != value for key, value in options.properties.items()):
        session.warn(
            f"{table.identifier} exists with other properties: {Option.PROPERTIES} is ignored"
        )


def _distribution(session: Session, table: Table, options: IngestOptions) -> str:
    partitioned = not table.spec.is_unpartitioned()
    asked = options.distribution
    if asked is None and options.mode == UPSERT:
        asked = MERGE_DISTRIBUTION.of(table.properties)
    wanted = asked or DISTRIBUTION.of(table.properties)
    if wanted == RANGE and options.mode in {APPEND, *_REPLACING}:
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


def _order(
    session: Session, plan: IngestPlan, distribution: str
) -> tuple[RowOrder | None, int | None]:
    """Return the order in which each task writes, and the id of the table's sort order if it is that.

    Source: Iceberg's SparkWriteUtil: rows are grouped by partition, and sorted by the table's order within it.
    """
    metadata = plan.table.metadata
    fields = table_order(metadata, plan.schema)
    if fields is None:
        session.warn(
            f"{plan.table.identifier} has a sort order that lake does not know: files are unsorted"
        )
    partitions = partition_fields(plan.table.spec)
    if fields:
        return RowOrder(fields=(*partitions, *fields)), metadata.default_sort_order_id
    if distribution == RANGE:
        return RowOrder(fields=partitions), None
    return None, None


def _with_removals(plan: IngestPlan) -> IngestPlan:
    """Find the live files that an overwrite removes or rewrites."""
    options, table = plan.options, plan.table
    condition = None
    if options.where is not None:
        condition = bind_filter(parse_filter(options.where), plan.schema)
        plan = replace(plan, condition=condition)
    head = None if table.creating else ancestry.branch_head(table.metadata, options.branch)
    if options.mode not in {OVERWRITE, OVERWRITE_WHERE} or head is None:
        return plan
    whole, partly = live_files(table, head, condition).split(condition)
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


def _loaded_run(plan: IngestPlan) -> dict[str, Any]:
    """Return when the run was loaded; None for what expired with its snapshot."""
    options = plan.options
    found = options.guard.find(plan.table.metadata, options.branch) if options.guard else None
    return {
        "run_id": options.epoch.stream if options.epoch else options.run_id,
        "snapshot_id": str(found.snapshot_id) if found else None,
        "committed_at": iso_time(found.timestamp_ms) if found else None,
    }


def describe(plan: IngestPlan) -> dict[str, Any]:
    """Return the plan for the outcome."""
    return {
        "mode": plan.options.mode,
        "creates_table": bool(plan.table.creating),
        "sources": list(plan.options.sources) or [plan.options.from_table],
        "files": plan.source_files,
        "bytes": sum(unit.input_bytes for unit in plan.units),
        "format": ", ".join(plan.formats) or None,
        "delimiters": _distinct(
            delimiter_of(file) for file in plan.text_files if file.format == CSV
        ),
        "encodings": _distinct(file.text.encoding or UTF_8 for file in plan.text_files),
        "schema": [
            {"name": item.name, "type": str(item.field_type), "required": item.required}
            for item in plan.schema.fields
        ],
        "new_columns": [
            name for name in plan.schema.column_names if name not in plan.table.schema.column_names
        ],
        "type_notes": [
            {"column": item.column, "file": item.path, "row": item.row, "value": item.value}
            for item in plan.type_notes
        ],
        "write_defaults": [
            {"name": name, "value": json.loads(text)} for name, text in plan.defaults.items()
        ],
        "partition_spec": [
            f"{item.transform}({plan.schema.find_column_name(item.source_id)}) as {item.name}"
            for item in plan.table.spec.fields
        ],
        "distribution": plan.distribution,
        **({"sorted_by": described_order(plan.order, plan.schema)} if plan.order else {}),
        "engine": plan.engine,
        "removed_files": 0,
        "rewritten_files": 0,
        **({"loaded_run": _loaded_run(plan)} if plan.already else {}),
        **(NOT_KNOWN if plan.options.mode in _REPLACING and not plan.table.creating else {}),
        **(plan.removals.facts() if plan.removals else {}),
    }
