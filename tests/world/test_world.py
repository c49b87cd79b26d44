"""Worlds from seeds: whatever is interleaved, nothing is lost, doubled or brought back.

``LAKE_WORLD_SEED=… pytest tests/world`` runs the world of one seed alone.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections import Counter
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from world.model import Model, Operation, adding, replacing
from world.running import run_world
from world.simulation import Config, World

STEPS = 40
_GIVEN = os.environ.get("LAKE_WORLD_SEED")
# Manifests of a run were left that another had landed; a replay committed the deleted files of a run that was
# discarded and written again; manifests were deleted of a commit that landed, was refused, and had expired.
_FOUND = (
    "d6 32",
    "85c449b714bb83d6f5882dde630f4a3e3605aeec judged 0",
    "705712d205de2460478a42187f0f12cc63434976 22",
)
_SEEDS = [_GIVEN] if _GIVEN else [*(f"everyday {number}" for number in range(4)), *_FOUND]


@pytest.mark.parametrize("seed", _SEEDS)
def test_no_world_loses_a_row(seed: str) -> None:
    counts, _ = run_world(seed, STEPS)

    assert counts["steps"] == STEPS
    assert counts["snapshots"]


def test_removals_and_repairs_beside_all_others_lose_no_row() -> None:
    counts: Counter[str] = Counter()
    for number in range(4):
        seed = f"upkeep {number}"
        config = replace(
            Config.drawn(Random(f"{seed} config")), focus="upkeep", partition_by="part"
        )
        counts += run_world(seed, STEPS, config)[0]

    assert counts["steps"] == 4 * STEPS
    assert counts["clean quarantine: done"] + counts["clean delete: done"]
    assert counts["expire partitions: done"] + counts["expire partitions: partial"]


def test_a_checkpoint_that_is_deleted_while_it_is_replayed_is_not_a_defect() -> None:
    seed = "jl 6"
    config = replace(Config.drawn(Random(f"{seed} config")), focus="jobs")

    assert run_world(seed, STEPS, config)[0]["steps"] == STEPS


def test_a_delete_that_reads_after_a_rollback_may_miss_the_rows_of_a_later_append() -> None:
    model, names = Model(), {"id": 1, "value": 3}
    appends = {number: adding([{"id": number, "value": number}]) for number in (1, 2, 3)}
    rows: dict[int, Any] = {}
    # The delete began at 2, which was rolled back before 3 was appended.
    for number, parent in ((1, None), (2, 1), (3, 1)):
        operation = Operation("append", appends[number])
        rows[number] = appends[number](model.rows(parent), names)
        model.add(number, parent, operation, rows[number])
    delete = Operation("delete", replacing(lambda _: True), base=2, floats=True)

    found = list(model.candidates(delete, 3, names))

    assert {} in found
    assert {3: rows[3][3]} in found


def test_a_seed_gives_the_same_world_again() -> None:
    assert run_world("again", 12) == run_world("again", 12)


def test_a_seed_gives_the_same_world_in_another_process() -> None:
    # Its commands read many manifests, in threads of their own.
    seed = "ci 138"
    script = f"from world.running import run_world; print(run_world({seed!r}, {STEPS})[1])"
    path = os.pathsep.join(filter(None, [str(Path(__file__).parent.parent), *sys.path]))

    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": "3"},
    )

    assert done.stdout.split()[-1] == run_world(seed, STEPS)[1]


def test_a_thread_that_an_actor_starts_does_not_move_the_world(tmp_path: Path) -> None:
    world = World(tmp_path / "w", "threads", Config.drawn(Random("threads")))
    before = world.clock.now

    thread = threading.Thread(target=world.point, args=("read",))
    thread.start()
    thread.join()

    assert world.clock.now == before
    world.point("read")
    assert world.clock.now > before
