"""AWS Glue as tests use it: moto in a process of its own."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import support
from support.servers.s3_server import REGION, missing
from support.servers.server_process import HOST, Server, free_port

__all__ = ["Glue", "missing"]


class Glue:
    """A running server."""

    def __init__(self, key: str, secret: str) -> None:
        """Start it."""
        self._key, self._secret = key, secret
        self._folder = tempfile.TemporaryDirectory(prefix="lake-glue-")
        port = free_port()
        program = [sys.executable, "-m", "support.servers.versioned_glue"]
        tests = str(Path(support.__file__).parents[1])
        self.server = Server(
            [*program, "-H", HOST, "-p", str(port)],
            port,
            Path(self._folder.name) / "log",
            env={**os.environ, "PYTHONPATH": tests},
        )
        self.uri = f"http://{HOST}:{port}"

    def properties(self, uri: str | None = None) -> dict[str, str]:
        """Return the properties with which PyIceberg reaches it."""
        return {
            "type": "glue",
            "glue.endpoint": uri or self.uri,
            "glue.region": REGION,
            "glue.access-key-id": self._key,
            "glue.secret-access-key": self._secret,
        }

    def end(self) -> None:
        """Stop it."""
        self.server.end()
        self._folder.cleanup()
