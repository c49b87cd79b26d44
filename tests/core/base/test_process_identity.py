"""Whether the process of a name still runs."""

from __future__ import annotations

import subprocess
import sys

import pytest

from lake.core.base.process_identity import process_name, still_runs

NAME = "from lake.core.base.process_identity import process_name; print(process_name(), flush=True)"


def test_this_process_runs_and_another_of_its_number_does_not() -> None:
    name = process_name()

    assert still_runs(name) is True
    assert still_runs(f"{name}0") is False


def test_a_killed_process_is_gone_even_before_it_was_waited_for() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", f"{NAME}; input()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        name = process.stdout.readline().strip()
        running = still_runs(name)
        process.kill()
        # Its output ends when it does.
        process.stdout.read()
        while still_runs(name):
            pass

    assert running is True
    assert still_runs(name) is False


@pytest.mark.parametrize(
    "name", ["", "x", "elsewhere/pid:[1]#1@2", "#1@2", "a#b@c", "\x00", "a" * 9999]
)
def test_the_state_of_a_process_on_another_machine_is_unknown(name: str) -> None:
    assert still_runs(name) is None
