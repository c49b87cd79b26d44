"""Describe a table: columns, partitioning, order, properties, refs, sizes, and the jobs that write and read it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from lake.core.base.outcome import Detail, Outcome, Status
from lake.core.base.redaction import MASK, Redactor, is_secret
from lake.core.base.units import format_size, iso_time
from lake.core.read.inspection.facts import (
    ColumnFacts,
    CommitFacts,
    JobFacts,
    OrderFacts,
    OrderFieldFacts,
    PropertyFacts,
    ReaderFacts,
    RefFacts,
    RunIdFacts,
    SchemaFacts,
    ShowResult,
    SizeFacts,
    SpecFacts,
    SpecFieldFacts,
    StreamFacts,
    WriterFacts,
)
from lake.core.read.inspection.tables import sizes_of
from lake.core.spec.types.arrow_schema import parts_of
from lake.core.spec.types.transform_syntax import term_text
from lake.core.spec.types.type_text import type_text
from lake.core.table.flink.commits import job_commit
from lake.core.table.metadata.summaries import properties_of
from lake.core.table.refs.consumers import find_consumers
from lake.core.table.snapshots import ancestry
from lake.core.table.snapshots.run_ids import run_ids_of
from lake.core.table.snapshots.streams import STREAM, StreamEpoch

if TYPE_CHECKING:
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.refs import SnapshotRef
    from pyiceberg.table.snapshots import Snapshot
    from pyiceberg.table.sorting import SortOrder
    from pyiceberg.types import NestedField

    from lake.core.table.catalogs.catalog import Table

_SHOWN_RUNS = 5
# Printed of the properties: the most of them, and the most characters of a value.
_MOST_PROPERTIES, _LONGEST_VALUE = 50, 300


def show_table(table: Table, *, branch: str = ancestry.MAIN) -> Outcome:
    """Describe a table by its metadata file; nothing else is read.

    Raises:
        NotFoundError: the branch does not exist.
    """
    metadata = table.metadata
    head = ancestry.branch_head(metadata, branch)
    properties = shown_properties(table.properties)
    result = ShowResult(
        table_uuid=str(metadata.table_uuid),
        location=metadata.location,
        metadata_location=table.metadata_location,
        format_version=metadata.format_version,
        last_updated=iso_time(metadata.last_updated_ms),
        schema=_schema(table.schema),
        partition_specs=[_spec(metadata, spec) for _, spec in sorted(metadata.specs().items())],
        sort_order=_order(metadata, metadata.sort_order()),
        properties=properties,
        refs=[_ref(name, ref) for name, ref in sorted(metadata.refs.items())],
        snapshots=len(metadata.snapshots),
        sizes=sizes_of(metadata),
        writers=_writers(metadata, head),
        consumers=_consumers(metadata),
    )
    return Outcome(
        status=Status.DONE,
        base_snapshot_id=head.snapshot_id if head else None,
        result=result,
        details=_details(result),
        notes=_notes(properties, table.identifier),
    )


def shown_properties(properties: Mapping[str, str]) -> list[PropertyFacts]:
    """Return properties by name, with secrets masked."""
    redact = Redactor()
    return [
        PropertyFacts(name=key, value=MASK if is_secret(key) else redact(value, limit=None))
        for key, value in sorted(properties.items())
    ]


# Definition


def _schema(schema: Schema) -> SchemaFacts:
    return SchemaFacts(
        schema_id=schema.schema_id,
        identifier_field_ids=schema.identifier_field_ids,
        fields=[_column(field) for field in schema.fields],
    )


def _column(field: NestedField) -> ColumnFacts:
    return ColumnFacts(
        id=field.field_id,
        name=field.name,
        type=type_text(field.field_type),
        required=field.required,
        doc=field.doc,
        fields=[_column(part) for part in parts_of(field.field_type)],
    )


def _spec(metadata: TableMetadata, spec: PartitionSpec) -> SpecFacts:
    return SpecFacts(
        spec_id=spec.spec_id,
        current=spec.spec_id == metadata.default_spec_id,
        fields=[
            SpecFieldFacts(
                source_id=field.source_id,
                source=_source(metadata, field.source_id),
                field_id=field.field_id,
                name=field.name,
                transform=str(field.transform),
            )
            for field in spec.fields
        ],
    )


def _order(metadata: TableMetadata, order: SortOrder) -> OrderFacts:
    return OrderFacts(
        order_id=order.order_id,
        fields=[
            OrderFieldFacts(
                source_id=field.source_id,
                source=_source(metadata, field.source_id),
                transform=str(field.transform),
                direction=field.direction.value,
                null_order=field.null_order.value,
            )
            for field in order.fields
        ],
    )


def _source(metadata: TableMetadata, field_id: int) -> str | None:
    """Return a column's name in the current schema; None if it was dropped."""
    return metadata.schema().find_column_name(field_id)


def _ref(name: str, ref: SnapshotRef) -> RefFacts:
    return RefFacts(
        name=name,
        type=ref.snapshot_ref_type.value,
        snapshot_id=str(ref.snapshot_id),
        max_ref_age_ms=ref.max_ref_age_ms,
        max_snapshot_age_ms=ref.max_snapshot_age_ms,
        min_snapshots_to_keep=ref.min_snapshots_to_keep,
    )


# Writers and readers


def _writers(metadata: TableMetadata, head: Snapshot | None) -> WriterFacts:
    """Return who committed the retained history of a branch: the newest commit of each job and stream, and runs."""
    jobs: dict[str, JobFacts] = {}
    streams: dict[str, StreamFacts] = {}
    runs: list[RunIdFacts] = []
    for snapshot in ancestry.ancestors(metadata, head.snapshot_id if head else None):
        commit = CommitFacts(
            snapshot_id=str(snapshot.snapshot_id), committed_at=iso_time(snapshot.timestamp_ms)
        )
        summary = properties_of(snapshot)
        if by_job := job_commit(snapshot):
            job, number = by_job.job_id, by_job.checkpoint_id
            jobs.setdefault(job, JobFacts(job_id=job, checkpoint_id=number, commit=commit))
        if epoch := StreamEpoch.of_text(summary.get(STREAM)):
            stream, number = epoch.stream, epoch.number
            streams.setdefault(stream, StreamFacts(stream=stream, epoch=number, commit=commit))
        runs += [RunIdFacts(run_id=run_id, commit=commit) for run_id in run_ids_of(summary)]
    return WriterFacts(
        flink_jobs=list(jobs.values()), streams=list(streams.values()), runs=runs[:_SHOWN_RUNS]
    )


def _consumers(metadata: TableMetadata) -> list[ReaderFacts]:
    return [
        ReaderFacts(
            name=item.name,
            branch=item.branch,
            position=None if item.position is None else str(item.position),
            unread_snapshots=len(item.unread),
        )
        for item in find_consumers(metadata)
    ]


# Tables for people


def _notes(properties: Sequence[PropertyFacts], name: str) -> list[str]:
    """Return where the properties are complete, if they are too many or too long to be printed."""
    long = sum(len(item.value) > _LONGEST_VALUE for item in properties)
    if not long and len(properties) <= _MOST_PROPERTIES:
        return []
    shown = min(len(properties), _MOST_PROPERTIES)
    text = f"{shown} of {len(properties):,} properties are shown, {long:,} values are cut"
    return [f"{text}: `lake inspect {name} properties` shows all"]


def _cut(value: str) -> str:
    if len(value) <= _LONGEST_VALUE:
        return value
    return f"{value[:_LONGEST_VALUE]}… ({len(value):,} characters)"


def _details(result: ShowResult) -> list[Detail]:
    sizes = result.sizes
    facts: list[list[str | None]] = [
        ["location", result.location],
        ["metadata file", result.metadata_location],
        ["format version", str(result.format_version)],
        ["table UUID", result.table_uuid],
        ["rows", _rows(sizes)],
        ["data files", _number(sizes.files)],
        ["delete files", _number(sizes.delete_files)],
        ["size", None if sizes.bytes is None else format_size(sizes.bytes)],
        ["snapshots", _number(result.snapshots)],
        ["last commit", sizes.last_commit],
        ["last updated", result.last_updated],
    ]
    keys = set(result.schema.identifier_field_ids)
    columns = [
        [f"{'  ' * depth}{item.name}", item.type, _constraint(item, keys), item.doc]
        for depth, item in _walk(result.schema.fields)
    ]
    specs = [
        [f"spec {spec.spec_id}" + " (current)" * spec.current, _terms(spec.fields)]
        for spec in result.partition_specs
    ]
    order = [[_term(item), item.direction, item.null_order] for item in result.sort_order.fields]
    shown = result.properties[:_MOST_PROPERTIES]
    refs = [[ref.name, ref.type, ref.snapshot_id] for ref in result.refs]
    readers = [[item.name, item.branch, item.unread_snapshots] for item in result.consumers]
    return [
        Detail("table", ["name", "value"], [row for row in facts if row[1] is not None]),
        Detail("columns", ["column", "type", "constraint", "comment"], columns),
        Detail("partition specs", ["spec", "fields"], specs),
        Detail("sort order", ["field", "direction", "nulls"], order),
        Detail(
            "properties",
            ["property", "value"],
            [[item.name, _cut(item.value)] for item in shown],
        ),
        Detail("refs", ["ref", "type", "snapshot_id"], refs),
        Detail("writers", ["writer", "last", "committed_at"], [*_writer_rows(result.writers)]),
        Detail("consumers", ["consumer", "branch", "unread"], readers),
    ]


def _walk(fields: Sequence[ColumnFacts], depth: int = 0) -> Iterator[tuple[int, ColumnFacts]]:
    for item in fields:
        yield depth, item
        yield from _walk(item.fields, depth + 1)


def _constraint(item: ColumnFacts, keys: set[int]) -> str | None:
    words = ["identifier"] * (item.id in keys) + ["not null"] * item.required
    return ", ".join(words) or None


def _terms(fields: Sequence[SpecFieldFacts]) -> str:
    """Return the fields of a spec; the name of a field is left out if it is the column's."""
    texts = [
        term if (term := _term(field)) == field.name else f"{field.name} = {term}"
        for field in fields
    ]
    return ", ".join(texts) or "not partitioned"


def _term(field: SpecFieldFacts | OrderFieldFacts) -> str:
    """Return a field of a spec or of an order as users write it; a dropped column has a number only."""
    return term_text(field.transform, field.source or f"column {field.source_id}")


def _writer_rows(writers: WriterFacts) -> Iterator[list[str | None]]:
    for job in writers.flink_jobs:
        last = f"checkpoint {job.checkpoint_id}"
        yield [f"Flink job {job.job_id}", last, job.commit.committed_at]
    for stream in writers.streams:
        yield [f"stream {stream.stream}", f"epoch {stream.epoch}", stream.commit.committed_at]
    for run in writers.runs:
        yield [f"run {run.run_id}", None, run.commit.committed_at]


def _rows(sizes: SizeFacts) -> str | None:
    if sizes.rows is None and sizes.rows_at_most is not None:
        return f"{sizes.rows_at_most:,} or less"
    return _number(sizes.rows)


def _number(value: int | None) -> str | None:
    return None if value is None else f"{value:,}"
