"""Tables that Iceberg Java keeps in its HadoopCatalog, read where they lie."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest
from command_line import CommandLine

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
    java: Any, warehouse: Path, hint: str | None, tmp_path: Path
) -> None:
    made_by(java, warehouse, "db.t")
    metadata = warehouse / "db/t/metadata"
    # The local file system of Hadoop checks this one.
    (metadata / ".version-hint.text.crc").unlink()
    if hint is None:
        (metadata / "version-hint.text").unlink()
    else:
        (metadata / "version-hint.text").write_text(hint)
    (metadata / "v3.metadata.json").unlink()
    found = java.sql(warehouse, "SELECT count(*) n FROM {h}.db.t") if hint != "3\n" else None

    if found is None:
        result = CommandLine(warehouse, catalog_type="hadoop")("snapshots", "db.t")
        assert result.exit_code == 7
        with pytest.raises(RuntimeError, match="Metadata file for version 3 is missing"):
            java.sql(warehouse, "SELECT count(*) n FROM {h}.db.t")
    else:
        assert len(read(warehouse, "db.t", tmp_path / "rows.csv")) == found[0]["n"]
