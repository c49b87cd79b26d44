"""What happens in a world: each a function that does one step, drawn by its weight."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from world.model import Operation, adding, upserting
from world.simulation import DAY_MS, PARTS, World

Step = Callable[[World, Random], object]
_FRESH = 10_000


def append(world: World, random: Random) -> None:
    ids = random.sample(range(_FRESH), random.randint(1, 8))
    rows = world.new_rows(ids, random.choice(PARTS))
    world.step(Operation("append", adding(rows)), "ingest", world.source(rows))


def compact(world: World, random: Random) -> None:
    options = random.choice(
        [
            ["--min-input-files", "2"],
            ["--rewrite-all"],
            ["--rewrite-all", "--verify", "--remove-dangling-deletes"],
            ["--delete-file-threshold", "1", "--no-starting-sequence-number"],
            ["--rewrite-all", "--target-size", "1KB"],
            ["--rewrite-all", "--partial-progress", "--max-group-files", "2"],
        ]
    )
    world.step(Operation("compact"), "compact", *options)


def expire(world: World, random: Random) -> None:
    options = random.choice(
        [
            ["--older-than", "2d"],
            ["--older-than", "0s", "--unsafe-retention", "--retain-last", "1"],
            ["--older-than", "0s", "--unsafe-retention", "--retain-last", "3"],
            ["--older-than", "1d", "--clean-metadata"],
        ]
    )
    world.step(Operation("expire", may_drop=True), "expire", *options)


def wait(world: World, random: Random) -> None:
    world.clock.now += random.choice([60_000, 3_600_000, DAY_MS, 3 * DAY_MS])


STEPS: dict[Step, int] = {append: 6, compact: 2, expire: 2, wait: 1}
_ = upserting


def actor(world: World, random: Random, steps: int) -> Callable[[], None]:
    """Return an actor that does so many steps."""
    choices, weights = list(STEPS), list(STEPS.values())

    def work() -> None:
        for _ in range(steps):
            random.choices(choices, weights)[0](world, random)
            world.counts["steps"] += 1

    return work
