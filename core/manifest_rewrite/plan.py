"""Choose the manifests that are worth rewriting: too many of them, or spread over all partitions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lake.core.catalogs.catalog import Table
from lake.core.commit.operations import RewriteManifests
from lake.core.errors import InvalidRequestError, NotFoundError
from lake.core.expressions.conditions import Condition, Evaluation, evaluate
from lake.core.manifest_rewrite.conditions import MANIFESTS, OVERLAP
from lake.core.manifests.api import read_manifests
from lake.core.manifests.clusters import by_partition, even_pieces, manifests_per_partition
from lake.core.manifests.data_files import DATA
from lake.core.options import Option
from lake.core.properties.table_properties import MANIFEST_BYTES
from lake.core.snapshots import ancestry
from lake.core.snapshots.completeness import read_list, verify_manifest_list

# A group is rewritten if its manifests are more than this many times the fewest possible.
_TOO_MANY = 1.25
# Or if a scan of one partition reads more than this many times the manifests that it would read afterwards.
_TOO_SPREAD = 1.5


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestOptions:
    """Which manifests are rewritten, and how.

    Args:
        branch: the branch.
        target_bytes: the size of new manifests; None for the table's property.
        spec_id: only manifests of this partition spec; None for all.
        sort_by: the partition fields by which entries are sorted; empty for all fields of each spec.
        rewrite_all: also rewrite manifests that need it not.
        condition: rewrite only if it is true; None for always.
    """

    branch: str = ancestry.MAIN
    target_bytes: int | None = None
    spec_id: int | None = None
    sort_by: Sequence[str] = ()
    rewrite_all: bool = False
    condition: Condition | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestGroup:
    """The manifests of one partition spec and one content.

    Args:
        spec_id: the partition spec.
        content: ``data`` or ``deletes``.
        paths: the locations of the manifests.
        size: their bytes.
        after: the number of manifests that replace them.
        spread: how many of them a scan of one partition reads, on average; None if the spec has no fields.
        spread_after: the same afterwards.
    """

    spec_id: int
    content: str
    paths: Sequence[str]
    size: int
    after: int
    spread: float | None
    spread_after: float | None

    @property
    def is_worth_it(self) -> bool:
        """Whether fewer or better clustered manifests make scans faster."""
        if len(self.paths) > _TOO_MANY * self.after:
            return True
        if self.spread is None or self.spread_after is None:
            return False
        return self.spread > _TOO_SPREAD * self.spread_after

    def facts(self) -> dict[str, Any]:
        """Return the group by its names in the output."""
        return {
            "spec_id": self.spec_id,
            "content": self.content,
            "manifests": len(self.paths),
            "manifests_after": self.after,
            "bytes": self.size,
            "per_partition": _rounded(self.spread),
            "per_partition_after": _rounded(self.spread_after),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestPlan:
    """The groups of manifests that are rewritten.

    Args:
        table: the table that the plan was made for.
        options: the options.
        target_bytes: the size of new manifests.
        manifests: the number of manifests of the branch.
        groups: what is rewritten.
        evaluation: the condition and its measured values; None if the options do not contain a condition.
    """

    table: Table
    options: ManifestOptions
    target_bytes: int
    manifests: int
    groups: Sequence[ManifestGroup]
    evaluation: Evaluation | None = None

    @property
    def is_empty(self) -> bool:
        """Whether nothing is worth rewriting."""
        return not self.groups

    @property
    def operation(self) -> RewriteManifests:
        """The change of the table."""
        return RewriteManifests(
            manifests=frozenset(path for group in self.groups for path in group.paths),
            target_bytes=self.target_bytes,
            sort_by=tuple(self.options.sort_by),
        )

    def facts(self) -> dict[str, Any]:
        """Return the plan by its names in the output."""
        return {
            **(self.evaluation.facts() if self.evaluation else {}),
            "manifests": self.manifests,
            "rewritten": sum(len(group.paths) for group in self.groups),
            "rewritten_as": sum(group.after for group in self.groups),
            "target_bytes": self.target_bytes,
            "groups": [group.facts() for group in self.groups],
        }


def plan_manifests(table: Table, options: ManifestOptions) -> ManifestPlan:
    """Read the manifests of a branch and choose those to rewrite.

    Raises:
        InvalidRequestError: a field is not a partition field, or the size is too small.
        NotFoundError: there is no such partition spec.
        CorruptFileError: the manifest list is incomplete, or a manifest cannot be read.
    """
    metadata = table.metadata
    target = options.target_bytes or MANIFEST_BYTES.of(metadata.properties)
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
    def groups() -> Sequence[ManifestGroup]:
        return _groups(table, counted, target, options)

    evaluation = _evaluated(options, counted.num_rows, groups)
    is_due = evaluation is None or evaluation.is_due
    return ManifestPlan(
        table=table,
        options=options,
        target_bytes=target,
        manifests=listed.num_rows,
        groups=[x for x in groups() if x.is_worth_it or options.rewrite_all] if is_due else (),
        evaluation=evaluation,
    )


def _evaluated(
    options: ManifestOptions, manifests: int, groups: Callable[[], Sequence[ManifestGroup]]
) -> Evaluation | None:
    """Return the evaluated condition; the manifests themselves are read only if the overlap decides."""
    if options.condition is None:
        return None

    def overlap() -> float | None:
        spreads = [group.spread for group in groups() if group.spread is not None]
        return _rounded(max(spreads, default=None))

    return evaluate(options.condition, {MANIFESTS: lambda: manifests, OVERLAP: overlap})


def _groups(
    table: Table, listed: pa.Table, target: int, options: ManifestOptions
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
        group = _group(table, listed.filter(mask), content, spec_id, target, options)
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


def _group(
    table: Table,
    rows: pa.Table,
    content: int,
    spec_id: int,
    target: int,
    options: ManifestOptions,
) -> ManifestGroup | None:
    """Return a group; None if its manifests have no live files and are left to other commits."""
    entries = read_manifests(
        table.storage, rows, table.metadata, columns=("status", "partition"), live_only=True
    )[spec_id]
    counts = [pc.sum(pc.fill_null(rows[name], 0)).as_py() or 0 for name in _COUNTS]
    size = int(pc.sum(rows["manifest_length"]).as_py() or 0)
    if not entries.num_rows:
        return None
    each = max(1, size // max(sum(counts), entries.num_rows))
    pieces = even_pieces(by_partition(entries, options.sort_by), max(1, target // each))
    numbers = pa.chunked_array(
        [pa.repeat(number, piece.num_rows) for number, piece in enumerate(pieces)]
    )
    fields = bool(table.metadata.specs()[spec_id].fields)
    after = pa.concat_tables(pieces)
    return ManifestGroup(
        spec_id=spec_id,
        content="data" if content == DATA else "deletes",
        paths=rows["manifest_path"].to_pylist(),
        size=size,
        after=len(pieces),
        spread=manifests_per_partition(entries, entries["manifest_path"]) if fields else None,
        spread_after=manifests_per_partition(after, numbers) if fields else None,
    )


_COUNTS = ("added_files_count", "existing_files_count", "deleted_files_count")


def _rounded(number: float | None) -> float | None:
    return None if number is None else round(number, 2)
