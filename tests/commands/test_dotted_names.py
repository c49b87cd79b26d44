"""Tables with a dot in their names, which no command can name: each list names them, and nothing forgets them."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

import pytest
from support.cli.command_line import CommandLine
from support.tables.iceberg_tables import make_table, pyiceberg_catalog

MESSAGE = "no command can name the table odd.dot.ted: a dot is within a part of its name"


@pytest.fixture
def lake(tmp_path: Path) -> CommandLine:
    """`lake` on the tables odd.plain and dot.ted of the namespace odd."""
    warehouse = tmp_path / "warehouse"
    make_table(warehouse, "odd.plain")
    make_table(warehouse, "odd.dotted")
    make_table(warehouse, "db.t")
    with sqlite3.connect(warehouse / "catalog.db") as database:
        database.execute(
            "UPDATE iceberg_tables SET table_name = 'dot.ted' WHERE table_name = 'dotted'"
        )
    return CommandLine(warehouse, engine="inline")


def test_the_list_of_tables_warns_of_a_table_that_it_cannot_read(lake: CommandLine) -> None:
    for words in ([], ["odd"], ["odd.*"], ["odd.dot.ted"]):
        document = lake.ok("tables", *words)
        assert document["warnings"] == [MESSAGE]
    assert [row["table"] for row in lake.ok("tables", "odd")["result"]["tables"]] == ["odd.plain"]
    assert lake.ok("tables", "db")["warnings"] == []


def test_health_has_a_row_with_the_reason(lake: CommandLine) -> None:
    document = lake("--json", "health", "odd").json()

    rows = {row["table"]: row["error"] for row in document["result"]["tables"]}
    assert rows["odd.plain"] is None
    assert rows["odd.dot.ted"]["message"] == MESSAGE
    assert lake("health", "odd").exit_code == 6
    assert lake("health", "db").exit_code == 0


def test_maintenance_warns_and_the_other_tables_get_theirs(lake: CommandLine) -> None:
    document = lake.ok("maintain", "odd", "--only", "stats")

    assert document["warnings"] == [MESSAGE]
    assert document["result"]["tables"] == 1
    assert lake.ok("maintain", "db", "--dry-run")["warnings"] == []
    by_name = lake.ok("maintain", "odd.dot.ted", "--dry-run")
    assert (by_name["warnings"], by_name["plan"]["tables"]) == ([MESSAGE], 0)


def test_a_table_of_the_same_full_name_in_an_inner_namespace_is_not_hidden(
    lake: CommandLine,
) -> None:
    pyiceberg_catalog(lake.warehouse).create_namespace("odd.dot")
    make_table(lake.warehouse, "odd.dot.ted")

    rows = lake.ok("tables")["result"]["tables"]

    assert [row["table"] for row in rows] == ["db.t", "odd.plain", "odd.dot.ted"]
    assert lake.ok("maintain", "--dry-run")["plan"]["tables"] == 3


def test_a_verb_for_many_tables_has_a_row_for_it(lake: CommandLine) -> None:
    result = lake("--json", "expire", "odd.*")

    assert result.exit_code == 6
    rows = {row["table"]: row["error"] for row in result.json()["result"]["tables"]}
    assert rows["odd.plain"] is None
    assert rows["odd.dot.ted"]["message"] == MESSAGE


def test_many_such_names_are_few_warnings(lake: CommandLine) -> None:
    with sqlite3.connect(lake.warehouse / "catalog.db") as database:
        database.executemany(
            "INSERT INTO iceberg_tables (catalog_name, table_namespace, table_name, metadata_location) "
            "VALUES ('lake', 'odd', ?, 'file:///nowhere')",
            [(f"x.{number:03}",) for number in range(100)],
        )

    warnings = lake.ok("tables")["warnings"]

    assert len(warnings) == 11
    assert warnings[-1] == "no command can name 91 more tables with such names"


def test_files_of_such_a_table_are_not_orphans_of_another_one(
    lake: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As a REST catalog, which does not list metadata files.
    monkeypatch.setattr("lake.core.table.catalogs.sql.SqlBackend.metadata_locations", lambda _: [])

    folder = Path(lake.table("odd.plain").location().removeprefix("file://")) / "data"
    folder.mkdir(exist_ok=True)
    orphan = folder / "00000-0-3f2b8c1e-5d4a-4f6b-9c7d-8e9f0a1b2c3d-00001.parquet"
    orphan.write_bytes(b"PAR1")
    os.utime(orphan, (1_600_000_000, 1_600_000_000))

    refused = lake("--json", "clean", "odd.plain", "--delete")

    assert refused.exit_code == 3
    message = refused.json()["error"]["message"]
    assert "table odd.dot.ted cannot be read, and may own files" in message
    assert orphan.exists()
