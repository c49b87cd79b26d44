"""Follows and watches that are killed at their steps, on tables in a bucket and in a REST catalog."""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from support.cli.service_line import Service, csv
from support.servers.s3_server import S3
from support.tiers import chosen
from world.mortal import AFTER, BEFORE, End, Mortals

# Each kind of step is killed once, before or after its first or last call.
_FOLLOW_STEPS = ("commit_epoch", "_rename", "write_splits", "commit_table", "create metrics")
_WATCH_STEPS = ("create", "commit_table", "save", "move", "remove", "_load")


@pytest.fixture
def service(request: pytest.FixtureRequest) -> Service:
    found = request.getfixturevalue(f"on_{request.param}")
    assert isinstance(found, Service)
    return found


@pytest.fixture
def mortals(service: Service) -> Iterator[Mortals]:
    # Writes the configuration that the processes read.
    service.line()
    with Mortals({"PYICEBERG_HOME": os.environ["PYICEBERG_HOME"]}) as started:
        yield started


def _points(calls: Sequence[str], steps: Sequence[str]) -> list[tuple[int, str]]:
    """Return points at the first and at the last call of each kind of step that occurs."""
    points = []
    for step in steps:
        numbers = [number for number, call in enumerate(calls) if call.startswith(step)]
        points += [(number, AFTER) for number in numbers[:1]]
        points += [(number, BEFORE) for number in numbers[-1:]]
    return points


def _run(mortals: Mortals, words: Sequence[object], kill: tuple[int, str] | None = None) -> End:
    ended = mortals.run(["--engine", "inline", *words], kill)
    assert ended.code == (0 if kill is None else None), (kill, ended)
    return ended


def _handed_over(folder: Path) -> Counter[int]:
    found: Counter[int] = Counter()
    for number, epoch in enumerate(sorted(folder.glob("epoch-*")), start=1):
        facts = json.loads((epoch / "_epoch.json").read_text())
        assert facts["epoch"] == number
        for file in facts["files"]:
            found.update(pq.read_table(epoch / file["name"]).column("id").to_pylist())
    return found


@pytest.mark.parametrize("service", chosen(["s3"], ["s3", "rest"]), indirect=True)
def test_a_killed_follow_hands_over_each_row_once(service: Service, mortals: Mortals) -> None:
    table, folder = service.table(), service.folder
    for number in range(2):
        source = csv(folder, f"{number}.csv", id=[number * 2, number * 2 + 1])
        _run(mortals, ["ingest", table, source, "--create"])

    def words(name: str) -> list[object]:
        own = ["--state", folder / f"state-{name}", "--output", folder / f"out-{name}"]
        more = ["--consumer", name, "--metrics-file", folder / f"metrics-{name}.prom"]
        return ["scan", table, "--follow", "--once", "--epoch-size", "1B", *own, *more]

    calls = _run(mortals, words("whole")).calls
    every = _points(calls, _FOLLOW_STEPS)
    assert len(every) >= 2 * len(_FOLLOW_STEPS)
    points = chosen(every[::2], every)
    for number, point in enumerate(points):
        _run(mortals, words(f"c{number}"), point)
        _run(mortals, words(f"c{number}"))
        third = _run(mortals, words(f"c{number}"))

        assert third.document is not None
        assert third.document["status"] == "nothing-to-do", (point, calls[point[0]])
        found = _handed_over(folder / f"out-c{number}")
        assert found == Counter(range(4)), (point, calls[point[0]])
    refs = service.catalog().load_table(table).metadata.refs
    assert {f"lake-consumer-c{number}" for number in range(len(points))} <= refs.keys()


@pytest.mark.parametrize("service", chosen(["rest"], ["s3", "rest"]), indirect=True)
def test_a_killed_watch_loads_each_object_once(service: Service, mortals: Mortals, s3: S3) -> None:
    bucket = s3.bucket()
    state, first = service.folder / "state", csv(service.folder, "first.csv", id=[0])

    def words(name: str) -> list[object]:
        drop = f"s3://{bucket}/{name}"
        own = ["--watch", drop, "--done", f"move:{drop}/done", "--stream", name, "--settle", "0s"]
        return ["ingest", service.table(), *own, "--state", state / name, "--once"]

    def put(name: str) -> None:
        for number in (1, 2):
            with s3.files().open_output_stream(f"{bucket}/{name}/{number}.csv") as file:
                file.write(f"id\n{number}\n".encode())

    state.mkdir()
    _run(mortals, ["ingest", service.table(), first, "--create"])
    put("whole")
    calls = _run(mortals, words("whole")).calls
    every = _points(calls, _WATCH_STEPS)
    assert len(every) >= 2 * len(_WATCH_STEPS)
    points = chosen(every[1::2], every)
    for number, point in enumerate(points):
        put(f"w{number}")
        _run(mortals, words(f"w{number}"), point)
        _run(mortals, words(f"w{number}"))
        third = _run(mortals, words(f"w{number}"))

        assert third.document is not None
        assert third.document["status"] == "nothing-to-do", (point, calls[point[0]])
        rows = Counter(row[0] for row in service.rows())
        assert rows == {0: 1, 1: number + 2, 2: number + 2}, (point, calls[point[0]])
    shutil.rmtree(state)
