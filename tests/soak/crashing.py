"""The crash points of the long tests: each command is killed, killed twice, and asked to end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from world.crashes import Crashes

# A command, a version, a catalog's type, and the maximum number of points.
Kills = tuple[str, int, str, int]
# The number of commands that share a table's initial state.
_CHUNK = 6
Each = Callable[
    [Sequence[Any], Callable[[Any], Counter[str]], Callable[[Any], str]],
    tuple[Counter[str], list[str]],
]


def jobs(kind: str, most: int, *, served: bool = True) -> Iterator[tuple[str, list[Any]]]:
    """Yield the jobs that kill each command, or ask it to end, at ``most`` points, or pairs of points.

    Args:
        kind: the name of the jobs.
        most: the number of points of a command.
        served: whether catalogs on servers are among them.
    """
    from world.killed import COMMANDS
    from world.places import KINDS, LOCAL

    kinds = KINDS if served else LOCAL
    for place in kinds if most else ():
        for version in (1, 2, 3):
            names = [
                name
                for name, command in COMMANDS.items()
                if version in command.versions and place in command.catalogs
            ]
            for start in range(0, len(names), _CHUNK):
                yield kind, [names[start : start + _CHUNK], version, place, most]


def stops(most: int) -> Iterator[tuple[str, list[Any]]]:
    """Yield the jobs that stop each command at ``most`` points for each kind of concurrent commands."""
    from world.sleeping import OTHERS, SLEEPERS

    for name in SLEEPERS if most else ():
        for number, others in enumerate(OTHERS):
            yield "stops", [name, others, 2 + number % 2, most]


def random_kills(most: int, seed: str) -> Iterator[tuple[str, list[Any]]]:
    """Yield the jobs that send signals to ``most`` real processes, distributed over all commands."""
    from world.killed import COMMANDS

    whole = {name: command for name, command in COMMANDS.items() if not command.breaks}
    each, more = divmod(most, len(whole))
    for number, (name, command) in enumerate(whole.items()):
        if count := each + (number < more):
            yield (
                "random kills",
                [name, command.versions[number % len(command.versions)], count, seed],
            )


def strike(
    each: Each, folder: Path, name: str, version: int, count: int, seed: str
) -> tuple[Counter[str], list[str]]:
    """Send signals to real processes of a command at random times."""
    from world.mortal import Mortals
    from world.struck import Struck

    with Mortals() as mortals:
        struck = Struck(folder, mortals, name, version)
        return each(
            [f"{seed} {name} {version} {number}" for number in range(count)],
            lambda drawn: struck.strike(Random(drawn)),
            lambda drawn: f"struck: {drawn}",
        )


def cuts(most: int) -> Iterator[tuple[str, list[Any]]]:
    """Yield the jobs that cut the power after each commit of each command."""
    for _, arguments in jobs("cuts", most, served=False):
        yield "cuts", arguments[:-1]


def cut(
    each: Each, folder: Path, names: Sequence[str], version: int, kind: str
) -> tuple[Counter[str], list[str]]:
    """Cut the power after each commit of some commands."""
    from world.crashes import Crashes
    from world.killed import COMMANDS
    from world.mortal import Mortals

    with Mortals() as mortals:

        def run_one(name: str) -> Counter[str]:
            crashes = Crashes(folder, mortals, COMMANDS[name], version, kind)
            return Counter(cuts=crashes.cut_power())

        return each(names, run_one, lambda name: f"version {version}, {kind}, {name}: power cut")


def stop(
    each: Each, folder: Path, name: str, others: str, version: int, most: int
) -> tuple[Counter[str], list[str]]:
    """Stop a command at points spread over its run while other commands run."""
    from world.mortal import Mortals
    from world.sleeping import Sleepers

    with Mortals() as mortals:
        sleepers = Sleepers(folder, mortals, name, others, version)
        points = sleepers.points()
        drawn = Random(f"{name} {others} {version}").sample(points, min(most, len(points)))
        return each(
            sorted(drawn),
            lambda point: Counter(stops=sleepers.sleep(point)),
            lambda point: f"version {version}, {name} stopped at {point}, then: {others}",
        )


def kills(
    each: Each, folder: Path, names: Sequence[str], version: int, kind: str, most: int
) -> tuple[Counter[str], list[str]]:
    """Kill commands at points spread over their runs."""
    spread = partial(_spread, f"{version} {kind}", most)
    return _at_points(each, folder, names, version, kind, spread, _kill)


def asks(
    each: Each, folder: Path, names: Sequence[str], version: int, kind: str, most: int
) -> tuple[Counter[str], list[str]]:
    """Ask commands to end, at points spread over their runs."""
    spread = partial(_spread, f"asked {version} {kind}", most)
    return _at_points(each, folder, names, version, kind, spread, _ask)


def doubles(
    each: Each, folder: Path, names: Sequence[str], version: int, kind: str, most: int
) -> tuple[Counter[str], list[str]]:
    """Kill commands, and then the run that completes them."""

    def chosen(name: str, points: Sequence[Any]) -> list[tuple[Any, ...]]:
        random = Random(f"{name} {version} {kind} twice")
        return [(random.choice(points), random.choice(points)) for _ in range(most)]

    return _at_points(each, folder, names, version, kind, chosen, _kill)


def _spread(seed: str, most: int, name: str, points: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Choose points: the same every night, different ones for each command."""
    drawn = Random(f"{name} {seed}").sample(points, min(most, len(points)))
    return [(point,) for point in sorted(drawn)]


def _kill(crashes: Crashes, points: Sequence[Any]) -> Counter[str]:
    killed = crashes.kill(*points)
    return Counter(kills=killed, doubles=int(killed > 1))


def _ask(crashes: Crashes, points: Sequence[Any]) -> Counter[str]:
    return Counter({"asks": 1, "asked: stopped": crashes.ask(*points)})


def _at_points(
    each: Each,
    folder: Path,
    names: Sequence[str],
    version: int,
    kind: str,
    choose: Callable[[str, Sequence[Any]], list[tuple[Any, ...]]],
    strike_at: Callable[[Crashes, Sequence[Any]], Counter[str]],
) -> tuple[Counter[str], list[str]]:
    """Kill commands at the chosen points, or ask them to end there."""
    from world.crashes import Crashes
    from world.killed import COMMANDS
    from world.mortal import Mortals
    from world.served_places import opened

    counts: Counter[str] = Counter()
    broken: list[str] = []

    with opened(kind, folder) as place, Mortals(place.environment) as mortals:

        def run_one(name: str) -> Counter[str]:
            crashes = Crashes(folder, mortals, COMMANDS[name], version, place=place)
            found, failures = each(
                choose(name, list(crashes.points())),
                partial(strike_at, crashes),
                lambda points: (
                    f"version {version}, {kind}, {name} {strike_at.__name__[1:]} {points}"
                ),
            )
            broken.extend(failures)
            return found

        found, failures = each(names, run_one, lambda name: f"version {version}, {kind}, {name}")
    counts += found
    return counts, [*broken, *failures]
