"""A metadata file that is missing or damaged: every command names it, and the command that goes back before it."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from support.cli.command_line import CommandLine
from support.tables.iceberg_tables import pyiceberg_catalog


@pytest.fixture
def newest(lake: CommandLine, tmp_path: Path) -> Path:
    """The newest metadata file of a table with three snapshots."""
    source = tmp_path / "rows.csv"
    for number in range(3):
        source.write_text(f"id\n{number}\n")
        lake.ok("ingest", "db.t", source, "--create")
    location = pyiceberg_catalog(lake.warehouse).load_table("db.t").metadata_location
    return Path(location.removeprefix("file://"))


@pytest.mark.parametrize("damage", ["missing", "empty", "garbage", "not metadata"])
def test_the_command_that_an_error_names_sets_the_table_back(
    lake: CommandLine, newest: Path, damage: str
) -> None:
    texts = {"empty": "", "garbage": "{", "not metadata": "{}"}
    if damage == "missing":
        newest.unlink()
    else:
        newest.write_text(texts[damage])

    failed = lake("check", "db.t")
    assert failed.exit_code == 7
    assert str(newest) in failed.stderr
    named = re.search("`lake (register [^`]+)`", failed.stderr)
    assert named is not None, failed.stderr

    done = lake.ok(*shlex.split(named[1]))
    assert done["status"] == "done"
    found = lake.ok("scan", "db.t")["result"]["preview"]
    assert sorted(row["id"] for row in found) == [0, 1]
    assert lake.ok("check", "db.t", "--deep")["result"]["errors"] == 0


def test_without_an_older_file_a_backup_is_all_that_helps(lake: CommandLine, newest: Path) -> None:
    for path in newest.parent.glob("*.metadata.json"):
        path.unlink()

    failed = lake("-q", "scan", "db.t")

    assert failed.exit_code == 7
    assert f"({newest.as_uri()})" in failed.stderr
    assert "restore it from a backup" in failed.stderr


def test_a_readable_table_is_not_replaced_by_a_registration(
    lake: CommandLine, newest: Path
) -> None:
    older = sorted(newest.parent.glob("*.metadata.json"))[0]

    assert lake("register", "db.t", older).exit_code == 3
    assert len(lake.ok("scan", "db.t")["result"]["preview"]) == 3


@pytest.mark.parametrize(
    ("level", "text"),
    [
        ((), "data files were not looked for (--files)"),
        (("--files",), "data files were not opened (--rows)"),
        (("--rows",), "the values of data files were not read (--deep)"),
    ],
)
def test_a_check_says_what_it_did_not_look_at(
    lake: CommandLine, newest: Path, level: tuple[str, ...], text: str
) -> None:
    assert text in lake("check", "db.t", *level).stdout
    assert "not" not in lake("check", "db.t", "--deep").stdout.replace("nothing", "")
