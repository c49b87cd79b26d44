"""Choose the manifests that are worth rewriting: too many of them, or spread over all partitions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial

import pyarrow as pa
import pyarrow.compute as pc

from lake.core.base.errors import InvalidRequestError, NotFoundError
from lake.core.base.options import Option
from lake.core.maintain.manifest_rewrite.conditions import MANIFESTS, OVERLAP
from lake.core.maintain.manifest_rewrite.facts import ManifestGroupFacts, ManifestRewriteFacts
from lake.core.spec.expressions.conditions import Condition, Evaluation, evaluate
from lake.core.spec.properties.table_properties import MANIFEST_BYTES
from lake.core.table.catalogs.catalog import Table
from lake.core.table.manifests.api import read_manifests
from lake.core.table.manifests.batches import bytes_of
from lake.core.table.manifests.clusters import (
    Clustering,
    by_partition,
    clustering_of,
    entries_per_manifest,
    even_pieces,
)
from lake.core.table.manifests.data_files import DATA
from lake.core.table.snapshots import ancestry
from lake.core.table.snapshots.completeness import read_list, verify_manifest_list
from lake.core.transaction.commit.operations import RewriteManifests

# Why manifests are left alone: they are of another spec than the one that was asked for; the condition is false; they
# are neither too many nor spread over too many partitions; the table has no partitions, and they are not too many;
# they contain no live file.
OTHER_SPEC, NOT_DUE, WELL_CLUSTERED, WELL_SIZED = (
    *("other-spec", "not-due"),
    *("well-clustered", "well-sized"),
)
NO_LIVE_FILES = "no-live-files"
# A group is rewritten if its manifests are more than this many times the fewest possible.
_TOO_MANY = 1.25
# Or if a scan of one partition reads more than this many times the manifests that it would read afterwards.
_TOO_SPREAD = 1.5


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestOptions:
    """Which manifests are rewritten, and how.

    Args:
        branch: the branch.
        target_size: the size of new manifests; None for the table's property.
        spec_id: only manifests of this partition spec; None for all.
        sort_by: the partition fields by which entries are sorted; empty for all fields of each spec.
        rewrite_all: also rewrite manifests that need it not.
        condition: rewrite only if it is true; None for always.
    """

    branch: str = ancestry.MAIN
    target_size: int | None = None
    spec_id: int | None = None
    sort_by: Sequence[str] = ()
    rewrite_all: bool = False
    condition: Condition | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestGroup:
    """The manifests of one partition spec and one content.

    Args:
        spec_id: the partition spec.
        content: 0 for manifests of data files, 1 for those of delete files.
        paths: the locations of the manifests.
        size: their bytes.
        after: the number of manifests that replace them.
        clustering: how many of them a scan of one partition reads; None if the entries were not read, because the
            number of manifests decides.
    """

    spec_id: int
    content: int
    paths: Sequence[str]
    size: int
    after: int
    clustering: Clustering | None

    @property
    def is_worth_it(self) -> bool:
        """Whether fewer or better clustered manifests make scans faster."""
        if _are_too_many(len(self.paths), self.after):
            return True
        before, after = self._spread
        return before is not None and after is not None and before > _TOO_SPREAD * after

    @property
    def _spread(self) -> tuple[float | None, float | None]:
        known = self.clustering
        return (known.before, known.after) if known else (None, None)

    def facts(self) -> ManifestGroupFacts:
        """Return the group's figures for the outcome."""
        before, after = self._spread
        return ManifestGroupFacts(
            spec_id=self.spec_id,
            content="data" if self.content == DATA else "deletes",
            manifests=len(self.paths),
            manifests_after=self.after,
            bytes=self.size,
            per_partition=_rounded(before),
            per_partition_after=_rounded(after),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptManifests:
    """Manifests that are left alone for one reason."""

    reason: str
    rows: pa.Table


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestPlan:
    """The groups of manifests that are rewritten.

    Args:
        table: the table that the plan was made for.
        options: the options.
        target_size: the size of new manifests.
        manifests: the number of manifests of the branch.
        groups: what is rewritten.
        left_alone: the manifests that are not, by the reason.
        evaluation: the condition and its measured values; None if the options do not contain a condition.
    """

    table: Table
    options: ManifestOptions
    target_bytes: int
    manifests: int
    groups: Sequence[ManifestGroup]
    left_alone: Sequence[KeptManifests] = ()
    evaluation: Evaluation | None = None

    @property
    def is_empty(self) -> bool:
        """Whether nothing is worth rewriting."""
        return not self.groups

    @property
    def rewritten(self) -> int:
        """The number of manifests that are rewritten."""
        return sum(len(group.paths) for group in self.groups)

    @property
    def operation(self) -> RewriteManifests:
        """The change of the table."""
        return RewriteManifests(
            manifests=frozenset(path for group in self.groups for path in group.paths),
            target_bytes=self.target_bytes,
            sort_by=tuple(self.options.sort_by),
        )

    def facts(self) -> ManifestRewriteFacts:
        """Return the plan's figures for the outcome."""
        return ManifestRewriteFacts(
            condition=self.evaluation.facts() if self.evaluation else None,
            manifests=self.manifests,
            rewritten=self.rewritten,
            rewritten_as=sum(group.after for group in self.groups),
            target_bytes=self.target_bytes,
            groups=[group.facts() for group in self.groups],
        )


def plan_manifests(
    table: Table, options: ManifestOptions, *, reads_all: bool = True
) -> ManifestPlan:
    """Choose the manifests of a branch that are rewritten.

    Args:
        table: the table.
        options: the options.
        reads_all: also read the manifests of which the number decides, to measure how their entries are clustered.

    Raises:
        InvalidRequestError: a field is not a partition field, or the size is too small.
        NotFoundError: there is no such partition spec.
        CorruptFileError: the manifest list is incomplete, or a manifest cannot be read.
    """
    metadata = table.metadata
    target = options.target_size or MANIFEST_BYTES.of(metadata.properties)
    _check(table, options)
    head = ancestry.branch_head(metadata, options.branch)
    if head is None:
        return ManifestPlan(
            table=table,
            options=options,
            target_bytes=target,
            manifests=0,
            groups=(),
            evaluation=_evaluated(options, 0, tuple),
        )
    listed = read_list(table.storage, metadata, head)
    verify_manifest_list(table.storage, metadata, head, listed)
    counted = listed
    if options.spec_id is not None:
        counted = listed.filter(pc.equal(listed["partition_spec_id"], options.spec_id))

    @cache
    def read() -> Sequence[ManifestGroup]:
        return _groups(table, counted, target, options, reads_all=True)

    evaluation = _evaluated(options, counted.num_rows, read)
    is_due = evaluation is None or evaluation.is_due
    # What the condition has read is not read again.
    is_read = reads_all or read.cache_info().currsize > 0
    groups = read if is_read else partial(_groups, table, counted, target, options, reads_all=False)
    found = groups() if is_due else ()
    chosen = [x for x in found if x.is_worth_it or options.rewrite_all]
    return ManifestPlan(
        table=table,
        options=options,
        target_bytes=target,
        manifests=listed.num_rows,
        groups=chosen,
        left_alone=list(_kept(listed, options, found, chosen, is_due=is_due)),
        evaluation=evaluation,
    )


def _kept(
    listed: pa.Table,
    options: ManifestOptions,
    found: Sequence[ManifestGroup],
    chosen: Sequence[ManifestGroup],
    *,
    is_due: bool,
) -> Iterator[KeptManifests]:
    """Yield the manifests that are left alone; each has one reason."""
    rest = listed

    def taken(mask: pa.ChunkedArray) -> pa.Table:
        nonlocal rest
        rows, rest = rest.filter(mask), rest.filter(pc.invert(mask))
        return rows

    def of(groups: Iterable[ManifestGroup]) -> pa.Table:
        paths = [path for group in groups for path in group.paths]
        return taken(pc.is_in(rest["manifest_path"], value_set=pa.array(paths, pa.string())))

    of(chosen)
    if options.spec_id is not None:
        yield KeptManifests(
            reason=OTHER_SPEC,
            rows=taken(pc.not_equal(rest["partition_spec_id"], options.spec_id)),
        )
    if not is_due:
        yield KeptManifests(reason=NOT_DUE, rows=rest)
        return
    yield KeptManifests(
        reason=WELL_CLUSTERED, rows=of(x for x in found if x.clustering and x.clustering.before)
    )
    yield KeptManifests(reason=WELL_SIZED, rows=of(found))
    # A manifest without live files is dropped by the next commit.
    yield KeptManifests(reason=NO_LIVE_FILES, rows=rest)


def _evaluated(
    options: ManifestOptions, manifests: int, groups: Callable[[], Sequence[ManifestGroup]]
) -> Evaluation | None:
    """Return the evaluated condition; the manifests themselves are read only if the overlap decides."""
    if options.condition is None:
        return None

    def overlap() -> float | None:
        known = [group.clustering.before for group in groups() if group.clustering]
        return _rounded(max((spread for spread in known if spread is not None), default=None))

    return evaluate(options.condition, {MANIFESTS: lambda: manifests, OVERLAP: overlap})


def _groups(
    table: Table, listed: pa.Table, target: int, options: ManifestOptions, *, reads_all: bool
) -> list[ManifestGroup]:
    """Return the manifests of each content and partition spec that have live files."""
    keys = listed.select(["content", "partition_spec_id"]).group_by(
        ["content", "partition_spec_id"]
    )
    groups = []
    for key in keys.aggregate([]).to_pylist():
        content, spec_id = key["content"], key["partition_spec_id"]
        mask = pc.and_(
            pc.equal(listed["content"], content), pc.equal(listed["partition_spec_id"], spec_id)
        )
        rows = listed.filter(mask)
        group = None if reads_all else _counted(rows, content, spec_id, target, options)
        group = group or _read(table, rows, spec_id, target, options)
        if group is not None:
            groups.append(group)
    return groups


def _check(table: Table, options: ManifestOptions) -> None:
    specs = table.metadata.specs()
    if options.spec_id is not None and options.spec_id not in specs:
        raise NotFoundError(f"{table.identifier} has no partition spec {options.spec_id}")
    known = {field.name for spec in specs.values() for field in spec.fields}
    if unknown := [name for name in options.sort_by if name not in known]:
        raise InvalidRequestError(
            f"{Option.SORT_BY} {unknown[0]} is not a partition field of {table.identifier}",
            hint=f"its partition fields are {', '.join(sorted(known))}" if known else None,
        )


def _counted(
    rows: pa.Table, content: int, spec_id: int, target: int, options: ManifestOptions
) -> ManifestGroup | None:
    """Return a group that is rewritten whatever its entries are; None if its manifests have to be read to know."""
    if any(rows[name].null_count for name in _COUNTS):
        return None
    added, existing, deleted = (pc.sum(rows[name]).as_py() for name in _COUNTS)
    live = added + existing
    after = -(-live // entries_per_manifest(bytes_of(rows), live + deleted, target))
    if not live or not (options.rewrite_all or _are_too_many(rows.num_rows, after)):
        return None
    return ManifestGroup(
        spec_id=spec_id,
        content=content,
        paths=rows["manifest_path"].to_pylist(),
        size=bytes_of(rows),
        after=after,
        clustering=None,
    )


def _read(
    table: Table,
    rows: pa.Table,
    spec_id: int,
    target: int,
    options: ManifestOptions,
) -> ManifestGroup | None:
    """Return a group; None if its manifests have no live files and are left to other commits."""
    entries = read_manifests(
        table.storage, rows, table.metadata, columns=("status", "partition"), live_only=True
    )[spec_id]
    return group_of(entries, rows, target, options.sort_by)


def group_of(
    entries: pa.Table, rows: pa.Table, target: int, sort_by: Sequence[str] = ()
) -> ManifestGroup | None:
    """Return the group of manifests of one spec and one content; None if they have no live files.

    Args:
        entries: their live entries, with the columns ``partition`` and ``manifest_path``.
        rows: their rows in the manifest list.
        target: the size of new manifests.
        sort_by: the partition fields by which entries are sorted; empty for all.
    """
    if not entries.num_rows:
        return None
    counts = [pc.sum(pc.fill_null(rows[name], 0)).as_py() or 0 for name in _COUNTS]
    most = entries_per_manifest(bytes_of(rows), max(sum(counts), entries.num_rows), target)
    pieces = even_pieces(by_partition(entries, sort_by), most)
    return ManifestGroup(
        spec_id=rows["partition_spec_id"][0].as_py(),
        content=rows["content"][0].as_py(),
        paths=rows["manifest_path"].to_pylist(),
        size=bytes_of(rows),
        after=len(pieces),
        clustering=clustering_of(entries, pieces),
    )


def _are_too_many(manifests: int, after: int) -> bool:
    return manifests > _TOO_MANY * after


_COUNTS = ("added_files_count", "existing_files_count", "deleted_files_count")


def _rounded(number: float | None) -> float | None:
    return None if number is None else round(number, 2)
