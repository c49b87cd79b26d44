"""PostgreSQL that is away, refuses, or goes away in the middle of a commit."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from postgres_server import Postgres
from server_process import HOST, free_port
from service_line import Service, csv
from table_support import inject

from lake.core.session import Session
from lake.core.session import open_session as open_real_session
from lake.core.settings import Settings


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
        ((r"@[^/]+/", f"@{HOST}:{free_port()}/"), 7),
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
