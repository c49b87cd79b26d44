"""A new table in the folder of a table that was dropped: a warning says so, and its commands work."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from support.cli.command_line import CommandLine

from lake.core.base.errors import NotAuthorisedError
from lake.core.data.schemas.remains import remains_in_folder


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A file with one row."""
    path = tmp_path / "rows.csv"
    path.write_text("id\n1\n")
    return path


@pytest.mark.parametrize("creates", ["ingest", "create"])
def test_a_new_table_in_the_folder_of_a_dropped_one_is_reported(
    lake: CommandLine, source: Path, creates: str
) -> None:
    create = {"ingest": ["db.t", source, "--create"], "create": ["db.t", "name string"]}[creates]
    assert lake.ok("ingest", "db.t", source, "--create")["warnings"] == []
    dropped = lake.ok("drop", "db.t")["plan"]["metadata_location"]

    made = lake("-q", creates, *create)

    assert made.exit_code == 0, made
    assert f"{dropped} is of an earlier table in the folder of the new one" in made.stderr
    take, remove = re.findall("`(lake drop [^`]+)`", " ".join(made.stderr.split()))
    for command in take.split(" && "):
        lake.ok(*shlex.split(command)[1:])
    assert lake.ok("scan", "db.t")["result"]["preview"] == [{"id": 1}]
    lake.ok(*shlex.split(remove)[1:], "--yes")
    assert not Path(dropped.removeprefix("file://")).exists()
    # The files of the new table stay, as it was dropped without --purge.
    assert "of an earlier table" in lake(creates, *create).stderr


def test_a_purged_table_leaves_nothing_to_report(lake: CommandLine, source: Path) -> None:
    lake.ok("ingest", "db.t", source, "--create")
    lake.ok("drop", "db.t", "--purge", "--yes")
    assert lake.ok("ingest", "db.t", source, "--create")["warnings"] == []
    assert lake.ok("ingest", "db.t", source, "--create")["warnings"] != []
    assert "of an earlier table" not in lake("ingest", "db.t", source, "--create").stderr


@pytest.mark.parametrize("described", [True, False])
def test_a_store_that_may_not_be_listed_or_is_not_known_reports_nothing(*, described: bool) -> None:
    storage = Mock(is_folder=Mock(side_effect=NotAuthorisedError("not allowed to list")))
    metadata = SimpleNamespace(location="s3://bucket/db/t")
    table: Any = SimpleNamespace(described=described, metadata=metadata, storage=storage)

    assert remains_in_folder(table) is None
    assert storage.is_folder.called is not described
