"""Worlds by seed: created, run, checked, removed; a failure names the seed."""

from __future__ import annotations

import logging
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Protocol

from world import flink, staging, upkeep
from world.actors import actor
from world.simulation import Config, World

ACTORS = 4
_SHM = Path("/dev/shm")


class Companion(Protocol):
    """Commands that work continuously beside the actors of a world."""

    def actors(self, steps: int) -> Mapping[str, Callable[[], None]]:
        """Return its actors, each of which makes the given number of steps."""

    def settle(self) -> None:
        """Check, after all faults, that nothing is missing."""


class WorldFailedError(AssertionError):
    """A rule was broken in the world of a seed."""


def run_world(
    seed: str,
    steps: int,
    config: Config | None = None,
    judge: Callable[[World], Counter[str]] | None = None,
    *,
    companions: Sequence[Callable[[World, Random], Companion]] = (),
    turns: int = 12,
) -> tuple[Counter[str], str]:
    """Run one world and return the counts, and a digest of the order of all events.

    Args:
        seed: determines everything that is drawn.
        steps: the total number of steps of all actors.
        config: the kind of world; None to draw it too.
        judge: checks the table after the actors have ended.
        companions: make commands that work continuously beside the actors.
        turns: the number of steps of each actor of a companion.
    """
    logging.getLogger("pyiceberg").setLevel(logging.CRITICAL)
    folder = tempfile.mkdtemp(prefix="lake-world-", dir=_SHM if _SHM.is_dir() else None)
    world = World(Path(folder) / "w", seed, config or Config.of(seed))
    world.needed = lambda: flink.pending(world)
    try:
        with world.inside():
            world.make_table()
            each = max(1, steps // ACTORS)
            actors = {
                f"actor {number}": actor(world, Random(f"{seed} actor {number}"), each)
                for number in range(ACTORS)
            }
            beside = [
                make(world, Random(f"{seed} companion {number}"))
                for number, make in enumerate(companions)
            ]
            for companion in beside:
                actors.update(companion.actors(turns))
            world.scheduler.run(actors)
            world.check_all()
            if judge:
                world.counts += judge(world)
            world.stop_faults()
            flink.settle(world)
            staging.settle(world)
            upkeep.settle(world)
            world.come_to_rest()
            world.check_all()
            for companion in beside:
                companion.settle()
    except BaseException as caught:
        error = world.scheduler.failure or caught
        print(f"world failed: LAKE_WORLD_SEED={seed} steps={steps} {world.config}")
        raise WorldFailedError(f"LAKE_WORLD_SEED={seed} steps={steps}: {error}") from error
    finally:
        world.forget()
        Path(folder).rmdir()
    world.counts["switches"] = world.scheduler.switches
    world.counts["points"] = len(world.scheduler.trace)
    return world.counts, digest(world.scheduler.trace)


def digest(trace: list[tuple[str, str]]) -> str:
    import hashlib

    return hashlib.sha256(repr(trace).encode()).hexdigest()
