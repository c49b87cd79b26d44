"""The long tests: thousands of worlds, every race, every crash point, all kinds of faults.

``cd tests && python -m soak --help``. Progress is written to standard output; a broken rule is reported with the
means to repeat it, and the exit code is 1. ``--state FILE`` records what is done, so that a stopped run continues.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import logging
import math
import os
import shutil
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from multiprocessing import TimeoutError as StalledError
from multiprocessing import get_context
from pathlib import Path
from random import Random
from typing import Any

from hostile.guard import Input
from hostile.numbers import pieces, tried

from soak import crashing

STEPS_A_WORLD = 40
_CHUNK = 25
# The format versions of the races' tables, in turn.
_VERSIONS = (2, 3, 2, 3, 1)
_ONLY = "only"
_SHM = Path("/dev/shm")
_TELL_SECONDS = 30
_STALLED_SECONDS = 1800
_HUNG_SECONDS = 1500
_JOBS_A_PROCESS = 8
_WIRES_A_JOB = 40
# With fewer faults for each table, each command gets one table.
_LEAST_FAULTS = 5
Job = tuple[str, list[Any]]


def main() -> int:
    """Run the tests that the command line selects; return the exit code."""
    options = _options()
    state = Path(options.state) if options.state else None
    done = set(json.loads(state.read_text())) if state and state.exists() else set()
    jobs = _mixed([job for job in _jobs(options) if _name(job) not in done], options.seed)
    unfinished = {_name(job) for job in jobs}
    print(f"{len(jobs)} jobs in {options.processes} processes", flush=True)
    total: Counter[str] = Counter()
    left, failures = 0, []
    reported = started = time.monotonic()
    until = started + options.minutes * 60
    # Each job runs in a process that never forked with threads; new processes free their caches.
    with get_context("spawn").Pool(options.processes, maxtasksperchild=_JOBS_A_PROCESS) as pool:
        ends = pool.imap_unordered(partial(_end, until), jobs)
        for number in range(1, len(jobs) + 1):
            # A process that dies loses its job: an error is better than waiting all night.
            try:
                job, counts, broken = ends.next(timeout=_STALLED_SECONDS)
            except StalledError:
                failures.append(f"did not end: {'; '.join(sorted(unfinished))}")
                print(f"BROKEN {failures[-1]}", flush=True)
                break
            unfinished.discard(_name(job))
            if counts is None:
                left += 1
                continue
            _add(total, counts)
            failures += broken
            for text in broken:
                print(f"BROKEN {text}", flush=True)
            if not broken:
                done.add(_name(job))
            if state:
                state.write_text(json.dumps(sorted(done)))
            if time.monotonic() - reported > _TELL_SECONDS:
                reported = time.monotonic()
                print(f"{number} of {len(jobs)} jobs, {_shown(total)}", flush=True)
    for name, count in sorted(total.items()):
        print(f"{count:>9} {name}")
    if left:
        print(f"{left} jobs were not begun in {options.minutes:g} minutes")
    seconds = int(time.monotonic() - started)
    print(f"{_shown(total)}; {len(failures)} broken, {seconds} s")
    # Again at the end: a service that runs this keeps the last part of a long output only.
    for text in failures:
        print(f"BROKEN {text}", flush=True)
    return 1 if failures else 0


def _add(total: Counter[str], counts: Counter[str]) -> None:
    most = {name: max(total[name], count) for name, count in counts.items() if " most " in name}
    total += counts
    total.update({name: value - total[name] for name, value in most.items()})


def _shown(total: Counter[str]) -> str:
    names = (
        "steps",
        "switches",
        "races",
        "kills",
        "doubles",
        "asks",
        "stops",
        "cuts",
        "random kills",
        "faults",
        "multi-faults",
        "wire faults",
        "tables",
        "judged",
        "formats",
        "inputs",
    )
    return ", ".join(f"{total[name]} {name}" for name in names)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m soak", description=__doc__)
    parser.add_argument("--steps", type=int, default=480_000, help="steps of all worlds [480000]")
    parser.add_argument(
        "--continuous", type=int, default=600, help="worlds with follows and watches [600]"
    )
    parser.add_argument("--harsh", type=int, default=400, help="worlds with many faults [400]")
    parser.add_argument("--seed", default="soak", help="prefix of the worlds' seeds")
    parser.add_argument(
        "--minutes", type=float, default=math.inf, help="begin no job after so many minutes [inf]"
    )
    parser.add_argument(
        "--singles", type=int, default=12_082, help="races with one other command [12082]"
    )
    parser.add_argument(
        "--pairs", type=int, default=64_800, help="races with two others, of 374302 [64800]"
    )
    parser.add_argument("--windows", type=int, default=2000, help="races with three to six [2000]")
    parser.add_argument(
        "--kills", type=int, default=10_000, help="kills per command, at most [10000]"
    )
    parser.add_argument("--tables", type=int, default=68, help="tables of other writers [68]")
    parser.add_argument("--formats", type=int, default=0, help="ORC and Avro scenarios [0 of 12]")
    parser.add_argument("--judged", type=int, default=0, help="worlds that Java also reads [0]")
    parser.add_argument("--double", type=int, default=40, help="double kills per command [40]")
    parser.add_argument(
        "--stops",
        type=int,
        default=10,
        help="stops per command and kind of others [10]",
    )
    parser.add_argument("--asks", type=int, default=5, help="requests to end per command [5]")
    parser.add_argument("--cuts", type=int, default=1, help="power cuts after commits [1]")
    parser.add_argument(
        "--random-kills", type=int, default=200, help="signals to real processes [200]"
    )
    parser.add_argument(
        "--faults", type=int, default=10_000, help="faults at calls of commands [10000]"
    )
    parser.add_argument(
        "--multi-faults", type=int, default=2000, help="runs with two or three of them [2000]"
    )
    parser.add_argument("--wire", type=int, default=1000, help="faults on real connections [1000]")
    parser.add_argument(
        "--hostile",
        nargs="?",
        const=_ONLY,
        default="1",
        metavar="PART",
        help="part of the hostile inputs [1]; without PART: all of them and nothing else",
    )
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--state", help="file that records the finished jobs")
    return parser.parse_args()


def _table_jobs(options: argparse.Namespace) -> Iterator[Job]:
    from support.tables import flink_fixtures
    from support.tables.pyiceberg_tables import SPECS, VERSIONS

    every = [[version, transform] for transform in SPECS for version in VERSIONS]
    every += [["flink", name] for name in flink_fixtures.names()]
    for listed in every[:: -(-len(every) // options.tables)] if options.tables else ():
        yield "tables", listed


def _jobs(options: argparse.Namespace) -> Iterator[Job]:
    from world import creations, faults
    from world.races import pairs, singles, windows
    from world.simulation import HARSH

    part = 1.0 if options.hostile == _ONLY else float(options.hostile)
    for inputs in pieces(part) if part else ():
        yield "hostile", inputs
    if options.hostile == _ONLY:
        return
    yield from _table_jobs(options)
    for number in range(options.formats):
        yield "formats", [number]
    yield from crashing.jobs("kills", options.kills)
    yield from crashing.jobs("doubles", options.double)
    yield from crashing.jobs("asks", options.asks)
    yield from crashing.stops(options.stops)
    yield from crashing.cuts(options.cuts)
    yield from crashing.random_kills(options.random_kills, options.seed)
    for kind, most in (("faults", options.faults), ("multi-faults", options.multi_faults)):
        names = [*faults.COMMANDS, creations.NAME]
        tables = [(name, version) for name in names for version in (2, 3)]
        if most < len(tables) * _LEAST_FAULTS:
            # To make a table takes longer than a fault on it.
            tables = [(name, 2 + number % 2) for number, name in enumerate(names)]
        each, more = divmod(most, len(tables))
        for number, table in enumerate(tables):
            if each or number < more:
                yield kind, [*table, each + (number < more), options.seed]
    yield from _wire_jobs(options.wire)
    drawn = list(windows(options.seed, options.windows))
    for every, most in (
        (list(singles()), options.singles),
        (list(pairs()), options.pairs),
        (drawn, len(drawn)),
    ):
        # If not all are wanted, they are evenly distributed; each uses one format version, in turn.
        chosen = [every[number * len(every) // most] for number in range(most)] if most else []
        by_table: dict[tuple[str, int], list[Any]] = {}
        for number, race in enumerate(chosen):
            version = _VERSIONS[number % len(_VERSIONS)]
            by_table.setdefault((race[0], version), []).append(race[1:])
        for table, listed in by_table.items():
            for start in range(0, len(listed), _CHUNK):
                yield "races", [*table, listed[start : start + _CHUNK]]
    yield from _seeds("worlds", -(-options.steps // STEPS_A_WORLD), options.seed)
    yield from _seeds("worlds", options.harsh, f"{options.seed} {HARSH}")
    yield from _seeds("continuous", options.continuous, options.seed)
    yield from _seeds("judged", options.judged, f"{options.seed} judged")


def _mixed(jobs: Sequence[Job], seed: str) -> list[Job]:
    """Return the jobs in an order that begins with one of each kind; then each kind has its share of every minute."""
    by_kind: dict[str, list[Job]] = {}
    for job in jobs:
        by_kind.setdefault(job[0], []).append(job)
    draw, places = Random(seed), []
    for listed in by_kind.values():
        draw.shuffle(listed)
        places += [(number / len(listed), draw.random(), job) for number, job in enumerate(listed)]
    return [job for *_, job in sorted(places, key=lambda place: place[:2])]


def _seeds(kind: str, worlds: int, seed: str) -> Iterator[Job]:
    for start in range(0, worlds, _CHUNK):
        yield kind, [f"{seed} {n}" for n in range(start, min(start + _CHUNK, worlds))]


def _wire_jobs(most: int) -> Iterator[Job]:
    for start in range(0, most, _WIRES_A_JOB):
        yield "wire", [start, min(start + _WIRES_A_JOB, most)]


def _name(job: Job) -> str:
    return json.dumps(job)


def _end(until: float, job: Job) -> tuple[Job, Counter[str] | None, list[str]]:
    """Run a job; its counts are None if it was not begun in time."""
    if time.monotonic() > until:
        return job, None, []
    # A process that crashes or hangs prints its stack; one that was killed prints nothing.
    faulthandler.enable()
    faulthandler.dump_traceback_later(_HUNG_SECONDS)
    try:
        return (job, *_run(job))
    finally:
        faulthandler.cancel_dump_traceback_later()


def _run(job: Job) -> tuple[Counter[str], list[str]]:
    """Run a job; return the counts and the broken rules."""
    logging.getLogger("pyiceberg").setLevel(logging.CRITICAL)
    folder = Path(tempfile.mkdtemp(prefix="lake-soak-", dir=_SHM if _SHM.is_dir() else None))
    try:
        kinds: dict[str, Callable[..., tuple[Counter[str], list[str]]]] = {
            "worlds": _worlds,
            "continuous": _continuous,
            "races": _races,
            "kills": partial(crashing.kills, _each),
            "doubles": partial(crashing.doubles, _each),
            "asks": partial(crashing.asks, _each),
            "stops": partial(crashing.stop, _each),
            "cuts": partial(crashing.cut, _each),
            "random kills": partial(crashing.strike, _each),
            "faults": _faults,
            "multi-faults": _multi_faults,
            "tables": _tables,
            "judged": _judged,
            "formats": _formats,
            "wire": _wire,
            "hostile": _hostile,
        }
        listed = job[0] in {"worlds", "continuous", "judged", "hostile"}
        return kinds[job[0]](folder, *([job[1]] if listed else job[1]))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _wire(_: Path, start: int, stop: int) -> tuple[Counter[str], list[str]]:
    """Inject some of the faults on real connections, with servers for this job."""
    from support.faults import wire

    if reason := wire.missing():
        return Counter(), [f"faults on the wire need {reason}"]
    with wire.Wires() as wires:
        return _each(wires.cases()[start:stop], wires.check, str)


def _hostile(_: Path, inputs: Sequence[Input]) -> tuple[Counter[str], list[str]]:
    return tried(inputs)


def _worlds(_: Path, seeds: Sequence[str]) -> tuple[Counter[str], list[str]]:
    from world.running import run_world

    return _each(seeds, lambda seed: run_world(seed, STEPS_A_WORLD)[0], lambda seed: seed)


def _continuous(_: Path, seeds: Sequence[str]) -> tuple[Counter[str], list[str]]:
    from world.continuous import run_continuous

    return _each(
        seeds,
        lambda seed: run_continuous(seed, int(seed.rpartition(" ")[2])),
        lambda seed: seed,
    )


def _judged(_: Path, seeds: Sequence[str]) -> tuple[Counter[str], list[str]]:
    from support.peers.java_peer import JavaPeer
    from world.judges import judge_by_java, judge_by_pyiceberg
    from world.running import run_world
    from world.simulation import World

    with closing(JavaPeer()) as java:

        def judge(world: World) -> Counter[str]:
            return judge_by_java(world, java) + judge_by_pyiceberg(world)

        def work(seed: str) -> Counter[str]:
            return run_world(seed, STEPS_A_WORLD, judge=judge)[0] + Counter(judged=1)

        return _each(seeds, work, lambda seed: seed)


def _formats(folder: Path, number: int) -> tuple[Counter[str], list[str]]:
    from support.peers.java_peer import JavaPeer
    from support.tables.format_course import COURSES

    course, kind, how = COURSES[number % len(COURSES)]

    def run(folder: Path) -> Counter[str]:
        with closing(JavaPeer()) as java:
            course(java, folder, kind, how)
        return Counter(formats=1)

    return _each([folder], run, lambda _: f"{course.__name__} {kind} {how}")


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


def _tables(folder: Path, version: str, transform: str) -> tuple[Counter[str], list[str]]:
    from support.tables import flink_fixtures
    from support.tables.flink_course import FlinkCourse
    from support.tables.pyiceberg_tables import course

    def run(folder: Path) -> Counter[str]:
        if version == "flink":
            with flink_fixtures.lent(transform) as fixture:
                FlinkCourse(fixture, folder).run()
        else:
            course(folder, version, transform).run()
        return Counter(tables=1)

    return _each([folder], run, lambda _: f"table: {version}, {transform}")


def _faults(
    folder: Path, name: str, version: int, most: int, seed: str
) -> tuple[Counter[str], list[str]]:
    from world.faults import chosen

    table = _faulty(folder, name, version)
    return _each(
        chosen(table, most, seed),
        lambda fault: table.fault(fault) + Counter(faults=1),
        lambda fault: f"version {version}, {name}: {fault}",
    )


def _multi_faults(
    folder: Path, name: str, version: int, most: int, seed: str
) -> tuple[Counter[str], list[str]]:
    from world.faults import several

    table = _faulty(folder, name, version)
    return _each(
        several(table, most, seed),
        lambda faults: table.fault(*faults) + Counter({"multi-faults": 1}),
        lambda faults: f"version {version}, {name}: {faults}",
    )


def _faulty(folder: Path, name: str, version: int) -> Any:
    from world import creations
    from world.faults import Faults, base_table

    if name == creations.NAME:
        return creations.Creations(folder, version)
    return Faults(base_table(folder, version), name)


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
