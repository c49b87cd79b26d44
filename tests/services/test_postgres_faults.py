"""PostgreSQL that is away, refuses, or goes away in the middle of a commit."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import psycopg2
import pytest
from support.cli.service_line import CATALOG, Service, csv
from support.servers.postgres_server import Postgres
from support.servers.server_process import HOST
from support.tables.iceberg_tables import inject

from lake.core.base.settings import Settings
from lake.core.table.catalogs.selection import open_catalog
from lake.core.transaction.session import Session
from lake.core.transaction.session import open_session as open_real_session


def test_a_database_that_dies_once_the_commit_is_in_takes_no_file_along(
    postgres: Postgres, on_postgres: Service
) -> None:
    quick = ("commit.status-check.min-wait-ms=1", "commit.status-check.num-retries=1")
    first = csv(on_postgres.folder, "first.csv", id=[0])
    options = [part for text in quick for part in ("--property", text)]
    on_postgres.line().ok("ingest", on_postgres.table(), first, "--create", *options)
    database = on_postgres.properties["uri"].rpartition("/")[2]

    def dying(commit: Callable[[], Any]) -> Any:
        commit()
        postgres.run(f"ALTER DATABASE {database} ALLOW_CONNECTIONS false")
        postgres.run(
            f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{database}'"
        )
        raise ConnectionError("server closed the connection unexpectedly")

    def faulty(settings: Settings) -> Session:
        session = open_real_session(settings)
        inject(session, [dying])
        return session

    line = on_postgres.line()
    line.open_session = faulty
    second = csv(on_postgres.folder, "second.csv", id=[1])
    result = line("--json", "ingest", on_postgres.table(), second, "--run-id", "r")
    assert (result.exit_code, result.json()["status"]) == (5, "unknown"), result

    postgres.run(f"ALTER DATABASE {database} ALLOW_CONNECTIONS true")
    assert on_postgres.rows() == [(0,), (1,)]
    again = on_postgres.line().ok("ingest", on_postgres.table(), second, "--run-id", "r")
    assert again["status"] == "nothing-to-do"
    assert on_postgres.unreferenced() == set()


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ((r":[^:@/]+@", ":canary-wrong-1f@"), 9),
        ((r"@[^/]+/", f"@{HOST}:1/"), 10),
        ((r"/catalog\d+$", "/canary_none"), 7),
        ((r"psycopg2", "pg8000"), 7),
        ((r"^postgresql", "nonsense"), 7),
    ],
    ids=["password", "port", "database", "driver", "dialect"],
)
def test_why_a_database_cannot_be_opened_becomes_an_exit_code(
    on_postgres: Service, change: tuple[str, str], code: int
) -> None:
    uri = re.sub(*change, on_postgres.properties["uri"])
    broken = Service(
        "broken", {**on_postgres.properties, "uri": uri}, on_postgres.folder, on_postgres.list_files
    )
    result = broken.line()("--json", "snapshots", "db.t")

    assert result.exit_code == code, result
    assert "canary-wrong" not in result.stdout + result.stderr
    assert "canary-postgres" not in result.stdout + result.stderr


def test_a_database_that_does_not_answer_is_given_up(
    postgres: Postgres, on_postgres: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGCONNECT_TIMEOUT", "2")
    postgres.server.pause()
    try:
        result = on_postgres.line()("--json", "snapshots", "db.t")
    finally:
        postgres.server.resume()

    assert (result.exit_code, result.json()["error"]["kind"]) == (10, "timed-out"), result


def test_a_commit_behind_a_transaction_left_open_does_not_wait_for_ever(
    postgres: Postgres, on_postgres: Service
) -> None:
    first = csv(on_postgres.folder, "first.csv", id=[0])
    quick = ("--property", "commit.status-check.num-retries=0")
    on_postgres.line().ok("ingest", on_postgres.table(), first, "--create", *quick)
    uri = on_postgres.properties["uri"]
    short = {**on_postgres.properties, "uri": f"{uri}?options=-c%20lock_timeout%3D500"}
    hurried = Service("hurried", short, on_postgres.folder, on_postgres.list_files)
    with psycopg2.connect(uri.replace("+psycopg2", "")) as connection:
        with connection.cursor() as cursor:
            cursor.execute("SELECT * FROM iceberg_tables FOR UPDATE")
            result = hurried.line()("--json", "ingest", on_postgres.table(), first)
            cursor.execute("SHOW lock_timeout")
            assert cursor.fetchall() == [("0",)]
    assert (result.exit_code, result.json()["status"]) == (5, "unknown"), result
    assert on_postgres.rows() == [(0,)]

    engine = open_catalog(Settings(catalog=CATALOG)).handle.engine  # type: ignore[attr-defined]
    with engine.connect() as connection:
        limit = connection.exec_driver_sql("SHOW lock_timeout").scalar()
    assert limit == "500ms"
    on_postgres.line()
    engine = open_catalog(Settings(catalog=CATALOG)).handle.engine  # type: ignore[attr-defined]
    with engine.connect() as connection:
        assert connection.exec_driver_sql("SHOW lock_timeout").scalar() == "1min"
