"""Spark's data source for Iceberg tables, without a JAR: what Spark asks of Python, translated for the core.

    import lake.spark

    lake.spark.register(spark)
    frame = spark.read.format("lake").option("warehouse", "warehouse").load("db.events")

Only this package and the engine import PySpark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lake.commands.spark.source import LakeSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["LakeSource", "register"]


def register(spark: SparkSession) -> None:
    """Let a session know the format ``lake``. Spark finds it by itself where its Python has lake."""
    spark.dataSource.register(LakeSource)
