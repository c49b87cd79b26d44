"""Streaming queries that write and upsert through Spark: each epoch once; PyIceberg judges the rows."""

from __future__ import annotations

import json
import re
import venv
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.cli.command_line import CommandLine
from support.peers.notebook import Notebook
from support.tables.iceberg_tables import ids_in, make_table, pyiceberg_table

import lake as interface

pytestmark = pytest.mark.spark

# An epoch for each file. The faulty source kills a process before or after an epoch's commit, or makes a file before
# the commit and waits for the driver's death. The cell ends with the query, or when there is that file.
QUERY = """
import os, time
from lake.commands.spark.source import LakeSource
from lake.commands.spark.stream_writer import LakeStreamWriter

process = spark._jvm.java.lang.ProcessHandle.current().pid()

class FaultyWriter(LakeStreamWriter):
    names = (*LakeStreamWriter.names, 'kill', 'moment', 'file')

    def _load_options(self, given):
        return {name: value for name, value in given.items() if name == 'branch'}

    def commit(self, messages, batchId):
        if self._options['moment'] == 'never':
            open(self._options['file'], 'x').close()
            while os.path.exists(f'/proc/{process}'):
                time.sleep(0.01)
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
query = query.trigger(availableNow=True).start(table)
while not os.path.exists(options.get('file', '')) and not query.awaitTermination(0.1):
    pass
"""


class Queries:
    """A query from a folder to the table, which goes on from its checkpoint."""

    def __init__(self, warehouse: Path, table: str = "db.t") -> None:
        self._warehouse = warehouse
        self.table = table
        self.checkpoint = warehouse.parent / f"checkpoint-{table}"
        self.source = warehouse.parent / f"source-{table}"
        self.source.mkdir()
        make_table(warehouse, table)

    def arrive(self, *ids: int) -> None:
        lines = [json.dumps({"id": one, "name": f"n{one}"}) for one in ids]
        (self.source / f"{ids[0]:05d}.json").write_text("\n".join(lines))

    def run(self, notebook: Notebook, **faults: str) -> Any:
        notebook.run(
            QUERY,
            source=str(self.source),
            warehouse=str(self._warehouse),
            checkpoint=str(self.checkpoint),
            table=self.table,
            format="faulty" if faults else "lake",
            options=faults,
        )

    @property
    def epochs(self) -> list[str]:
        summaries = [
            item.summary.additional_properties
            for item in pyiceberg_table(self._warehouse, self.table).snapshots()
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
    uncommitted = Queries(warehouse, "db.u")
    both = {"db.t": queries, "db.u": uncommitted}
    for each in both.values():
        each.arrive(1, 2)
    killed = Notebook(tmp_path)
    uncommitted.run(killed, kill="driver", moment="never", file=str(tmp_path / "waits"))
    with pytest.raises(RuntimeError, match="Py4JNetworkError|Connection|the peer died"):
        queries.run(killed, kill="driver", moment="after")
    killed.close()
    assert {name: ids_in(warehouse, name) for name in both} == {"db.t": [1, 2], "db.u": []}

    for name, each in both.items():
        each.run(notebook)

        assert ids_in(warehouse, name) == [1, 2]
        assert each.epochs == ["0"]


# Upserts

PAGE = Path(__file__).parents[2] / "commands/NOTEBOOKS.md"
UPSERT = """
import lake.spark
def upsert(**options):
    return lake.spark.upsert('db.t', **{'key': ['id'], 'warehouse': warehouse, **options})
def batches(each):
    stream = spark.readStream.schema('id bigint, name string').json(source)
    write = stream.writeStream.foreachBatch(each).option('checkpointLocation', checkpoint)
    write.trigger(availableNow=True).start().awaitTermination()
"""


class Upserts(Queries):
    """The same with an upsert of each batch; a call says which."""

    def run(self, notebook: Notebook, call: str = "batches(upsert())", **_: str) -> Any:
        return notebook.run(
            f"{UPSERT}{call}",
            source=str(self.source),
            warehouse=str(self._warehouse),
            checkpoint=str(self.checkpoint),
        )

    def arrive_rows(self, *rows: tuple[int | None, str]) -> None:
        name = f"{len(list(self.source.iterdir())):05d}.json"
        lines = [json.dumps({"id": one, "name": text}) for one, text in rows]
        (self.source / name).write_text("\n".join(lines))

    @property
    def rows(self) -> list[tuple[int, str]]:
        table = pyiceberg_table(self._warehouse).scan().to_arrow().sort_by("id")
        return list(zip(*table.to_pydict().values(), strict=True))


@pytest.fixture
def upserts(warehouse: Path) -> Upserts:
    return Upserts(warehouse)


def test_a_batch_replaces_the_rows_with_its_keys_once(
    notebook: Notebook, upserts: Upserts, warehouse: Path, lake: CommandLine
) -> None:
    upserts.arrive_rows((1, "a"), (2, "b"))
    upserts.run(notebook)
    upserts.arrive_rows((2, "c"), (3, "d"))
    upserts.run(notebook)
    assert upserts.rows == [(1, "a"), (2, "c"), (3, "d")]

    # Spark did not note that the second batch ended, and sends it again.
    for path in upserts.checkpoint.glob("commits/*1*"):
        path.unlink()
    lake.ok("delete", "db.t", "--where", "id = 3")
    upserts.arrive_rows((4, "e"))
    upserts.run(notebook)

    assert upserts.rows == [(1, "a"), (2, "c"), (4, "e")]
    shown = lake.ok("snapshots", "db.t")["result"]["snapshots"]
    query = json.loads((upserts.checkpoint / "metadata").read_text())["id"]
    assert [(item["query_id"], item["epoch_id"]) for item in shown] == [
        *((query, 2), (None, None), (query, 1), (query, 0)),
    ]
    assert not list(warehouse.rglob("lake-rows-*"))


def test_a_batch_that_does_not_fit_ends_the_query_and_changes_nothing(
    notebook: Notebook, upserts: Upserts, warehouse: Path
) -> None:
    upserts.arrive_rows((1, "a"), (None, "b"))

    with pytest.raises(RuntimeError, match="NULL in the key column id"):
        upserts.run(notebook)
    assert upserts.rows == []
    assert not [*warehouse.rglob("lake-rows-*"), *warehouse.rglob("*.parquet")]


def test_two_upserts_of_one_query_need_names(notebook: Notebook, upserts: Upserts) -> None:
    upserts.arrive_rows((1, "a"), (2, "b"))
    two = (
        "def both(frame, epoch):\n"
        "    upsert(**one)(frame.where('id = 1'), epoch)\n"
        "    upsert(**other)(frame.where('id = 2'), epoch)\n"
        "batches(both)"
    )
    with pytest.raises(RuntimeError, match="by another upsert of the same query"):
        upserts.run(notebook, f"one = other = {{}}\n{two}")
    assert upserts.rows == [(1, "a")]

    # The first one is known by another name, and loads its row once more.
    upserts.run(notebook, f"one, other = {{'query': 'one'}}, {{'query': 'other'}}\n{two}")
    assert upserts.rows == [(1, "a"), (2, "b")]


def test_a_batch_of_a_new_checkpoint_needs_a_new_name_where_spark_shows_no_query(
    notebook: Notebook, upserts: Upserts
) -> None:
    # No query of Spark's runs here, so the batches have a name only.
    batch = (
        "frame = spark.createDataFrame({0}, 'id bigint, name string').repartition({1})\n"
        "upsert(query='orders')(frame, {2})"
    )
    upserts.run(notebook, batch.format([(1, "a"), (2, "b")], 1, 0))
    # Spark repeats the batch; its tasks divide the rows in another way.
    upserts.run(notebook, batch.format([(2, "b"), (1, "a")], 2, 0))
    with pytest.raises(RuntimeError, match="has other rows than the batch of that name and number"):
        upserts.run(notebook, batch.format([(3, "a"), (4, "b")], 1, 0))
    upserts.run(notebook, batch.format([(2, "c")], 1, 1))
    with pytest.raises(RuntimeError, match="comes after batch 1 of that name"):
        upserts.run(notebook, batch.format([(3, "a")], 1, 0))

    assert upserts.rows == [(1, "a"), (2, "c")]


def test_a_frame_is_upserted_as_the_command_line_loads_its_rows(
    notebook: Notebook, upserts: Upserts, warehouse: Path, lake: CommandLine
) -> None:
    make_table(warehouse, "db.u")
    rows = [(1, "a"), (2, "x"), (1, "c"), (1, "b"), (7, "z")]
    source = warehouse.parent / "rows.csv"
    source.write_text("id,name\n" + "".join(f"{one},{name}\n" for one, name in rows))
    options = ("--upsert", "--key", "id", "--order-by", "name", "--run-id", "day-1")
    lake.ok("ingest", "db.u", str(source), *options)

    frame = f"frame = spark.createDataFrame({rows}, 'id bigint, name string')\n"
    call = "answer = upsert(order_by=['name'], run_id='day-1')(frame).result.rows_written\n"
    assert [upserts.run(notebook, frame + call) for _ in range(2)] == [3, 0]

    expected = pyiceberg_table(warehouse, "db.u").scan().to_arrow().sort_by("id")
    assert pyiceberg_table(warehouse).scan().to_arrow().sort_by("id") == expected
    assert upserts.rows == [(1, "c"), (2, "x"), (7, "z")]
    assert upserts.run(notebook, frame + "answer = upsert()(frame.limit(0))") is None
    for call, message in {
        "upsert()(frame, 0)": "does not show which query a batch belongs to",
        "upsert(run_id='a')(frame, 0)": "run_id would load the first batch only",
        "upsert(query=' ')": "query ' ' is not a name",
        "upsert(create=True)(frame)": "create is not an option of an upsert",
        "upsert(stage=True, deletes='equality')(frame)": "stage is not an option of an upsert",
    }.items():
        with pytest.raises(RuntimeError, match=message):
            upserts.run(notebook, frame + call)


def test_the_notebook_of_the_page_works_when_it_is_pasted(notebook: Notebook) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)

    for cell in code.split("# %%\n"):
        notebook.run(cell)
    assert notebook.run("answer = [list(row) for row in sums]") == [["DE", 7.0], ["NZ", 16.5]]


def test_a_python_of_spark_without_lake_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    venv.create(tmp_path, symlinks=True)
    python = tmp_path / "bin" / "python3"
    # As another session of this process may have left it.
    monkeypatch.setenv("SPARK_CONNECT_MODE_ENABLED", "1")
    session: Any = SimpleNamespace(
        dataSource=SimpleNamespace(register=lambda _: None),
        sparkContext=SimpleNamespace(pythonExec=str(python)),
    )
    with pytest.warns(UserWarning, match=f"{python}, which does not have lake"):
        interface.spark.register(session)
