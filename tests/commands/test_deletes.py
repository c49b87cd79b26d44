"""`lake deletes` through the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.cli.command_line import CommandLine
from support.tables.partitioned_tables import add


def change(lake: CommandLine, row: str, kind: str) -> None:
    source = Path(lake.warehouse.parent / "changed.csv")
    source.write_text(f"id,day\n{row}\n")
    lake.ok("ingest", "db.t", source, "--upsert", "--key", "id,day", "--deletes", kind)


def listed(lake: CommandLine) -> dict[str, Any]:
    result: dict[str, Any] = lake.ok("deletes", "db.t")["result"]
    return result


def test_an_equality_delete_applies_to_the_older_files_of_its_partition_only(
    lake: CommandLine,
) -> None:
    add(lake, "1,2026-01-01", "2,2026-01-02", "3,2026-01-02")
    add(lake, "4,2026-01-02")
    change(lake, "2,2026-01-02", "equality")
    add(lake, "5,2026-01-02")

    (row,) = listed(lake)["delete_files"]
    assert (row["kind"], row["partition"]) == ("equality", "day=2026-01-02")
    assert sorted(row["columns"]) == ["day", "id"]
    assert (row["data_files"], row["data_rows"], row["rows"]) == (2, 3, 1)
    assert (row["sequence_number"], row["oldest_data_sequence_number"]) == (3, 1)
    assert row["dangling"] is False


def test_a_position_delete_applies_to_the_file_that_it_names(lake: CommandLine) -> None:
    add(lake, "1,2026-01-01", "2,2026-01-02", "3,2026-01-02")
    add(lake, "4,2026-01-02")
    change(lake, "2,2026-01-02", "position")

    (row,) = listed(lake)["delete_files"]
    assert row["kind"] in ("position", "vector")
    assert (row["data_files"], row["data_rows"], row["columns"]) == (1, 2, None)
    assert row["oldest_data_sequence_number"] == 1
    assert row["data_file"].endswith(".parquet")


@pytest.mark.parametrize("kind", ["equality", "position"])
def test_a_delete_whose_data_files_were_rewritten_is_dangling_until_it_is_removed(
    lake: CommandLine, kind: str
) -> None:
    add(lake, "1,2026-01-02", "2,2026-01-02")
    change(lake, "2,2026-01-02", kind)
    options = ("--rewrite-all", "--no-starting-sequence-number")
    lake.ok("compact", "db.t", *options)

    found = listed(lake)
    # A position delete file that names one data file is removed with it.
    assert len(found["delete_files"]) == (1 if kind == "equality" else 0)
    for row in found["delete_files"]:
        assert row["dangling"] is True
        assert (row["data_files"], row["oldest_data_sequence_number"]) == (0, None)
    assert [group["dangling"] for group in found["groups"]] == [
        group["files"] for group in found["groups"]
    ]
    lake.ok("compact", "db.t", *options, "--remove-dangling-deletes")
    assert listed(lake) == {"groups": [], "delete_files": []}


def test_a_table_without_delete_files_has_none(lake: CommandLine) -> None:
    add(lake, "1,2026-01-01")
    assert listed(lake) == {"groups": [], "delete_files": []}
