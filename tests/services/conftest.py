"""Servers that tests of catalogs and storage stand on, and a browser; each is started once, when first asked for."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.fs as pafs
import pytest
from support.cli.service_line import Service
from support.faults.faulty_proxy import Proxy
from support.servers import (
    azure_server,
    gcs_server,
    glue_server,
    maven,
    postgres_server,
    s3_gateway,
    s3_server,
)
from support.servers import browser as browser_program
from support.servers.azure_server import Azure
from support.servers.browser import Browser
from support.servers.gcs_server import Gcs
from support.servers.glue_server import Glue
from support.servers.hive_server import HiveMetastore
from support.servers.postgres_server import Postgres
from support.servers.rest_server import RestServer
from support.servers.s3_gateway import Gateway
from support.servers.s3_server import S3

from lake.core.base.clock import Backoff
from lake.core.io.storage import opening
from lake.core.io.storage.storage import Storage

_ON_CI = os.environ.get("CI", "").lower() in {"1", "true", "yes"}
# Secrets that no output may ever hold.
POSTGRES_PASSWORD = "canary-postgres-b7f1c2"
S3_KEY = "canary-s3-key-5e08d1"
S3_SECRET = "canary-s3-secret-93ac4f"
GCS_TOKEN = "canary-gcs-token-1d90fe"
AZURE_KEY = "canary-azure-key-40bb72"


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A PostgreSQL cluster."""
    _need(postgres_server.missing())
    cluster = Postgres(POSTGRES_PASSWORD)
    yield cluster
    cluster.end()


@pytest.fixture(scope="session")
def s3() -> Iterator[S3]:
    """An S3 server."""
    _need(s3_server.missing())
    server = S3(S3_KEY, S3_SECRET)
    yield server
    server.end()


@pytest.fixture(scope="session")
def gcs() -> Iterator[Gcs]:
    """A server like Google Cloud Storage."""
    _need_program(gcs_server.program())
    server = Gcs(GCS_TOKEN)
    yield server
    server.end()


@pytest.fixture(scope="session")
def azure() -> Iterator[Azure]:
    """A server like Azure's Blob Storage."""
    _need_program(azure_server.program())
    server = Azure(AZURE_KEY)
    yield server
    server.end()


@pytest.fixture(scope="session")
def gateway(request: pytest.FixtureRequest) -> Iterator[S3]:
    """An S3 server on files where there is Go, else the other one: requests are the same, answers more like S3's."""
    if s3_gateway.missing():
        yield request.getfixturevalue("s3")
        return
    server = Gateway(S3_KEY, S3_SECRET)
    yield server
    server.end()


@pytest.fixture(scope="session")
def rest(s3: S3) -> Iterator[tuple[RestServer, str]]:
    """The Iceberg project's REST catalog on a bucket of the S3 server, and the bucket."""
    _need(maven.missing())
    bucket = s3.bucket()
    server = RestServer({**s3.properties(), "warehouse": f"s3://{bucket}/rest"})
    yield server, bucket
    server.end()


@pytest.fixture(scope="session")
def glue() -> Iterator[Glue]:
    """AWS Glue."""
    _need(glue_server.missing())
    server = Glue(S3_KEY, S3_SECRET)
    yield server
    server.end()


@pytest.fixture(scope="session")
def hive() -> Iterator[HiveMetastore]:
    """A Hive metastore."""
    _need(maven.missing())
    server = HiveMetastore()
    yield server
    server.end()


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """A browser without a window."""
    _need(browser_program.missing())
    running = Browser()
    yield running
    running.end()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests that are repeated at once, and by Arrow not often."""
    monkeypatch.setattr(Backoff, "wait", lambda *_, **__: None)
    monkeypatch.setattr(opening, "ARROW_TRIES", 3)


@pytest.fixture
def store(s3: S3) -> S3:
    """The server behind the next three; a file may choose another one."""
    return s3


@pytest.fixture
def proxy(store: S3) -> Iterator[Proxy]:
    """What records the requests, and fails as tests ask."""
    with Proxy(store.endpoint) as running:
        yield running


@pytest.fixture
def storage(store: S3, proxy: Proxy) -> Storage:
    """A storage that is reached through it."""
    return Storage(store.properties(proxy.uri))


@pytest.fixture
def place(store: S3) -> str:
    """The location of a file in a new bucket."""
    return f"s3://{store.bucket()}/t/data/f"


@pytest.fixture
def on_postgres(postgres: Postgres, tmp_path: Path) -> Service:
    """Tables of local files in a SQL catalog on PostgreSQL."""
    warehouse = tmp_path / "tables"
    properties = {"type": "sql", "uri": postgres.uri(), "warehouse": f"file://{warehouse}"}
    return Service("postgres", properties, tmp_path, _local(warehouse))


@pytest.fixture
def on_s3(s3: S3, tmp_path: Path) -> Service:
    """Tables on S3 in a SQL catalog on SQLite."""
    bucket = s3.bucket()
    properties = {
        "type": "sql",
        "uri": f"sqlite:///{tmp_path}/catalog.db?timeout=60",
        "warehouse": f"s3://{bucket}/tables",
        **s3.properties(),
    }
    return Service("s3", properties, tmp_path, _remote(s3, bucket))


@pytest.fixture
def on_gcs(gcs: Gcs, tmp_path: Path) -> Service:
    """Tables on a store like Google's in a SQL catalog on SQLite."""
    return _on_cloud("gcs", gcs, tmp_path)


@pytest.fixture
def on_azure(azure: Azure, tmp_path: Path) -> Service:
    """Tables on a store like Azure's in a SQL catalog on SQLite."""
    return _on_cloud("azure", azure, tmp_path)


@pytest.fixture
def on_rest(rest: tuple[RestServer, str], s3: S3, tmp_path: Path) -> Service:
    """Tables on S3 in a REST catalog, which vends the credentials."""
    server, bucket = rest
    properties = {
        "type": "rest",
        "uri": server.uri,
        # Tests count requests. What is sent in the background comes between any two of them.
        "rest-metrics-reporting-enabled": "false",
        "s3.endpoint": s3.endpoint,
        "s3.region": s3_server.REGION,
    }
    name = f"db{next(_numbers)}"
    # All tests share the catalog's bucket; what others left there is not this test's.
    return Service("rest", properties, tmp_path, _remote(s3, f"{bucket}/rest/{name}"), name)


@pytest.fixture
def on_glue(glue: Glue, tmp_path: Path) -> Service:
    """Tables of local files in Glue."""
    warehouse = tmp_path / "tables"
    properties = {**glue.properties(), "warehouse": f"file://{warehouse}"}
    return Service("glue", properties, tmp_path, _local(warehouse), f"db{next(_numbers)}")


@pytest.fixture
def on_hive(hive: HiveMetastore, tmp_path: Path) -> Service:
    """Tables of local files in a Hive metastore."""
    warehouse = tmp_path / "tables"
    properties = {"type": "hive", "uri": hive.uri, "warehouse": f"file://{warehouse}"}
    return Service("hive", properties, tmp_path, _local(warehouse), f"db{next(_numbers)}")


@pytest.fixture(params=["postgres", "s3", "rest", "gcs", "azure"])
def service(request: pytest.FixtureRequest) -> Service:
    """Each kind of service in turn."""
    found = request.getfixturevalue(f"on_{request.param}")
    assert isinstance(found, Service)
    return found


_numbers = iter(range(1, 10_000))


def _need(reason: str | None) -> None:
    if reason and _ON_CI:
        pytest.fail(f"no test may skip on CI, but this machine lacks {reason}")
    if reason:
        pytest.skip(f"needs {reason}")


def _need_program(found: Path | str) -> None:
    _need(found if isinstance(found, str) else None)


def _on_cloud(kind: str, server: Gcs | Azure, folder: Path) -> Service:
    place, path = server.warehouse()
    properties = {
        "type": "sql",
        "uri": f"sqlite:///{folder}/catalog.db?timeout=60",
        "warehouse": f"{place}/tables",
        **server.properties(),
    }
    return Service(kind, properties, folder, _remote(server, path), judge=server.judge())


def _local(folder: Path) -> Callable[[], set[str]]:
    return lambda: {str(path) for path in folder.rglob("*") if path.is_file()}


def _remote(server: S3 | Gcs | Azure, folder: str) -> Callable[[], set[str]]:
    def files() -> set[str]:
        selector: Any = pafs.FileSelector(folder, allow_not_found=True, recursive=True)
        infos = server.files().get_file_info(selector)
        return {info.path for info in infos if info.type == pafs.FileType.File}

    return files
