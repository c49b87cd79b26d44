"""A watch loads each file once, wherever it is killed or its machine loses power: a slice of the points."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from world.crashes import Crashes, crash
from world.killed import COMMANDS
from world.mortal import Mortals


@pytest.fixture(scope="module")
def mortals() -> Iterator[Mortals]:
    with Mortals() as started:
        yield started


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("watching")


_WATCHES = ["watch and move", "watch and create", "watch and evolve", "watch changes"]


@pytest.mark.parametrize(
    ("name", "kind", "least"),
    [
        ("watch in epochs", "sql", 13),
        ("watch and move", "hadoop", 9),
    ],
)
def test_a_watch_continues_after_a_power_cut_at_each_of_its_steps(
    folder: Path, mortals: Mortals, name: str, kind: str, least: int
) -> None:
    assert Crashes(folder / kind, mortals, COMMANDS[name], 2, kind).cut_power() >= least


@pytest.mark.parametrize("name", _WATCHES)
def test_a_killed_watch_is_continued_by_the_next_run_in_a_hadoop_catalog(
    folder: Path, mortals: Mortals, name: str
) -> None:
    number = _WATCHES.index(name)

    killed = crash(
        folder / "kills",
        mortals,
        name,
        2,
        lambda points: points[number + 5 :: max(1, len(points) // 2)],
        "hadoop",
    )

    assert killed
