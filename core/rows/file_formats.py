"""The formats of data files by their names, the only place that knows which there are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lake.core.columns.data_file import FileForm, RowFile
from lake.core.columns.file_slice import FileSlice
from lake.core.errors import RefusedError
from lake.core.formats.parquet.reader import ParquetRows
from lake.core.formats.parquet.writer import ParquetFormat

if TYPE_CHECKING:
    from pyiceberg.schema import Schema


def open_rows(source: Any, file: FileSlice) -> RowFile:
    """Open a data file for reading.

    Args:
        source: its bytes, for random access.
        file: tells its format.

    Raises:
        CorruptFileError: it is not what its format promises.
        RefusedError: its format is not known.
    """
    # Few tables have files of more than one format: what they do not need is not loaded.
    if file.format == "PARQUET":
        return ParquetRows(source, file)
    if file.format == "ORC":
        from lake.core.formats.orc.reader import OrcRows  # noqa: PLC0415

        return OrcRows(source, file)
    if file.format == "AVRO":
        from lake.core.formats.avro.reader import AvroRows  # noqa: PLC0415

        return AvroRows(source, file)
    raise RefusedError(f"cannot read {file.format} data files: {file.path}")


def format_for(
    name: str,
    schema: Schema,
    properties: Mapping[str, str],
    metadata: Mapping[str, str] | None = None,
    *,
    repeated: Sequence[str] = (),
) -> FileForm:
    """Return how new files are written.

    Args:
        name: one of `lake.core.properties.table_properties.FORMATS`.
        schema: their columns.
        properties: the table's that begin with ``write.``.
        metadata: texts that each file carries, where its format can.
        repeated: columns that come as dictionaries, since few of their values differ.

    Raises:
        RefusedError: there is no such format.
        InvalidRequestError: a property cannot be heeded.
    """
    metadata = metadata or {}
    if name == "parquet":
        return ParquetFormat(schema, properties, metadata, repeated)
    if name == "orc":
        from lake.core.formats.orc.writer import OrcForm  # noqa: PLC0415

        return OrcForm(schema, properties)
    if name == "avro":
        from lake.core.formats.avro.writer import AvroForm  # noqa: PLC0415

        return AvroForm(schema, properties, metadata)
    raise RefusedError(f"lake does not write {name} files")
