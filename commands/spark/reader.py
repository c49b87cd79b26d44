"""A batch read: the plan of a scan as Spark's partitions."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pyiceberg.schema import Schema
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from lake.commands.spark.opened import OF_STREAMS, lowered, opened, reads_changes
from lake.commands.spark.pin import Pin
from lake.commands.spark.redacted import reported
from lake.commands.spark.splits import Split, SplitReader
from lake.commands.spark.types import spark_schema
from lake.core.base.errors import BadInputError, InvalidRequestError, NotFoundError, RefusedError
from lake.core.read.changelog.row_diff import CHANGE_COLUMNS
from lake.core.read.scan.incremental import Increment
from lake.core.read.scan.plan import (
    ScanOptions,
    ScanPlan,
    bound,
    increment_of,
    plan_appends,
    plan_snapshot,
    scan_schema,
    scan_snapshot,
)
from lake.core.table.catalogs.catalog import Table

if TYPE_CHECKING:
    from pyiceberg.table.snapshots import Snapshot


def columns_of(options: Mapping[str, str]) -> tuple[StructType, int, Pin | None]:
    """Return the columns of a DataFrame, the id of their schema, and what a batch read of them reads."""
    with opened(options) as (table, asked):
        schema, pin = scan_schema(table, asked), None
        try:
            pin = pinned(table, asked)
        except BadInputError:
            # The start of a stream is needed by its first batch only. A batch read fails when it is planned.
            if not asked.incremental:
                raise
        columns = bound(schema, asked)[1].fields
        changes = CHANGE_COLUMNS if reads_changes(options) else ()
        return spark_schema(Schema(*columns, *changes)), schema.schema_id, pin


def pinned(table: Table, options: ScanOptions) -> Pin:
    """Return what options choose now.

    Raises:
        NotFoundError: a snapshot does not exist.
    """
    identity, schema = str(table.metadata.table_uuid), scan_schema(table, options).schema_id
    if not options.incremental:
        snapshot = scan_snapshot(table, options)
        return Pin(identity, schema, snapshot.snapshot_id if snapshot else None)
    found = increment_of(table, options)
    end = found.end.snapshot_id if found.end else None
    return Pin(identity, schema, end, tuple(item.snapshot_id for item in found.appends))


def plan_of(pin: Pin, table: Table, options: ScanOptions) -> ScanPlan:
    """Plan the scan of the same rows.

    Raises:
        NotFoundError: the table was replaced, or a snapshot has expired.
        RefusedError: files may be missing.
    """
    if str(table.metadata.table_uuid) != pin.table:
        raise NotFoundError(f"{table.identifier} is another table now: load the frame again")
    schema = next(item for item in table.metadata.schemas if item.schema_id == pin.schema)
    end = None if pin.end is None else _snapshot(table, pin.end)
    if pin.appends is None:
        plan = plan_snapshot(table, options, end, schema=schema)
    else:
        appends = tuple(_snapshot(table, item) for item in pin.appends)
        plan = plan_appends(table, options, Increment(end, appends, ()), schema=schema)
    for doubt in plan.found.doubts:
        raise RefusedError(f"rows may be missing: {doubt}")
    return plan


def _snapshot(table: Table, number: int) -> Snapshot:
    found = table.metadata.snapshot_by_id(number)
    if found is None:
        raise NotFoundError(
            f"snapshot {number} has expired since the frame was loaded: load the frame again"
        )
    return found


def descriptions(plan: ScanPlan) -> Iterator[tuple[str, str]]:
    """Yield the files of each split, and how they are read, as JSON."""
    for split in plan.spread().reads():
        files = json.dumps([item.to_plain() for item in split.slices])
        yield files, json.dumps(plan.reading(split.deletes).to_plain())


class LakeReader(SplitReader, DataSourceReader):  # type: ignore[misc]
    """Reads what is pinned. Filters are not pushed down: Spark would use those of one query for others, too."""

    def __init__(self, options: Mapping[str, str], schema: StructType, pin: Pin | None) -> None:
        with reported(str):
            for name in lowered(options).keys() & set(OF_STREAMS):
                raise InvalidRequestError(
                    f"{name} is an option of spark.readStream only",
                    hint="use spark.readStream; trigger(availableNow=True) ends it when it has read what there is",
                )
        super().__init__(schema)
        self._options = options
        self._pin = pin

    def partitions(self) -> Sequence[InputPartition]:
        """Return the splits of the scan, as `lake scan` plans them."""
        with opened(self._options) as (table, asked):
            # Without a pin the user gave the schema, which chooses the columns.
            names = asked.select if self._pin else self._schema.fieldNames()
            options = replace(asked, select=names)
            plan = plan_of(self._pin or pinned(table, options), table, options)
            check_schema(self._schema, spark_schema(plan.projection))
            secrets = table.storage.credentials.to_bytes()
            return [Split(*described, secrets) for described in descriptions(plan)]


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
