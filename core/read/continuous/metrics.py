"""Metrics files in the text format of Prometheus' node_exporter, replaced whole; a follow writes one.

Source: Prometheus, Exposition formats (text-based format).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from lake.core.io.storage.atomic_files import replace_text, require_own

if TYPE_CHECKING:
    from lake.core.base.clock import Ids

_PREFIX = "lake_follow_"
_HELP: Mapping[str, str] = {
    "lag_snapshots": "Snapshots of the branch after the position.",
    "lag_rows": "Rows that these snapshots appended.",
    "lag_ms": "Milliseconds between the snapshot of the position and the head of the branch.",
    "gap": "1 if rows after the position cannot be read any more, else 0.",
    "pending_splits": "Splits that were discovered and not handed over.",
    "pending_rows": "Rows of these splits by metadata.",
    "pending_bytes": "Bytes of the files of these splits.",
    "seconds_since_last_discovery": "Seconds since the table was last checked successfully.",
    "assigned_splits_total": "Splits that were discovered.",
    "assigned_bytes_total": "Bytes of the files of these splits.",
    "finished_splits_total": "Splits that were handed over.",
    "finished_bytes_total": "Bytes of the files of these splits.",
    "rows_total": "Rows that were handed over.",
    "epochs_total": "Epochs that were handed over.",
    "skipped_snapshots_total": "Snapshots that are not appends and were not read.",
    "gaps_total": "Gaps in the history that were passed over.",
    "planning_failures_total": "Discoveries that failed.",
    "watermark_ms": "Watermark after the last epoch, in milliseconds since 1970.",
    "up": "1 unless the last run failed.",
}


def metrics_text(
    labels: Mapping[str, str],
    values: Mapping[str, float | None],
    *,
    prefix: str = _PREFIX,
    helps: Mapping[str, str] = _HELP,
) -> str:
    """Return metrics as text; a value of None is left out.

    Args:
        labels: the labels of all metrics.
        values: the values by name, without the common prefix.
        prefix: the common prefix of the names.
        helps: what each metric is, by name.
    """
    return series_text([(labels, values)], prefix=prefix, helps=helps)


def replace_metrics(path: str, text: str, *, prefix: str = _PREFIX, ids: Ids) -> None:
    """Replace a file of metrics.

    Raises:
        InvalidRequestError: see `require_metrics`.
        LakeError: it cannot be written.
    """
    require_metrics(path, prefix)
    replace_text(path, text, ids=ids)


def require_metrics(path: str, prefix: str) -> None:
    """Refuse to replace a file without metrics of a prefix.

    Raises:
        InvalidRequestError: it is another file.
        LakeError: it cannot be read.
    """
    begin = f"# HELP {prefix}".encode()
    require_own(path, f"a file of metrics {prefix}…", lambda head: head.startswith(begin))


def series_text(
    series: Sequence[tuple[Mapping[str, str], Mapping[str, float | None]]],
    *,
    prefix: str,
    helps: Mapping[str, str],
) -> str:
    """Return the metrics of several sets of labels as text; see `metrics_text`. A metric's samples are adjacent."""
    lines = []
    for name, text in helps.items():
        metric = f"{prefix}{name}"
        samples = [
            f"{metric}{_braced(labels)} {values[name]}"
            for labels, values in series
            if values.get(name) is not None
        ]
        if samples:
            kind = "counter" if name.endswith("_total") else "gauge"
            lines += [f"# HELP {metric} {text}", f"# TYPE {metric} {kind}", *samples]
    return "".join(f"{line}\n" for line in lines)


def _braced(labels: Mapping[str, str]) -> str:
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items()) + "}"


def _escaped(value: str) -> str:
    # A name may contain halves of surrogate pairs, which no text file can contain.
    value = value.encode(errors="replace").decode()
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
