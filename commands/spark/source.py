"""The data source: what Spark creates for each DataFrame."""

from __future__ import annotations

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from lake.commands.spark.opened import opened
from lake.commands.spark.reader import LakeReader, Pin
from lake.commands.spark.types import spark_schema
from lake.core.read.scan.plan import bound


class LakeSource(DataSource):  # type: ignore[misc]
    """The format ``lake``. Spark keeps the object that was asked for the schema, and with it the pinned snapshot."""

    _pin: Pin | None = None

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "lake"

    def schema(self) -> StructType:
        """Return the columns of the DataFrame, and pin what it reads."""
        with opened(self.options) as (table, options):
            self._pin = Pin.of(table, options)
            return spark_schema(bound(self._pin.schema_of(table), options)[1])

    def reader(self, schema: StructType) -> LakeReader:
        """Return what reads the rows."""
        return LakeReader(dict(self.options), schema, self._pin)
