"""A server of a catalog that lists tables and then does not answer: a stop signal ends the command."""

from __future__ import annotations

import json
import os
import re
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.cli.command_line import CommandLine
from support.cli.service_line import ConfiguredLine


class _Server(ThreadingHTTPServer):
    """A REST catalog with tables in two namespaces; some requests get no answer.

    Args:
        silent: the method, a pattern of the end of the path, and the number of such requests that are answered.
        metadata: the metadata files of tables, by the ends of their paths.
        tables: the number of tables in each namespace.
    """

    daemon_threads = True

    def __init__(
        self,
        method: str,
        silent: str,
        answered: int = 0,
        metadata: Mapping[str, Path] | None = None,
        tables: int = 1,
    ) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.method, self.silent, self.answered = method, silent, answered
        self.metadata = metadata or {}
        self.names = ["t", *(f"t{number}" for number in range(1, tables))]
        self.silences = 0
        self.asked, self.ended = threading.Event(), threading.Event()
        self.changes = 0

    def is_silent(self, method: str, path: str) -> bool:
        """Whether a request gets no answer."""
        if method != self.method or not re.search(f"{self.silent}$", path):
            return False
        self.answered -= 1
        self.silences += self.answered < 0
        return self.answered < 0


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def log_message(self, *_: Any) -> None:
        """Print nothing."""

    def do_GET(self) -> None:
        """Answer, or wait for the end of the test."""
        path = self.path.partition("?")[0]
        if self.server.is_silent(self.command, path):
            self.server.asked.set()
            self.server.ended.wait()
            return
        body = json.dumps(self._answer(path)).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        """Count a change, and answer or wait."""
        self.server.changes += 1
        self.do_GET()

    def _answer(self, path: str) -> dict[str, Any]:
        if path.endswith("/config"):
            return {"defaults": {}, "overrides": {}}
        if path.endswith("/namespaces"):
            return {"namespaces": [] if "parent" in self.path else [["a"], ["b"]]}
        namespace = path.split("/")[-2]
        if file := self.server.metadata.get(path.partition("/namespaces")[2]):
            return {"metadata-location": f"file://{file}", "metadata": json.loads(file.read_text())}
        names = [{"namespace": [namespace], "name": name} for name in self.server.names]
        return {"identifiers": names}


@contextmanager
def running(server: _Server) -> Iterator[_Server]:
    """Let a server answer in the background."""
    with server:
        threading.Thread(target=server.serve_forever, args=(0.05,)).start()
        try:
            yield server
        finally:
            server.ended.set()
            server.shutdown()


def line_of(server: _Server, folder: Path, **more: object) -> ConfiguredLine:
    """Return the command line with the server as its catalog."""
    file = Path(os.environ["PYICEBERG_HOME"], ".pyiceberg.yaml")
    uri = f"http://127.0.0.1:{server.server_port}"
    file.write_text(yaml.safe_dump({"catalog": {"far": {"type": "rest", "uri": uri, **more}}}))
    file.chmod(0o600)
    return ConfiguredLine(folder, engine="inline")


def stopped(server: _Server, folder: Path, *command: object) -> tuple[int, str]:
    """Stop a command when the server is silent; return the exit code and what it prints."""
    process = line_of(server, folder).start("--catalog", "far", *command)
    assert server.asked.wait(60)

    process.send_signal(signal.SIGTERM)

    # A request may take 60 seconds, and is repeated.
    _, printed = process.communicate(timeout=45)
    return process.returncode, printed.decode()


@pytest.fixture(params=["/a/tables", "/a/tables/t"], ids=["a list", "a table"])
def server(request: pytest.FixtureRequest) -> Iterator[_Server]:
    with running(_Server("GET", request.param)) as found:
        yield found


@pytest.mark.parametrize(
    "command", [("tables",), ("health",), ("maintain", "--dry-run")], ids=lambda words: words[0]
)
def test_a_stop_signal_does_not_wait_for_a_server_that_does_not_answer(
    server: _Server, tmp_path: Path, command: tuple[str, ...]
) -> None:
    code, printed = stopped(server, tmp_path, *command)

    assert code == 143, printed
    assert "stopped" in printed


# Lists are answered, also if a busy machine answers late and is asked once more.
IMPATIENT = {"rest.client.socket-timeout-ms": 500}
_TABLE = "/tables/[^/]+"


def test_after_many_tables_without_an_answer_the_others_are_not_asked_for(tmp_path: Path) -> None:
    with running(_Server("GET", _TABLE, tables=60)) as server:
        lake = line_of(server, tmp_path, **IMPATIENT)
        result = lake("--json", "health")

        assert result.exit_code == 6
        rows = result.json()["result"]["tables"]
        assert len(rows) == 120
        assert {row["error"]["kind"] for row in rows} == {"timed-out"}
        asked = [row for row in rows if "was not asked for" not in row["error"]["message"]]
        assert 16 <= len(asked) <= 24
        (hint,) = {row["error"]["hint"] for row in rows if row not in asked}
        assert "run the command again" in hint
        # Each request is repeated once. The last of them may arrive when it is not waited for any more.
        until = time.monotonic() + 60
        while server.silences < 2 * len(asked) and time.monotonic() < until:
            time.sleep(0.01)
        assert server.silences == 2 * len(asked)


@pytest.mark.parametrize(
    "command",
    [("tables",), ("maintain", "--dry-run"), ("expire", "a.*", "--jobs", "8")],
    ids=lambda words: words[0],
)
def test_every_command_on_many_tables_ends_early(tmp_path: Path, command: tuple[str, ...]) -> None:
    with running(_Server("GET", _TABLE, tables=60)) as server:
        result = line_of(server, tmp_path, **IMPATIENT)(*command)

        assert result.exit_code == 6
        assert "was not asked for" in result.stdout + result.stderr
        # More than eight threads may ask at a time.
        assert server.silences <= 64


def test_tables_that_are_not_answered_among_others_do_not_end_the_listing(
    tables: dict[str, Path], tmp_path: Path
) -> None:
    with running(_Server("GET", "/tables/t1", metadata=tables, tables=2)) as server:
        result = line_of(server, tmp_path, **IMPATIENT)("--json", "health")

        rows = {row["table"]: row["error"] for row in result.json()["result"]["tables"]}
        assert [name for name, error in rows.items() if error] == ["a.t1", "b.t1"]


@pytest.fixture
def tables(tmp_path: Path) -> dict[str, Path]:
    """The metadata files of two tables with small files, as the server has them."""
    lake = CommandLine(tmp_path / "warehouse", engine="inline")
    found = {}
    for namespace in ("a", "b"):
        name = f"{namespace}.t"
        for number in range(3):
            lake.load(f"id\n{number}\n", "--create", table=name)
        place = lake.table(name).metadata_location
        found[f"/{namespace}/tables/t"] = Path(place.removeprefix("file://"))
    return found


def maintained(folder: Path, *more: object) -> tuple[object, ...]:
    policy = folder / "policy.toml"
    policy.write_text('["*".compact]\nwhen = "files > 1"\nmin-input-files = 2\n')
    return ("maintain", "--only", "compact", "--policy", policy, *more)


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_stop_signal_ends_all_threads_that_wait_for_a_table(
    tables: dict[str, Path], tmp_path: Path, jobs: int
) -> None:
    # The tables are read once before.
    with running(_Server("GET", "/tables/t", 2, tables)) as server:
        code, printed = stopped(server, tmp_path, *maintained(tmp_path, "--jobs", jobs))

    assert code == 143, printed
    assert server.changes == 0


@pytest.mark.parametrize("verb", ["ingest", "compact"])
def test_a_commit_that_is_not_answered_is_unknown_after_a_stop_signal_and_removes_nothing(
    tables: dict[str, Path], tmp_path: Path, verb: str
) -> None:
    source = tmp_path / "one.csv"
    source.write_text("id\n7\n")
    words = {"ingest": (source,), "compact": ("--min-input-files", 2)}[verb]
    before = set(tmp_path.rglob("*.parquet"))

    with running(_Server("POST", "/a/tables/t", 0, tables)) as server:
        code, printed = stopped(server, tmp_path, verb, "a.t", *words)

    assert code == 5, printed
    assert server.changes == 1
    assert len(set(tmp_path.rglob("*.parquet")) - before) == 1
    assert not list(tmp_path.rglob("lake.lock"))


@pytest.mark.parametrize("jobs", [1, 2])
def test_after_a_commit_that_is_not_answered_a_stop_signal_ends_the_round(
    tables: dict[str, Path], tmp_path: Path, jobs: int
) -> None:
    with running(_Server("POST", "/tables/t", 0, tables)) as server:
        code, printed = stopped(server, tmp_path, *maintained(tmp_path, "--jobs", jobs))

    assert (code, server.changes) == (143, jobs), printed
    assert "did not confirm the commit" in printed
