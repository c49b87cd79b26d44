"""Errors about types of sources and columns have Iceberg's names of types, whatever the file's library calls them."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.cli.command_line import CommandLine

KINDS = {
    "long": pa.array([1], pa.int64()),
    "string": pa.array(["x"], pa.large_string()),
    "timestamptz": pa.array([datetime(2024, 1, 1, tzinfo=UTC)], pa.timestamp("us", "UTC")),
    "list<struct<a: int>>": pa.array([[{"a": 1}]], pa.large_list(pa.struct([("a", pa.int16())]))),
}


def written(folder: Path, name: str, **columns: Any) -> Path:
    path = folder / name
    pq.write_table(pa.table(columns), path)
    return path


@pytest.mark.parametrize("name", KINDS)
def test_a_column_of_another_type_is_named_by_the_type(
    lake: CommandLine, tmp_path: Path, name: str
) -> None:
    lake.ok("create", "db.t", "x boolean")
    encoded = {"y": KINDS["string"].dictionary_encode()} if name == "string" else {}
    source = written(tmp_path, "a.parquet", x=KINDS[name], **encoded)

    message = lake("--json", "ingest", "db.t", source).json()["error"]["message"]

    assert f"has column x as {name}, the table as boolean" in message
    if encoded:
        assert "has column y (string), which the table lacks" in message


def test_sources_of_different_types_are_named_with_the_column_and_both_types(
    lake: CommandLine, tmp_path: Path
) -> None:
    first = written(tmp_path, "a.parquet", id=KINDS["long"], x=KINDS["long"])
    second = written(tmp_path, "b.parquet", id=KINDS["long"], x=KINDS["string"])

    refused = lake("--json", "ingest", "db.t", first, second, "--create")

    assert refused.exit_code == 7
    assert refused.json()["error"]["message"] == (
        f"column x of {second} is of type string, and of type long in the sources before it"
    )


def test_a_type_that_no_column_can_have_is_named_plainly(lake: CommandLine, tmp_path: Path) -> None:
    source = written(tmp_path, "a.parquet", x=pa.array([1], pa.duration("s")))

    message = lake("--json", "ingest", "db.t", source, "--create").json()["error"]["message"]

    assert "column x is duration" in message


def test_a_value_that_a_column_cannot_hold_is_shown_with_the_type(
    lake: CommandLine, tmp_path: Path
) -> None:
    lake.ok("create", "db.t", "x int", "s struct<a: int>")
    source = written(tmp_path, "a.parquet", x=pa.array([2**40], pa.int64()))
    message = lake("--json", "ingest", "db.t", source).json()["error"]["message"]
    assert "int64" not in message

    refused = lake("--json", "scan", "db.t", "--where", "s = 1")
    assert "column s is a struct<a: int>, which" in refused.json()["error"]["message"]
