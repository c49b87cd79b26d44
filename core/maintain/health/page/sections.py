"""The part of the page about one table: its scans, its forecasts, and its pictures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from typing import NamedTuple

from lake.core.base.units import counted, format_size
from lake.core.maintain.health.facts import (
    DayFacts,
    ForecastFacts,
    HealthFacts,
    ScanFacts,
    ViewFacts,
)
from lake.core.maintain.health.report import age, delete_files, deleted, share, shown_name
from lake.core.maintain.health.table_view import bucket_name, overlap_text

# The least number of days that a timeline shows, and the least width of a day in percent: days may be years apart.
_LEAST_DAYS, _LEAST_WIDTH = 14, 0.8


# What the commands of forecasts count.
_COUNTED = {
    "compact": "file",
    "deletes": "delete file",
    "expire": "snapshot",
    "manifests": "manifest",
}
# Fewer seconds are not shown.
_SHOWN = 0.005


class Bars(NamedTuple):
    """A row of a chart: its name, its values, and in percent how long the bars of the first values are."""

    name: str
    values: Sequence[str]
    lengths: Sequence[float]


class Chart(NamedTuple):
    """A table of which each row has bars; the first of the columns are drawn."""

    title: str
    first: str
    columns: Sequence[str]
    drawn: int
    rows: Sequence[Bars]


class Day(NamedTuple):
    """The commits of a day, in percent of the timeline's sides."""

    left: float
    width: float
    height: float
    text: str


class Timeline(NamedTuple):
    """The commits of the last days with commits: its first and its last day, and the most commits of a day."""

    title: str
    first: str
    last: str
    most: int
    days: Sequence[Day]


class Section(NamedTuple):
    """What is shown of a table."""

    name: str
    grade: str
    scans: Sequence[str]
    forecasts: Sequence[Sequence[str]]
    timeline: Timeline | None
    charts: Sequence[Chart]
    facts: Mapping[str, str]


def section_of(row: HealthFacts, view: ViewFacts, now_ms: int) -> Section:
    """Return the section of a table."""
    return Section(
        name=shown_name(row),
        grade=str(row.grade),
        scans=list(_scans(row)),
        forecasts=[_forecast(item) for item in row.forecasts],
        timeline=_timeline([day for day in view.days if day.day]),
        charts=[chart for chart in _charts(row, view) if chart.rows],
        facts={name: text for name, text in _facts(row, view, now_ms) if text},
    )


def _scans(row: HealthFacts) -> Iterator[str]:
    for name, scan in (("full scan", row.scan), ("scan of one partition", row.partition_scan)):
        if scan is not None:
            yield f"A {name} takes {_scan(scan)}."


def _scan(scan: ScanFacts) -> str:
    now = f"{_seconds(scan.seconds)} and {counted(scan.requests, 'request')}"
    ideal = f"{_seconds(scan.ideal_seconds)} and {counted(scan.ideal_requests, 'request')}"
    return now if now == ideal else f"{now}; in the ideal layout, {ideal}"


def _seconds(value: float) -> str:
    return f"{value:,.2f} s" if value >= _SHOWN else "less than 0.01 s"


def _forecast(item: ForecastFacts) -> list[str]:
    return [
        item.command,
        "pays" if item.pays else "not worth it",
        f"{counted(item.before, _COUNTED[item.command])} → {item.after:,}",
        format_size(item.bytes),
        _saved(item.seconds),
        _saved(item.partition_seconds),
    ]


def _saved(seconds: float | None) -> str:
    return _seconds(seconds) if seconds and seconds >= _SHOWN else ""


def _timeline(days: Sequence[DayFacts]) -> Timeline | None:
    if not days:
        return None
    numbers = [date.fromisoformat(str(day.day)).toordinal() for day in days]
    last = max(numbers)
    first = max(min(*numbers, last - _LEAST_DAYS + 1), 1)
    most = max(day.commits for day in days)
    each = 100 / (last - first + 1)
    width = max(each, _LEAST_WIDTH)
    return Timeline(
        f"Commits of the last {counted(len(days), 'day')} with commits",
        str(date.fromordinal(first)),
        str(date.fromordinal(last)),
        most,
        [
            Day(
                min((number - first) * each, 100 - width),
                width,
                100 * day.commits / most,
                _day(day),
            )
            for number, day in zip(numbers, days, strict=True)
        ],
    )


def _day(day: DayFacts) -> str:
    parts = {
        "commits": _number(day.commits),
        "files added": _number(day.added_files),
        "files removed": _number(day.removed_files),
        "rows added": _number(day.added_rows),
        "added": _size(day.added_bytes),
    }
    return f"{day.day}: {', '.join(f'{text} {name}' for name, text in parts.items() if text)}"


def _charts(row: HealthFacts, view: ViewFacts) -> Iterator[Chart]:
    places = [place for place, item in enumerate(view.file_sizes) if item.files]
    sizes = view.file_sizes[places[0] : places[-1] + 1] if places else ()
    buckets = [(bucket_name(item), [item.files, item.bytes]) for item in sizes]
    yield _chart("Sizes of files", ("size", "files", "bytes"), buckets, 2)
    named = [item for item in view.partitions if item.partition]
    parts = [(item.partition, [item.files, item.ideal_files, item.bytes]) for item in named]
    title = f"Worst {len(parts):,} of {counted(row.reading.partitions or 0, 'partition')}"
    yield _chart(title, ("partition", "files", "fewest", "bytes"), parts, 2, same=True)
    overlaps = [
        (item.partition or "the table", [item.worst_depth, item.files])
        for item in (view.overlap.partitions if view.overlap else ())
    ]
    columns = ("partition", "files at one place", "files")
    yield _chart("Overlap in the sort order", columns, overlaps, 2, same=True)
    kinds = [(item.kind, [item.files, item.rows]) for item in view.deletes]
    yield _chart("Deletes", ("kind", "files", "rows"), kinds, 2)
    writers = [(item.writer, [item.commits]) for item in view.writers]
    yield _chart("Writers", ("writer", "commits"), writers, 1)


def _chart(
    title: str,
    columns: Sequence[str],
    rows: Sequence[tuple[str, Sequence[int]]],
    drawn: int,
    *,
    same: bool = False,
) -> Chart:
    """Return a chart whose first values are drawn, with the same scale or with one for each column."""
    scales = [max((values[place] for _, values in rows), default=0) for place in range(drawn)]
    if same:
        scales = [max(scales)] * drawn
    show = [_size if name == "bytes" else _number for name in columns[1:]]
    return Chart(
        title,
        columns[0],
        columns[1:],
        drawn,
        [
            Bars(
                name,
                [text(value) or "" for text, value in zip(show, values, strict=True)],
                [
                    100 * value / (scale or 1)
                    for value, scale in zip(values[:drawn], scales, strict=True)
                ],
            )
            for name, values in rows
        ],
    )


def _facts(row: HealthFacts, view: ViewFacts, now_ms: int) -> Iterator[tuple[str, str | None]]:
    reading, layout, hidden = row.reading, view.layout, deleted(row)
    yield "rows", _number(reading.rows)
    yield "bytes", _size(reading.bytes)
    yield "growth in a day", _size(row.growth_bytes)
    yield "files", _number(reading.files)
    yield "small files", share(reading.small_files, reading.files)
    yield "partitions", _number(reading.partitions)
    yield "deleted rows", f"{hidden:,}" if isinstance(hidden, int) else hidden
    yield "delete files", delete_files(row)
    yield "snapshots", _number(row.snapshots)
    yield "oldest snapshot", age(row.oldest_snapshot, now_ms)
    yield "last commit", age(row.last_commit, now_ms)
    yield "last rewrite", age(row.last_rewrite, now_ms)
    yield "manifests", _number(reading.manifests)
    yield "bytes of manifests", _size(layout.manifest_bytes)
    if layout.manifests_per_partition is not None:
        yield "manifests per partition", f"{layout.manifests_per_partition:,}"
    yield "metadata file", _size(row.metadata_bytes)
    yield "planning", f"{_seconds(layout.planning_seconds)} ({layout.storage})"
    yield "files of older partition specs", _number(layout.old_spec_files)
    yield "files without the table's sort order", _number(layout.old_order_files)
    if view.overlap is not None and view.overlap.files:
        yield "overlap in the sort order", overlap_text(view.overlap)
    yield "not known", ", ".join(row.unknown)


def _number(value: int | None) -> str | None:
    return f"{value:,}" if value else None


def _size(value: int | None) -> str | None:
    return format_size(value) if value else None
