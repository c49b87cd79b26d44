"""Canary secrets in every place that may hold one are in no output, no log, no file, no part of Spark."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path
from typing import Any, Self

import pytest
from support.cli.service_line import ConfiguredLine, Service, csv
from support.faults.faulty_proxy import Answer, Asked, Forward, Proxy, refused
from support.servers.postgres_server import Postgres
from support.servers.rest_server import RestServer
from support.servers.s3_server import S3
from support.servers.server_process import HOST, free_port

# Besides those of the servers: what logs in to the catalog, and what it vends.
LOGIN = {
    "credential": "canary-client-18f2aa:canary-credential-90be55",
    "header.x-api-key": "canary-header-661c0d",
}
ANSWERED_TOKEN = "canary-answered-token-3cd902"
VENDED = {
    "s3.session-token": "canary-session-4a17be",
    "adls.account-key": "canary-adls-key-d20c6e",
    "adls.sas-token.a": "canary-adls-sas-71a5f3",
    "gcs.oauth2.token": "canary-gcs-8e64c0",
    "token": "canary-table-token-f3b902",
}
PRESIGNED = (
    "https://b.example/k?X-Amz-Credential=canary-presigned-0a1&X-Amz-Signature=canary-52fe17"
)
ENVIRONMENT = {"LAKE_TEST_API_TOKEN": "canary-environment-a9d14b"}
CANARY = "canary-"
# The signal, and the request at which it arrives.
STOPS = [
    (signal.SIGKILL, "POST"),
    pytest.param(signal.SIGTERM, "GET", marks=pytest.mark.slow),
    pytest.param(signal.SIGINT, "GET", marks=pytest.mark.slow),
]
pytestmark = pytest.mark.filterwarnings("ignore:Deprecated in 0.8.0")


@pytest.fixture
def secretive(
    on_rest: Service, rest: tuple[RestServer, str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Service, Proxy]]:
    """A catalog that wants secrets and vends others, which are also all over its answers' headers."""
    for name, text in ENVIRONMENT.items():
        monkeypatch.setenv(name, text)
    with Proxy(rest[0].uri) as proxy:
        proxy.changes.append(_vend)
        properties = {**on_rest.properties, **LOGIN, "uri": proxy.uri}
        yield (
            Service("secretive", properties, on_rest.folder, on_rest.list_files, on_rest.namespace),
            proxy,
        )


def test_no_command_prints_a_secret_whether_it_succeeds_or_fails(
    secretive: tuple[Service, Proxy], s3: S3
) -> None:
    service, proxy = secretive
    lake, table = service.line(), service.table()
    source = csv(service.folder, "one.csv", id=[1])
    old = ("--older-than", "0s", "--unsafe-retention")
    commands: list[tuple[Any, ...]] = [
        ("ingest", table, source, "--create", "--dry-run"),
        ("ingest", table, source, "--create"),
        ("ingest", table, source, "--upsert", "--key", "id"),
        ("scan", table),
        ("scan", table, "--plan"),
        ("compact", table, "--rewrite-all"),
        ("expire", table, *old, "--dry-run"),
        ("expire", table, *old),
        ("snapshots", table),
        ("scan", table, "--changes"),
        ("ingest", table, source, "--stage", "--run-id", "r"),
        ("ingest", table, source, "--stage", "--run-id", "s"),
        ("ingest", table, "--discard", "s"),
        ("replay", table),
        ("replay", table, "--status"),
        ("replay", table, "--job", "r", "--completed", "1", "--quiet-time", "0s"),
        ("snapshots", "none.such"),
        ("ingest", table, "s3://canary/missing.parquet"),
    ]
    for words in commands:
        for options in (("--json",), ("--verbose",)):
            _silent(lake(*options, *words))
    _nothing_stored(service, s3)
    for fault in (_echoing, refused(401), refused(500, str(LOGIN))):
        proxy.fail("GET", "/tables/t$", *[fault] * 6)
        for options in (("--json",), ("--verbose",)):
            _silent(lake(*options, "snapshots", table))
        proxy.fail("POST", "/tables/t$", fault)
        _silent(lake("--verbose", "ingest", table, source))
        proxy._faults.clear()
    assert _sent(proxy, ANSWERED_TOKEN)
    assert _sent(proxy, LOGIN["header.x-api-key"])


@pytest.mark.parametrize(("number", "method"), STOPS)
def test_a_run_that_is_stopped_leaves_no_secret(
    secretive: tuple[Service, Proxy], s3: S3, tmp_path: Path, number: int, method: str
) -> None:
    service, proxy = secretive
    lake, table = service.line(), service.table()
    lake.ok("ingest", table, csv(service.folder, "one.csv", id=[1]), "--create")
    lake.ok("ingest", table, csv(service.folder, "two.csv", id=[2]), "--overwrite")
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    asked = proxy.times(method, "/tables/t$")
    proxy.fail(method, "/tables/t$", proxy.hang)
    words = ("--verbose", "expire", table, "--older-than", "0s", "--unsafe-retention")
    process = lake.start(*words, env={**os.environ, "TMPDIR": str(scratch)})
    while proxy.times(method, "/tables/t$") == asked:
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    process.send_signal(number)
    out, err = process.communicate(timeout=120)

    assert process.returncode in {-signal.SIGKILL, 130, 143}
    assert CANARY.encode() not in out + err
    left = [path for path in scratch.rglob("*") if path.is_file()]
    assert not any(CANARY.encode() in path.read_bytes() for path in left)
    _nothing_stored(service, s3)


def test_a_databases_password_is_printed_by_no_command(
    postgres: Postgres, on_postgres: Service
) -> None:
    lake, table = on_postgres.line(), on_postgres.table()
    source = csv(on_postgres.folder, "one.csv", id=[1])
    commands: list[tuple[Any, ...]] = [
        ("ingest", table, source, "--create"),
        ("compact", table, "--rewrite-all"),
        ("expire", table, "--older-than", "0s", "--unsafe-retention"),
        ("scan", table),
        ("snapshots", table),
        ("replay", table),
    ]
    database = on_postgres.properties["uri"].rpartition("/")[2]
    for refused_ in (False, True):
        if refused_:
            postgres.run(f"ALTER DATABASE {database} ALLOW_CONNECTIONS false")
        for words in commands:
            for options in (("--json",), ("--verbose",)):
                result = lake(*options, *words)
                assert (result.exit_code in {7, 9}) == refused_, result
                _silent(result)


def test_spark_shows_no_secret_in_its_pages_its_event_log_its_files_or_its_arguments(
    secretive: tuple[Service, Proxy], tmp_path: Path
) -> None:
    service, proxy = secretive
    lake, table = service.line(), service.table()
    for number in range(3):
        lake.ok("ingest", table, csv(service.folder, f"{number}.csv", id=[number]), "--create")
    port, events, scratch = free_port(), tmp_path / "events", tmp_path / "scratch"
    events.mkdir()
    scratch.mkdir()
    settings = {
        "spark.ui.enabled": "true",
        "spark.ui.port": port,
        "spark.ui.host": HOST,
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": f"file://{events}",
        "spark.eventLog.compress": "false",
        "spark.log.level": "INFO",
    }
    conf = [part for key, value in settings.items() for part in ("--spark-conf", f"{key}={value}")]
    with _Watch(port) as watch:

        def read_first(asked: Asked) -> None:
            # Spark is there until the commit.
            if b"add-snapshot" in asked.body:
                watch.read_all()

        proxy.guard = read_first
        process = ConfiguredLine(service.folder, engine="spark").start(
            *("--verbose", *conf, "compact", table, "--rewrite-all"),
            env={**os.environ, "TMPDIR": str(scratch)},
        )
        watch.process = process.pid
        out, err = process.communicate(timeout=300)

    assert process.returncode == 0, err.decode()
    assert service.rows() == [(0,), (1,), (2,)]
    event_log = b"".join(path.read_bytes() for path in events.rglob("*") if path.is_file())
    # The searched text is what Spark records.
    assert b"SparkListenerTaskEnd" in event_log
    assert b"PythonRDD" in event_log
    assert b"spark.eventLog.dir" in watch.read["environment"]
    assert {"jobs", "stages", "page jobs/", "page environment/"} <= watch.read.keys()
    assert any("SparkSubmit" in text for text in watch.arguments)
    assert any("worker_daemon" in text for text in watch.arguments)
    # What this test put there itself is inherited.
    inherited = [f"{name}={text}" for name, text in ENVIRONMENT.items()]
    environments = {without(text, inherited) for text in watch.environments}
    assert any("SPARK" in text for text in environments)
    shown = (*watch.arguments, *environments)
    for text in (out, err, event_log, *watch.read.values(), *map(str.encode, shown)):
        assert CANARY.encode() not in text
    left = [path for path in scratch.rglob("*") if path.is_file()]
    assert not any(CANARY.encode() in path.read_bytes() for path in left)


def without(text: str, parts: list[str]) -> str:
    """Return a text without some others."""
    for part in parts:
        text = text.replace(part, "")
    return text


def _nothing_stored(service: Service, s3: S3) -> None:
    files = [name for name in service.list_files() if f"/{service.namespace}/" in name]
    assert files
    for name in files:
        with s3.files().open_input_file(name) as file:
            assert CANARY.encode() not in file.read(), name


def _silent(result: Any) -> None:
    assert CANARY not in (result.stdout + result.stderr).replace("s3://canary/", ""), result


def _sent(proxy: Proxy, secret: str) -> bool:
    return any(secret in str(item.headers) for item in proxy.asked)


def _vend(asked: Asked, answer: Answer) -> Answer:
    """Give a token at each login, and vend credentials of every kind with each table."""
    if asked.path.endswith("/oauth/tokens"):
        token = {"access_token": ANSWERED_TOKEN, "token_type": "bearer", "expires_in": 3600}
        return _document(token)
    if "/tables" not in asked.path or answer.status != 200 or not answer.body:
        return answer
    document = json.loads(answer.body)
    document["config"] = {**document.get("config", {}), **VENDED}
    return _document(document)


def _echoing(asked: Asked, _forward: Forward) -> Answer:
    """Fail and repeat all that was sent and would have been answered."""
    text = f"no: {asked.headers} {asked.body.decode()} {VENDED} {LOGIN} {PRESIGNED}"
    return Answer(500, {}, text.encode())


def _document(content: dict[str, Any]) -> Answer:
    return Answer(200, {"Content-Type": "application/json"}, json.dumps(content).encode())


class _Watch:
    """Reads Spark's pages and its REST interface, and all processes' arguments, while it runs."""

    def __init__(self, port: int) -> None:
        self._base = f"http://{HOST}:{port}"
        self.read: dict[str, bytes] = {}
        self.arguments: set[str] = set()
        self.environments: set[str] = set()
        self.process = 0
        self._rounds = 0
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()

    def read_all(self) -> None:
        """Return when all has been read that was there at the call."""
        begun = self._rounds
        while self._rounds < begun + 2 and not self._stopped.wait(0.05):
            pass

    def _run(self) -> None:
        while not self._stopped.is_set():
            self._read_arguments()
            try:
                (application,) = json.loads(self._get("/api/v1/applications"))
            except (OSError, HTTPException, ValueError):
                time.sleep(0.05)
                continue
            root = f"/api/v1/applications/{application['id']}"
            for name in ("environment", "jobs", "stages", "sql", "allexecutors"):
                self._keep(name, f"{root}/{name}?details=true&planDescription=true")
            for page in ("jobs/", "stages/", "SQL/", "environment/", "executors/"):
                self._keep(f"page {page}", f"/{page}")
            for number in range(3):
                self._keep(f"stage {number}", f"{root}/stages/{number}?details=true")
                self._keep(f"page sql {number}", f"/SQL/execution/?id={number}")
            self._rounds += 1

    def _keep(self, name: str, path: str) -> None:
        try:
            self.read[name] = self.read.get(name, b"") + self._get(path)
        except (OSError, HTTPException):
            return

    def _get(self, path: str) -> bytes:
        with urllib.request.urlopen(self._base + path, timeout=60) as response:
            return response.read()

    def _read_arguments(self) -> None:
        wanted = [self.process] if self.process else []
        while wanted:
            number = wanted.pop()
            with suppress(OSError):
                arguments = Path(f"/proc/{number}/cmdline").read_bytes()
                self.arguments.add(arguments.replace(b"\0", b" ").decode(errors="replace"))
                environment = Path(f"/proc/{number}/environ").read_bytes()
                self.environments.add(environment.replace(b"\0", b" ").decode(errors="replace"))
                for task in Path(f"/proc/{number}/task").iterdir():
                    wanted += map(int, (task / "children").read_text().split())
