"""Attempts at tasks that Spark gives up while they run: they end, and leave no file."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.cli.command_line import CommandLine
from support.servers.spark_cluster import PATIENCE_SECONDS, SparkCluster, options, until
from support.tables.cluster_tables import begun, rows, rows_of, sources, strangers

EAGER = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.minTaskRuntime": "100ms",
    "spark.speculation.task.duration.threshold": "1s",
}


@pytest.fixture(autouse=True)
def _released(cluster: SparkCluster) -> Iterator[None]:
    yield
    cluster.gate.release()


def gone(process: int) -> bool:
    return not Path(f"/proc/{process}").exists()


@pytest.mark.parametrize("place", ["master", "server"])
def test_a_stopped_commands_tasks_write_nothing_more(
    lake: CommandLine,
    cluster: SparkCluster,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    place: str,
) -> None:
    begun(lake, tmp_path / "in", "--partition-by", "part")
    settings = (
        ["--master", cluster.master, *options(cluster.conf())]
        if place == "master"
        else ["--remote", request.getfixturevalue("server").url]
    )
    files = sources(tmp_path / "in", rows(60, 80), rows(80, 100))
    cluster.gate.arm(".parquet")
    running = lake.start(*settings, "ingest", "db.t", *files, "--distribution", "none")
    worker = cluster.gate.held()

    running.send_signal(signal.SIGTERM)
    assert running.wait(PATIENCE_SECONDS) == 143, running.communicate()
    running.communicate()

    # On a server only the task itself can end it: it has two more files to write.
    cluster.gate.release()
    until(lambda: gone(worker), "the worker's end")
    assert strangers(lake) == set()
    assert rows_of(lake) == rows(0, 60)


def test_a_driver_that_is_killed_leaves_the_table_to_the_next_run(
    lake: CommandLine, cluster: SparkCluster, tmp_path: Path
) -> None:
    begun(lake, tmp_path / "in", "--partition-by", "part")
    cluster.gate.arm(".parquet")
    settings = ["--master", cluster.master, *options(cluster.conf())]
    running = lake.start(*settings, "compact", "db.t", "--rewrite-all")
    worker = cluster.gate.held()

    running.kill()
    running.communicate()

    # No process waits for its tasks any more, and no snapshot uses what they still write.
    until(lambda: gone(worker), "the worker's end")
    assert rows_of(lake) == rows(0, 60)
    assert lake.ok("compact", "db.t", "--rewrite-all")["status"] == "done"
    assert rows_of(lake) == rows(0, 60)
    assert not list(lake.warehouse.rglob("lake.lock"))


@pytest.mark.parametrize("place", ["master", "server"])
def test_of_two_attempts_at_a_time_one_counts_and_the_other_leaves_nothing(
    lake: CommandLine, cluster: SparkCluster, tmp_path: Path, place: str
) -> None:
    begun(lake, tmp_path / "in", "--partition-by", "part")
    conf = {**cluster.conf(), **EAGER}
    server = None if place == "master" else cluster.connect(conf)
    settings = ["--remote", server.url] if server else ["--master", cluster.master, *options(conf)]
    cluster.gate.arm(".parquet")

    running = lake.start("-q", *settings, "compact", "db.t", "--rewrite-all")
    try:
        output = running.communicate(timeout=PATIENCE_SECONDS)
    finally:
        running.kill()

    # The first attempt never went on: another did the work.
    assert (running.returncode, output) == (0, (b"", b""))
    worker = cluster.gate.held()
    cluster.gate.release()
    until(lambda: gone(worker), "the worker's end")
    assert rows_of(lake) == rows(0, 60)
    assert strangers(lake) == set()
    if server:
        server.daemon.close()
