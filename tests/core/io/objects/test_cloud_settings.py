"""Settings of Azure's stores: which account, which address and which login; no secret goes to another server."""

from __future__ import annotations

import json
import socket
import sys
from pathlib import Path
from threading import Thread

import pytest
from support.faults.faulty_proxy import Answer, Proxy

from lake.core.base.errors import BadInputError
from lake.core.base.redaction import Redactor, is_secret
from lake.core.io.objects.azure import AzureObjects
from lake.core.io.objects.gcs import GcsObjects
from lake.core.io.objects.requests import StoreError
from lake.core.io.storage.credentials import Credentials

HOST = "acct.dfs.core.windows.net"
KEYS = {"adls.account-name": "acct", "adls.account-key": "c2VjcmV0"}


@pytest.mark.parametrize(
    ("properties", "authority", "endpoint"),
    [
        ({}, f"c@{HOST}", "https://acct.blob.core.windows.net"),
        (KEYS, "c", "https://acct.blob.core.windows.net"),
        (KEYS, f"c@{HOST}", "https://acct.blob.core.windows.net"),
        ({}, "c@a.dfs.core.chinacloudapi.cn", "https://a.blob.core.chinacloudapi.cn"),
        ({}, "c@a.z12.dfs.storage.azure.net", "https://a.z12.blob.storage.azure.net"),
        ({}, "w@onelake.dfs.fabric.microsoft.com", "https://onelake.blob.fabric.microsoft.com"),
        (
            {
                **KEYS,
                "adls.blob-storage-authority": "127.0.0.1:1",
                "adls.blob-storage-scheme": "http",
            },
            f"c@{HOST}",
            "http://127.0.0.1:1/acct",
        ),
        (
            {**KEYS, "adls.account-host": "acct.private.example"},
            "c",
            "https://acct.private.example",
        ),
        (
            {
                "adls.connection-string": "AccountName=acct;AccountKey=eA==;EndpointSuffix=core.windows.net"
            },
            "c",
            "https://acct.blob.core.windows.net",
        ),
        (
            {
                "adls.connection-string": "BlobEndpoint=https://x.example;AccountName=acct;AccountKey=eA=="
            },
            "c",
            "https://x.example",
        ),
    ],
)
def test_the_address_is_that_of_the_account(
    properties: dict[str, str], authority: str, endpoint: str
) -> None:
    found = AzureObjects.of(properties, authority).address
    assert (found.endpoint, found.bucket) == (endpoint, authority.partition("@")[0])


@pytest.mark.parametrize(
    ("properties", "authority", "why"),
    [
        ({}, "c@evil.example", "not a host of Azure"),
        ({}, "c@dfs.core.windows.net.evil.example", "not a host of Azure"),
        ({}, "c@x@acct.dfs.core.windows.net", "not a host of Azure"),
        ({}, "c@a.dfs.core.windows.net:8080", "not a host of Azure"),
        (KEYS, "c@other.dfs.core.windows.net", "those of acct"),
        ({}, "c", "does not name an account"),
        (
            {"adls.connection-string": "BlobEndpoint=https://evil.example"},
            f"c@{HOST}",
            "AccountKey",
        ),
        (
            {
                **KEYS,
                "adls.connection-string": "BlobEndpoint=https://evil.example;AccountName=acct",
            },
            f"c@{HOST}",
            "AccountKey",
        ),
        ({**KEYS, "adls.blob-storage-authority": "a/b?c"}, f"c@{HOST}", "address of a server"),
        (
            {"adls.blob-storage-authority": "evil.example", "adls.sas-token.other": "sig=1"},
            f"c@{HOST}",
            "no login for the account acct",
        ),
    ],
)
def test_no_secret_goes_to_a_server_that_a_location_or_half_a_setting_names(
    monkeypatch: pytest.MonkeyPatch, properties: dict[str, str], authority: str, why: str
) -> None:
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME", raising=False)
    with pytest.raises(BadInputError, match=why):
        AzureObjects.of(properties, authority)


def test_a_signature_for_one_account_is_used_for_this_account_only() -> None:
    vended = {f"adls.sas-token.{HOST}": "sig=1", "adls.sas-token.b": "sig=2"}
    for host, sign in (
        (HOST, "sig=1"),
        ("b.dfs.core.windows.net", "sig=2"),
        ("d.dfs.core.windows.net", None),
    ):
        found = AzureObjects.of(vended, f"c@{host}")
        login = found._settings.get("credential_provider", dict)
        assert login().get("sas_token") == sign
        assert "sig=" not in repr(found) + repr(login)


def test_secrets_of_accounts_are_secrets_and_their_times_are_times() -> None:
    assert is_secret("adls.sas-token.myprofile")
    assert is_secret(f"adls.connection-string.{HOST}")
    redactor = Redactor()
    redactor.learn({"adls.connection-string": "AccountName=acct;AccountKey=Zm9vYmFyYmF6"})
    assert "Zm9vYmFyYmF6" not in redactor("cannot sign with Zm9vYmFyYmF6")
    for name in (f"adls.sas-token-expires-at-ms.{HOST}", "gcs.oauth2.token-expires-at"):
        assert Credentials({name: "123"}).expires_ms == 123


def test_another_kind_of_login_file_of_google_names_the_package_that_reads_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "login.json"
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(file))
    with pytest.raises(BadInputError, match="cannot read"):
        GcsObjects.of({}, "b")
    file.write_text(json.dumps({"type": "external_account"}))
    with pytest.raises(BadInputError, match="not a login"):
        GcsObjects.of({}, "b")
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "google.auth", None)
        with pytest.raises(BadInputError, match="google-auth") as caught:
            GcsObjects.of({}, "b")
    assert caught.value.hint == "pip install 'lake-iceberg[gcs]'"
    with pytest.raises(BadInputError, match="address of a server"):
        GcsObjects.of({"gcs.service.host": "ftp://x", "gcs.oauth2.token": "x"}, "b")
    login = GcsObjects.of({"gcs.oauth2.token": "canary"}, "b")._settings["credential_provider"]
    assert login()["token"] == "canary"


@pytest.mark.parametrize(
    "variables",
    [
        {"AZURE_STORAGE_TOKEN": "canary"},
        {"AZURE_STORAGE_ACCOUNT_KEY": "Y2FuYXJ5"},
        {
            "AZURE_TENANT_ID": "canary",
            "AZURE_CLIENT_ID": "canary",
            "AZURE_FEDERATED_TOKEN_FILE": __file__,
        },
    ],
)
@pytest.mark.parametrize(
    ("kind", "secret", "login"),
    [
        ("sas-token", "sig=c2ln", None),
        ("token", "c2ln", "Bearer c2ln"),
        ("account-key", "c2ln", "SharedKey acct:"),
    ],
)
def test_the_environments_login_is_not_sent_instead_of_the_one_that_is_configured(
    monkeypatch: pytest.MonkeyPatch,
    variables: dict[str, str],
    kind: str,
    secret: str,
    login: str | None,
) -> None:
    with Proxy("http://127.0.0.1:9") as server:
        server.guard = lambda _: Answer(404)
        for name, text in {**variables, "AZURE_AUTHORITY_HOST": server.uri}.items():
            monkeypatch.setenv(name, text)
        own = {
            "adls.blob-storage-authority": server.uri.partition("//")[2],
            f"adls.{kind}": secret,
        }
        properties = {**own, "adls.blob-storage-scheme": "http", "adls.account-name": "acct"}
        assert AzureObjects.of(properties, "c").find("k") is None
    (asked,) = server.asked
    sent = {name.lower(): text for name, text in asked.headers.items()}.get("authorization")
    assert sent == login or (login and str(sent).startswith(login))
    assert ("sig=c2ln" in asked.path) is (kind == "sas-token")


def test_a_login_that_the_client_would_not_use_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in ("account-key", "sas-token"):
        with pytest.raises(BadInputError, match=f"adls.{kind} is incomplete"):
            AzureObjects.of({"adls.account-name": "acct", f"adls.{kind}": "sig"}, "c")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "Y2FuYXJ5")
    with pytest.raises(BadInputError, match="AZURE_STORAGE_ACCOUNT_KEY in the environment"):
        AzureObjects.of({"adls.account-name": "acct", "adls.client-secret": "x"}, "c")


def test_a_failed_handshake_is_not_the_last_one() -> None:
    handshakes = []

    def fail(server: socket.socket) -> None:
        for _ in range(2):
            connection, _address = server.accept()
            with connection:
                handshakes.append(connection.recv(10_000))
                # The alert "internal error", as from a server that is being started.
                connection.sendall(b"\x15\x03\x03\x00\x02\x02\x50")

    with socket.create_server(("127.0.0.1", 0)) as server:
        Thread(target=fail, args=(server,), daemon=True).start()
        host = f"127.0.0.1:{server.getsockname()[1]}"
        objects = AzureObjects.of({**KEYS, "adls.account-host": host}, "c")
        for count in (1, 2):
            with pytest.raises(StoreError, match="certificate verify failed"):
                objects.find("k")
            assert len(handshakes) == count


@pytest.mark.parametrize(("code", "is_busy"), [(403, False), (503, True)])
def test_the_reason_for_one_object_of_a_bulk_delete_is_known(code: int, is_busy: bool) -> None:
    text = f"Generic error: Bulk delete request failed for key a: Why. (code: {code})\n\nDebug"
    known = AzureObjects.of(KEYS, "c")._known(text)
    assert isinstance(known, StoreError)
    assert (known.status, known.is_busy) == (code, is_busy)


def test_a_federated_login_of_google_gets_its_token_from_the_service_of_its_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    subject = tmp_path / "subject"
    subject.write_text("canary-subject")
    with Proxy("http://127.0.0.1:9") as service:
        answer = {"access_token": "given", "expires_in": 3600, "token_type": "Bearer"}
        service.guard = lambda _: Answer(
            200, {"Content-Type": "application/json"}, json.dumps(answer).encode()
        )
        file = tmp_path / "login.json"
        file.write_text(
            json.dumps(
                {
                    "type": "external_account",
                    "audience": "//iam.googleapis.com/x",
                    "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
                    "token_url": f"{service.uri}/token",
                    "credential_source": {"file": str(subject)},
                }
            )
        )
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(file))
        monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "p")
        found = GcsObjects.of({}, "b")._settings["credential_provider"]()

    assert found["token"] == "given"
    assert b"canary-subject" in service.asked[0].body
