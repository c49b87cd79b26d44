"""Files that another program still writes, or cuts off, while they are loaded."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import csv
from support.cli.command_line import CommandLine

from lake.core.data.sources import batches
from lake.core.load.ingest import units

LOADS = {
    "append": (),
    "overwrite": ("--overwrite",),
    "upsert": ("--upsert", "--key", "id"),
    "stage": ("--stage", "--run-id", "r"),
    "changes": ("--changes-column", "kind", "--changes-mode", "upsert", "--key", "id"),
}


@pytest.fixture
def lake(tmp_path: Path) -> CommandLine:
    made = CommandLine(tmp_path / "warehouse", engine="inline")
    for table, text in (("db.t", "id,name,kind\n0,a,+I\n"), ("db.log", "id,name\n0,a\n")):
        source = tmp_path / "first.csv"
        source.write_text(text)
        made.ok("ingest", table, source, "--create")
    return made


@contextmanager
def changed_when_opened(path: Path, content: str | None) -> Iterator[None]:
    """Replace a file's content when its rows are read; None removes it."""
    opened = csv.open_csv

    def noted(*arguments: Any, **options: Any) -> Any:
        reader = opened(*arguments, **options)
        if content is None:
            path.unlink(missing_ok=True)
        else:
            path.write_text(content)
        return reader

    with patch.object(csv, "open_csv", noted):
        yield


@pytest.mark.parametrize(
    "content", ["id,name,kind\n1,a,+I\n2,b,+I\n3,c,+I\n4,d,+I", "id,name,kind\n1,a,+I\n"]
)
@pytest.mark.parametrize("load", LOADS)
def test_a_file_that_grows_or_shrinks_is_not_loaded(
    lake: CommandLine, tmp_path: Path, load: str, content: str
) -> None:
    source = tmp_path / "rows.csv"
    source.write_text("id,name,kind\n1,a,+I\n2,b,+I\n")
    table = "db.log" if load == "changes" else "db.t"
    line = ("ingest", table, source, *LOADS[load])
    before = {path for path in lake.warehouse.rglob("*") if path.is_file()}
    with changed_when_opened(source, content):
        result = lake("--json", *line)

    assert result.exit_code == 3, result
    assert f"{source} was changed while it was read: it had " in result.stderr
    assert {path for path in lake.warehouse.rglob("*") if path.is_file()} == before
    source.write_text("id,name,kind\n1,a,+I\n2,b,+I\n")
    lake.ok(*line)


def test_a_file_that_grows_while_its_rows_are_divided_is_not_loaded(
    lake: CommandLine, tmp_path: Path
) -> None:
    source = tmp_path / "rows.csv"
    source.write_text("id,name\n1,a\n2,b\n")
    line = ("ingest", "new.{name}", source, "--route", "name", "--create")
    with changed_when_opened(source, "id,name\n1,a\n2,b\n3,c\n"):
        result = lake("--json", *line)

    assert result.exit_code == 3, result
    assert f"{source} was changed while it was read: it had " in result.stderr
    assert len(lake.ok("tables")["result"]["tables"]) == 2


def test_a_file_that_is_removed_while_it_is_read_is_not_loaded_in_part(
    lake: CommandLine, tmp_path: Path
) -> None:
    source = tmp_path / "rows.csv"
    source.write_text("id,name,kind\n1,a,+I\n")
    with changed_when_opened(source, None):
        result = lake("--json", "ingest", "db.t", source)
    rows = lake.ok("scan", "db.t")["result"]["rows"]
    # What was opened before is read to its end.
    assert (result.exit_code, rows) in {(0, 2), (7, 1)}


def test_pieces_of_two_versions_of_a_file_are_not_loaded_together(
    lake: CommandLine, tmp_path: Path
) -> None:
    source, newer = tmp_path / "rows.parquet", tmp_path / "newer.parquet"
    ids = list(range(1, 5))
    for path, rows in ((source, ids), (newer, ids[::-1])):
        names = ["a"] * len(rows)
        pq.write_table(pa.table({"id": rows, "name": names}), path, row_group_size=1)
    checked = batches.check_group

    def replacing(*arguments: Any) -> None:
        if newer.exists():
            newer.rename(source)
        checked(*arguments)

    with (
        patch.object(units, "_PIECE_BYTES", 1),
        patch.object(batches, "check_group", replacing),
    ):
        result = lake("--json", "ingest", "db.log", source)

    assert result.exit_code == 3, result
    assert f"{source} was changed while it was read" in result.stderr
    assert lake.ok("scan", "db.log")["result"]["rows"] == 1
    lake.ok("ingest", "db.log", source)
