"""Access to PySpark's internals and its Java objects: the only module that uses private names of PySpark.

These names are equal in PySpark 4.0 to 4.3. All other calls use Spark's public Java interface.
"""
# ruff: noqa: SLF001

from __future__ import annotations

import os
import struct
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from lake.core.base.errors import EngineError
from lake.core.base.options import Option

_MESSAGE_LIMIT = 400
# Spark's message about a Python process that ended without an error.
_CRASHED = "Python worker exited unexpectedly"
# The attribute of a context that lake made.
_OWN = "_made_by_lake"
MEMORY_HINT = f"the system may have killed it for lack of memory: {Option.MASTER} 'local[1]' needs the least memory"


def pyspark_modules() -> Any:
    """Return the package `pyspark`, with the modules that lake uses; the first call imports them."""
    # A door: PySpark costs 0.1 s, which a direct start spends while the JVM starts.
    import pyspark.errors  # noqa: PLC0415
    import pyspark.java_gateway  # noqa: PLC0415
    import pyspark.sql  # noqa: PLC0415

    return pyspark


def frame_of(spark: Any, rows: Sequence[Sequence[Any]], schema: str) -> Any:
    """Create a DataFrame with one partition for each row; cells are texts and bytes.

    PySpark's public functions choose the number of partitions themselves, or add a Python step.
    """
    java, context = spark._jvm, spark.sparkContext
    java_rows = java.java.util.ArrayList()
    for row in rows:
        cells = context._gateway.new_array(java.java.lang.Object, len(row))
        for index, cell in enumerate(row):
            cells[index] = bytearray(cell) if isinstance(cell, bytes) else cell
        java_rows.add(java.org.apache.spark.sql.RowFactory.create(cells))
    parallel = context._jsc.parallelize(java_rows, max(1, len(rows)))
    java_schema = java.org.apache.spark.sql.types.DataType.fromDDL(schema)
    made = pyspark_modules().sql.DataFrame
    return made(spark._jsparkSession.createDataFrame(parallel, java_schema), spark)


class Partitions:
    """A DataFrame of one text column that is planned once, and whose partitions are computed on demand."""

    def __init__(self, frame: Any) -> None:
        self._spark = frame.sparkSession
        self._rows = frame._jdf.javaRDD()

    def __len__(self) -> int:
        return int(self._rows.getNumPartitions())

    def collect(self, number: int) -> list[str]:
        """Compute a partition in a separate job, and return its texts."""
        numbers = self._spark.sparkContext._gateway.new_array(self._spark._jvm.int, 1)
        numbers[0] = number
        return [row.getString(0) for row in self._rows.collectPartitions(numbers)[0]]


def running_tasks(context: Any) -> int:
    """Return the number of tasks that run on Spark's executors, including those of cancelled jobs."""
    executors = context._jsc.sc().statusTracker().getExecutorInfos()
    return sum(int(executor.numRunningTasks()) for executor in executors)


def has_context() -> bool:
    """Whether a Spark that lake did not start runs in this process; PySpark is not imported for the answer."""
    pyspark = sys.modules.get("pyspark")
    kind = getattr(pyspark, "SparkContext", None)
    context = None if kind is None else kind._active_spark_context
    return context is not None and not hasattr(context, _OWN)


def mark_own(context: Any) -> None:
    """Note that lake started a Spark, which may still be ending when the next one starts."""
    vars(context)[_OWN] = True


def silence_shutdown(context: Any) -> None:
    """Keep PySpark's server thread from reporting the JVM's closed connection on stderr."""
    server = getattr(context, "_accumulatorServer", None)
    if server is None:
        return
    server.handle_error = lambda *_: None
    # Do not wait for its thread, which checks once a second.
    threading.Thread(target=server.shutdown, daemon=True).start()
    context._accumulatorServer = None


def reset_jvm_state() -> None:
    """Reset PySpark's state of an ended JVM, so that this process can start another."""
    context, session = pyspark_modules().SparkContext, pyspark_modules().sql.SparkSession
    context._active_spark_context = None
    context._gateway = None
    context._jvm = None
    session._instantiatedSession = None
    session._activeSession = None


def forget_server() -> None:
    """Remove the Spark Connect server from PySpark's environment, because otherwise it uses it for every session."""
    for name in ("SPARK_CONNECT_MODE_ENABLED", "SPARK_REMOTE", "SPARK_LOCAL_REMOTE"):
        os.environ.pop(name, None)


@contextmanager
def spark_errors(what: str) -> Iterator[None]:
    """Convert errors of PySpark and Py4J to lake's."""
    from py4j.protocol import Py4JError  # noqa: PLC0415 - door: as PySpark

    refusal = pyspark_modules().errors.PySparkException
    try:
        yield
    except (Py4JError, refusal, OSError, ValueError) as error:
        hint = MEMORY_HINT if _CRASHED in str(error) else None
        raise EngineError(f"{what}: {_brief(error)}", hint=hint) from error
    except (EOFError, struct.error) as error:
        # PySpark reads results by connections of its own, which end with the JVM.
        raise EngineError(f"{what}: Java ended while it sent results") from error


def _brief(error: BaseException) -> str:
    """Return the message lines of an error, without Java's stack."""
    lines = [line.strip() for line in str(error).splitlines()]
    message = [line for line in lines if line and not line.startswith(("at ", "..."))]
    return " ".join(message)[:_MESSAGE_LIMIT]
