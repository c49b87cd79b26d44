"""The long tests: worlds by the thousand, every race, every crash point, faults of every kind.

``cd tests && python -m soak --help``. Progress goes to standard output; a broken rule is told with what repeats
it, and the exit code is 1. ``--state FILE`` remembers what is done, so that a stopped night goes on.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import shutil
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from soak import crashing

STEPS_A_WORLD = 40
_CHUNK = 25
_SHM = Path("/dev/shm")
_TELL_SECONDS = 30
_STALLED_SECONDS = 1800
_JOBS_A_PROCESS = 8
Job = tuple[str, list[Any]]


def main() -> int:
    """Run what the command line asks for; return the exit code."""
    options = _options()
    state = Path(options.state) if options.state else None
    done = set(json.loads(state.read_text())) if state and state.exists() else set()
    jobs = [job for job in _jobs(options) if _name(job) not in done]
    print(f"{len(jobs)} jobs in {options.processes} processes", flush=True)
    total: Counter[str] = Counter()
    failures: list[str] = []
    told = started = time.monotonic()
    # Each job in a process that never forked with threads; a fresh one now and then frees its caches.
    with get_context("spawn").Pool(options.processes, maxtasksperchild=_JOBS_A_PROCESS) as pool:
        ends = pool.imap_unordered(_end, jobs)
        for number in range(1, len(jobs) + 1):
            # A process that dies takes its job along: better an error than a night of waiting.
            job, counts, broken = ends.next(timeout=_STALLED_SECONDS)
            total += counts
            failures += broken
            for text in broken:
                print(f"BROKEN {text}", flush=True)
            if not broken:
                done.add(_name(job))
            if state:
                state.write_text(json.dumps(sorted(done)))
            if time.monotonic() - told > _TELL_SECONDS:
                told = time.monotonic()
                print(f"{number} of {len(jobs)} jobs, {_shown(total)}", flush=True)
    for name, count in sorted(total.items()):
        print(f"{count:>9} {name}")
    seconds = int(time.monotonic() - started)
    print(f"{_shown(total)}; {len(failures)} broken, {seconds} s")
    return 1 if failures else 0


def _shown(total: Counter[str]) -> str:
    names = (
        "steps",
        "switches",
        "races",
        "kills",
        "doubles",
        "stops",
        "cuts",
        "faults",
        "multi-faults",
    )
    return ", ".join(f"{total[name]} {name}" for name in names)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m soak", description=__doc__)
    parser.add_argument("--steps", type=int, default=480_000, help="of worlds [480000]")
    parser.add_argument("--seed", default="soak", help="how the worlds' seeds begin")
    parser.add_argument("--singles", type=int, default=1400, help="races with one other [1400]")
    parser.add_argument("--pairs", type=int, default=19_600, help="races with two others [19600]")
    parser.add_argument("--kills", type=int, default=10_000, help="at most, a command [10000]")
    parser.add_argument("--double", type=int, default=40, help="double kills a command [40]")
    parser.add_argument("--stops", type=int, default=10, help="a command and kind of others [10]")
    parser.add_argument("--cuts", type=int, default=1, help="cut the power after commits [1]")
    parser.add_argument("--faults", type=int, default=5800, help="at calls of commands [5800]")
    parser.add_argument(
        "--multi-faults", type=int, default=2000, help="runs with two or three of them [2000]"
    )
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--state", help="file that remembers what is done")
    return parser.parse_args()


def _jobs(options: argparse.Namespace) -> Iterator[Job]:
    from world import faults
    from world.races import pairs, singles

    yield from crashing.jobs("kills", options.kills)
    yield from crashing.jobs("doubles", options.double)
    yield from crashing.stops(options.stops)
    yield from crashing.cuts(options.cuts)
    for kind, most in (("faults", options.faults), ("multi-faults", options.multi_faults)):
        tables = [(name, version) for name in faults.COMMANDS for version in (2, 3)]
        each, more = divmod(most, len(tables))
        for number, table in enumerate(tables):
            if each or number < more:
                yield kind, [*table, each + (number < more), options.seed]
    for races, most in ((singles, options.singles), (pairs, options.pairs)):
        every = list(races())
        # Spread over all where not all are wanted; each at one format version, in turn.
        chosen = [every[number * len(every) // most] for number in range(most)] if most else []
        by_table: dict[tuple[str, int], list[Any]] = {}
        for number, race in enumerate(chosen):
            by_table.setdefault((race[0], 2 + number % 2), []).append(race[1:])
        for table, listed in by_table.items():
            for start in range(0, len(listed), _CHUNK):
                yield "races", [*table, listed[start : start + _CHUNK]]
    worlds = -(-options.steps // STEPS_A_WORLD)
    for start in range(0, worlds, _CHUNK):
        yield "worlds", [f"{options.seed} {n}" for n in range(start, min(start + _CHUNK, worlds))]


def _name(job: Job) -> str:
    return json.dumps(job)


def _end(job: Job) -> tuple[Job, Counter[str], list[str]]:
    return (job, *_run(job))


def _run(job: Job) -> tuple[Counter[str], list[str]]:
    """Do a job; return what was counted and which rules were broken."""
    logging.getLogger("pyiceberg").setLevel(logging.CRITICAL)
    folder = Path(tempfile.mkdtemp(prefix="lake-soak-", dir=_SHM if _SHM.is_dir() else None))
    try:
        kinds: dict[str, Callable[..., tuple[Counter[str], list[str]]]] = {
            "worlds": _worlds,
            "races": _races,
            "kills": partial(crashing.kills, _each),
            "doubles": partial(crashing.doubles, _each),
            "stops": partial(crashing.stop, _each),
            "cuts": partial(crashing.cut, _each),
            "faults": _faults,
            "multi-faults": _multi_faults,
        }
        return kinds[job[0]](folder, *([job[1]] if job[0] == "worlds" else job[1]))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _worlds(_: Path, seeds: Sequence[str]) -> tuple[Counter[str], list[str]]:
    from world.running import run_world

    return _each(seeds, lambda seed: run_world(seed, STEPS_A_WORLD)[0], lambda seed: seed)


def _races(
    folder: Path, isolation: str, version: int, listed: Sequence[Any]
) -> tuple[Counter[str], list[str]]:
    from world.races import Races

    tables: list[Races] = []

    def race(one: Any) -> Counter[str]:
        if not tables:
            tables.append(Races(folder / str(time.monotonic_ns()), isolation, version))
        command, phase, others = one
        try:
            return tables[0].race(command, phase, others) + Counter(races=1)
        except BaseException:
            tables.clear()
            raise

    return _each(listed, race, lambda one: f"version {version}, {isolation}: {one}")


def _faults(
    folder: Path, name: str, version: int, most: int, seed: str
) -> tuple[Counter[str], list[str]]:
    from world.faults import Faults, base_table, chosen

    table = Faults(base_table(folder, version), name)
    return _each(
        chosen(table, most, seed),
        lambda fault: table.fault(fault) + Counter(faults=1),
        lambda fault: f"version {version}, {name}: {fault}",
    )


def _multi_faults(
    folder: Path, name: str, version: int, most: int, seed: str
) -> tuple[Counter[str], list[str]]:
    from world.faults import Faults, base_table, several

    table = Faults(base_table(folder, version), name)
    return _each(
        several(table, most, seed),
        lambda faults: table.fault(*faults) + Counter({"multi-faults": 1}),
        lambda faults: f"version {version}, {name}: {faults}",
    )


def _each(
    items: Sequence[Any], work: Callable[[Any], Counter[str]], shown: Callable[[Any], str]
) -> tuple[Counter[str], list[str]]:
    counts: Counter[str] = Counter()
    broken = []
    for item in items:
        try:
            counts += work(item)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            cause = error.__cause__ or error
            trace = traceback.extract_tb(cause.__traceback__)[-4:]
            places = " ".join(f"{Path(part.filename).name}:{part.lineno}" for part in trace)
            broken.append(f"{shown(item)}: {error!r} ({places})")
    return counts, broken
