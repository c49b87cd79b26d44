"""A server of a catalog that lists tables and then does not answer: a stop signal ends the command."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.cli.service_line import ConfiguredLine


class _Server(ThreadingHTTPServer):
    """A REST catalog with tables in two namespaces; requests whose path ends with a text get no answer."""

    daemon_threads = True

    def __init__(self, silent: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.silent = silent
        self.asked, self.ended = threading.Event(), threading.Event()


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def log_message(self, *_: Any) -> None:
        """Print nothing."""

    def do_GET(self) -> None:
        """Answer, or wait for the end of the test."""
        path = self.path.partition("?")[0]
        if path.endswith(self.server.silent):
            self.server.asked.set()
            self.server.ended.wait()
            return
        body = json.dumps(self._answer(path)).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _answer(self, path: str) -> dict[str, Any]:
        if path.endswith("/config"):
            return {"defaults": {}, "overrides": {}}
        if path.endswith("/namespaces"):
            return {"namespaces": [] if "parent" in self.path else [["a"], ["b"]]}
        namespace = path.split("/")[-2]
        return {"identifiers": [{"namespace": [namespace], "name": "t"}]}


@pytest.fixture(params=["/a/tables", "/a/tables/t"], ids=["a list", "a table"])
def server(request: pytest.FixtureRequest) -> Iterator[_Server]:
    with _Server(request.param) as running:
        threading.Thread(target=running.serve_forever, args=(0.05,)).start()
        yield running
        running.ended.set()
        running.shutdown()


@pytest.mark.parametrize(
    "command", [("tables",), ("health",), ("maintain", "--dry-run")], ids=lambda words: words[0]
)
def test_a_stop_signal_does_not_wait_for_a_server_that_does_not_answer(
    server: _Server, tmp_path: Path, command: tuple[str, ...]
) -> None:
    file = Path(os.environ["PYICEBERG_HOME"], ".pyiceberg.yaml")
    uri = f"http://127.0.0.1:{server.server_port}"
    file.write_text(yaml.safe_dump({"catalog": {"far": {"type": "rest", "uri": uri}}}))
    file.chmod(0o600)
    process = ConfiguredLine(tmp_path, engine="inline").start("--catalog", "far", *command)
    assert server.asked.wait(60)

    process.send_signal(signal.SIGTERM)

    _, printed = process.communicate(timeout=60)
    assert process.returncode == 143, printed
    assert b"stopped" in printed
