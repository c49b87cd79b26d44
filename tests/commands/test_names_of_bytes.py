"""Files whose names are not text in UTF-8: no table can refer to them, and no command fails because of them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.cli.command_line import CommandLine
from support.tables.tidy_table import Tidy, planted_orphans

_NAME = b"odd-\xff.parquet"
_OLD = 1_700_000_000


def plant(folder: Path) -> None:
    """Put such a file, and such a folder with a file, into a folder."""
    inside = os.path.join(os.fsencode(folder), b"folder-\xfe")
    os.makedirs(inside)
    for path in (os.path.join(os.fsencode(folder), _NAME), os.path.join(inside, b"a.parquet")):
        Path(os.fsdecode(path)).write_bytes(b"PAR1")
        os.utime(path, (_OLD, _OLD))


def planted(folder: Path) -> int:
    """Count such files in all folders."""
    names = (
        os.path.join(where, name)
        for where, _, found in os.walk(os.fsencode(folder))
        for name in found
    )
    return sum(b"\xff" in name or b"\xfe" in name for name in names)


@pytest.fixture
def tidy(tmp_path: Path) -> Tidy:
    made = Tidy(tmp_path)
    for folder in (
        made.root,
        made.root / "data",
        made.root / "metadata",
        made.root.parent,
        made.warehouse,
    ):
        plant(folder)
    return made


@pytest.mark.parametrize("mode", ["--delete", "--quarantine"])
def test_a_cleaning_keeps_them_and_removes_the_others(tidy: Tidy, mode: str) -> None:
    orphans = planted_orphans(tidy)
    before = planted(tidy.warehouse)

    done = tidy.clean(mode)

    assert done["plan"]["orphans"] == len(orphans)
    assert not any(path.exists() for path in orphans)
    assert planted(tidy.warehouse) == before
    assert tidy.ids == [1, 2, 3]


@pytest.mark.parametrize(
    "line",
    [
        ("tables",),
        ("replay", "db.t"),
        ("check", "db.t", "--rows"),
        ("expire", "db.t", "--retain-last", "1"),
        ("compact", "db.t", "--min-input-files", "2"),
        ("drop", "db.t", "--purge", "--yes"),
    ],
)
def test_other_commands_pass_them_by(tidy: Tidy, line: tuple[str, ...]) -> None:
    before = planted(tidy.warehouse)
    tidy.lake.ok(*line)
    assert planted(tidy.warehouse) == before


@pytest.mark.parametrize("verb", ["ingest", "add-files"])
def test_such_a_file_to_load_is_refused_by_its_name(tmp_path: Path, verb: str) -> None:
    lake = CommandLine(tmp_path / "warehouse", engine="inline")
    rows = tmp_path / "rows"
    rows.mkdir()
    (rows / "a.csv").write_text("id\n1\n")
    lake.ok("ingest", "db.t", str(rows), "--create")
    plant(rows)

    refused = lake(verb, "db.t", str(rows), *(("--format", "csv") if verb == "ingest" else ()))

    assert refused.exit_code == 7
    assert r"odd-\xff.parquet" in refused.stderr or r"folder-\xfe" in refused.stderr
    assert "rename the file" in refused.stderr
