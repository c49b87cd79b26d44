"""Glue and Hive servers that accept connections and do not answer: commands end, and no outcome is guessed."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml
from hive_metastore import ThriftHiveMetastore
from hive_metastore.ttypes import (
    GetTableResult,
    GetTablesResult,
    LockResponse,
    LockState,
    StorageDescriptor,
    Table,
)
from support.cli.command_line import CommandLine
from support.cli.service_line import ConfiguredLine
from thrift.protocol.TBinaryProtocol import TBinaryProtocolFactory
from thrift.server.TServer import TThreadedServer
from thrift.transport.TSocket import TServerSocket
from thrift.transport.TTransport import TBufferedTransportFactory, TTransportException

from lake.core.table.catalogs.metastores import glue, hive

# A table that does not wait long to learn what became of a commit.
_QUICK = ("--property", "commit.status-check.min-wait-ms=1")
# The seconds in which a server must answer; a busy machine may need more than one for an answer.
_IMPATIENT = 3
# The request of a commit.
_COMMITS = {"glue": "UpdateTable", "hive": "alter_table_with_environment_context"}


class _Silence:
    """Which requests get no answer, and what is known of them.

    Args:
        silent: their name.
        place: the metadata file of the table a.t.
    """

    def __init__(self, silent: str, place: str) -> None:
        self.silent, self.place = silent, place
        self.asked, self.ended = threading.Event(), threading.Event()
        self.requests: list[str] = []

    def take(self, name: str) -> bool:
        """Note a request; wait for the end of the test and return False if it gets no answer."""
        self.requests.append(name)
        if name != self.silent:
            return True
        self.asked.set()
        self.ended.wait()
        return False


class _GlueHandler(BaseHTTPRequestHandler):
    silence: _Silence

    def log_message(self, *_: Any) -> None:
        """Print nothing."""

    def do_POST(self) -> None:
        """Answer, or wait for the end of the test."""
        self.rfile.read(int(self.headers["Content-Length"]))
        action = self.headers["X-Amz-Target"].removeprefix("AWSGlue.")
        if not self.silence.take(action):
            return
        entry = {
            "DatabaseName": "a",
            "Name": "t",
            "VersionId": "1",
            "TableType": "EXTERNAL_TABLE",
            "Parameters": {"table_type": "ICEBERG", "metadata_location": self.silence.place},
        }
        answers: Mapping[str, Any] = {
            "GetDatabases": {"DatabaseList": [{"Name": "a"}]},
            "GetTables": {"TableList": [entry]},
            "GetTable": {"Table": entry},
        }
        body = json.dumps(answers[action]).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/x-amz-json-1.1")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class _HiveHandler:
    """Answers the calls that commands make."""

    def __init__(self, silence: _Silence) -> None:
        self._silence = silence
        own = {"table_type": "ICEBERG", "metadata_location": silence.place}
        self._entry = Table(
            dbName="a",
            tableName="t",
            owner="",
            tableType="EXTERNAL_TABLE",
            sd=StorageDescriptor(cols=[]),
            partitionKeys=[],
            parameters=own,
        )

    def __getattr__(self, name: str) -> Any:
        answers = {
            "get_all_databases": ["a"],
            "get_all_tables": ["t"],
            "get_table_req": GetTableResult(table=self._entry),
            "get_table_objects_by_name_req": GetTablesResult(tables=[self._entry]),
            "lock": LockResponse(lockid=1, state=LockState.ACQUIRED),
            "check_lock": LockResponse(lockid=1, state=LockState.ACQUIRED),
            "unlock": None,
        }

        def answer(*_: object) -> Any:
            if not self._silence.take(name):
                raise TTransportException(message="the test has ended")
            return answers[name]

        return answer


@contextmanager
def glue_server(silence: _Silence) -> Iterator[int]:
    handler = type("Handler", (_GlueHandler,), {"silence": silence})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.05,)).start()
        try:
            yield server.server_port
        finally:
            silence.ended.set()
            server.shutdown()


@contextmanager
def hive_server(silence: _Silence) -> Iterator[int]:
    transport = TServerSocket("127.0.0.1", 0)
    transport.listen()
    # The server would listen at another port.
    transport.listen = lambda: None
    server = TThreadedServer(
        ThriftHiveMetastore.Processor(_HiveHandler(silence)),
        transport,
        TBufferedTransportFactory(),
        TBinaryProtocolFactory(),
        daemon=True,
    )

    def serve() -> None:
        with suppress(OSError, TTransportException):
            server.serve()

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield transport.handle.getsockname()[1]
    finally:
        silence.ended.set()
        transport.close()


_SERVERS = {"glue": glue_server, "hive": hive_server}


def line_of(kind: str, port: int, folder: Path) -> ConfiguredLine:
    """Return the command line with a server as its catalog."""
    properties = {
        "glue": {
            "type": "glue",
            "glue.endpoint": f"http://127.0.0.1:{port}",
            "glue.region": "us-east-1",
            "glue.max-retries": 0,
            "glue.access-key-id": "key",
            "glue.secret-access-key": "secret",
        },
        "hive": {"type": "hive", "uri": f"thrift://127.0.0.1:{port}"},
    }[kind]
    file = Path(os.environ["PYICEBERG_HOME"], ".pyiceberg.yaml")
    file.write_text(yaml.safe_dump({"catalog": {"far": properties}}))
    file.chmod(0o600)
    return ConfiguredLine(folder, engine="inline")


@pytest.fixture(params=["glue", "hive"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def place(tmp_path: Path) -> str:
    """The metadata file of a table of three small files."""
    lake = CommandLine(tmp_path / "warehouse", engine="inline")
    for number in range(3):
        lake.load(f"id\n{number}\n", "--create", *_QUICK, table="a.t")
    return str(lake.table("a.t").metadata_location)


def source(folder: Path) -> Path:
    path = folder / "one.csv"
    path.write_text("id\n7\n")
    return path


@pytest.mark.parametrize("verb", ["snapshots", "ingest", "maintain", "health"])
def test_a_stop_signal_ends_a_command_whose_catalog_never_answers(
    kind: str, verb: str, tmp_path: Path
) -> None:
    words = {"snapshots": ("a.t",), "ingest": ("a.t", source(tmp_path))}.get(verb, ())
    with socket.create_server(("127.0.0.1", 0)) as server:
        process = line_of(kind, server.getsockname()[1], tmp_path).start(verb, *words)
        server.settimeout(60)
        connection, _ = server.accept()
        with connection:
            assert connection.recv(1)
            process.send_signal(signal.SIGTERM)
            # A request may take 60 seconds.
            _, printed = process.communicate(timeout=45)

    assert process.returncode == 143, printed
    assert b"stopped" in printed


@pytest.mark.parametrize("verb", ["ingest", "compact", "maintain"])
def test_a_commit_that_is_not_answered_is_unknown_after_a_stop_signal(
    kind: str, verb: str, tmp_path: Path, place: str
) -> None:
    words = commands(verb, tmp_path)
    before = set(tmp_path.rglob("*.parquet"))
    silence = _Silence(_COMMITS[kind], place)

    with _SERVERS[kind](silence) as port:
        process = line_of(kind, port, tmp_path).start(*words)
        assert silence.asked.wait(60)
        process.send_signal(signal.SIGTERM)
        _, printed = process.communicate(timeout=45)

    assert_unknown(silence, process.returncode, printed.decode(), verb)
    assert len(set(tmp_path.rglob("*.parquet")) - before) == 1
    assert not list(tmp_path.rglob("lake.lock"))


@pytest.mark.parametrize("verb", ["ingest", "compact", "maintain"])
def test_a_commit_whose_answer_never_comes_is_unknown(
    kind: str, verb: str, tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(glue, "_READ_SECONDS", _IMPATIENT)
    monkeypatch.setattr(hive, "_READ_MS", _IMPATIENT * 1000)
    words = commands(verb, tmp_path)
    before = set(tmp_path.rglob("*.parquet"))
    silence = _Silence(_COMMITS[kind], place)

    with _SERVERS[kind](silence) as port:
        result = line_of(kind, port, tmp_path)(*words)

    assert_unknown(silence, result.exit_code, result.stderr, verb)
    assert len(set(tmp_path.rglob("*.parquet")) - before) == 1
    assert not list(tmp_path.rglob("lake.lock"))


def test_a_drop_that_is_not_answered_is_unknown(
    tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(glue, "_READ_SECONDS", _IMPATIENT)
    silence = _Silence("DeleteTable", place)

    with glue_server(silence) as port:
        result = line_of("glue", port, tmp_path)("drop", "a.t")

    assert result.exit_code == 5, result
    assert "may have" in result.stderr
    assert "has no attribute" not in result.stderr
    assert silence.requests.count("DeleteTable") == 1
    assert not list(tmp_path.rglob("lake.lock"))


def commands(verb: str, folder: Path) -> tuple[object, ...]:
    """Return the words of a command that commits once."""
    if verb == "maintain":
        policy = folder / "policy.toml"
        policy.write_text('["*".compact]\nwhen = "files > 1"\nmin-input-files = 2\n')
        return ("maintain", "--only", "compact", "--policy", policy)
    if verb == "compact":
        return ("compact", "a.t", "--min-input-files", 2)
    return ("ingest", "a.t", source(folder))


def assert_unknown(silence: _Silence, code: int, printed: str, verb: str) -> None:
    """Check that a change was sent once, and that its outcome is not known."""
    assert code == (6 if verb == "maintain" else 5), printed
    assert "did not confirm the commit" in printed
    assert "has no attribute" not in printed
    assert silence.requests.count(silence.silent) == 1
