"""The report about a scan, as Iceberg's REST specification names it: `ScanReport` of `ReportMetricsRequest`.

It contains names, ids and numbers only: a filter is sent without its values. Source:
https://iceberg.apache.org/rest-catalog-spec/, and Iceberg Java's ScanReportParser and ScanMetricsResult.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyiceberg.expressions import (
    AlwaysFalse,
    And,
    BooleanExpression,
    LiteralPredicate,
    Not,
    Or,
    Reference,
    SetPredicate,
    UnaryPredicate,
)

from lake.core.table.reporting.metrics import counter, duration

_TYPE = "scan-report"
# Java hides values in the same way.
_HIDDEN = "(hidden)"


def scan_report(  # noqa: PLR0913 - the parts of a report
    name: str,
    snapshot_id: int,
    condition: BooleanExpression | None,
    schema_id: int,
    columns: Mapping[int, str],
    seconds: float,
    counts: Mapping[str, int],
    marks: Mapping[str, str],
) -> dict[str, Any]:
    """Return the report about the plan of a scan, as it becomes JSON.

    Args:
        name: the name of the table, with that of its catalog.
        snapshot_id: the snapshot that is read.
        condition: the filter; None for all rows.
        schema_id: the schema of the snapshot's rows.
        columns: the columns that are read, by their ids.
        seconds: how long the plan took.
        counts: the counters by their names.
        marks: names and versions of the software that scans.
    """
    return {
        "report-type": _TYPE,
        "table-name": name,
        "snapshot-id": snapshot_id,
        "filter": True if condition is None else _without_values(condition),
        "schema-id": schema_id,
        "projected-field-ids": list(columns),
        "projected-field-names": list(columns.values()),
        "metrics": {
            "total-planning-duration": duration(seconds),
            **{key: counter(key, value) for key, value in counts.items()},
        },
        "metadata": dict(marks),
    }


def _without_values(part: BooleanExpression) -> Any:
    """Return a filter without its values as JSON; what the specification does not name is true."""
    if isinstance(part, And | Or):
        sides = {"left": _without_values(part.left), "right": _without_values(part.right)}
        return {"type": "and" if isinstance(part, And) else "or", **sides}
    if isinstance(part, Not):
        return {"type": "not", "child": _without_values(part.child)}
    if isinstance(part, UnaryPredicate | LiteralPredicate | SetPredicate):
        values: dict[str, Any] = {}
        if isinstance(part, LiteralPredicate):
            values = {"value": _HIDDEN}
        elif isinstance(part, SetPredicate):
            values = {"values": [_HIDDEN]}
        if isinstance(part.term, Reference):
            return {"type": part.type, "term": part.term.name, **values}
    return not isinstance(part, AlwaysFalse)
