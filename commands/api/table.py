"""Tables: scans of their rows, and the verbs that show and change them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

import pyarrow as pa

from lake.commands.api.calls import Calls, Option
from lake.commands.reports.facts import SnapshotFacts, SnapshotsResult
from lake.core.base.facts import Facts, NoFacts
from lake.core.base.outcome import Outcome, Status
from lake.core.data.columns.int96 import with_changed_leaves
from lake.core.load.ingest.facts import IngestFacts, IngestResult
from lake.core.maintain.branching.facts import RollbackFacts
from lake.core.maintain.compaction.facts import CompactionFacts, CompactionResult
from lake.core.maintain.expiration.facts import ExpirationFacts
from lake.core.maintain.health.facts import HealthResult
from lake.core.read.exports.export import read_rows
from lake.core.read.scan.execute import ScanRows, describe, reported_plan
from lake.core.read.scan.facts import ScanFacts
from lake.core.read.scan.plan import ScanPlan
from lake.core.spec.types.arrow_schema import arrow_schema

if TYPE_CHECKING:
    import pandas as pd

P = TypeVar("P", bound=Facts)
R = TypeVar("R", bound=Facts)
Path = str | os.PathLike[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Run(Generic[P, R]):
    """How a verb ended, with the fields of its JSON document.

    Args:
        status: how it ended, e.g. ``done``, ``nothing-to-do``, ``dry-run`` or ``already-running``.
        operation_id: the id that the commit's snapshot contains; None without a commit.
        base_snapshot_id: the snapshot that the work began with.
        snapshot_ids: the snapshots that it committed.
        plan: what there was to do.
        result: what was done; its fields have their defaults if nothing was.
        warnings: what the user needs to know although the verb succeeded.
    """

    status: Status
    operation_id: str | None
    base_snapshot_id: int | None
    snapshot_ids: Sequence[int]
    plan: P
    result: R
    warnings: Sequence[str]

    @classmethod
    def of(cls, outcome: Outcome, plan: type[P], result: type[R]) -> Self:
        """Return an outcome with a plan and a result of these types."""
        return cls(
            status=outcome.status,
            operation_id=outcome.operation_id,
            base_snapshot_id=outcome.base_snapshot_id,
            snapshot_ids=tuple(outcome.snapshot_ids),
            plan=plan.of(outcome.plan),
            result=result.of(outcome.result),
            warnings=outcome.warnings,
        )


class Scan:
    """The rows of one snapshot, or of the appends between two: planned once, and read as often as they are asked for.

    Deleted rows are left out. The rows of different files come in no particular order. `snapshot_id` is the newest
    snapshot that is read, None if the table is empty; `warnings` say why rows may be missing, e.g. because a snapshot
    between two is not an append.
    """

    def __init__(self, calls: Calls, plan: ScanPlan) -> None:
        self._calls = calls
        self._plan = plan
        described = describe(plan)
        self.snapshot_id = described.base_snapshot_id
        self.warnings = calls.warnings(described)

    @property
    def schema(self) -> pa.Schema:
        """The columns of the rows."""
        return arrow_schema(self._plan.projection)

    @property
    def plan(self) -> ScanFacts:
        """How many files, splits, rows and bytes there are to read."""
        return self._plan.facts()

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows, in this process and in bounded memory.

        Raises:
            CorruptFileError: a file cannot be read, or has fewer rows than the metadata counts.
            StorageError: the storage does not answer.
        """
        with self._calls.masked():
            yield from read_rows(ScanRows(self._plan))

    def to_arrow(self) -> pa.Table:
        """Return all rows as one table."""
        return pa.Table.from_batches(self.batches(), schema=self.schema)

    def to_pandas(self, **options: Any) -> pd.DataFrame:
        """Return all rows as a DataFrame of pandas; the options are those of PyArrow's `to_pandas`."""
        rows = self.to_arrow()
        # PyArrow has no lists of bytes of one length for pandas.
        plain = with_changed_leaves(
            rows.schema, lambda kind: pa.binary() if pa.types.is_fixed_size_binary(kind) else kind
        )
        return rows.cast(plain).to_pandas(**options)


class Table:
    """A table by its name. Each call works on what the table is then.

    The options of the methods are those of the verbs of the same name: `lake VERB --help` and the manual describe
    them. ``--min-size 1MB`` is ``min_size="1MB"``, and a flag without a value is ``True``. What the verb refuses is
    raised as one of `lake.errors`.
    """

    def __init__(self, calls: Calls, name: str) -> None:
        self._calls = calls
        self.name = name

    def __repr__(self) -> str:
        return f"Table({self.name!r})"

    def scan(
        self,
        *,
        where: str | None = None,
        select: Sequence[str] | None = None,
        snapshot: str | int | None = None,
        branch: str | None = None,
        limit: int | None = None,
        ignore_case: bool = False,
        **options: Option,
    ) -> Scan:
        """Plan a scan; see `lake scan`.

        Args:
            where: a filter of rows, e.g. ``"id > 5 and name = 'x'"``.
            select: the columns to read, as a list or a text with commas; None for all.
            snapshot: a snapshot's id, a tag, a branch, or ``@`` and a time; None for the newest.
            branch: the branch to read; None for ``main``.
            limit: the most rows.
            ignore_case: whether names of columns match in any case.
            options: `from_snapshot`, `to_snapshot` and `inclusive`, to read only what was appended between two
                snapshots, and `split_size`, `split_lookback` and `split_open_cost`.

        Raises:
            NotFoundError: the table, the snapshot or a column does not exist.
            BadInputError: the filter is not valid.
            InvalidRequestError: options contradict each other.
        """
        found = self._calls.scan_options(
            {
                "where": where,
                "select": select,
                "snapshot": None if snapshot is None else str(snapshot),
                "branch": branch,
                "limit": limit,
                "ignore_case": ignore_case,
                **options,
            }
        )
        with self._calls.masked():
            session = self._calls.session
            return Scan(self._calls, reported_plan(session, session.table(self.name), found))

    def snapshots(self, **options: Option) -> Sequence[SnapshotFacts]:
        """Return the snapshots of a branch, newest first; see `lake snapshots`."""
        outcome = self._calls.verb("snapshots", self.name, options=options)
        return SnapshotsResult.of(outcome.result).snapshots

    def compact(self, **options: Option) -> Run[CompactionFacts, CompactionResult]:
        """Rewrite small files into large ones; no row changes. See `lake compact`."""
        outcome = self._calls.verb("compact", self.name, options=options)
        return Run.of(outcome, CompactionFacts, CompactionResult)

    def expire(self, **options: Option) -> Run[ExpirationFacts, ExpirationFacts]:
        """Remove old snapshots and the files that only they use; see `lake expire`."""
        outcome = self._calls.verb("expire", self.name, options=options)
        return Run.of(outcome, ExpirationFacts, ExpirationFacts)

    def ingest(self, *sources: Path, **options: Option) -> Run[IngestFacts, IngestResult]:
        """Load files, globs, folders or URLs in one commit; see `lake ingest`."""
        names = [os.fspath(source) for source in sources]
        outcome = self._calls.verb("ingest", self.name, names, options=options)
        return Run.of(outcome, IngestFacts, IngestResult)

    def upsert(
        self, *sources: Path, key: Sequence[str] = (), **options: Option
    ) -> Run[IngestFacts, IngestResult]:
        """Load files as `ingest` does; each row replaces the row with the same key.

        Args:
            sources: the files.
            key: the columns of the key, as a list or a text with commas; empty for the identifier fields of the
                schema.
            options: the other options of `lake ingest --upsert`.
        """
        return self.ingest(*sources, upsert=True, key=key or None, **options)

    def rollback(
        self, ref: str | int | None = None, **options: Option
    ) -> Run[RollbackFacts, RollbackFacts]:
        """Set a branch back to a snapshot, or with `last` to the one before; see `lake rollback`."""
        name = self._calls.snapshot(None if ref is None else str(ref))
        outcome = self._calls.verb("rollback", self.name, name, options=options)
        return Run.of(outcome, RollbackFacts, RollbackFacts)

    def health(self, **options: Option) -> Run[NoFacts, HealthResult]:
        """Grade the table by what its layout costs readers; see `lake health`."""
        outcome = self._calls.verb("health", [self.name], options=options)
        return Run.of(outcome, NoFacts, HealthResult)
