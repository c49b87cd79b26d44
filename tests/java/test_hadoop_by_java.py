"""Tables that Iceberg Java keeps in its HadoopCatalog, read and written in place, by turns with it."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.cli.command_line import CommandLine
from support.tables.built_once import BuiltOnce

pytestmark = pytest.mark.java


def made_by(java: Any, warehouse: Path, name: str, properties: str = "") -> None:
    java.sql(warehouse, f"CREATE NAMESPACE IF NOT EXISTS {{h}}.{name.rpartition('.')[0]}")
    java.sql(
        warehouse,
        f"CREATE TABLE {{h}}.{name} (id BIGINT, name STRING) USING iceberg PARTITIONED BY (bucket(2, id))"
        + properties,
    )
    for first in (0, 10, 20):
        java.sql(
            warehouse,
            f"INSERT INTO {{h}}.{name} SELECT id, concat('n', id) FROM range({first}, {first + 10})",
        )


@pytest.fixture
def made(java: Any, built_once: BuiltOnce) -> Path:
    """A warehouse with the table `db.t` of Java's."""
    return built_once.folder("warehouse", lambda folder: made_by(java, folder, "db.t"))


def read(warehouse: Path, name: str, output: Path) -> list[tuple[str, str]]:
    lake = CommandLine(warehouse, catalog_type="hadoop")
    lake.ok("scan", name, "--output", output, "--replace")
    with output.open(newline="") as file:
        return sorted((row["id"], row["name"]) for row in csv.DictReader(file))


@pytest.mark.parametrize(
    ("name", "properties"),
    [
        ("db.plain", ""),
        ("a.b.nested", ""),
        ("db.packed", " TBLPROPERTIES ('write.metadata.compression-codec' = 'gzip')"),
        (
            "db.cleaned",
            (
                " TBLPROPERTIES ('write.metadata.delete-after-commit.enabled' = 'true',"
                " 'write.metadata.previous-versions-max' = '1')"
            ),
        ),
    ],
)
def test_tables_of_javas_hadoop_catalog_are_read(
    java: Any, warehouse: Path, name: str, properties: str, tmp_path: Path
) -> None:
    made_by(java, warehouse, name, properties)
    expected = java.sql(warehouse, f"SELECT cast(id AS string) id, name FROM {{h}}.{name}")

    rows = read(warehouse, name, tmp_path / "rows.csv")

    assert len(rows) == 30
    assert rows == sorted((row["id"], row["name"]) for row in expected)


@pytest.mark.parametrize("hint", [None, "1", "x", "3\n", "4 ", ""])
def test_both_find_the_same_version_behind_a_broken_hint(
    java: Any, made: Path, hint: str | None, tmp_path: Path
) -> None:
    metadata = made / "db/t/metadata"
    # The local file system of Hadoop checks this one.
    (metadata / ".version-hint.text.crc").unlink()
    if hint is None:
        (metadata / "version-hint.text").unlink()
    else:
        (metadata / "version-hint.text").write_text(hint)
    (metadata / "v3.metadata.json").unlink()
    found = java.sql(made, "SELECT count(*) n FROM {h}.db.t") if hint != "3\n" else None

    if found is None:
        result = CommandLine(made, catalog_type="hadoop")("snapshots", "db.t")
        assert result.exit_code == 7
        with pytest.raises(RuntimeError, match="Metadata file for version 3 is missing"):
            java.sql(made, "SELECT count(*) n FROM {h}.db.t")
    else:
        assert len(read(made, "db.t", tmp_path / "rows.csv")) == found[0]["n"]


# By turns


def file_of(folder: Path, ids: range) -> Path:
    path = folder / f"{ids.start}-{ids.stop}.parquet"
    pq.write_table(pa.table({"id": list(ids), "name": [f"l{number}" for number in ids]}), path)
    return path


def read_by_java(java: Any, warehouse: Path, name: str) -> list[tuple[str, str]]:
    rows = java.sql(warehouse, f"SELECT cast(id AS string) id, name FROM {{h}}.{name}")
    return sorted((row["id"], row["name"]) for row in rows)


@pytest.mark.parametrize("maker", ["java", "lake"])
@pytest.mark.parametrize(
    "properties",
    [
        {},
        {"write.metadata.compression-codec": "gzip", "format-version": "3"},
        {
            "write.metadata.delete-after-commit.enabled": "true",
            "write.metadata.previous-versions-max": "1",
            "format-version": "1",
        },
    ],
)
def test_java_and_lake_commit_by_turns(
    java: Any, warehouse: Path, maker: str, properties: dict[str, str], tmp_path: Path
) -> None:
    lake = CommandLine(warehouse, catalog_type="hadoop")
    name = "a.b.t"
    if maker == "java":
        listed = ", ".join(f"'{key}' = '{value}'" for key, value in properties.items())
        made_by(java, warehouse, name, f" TBLPROPERTIES ({listed})" if listed else "")
    else:
        given = [f"--property={key}={value}" for key, value in properties.items()]
        lake.ok("ingest", name, file_of(tmp_path, range(30)), "--create", *given)
    expected = set(range(30))

    def both_see_it() -> None:
        rows = read_by_java(java, warehouse, name)
        assert read(warehouse, name, tmp_path / "rows.csv") == rows
        assert {int(number) for number, _ in rows} == expected
        assert len(rows) == len(expected)

    lake.ok("ingest", name, file_of(tmp_path, range(30, 40)))
    expected |= set(range(30, 40))
    both_see_it()
    java.sql(warehouse, f"INSERT INTO {{h}}.{name} VALUES (40, 'j40')")
    expected |= {40}
    lake.ok("ingest", name, file_of(tmp_path, range(41, 43)))
    expected |= {41, 42}
    java.sql(warehouse, f"DELETE FROM {{h}}.{name} WHERE id < 5")
    expected -= set(range(5))
    both_see_it()
    lake.ok("compact", name, "--rewrite-all")
    both_see_it()
    java.sql(warehouse, f"INSERT INTO {{h}}.{name} VALUES (50, 'j50')")
    lake.ok("expire", name, "--older-than", "0s", "--unsafe-retention")
    java.sql(warehouse, f"INSERT INTO {{h}}.{name} VALUES (51, 'j51')")
    lake.ok("ingest", name, file_of(tmp_path, range(52, 54)))
    expected |= {50, 51, 52, 53}
    both_see_it()

    metadata = warehouse / "a/b/t/metadata"
    versions = sorted(
        int(path.name[1:].partition(".")[0]) for path in metadata.glob("v*.metadata.json")
    )
    assert versions == list(range(versions[0], versions[-1] + 1))
    assert (versions[0] == 1) == ("write.metadata.previous-versions-max" not in properties)
    assert (metadata / "version-hint.text").read_text() == str(versions[-1])


@pytest.mark.parametrize("hint", ["1", "x", None])
def test_java_commits_on_what_lake_left_behind_a_broken_hint(
    java: Any, made: Path, hint: str | None, tmp_path: Path
) -> None:
    lake = CommandLine(made, catalog_type="hadoop")
    metadata = made / "db/t/metadata"
    for number in range(5, 12):
        # As files that another writer left and that lake's must not be checked with.
        (metadata / f".v{number}.metadata.json.crc").write_bytes(b"crc\x00\x00\x00\x02\x00stale")
    for first in (30, 40):
        lake.ok("ingest", "db.t", file_of(tmp_path, range(first, first + 10)))
        if hint is None:
            (metadata / "version-hint.text").unlink()
        else:
            (metadata / "version-hint.text").write_text(hint)

    java.sql(made, "INSERT INTO {h}.db.t VALUES (50, 'j50')")
    lake.ok("ingest", "db.t", file_of(tmp_path, range(51, 52)))

    rows = read_by_java(java, made, "db.t")
    assert sorted(int(number) for number, _ in rows) == list(range(52))
    assert read(made, "db.t", tmp_path / "rows.csv") == rows
    assert (metadata / "version-hint.text").read_text() == "8"
