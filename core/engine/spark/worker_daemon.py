"""The process from which Spark forks workers on this machine. It imports their modules while the JVM starts.

Spark runs this module with its first task. The module passes its descriptors and environment to the process that
`Preloaded` started, which becomes Spark's daemon; without such a process, the daemon is PySpark's own.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

# Relative to the folder of the start, in which the JVM and its daemon run: a socket's path must be short.
_SOCKET = "daemon"
_WORKER = "pyspark.worker"
_LENGTH_BYTES = 8
_DESCRIPTORS = (0, 1, 2)
_TAKEN = b"1"


class Preloaded:
    """A process that waits for Spark. The constructor starts it."""

    def __init__(
        self, folder: Path, modules: Sequence[str], environment: Mapping[str, str]
    ) -> None:
        self.process = subprocess.Popen(  # noqa: S603 - our own module
            [sys.executable, "-P", "-m", __name__, *modules],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=folder,
            # Spark sets this for its daemon too: threads do not survive a fork.
            env={**environment, "OMP_NUM_THREADS": "1"},
            # Ctrl-C in a terminal reaches only lake. It must not lead a session, to become a daemon of Spark.
            process_group=0,
        )

    def end(self) -> None:
        """Kill it, and all workers that it forked. May be called twice."""
        if self.process.poll() is None:
            # Another thread may have killed it meanwhile.
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        if self.process.stdin:
            self.process.stdin.close()


def _become_daemon(modules: Sequence[str]) -> None:
    """Import modules, and be the daemon of the first process that asks; end if the parent ends before."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(_SOCKET)
        listener.listen(1)
        for name in ("pyspark.daemon", *modules):
            importlib.import_module(name)
        sources: list[Any] = [0, listener]
        ready, _, _ = select.select(sources, [], [])
        if listener not in ready:
            return
        connection, _ = listener.accept()
    os.unlink(_SOCKET)
    length, descriptors, _, _ = socket.recv_fds(connection, _LENGTH_BYTES, len(_DESCRIPTORS))
    with connection.makefile("rb") as source:
        environment = json.loads(source.read(int.from_bytes(length, "little")))
    for own, given in zip(_DESCRIPTORS, descriptors, strict=True):
        os.dup2(given, own)
        os.close(given)
    os.environ.clear()
    os.environ.update(environment)
    connection.sendall(_TAKEN)
    # Workers collect garbage after each task; what was imported is not garbage.
    gc.freeze()
    _run_daemon()


def _hand_over() -> bool:
    """Make the waiting process the daemon, and wait for its end; False if there is none."""
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(_SOCKET)
            environment = json.dumps(dict(os.environ)).encode()
            length = len(environment).to_bytes(_LENGTH_BYTES, "little")
            socket.send_fds(connection, [length], _DESCRIPTORS)
            connection.sendall(environment)
            if connection.recv(1) != _TAKEN:
                return False
        except OSError:
            return False
        with suppress(OSError):
            connection.recv(1)
    return True


def _run_daemon() -> None:
    from pyspark.daemon import manager  # noqa: PLC0415 - only if this process is the daemon

    manager()


if __name__ == "__main__":
    if sys.argv[1:] != [_WORKER]:
        _become_daemon(sys.argv[1:])
    elif not _hand_over():
        _run_daemon()
