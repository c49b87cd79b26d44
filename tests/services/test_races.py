"""Processes that load and maintain one table at once: every row once, nothing lost, nothing left."""

from __future__ import annotations

import json
import os

import pyarrow.parquet as pq
import pytest
from support.cli import racer
from support.cli.forked import Forked
from support.cli.service_line import Service, csv
from support.tiers import chosen

# How many loads each of two processes makes; tests/soak/races.py asks for more.
_COUNT = int(os.environ.get("LAKE_RACE_COUNT", "3"))


def race(service: Service, *works: list[list[object]]) -> list[list[list[int]]]:
    """Run each list of commands in a process of its own, all at once; return their exit codes."""
    line = service.line()
    running = [
        Forked(service.folder, racer.race, [line.arguments(*words) for words in work])
        for work in works
    ]
    codes = []
    for work, process in zip(works, running, strict=True):
        ended = process.end()
        assert ended.exit_code == 0, ended
        codes.append(json.loads(ended.stdout.splitlines()[-1]))
        for words, done in zip(work, codes[-1], strict=True):
            # A change that is older than the retained history is not picked. The server leaves metadata files of
            # lost races, which could be those of another catalog, so nothing is deleted.
            refused = {"cherry-pick", *({"expire", "clean"} if service.kind == "rest" else ())}
            ends = {0, 3} if words[0] in refused else {0}
            assert done[-1] in ends, f"{words}: {done} {ended.stderr}"
    return codes


def appends(service: Service, first: int, count: int, version: int = 2) -> list[list[object]]:
    """Return the commands that append ``count`` rows, one by one; the first one makes the table."""
    found: list[list[object]] = []
    for number in range(first, first + count):
        source = csv(service.folder, f"{number}.csv", id=[number], name=[f"n{number}"])
        # The run id makes it safe to repeat.
        made = ("--create", "--partition-by", "bucket(2, id)", "--property")
        run = (f"format-version={version}", "--run-id", f"r{number}")
        found.append(["ingest", service.table(), source, *made, *run])
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
    """Return the commands that compact, describe and expire, ``rounds`` times."""
    lines = (
        ("compact", "--min-input-files", "2"),
        ("stats", "--partitions"),
        ("expire", "--older-than", "0s", "--unsafe-retention"),
        ("stats",),
    )
    return [[verb, service.table(), *words] for verb, *words in lines] * rounds


def branching(service: Service, first: int, rounds: int) -> list[list[object]]:
    """Return the commands that append a row to a branch and pick it, with other maintenance, ``rounds`` times."""
    found: list[list[object]] = []
    table = service.table()
    for number in range(first, first + rounds):
        source, audit = (
            csv(service.folder, f"{number}.csv", id=[number], name=[f"n{number}"]),
            "audit",
        )
        # A typed command fails if another run holds the lock.
        waiting = ("--wait", "10m")
        lines: list[tuple[object, ...]] = [
            ("ref", "--branch-create", audit),
            ("ingest", source, "--branch", audit, "--run-id", f"r{number}"),
            ("cherry-pick", audit),
            ("ref", "--drop", audit),
            ("manifests", "--rewrite-all"),
            ("alter", "--set", f"round={number}", *waiting),
            ("deletes", "--rewrite"),
            ("tag", f"tag-{number}"),
            ("clean", "--delete", "--older-than", "1d"),
            ("check", "--yes", "--repair", "dangling-deletes", "--repair", "totals", *waiting),
            ("tag", "--drop", f"tag-{number}"),
            ("expire-partitions", "--strategy", "update-time", "--older-than", "1d"),
        ]
        found += [[verb, table, *words] for verb, *words in lines]
    return found


def race_and_judge(service: Service, *, count: int, rounds: int, version: int) -> None:
    """Let two processes append and upsert ``count`` rows each while two others maintain the table."""
    line = service.line()
    for words in appends(service, 0, 1, version):
        line.ok(*words)
    first, second = appends(service, 1, count), upserts(service, 1001, count)
    third, fourth = maintenance(service, rounds), branching(service, 2001, rounds)
    *_, ended = race(service, first, second, third, fourth)
    picks = [
        done[-1] for words, done in zip(fourth, ended, strict=True) if words[0] == "cherry-pick"
    ]
    line.ok("alter", service.table(), "--no-other-catalog")
    for words in maintenance(service, 1):
        line.ok(*words)

    picked = [2001 + number for number, code in enumerate(picks) if code == 0]
    ids = [*range(1 + count), 1000 + count, *picked]
    expected = [(number, f"n{number}") for number in ids]
    expected += [(number, f"m{number}") for number in range(1001, 1000 + count)]
    assert service.rows() == sorted(expected, key=repr)
    line.ok("stats", service.table(), "--partitions")
    assert described(service) == len(expected)
    assert line.ok("check", service.table(), "--files")["result"]["findings"] == []
    left = service.unreferenced()
    if service.kind == "rest":
        # The server, which writes these itself, leaves those of its own lost races.
        left = {file for file in left if not file.endswith(".metadata.json")}
    assert left == set()


def described(service: Service) -> int:
    """Return the number of rows in the partition statistics of the current snapshot."""
    table = service.catalog().load_table(service.table())
    (file,) = (
        item
        for item in table.metadata.partition_statistics
        if item.snapshot_id == table.metadata.current_snapshot_id
    )
    with table.io.new_input(file.statistics_path).open() as source:
        return sum(pq.read_table(source)["data_record_count"].to_pylist())


@pytest.mark.parametrize(
    "service",
    # The last two have one client; appends race on both below.
    chosen(["postgres", "s3", "rest", "azure"], ["postgres", "s3", "rest", "azure", "gcs"]),
    indirect=True,
)
@pytest.mark.parametrize("version", chosen([3], [2, 3]))
def test_loads_and_maintenance_at_once_keep_every_row_once(service: Service, version: int) -> None:
    race_and_judge(service, count=_COUNT, rounds=max(2, _COUNT // 4), version=version)


@pytest.mark.parametrize("service", ["gcs", "azure"], indirect=True)
def test_two_processes_append_to_one_table_at_once(service: Service) -> None:
    codes = race(service, *(appends(service, 2 * number, 2) for number in range(2)))

    assert {code for work in codes for done in work for code in done} <= {0, 4}
    assert service.rows() == [(number, f"n{number}") for number in range(4)]
    assert service.unreferenced() == set()


def test_the_first_processes_in_a_database_make_its_table_once(on_postgres: Service) -> None:
    codes = race(on_postgres, *(appends(on_postgres, number, 1) for number in range(2)))

    assert {code for work in codes for done in work for code in done} <= {0, 4}
    assert on_postgres.rows() == [(0, "n0"), (1, "n1")]
    assert on_postgres.unreferenced() == set()
