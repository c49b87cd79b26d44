"""The table's side of an upsert: find the rows with the source's keys in a snapshot, and delete them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
from pyiceberg.expressions import And
from pyiceberg.schema import Schema
from pyroaring import BitMap

from lake.core.base.progress import Meter, showing
from lake.core.data.keys.key_pruning import KeyPruner
from lake.core.data.rows.live_slices import SLICE_COLUMNS, all_slices
from lake.core.data.rows.reader import FileSlice, ReadSettings
from lake.core.engine.tasks import Task
from lake.core.load.upsert.dedup_tasks import BucketReport
from lake.core.load.upsert.equality_tasks import EqualityDeleteTask, write_deletes
from lake.core.load.upsert.key_filter import key_filter
from lake.core.load.upsert.match_tasks import MatchTask, match
from lake.core.load.upsert.plan import UpsertPlan
from lake.core.load.upsert.target_keys import sent_keys, target_keys
from lake.core.spec.expressions.filters import bind_filter
from lake.core.spec.properties.table_properties import COPY_ON_WRITE
from lake.core.spec.types.arrow_schema import moved_schema
from lake.core.table.catalogs.catalog import Table
from lake.core.table.manifests.data_files import DataFile
from lake.core.table.snapshots import ancestry
from lake.core.table.snapshots.live_files import LiveFiles, live_files
from lake.core.transaction.commit.operations import DeleteKey
from lake.core.transaction.session import Session
from lake.core.transaction.spec_conditions import check_specs
from lake.core.transaction.superseded_deletes import superseded_deletes

if TYPE_CHECKING:
    from pyiceberg.expressions import BooleanExpression
    from pyiceberg.table.snapshots import Snapshot

_TASK_ROWS = 4_000_000
_TASK_FILES = 500
# A task that merges rows has the new values of its rows in memory.
_MERGED_TASK_ROWS = 1_000_000
# Task numbers start here, so that file names differ from those of loading tasks.
_FIRST_TASK = 50_000


@dataclass(slots=True)
class KeyMatches:
    """The source's keys that the table contains at one snapshot.

    Args:
        table: the table at that snapshot.
        base: the branch's head; None for an empty branch.
        condition: a filter that all rows with these keys match.
        found: by bucket, the keys that the table contains.
        again: by bucket, the keys that it contains more than once.
        stale: by bucket, the keys of which it has a row with a greater sequence than the source's.
        hit: the data files that contain some of the keys.
        kept: with copy-on-write, the new files with the remaining rows of those data files; if rows are merged,
            the new files with the merged rows too.
        deletes: in the other modes, the delete files for the rows.
        superseded: delete files whose positions are also in ``deletes``.
        stale_rows: if rows are merged, the number of source rows that are older than the table's rows.
    """

    table: Table
    base: Snapshot | None
    condition: BooleanExpression | None
    found: list[BitMap]
    again: list[BitMap]
    stale: list[BitMap]
    hit: list[str] = field(default_factory=list)
    kept: list[DataFile] = field(default_factory=list)
    deletes: list[DataFile] = field(default_factory=list)
    superseded: list[DeleteKey] = field(default_factory=list)
    stale_rows: int = 0

    @property
    def updated(self) -> int:
        """The number of keys that the table contains."""
        return sum(len(bits) for bits in self.found)

    @property
    def files(self) -> list[DataFile]:
        """The files that matching wrote."""
        return [*self.kept, *self.deletes]


class Matcher:
    """Matches keys against one snapshot after another; its file names contain the operation id."""

    def __init__(self, session: Session, plan: UpsertPlan, operation_id: str) -> None:
        self._session = session
        self._plan = plan
        self._operation_id = operation_id
        self._storage = plan.ingest.table.storage
        self._number = _FIRST_TASK

    def blind(self, table: Table, buckets: Sequence[BucketReport]) -> KeyMatches:
        """Delete the source's keys without reading the table's rows."""
        ingest = self._plan.ingest
        base = ancestry.branch_head(table.metadata, ingest.options.branch)
        if base is not None:
            check_specs(table, base)
        names = [ingest.schema.find_column_name(column) or "" for column in self._plan.key]
        fields = [ingest.schema.find_field(name) for name in names]
        tasks = [
            Task(
                EqualityDeleteTask(
                    task=number,
                    keys=bucket.keys,
                    ids=self._plan.key,
                    columns=Schema(*fields),
                    writing=ingest.settings(self._operation_id),
                )
            )
            for number, bucket in enumerate(buckets, self._number)
            if bucket.keys
        ]
        matched = KeyMatches(table, base, None, [], [], [])
        engine = self._session.engine(ingest.divisible_bytes)
        for result in engine.run(tasks, write_deletes, storage=self._storage):
            matched.deletes += result.value.deletes
        return matched

    def match(self, table: Table, buckets: Sequence[BucketReport]) -> KeyMatches:
        """Find the table's rows with the source's keys and delete them in the plan's mode."""
        ingest, key = self._plan.ingest, self._plan.key
        base = ancestry.branch_head(table.metadata, ingest.options.branch)
        where = None
        if self._plan.where is not None:
            where = bind_filter(self._plan.where, table.schema)
        found, again, stale = ([BitMap() for _ in buckets] for _ in range(3))
        matched = KeyMatches(table, base, where, found, again, stale)
        if base is None or not set(key) <= set(table.schema.field_ids):
            return matched
        paths = [bucket.keys for bucket in buckets if bucket.keys]
        keys = target_keys(self._storage, paths, ingest.schema, key)
        matched.condition = _both(where, key_filter(table.schema, keys) if keys else None)
        pruner = None if keys is None else KeyPruner(keys, ingest.schema)
        live = live_files(table, base, where, columns=SLICE_COLUMNS, keys=pruner)
        tasks = list(self._tasks(live, buckets, where))
        meter = Meter("finding the keys", inputs=[task.input_bytes for task in tasks])
        engine = self._session.engine(ingest.divisible_bytes)
        results = engine.run(
            tasks, match, storage=self._storage, meter=meter, shared=sent_keys(keys)
        )
        for result in showing(self._session.progress, meter, results):
            report = result.value
            for bucket, bits in enumerate(report.found):
                new = BitMap.deserialize(bits)
                matched.again[bucket] |= BitMap.deserialize(report.found_again[bucket])
                matched.again[bucket] |= matched.found[bucket] & new
                matched.found[bucket] |= new
                matched.stale[bucket] |= BitMap.deserialize(report.stale[bucket])
            matched.kept += report.kept
            matched.deletes += report.deletes
            matched.hit += report.hit
            matched.stale_rows += report.stale_rows
        matched.superseded = superseded_deletes(live, matched.hit, matched.deletes)
        return matched

    def _tasks(
        self, live: LiveFiles, buckets: Sequence[BucketReport], row_filter: BooleanExpression | None
    ) -> Iterator[Task[MatchTask]]:
        ingest, key, table = self._plan.ingest, list(self._plan.key), live.table
        copies = self._plan.deletes == COPY_ON_WRITE
        sequence = self._plan.sequence
        compared = key if sequence is None else [*key, sequence]
        names = [ingest.schema.find_column_name(column) or "" for column in compared]
        # Row ids of format version 3 are copied with their rows, and so are columns added after the plan was made.
        copied = moved_schema(ingest.schema if ingest.evolves else table.schema, table.metadata)
        writing = ingest.settings(self._operation_id)
        rewrites = copies or self._plan.is_partial
        if rewrites:
            writing = replace(writing, schema=copied)  # check: row-ids-of-upsert
        for numbers, files in self._groups(live):
            deletes = live.deletes_of(np.array(numbers, np.int64))
            reading = ReadSettings.of(
                table,
                projection=ingest.schema.select(*names),
                row_filter=row_filter,
                deletes=deletes,
            )
            everything = ReadSettings.of(table, projection=copied, deletes=deletes)
            payload = MatchTask(
                task=self._number,
                files=files,
                reading=reading,
                ids=key,
                buckets=[bucket.keys for bucket in buckets],
                mode=self._plan.deletes,
                sequence=sequence,
                format_version=table.metadata.format_version,
                writing=writing,
                rewriting=everything if rewrites else None,
                merged=[bucket.merged for bucket in buckets] if self._plan.is_partial else [],
                overwrites=self._plan.overwrites,
            )
            self._number += 1
            yield Task(payload, sum(file.size_bytes for file in files))

    def _groups(self, live: LiveFiles) -> Iterator[tuple[list[int], list[FileSlice]]]:
        """Yield groups of adjacent data files with their numbers, sized to use all cores and to limit each task."""
        files = all_slices(live)
        engine = self._session.engine(self._plan.ingest.divisible_bytes)
        rows = sum(file.record_count for file in files)
        most = _MERGED_TASK_ROWS if self._plan.is_partial else _TASK_ROWS
        most = min(most, -(-rows // engine.parallelism))
        group: tuple[list[int], list[FileSlice]] = ([], [])
        taken = 0
        for number, file in enumerate(files):
            if group[0] and (taken + file.record_count > most or len(group[0]) >= _TASK_FILES):
                yield group
                group, taken = ([], []), 0
            group[0].append(number)
            group[1].append(file)
            taken += file.record_count
        if group[0]:
            yield group


def _both(
    left: BooleanExpression | None, right: BooleanExpression | None
) -> BooleanExpression | None:
    return And(left, right) if left is not None and right is not None else left or right
