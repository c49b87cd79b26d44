"""Symbolic links: in place of a table's file they are refused, to folders and as sources they are followed."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.cli.command_line import CommandLine


def behind_a_link(path: Path) -> None:
    """Move a file, and put a link to it in its place."""
    moved = path.with_name(f"moved-{path.name}")
    path.rename(moved)
    path.symlink_to(moved)


def refused(lake: CommandLine, *arguments: str) -> None:
    result = lake("--json", *arguments)
    assert result.exit_code == 7, result.stdout
    assert "is a symbolic link" in result.json()["error"]["message"]


@pytest.mark.parametrize("form", ["parquet", "orc", "avro"])
def test_a_data_file_is_not_read_through_a_link(
    lake_on: CommandLine, warehouse: Path, tmp_path: Path, form: str
) -> None:
    lake_on.load("id\n1\n", "--create", "--property", f"write.format.default={form}")
    lake_on.load("id\n2\n")
    one, other = sorted((warehouse / "db/t/data").glob(f"*.{form}"))
    # As tampering does that shows one file's rows in place of the other's.
    one.unlink()
    one.symlink_to(other)

    refused(lake_on, "scan", "db.t")
    refused(lake_on, "compact", "db.t", "--rewrite-all")

    assert other.exists()


@pytest.mark.parametrize(
    ("version", "pattern"),
    [
        ("2", "metadata/*-m[0-9]*.avro"),
        ("2", "metadata/snap-*.avro"),
        ("2", "metadata/*.metadata.json"),
        ("2", "data/*deletes*.parquet"),
        ("3", "data/*.puffin"),
    ],
)
def test_metadata_and_delete_files_are_not_read_through_a_link(
    lake: CommandLine, warehouse: Path, tmp_path: Path, version: str, pattern: str
) -> None:
    lake.load("id\n1\n2\n", "--create", "--property", f"format-version={version}")
    lake.load("id\n1\n", "--upsert", "--key", "id")
    found = sorted((warehouse / "db/t").glob(pattern))
    assert found
    for path in found:
        behind_a_link(path)

    refused(lake, "scan", "db.t")
    refused(lake, "compact", "db.t", "--rewrite-all")


def test_a_source_may_be_a_link(lake: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "day.csv").write_text("id\n1\n")
    (tmp_path / "today.csv").symlink_to("day.csv")

    lake.ok("ingest", "db.t", tmp_path / "today.csv", "--create")

    assert lake.ok("scan", "db.t")["result"]["preview"] == [{"id": 1}]


@pytest.mark.parametrize("folder", ["", "db", "db/t", "db/t/data", "db/t/metadata"])
def test_folders_may_be_links(
    lake: CommandLine, warehouse: Path, tmp_path: Path, folder: str
) -> None:
    lake.load("id\n1\n", "--create")
    place = warehouse / folder
    moved = tmp_path / "elsewhere"
    place.rename(moved)
    place.symlink_to(moved)

    lake.load("id\n2\n")
    lake.ok("compact", "db.t", "--rewrite-all")

    rows = lake.ok("scan", "db.t")["result"]["preview"]
    assert sorted(row["id"] for row in rows) == [1, 2]
