"""Judge `lake maintain` by a fleet of tables with known ills: the whole judgement, and one verdict at its end.

    cd tests && python -m soak.fleet                        (200 tables, made first if they are not there; an hour)
    cd tests && python -m soak.fleet --folder DIR --make 25 --runs 5 --budget 20 --beside 60    (the same, smaller)
    cd tests && python -m soak.fleet kill --runs 20         (some of it)

`mend` maintains twice, `kill` sends SIGKILL at random times, `hosts` lets two runs work at once, as of two hosts,
`budget` ends a run early, and `write` maintains beside writers. Each begins with the fleet as it was made. At the end
there is a line for each claim, `ok` or `BROKEN`, and what is wrong; the exit code is 1 if anything is.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from support.fleet import judge
from support.fleet.beside import compared
from support.fleet.fleet import Fleet
from support.fleet.killing import killed_runs
from support.fleet.two_hosts import at_once
from support.peers.java_peer import JavaPeer

# What is wrong with each claim.
Said = Mapping[str, Sequence[str]]
_TABLES = 200
_ROWS_STAY = "no row changes"


def _mend(fleet: Fleet, java: JavaPeer, _options: argparse.Namespace) -> Said:
    fleet.restored()
    rows = _rows(fleet, java)
    before = _timed("lake health", lambda: judge.Graded(fleet))
    first = _timed("lake maintain", lambda: judge.maintained(fleet, "mend", new_log=True))
    second = _timed("lake maintain, again", lambda: judge.maintained(fleet, "mend"))
    print(Counter((item["action"], item["status"]) for item in first["actions"]))
    after = judge.Graded(fleet)
    return {
        "every ill is named": judge.not_said(fleet, before, first),
        "every ill that can be mended is mended": judge.left(fleet, after),
        "a second run has nothing to do": judge.done_again(fleet, second),
        _ROWS_STAY: _rows_changed(fleet, java, rows),
    }


def _kill(fleet: Fleet, java: JavaPeer, options: argparse.Namespace) -> Said:
    fleet.restored()
    rows = _rows(fleet, java)
    found = killed_runs(fleet, options.runs, options.seed)
    return {
        f"{options.runs} kills at random end in the same state": found,
        _ROWS_STAY: _rows_changed(fleet, java, rows),
    }


def _hosts(fleet: Fleet, java: JavaPeer, _options: argparse.Namespace) -> Said:
    fleet.restored()
    rows = _rows(fleet, java)
    return {
        "two hosts at once do no work twice": at_once(fleet),
        _ROWS_STAY: _rows_changed(fleet, java, rows),
    }


def _write(fleet: Fleet, java: JavaPeer, options: argparse.Namespace) -> Said:
    claim = f"writers lose no commit in {options.beside} s beside maintenance"
    return {claim: compared(fleet, java, options.beside)}


def _budget(fleet: Fleet, _java: JavaPeer, options: argparse.Namespace) -> Said:
    fleet.restored()
    limit = options.budget * 1.25
    begun = time.monotonic()
    result = judge.maintained(
        fleet, "budget", "--max-seconds", f"{options.budget}s", new_log=True, code=judge.PARTIAL
    )
    took = time.monotonic() - begun
    print(
        f"ended after {took:.1f} s; {len(result['actions'])} actions, {len(result['rest'])} are left"
    )
    for item in result["rest"][:5]:
        print(json.dumps(item))
    rest = _timed("lake maintain", lambda: judge.maintained(fleet, "budget"))
    done = {(item["table"], item["action"]) for item in rest["actions"]}
    left = {(item["table"], item["action"]) for item in result["rest"]}
    # What is left of an action may not be worth it any more.
    partly = {
        (item["table"], item["action"]) for item in result["actions"] if item["status"] == "partial"
    }
    done |= partly & {(item["table"], item["action"]) for item in rest["left_alone"]}
    return {
        f"a budget of {options.budget} s ends within {limit:g} s": (
            [f"it ended after {took:.1f} s"] if took > limit else []
        ),
        "the next run does what a budget left": [
            f"{name} was left and then not done" for name in sorted(left - done)
        ],
    }


def _rows(fleet: Fleet, java: JavaPeer) -> judge.Rows:
    """Return the rows of all tables; copies of a mould have the same."""
    first = _timed("rows before", lambda: judge.rows_of(fleet, java, judge.firsts(fleet)))
    return judge.by_moulds(fleet, first)


def _rows_changed(fleet: Fleet, java: JavaPeer, before: judge.Rows) -> Sequence[str]:
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
    default = Path(tempfile.gettempdir(), "lake-fleet")
    parser.add_argument(
        "--folder", type=Path, default=default, help=f"the folder of the fleet [{default}]"
    )
    parser.add_argument("judgements", nargs="*", help=f"{', '.join(_JUDGEMENTS)} [all]")
    parser.add_argument("--make", type=int, metavar="TABLES", help="make a fleet first")
    parser.add_argument("--runs", type=int, default=20, help="runs that are killed [20]")
    parser.add_argument("--seed", default="fleet", help="seed of the times of kills")
    parser.add_argument("--budget", type=int, default=60, help="seconds of the budget [60]")
    parser.add_argument("--beside", type=int, default=600, help="seconds beside writers [600]")
    options = parser.parse_intermixed_args(words)
    fleet, java = Fleet(options.folder.resolve()), JavaPeer()
    claims: dict[str, list[str]] = {}
    try:
        if options.make or not fleet.is_made:
            fleet.make(java, options.make or _TABLES)
            print(fleet.seconds)
        for name in options.judgements or _JUDGEMENTS:
            print(f"{name}:", flush=True)
            found: Said
            try:
                found = _JUDGEMENTS[name](fleet, java, options)
            except (AssertionError, RuntimeError) as error:
                found = {f"{name} comes to its end": [f"{type(error).__name__}: {error}"]}
            for claim, wrong in found.items():
                claims.setdefault(claim, []).extend(f"{name}: {line}" for line in wrong)
                print(f"{claim}: {len(wrong)} wrong", flush=True)
    finally:
        java.close()
    print(f"\n{len(fleet.members)} tables")
    for claim, wrong in claims.items():
        print(f"{'BROKEN' if wrong else 'ok    '} {claim}")
        for line in wrong:
            print(f"       {line}")
    return 1 if any(claims.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
