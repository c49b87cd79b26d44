"""An S3 server that shares no code with its clients: Versity's gateway on a folder, which Go builds once."""

from __future__ import annotations

import os
from pathlib import Path

from support.servers import built
from support.servers.s3_server import REGION, S3
from support.servers.server_process import HOST, Server, free_port

_VERSION = "v1.8.0"


def missing() -> str | None:
    """Return what this machine lacks, or None; the program is built if it is not there, which takes minutes."""
    found = _program()
    return found if isinstance(found, str) else None


class Gateway(S3):
    """A running gateway; it writes objects as files, with real multipart uploads and conditional writes."""

    def _start(self, folder: Path) -> Server:
        port = free_port()
        (folder / "objects").mkdir()
        address = f"{HOST}:{port}"
        keys = {"ROOT_ACCESS_KEY": self._key, "ROOT_SECRET_KEY": self._secret}
        command = [_program(), "--port", address, "--region", REGION, "--quiet", "posix"]
        environment = {**os.environ, **keys}
        return Server([*command, folder / "objects"], port, folder / "log", env=environment)


def _program() -> Path | str:
    return built.by_go("versitygw", "github.com/versity/versitygw/cmd/versitygw", _VERSION)
