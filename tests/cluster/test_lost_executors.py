"""Executors and workers that are killed in mid-task: the result is exact, and nothing of theirs remains."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.cli.command_line import CommandLine, Result
from support.servers.spark_cluster import SparkCluster, executor_of, until
from support.tables.cluster_tables import begun, rows, rows_of, sources, strangers
from support.tiers import chosen


@pytest.fixture
def held(cluster: SparkCluster) -> Iterator[Callable[..., Result]]:
    """Run a command, and kill what works on a file with a text in its name."""

    def run(lake: CommandLine, text: str, whom: str, *arguments: object) -> Result:
        cluster.gate.arm(text)
        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(lake, "--json", *arguments)
            worker = cluster.gate.held(running)
            os.kill(worker if whom == "worker" else executor_of(cluster, worker), signal.SIGKILL)
            until(lambda: not Path(f"/proc/{worker}").exists(), "the worker's end")
            cluster.gate.release()
            return running.result()

    yield run
    cluster.gate.release()


@pytest.mark.parametrize("whom", ["worker", "executor"])
def test_a_compaction_survives(
    lake_there: CommandLine, held: Callable[..., Result], tmp_path: Path, whom: str
) -> None:
    begun(lake_there, tmp_path / "in", "--partition-by", "part")

    result = held(lake_there, ".parquet", whom, "compact", "db.t", "--rewrite-all")

    assert result.exit_code == 0, result
    assert result.json()["result"]["rows_out"] == 60
    assert rows_of(lake_there) == rows(0, 60)
    assert strangers(lake_there) == set()


@pytest.mark.parametrize(
    "deletes", chosen(["copy-on-write"], ["position", "equality", "copy-on-write"])
)
def test_an_upsert_survives(
    lake_there: CommandLine, held: Callable[..., Result], tmp_path: Path, deletes: str
) -> None:
    begun(lake_there, tmp_path / "in", "--partition-by", "part")
    # Of some files a part of the rows stays.
    files = sources(tmp_path / "in", rows(52, 70, value=1), rows(55, 65, value=2))
    text = {"position": "-deletes", "equality": "-deletes", "copy-on-write": "/5000"}[deletes]

    command = ["ingest", "db.t", *files, "--upsert", "--key", "id,part", "--deletes", deletes]
    result = held(lake_there, text, "executor", *command)

    assert result.exit_code == 0, result
    expected = [*rows(0, 52), *rows(52, 55, 1), *rows(55, 65, 2), *rows(65, 70, 1)]
    assert rows_of(lake_there) == expected
    assert strangers(lake_there) == set()


def test_an_ingest_survives_though_what_was_sent_is_lost(
    lake_there: CommandLine, held: Callable[..., Result], tmp_path: Path
) -> None:
    files = sources(tmp_path / "in", *(rows(n * 20, n * 20 + 20) for n in range(4)))
    command = ["ingest", "db.t", *files, "--create", "--partition-by", "part"]

    result = held(lake_there, ".parquet", "executor", *command, "--distribution", "hash")

    assert result.exit_code == 0, result
    assert result.json()["result"]["data_files"] == 3
    assert rows_of(lake_there) == rows(0, 80)
    assert strangers(lake_there) == set()
