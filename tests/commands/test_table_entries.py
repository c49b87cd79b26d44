"""`lake drop`, `lake rename` and `lake register` through the command line; PyIceberg reads the rows."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table import StaticTable
from support.cli.command_line import CommandLine
from support.faults.killed_runs import killed
from support.tables.iceberg_tables import files_below, ids_in, open_session, pyiceberg_catalog
from support.tables.metadata_edits import edit_metadata, metadata_path

from lake.core.base.errors import TimedOutError
from lake.core.io.storage.storage import Storage
from lake.core.table.catalogs.pyiceberg_catalog import PyIcebergBackend
from lake.core.transaction.session import Session


def add(lake: CommandLine, *numbers: int, name: str = "db.t") -> None:
    source = lake.warehouse.parent / f"{'-'.join(map(str, numbers))}.csv"
    source.write_text("".join(f"{item}\n" for item in ("id", *numbers)))
    lake.ok("ingest", name, source, "--create")


def names(lake: CommandLine) -> list[str]:
    return sorted(
        ".".join(name)
        for space in pyiceberg_catalog(lake.warehouse).list_namespaces()
        for name in pyiceberg_catalog(lake.warehouse).list_tables(space)
    )


def test_a_dropped_table_is_registered_again_with_its_rows(lake: CommandLine) -> None:
    add(lake, 1)
    add(lake, 2)
    files = files_below(lake.warehouse)
    assert lake.ok("drop", "db.t", "--dry-run")["status"] == "dry-run"
    assert names(lake) == ["db.t"]

    result = lake.ok("drop", "db.t")["result"]
    assert (result["purge"], result["deleted_files"]) == (False, 0)
    assert names(lake) == []
    assert files_below(lake.warehouse) == files

    plan = lake.ok("register", "new.t", result["metadata_location"], "--dry-run")["plan"]
    assert (plan["rows"], plan["snapshots"]) == (2, 2)
    assert names(lake) == []
    lake.ok("register", "new.t", result["metadata_location"])
    assert ids_in(lake.warehouse, "new.t") == [1, 2]
    again = lake.ok("register", "new.t", result["metadata_location"])
    assert again["status"] == "nothing-to-do"
    add(lake, 3, name="new.t")
    assert ids_in(lake.warehouse, "new.t") == [1, 2, 3]


def test_a_purge_is_a_preview_without_yes_and_spares_what_is_not_the_tables(
    lake: CommandLine,
) -> None:
    add(lake, 1)
    add(lake, 2)
    lake.ok("compact", "db.t", "--rewrite-all")
    folder = lake.warehouse / "db" / "t"
    (folder / "data" / "staged.parquet").write_text("of another writer")
    (folder / "inner" / "metadata").mkdir(parents=True)
    (folder / "inner" / "metadata" / "v1.metadata.json").write_text("{}")

    plan = lake.ok("drop", "db.t", "--purge")
    assert plan["status"] == "dry-run"
    assert ids_in(lake.warehouse) == [1, 2]
    assert lake("drop", "db.t", "--yes").exit_code == 2

    result = lake.ok("drop", "db.t", "--purge", "--yes")["result"]
    assert result["deleted_files"] == result["files"] == plan["plan"]["files"]
    assert names(lake) == []
    assert files_below(lake.warehouse) == {
        "db/t/data/staged.parquet",
        "db/t/inner/metadata/v1.metadata.json",
    }


def test_a_purge_deletes_the_statistics_of_snapshots_that_the_table_lacks(
    lake: CommandLine,
) -> None:
    add(lake, 1)
    lake.ok("stats", "db.t")

    def lose(plain: dict[str, Any]) -> None:
        plain["statistics"][0]["snapshot-id"] += 1

    edit_metadata(lake.warehouse, lose)

    lake.ok("drop", "db.t", "--purge", "--yes")

    assert files_below(lake.warehouse) == set()


def test_a_purge_deletes_no_file_of_another_table(lake: CommandLine) -> None:
    add(lake, 1)
    catalog = pyiceberg_catalog(lake.warehouse)
    catalog.register_table("db.twin", metadata_path(lake.warehouse).as_uri())
    files = files_below(lake.warehouse)
    assert lake("drop", "db.t", "--purge", "--yes").exit_code == 3
    lake.ok("drop", "db.twin")
    lake.ok("alter", "db.t", "--set", "gc.enabled=false")
    assert lake("drop", "db.t", "--purge", "--yes").exit_code == 3
    assert files_below(lake.warehouse) >= files
    assert ids_in(lake.warehouse) == [1]


def test_a_renamed_table_keeps_its_rows_and_its_files(lake: CommandLine) -> None:
    add(lake, 1)
    files = files_below(lake.warehouse)
    plan = lake.ok("rename", "db.t", "new.u", "--dry-run")["plan"]
    assert (plan["from"], plan["to"]) == ("db.t", "new.u")
    assert names(lake) == ["db.t"]
    lake.ok("rename", "db.t", "new.u")
    assert names(lake) == ["new.u"]
    assert files_below(lake.warehouse) == files
    add(lake, 2, name="new.u")
    assert ids_in(lake.warehouse, "new.u") == [1, 2]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("rename", "db.t", "db.u"), 3),
        (("rename", "db.t", "db.t"), 3),
        (("rename", "db.t", "t"), 2),
        (("rename", "db.none", "db.v"), 7),
        (("drop", "db.none"), 7),
        (("register", "db.v", "{metadata}"), 3),
        (("register", "db.u", "{metadata}"), 3),
        (("register", "db.v", "{missing}"), 7),
        (("register", "db.v", "{damaged}"), 7),
        (("register", "db.v", "{text}"), 2),
    ],
)
def test_a_change_that_another_table_or_a_file_forbids_is_refused(
    lake: CommandLine, tmp_path: Path, arguments: tuple[str, ...], code: int
) -> None:
    add(lake, 1)
    places = {
        "{metadata}": metadata_path(lake.warehouse),
        "{missing}": tmp_path / "none.metadata.json",
        "{damaged}": tmp_path / "damaged.metadata.json",
        "{text}": tmp_path / "text.txt",
    }
    add(lake, 2, name="db.u")
    places["{damaged}"].write_text('{"format-version": 2}')
    places["{text}"].write_text("none")
    result = lake(*(places.get(item, item) for item in arguments))
    assert result.exit_code == code, result.stderr
    assert names(lake) == ["db.t", "db.u"]
    assert (ids_in(lake.warehouse), ids_in(lake.warehouse, "db.u")) == ([1], [2])


def test_a_metadata_file_that_never_existed_is_reported_so(
    lake: CommandLine, tmp_path: Path
) -> None:
    error = lake("--json", "register", "db.v", tmp_path / "none.metadata.json").json()["error"]

    assert error["kind"] == "not-found"
    assert error["message"].endswith("none.metadata.json does not exist")


def test_an_older_metadata_file_is_registered_if_its_files_are_kept_forever(
    lake: CommandLine,
) -> None:
    add(lake, 1)
    first = metadata_path(lake.warehouse)
    add(lake, 2)
    lake.ok("drop", "db.t")
    assert lake("register", "db.t", first).exit_code == 3
    document = lake.ok("register", "db.t", first, "--keep-files-forever")
    assert "which is newer" in document["warnings"][0]
    assert ids_in(lake.warehouse) == [1]


def test_a_draft_whose_id_begins_with_digits_is_not_a_newer_metadata_file(
    lake: CommandLine,
) -> None:
    add(lake, 1)
    current = metadata_path(lake.warehouse)
    draft = current.with_name("12345678-1234-4234-8234-123456789012.metadata.json")
    draft.write_bytes(current.read_bytes())
    lake.ok("drop", "db.t")

    assert lake.ok("register", "db.t", current)["warnings"] == []


@pytest.fixture
def folders(warehouse: Path) -> CommandLine:
    return CommandLine(warehouse, catalog_type="hadoop")


def rows_in(lake: CommandLine, name: str = "db.t") -> list[int]:
    """Return the rows as PyIceberg reads them from the current metadata file of a Hadoop catalog."""
    folder = lake.warehouse.joinpath(*name.split("."), "metadata")
    version = (folder / "version-hint.text").read_text()
    table = StaticTable.from_metadata(f"{folder}/v{version}.metadata.json")
    return sorted(table.scan().to_arrow()["id"].to_pylist())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("drop", "db.t"), "{warehouse}/db/t"),
        (("drop", "db.t", "--dry-run"), "--purge deletes its files"),
        (("rename", "db.t", "db.u"), "--from-table copies the rows"),
        (("register", "db.u", "{warehouse}/db/t/metadata/v1.metadata.json"), "another type"),
    ],
)
def test_a_table_of_a_hadoop_catalog_is_its_folder_and_has_no_entry_to_change(
    folders: CommandLine, arguments: tuple[str, ...], message: str
) -> None:
    add(folders, 1)
    given = [item.format(warehouse=folders.warehouse) for item in arguments]
    refused = folders(*given)
    assert refused.exit_code == 3
    assert message.format(warehouse=folders.warehouse) in refused.stderr
    assert rows_in(folders) == [1]


def test_a_purge_of_a_table_in_a_hadoop_catalog_leaves_nothing_of_it(folders: CommandLine) -> None:
    add(folders, 1)
    add(folders, 2)
    folders.ok("stats", "db.t")
    folders.ok("compact", "db.t", "--rewrite-all")
    add(folders, 9, name="db.other")
    folder = folders.warehouse / "db" / "t" / "metadata"
    # Java writes a checksum beside each file, and keeps more versions than the log of the metadata contains.
    (folder / ".v1.metadata.json.crc").write_text("crc")

    plan = folders.ok("drop", "db.t", "--purge")
    assert plan["status"] == "dry-run"
    assert rows_in(folders) == [1, 2]

    result = folders.ok("drop", "db.t", "--purge", "--yes")["result"]
    assert result["deleted_files"] == result["files"] == plan["plan"]["files"]
    assert not (folders.warehouse / "db" / "t").exists()
    assert folders("scan", "db.t").exit_code == 7
    assert [table["table"] for table in folders.ok("tables")["result"]["tables"]] == ["db.other"]
    add(folders, 3)
    assert (rows_in(folders), rows_in(folders, "db.other")) == ([3], [9])


def test_a_purge_in_a_hadoop_catalog_spares_what_is_not_the_tables(folders: CommandLine) -> None:
    add(folders, 1)
    add(folders, 2, name="db.t.inner")
    (folders.warehouse / "db/t/data/staged.parquet").write_text("of another writer")
    folders.ok("drop", "db.t", "--purge", "--yes")
    left = {name for name in files_below(folders.warehouse) if "/inner/" not in name}
    assert left == {"db/t/data/staged.parquet"}
    assert rows_in(folders, "db.t.inner") == [2]


@pytest.mark.parametrize(
    ("name", "text"),
    [("v7.metadata.json", "newer than"), ("00001-a.metadata.json", "another type")],
)
def test_a_purge_is_refused_if_another_metadata_file_would_become_the_table(
    folders: CommandLine, name: str, text: str
) -> None:
    add(folders, 1)
    folder = folders.warehouse / "db" / "t" / "metadata"
    shutil.copy(folder / "v1.metadata.json", folder / name)
    files = files_below(folders.warehouse)
    refused = folders("drop", "db.t", "--purge", "--yes")
    assert refused.exit_code == 3
    assert text in refused.stderr
    assert files_below(folders.warehouse) == files


def test_a_purge_is_refused_for_a_table_that_was_copied_or_cannot_be_written(
    folders: CommandLine,
) -> None:
    add(folders, 1)
    own = {"write.metadata.path": f"{folders.warehouse}/db/t/metadata"}
    edit_metadata(folders.warehouse, lambda plain: plain["properties"].update(own))
    shutil.copytree(folders.warehouse / "db" / "t", folders.warehouse / "db" / "copy")
    files = files_below(folders.warehouse)
    for name in ("db.copy", "db.t"):
        assert folders("drop", name, "--purge", "--yes").exit_code == 3
    assert files_below(folders.warehouse) == files


@pytest.mark.parametrize("moment", ["first", "last"])
def test_a_purge_in_a_hadoop_catalog_stops_if_a_writer_commits(
    folders: CommandLine, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    add(folders, 1)
    delete = Storage.delete
    written: list[bool] = []

    def deleted(self: Storage, files: list[str], **named: Any) -> Any:
        done = delete(self, files, **named)
        if not written and (moment == "first" or files[0].endswith("v1.metadata.json")):
            written.append(True)
            # Another process, which commits without the lock of maintenance.
            folder = folders.warehouse / "db" / "t" / "metadata"
            (folder / "v2.metadata.json").write_bytes(first)
        return done

    first = (folders.warehouse / "db/t/metadata/v1.metadata.json").read_bytes()
    monkeypatch.setattr(Storage, "delete", deleted)
    stopped = folders("--json", "drop", "db.t", "--purge", "--yes")
    assert written
    assert stopped.exit_code == 4, stopped
    names = {name.rpartition("/")[2] for name in files_below(folders.warehouse)}
    assert "v2.metadata.json" in names
    # It stops before the next batch.
    assert any(name.endswith("m0.avro") for name in names) == (moment == "first")
    assert stopped.json()["result"]["deleted_files"] > 0
    monkeypatch.undo()
    folders.ok("drop", "db.t", "--purge", "--yes")
    assert files_below(folders.warehouse) == set()


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("location", ["", "hint", "v2.metadata.json"])
def test_a_killed_purge_in_a_hadoop_catalog_is_repeated(
    folders: CommandLine, moment: str, location: str
) -> None:
    add(folders, 1)
    add(folders, 2)
    point = ("lake.core.io.storage.storage", "delete_local_file", moment)
    killed(folders, point, "drop", "db.t", "--purge", "--yes", location=location)
    if (moment, location) == ("after", "v2.metadata.json"):
        # The last file is gone, and with it the table.
        assert {name.rpartition("/")[2] for name in files_below(folders.warehouse)} == {"lake.lock"}
        assert folders("drop", "db.t", "--purge", "--yes").exit_code == 7
    else:
        assert folders.ok("drop", "db.t", "--purge", "--yes")["status"] == "done"
        assert files_below(folders.warehouse) == set()


@pytest.mark.parametrize("kinds", [0, 2])
def test_a_purge_stops_if_another_process_registers_the_table_again(
    lake: CommandLine, monkeypatch: pytest.MonkeyPatch, kinds: int
) -> None:
    add(lake, 1)
    place = metadata_path(lake.warehouse)
    batches: list[list[str]] = []
    delete, load = Storage.delete, PyIcebergBackend.load

    def deleted(self: Storage, files: list[str], **named: Any) -> Any:
        batches.append(files)
        return delete(self, files, **named)

    def registered(self: PyIcebergBackend, identifier: str) -> Any:
        if len(batches) == kinds and names(lake) == []:
            pyiceberg_catalog(lake.warehouse).register_table("db.t", str(place))
        return load(self, identifier)

    monkeypatch.setattr(Storage, "delete", deleted)
    monkeypatch.setattr(PyIcebergBackend, "load", registered)
    stopped = lake("--json", "drop", "db.t", "--purge", "--yes")
    assert stopped.exit_code == 4, stopped
    assert len(batches) == kinds
    assert stopped.json()["result"]["deleted_files"] == sum(map(len, batches))
    assert place.exists()
    monkeypatch.undo()
    assert names(lake) == ["db.t"]
    lake.ok("drop", "db.t", "--purge", "--yes")
    assert files_below(lake.warehouse) == set()


@pytest.mark.parametrize("call", ["metadata_locations", "load"])
def test_a_purge_is_partly_done_if_the_catalog_cannot_be_read_after_the_drop(
    lake: CommandLine, call: str
) -> None:
    add(lake, 1)
    place = metadata_path(lake.warehouse)
    session = open_session(lake.warehouse)
    real = getattr(session.catalog, call)

    def read(*given: Any) -> Any:
        if names(lake) == []:
            raise TimedOutError("the catalog does not answer")
        return real(*given)

    def opened(settings: Any) -> Session:
        session.settings = settings
        return session

    setattr(session.catalog, call, read)
    partly = CommandLine(lake.warehouse, open_session=opened)
    result = partly("--json", "drop", "db.t", "--purge", "--yes")
    assert result.exit_code == 6, result
    found = result.json()
    assert found["result"]["deleted_files"] == 0
    assert found["result"]["failed_deletes"] > 0
    assert any("lake register db.t " in text and str(place) in text for text in found["warnings"])
    assert place.exists()

    lake.ok("register", "db.t", place)
    assert ids_in(lake.warehouse) == [1]
    lake.ok("drop", "db.t", "--purge", "--yes")
    assert files_below(lake.warehouse) == set()


def opened_with(
    lake: CommandLine, method: str, fault: Callable[[Callable[[], Any]], Any]
) -> CommandLine:
    session = open_session(lake.warehouse)
    owner: Any = session.catalog if method == "drop" else session.catalog.handle
    real = getattr(owner, method)
    setattr(owner, method, lambda *given: fault(lambda: real(*given)))

    def opened(settings: Any) -> Session:
        session.settings = settings
        return session

    return CommandLine(lake.warehouse, open_session=opened)


def lost(real: Callable[[], Any]) -> None:
    real()
    raise OSError("connection reset")


def never_sent(_: Callable[[], Any]) -> None:
    raise OSError("connection refused")


def test_a_response_that_is_lost_is_found_and_a_failure_changes_nothing(lake: CommandLine) -> None:
    add(lake, 1)
    place = metadata_path(lake.warehouse)
    assert opened_with(lake, "rename_table", never_sent)("rename", "db.t", "db.u").exit_code != 0
    opened_with(lake, "rename_table", lost).ok("rename", "db.t", "db.u")
    assert opened_with(lake, "drop", never_sent)("drop", "db.u").exit_code != 0
    opened_with(lake, "drop", lost).ok("drop", "db.u")
    assert opened_with(lake, "register_table", never_sent)("register", "db.t", place).exit_code != 0
    assert names(lake) == []
    opened_with(lake, "register_table", lost).ok("register", "db.t", place)
    assert ids_in(lake.warehouse) == [1]


@pytest.mark.usefixtures("unlocked")
def test_no_file_is_deleted_if_the_drop_was_not_confirmed(lake: CommandLine) -> None:
    add(lake, 1)
    place = metadata_path(lake.warehouse)
    files = files_below(lake.warehouse)

    def renamed_meanwhile(real: Callable[[], Any]) -> Any:
        lake.ok("rename", "db.t", "db.kept")
        return real()

    refused = opened_with(lake, "drop", renamed_meanwhile)("drop", "db.t", "--purge", "--yes")
    assert refused.exit_code == 5
    assert ids_in(lake.warehouse, "db.kept") == [1]
    assert opened_with(lake, "drop", lost)("drop", "db.kept", "--purge", "--yes").exit_code == 5
    assert files_below(lake.warehouse) == files
    lake.ok("register", "db.t", place)
    assert ids_in(lake.warehouse) == [1]


@pytest.mark.usefixtures("unlocked")
@pytest.mark.parametrize("purge", [(), ("--purge", "--yes")])
def test_another_table_that_takes_the_name_meanwhile_is_not_dropped(
    lake: CommandLine, purge: tuple[str, ...]
) -> None:
    add(lake, 1)

    def replaced(real: Callable[[], Any]) -> Any:
        if names(lake) == ["db.t"]:
            lake.ok("rename", "db.t", "db.before")
            add(lake, 2)
        return real()

    ended = opened_with(lake, "drop", replaced)("drop", "db.t", *purge)

    assert ended.exit_code == (4 if purge else 7), ended
    assert (ids_in(lake.warehouse), ids_in(lake.warehouse, "db.before")) == ([2], [1])


def test_a_drop_reports_the_metadata_file_of_the_last_commit_before_it(lake: CommandLine) -> None:
    add(lake, 1)
    more = iter([2, 3])

    def committed(real: Callable[[], Any]) -> Any:
        for number in more:
            add(lake, number)
            break
        return real()

    done = opened_with(lake, "drop", committed).ok("drop", "db.t")
    lake.ok("register", "db.t", done["result"]["metadata_location"])

    assert ids_in(lake.warehouse) == [1, 2, 3]


def test_a_commit_before_a_purge_drops_the_table_ends_the_purge(lake: CommandLine) -> None:
    add(lake, 1)

    def committed(real: Callable[[], Any]) -> Any:
        add(lake, 2)
        return real()

    ended = opened_with(lake, "drop", committed)("drop", "db.t", "--purge", "--yes")

    assert ended.exit_code == 4, ended
    assert ids_in(lake.warehouse) == [1, 2]


def test_a_purge_that_was_cut_off_goes_on_after_the_table_is_registered_again(
    lake: CommandLine,
) -> None:
    add(lake, 1)
    add(lake, 2)
    place = metadata_path(lake.warehouse)
    lake.ok("drop", "db.t")
    shutil.rmtree(lake.warehouse / "db" / "t" / "data")
    for path in (lake.warehouse / "db" / "t" / "metadata").glob("*-m0.avro"):
        path.unlink()
    lake.ok("register", "db.t", place)
    document = lake.ok("drop", "db.t", "--purge", "--yes")
    assert "cannot be read" in " ".join(document["warnings"])
    assert files_below(lake.warehouse) == set()


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_killed_purge_has_printed_where_it_goes_on(lake: CommandLine, moment: str) -> None:
    add(lake, 1)
    add(lake, 2)
    files = files_below(lake.warehouse)
    point = ("lake.core.io.storage.storage", "Storage.delete", moment)
    printed = killed(lake, point, "--json", "drop", "db.t", "--purge", "--yes")
    assert names(lake) == []
    assert (files_below(lake.warehouse) >= files) == (moment == "before")

    told = json.loads(printed.splitlines()[-1])
    assert (told["command"], told["table"]) == ("drop", "db.t")
    assert f"lake register db.t {told['metadata_location']}" in told["message"]
    lake.ok("register", "db.t", told["metadata_location"])
    assert lake.ok("drop", "db.t", "--purge", "--yes")["status"] == "done"
    assert files_below(lake.warehouse) == set()


def test_a_purge_prints_the_metadata_file_even_if_it_is_quiet(lake: CommandLine) -> None:
    add(lake, 1)
    place = metadata_path(lake.warehouse)
    done = lake("--quiet", "drop", "db.t", "--purge", "--yes")
    assert done.exit_code == 0
    assert f"lake register db.t {place.as_uri()}" in done.stderr
