"""Merge the source's rows of one key column by column, and write the merged rows of new keys.

A file of merged rows has the number of the key, the sequence if there is one, and the columns of the rows. Without a
sequence it has one row per key. With a sequence it has one row for each source row: the merge of that row and all
later rows of its key. So a row of the table chooses which source rows are merged into it: those that are not older.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyroaring import BitMap

from lake.core.base import locations
from lake.core.base.arrow import Int64s, one_array
from lake.core.base.errors import BadInputError
from lake.core.base.plain import PlainData
from lake.core.data.columns.defaults import write_column
from lake.core.data.columns.nullability import null_in_required
from lake.core.data.keys.index import KeyIndex
from lake.core.data.rows.sorted_writer import open_ordered_writer
from lake.core.data.rows.writer import WriteSettings
from lake.core.engine.tasks import TaskContext
from lake.core.load.ingest.checksummed_batches import batches_in
from lake.core.load.upsert.dedup_tasks import (
    BucketReport,
    DeduplicateTask,
    ranks,
    source_keys,
    write_table,
)
from lake.core.spec.types.arrow_schema import arrow_schema
from lake.core.table.manifests.data_files import DataFile

KEY, SEQUENCE, COLUMN = "key", "sequence", "column "
# Greater than the number of every key.
_NO_KEY = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeTask(DeduplicateTask):
    """Merge the rows of each key of a bucket.

    Args:
        order_columns: the number of the order's columns; the columns of the rows come after them.
        sequence: whether the first of them is the sequence.
        overwrites: ids of the columns in which NULL is a value.
    """

    order_columns: int = 0
    sequence: bool = False
    overwrites: Sequence[int] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class InsertTask(PlainData):
    """Write the merged rows of one bucket whose keys the table does not contain.

    Args:
        task: the task's number, part of file names.
        rows: the file of the bucket's merged rows.
        found: a serialised bitmap of the keys that the table contains.
        overwrites: ids of the columns in which NULL is a value.
        writing: the settings for writing.
    """

    task: int
    rows: str
    found: bytes
    overwrites: Sequence[int]
    writing: WriteSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class InsertReport(PlainData):
    """The data files with the rows of new keys."""

    files: Sequence[DataFile]


def column_name(column: int) -> str:
    """Return the name of a table's column in files of merged rows."""
    return f"{COLUMN}{column}"


def merge_rows(task: MergeTask, context: TaskContext) -> Iterator[BucketReport]:
    """Merge the rows of all units as one bucket; reports the files of its keys and of its merged rows."""
    yield _merge(source_keys(task.files, context), task, context)


def merge_sent(
    task: MergeTask, blobs: Iterable[bytes], context: TaskContext
) -> Iterator[BucketReport]:
    """Merge the rows that were sent to one bucket, as `merge_rows` does."""
    batches = (batch for blob in blobs for batch in pa.ipc.open_stream(blob))
    yield _merge(batches, task, context)


def _merge(
    batches: Iterable[pa.RecordBatch], task: MergeTask, context: TaskContext
) -> BucketReport:
    table = pa.Table.from_batches(batches)
    context.check_cancelled()
    keys = table.select(range(task.key_columns))
    order = table.column_names[task.key_columns :][: task.order_columns]
    index = KeyIndex.build(keys)
    firsts = index.rows()
    winners = keys.take(pa.array(firsts))
    merged = _merged(table, _numbers(keys, index, firsts), order, task)
    stem = locations.join(task.folder, f"{task.name}-{task.bucket:05d}-{context.attempt}")
    write_table(context, f"{stem}-winners.arrow", winners)
    write_table(context, f"{stem}-merged.arrow", merged)
    return BucketReport(
        bucket=task.bucket,
        keys=f"{stem}-winners.arrow",
        merged=f"{stem}-merged.arrow",
        rows=len(firsts),
        lost=table.num_rows - len(firsts),
    )


def _numbers(keys: pa.Table, index: KeyIndex, firsts: Int64s) -> Int64s:
    """Return the number of each row's key: its line in the file of the bucket's keys."""
    number_of = np.empty(keys.num_rows, np.int64)
    number_of[firsts] = np.arange(len(firsts))
    found = [index.find(batch) for batch in keys.to_batches()]
    numbers: Int64s = number_of[np.concatenate([np.zeros(0, np.int64), *found])]
    return numbers


def _merged(table: pa.Table, numbers: Int64s, order: list[str], task: MergeTask) -> pa.Table:
    """Return the merged rows, by key and then by the order."""
    weight = ranks(table, order) if order else np.arange(len(numbers))
    by_key = np.lexsort((weight, numbers))
    numbers = numbers[by_key]
    starts = np.flatnonzero(np.diff(numbers, prepend=-1))
    lasts = np.append(starts[1:], len(numbers))[np.cumsum(np.diff(numbers, prepend=-1) > 0) - 1] - 1
    kept = np.arange(len(numbers)) if task.sequence else starts
    columns = {KEY: pa.array(numbers[kept])}
    if task.sequence:
        columns[SEQUENCE] = one_array(table[order[0]]).take(pa.array(by_key))
    overwrites = {column_name(column) for column in task.overwrites}
    for name in table.column_names:
        if name.startswith(COLUMN):
            values = one_array(table[name])
            chosen = lasts if name in overwrites else _last_valid(values, by_key, starts, lasts)
            chosen = np.where(chosen >= np.arange(len(numbers)), chosen, -1)[kept]
            rows = np.where(chosen >= 0, by_key[chosen], 0) if len(by_key) else chosen
            columns[name] = values.take(pa.array(rows, mask=chosen < 0))
    return pa.table(columns)


def _last_valid(values: pa.Array, by_key: Int64s, starts: Int64s, lasts: Int64s) -> Int64s:
    """Return for each row the place of the last value of its key that is not NULL; -1 if there is none."""
    if not values.null_count:
        return lasts
    valid = values.is_valid().to_numpy(zero_copy_only=False)[by_key]
    places = np.where(valid, np.arange(len(by_key)), -1)
    of_key = np.maximum.reduceat(places, starts)
    of_row: Int64s = np.repeat(of_key, np.diff(np.append(starts, len(by_key))))
    return of_row


def write_new_rows(task: InsertTask, context: TaskContext) -> Iterator[InsertReport]:
    """Write the merged rows of the keys that the table does not contain.

    Raises:
        BadInputError: a row has NULL in a required column.
    """
    found = np.append(np.asarray(BitMap.deserialize(task.found).to_array(), np.int64), _NO_KEY)
    schema = task.writing.schema
    defaults = {
        item.field_id: write_column(item, 1)
        for item in schema.fields
        if item.write_default is not None and item.field_id not in task.overwrites
    }
    last = -1
    with open_ordered_writer(context, task.writing, task=task.task) as writer:
        for batch in batches_in(context.storage, task.rows):
            context.check_cancelled()
            numbers = batch.column(KEY).to_numpy()
            # The first row of a key is the merge of all of them.
            wanted = np.diff(numbers, prepend=last) > 0
            last = int(numbers[-1])
            wanted &= found[np.searchsorted(found, numbers)] != numbers
            rows = batch.filter(pa.array(wanted))
            if rows.num_rows:
                writer.write(_as_new_rows(rows, schema, defaults))
        files = writer.close()
    yield InsertReport(files=files)


def _as_new_rows(
    rows: pa.RecordBatch, schema: Schema, defaults: Mapping[int, pa.Array]
) -> pa.RecordBatch:
    """Return merged rows as rows of the table: a column without a value has its write default, else NULL."""
    names = set(rows.schema.names)
    columns = []
    target = arrow_schema(schema)
    for item, field in zip(schema.fields, target, strict=True):
        name = column_name(item.field_id)
        column = rows.column(name) if name in names else pa.nulls(rows.num_rows, field.type)
        if item.field_id in defaults and column.null_count:
            value = defaults[item.field_id].take(pa.array([0] * rows.num_rows, pa.int32()))
            column = pc.if_else(column.is_valid(), column, value)
        columns.append(column)
    found = pa.RecordBatch.from_arrays(columns, schema=target)
    if (name_of_null := null_in_required(found)) is not None:
        raise BadInputError(
            f"the source has a row with a new key and without a value for the required column {name_of_null}",
            hint="a row of a key that the table does not contain needs all required columns",
        )
    return found


def relaxed(schema: Schema, key: Collection[int], overwrites: Collection[int]) -> Schema:
    """Return the schema for reading the source: a column without a value is NULL, also if it is required.

    Args:
        schema: the table's.
        key: ids of the key's columns.
        overwrites: ids of the columns in which NULL is a value.
    """
    fields = [
        item.model_copy(
            update={
                "required": item.required and item.field_id in {*key, *overwrites},
                "write_default": None,
            }
        )
        for item in schema.fields
    ]
    return Schema(*fields, schema_id=schema.schema_id)
