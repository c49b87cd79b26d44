"""Execute an upsert: write the source to data files, deduplicate and match its keys, and commit once.

A lost race is matched again, against the new head and with the same data files.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from pyroaring import BitMap

from lake.core.base import locations
from lake.core.base.errors import CommitConflictError, LakeError, RefusedError
from lake.core.base.options import Option
from lake.core.base.outcome import Outcome
from lake.core.base.progress import Meter, showing
from lake.core.engine.tasks import ReduceFunction, Task, TaskFunction, TaskResult
from lake.core.load.ingest.checksummed_batches import batch_file, batches_in
from lake.core.load.ingest.execute import preview
from lake.core.load.ingest.facts import ExaminedFacts, IngestResult
from lake.core.load.ingest.load import (
    Load,
    SourceRun,
    row_receiver,
    run_load,
    run_source,
    warn_of_no_rows,
)
from lake.core.load.ingest.plan import IngestPlan
from lake.core.load.ingest.recovery import publish_manifests
from lake.core.load.ingest.rejects import temporary_files
from lake.core.load.ingest.result import Landed, LoadResult
from lake.core.load.upsert.change_rows import source_schema
from lake.core.load.upsert.dedup_tasks import (
    BucketReport,
    DeduplicateTask,
    UnitKeys,
    deduplicate,
    deduplicate_sent,
    send_keys,
)
from lake.core.load.upsert.key_matching import KeyMatches, Matcher
from lake.core.load.upsert.merge_tasks import (
    InsertTask,
    MergeTask,
    merge_rows,
    merge_sent,
    relaxed,
    write_new_rows,
)
from lake.core.load.upsert.options import EQUALITY
from lake.core.load.upsert.plan import UpsertPlan, describe_upsert
from lake.core.load.upsert.source_tasks import (
    KeyedSourceTask,
    KeySettings,
    UnitReport,
    collect_rows,
    receive_rows,
    send_rows,
    write_rows,
)
from lake.core.spec.properties.table_properties import COPY_ON_WRITE, SERIALIZABLE
from lake.core.table.catalogs.catalog import Table
from lake.core.table.manifests.data_files import DataFile
from lake.core.table.snapshots import ancestry
from lake.core.transaction.commit.commit import Committed
from lake.core.transaction.commit.operations import AppendFiles, Operation, OverwriteFiles, RowDelta
from lake.core.transaction.removals import rows_that_may_change
from lake.core.transaction.replanning import replanned
from lake.core.transaction.session import Session
from lake.core.transaction.spec_conditions import check_specs, same_spec, sole_spec
from lake.core.transaction.staging.failed_attempts import remove_lost_attempts
from lake.core.transaction.staging.operation_files import Staging

Keyed = TypeVar("Keyed", bound=DeduplicateTask)

# Keys of which an index takes some 100 to 200 MiB.
_BUCKET_ROWS = 4_000_000
_BUCKET_BYTES = 128 * 1024 * 1024
_SHOWN_KEYS = 3


@dataclass(slots=True)
class _Source:
    """The source's rows as files, and their keys by bucket.

    Args:
        files: the data files.
        units: the report of each unit, in the input's order.
        buckets: the report of each bucket of keys.
        dropped: by bucket, the keys whose rows are not written because of the table's rows.
    """

    files: list[DataFile] = field(default_factory=list)
    units: list[UnitReport] = field(default_factory=list)
    buckets: list[BucketReport] = field(default_factory=list)
    dropped: list[BitMap] = field(default_factory=list)

    @property
    def rows(self) -> int:
        return sum(file.record_count for file in self.files)

    @property
    def rows_read(self) -> int:
        return sum(unit.rows_read for unit in self.units)

    @property
    def rejected(self) -> int:
        return sum(unit.rejects.rows for unit in self.units)

    @property
    def rows_dropped(self) -> int:
        return sum(len(bits) for bits in self.dropped)

    @property
    def skipped(self) -> int:
        return sum(unit.skipped for unit in self.units)

    @property
    def deleted(self) -> list[BitMap]:
        """By bucket, the keys whose last change is a delete."""
        return [
            BitMap() if bucket.deleted is None else BitMap.deserialize(bucket.deleted)
            for bucket in self.buckets
        ]

    @property
    def unwritten(self) -> list[BitMap]:
        """By bucket, the keys of which no row is written."""
        dropped = self.dropped or [BitMap() for _ in self.buckets]
        return [one | other for one, other in zip(dropped, self.deleted, strict=True)]

    @property
    def lost(self) -> int:
        return sum(bucket.lost for bucket in self.buckets)

    @property
    def keys(self) -> int:
        return sum(bucket.rows for bucket in self.buckets)


def preview_upsert(session: Session, plan: UpsertPlan) -> Outcome:
    """Describe a plan without executing it."""
    ingest, examined = plan.ingest, None
    if not (ingest.earlier.needs_no_source or ingest.table.creating):
        head = ancestry.branch_head(ingest.table.metadata, ingest.options.branch)
        found = rows_that_may_change(ingest.table, head)
        # Deletes by key are written without reading the table.
        blind = plan.deletes == EQUALITY
        examined = ExaminedFacts(
            examined_files=0 if blind else found.files,
            examined_partitions=[] if blind else [item.partition for item in found.partitions],
            updated_rows_at_most=found.rows_at_most,
        )
    return preview(session, ingest, describe_upsert(plan, examined))


def execute_upsert(session: Session, plan: UpsertPlan) -> Outcome:
    """Write the rows, delete those that they replace, and commit both as one snapshot.

    Raises:
        BadInputError: a row does not fit, or its key is NULL or NaN; nothing is left behind.
        RefusedError: the table has several rows of a key; nothing is left behind.
        CommitConflictError: others kept changing what is replaced; nothing is left behind.
        CommitUnknownError: the catalog did not answer; every data file stays.
    """
    return run_load(session, plan.ingest, partial(_Upsert, session, plan), describe_upsert(plan))


class _Upsert(Load):
    """One upsert; all files that it writes have its operation id in their names."""

    def __init__(
        self, session: Session, upsert: UpsertPlan, plan: IngestPlan, operation_id: str
    ) -> None:
        super().__init__(session, plan, operation_id)
        self.upsert = replace(upsert, ingest=plan)
        self._storage = plan.table.storage
        self._source = _Source()
        self.nothing = self._result(None)

    @property
    def temporary_name(self) -> str:
        """How the names of the files of keys begin."""
        return f"lake-keys-{self.operation_id}"

    @contextmanager
    def temporary_files(self) -> Iterator[None]:
        """Remove the files of keys, and after a failure those of rejected rows."""
        with (
            temporary_files(self.session, self.plan.table, self.temporary_name),
            super().temporary_files(),
        ):
            yield

    def write(self) -> LoadResult:
        """Write the source's rows, each key once."""
        self._source = source = self._load()
        schema, kinds = self.plan.schema, self.upsert.options.changes_column
        self.keep_rejects(
            [unit.rejects for unit in source.units],
            schema if kinds is None else source_schema(schema, kinds),
            source.rows_read,
        )
        if late := sum(bucket.late for bucket in source.buckets):
            self.session.warn(
                f"the change log has a delete and then an older row of {late} {'key' if late == 1 else 'keys'}: the "
                "delete decides, but the table does not keep it, so an older row in a later load is added again"
            )
        if not source.keys:
            warn_of_no_rows(self.session, self.plan)
        return self._result(None)

    @property
    def has_changes(self) -> bool:
        """Whether there is anything to commit."""
        source = self._source
        return bool(source.keys or (self.plan.table.creating and not source.rejected))

    def _result(self, matched: KeyMatches | None) -> LoadResult:
        source = self._source
        blind = self.upsert.deletes == EQUALITY and not self.plan.table.creating
        updated, stale = 0, source.rows_dropped
        if matched is not None and self.upsert.is_partial:
            updated = matched.updated - sum(len(bits) for bits in matched.stale)
            stale = matched.stale_rows
        elif matched is not None:
            # Nothing was searched for deletes by key alone.
            found = matched.found or [BitMap() for _ in source.buckets]
            updated = sum(
                len(keys - unwritten)
                for keys, unwritten in zip(found, source.unwritten, strict=True)
            )
        written = source.rows + (updated if self.upsert.is_partial else 0)
        first = self.upsert.keeps_first
        return LoadResult(
            data=[*source.files, *(matched.kept if matched else [])],
            deletes=matched.deletes if matched else [],
            counts=IngestResult(
                rows_read=source.rows_read,
                rows_written=written,
                # A load that deletes by key alone does not know what was there.
                rows_inserted=None if blind else written - updated,
                rows_updated=None if blind else updated,
                rows_rejected=source.rejected,
                rows_deleted=self._rows_deleted(matched),
                rows_stale=None if self.upsert.sequence is None else stale,
                rows_skipped=source.rows_dropped if first else None,
                deletes_ignored=self._deletes_ignored(),
            ),
            base_snapshot_id=matched.base.snapshot_id if matched and matched.base else None,
        )

    def _rows_deleted(self, matched: KeyMatches | None) -> int | None:
        """Return the number of keys that a change log deletes from the table; None for other sources."""
        if self.upsert.options.changes_column is None:
            return None
        if matched is None:
            return 0
        by_bucket = zip(matched.found, matched.stale, self._source.deleted, strict=True)
        return sum(len((found & deleted) - stale) for found, stale, deleted in by_bucket)

    def _deletes_ignored(self) -> int | None:
        if not self.upsert.options.ignore_deletes:
            return None
        return sum(unit.ignored for unit in self._source.units)

    # The source

    def _load(self) -> _Source:
        source = self._write_rows(losers=None)
        source.buckets = self._deduplicate(source.units)
        if self.upsert.is_partial:
            # The rows are written when it is known which keys the table contains.
            self._check_keys(source)
            return source
        if source.lost:
            self._write_again(source, [])
        self._check_keys(source)
        self._check_rows(source)
        return source

    def _write_again(self, source: _Source, dropped: Sequence[str]) -> None:
        """Write the source's rows again, without replaced rows and those that the files ``dropped`` name."""
        self._storage.delete(file.path for file in source.files)
        losers = [bucket.losers for bucket in source.buckets if bucket.losers]
        source.files = self._write_rows(losers=[*losers, *dropped]).files

    def _check_keys(self, source: _Source) -> None:
        expected = source.rows_read - source.rejected - source.skipped
        if source.keys + source.lost != expected:
            raise LakeError(
                f"{expected} rows were to be merged, but there are {source.keys + source.lost}: "
                "nothing was committed"
            )

    def _check_rows(self, source: _Source) -> None:
        expected = source.keys - sum(len(bits) for bits in source.unwritten)
        if source.rows != expected:
            raise LakeError(
                f"{expected} rows were to be written, but there are {source.rows}: "
                "nothing was committed"
            )

    def _insert(self, source: _Source, found: Sequence[BitMap]) -> None:
        """Write the merged rows of the keys that the table does not contain, unless they are written."""
        if source.files and list(found) == source.dropped:
            return
        self._storage.delete(file.path for file in source.files)
        source.files, source.dropped = [], list(found)
        tasks = [
            Task(
                InsertTask(
                    task=number,
                    rows=bucket.merged,
                    found=bits.serialize(),
                    overwrites=self.upsert.overwrites,
                    writing=self.plan.ordered_settings(self.operation_id),
                )
            )
            for number, (bucket, bits) in enumerate(zip(source.buckets, found, strict=True))
            if bucket.merged and bucket.rows > len(bits)
        ]
        meter = Meter("writing new rows", tasks=len(tasks))
        engine = self.session.engine(self.plan.divisible_bytes)
        results = engine.run(tasks, write_new_rows, storage=self._storage, meter=meter)
        for result in showing(self.session.progress, meter, results):
            source.files += result.value.files
        expected = source.keys - source.rows_dropped
        if source.rows != expected:
            raise LakeError(
                f"{expected} new rows were to be written, but there are {source.rows}: "
                "nothing was committed"
            )

    def _source_task(self, **given: Any) -> KeyedSourceTask:
        """Make the payload of a task that reads the source."""
        if self.upsert.is_partial:
            write = given["write"]
            schema = relaxed(write.schema, self.upsert.key, self.upsert.overwrites)
            given["write"] = replace(write, schema=schema)
        return KeyedSourceTask(**given)

    def _write_rows(self, *, losers: list[str] | None) -> _Source:
        ingest, partial_update = self.plan, self.upsert.is_partial
        keys = KeySettings(
            ids=self.upsert.key,
            order=self.upsert.order,
            sequence=self.upsert.sequence,
            columns=self.upsert.columns,
            kinds=self.upsert.options.changes_column,
            ignore_deletes=self.upsert.options.ignore_deletes,
            losers=losers,
            folder=ingest.table.data_location,
            name=self.temporary_name,
        )
        run = SourceRun(
            plan=ingest,
            operation_id=self.operation_id,
            task=partial(self._source_task, keys=keys),
            receiver=row_receiver(ingest, self.operation_id),
            write=collect_rows if partial_update else write_rows,
            send=send_rows,
            receive=receive_rows,
            together=False if partial_update else None,
        )
        source = _Source()
        for report in run_source(self.session, run):
            source.files += report.files
            source.units += report.units
        source.units.sort(key=lambda unit: unit.place)
        return source

    def _deduplicate(self, units: Sequence[UnitReport]) -> list[BucketReport]:
        """Decide which row stands for each key; return the buckets of keys, in order."""
        files = [UnitKeys(place=unit.place, keys=unit.keys) for unit in units if unit.keys]
        if not files:
            return []
        count = max(
            -(-sum(unit.rows for unit in units) // _BUCKET_ROWS),
            -(-sum(unit.key_bytes for unit in units) // _BUCKET_BYTES),
        )
        common = DeduplicateTask(
            key_columns=len(self.upsert.key),
            folder=self.plan.table.data_location,
            name=self.temporary_name,
            first=self.upsert.keeps_first,
            with_rows=self.upsert.may_drop,
        )
        if not self.upsert.is_partial:
            results = self._by_bucket(common, deduplicate, deduplicate_sent, files, count)
        else:
            merging = MergeTask(
                key_columns=common.key_columns,
                folder=common.folder,
                name=common.name,
                order_columns=len(self.upsert.order),
                sequence=self.upsert.sequence is not None,
                overwrites=self.upsert.overwrites,
            )
            results = self._by_bucket(merging, merge_rows, merge_sent, files, count)
        reports = {report.bucket: report for report in results}
        # No key was sent to the other buckets.
        return [reports.get(bucket) or BucketReport(bucket=bucket) for bucket in range(count)]

    def _by_bucket(
        self,
        task: Keyed,
        one: TaskFunction[Keyed, BucketReport],
        sent: ReduceFunction[Keyed, BucketReport],
        files: Sequence[UnitKeys],
        count: int,
    ) -> Iterator[BucketReport]:
        """Run a task for the only bucket, or send the keys to their buckets and run it for each."""
        engine = self.session.engine(self.plan.divisible_bytes)
        meter = Meter("finding repeated keys", tasks=1 if count == 1 else len(files))
        results: Iterator[TaskResult[BucketReport]]
        if count == 1:
            alone = Task(replace(task, files=files))
            results = engine.run([alone], one, storage=self._storage, meter=meter)
        else:
            sending = DeduplicateTask(
                key_columns=task.key_columns, folder=task.folder, name=task.name, buckets=count
            )
            # The input's order is that of the tasks.
            results = engine.exchange(
                [Task(replace(sending, files=[file])) for file in files],
                send_keys,
                sent,
                [replace(task, bucket=bucket) for bucket in range(count)],
                storage=self._storage,
                meter=meter,
            )
        for result in showing(self.session.progress, meter, results):
            yield result.value

    # The table

    def commit(self, staging: Staging, result: LoadResult) -> Landed:
        """Match keys and commit, matching again whenever another writer won."""
        source, plan = self._source, self.plan
        table, commit_id = plan.table, self.operation_id
        if table.creating:
            if self.upsert.is_partial:
                self._insert(source, [BitMap() for _ in source.buckets])
                result = self._result(None)
            self._remove_lost(source.files)
            committed = self._commit(AppendFiles(added=source.files), table, commit_id)
            return Landed(result, committed, commit_id)
        matcher = Matcher(self.session, self.upsert, self.operation_id)
        matched = self._matched(matcher, table, source)
        if self._blindly:
            publish_manifests(staging, plan, source.files, matched.deletes)
            if plan.options.stage:
                return Landed(self._result(matched))

        def attempt(start: tuple[Table, str, KeyMatches]) -> Landed:
            table, commit_id, matched = start
            epoch = plan.request.epoch or plan.request.query_epoch
            if not (self._is_change(matched, source) or epoch):
                return Landed(self._result(matched))
            committed = self._commit(self._operation(matched, source), table, commit_id)
            return Landed(self._result(matched), committed, commit_id)

        def again(start: tuple[Table, str, KeyMatches]) -> tuple[Table, str, KeyMatches]:
            before, _, matched = start
            table, commit_id = self._refreshed(before), self.session.ids.uuid()
            if not self._blindly:  # check: upsert-matched-again
                self._storage.delete(file.path for file in matched.files)
                matched = self._matched(matcher, table, source)
            return table, commit_id, matched

        return replanned(attempt, (table, commit_id, matched), again)

    def _matched(self, matcher: Matcher, table: Table, source: _Source) -> KeyMatches:
        matched = (matcher.blind if self._blindly else matcher.match)(table, source.buckets)
        self._refuse_duplicates(matched, source)
        if self.upsert.is_partial:
            self._insert(source, matched.found)
        elif self.upsert.may_drop:
            self._drop(source, matched.found if self.upsert.keeps_first else matched.stale)
        self._remove_lost([*source.files, *matched.files])
        return matched

    def _drop(self, source: _Source, dropped: list[BitMap]) -> None:
        """Write the source's rows again if other keys than before are dropped because of the table's rows."""
        if dropped == (source.dropped or [BitMap() for _ in dropped]):
            return
        source.dropped = dropped
        path = locations.join(
            self.plan.table.data_location,
            f"{self.temporary_name}-{self.session.ids.uuid()}-dropped.arrow",
        )
        with batch_file(self._storage, path) as file:
            for bucket, bits in zip(source.buckets, dropped, strict=True):
                for batch in self._rows_of(bucket, bits):
                    file.write_batch(batch.select(["unit", "row"]))
        self._write_again(source, [path])
        self._check_rows(source)

    def _rows_of(self, bucket: BucketReport, bits: BitMap) -> Iterator[pa.RecordBatch]:
        """Yield the lines of a bucket's file of keys that have these numbers."""
        start, wanted = 0, np.asarray(bits.to_array(), np.int64)
        for batch in batches_in(self._storage, bucket.keys) if len(bits) and bucket.keys else ():
            end = start + batch.num_rows
            first, last = np.searchsorted(wanted, [start, end])
            if last > first:
                yield batch.take(pa.array(wanted[first:last] - start))
            start = end

    def _remove_lost(self, reported: Sequence[DataFile]) -> None:
        paths = [file.path for file in reported]
        remove_lost_attempts(self.session, self.plan.table, self.operation_id, paths)

    def _refreshed(self, table: Table) -> Table:
        """Return the table as it is now.

        Raises:
            CommitConflictError: what was written does not go with it any more.
        """
        now, then = table.refreshed(), self.plan.table
        evolved = now.metadata.current_schema_id != then.metadata.current_schema_id
        moved = now.spec.spec_id != then.spec.spec_id
        if (evolved and self.plan.evolves) or (moved and self._blindly):
            raise CommitConflictError(
                f"the {'schema' if evolved else 'partition spec'} of {now.identifier} was changed "
                "meanwhile",
                hint="run the command again",
            )
        head = ancestry.branch_head(now.metadata, self.plan.options.branch)
        if self._blindly and head is not None:
            check_specs(now, head)
        return now

    @property
    def _blindly(self) -> bool:
        return self.upsert.deletes == EQUALITY

    def _commit(self, operation: Operation, table: Table, commit_id: str) -> Committed:
        # The spec is the planned table's: equality deletes were written for its partitions.
        conditions = same_spec(self.plan.table) if self._blindly else ()
        return self.commit_rows(operation, table=table, commit_id=commit_id, conditions=conditions)

    def _is_change(self, matched: KeyMatches, source: _Source) -> bool:
        """Whether the table's files change; a copy of a file of which all rows are deleted adds no file."""
        copies = self.upsert.deletes == COPY_ON_WRITE
        # check: copies-without-rows
        return bool(source.files or matched.files or (copies and matched.hit))

    def _operation(self, matched: KeyMatches, source: _Source) -> Operation:
        """Return the change; a concurrent insert of one of the keys is a conflict at any isolation level."""
        base_id = matched.base.snapshot_id if matched.base else None
        if not self._is_change(matched, source):
            # A stream finds its position in the table, even if none of an epoch's rows was loaded. Otherwise its rows
            # might be loaded when the epoch is repeated.
            return AppendFiles(added=[])
        if self.upsert.deletes == COPY_ON_WRITE and matched.hit:
            return OverwriteFiles(
                added=[*source.files, *matched.kept],
                removed_paths=matched.hit,
                base_snapshot_id=base_id,
                conflict_filter=matched.condition,
                isolation=SERIALIZABLE,
            )
        return RowDelta(
            added=[*source.files, *matched.kept],
            deletes=matched.deletes,
            replaced_deletes=matched.superseded,
            base_snapshot_id=base_id,
            validates=not self._blindly,
            conflict_filter=matched.condition,
            isolation=SERIALIZABLE,  # check: serializable-upsert
            sole_spec=sole_spec(self.plan.table) if self._blindly else None,
        )

    def _refuse_duplicates(self, matched: KeyMatches, source: _Source) -> None:
        count = sum(len(bits) for bits in matched.again)
        # check: one-row-per-key
        if not count or self.upsert.options.repair_duplicates or self.upsert.keeps_first:
            return
        schema = self.plan.schema
        names = [schema.find_column_name(column) for column in self.upsert.key]
        shown = list(self._some_keys(matched.again, source))
        told = "; ".join(
            ", ".join(f"{name} {value}" for name, value in zip(names, key, strict=True))
            for key in sorted(shown)
        )
        raise RefusedError(
            f"{matched.table.identifier} has several rows of {count} of the source's keys: {told}"
            f"{' ...' if count > len(shown) else ''}",
            hint=f"{Option.REPAIR_DUPLICATES} replaces all rows of such a key by the source's row",
        )

    def _some_keys(self, again: Sequence[BitMap], source: _Source) -> Iterator[tuple[str, ...]]:
        left = _SHOWN_KEYS
        for bucket, bits in zip(source.buckets, again, strict=True):
            wanted = bits[:left]
            left -= len(wanted)
            for batch in self._rows_of(bucket, wanted):
                for row in range(batch.num_rows):
                    columns = batch.columns[: len(self.upsert.key)]
                    yield tuple(_shown(column[row]) for column in columns)


def _shown(value: pa.Scalar) -> str:
    try:
        return repr(value.as_py())
    except (OverflowError, ValueError):
        # Python has no dates beyond the year 9999.
        return str(value.cast(pa.string()).as_py())
