"""`lake catalogs` through the command line."""

from __future__ import annotations

import json
import os
import socket
import threading
from base64 import b64decode
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.cli.command_line import CommandLine, Result
from support.cli.service_line import ConfiguredLine

from lake.core.read.inspection import catalogs as module

SECRET = "canary-catalog-9f31c8"


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of a server that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


class _Repeating(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        """Refuse a request with the secrets in it."""
        login = self.headers.get("Authorization", "").removeprefix("Basic ")
        said = f"not {self.headers.get('X-Tenant')}, {b64decode(login + '==')!r}"
        body = json.dumps({"error": {"message": said, "type": "No", "code": 401}}).encode()
        self.send_response(401)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def repeating() -> Iterator[str]:
    """The address of a server whose messages contain the secrets that it gets."""
    with HTTPServer(("127.0.0.1", 0), _Repeating) as server:
        threading.Thread(target=server.serve_forever).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture
def line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ConfiguredLine:
    monkeypatch.chdir(tmp_path)
    return ConfiguredLine(tmp_path, engine="inline")


@pytest.fixture
def home() -> Path:
    return Path(os.environ["PYICEBERG_HOME"])


def configure(folder: Path, **catalogs: dict[str, Any]) -> None:
    file = folder / ".pyiceberg.yaml"
    file.write_text(yaml.safe_dump({"catalog": catalogs}))
    file.chmod(0o600)


def sql(folder: Path, name: str) -> dict[str, Any]:
    """Return a catalog on SQLite with one namespace."""
    properties = {"uri": f"sqlite:///{folder}/{name}.db", "warehouse": f"file://{folder}/{name}"}
    source = folder / "rows.csv"
    source.write_text("id\n1\n")
    configure(Path(os.environ["PYICEBERG_HOME"]), **{name: properties})
    ConfiguredLine(folder, engine="inline").ok("ingest", "db.t", source, "--create")
    return properties


def rows(result: Result) -> dict[str, Any]:
    return {row["name"]: row for row in result.json()["result"]["catalogs"]}


def test_each_catalog_is_listed_with_its_place_and_whether_it_answers(
    line: ConfiguredLine, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = sql(tmp_path, "good")
    away = {"type": "rest", "uri": "http://127.0.0.1:1", "token": SECRET}
    configure(home, good=good, away=away)
    monkeypatch.setenv("PYICEBERG_CATALOG__ODD__TYPE", "reest")

    result = line("--json", "catalogs")

    assert (result.exit_code, result.json()["status"]) == (6, "partial")
    found = rows(result)
    assert list(found) == ["away", "good", "odd"]
    assert found["good"]["type"] == "sql"
    assert found["good"]["sources"] == [f"{home}/.pyiceberg.yaml"]
    assert (found["good"]["answers"], found["good"]["namespaces"]) == (True, 1)
    assert found["good"]["warehouse"] == good["warehouse"]
    assert (found["away"]["answers"], found["away"]["error"]["kind"]) == (False, "timed-out")
    assert found["odd"]["sources"] == ["PYICEBERG_CATALOG__ODD__TYPE"]
    assert found["odd"]["error"]["kind"] == "bad-input"
    assert not any(row["default"] for row in found.values())
    shown = line("catalogs")
    assert "3 catalogs; 2 did not answer" in shown.stdout + shown.stderr
    assert SECRET not in result.stdout + shown.stdout + shown.stderr


def test_a_password_in_an_address_is_masked(line: ConfiguredLine, home: Path) -> None:
    uri = f"postgresql+psycopg2://lake:{SECRET}@127.0.0.1:1/iceberg"
    configure(home, prod={"type": "sql", "uri": uri})

    result = line("--json", "catalogs", "--no-check")

    row = rows(result)["prod"]
    assert (result.exit_code, row["answers"], row["seconds"]) == (0, None, None)
    assert row["uri"] == "postgresql+psycopg2://***@127.0.0.1:1/iceberg"
    assert row["default"]


@pytest.mark.parametrize("verb", [["catalogs"], ["tables", "--all-catalogs"]])
def test_a_secret_that_a_server_repeats_is_masked(
    line: ConfiguredLine, home: Path, repeating: str, verb: list[str]
) -> None:
    login = {"type": "basic", "basic": {"username": "lake", "password": f"{SECRET}-1"}}
    rest = {"type": "rest", "uri": repeating}
    configure(
        home,
        one={**rest, "auth": login},
        other={**rest, "header.X-Tenant": f"{SECRET}-2"},
        private={"type": "hadoop", "warehouse": "/no/such/folder"},
    )

    text = line("--json", *verb).stdout

    assert SECRET not in text
    # The name of a catalog is not that of a property.
    assert "there is no folder /no/such/folder" in text


def test_a_catalog_that_is_silent_does_not_delay_the_others(
    line: ConfiguredLine, home: Path, tmp_path: Path, silent: str
) -> None:
    good = sql(tmp_path, "good")
    configure(home, good=good)
    # What it imports may take longer the first time.
    assert rows(line("--json", "catalogs", "--timeout", "60s"))["good"]["answers"]
    configure(home, good=good, silent={"type": "rest", "uri": silent})

    result = line("--json", "catalogs", "--timeout", "5s")

    found = rows(result)
    assert result.exit_code == 6
    assert found["good"]["answers"]
    assert found["silent"]["error"] == {
        "kind": "timed-out",
        "message": "catalog silent did not answer within 5 s",
        "hint": "check its address, and that its server runs",
    }


def test_an_answer_that_is_too_late_changes_no_row(
    line: ConfiguredLine, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(home, good=sql(tmp_path, "good"))
    begun, late = threading.Event(), threading.Event()
    asking: list[threading.Thread] = []

    def wait(_catalog: object) -> None:
        asking.append(threading.current_thread())
        begun.set()
        late.wait(60)

    def answered(*_: object) -> None:
        # A busy machine may need more than the time of the command to begin.
        assert begun.wait(60)
        late.set()
        asking[0].join()

    monkeypatch.setattr(module, "require_existing", wait)
    monkeypatch.setattr(module, "_default", answered)

    row = rows(line("--json", "catalogs", "--timeout", "500ms"))["good"]

    assert (row["answers"], row["namespaces"]) == (False, None)
    assert row["error"]["kind"] == "timed-out"


def test_a_chosen_catalog_is_the_only_one_that_is_asked(
    line: ConfiguredLine, home: Path, tmp_path: Path, silent: str
) -> None:
    configure(home, good=sql(tmp_path, "good"), silent={"type": "rest", "uri": silent})

    assert list(rows(line("--json", "--catalog", "good", "catalogs"))) == ["good"]
    assert line("--catalog", "none", "catalogs").exit_code == 7


def test_a_newcomer_learns_where_tables_are_and_how_a_catalog_is_added(
    line: ConfiguredLine, home: Path, tmp_path: Path
) -> None:
    result = line("catalogs")

    assert result.exit_code == 0
    text = result.stdout + result.stderr
    assert "no catalog is configured: tables are in ./warehouse" in text
    assert f"write into {home}/.pyiceberg.yaml: catalog: {{prod: " in text
    assert not (tmp_path / "warehouse").exists()


def test_a_catalog_that_an_untrusted_folder_sends_elsewhere_is_refused(
    line: ConfiguredLine, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, silent: str
) -> None:
    monkeypatch.setenv("PYICEBERG_CATALOG__PROD__TOKEN", SECRET)
    configure(tmp_path, prod={"type": "rest", "uri": silent})

    result = line("--json", "catalogs")

    assert result.exit_code == 6
    assert rows(result)["prod"]["error"]["kind"] == "refused"


def test_a_folder_is_a_catalog(lake: CommandLine) -> None:
    missing = lake("--json", "catalogs")
    assert (missing.exit_code, rows(missing)["lake"]["error"]["kind"]) == (6, "not-found")
    lake.load("id\n1\n", "--create")

    row = rows(lake("--json", "catalogs"))["lake"]

    assert (row["type"], row["answers"], row["namespaces"]) == ("sql", True, 1)
    assert (row["warehouse"], row["sources"]) == (f"file://{lake.warehouse}", [])


def test_options_that_contradict_each_other_are_refused(lake: CommandLine) -> None:
    result = lake("--json", "catalogs", "--no-check", "--timeout", "1s")

    assert result.exit_code == 2
    assert json.loads(result.stdout)["error"]["message"] == "--no-check contradicts --timeout"
