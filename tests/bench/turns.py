"""Whole processes that take turns: what each takes, what it answers, and which targets are met."""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE)]

from compact import ROOT, PeakMemory, below, own_environment  # noqa: E402

_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Run:
    """A process that ended.

    Args:
        seconds: its wall time.
        cpu: the processor seconds, user and system, of it and of its children, JVMs among them.
        peak: the most resident memory of a Python process, in MiB.
        output: its standard output.
    """

    seconds: float
    cpu: float
    peak: float
    output: str

    def __str__(self) -> str:
        return f"{self.seconds:.2f} s, {self.cpu:.1f} s of CPU, peak {self.peak:.0f} MiB"


def run(command: Sequence[str], codes: Collection[int] = (0,)) -> Run:
    """Run a process to its end.

    Args:
        command: its arguments.
        codes: the exit codes of success.

    Raises:
        SystemExit: its exit code is not one of ``codes``.
    """
    before = _waited_for()
    started = time.perf_counter()
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=own_environment(),
        cwd=ROOT,
    )
    memory = PeakMemory(process.pid)
    # A JVM may end after its parent, which then does not wait for it: its time is read while it runs.
    ticks: dict[int, int] = {}
    while True:
        try:
            output, errors = process.communicate(timeout=0.2)
            break
        except subprocess.TimeoutExpired:
            ticks |= {pid: _ticks(pid) or ticks.get(pid, 0) for pid in below(process.pid)}
            ticks[process.pid] = _ticks(process.pid) or ticks.get(process.pid, 0)
    seconds, peak = time.perf_counter() - started, memory.stop()
    if process.returncode not in codes:
        raise SystemExit(f"{command} failed:\n{output[-4000:]}\n{errors[-4000:]}")
    cpu = max(sum(ticks.values()) / _TICKS, _waited_for() - before)
    return Run(seconds, cpu, peak, output)


def _waited_for() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _ticks(pid: int) -> int:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return int(fields[11]) + int(fields[12])


def take_turns(
    rounds: int, turns: Mapping[str, Callable[[], Run]], **limits: float
) -> dict[str, float | bool]:
    """Let processes take turns; print each one, and what the medians say about the limits.

    Args:
        rounds: how often each one runs.
        turns: starts a process, by name: ``lake``, and others.
        limits: ``ratio`` (the others' seconds for each of lake's), ``seconds`` and ``peak`` (MiB) of lake.
    """
    found: dict[str, list[Run]] = {name: [] for name in turns}
    for _ in range(rounds):
        for name, start in turns.items():
            done = start()
            found[name].append(done)
            print(f"{name}: {done}", flush=True)
    summary: dict[str, float | bool] = {}
    for name, runs in found.items():
        summary[f"{name}_s"] = round(statistics.median(each.seconds for each in runs), 2)
        summary[f"{name}_cpu_s"] = round(statistics.median(each.cpu for each in runs), 1)
    lake = summary["lake_s"]
    summary["lake_peak_mib"] = round(max(each.peak for each in found["lake"]))
    for name in found.keys() - {"lake"}:
        summary[f"{name}_ratio"] = round(summary[f"{name}_s"] / lake, 2)
    ratios = [value for key, value in summary.items() if key.endswith("_ratio")]
    if not ratios:
        limits.pop("ratio", None)
    met = {
        "ratio": all(value >= limits.get("ratio", 0) for value in ratios),
        "seconds": lake <= limits.get("seconds", lake),
        "peak": summary["lake_peak_mib"] <= limits.get("peak", summary["lake_peak_mib"]),
    }
    summary |= {f"{name}_met": met[name] for name in limits}
    load = " ".join(f"{each:.1f}" for each in os.getloadavg())
    print(json.dumps(summary), f"(load averages {load})", flush=True)
    return summary
