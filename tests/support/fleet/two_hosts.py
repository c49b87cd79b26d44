"""Two runs of `lake maintain` at once, each with a host name, a machine and a run log of its own."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from support.fleet.fleet import Fleet
from support.fleet.judge import Graded, left, maintained

# A process of another machine: whether it runs cannot be seen from here.
_SCRIPT = """
import socket, sys
from lake.core.base import process_identity
name = sys.argv.pop(1)
socket.gethostname = lambda: name
process_identity._machine = lambda: name
from lake.cli.main import main
sys.exit(main(sys.argv[1:]))
"""
_REWRITES = frozenset({"compact", "deletes"})


def on_host(name: str, words: Sequence[str], folder: Path) -> subprocess.Popen[bytes]:
    """Start a command as on another host."""
    return subprocess.Popen(
        [sys.executable, "-c", _SCRIPT, name, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=folder,
    )


def at_once(fleet: Fleet, alone: Mapping[str, Any] | None = None) -> list[str]:
    """Let two hosts maintain a fleet at once; return what is wrong: work that was done twice, or not at all.

    Args:
        fleet: the fleet.
        alone: the result of one run on the fleet, if there was one.
    """
    alone = alone or _alone(fleet)
    lake, names = fleet.restored(), ("etl-1", "etl-2")
    for name in names:
        fleet.log(name).unlink(missing_ok=True)
    begun = time.monotonic()
    processes = [
        on_host(name, lake.arguments("--json", *fleet.words(name)), fleet.folder) for name in names
    ]
    results = [json.loads(process.communicate()[0])["result"] for process in processes]
    took = time.monotonic() - begun
    done = Counter(
        (item["table"], item["action"])
        for result in results
        for item in result["actions"]
        if item["status"] == "done"
    )
    once = Counter(
        (item["table"], item["action"]) for item in alone["actions"] if item["status"] == "done"
    )
    found = [f"{name} was done {count} times" for name, count in done.items() if count > once[name]]
    print(
        f"two hosts: {took:.1f} s, {[_rewritten(result) for result in results]} bytes; "
        f"alone {_rewritten(alone):,} bytes"
    )
    print([Counter(item["status"] for item in result["actions"]) for result in results])
    if sum(map(_rewritten, results)) > 1.05 * _rewritten(alone):
        found.append("more bytes were rewritten than by one run")
    for result in results:
        ours = {item["table"] for item in alone["failed"]}
        found += [f"failed: {item}" for item in result["failed"] if item["table"] not in ours]
    return [*found, *left(fleet, Graded(fleet))]


def _alone(fleet: Fleet) -> dict[str, Any]:
    fleet.restored()
    begun = time.monotonic()
    result = maintained(fleet, "alone", new_log=True)
    print(f"one host: {time.monotonic() - begun:.1f} s")
    return result


def _rewritten(result: Mapping[str, Any]) -> int:
    return sum(item["bytes"] or 0 for item in result["actions"] if item["action"] in _REWRITES)
