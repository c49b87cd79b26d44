"""Kill `lake maintain` at random times; then let it end."""

from __future__ import annotations

import signal
import time
from random import Random

from support.cli.forked import started
from support.fleet import judge
from support.fleet.fleet import Fleet


def killed_runs(fleet: Fleet, runs: int, seed: str) -> list[str]:
    """Restore a fleet and kill some runs, one after the other; return what is wrong after one that is not killed.

    Each run is killed within the time that a whole one takes for a share of the fleet, so that the kills are
    distributed over the work.

    Args:
        fleet: the fleet.
        runs: the number of kills.
        seed: the seed of the times.
    """
    random, lake = Random(seed), fleet.restored()
    fleet.log("killed").unlink(missing_ok=True)
    killed = 0
    for _ in range(runs):
        process = started(lake, "--json", *fleet.words("killed"))
        time.sleep(random.uniform(0, _longest(fleet)))
        process.send_signal(signal.SIGKILL)
        killed += process.end().exit_code == -signal.SIGKILL
    print(f"{killed} runs were killed, {runs - killed} ended before")
    # What failed three times in a row would have to wait.
    judge.maintained(fleet, "killed", new_log=True)
    again = judge.maintained(fleet, "killed")
    return [*judge.left(fleet, judge.Graded(fleet)), *judge.done_again(fleet, again)]


def _longest(fleet: Fleet) -> float:
    """Return the most seconds before a kill: a few tables each."""
    return max(2.0, len(fleet.members) / 15)
