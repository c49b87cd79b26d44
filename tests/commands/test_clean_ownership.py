"""`lake clean` removes no file of others from a folder that a table's location or properties name."""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Iterable
from pathlib import Path

import pytest
from support.cli.command_line import CommandLine
from support.tables.iceberg_tables import files_below, ids_in

from lake.core.data.rows.file_names import hashed

_MONTH = 30 * 24 * 3600
_DOCUMENTS = (
    *("README.txt", "notes.md", "photo.jpg", "table.parquet", "catalog.db", "part-00000.orc"),
    *("reports/2025/q1.pdf", "reports/summary.parquet", "data.csv", "a=1/README.txt"),
    "part-00000-8f6ef118-cd39-4391-b863-bfabac8e4ffe-c000.snappy.parquet",
)
# Names as Spark's, Flink's, PyIceberg's and lake's writers make them.
_WRITTEN = (
    "00003-7-{}-00001.parquet",
    "00000-0-{}-00012-deletes.parquet",
    "00000-1-{}.parquet",
    "00001-1700000000000-{}-00001.avro",
    "00002-3-{}-00001-deletes.puffin",
)


def load(lake: CommandLine, name: str = "db.t", *options: object) -> None:
    for _ in range(3):
        lake.load("id,a\n1,1\n2,2\n", "--create", *options, table=name)


def plant(folder: Path, names: Iterable[str]) -> list[Path]:
    paths = [folder / name for name in names]
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("somebody's")
    return paths


def age(folder: Path) -> None:
    """Let all files be a month old."""
    moment = time.time() - _MONTH
    for path in folder.rglob("*"):
        os.utime(path, (moment, moment))


def written() -> list[str]:
    return [name.format(uuid.uuid4()) for name in _WRITTEN]


@pytest.mark.parametrize("partitioned", [False, True])
@pytest.mark.parametrize(
    "path", ["data", "metadata", "object-storage"], ids=lambda one: f"write.{one}.path"
)
def test_documents_of_others_in_a_folder_that_a_property_names_stay(
    lake: CommandLine, tmp_path: Path, path: str, partitioned: bool
) -> None:
    shared = tmp_path / "shared"
    keys = ["write.data.path"] if path == "object-storage" else []
    options = [f"{key}=file://{shared}" for key in (*keys, f"write.{path}.path")]
    more = [part for text in options for part in ("--property", text)]
    load(lake, "db.t", *more, *(("--partition-by", "a") if partitioned else ()))
    documents = plant(shared, _DOCUMENTS)
    age(tmp_path)

    plain = lake.ok("clean", "db.t", "--delete")
    lake.ok("clean", "db.t", "--delete", "--max-share", "100%")

    assert plain["plan"]["orphans"] == 0
    assert all(document.exists() for document in documents)
    assert sorted(ids_in(lake.warehouse)) == [1, 1, 1, 2, 2, 2]


def test_documents_of_others_in_the_folder_of_the_table_stay(
    lake: CommandLine, tmp_path: Path
) -> None:
    load(lake)
    root = lake.warehouse / "db" / "t"
    documents = plant(root, [*_DOCUMENTS, "data/README.txt", "data/a/b.csv", "metadata/notes.md"])
    age(tmp_path)

    done = lake.ok("clean", "db.t", "--delete", "--max-share", "100%")
    shown = lake("clean", "db.t")

    assert all(document.exists() for document in documents)
    assert done["plan"]["orphans"] == 0
    assert done["plan"]["kept"]["foreign"] >= len(["README.txt", "data/README.txt"])
    assert "with names of others" in shown.stderr + shown.stdout

    lake.ok("clean", "db.t", "--delete", "--max-share", "100%", "--location", root)
    assert not documents[0].exists()


@pytest.mark.parametrize("outer", ["warehouse", "the folder above"])
def test_a_data_folder_that_contains_warehouses_keeps_what_is_in_them(
    tmp_path: Path, outer: str
) -> None:
    lake = CommandLine(tmp_path / "all" / "mine", engine="inline")
    theirs = CommandLine(tmp_path / "all" / "theirs", engine="inline")
    load(theirs, "db.u", "--partition-by", "a")
    folder = lake.warehouse if outer == "warehouse" else tmp_path / "all"
    load(lake, "db.v")
    load(lake, "db.t", "--property", f"write.data.path=file://{folder}")
    lost = plant(folder, written())
    age(tmp_path)

    done = lake.ok("clean", "db.t", "--delete", "--max-share", "100%")

    assert done["result"]["deleted"] == len(lost)
    assert not any(path.exists() for path in lost)
    for warehouse, name in ((lake, "db.t"), (lake, "db.v"), (theirs, "db.u")):
        assert sorted(ids_in(warehouse.warehouse, name)) == [1, 1, 1, 2, 2, 2]


@pytest.mark.parametrize("partitioned", [False, True])
def test_orphans_of_writers_go_from_a_data_folder_elsewhere(
    lake: CommandLine, tmp_path: Path, partitioned: bool
) -> None:
    far = tmp_path / "far"
    options = ("--partition-by", "a") if partitioned else ()
    load(lake, "db.t", "--property", f"write.data.path=file://{far}", *options)
    lost = plant(far / "a=1" if partitioned else far, written())
    kept = plant(far, ["old/" + name for name in written()] + ["lost.parquet"])
    if partitioned:
        kept += plant(far, written())
        kept += plant(far, ["a=9/" + name for name in written()])
    age(tmp_path)

    done = lake.ok("clean", "db.t", "--delete", "--max-share", "100%")

    assert done["result"]["deleted"] == len(lost)
    assert not any(path.exists() for path in lost)
    assert all(path.exists() for path in kept)

    lake.ok("clean", "db.t", "--delete", "--max-share", "100%", "--location", far)
    assert not any(path.exists() for path in kept)
    assert sorted(ids_in(lake.warehouse)) == [1, 1, 1, 2, 2, 2]


@pytest.mark.parametrize("by_partition", ["true", "false"])
def test_orphans_go_where_an_object_store_layout_spreads_the_tables_files(
    lake: CommandLine, tmp_path: Path, by_partition: str
) -> None:
    far = tmp_path / "far"
    properties = (
        f"write.data.path=file://{far}",
        "write.object-storage.enabled=true",
        f"write.object-storage.partitioned-paths={by_partition}",
    )
    more = [part for text in properties for part in ("--property", text)]
    load(lake, "db.t", *more, "--partition-by", "a")
    within = "a=1/" if by_partition == "true" else ""
    names = [within + name for name in written()]
    lost = plant(far, [f"{hashed(name)}/db/t/{name}" for name in names])
    kept = plant(far, [f"{hashed(name)}/db/other/{name}" for name in names])
    kept += plant(far, [f"0000/1111/0000/11110000/db/t/{name}" for name in names])
    age(tmp_path)

    done = lake.ok("clean", "db.t", "--delete", "--max-share", "100%")

    assert done["result"]["deleted"] == len(lost)
    assert not any(path.exists() for path in lost)
    assert all(path.exists() for path in kept)
    assert sorted(ids_in(lake.warehouse)) == [1, 1, 1, 2, 2, 2]


@pytest.mark.parametrize("beside", ["inner", "outer", "same"])
@pytest.mark.parametrize("catalog_type", ["sql", "hadoop"])
def test_a_data_folder_that_another_table_uses_is_not_cleaned(
    tmp_path: Path, catalog_type: str, beside: str
) -> None:
    lake = CommandLine(tmp_path / "warehouse", engine="inline", catalog_type=catalog_type)
    far = tmp_path / "far"
    folders = {"inner": far / "t" / "u", "outer": far, "same": far / "t"}
    load(lake, "db.own", "--property", f"write.data.path=file://{far}/t")
    load(lake, "db.other", "--property", f"write.data.path=file://{folders[beside]}")
    own, theirs = plant(far / "t", written()), plant(folders[beside], written())
    age(tmp_path)

    lake.ok("clean", "db.own", "--delete", "--max-share", "100%")

    assert all(path.exists() for path in theirs)
    assert any(path.exists() for path in own) == (beside != "inner")
    assert lake.ok("scan", "db.own")["result"]["rows"] == 6
    assert lake.ok("scan", "db.other")["result"]["rows"] == 6


@pytest.mark.parametrize("verb", ["clean", "drop"])
@pytest.mark.parametrize("catalog_type", ["sql", "hadoop"])
def test_no_file_is_deleted_while_a_table_that_may_own_it_is_damaged(
    tmp_path: Path, catalog_type: str, verb: str
) -> None:
    lake = CommandLine(tmp_path / "warehouse", engine="inline", catalog_type=catalog_type)
    load(lake)
    load(lake, "db.damaged")
    for path in (lake.warehouse / "db" / "damaged" / "metadata").glob("*.metadata.json"):
        path.write_text("{}")
    (lost,) = plant(lake.warehouse / "db" / "t" / "data", ["lost.parquet"])
    age(tmp_path)
    before = files_below(lake.warehouse)
    removing = {"clean": ["--delete", "--max-share", "100%"], "drop": ["--purge", "--yes"]}[verb]

    refused = lake(verb, "db.t", *removing)

    assert refused.exit_code == 3, refused
    assert "table db.damaged cannot be read" in refused.stderr
    assert "--ignore-unreadable" in refused.stderr
    assert files_below(lake.warehouse) == before
    # A list removes nothing.
    listed = lake.ok("clean", "db.t")
    assert listed["plan"]["orphans"] == 1
    assert "table db.damaged" in listed["warnings"][0]

    lake.ok(verb, "db.t", *removing, "--ignore-unreadable")
    assert lost.exists() == (verb == "drop")


@pytest.mark.parametrize("inside", ["data", "data/theirs", "theirs"])
@pytest.mark.parametrize("catalog_type", ["sql", "hadoop"])
def test_an_expiry_keeps_the_files_that_another_table_has_in_the_tables_folders(
    tmp_path: Path, catalog_type: str, inside: str
) -> None:
    """Another program gave the files of one table to another one, whose snapshots name them."""
    lake = CommandLine(tmp_path / "warehouse", engine="inline", catalog_type=catalog_type)
    load(lake)
    folder = lake.warehouse / "db" / "t" / inside
    load(lake, "db.u", "--property", f"write.data.path=file://{folder}")
    adopt_list(lake)
    lake.load("id,a\n1,1\n2,2\n", "--overwrite")

    done = lake.ok(
        *("expire", "db.t", "--older-than", "0s", "--retain-last", "1", "--unsafe-retention")
    )

    assert sorted(ids_in_any(lake, "db.u")) == [1, 1, 1, 2, 2, 2]
    assert sorted(ids_in_any(lake, "db.t")) == [1, 2]
    assert any("are not deleted" in text for text in done["warnings"])


def adopt_list(lake: CommandLine) -> None:
    """Let the first snapshot of db.t have the files of db.u."""
    newest = {
        name: max((lake.warehouse / "db" / name / "metadata").glob("*.metadata.json"), key=version)
        for name in "tu"
    }
    ours, theirs = (json.loads(newest[name].read_text()) for name in "tu")
    for key in ("manifest-list", "summary"):
        ours["snapshots"][0][key] = theirs["snapshots"][-1][key]
    newest["t"].write_text(json.dumps(ours))


def version(path: Path) -> int:
    return int(path.name.lstrip("v").split(".")[0].split("-")[0])


def ids_in_any(lake: CommandLine, name: str) -> list[int]:
    found = lake("scan", name, "--output", "-", "--output-format", "json")
    return [json.loads(line)["id"] for line in found.stdout.splitlines()]
