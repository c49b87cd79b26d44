"""The thresholds of other tools beside the measures of a table. None of them decides a grade.

Sources: iceops (scan), Floe (health), AWS Glue (compaction), Zamboni (health), Cloudera (table maintenance).
"""

from __future__ import annotations

from collections.abc import Iterator

from lake.core.maintain.health.facts import CostFacts, HealthFacts


def explained(row: HealthFacts) -> Iterator[list[str | None]]:
    """Yield the name of a measure, its value, and what other tools compare it with."""
    reading, scan, part = row.reading, row.scan, row.partition_scan
    if scan is not None:
        yield ["scan", _seconds(scan.seconds, scan.ideal_seconds), None]
    if part is not None:
        yield ["scan of a partition", _seconds(part.seconds, part.ideal_seconds), None]
    if row.costs is not None:
        yield ["costs", _costs(row.costs), None]
    for item in row.forecasts:
        text = f"{item.before:,} → {item.after:,}, saves {item.seconds:.2f} s a scan"
        if item.work_seconds is not None:
            text += f", takes {item.work_seconds:.2g} s ({_source(item.work_runs)})"
        yield [item.command, text if item.pays else f"{text}: not worth it", None]
    if reading.files and reading.small_files is not None:
        share = f"{reading.small_files / reading.files:.2f}"
        yield [
            "share of small files",
            share,
            "iceops 0.3 and 0.6, Floe 0.2 and 0.5, Glue 100 files",
        ]
    if reading.delete_files and reading.files:
        share = f"{reading.delete_files / reading.files:.2f}"
        yield ["delete files per file", share, "Floe 0.1 and 0.25, iceops 0.1 and 0.3, Zamboni 0.1"]
    yield ["snapshots", _number(row.snapshots), "iceops 50 and 500, Floe 100 and 500"]
    yield [
        "manifests",
        _number(reading.manifests),
        "iceops 32 and 200, Floe 100 and 500, Cloudera 100",
    ]


def _costs(costs: CostFacts) -> str:
    file, manifest = 1000 * costs.file_seconds, 1000 * costs.manifest_seconds
    rate = f"{costs.bytes_per_second / 1e6:.0f} MB/s"
    kinds = f"{file:.3g} ms a file, {manifest:.3g} ms a manifest, {rate}"
    return f"{_source(costs.runs)}: {costs.storage}, {kinds}"


def _source(runs: int) -> str:
    return f"from {runs:,} {'run' if runs == 1 else 'runs'}" if runs else "defaults"


def _seconds(now: float, ideal: float) -> str:
    return f"{now:.2f} s, ideally {ideal:.2f} s"


def _number(value: int | None) -> str | None:
    return None if value is None else f"{value:,}"
