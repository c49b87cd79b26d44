"""A follow hands over each row once, wherever it is killed: a slice of the points.

``LAKE_EVERY_POINT=1 pytest -m slow tests/world/test_following.py`` kills it at every point.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.tiers import chosen

from world.continuous import STEPS, run_continuous
from world.copying import Copies, kill_and_copy
from world.following import Follows, kill_and_continue
from world.mortal import AFTER, BEFORE, Mortals

# Each call has two points, so an odd number selects both kinds.
_EVERY = chosen([], [pytest.param(1, marks=pytest.mark.slow)])


@pytest.fixture(scope="module")
def mortals() -> Iterator[Mortals]:
    with Mortals() as started:
        yield started


@pytest.fixture(scope="module")
def follows(tmp_path_factory: pytest.TempPathFactory, mortals: Mortals) -> Follows:
    return Follows(tmp_path_factory.mktemp("follows"), mortals)


def _kill_at_every(follows: Follows, every: int, *, loader: bool = False) -> None:
    """Run a follow, and kill another one at some of its points, each time continued by the next run."""
    whole = follows.run(loader=loader)
    assert whole.code == 0, whole
    follows.check("not killed")

    points = list(follows.points(whole.calls))[::every]
    killed = sum(kill_and_continue(follows, point, loader=loader) for point in points)

    # Threads finish in any order, so the last points may not be reached.
    assert killed >= len(points) - 2


@pytest.mark.parametrize(
    ("loader", "every"),
    [
        (False, 23),
        (True, 29),
        *(
            pytest.param(loader, *one.values, marks=one.marks)
            for one in _EVERY
            for loader in (False, True)
        ),
    ],
)
def test_a_killed_follow_is_continued_by_the_next_run(
    follows: Follows, *, loader: bool, every: int
) -> None:
    follows.reset()
    _kill_at_every(follows, every, loader=loader)


@pytest.mark.parametrize("every", [37, *_EVERY])
def test_a_killed_follow_with_keys_is_continued_by_the_next_run(
    tmp_path: Path, mortals: Mortals, every: int
) -> None:
    keys = tmp_path / "keys.csv"
    keys.write_text("\n".join(map(str, ["id", *range(100)])))
    # The keys are more than the limit, so they are in two files.
    options = ["--prune-with", str(keys), "--on", "id", "--matching", "--prune-limit", "8B"]
    follows = Follows(tmp_path / "follows", mortals, options=options)
    _kill_at_every(follows, every)


@pytest.mark.parametrize("every", [37, *_EVERY])
def test_a_killed_follow_in_a_hadoop_catalog_is_continued(
    tmp_path: Path, mortals: Mortals, every: int
) -> None:
    follows = Follows(tmp_path, mortals, kind="hadoop")
    _kill_at_every(follows, every)


@pytest.mark.parametrize("every", [29, *_EVERY])
def test_a_killed_load_from_table_to_table_loads_and_sets_aside_each_row_once(
    tmp_path: Path, mortals: Mortals, every: int
) -> None:
    copies = Copies(tmp_path, mortals)
    whole = copies.run()
    assert whole.code == 0, whole
    copies.check("not killed")

    every_point = [(number, when) for number in range(len(whole.calls)) for when in (BEFORE, AFTER)]
    points = every_point[::every]
    killed = sum(kill_and_copy(copies, point) for point in points)

    assert killed >= len(points) - 2


def test_a_follow_continues_after_a_power_cut_at_each_of_its_steps(
    follows: Follows, tmp_path: Path
) -> None:
    follows.reset()
    images = tmp_path / "images"
    whole = follows.run(images=images)
    assert whole.code == 0, whole
    copies = sorted(images.iterdir(), key=lambda path: int(path.name))
    assert len(copies) >= 12

    for image in copies:
        follows.reset()
        follows.bring(image)
        again = follows.run()
        assert again.code == 0, (image, again)
        follows.check(image)


# One with each set of continuous commands.
@pytest.mark.parametrize("number", range(4))
def test_continuous_commands_lose_and_repeat_nothing_whatever_others_do(number: int) -> None:
    counts = run_continuous(f"continuous {number}", number)

    assert counts["steps"] == STEPS
