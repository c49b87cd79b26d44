"""Keys for partitions, judged by Spark's own hash."""

from __future__ import annotations

import pytest

from lake.core.engine.spark.engine import SparkEngine
from lake.core.engine.spark.plans import keys_of_partitions, murmur3


def test_the_hash_is_sparks(spark: SparkEngine) -> None:
    from pyspark.sql import SparkSession, functions

    numbers = [0, 1, -1, 2, 42, 2**31 - 1, -(2**31), *range(1000, 1100)]
    spark.start_in_background()
    assert spark._launch
    session = SparkSession(spark._launch.running().spark)
    frame = session.range(len(numbers)).select(
        functions.explode(functions.array(*map(functions.lit, numbers))).alias("n")
    )

    rows = frame.distinct().select("n", functions.hash("n").alias("hash")).collect()

    assert {row["n"]: row["hash"] for row in rows} == {
        number: murmur3(number) for number in numbers
    }


@pytest.mark.parametrize("partitions", [0, 1, 2, 3, 32, 257])
def test_every_partition_has_a_key_of_its_own(partitions: int) -> None:
    keys = keys_of_partitions(partitions)

    assert [murmur3(key) % partitions for key in keys] == list(range(partitions))
