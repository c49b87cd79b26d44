"""A batch read: the plan of a scan as Spark's partitions, and the rows of one of them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from lake.commands.spark.opened import opened, reported
from lake.commands.spark.types import batch_of, spark_schema
from lake.core.base.errors import InvalidRequestError, NotFoundError, RefusedError
from lake.core.base.redaction import Redactor
from lake.core.data.deletes.apply import Deletes, read_rows
from lake.core.data.rows.reader import FileSlice, ReadSettings
from lake.core.io.storage.credentials import CredentialProvider, Credentials
from lake.core.io.storage.storage import Storage
from lake.core.read.scan.incremental import Increment, plan_increment
from lake.core.read.scan.plan import (
    ScanOptions,
    ScanPlan,
    plan_appends,
    plan_snapshot,
    scan_schema,
    scan_snapshot,
)
from lake.core.table.catalogs.catalog import Table

if TYPE_CHECKING:
    from pyiceberg.schema import Schema
    from pyiceberg.table.snapshots import Snapshot


@dataclass(frozen=True, slots=True)
class Pin:
    """What a DataFrame reads, however often it is planned.

    Args:
        table: the UUID of the table.
        schema: the id of the schema that it is read with.
        end: the snapshot, or the last one of several; None if the table was empty.
        appends: of several snapshots, those whose rows are read; None for one snapshot.
    """

    table: str
    schema: int
    end: int | None
    appends: tuple[int, ...] | None = None

    @classmethod
    def of(cls, table: Table, options: ScanOptions) -> Pin:
        """Return what options choose now.

        Raises:
            NotFoundError: a snapshot does not exist.
        """
        identity, schema = str(table.metadata.table_uuid), scan_schema(table, options).schema_id
        if not options.incremental:
            snapshot = scan_snapshot(table, options)
            return cls(identity, schema, snapshot.snapshot_id if snapshot else None)
        found = plan_increment(
            table.metadata,
            start=options.from_snapshot,
            inclusive=options.inclusive,
            end=options.to_snapshot,
            branch=options.branch,
        )
        end = found.end.snapshot_id if found.end else None
        return cls(identity, schema, end, tuple(item.snapshot_id for item in found.appends))

    def plan(self, table: Table, options: ScanOptions) -> ScanPlan:
        """Plan the scan of the same rows.

        Raises:
            NotFoundError: the table was replaced, or a snapshot has expired.
            RefusedError: files may be missing.
        """
        if str(table.metadata.table_uuid) != self.table:
            raise NotFoundError(f"{table.identifier} is another table now: load the frame again")
        schema = self.schema_of(table)
        end = None if self.end is None else self._snapshot(table, self.end)
        if self.appends is None:
            plan = plan_snapshot(table, options, end, schema=schema)
        else:
            appends = tuple(self._snapshot(table, item) for item in self.appends)
            plan = plan_appends(table, options, Increment(end, appends, ()), schema=schema)
        for doubt in plan.found.doubts:
            raise RefusedError(f"rows may be missing: {doubt}")
        return plan

    def schema_of(self, table: Table) -> Schema:
        """Return the schema that the table is read with."""
        return next(item for item in table.metadata.schemas if item.schema_id == self.schema)

    @staticmethod
    def _snapshot(table: Table, number: int) -> Snapshot:
        found = table.metadata.snapshot_by_id(number)
        if found is None:
            raise NotFoundError(
                f"snapshot {number} has expired since the frame was loaded: load the frame again"
            )
        return found


class Split(InputPartition):  # type: ignore[misc]
    """What one task reads: slices of files and their deletes as JSON, and credentials, which are not shown."""

    def __init__(self, files: str, reading: str, secrets: bytes) -> None:
        self.files = files
        self.reading = reading
        self.secrets = secrets

    def __repr__(self) -> str:
        return f"Split({self.files})"

    def rows(self, schema: StructType) -> Iterator[pa.RecordBatch]:
        """Yield the rows as a DataFrame with a schema takes them."""
        reading = ReadSettings.from_plain(json.loads(self.reading))
        files = [FileSlice.from_plain(item) for item in json.loads(self.files)]
        with (
            storage_of(self.secrets) as storage,
            closing(Deletes(storage, reading, files)) as deletes,
        ):
            for batch in read_rows(storage, files, reading, deletes):
                yield batch_of(batch, reading.projection, schema)


@contextmanager
def storage_of(secrets: bytes) -> Iterator[Storage]:
    """Give the storage of a task; errors do not show its credentials."""
    credentials = Credentials.from_bytes(secrets)
    redact = Redactor()
    for part in credentials.parts():
        redact.learn(part)
    with reported(redact):
        yield Storage(renewed=CredentialProvider(credentials))


def descriptions(plan: ScanPlan) -> Iterator[tuple[str, str]]:
    """Yield the files of each split, and how they are read, as JSON."""
    for split in plan.spread().reads():
        files = json.dumps([item.to_plain() for item in split.slices])
        yield files, json.dumps(plan.reading(split.deletes).to_plain())


class LakeReader(DataSourceReader):  # type: ignore[misc]
    """Reads what is pinned. Filters are not pushed down: Spark would use those of one query for others, too."""

    def __init__(self, options: Mapping[str, str], schema: StructType, pin: Pin | None) -> None:
        self._options = options
        self._schema = schema
        self._pin = pin

    def partitions(self) -> Sequence[InputPartition]:
        """Return the splits of the scan, as `lake scan` plans them."""
        with opened(self._options) as (table, asked):
            # Without a pin the user gave the schema, which chooses the columns.
            names = asked.select if self._pin else self._schema.fieldNames()
            options = replace(asked, select=names)
            plan = (self._pin or Pin.of(table, options)).plan(table, options)
            check_schema(self._schema, spark_schema(plan.projection))
            secrets = table.storage.credentials.to_bytes()
            return [Split(*described, secrets) for described in descriptions(plan)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a split. Spark also asks for one, which is not ours, if there are none."""
        return partition.rows(self._schema) if isinstance(partition, Split) else iter(())


def check_schema(wanted: StructType, found: StructType) -> None:
    """Refuse a schema of the user that the table's columns do not fit.

    Raises:
        InvalidRequestError: a column has another type, or may be NULL.
    """
    for one, own in zip(wanted.fields, found.fields, strict=True):
        if one.dataType != own.dataType or (own.nullable and not one.nullable):
            null = "" if own.nullable else " NOT NULL"
            raise InvalidRequestError(
                f"column {own.name} is {own.dataType.simpleString()}{null} in the table, and not as the schema says"
            )
