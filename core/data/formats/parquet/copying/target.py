"""Write a Parquet file of copied row groups and of new ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from lake.core.base.errors import LakeError
from lake.core.data.columns import metrics
from lake.core.data.columns.data_file import NewFile
from lake.core.data.columns.reading_errors import reading_error
from lake.core.data.formats.parquet.copying.model import (
    CREATED_BY,
    GROUPS,
    ROWS,
    Model,
    UncopiedError,
    common_writer,
)
from lake.core.data.formats.parquet.copying.source import (
    BLOOM_LENGTH,
    BLOOM_OFFSET,
    CHUNK_OFFSET,
    CHUNKS,
    COLUMN_INDEX,
    DATA_OFFSET,
    DICTIONARY_OFFSET,
    GROUP_OFFSET,
    LOCATION_OFFSET,
    LOCATIONS,
    META_DATA,
    OFFSET_INDEX,
    ORDINAL,
    CopySource,
    Extras,
    Part,
)
from lake.core.data.formats.parquet.copying.thrift import (
    BINARY,
    I16,
    I32,
    I64,
    LIST,
    STRUCT,
    Field,
    Items,
    Struct,
    structs_of,
    write_struct,
)
from lake.core.data.formats.parquet.footer import open_parquet
from lake.core.data.formats.parquet.statistics import TrustedFooter
from lake.core.data.formats.parquet.writer import ParquetFormat, RowGroups, row_group_start
from lake.core.io.storage.storage import Storage
from lake.core.table.manifests.data_files import DataFile

_MAGIC = b"PAR1"
_LENGTH_BYTES = 4
_MOST_ORDINAL = 2**15 - 1


@dataclass(slots=True)
class CopyFormat(ParquetFormat):
    """The settings of Parquet files to which row groups are copied."""

    model: Model = field(init=False)

    def __post_init__(self) -> None:
        ParquetFormat.__post_init__(self)
        self.model = Model.of(self)

    def create(self, storage: Storage, path: str) -> CopiedFile:
        """Create a file."""
        return CopiedFile(storage, self, path)


class CopiedFile(NewFile):
    """A Parquet file that is being written, with row groups of other files."""

    def __init__(self, storage: Storage, file_format: CopyFormat, path: str) -> None:
        super().__init__(storage, path)
        self._format = file_format
        self._groups: list[_Group] = []
        self._writers: list[bytes] = []
        self._nans = metrics.NanCounter(file_format.columns).counts
        self._put(_MAGIC)

    def write(self, table: pa.Table) -> None:
        """Write a row group of rows: it is encoded in memory, and copied from there."""
        sink = pa.BufferOutputStream()
        rows = RowGroups(self._format, sink)
        rows.write(table)
        rows.close()
        try:
            _, checks = open_parquet(pa.BufferReader(sink.getvalue()), self._path)
            source = CopySource(pa.BufferReader(sink.getvalue()), checks, self._format.model)
            part = source.part(0)
        except UncopiedError as error:
            raise LakeError(f"a new row group is not as it must be for copying: {error}") from error
        self.append(part, rows.nan_counts)

    def append(self, part: Part, nan_counts: Mapping[int, int]) -> None:
        """Copy a row group.

        Args:
            part: the row group.
            nan_counts: how many NaN it has, by the id of the column; others are not known.
        """
        start = self.size
        shift = start - part.start
        self._put(part.data)
        chunks = []
        for chunk, extras in zip(structs_of(part.group, CHUNKS), part.extras, strict=True):
            meta = _moved(chunk[META_DATA].value, shift, DATA_OFFSET, DICTIONARY_OFFSET)
            if extras.bloom_filter is not None:
                meta[BLOOM_OFFSET] = Field(I64, self.size)
                meta[BLOOM_LENGTH] = Field(I32, self._put(extras.bloom_filter))
            # Chunks are described in the footer only.
            chunks.append({**chunk, CHUNK_OFFSET: Field(I64, 0), META_DATA: Field(STRUCT, meta)})
        group = {**part.group, GROUP_OFFSET: Field(I64, start)}
        if group.pop(ORDINAL, None) and len(self._groups) <= _MOST_ORDINAL:
            group[ORDINAL] = Field(I16, len(self._groups))
        # The filters are written, and may be as large as the row group.
        indexes = [item._replace(bloom_filter=None) for item in part.extras]
        self._groups.append(_Group(group, part.rows, chunks, indexes, shift))
        self._writers.append(part.created_by)
        self._nans = {
            column: count + nan_counts[column]
            for column, count in self._nans.items()
            if column in nan_counts
        }

    def close(self, **described: Any) -> DataFile:
        """Finish the file, make it durable, check it, and return its entry with the given additional fields."""
        for number in (COLUMN_INDEX, OFFSET_INDEX):
            for group in self._groups:
                for chunk, extras in zip(group.chunks, group.extras, strict=True):
                    self._put_index(chunk, number, extras, group.shift)
        footer = write_struct(self._footer())
        self._put(footer + len(footer).to_bytes(_LENGTH_BYTES, "little") + _MAGIC)
        size = self._persist()
        try:
            with self._storage.open_input(self._path, size=size) as source:
                return self._checked(source, size, described)
        except (OSError, pa.ArrowException) as error:
            raise reading_error(error, self._path) from error

    def _put(self, data: Any) -> int:
        """Write bytes and return their number."""
        self._sink.write(data)
        return len(data)

    def _put_index(self, chunk: dict[int, Field], number: int, extras: Extras, shift: int) -> None:
        """Write a column index or an offset index, and note its place in the description of its chunk."""
        chunk.pop(number, None)
        chunk.pop(number + 1, None)
        data = extras.column_index
        if number == OFFSET_INDEX and extras.offset_index is not None:
            pages = structs_of(extras.offset_index, LOCATIONS)
            moved = [_moved(page, shift, LOCATION_OFFSET) for page in pages]
            pages_moved = Field(LIST, Items((STRUCT,), moved))
            data = write_struct({**extras.offset_index, LOCATIONS: pages_moved})
        elif number == OFFSET_INDEX:
            data = None
        if data is not None:
            chunk[number] = Field(I64, self.size)
            chunk[number + 1] = Field(I32, self._put(data))

    def _footer(self) -> Struct:
        model = self._format.model.footer
        groups = [
            {**group.fields, CHUNKS: Field(LIST, Items((STRUCT,), group.chunks))}
            for group in self._groups
        ]
        writers = self._writers or [model[CREATED_BY].value]
        return {
            **model,
            ROWS: Field(I64, sum(group.rows for group in self._groups)),
            GROUPS: Field(LIST, Items((STRUCT,), groups)),
            CREATED_BY: Field(BINARY, common_writer(writers)),
        }

    def _checked(self, source: Any, size: int, described: Mapping[str, Any]) -> DataFile:
        """Compare the footer, as PyArrow reads it, with what was copied, and return the file's entry.

        Raises:
            LakeError: they differ, which is a defect; nothing may be committed.
        """
        parquet, checks = open_parquet(source, self._path)
        footer = TrustedFooter(parquet, checks.all_groups())
        found = [footer.metadata.row_group(at) for at in range(footer.metadata.num_row_groups)]
        expected = [(group.rows, group.starts) for group in self._groups]
        stored = [
            (group.num_rows, [group.column(at).data_page_offset for at in range(group.num_columns)])
            for group in found
        ]
        is_same = parquet.schema.equals(self._format.model.schema) and stored == expected
        if not is_same or source.size() != size:  # check: copied-footer
            raise LakeError(f"{self._path} is not what was copied; nothing was committed")
        modes = self._format.modes
        values = footer.metrics(list(enumerate(self._format.columns)), modes)
        values.nan_value_counts = {
            column: count for column, count in self._nans.items() if modes[column].counts
        }
        return DataFile(
            path=self._path,
            record_count=footer.metadata.num_rows,
            size_bytes=size,
            **values.of_entry(),
            split_offsets=tuple(row_group_start(group) for group in found),
            **described,
        )


@dataclass(frozen=True, slots=True)
class _Group:
    """A row group in the new file: its fields, its rows, its chunks, what belongs to them, and how far it moved."""

    fields: dict[int, Field]
    rows: int
    chunks: list[dict[int, Field]]
    extras: Sequence[Extras]
    shift: int

    @property
    def starts(self) -> list[int]:
        """The positions of the first data pages."""
        return [chunk[META_DATA].value[DATA_OFFSET].value for chunk in self.chunks]


def _moved(struct: Struct, shift: int, *numbers: int) -> dict[int, Field]:
    """Return a struct with other offsets; 0 stands for a missing one."""
    return {
        number: Field(field.kind, field.value + shift)
        if number in numbers and field.value
        else field
        for number, field in struct.items()
    }
