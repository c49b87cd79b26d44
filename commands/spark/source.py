"""The data source: what Spark creates for each DataFrame."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyiceberg.schema import Schema
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from lake.commands.spark.opened import OF_STREAMS, lowered, opened, reads_changes, reported
from lake.commands.spark.reader import LakeReader, Pin
from lake.commands.spark.stream_reader import LakeStreamReader
from lake.commands.spark.types import spark_schema
from lake.core.base.errors import BadInputError, InvalidRequestError
from lake.core.read.changelog.plan import CHANGE_COLUMNS
from lake.core.read.scan.plan import bound, scan_schema

if TYPE_CHECKING:
    # Each of Spark's processes imports only what it does.
    from lake.commands.spark.stream_writer import LakeStreamWriter
    from lake.commands.spark.writer import LakeWriter


class LakeSource(DataSource):  # type: ignore[misc]
    """The format ``lake``. Spark keeps the object that was asked for the schema, and with it what was pinned."""

    _schema_id: int | None = None
    _pin: Pin | None = None

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "lake"

    def schema(self) -> StructType:
        """Return the columns of the DataFrame, and pin them and what a batch read reads."""
        with opened(self.options) as (table, options):
            schema = scan_schema(table, options)
            self._schema_id = schema.schema_id
            try:
                self._pin = Pin.of(table, options)
            except BadInputError:
                # The start of a stream is needed by its first batch only. A batch read fails when it is planned.
                if not options.incremental:
                    raise
            columns = bound(schema, options)[1].fields
            changes = CHANGE_COLUMNS if reads_changes(self.options) else ()
            return spark_schema(Schema(*columns, *changes))

    def reader(self, schema: StructType) -> LakeReader:
        """Return what reads the rows."""
        with reported(str):
            for name in lowered(self.options).keys() & set(OF_STREAMS):
                raise InvalidRequestError(f"{name} is an option of spark.readStream only")
        return LakeReader(dict(self.options), schema, self._pin)

    def streamReader(self, schema: StructType) -> LakeStreamReader:
        """Return what finds and reads the batches of a stream."""
        return LakeStreamReader(dict(self.options), schema, self._schema_id)

    def writer(self, schema: StructType, overwrite: bool) -> LakeWriter:  # noqa: FBT001 - as Spark calls it
        """Return what writes the rows of a DataFrame."""
        from lake.commands.spark.writer import LakeWriter

        return LakeWriter(dict(self.options), schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> LakeStreamWriter:  # noqa: FBT001
        """Return what writes the epochs of a query."""
        from lake.commands.spark.stream_writer import LakeStreamWriter

        return LakeStreamWriter(dict(self.options), schema, overwrite=overwrite)
