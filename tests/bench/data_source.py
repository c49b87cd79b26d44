"""Spark's data source `lake` beside Iceberg's own Spark runtime, in turn in one Spark; the processor time decides.

    python tests/bench/data_source.py [--rows 2000000] [--files 4] [--epochs 10] [--commits 100] [--rounds 3]

Reads rows of six columns to `noop`: all columns, and one; writes as many rows; runs a query of epochs of 1,000 rows,
beside Spark's Parquet sink too; and streams a table of small appends into Parquet files with `availableNow`. Prints
the least wall and processor seconds of each, JVM and Python workers together, and how lake compares. The target of
10,000,000 rows, 500 epochs and 500 commits takes half an hour.

`nothing` is a source in Python that yields one batch again and again, and drops what it is to write: no source in
Python can be faster.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE)]

import numpy as np  # noqa: E402
import pyarrow as pa  # noqa: E402
from appends import make_appends  # noqa: E402
from pyspark.sql.datasource import (  # noqa: E402
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from shared import parser_of  # noqa: E402
from support.peers.java_peer import CATALOG, session  # noqa: E402
from support.servers.spark_cluster import descendants  # noqa: E402
from support.tables.iceberg_tables import pyiceberg_catalog  # noqa: E402

from lake.spark import register  # noqa: E402

_TICKS = os.sysconf("SC_CLK_TCK")
_ROWS = (
    "id",
    "cast(id % 1000 as int) as small",
    "id * 0.37D as price",
    "concat('name ', id % 5000) as name",
    "timestamp_seconds(id) as moment",
    "date_from_unix_date(cast(id % 20000 as int)) as day",
)
_COLUMNS = "id BIGINT, small INT, price DOUBLE, name STRING, moment TIMESTAMP, day DATE"


_BATCH_ROWS = 50_000


class Batches(InputPartition):  # type: ignore[misc]
    """A number of batches."""

    def __init__(self, count: int) -> None:
        self.count = count


class YieldBatches(DataSourceReader):  # type: ignore[misc]
    """Yields the same batch again and again."""

    def __init__(self, rows: int, columns: int) -> None:
        self._rows = rows
        self._columns = columns

    def partitions(self) -> list[InputPartition]:
        """Return four tasks."""
        return [Batches(self._rows // _BATCH_ROWS // 4) for _ in range(4)]

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        """Yield the batches of a task."""
        ids = np.arange(_BATCH_ROWS)
        columns = {
            "id": pa.array(ids),
            "small": pa.array(ids % 1000, pa.int32()),
            "price": pa.array(ids * 0.37),
            "name": pa.array([f"name {number % 5000}" for number in ids]),
            "moment": pa.array(ids * 1_000_000).cast(pa.timestamp("us", tz="UTC")),
            "day": pa.array((ids % 20000).astype(np.int32)).cast(pa.date32()),
        }
        batch = pa.RecordBatch.from_pydict(dict(list(columns.items())[: self._columns]))
        yield from (batch for _ in range(partition.count))


class DropRows(DataSourceArrowWriter):  # type: ignore[misc]
    """Takes rows, and writes nothing."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Take the rows of a task."""
        for _ in iterator:
            pass
        return WriterCommitMessage()


class DropEpochs(DropRows, DataSourceStreamArrowWriter):  # type: ignore[misc]
    """Takes the rows of epochs, and writes nothing."""

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - as Spark calls it
        """Note nothing."""


class OneBatch(YieldBatches, DataSourceStreamReader):  # type: ignore[misc]
    """A stream with one batch."""

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - as Spark calls it
        """Return where it begins."""
        return {"batch": 0}

    def latestOffset(self, *_: Any) -> dict[str, int]:  # noqa: N802 - as Spark calls it
        """Return its end."""
        return {"batch": 1}

    def partitions(self, *_: Any) -> list[InputPartition]:
        """Return as many tasks as lake has for small files."""
        return [Batches(1) for _ in range(16)]

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        """Yield as many rows as small files have."""
        return (batch.slice(0, 300) for batch in super().read(partition))

    def commit(self, end: Any) -> None:
        """Forget nothing."""


class Nothing(DataSource):  # type: ignore[misc]
    """A source and a sink that only pass rows between Spark and Python."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "nothing"

    def schema(self) -> str:
        """Return the columns."""
        return ", ".join(_COLUMNS.split(", ")[: self._columns])

    @property
    def _columns(self) -> int:
        return int(self.options.get("columns", "6"))

    def reader(self, schema: Any) -> YieldBatches:
        """Return what yields rows."""
        return YieldBatches(int(self.options["rows"]), self._columns)

    def streamReader(self, schema: Any) -> OneBatch:  # noqa: N802 - as Spark calls it
        """Return what yields the rows of one batch."""
        return OneBatch(0, self._columns)

    def writer(self, schema: Any, overwrite: bool) -> DropRows:
        """Return what drops rows."""
        return DropRows()

    def streamWriter(self, schema: Any, overwrite: bool) -> DropEpochs:  # noqa: N802 - as Spark calls it
        """Return what drops the rows of epochs."""
        return DropEpochs()


class Bench:
    """One Spark on a warehouse, and what it measured."""

    def __init__(self, warehouse: Path, rounds: int) -> None:
        self._rounds = rounds
        self.warehouse = str(warehouse)
        self.folder = warehouse / "out"
        self.spark = session(self.warehouse)
        register(self.spark)
        self.spark.dataSource.register(Nothing)
        self._java = self.spark.sparkContext._gateway.proc.pid

    def take_turns(self, name: str, programs: Mapping[str, Callable[[], object]]) -> None:
        """Run programs in turn and print what they took; the first one is lake."""
        taken: dict[str, list[tuple[float, float]]] = {who: [] for who in programs}
        for _ in range(self._rounds):
            for who, program in programs.items():
                wall, cpu = time.perf_counter(), self._cpu()
                program()
                taken[who].append((time.perf_counter() - wall, self._cpu() - cpu))
        best = {who: tuple(map(min, zip(*found, strict=True))) for who, found in taken.items()}
        ours = best["lake"]
        for who, (wall, cpu) in best.items():
            ratio = f"lake is {wall / ours[0]:.2f} times as fast, by CPU {cpu / ours[1]:.2f}"
            text = f"{name}: {who} {wall:.2f} s, {cpu:.2f} s of CPU"
            print(text if who == "lake" else f"{text}; {ratio}", flush=True)

    def _cpu(self) -> float:
        """Return the processor seconds of the JVM and of all that it started."""
        total = 0
        for process in (self._java, *descendants(self._java)):
            try:
                fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            total += sum(map(int, fields[11:15]))
        return total / _TICKS

    def lake(self, given: Any) -> Any:
        """Return a reader or a writer of lake's."""
        return given.format("lake").option("warehouse", self.warehouse)

    def java(self, given: Any) -> Any:
        """Return a reader or a writer of Iceberg's."""
        return given.format("iceberg")

    def rows(self, rows: int, files: int) -> Any:
        """Return rows of six columns, in as many tasks as there are to be files."""
        return self.spark.range(0, rows, 1, files).selectExpr(*_ROWS)

    def make(self, name: str) -> None:
        """Make an empty table."""
        self.spark.sql(f"CREATE TABLE IF NOT EXISTS {CATALOG}.db.{name} ({_COLUMNS}) USING iceberg")

    def run(self, stream: Any) -> None:
        """Run a query of a new checkpoint to its end."""
        writer = stream.option("checkpointLocation", str(self.folder / uuid4().hex))
        writer.trigger(availableNow=True).start().awaitTermination()


def main() -> None:
    """Make what is missing, and measure."""
    parser = parser_of(__doc__, java=False, rows=2_000_000, files=4, epochs=10, commits=100)
    chosen = parser.parse_args()
    small = chosen.folder / f"appends-{chosen.commits}"
    if not small.exists():
        make_appends(small, (range(each * 10, each * 10 + 10) for each in range(chosen.commits)))
    bench = Bench(chosen.folder / "data-source", chosen.rounds)
    spark = bench.spark
    read_and_write(bench, chosen.rows, chosen.files)
    epochs(bench, chosen.epochs)
    spark.stop()
    commits(Bench(small, chosen.rounds), chosen.commits)


def read_and_write(bench: Bench, rows: int, files: int) -> None:
    """Read a table and write into others."""
    catalog = pyiceberg_catalog(Path(bench.warehouse))
    source = f"t{rows}_{files}"
    catalog.create_namespace_if_not_exists("db")
    for name in (source, "lake", "java"):
        bench.make(name)
    found = bench.rows(rows, files)
    if not catalog.load_table(f"db.{source}").current_snapshot():
        bench.java(found.write).mode("append").save(f"{CATALOG}.db.{source}")

    def noop(frame: Any) -> Callable[[], object]:
        return lambda: frame.write.format("noop").mode("overwrite").save()

    nothing = bench.spark.read.format("nothing").option("rows", str(rows))
    ours = bench.lake(bench.spark.read)
    theirs = bench.spark.read.table(f"{CATALOG}.db.{source}")
    all_columns = {
        "lake": noop(ours.load(f"db.{source}")),
        "Java": noop(theirs),
        "nothing": noop(nothing.load()),
    }
    bench.take_turns(f"{rows} rows x 6 read", all_columns)
    one = {
        "lake": noop(ours.option("select", "id").load(f"db.{source}")),
        "Java": noop(theirs.select("id")),
        "nothing": noop(nothing.option("columns", "1").load()),
    }
    bench.take_turns(f"{rows} rows x 1 read", one)
    written = {
        "lake": lambda: bench.lake(found.write).mode("append").save("db.lake"),
        "Java": lambda: bench.java(found.write).mode("append").save(f"{CATALOG}.db.java"),
        "nothing": lambda: found.write.format("nothing").mode("append").save(),
    }
    bench.take_turns(f"{rows} rows x 6 written", written)


def epochs(bench: Bench, epochs: int) -> None:
    """Write epochs of 1,000 rows."""
    source = bench.folder / f"source-{epochs}"
    bench.rows(epochs * 1000, epochs).write.mode("overwrite").parquet(str(source))
    stream = (
        bench.spark.readStream.schema(_COLUMNS).option("maxFilesPerTrigger", 1).parquet(str(source))
    )
    sinks = {
        "lake": lambda: bench.lake(stream.writeStream).option("path", "db.lake"),
        "Java": lambda: bench.java(stream.writeStream).option("path", f"{CATALOG}.db.java"),
        "Parquet": lambda: stream.writeStream.format("parquet").option(
            "path", str(bench.folder / uuid4().hex)
        ),
        "nothing": lambda: stream.writeStream.format("nothing"),
    }
    programs = {who: (lambda sink=sink: bench.run(sink())) for who, sink in sinks.items()}
    bench.take_turns(f"{epochs} epochs of 1,000 rows", programs)


def commits(bench: Bench, commits: int) -> None:
    """Stream a table of small appends into files."""
    frames = {
        "lake": bench.lake(bench.spark.readStream).option("start", "earliest").load("db.t"),
        "Java": bench.java(bench.spark.readStream)
        .option("stream-from-timestamp", "0")
        .load(f"{CATALOG}.db.t"),
        "nothing": bench.spark.readStream.format("nothing").option("columns", "1").load(),
    }
    programs = {
        who: (
            lambda frame=frame: bench.run(
                frame.writeStream.format("parquet").option("path", str(bench.folder / uuid4().hex))
            )
        )
        for who, frame in frames.items()
    }
    bench.take_turns(f"{commits} appends streamed", programs)


if __name__ == "__main__":
    main()
