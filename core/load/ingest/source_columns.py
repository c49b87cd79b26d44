"""The columns of a load's sources, and the schema that they are written to."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa
from pyiceberg.types import UnknownType

from lake.core.base.errors import BadInputError
from lake.core.base.options import Option
from lake.core.base.progress import Meter, shown
from lake.core.base.units import natural_number
from lake.core.data.columns.defaults import filled_columns, json_text
from lake.core.data.schemas import new_tables
from lake.core.data.schemas.evolution import (
    evolved,
    refuse_taken_names,
    refuse_typed_partitions,
)
from lake.core.data.schemas.header_checks import (
    check_one_column,
    refuse_different,
    refuse_unrelated,
    warn_of_values,
)
from lake.core.data.schemas.new_tables import EXTENSION
from lake.core.data.schemas.source_checks import SourceColumns, check_sources, is_text, named_files
from lake.core.data.sources.acceptance import NeededColumns, lacks_columns
from lake.core.data.sources.added_columns import added_schema
from lake.core.data.sources.batches import source_columns
from lake.core.data.sources.discovery import JSON, Source, find_sources
from lake.core.data.sources.sniffing import with_format
from lake.core.data.sources.type_notes import TypeNote
from lake.core.io.storage.storage import Storage
from lake.core.load.ingest.options import IngestOptions, LoadRequest
from lake.core.spec.properties.table_properties import FORMAT_VERSION
from lake.core.spec.types import transform_syntax
from lake.core.spec.types.arrow_schema import top_columns
from lake.core.spec.types.type_text import type_text
from lake.core.table.catalogs.catalog import Table
from lake.core.table.catalogs.trust import storage_properties
from lake.core.transaction.session import Session

if TYPE_CHECKING:
    from pyiceberg.schema import Schema

_OLDEST_VERSION = 1


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


def read_file_columns(session: Session, request: LoadRequest) -> FileColumns:
    """Read the columns of files; types that text files lack are inferred from all of their rows.

    Raises:
        BadInputError: a file cannot be read, or the files have no columns. Files of an epoch may have none.
    """
    options, storage = request.options, source_storage(session, None)
    notes: list[TypeNote] = []
    warned: list[str] = []
    with shown(session.progress, Meter("listing and checking files")):
        found = find_sources(storage, request.paths, options.format)
        files = with_text_formats(session, storage, found, None, request)
        columns = columns_of_files(storage, files, None, notes, options)
    check_names(session, files, columns, None, request)
    if request.epoch is None and not any(len(one.columns) for one in columns):
        raise BadInputError("the source is empty: it has no columns")
    made = replace(new_columns(session, columns, asked_version(options)), warn=warned.append)
    return FileColumns(
        storage=storage,
        files=files,
        columns=columns,
        schema=made.schema_of(merged_columns(columns) if columns else pa.schema([])),
        notes=notes,
        warnings=warned,
    )


def schema_of_file(session: Session, path: str, properties: Mapping[str, str]) -> Schema:
    """Return the schema of a new table, with some properties, that has the columns of a file; warn of what it loses.

    Raises:
        BadInputError: the file cannot be read, or has no columns.
    """
    options = IngestOptions(sources=[path], create=True, properties=properties)
    found = read_file_columns(session, LoadRequest(options=options, epoch=None))
    for warning in found.warnings:
        session.warn(warning)
    return found.schema


def schema_with_columns(
    session: Session, table: Table, columns: Sequence[SourceColumns], request: LoadRequest
) -> Schema:
    """Return a table's schema with the sources' new columns.

    Raises:
        BadInputError: the columns do not fit the table.
    """
    wanted = replace(request, options=replace(request.options, evolve=True))
    return target_schema(session, table, columns, wanted)


def columns_of_layout(options: IngestOptions, schema: Schema) -> set[str]:
    """Return the top-level columns of a new table by which it is partitioned or sorted."""
    spec = transform_syntax.partition_spec(options.partition_by, schema)
    order = transform_syntax.sort_order(options.sort_by, schema)
    ids = [item.source_id for item in spec.fields]
    ids += [item.source_id for item in order.fields]
    return {item.name for item in top_columns(schema, ids).fields} if ids else set()


def source_storage(session: Session, existing: Table | None) -> Storage:
    """Return the storage that reads the sources: the table's, or one with the catalog's settings."""
    configured = session.catalog.configured
    return existing.storage if existing else Storage(storage_properties(configured))


def with_text_formats(
    session: Session,
    storage: Storage,
    files: Sequence[Source],
    known: Schema | None,
    request: LoadRequest,
) -> list[Source]:
    """Return the files with the formats of their texts; warn of what is found out about them."""
    names = [item.name for item in known.fields] if known else []
    formatted: list[Source] = []
    by_note: dict[str, list[str]] = {}
    for file in files:
        source, notes = with_format(storage, file, request.options.text, names)
        added = request.added.get(file.path)
        formatted.append(replace(source, added=added, needed=_needed(known, request, added)))
        for note in notes:
            by_note.setdefault(note, []).append(file.path)
    for note, paths in by_note.items():
        session.warn(f"{named_files(paths)} {'is' if len(paths) == 1 else 'are'} {note}")
    return formatted


def _needed(known: Schema | None, request: LoadRequest, added: str | None) -> NeededColumns | None:
    """Return the columns that each row of a file must have; those in a file beside it are always there."""
    if known is None or request.needs is None:
        return None
    needed = request.needs.of(known)
    beside = set() if added is None else set(added_schema(added).names)
    return replace(needed, names=tuple(name for name in needed.names if name not in beside))


def refuse_lacking(table: Table, sources: Sequence[SourceColumns], request: LoadRequest) -> None:
    """Refuse sources without columns of the table whose values the rows that they replace would lose.

    Of a change log in files, and of JSON of which rows may be rejected, each row is checked when it is read.

    Raises:
        BadInputError: a source lacks a column.
    """
    if request.needs is None or table.creating:
        return
    needed = request.needs.of(table.schema)
    by_lacking: dict[tuple[str, ...], list[str]] = {}
    for source in sources:
        by_row = needed.kinds is not None or (rejects_rows(source, request.options))
        if not (by_row and source.file is not None):
            by_lacking.setdefault(tuple(needed.lacking(source.columns.names)), []).append(
                source.name
            )
    by_lacking.pop((), None)
    for lacking, names in by_lacking.items():
        raise lacks_columns(named_files(names), lacking, in_log=needed.kinds is not None)


def rejects_rows(source: SourceColumns, options: IngestOptions) -> bool:
    """Whether each row of a source has its own columns, and those that do not fit are set aside."""
    is_json = source.file is not None and source.file.format == JSON
    return is_json and options.rejects is not None


def new_columns(
    session: Session, sources: Sequence[SourceColumns], format_version: int
) -> new_tables.NewColumns:
    """Return the settings for creating a table's columns from the sources' columns."""
    text = {name for source in sources if is_text(source) for name in source.columns.names}
    return new_tables.NewColumns(format_version, session.warn, text)


def asked_version(options: IngestOptions) -> int:
    """Return the format version of a new table; an invalid one is refused when the table is created."""
    version = options.properties.get(FORMAT_VERSION.name, FORMAT_VERSION.default)
    return natural_number(str(version)) or _OLDEST_VERSION


def without_column(source: SourceColumns, name: str) -> SourceColumns:
    """Return a source's columns without the one that contains the row kind."""
    index = source.columns.get_field_index(name)
    if index < 0:
        raise BadInputError(f"{source.name} has no column {name}, which must contain the row kind")
    return replace(source, columns=source.columns.remove(index))


def columns_of_files(
    storage: Storage,
    files: Sequence[Source],
    known: Schema | None,
    notes: list[TypeNote],
    options: IngestOptions,
) -> list[SourceColumns]:
    """Return each file's columns, text files without a line left out.

    Types that text files lack are the table's; without a table they are inferred from the first text file,
    all of it, and the later ones are read as that type. If rows of JSON may be rejected, all files are inferred: a
    new column has the type of its first value.
    """
    found: list[SourceColumns] = []
    asked = known is None or options.evolve
    skip_bad = options.rejects is not None
    first: Schema | None = None
    seen: dict[str, pa.DataType] = {}
    for file in files:
        by_row = skip_bad and file.format == JSON
        types = known or (None if by_row else first)
        infer = asked and not _all_known(storage, file, types, skip_bad=skip_bad)
        columns = source_columns(
            storage, file, types, infer=infer, notes=notes, seen=seen, skip_bad=skip_bad
        )
        if columns is None:
            continue
        found.append(SourceColumns(file.path, columns, file))
        if by_row:
            new = set(columns.names).difference(known.column_names if known else ())
            seen |= {name: columns.field(name).type for name in new}
        elif known is None and first is None and file.is_text:
            first = new_tables.NewColumns(text=columns.names).schema_of(columns)
    return found


def _all_known(storage: Storage, file: Source, known: Schema | None, *, skip_bad: bool) -> bool:
    """Whether the beginning of a text file contains known columns only."""
    if known is None or not file.is_text:
        return False
    columns = source_columns(storage, file, known, infer=False, skip_bad=skip_bad)
    # Columns of the type unknown get one now.
    typed = {item.name for item in known.fields if not isinstance(item.field_type, UnknownType)}
    return columns is not None and set(columns.names) <= typed


def merged_columns(columns: Sequence[SourceColumns], fixed: Collection[str] = ()) -> pa.Schema:
    """Return all sources' columns but those with fixed types; if numbers differ in width, with the wider type.

    Raises:
        BadInputError: the types of a column of two sources cannot be merged.
    """
    plain = [
        pa.schema([_bare(item) for item in one.columns if item.name not in fixed])
        for one in columns
    ]
    try:
        return pa.unify_schemas(plain, promote_options="permissive")
    except pa.ArrowException as error:
        raise BadInputError(_misfit(columns, plain)) from error


def check_names(
    session: Session,
    files: Sequence[Source],
    sources: Sequence[SourceColumns],
    known: Schema | None,
    request: LoadRequest,
) -> None:
    """Check what the names of columns show: a wrong delimiter, a missing header, files of different tables.

    Raises:
        BadInputError: a new table would get a column of whole lines, or files have different columns.
    """
    options = request.options
    if known is None:
        given = options.text.delimiter is not None
        check_one_column(sources, given=given, warn=session.warn)
    # An epoch of a stream contains files as they arrive: each of them could be loaded alone.
    if request.epoch is not None:
        return
    # Loads by key say themselves what becomes of columns that a source lacks.
    by_key = request.needs is not None or options.missing is not None or request.partial
    if not (options.union_columns or by_key):
        refuse_different(sources)
    if options.text.header and (known is None or options.evolve):
        warn_of_values(sources, known.column_names if known else (), session.warn)
    if empty := [file.path for file in files if not file.size_bytes]:
        session.warn(f"{named_files(empty)} {'is' if len(empty) == 1 else 'are'} empty (0 bytes)")


def _misfit(columns: Sequence[SourceColumns], schemas: Sequence[pa.Schema]) -> str:
    """Return which column of which source cannot be merged with those of the sources before it."""
    merged: dict[str, pa.Field] = {}
    for source, schema in zip(columns, schemas, strict=True):
        for item in schema:
            before = merged.get(item.name, item)
            parts = [pa.schema([before]), pa.schema([item])]
            try:
                (merged[item.name],) = pa.unify_schemas(parts, promote_options="permissive")
            except pa.ArrowException:
                return (
                    f"column {item.name} of {source.name} is of type {type_text(item.type)}, and of type "
                    f"{type_text(before.type)} in the sources before it"
                )
    return "the columns of the sources do not go together"


def _bare(item: pa.Field) -> pa.Field:
    """Return a field without metadata that is specific to one file; it may keep the name of an extension type."""
    metadata = {name: value for name, value in (item.metadata or {}).items() if name == EXTENSION}
    return pa.field(item.name, item.type, metadata=metadata or None)


def target_schema(
    session: Session, table: Table, columns: Sequence[SourceColumns], request: LoadRequest
) -> Schema:
    """Return what the sources' rows are written as: the table's schema, or with new columns behind if wanted.

    Raises:
        BadInputError: the columns of a source do not fit the table.
        RefusedError: a column by which the table is partitioned would get a type, or a new column has the name of a
            partition field.
    """
    options = request.options
    if options.create and not table.creating:
        _warn_of_differences(session, table, options)
    if options.evolve and not table.creating:
        refuse_unrelated(table.schema, [one for one in columns if not rejects_rows(one, options)])
    check_sources(
        table.schema,
        columns,
        evolve=options.evolve,
        partial=request.partial,
        by_row=lambda source: rejects_rows(source, options),
    )
    if not options.evolve or table.creating or not columns:
        return table.schema
    metadata = table.metadata
    next_id = max(item.schema_id for item in metadata.schemas) + 1
    known = {item.name for item in table.schema.fields}
    new_tables.refuse_reserved(
        name for source in columns for name in source.columns.names if name not in known
    )
    fixed = {
        item.name
        for item in table.schema.fields
        if item.field_type.is_primitive and not isinstance(item.field_type, UnknownType)
    }
    made = new_columns(session, columns, metadata.format_version)
    merged = merged_columns(columns, fixed)
    schema = evolved(table.schema, metadata.last_column_id, next_id, merged, made)
    refuse_taken_names(metadata, table.schema, schema)
    refuse_typed_partitions(metadata, schema)
    new_tables.warn_of_similar_names(schema, session.warn, table.schema.column_names)
    return schema


def missing_defaults(schema: Schema, sources: Sequence[SourceColumns]) -> dict[str, str]:
    """Return the write defaults of the columns that a source lacks: as JSON, by full name."""
    return {
        name: json_text(item)
        for source in sources
        for name, item in filled_columns(schema.fields, source.columns)
    }


def missing_columns(schema: Schema, sources: Sequence[SourceColumns]) -> frozenset[str]:
    """Return the names of the columns that a source lacks."""
    names = {item.name for item in schema.fields}
    return frozenset(name for source in sources for name in names - set(source.columns.names))


def absent_columns(
    schema: Schema, sources: Sequence[SourceColumns], files: Sequence[Source] = ()
) -> frozenset[str]:
    """Return the names of the columns that every source lacks; JSON may have any column in a later line."""
    if any(file.format == JSON for file in files):
        return frozenset()
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
