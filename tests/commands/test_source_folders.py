"""Folders and globs with links, special files and what may not be read: no file is left out silently."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.cli.command_line import CommandLine, Result

NOBODY = 65534


@pytest.fixture
def lake(tmp_path: Path) -> CommandLine:
    made = CommandLine(tmp_path / "warehouse", engine="inline")
    made.ok("ingest", "db.t", rows(tmp_path / "first.csv"), "--create")
    return made


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Make a folder of sources with a folder in it."""
    made = tmp_path / "drop"
    rows(made / "a.csv")
    rows(made / "sub/b.csv")
    return made


def rows(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("id\n1\n")
    return path


@contextmanager
def mode(path: Path, bits: int) -> Iterator[None]:
    """Give a path other permissions, and be a user to whom they apply."""
    for above in path.parents:
        if above.stat().st_uid == os.geteuid() and above != Path("/"):
            above.chmod(above.stat().st_mode | 0o055)
    before = path.stat().st_mode
    path.chmod(bits)
    is_root = os.geteuid() == 0
    if is_root:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        if is_root:
            os.seteuid(0)
        path.chmod(before)


def dry(lake: CommandLine, source: str | Path) -> Result:
    return lake("--json", "ingest", "db.t", source, "--dry-run")


def watched(lake: CommandLine, source: str | Path, number: int = 0) -> Result:
    state = lake.warehouse.parent / f"state-{number}"
    return lake(
        "--json",
        *("ingest", "db.t", "--watch", source, "--stream", f"s{number}", "--state", state),
        *("--once", "--settle", "0s"),
    )


def check(result: Result, *words: str) -> None:
    assert result.exit_code in {7, 9}, result
    for word in words:
        assert word in result.json()["error"]["message"]


@pytest.mark.parametrize("bits", [0o000, 0o444, 0o311], ids=["closed", "unsearchable", "unlisted"])
@pytest.mark.parametrize("name", ["", "/**/*.csv", "/*/*.csv", "/sub/*.csv"])
def test_a_folder_that_may_not_be_read_is_an_error_in_folders_and_globs(
    lake: CommandLine, folder: Path, tmp_path: Path, name: str, bits: int
) -> None:
    source = f"{folder}{name}"
    assert dry(lake, source).exit_code == 0
    assert watched(lake, source).json()["result"]["files_loaded"] in {1, 2}
    (tmp_path / "state-1").mkdir()
    (tmp_path / "state-1").chmod(0o777)
    with mode(folder / "sub", bits):
        for result in (dry(lake, source), watched(lake, source, 1)):
            check(result, "no permission", "/sub")


def test_a_file_in_a_folder_that_may_not_be_searched_is_not_said_to_be_missing(
    lake: CommandLine, folder: Path
) -> None:
    source = folder / "sub/b.csv"
    assert dry(lake, source).exit_code == 0
    with mode(folder / "sub", 0o444):
        check(dry(lake, source), "no permission")


@pytest.mark.parametrize("name", ["", "/**/*.csv"])
def test_a_link_to_a_folder_elsewhere_is_refused_by_name(
    lake: CommandLine, folder: Path, tmp_path: Path, name: str
) -> None:
    rows(tmp_path / "elsewhere/c.csv")
    (folder / "linked").symlink_to(tmp_path / "elsewhere")
    for result in (dry(lake, f"{folder}{name}"), watched(lake, f"{folder}{name}")):
        check(result, f"{folder}/linked is a link to a folder")
    assert dry(lake, f"{folder}/*/*.csv").json()["plan"]["files"] == 2


@pytest.mark.parametrize("name", ["", "/**/*.csv"])
def test_links_to_folders_inside_are_not_followed(
    lake: CommandLine, folder: Path, name: str
) -> None:
    # If they were followed, there would be 2 ** 40 ways through them.
    for number in range(2):
        (folder / f"loop{number}").symlink_to(".")
    (folder / "latest").symlink_to(folder / "sub")
    assert dry(lake, f"{folder}{name}").json()["plan"]["files"] == 2
    assert watched(lake, f"{folder}{name}").json()["result"]["files_loaded"] == 2


@pytest.mark.parametrize("name", ["", "/*.csv"])
@pytest.mark.parametrize("target", ["nowhere", "bad.csv"])
def test_a_link_that_leads_nowhere_is_an_error_and_no_file_to_watch(
    lake: CommandLine, folder: Path, name: str, target: str
) -> None:
    (folder / "bad.csv").symlink_to(target)
    check(dry(lake, f"{folder}{name}"), f"no such file: {folder}/bad.csv")
    assert watched(lake, f"{folder}{name}").exit_code == 0


@pytest.mark.parametrize("name", ["", "/*.csv", "/pipe.csv"])
def test_a_pipe_is_refused_as_such(lake: CommandLine, folder: Path, name: str) -> None:
    os.mkfifo(folder / "pipe.csv")
    check(dry(lake, f"{folder}{name}"), f"{folder}/pipe.csv is not a regular file")


def test_a_path_that_is_too_long_is_an_error(lake: CommandLine, folder: Path) -> None:
    inside = os.open(folder, os.O_RDONLY)
    name = "x" * 200
    for _ in range(21):
        os.mkdir(name, dir_fd=inside)
        above, inside = inside, os.open(name, os.O_RDONLY, dir_fd=inside)
        os.close(above)
    os.close(os.open("c.csv", os.O_CREAT | os.O_WRONLY, dir_fd=inside))
    os.close(inside)
    for source in (folder, f"{folder}/**/*.csv"):
        check(dry(lake, source), "not a valid path")


def test_hidden_folders_are_neither_read_nor_needed(lake: CommandLine, folder: Path) -> None:
    rows(folder / "_temporary/c.csv")
    assert dry(lake, folder).exit_code == 0
    with mode(folder / "_temporary", 0o000):
        assert dry(lake, folder).json()["plan"]["files"] == 2


def test_globs_match_as_in_a_shell(lake: CommandLine, folder: Path) -> None:
    for name in (".hidden.csv", "[x].csv", "deep/er/d.csv", "sub/e.json", "sub/f=1/g.csv"):
        rows(folder / name)

    def matched(pattern: str) -> set[str]:
        result = dry(lake, f"{folder}/{pattern}")
        return set() if result.exit_code else {result.json()["plan"]["files"]}

    assert matched("*.csv") == {2}
    assert matched(".*.csv") == {1}
    assert matched("[[]*.csv") == {1}
    assert matched("[!a]*.csv") == {1}
    assert matched("**/*.csv") == {5}
    assert matched("**/**/*.csv") == {5}
    assert matched("*/*.csv") == {1}
    assert matched("*/*/*.csv") == {2}
    assert matched("**/er/*") == {1}
    assert matched("s?b/b.csv") == {1}
    assert matched("*/b.csv") == {1}
    assert matched("*//b.csv") == {1}
