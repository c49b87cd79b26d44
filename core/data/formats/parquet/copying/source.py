"""Read row groups as they are stored, with their page index and Bloom filters, and check them.

The footer is not believed: chunks must be side by side before it, and the headers of their pages must have the number
of values and the sizes that it says. Pages must have the checksums of their headers, if these have one.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import pyarrow as pa

from lake.core.data.formats.parquet.chunk_checks import ChunkChecks
from lake.core.data.formats.parquet.copying.model import (
    BLOOM_FILTERS,
    CODEC,
    FOOTER,
    GROUPS,
    PAGES,
    Leaf,
    Model,
    UncopiedError,
    created_by,
)
from lake.core.data.formats.parquet.copying.thrift import (
    I32,
    I64,
    LIST,
    STRUCT,
    Field,
    Struct,
    ThriftError,
    number_of,
    read_struct,
    structs_of,
    value_of,
)
from lake.core.io.objects.large_file import LargeFile

# Fields of RowGroup.
CHUNKS, GROUP_ROWS, GROUP_OFFSET, ORDINAL = 1, 3, 5, 7
# Fields of ColumnChunk.
CHUNK_OFFSET, META_DATA, OFFSET_INDEX, COLUMN_INDEX = 2, 3, 4, 6
_FILE_PATH = 1
# Fields of ColumnMetaData.
TYPE, PATH, CODEC_OF_CHUNK, VALUES, PACKED, DATA_OFFSET = 1, 3, 4, 5, 7, 9
DICTIONARY_OFFSET, BLOOM_OFFSET, BLOOM_LENGTH = 11, 14, 15
_INDEX_OFFSET, _ENCODINGS = 10, 13
# The fields that the format has; others may contain an offset.
_OF_GROUP, _OF_CHUNK = frozenset(range(1, 8)), frozenset(range(2, 8))
_OF_META_DATA = frozenset(range(1, 18)) - {_INDEX_OFFSET}
# Fields of PageHeader, and the number of values in the header of a page of each type.
_PAGE_TYPE, _PAGE_BYTES, _PAGE_CHECKSUM, _PAGE_VALUES = 1, 3, 4, 1
_DICTIONARY, _DATA_HEADERS = 2, {0: 5, 3: 8}
# The field of PageEncodingStats after the type of pages, and the encodings whose values are those of a dictionary.
_ENCODING, _BY_DICTIONARY = 2, {2, 8}
# Fields of OffsetIndex, PageLocation and ColumnIndex.
LOCATIONS, LOCATION_OFFSET, _LOCATION_SIZE, _NULL_PAGES = 1, 1, 2, 1
_BLOOM_BYTES, _BLOOM_HEADER_BYTES = 1, 256
_MOST_EXTRA_BYTES = 256 * 1024 * 1024
# The most pages of a column chunk; the index of more would have more values than are read.
_MOST_PAGES = 400_000
_MAGIC_BYTES = 4
_FETCHED_BYTES = 8 * 1024 * 1024


class Extras(NamedTuple):
    """What a file contains of a column chunk outside its row group; None for what it does not."""

    bloom_filter: bytes | None
    column_index: bytes | None
    offset_index: Struct | None


@dataclass(frozen=True, slots=True)
class Part:
    """A row group as it is stored.

    Args:
        group: its description.
        rows: the number of its rows.
        start: the position of its first byte in its file.
        data: its bytes.
        extras: what belongs to each of its columns.
        created_by: the writer of its file.
    """

    group: Struct
    rows: int
    start: int
    data: Any
    extras: Sequence[Extras]
    created_by: bytes


class _Span(NamedTuple):
    """The bytes of a column chunk, and the position of its first data page."""

    start: int
    end: int
    data: int


class CopySource:
    """A file whose row groups may be copied.

    Raises:
        UncopiedError: the file does not fit the model, or its footer is not as it must be for copying.
    """

    def __init__(self, source: Any, checks: ChunkChecks, model: Model) -> None:
        self._source, self._model = source, model
        self._end = checks.footer_start
        try:
            self._footer = _whole(checks.footer)
            model.check(self._footer)
            self._groups = structs_of(self._footer, GROUPS)
            checks.all_groups()
        except (ThriftError, OSError, pa.ArrowException) as error:
            raise UncopiedError(FOOTER) from error

    def size(self, index: int) -> int:
        """Return the bytes of a row group.

        Raises:
            UncopiedError: its description is not valid.
        """
        try:
            spans = [self._span(chunk) for chunk in structs_of(self._groups[index], CHUNKS)]
        except (ThriftError, IndexError) as error:
            raise UncopiedError(FOOTER) from error
        return sum(span.end - span.start for span in spans)

    def part(self, index: int) -> Part:
        """Return a row group, with all bytes that are copied, which are read at once.

        Raises:
            UncopiedError: it cannot be copied.
        """
        try:
            return self._part(self._groups[index])
        except (ThriftError, IndexError) as error:
            raise UncopiedError(FOOTER) from error

    def _part(self, group: Struct) -> Part:
        chunks, rows = structs_of(group, CHUNKS), number_of(group, GROUP_ROWS)
        if set(group) - _OF_GROUP or len(chunks) != len(self._model.leaves):
            raise UncopiedError(FOOTER)
        for chunk, leaf in zip(chunks, self._model.leaves, strict=True):
            self._check_chunk(chunk, leaf, rows)
        spans = [self._span(chunk) for chunk in chunks]
        start, end = _joined(spans)
        if isinstance(self._source, LargeFile):
            self._source.fetch([(start, end)])
        data = self._read(start, end - start)
        view = memoryview(data).cast("B")
        extras = []
        for chunk, span in zip(chunks, spans, strict=True):
            found = _pages(view[span.start - start : span.end - start], span, chunk)
            pages = list(itertools.islice(found, _MOST_PAGES + 1))
            if len(pages) > _MOST_PAGES:
                raise UncopiedError(PAGES)
            extras.append(self._extras(chunk, pages))
        return Part(group, rows, start, data, extras, created_by(self._footer))

    def _check_chunk(self, chunk: Struct, leaf: Leaf, rows: int) -> None:
        meta = value_of(chunk, META_DATA, STRUCT) or {}
        # An encrypted chunk, one in another file, and what a later version of the format added.
        if set(chunk) - _OF_CHUNK or set(meta) - _OF_META_DATA:
            raise UncopiedError(FOOTER)
        path = value_of(meta, PATH, LIST)
        if (
            path is None
            or tuple(path.values) != leaf.path
            or number_of(meta, TYPE, I32) != leaf.kind
        ):
            raise UncopiedError(FOOTER)
        if number_of(meta, CODEC_OF_CHUNK, I32) != self._model.codec:
            raise UncopiedError(CODEC)
        if b".".join(leaf.path) in self._model.bloom_filters and not _is_filtered(meta):
            raise UncopiedError(BLOOM_FILTERS)
        if not leaf.repeated and number_of(meta, VALUES) != rows:
            raise UncopiedError(PAGES)

    def _span(self, chunk: Struct) -> _Span:
        meta = value_of(chunk, META_DATA, STRUCT) or {}
        data = number_of(meta, DATA_OFFSET)
        start = value_of(meta, DICTIONARY_OFFSET, I64) or data
        end = start + number_of(meta, PACKED)
        if not _MAGIC_BYTES <= start <= data <= end <= self._end:
            raise UncopiedError(PAGES)
        return _Span(start, end, data)

    # What is outside the row group

    def _extras(self, chunk: Struct, pages: Sequence[_Page]) -> Extras:
        index = self._range(chunk, COLUMN_INDEX)
        if index is not None:
            nulls = value_of(_whole(index), _NULL_PAGES, LIST)
            if nulls is None or len(nulls.values) != len(pages):
                raise UncopiedError(PAGES)
        offsets = self._range(chunk, OFFSET_INDEX)
        locations = None if offsets is None else _whole(offsets)
        if locations is not None:
            found = [
                _Page(number_of(item, LOCATION_OFFSET), number_of(item, _LOCATION_SIZE, I32))
                for item in structs_of(locations, LOCATIONS)
            ]
            if found != list(pages):
                raise UncopiedError(PAGES)
        elif index is not None:
            raise UncopiedError(PAGES)
        return Extras(self._bloom_filter(chunk[META_DATA].value), index, locations)

    def _range(self, chunk: Struct, number: int) -> bytes | None:
        """Return the bytes of an index, by the number of the field with its offset; its length follows."""
        if number not in chunk:
            return None
        return self._outside(number_of(chunk, number), number_of(chunk, number + 1, I32))

    def _bloom_filter(self, meta: Struct) -> bytes | None:
        if BLOOM_OFFSET not in meta:
            return None
        start, size = number_of(meta, BLOOM_OFFSET), value_of(meta, BLOOM_LENGTH, I32)
        if size is None:
            head = self._outside(start, min(_BLOOM_HEADER_BYTES, self._end - start))
            header, end = read_struct(head)
            size = end + number_of(header, _BLOOM_BYTES, I32)
        found = self._outside(start, size)
        header, end = read_struct(found)
        if end + number_of(header, _BLOOM_BYTES, I32) != size:
            raise UncopiedError(FOOTER)
        return found

    def _outside(self, start: int, size: int) -> bytes:
        if start < _MAGIC_BYTES or not 0 < size <= min(self._end - start, _MOST_EXTRA_BYTES):
            raise UncopiedError(FOOTER)
        begin, tail = self._tail
        if start >= begin:
            return bytes(tail[start - begin : start - begin + size])
        return bytes(memoryview(self._read(start, size)))

    @cached_property
    def _tail(self) -> tuple[int, memoryview]:
        """The bytes before the footer, where most writers put what is outside row groups, and their position."""
        begin = max(self._end - _FETCHED_BYTES, self._end_of_groups)
        return begin, memoryview(self._read(begin, self._end - begin)).cast("B")

    @property
    def _end_of_groups(self) -> int:
        chunks = (chunk for group in self._groups for chunk in structs_of(group, CHUNKS))
        return max((self._span(chunk).end for chunk in chunks), default=self._end)

    def _read(self, start: int, size: int) -> Any:
        self._source.seek(start)
        data = self._source.read_buffer(size)
        if len(data) != size:
            raise UncopiedError(PAGES)
        return data


class _Page(NamedTuple):
    """The position of a data page in its file, and its bytes with its header."""

    start: int
    size: int


def _is_filtered(meta: Struct) -> bool:
    """Whether a chunk has a Bloom filter, or needs none because a dictionary has all its values, as Java decides."""
    pages = [
        number_of(item, _ENCODING, I32)
        for item in structs_of(meta, _ENCODINGS)
        if number_of(item, _PAGE_TYPE, I32) != _DICTIONARY
    ]
    return BLOOM_OFFSET in meta or (bool(pages) and set(pages) <= _BY_DICTIONARY)


def _joined(spans: Sequence[_Span]) -> tuple[int, int]:
    """Return the first and the last position of chunks, which must be side by side."""
    ordered = sorted(spans)
    for before, after in itertools.pairwise(ordered):
        if before.end != after.start:
            raise UncopiedError(PAGES)
    return ordered[0].start, ordered[-1].end


def _pages(chunk: memoryview, span: _Span, described: Struct) -> Iterator[_Page]:
    """Yield the data pages of a chunk, which must fill it and have its number of values.

    Raises:
        UncopiedError: they do not, or a page was changed.
        ThriftError: a header is not valid.
    """
    at = values = 0
    while at < len(chunk):
        header, body = read_struct(chunk, at)
        end, kind = body + number_of(header, _PAGE_BYTES, I32), number_of(header, _PAGE_TYPE, I32)
        start, is_first = span.start + at, at == 0
        checksum = value_of(header, _PAGE_CHECKSUM, I32)
        if end > len(chunk):
            raise UncopiedError(PAGES)
        # A header contains it as a signed number.
        is_same = checksum is None or zlib.crc32(chunk[body:end]) == checksum % 2**32
        if not is_same:  # check: checksums-of-copies
            raise UncopiedError(PAGES)
        if kind == _DICTIONARY:
            # Only the first page, before the one that the footer calls the first data page.
            if not is_first or span.data != span.start + end:
                raise UncopiedError(PAGES)
        elif kind in _DATA_HEADERS and start >= span.data:
            of_page = value_of(header, _DATA_HEADERS[kind], STRUCT) or {}
            values += number_of(of_page, _PAGE_VALUES, I32)
            yield _Page(start, end - at)
        else:
            raise UncopiedError(PAGES)
        at = end
    if values != number_of(described[META_DATA].value, VALUES):  # check: values-of-copies
        raise UncopiedError(PAGES)


def _whole(data: Any) -> dict[int, Field]:
    """Return the struct that bytes contain and nothing else."""
    struct, end = read_struct(data)
    if end != len(data):
        raise UncopiedError(FOOTER)
    return struct
