"""Runs `lake` in a process that kills itself at one step of a commit to a hadoop catalog.

hadoop_steps.py STEP ARGUMENT…
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from lake.cli.main import main

# Around which call of the commit, and whether before or after it.
STEPS = {
    "the metadata is written": ("link", "before"),
    "the version is there": ("link", "after"),
    "the hint is written": ("replace", "before"),
    "the hint is there": ("replace", "after"),
}


def die_at(step: str) -> None:
    """Make the call of a step this process's last."""
    name, moment = STEPS[step]
    original = getattr(os, name)

    def last(*arguments: Any, **options: Any) -> Any:
        if moment == "after":
            original(*arguments, **options)
        os.kill(os.getpid(), signal.SIGKILL)

    setattr(os, name, last)


if __name__ == "__main__":
    die_at(sys.argv[1])
    sys.exit(main(sys.argv[2:]))
