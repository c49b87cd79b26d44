"""A slice of the crash points: `python -m soak` kills at all of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from world.crashes import COMMANDS, crash
from world.mortal import Mortals


@pytest.fixture(scope="module")
def mortals() -> Iterator[Mortals]:
    with Mortals() as started:
        yield started


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("crashes")


@pytest.mark.parametrize("name", COMMANDS)
def test_a_killed_command_is_ended_by_its_next_run(
    folder: Path, mortals: Mortals, name: str
) -> None:
    # Another one in each command.
    killed = crash(
        folder, mortals, name, 2, lambda points: points[_spread(name) % len(points) :][:1]
    )

    assert killed == 1


def _spread(name: str) -> int:
    return sum(map(ord, name)) * 7
