"""A line on standard error is written once, also if a signal stops the program while it is written."""

from __future__ import annotations

import subprocess
import sys

_LINES = 5000
# A signal stops the loop a tenth of a millisecond after each time that it is entered.
_STOPPED = f"""
import signal, sys
from lake.cli.process.standard_error import drop_what_cannot_be_written

class Stop(Exception):
    pass

def stop(*_):
    if number < {_LINES}:
        raise Stop

drop_what_cannot_be_written()
signal.signal(signal.SIGALRM, stop)
stops = number = 0
while number < {_LINES}:
    try:
        signal.setitimer(signal.ITIMER_REAL, 1e-4)
        while number < {_LINES}:
            number += 1
            sys.stderr.write(f"line {{number}}\\n")
    except Stop:
        stops += 1
signal.setitimer(signal.ITIMER_REAL, 0)
print(stops)
"""


def test_a_line_that_a_signal_interrupts_is_not_written_twice() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _STOPPED], capture_output=True, text=True, check=True
    )
    lines = done.stderr.splitlines()

    assert int(done.stdout) > 0
    assert len(lines) > _LINES / 2
    assert len(set(lines)) == len(lines)
