"""Processes that load, compact and expire one table at once: every row once, nothing lost, nothing left."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from support.cli import racer
from support.cli.service_line import Service, csv

_RACER = Path(racer.__file__)
_SECONDS = 3600
# How many loads each of two processes makes; tests/soak/races.py asks for more.
_COUNT = int(os.environ.get("LAKE_RACE_COUNT", "3"))


def race(service: Service, *works: list[list[object]]) -> list[list[list[int]]]:
    """Run each list of commands in a process of its own, all at once; return their exit codes."""
    line = service.line()
    running = [
        subprocess.Popen(
            [sys.executable, _RACER, json.dumps([line.arguments(*words) for words in work])],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=service.folder,
        )
        for work in works
    ]
    codes = []
    for process in running:
        out, err = process.communicate(timeout=_SECONDS)
        assert process.returncode == 0, err.decode()
        codes.append(json.loads(out.splitlines()[-1]))
        assert all(done[-1] == 0 for done in codes[-1]), (codes, err.decode())
    return codes


def appends(service: Service, first: int, count: int) -> list[list[object]]:
    """Return the commands that append ``count`` rows, one by one."""
    found: list[list[object]] = []
    for number in range(first, first + count):
        source = csv(service.folder, f"{number}.csv", id=[number], name=[f"n{number}"])
        # The run id makes it safe to repeat.
        found.append(["ingest", service.table(), source, "--create", "--run-id", f"r{number}"])
    return found


def upserts(service: Service, first: int, count: int) -> list[list[object]]:
    """Return the commands that upsert ``count`` rows by key, each renaming the one before."""
    found: list[list[object]] = []
    for number in range(first, first + count):
        ids = [number - 1, number] if number > first else [number]
        names = [f"m{number - 1}", f"n{number}"] if number > first else [f"n{number}"]
        source = csv(service.folder, f"{number}.csv", id=ids, name=names)
        # One that failed unheard is repeated without harm.
        found.append(["ingest", service.table(), source, "--upsert", "--key", "id"])
    return found


def maintenance(service: Service, rounds: int) -> list[list[object]]:
    """Return the commands that compact and expire, ``rounds`` times."""
    table = service.table()
    compact: list[object] = ["compact", table, "--min-input-files", "2"]
    expire: list[object] = ["expire", table, "--older-than", "0s", "--unsafe-retention"]
    return [compact, expire] * rounds


def race_and_judge(service: Service, *, count: int, rounds: int) -> None:
    """Let two processes append and upsert ``count`` rows each while a third one compacts and expires."""
    line = service.line()
    for words in appends(service, 0, 1):
        line.ok(*words)
    first, second = appends(service, 1, count), upserts(service, 1001, count)
    race(service, first, second, maintenance(service, rounds))
    for words in maintenance(service, 1):
        line.ok(*words)

    ids = [*range(1 + count), 1000 + count]
    expected = [(number, f"n{number}") for number in ids]
    expected += [(number, f"m{number}") for number in range(1001, 1000 + count)]
    assert service.rows() == sorted(expected, key=repr)
    left = service.unreferenced()
    if service.kind == "rest":
        # The server, which writes these itself, leaves those of its own lost races.
        left = {file for file in left if not file.endswith(".metadata.json")}
    assert left == set()


def test_loads_compactions_and_expiries_at_once_keep_every_row_once(service: Service) -> None:
    race_and_judge(service, count=_COUNT, rounds=max(2, _COUNT // 4))


def test_the_first_processes_in_a_database_make_its_table_once(on_postgres: Service) -> None:
    codes = race(on_postgres, *(appends(on_postgres, number, 1) for number in range(2)))

    assert {code for work in codes for done in work for code in done} <= {0, 4}
    assert on_postgres.rows() == [(0, "n0"), (1, "n1")]
    assert on_postgres.unreferenced() == set()
