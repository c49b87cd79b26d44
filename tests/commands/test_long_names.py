"""Files whose names are as long as a file system allows, so that a derived name does not fit."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.cli.command_line import CommandLine

_LONG = "é" * 125 + "x.csv"


@pytest.fixture
def lake(tmp_path: Path) -> CommandLine:
    assert len(_LONG.encode()) == 255
    made = CommandLine(tmp_path / "warehouse", engine="inline")
    source = tmp_path / "first.csv"
    source.write_text("id\n0\n")
    made.ok("ingest", "db.t", source, "--create")
    return made


def watch(lake: CommandLine, folder: Path, *options: str | Path) -> dict[str, object]:
    result = lake(
        "--json",
        *("ingest", "db.t", "--watch", folder, "--stream", "s", "--state", folder.parent / "state"),
        *("--once", "--settle", "0s", *options),
    )
    assert result.exit_code in {0, 6}, result
    found: dict[str, object] = result.json()["result"]
    return found


def test_an_output_has_the_name_that_was_given(lake: CommandLine, tmp_path: Path) -> None:
    target = tmp_path / "out" / _LONG
    target.parent.mkdir()
    for _ in range(2):
        lake.ok("scan", "db.t", "--output", target, "--replace")
        assert target.read_text() == '"id"\n0\n'
    assert [path.name for path in target.parent.iterdir()] == [_LONG]


def test_a_file_that_cannot_be_loaded_is_set_aside_with_its_reason(
    lake: CommandLine, tmp_path: Path
) -> None:
    drop, bad = tmp_path / "drop", tmp_path / "bad"
    drop.mkdir()
    for number in range(1, 3):
        (drop / _LONG).write_text("id\nx\n")
        assert watch(lake, drop, "--bad-files", bad)["files_set_aside"] == 1
        assert not list(drop.iterdir())
        assert len(list(bad.glob("*.csv"))) == number
    for path in bad.glob("*.csv"):
        assert path.read_text() == "id\nx\n"
        reason = path.with_name(f"{path.name}.reason.txt").read_text()
        assert reason.startswith(f"{drop}/{_LONG}\n")


@pytest.mark.parametrize("name", [_LONG, "rows", "a.csv"])
def test_a_loaded_file_moves_beside_one_of_the_same_name(
    lake: CommandLine, tmp_path: Path, name: str
) -> None:
    # A dot in the folder's name is not that of a suffix.
    drop, done = tmp_path / "drop", tmp_path / "done.d"
    drop.mkdir()
    for number in range(1, 3):
        (drop / name).write_text(f"id\n{number}\n")
        result = watch(lake, drop, "--done", f"move:{done}", "--format", "csv")
        assert result["files_loaded"] == 1
    found = {path.read_text() for path in done.iterdir()}
    assert found == {"id\n1\n", "id\n2\n"}
    assert not [path for path in tmp_path.iterdir() if path.name.startswith("done-")]
