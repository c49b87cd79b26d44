"""Whether a partition statistics file can be read: its size, its format and its columns.

Source: https://iceberg.apache.org/spec/#partition-statistics-file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lake.core.base.errors import CorruptFileError
from lake.core.data.columns.int96 import schema_of_file
from lake.core.data.columns.reading_errors import reading_error
from lake.core.data.formats.avro.reader import AvroContainer
from lake.core.data.formats.orc.reader import OrcStripes
from lake.core.data.formats.parquet.footer import open_parquet
from lake.core.spec.types.arrow_schema import field_id

if TYPE_CHECKING:
    from pyiceberg.table.statistics import PartitionStatisticsFile

    from lake.core.io.storage.storage import Storage

_FORMATS = ("PARQUET", "AVRO", "ORC")
# The columns that every file has.
_REQUIRED = {
    1: "partition",
    2: "spec_id",
    3: "data_record_count",
    4: "data_file_count",
    5: "total_data_file_size_in_bytes",
}


def check_statistics_columns(storage: Storage, file: PartitionStatisticsFile) -> None:
    """Check that a partition statistics file has the columns that all of them have; no row is read.

    The ending of its name says which format it has, as in Iceberg Java. Files with other endings are not read.

    Raises:
        CorruptFileError: it cannot be read, or lacks a column.
        NotFoundError: it does not exist.
        RefusedError: it uses a feature that lake does not support.
    """
    path = file.statistics_path
    kind = path.rpartition(".")[2].upper()
    if kind not in _FORMATS:
        return
    with storage.open_input(path) as source:
        try:
            found = {field_id(item) for item in _columns(source, path, kind)}
        except (pa.ArrowException, OSError, UnicodeDecodeError, OverflowError) as error:
            raise reading_error(error, path) from error
    for number, name in _REQUIRED.items():
        if number not in found:
            raise CorruptFileError(f"{path} has no column {name} with the id {number}")


def _columns(source: Any, path: str, kind: str) -> pa.Schema:
    if kind == "PARQUET":
        return schema_of_file(open_parquet(source, path)[0])
    if kind == "ORC":
        return OrcStripes(source, path).schema
    return AvroContainer(source, path).schema
