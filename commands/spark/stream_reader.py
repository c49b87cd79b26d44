"""A stream: where Spark's batches end, and what they read. Spark's checkpoint is the only state."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from pyiceberg.schema import Schema
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from lake.commands.api.calls import Calls
from lake.commands.spark.change_splits import ChangeSplit, InsertSplit
from lake.commands.spark.opened import lowered, named_table, streamed
from lake.commands.spark.reader import check_schema, descriptions
from lake.commands.spark.redacted import reported
from lake.commands.spark.splits import Split, SplitReader
from lake.commands.spark.types import spark_schema
from lake.core.base.errors import TRANSIENT_ERRORS, LakeError, NotFoundError
from lake.core.read.changelog.plan import ChangelogPlan
from lake.core.read.changelog.row_diff import CHANGE_COLUMNS
from lake.core.read.changelog.task_units import units_of
from lake.core.read.continuous.options import FollowOptions
from lake.core.read.micro_batches.limits import Limits
from lake.core.read.micro_batches.offsets import Offset
from lake.core.read.micro_batches.plan import Batch, BatchPlanner, Read
from lake.core.read.scan.plan import bound
from lake.core.spec.types.arrow_schema import schema_to_plain
from lake.core.table.catalogs.catalog import Table
from lake.core.table.snapshots import ancestry

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadMaxFiles,
        SupportsTriggerAvailableNow,
    )
except ImportError:
    # Spark 4.0 and 4.1 do not pass the start and the limits of a batch.
    ReadAllAvailable = ReadMaxFiles = None
    SupportsTriggerAvailableNow = DataSourceStreamReader

Plain = Mapping[str, Any]
_MANY = (1 << 31) - 1
_BASES = tuple(dict.fromkeys((SupportsTriggerAvailableNow, DataSourceStreamReader)))


class LakeStreamReader(SplitReader, *_BASES):  # type: ignore[misc]
    """Finds and reads the batches of a stream.

    One object finds all batches of a query, and others read them. Before Spark 4.2 only the ends of the batches that
    are planned show it where the stream is.
    """

    def __init__(
        self, options: Mapping[str, str], schema: StructType, schema_id: int | None
    ) -> None:
        super().__init__(schema)
        self._options = options
        self._schema_id = schema_id
        self._opened: tuple[Calls, str, FollowOptions, Limits] | None = None
        self._pinned: Schema | None = None
        self._at: Plain = Offset.START.to_plain()
        self._ahead: tuple[Offset, Batch, Table] | None = None
        self._target: int | None = None
        self._only_once = False
        self._failures: int | None = None

    # What Spark asks

    def initialOffset(self) -> Plain:
        """Return the start. The end of the first batch, which Spark keeps, says where that is."""
        return Offset.START.to_plain()

    def latestOffset(self, start: Plain | None = None, limit: object = None) -> Plain:
        """Return the end of the next batch: the start if there is nothing new, or if the table cannot be read now."""
        at = self._at if start is None else start
        unlimited = ReadAllAvailable is not None and isinstance(limit, ReadAllAvailable)
        try:
            with self._planner() as (table, planner, limits):
                batch = planner.next(
                    Offset.from_plain(at),
                    Limits() if unlimited else limits,
                    now_ms=self._now_ms(),
                    target=self._target,
                )
        except TRANSIENT_ERRORS as error:
            self._count_failure(error)
            return at
        self._failures = 0
        self._ahead = Offset.from_plain(at), batch, table
        self._at = at if batch.end.is_at(Offset.from_plain(at)) else batch.end.to_plain()
        return self._at

    def partitions(self, start: Plain, end: Plain) -> Sequence[InputPartition]:
        """Return what tasks read between two offsets, which are the same whenever they are asked for."""
        first, last = Offset.from_plain(start), Offset.from_plain(end)
        self._at = end
        ahead, self._ahead = self._ahead, None
        if ahead and ahead[1].reads is not None and (ahead[0], ahead[1].end) == (first, last):
            with reported(self._arguments()[0].redact):
                return _splits(ahead[2], ahead[1].reads)
        with self._planner() as (table, planner, _):
            return _splits(table, planner.between(first, last))

    def commit(self, end: Plain) -> None:
        """Do nothing: the checkpoint is the state."""

    def stop(self) -> None:
        """Do nothing: nothing is open."""

    # What Spark 4.2 and later ask

    def prepareForTriggerAvailableNow(self) -> None:
        """Remember where a stream that reads what there is ends."""
        with self._planner() as (table, _, _):
            branch = self._arguments()[2].branch
            self._target = ancestry.head_id(table.metadata, branch)
            self._only_once = True

    def getDefaultReadLimit(self) -> Any:
        """Return a limit that is not the one for everything if there is one; the options have the numbers."""
        limits = self._arguments()[3]
        return ReadAllAvailable() if limits == Limits() else ReadMaxFiles(limits.files or _MANY)

    def reportLatestOffset(self) -> Plain | None:
        """Return None: only the metrics of the query would show it, and to find it costs as much as a batch."""
        return None

    # Planning

    def _arguments(self) -> tuple[Calls, str, FollowOptions, Limits]:
        if self._opened is None:
            calls, name = named_table(self._options)
            with reported(calls.redact):
                options, limits = streamed(calls, lowered(self._options))
            self._opened = calls, name, options, limits
        return self._opened

    @contextmanager
    def _planner(self) -> Iterator[tuple[Table, BatchPlanner, Limits]]:
        """Give the table as it is now, and the planner of its batches."""
        calls, name, options, limits = self._arguments()
        with reported(calls.redact):
            table = calls.session.table(name)
            schema = self._schema_of(table)
            if self._schema_id is None:
                # The user gave the schema, which chooses the columns.
                own = self._schema.fieldNames()
                names = own[: -len(CHANGE_COLUMNS)] if options.changes else own
                options = replace(options, scan=replace(options.scan, select=names))
            columns = bound(schema, options.scan)[1]
            check_schema(self._schema, spark_schema(_with_changes(columns, options)))
            yield table, BatchPlanner(table, options, schema), limits

    def _schema_of(self, table: Table) -> Schema:
        """Return the schema with which the stream was loaded: its columns keep their names."""
        if self._pinned is None:
            number = self._schema_id
            known = {item.schema_id: item for item in table.metadata.schemas}
            if number is not None and number not in known:
                raise NotFoundError(
                    f"schema {number} of {table.identifier} does not exist any more"
                )
            self._pinned = table.schema if number is None else known[number]
        return self._pinned

    def _now_ms(self) -> int:
        return self._arguments()[0].session.clock.now_ms()

    def _count_failure(self, error: LakeError) -> None:
        """Count a failure that may pass, and raise it if there were too many in a row.

        The first look at the table must succeed, and so must each of a query that ends when it has read what there
        is: it would end without rows and without an error.
        """
        most = self._arguments()[2].max_planning_failures
        if self._failures is None or self._only_once:
            raise error
        self._failures += 1
        if 0 <= most < self._failures:
            raise error


def _splits(table: Table, reads: Sequence[Read]) -> list[InputPartition]:
    """Return what tasks read."""
    secrets = table.storage.credentials.to_bytes()
    found: list[InputPartition] = []
    for read in reads:
        plan = read.plan
        if isinstance(plan, ChangelogPlan):
            columns = json.dumps(schema_to_plain(plan.projection))
            for unit in units_of(plan):
                numbered = replace(unit, ordinal=unit.ordinal + read.ordinal)
                found.append(ChangeSplit(json.dumps(numbered.to_plain()), columns, secrets))
        elif read.inserted_by is None:
            found += [Split(*described, secrets) for described in descriptions(plan)]
        else:
            where = read.ordinal, read.inserted_by
            found += [InsertSplit(*described, secrets, *where) for described in descriptions(plan)]
    return found


def _with_changes(columns: Schema, options: FollowOptions) -> Schema:
    return Schema(*columns.fields, *CHANGE_COLUMNS) if options.changes else columns
