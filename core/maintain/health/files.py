"""Write the rows of `lake health` to a file of rows, or to a file that Prometheus' node_exporter reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import DoubleType, LongType, NestedField, StringType, TimestamptzType

from lake.core.base.errors import InvalidRequestError
from lake.core.base.options import Option
from lake.core.base.units import parse_time_ms
from lake.core.maintain.health.facts import HealthFacts
from lake.core.maintain.health.grade import BAD, DUE, GOOD
from lake.core.read.continuous.metrics import replace_metrics, require_metrics, series_text
from lake.core.read.exports.destinations import Output, opened
from lake.core.read.exports.formats import writing
from lake.core.spec.types.arrow_schema import arrow_schema

if TYPE_CHECKING:
    from lake.core.base.clock import Ids

_PREFIX = "lake_health_"
_GRADES = {GOOD: 0, DUE: 1, BAD: 2}
# The counts of a row that are columns of a file and metrics.
_COUNTS: Mapping[str, str] = {
    "files": "Live data files.",
    "small_files": "Data files that a compaction would rewrite because of their size.",
    "bytes": "Bytes of the live data files.",
    "rows": "Rows of the live data files, deleted or not.",
    "partitions": "Partitions with data files.",
    "deleted_rows_at_most": "Rows that delete files hide at most.",
    "delete_files": "Live delete files.",
    "position_delete_files": "Live position delete files.",
    "equality_delete_files": "Live equality delete files.",
    "deletion_vectors": "Live deletion vectors.",
    "manifests": "Manifests of the current snapshot.",
    "snapshots": "Snapshots in the metadata file.",
    "metadata_bytes": "Bytes of the current metadata file.",
    "growth_bytes": "Bytes that the last day added.",
}
_SECONDS: Mapping[str, str] = {
    "scan_seconds": "Seconds of a full scan by the assumed costs.",
    "ideal_scan_seconds": "Seconds of a full scan in the ideal layout.",
    "partition_scan_seconds": "Seconds of a scan of one partition.",
    "ideal_partition_scan_seconds": "Seconds of a scan of one partition in the ideal layout.",
}
_TIMES: Mapping[str, str] = {
    "oldest_snapshot": "Time of the oldest snapshot, in seconds since 1970.",
    "last_commit": "Time of the current snapshot, in seconds since 1970.",
    "last_rewrite": "Time of the newest snapshot that only rewrites files, in seconds since 1970.",
}
_HELP: Mapping[str, str] = {
    "readable": "1 if the table could be read, else 0.",
    "grade": "The grade: good is 0, due is 1, bad is 2.",
    "need": "1 for each command that the table needs.",
    **_COUNTS,
    **_SECONDS,
    **{f"{name}_timestamp_seconds": text for name, text in _TIMES.items()},
}
_TEXTS = ("namespace", "table", "grade", "needs", "error")
_SCHEMA = Schema(
    *(
        NestedField(number, name, kind, required=False)
        for number, (name, kind) in enumerate(
            [
                *((name, StringType()) for name in _TEXTS),
                *((name, LongType()) for name in _COUNTS),
                *((name, DoubleType()) for name in _SECONDS),
                *((name, TimestamptzType()) for name in _TIMES),
            ],
            start=1,
        )
    )
)


def write_rows(rows: Sequence[HealthFacts], output: Output) -> None:
    """Write one row for each table.

    Raises:
        InvalidRequestError: the output is a folder.
        BadInputError: it cannot be written.
    """
    if not output.single:
        raise InvalidRequestError(
            f"{Option.OUTPUT} must be one file, not the folder {output.path}",
            hint="give it a name such as health.parquet, health.csv or health.json",
        )
    batch = pa.RecordBatch.from_pylist([_row(row) for row in rows], schema=arrow_schema(_SCHEMA))
    with opened(output) as sink, writing(output.format, sink, _SCHEMA) as writer:
        writer.write(batch)


def require_prometheus(path: str) -> None:
    """Refuse to replace another file than such metrics; see `require_metrics`."""
    require_metrics(path, _PREFIX)


def write_prometheus(rows: Sequence[HealthFacts], path: str, catalog: str, *, ids: Ids) -> None:
    """Replace a metrics file.

    Raises:
        LakeError: it is another file, or cannot be written.
    """
    series: list[tuple[Mapping[str, str], Mapping[str, float | None]]] = []
    for row in rows:
        labels = {"catalog": catalog, "namespace": row.namespace, "table": row.table or ""}
        values = _measures(row)
        times = {
            f"{name}_timestamp_seconds": None if time is None else time / 1000
            for name, time in _times(row).items()
        }
        grade = None if row.grade is None else _GRADES[row.grade]
        readable = int(row.error is None)
        series.append((labels, {"readable": readable, "grade": grade, **values, **times}))
        series += [({**labels, "command": need}, {"need": 1}) for need in row.needs]
    text = series_text(series, prefix=_PREFIX, helps=_HELP)
    replace_metrics(path, text, prefix=_PREFIX, ids=ids)


def _row(row: HealthFacts) -> dict[str, Any]:
    return {
        "namespace": row.namespace,
        "table": row.table,
        "grade": row.grade,
        "needs": ", ".join(row.needs),
        "error": None if row.error is None else row.error.kind,
        **_measures(row),
        **{name: None if time is None else time * 1000 for name, time in _times(row).items()},
    }


def _measures(row: HealthFacts) -> dict[str, float | None]:
    values = row.values()
    scan, part = row.scan, row.partition_scan
    return {
        **{name: values[name] for name in _COUNTS},
        "scan_seconds": scan and scan.seconds,
        "ideal_scan_seconds": scan and scan.ideal_seconds,
        "partition_scan_seconds": part and part.seconds,
        "ideal_partition_scan_seconds": part and part.ideal_seconds,
    }


def _times(row: HealthFacts) -> dict[str, int | None]:
    """Return times in milliseconds since 1970."""
    values = row.values()
    return {name: values[name] and parse_time_ms(values[name]) for name in _TIMES}
