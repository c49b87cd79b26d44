"""Frames of a client of Spark Connect: written by executors that are killed, and upserted by the server."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator, Sequence
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
# The server calls the function, for each file, in a process of its own.
UPSERTS = """
import os
folder = os.getcwd()
def each(frame, epoch):
    import sys
    sys.path.append(folder)
    import lake.spark
    for half, name in enumerate(names[epoch]):
        load = lake.spark.upsert('db.t', key=['id'], warehouse=warehouse, query=name)
        load(frame.where(f'id % 2 = {half}'), epoch)
stream = spark.readStream.schema('id bigint, part string, value bigint').option('maxFilesPerTrigger', 1).json(source)
query = stream.writeStream.foreachBatch(each).option('checkpointLocation', checkpoint)
query.trigger(availableNow=True).start().awaitTermination()
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


def test_two_upserts_of_one_batch_and_two_checkpoints_need_two_names(
    lake: CommandLine, notebook: Notebook, tmp_path: Path
) -> None:
    begun(lake, tmp_path / "in")
    source = tmp_path / "source"
    source.mkdir()
    for number, ids in enumerate([range(58, 62), range(62, 64)]):
        lines = [json.dumps({"id": one, "part": f"p{one % 3}", "value": one * 10}) for one in ids]
        (source / f"{number}.json").write_text("\n".join(lines))
        os.utime(source / f"{number}.json", (number + 1, number + 1))

    def run(*second: str, first: Sequence[str] = ("even", "odd"), checkpoint: str = "one") -> None:
        notebook.run(
            UPSERTS,
            names=[first, second],
            source=str(source),
            checkpoint=str(tmp_path / checkpoint),
            warehouse=str(lake.warehouse),
        )

    with pytest.raises(RuntimeError, match="by another upsert of the same query"):
        run("even", "even")
    assert rows_of(lake) == rows(0, 63)

    # The newest batch of the name is 0, and has the other rows of the file.
    with pytest.raises(RuntimeError, match="has other rows than the batch of that name"):
        run(first=["odd"], checkpoint="new")
    assert rows_of(lake) == rows(0, 63)

    run("even", "odd")
    assert rows_of(lake) == rows(0, 64)
