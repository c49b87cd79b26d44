"""Lists of files that were moved away: what they contain does not decide which files are lost."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.cli.command_line import CommandLine
from support.tables.iceberg_tables import files_below

from lake.core.io.storage.storage import Storage, StoredFile
from lake.core.maintain.orphans import trash

_NOW = ("--older-than", "0s", "--unsafe-retention", "--max-share", "100%")
Rows = list[dict[str, Any]]


def moved(lake: CommandLine) -> Path:
    """Make a table, and move three orphan files away; return the folder of the run."""
    source = lake.warehouse.parent / "in.csv"
    source.write_text("id\n1\n")
    lake.ok("ingest", "db.t", source, "--create")
    return moved_again(lake)


def moved_again(lake: CommandLine) -> Path:
    """Move three orphan files of the table away; return the folder of the run."""
    for name in ("one", "two", "three"):
        (lake.warehouse / "db" / "t" / "data" / f"{name}.parquet").write_text(name)
    run = lake.ok("clean", "db.t", *_NOW, "--quarantine")["result"]["run_id"]
    return lake.warehouse / "db" / "t" / ".lake-trash" / str(run)


def rewritten(run: Path, change: Callable[[Rows], object]) -> None:
    """Change the list of a run."""
    path = run / "files.parquet"
    listed = pq.read_table(path)
    rows = listed.to_pylist()
    change(rows)
    pq.write_table(pa.Table.from_pylist(rows, listed.schema), path)


def test_a_restore_deletes_no_file_that_the_list_lacks(lake: CommandLine) -> None:
    run = moved(lake)
    rewritten(run, lambda rows: rows.pop())

    assert lake.ok("clean", "db.t", "--restore", run.name)["result"]["restored"] == 2
    names = {path.rpartition("/")[2] for path in files_below(lake.warehouse)}
    assert {"one.parquet", "two.parquet", "three.parquet"} <= names


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda rows: rows[0].update(path=None), "path is missing"),
        (lambda rows: rows[0].update(moved_to=None), "moved_to is missing"),
        (lambda rows: rows[0].update(bytes=-1), "a size is negative"),
        (lambda rows: [row.update(bytes=2**63 - 1) for row in rows], "the sizes are too large"),
        (lambda rows: rows[0].update(moved_to=rows[1]["moved_to"]), "contains a file twice"),
        (lambda rows: rows[0].update(path=rows[1]["path"]), "contains a file twice"),
    ],
)
def test_a_list_that_contradicts_itself_is_not_followed(
    lake: CommandLine, change: Callable[[Rows], object], message: str
) -> None:
    run = moved(lake)
    rewritten(run, change)
    before = files_below(lake.warehouse)

    result = lake("clean", "db.t", "--restore", run.name)

    assert result.exit_code == 7, result
    assert message in result.stderr
    assert files_below(lake.warehouse) == before


@pytest.mark.parametrize("name", ["99999-x.metadata.json", "v9.metadata.json", "version-hint.text"])
def test_a_restore_makes_no_newer_metadata(lake: CommandLine, name: str) -> None:
    run = moved(lake)
    root = lake.warehouse / "db" / "t"
    rewritten(run, lambda rows: rows[0].update(path=f"{root}/metadata/{name}"))

    result = lake("clean", "db.t", "--restore", run.name)

    assert result.exit_code == 7, result
    assert "could become the current metadata" in result.stderr
    assert not (root / "metadata" / name).exists()


def test_a_restore_does_not_follow_links(lake: CommandLine, tmp_path: Path) -> None:
    run = moved(lake)
    root, outside = lake.warehouse / "db" / "t", tmp_path / "outside"
    outside.mkdir()
    (root / "data" / "link").symlink_to(outside)
    rewritten(run, lambda rows: rows[0].update(path=f"{root}/data/link/new/one.parquet"))

    result = lake("clean", "db.t", "--restore", run.name)

    assert result.exit_code == 6, result
    assert not list(outside.iterdir())

    other = tmp_path / "other"
    os.rename(run, other)
    run.symlink_to(other)
    before = files_below(other)
    assert lake("clean", "db.t", "--restore", run.name).exit_code == 7
    assert files_below(other) == before


@pytest.mark.parametrize("link", [".lake-trash", "a run"])
def test_no_command_follows_a_link_in_place_of_the_trash(
    lake: CommandLine, tmp_path: Path, link: str
) -> None:
    run = moved(lake)
    outside = tmp_path / "outside"
    place = run.parent if link == ".lake-trash" else run
    os.rename(place, outside)
    (outside / "empty" / "folder").mkdir(parents=True)
    place.symlink_to(outside)
    (lake.warehouse / "db" / "t" / "data" / "four.parquet").write_text("four")
    before = files_below(tmp_path)

    commands = [("--restore", run.name), ("--purge", run.name)]
    if link == ".lake-trash":
        commands += [("--purge-older-than", "0s"), ("--quarantine", *_NOW)]
    for command in commands:
        refused = lake("clean", "db.t", *command)
        assert refused.exit_code == 7, refused
        assert "is a symbolic link" in refused.stderr

    assert files_below(tmp_path) == before
    assert (outside / "empty" / "folder").is_dir()


@pytest.mark.parametrize("option", ["--purge", "--restore"])
def test_a_purge_and_a_restore_that_were_killed_at_any_step_can_be_repeated(
    lake: CommandLine, monkeypatch: pytest.MonkeyPatch, option: str
) -> None:
    """They end in the same state, and leave no empty folder."""
    moved(lake)
    lake.ok("clean", "db.t", "--purge-older-than", "0s")
    for number in range(40):
        run = moved_again(lake)
        steps = iter(range(number))
        with monkeypatch.context() as killing:
            for name in ("unlink", "rmdir", "rename"):
                killing.setattr(os, name, _killed(getattr(os, name), steps))
            is_killed = False
            try:
                is_killed = lake("clean", "db.t", option, run.name).exit_code != 0
            except KilledError:
                is_killed = True

        # A process that was killed does not refresh its lock.
        (run.parent.parent / "metadata" / "lake.lock").unlink(missing_ok=True)
        done = lake("clean", "db.t", option, run.name)

        assert done.exit_code == 0, done
        assert not run.parent.exists()
        data = lake.warehouse / "db" / "t" / "data"
        left = sorted(path.name for path in data.glob("*.parquet") if path.stem.isalpha())
        assert left == (["one.parquet", "three.parquet", "two.parquet"] * (option == "--restore"))
        for name in left:
            (data / name).unlink()
        if not is_killed:
            assert number > len(["one", "two", "three", "the list", "a folder"])
            return
    raise AssertionError("it never ended")


class KilledError(BaseException):
    """The process ends here."""


def _killed(real: Callable[..., Any], steps: Iterator[int]) -> Callable[..., Any]:
    def step(*arguments: Any, **named: Any) -> Any:
        if next(steps, None) is None:
            raise KilledError
        return real(*arguments, **named)

    return step


@pytest.mark.parametrize("purge", [(), ("--purge", "--yes")], ids=["drop", "drop --purge"])
def test_the_trash_of_a_table_that_was_dropped_can_be_purged(
    lake: CommandLine, purge: tuple[str, ...]
) -> None:
    run = moved(lake)
    root = run.parent.parent
    dropped = lake.ok("drop", "db.t", *purge)
    (hint,) = [text for text in dropped["warnings"] if "moved away" in text]
    assert f"--location file://{root}" in hint or f"--location {root}" in hint

    assert lake("clean", "db.t", "--purge", run.name).exit_code == 7
    assert lake("clean", "db.t", "--purge", run.name, "--location", root.parent).exit_code == 7
    assert run.exists()
    command = hint.rpartition("lake clean ")[2].split()
    done = lake.ok("clean", *command)

    assert done["result"]["purged"] == 3
    assert not run.parent.exists()
    assert lake("clean", *command).exit_code == 7


def test_a_purge_that_another_one_overtakes_is_done(
    lake: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = moved(lake)
    read = trash.read_list

    def overtaken(place: trash.Trash, run_id: str) -> trash.TrashRun:
        found = read(place, run_id)
        shutil.rmtree(run)
        return found

    monkeypatch.setattr(trash, "read_list", overtaken)
    document = lake.ok("clean", "db.t", "--purge", run.name)
    assert (document["status"], document["result"]["purged"]) == ("done", 0)


def test_a_purge_deletes_the_files_of_the_list_that_the_storage_does_not_list(
    lake: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = moved(lake)
    find = Storage.find_files

    def shorter(storage: Storage, folder: str) -> list[StoredFile]:
        return [file for file in find(storage, folder) if "two" not in file.location]

    monkeypatch.setattr(Storage, "find_files", shorter)
    document = lake.ok("clean", "db.t", "--purge", run.name)

    assert (document["status"], document["result"]["purged"]) == ("done", 3)
    assert document["result"]["bytes"] == len("onetwothree")
    assert not run.exists()


def test_a_purge_deletes_no_file_outside_of_the_run_that_its_list_names(lake: CommandLine) -> None:
    run = moved(lake)
    (data,) = (lake.warehouse / "db" / "t" / "data").glob("*.parquet")
    place = f"../../data/{data.name}"
    rewritten(run, lambda rows: rows[0].update(moved_to=place))

    lake.ok("clean", "db.t", "--purge", run.name)
    assert data.exists()
    assert not run.exists()
