"""What the processes import in which Spark runs tasks of the data source: each worker does so again."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.serializers import CloudPickleSerializer
from support.tables.iceberg_tables import make_table, named_rows, pyiceberg_table

from lake.commands.spark.mapped import Keep
from lake.commands.spark.source import LakeSource
from lake.core.io.storage.credentials import Credentials

# The values of a task, as Spark sends them, in a new process.
TASK = """
import sys
from pathlib import Path
from pyspark import TaskContext
from pyspark.serializers import CloudPickleSerializer
spark = TaskContext._taskContext = TaskContext()
spark._partitionId = spark._attemptNumber = spark._taskAttemptId = 0
spark._localProperties = {"sql.streaming.queryId": "query"}
sent = CloudPickleSerializer()
task, *values = sent.loads(Path(sys.argv[1]).read_bytes())
Path(sys.argv[1]).write_bytes(sent.dumps(task(*values)))
print(*sorted(sys.modules))
"""
# Each takes from 0.05 to 0.5 seconds; those of lake plan and commit.
SLOW = {
    *("pandas", "pyiceberg.catalog", "pyiceberg.manifest", "pyiceberg.table", "pyparsing"),
    *("requests", "rich", "strictyaml", "typer"),
    *("lake.commands.api.calls", "lake.core.load.ingest.plan", "lake.core.read.scan.plan"),
    *("lake.core.table.catalogs.catalog", "lake.core.transaction.session"),
}


def run_task(folder: Path, *sent: object) -> Any:
    """Run a task in a process of its own, which must not import what is slow, and return its result."""
    payload = folder / "payload"
    payload.write_bytes(CloudPickleSerializer().dumps(sent))
    command = [sys.executable, "-c", TASK, str(payload)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert SLOW & set(done.stdout.split()) == set()
    return CloudPickleSerializer().loads(payload.read_bytes())


def read(source: LakeSource, reader: Any, partition: object) -> list[pa.RecordBatch]:
    # Spark sends the data source with the reader.
    return list(reader.read(partition))


def write(writer: Any, batch: pa.RecordBatch) -> object:
    return writer.write(iter([batch]))


def mapped(function: Any, batch: pa.RecordBatch) -> list[pa.RecordBatch]:
    return list(function(iter([batch])))


@pytest.fixture(autouse=True)
def _by_value(monkeypatch: pytest.MonkeyPatch) -> None:
    """Send the functions of this file as Spark sends its own: with their code."""
    for function in (read, write, mapped):
        monkeypatch.setattr(function, "__module__", "__main__")


def test_a_task_of_a_read_imports_nothing_that_plans(warehouse: Path, tmp_path: Path) -> None:
    make_table(warehouse).append(named_rows(1, 2, 3))
    source = LakeSource({"warehouse": str(warehouse), "path": "db.t"})
    reader = source.reader(source.schema())
    (partition,) = reader.partitions()

    (batch,) = run_task(tmp_path, read, source, reader, partition)

    assert batch.to_pydict() == {"id": [1, 2, 3], "name": ["n1", "n2", "n3"]}


@pytest.mark.parametrize("epoch", [(), (0,)])
def test_a_task_of_a_write_imports_nothing_that_commits(
    warehouse: Path, tmp_path: Path, epoch: tuple[int, ...]
) -> None:
    make_table(warehouse)
    source = LakeSource({"warehouse": str(warehouse), "path": "db.t"})
    make = source.streamWriter if epoch else source.writer
    writer = make(source.schema(), overwrite=False)

    writer.commit([run_task(tmp_path, write, writer, named_rows(1, 2).to_batches()[0])], *epoch)

    assert sorted(pyiceberg_table(warehouse).scan().to_arrow()["id"].to_pylist()) == [1, 2]


def test_a_task_of_an_upsert_imports_nothing_that_loads(warehouse: Path, tmp_path: Path) -> None:
    schema = make_table(warehouse).schema()
    rows = named_rows(1, 2)
    keep = Keep(
        prefix=f"{tmp_path}/rows",
        schema=schema,
        columns=rows.schema,
        secrets=Credentials({}).to_bytes(),
        of_query=True,
    )

    (found,) = run_task(tmp_path, mapped, keep, rows.to_batches()[0])

    (row,) = found.to_pylist()
    assert pq.read_table(row.pop("path")) == rows
    # Spark shows the query, so its rows are not hashed.
    assert row == {"rows": None, "query": "query", "run": None}
