"""A few of each kind of hostile input; `python -m soak --hostile` tries them all."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from hostile.everyday import INPUTS
from hostile.guard import WrongError, attempts
from hostile.numbers import tried


class Bad:
    """A kind whose second input ends its process, and whose third one is wrong."""

    count = 4

    def __init__(self, folder: Path, _: str) -> None:
        assert not list(folder.iterdir())

    def attempt(self, number: int) -> str:
        if number == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        if number == 2:
            raise WrongError("it is wrong")
        return "right"


def test_hostile_input_ends_in_a_typed_error_or_in_what_is_right() -> None:
    counts, wrong = tried(INPUTS)
    assert not wrong
    assert counts["inputs"] == len(INPUTS)


def test_an_input_that_ends_the_process_is_reported_and_the_next_ones_are_tried() -> None:
    inputs = [("test_hostile:Bad:a", 0), *(("test_hostile:Bad:b", number) for number in range(4))]

    found = list(attempts(inputs))

    assert [(one.kind, one.number) for one in found] == inputs
    assert [one.outcome for one in found] == ["right", "right", "crash", "wrong", "right"]
    assert [one.wrong for one in found if one.outcome == "wrong"] == ["it is wrong"]
    assert "exit code -9" in (found[2].wrong or "")
