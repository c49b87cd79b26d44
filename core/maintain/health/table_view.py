"""The view of one table: sizes of its files, its worst partitions, its deletes, its commits and its writers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.compute as pc

from lake.core.base.facts import Facts
from lake.core.base.outcome import Detail, report
from lake.core.base.units import format_size, iso_time, natural_number
from lake.core.maintain.health.costs import Costs
from lake.core.maintain.health.facts import (
    BucketFacts,
    DayFacts,
    DeleteKindFacts,
    LayoutFacts,
    OverlapFacts,
    PartitionHealthFacts,
    ViewFacts,
    WriterFacts,
)
from lake.core.maintain.health.overlap import overlap_of
from lake.core.maintain.health.survey import Survey
from lake.core.table.flink.commits import writer_of
from lake.core.table.manifests.data_files import EQUALITY_DELETES
from lake.core.table.metadata.summaries import some_properties_of
from lake.core.table.snapshots import ancestry
from lake.core.table.snapshots.partition_names import partition_names

if TYPE_CHECKING:
    from pyiceberg.table.snapshots import Snapshot

_MIB = 1024 * 1024
_EDGES = tuple(size * _MIB for size in (1, 8, 32, 128, 512, 1024))
_WORST, _DAYS, _WRITERS = 10, 10, 10
_DATE = len("2026-01-31")
_COUNTS = ("added-data-files", "deleted-data-files", "added-records", "added-files-size")
_NAMES = frozenset(_COUNTS)


def view_of(found: Survey, metadata_bytes: int | None, costs: Costs) -> ViewFacts:
    """Return the view of a table."""
    table = found.table
    head = table.metadata.current_snapshot_id
    history = list(ancestry.ancestors(table.metadata, head))
    return ViewFacts(
        file_sizes=_histogram(found),
        partitions=_worst(found),
        deletes=list(_deletes(found)),
        days=_days(history),
        writers=_writers(history),
        layout=_layout(found, metadata_bytes, costs),
        overlap=overlap_of(found, partial(_names, found)),
    )


def _histogram(found: Survey) -> list[BucketFacts]:
    places = np.searchsorted(_EDGES, found.sizes, side="right")
    counts = np.bincount(places, minlength=len(_EDGES) + 1)
    totals = np.zeros(len(_EDGES) + 1, np.int64)
    np.add.at(totals, places, found.sizes)
    return [
        BucketFacts(below_bytes=edge, files=int(count), bytes=int(total))
        for edge, count, total in zip((*_EDGES, None), counts, totals, strict=True)
    ]


def _worst(found: Survey) -> list[PartitionHealthFacts]:
    """Return the partitions with the most files above the fewest possible."""
    count = found.partition_count
    files, small = (np.zeros(count, np.int64) for _ in range(2))
    np.add.at(files, found.partitions, 1)
    np.add.at(small, found.partitions, found.small)
    totals, ideal = found.partition_bytes, found.ideal_files
    worst = np.argsort(ideal - files, kind="stable")[:_WORST]
    names = _names(found, {int(place) for place in worst})
    return [
        PartitionHealthFacts(
            partition=names[place],
            files=int(files[place]),
            ideal_files=int(ideal[place]),
            small_files=int(small[place]),
            bytes=int(totals[place]),
        )
        for place in worst.tolist()
    ]


def _names(found: Survey, wanted: set[int]) -> dict[int, str]:
    """Return the names of partitions, by their numbers."""
    names: dict[int, str] = {}
    base = 0
    for spec_id, entries in found.found.by_spec.items():
        own = found.partitions[base : base + entries.num_rows]
        base += entries.num_rows
        numbers, first = np.unique(own, return_index=True)
        chosen = np.isin(numbers, list(wanted))
        some = entries.take(first[chosen])
        named = partition_names(some, spec_id, found.table.metadata)
        texts = [named.names[code] for code in named.codes.tolist()]
        names |= dict(zip(numbers[chosen].tolist(), texts, strict=True))
    return names


def _deletes(found: Survey) -> Iterator[DeleteKindFacts]:
    if not found.found.delete_manifests.num_rows:
        return
    index = found.found.delete_index
    by_key = index.content == EQUALITY_DELETES
    kinds = {
        "position": ~by_key & ~index.is_vector,
        "vector": np.asarray(index.is_vector, np.bool_),
        "equality": by_key,
    }
    for kind, mask in kinds.items():
        if mask.any():
            rows = int(index.record_counts[mask].sum())
            yield DeleteKindFacts(kind=kind, files=int(mask.sum()), rows=rows)


def _days(history: list[Snapshot]) -> list[DayFacts]:
    """Return the commits of each of the last days with commits, the last day first."""
    days: dict[str, list[Snapshot]] = {}
    for snapshot in history:
        day = (iso_time(snapshot.timestamp_ms) or "")[:_DATE]
        if day not in days and len(days) == _DAYS:
            break
        days.setdefault(day, []).append(snapshot)
    return [
        DayFacts(
            day=day or None,
            commits=len(snapshots),
            added_files=sums[0],
            removed_files=sums[1],
            added_rows=sums[2],
            added_bytes=sums[3],
        )
        for day, snapshots in days.items()
        for sums in [_sums(snapshots)]
    ]


def _sums(snapshots: list[Snapshot]) -> list[int]:
    """Return the sums of the counts of a day, in the order of their names."""
    counts = [0] * len(_COUNTS)
    for snapshot in snapshots:
        summary = some_properties_of(snapshot, _NAMES)
        for place, name in enumerate(_COUNTS):
            counts[place] += natural_number(summary.get(name) or "") or 0
    return counts


def _writers(history: list[Snapshot]) -> list[WriterFacts]:
    """Return who committed the retained history, the most commits first."""
    commits: Counter[str] = Counter()
    last: dict[str, str | None] = {}
    for snapshot in history:
        writer = writer_of(snapshot)
        commits[writer] += 1
        last.setdefault(writer, iso_time(snapshot.timestamp_ms))
    return [
        WriterFacts(writer=writer, commits=count, last_commit=last[writer])
        for writer, count in commits.most_common(_WRITERS)
    ]


def _layout(found: Survey, metadata_bytes: int | None, costs: Costs) -> LayoutFacts:
    table, by_spec = found.table, found.found.by_spec
    order = table.metadata.default_sort_order_id
    old_specs = sum(x.num_rows for spec, x in by_spec.items() if spec != table.spec.spec_id)
    old_orders = 0
    if table.metadata.sort_order().fields:
        for entries in by_spec.values():
            same = pc.fill_null(pc.equal(entries["sort_order_id"], order), fill_value=False)
            old_orders += entries.num_rows - int(pc.sum(same).as_py() or 0)
    size = found.manifest_bytes
    seconds = costs.planning_seconds(metadata_bytes or 0, found.live_manifests, size)
    spreads = [group.clustering.before for group in found.groups if group.clustering]
    known = [spread for spread in spreads if spread is not None]
    return LayoutFacts(
        old_spec_files=old_specs,
        old_order_files=old_orders,
        manifest_bytes=size,
        manifests_per_partition=round(max(known), 2) if known else None,
        planning_seconds=round(seconds, 4),
        storage=costs.storage,
    )


def view_details(view: ViewFacts) -> list[Detail]:
    """Return the tables that people see of a view; those without rows are not shown."""
    layout = view.layout
    named: list[list[Any]] = [
        ["planning", f"{layout.planning_seconds:.2f} s ({layout.storage})"],
        ["manifests", format_size(layout.manifest_bytes)],
    ]
    if layout.manifests_per_partition is not None:
        named.append(["manifests per partition", f"{layout.manifests_per_partition:,}"])
    if layout.old_spec_files:
        named.append(["files of older partition specs", f"{layout.old_spec_files:,}"])
    if layout.old_order_files:
        named.append(["files without the table's sort order", f"{layout.old_order_files:,}"])
    overlap = view.overlap
    if overlap is not None and overlap.files:
        named.append(["overlap of files in the sort order", overlap_text(overlap)])
    sizes = [item for item in view.file_sizes if item.files]
    buckets: dict[str, list[Any]] = {
        "size": [bucket_name(item) for item in sizes],
        "files": [item.files for item in sizes],
        "bytes": [item.bytes for item in sizes],
    }
    partitions = view.partitions if any(item.partition for item in view.partitions) else ()
    found = [
        report("sizes of files", buckets),
        _report("worst partitions", partitions),
        _report("overlap in the sort order", overlap.partitions if overlap else ()),
        _report("deletes", view.deletes),
        _report("commits", view.days),
        _report("writers", view.writers),
    ]
    return [*found, Detail("layout", ["name", "value"], named)] if sizes else found


def overlap_text(overlap: OverlapFacts) -> str:
    """Return how deep files overlap, as people see it."""
    text = f"{overlap.average_depth:g} files on average, {overlap.worst_depth:,} at most"
    return text + f" ({overlap.unknown_files:,} without bounds)" * bool(overlap.unknown_files)


def _report(title: str, found: Sequence[Facts]) -> Detail:
    """Return a table of facts."""
    documents = [item.document() for item in found]
    if not documents:
        return Detail(title, [], [])
    return report(title, {name: [row[name] for row in documents] for name in documents[0]})


def bucket_name(item: BucketFacts) -> str:
    """Return a range of sizes, as people see it."""
    if item.below_bytes is None:
        return f"from {format_size(_EDGES[-1])}"
    return f"below {format_size(item.below_bytes)}"
