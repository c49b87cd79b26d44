"""A continuous scan as a service: the time from a commit to the folder, and the cost of waiting.

    python tests/bench/follow_service.py [--seconds 120] [--idle-seconds 600] [--folder DIR]

Starts `lake scan --follow --monitor-interval 1s` and appends to the table once a second. Prints the median, the 95th
percentile and the maximum of the seconds from the end of a commit until its epoch is in the folder. Then nothing is
appended: prints the service's share of one core and its resident memory, ten times in the idle time.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pyarrow as pa

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "bench")]

from shared import lake_command  # noqa: E402
from support.tables.iceberg_tables import make_table  # noqa: E402

_LOOK_SECONDS = 0.005
_READINGS = 10


class Arrivals(threading.Thread):
    """Notes when the epoch of each snapshot appears in a folder."""

    def __init__(self, folder: Path) -> None:
        super().__init__(daemon=True)
        self.at: dict[str, float] = {}
        self._folder = folder
        self._seen: set[str] = set()

    def run(self) -> None:
        """Look until the process ends."""
        while True:
            names = set(os.listdir(self._folder)) if self._folder.exists() else set()
            now = time.monotonic()
            for name in sorted(names - self._seen):
                if name.startswith("epoch-"):
                    facts = json.loads((self._folder / name / "_epoch.json").read_text())
                    self.at.update(dict.fromkeys(facts["snapshots"], now))
                self._seen.add(name)
            time.sleep(_LOOK_SECONDS)


def rows(number: int) -> pa.Table:
    """Return the rows of an append."""
    return pa.table({"id": pa.array([number], pa.int64()), "name": [f"n{number}"]})


def usage(process: int) -> tuple[float, float]:
    """Return the CPU seconds and the resident MiB of a process of this machine (Linux)."""
    fields = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
    ticks = int(fields[11]) + int(fields[12])
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return ticks / os.sysconf("SC_CLK_TCK"), pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def latency(table: object, arrivals: Arrivals, seconds: float) -> None:
    """Append once a second, and print how long epochs take."""
    committed: dict[str, float] = {}
    end = time.monotonic() + seconds
    while (begun := time.monotonic()) < end:
        table.append(rows(len(committed) + 1))
        committed[str(table.metadata.current_snapshot_id)] = time.monotonic()
        time.sleep(max(0.0, begun + 1 - time.monotonic()))
    time.sleep(5)
    taken = sorted(arrivals.at[name] - at for name, at in committed.items() if name in arrivals.at)
    found = {
        "commits": len(committed),
        "arrived": len(taken),
        "p50_s": round(statistics.median(taken), 3),
        "p95_s": round(taken[int(len(taken) * 0.95)], 3),
        "max_s": round(taken[-1], 3),
    }
    print(json.dumps({"latency": found}), flush=True)


def idle(process: int, seconds: float) -> None:
    """Print the cost of waiting."""
    for _ in range(_READINGS):
        before, begun = usage(process)[0], time.monotonic()
        time.sleep(seconds / _READINGS)
        spent, resident = usage(process)
        share = 100 * (spent - before) / (time.monotonic() - begun)
        print(json.dumps({"core_percent": round(share, 2), "mib": round(resident, 1)}), flush=True)


def main() -> None:
    """Run the service."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--idle-seconds", type=float, default=600)
    parser.add_argument("--folder", help="where to work")
    chosen = parser.parse_args()
    folder = Path(chosen.folder or tempfile.mkdtemp(prefix="lake-bench-"))
    table = make_table(folder / "warehouse")
    table.append(rows(0))
    words = ("scan", "db.t", "--follow", "--start", "earliest", "--monitor-interval", "1s")
    places = ("--state", str(folder / "state"), "--output", str(folder / "out"))
    command = lake_command(folder / "warehouse", *words, *places)
    arrivals = Arrivals(folder / "out")
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as service:
        arrivals.start()
        while not arrivals.at and service.poll() is None:
            time.sleep(_LOOK_SECONDS)
        try:
            latency(table, arrivals, chosen.seconds)
            idle(service.pid, chosen.idle_seconds)
        finally:
            service.send_signal(signal.SIGTERM)
            service.communicate()


if __name__ == "__main__":
    main()
