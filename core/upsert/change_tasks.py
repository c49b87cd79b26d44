"""A change log on the engine: its rows, in order, to the writer of their key, and there to files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, StringType

from lake.core.deletes.delta import (
    INSERT,
    UPDATE_AFTER,
    UPDATE_BEFORE,
    UPSERT,
    DeltaFiles,
    DeltaSettings,
    DeltaWriter,
    Kinds,
)
from lake.core.deletes.key_encoding import hash_keys, partition_of
from lake.core.engine import TaskContext
from lake.core.errors import BadInputError
from lake.core.ingest.tasks import Outbox, claim, claimed, go_on, report, task_units
from lake.core.rows.partitioning import Places, group_places, partition_number
from lake.core.rows.reader import read_ahead
from lake.core.rows.required import null_in_required
from lake.core.rows.schema import arrow_schema
from lake.core.upsert.key_rows import unusable
from lake.core.upsert.row_kinds import row_kinds


def write_changes(payload: Mapping[str, Any], context: TaskContext) -> Iterator[Mapping[str, Any]]:
    """Write a task's changes; reports each unit's end, then the files.

    The payload: ``units``, ``reading`` and ``must_match`` as `lake.core.ingest.tasks.write_rows` has them,
    ``delta`` (DeltaSettings), ``kinds`` (the column that tells what a row does), ``by_partition`` (whether
    rows meet by partition, not by key).
    """
    settings = DeltaSettings.from_plain(payload["delta"])
    changes = _Changes(payload, settings, context)
    with DeltaWriter(
        context.storage, settings, task=payload["task"], attempt=context.attempt
    ) as writer:
        for unit, batches in changes.units():
            for rows, kinds in batches:
                writer.write(rows, kinds)
            told = changes.claim()
            progress = report([], rows_read=told["rows_read"], input_bytes=unit["input_bytes"])
            yield {**progress, "claims": [told]}
        files = writer.close()
    yield _report(files)


def send_changes(payload: Mapping[str, Any], context: TaskContext) -> Iterator[tuple[int, bytes]]:
    """Send each of a task's changes to the reducer of its partition or key."""
    settings = DeltaSettings.from_plain(payload["delta"])
    changes = _Changes(payload, settings, context)
    outbox = Outbox(payload["reducers"])
    for _, batches in changes.units():
        for rows, kinds in batches:
            reducers = _reducers(rows, settings, payload)
            order = np.argsort(reducers, kind="stable")
            sent = _with_kinds(rows, kinds).take(pa.array(order))
            cuts = np.flatnonzero(np.diff(reducers[order])) + 1
            for start, end in zip([0, *cuts], [*cuts, len(order)], strict=True):
                yield from outbox.add(int(reducers[order[start]]), sent.slice(start, end - start))
    yield from outbox.rest()
    yield 0, claim(changes.claim())


def receive_changes(
    payload: Mapping[str, Any], blobs: Iterable[bytes], context: TaskContext
) -> Iterator[Mapping[str, Any]]:
    """Write the changes that were sent to one reducer; reports the files, and what tasks claim."""
    settings = DeltaSettings.from_plain(payload["delta"])
    claims = []
    with DeltaWriter(
        context.storage, settings, task=payload["task"], attempt=context.attempt
    ) as writer:
        for blob in blobs:
            go_on(context)
            stream = pa.ipc.open_stream(blob)
            if (told := claimed(stream)) is not None:
                claims.append(told)
            for batch in stream:
                rows = batch.select(range(batch.num_columns - 1))
                writer.write(rows, batch.column(batch.num_columns - 1).to_numpy())
        files = writer.close()
    yield {**_report(files), "claims": claims}


def _report(files: DeltaFiles) -> dict[str, Any]:
    return {**report(files.data), "deletes": [file.to_plain() for file in files.deletes]}


def _with_kinds(rows: pa.RecordBatch, kinds: Kinds) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [*rows.columns, pa.array(kinds)], schema=rows.schema.append(pa.field("", pa.int8()))
    )


def _reducers(rows: pa.RecordBatch, settings: DeltaSettings, payload: Mapping[str, Any]) -> Places:
    count: int = payload["reducers"]
    if not payload["by_partition"]:
        return partition_of(hash_keys(rows.select(settings.key_names)), count)
    found = np.empty(rows.num_rows, np.int64)
    write = settings.write
    for partition, members in group_places(rows, write.spec, write.schema):
        found[members] = partition_number(partition, count)
    return found


@dataclass(slots=True)
class _Changes:
    """The changes that a task reads, checked."""

    payload: Mapping[str, Any]
    settings: DeltaSettings
    context: TaskContext
    read: int = 0
    inserted: int = 0

    def units(self) -> Iterator[tuple[Mapping[str, Any], Iterator[tuple[pa.RecordBatch, Kinds]]]]:
        """Yield each unit with its changes, but those that do nothing."""
        schema = self._source_schema()
        for unit, batches in task_units(self.payload, schema, self.context):
            yield unit, self._known(batches, unit["source"]["path"])

    def claim(self) -> dict[str, Any]:
        """Return what was read since it was last asked."""
        told = {"rows_read": self.read, "rows": self.inserted}
        self.read = self.inserted = 0
        return told

    def _source_schema(self) -> Schema:
        """Return the columns to read: of a row that is deleted by its key the others may be missing."""
        schema = self.settings.write.schema
        fields = [field.model_copy(update={"required": False}) for field in schema.fields]
        number = schema.highest_field_id + 1
        return Schema(*fields, NestedField(number, self.payload["kinds"], StringType()))

    def _known(
        self, batches: Iterator[pa.RecordBatch], where: str
    ) -> Iterator[tuple[pa.RecordBatch, Kinds]]:
        schema = arrow_schema(self.settings.write.schema)
        for batch in read_ahead(batches):
            go_on(self.context)
            self.read += batch.num_rows
            *columns, texts = batch.columns
            kinds = row_kinds(texts, self.payload["kinds"], where)
            rows = pa.RecordBatch.from_arrays(columns, schema=schema)
            by_key = self.settings.mode == UPSERT
            if by_key:
                does = kinds != UPDATE_BEFORE
                rows, kinds = rows.filter(pa.array(does)), kinds[does]
            inserts = (kinds == INSERT) | (kinds == UPDATE_AFTER)
            self._check(rows, rows.filter(pa.array(inserts)) if by_key else rows, where)
            self.inserted += int(np.count_nonzero(inserts))
            yield rows, kinds

    def _check(self, rows: pa.RecordBatch, whole: pa.RecordBatch, where: str) -> None:
        for name in self.settings.key_names:
            if (found := unusable(rows.column(name))) is not None:
                raise BadInputError(f"{where} has {found[1]} in the key column {name}")
        if missing := null_in_required(whole):
            raise BadInputError(f"{where} has NULL in the required column {missing}")
