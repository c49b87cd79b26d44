"""Write change logs as data files and delete files without reading the table, as Flink's writers do.

The first change of a key deletes its rows from older commits by equality; a row that this commit itself
wrote is deleted by its position. Source: Iceberg's BaseEqualityDeltaWriter and Flink's BaseDeltaTaskWriter.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyiceberg.transforms import VoidTransform

from lake.core.base.choices import CHANGE_MODES
from lake.core.base.errors import RefusedError
from lake.core.base.options import Option
from lake.core.base.plain import PlainData
from lake.core.data.deletes.equality_coverage import check_columns, check_partitions
from lake.core.data.deletes.row_positions import RowPositions
from lake.core.data.deletes.writers import DeletedRows, open_equality_writer, open_position_writer
from lake.core.data.keys.numbering import KeyDictionary
from lake.core.data.rows.writer import TableWriter, TransactionalWriter, WriteSettings, open_writer
from lake.core.io.storage.storage import Storage
from lake.core.spec.types.transforms import Indices, Partition, fitting, group_indices
from lake.core.table.manifests.data_files import DataFile

if TYPE_CHECKING:
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.schema import Schema

UPSERT, RETRACT = CHANGE_MODES
# The row kinds of a change log, numbered as in Flink.
INSERT, UPDATE_BEFORE, UPDATE_AFTER, DELETE = range(4)
Kinds = npt.NDArray[np.int8]

_NO_LOCATION = -1
# A row's location is its partition's number and, in this many low bits, its number in that partition.
_ROW_BITS = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaSettings(PlainData):
    """The settings for writing a change log.

    Args:
        write: the settings for its rows.
        key_ids: field ids of the columns that identify a row of the table.
        mode: ``upsert``: a key's new row replaces the old one, whose other columns are not known;
            ``retract``: the complete old row precedes the new one.
        format_version: the table's format version.
        fresh: the table is created by the same commit: there are no older rows to delete.
    """

    write: WriteSettings
    key_ids: Sequence[int]
    mode: str
    format_version: int
    fresh: bool = False

    @property
    def key_names(self) -> list[str]:
        """Names of the key's columns, in the table's order."""
        return [item.name for item in self.write.schema.fields if item.field_id in self.key_ids]


def check_key(schema: Schema, spec: PartitionSpec, key_ids: Sequence[int], mode: str) -> None:
    """Refuse a key by which old rows cannot be deleted.

    Raises:
        RefusedError: it has no column, a nested column, or lacks a source column of the partition spec.
    """
    if not key_ids:
        raise RefusedError("a change log needs a key: columns that identify a row")
    check_columns(schema, key_ids)
    if mode == UPSERT:
        check_partitions(
            schema,
            spec,
            key_ids,
            hint=f"{Option.DELETES} position or {Option.CHANGES_MODE} retract",
        )


@dataclass(frozen=True, slots=True)
class DeltaFiles:
    """The files of a written change log."""

    data: list[DataFile]
    deletes: list[DataFile]


class DeltaWriter(TransactionalWriter):
    """Writes changes, in order, as rows and deletes of one commit. Use it as a context manager."""

    def __init__(
        self, storage: Storage, settings: DeltaSettings, *, task: int, attempt: str
    ) -> None:
        """Open the writer.

        Args:
            storage: the storage for the files.
            settings: the table's settings, and the key.
            task: the task's number; together with ``attempt`` it makes names unique.
            attempt: a text that is unique to this attempt at the task.

        Raises:
            RefusedError: the key does not fit the table's partitions, or the format version does not support deletes.
        """
        write = settings.write
        check_key(write.schema, write.spec, settings.key_ids, settings.mode)
        self._settings = settings
        self._upsert = settings.mode == UPSERT
        self._key = [
            field.name for field in write.schema.fields if field.field_id in settings.key_ids
        ]
        self._deleted_columns = write.schema.select(*self._key) if self._upsert else write.schema
        names = write.file_names(task=task, attempt=attempt)
        self._positions = open_position_writer(
            storage, write, format_version=settings.format_version, names=names
        )
        self._data = open_writer(storage, write, task=task, attempt=attempt, names=names)
        self._equality = open_equality_writer(
            storage,
            write,
            columns=self._deleted_columns,
            equality_ids=settings.key_ids,
            names=names,
        )
        self._numbers = KeyDictionary()
        # By key number: the location of the key's row among the rows written here.
        self._live = np.full(0, _NO_LOCATION)
        self._partitions: dict[Partition, int] = {}
        self._written: list[int] = []
        self._deleted_locations: list[Indices] = []

    @property
    def keys(self) -> int:
        """The number of distinct keys."""
        return len(self._numbers)

    def write(self, rows: pa.RecordBatch, kinds: Kinds) -> None:
        """Write changes.

        Args:
            rows: the table's columns; for rows that an upsert deletes, only the key is used.
            kinds: the kind of each row.
        """
        if self._upsert and np.any(kinds == UPDATE_BEFORE):
            known = kinds != UPDATE_BEFORE
            rows, kinds = rows.filter(pa.array(known)), kinds[known]
        if not rows.num_rows:
            return
        write = self._settings.write
        inserted = (kinds == INSERT) | (kinds == UPDATE_AFTER)
        groups = group_indices(rows, write.spec, write.schema)
        locations = np.full(rows.num_rows, _NO_LOCATION)
        for partition, members in groups:
            chosen = members[inserted[members]]
            locations[chosen] = self._new_locations(partition, len(chosen))
            _write_to(self._data, partition, rows, chosen)
        before = self._relocate(self._numbers.of(self._identity(rows)), locations)
        found = before != _NO_LOCATION
        self._deleted_locations.append(before[found])
        missing = ~found if self._upsert else ~found & ~inserted
        if self._settings.fresh:
            return
        deleted = rows.select([field.name for field in self._deleted_columns.fields])
        for partition, members in groups:
            _write_to(self._equality, partition, deleted, members[missing[members]])

    def _identity(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the columns that identify a row: the key, and the partition unless it follows from the key."""
        write = self._settings.write
        key = rows.select(self._key)
        fields = [x for x in write.spec.fields if not isinstance(x.transform, VoidTransform)]
        if {field.source_id for field in fields} <= set(self._settings.key_ids):
            return key
        partition = [fitting(rows, write.schema, x.source_id, x.transform) for x in fields]
        columns = [*key.columns, *partition]
        return pa.RecordBatch.from_arrays(columns, [str(number) for number in range(len(columns))])

    def _new_locations(self, partition: Partition, count: int) -> Indices:
        number = self._partitions.setdefault(partition, len(self._partitions))
        if number == len(self._written):
            self._written.append(0)
        first = (number << _ROW_BITS) + self._written[number]
        self._written[number] += count
        return np.arange(first, first + count)

    def _relocate(self, keys: Indices, locations: Indices) -> Indices:
        """Record the location of each changed key's row, in order; return its previous location."""
        more = len(self._numbers) - len(self._live)
        self._live = np.append(self._live, np.full(more, _NO_LOCATION))
        order = np.argsort(keys, kind="stable")
        in_order, after = keys[order], locations[order]
        again = np.flatnonzero(in_order[1:] == in_order[:-1]) + 1
        before = self._live[in_order]
        before[again] = after[again - 1]
        last = np.ones(len(order), np.bool_)
        last[again - 1] = False
        self._live[in_order[last]] = after[last]
        found = np.empty_like(before)
        found[order] = before
        return found

    def close(self) -> DeltaFiles:
        """Finish all files; empty if there were no changes."""
        data = self._data.close()
        for deleted in self._deleted_rows(data):
            self._positions.add(deleted)
        deletes = [*self._equality.close(), *self._positions.close()]
        self.closed = True
        return DeltaFiles(data, deletes)

    def _deleted_rows(self, data: Sequence[DataFile]) -> Iterator[DeletedRows]:
        deleted = np.sort(np.concatenate([np.zeros(0, np.int64), *self._deleted_locations]))
        files: dict[Partition, list[DataFile]] = defaultdict(list)
        for file in data:
            files[file.partition].append(file)
        for partition, number in self._partitions.items():
            ends = np.cumsum([0, *(file.record_count for file in files[partition])])
            cuts = np.searchsorted(deleted, ends + (number << _ROW_BITS))
            for file, start, rows in zip(
                files[partition], ends[:-1], np.split(deleted, cuts)[1:-1], strict=True
            ):
                if len(rows):
                    yield DeletedRows(
                        path=file.path,
                        spec_id=file.spec_id,
                        partition=partition,
                        positions=RowPositions(rows - (start + (number << _ROW_BITS))),
                    )

    def abort(self) -> None:
        """Delete everything that was written."""
        for writer in (self._data, self._equality, self._positions):
            writer.abort()


def _write_to(
    writer: TableWriter, partition: Partition, rows: pa.RecordBatch, chosen: Indices
) -> None:
    if len(chosen) == rows.num_rows:
        writer.write_to(partition, rows)
    elif len(chosen):
        writer.write_to(partition, rows.take(pa.array(chosen)))
