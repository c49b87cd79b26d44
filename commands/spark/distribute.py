"""Rows where the writers of a table want them: what `lake ingest` does when it sends rows to its writers.

Spark asks a data source of Python neither for a distribution nor for an order of rows. Writers sort by themselves.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyspark.sql import types as spark

from lake.commands.api.calls import Calls, settings_from
from lake.commands.spark.redacted import reported
from lake.commands.spark.types import frame_columns, table_batch
from lake.core.data.sorting.sort_keys import RowOrder
from lake.core.data.sources.batches import as_table_rows
from lake.core.load.ingest.options import IngestOptions
from lake.core.load.ingest.plan import distribution_of, order_of
from lake.core.spec.properties.table_properties import NONE, RANGE
from lake.core.spec.types.arrow_schema import top_columns
from lake.core.spec.types.transforms import group_indices, partition_number

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_PLACE = "lake place"
_PLACES = 2**31 - 1


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
    place = _Place(found.schema, found.spec, order if by_range else None)
    column = spark.StructField(_PLACE, spark.BinaryType() if by_range else spark.IntegerType())
    placed = frame.mapInArrow(place, spark.StructType([*frame.schema.fields, column]))
    name = f"`{_PLACE}`"
    rows = placed.repartitionByRange(name) if by_range else placed.repartition(name)
    return rows.drop(_PLACE)


@dataclass(frozen=True, slots=True)
class _Place:
    """Appends the place of each row: its partition as a number, or its key in the order."""

    schema: Schema
    spec: PartitionSpec
    order: RowOrder | None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield rows with their places."""
        order = self.order
        ids = order.column_ids if order else [item.source_id for item in self.spec.fields]
        schema = top_columns(self.schema, ids)
        for batch in batches:
            names = [name for name in schema.column_names if name in batch.schema.names]
            known = table_batch(batch.select(names), self.schema)
            rows = as_table_rows(known, schema, "the DataFrame", range(batch.num_rows))
            places = order.keys(rows, schema) if order else self._partitions(rows, schema)
            yield batch.append_column(_PLACE, places)

    def _partitions(self, rows: pa.RecordBatch, schema: Schema) -> pa.Array:
        numbers = np.zeros(rows.num_rows, np.int32)
        for partition, indices in group_indices(rows, self.spec, schema):
            numbers[indices] = partition_number(partition, _PLACES)
        return pa.array(numbers)
