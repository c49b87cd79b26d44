"""Compare what scans cost with what they would cost in the ideal layout, and forecast what each command would save.

The ideal layout has the same bytes in files of the target size, no delete files, manifests of their target size that
are clustered by partition, and no snapshot that the table's retention expires. A command *pays* if it saves at least
`Costs.noticed` and a tenth of a scan, of the whole table or of one partition. `expire` also pays if `OLD_SNAPSHOTS`
snapshots or more are older than the table's retention: it frees storage, which no scan shows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from lake.core.maintain.health.costs import REQUESTS_PER_FILE, Costs
from lake.core.maintain.health.facts import ForecastFacts, HealthFacts, ScanFacts
from lake.core.maintain.health.history import History
from lake.core.maintain.health.past import NOTHING, Past
from lake.core.maintain.health.survey import Survey
from lake.core.maintain.manifest_rewrite.plan import ManifestGroup
from lake.core.table.manifests.data_files import DATA

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

GOOD, DUE, BAD = "good", "due", "bad"
# The least part of a scan that a command must save, and the number of expired snapshots that is worth a run.
LEAST_SHARE, OLD_SNAPSHOTS = 0.1, 10
# A table is bad if a scan takes this many times the ideal, and this many times what is noticed is wasted.
BAD_RATIO, BAD_TIMES = 3.0, 10
_COMPACT, _DELETES, _EXPIRE, _MANIFESTS = "compact", "deletes", "expire", "manifests"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parts:
    """What a scan reads: numbers and bytes."""

    metadata_bytes: float
    manifests: float
    manifest_bytes: float
    files: float
    bytes: float
    delete_files: float = 0
    delete_bytes: float = 0
    position_rows: float = 0
    equality_rows: float = 0

    def seconds(self, costs: Costs) -> float:
        deletes = costs.delete_seconds(
            self.delete_files, self.delete_bytes, self.position_rows, self.equality_rows
        )
        return (
            costs.planning_seconds(self.metadata_bytes, self.manifests, self.manifest_bytes)
            + self.files * costs.file
            + self.bytes * costs.data_byte
            + deletes
        )

    @property
    def requests(self) -> int:
        # The metadata file and the manifest list are two.
        files = REQUESTS_PER_FILE * (self.files + self.delete_files)
        return round(2 + self.manifests + files)


@dataclass(frozen=True, slots=True, kw_only=True)
class Grade:
    """The grade of a table and where it comes from; the scan of a partition is None without partitions."""

    grade: str
    scan: ScanFacts
    partition_scan: ScanFacts | None
    forecasts: Sequence[ForecastFacts]

    @property
    def needs(self) -> list[str]:
        """The commands that pay, the one that saves most first."""
        return [item.command for item in self.forecasts if item.pays]


def grade_of(found: Survey, history: History, costs: Costs, past: Past = NOTHING) -> Grade:
    """Return the grade of a table by the costs of its store; past runs show how long commands take."""
    whole = _compared(*_whole(found, history), costs)
    part = None
    if found.partition_count > 1:
        part = _compared(*_mean_partition(found, history), costs)
    forecasts = [
        item
        for item in (
            _compaction(found, costs, whole, part),
            _delete_files(found, costs, whole, part),
            _manifests(found, costs, whole, part),
            _expiry(history, costs, whole, part),
        )
        if item is not None
    ]
    forecasts = [_with_work(item, found.table.metadata, past) for item in forecasts]
    forecasts.sort(key=lambda item: (not item.pays, -item.seconds))
    return Grade(
        grade=_grade(forecasts, [item for item in (whole, part) if item], costs),
        scan=whole,
        partition_scan=part,
        forecasts=forecasts,
    )


def _with_work(item: ForecastFacts, metadata: TableMetadata, past: Past) -> ForecastFacts:
    work = past.work(str(metadata.table_uuid), metadata.location, item.command, item.bytes)
    return replace(item, work_seconds=work.seconds, work_runs=work.runs)


def _grade(forecasts: Sequence[ForecastFacts], scans: Sequence[ScanFacts], costs: Costs) -> str:
    if not any(item.pays for item in forecasts):
        return GOOD
    is_bad = any(
        scan.seconds >= BAD_RATIO * scan.ideal_seconds
        and scan.seconds - scan.ideal_seconds >= BAD_TIMES * costs.noticed
        for scan in scans
    )
    return BAD if is_bad else DUE


def _compared(now: _Parts, ideal: _Parts, costs: Costs) -> ScanFacts:
    seconds, least = now.seconds(costs), ideal.seconds(costs)
    return ScanFacts(
        seconds=round(seconds, 4),
        ideal_seconds=round(min(least, seconds), 4),
        requests=now.requests,
        ideal_requests=min(ideal.requests, now.requests),
    )


def _whole(found: Survey, history: History) -> tuple[_Parts, _Parts]:
    sizes, deletes = found.sizes, found.deletes
    metadata = history.metadata_bytes or 0
    now = _Parts(
        metadata_bytes=metadata,
        manifests=found.live_manifests,
        manifest_bytes=found.manifest_bytes,
        files=len(sizes),
        bytes=int(sizes.sum()),
        delete_files=deletes.files,
        delete_bytes=deletes.bytes,
        position_rows=deletes.position_rows,
        equality_rows=deletes.equality_rows,
    )
    files = int(found.ideal_files.sum())
    # Entries of fewer files take fewer bytes; manifests of deletes are not needed.
    share = files / max(len(sizes) + deletes.files, 1)
    data = [group for group in found.groups if group.content == DATA]
    ideal = _Parts(
        metadata_bytes=metadata - history.removed_bytes,
        manifests=sum(max(group.after * share, 1) for group in data),
        manifest_bytes=found.manifest_bytes * share,
        files=files,
        bytes=int(sizes.sum()),
    )
    return now, ideal


def _mean_partition(found: Survey, history: History) -> tuple[_Parts, _Parts]:
    """Return what a scan of one partition reads, on average over the partitions."""
    now, ideal = _whole(found, history)
    count = found.partition_count
    read = sum(_per_partition(group)[0] for group in found.groups)
    least = sum(_per_partition(group)[1] for group in found.groups if group.content == DATA)

    def mean(of: _Parts, manifests: float) -> _Parts:
        each = of.manifest_bytes / max(of.manifests, 1)
        return _Parts(
            metadata_bytes=of.metadata_bytes,
            manifests=manifests,
            manifest_bytes=each * manifests,
            files=of.files / count,
            bytes=of.bytes / count,
            delete_files=of.delete_files / count,
            delete_bytes=of.delete_bytes / count,
            position_rows=of.position_rows / count,
            equality_rows=of.equality_rows / count,
        )

    return mean(now, read), mean(ideal, min(least, ideal.manifests))


def _per_partition(group: ManifestGroup) -> tuple[float, float]:
    """Return how many manifests of a group a scan of one partition reads now, and when they are rewritten."""
    known = group.clustering
    if known is None or known.before is None or known.after is None:
        return len(group.paths), group.after
    return known.before, known.after


def _forecast(
    command: str,
    counts: tuple[int, int, int],
    seconds: float,
    partition_seconds: float,
    scans: tuple[ScanFacts, ScanFacts | None],
    costs: Costs,
    *,
    always: bool = False,
) -> ForecastFacts:
    before, after, size = counts
    whole, part = scans
    saved = [(seconds, whole.seconds)] + ([(partition_seconds, part.seconds)] if part else [])
    pays = always or any(
        each >= costs.noticed and each >= LEAST_SHARE * total for each, total in saved
    )
    return ForecastFacts(
        command=command,
        pays=pays,
        before=before,
        after=after,
        bytes=size,
        seconds=round(seconds, 4),
        partition_seconds=None if part is None else round(partition_seconds, 4),
    )


def _compaction(
    found: Survey, costs: Costs, whole: ScanFacts, part: ScanFacts | None
) -> ForecastFacts | None:
    groups = found.grouping.groups
    if not groups:
        return None
    before = sum(group.files.num_rows for group in groups)
    after = sum(group.expected_files for group in groups)
    # Deletes that apply to files that are rewritten are not read any more: by their share, as an estimate.
    chosen = sum(int(np.sum(group.files["delete_files"].to_numpy())) for group in groups)
    share = chosen / found.deletes.pairs if found.deletes.pairs else 0.0
    seconds = (before - after) * costs.file + share * _delete_seconds(found, costs)
    counts = before, after, sum(group.bytes for group in groups)
    each = seconds / max(found.partition_count, 1)
    return _forecast(_COMPACT, counts, seconds, each, (whole, part), costs)


def _delete_seconds(found: Survey, costs: Costs) -> float:
    deletes = found.deletes
    return costs.delete_seconds(
        deletes.files, deletes.bytes, deletes.position_rows, deletes.equality_rows
    )


def _delete_files(
    found: Survey, costs: Costs, whole: ScanFacts, part: ScanFacts | None
) -> ForecastFacts | None:
    """Forecast a conversion and a merge of delete files, estimated as one file of positions in each partition."""
    deletes = found.deletes
    before = deletes.position + deletes.equality
    after = min(before, deletes.partitions)
    if before == after and not deletes.equality:
        return None
    by_row = costs.equality_row - costs.position_row
    seconds = (before - after) * costs.file + deletes.equality_rows * by_row
    each = seconds / max(found.partition_count, 1)
    counts = before, after, deletes.bytes
    return _forecast(_DELETES, counts, seconds, each, (whole, part), costs)


def _manifests(
    found: Survey, costs: Costs, whole: ScanFacts, part: ScanFacts | None
) -> ForecastFacts | None:
    groups = [group for group in found.groups if group.is_worth_it]
    if not groups:
        return None
    before, after = sum(len(x.paths) for x in groups), sum(x.after for x in groups)
    each = 0.0
    for group in groups:
        now, then = _per_partition(group)
        size = group.size * (now / len(group.paths) - then / max(group.after, 1))
        each += (now - then) * costs.manifest + size * costs.manifest_byte
    counts = before, after, sum(group.size for group in groups)
    seconds = (before - after) * costs.manifest
    return _forecast(_MANIFESTS, counts, seconds, each, (whole, part), costs)


def _expiry(
    history: History, costs: Costs, whole: ScanFacts, part: ScanFacts | None
) -> ForecastFacts | None:
    if not history.expired:
        return None
    seconds = history.removed_bytes * costs.metadata_byte
    counts = history.snapshots, history.snapshots - history.expired, history.removed_bytes
    always = history.expired >= OLD_SNAPSHOTS
    return _forecast(_EXPIRE, counts, seconds, seconds, (whole, part), costs, always=always)


def wasted(row: HealthFacts) -> float:
    """Return the seconds that a scan of a table takes above those of the ideal layout, the worst of both scans."""
    scans = [scan for scan in (row.scan, row.partition_scan) if scan]
    return max((scan.seconds - scan.ideal_seconds for scan in scans), default=0.0)
