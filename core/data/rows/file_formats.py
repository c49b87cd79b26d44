"""The registry of data file formats by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lake.core.base.errors import RefusedError
from lake.core.data.columns.data_file import FileFormat, RowFile
from lake.core.data.columns.file_slice import FileSlice
from lake.core.data.formats.avro.reader import AvroRows
from lake.core.data.formats.avro.writer import AvroFormat
from lake.core.data.formats.orc.reader import OrcRows
from lake.core.data.formats.orc.writer import OrcFormat
from lake.core.data.formats.parquet.copying.target import CopyFormat
from lake.core.data.formats.parquet.reader import ParquetRows
from lake.core.data.formats.parquet.writer import ParquetFormat

if TYPE_CHECKING:
    from pyiceberg.schema import Schema


def open_rows(source: Any, file: FileSlice) -> RowFile:
    """Open a data file for reading.

    Raises:
        CorruptFileError: the file is not valid.
        RefusedError: the format is not supported.
    """
    if file.format == "PARQUET":
        return ParquetRows(source, file)
    if file.format == "ORC":
        return OrcRows(source, file)
    if file.format == "AVRO":
        return AvroRows(source, file)
    raise RefusedError(f"cannot read data files in format {file.format}: {file.path}")


def format_for(
    name: str,
    schema: Schema,
    properties: Mapping[str, str],
    metadata: Mapping[str, str] | None = None,
    *,
    copies: bool = False,
) -> FileFormat:
    """Return the format of new files.

    Args:
        name: one of `lake.core.spec.properties.table_properties.FORMATS`.
        schema: the columns of the files.
        properties: the table's properties that begin with ``write.``.
        metadata: fields to write to each file, if the format supports that.
        copies: whether row groups of Parquet files are copied to the files.

    Raises:
        RefusedError: the format is not supported.
        InvalidRequestError: the value of a property is not valid.
    """
    metadata = metadata or {}
    if name == "parquet" and copies:
        return CopyFormat(schema, properties, metadata)
    if name == "parquet":
        return ParquetFormat(schema, properties, metadata)
    if name == "orc":
        return OrcFormat(schema, properties)
    if name == "avro":
        return AvroFormat(schema, properties, metadata)
    raise RefusedError(f"lake cannot write files in format {name}")
