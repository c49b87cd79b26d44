"""Streaming queries that write through Spark: each epoch once, whatever dies; PyIceberg judges the rows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.cli.command_line import CommandLine
from support.peers.notebook import Notebook
from support.tables.iceberg_tables import ids_in, make_table, pyiceberg_table

pytestmark = pytest.mark.spark

# An epoch for each file. The faulty source kills a process before or after an epoch's commit.
QUERY = """
import os
from lake.commands.spark.source import LakeSource
from lake.commands.spark.stream_writer import LakeStreamWriter

process = spark._jvm.java.lang.ProcessHandle.current().pid()

class FaultyWriter(LakeStreamWriter):
    names = (*LakeStreamWriter.names, 'kill', 'moment')

    def _load_options(self, given):
        return {name: value for name, value in given.items() if name == 'branch'}

    def commit(self, messages, batchId):
        if self._options['moment'] == 'after':
            super().commit(messages, batchId)
        os.kill(process if self._options['kill'] == 'driver' else os.getpid(), 9)

class Faulty(LakeSource):
    @classmethod
    def name(cls):
        return 'faulty'

    def streamWriter(self, schema, overwrite):
        return FaultyWriter(dict(self.options), schema, overwrite=overwrite)

spark.dataSource.register(Faulty)
stream = spark.readStream.schema('id bigint, name string').option('maxFilesPerTrigger', 1).json(source)
query = stream.writeStream.format(format).options(warehouse=warehouse, checkpointLocation=checkpoint, **options)
query.trigger(availableNow=True).start('db.t').awaitTermination()
"""


class Queries:
    """A query from a folder to the table, which goes on from its checkpoint."""

    def __init__(self, warehouse: Path) -> None:
        self._warehouse = warehouse
        self.checkpoint = warehouse.parent / "checkpoint"
        self.source = warehouse.parent / "source"
        self.source.mkdir()
        make_table(warehouse)

    def arrive(self, *ids: int) -> None:
        lines = [json.dumps({"id": one, "name": f"n{one}"}) for one in ids]
        (self.source / f"{ids[0]:05d}.json").write_text("\n".join(lines))

    def run(self, notebook: Notebook, **faults: str) -> Any:
        notebook.run(
            QUERY,
            source=str(self.source),
            warehouse=str(self._warehouse),
            checkpoint=str(self.checkpoint),
            format="faulty" if faults else "lake",
            options=faults,
        )

    @property
    def epochs(self) -> list[str]:
        summaries = [
            item.summary.additional_properties
            for item in pyiceberg_table(self._warehouse).snapshots()
        ]
        query = json.loads((self.checkpoint / "metadata").read_text())["id"]
        assert {one["spark.sql.streaming.queryId"] for one in summaries} == {query}
        return [one["spark.sql.streaming.epochId"] for one in summaries]


@pytest.fixture(scope="module")
def notebook(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Notebook]:
    peer = Notebook(tmp_path_factory.mktemp("notebook"))
    yield peer
    peer.close()


@pytest.fixture
def queries(warehouse: Path) -> Queries:
    return Queries(warehouse)


def test_an_epoch_is_written_once_whenever_its_commit_dies(
    notebook: Notebook, queries: Queries, warehouse: Path, lake: CommandLine
) -> None:
    queries.arrive(1, 2)
    queries.run(notebook)
    # The driver died after the epoch, and before Spark wrote that down.
    for path in queries.checkpoint.glob("commits/*0*"):
        path.unlink()
    queries.arrive(3)
    with pytest.raises(RuntimeError, match="STREAM_FAILED"):
        queries.run(notebook, kill="worker", moment="before")
    assert ids_in(warehouse) == [1, 2]
    with pytest.raises(RuntimeError, match="STREAM_FAILED"):
        queries.run(notebook, kill="worker", moment="after")
    queries.run(notebook)

    assert ids_in(warehouse) == [1, 2, 3]
    assert queries.epochs == ["0", "1"]
    shown = lake.ok("snapshots", "db.t")["result"]["snapshots"]
    assert [item["epoch_id"] for item in shown] == [1, 0]


def test_an_epoch_is_written_once_when_the_driver_dies(
    notebook: Notebook, queries: Queries, warehouse: Path, tmp_path: Path
) -> None:
    queries.arrive(1, 2)
    killed = Notebook(tmp_path)
    with pytest.raises(RuntimeError):
        queries.run(killed, kill="driver", moment="after")
    killed.close()
    assert ids_in(warehouse) == [1, 2]

    queries.run(notebook)

    assert ids_in(warehouse) == [1, 2]
    assert queries.epochs == ["0"]
