"""Runs of `lake maintain` that are killed, and two at once: rows stay, and no work is done twice."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from support.cli.command_line import CommandLine
from support.tables.neglected_tables import MENDED_BY, Warehouse, rows_of

from world.mortal import Mortals

_KILLS = 20
# On a local disk, so few files are not worth an action.
_POLICY = """
["*"]
expire.when = "snapshots > 10"
compact.when = "small_files > 9"
compact.max-group-files = 9
deletes.when = "delete_files > 5"
manifests.when = "manifests > 15"
"""


@pytest.fixture(scope="module")
def mortals() -> Iterator[Mortals]:
    with Mortals() as started:
        yield started


def _words(folder: Path) -> list[str]:
    policy = folder / "policy.toml"
    policy.write_text(_POLICY)
    only = "expire,compact,deletes,manifests"
    return [
        "maintain",
        "--policy",
        str(policy),
        "--log",
        str(folder / "runs.jsonl"),
        "--only",
        only,
    ]


def test_killed_runs_lose_no_row_and_the_next_ones_end_the_work(
    neglected: Warehouse, mortals: Mortals, tmp_path: Path
) -> None:
    lake, random = neglected.restored(), Random("killed rounds")
    words, log = lake.arguments(*_words(tmp_path)), tmp_path / "runs.jsonl"
    rows = rows_of(lake)
    whole = mortals.run(words)
    assert whole.code == 0
    lake = neglected.restored()
    ended: Counter[str] = Counter()

    for _ in range(_KILLS):
        point = random.randrange(len(whole.calls)), random.choice(["before", "after"])
        log.unlink(missing_ok=True)
        end = mortals.run(words, kill=point)
        assert rows_of(lake) == rows, point
        ended["killed" if end.code is None else "ended"] += 1
        if end.code is not None:
            _has_converged(lake, tmp_path)
            lake = neglected.restored()

    assert ended["killed"] > _KILLS // 2, ended
    lake.ok(*_words(tmp_path))
    _has_converged(lake, tmp_path)
    assert rows_of(lake) == rows


def _has_converged(lake: CommandLine, folder: Path) -> None:
    """Check that a run has nothing to do, and that each table was mended."""
    assert lake.ok(*_words(folder))["status"] == "nothing-to-do"
    assert len(lake.table("db.small").inspect.data_files()) < 9
    assert len(lake.table("db.deletes").inspect.delete_files()) == 1
    assert len(lake.table("db.keys").inspect.delete_files()) == 1
    assert len(lake.table("db.manifests").inspect.manifests()) == 1
    assert len(lake.table("db.snapshots").snapshots()) == 1


def test_two_runs_at_once_do_no_work_twice_and_lose_nothing(
    neglected: Warehouse, tmp_path: Path
) -> None:
    lake = neglected.restored()
    rows, words = rows_of(lake), _words(tmp_path)
    before = {name: len(lake.table(name).snapshots()) for name in MENDED_BY}

    both = [lake.start("--json", *words) for _ in range(2)]
    results = [json.loads(one.communicate()[0])["result"] for one in both]

    assert [one.returncode for one in both] == [0, 0], results
    done = Counter(
        (row["table"], row["action"])
        for result in results
        for row in result["actions"]
        if row["status"] == "done"
    )
    assert done == Counter(dict.fromkeys(MENDED_BY.items(), 1))
    assert rows_of(lake) == rows
    logged = [json.loads(line) for line in (tmp_path / "runs.jsonl").read_text().splitlines()]
    assert sum(line["status"] == "done" for line in logged) == len(MENDED_BY)
    after = {name: len(lake.table(name).snapshots()) for name in MENDED_BY}
    assert after["db.deletes"] == before["db.deletes"] + 1
    assert after["db.manifests"] == before["db.manifests"] + 1
