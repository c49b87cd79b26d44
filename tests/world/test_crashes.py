"""A slice of the crash points: `python -m soak` kills at all of them."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from world.crashes import Crashes, crash
from world.killed import COMMANDS, ONCE, SAME
from world.mortal import AFTER, End, Mortals
from world.sleeping import Sleepers
from world.struck import Struck

_PARTLY = 6


@pytest.fixture(scope="module")
def mortals() -> Iterator[Mortals]:
    with Mortals() as started:
        yield started


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("crashes")


# Those that no run id was given work as those with one, until they are run again.
_EVERYDAY = [name for name, one in COMMANDS.items() if one.again not in {SAME, ONCE}]


@pytest.mark.parametrize("name", [*_EVERYDAY, "append"])
def test_a_killed_command_is_ended_by_its_next_run(
    folder: Path, mortals: Mortals, name: str
) -> None:
    kind = COMMANDS[name].catalogs[0]
    # Another one in each command.
    killed = crash(
        folder / kind,
        mortals,
        name,
        2,
        lambda points: points[_spread(name) % len(points) :][:1],
        kind,
    )

    assert killed == 1


@pytest.mark.parametrize(
    "name", ["compact", "clean", "expire", "watch in epochs", "drop and purge"]
)
def test_a_command_that_is_asked_to_end_goes_on_only_if_its_work_is_done(
    folder: Path, mortals: Mortals, name: str
) -> None:
    crashes = Crashes(folder / "asked", mortals, COMMANDS[name], 2)
    points = list(crashes.points())

    ended = [crashes.ask(points[int(share * len(points))]) for share in (0.2, 0.5, 0.8)]

    assert ended[0] == 1
    assert ended == sorted(ended, reverse=True)


def _spread(name: str) -> int:
    return sum(map(ord, name)) * 7


@pytest.mark.parametrize("name", ["create", "replace partitions, with run id", "expire"])
def test_what_a_commit_needs_outlives_a_power_cut(
    folder: Path, mortals: Mortals, name: str
) -> None:
    assert Crashes(folder, mortals, COMMANDS[name], 2).cut_power() == 1


@pytest.mark.parametrize(
    ("name", "others", "call"),
    [
        ("expire", "roll back, append and expire", "delete"),
        ("replay", "append and expire", "commit_table"),
    ],
)
def test_who_slept_while_others_worked_looks_again(
    folder: Path, mortals: Mortals, name: str, others: str, call: str
) -> None:
    sleepers = Sleepers(folder, mortals, name, others, 2)
    kinds = [one.split()[0] for one in sleepers.crashes.calls]

    assert sleepers.sleep((kinds.index(call), AFTER if call == "delete" else "before")) == 1


def test_a_process_that_gets_a_signal_leaves_what_the_next_run_ends(
    folder: Path, mortals: Mortals
) -> None:
    struck = Struck(folder, mortals, "append, with run id", 2)

    assert sum(struck.strike(Random(seed))["random kills"] for seed in ("a", "b")) == 2


def test_who_wakes_up_leaves_the_lock_to_who_took_it_over(folder: Path, mortals: Mortals) -> None:
    crashes = Crashes(folder, mortals, COMMANDS["expire"], 2)
    kinds = [one.split()[0] for one in crashes.calls]
    crashes.restore()
    lock = crashes.place.warehouse / "db/t/metadata/lake.lock"

    first = crashes.stop((kinds.index("take"), AFTER))
    assert crashes.run().document["status"] == "already-running"  # type: ignore[index]
    os.utime(lock, (0, 0))
    second = crashes.stop((kinds.index("take"), AFTER))
    assert isinstance(first, int)
    assert isinstance(second, int)
    owner = lock.stat().st_ino
    assert mortals.wake(first).code == 0

    assert lock.stat().st_ino == owner
    # What the first has deleted the second cannot read any more, and says so.
    assert mortals.wake(second).code in {0, _PARTLY}
    assert not lock.exists()
    assert crashes.look().rows == crashes.after.rows


def test_a_lock_of_a_clock_far_ahead_is_taken_over_and_one_of_today_is_not(
    folder: Path, mortals: Mortals
) -> None:
    crashes = Crashes(folder, mortals, COMMANDS["expire"], 2)
    kinds = [one.split()[0] for one in crashes.calls]
    crashes.restore()
    holder = crashes.stop((kinds.index("take"), AFTER))
    lock = crashes.place.warehouse / "db/t/metadata/lake.lock"
    ahead = time.time() + 3600

    assert isinstance(holder, int)
    os.utime(lock, (ahead, ahead))
    ended = crashes.run()

    assert isinstance(ended, End)
    assert (ended.code, ended.document and ended.document["status"]) == (0, "done")
    assert mortals.wake(holder).code in {0, _PARTLY}
    assert crashes.look().rows == crashes.after.rows
