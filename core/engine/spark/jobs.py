"""Spark jobs over rows of tasks, divided into pieces whose results are collected one by one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

from lake.core.engine.spark.plans import Plan, TaskRow
from lake.core.engine.spark.pyspark_internals import (
    Partitions,
    frame_of,
    pyspark_modules,
    running_tasks,
    spark_errors,
)
from lake.core.engine.spark.worker import TASK_ROWS, run_rows

# Runs a part of a job and returns its results as texts.
Piece = Callable[[], list[str]]


class Jobs(Protocol):
    """The interface of jobs on a driver of this process and on a Spark Connect server."""

    def pieces(self, rows: Sequence[TaskRow], plan: Plan) -> list[Piece]:
        """Return the parts of the job for the rows of a plan."""

    def tag(self, tag: str) -> None:
        """Name the jobs that this thread starts from now on."""

    def cancel(self, tag: str) -> None:
        """Cancel the jobs of a name."""

    def running(self) -> int:
        """Return the number of running tasks, if known; cancelled tasks continue for a while."""


class DriverJobs:
    """Jobs of a driver of this process.

    The plan is created once; each piece is a job over one partition of its result. So a job's overhead is a few
    hundredths of a second, and a shuffle in the plan is computed once for all pieces. Only a shuffle needs Spark SQL,
    whose start takes two seconds of processor time.
    """

    def __init__(self, context: Any) -> None:
        self._context = context

    def pieces(self, rows: Sequence[TaskRow], plan: Plan) -> list[Piece]:
        """Return a piece for each partition of the result."""
        if not rows:
            return []
        with spark_errors("Spark does not take the tasks"):
            if not plan.shuffled:
                results = self._context.parallelize(rows, len(rows)).mapPartitions(run_rows)
                return [partial(self._run, results, number) for number in range(len(rows))]
            spark = pyspark_modules().sql.SparkSession(self._context)
            result = Partitions(plan.build(frame_of(spark, rows, TASK_ROWS)))
            return [partial(self._collect, result, number) for number in range(len(result))]

    def tag(self, tag: str) -> None:
        """Name the jobs that this thread starts from now on.

        Interruption of cancelled tasks stays off: an interrupted task leaves its Python worker running, while
        otherwise Spark kills the worker.
        """
        with spark_errors("Spark does not answer"):
            self._context.addJobTag(tag)
            self._context.setInterruptOnCancel(False)

    def cancel(self, tag: str) -> None:
        """Cancel the jobs of a name."""
        with spark_errors("Spark does not answer"):
            self._context.cancelJobsWithTag(tag)

    def running(self) -> int:
        """Return the number of tasks that run on the executors."""
        with spark_errors("Spark does not answer"):
            return running_tasks(self._context)

    def _run(self, results: Any, number: int) -> list[str]:
        with spark_errors("Spark lost a task"):
            texts: list[str] = self._context.runJob(results, list, [number])
            return texts

    @staticmethod
    def _collect(result: Partitions, number: int) -> list[str]:
        with spark_errors("Spark lost a task"):
            return result.collect(number)


class ConnectJobs:
    """Jobs of a Spark Connect server, which only runs plans: each piece is a separate query."""

    def __init__(self, spark: Any) -> None:
        self._spark = spark

    def pieces(self, rows: Sequence[TaskRow], plan: Plan) -> list[Piece]:
        """Return a piece for each row, or one piece for all rows of a shuffle."""
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
        """Return 0, because the server does not report it."""
        return 0

    def _collect(self, plan: Plan, rows: Sequence[TaskRow]) -> list[str]:
        with spark_errors("Spark lost a task"):
            frame = self._spark.createDataFrame(list(rows), TASK_ROWS)
            return [row[0] for row in plan.build(frame).collect()]
