"""A process's name, and whether the process of a name still runs."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

_GONE = {"Z", "X"}  # killed, and not yet waited for
_STATE, _STARTED = 0, 19  # places among the fields behind the command's name in /proc/<pid>/stat


def process_name() -> str:
    """Return a name that no other process of any machine has; empty where the system tells too little."""
    fields = _fields(os.getpid())
    return f"{_place()}#{os.getpid()}@{fields[_STARTED]}" if fields and _place() else ""


def still_runs(name: str) -> bool | None:
    """Whether the process of a name runs; None where this machine cannot tell."""
    place, _, process = name.partition("#")
    number, _, started = process.partition("@")
    if not place or place != _place() or not number.isdecimal():
        return None
    fields = _fields(int(number))
    return bool(fields) and fields[_STARTED] == started and fields[_STATE] not in _GONE


@cache
def _place() -> str:
    """Name this machine since it started, and the room of process numbers in it (containers have their own)."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


def _fields(number: int) -> list[str]:
    """Return what the kernel tells of a process behind its command's name; nothing if it is gone."""
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
