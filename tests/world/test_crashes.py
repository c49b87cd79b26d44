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


@pytest.mark.parametrize("name", COMMANDS)
def test_a_killed_command_is_ended_by_its_next_run(
    tmp_path: Path, mortals: Mortals, name: str
) -> None:
    # Spread over the run, another few in each command.
    start = len(name)
    killed = crash(tmp_path, mortals, name, 2, lambda points: points[start::29])

    assert killed
