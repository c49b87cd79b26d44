"""Judge `lake maintain` by a fleet of tables with known ills.

    cd tests && python -m soak.fleet FOLDER --make 200      (5 minutes; Java, PyIceberg and Flink write)
    cd tests && python -m soak.fleet FOLDER mend            (each ill is named and mended, no row changes)
    cd tests && python -m soak.fleet FOLDER kill --runs 20  (SIGKILL at random times)
    cd tests && python -m soak.fleet FOLDER hosts           (two runs at once, as of two hosts)
    cd tests && python -m soak.fleet FOLDER write --seconds 600     (beside writers)
    cd tests && python -m soak.fleet FOLDER budget --seconds 60

Each judgement begins with the fleet as it was made, ends with what is wrong, and with exit code 1 if anything is.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from support.fleet import judge
from support.fleet.beside import compared
from support.fleet.fleet import Fleet
from support.fleet.killing import killed_runs
from support.fleet.two_hosts import at_once
from support.peers.java_peer import JavaPeer

Said = list[str]


def _mend(fleet: Fleet, java: JavaPeer, _options: argparse.Namespace) -> Said:
    fleet.restored()
    rows = _rows(fleet, java)
    before = _timed("lake health", lambda: judge.Graded(fleet))
    first = _timed("lake maintain", lambda: judge.maintained(fleet, "mend", new_log=True))
    second = _timed("lake maintain, again", lambda: judge.maintained(fleet, "mend"))
    print(Counter((item["action"], item["status"]) for item in first["actions"]))
    after = judge.Graded(fleet)
    return [
        *judge.not_said(fleet, before, first),
        *judge.left(fleet, after),
        *judge.done_again(fleet, second),
        *_rows_changed(fleet, java, rows),
    ]


def _kill(fleet: Fleet, java: JavaPeer, options: argparse.Namespace) -> Said:
    fleet.restored()
    rows = _rows(fleet, java)
    found = killed_runs(fleet, options.runs, options.seed)
    return [*found, *_rows_changed(fleet, java, rows)]


def _hosts(fleet: Fleet, java: JavaPeer, _options: argparse.Namespace) -> Said:
    fleet.restored()
    rows = _rows(fleet, java)
    return [*at_once(fleet), *_rows_changed(fleet, java, rows)]


def _write(fleet: Fleet, java: JavaPeer, options: argparse.Namespace) -> Said:
    return compared(fleet, java, options.seconds)


def _budget(fleet: Fleet, _java: JavaPeer, options: argparse.Namespace) -> Said:
    fleet.restored()
    begun = time.monotonic()
    result = judge.maintained(fleet, "budget", "--max-seconds", f"{options.seconds}s", new_log=True)
    took = time.monotonic() - begun
    print(
        f"ended after {took:.1f} s; {len(result['actions'])} actions, {len(result['rest'])} are left"
    )
    for item in result["rest"][:5]:
        print(json.dumps(item))
    found = []
    if took > options.seconds * 1.25:
        found.append(f"it ended after {took:.1f} s")
    rest = _timed("lake maintain", lambda: judge.maintained(fleet, "budget"))
    done = {(item["table"], item["action"]) for item in rest["actions"]}
    left = {(item["table"], item["action"]) for item in result["rest"]}
    found += [f"{name} was left and then not done" for name in sorted(left - done)]
    return found


def _rows(fleet: Fleet, java: JavaPeer) -> judge.Rows:
    """Return the rows of all tables; copies of a mould have the same."""
    first = _timed("rows before", lambda: judge.rows_of(fleet, java, judge.firsts(fleet)))
    return judge.by_moulds(fleet, first)


def _rows_changed(fleet: Fleet, java: JavaPeer, before: judge.Rows) -> Said:
    return judge.changed(before, _timed("rows after", lambda: judge.rows_of(fleet, java)))


def _timed(name: str, run: Callable[[], Any]) -> Any:
    begun = time.monotonic()
    found = run()
    print(f"{name}: {time.monotonic() - begun:.1f} s", flush=True)
    return found


_JUDGEMENTS: dict[str, Callable[[Fleet, JavaPeer, argparse.Namespace], Said]] = {
    "mend": _mend,
    "kill": _kill,
    "hosts": _hosts,
    "write": _write,
    "budget": _budget,
}


def main(words: Sequence[str] | None = None) -> int:
    """Make a fleet, or judge by it; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m soak.fleet",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", type=Path, help="the folder of the fleet")
    parser.add_argument("judgements", nargs="*", help=", ".join(_JUDGEMENTS))
    parser.add_argument("--make", type=int, metavar="TABLES", help="make a fleet first")
    parser.add_argument("--runs", type=int, default=20, help="runs that are killed [20]")
    parser.add_argument("--seed", default="fleet", help="seed of the times of kills")
    parser.add_argument("--seconds", type=int, default=60, help="of the budget, or of writers [60]")
    options = parser.parse_intermixed_args(words)
    fleet, java = Fleet(options.folder.resolve()), JavaPeer()
    wrong: Said = []
    try:
        if options.make:
            fleet.make(java, options.make)
            print(fleet.seconds)
        for name in options.judgements:
            found = _JUDGEMENTS[name](fleet, java, options)
            print(f"{name}: {len(found)} wrong")
            wrong += found
    finally:
        java.close()
    for line in wrong:
        print(f"WRONG {line}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
