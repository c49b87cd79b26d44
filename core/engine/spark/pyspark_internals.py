"""What lake needs of PySpark's Java side: the only module that names PySpark's inner parts.

They are the same in PySpark 4.0 to 4.3. What is called beyond them is Spark's public Java interface.
"""
# ruff: noqa: SLF001

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from lake.core.errors import EngineError

_MESSAGE_LIMIT = 400
# What Spark says of a Python process that ended without a word.
_CRASHED = "Python worker exited unexpectedly"
MEMORY_HINT = (
    "the system kills a process that takes too much memory: --master 'local[1]' needs least"
)


def frame_of(spark: Any, rows: Sequence[Sequence[Any]], schema: str) -> Any:
    """Return a DataFrame with a partition for each row; cells are texts and bytes.

    PySpark's own ways choose the number of partitions themselves, or put a Python step before ours.
    """
    from pyspark.sql import DataFrame  # noqa: PLC0415 - only when Spark is wanted

    java, context = spark._jvm, spark.sparkContext
    java_rows = java.java.util.ArrayList()
    for row in rows:
        cells = context._gateway.new_array(java.java.lang.Object, len(row))
        for index, cell in enumerate(row):
            cells[index] = bytearray(cell) if isinstance(cell, bytes) else cell
        java_rows.add(java.org.apache.spark.sql.RowFactory.create(cells))
    parallel = context._jsc.parallelize(java_rows, max(1, len(rows)))
    java_schema = java.org.apache.spark.sql.types.DataType.fromDDL(schema)
    return DataFrame(spark._jsparkSession.createDataFrame(parallel, java_schema), spark)


class Partitions:
    """A DataFrame of one text column, planned once, whose partitions are computed when asked for."""

    def __init__(self, frame: Any) -> None:
        self._spark = frame.sparkSession
        self._rows = frame._jdf.javaRDD()

    def __len__(self) -> int:
        return int(self._rows.getNumPartitions())

    def collect(self, number: int) -> list[str]:
        """Compute a partition by a job of its own, and return its texts."""
        numbers = self._spark.sparkContext._gateway.new_array(self._spark._jvm.int, 1)
        numbers[0] = number
        return [row.getString(0) for row in self._rows.collectPartitions(numbers)[0]]


def running_tasks(spark: Any) -> int:
    """Return how many of Spark's tasks run on its executors, those of cancelled jobs too."""
    executors = spark.sparkContext._jsc.sc().statusTracker().getExecutorInfos()
    return sum(int(executor.numRunningTasks()) for executor in executors)


def silence_shutdown(spark: Any) -> None:
    """Keep PySpark's server thread from telling on stderr that the JVM's connection broke."""
    server = getattr(spark.sparkContext, "_accumulatorServer", None)
    if server is None:
        return
    server.handle_error = lambda *_: None
    # Not waited for: its thread looks once a second.
    threading.Thread(target=server.shutdown, daemon=True).start()
    spark.sparkContext._accumulatorServer = None


def reset_jvm_state() -> None:
    """Let PySpark forget a JVM that is gone, so that this process can start another."""
    from pyspark import SparkContext  # noqa: PLC0415 - only when Spark was wanted
    from pyspark.sql import SparkSession  # noqa: PLC0415

    SparkContext._active_spark_context = None
    SparkContext._gateway = None
    SparkContext._jvm = None
    SparkSession._instantiatedSession = None
    SparkSession._activeSession = None


def forget_server() -> None:
    """Let PySpark forget a Spark Connect server: of one in the environment it takes every session for its own."""
    for name in ("SPARK_CONNECT_MODE_ENABLED", "SPARK_REMOTE", "SPARK_LOCAL_REMOTE"):
        os.environ.pop(name, None)


@contextmanager
def spark_errors(what: str) -> Iterator[None]:
    """Turn PySpark's and Py4J's errors into lake's."""
    from py4j.protocol import Py4JError  # noqa: PLC0415 - only when Spark is wanted
    from pyspark.errors import PySparkException  # noqa: PLC0415

    try:
        yield
    except (Py4JError, PySparkException, OSError, ValueError) as error:
        hint = MEMORY_HINT if _CRASHED in str(error) else None
        raise EngineError(f"{what}: {_brief(error)}", hint=hint) from error


def _brief(error: BaseException) -> str:
    """Return the lines of an error that say what happened, without Java's stack."""
    lines = [line.strip() for line in str(error).splitlines()]
    told = [line for line in lines if line and not line.startswith(("at ", "..."))]
    return " ".join(told)[:_MESSAGE_LIMIT]
