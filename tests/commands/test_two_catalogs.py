"""One table in two catalogs: neither deletes files that the other one needs."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch
from uuid import uuid4

import pytest
from pyiceberg.table import StaticTable
from support.cli.command_line import CommandLine
from support.tables.iceberg_tables import files_below, ids_in, pyiceberg_catalog
from support.tables.metadata_edits import edit_metadata, metadata_path, read_metadata

from lake.core.base.clock import SystemClock
from lake.core.maintain.expiration import execute
from lake.core.transaction.garbage import other_histories

_EXPIRE = ("--older-than", "0s", "--retain-last", "1", "--unsafe-retention")
_DELETING = {
    "expire": ("expire", "db.t", *_EXPIRE),
    "expire by age": ("expire", "db.t"),
    "clean": (
        *("clean", "db.t", "--older-than", "0s", "--unsafe-retention"),
        *("--max-share", "100%", "--delete"),
    ),
    "purge": ("drop", "db.t", "--purge", "--yes"),
}
_DAY_MS = 24 * 3_600_000
_SHORT_LOG = (
    *("--property", "write.metadata.previous-versions-max=2"),
    *("--property", "write.metadata.delete-after-commit.enabled=true"),
)


def load(lake: CommandLine, times: int = 1, *options: str) -> None:
    for _ in range(times):
        lake.load("id\n1\n2\n", "--create", *options)


@pytest.fixture
def first(tmp_path: Path) -> CommandLine:
    """A catalog with a table, in a folder in which lake does not look for the catalog."""
    return made(tmp_path)


def made(folder: Path, *options: str) -> CommandLine:
    line = CommandLine(folder / "first")
    load(line, 2, *options)
    return line


def hide(lake: CommandLine) -> None:
    """Rename the catalog's database: many catalogs are not beside their tables."""
    (lake.warehouse / "catalog.db").rename(lake.warehouse / "hidden.db")


def show(lake: CommandLine) -> None:
    (lake.warehouse / "hidden.db").rename(lake.warehouse / "catalog.db")


def go_back(lake: CommandLine, entry: str | None = None) -> None:
    """Let the catalog have an earlier state; the one before the current one if none is given."""
    entry = entry or str(read_metadata(lake.warehouse)["metadata-log"][-1]["metadata-file"])
    with sqlite3.connect(lake.warehouse / "catalog.db") as database:
        database.execute("UPDATE iceberg_tables SET metadata_location = ?", (entry,))


def make_older(lake: CommandLine, days: int = 30) -> None:
    """Make all times in the current metadata older."""

    def older(plain: dict[str, object]) -> None:
        text = json.dumps(plain)
        plain.clear()
        plain.update(json.loads(text, object_hook=aged))

    def aged(item: dict[str, object]) -> dict[str, object]:
        for key in ("timestamp-ms", "last-updated-ms"):
            if isinstance(item.get(key), int):
                item[key] = int(str(item[key])) - days * _DAY_MS
        return item

    edit_metadata(lake.warehouse, older)


def second_of(first: CommandLine, folder: Path, place: Path | None = None) -> CommandLine:
    """Register the table in a second catalog, as a program does that checks nothing."""
    second = CommandLine(folder / "second")
    catalog = pyiceberg_catalog(second.warehouse)
    catalog.create_namespace_if_not_exists("db")
    catalog.register_table("db.t", f"file://{place or metadata_path(first.warehouse)}")
    return second


@pytest.fixture(autouse=True)
def _no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not wait for the end of a commit that no test makes at the same time."""
    monkeypatch.setattr(other_histories, "_WAITS", ())


def refused(lake: CommandLine, *commands: str) -> str:
    """Let these commands be refused, or all that delete; nothing changes. Return the last message."""
    before = files_below(lake.warehouse.parent)
    for command in commands or _DELETING:
        result = lake(*_DELETING[command])
        assert result.exit_code == 3, (command, result)
        assert files_below(lake.warehouse.parent) == before
    return result.stderr


@pytest.mark.parametrize("commits", [1, 3])
@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
def test_a_table_that_another_catalog_continues_keeps_its_files(
    first: CommandLine, tmp_path: Path, commits: int, *, before: bool
) -> None:
    """However many commits follow, and whichever catalog commits first."""
    make_older(first)
    second = second_of(first, tmp_path)
    if before:
        load(first)
    second.ok("compact", "db.t", "--rewrite-all")
    if not before:
        load(first)
    load(second, commits)
    hide(first)

    text = refused(second)

    assert "another catalog may contain the table" in text
    assert "lake alter --no-other-catalog" in text
    show(first)
    assert ids_in(first.warehouse) == [1, 1, 1, 2, 2, 2]
    assert first.ok("check", "db.t", "--files")["status"] == "done"


@pytest.mark.parametrize("is_old", [True, False], ids=["old", "new"])
def test_only_a_new_state_is_waited_for_because_it_may_be_that_of_a_commit(
    first: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_old: bool
) -> None:
    waits: list[float] = []
    monkeypatch.setattr(other_histories, "_WAITS", (0.2, 0.8))
    monkeypatch.setattr(SystemClock, "sleep", lambda _, seconds: waits.append(seconds))
    make_older(first)
    second = second_of(first, tmp_path)
    load(second)
    if is_old:
        make_older(second, days=1)

    assert "another catalog may contain the table" in refused(first, "clean")
    assert waits == ([] if is_old else [0.2, 0.8])


def test_the_catalog_that_the_table_comes_from_is_refused_too(
    first: CommandLine, tmp_path: Path
) -> None:
    make_older(first)
    second = second_of(first, tmp_path)
    load(second)
    first.ok("compact", "db.t", "--rewrite-all")
    load(first, 2)

    assert "another catalog may contain the table" in refused(first)
    assert ids_in(second.warehouse) == [1, 1, 1, 2, 2, 2]


def test_a_catalog_beside_the_table_that_does_not_commit_keeps_its_files(
    first: CommandLine, tmp_path: Path
) -> None:
    make_older(first)
    second = second_of(first, tmp_path)
    second.ok("compact", "db.t", "--rewrite-all")
    load(second)

    assert f"db.t in {first.warehouse}/catalog.db" in refused(second)
    assert ids_in(first.warehouse) == [1, 1, 2, 2]


def test_a_copy_of_a_whole_warehouse_deletes_nothing_of_it(
    first: CommandLine, tmp_path: Path
) -> None:
    make_older(first)
    shutil.copytree(first.warehouse, tmp_path / "copy")
    copy = CommandLine(tmp_path / "copy")
    copy.ok("compact", "db.t", "--rewrite-all")
    load(copy)

    refused(copy)
    assert ids_in(first.warehouse) == [1, 1, 2, 2]


@pytest.mark.parametrize(
    ("versions", "deleting"), [("1", "true"), ("1", "false"), ("2", "true"), ("100", "false")]
)
@pytest.mark.parametrize("hidden", [True, False])
def test_a_copy_of_the_tables_folder_deletes_nothing_of_the_table(
    tmp_path: Path, versions: str, deleting: str, *, hidden: bool
) -> None:
    """However short the log of the copy is, and whether it deletes the files that it no longer names."""
    first = made(
        tmp_path,
        *("--property", f"write.metadata.previous-versions-max={versions}"),
        *("--property", f"write.metadata.delete-after-commit.enabled={deleting}"),
    )
    make_older(first)
    copy = tmp_path / "backup" / "t"
    shutil.copytree(first.warehouse / "db" / "t", copy)
    place = copy / "metadata" / metadata_path(first.warehouse).name
    second = second_of(first, tmp_path, place)
    copied = files_below(copy)
    if hidden:
        hide(first)
    refused(second)
    second.ok("compact", "db.t", "--rewrite-all")
    refused(second, "expire")
    load(second, 3)
    refused(second)

    assert files_below(copy) == copied
    if hidden:
        show(first)
    assert ids_in(first.warehouse) == [1, 1, 2, 2]


def test_a_log_that_names_a_copy_is_enough_to_refuse(first: CommandLine, tmp_path: Path) -> None:
    make_older(first)
    copy = tmp_path / "backup" / "t"
    shutil.copytree(first.warehouse / "db" / "t", copy)
    second = second_of(first, tmp_path, copy / "metadata" / metadata_path(first.warehouse).name)
    load(second)
    hide(first)
    for path in (first.warehouse / "db" / "t" / "metadata").glob("*.metadata.json"):
        if path != metadata_path(second.warehouse):
            path.unlink()

    assert "outside of the table's folders" in refused(second)
    second.ok("alter", "db.t", "--no-other-catalog")
    second.ok("compact", "db.t", "--rewrite-all")
    assert second.ok(*_DELETING["expire"])["result"]["data_files"] == 3


def _register_link(first: CommandLine, folder: Path) -> object:
    (folder / "link").symlink_to(first.warehouse)
    return folder / "link" / metadata_path(first.warehouse).relative_to(first.warehouse)


def _register_relative(first: CommandLine, folder: Path) -> object:
    return metadata_path(first.warehouse).relative_to(folder)


@pytest.mark.parametrize(
    "spelling", [_register_link, _register_relative], ids=["link", "relative path"]
)
def test_a_table_that_moved_to_another_catalog_is_maintained_there(
    first: CommandLine, tmp_path: Path, spelling: Callable[[CommandLine, Path], object]
) -> None:
    second = CommandLine(tmp_path / "second")
    place = spelling(first, tmp_path)
    first.ok("drop", "db.t")
    second.ok("register", "db.t", place)
    load(second)
    second.ok("compact", "db.t", "--rewrite-all")

    assert second.ok(*_DELETING["clean"])["status"] == "nothing-to-do"
    assert second.ok(*_DELETING["expire"])["result"]["data_files"] == 3
    assert ids_in(second.warehouse) == [1, 1, 1, 2, 2, 2]
    assert second.ok(*_DELETING["purge"])["status"] == "done"


@pytest.mark.parametrize("ahead", [True, False])
def test_the_user_ends_the_refusal_for_the_histories_that_exist_then(
    first: CommandLine, tmp_path: Path, *, ahead: bool
) -> None:
    second = second_of(first, tmp_path)
    load(first, 3 if ahead else 1)
    load(second, 1 if ahead else 3)
    first.ok("drop", "db.t")
    newest = max((first.warehouse / "db/t/metadata").glob("*.metadata.json"))
    refused(second, "expire")

    before = second.ok("alter", "db.t", "--no-other-catalog", "--dry-run")
    (names,) = before["plan"]["set"].values()
    assert len(names.split(",")) == 1
    assert (names == newest.name) == ahead
    refused(second, "expire")
    second.ok("alter", "db.t", "--no-other-catalog")
    again = second.ok("alter", "db.t", "--no-other-catalog")

    assert again["status"] == "nothing-to-do"
    second.ok("compact", "db.t", "--rewrite-all")
    assert second.ok(*_DELETING["expire"])["status"] == "done"
    assert second.ok(*_DELETING["clean"])["result"]["deleted"] > 0
    load(second)
    # The other catalog has the table still, and commits to it.
    other = newest.with_name(f"00099-{uuid4()}.metadata.json")
    other.write_bytes(metadata_path(second.warehouse).read_bytes())
    refused(second, "expire")


def test_metadata_files_that_no_log_names_any_more_are_the_tables_own(lake: CommandLine) -> None:
    load(lake, 5, "--property", "write.metadata.previous-versions-max=1")
    lake.ok("compact", "db.t", "--rewrite-all")

    assert len(read_metadata(lake.warehouse)["metadata-log"]) == 1
    assert lake.ok(*_DELETING["expire"])["result"]["data_files"] == 5
    assert lake.ok(*_DELETING["clean"])["result"]["deleted"] >= 5


def test_a_failed_commit_without_files_prevents_no_deletion(lake: CommandLine) -> None:
    """A commit that fails removes its manifest list, and is killed before it removes the metadata file."""
    load(lake, 2)
    current = metadata_path(lake.warehouse)
    plain = read_metadata(lake.warehouse)
    for snapshot in plain["snapshots"]:
        snapshot["manifest-list"] += ".removed"
    current.with_name(f"00002-{uuid4()}.metadata.json").write_text(json.dumps(plain))
    lake.ok("compact", "db.t", "--rewrite-all")

    assert lake.ok(*_DELETING["expire"])["result"]["data_files"] == 2


def test_a_hadoop_catalogs_table_that_was_registered_elsewhere_keeps_its_files(
    tmp_path: Path,
) -> None:
    first = CommandLine(tmp_path / "first", catalog_type="hadoop")
    load(first, 2)
    folder = first.warehouse / "db" / "t" / "metadata"
    for path in folder.glob(".*.crc"):
        path.unlink()
    second = second_of(first, tmp_path, folder / "v2.metadata.json")
    second.ok("compact", "db.t", "--rewrite-all")

    refused(second, "expire", "clean", "purge")
    refused(first, "expire", "clean", "purge")
    table = StaticTable.from_metadata(str(folder / "v2.metadata.json"))
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == [1, 1, 2, 2]
    second.ok("alter", "db.t", "--no-other-catalog")
    assert second.ok(*_DELETING["expire"])["result"]["data_files"] == 2


def test_a_purge_of_what_an_earlier_run_planned_is_refused_too(
    first: CommandLine, tmp_path: Path
) -> None:
    """An expiration that is killed after its commit leaves a list of files to delete."""
    first.ok("compact", "db.t", "--rewrite-all")
    place = metadata_path(first.warehouse)
    before = files_below(first.warehouse / "db" / "t" / "data")
    with patch.object(execute, "delete_files", side_effect=KeyboardInterrupt):
        assert first(*_DELETING["expire"]).exit_code != 0
    second = second_of(first, tmp_path, place)
    load(second)

    result = first(*_DELETING["expire"])

    assert result.exit_code == 3, result
    assert before <= files_below(first.warehouse / "db" / "t" / "data")


@pytest.mark.parametrize("commits", [2, 6])
@pytest.mark.parametrize("options", [(), _SHORT_LOG], ids=["long log", "short log"])
@pytest.mark.parametrize("verb", ["expire", "clean", "purge"])
def test_a_commit_of_lake_that_was_killed_prevents_no_deletion(
    lake: CommandLine, verb: str, options: tuple[str, ...], commits: int
) -> None:
    load(lake, 2, *options)
    killed = metadata_path(lake.warehouse)
    go_back(lake)
    load(lake, commits)
    lake.ok("compact", "db.t", "--rewrite-all")

    assert lake.ok(*_DELETING[verb])["status"] == "done"
    assert killed.exists() == (verb != "clean")


@pytest.mark.parametrize("first_digits", ["2fa1", "1234"], ids=["as version 2", "as a later one"])
@pytest.mark.parametrize("verb", ["expire", "clean", "purge"])
def test_a_commit_of_lake_that_was_killed_in_a_hadoop_catalog_prevents_no_deletion(
    tmp_path: Path, verb: str, first_digits: str
) -> None:
    lake = CommandLine(tmp_path / "warehouse", catalog_type="hadoop")
    load(lake, 2)
    lake.ok("compact", "db.t", "--rewrite-all")
    folder = lake.warehouse / "db" / "t" / "metadata"
    # Written, and not named yet.
    left = folder / f"{first_digits}{str(uuid4())[4:]}-v4.metadata.json.unfinished"
    shutil.copy(folder / "v3.metadata.json", left)

    assert lake.ok(*_DELETING[verb])["status"] == ("nothing-to-do" if verb == "clean" else "done")


@pytest.mark.parametrize("options", [(), _SHORT_LOG], ids=["long log", "short log"])
def test_commits_that_a_backup_of_the_database_does_not_have_are_another_catalogs(
    lake: CommandLine, options: tuple[str, ...]
) -> None:
    load(lake, 3, *options)
    with sqlite3.connect(lake.warehouse / "catalog.db") as database:
        (entry,) = database.execute("SELECT metadata_location FROM iceberg_tables").fetchone()
    load(lake, 2)
    go_back(lake, entry)
    load(lake, 6)
    lake.ok("compact", "db.t", "--rewrite-all")

    assert "another catalog may contain" in refused(lake, "expire", "clean", "purge")


def test_a_commit_through_a_copy_of_the_database_is_another_catalogs(lake: CommandLine) -> None:
    load(lake, 2)
    database = lake.warehouse / "catalog.db"
    shutil.copy(database, lake.warehouse / "copy.db")
    load(lake)
    (lake.warehouse / "copy.db").rename(database)
    load(lake, 2)
    lake.ok("compact", "db.t", "--rewrite-all")

    assert "another catalog may contain" in refused(lake, "expire", "clean", "purge")


@pytest.mark.parametrize("hidden", [True, False])
def test_a_copy_is_registered_only_if_its_files_are_kept_forever(
    first: CommandLine, tmp_path: Path, *, hidden: bool
) -> None:
    copy = tmp_path / "backup" / "t"
    shutil.copytree(first.warehouse / "db" / "t", copy)
    if hidden:
        hide(first)
    second = CommandLine(tmp_path / "second")
    place = copy / "metadata" / metadata_path(first.warehouse).name if not hidden else None
    place = place or max((copy / "metadata").glob("*.metadata.json"))
    result = second("register", "db.t", place)
    assert result.exit_code == 3, result
    assert "outside of the table's folders" in result.stderr
    assert "--keep-files-forever" in result.stderr
    assert second("show", "db.t").exit_code == 7
    own = files_below(tmp_path / "first")

    done = second.ok("register", "db.t", place, "--keep-files-forever")
    again = second.ok("register", "db.t", place, "--keep-files-forever")

    assert again["status"] == "nothing-to-do"
    assert again["plan"]["metadata_location"] == done["result"]["metadata_location"]
    assert files_below(tmp_path / "first") == own
    assert ids_in(second.warehouse) == [1, 1, 2, 2]
    assert read_metadata(second.warehouse)["properties"]["gc.enabled"] == "false"
    load(second)
    refused(second)


def test_a_table_that_another_catalog_continues_is_registered_only_if_its_files_are_kept(
    first: CommandLine, tmp_path: Path
) -> None:
    options = ("--set", "write.metadata.delete-after-commit.enabled=true")
    first.ok("alter", "db.t", *options, "--set", "write.metadata.previous-versions-max=1")
    older, second = metadata_path(first.warehouse), CommandLine(tmp_path / "second")
    with sqlite3.connect(first.warehouse / "catalog.db") as database:
        entry = database.execute("SELECT metadata_location FROM iceberg_tables").fetchone()
    beside = second("register", "db.t", older)
    assert beside.exit_code == 3, beside
    assert f"db.t in {first.warehouse}/catalog.db" in beside.stderr
    load(first)
    hide(first)
    refused_ = second("register", "db.t", older)
    assert refused_.exit_code == 3, refused_
    assert "not the newest state" in refused_.stderr

    second.ok("register", "db.t", older, "--keep-files-forever")
    load(second, 3)

    assert read_metadata(second.warehouse)["properties"]["gc.enabled"] == "false"
    assert entry[0].endswith(older.name)
    assert older.exists()
    show(first)
    assert ids_in(first.warehouse) == [1, 1, 1, 2, 2, 2]
    assert ids_in(second.warehouse) == [1] * 5 + [2] * 5
    assert "another catalog may contain" in refused(first, "expire")


def test_metadata_files_of_a_table_whose_files_are_kept_stay(first: CommandLine) -> None:
    log = {
        "gc.enabled": "false",
        "write.metadata.delete-after-commit.enabled": "true",
        "write.metadata.previous-versions-max": "1",
    }
    first.ok("alter", "db.t", *(f"--set={name}={value}" for name, value in log.items()))
    older = metadata_path(first.warehouse)

    for _ in range(3):
        load(first)

    assert older.exists()
    assert older.name not in str(read_metadata(first.warehouse)["metadata-log"])


def test_a_database_above_the_table_that_is_not_a_catalog_is_passed_by(lake: CommandLine) -> None:
    load(lake, 2)
    (lake.warehouse.parent / "catalog.db").write_text("notes")
    (lake.warehouse / "db" / "catalog.db").mkdir()
    lake.ok("compact", "db.t", "--rewrite-all")
    assert lake.ok(*_DELETING["expire"])["result"]["data_files"] == 2


def test_no_file_is_deleted_while_another_catalogs_database_is_locked(
    first: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    second = second_of(first, tmp_path)
    load(second)
    real = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *args, **kw: real(*args, **kw | {"timeout": 0}))
    holder = real(first.warehouse / "catalog.db", isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    before = files_below(tmp_path)
    for command in _DELETING.values():
        result = second(*command)
        assert result.exit_code == 10, result
    holder.close()

    assert files_below(tmp_path) == before
