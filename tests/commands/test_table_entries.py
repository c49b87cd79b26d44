"""`lake drop`, `lake rename` and `lake register` through the command line; PyIceberg reads the rows."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.cli.command_line import CommandLine
from support.faults.killed_runs import killed
from support.tables.iceberg_tables import files_below, ids_in, open_session, pyiceberg_catalog
from support.tables.metadata_edits import metadata_path

from lake.core.session import Session


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


def test_an_older_metadata_file_is_registered_with_a_warning(lake: CommandLine) -> None:
    add(lake, 1)
    first = metadata_path(lake.warehouse)
    add(lake, 2)
    lake.ok("drop", "db.t")
    document = lake.ok("register", "db.t", first)
    assert "which is newer" in document["warnings"][0]
    assert ids_in(lake.warehouse) == [1]


def test_tables_of_a_hadoop_catalog_are_not_dropped_renamed_or_registered(
    warehouse: Path, tmp_path: Path
) -> None:
    lake = CommandLine(warehouse, catalog_type="hadoop")
    add(lake, 1)
    for arguments in (
        ("drop", "db.t"),
        ("drop", "db.t", "--purge", "--yes"),
        ("rename", "db.t", "db.u"),
        ("register", "db.u", warehouse / "db" / "t" / "metadata" / "v1.metadata.json"),
    ):
        refused = lake(*arguments)
        assert refused.exit_code == 3
        assert "hadoop catalog" in refused.stderr
    output = tmp_path / "rows.csv"
    lake.ok("scan", "db.t", "--output", output)
    assert output.read_text().split() == ['"id"', "1"]


def opened_with(
    lake: CommandLine, method: str, fault: Callable[[Callable[[], Any]], Any]
) -> CommandLine:
    session = open_session(lake.warehouse)
    real = getattr(session.catalog.handle, method)
    setattr(session.catalog.handle, method, lambda *given: fault(lambda: real(*given)))

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
    assert opened_with(lake, "drop_table", never_sent)("drop", "db.u").exit_code != 0
    opened_with(lake, "drop_table", lost).ok("drop", "db.u")
    assert opened_with(lake, "register_table", never_sent)("register", "db.t", place).exit_code != 0
    assert names(lake) == []
    opened_with(lake, "register_table", lost).ok("register", "db.t", place)
    assert ids_in(lake.warehouse) == [1]


def test_no_file_is_deleted_if_the_drop_was_not_confirmed(lake: CommandLine) -> None:
    add(lake, 1)
    place = metadata_path(lake.warehouse)
    files = files_below(lake.warehouse)

    def renamed_meanwhile(real: Callable[[], Any]) -> Any:
        lake.ok("rename", "db.t", "db.kept")
        return real()

    refused = opened_with(lake, "drop_table", renamed_meanwhile)("drop", "db.t", "--purge", "--yes")
    assert refused.exit_code == 5
    assert ids_in(lake.warehouse, "db.kept") == [1]
    assert (
        opened_with(lake, "drop_table", lost)("drop", "db.kept", "--purge", "--yes").exit_code == 5
    )
    assert files_below(lake.warehouse) == files
    lake.ok("register", "db.t", place)
    assert ids_in(lake.warehouse) == [1]


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
    point = ("lake.core.storage.storage", "Storage.delete", moment)
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
