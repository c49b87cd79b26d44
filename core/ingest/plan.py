"""What an ingest will do: which files, into which columns, how distributed. Reads headers, writes nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lake.core.errors import InvalidRequestError, NotFoundError, RefusedError
from lake.core.expressions import bind_filter, parse_filter
from lake.core.ingest import creation
from lake.core.ingest.checking import check_columns, evolved, raise_problems
from lake.core.rows.reader import FileSlice, ReadSettings
from lake.core.rows.schema import arrow_schema
from lake.core.rows.sources import CSV, JSON, Source, find_sources, source_schema, split_parquet
from lake.core.rows.writer import WriteSettings
from lake.core.session import Session
from lake.core.table import lineage
from lake.core.table.catalog import Table
from lake.core.table.commit import require_writable
from lake.core.table.live import live_files

if TYPE_CHECKING:
    from pyiceberg.expressions import BooleanExpression
    from pyiceberg.schema import Schema

APPEND, OVERWRITE, OVERWRITE_WHERE, REPLACE = "append", "overwrite", "overwrite-where", "replace-partitions"
NONE, HASH, RANGE = "none", "hash", "range"
_PIECE_BYTES = 128 * 1024 * 1024
_SMALLEST_TASK_BYTES = 32 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestOptions:
    """What the user asked for; see the command line's help."""

    sources: Sequence[str] = ()
    from_table: str | None = None
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
    branch: str = lineage.MAIN

    def __post_init__(self) -> None:
        if bool(self.sources) == bool(self.from_table):
            raise InvalidRequestError("name files to load, or --from-table, but not both")
        if (self.partition_by or self.sort_by or self.properties) and not self.create:
            raise InvalidRequestError("--partition-by, --sort-by and --property need --create")
        if self.distribution not in {None, NONE, HASH, RANGE}:
            raise InvalidRequestError(f"--distribution {self.distribution!r} is none of none, hash, range")
        if self.distribution == RANGE:
            raise RefusedError("range distribution is not available yet")


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestPlan:
    """A decided ingest.

    Args:
        table: the target; its `creating` is not empty when it will be made.
        schema: what rows are written as: the table's, or with new columns behind.
        units: payloads of what is read, each with its bytes.
        known: types that text sources are parsed as.
        removed: paths of live files that go whole.
        rewritten: live files of which some rows stay.
    """

    options: IngestOptions
    table: Table
    schema: Schema
    units: Sequence[tuple[Mapping[str, Any], int]]
    distribution: str
    condition: BooleanExpression | None = None
    removed: Sequence[str] = ()
    rewritten: Sequence[FileSlice] = ()
    base_snapshot_id: int | None = None
    source_files: int = 0

    @property
    def input_bytes(self) -> int:
        """Bytes of all sources."""
        return sum(size for _, size in self.units)

    @property
    def evolves(self) -> bool:
        """Whether the table gets new columns."""
        return len(self.schema.fields) > len(self.table.schema.fields)

    def settings(self, operation_id: str) -> WriteSettings:
        """Return how rows are written."""
        return WriteSettings.of(
            self.table, operation_id, target_bytes=self.options.target_bytes, schema=self.schema
        )

    def facts(self) -> dict[str, Any]:
        """Return the plan as it is shown."""
        return {
            "mode": self.options.mode,
            "creates_table": bool(self.table.creating),
            "sources": self.source_files,
            "bytes": self.input_bytes,
            "columns": [
                {"name": item.name, "type": str(item.field_type), "required": item.required}
                for item in self.schema.fields
            ],
            "partition_by": [f"{item.name}={item.transform}" for item in self.table.spec.fields],
            "distribution": self.distribution,
            "removed_files": len(self.removed),
            "rewritten_files": len(self.rewritten),
        }


def plan_ingest(session: Session, identifier: str, options: IngestOptions) -> IngestPlan:
    """Look at sources and table and decide; nothing is written.

    Raises:
        BadInputError: a source cannot be read or does not fit the table.
        RefusedError: the table cannot be written, or has deletes that cannot be applied yet.
    """
    existing = _existing(session, identifier, options)
    if options.from_table:
        source_table = session.table(options.from_table)
        sources: list[Source] = []
        source = arrow_schema(source_table.schema)
    else:
        storage = existing.storage if existing else _plain_storage(session)
        sources = find_sources(storage, options.sources, options.format)
        known = arrow_schema(existing.schema) if existing else None
        source = _common_schema(storage, sources, known)
    table = existing or _new_table(session, identifier, options, source)
    require_writable(table)
    schema = _target_schema(table, source, sources, options)
    if options.from_table:
        units = _table_units(source_table)
    else:
        units = _file_units(table, sources)
    return _with_removals(
        IngestPlan(
            options=options,
            table=table,
            schema=schema,
            units=units,
            distribution=_distribution(session, table, options),
            base_snapshot_id=_head_id(table, options.branch),
            source_files=len(sources) or len(units),
        )
    )


def _existing(session: Session, identifier: str, options: IngestOptions) -> Table | None:
    try:
        return session.table(identifier)
    except NotFoundError as error:
        if options.create:
            return None
        raise NotFoundError(error.message, hint="--create makes the table") from error


def _plain_storage(session: Session) -> Any:
    from lake.core.table.catalog import storage_properties  # noqa: PLC0415
    from lake.core.table.storage import Storage  # noqa: PLC0415

    return Storage(storage_properties(session.catalog.configured))


def _head_id(table: Table, branch: str) -> int | None:
    head = None if table.creating else lineage.branch_head(table.metadata, branch)
    return head.snapshot_id if head else None


def _common_schema(storage: Any, sources: Sequence[Source], known: pa.Schema | None) -> pa.Schema:
    """Return all sources' columns; with no table to tell types, text is inferred from the first file."""
    merged: dict[str, pa.Field] = {}
    inferred = known
    for source in sources:
        whole = source.format in {CSV, JSON} and inferred is None
        found = source_schema(storage, source, inferred, whole=whole)
        if whole:
            inferred = found
        for item in found:
            merged.setdefault(item.name, item)
    return pa.schema(list(merged.values()))


def _new_table(
    session: Session, identifier: str, options: IngestOptions, source: pa.Schema
) -> Table:
    schema = creation.schema_of(source)
    properties = {"format-version": "2", **options.properties}
    if properties["format-version"] not in {"1", "2", "3"}:
        raise InvalidRequestError(f"format-version {properties['format-version']!r} is none of 1, 2, 3")
    if properties["format-version"] == "3":
        raise RefusedError("lake does not write format version 3 yet")
    return session.catalog.stage(
        identifier,
        schema,
        creation.partition_spec(options.partition_by, schema),
        creation.sort_order(options.sort_by, schema),
        properties,
    )


def _target_schema(
    table: Table, source: pa.Schema, sources: Sequence[Source], options: IngestOptions
) -> Schema:
    text = bool(sources) and all(item.format in {CSV, JSON} for item in sources)
    where = options.from_table or ", ".join(item.path for item in sources[:3])
    raise_problems(
        check_columns(table.schema, source, where, text=text, evolve=options.evolve)
    )
    if not options.evolve or table.creating:
        return table.schema
    metadata = table.metadata
    next_id = max(item.schema_id for item in metadata.schemas) + 1
    return evolved(table.schema, metadata.last_column_id, next_id, source)


def _file_units(
    table: Table, sources: Sequence[Source]
) -> list[tuple[Mapping[str, Any], int]]:
    pieces = [
        piece for item in sources for piece in split_parquet(table.storage, item, _PIECE_BYTES)
    ]
    return [({"source": piece.to_plain()}, piece.size_bytes) for piece in pieces]


def _table_units(source: Table) -> list[tuple[Mapping[str, Any], int]]:
    head = lineage.branch_head(source.metadata, lineage.MAIN)
    if head is None:
        return []
    found = live_files(source, head)
    found.refuse_deletes(source.identifier)
    reading = ReadSettings(
        projection=source.schema,
        schema=source.schema,
        specs=source.metadata.specs(),
        name_mapping=source.properties.get("schema.name-mapping.default"),
    ).to_plain()
    return [
        ({"file": FileSlice.of(file).to_plain(), "reading": reading}, file.size_bytes)
        for file in found.files()
    ]


def _distribution(session: Session, table: Table, options: IngestOptions) -> str:
    partitioned = not table.spec.is_unpartitioned()
    wanted = options.distribution or table.properties.get("write.distribution-mode", "").lower()
    if wanted == HASH and not partitioned:
        if options.distribution:
            session.warn("the table is unpartitioned: hash distribution shuffles nothing")
        return NONE
    if wanted in {NONE, HASH}:
        return wanted
    return HASH if partitioned else NONE


def _with_removals(plan: IngestPlan) -> IngestPlan:
    """Find the live files that an overwrite removes or rewrites."""
    from dataclasses import replace  # noqa: PLC0415

    options, table = plan.options, plan.table
    if options.mode not in {OVERWRITE, OVERWRITE_WHERE} or table.creating:
        return plan
    condition = None
    if options.where is not None:
        condition = bind_filter(parse_filter(options.where), plan.schema)
    head = lineage.branch_head(table.metadata, options.branch)
    if head is None:
        return replace(plan, condition=condition)
    found = live_files(table, head, condition)
    found.refuse_deletes(table.identifier)
    whole, partly = found.split(condition)
    return replace(
        plan,
        condition=condition,
        removed=[file.path for file in whole],
        rewritten=[FileSlice.of(file) for file in partly],
    )


def tasks_for(plan: IngestPlan, parallelism: int) -> list[list[tuple[Mapping[str, Any], int]]]:
    """Gather units into tasks: enough for the cores, not so many that small inputs make many files."""
    wanted = max(1, min(parallelism * 4, -(-plan.input_bytes // _SMALLEST_TASK_BYTES)))
    bins: list[list[tuple[Mapping[str, Any], int]]] = [[] for _ in range(min(wanted, len(plan.units)))]
    sizes = [0] * len(bins)
    for unit in sorted(plan.units, key=lambda item: item[1], reverse=True):
        smallest = sizes.index(min(sizes))
        bins[smallest].append(unit)
        sizes[smallest] += unit[1]
    return bins
