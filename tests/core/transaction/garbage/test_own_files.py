"""Only files in a table's own folders may be deleted, whatever the names of files are."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.tables.iceberg_tables import make_table, open_session
from support.tiers import examples

from lake.core.io.storage.storage import Storage
from lake.core.table.catalogs.catalog import Table
from lake.core.transaction.garbage.nested_tables import NestedTables
from lake.core.transaction.garbage.own_files import in_own_folders

PARTS = (
    *("data", "metadata", "inner", "day=1", "a b", "a%20b", "é", "\U0001f600", "..", ".", "", ".x"),
    *("%2e%2e", "x#y", "x?y", "x\n", "\u202e", "v1.metadata.json", "V9.METADATA.JSON"),
    *("version-hint.text", "x.metadata.json.gz", "inner/data", "inner/metadata"),
)
paths = st.lists(st.sampled_from(PARTS), min_size=1, max_size=5).map("/".join)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    """Return a table with another table in a folder of its data."""
    warehouse = tmp_path_factory.mktemp("warehouse")
    make_table(warehouse)
    found = open_session(warehouse).table("db.t")
    inner = Path(found.metadata.location.removeprefix("file://")) / "data" / "inner"
    (inner / "metadata").mkdir(parents=True)
    (inner / "metadata" / "v1.metadata.json").touch()
    return found


def owned(table: Table, *locations: str) -> list[str]:
    files = pa.table({"path": pa.array(locations, pa.string())})
    found: list[str] = in_own_folders(table, files)["path"].to_pylist()
    return found


@settings(max_examples=examples(500), deadline=None)
@given(st.lists(paths, min_size=1, max_size=4), st.sampled_from(["", "/data", "/metadata", "/.."]))
def test_a_file_that_may_be_deleted_is_in_the_tables_folders_and_not_in_those_of_another_table(
    table: Table, below: list[str], start: str
) -> None:
    root = table.metadata.location
    locations = [f"{root}{start}/{path}" for path in below]
    found = owned(table, *locations)

    # Whether a file may be deleted does not depend on the others.
    assert found == [location for location in locations if owned(table, location)]
    folder = os.path.realpath(root.removeprefix("file://"))
    for location in found:
        real = os.path.realpath(location.removeprefix("file://"))
        assert real.startswith(f"{folder}/")
        for name in ("data", "metadata"):
            assert not real.startswith(f"{folder}/data/inner/{name}/")
        name = os.path.basename(real).lower()
        assert ".metadata.json" not in name
        assert name != "version-hint.text"
        assert not location.endswith("/")
        assert not set("#?\n\u202e") & set(location)
    assert table.metadata_location not in found


@pytest.mark.parametrize(
    "name",
    ["data/x.parquet", "data/day=1/a b.parquet", "data/é/a%20b.parquet", "metadata/snap-1.avro"],
)
def test_ordinary_files_of_the_table_may_be_deleted(table: Table, name: str) -> None:
    plain = f"{table.metadata.location.removeprefix('file://')}/{name}"
    for location in (plain, f"file:{plain}", f"file://{plain}", plain.replace("/data/", "//data/")):
        assert owned(table, location) == [location]


@pytest.mark.parametrize(
    "location",
    [
        "/x.parquet",
        "s3://b/t/data/x.parquet",
        "",
        "data/x.parquet",
        "file:",
        "\x00",
        "/" + "x" * 9000,
    ],
)
def test_files_outside_of_the_table_may_not_be_deleted(table: Table, location: str) -> None:
    assert owned(table, location) == []
    own = f"{table.metadata.location}/data/x.parquet"
    assert owned(table, location, own) == [own]


def test_the_current_metadata_file_may_not_be_deleted(table: Table) -> None:
    current = table.metadata_location
    copy = f"{table.metadata.location}/data/{current.rpartition('/')[2]}"
    assert owned(table, current, copy) == []


@pytest.mark.parametrize(
    "name", ["data/x.parquet", "metadata/snap-1.avro", "data/a/data/x", "data/é"]
)
def test_files_of_a_table_in_a_folder_of_this_one_may_not_be_deleted(
    table: Table, name: str
) -> None:
    root = table.metadata.location
    own = f"{root}/data/beside/{name}"
    assert owned(table, f"{root}/data/inner/{name}", own) == [own]


def test_without_files_there_is_nothing_to_delete(table: Table) -> None:
    assert owned(table) == []


def test_a_table_in_a_folder_of_another_one_is_found_by_its_metadata(tmp_path: Path) -> None:
    for name in ("t/data/in/metadata", "t/data/é %41/metadata", "t/data/no/metadata", "t/metadata"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("t/data/in", "t/data/é %41", "t"):
        (tmp_path / name / "metadata" / "00000-a.metadata.json").touch()
    root = str(tmp_path / "t")
    # A root may be spelled with a slash at the end, or as a URL.
    for spelled in (root, f"{root}/", f"file://{root}"):
        nested = NestedTables(Storage({}), [spelled])
        belongs = {
            "data/in/data/x": True,
            "data/in/metadata/x": True,
            "data/é %41/data/x": True,
            "data/é A/data/x": False,
            "data/in/x": False,
            "data/no/data/x": False,
            "data/data/x": False,
            "metadata/x": False,
            "x": False,
        }
        for name, expected in belongs.items():
            assert nested.owns(f"{spelled.rstrip('/')}/{name}") is expected, (spelled, name)
