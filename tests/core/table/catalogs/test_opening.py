"""Errors of the catalogs' own libraries become errors of lake."""

from __future__ import annotations

import datetime
import ipaddress
import json
import socket
import ssl
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType
from typing import Any

import pyiceberg.catalog
import pytest
import requests
from botocore import exceptions as botocore
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from sqlalchemy.exc import OperationalError
from support.cli.command_line import CommandLine, Result

from lake.core.base.errors import (
    BadInputError,
    LakeError,
    NotAuthorisedError,
    SilentError,
    TimedOutError,
)
from lake.core.table.catalogs import rest
from lake.core.table.catalogs.errors import catalog_errors


def refused(code: str) -> Exception:
    return botocore.ClientError({"Error": {"Code": code, "Message": "no"}}, "GetTable")


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (botocore.NoRegionError(), BadInputError),
        (botocore.NoCredentialsError(), NotAuthorisedError),
        (botocore.PartialCredentialsError(provider="env", cred_var="x"), NotAuthorisedError),
        (botocore.UnauthorizedSSOTokenError(), NotAuthorisedError),
        (botocore.EndpointConnectionError(endpoint_url="https://x"), TimedOutError),
        (botocore.ConnectTimeoutError(endpoint_url="https://x"), SilentError),
        (refused("AccessDeniedException"), NotAuthorisedError),
        (refused("ExpiredTokenException"), NotAuthorisedError),
        (refused("UnrecognizedClientException"), NotAuthorisedError),
        (refused("ThrottlingException"), TimedOutError),
        (refused("InternalServiceException"), BadInputError),
    ],
    ids=lambda value: value.__class__.__name__ if isinstance(value, Exception) else "",
)
def test_errors_of_the_libraries_of_aws_are_typed(error: Exception, kind: type[LakeError]) -> None:
    with pytest.raises(LakeError) as raised, catalog_errors("table db.t"):
        raise error

    assert type(raised.value) is kind


@pytest.mark.parametrize(
    "words",
    [
        "database is locked",
        "Connection refused",
        "server closed the connection unexpectedly",
        "[Errno -3] Temporary failure in name resolution",
    ],
)
def test_a_database_that_is_away_or_locked_is_a_timeout(words: str) -> None:
    with pytest.raises(TimedOutError, match=words.rpartition("] ")[2]), catalog_errors("catalog c"):
        raise OperationalError("SELECT 1", {}, Exception(words))


def test_a_catalog_on_aws_that_is_not_configured_is_not_a_defect(
    lake: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")
    monkeypatch.setenv("PYICEBERG_CATALOG__CLOUD__TYPE", "glue")
    lake.arguments = lambda *words: ["--catalog", "cloud", *words]  # type: ignore[method-assign]

    result = lake("--json", "snapshots", "db.t")

    assert (result.exit_code, result.json()["error"]["kind"]) == (7, "bad-input")


HERE = "127.0.0.1"


@pytest.fixture
def configured(
    lake: CommandLine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[..., Result]:
    """Return a call of lake on a catalog with properties in a file of the home folder."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")

    def run(*words: object, **properties: str) -> Result:
        lines = [f"    {key.replace('_', '-')}: {value}" for key, value in properties.items()]
        text = "\n".join(["catalog:", "  prod:", *lines])
        (tmp_path / ".pyiceberg.yaml").write_text(f"{text}\n")
        lake.arguments = lambda *given: ["--catalog", "prod", *map(str, given)]  # type: ignore[method-assign]
        return lake("--json", *(words or ("snapshots", "db.t")))

    return run


def reported(result: Result) -> tuple[int, str, str | None]:
    error = result.json()["error"]
    return result.exit_code, error["message"], error["hint"]


@contextmanager
def answering(
    status: int, body: object, tls: ssl.SSLContext | None = None
) -> Iterator[tuple[str, int]]:
    """Run a server that answers everything alike; yield its host and port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            text = (body if isinstance(body, str) else json.dumps(body)).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self.do_GET()

        def log_message(self, *_: Any) -> None:
            return

    server = ThreadingHTTPServer((HERE, 0), Handler)
    server.handle_error = lambda *_: None  # type: ignore[method-assign]
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield HERE, server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize(
    ("kind", "scheme", "what"),
    [("rest", "https", "catalog prod"), ("hive", "thrift", "table db.t")],
)
def test_an_unknown_host_name_is_named_with_the_setting_to_check(
    configured: Callable[..., Result],
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    scheme: str,
    what: str,
) -> None:
    def unknown(*_: object, **__: object) -> Any:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)

    assert reported(configured(type=kind, uri=f"{scheme}://catalogue.example")) == (
        7,
        f"cannot open {what}: the host name catalogue.example is not known",
        "check 'uri' of catalog prod in ~/.pyiceberg.yaml, and the name server of this machine",
    )


def test_a_name_server_that_is_away_is_a_timeout(
    configured: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object, **__: object) -> Any:
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    monkeypatch.setattr(socket, "getaddrinfo", away)

    code, message, _ = reported(configured(type="rest", uri="https://catalog.example"))

    assert code == 10
    assert message.endswith("catalog.example, port 443: temporary failure in name resolution")


def test_a_refused_connection_is_a_timeout_with_host_and_port(
    configured: Callable[..., Result],
) -> None:
    with socket.create_server((HERE, 0)) as closed:
        port = closed.getsockname()[1]

    for properties in (
        {"type": "rest", "uri": f"http://{HERE}:{port}"},
        {"type": "sql", "uri": f"postgresql+psycopg2://u@{HERE}:{port}/x"},
    ):
        code, message, hint = reported(configured(**properties))

        assert code == 10
        assert str(port) in message
        assert "connection refused" in message.lower()
        assert hint == "check that the server runs at this address, then run the command again"


def _self_signed(folder: Path) -> ssl.SSLContext:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, HERE)])
    now = datetime.datetime.now(datetime.UTC)
    names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(HERE))])
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(now).not_valid_after(now + datetime.timedelta(days=1))
    signed = builder.add_extension(names, critical=False).sign(key, hashes.SHA256())
    encoding, none = serialization.Encoding.PEM, serialization.NoEncryption()
    secret = key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, none)
    (folder / "server.pem").write_bytes(secret + signed.public_bytes(encoding))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.pem")
    return context


def test_a_certificate_that_is_not_trusted_names_the_authoritys_setting(
    configured: Callable[..., Result], tmp_path: Path
) -> None:
    with answering(200, {}, _self_signed(tmp_path)) as (host, port):
        code, message, hint = reported(configured(type="rest", uri=f"https://{host}:{port}"))

    assert code == 7
    assert message == (
        f"cannot open catalog prod: the certificate of {host}, port {port} is not trusted: "
        "self-signed certificate"
    )
    assert hint is not None
    assert "REQUESTS_CA_BUNDLE" in hint


def test_a_server_without_encryption_is_not_one_with_a_wrong_certificate(
    configured: Callable[..., Result],
) -> None:
    with answering(200, {}) as (host, port):
        code, message, hint = reported(configured(type="rest", uri=f"https://{host}:{port}"))

    assert code == 7
    assert f"no encrypted connection to {host}, port {port}: " in message
    assert hint == (
        "check that the server speaks TLS at this address: 'uri' of catalog prod in ~/.pyiceberg.yaml"
    )


REFUSED = "catalog prod does not allow this user to open catalog prod"
GRANT = "grant the privilege on the server, or set another user"
LOGIN = {"error": "invalid_client", "error_description": "Invalid client credentials"}
DENIED = {"error": {"message": "no privilege CATALOG_READ", "type": "Forbidden", "code": 403}}
UNKNOWN = {"error": {"message": "Not signed in", "type": "NotAuthorized", "code": 401}}


@pytest.mark.parametrize(
    ("status", "body", "more", "message", "hint"),
    [
        (
            401,
            LOGIN,
            {"credential": "canary-id:canary-secret"},
            "catalog prod refused the login: invalid_client: Invalid client credentials",
            "check 'credential' of catalog prod in ~/.pyiceberg.yaml",
        ),
        (
            401,
            UNKNOWN,
            {},
            "catalog prod refused the login: NotAuthorized: Not signed in",
            "check 'credential' of catalog prod in ~/.pyiceberg.yaml",
        ),
        (
            403,
            DENIED,
            {"token": "canary-token"},
            f"{REFUSED}: Forbidden: no privilege CATALOG_READ",
            f"{GRANT}: 'token' of catalog prod in ~/.pyiceberg.yaml",
        ),
        (
            401,
            "<html>Log in, canary-token</html>",
            {"token": "canary-token"},
            "catalog prod refused the login: HTTP status 401: <html>Log in, ***</html>",
            "check 'token' of catalog prod in ~/.pyiceberg.yaml",
        ),
    ],
    ids=["login", "no login", "privilege", "proxy"],
)
def test_a_refused_login_keeps_the_servers_words_and_names_the_setting(
    configured: Callable[..., Result],
    status: int,
    body: object,
    more: dict[str, str],
    message: str,
    hint: str,
) -> None:
    with answering(status, body) as (host, port):
        result = configured(type="rest", uri=f"http://{host}:{port}", **more)

    assert reported(result) == (9, message, hint)
    assert "canary" not in result.stdout + result.stderr


@pytest.mark.parametrize(
    "words",
    [("check", "db.t"), ("clean", "db.t"), ("drop", "db.t", "--purge"), ("expire", "db.t")],
    ids=lambda words: words[0],
)
def test_an_answer_without_the_location_of_the_metadata_file_is_corrupt(
    configured: Callable[..., Result], lake: CommandLine, words: tuple[str, ...]
) -> None:
    lake.ok("create", "db.t", "id long")
    (document,) = (lake.warehouse / "db/t/metadata").glob("*.metadata.json")
    body = {"defaults": {}, "overrides": {}, "metadata": json.loads(document.read_bytes())}
    with answering(200, body) as (host, port):
        code, message, _ = reported(configured(*words, type="rest", uri=f"http://{host}:{port}"))

    assert (code, message) == (7, "the catalog states no metadata file of table db.t")


def test_the_error_for_an_answer_that_is_too_large_does_not_keep_the_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limit = 3 * 2**20
    monkeypatch.setattr(rest, "MAX_TEXT_BYTES", limit)
    session = requests.Session()
    session.mount("http://", rest._BoundedAdapter())
    with (
        answering(200, "x" * 2 * limit) as (host, port),
        pytest.raises(requests.exceptions.ContentDecodingError) as raised,
    ):
        session.get(f"http://{host}:{port}")

    frames = [frame for frame, _ in traceback.walk_tb(raised.value.__traceback__)]
    held = [value for frame in frames for value in frame.f_locals.values()]
    assert sum(len(value) for value in held if isinstance(value, bytes | bytearray)) < limit


TYPES = "bigquery, dynamodb, glue, hadoop, hive, in-memory, rest, sql"


@pytest.mark.parametrize(
    ("properties", "message", "hint"),
    [
        (
            {"type": "reest", "uri": "http://x"},
            "catalog prod has the unknown type 'reest'",
            f"set 'type' of catalog prod in ~/.pyiceberg.yaml to one of: {TYPES}",
        ),
        ({"type": "rest"}, "catalog prod has no address", None),
        ({"type": "sql"}, "catalog prod has no address", None),
        (
            {"uri": "mysql://x"},
            "the type of catalog prod cannot be inferred from the address mysql://x",
            None,
        ),
        (
            {"type": "sql", "uri": "postgresql+nosuch://x/y"},
            "catalog prod needs a database driver that is not known: postgresql.nosuch",
            None,
        ),
        (
            {"type": "sql", "uri": "sqlite:////nowhere/c.db"},
            "cannot open catalog prod: the file /nowhere/c.db cannot be opened or created",
            None,
        ),
        ({"type": "glue"}, "cannot open catalog prod: You must specify a region.", None),
        (
            {"type": "hive", "uri": "metastore:9083"},
            "the address of catalog prod has no host: metastore:9083",
            "set 'uri' of catalog prod in ~/.pyiceberg.yaml to thrift://HOST:9083",
        ),
        (
            {"py_catalog_impl": "nowhere.Catalog"},
            "cannot open catalog prod: Could not initialize Catalog: nowhere.Catalog",
            None,
        ),
    ],
    ids=lambda value: "-".join(map(str, value.values())) if isinstance(value, dict) else "",
)
def test_a_catalog_that_is_not_configured_completely_names_what_is_missing(
    configured: Callable[..., Result], properties: dict[str, str], message: str, hint: str | None
) -> None:
    result = reported(configured(**properties))

    assert result[:2] == (7, message)
    assert result[2] is not None
    assert "prod in ~/.pyiceberg.yaml" in result[2] or "folder exists" in result[2]
    assert hint is None or result[2] == hint


def test_a_new_table_needs_a_warehouse(configured: Callable[..., Result], tmp_path: Path) -> None:
    source = tmp_path / "a.csv"
    source.write_text("id\n1\n")

    address = f"sqlite:///{tmp_path}/c.db"
    result = reported(configured("ingest", "db.t", source, "--create", type="sql", uri=address))

    assert result == (
        7,
        "catalog prod has no warehouse, so there is no place for table db.t",
        "set 'warehouse' of catalog prod in ~/.pyiceberg.yaml to the folder of new tables",
    )


@pytest.mark.parametrize(
    ("properties", "missing", "package"),
    [
        ({"type": "glue"}, "boto3", "lake-iceberg[glue]"),
        ({"type": "dynamodb"}, "boto3", "pyiceberg[dynamodb]"),
        ({"type": "hive", "uri": "thrift://x"}, "thrift", "lake-iceberg[hive]"),
        ({"uri": "thrift://x"}, "thrift", "lake-iceberg[hive]"),
        ({"type": "bigquery"}, "google.cloud", "pyiceberg[bigquery]"),
        ({"type": "sql", "uri": "postgresql+psycopg2://x/y"}, "psycopg2", "psycopg2-binary"),
        ({"type": "sql", "uri": "postgresql+psycopg://x/y"}, "psycopg", "psycopg[binary]"),
        ({"type": "sql", "uri": "postgresql+pg8000://x/y"}, "pg8000", "pg8000"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_missing_package_is_named(
    configured: Callable[..., Result],
    monkeypatch: pytest.MonkeyPatch,
    properties: dict[str, str],
    missing: str,
    package: str,
) -> None:
    for name in [name for name in sys.modules if f"{name}.".startswith(f"{missing}.")]:
        monkeypatch.delitem(sys.modules, name)
    for kind in ("glue", "dynamodb", "hive", "bigquery_metastore"):
        monkeypatch.delitem(sys.modules, f"pyiceberg.catalog.{kind}", raising=False)
        monkeypatch.delattr(pyiceberg.catalog, kind, raising=False)
        monkeypatch.delitem(
            sys.modules, f"lake.core.table.catalogs.metastores.{kind}", raising=False
        )
    monkeypatch.setitem(sys.modules, missing, None)  # type: ignore[arg-type]

    assert reported(configured(**properties)) == (
        7,
        f"catalog prod needs a Python package that is not installed: {package}",
        f"pip install '{package}'",
    )


@pytest.mark.parametrize(
    ("module", "package"),
    [
        ("adlfs", "pyiceberg[adlfs]"),
        ("gcsfs", "pyiceberg[gcsfs]"),
        ("s3fs", "pyiceberg[s3fs]"),
        ("huggingface_hub", "pyiceberg[hf]"),
        ("azure.identity", "pyiceberg[entra-auth]"),
        ("google.auth", "pyiceberg[gcp-auth]"),
        ("puresasl", "pyiceberg[hive-kerberos]"),
    ],
)
def test_a_file_io_without_its_package_names_the_extra(module: str, package: str) -> None:
    with pytest.raises(BadInputError) as caught, catalog_errors("table db.t"):
        raise ModuleNotFoundError(f"No module named {module!r}", name=module)

    assert caught.value.hint == f"pip install '{package}'"


def test_a_thrift_server_that_is_away_is_a_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    thrift = ModuleType("thrift.Thrift")
    thrift.TException = type("TException", (Exception,), {})  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "thrift.Thrift", thrift)

    with pytest.raises(TimedOutError), catalog_errors("catalog hive"):
        raise thrift.TException("Could not connect to any of [('127.0.0.1', 9083)]")


def test_a_missing_table_says_where_lake_looked(lake: CommandLine, tmp_path: Path) -> None:
    source = tmp_path / "a.csv"
    source.write_text("id\n1\n")
    lake.ok("ingest", "db.users", source, "--create")
    (tmp_path / "empty").mkdir()

    def missing(*words: object, warehouse: Path = lake.warehouse) -> tuple[int, str, str | None]:
        return reported(CommandLine(warehouse)("--json", "snapshots", *words))

    database = lake.warehouse / "catalog.db"
    assert missing("db.user") == (
        7,
        f"table db.user does not exist in catalog lake ({database})",
        "did you mean db.users?",
    )
    code, message, hint = missing("db.users", "--catalog", "prod")
    assert (code, hint) == (7, "add --catalog lake")
    assert message == (
        f"table db.users does not exist in catalog prod ({database}); "
        "this database contains table db.users of catalog lake"
    )
    assert missing("db.none", "--catalog", "prod")[1].endswith("contains tables of catalog lake")
    assert missing("db.users", warehouse=tmp_path / "typo")[1] == (
        f"table db.users does not exist: there is no folder {tmp_path}/typo"
    )
    assert missing("db.users", warehouse=tmp_path / "empty")[1] == (
        f"table db.users does not exist: {tmp_path}/empty contains no catalog (catalog.db)"
    )
