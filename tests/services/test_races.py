"""Processes that load, compact and expire one table at once: every row once, nothing lost, nothing left."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import racer
from service_line import Service, csv

_RACER = Path(racer.__file__)
_SECONDS = 600


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
    """Return the commands that append so many rows, one by one."""
    found: list[list[object]] = []
    for number in range(first, first + count):
        source = csv(service.folder, f"{number}.csv", id=[number], name=[f"n{number}"])
        # The run id makes it safe to repeat.
        found.append(["ingest", service.table(), source, "--create", "--run-id", f"r{number}"])
    return found


def maintenance(service: Service, rounds: int) -> list[list[object]]:
    """Return the commands that compact and expire, so many times."""
    table = service.table()
    compact: list[object] = ["compact", table, "--min-input-files", "2"]
    expire: list[object] = ["expire", table, "--older-than", "0s", "--unsafe-retention"]
    return [compact, expire] * rounds


def test_loads_compactions_and_expiries_at_once_keep_every_row_once(service: Service) -> None:
    race(service, appends(service, 0, 1))
    race(service, appends(service, 1, 6), appends(service, 101, 6), maintenance(service, 3))
    race(service, maintenance(service, 1))

    ids = sorted([*range(7), *range(101, 107)])
    assert service.rows() == sorted(((number, f"n{number}") for number in ids), key=repr)
    assert service.unreferenced() == set()


def test_the_first_two_processes_in_a_database_both_find_no_table(on_postgres: Service) -> None:
    line = on_postgres.line()
    running = [line.start("--json", "snapshots", "db.t") for _ in range(4)]
    told = [json.loads(process.communicate(timeout=_SECONDS)[0]) for process in running]

    assert [document["error"]["kind"] for document in told] == ["not-found"] * 4


def test_two_processes_that_make_the_same_table_make_it_once(service: Service) -> None:
    codes = race(service, appends(service, 0, 1), appends(service, 1, 1))

    assert {code for work in codes for done in work for code in done} <= {0, 4}
    assert service.rows() == [(0, "n0"), (1, "n1")]
