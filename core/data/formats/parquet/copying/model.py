"""What a Parquet file must have in common with the files that lake writes for its row groups to be copied."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow.parquet as pq

from lake.core.data.columns.trusted_statistics import Version, Writer
from lake.core.data.formats.parquet.copying.thrift import (
    BINARY,
    I32,
    Struct,
    read_struct,
    structs_of,
    value_of,
)

if TYPE_CHECKING:
    from lake.core.data.formats.parquet.writer import ParquetFormat

# Fields of FileMetaData.
VERSION, SCHEMA, ROWS, GROUPS, KEY_VALUES, CREATED_BY, COLUMN_ORDERS = range(1, 8)
# Fields of SchemaElement.
_TYPE, _REPETITION, _NAME, _CHILDREN, _CONVERTED, _LOGICAL = 1, 3, 4, 5, 6, 10
_REPEATED = 2
_CODECS = {"none": 0, "snappy": 1, "gzip": 2, "brotli": 4, "zstd": 6, "lz4": 7}
# What copied files may contain besides rows: the writer's own schema, which does not matter for a table's rows.
_IGNORED_KEYS = frozenset({b"ARROW:schema", b"iceberg.schema", b"pandas"})
# The writers, and the first versions, for which no reader has a work-around: their row groups may be in one file.
# It is attributed to PyArrow if a row group is PyArrow's, whose counts of NULLs in lists are not trusted.
_ARROW, _JAVA = "parquet-cpp-arrow", "parquet-mr"
_WRITERS: dict[str, Version] = {_ARROW: (10, 0, 0), _JAVA: (1, 10, 0)}
_MAGIC, _END_BYTES = b"PAR1", 8


class UncopiedError(ValueError):
    """Row groups cannot be copied, but decoded; the text is the reason in the words of the JSON output."""


# The reasons: see `commands/README.md`.
BLOOM_FILTERS, CODEC, FOOTER, KEYS, ORDERS, PAGES, SCHEMA_DIFFERS, SIZE, WRITER = (
    *("bloom-filters", "codec", "footer", "key-values", "column-orders", "pages"),
    *("schema", "size", "writer"),
)


class Leaf(NamedTuple):
    """A column of a Parquet schema: its path, its physical type, and whether a row may have several values."""

    path: tuple[bytes, ...]
    kind: int
    repeated: bool


@dataclass(frozen=True, slots=True)
class Model:
    """The file that lake would write.

    Args:
        footer: the footer of one without rows.
        leaves: its columns.
        codec: the number of the codec of all columns.
        bloom_filters: the paths of the columns with a Bloom filter.
        schema: the schema as PyArrow reads it.
    """

    footer: Struct
    leaves: Sequence[Leaf]
    codec: int
    bloom_filters: frozenset[bytes]
    schema: Any

    @classmethod
    def of(cls, file_format: ParquetFormat) -> Model:
        """Return the model of a format."""
        sink = io.BytesIO()
        pq.ParquetWriter(sink, file_format.arrow, **file_format.options).close()
        data = sink.getvalue()
        size = int.from_bytes(data[-_END_BYTES : -len(_MAGIC)], "little")
        footer, _ = read_struct(data[-_END_BYTES - size : -_END_BYTES])
        return cls(
            footer=footer,
            leaves=list(_leaves(structs_of(footer, SCHEMA))),
            codec=_CODECS[file_format.options["compression"]],
            bloom_filters=frozenset(
                path.encode() for path in file_format.options["bloom_filter_options"] or ()
            ),
            schema=pq.read_metadata(io.BytesIO(data)).schema,
        )

    def check(self, footer: Struct) -> None:
        """Check that a file has the same columns, and that readers take its row groups for those of this file.

        Raises:
            UncopiedError: it has other columns, or its writer's name or notes change how its rows are read.
            ThriftError: the footer is not one.
        """
        if set(footer) - set(range(VERSION, COLUMN_ORDERS + 1)):
            # Encryption, or what a later version of the format added.
            raise UncopiedError(FOOTER)
        if _schema_of(footer) != _schema_of(self.footer):  # check: columns-of-copies
            raise UncopiedError(SCHEMA_DIFFERS)
        if footer.get(COLUMN_ORDERS) != self.footer.get(COLUMN_ORDERS):
            raise UncopiedError(ORDERS)
        pairs = structs_of(footer, KEY_VALUES)
        if not {value_of(pair, 1, BINARY) for pair in pairs} <= _IGNORED_KEYS:
            raise UncopiedError(KEYS)
        try:
            writer = Writer.of(created_by(footer).decode())
        except UnicodeDecodeError as error:
            raise UncopiedError(WRITER) from error
        known = _WRITERS.get(writer.name)
        if known is None or (writer.version or (0, 0, 0)) < known:  # check: writers-of-copies
            raise UncopiedError(WRITER)


def created_by(footer: Struct) -> bytes:
    """Return the name of a file's writer; empty if the footer does not have it."""
    return value_of(footer, CREATED_BY, BINARY) or b""


def common_writer(names: Sequence[bytes]) -> bytes:
    """Return the name that describes the row groups of several writers in one file."""
    return next((name for name in names if name.startswith(_ARROW.encode())), names[0])


def _schema_of(footer: Struct) -> list[dict[int, object]]:
    """Return the elements of a schema, without what says the same in other words."""
    elements = [dict[int, object](item) for item in structs_of(footer, SCHEMA)]
    for element in elements:
        if _LOGICAL in element:
            element.pop(_CONVERTED, None)
    if elements:
        # The names of the root differ, and it is neither required nor optional.
        elements[0] = {_CHILDREN: elements[0].get(_CHILDREN)}
    return elements


def _leaves(elements: Sequence[Struct]) -> Iterator[Leaf]:
    # The path of each group that has children left, how many, and whether it is repeated.
    above: list[tuple[tuple[bytes, ...], int, bool]] = []
    for element in elements:
        path, repeated = (), False
        if above:
            parent, left, repeated = above.pop()
            if left > 1:
                above.append((parent, left - 1, repeated))
            path = (*parent, value_of(element, _NAME, BINARY))
            repeated = repeated or value_of(element, _REPETITION, I32) == _REPEATED
        children = value_of(element, _CHILDREN, I32)
        if children:
            above.append((path, children, repeated))
        else:
            yield Leaf(path, value_of(element, _TYPE, I32), repeated)
