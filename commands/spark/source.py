"""The data source: what Spark creates for each DataFrame."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from lake.commands.spark.pin import Pin

if TYPE_CHECKING:
    from lake.commands.spark.reader import LakeReader
    from lake.commands.spark.stream_reader import LakeStreamReader
    from lake.commands.spark.stream_writer import LakeStreamWriter
    from lake.commands.spark.writer import LakeWriter


class LakeSource(DataSource):  # type: ignore[misc]
    """The format ``lake``. Spark keeps the object that was asked for the schema, and with it what was pinned.

    Every process gets this class or an object of it, and imports only what it does.
    """

    _schema_id: int | None = None
    _pin: Pin | None = None

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "lake"

    def schema(self) -> StructType:
        """Return the columns of the DataFrame, and pin them and what a batch read reads."""
        from lake.commands.spark.reader import columns_of

        columns, self._schema_id, self._pin = columns_of(self.options)
        return columns

    def reader(self, schema: StructType) -> LakeReader:
        """Return what reads the rows."""
        from lake.commands.spark.reader import LakeReader

        return LakeReader(dict(self.options), schema, self._pin)

    def streamReader(self, schema: StructType) -> LakeStreamReader:
        """Return what finds and reads the batches of a stream."""
        from lake.commands.spark.stream_reader import LakeStreamReader

        return LakeStreamReader(dict(self.options), schema, self._schema_id)

    def writer(self, schema: StructType, overwrite: bool) -> LakeWriter:  # noqa: FBT001 - as Spark calls it
        """Return what writes the rows of a DataFrame."""
        from lake.commands.spark.writer import LakeWriter

        return LakeWriter(dict(self.options), schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> LakeStreamWriter:  # noqa: FBT001
        """Return what writes the epochs of a query."""
        from lake.commands.spark.stream_writer import LakeStreamWriter

        return LakeStreamWriter(dict(self.options), schema, overwrite=overwrite)
