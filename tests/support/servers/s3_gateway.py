"""An S3 server that shares no code with its clients: Versity's gateway on a folder, which Go builds once."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from support.peers.java_peer import CACHE
from support.servers.s3_server import REGION, S3
from support.servers.server_process import HOST, Server, free_port

_VERSION = "v1.8.0"
_LONGEST_BUILD = 600
_PACKAGE = f"github.com/versity/versitygw/cmd/versitygw@{_VERSION}"


def missing() -> str | None:
    """Return what this machine lacks, or None; the program is built if it is not there, which takes minutes."""
    if not shutil.which("go") and not _program().exists():
        return "Go"
    try:
        _build()
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        return f"a program that Go builds: {error}"
    return None


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


def _program() -> Path:
    return CACHE / f"versitygw-{_VERSION}"


def _build() -> None:
    CACHE.mkdir(parents=True, exist_ok=True)
    program = _program()
    with (CACHE / "versitygw.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not program.exists():
            with tempfile.TemporaryDirectory(dir=CACHE) as folder:
                environment = {**os.environ, "GOBIN": folder, "GOFLAGS": "-mod=mod"}
                command = ["go", "install", _PACKAGE]
                subprocess.run(
                    command, check=True, env=environment, stdout=sys.stderr, timeout=_LONGEST_BUILD
                )
                (Path(folder) / "versitygw").rename(program)
