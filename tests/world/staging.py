"""Runs in two phases: laid down by one actor, then finished, replayed or discarded by any, at once too."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from lake.core.base.errors import LakeError
from lake.core.base.outcome import Outcome
from lake.core.table.flink.commits import job_id_of
from world.branching import some_branch
from world.model import ID, Effect, Operation, adding, upserting
from world.simulation import DAY_MS, PARTS, World

_FRESH = 10_000
ENDS = ("finish", "replay", "discard")


@dataclass(frozen=True)
class Run:
    """A run that was laid down."""

    run_id: str
    words: tuple[object, ...]
    branch: str
    effect: Effect

    @property
    def holds(self) -> frozenset[object]:
        return frozenset({self.run_id})


def stage(world: World, random: Random) -> None:
    """Stage a run."""
    branch = some_branch(world, random)
    state = world.model.rows(world.head(branch))
    known = sorted({dict(row)[ID] for row in state.values()})
    ids = random.sample(known, min(len(known), random.randint(0, 2)))
    ids = list(dict.fromkeys([*ids, *random.sample(range(_FRESH), 2)]))
    rows = world.new_rows(ids, random.choice(PARTS))
    keyed = world.config.version > 1 and random.random() < 0.5
    run_id = f"run-{random.getrandbits(48)}"
    words: list[object] = [world.source(rows), "--branch", branch, "--run-id", run_id]
    if keyed:
        words += ["--upsert", "--key", "id", "--deletes", random.choice(["position", "equality"])]
    run = Run(run_id, tuple(words), branch, upserting(rows) if keyed else adding(rows))
    done = world.step(Operation("stage", lays_down=True), "ingest", *words, "--stage")
    if isinstance(done, Outcome):
        world.kept.setdefault("runs", []).append(run)


def end(world: World, random: Random) -> None:
    """Finish a run, replay it or discard it; whatever was done to it before."""
    runs = world.kept.get("runs", [])
    if not runs:
        return
    # Preferably one that another actor works on.
    busy = world.kept.setdefault("busy runs", [])
    run = runs[-1] if random.random() < 0.6 else random.choice(runs)
    if busy and random.random() < 0.8:
        run = busy[-1]
    busy.append(run)
    try:
        _end(world, random, run)
    finally:
        busy.remove(run)


def _end(world: World, random: Random, run: Run) -> None:
    end_by(world, run, random.choice([*ENDS, "discard dry"]))


def end_by(world: World, run: Run, how: str) -> None:
    """End a run in one way."""
    finishing = Operation(f"{how} a run", run.effect, run.branch, holds=run.holds)
    if how == "finish":
        world.step(finishing, "ingest", *run.words)
    elif how == "replay":
        words = ["--job", job_id_of(run.run_id), "--completed", "1", "--branch", run.branch]
        world.step(finishing, "replay", *words)
    elif how == "discard":
        discarding = Operation("discard a run", lays_down=True)
        world.step(discarding, "ingest", "--discard", run.run_id)
    else:
        world.no_change("ingest", "--discard", run.run_id, "--dry-run")


def settle(world: World) -> None:
    """End every run: a second end of the same kind changes nothing, and nothing is left of any."""
    # By then no command takes a commit without an answer to be under way.
    world.clock.now += DAY_MS
    for run in world.kept.get("runs", []):
        for _ in range(2):
            operation = Operation("discard a run", lays_down=True)
            done = world.step(operation, "ingest", "--discard", run.run_id)
        assert not isinstance(done, LakeError), repr(done)
        assert done.status == "nothing-to-do", f"{run.run_id} is discarded again and again"
