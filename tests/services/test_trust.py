"""Neither a table nor a catalog's server chooses the code that runs here, or where credentials go."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.cli.service_line import Service, csv
from support.faults.faulty_proxy import Answer, Asked, Proxy
from support.servers.rest_server import RestServer

TOKEN = "canary-token-2b9d07"
CREDENTIAL = "client:canary-credential-77c3ab"
# A host that there never is (RFC 2606).
PLAIN = "http://catalog.invalid"
CODE = "foreign_code_of_a_table"
pytestmark = pytest.mark.filterwarnings("ignore:Deprecated in 0.8.0")


@pytest.fixture
def foreign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A class that a property may name; its module must never be loaded."""
    (tmp_path / f"{CODE}.py").write_text("class Chosen:\n    def __init__(self, *_): ...\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield f"{CODE}.Chosen"
    assert CODE not in sys.modules


@pytest.mark.parametrize("service", ["postgres", "s3", "rest"], indirect=True)
def test_a_tables_properties_load_no_code(service: Service, foreign: str) -> None:
    keys = ("py-io-impl", "write.py-location-provider.impl", "s3.retry-strategy-impl")
    chosen = [part for key in keys for part in ("--property", f"{key}={foreign}")]
    source = csv(service.folder, "one.csv", id=[1])
    lake, table = service.line(), service.table()
    lake.ok("ingest", table, source, "--create", *chosen)
    lake.ok("ingest", table, source)
    lake.ok("compact", table, "--rewrite-all")
    lake.ok("expire", table, "--older-than", "0s", "--unsafe-retention")

    assert lake.ok("scan", table)["result"]["rows"] == 1 + 1


@pytest.mark.parametrize("kind", ["on_s3", "on_rest"])
def test_a_tables_property_sends_no_credentials_to_a_store_of_its_choice(
    request: pytest.FixtureRequest, kind: str
) -> None:
    service: Service = request.getfixturevalue(kind)
    source = csv(service.folder, "one.csv", id=[1])
    lake, table = service.line(), service.table()
    lake.ok("ingest", table, source, "--create")
    with Proxy(str(service.properties["s3.endpoint"])) as elsewhere:
        with service.catalog().load_table(table).transaction() as change:
            change.set_properties(**{"s3.endpoint": elsewhere.uri})
        # PyIceberg itself went there.
        elsewhere.asked.clear()
        lake.ok("ingest", table, source)
        assert lake.ok("scan", table)["result"]["rows"] == 2
        assert elsewhere.asked == []


@pytest.mark.parametrize(
    "override",
    [
        {"py-io-impl": f"{CODE}.Chosen"},
        {"auth": {"type": "custom", "impl": f"{CODE}.Chosen"}},
        {"s3.retry-strategy-impl": f"{CODE}.Chosen"},
    ],
    ids=["files", "login", "retries"],
)
def test_a_server_loads_no_code(
    on_rest: Service, rest: tuple[RestServer, str], foreign: str, override: dict[str, Any]
) -> None:
    source = csv(on_rest.folder, "one.csv", id=[1])
    with Proxy(rest[0].uri) as proxy:
        proxy.changes.append(_configuring(override))
        proxy.changes.append(_vending(override))
        lake = _behind(on_rest, proxy).line()
        lake.ok("ingest", on_rest.table(), source, "--create")
        assert lake.ok("scan", on_rest.table())["result"]["rows"] == 1


def test_a_server_that_sends_its_clients_on_gets_no_credentials_there(
    on_rest: Service, rest: tuple[RestServer, str]
) -> None:
    with Proxy(rest[0].uri) as first, Proxy(rest[0].uri) as other:
        redirected = Answer(307, {"Location": f"{other.uri}/v1/config"})
        cases: list[tuple[Callable[[Asked, Answer], Answer], dict[str, str]]] = [
            (_configuring({"uri": other.uri}), {"token": TOKEN}),
            (_configuring({"oauth2-server-uri": f"{other.uri}/token"}), {"credential": CREDENTIAL}),
            (lambda _asked, _answer: redirected, {"token": TOKEN}),
        ]
        for change, login in cases:
            first.changes[:] = [change]
            result = _behind(on_rest, first, **login).line()("--json", "snapshots", on_rest.table())

            assert result.exit_code == 3, result
            assert other.uri.removeprefix("http://") in result.json()["error"]["message"]
            assert "canary" not in result.stdout + result.stderr
        assert other.asked == []
        assert any(TOKEN in item.headers.get("Authorization", "") for item in first.asked)


@pytest.mark.parametrize(
    "login",
    [
        {"token": TOKEN},
        {"credential": CREDENTIAL},
        {"header.Authorization": TOKEN},
        {"auth": {"type": "basic", "basic": {"username": "u", "password": TOKEN}}},
        {"credential": CREDENTIAL, "uri": "https://catalog.invalid", "oauth2-server-uri": PLAIN},
        {"uri": f"http://u:{TOKEN}@catalog.invalid"},
    ],
    ids=str,
)
def test_credentials_go_over_no_network_in_plain_text(tmp_path: Path, login: Any) -> None:
    def listed(**more: Any) -> Any:
        properties = {"type": "rest", "uri": PLAIN, **login, **more}
        line = Service("plain", properties, tmp_path, set, "db").line("inline")
        return line("--json", "snapshots", "db.t")

    refused, allowed = listed(), listed(**{"lake.allow-plain-http": "true"})

    assert refused.exit_code == 3
    assert "http://catalog.invalid:80 without encryption" in refused.json()["error"]["message"]
    assert "canary" not in refused.stdout + refused.stderr
    # There is no such host.
    assert allowed.exit_code not in {0, 3}


def test_a_server_that_is_configured_for_logging_in_is_asked_there(
    on_rest: Service, rest: tuple[RestServer, str]
) -> None:
    source = csv(on_rest.folder, "one.csv", id=[1])
    on_rest.line().ok("ingest", on_rest.table(), source, "--create")
    with Proxy(rest[0].uri) as first, Proxy(rest[0].uri) as other:
        login = {"credential": CREDENTIAL, "oauth2-server-uri": f"{other.uri}/v1/oauth/tokens"}
        _behind(on_rest, first, **login).line().ok("snapshots", on_rest.table())

        assert {item.path for item in other.asked} == {"/v1/oauth/tokens"}
        assert not any(b"canary" in item.body for item in first.asked)


def _behind(service: Service, proxy: Proxy, **more: str) -> Service:
    return Service(
        service.kind,
        {**service.properties, "uri": proxy.uri, **more},
        service.folder,
        service.list_files,
        service.namespace,
    )


def _configuring(overrides: dict[str, Any]) -> Callable[[Asked, Answer], Answer]:
    """Let the server's configuration overrule its clients' own."""
    return lambda asked, answer: _with(asked, answer, "/v1/config", "overrides", overrides)


def _vending(config: dict[str, Any]) -> Callable[[Asked, Answer], Answer]:
    """Let each table come with more configuration."""
    texts = {key: text for key, text in config.items() if isinstance(text, str)}
    return lambda asked, answer: _with(asked, answer, "/tables", "config", texts)


def _with(asked: Asked, answer: Answer, path: str, key: str, more: dict[str, Any]) -> Answer:
    if path not in asked.path or answer.status != 200 or not answer.body:
        return answer
    document = json.loads(answer.body)
    document[key] = {**document.get(key, {}), **more}
    kept = {name: text for name, text in answer.headers.items() if name != "Content-Encoding"}
    return Answer(answer.status, kept, json.dumps(document).encode())
