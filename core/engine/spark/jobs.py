"""Spark jobs over rows of tasks, in pieces whose results can be had one by one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

from lake.core.engine.spark.plans import Plan, TaskRow
from lake.core.engine.spark.pyspark_internals import (
    Partitions,
    frame_of,
    running_tasks,
    spark_errors,
)
from lake.core.engine.spark.worker import TASK_ROWS

# Runs a part of a job and returns its texts of results.
Piece = Callable[[], list[str]]


class Jobs(Protocol):
    """What differs between a driver in a JVM of ours and a Spark Connect server."""

    def pieces(self, rows: Sequence[TaskRow], plan: Plan) -> list[Piece]:
        """Return the parts of the job that a plan makes of its rows."""

    def tag(self, tag: str) -> None:
        """Name the jobs that this thread starts from now on."""

    def cancel(self, tag: str) -> None:
        """Cancel the jobs of a name."""

    def running(self) -> int:
        """Return how many tasks run, as far as can be known: cancelled ones run on for a while."""


class DriverJobs:
    """Jobs of a driver that this process holds.

    The plan is made once; each piece is a job over one partition of its result. So a job's fixed cost is
    a few hundredths of a second, and a shuffle, being part of the plan, is computed once for all.
    """

    def __init__(self, spark: Any) -> None:
        self._spark = spark

    def pieces(self, rows: Sequence[TaskRow], plan: Plan) -> list[Piece]:
        """Return a piece for each partition of the result."""
        if not rows:
            return []
        with spark_errors("Spark does not take the tasks"):
            result = Partitions(plan.build(frame_of(self._spark, rows, TASK_ROWS)))
            return [partial(self._collect, result, number) for number in range(len(result))]

    def tag(self, tag: str) -> None:
        """Name the jobs that this thread starts from now on.

        Spark does not interrupt the thread of a cancelled task: it would leave a Python worker to itself,
        which then works on. Not interrupted, Spark kills the worker.
        """
        with spark_errors("Spark does not answer"):
            self._spark.sparkContext.addJobTag(tag)
            self._spark.sparkContext.setInterruptOnCancel(False)

    def cancel(self, tag: str) -> None:
        """Cancel the jobs of a name."""
        with spark_errors("Spark does not answer"):
            self._spark.sparkContext.cancelJobsWithTag(tag)

    def running(self) -> int:
        """Return how many tasks run on the executors."""
        with spark_errors("Spark does not answer"):
            return running_tasks(self._spark)

    @staticmethod
    def _collect(result: Partitions, number: int) -> list[str]:
        with spark_errors("Spark lost a task"):
            return result.collect(number)


class ConnectJobs:
    """Jobs of a Spark Connect server, where plans are all there is: a piece is a query of its own."""

    def __init__(self, spark: Any) -> None:
        self._spark = spark

    def pieces(self, rows: Sequence[TaskRow], plan: Plan) -> list[Piece]:
        """Return a piece for each row, or one for all that meet in a shuffle."""
        parts = [rows] if plan.shuffled and rows else [[row] for row in rows]
        return [partial(self._collect, plan, part) for part in parts]

    def tag(self, tag: str) -> None:
        """Name the queries that this thread starts from now on."""
        with spark_errors("Spark does not answer"):
            self._spark.addTag(tag)

    def cancel(self, tag: str) -> None:
        """Cancel the queries of a name."""
        with spark_errors("Spark does not answer"):
            self._spark.interruptTag(tag)

    def running(self) -> int:
        """Return 0: the server does not tell."""
        return 0

    def _collect(self, plan: Plan, rows: Sequence[TaskRow]) -> list[str]:
        with spark_errors("Spark lost a task"):
            frame = self._spark.createDataFrame(list(rows), TASK_ROWS)
            return [row[0] for row in plan.build(frame).collect()]
