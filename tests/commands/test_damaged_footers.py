"""Footers of data and delete files that PyArrow cannot describe end in an error, not with the process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hostile.footer_edits import wrong_chunks, wrong_statistics
from support.cli.command_line import CommandLine

_ROWS, _GROUP = 40, 10
_SCAN = ["scan", "db.t", "--output", "out.parquet", "--replace"]
_VERBS = {
    "scan": _SCAN,
    "compact": ["compact", "db.t", "--rewrite-all", "--min-input-files", "1"],
    "upsert": ["ingest", "db.t", "new.csv", "--upsert", "--key", "id", "--deletes", "position"],
    "deletes": ["deletes", "db.t", "--convert"],
    "stats": ["stats", "db.t"],
}


def _table(lake: CommandLine) -> Path:
    """Make a table of a data file with several row groups, and of delete files; return the data file."""
    path = lake.warehouse.parent / "added" / "a.parquet"
    path.parent.mkdir()
    ids = list(range(_ROWS))
    rows = pa.table({"id": ids, "name": [f"n{number}" for number in ids], "value": ids})
    pq.write_table(rows, path, row_group_size=_GROUP, store_schema=False)
    lake.ok("create", "db.t", "id long", "name string", "value long")
    lake.ok("add-files", "db.t", path)
    for key, kind in ((3, "equality"), (15, "position")):
        Path("new.csv").write_text(f"id,name,value\n{key},new,{key}\n")
        lake.ok("ingest", "db.t", "new.csv", "--upsert", "--key", "id", "--deletes", kind)
    return path


def _refused(lake: CommandLine, path: Path, line: list[str], edits: dict[str, bytes]) -> None:
    data = path.read_bytes()
    for name, damaged in edits.items():
        path.write_bytes(damaged)
        result = lake(*line)
        # A file with encrypted columns may be valid.
        assert result.exit_code == (3 if name == "encrypted" else 7), (name, result)
        assert path.name in result.stderr.replace("\n", ""), (name, result)
    path.write_bytes(data)


@pytest.mark.parametrize("verb", _VERBS)
def test_a_data_file_whose_column_cannot_be_described_is_refused(
    lake: CommandLine, verb: str
) -> None:
    path = _table(lake)
    _refused(lake, path, _VERBS[verb], wrong_chunks(path.read_bytes(), 0))
    lake.ok(*_VERBS[verb])


@pytest.mark.parametrize("edits", [wrong_chunks, wrong_statistics])
def test_row_groups_are_not_chosen_by_statistics_that_cannot_be_decoded(
    lake: CommandLine, edits: Callable[[bytes, int], dict[str, bytes]]
) -> None:
    path = _table(lake)
    line = [*_SCAN, "--select", "name", "--where", "value > 35"]
    _refused(lake, path, line, edits(path.read_bytes(), 2))
    lake.ok(*line)
    assert pq.read_table("out.parquet")["name"].to_pylist() == ["n36", "n37", "n38", "n39"]


def test_a_file_is_not_added_with_statistics_that_cannot_be_decoded(lake: CommandLine) -> None:
    path = _table(lake)
    copy = path.with_name("b.parquet")
    copy.write_bytes(path.read_bytes())
    for edits in (wrong_chunks, wrong_statistics):
        found = edits(copy.read_bytes(), 2)
        _refused(lake, copy, ["add-files", "db.t", str(copy)], found)


def test_a_delete_file_whose_column_cannot_be_described_is_refused(lake: CommandLine) -> None:
    data = _table(lake)
    root = lake.warehouse / "db/t/data"
    deletes = [path for path in root.rglob("*.parquet") if "delete" in path.name]
    assert deletes, sorted(root.rglob("*"))
    for path in deletes:
        _refused(lake, path, _SCAN, wrong_chunks(path.read_bytes(), 0))
    lake.ok(*_SCAN)
    assert pq.read_table("out.parquet").num_rows == _ROWS
    assert data.exists()
