"""Make tables with a past: files and commits as other programs leave them, from the first commit weeks ago on.

Everything is written by the core's own writers, without an engine. Rows are the same in each run; ids are not.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyiceberg.table.update import AssertCreate

from lake.core.base import locations
from lake.core.base.progress import Silent
from lake.core.data.deletes.row_positions import RowPositions
from lake.core.data.deletes.writers import (
    DeletedRows,
    open_equality_writer,
    open_position_writer,
)
from lake.core.data.rows.writer import WriteSettings, open_writer
from lake.core.data.schemas.new_tables import new_table
from lake.core.maintain.definition import alter
from lake.core.spec.types.type_syntax import parse_columns
from lake.core.transaction.commit.attempt import ChangeSet, commit_changes
from lake.core.transaction.commit.commit import CommitRequest, commit_snapshots
from lake.core.transaction.commit.operations import Operation, SnapshotStep

if TYPE_CHECKING:
    from lake.core.base.clock import Clock
    from lake.core.table.catalogs.catalog import Table
    from lake.core.table.manifests.data_files import DataFile
    from lake.core.transaction.session import Session

_DAY_MS = 86_400_000
_CUT_AT = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSpec:
    """A table to make.

    Args:
        name: its name, ``namespace.table``.
        columns: the names of its five columns: a key, a reference, a word, a number and a time.
        words: the words of the third column.
        make: commits files to the empty table.
        partition_by: its partitioning.
        properties: its properties.
    """

    name: str
    columns: Sequence[str]
    words: Sequence[str]
    make: Callable[[TableMaker], None]
    partition_by: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)


_TYPES = ("long", "long", "string", "double", "timestamptz")
_ARROW_TYPES = (pa.int64(), pa.int64(), pa.string(), pa.float64(), pa.timestamp("us", "UTC"))


class _PastClock:
    """A clock whose every reading is later than the one before, up to a last moment."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._now = self._step = 0
        self._last = clock.now_ms()

    def pass_through(self, first_ms: int, last_ms: int, readings: int) -> None:
        """Go back to a moment, and reach another one with the given number of readings."""
        self._step = (last_ms - first_ms) // max(readings, 1)
        self._now, self._last = first_ms, last_ms

    def now_ms(self) -> int:
        self._now = min(self._now + self._step, self._last)
        return self._now

    def monotonic(self) -> float:
        return self._clock.monotonic()

    def sleep(self, seconds: float) -> None:
        self._clock.sleep(seconds)


class TableMaker:
    """Writes the files of one table and commits them in the past. Times are in days before now."""

    def __init__(self, session: Session, spec: TableSpec) -> None:
        self._spec = spec
        self._now_ms = session.clock.now_ms()
        self._clock = _PastClock(session.clock)
        self._session = replace(session, clock=self._clock, progress=Silent())
        pairs = zip(spec.columns, _TYPES, strict=True)
        schema = parse_columns([f"{name} {kind}" for name, kind in pairs])
        made = new_table(
            schema,
            partition_by=spec.partition_by,
            sort_by=None,
            properties=spec.properties,
            warn=session.warn,
        )
        self.table: Table = made.stage(session.catalog, spec.name, make_namespace=True)
        self._values = np.random.default_rng(len(spec.name))
        self._keys = self._tasks = 0

    @property
    def keys(self) -> int:
        """The number of rows that were written; their keys are the numbers from 0 on."""
        return self._keys

    def file(self, rows: int, days: float = 0) -> DataFile:
        """Write rows with new keys, all with times on one day, to a file; it is not committed."""
        return self.file_of(range(self._keys, self._keys + rows), days)

    def file_of(self, keys: range, days: float = 0) -> DataFile:
        """Write rows with the given keys to a file."""
        self._keys = max(self._keys, keys.stop)
        with open_writer(
            self.table.storage, self._settings(), task=self._next_task(), attempt="0"
        ) as writer:
            writer.write(self._rows(np.array(keys), days))
            (file,) = writer.close()
        return file

    def equality_deletes(self, keys: Iterable[int]) -> list[DataFile]:
        """Write an equality delete file that deletes the rows with the given keys."""
        settings = self._settings()
        columns = self.table.schema.select(self._spec.columns[0])
        with open_equality_writer(
            self.table.storage,
            settings,
            columns=columns,
            equality_ids=list(columns.field_ids),
            names=settings.file_names(task=self._next_task(), attempt="0"),
        ) as writer:
            found = pa.array(list(keys), pa.int64())
            writer.write_to((), pa.RecordBatch.from_arrays([found], [self._spec.columns[0]]))
            return writer.close()

    def position_deletes(self, deleted: Iterable[tuple[DataFile, Sequence[int]]]) -> list[DataFile]:
        """Write a position delete file, or in format version 3 a deletion vector, for each data file and its rows."""
        settings = self._settings()
        with open_position_writer(
            self.table.storage,
            settings,
            format_version=self.table.metadata.format_version,
            names=settings.file_names(task=self._next_task(), attempt="0"),
        ) as writer:
            for file, positions in deleted:
                rows = RowPositions(np.array(sorted(positions), np.int64))
                writer.add(
                    DeletedRows(
                        path=file.path,
                        spec_id=file.spec_id,
                        partition=file.partition,
                        positions=rows,
                    )
                )
            return writer.close()

    def commit(self, *operations: Operation, since: float, until: float) -> None:
        """Commit operations as one snapshot each, at equal distances of time."""
        self._clock.pass_through(self._ms(since), self._ms(until), len(operations) + 1)
        steps = [SnapshotStep(operation=operation) for operation in operations]
        request = CommitRequest(operation_id=self._session.ids.uuid())
        done = commit_snapshots(self._session, self.table, lambda _: steps, request)
        self.table = done.table

    def create(self, since: float) -> None:
        """Create the table without a snapshot."""
        self._clock.pass_through(self._ms(since), self._ms(since), 1)
        self.table = commit_changes(
            self._session,
            self.table,
            lambda now: ChangeSet((AssertCreate(),), now.creating),
            lambda found: (found.table_uuid == self.table.metadata.table_uuid) or None,
        )

    def partition_by(self, terms: str, days: float) -> None:
        """Change the partitioning for the files that are written from now on."""
        self._clock.pass_through(self._ms(days), self._ms(days), 1)
        change = alter.Alteration(partition_by=terms)
        plan = alter.plan_alter(self._session, self.table, change)
        alter.execute(self._session, plan, change, dry_run=False)
        self.table = self.table.refreshed()

    def leave_orphans(self, count: int, days: float) -> None:
        """Write data files that no snapshot will reference, as a job that was killed leaves them."""
        for _ in range(count):
            moment = self._ms(days) / 1000
            os.utime(_local(self.file(20, days).path), (moment, moment))

    def cut_manifest_list(self) -> None:
        """Cut the manifest list of the current snapshot after its first bytes, as a full disk does."""
        head = self.table.metadata.current_snapshot()
        assert head is not None  # noqa: S101 - the table has a commit
        os.truncate(_local(head.manifest_list), _CUT_AT)

    def _settings(self) -> WriteSettings:
        return WriteSettings.of(self.table, self._session.ids.uuid())

    def _next_task(self) -> int:
        self._tasks += 1
        return self._tasks

    def _ms(self, days: float) -> int:
        return self._now_ms - round(days * _DAY_MS)

    def _rows(self, keys: np.ndarray, days: float) -> pa.RecordBatch:
        rows = len(keys)
        words = np.array(self._spec.words)
        # From midnight in UTC of that day on, so that they have one day.
        day = self._ms(days) // _DAY_MS * _DAY_MS
        values = (
            keys,
            self._values.integers(1, 10_000, rows),
            words[self._values.integers(0, len(words), rows)],
            self._values.integers(100, 100_000, rows) / 100,
            (day + np.sort(self._values.integers(0, _DAY_MS, rows))) * 1000,
        )
        columns = [
            pa.array(each).cast(kind) for each, kind in zip(values, _ARROW_TYPES, strict=True)
        ]
        return pa.RecordBatch.from_arrays(columns, list(self._spec.columns))


def _local(location: str) -> str:
    return locations.parse(location).path
