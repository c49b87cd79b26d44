"""The report about a scan, as Iceberg's REST specification names it: `ScanReport` of `ReportMetricsRequest`.

It contains names, ids and numbers only: a filter is sent without its values. Source:
https://iceberg.apache.org/rest-catalog-spec/, and Iceberg Java's ScanReportParser and ScanMetricsResult.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pyiceberg.expressions import (
    BooleanExpression,
    BoundLiteralPredicate,
    BoundPredicate,
    BoundSetPredicate,
)
from pyiceberg.schema import Schema

from lake.core.spec.expressions.filters import fold
from lake.core.spec.expressions.predicates import operation
from lake.core.table.reporting.metrics import counter, duration

_TYPE = "scan-report"
# Java hides values in the same way.
_HIDDEN = "(hidden)"
_UNNAMED = {"like", "not-like"}


def scan_report(  # noqa: PLR0913 - the parts of a report
    name: str,
    snapshot_id: int,
    condition: BooleanExpression | None,
    schema: Schema,
    columns: Mapping[int, str],
    seconds: float,
    counts: Mapping[str, int],
    marks: Mapping[str, str],
) -> dict[str, Any]:
    """Return the report about the plan of a scan, as it becomes JSON.

    Args:
        name: the name of the table, with that of its catalog.
        snapshot_id: the snapshot that is read.
        condition: the bound filter; None for all rows.
        schema: the schema of the snapshot's rows.
        columns: the columns that are read, by their ids.
        seconds: how long the plan took.
        counts: the counters by their names.
        marks: names and versions of the software that scans.
    """
    return {
        "report-type": _TYPE,
        "table-name": name,
        "snapshot-id": snapshot_id,
        "filter": True if condition is None else _without_values(condition, schema),
        "schema-id": schema.schema_id,
        "projected-field-ids": list(columns),
        "projected-field-names": list(columns.values()),
        "metrics": {
            "total-planning-duration": duration(seconds),
            **{key: counter(key, value) for key, value in counts.items()},
        },
        "metadata": dict(marks),
    }


def _without_values(condition: BooleanExpression, schema: Schema) -> Any:
    """Return a bound filter without its values as JSON; what the specification does not name is true."""

    def leaf(predicate: BoundPredicate) -> Any:
        name = operation(predicate)
        if name in _UNNAMED:
            return True
        term = schema.find_column_name(predicate.term.ref().field.field_id)
        values: dict[str, Any] = {}
        if isinstance(predicate, BoundLiteralPredicate):
            values = {"value": _HIDDEN}
        elif isinstance(predicate, BoundSetPredicate):
            values = {"values": [_HIDDEN]}
        return {"type": name, "term": term, **values}

    def joined(name: str) -> Callable[[Any, Any], Any]:
        return lambda left, right: {"type": name, "left": left, "right": right}

    return fold(condition, leaf, constant=bool, both=joined("and"), either=joined("or"))
