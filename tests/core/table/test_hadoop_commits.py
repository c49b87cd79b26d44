"""Commits to catalogs that are folders: the next version by exclusive creation, then the hint."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from command_line import CommandLine, Result
from table_support import files_below

Write = Callable[..., Path]


def failure(result: Result, code: int) -> dict[str, str]:
    assert result.exit_code == code, result
    error: dict[str, str] = result.json()["error"]
    return error


@pytest.fixture
def lake(tmp_path: Path) -> CommandLine:
    return CommandLine(tmp_path / "warehouse", catalog_type="hadoop")


@pytest.fixture
def source(tmp_path: Path) -> Write:
    """Writes a Parquet file of rows."""

    def write(first: int, end: int) -> Path:
        ids = list(range(first, end))
        rows = pa.table({"id": ids, "name": [f"n{number}" for number in ids]})
        path = tmp_path / f"{first}-{end}.parquet"
        pq.write_table(rows, path)
        return path

    return write


def metadata_of(lake: CommandLine, table: str = "db.t") -> Path:
    return lake.warehouse.joinpath(*table.split("."), "metadata")


def versions(folder: Path) -> dict[int, str]:
    return {
        int(path.name[1:].partition(".")[0]): path.name for path in folder.glob("v*.metadata.json*")
    }


def content(folder: Path, version: int) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / f"v{version}.metadata.json").read_text())
    return found


def ids(lake: CommandLine, tmp_path: Path, table: str = "db.t") -> list[int]:
    output = tmp_path / "rows.parquet"
    lake.ok("scan", table, "--output", output, "--replace")
    found: list[int] = sorted(pq.read_table(output)["id"].to_pylist())
    return found


def test_a_table_is_made_and_goes_on_version_by_version(
    lake: CommandLine, source: Write, tmp_path: Path
) -> None:
    lake.ok("ingest", "db.t", source(0, 10), "--create")
    lake.ok("ingest", "db.t", source(10, 20))
    lake.ok("compact", "db.t", "--rewrite-all")
    lake.ok("expire", "db.t", "--older-than", "0s", "--unsafe-retention")

    folder = metadata_of(lake)
    assert versions(folder) == {number: f"v{number}.metadata.json" for number in (1, 2, 3, 4)}
    assert (folder / "version-hint.text").read_text() == "4"
    assert content(folder, 4)["location"] == str(lake.warehouse / "db/t")
    assert [entry["metadata-file"] for entry in content(folder, 4)["metadata-log"]] == [
        str(folder / f"v{number}.metadata.json") for number in (1, 2, 3)
    ]
    assert not list(folder.glob("*.temp"))
    assert ids(lake, tmp_path) == list(range(20))


def test_a_copied_table_is_not_written(lake: CommandLine, source: Write, tmp_path: Path) -> None:
    lake.ok("ingest", "db.t", source(0, 10), "--create")
    lake.ok("ingest", "db.t", source(20, 30))
    shutil.copytree(lake.warehouse, tmp_path / "copy")
    before = files_below(lake.warehouse) | files_below(tmp_path / "copy")
    copy = CommandLine(tmp_path / "copy", catalog_type="hadoop")

    for command in (
        ["ingest", "db.t", source(10, 20)],
        ["compact", "db.t", "--rewrite-all"],
        ["expire", "db.t", "--older-than", "0s", "--unsafe-retention"],
    ):
        assert "its metadata says" in failure(copy("--json", *command), 3)["message"]

    assert files_below(lake.warehouse) | files_below(tmp_path / "copy") == before
