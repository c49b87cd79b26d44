"""A process's identity, and whether the process with an identity still runs."""

from __future__ import annotations

import getpass
import os
import socket
from functools import cache
from pathlib import Path

_ENDED = {"Z", "X"}  # killed, but its parent has not waited for it
_STATE, _STARTED = 0, 19  # positions among the fields after the command's name in /proc/<pid>/stat


def host_name() -> str:
    """Return the name of this machine, for users."""
    return socket.gethostname()


def user_name() -> str:
    """Return the user of this process and the machine, for users."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError, ImportError):
        user = str(os.getuid())
    return f"{user}@{host_name()}"


def process_name() -> str:
    """Return a name that no other process on any machine has; empty if the system does not provide enough."""
    fields = _fields(os.getpid())
    return f"{_machine()}#{os.getpid()}@{fields[_STARTED]}" if fields and _machine() else ""


def still_runs(name: str) -> bool | None:
    """Whether the named process runs; None if this machine cannot determine it."""
    machine, _, process = name.partition("#")
    number, _, started = process.partition("@")
    if not machine or machine != _machine() or not number.isdecimal():
        return None
    fields = _fields(int(number))
    return bool(fields) and fields[_STARTED] == started and fields[_STATE] not in _ENDED


@cache
def _machine() -> str:
    """Return the identity of this machine's boot and of its PID namespace (containers have their own)."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


def _fields(number: int) -> list[str]:
    """Return the fields after the command's name in /proc/<pid>/stat; nothing if the process has ended."""
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
