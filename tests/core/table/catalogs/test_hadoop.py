"""Catalogs that are folders: which metadata file is current, which tables there are, and what is refused."""

from __future__ import annotations

import gzip
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.cli.command_line import CommandLine, Result
from support.tables import flink_fixtures
from support.tables.flink_fixtures import FlinkFixture, canonical_rows
from support.tiers import examples

from lake.core.base.errors import CorruptFileError
from lake.core.io.storage.storage import Storage
from lake.core.table.catalogs.hadoop import MetadataFile, current_metadata

Flink = Callable[[str], FlinkFixture]
HADOOP = flink_fixtures.names(catalog="hadoop")
SUFFIXES = (".metadata.json", ".gz.metadata.json", ".metadata.json.gz")


def lake_on(folder: Path) -> CommandLine:
    return CommandLine(folder, catalog_type="hadoop")


def copied(fixture: FlinkFixture, place: Path) -> Path:
    """Copy a warehouse: its metadata is read from the copy, its manifests from where they were."""
    shutil.copytree(fixture.warehouse, place)
    return place


@pytest.fixture
def orders(flink: Flink, tmp_path: Path) -> Path:
    """The metadata folder of a copied table with versions 1 to 5."""
    return copied(flink("a-append"), tmp_path / "copy") / "db/orders/metadata"


def snapshots_read(metadata: Path) -> int:
    """Return how many snapshots the table of a metadata folder has: version N of `orders` has N - 1."""
    warehouse = metadata.parent.parent.parent
    return len(lake_on(warehouse).ok("snapshots", "db.orders")["result"]["snapshots"])


def failure(result: Result, code: int = 7) -> dict[str, str]:
    assert result.exit_code == code, result
    error: dict[str, str] = result.json()["error"]
    return error


# Flink's tables


@pytest.mark.parametrize("name", HADOOP)
def test_every_table_of_flinks_hadoop_catalog_is_read(flink: Flink, name: str) -> None:
    fixture = flink(name)
    lake = lake_on(fixture.warehouse)

    shown = lake.ok("snapshots", fixture.table)["result"]["snapshots"]
    plan = lake.ok("scan", fixture.table, "--plan")["plan"]

    metadata = json.loads(Path(fixture.truth["table"]["metadata"]).read_text())
    assert {item["snapshot_id"] for item in shown} == {
        str(item["snapshot-id"]) for item in metadata["snapshots"]
    }
    summary = next(
        item["summary"]
        for item in metadata["snapshots"]
        if item["snapshot-id"] == metadata["current-snapshot-id"]
    )
    assert plan["files"] == int(summary["total-data-files"])
    assert plan["records"] == int(summary["total-records"])
    assert plan["delete_files"] == int(summary["total-delete-files"])
    assert flink_fixtures.is_whole(name)


@pytest.mark.parametrize("name", HADOOP)
def test_rows_of_flinks_hadoop_catalog_are_those_that_flink_wrote(
    flink: Flink, name: str, tmp_path: Path
) -> None:
    fixture, output = flink(name), tmp_path / "rows.parquet"

    lake_on(fixture.warehouse).ok("scan", fixture.table, "--output", output)

    assert canonical_rows(pq.read_table(output)) == fixture.rows()


# Which file is current


def test_without_a_hint_the_highest_version_is_read(orders: Path) -> None:
    (orders / "version-hint.text").unlink()

    assert snapshots_read(orders) == 4


@pytest.mark.parametrize(
    "hint", ["", "x", "5.0", "5 ", " 5", "9" * 30, "2147483648", "\n5", "\x00", "5\x00", "٥"]
)
def test_a_hint_that_is_not_a_number_is_ignored(orders: Path, hint: str) -> None:
    (orders / "version-hint.text").write_text(hint)

    assert snapshots_read(orders) == 4


def test_a_hint_of_many_megabytes_is_as_none(orders: Path) -> None:
    (orders / "version-hint.text").write_text("1" * 5_000_000)

    assert snapshots_read(orders) == 4


def test_a_hint_that_is_a_folder_is_as_none(orders: Path) -> None:
    (orders / "version-hint.text").unlink()
    (orders / "version-hint.text").mkdir()

    assert snapshots_read(orders) == 4


@pytest.mark.parametrize("hint", ["1", "3", "+4", "5", "2\n", "2\r\nmore"])
def test_a_stale_hint_is_where_the_search_starts(orders: Path, hint: str) -> None:
    (orders / "version-hint.text").write_text(hint)

    assert snapshots_read(orders) == 4


@pytest.mark.parametrize("hint", ["6", "-1", "100"])
def test_a_hint_to_a_missing_version_is_reported(orders: Path, hint: str) -> None:
    (orders / "version-hint.text").write_text(hint)

    error = failure(lake_on(orders.parent.parent.parent)("--json", "snapshots", "db.orders"))

    assert error["kind"] == "corrupt"
    assert f"metadata file for version {hint} is missing" in error["message"]


def test_the_search_ends_at_a_gap(orders: Path) -> None:
    (orders / "v4.metadata.json").unlink()
    (orders / "version-hint.text").write_text("2")

    assert snapshots_read(orders) == 2

    (orders / "version-hint.text").unlink()
    assert snapshots_read(orders) == 4


@pytest.mark.parametrize("suffix", SUFFIXES[1:])
def test_compressed_metadata_is_read(orders: Path, suffix: str) -> None:
    newest = orders / "v5.metadata.json"
    (orders / f"v5{suffix}").write_bytes(gzip.compress(newest.read_bytes()))
    newest.unlink()

    assert snapshots_read(orders) == 4


def test_other_files_in_the_folder_are_not_versions(orders: Path) -> None:
    (orders / "version-hint.text").unlink()
    content = (orders / "v2.metadata.json").read_bytes()
    for name in ("v9.tmp", "v9.metadata.json.crc", "x.metadata.json", "v.metadata.json", "v9"):
        (orders / name).write_bytes(content)
    (orders / "v8.metadata.json").mkdir()

    assert snapshots_read(orders) == 4


numbers = st.integers(0, 12)
hints = st.one_of(st.none(), numbers.map(str), st.sampled_from(["", "x", "-3", "99999999999"]))


@settings(deadline=None, max_examples=examples(150))
@given(st.dictionaries(numbers, st.sampled_from(SUFFIXES), max_size=6), hints)
def test_versions_are_found_as_java_finds_them(
    tmp_path_factory: pytest.TempPathFactory, versions: dict[int, str], hint: str | None
) -> None:
    table = tmp_path_factory.mktemp("table")
    folder = table / "metadata"
    folder.mkdir()
    for version, suffix in versions.items():
        (folder / f"v{version}{suffix}").touch()
    if hint is not None:
        (folder / "version-hint.text").write_text(hint)
    start = int(hint) if hint and hint in {"-3", *map(str, range(13))} else max(versions, default=0)

    try:
        found = current_metadata(Storage(), str(table))
    except CorruptFileError:
        assert start != 0
        assert start not in versions
        return

    if found is None:
        assert start == 0
        assert 0 not in versions
        return
    while start + 1 in versions:
        start += 1
    assert found == MetadataFile(start, f"{folder}/v{start}{versions[start]}")


# Metadata that cannot be


@pytest.mark.parametrize("size", [0, 1, 500, -1])
def test_half_written_metadata_is_refused(orders: Path, size: int) -> None:
    newest = orders / "v5.metadata.json"
    newest.write_bytes(newest.read_bytes()[:size])

    error = failure(lake_on(orders.parent.parent.parent)("--json", "snapshots", "db.orders"))

    assert error["kind"] == "corrupt"
    messages = ("the metadata of table db.orders cannot be read", "is not table metadata")
    assert any(words in error["message"] for words in messages)


@pytest.mark.parametrize("cut", [0, 10, -9, -1])
def test_half_written_compressed_metadata_is_refused(orders: Path, cut: int) -> None:
    newest = orders / "v5.metadata.json"
    packed = gzip.compress(newest.read_bytes())
    (orders / "v5.gz.metadata.json").write_bytes(packed[:cut])
    newest.unlink()

    error = failure(lake_on(orders.parent.parent.parent)("--json", "snapshots", "db.orders"))

    assert error["kind"] == "corrupt"


@pytest.mark.parametrize(
    "content", [b"\xff\xfe", b"[]", b"{}", b'{"format-version": 0}', b"[" * 9999]
)
def test_a_file_that_is_not_metadata_is_refused(orders: Path, content: bytes) -> None:
    (orders / "v5.metadata.json").write_bytes(content)

    error = failure(lake_on(orders.parent.parent.parent)("--json", "snapshots", "db.orders"))

    assert error["kind"] == "corrupt"


# Names


@pytest.mark.parametrize(
    "name", ["db.../orders", "db/orders.x", "..db.orders", "db.orders/../orders", "db.", "orders"]
)
def test_names_do_not_leave_the_warehouse(orders: Path, name: str) -> None:
    lake = lake_on(orders.parent.parent.parent)

    assert failure(lake("--json", "snapshots", name), 2)["kind"] == "invalid-request"


def test_a_missing_table_is_reported_with_those_that_exist(orders: Path) -> None:
    lake = lake_on(orders.parent.parent.parent)

    error = failure(lake("--json", "snapshots", "db.order"))

    assert error["kind"] == "not-found"
    assert error["hint"] == "tables of db: db.orders"


def test_a_missing_namespace_is_reported_with_those_that_exist(orders: Path) -> None:
    lake = lake_on(orders.parent.parent.parent)

    error = failure(lake("--json", "snapshots", "other.orders"))

    assert error["kind"] == "not-found"
    assert error["hint"] == "namespaces: db"


def test_a_missing_warehouse_is_reported_and_not_created(tmp_path: Path) -> None:
    error = failure(lake_on(tmp_path / "none")("--json", "snapshots", "db.t"))

    assert error["kind"] == "not-found"
    assert "there is no folder" in error["message"]
    assert not (tmp_path / "none").exists()


def test_namespaces_may_be_nested(orders: Path) -> None:
    warehouse = orders.parent.parent.parent
    (warehouse / "a/b").mkdir(parents=True)
    os.rename(orders.parent, warehouse / "a/b/orders")
    lake = lake_on(warehouse)

    assert len(lake.ok("snapshots", "a.b.orders")["result"]["snapshots"]) == 4
    assert failure(lake("--json", "snapshots", "a.b.x"))["hint"] == "tables of a.b: a.b.orders"


def test_names_may_hold_what_urls_may_not(orders: Path) -> None:
    warehouse = orders.parent.parent.parent
    os.rename(orders.parent, warehouse / "db/ord#1?x=%2F ü")

    shown = lake_on(warehouse).ok("snapshots", "db.ord#1?x=%2F ü")

    assert len(shown["result"]["snapshots"]) == 4


def test_the_warehouse_may_be_a_file_url(flink: Flink) -> None:
    fixture = flink("c-upsert")
    lake = CommandLine(Path("/nowhere"), catalog_type="hadoop")
    lake.arguments = lambda *rest: [  # type: ignore[method-assign]
        "--warehouse", f"file://{fixture.warehouse}", "--catalog-type", "hadoop", *map(str, rest)
    ]  # fmt: skip

    assert len(lake.ok("snapshots", fixture.table)["result"]["snapshots"]) == 2


# Configuration


def test_a_hadoop_catalog_may_come_from_pyicebergs_configuration(
    flink: Flink, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fixture = flink("a-append")
    monkeypatch.setenv("PYICEBERG_CATALOG__FLINK__TYPE", "hadoop")
    monkeypatch.setenv("PYICEBERG_CATALOG__FLINK__WAREHOUSE", str(fixture.warehouse))
    lake = CommandLine(tmp_path)
    lake.arguments = lambda *rest: ["--catalog", "flink", *map(str, rest)]  # type: ignore[method-assign]

    assert len(lake.ok("snapshots", fixture.table)["result"]["snapshots"]) == 4


def test_a_configured_hadoop_catalog_without_a_warehouse_is_reported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PYICEBERG_CATALOG__FLINK__TYPE", "HADOOP")
    lake = CommandLine(tmp_path)
    lake.arguments = lambda *rest: ["--catalog", "flink", *map(str, rest)]  # type: ignore[method-assign]

    assert "no warehouse" in failure(lake("--json", "snapshots", "db.t"))["message"]
