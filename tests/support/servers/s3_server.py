"""An S3 server as tests use it: moto in a process of its own, addressed as MinIO is."""

from __future__ import annotations

import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow.fs as pafs

from support.servers.server_process import HOST, Server, free_port

REGION = "us-east-1"


def missing() -> str | None:
    """Return what this machine lacks, or None."""
    return None if find_spec("moto") and find_spec("flask_cors") else "moto[server]"


class S3:
    """A running server; each test has a bucket of its own."""

    def __init__(self, key: str, secret: str) -> None:
        """Start it."""
        self._key, self._secret = key, secret
        self._folder = tempfile.TemporaryDirectory(prefix="lake-s3-")
        self._buckets = 0
        self.server = self._start(Path(self._folder.name))
        self.endpoint = f"http://{HOST}:{self.server.port}"

    def _start(self, folder: Path) -> Server:
        """Start the server; its files go to a folder."""
        port = free_port()
        command = [sys.executable, "-m", "moto.server", "-H", HOST, "-p", str(port)]
        return Server(command, port, folder / "log")

    def properties(self, endpoint: str | None = None) -> dict[str, str]:
        """Return the storage properties with which PyIceberg reaches it."""
        return {
            "s3.endpoint": endpoint or self.endpoint,
            "s3.access-key-id": self._key,
            "s3.secret-access-key": self._secret,
            "s3.region": REGION,
            "s3.path-style-access": "true",
        }

    def bucket(self) -> str:
        """Return the name of a new, empty bucket."""
        self._buckets += 1
        name = f"lake{self._buckets}"
        self.files().create_dir(name)
        return name

    def warehouse(self) -> tuple[str, str]:
        """Return the location and the path of a new, empty bucket."""
        name = self.bucket()
        return f"s3://{name}", name

    def files(self) -> Any:
        """Return the server as PyArrow sees it."""
        return pafs.S3FileSystem(
            access_key=self._key,
            secret_key=self._secret,
            region=REGION,
            endpoint_override=self.endpoint,
            allow_bucket_creation=True,
            allow_bucket_deletion=True,
        )

    def end(self) -> None:
        """Stop it."""
        self.server.end()
        self._folder.cleanup()
