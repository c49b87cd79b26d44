"""Frames of a client of Spark Connect, written by executors that are killed."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.cli.command_line import CommandLine
from support.peers.notebook import ROOT, Notebook
from support.servers.spark_cluster import ConnectServer, SparkCluster, executor_of, until
from support.tables.cluster_tables import begun, rows, rows_of, strangers

BEGIN = """
import lake.spark
lake.spark.register(spark)
spark.addArtifacts(installed, pyfile=True)
"""
WRITE = """
frame = spark.range(60, 100, 1, 2).selectExpr('id', "concat('p', id % 3) part", 'id * 10 value')
frame.write.format('lake').option('warehouse', warehouse).mode('append').save('db.t')
"""
AGAIN = """
found = spark.read.format('lake').options(warehouse=warehouse, where='id >= 58').load('db.t')
found.write.format('lake').option('warehouse', warehouse).mode('append').save('db.t')
"""


@pytest.fixture(scope="module")
def notebook(server: ConnectServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Notebook]:
    folder = tmp_path_factory.mktemp("notebook")
    # The cluster's Python has no lake: this stands for an installed one.
    installed = folder / "lake.py"
    installed.write_text(f"__path__ = [{str(ROOT)!r}]\n")
    peer = Notebook(folder, server.url)
    peer.run(BEGIN, installed=str(installed))
    yield peer
    peer.close()


@pytest.mark.parametrize("whom", ["executor", "worker"])
def test_a_write_of_a_frame_survives(
    lake: CommandLine, notebook: Notebook, cluster: SparkCluster, tmp_path: Path, whom: str
) -> None:
    begun(lake, tmp_path / "in", "--partition-by", "part")
    cluster.gate.arm(".parquet")
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(notebook.run, WRITE, warehouse=str(lake.warehouse))
        try:
            worker = cluster.gate.held(running)
            os.kill(worker if whom == "worker" else executor_of(cluster, worker), signal.SIGKILL)
            until(lambda: not Path(f"/proc/{worker}").exists(), "the worker's end")
        finally:
            cluster.gate.release()
        running.result()

    assert rows_of(lake) == rows(0, 100)
    assert strangers(lake) == set()


def test_a_frame_is_read_and_written(lake: CommandLine, notebook: Notebook, tmp_path: Path) -> None:
    begun(lake, tmp_path / "in", "--partition-by", "part")

    notebook.run(AGAIN, warehouse=str(lake.warehouse))

    assert rows_of(lake) == sorted([*rows(0, 60), *rows(58, 60)])
