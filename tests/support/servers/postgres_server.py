"""PostgreSQL as tests use it: a cluster of its own in a temporary folder, a database for each test."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from support.servers.server_process import HOST, Server, free_port

USER = "lake"
_TRIES = 300
# Nothing is kept, so nothing need reach the disk.
_SETTINGS = ("fsync=off", "synchronous_commit=off", "full_page_writes=off", "max_connections=60")
# Becomes user argv[1] of group argv[2] and runs the rest. A new interpreter does it, not this process: to change
# the user, subprocess has to fork, and a fork of a process with many threads of libraries may crash.
_AS_USER = """
import os, sys
os.setgroups([])
os.setgid(int(sys.argv[2]))
os.setuid(int(sys.argv[1]))
os.execv(sys.argv[3], sys.argv[3:])
"""


def missing() -> str | None:
    """Return what this machine lacks, or None."""
    return None if _binaries() else "PostgreSQL (Debian's package postgresql)"


class Postgres:
    """A running cluster."""

    def __init__(self, password: str) -> None:
        """Make it and start it; as root, under another user, because it refuses to run as root."""
        self._password = password
        self._folder = Path(tempfile.mkdtemp(prefix="lake-postgres-"))
        self._databases = 0
        try:
            self._binaries = _binaries()
            assert self._binaries is not None
            self._prefix = _unprivileged(self._folder)
            self._initialise()
            self.server = self._start()
            self._wait()
        except BaseException:
            shutil.rmtree(self._folder)
            raise

    def uri(self) -> str:
        """Return a new database's address, as SQLAlchemy takes it."""
        self._databases += 1
        name = f"catalog{self._databases}"
        self.run(f"CREATE DATABASE {name}")
        return f"postgresql+psycopg2://{USER}:{self._password}@{HOST}:{self.server.port}/{name}"

    def run(self, statement: str, database: str = "postgres") -> str:
        """Run a statement and return its rows as psql prints them."""
        assert self._binaries is not None
        command = [
            *(self._binaries / "psql", "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1"),
            *("-h", HOST, "-p", str(self.server.port), "-U", USER, "-d", database),
        ]
        done = subprocess.run(
            [*command, "-c", statement],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PGPASSWORD": self._password},
        )
        return done.stdout.strip()

    def end(self) -> None:
        """Stop it and remove its files."""
        self.server.end()
        shutil.rmtree(self._folder)

    def _wait(self) -> None:
        """Return when it takes statements: it listens before that."""
        for _ in range(_TRIES):
            try:
                self.run("SELECT 1")
            except subprocess.CalledProcessError:
                time.sleep(0.1)
            else:
                return
        raise RuntimeError(f"PostgreSQL does not start:\n{self.server.output[-4000:]}")

    def _initialise(self) -> None:
        secret = self._folder / "password"
        secret.write_text(self._password)
        owner = self._folder.stat()
        os.chown(secret, owner.st_uid, owner.st_gid)
        assert self._binaries is not None
        command = [
            *(*self._prefix, self._binaries / "initdb", "-D", self._folder / "data", "-U", USER),
            *(
                "--no-sync",
                "--auth=scram-sha-256",
                f"--pwfile={secret}",
                "-E",
                "UTF8",
                "--locale=C",
            ),
        ]
        done = subprocess.run(
            command, check=False, capture_output=True, text=True, cwd=self._folder
        )
        if done.returncode:
            raise RuntimeError(f"initdb ended with {done.returncode}:\n{done.stdout}{done.stderr}")

    def _start(self) -> Server:
        port = free_port()
        assert self._binaries is not None
        settings = [
            *_SETTINGS,
            f"listen_addresses={HOST}",
            f"port={port}",
            "unix_socket_directories=",
        ]
        return Server(
            [
                *(*self._prefix, self._binaries / "postgres", "-D", self._folder / "data"),
                *(part for setting in settings for part in ("-c", setting)),
            ],
            port,
            self._folder / "log",
            # Without waiting for clients.
            end_signal=signal.SIGINT,
            cwd=self._folder,
        )


def _binaries() -> Path | None:
    """Return the folder of the newest PostgreSQL; Debian keeps it off the path."""
    versions = [
        path
        for path in Path("/usr/lib/postgresql").glob("*/bin")
        if re.fullmatch(r"\d+", path.parent.name) and (path / "initdb").exists()
    ]
    if versions:
        return max(versions, key=lambda path: int(path.parent.name))
    found = shutil.which("initdb")
    return Path(found).parent if found else None


def _unprivileged(folder: Path) -> list[str]:
    """Give a folder to an unprivileged user; return what precedes a command that is run as this user."""
    if os.geteuid() != 0:
        return []
    for name in ("postgres", "nobody"):
        try:
            user = pwd.getpwnam(name)
        except KeyError:
            continue
        os.chown(folder, user.pw_uid, user.pw_gid)
        return [sys.executable, "-I", "-S", "-c", _AS_USER, str(user.pw_uid), str(user.pw_gid)]
    raise RuntimeError("this machine has no user but root")
