"""Write an Avro file block by block, and return its manifest entry.

Avro files have no statistics; as in Iceberg Java, their entries contain only the row count.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lake.core.base.errors import BadInputError
from lake.core.data.columns.data_file import NewFile
from lake.core.data.formats.avro.schemas import avro_schema, defined_once
from lake.core.io.avro.codecs import codec_of
from lake.core.io.avro.container import BlockWriter
from lake.core.io.avro.encode import encode_records
from lake.core.io.storage.storage import Storage
from lake.core.spec.properties.table_properties import AVRO_CODEC, AVRO_LEVEL
from lake.core.spec.types.arrow_schema import arrow_schema, schema_to_plain
from lake.core.spec.types.type_text import in_iceberg_words
from lake.core.table.manifests.data_files import DataFile

if TYPE_CHECKING:
    from pyiceberg.schema import Schema

_PIECE_BYTES = 16 * 1024 * 1024
# Splits end at blocks; Avro's default size.
_BLOCK_BYTES = 64_000


@dataclass(slots=True)
class AvroFormat:
    """The settings of Avro files with one schema; see `lake.core.data.columns.data_file.FileFormat`.

    Args:
        schema: the columns of the files.
        properties: the table's properties that begin with ``write.``.
        metadata: fields to write to every file's header.
    """

    schema: Schema
    properties: Mapping[str, str]
    metadata: Mapping[str, str] = field(default_factory=dict)
    arrow: pa.Schema = field(init=False)
    avro: dict[str, Any] = field(init=False)
    codec: str = field(init=False)
    level: int | None = field(init=False)
    ending = ".avro"
    piece_bytes = _PIECE_BYTES

    def __post_init__(self) -> None:
        self.arrow = arrow_schema(self.schema)
        self.avro = avro_schema(self.schema, "table")
        self.codec, self.level = codec_of(self.properties, AVRO_CODEC, AVRO_LEVEL)

    def create(self, storage: Storage, path: str) -> AvroFile:
        """Create a file."""
        return AvroFile(storage, self, path)


class AvroFile(NewFile):
    """An Avro file that is being written."""

    def __init__(self, storage: Storage, file_format: AvroFormat, path: str) -> None:
        super().__init__(storage, path)
        self._form = file_format
        self._rows = 0
        header = {**file_format.metadata, "iceberg.schema": _json(file_format.schema)}
        self._blocks = BlockWriter(
            self._sink,
            defined_once(file_format.avro),
            metadata=header,
            codec=file_format.codec,
            level=file_format.level,
            seed=path,
        )

    def write(self, table: pa.Table) -> None:
        """Write blocks."""
        try:
            if table.schema != self._form.arrow:
                table = table.cast(self._form.arrow)
            for block in encode_records(self._form.avro, table, _BLOCK_BYTES):
                self._blocks.write(block)
        except ValueError as error:
            raise BadInputError(
                f"rows do not match the table's schema: {in_iceberg_words(error)}"
            ) from error
        self._rows += table.num_rows

    def close(self, **described: Any) -> DataFile:
        """Finish the file, make it durable and return its entry with the given additional fields."""
        size = self._persist()
        return DataFile(
            path=self._path, format="AVRO", record_count=self._rows, size_bytes=size, **described
        )


def _json(schema: Schema) -> str:
    return json.dumps(schema_to_plain(schema), separators=(",", ":"))
