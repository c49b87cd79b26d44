"""Reports about scans: the filter without its values, and no work where no server takes them."""

from __future__ import annotations

from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, NestedField, StringType, StructType
from support.cli.command_line import CommandLine

from lake.core.read.scan import execute
from lake.core.spec.expressions.filters import bind_filter
from lake.core.spec.expressions.parser import parse_filter
from lake.core.table.reporting.scan_report import scan_report

SCHEMA = Schema(
    NestedField(1, "id", IntegerType()),
    NestedField(2, "at", StructType(NestedField(3, "town", StringType()))),
    schema_id=4,
)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("id > 7", {"type": "gt", "term": "id", "value": "(hidden)"}),
        (
            "not at.town in ('x', 'y')",
            {"type": "not-in", "term": "at.town", "values": ["(hidden)"]},
        ),
        ("at.town is null", {"type": "is-null", "term": "at.town"}),
        ("at.town like 'a%b'", True),
        ("not at.town like 'a%b'", True),
        ("id = 1.5", False),
        ("ID < 3000000000", {"type": "lt-eq", "term": "id", "value": "(hidden)"}),
        (
            "id = 1 or at.town like 'a%'",
            {
                "type": "or",
                "left": {"type": "eq", "term": "id", "value": "(hidden)"},
                "right": {"type": "starts-with", "term": "at.town", "value": "(hidden)"},
            },
        ),
    ],
    ids=str,
)
def test_a_filter_is_shown_by_the_names_of_its_columns_and_without_values(
    text: str, shown: Any
) -> None:
    condition = bind_filter(parse_filter(text), SCHEMA, case_sensitive=False)

    report = scan_report("prod.db.t", 1, condition, SCHEMA, {}, 0.5, {}, {})

    assert (report["schema-id"], report["filter"]) == (4, shown)


def test_no_report_is_built_for_a_catalog_that_takes_none(
    lake: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.load("id\n1\n2\n", "--create")
    built: list[Any] = []
    monkeypatch.setattr(execute, "scan_report", lambda *parts: built.append(parts) or {})

    assert len(lake.scanned("--where", "id > 1")) == 1
    assert built == []
