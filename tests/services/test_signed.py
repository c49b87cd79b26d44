"""A REST catalog that takes signed requests only, as Amazon S3 Tables."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from support.cli.service_line import Service, csv
from support.faults.faulty_proxy import Answer, Asked, Proxy, reset
from support.servers.rest_server import RestServer

KEY, SECRET = "AKIACANARYSIGNED", "canary-signing-secret-71bd"
REGION, SERVICE = "eu-central-1", "s3tables"
_SIGNATURE = re.compile(r"AWS4-HMAC-SHA256 Credential=(\S+), SignedHeaders=(\S+), Signature=(\w+)")


def is_signed(asked: Asked, uri: str) -> bool:
    """Whether botocore makes the same signature of a request."""
    headers = {name.lower(): text for name, text in asked.headers.items()}
    found = _SIGNATURE.fullmatch(headers.get("authorization", ""))
    if found is None:
        return False
    time = headers["x-amz-date"]
    if found[1] != f"{KEY}/{time[:8]}/{REGION}/{SERVICE}/aws4_request":
        return False
    signed = {name: headers[name] for name in found[2].split(";")}
    request = AWSRequest(asked.method, uri + asked.path, signed, asked.body)
    request.context["timestamp"] = time
    signer = SigV4Auth(Credentials(KEY, SECRET), SERVICE, REGION)
    text = signer.string_to_sign(request, signer.canonical_request(request))
    return {"host", "x-amz-content-sha256"} <= signed.keys() and found[3] == signer.signature(
        text, request
    )


@pytest.fixture
def proxy(rest: tuple[RestServer, str]) -> Iterator[Proxy]:
    with Proxy(rest[0].uri) as running:

        def guard(asked: Asked) -> Answer | None:
            if is_signed(asked, running.uri):
                return None
            body = b'{"error": {"message": "not signed", "type": "Forbidden", "code": 403}}'
            return Answer(403, {"Content-Type": "application/json"}, body)

        running.guard = guard
        yield running


@pytest.fixture
def signed(on_rest: Service, proxy: Proxy) -> Service:
    properties = {
        "uri": proxy.uri,
        "rest.sigv4-enabled": "true",
        "rest.signing-name": SERVICE,
        "rest.signing-region": REGION,
        "client.access-key-id": KEY,
        "client.secret-access-key": SECRET,
    }
    return replace(on_rest, properties={**on_rest.properties, **properties})


def test_each_request_of_a_tables_life_is_signed(
    signed: Service, on_rest: Service, proxy: Proxy
) -> None:
    lake, table = signed.line(), signed.table("a b+c")
    first = csv(signed.folder, "first.csv", id=[1, 2], name=["a", "b"])
    lake.ok("ingest", table, first, "--create")
    second = csv(signed.folder, "second.csv", id=[2, 3], name=["B", "c"])
    lake.ok("ingest", table, second, "--upsert", "--key", "id")
    lake.ok("compact", table, "--rewrite-all")
    lake.ok("expire", table, "--older-than", "0s", "--unsafe-retention")
    lake.ok("rename", table, signed.table("u"))
    assert lake.ok("catalogs")["result"]["catalogs"][0]["answers"]
    assert on_rest.rows("u") == [(1, "a"), (2, "B"), (3, "c")]
    lake.ok("drop", signed.table("u"))
    assert proxy.asked
    assert all(is_signed(item, proxy.uri) for item in proxy.asked)


def test_wrong_keys_are_a_refused_login_that_names_the_keys(signed: Service) -> None:
    wrong = {**signed.properties, "client.secret-access-key": "canary-wrong-secret"}
    result = replace(signed, properties=wrong).line()("--json", "tables")

    assert result.exit_code == 9
    assert "AWS_ACCESS_KEY_ID" in result.json()["error"]["hint"]
    assert "canary-wrong-secret" not in result.stdout + result.stderr


def test_without_a_region_nothing_is_sent(
    signed: Service, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")
    bare = {**signed.properties}
    del bare["rest.signing-region"]
    result = replace(signed, properties=bare).line()("--json", "tables")

    assert result.exit_code == 7
    assert "rest.signing-region" in result.json()["error"]["hint"]
    assert proxy.asked == []


def test_a_drop_without_an_answer_is_not_sent_again(signed: Service, proxy: Proxy) -> None:
    lake, table = signed.line(), signed.table()
    lake.ok("ingest", table, csv(signed.folder, "first.csv", id=[1]), "--create")
    proxy.fail("DELETE", "/tables/t", reset(done=True))

    assert lake("drop", table).exit_code == 0
    assert proxy.times("DELETE", "/tables/t") == 1
