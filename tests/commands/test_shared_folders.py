"""Tables whose folders are those of another table: no command deletes the other one's files."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch
from uuid import uuid4

import pytest
from hostile.edits import opened, written
from support.cli.command_line import CommandLine
from support.tables.iceberg_tables import files_below, ids_in
from support.tables.metadata_edits import metadata_path, read_metadata
from world.reference import local

from lake.core.base.errors import LakeError, NotAuthorisedError, StorageError, TimedOutError
from lake.core.io.storage.storage import Storage
from lake.core.table.catalogs.hadoop import HadoopCatalog
from lake.core.table.catalogs.pyiceberg_catalog import PyIcebergBackend
from lake.core.transaction.garbage import other_histories, other_tables
from lake.core.transaction.garbage.reachability import Reachability

_EXPIRE = ("--older-than", "0s", "--retain-last", "1", "--unsafe-retention")
_PURGE = ("--purge", "--yes")
_CLEAN = ("--older-than", "0s", "--unsafe-retention", "--max-share", "100%", "--delete")
_MAINTAINING = {"expire": _EXPIRE, "clean": _CLEAN}


def load(lake: CommandLine, table: str = "db.t", times: int = 2, *options: str) -> None:
    for _ in range(times):
        lake.load("id\n1\n2\n", "--create", *options, table=table)


def another_uuid(plain: dict[str, Any], _: Path) -> None:
    plain["table-uuid"] = str(uuid4())


def in_the_data_folder(plain: dict[str, Any], folder: Path) -> None:
    plain.update({"table-uuid": str(uuid4()), "location": f"file://{folder}/data"})


def with_the_data_folder(plain: dict[str, Any], folder: Path) -> None:
    another_uuid(plain, folder)
    plain["location"] = str(folder.parent / "other")
    plain["properties"]["write.data.path"] = f"{folder}//data/"


def with_the_table_as_data_folder(plain: dict[str, Any], folder: Path) -> None:
    another_uuid(plain, folder)
    plain["location"] = str(folder.parent / "other")
    plain["properties"]["write.data.path"] = f"file:{folder}"


OTHERS = [
    lambda plain, folder: None,
    another_uuid,
    in_the_data_folder,
    with_the_data_folder,
    with_the_table_as_data_folder,
]
OTHER_NAMES = ["a copy", "another UUID", "data as location", "data as data", "location as data"]
Change = Callable[[dict[str, Any], Path], None]


def copied(lake: CommandLine, change: Change) -> Path:
    """Copy the metadata of db.t to another folder, with a change."""
    plain = read_metadata(lake.warehouse)
    change(plain, lake.warehouse / "db" / "t")
    folder = lake.warehouse / "db" / "other" / "metadata"
    folder.mkdir(parents=True)
    path = folder / metadata_path(lake.warehouse).name
    path.write_text(json.dumps(plain))
    return path


def enter(lake: CommandLine, path: Path) -> None:
    """Add a table to the catalog without asking lake."""
    with sqlite3.connect(lake.warehouse / "catalog.db") as database:
        database.execute(
            "INSERT INTO iceberg_tables (catalog_name, table_namespace, table_name, metadata_location) "
            "VALUES ('lake', 'db', 'other', ?)",
            (f"file://{path}",),
        )


@pytest.mark.parametrize("change", OTHERS, ids=OTHER_NAMES)
def test_a_table_in_the_folders_of_another_is_not_registered(
    lake: CommandLine, change: Change
) -> None:
    load(lake)

    refused = lake("register", "db.other", copied(lake, change))

    assert refused.exit_code == 3, refused
    assert "in its folders, already: db.t" in refused.stderr
    assert lake("show", "db.other").exit_code == 7


@pytest.mark.parametrize("change", OTHERS, ids=OTHER_NAMES)
@pytest.mark.parametrize(
    "command", [("expire", *_EXPIRE), ("drop", *_PURGE), ("clean", *_CLEAN)], ids=lambda one: one[0]
)
def test_no_file_of_a_table_in_the_folders_of_another_is_deleted(
    lake: CommandLine, change: Change, command: tuple[str, ...]
) -> None:
    load(lake, times=3)
    enter(lake, copied(lake, change))
    before = files_below(lake.warehouse)

    refused = lake(command[0], "db.other", *command[1:])

    assert refused.exit_code == 3, refused
    assert "hint:" in refused.stderr
    assert files_below(lake.warehouse) == before
    assert ids_in(lake.warehouse) == [1, 1, 1, 2, 2, 2]


def test_no_file_is_deleted_for_a_copy_of_metadata_though_no_catalog_lists_the_table(
    lake: CommandLine,
) -> None:
    load(lake, times=3)
    enter(lake, copied(lake, lambda *_: None))
    with sqlite3.connect(lake.warehouse / "catalog.db") as database:
        database.execute("DELETE FROM iceberg_tables WHERE table_name = 't'")
    before = files_below(lake.warehouse)

    for verb, *options in (("expire", *_EXPIRE), ("drop", *_PURGE), ("clean", *_CLEAN)):
        refused = lake(verb, "db.other", *options)
        assert refused.exit_code == 3, refused
        assert "is outside of the table's folders" in refused.stderr
    assert files_below(lake.warehouse) == before


@pytest.mark.parametrize("below", ["t", "t/data"])
@pytest.mark.parametrize(
    "command", [("expire", *_EXPIRE), ("drop", *_PURGE)], ids=lambda one: one[0]
)
def test_a_hadoop_table_with_the_data_folder_of_another_deletes_nothing(
    warehouse: Path, below: str, command: tuple[str, ...]
) -> None:
    lake = CommandLine(warehouse, catalog_type="hadoop")
    load(lake, times=3)
    shutil.copytree(warehouse / "db" / "t", warehouse / "db" / "other")
    for path in (warehouse / "db" / "other" / "metadata").glob("v*.metadata.json"):
        plain = json.loads(path.read_text())
        plain["table-uuid"] = "4f1c4a5e-6d64-4d5e-8c0f-0f7ad0f1d1aa"
        plain["location"] = f"{warehouse}/db/other"
        plain["properties"]["write.data.path"] = f"{warehouse}/db/{below}"
        path.write_text(json.dumps(plain))
    before = files_below(warehouse)

    refused = lake(command[0], "db.other", *command[1:])

    assert refused.exit_code == 3, refused
    assert "is inside the folder of another table" in refused.stderr
    assert files_below(warehouse) == before


def test_metadata_that_no_command_could_load_is_not_registered(
    lake: CommandLine, tmp_path: Path
) -> None:
    load(lake)
    plain = read_metadata(lake.warehouse)
    lake.ok("drop", "db.t")
    for number, change in enumerate(
        (
            {"location": "/"},
            {"location": "file:///tmp/../etc/x"},
            {"location": "relative"},
            {"snapshots": [*plain["snapshots"], plain["snapshots"][0]]},
        )
    ):
        path = tmp_path / f"0000{number}-x.metadata.json"
        path.write_text(json.dumps({**plain, **change}))
        refused = lake("register", "db.t", path)
        assert refused.exit_code == 7, refused
        assert path.name in refused.stderr
    assert lake.ok("tables")["result"]["tables"] == []


def test_a_table_can_be_registered_again_and_purged(lake: CommandLine) -> None:
    load(lake)
    path = metadata_path(lake.warehouse)
    lake.ok("drop", "db.t")
    lake.ok("register", "db.again", path)
    lake.ok("expire", "db.again", *_EXPIRE)
    lake.ok("drop", "db.again", *_PURGE)
    assert not list(lake.warehouse.rglob("*.parquet"))


@pytest.mark.parametrize("catalog_type", ["sql", "hadoop"])
def test_a_data_folder_outside_of_the_location_is_cleaned_only_if_the_user_names_it(
    warehouse: Path, tmp_path: Path, catalog_type: str
) -> None:
    """Several tables may write to one folder, and no catalog contains which ones do."""
    lake, shared = CommandLine(warehouse, catalog_type=catalog_type), tmp_path / "shared"
    for name in ("db.t", "db.other"):
        load(lake, name, 2, "--property", f"write.data.path=file://{shared}")
    files = files_below(shared)

    plan = lake.ok("clean", "db.t", *_CLEAN)["plan"]

    assert (plan["orphans"], plan["kept"]["other-table"]) == (0, 2)
    assert files_below(shared) == files
    lake.ok("drop", "db.other", *(_PURGE if catalog_type == "hadoop" else ()))
    (shared / "lost.parquet").write_bytes(b"lost")
    lake.ok("clean", "db.t", *_CLEAN, "--location", shared)
    assert not (shared / "lost.parquet").exists()
    assert len(files_below(shared)) == 2


def _behind_a_link(folder: Path) -> str:
    link = folder.parent / "link"
    link.symlink_to(folder)
    return f"file://{link}"


def _below_a_link(folder: Path) -> str:
    link = folder.parent.parent / "link"
    link.symlink_to(folder.parent)
    return f"file://{link}/{folder.name}"


SPELLINGS: dict[str, Callable[[Path], str]] = {
    "a link": _behind_a_link,
    "a link above": _below_a_link,
    "a host": lambda folder: f"file://localhost{folder}",
    "another host": lambda folder: f"file://other.example{folder}",
    "one slash": lambda folder: f"file:{folder}",
}


def disguised(lake: CommandLine, location: str) -> Path:
    """Copy the metadata and manifests of db.t to another folder, with another spelling of its folder."""
    plain, own = read_metadata(lake.warehouse), f"file://{lake.warehouse}/db/t"
    assert plain["location"] == own
    folder = lake.warehouse / "db" / "other" / "metadata"
    folder.mkdir(parents=True)
    for snapshot in plain["snapshots"]:
        listed = opened(Path(local(snapshot["manifest-list"])).read_bytes())
        for row in listed.records:
            path = Path(local(row["manifest_path"]))
            manifest = opened(path.read_bytes())
            for entry in manifest.records:
                file = entry["data_file"]
                file["file_path"] = file["file_path"].replace(own, location)
            data = written(manifest)
            (folder / path.name).write_bytes(data)
            row.update(manifest_path=f"file://{folder}/{path.name}", manifest_length=len(data))
        name = Path(snapshot["manifest-list"]).name
        (folder / name).write_bytes(written(listed))
        snapshot["manifest-list"] = f"file://{folder}/{name}"
    plain.update({"table-uuid": str(uuid4()), "location": location, "metadata-log": []})
    plain["properties"]["write.metadata.path"] = f"file://{folder}"
    path = folder / metadata_path(lake.warehouse).name
    path.write_text(json.dumps(plain))
    return path


@pytest.mark.parametrize("spelling", SPELLINGS.values(), ids=SPELLINGS)
def test_the_folder_of_another_table_is_recognized_however_it_is_spelled(
    lake: CommandLine, spelling: Callable[[Path], str]
) -> None:
    load(lake, times=3)
    path = disguised(lake, spelling(lake.warehouse / "db" / "t"))
    before = files_below(lake.warehouse)

    refused = lake("register", "db.other", path)
    assert refused.exit_code == 3, refused
    assert "in its folders, already: db.t" in refused.stderr

    enter(lake, path)
    for verb, *options in (("expire", *_EXPIRE), ("drop", *_PURGE), ("clean", *_CLEAN)):
        refused = lake(verb, "db.other", *options)
        assert refused.exit_code == 3, refused
    assert files_below(lake.warehouse) == before
    assert ids_in(lake.warehouse) == [1, 1, 1, 2, 2, 2]


def test_a_location_outside_of_which_the_metadata_is_must_not_be_another_tables_in_any_catalog(
    lake: CommandLine,
) -> None:
    """Not every catalog can list the locations of its tables."""
    load(lake, times=3)
    own = lake.warehouse / "db" / "t"
    enter(lake, disguised(lake, f"file://{own}"))
    with sqlite3.connect(lake.warehouse / "catalog.db") as database:
        database.execute("DELETE FROM iceberg_tables WHERE table_name = 't'")
    before = files_below(own)

    for verb, *options in (("expire", *_EXPIRE), ("drop", *_PURGE), ("clean", *_CLEAN)):
        refused = lake(verb, "db.other", *options)
        assert refused.exit_code == 3, refused
        assert "inside the folder of another table" in refused.stderr
    assert files_below(own) == before


@pytest.mark.parametrize("verb", ["expire", "clean"])
def test_no_file_is_deleted_while_a_folder_above_the_data_cannot_be_listed(
    lake: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    load(lake, "db.t", 3, "--property", f"write.data.path=file://{tmp_path}/far/data")
    before = files_below(tmp_path)

    real = Storage.list_folder

    def list_folder(storage: Storage, folder: str) -> Any:
        if folder.endswith("/far/metadata"):
            raise TimedOutError(f"{folder}: busy")
        return real(storage, folder)

    monkeypatch.setattr(Storage, "list_folder", list_folder)

    assert lake(verb, "db.t", *_MAINTAINING[verb]).exit_code == 10
    assert files_below(tmp_path) == before


@pytest.mark.parametrize("inside", ["data/theirs", "data", "data/theirs/deep"])
def test_a_clean_spares_the_data_folder_of_another_table(lake: CommandLine, inside: str) -> None:
    load(lake)
    folder = lake.warehouse / "db" / "t"
    load(lake, "db.u", 2, "--property", f"write.data.path=file://{folder}/{inside}")
    (folder / "data" / "orphan.parquet").write_text("of a run that failed")
    theirs = ids_in(lake.warehouse, "db.u")

    kept = lake.ok("clean", "db.t", *_CLEAN)["plan"]["kept"]

    assert ids_in(lake.warehouse, "db.u") == theirs == [1, 1, 2, 2]
    assert kept["other-table"] == 2 + (inside == "data")
    assert (folder / "data" / "orphan.parquet").exists() == (inside == "data")
    assert ids_in(lake.warehouse) == [1, 1, 2, 2]


def test_a_clean_spares_a_folder_in_the_data_folder_of_another_table(lake: CommandLine) -> None:
    load(lake)
    folder = lake.warehouse / "db" / "t"
    load(lake, "db.u", 2, "--property", f"write.data.path=file://{folder}/data/theirs")
    path = current_metadata(lake, "t")
    document = json.loads(path.read_text())
    document["location"] = f"file://{folder}/data/theirs"
    document["properties"]["write.metadata.path"] = f"file://{folder}/metadata"
    path.write_text(json.dumps(document))

    lake("clean", "db.t", *_CLEAN)

    assert ids_in(lake.warehouse, "db.u") == [1, 1, 2, 2]


def test_a_signal_while_other_tables_are_read_ends_a_clean(
    lake: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    load(lake)
    folder = lake.warehouse / "db" / "t"
    load(lake, "db.u", 2, "--property", f"write.data.path=file://{folder}/data/theirs")
    before = files_below(lake.warehouse)

    def asked(_: object) -> Any:
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(other_tables, "roots_of", asked)
    ended = lake("clean", "db.t", *_CLEAN)

    assert ended.exit_code == 143, ended
    assert files_below(lake.warehouse) == before


_FAILING = [(StorageError("broken"), 7), (TimedOutError("busy"), 10)]
_REMOVING = pytest.mark.parametrize(
    "command", [("clean", *_CLEAN), ("drop", *_PURGE)], ids=["clean", "purge"]
)


def nested_data(catalog_type: str, folder: Path, name: str = "db.u") -> CommandLine:
    """Make a table whose data is in a folder of ``db.t``, in a catalog in a folder."""
    lake = CommandLine(folder / "warehouse", catalog_type=catalog_type)
    load(lake)
    theirs = lake.warehouse / "db" / "t" / "data" / "theirs"
    load(lake, name, 2, "--property", f"write.data.path=file://{theirs}")
    return lake


def failing_for(monkeypatch: pytest.MonkeyPatch, name: str, error: LakeError) -> None:
    """Let a table's metadata be read in vain."""
    folder = f"/{name.replace('.', '/')}/"
    real_load, real_parse = PyIcebergBackend.load, other_tables.parse

    def load_other(backend: PyIcebergBackend, wanted: str) -> Any:
        if wanted == name:
            raise error
        return real_load(backend, wanted)

    def parse_other(content: bytes, place: str) -> Any:
        if folder in place:
            raise error
        return real_parse(content, place)

    monkeypatch.setattr(PyIcebergBackend, "load", load_other)
    monkeypatch.setattr(other_tables, "parse", parse_other)


@pytest.mark.parametrize(("error", "code"), _FAILING)
@_REMOVING
@pytest.mark.parametrize("catalog_type", ["sql", "hadoop"])
def test_no_file_is_deleted_while_another_table_cannot_be_read(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    catalog_type: str,
    command: tuple[str, ...],
    error: LakeError,
    code: int,
) -> None:
    lake = nested_data(catalog_type, tmp_path)
    before = files_below(lake.warehouse)
    failing_for(monkeypatch, "db.u", error)
    verb, *options = command
    refused = lake(verb, "db.t", *options)

    assert refused.exit_code == code, refused
    assert "table db.u cannot be read" in refused.stderr
    assert files_below(lake.warehouse) == before


def test_a_table_in_a_store_that_is_gone_is_counted_in_a_warning(
    lake: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    load(lake)
    load(lake, "db.u")
    real = Storage.read

    def read(storage: Storage, location: str, **options: Any) -> bytes:
        if location.startswith("s3:"):
            raise TimedOutError("the host name cannot be resolved")
        return real(storage, location, **options)

    monkeypatch.setattr(Storage, "read", read)
    with contextlib.closing(sqlite3.connect(lake.warehouse / "catalog.db")) as database, database:
        changed = database.execute(
            "UPDATE iceberg_tables SET metadata_location = 's3://gone/u/metadata/1.metadata.json' "
            "WHERE table_name = 'u'"
        )
        assert changed.rowcount == 1
    lost = lake.warehouse / "db/t/data/lost.parquet"
    lost.write_text("x")

    done = lake.ok("clean", "db.t", *_CLEAN)

    assert not lost.exists()
    assert "table db.u" in done["warnings"][0]


@_REMOVING
@pytest.mark.parametrize("error", [NotAuthorisedError("refused"), *(one for one, _ in _FAILING)])
def test_a_namespace_that_cannot_be_listed_hides_no_other_one(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: tuple[str, ...],
    error: LakeError,
) -> None:
    lake = nested_data("hadoop", tmp_path, "later.u")
    load(lake, "early.v", 1)
    theirs = files_below(lake.warehouse / "db/t/data/theirs")
    before = files_below(lake.warehouse)
    real = HadoopCatalog.list_tables

    def list_tables(catalog: HadoopCatalog, namespace: Any) -> Any:
        if namespace == ("early",):
            raise error
        return real(catalog, namespace)

    monkeypatch.setattr(HadoopCatalog, "list_tables", list_tables)
    verb, *options = command
    ended = lake(verb, "db.t", *options)

    assert ended.exit_code == (3 if isinstance(error, NotAuthorisedError) else error.exit_code)
    assert files_below(lake.warehouse) == before
    if isinstance(error, NotAuthorisedError):
        ended = lake(verb, "db.t", *options, "--ignore-unreadable")
        assert ended.exit_code == 0, ended
        assert "namespace early" in ended.stderr
        assert files_below(lake.warehouse / "db/t/data/theirs") == theirs


@_REMOVING
def test_no_file_is_deleted_while_the_namespaces_in_another_cannot_be_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    lake = nested_data("hadoop", tmp_path, "db.deep.u")
    before = files_below(lake.warehouse)
    real = HadoopCatalog.list_namespaces

    def list_namespaces(catalog: HadoopCatalog, namespace: Any = ()) -> Any:
        if namespace:
            raise TimedOutError("busy")
        return real(catalog, namespace)

    monkeypatch.setattr(HadoopCatalog, "list_namespaces", list_namespaces)
    verb, *options = command

    assert lake(verb, "db.t", *options).exit_code == 10
    assert files_below(lake.warehouse) == before


def test_a_clean_spares_the_data_folder_of_another_table_behind_a_link(lake: CommandLine) -> None:
    load(lake)
    link = lake.warehouse / "link"
    link.symlink_to(lake.warehouse / "db" / "t" / "data")
    load(lake, "db.u", 2, "--property", f"write.data.path=file://{link}/theirs")

    lake.ok("clean", "db.t", *_CLEAN)

    assert ids_in(lake.warehouse, "db.u") == [1, 1, 2, 2]


def test_a_purge_spares_the_data_folder_of_another_table(lake: CommandLine) -> None:
    """Even if the metadata of the purged table names the other one's files."""
    load(lake)
    folder = lake.warehouse / "db" / "t"
    load(lake, "db.u", 2, "--property", f"write.data.path=file://{folder}/data/theirs")
    take_list(lake)

    lake("drop", "db.t", *_PURGE)

    assert ids_in(lake.warehouse, "db.u") == [1, 1, 2, 2]


@pytest.mark.parametrize("verb", ["expire", "drop", "clean"])
@pytest.mark.parametrize("folder", ["data/theirs", "metadata/theirs", "theirs"])
def test_a_table_in_the_folder_of_another_keeps_its_files_whatever_its_layout(
    lake: CommandLine, folder: str, verb: str
) -> None:
    """Even if the metadata of the outer table names the files of the inner one."""
    load(lake, times=3)
    place = f"file://{lake.warehouse}/db/t/{folder}"
    properties = [f"write.{kind}.path={place}" for kind in ("data", "metadata")]
    load(lake, "db.u", 2, *(part for text in properties for part in ("--property", text)))
    take_list(lake)
    before = files_below(lake.warehouse / "db" / "t" / folder)

    lake(verb, "db.t", *{"expire": _EXPIRE, "drop": _PURGE, "clean": _CLEAN}[verb])

    assert files_below(lake.warehouse / "db" / "t" / folder) == before
    assert ids_in(lake.warehouse, "db.u") == [1, 1, 2, 2]


def take_list(lake: CommandLine) -> None:
    """Let the first snapshot of db.t have the files of db.u."""
    ours, theirs = (current_metadata(lake, name) for name in ("t", "u"))
    document = json.loads(ours.read_text())
    document["snapshots"][0]["manifest-list"] = json.loads(theirs.read_text())["snapshots"][-1][
        "manifest-list"
    ]
    document["snapshots"][0]["sequence-number"] = 2
    ours.write_text(json.dumps(document))


def test_a_purge_spares_a_file_that_the_log_names_with_dots(lake: CommandLine) -> None:
    load(lake)
    folder = lake.warehouse / "db" / "t"
    load(lake, "db.u", 2, "--property", f"write.data.path=file://{folder}/data/theirs")
    (victim, *_) = sorted((folder / "data" / "theirs").rglob("*.parquet"))
    dotted = f"{folder}/../t/data/{victim.relative_to(folder / 'data')}"
    path = current_metadata(lake, "t")
    document = json.loads(path.read_text())
    document["metadata-log"].insert(0, {"timestamp-ms": 1, "metadata-file": dotted})
    path.write_text(json.dumps(document))

    lake("drop", "db.t", *_PURGE)

    assert ids_in(lake.warehouse, "db.u") == [1, 1, 2, 2]


@pytest.mark.parametrize("content", [b"\xba\xff", b"{}", b"[]", b"", b"{"])
def test_a_clean_is_refused_if_the_log_names_a_file_that_is_not_metadata(
    lake: CommandLine, content: bytes
) -> None:
    load(lake)
    path = current_metadata(lake, "t")
    document = json.loads(path.read_text())
    Path(local(document["metadata-log"][0]["metadata-file"])).write_bytes(content)
    before = files_below(lake.warehouse)

    refused = lake("clean", "db.t", *_CLEAN)

    assert refused.exit_code == 7, refused
    assert "is not table metadata" in refused.stderr
    assert files_below(lake.warehouse) == before


@pytest.mark.parametrize("content", [b"\xba\xff", b"{}", b"[]", b"", b"{"])
def test_a_clean_keeps_a_file_with_the_name_of_metadata_that_is_not_metadata(
    lake: CommandLine, content: bytes
) -> None:
    load(lake)
    kept = lake.warehouse / "db" / "t" / "metadata" / "00000-x.metadata.json"
    kept.write_bytes(content)

    lake.ok("clean", "db.t", *_CLEAN)

    assert kept.exists()


def current_metadata(lake: CommandLine, name: str) -> Path:
    with sqlite3.connect(lake.warehouse / "catalog.db") as database:
        query = "SELECT metadata_location FROM iceberg_tables WHERE table_name = ?"
        return Path(local(database.execute(query, (name,)).fetchone()[0]))


@pytest.mark.parametrize("behind_a_link", [False, True])
def test_a_file_in_the_data_folder_of_another_table_is_not_added(
    lake: CommandLine, *, behind_a_link: bool
) -> None:
    """The other table deletes it some time after a compaction."""
    pool = lake.warehouse / "pool"
    load(lake, "db.t", 1, "--property", f"write.data.path=file://{pool}")
    load(lake, "db.u", 1)
    if behind_a_link:
        (lake.warehouse / "link").symlink_to(pool)
    folder = lake.warehouse / "link" if behind_a_link else pool
    (file,) = folder.glob("*.parquet")

    refused = lake("add-files", "db.u", file)

    assert refused.exit_code == 3, refused
    assert "is in a folder of another table" in refused.stderr
    assert ids_in(lake.warehouse, "db.u") == [1, 2]


@pytest.mark.parametrize("verb", list(_MAINTAINING))
def test_a_failed_commit_that_removes_its_metadata_file_meanwhile_stops_nothing(
    lake: CommandLine, verb: str
) -> None:
    load(lake)
    lake.ok("compact", "db.t", "--rewrite-all")
    current = metadata_path(lake.warehouse)
    failed = current.with_name(f"99999-{uuid4()}.metadata.json")
    failed.write_bytes(current.read_bytes())

    def removed(storage: Any, location: str) -> Any:
        failed.unlink(missing_ok=True)
        return read(storage, location)

    read = other_histories.find_document
    with patch.object(other_histories, "find_document", removed):
        document = lake.ok(verb, "db.t", *_MAINTAINING[verb])

    assert document["status"] == ("done" if verb == "expire" else "nothing-to-do")
    assert not failed.exists()
    assert ids_in(lake.warehouse) == [1, 1, 2, 2]


@pytest.mark.parametrize("verb", list(_MAINTAINING))
def test_commits_that_are_made_during_the_planning_are_not_those_of_another_catalog(
    lake: CommandLine, verb: str
) -> None:
    load(lake)
    lake.ok("compact", "db.t", "--rewrite-all")
    module = {
        "expire": "lake.core.maintain.expiration.plan",
        "clean": "lake.core.maintain.orphans.plan",
    }[verb]
    real = Reachability

    def others_commit(*arguments: Any, **options: Any) -> Reachability:
        patched.stop()
        load(lake, times=3)
        return real(*arguments, **options)

    patched = patch(f"{module}.Reachability", others_commit)
    patched.start()
    document = lake.ok(verb, "db.t", *_MAINTAINING[verb])

    assert not any("another catalog" in text for text in document["warnings"])
    assert ids_in(lake.warehouse) == [1] * 5 + [2] * 5


def test_a_purge_ignores_what_a_killed_commit_wrote_in_part(lake: CommandLine) -> None:
    load(lake)
    current = metadata_path(lake.warehouse)
    current.with_name(f"99999-{uuid4()}.metadata.json").write_bytes(current.read_bytes()[:1000])

    assert lake("drop", "db.t", *_PURGE).exit_code == 0


def test_a_command_on_many_tables_reads_each_metadata_file_of_other_tables_once(
    lake: CommandLine,
) -> None:
    names = ("db.a", "db.b", "db.c")
    for name in names:
        load(lake, name)
    read: list[str] = []
    parse = other_tables.parse

    def counted(data: bytes, place: str) -> Any:
        read.append(place)
        return parse(data, place)

    with patch.object(other_tables, "parse", counted):
        lake.ok("expire", "db.*", *_EXPIRE)

    # Each table is seen by the others as it was before its commit, as it is after it, or both.
    assert len(read) == len(set(read)) <= 2 * len(names)
    assert all(len(ids_in(lake.warehouse, name)) == 4 for name in names)
