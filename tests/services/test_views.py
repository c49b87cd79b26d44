"""Views in a REST catalog: a load into a view's name is refused; sources without rows make tables there too."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField
from pyiceberg.view.metadata import ViewVersion
from support.cli.service_line import Service, csv
from support.servers import maven
from support.servers.rest_server import RestServer

SCHEMA = Schema(NestedField(1, "id", LongType(), required=False), schema_id=0)


@pytest.fixture
def with_views(rest: tuple[RestServer, str], tmp_path: Path) -> Iterator[Service]:
    """A REST catalog of its own whose database has views; `rest` skips if no server can run."""
    assert maven.missing() is None
    warehouse = f"file://{tmp_path}/tables"
    server = RestServer({"warehouse": warehouse, "jdbc.schema-version": "V1"})
    yield Service("rest", {"type": "rest", "uri": server.uri}, tmp_path, set)
    server.end()


def make_view(catalog: RestCatalog, name: str) -> None:
    version = {
        "version-id": 1,
        "timestamp-ms": 1_600_000_000_000,
        "schema-id": 0,
        "summary": {},
        "representations": [{"type": "sql", "sql": "SELECT 1 id", "dialect": "spark"}],
        "default-namespace": ["db"],
    }
    catalog.create_view(name, SCHEMA, ViewVersion(**version))


def test_the_name_of_a_view_is_reported_as_a_view(with_views: Service, tmp_path: Path) -> None:
    catalog, lake = with_views.catalog(), with_views.line()
    assert isinstance(catalog, RestCatalog)
    catalog.create_namespace("db")
    make_view(catalog, "db.v")
    source = csv(tmp_path, "a.csv", id=[1])

    for arguments in (
        ("ingest", "db.v", source, "--create"),
        ("ingest", "db.v", source, "--create", "--dry-run"),
        ("scan", "db.v"),
    ):
        result = lake(*arguments)
        assert result.exit_code == 7, result
        assert "db.v is a view, not a table" in result.stderr
    assert list((tmp_path / "tables").rglob("*.parquet")) == []
    assert lake.ok("ingest", "db.t", source, "--create")["status"] == "done"


@pytest.mark.parametrize("service", ["postgres", "s3", "rest"], indirect=True)
def test_a_source_without_rows_makes_a_table(service: Service, tmp_path: Path) -> None:
    empty = tmp_path / "empty.csv"
    empty.write_text("id\n")
    lake, table = service.line(), service.table()

    made = lake.ok("ingest", table, empty, "--create", "--run-id", "r")
    again = lake.ok("ingest", table, empty, "--create", "--run-id", "r")

    assert (made["status"], again["status"]) == ("done", "nothing-to-do")
    assert service.rows() == []
    assert service.unreferenced() == set()
    lake.ok("ingest", table, csv(tmp_path, "a.csv", id=[1]))
    assert service.rows() == [("1",)]
