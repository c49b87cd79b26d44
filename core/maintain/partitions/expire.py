"""Remove partitions whose whole range of time is older than a limit, as one snapshot; no data file is read.

Only whole files are removed. The plan is made again on every attempt of the commit, on the head that the swap
requires, so a file that another writer adds to an old partition meanwhile is not forgotten, and one that it adds to
a partition makes that partition's age be decided again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import (
    DateType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
)

from lake.core.base.errors import InvalidRequestError, RefusedError
from lake.core.base.options import Option
from lake.core.base.outcome import Outcome, Status
from lake.core.base.units import format_time, iso_time
from lake.core.maintain.partitions.ages import (
    COLUMNS,
    NEVER,
    check_format,
    partition_ends,
    require_time_field,
    time_fields,
)
from lake.core.maintain.partitions.facts import PartitionExpirationFacts
from lake.core.spec.expressions.filters import bind_filter
from lake.core.spec.expressions.predicates import UNBOUND_CLASSES
from lake.core.spec.types.partition_codes import partition_codes
from lake.core.table.catalogs.catalog import Table
from lake.core.table.snapshots import ancestry
from lake.core.table.snapshots.delete_scopes import is_global
from lake.core.table.snapshots.live_files import LiveFiles, live_files
from lake.core.table.snapshots.partition_activity import activity_of
from lake.core.table.snapshots.pruning import FILTER_COLUMNS, prune_files, strict_files
from lake.core.transaction.commit.commit import CommitRequest, commit_snapshots
from lake.core.transaction.commit.operations import DeleteKey, OverwriteFiles, SnapshotStep
from lake.core.transaction.commit.preconditions import require_writable
from lake.core.transaction.removals import Removals, removals_of

if TYPE_CHECKING:
    from pyiceberg.expressions import BooleanExpression
    from pyiceberg.table.snapshots import Snapshot

    from lake.core.transaction.session import Session

VALUES_TIME, UPDATE_TIME = "values-time", "update-time"
STRATEGIES = (VALUES_TIME, UPDATE_TIME)
FLOOR_MS = 24 * 3_600_000
_TIMES = (DateType, TimestampType, TimestamptzType, TimestampNanoType, TimestamptzNanoType)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionExpirationOptions:
    """Which partitions go.

    Args:
        older_than: partitions go if all their rows are older than this time, in ms since 1970.
        by: the name of a partition field or of its source column; None only for the strategy ``update-time``.
        strategy: ``values-time`` takes the age from the partition's values, ``update-time`` from the newest commit
            that may have changed the partition.
        format: how partition values that are texts or integers contain a time, as ``strptime`` reads it.
        most: the most partitions that go in one run, the oldest first.
        branch: the branch.
        unsafe_retention: whether the time may be less than 24 hours ago.

    Raises:
        InvalidRequestError: options contradict each other.
    """

    older_than: int
    by: str | None = None
    strategy: str = VALUES_TIME
    format: str | None = None
    most: int = 100
    branch: str = ancestry.MAIN
    unsafe_retention: bool = False

    def __post_init__(self) -> None:
        if self.strategy not in STRATEGIES:
            raise InvalidRequestError(
                f"{Option.STRATEGY} {self.strategy!r} is not one of {', '.join(STRATEGIES)}"
            )
        if self.strategy == VALUES_TIME and self.by is None:
            raise InvalidRequestError(
                f"{Option.STRATEGY} {VALUES_TIME} needs {Option.BY}",
                hint=f"name the partition field that gives the time, for example {Option.BY} day",
            )
        if self.strategy == UPDATE_TIME and (self.by or self.format) is not None:
            raise InvalidRequestError(
                f"{Option.STRATEGY} {UPDATE_TIME} contradicts {Option.BY} and {Option.FORMAT}"
            )
        if self.most < 1:
            raise InvalidRequestError(f"{Option.MOST} must be positive, not {self.most}")
        check_format(self.format)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionExpirationPlan:
    """The partitions that go.

    Args:
        table: the table.
        options: the options.
        head: the branch's head; None if it is empty.
        removals: the partitions, files and rows that go.
        paths: the data files that go.
        deletes: the delete files that apply to these partitions only.
        bytes: the size of the data files.
        partitions: the number of partitions that go.
        left: the number of old partitions that stay for another run.
        kept_files: files of other partition specs that may contain old rows beside newer ones.
        unknown_partitions: partitions whose values do not give a time.
    """

    table: Table
    options: PartitionExpirationOptions
    head: Snapshot | None
    removals: Removals = field(default_factory=Removals)
    paths: Sequence[str] = ()
    deletes: Sequence[DeleteKey] = ()
    bytes: int = 0
    partitions: int = 0
    left: int = 0
    kept_files: int = 0
    unknown_partitions: int = 0

    def facts(self) -> PartitionExpirationFacts:
        """Return the plan's figures for the outcome."""
        return PartitionExpirationFacts(
            older_than=iso_time(self.options.older_than),
            partitions=self.partitions,
            data_files=len(self.paths),
            delete_files=len(self.deletes),
            rows=self.removals.rows,
            rows_at_most=self.removals.rows_at_most,
            bytes=self.bytes,
            files_kept=self.kept_files,
            partitions_left=self.left,
            partitions_without_time=self.unknown_partitions,
        )


def plan_partition_expiration(
    table: Table, options: PartitionExpirationOptions, now_ms: int
) -> PartitionExpirationPlan:
    """Choose the partitions that go; nothing is written.

    Raises:
        RefusedError: the table cannot be written, or the time is less than 24 hours ago.
        NotFoundError: there is no such branch or partition field.
        InvalidRequestError: the partition field does not give a time.
    """
    require_writable(table)
    if options.older_than > now_ms - FLOOR_MS and not options.unsafe_retention:
        raise RefusedError(
            f"{Option.OLDER_THAN} is less than 24 hours ago: writers may still add rows of that time",
            hint=f"choose an older time, or add {Option.UNSAFE_RETENTION}",
        )
    specs = table.metadata.specs()
    if options.by is not None:
        require_time_field(list(specs.values()), table.schema, options.by)
    head = ancestry.branch_head(table.metadata, options.branch)
    plan = PartitionExpirationPlan(table=table, options=options, head=head)
    if head is None:
        return plan
    columns = COLUMNS if len(specs) == 1 else (*COLUMNS, *FILTER_COLUMNS)
    found = live_files(table, head, columns=columns)
    return _chosen(plan, found)


def _chosen(plan: PartitionExpirationPlan, found: LiveFiles) -> PartitionExpirationPlan:
    """Return the plan with the oldest partitions, and with the files of other specs that are wholly old."""
    options = plan.options
    ages = _ages(found, options)
    ends = np.concatenate([np.zeros(0, np.int64), *(item.ends for item in ages)])
    order = np.argsort(ends, kind="stable")
    old = order[ends[order] <= options.older_than]  # check: partition-age
    goes = np.zeros(len(ends), np.bool_)
    goes[old[: options.most]] = True
    gone: dict[int, pa.Table] = {}
    base = 0
    for item in ages:
        own = goes[base : base + len(item.ends)]
        gone[item.spec_id] = found.by_spec[item.spec_id].filter(pa.array(own[item.codes]))
        base += len(item.ends)
    strict, kept = _files_of_other_specs(found, options, gone.keys())
    whole = replace(found, by_spec={**gone, **strict})
    partitions = int(np.count_nonzero(goes))
    return replace(
        plan,
        removals=removals_of(whole),
        paths=whole.paths,
        deletes=_deletes_of(found, gone),
        bytes=whole.bytes,
        partitions=partitions,
        left=len(old) - partitions,
        kept_files=kept,
        unknown_partitions=int(np.count_nonzero(ends == NEVER)),
    )


@dataclass(frozen=True, slots=True)
class _Ages:
    """The distinct partitions of one spec: the partition of each file, and the end of each partition."""

    spec_id: int
    codes: npt.NDArray[np.int64]
    ends: npt.NDArray[np.int64]


def _ages(found: LiveFiles, options: PartitionExpirationOptions) -> list[_Ages]:
    table, specs = found.table, found.table.metadata.specs()
    if options.strategy == UPDATE_TIME:
        activity = activity_of(found)
        # A rewrite hides when rows arrived, and so does an expired snapshot: then the latest possible time counts.
        return [
            _Ages(spec_id, item.codes, item.changed_by_ms + 1)
            for spec_id, item in activity.items()
            if not is_global(specs[spec_id])
        ]
    ages = []
    for spec_id, entries in found.by_spec.items():
        fields = time_fields(specs[spec_id], table.schema, options.by or "")
        if not fields:
            continue
        codes = partition_codes([entries["partition"]])[0]
        _, first, codes = np.unique(codes, return_index=True, return_inverse=True)
        ends = partition_ends(entries["partition"].take(pa.array(first)), fields, options.format)
        ages.append(_Ages(spec_id, codes, ends))
    return ages


def _files_of_other_specs(
    found: LiveFiles, options: PartitionExpirationOptions, known: Collection[int]
) -> tuple[dict[int, pa.Table], int]:
    """Return the files of specs without the field all of whose rows are old, and the number of those with some."""
    others = {key: item for key, item in found.by_spec.items() if key not in known}
    condition = _older(found, options)
    strict, kept = {}, 0
    for spec_id, entries in others.items():
        if options.strategy == UPDATE_TIME:
            continue
        if condition is None:
            kept += entries.num_rows
            continue
        spec = found.table.metadata.specs()[spec_id]
        every = strict_files(entries, spec, found.schema, condition)
        some = prune_files(entries, spec, found.schema, condition)
        strict[spec_id] = entries.filter(every)
        kept += int(pc.sum(pc.and_not(some, every)).as_py() or 0)
    return strict, kept


def _older(found: LiveFiles, options: PartitionExpirationOptions) -> BooleanExpression | None:
    """Return the filter of old rows, if the partition field's source is a time."""
    table = found.table
    for spec in table.metadata.specs().values():
        for item in time_fields(spec, table.schema, options.by or ""):
            try:
                source = table.schema.find_field(item.source_id)
            except ValueError:
                continue
            if isinstance(source.field_type, _TIMES):
                name = table.schema.find_column_name(item.source_id) or ""
                limit = _literal(source.field_type, options.older_than)
                older = UNBOUND_CLASSES["lt"](name, limit)
                return bind_filter(older, table.schema)
    return None


def _literal(kind: object, time_ms: int) -> str:
    moment = (iso_time(time_ms) or "").removesuffix("Z")
    if isinstance(kind, DateType):
        # The rows of the day of the limit are not all older than it.
        return moment[:10]
    with_zone = isinstance(kind, TimestamptzType | TimestamptzNanoType)
    return f"{moment}+00:00" if with_zone else moment


def _deletes_of(found: LiveFiles, gone: Mapping[int, pa.Table]) -> list[DeleteKey]:
    """Return the delete files of partitions that go."""
    keys: list[DeleteKey] = []
    if not found.delete_manifests.num_rows:
        return keys
    index = found.delete_index
    for spec_id, entries in gone.items():
        deletes = index.by_spec.get(spec_id)
        if deletes is None or is_global(index.specs[spec_id]):
            continue
        partitions, own = partition_codes([entries["partition"], deletes["partition"]])
        inside = deletes.filter(pa.array(np.isin(own, partitions)))
        columns = (inside["file_path"].to_pylist(), inside["content_offset"].to_pylist())
        keys += [DeleteKey(path, offset) for path, offset in zip(*columns, strict=True)]
    return keys


def preview(plan: PartitionExpirationPlan, *, verbose: bool) -> Outcome:
    """Return the plan as the outcome of a dry run."""
    detail, notes = plan.removals.shown(verbose=verbose)
    outcome = _outcome(plan, Status.DRY_RUN)
    return replace(outcome, details=[detail] if plan.paths else [], notes=notes)


def execute(session: Session, plan: PartitionExpirationPlan, operation_id: str) -> Outcome:
    """Remove the partitions in one commit.

    Raises:
        CommitConflictError: the catalog refused every attempt; nothing was changed.
        CommitUnknownError: the commit may have succeeded.
    """
    if not plan.paths:
        return _outcome(plan, Status.NOTHING_TO_DO)
    planned: dict[int | None, PartitionExpirationPlan] = {
        plan.head.snapshot_id if plan.head else None: plan
    }
    last = [plan]

    def decide(now: Table) -> Sequence[SnapshotStep]:
        head = ancestry.head_id(now.metadata, plan.options.branch)
        if head not in planned:
            planned[head] = plan_partition_expiration(now, plan.options, session.clock.now_ms())
        last[0] = planned[head]
        if not last[0].paths:
            return ()
        operation = OverwriteFiles(
            added=(),
            removed_paths=last[0].paths,
            base_snapshot_id=head,
            removed_deletes=last[0].deletes,
        )
        return (SnapshotStep(operation=operation),)

    request = CommitRequest(operation_id=operation_id, branch=plan.options.branch)
    committed = commit_snapshots(session, plan.table, decide, request)
    done = last[0]
    if not committed.snapshot_ids:
        return _outcome(done, Status.NOTHING_TO_DO)
    return _outcome(
        done,
        Status.PARTIAL if done.left else Status.DONE,
        operation_id=operation_id,
        snapshot_ids=committed.snapshot_ids,
        result=done.facts(),
    )


def _outcome(plan: PartitionExpirationPlan, status: Status, **values: Any) -> Outcome:
    warnings = []
    if plan.kept_files:
        warnings.append(
            f"{plan.kept_files:,} files of another partition spec may contain old rows beside newer ones, and stay"
        )
    if plan.unknown_partitions:
        warnings.append(
            f"{plan.unknown_partitions:,} partitions have a value that does not give a time, and stay"
        )
    if plan.left:
        warnings.append(
            f"{plan.left:,} more partitions are older than {format_time(plan.options.older_than)} ({Option.MOST})"
        )
    return Outcome(
        status=status,
        base_snapshot_id=plan.head.snapshot_id if plan.head else None,
        plan=plan.facts(),
        warnings=warnings,
        **values,
    )
