"""Rows where the writers of a table want them: what `lake ingest` does when it sends rows to its writers.

Spark asks a data source of Python neither for a distribution nor for an order of rows. Writers sort by themselves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import types as spark

from lake.commands.api.calls import Calls, settings_from
from lake.commands.spark.mapped import PLACE, Place
from lake.commands.spark.redacted import reported
from lake.commands.spark.types import frame_columns
from lake.core.load.ingest.options import IngestOptions
from lake.core.load.ingest.plan import distribution_of, order_of
from lake.core.spec.properties.table_properties import NONE, RANGE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def distributed(
    frame: DataFrame,
    table: str,
    *,
    catalog: str | None = None,
    warehouse: str | None = None,
    catalog_type: str | None = None,
    distribution: str | None = None,
) -> DataFrame:
    """Return a frame whose tasks have the rows that one writer of a table is to have.

    Args:
        frame: the rows.
        table: ``namespace.table``.
        catalog: as for `lake.connect`.
        warehouse: see `catalog`.
        catalog_type: see `catalog`.
        distribution: ``none``; ``hash``, so that a partition has one writer; ``range``, so that a range of the sort
            order has; None for the table's property.

    Raises:
        InvalidRequestError: an argument is not valid, or the table has no order for ranges.
        NotFoundError: the table does not exist.
    """
    settings = {"catalog": catalog, "warehouse": warehouse, "catalog-type": catalog_type}
    with reported(str):
        calls = Calls(settings_from(settings))
    with reported(calls.redact):
        found = calls.session.table(table)
        options = IngestOptions(sources=[table], distribution=distribution)
        chosen = distribution_of(calls.session, found, options)
        if chosen == NONE:
            return frame
        by_range = chosen == RANGE
        order, _ = order_of(calls.session, found, found.schema, chosen)
        frame_columns(frame.schema, found.schema)
    place = Place(found.schema, found.spec, order if by_range else None)
    column = spark.StructField(PLACE, spark.BinaryType() if by_range else spark.IntegerType())
    placed = frame.mapInArrow(place, spark.StructType([*frame.schema.fields, column]))
    name = f"`{PLACE}`"
    rows = placed.repartitionByRange(name) if by_range else placed.repartition(name)
    return rows.drop(PLACE)
