"""Rows out of data files, by Iceberg field id, in bounded batches.

A column is found by its id however it is called in the file; types are promoted, missing columns get their
partition's value, their default or NULL. Files without any ids are read by the table's name mapping, or else
by position as Iceberg Java does. Source: https://iceberg.apache.org/spec/#column-projection.
"""

from __future__ import annotations

import base64
import threading
from collections import deque
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField

from lake.core import paths
from lake.core.errors import CorruptFileError, LakeError, RefusedError
from lake.core.expressions import (
    bind_filter,
    field_path,
    filter_columns,
    filter_from_plain,
    filter_to_plain,
    row_mask,
)
from lake.core.rows.batch_sizes import batch_rows
from lake.core.rows.convert import convert, default_value, repeat
from lake.core.rows.keys import KeyColumn, key_columns, key_schema
from lake.core.rows.metrics import Mode, footer_metrics, leaves
from lake.core.rows.parquet_files import row_group_start
from lake.core.rows.required import null_in_required
from lake.core.rows.schema import (
    FIELD_ID,
    LAST_UPDATED,
    ROW_ID,
    arrow_field,
    arrow_schema,
    arrow_type,
    field_id,
    schema_from_plain,
    schema_to_plain,
    spec_from_plain,
    spec_to_plain,
)
from lake.core.table.files import DataFile, DeleteFile
from lake.core.table.live import all_schemas
from lake.core.table.manifest_entries import entries_of, files_of
from lake.core.table.partition_values import from_single_values, partition_type
from lake.core.table.storage import Storage

if TYPE_CHECKING:
    from pyiceberg.expressions import BooleanExpression
    from pyiceberg.partitioning import PartitionSpec

    from lake.core.table.catalog import Table

BATCH_BYTES = 16 * 1024 * 1024
AHEAD_BYTES = 64 * 1024 * 1024
# Small batches cost more than their bytes.
_MOST_AHEAD = 256
_MAX_ROW_GROUPS = 1_000_000
# An id that no column of a table has.
_NO_ID = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSlice:
    """A data file, or the row groups of it that begin in a range of its bytes.

    `partition` holds single values as in `lake.core.table.files.DataFile`, `sequence_number` is the file's data
    sequence number. Of the slice's rows the first `skip_rows` are left out, and of the others all but the
    first `take_rows`; both count rows of the file, deleted or not.
    """

    path: str
    format: str = "PARQUET"
    size_bytes: int
    record_count: int
    spec_id: int
    partition: tuple[bytes | None, ...] = ()
    start: int = 0
    length: int | None = None
    skip_rows: int = 0
    take_rows: int | None = None
    sequence_number: int = 0
    first_row_id: int | None = None

    @classmethod
    def of(cls, file: DataFile, *, sequence_number: int = 0) -> FileSlice:
        """Return the whole of a data file."""
        return cls(
            path=file.path,
            format=file.format,
            size_bytes=file.size_bytes,
            record_count=file.record_count,
            spec_id=file.spec_id,
            partition=file.partition,
            sequence_number=sequence_number,
            first_row_id=file.first_row_id,
        )

    def to_plain(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        plain: dict[str, Any] = {name: getattr(self, name) for name in self.__dataclass_fields__}
        plain["partition"] = [
            None if value is None else base64.b64encode(value).decode() for value in self.partition
        ]
        return plain

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> FileSlice:
        """Rebuild from `to_plain`'s values."""
        values = dict(plain)
        values["partition"] = tuple(
            None if value is None else base64.b64decode(value) for value in values["partition"]
        )
        return cls(**values)


def slices_of(entries: pa.Table, *, spec: PartitionSpec, schema: Schema) -> list[FileSlice]:
    """Return the whole of the data files of manifest entries that share a spec.

    Args:
        entries: among their columns `sequence_number`, and `first_row_id` where row ids are read.
        spec: their partition spec.
        schema: where the spec's source columns are looked up.
    """
    files = files_of(entries, spec=spec, schema=schema)
    numbers = entries["sequence_number"].to_pylist()
    return [
        FileSlice.of(file, sequence_number=number)
        for file, number in zip(files, numbers, strict=True)
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadSettings:
    """How files of one table are read.

    Args:
        projection: the columns to return.
        schema: the table's schema; the filter is bound to it.
        specs: by id; they tell which missing column is a partition's value.
        row_filter: rows to return, bound to `schema`; None for all.
        name_mapping: the table's ``schema.name-mapping.default``, for files without field ids.
        batch_bytes: about what one batch may take.
        deletes: delete files that may apply to the files; what deletes their rows is made of these.
        key_types: columns that equality deletes among them compare, found by id; None without such deletes.
        complete: a column that a file lacks is an error, even where NULL or a default could stand for it.
    """

    projection: Schema
    schema: Schema
    specs: Mapping[int, PartitionSpec]
    row_filter: BooleanExpression | None = None
    name_mapping: str | None = None
    batch_bytes: int = BATCH_BYTES
    deletes: tuple[DeleteFile, ...] = ()
    key_types: Schema | None = None
    complete: bool = False

    @classmethod
    def of(
        cls,
        table: Table,
        *,
        schema: Schema | None = None,
        projection: Schema | None = None,
        row_filter: BooleanExpression | None = None,
        deletes: Sequence[DeleteFile] = (),
    ) -> ReadSettings:
        """Return how a table's files are read.

        Args:
            table: the table.
            schema: a past one of it; None for the current one.
            projection: the columns to return; None for all.
            row_filter: bound to the schema.
            deletes: the delete files that may apply to the files.
        """
        schema = table.schema if schema is None else schema
        ids = {column for item in deletes for column in item.equality_ids or ()}
        return cls(
            projection=schema if projection is None else projection,
            schema=schema,
            specs=table.metadata.specs(),
            row_filter=row_filter,
            name_mapping=table.properties.get("schema.name-mapping.default"),
            deletes=tuple(deletes),
            key_types=key_schema(ids, all_schemas(table.metadata)) if ids else None,
        )

    def to_plain(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        return {
            "projection": schema_to_plain(self.projection),
            "schema": schema_to_plain(self.schema),
            "specs": [spec_to_plain(spec) for spec in self.specs.values()],
            "row_filter": None if self.row_filter is None else filter_to_plain(self.row_filter),
            "name_mapping": self.name_mapping,
            "batch_bytes": self.batch_bytes,
            "deletes": [item.to_plain() for item in self.deletes],
            "key_types": None if self.key_types is None else schema_to_plain(self.key_types),
            "complete": self.complete,
        }

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> ReadSettings:
        """Rebuild from `to_plain`'s values."""
        schema = schema_from_plain(plain["schema"])
        condition = plain["row_filter"]
        specs = [spec_from_plain(spec) for spec in plain["specs"]]
        return cls(
            projection=schema_from_plain(plain["projection"]),
            schema=schema,
            specs={spec.spec_id: spec for spec in specs},
            row_filter=None
            if condition is None
            else bind_filter(filter_from_plain(condition), schema),
            name_mapping=plain["name_mapping"],
            batch_bytes=plain["batch_bytes"],
            deletes=tuple(DeleteFile.from_plain(item) for item in plain["deletes"]),
            key_types=None if plain["key_types"] is None else schema_from_plain(plain["key_types"]),
            complete=plain["complete"],
        )


class FileDeletes(Protocol):
    """What deletes rows of one data file."""

    @property
    def key_ids(self) -> Sequence[int]:
        """The ids of the columns that `keep` is to be given."""

    def keep(self, start: int, rows: int, keys: pa.RecordBatch) -> npt.NDArray[np.bool_] | None:
        """Return which rows are not deleted; None for all.

        Args:
            start: the first row's position in the file.
            rows: how many there are.
            keys: their `key_ids`, in that order.
        """

    def leaves(self, start: int, rows: int) -> bool:
        """Return whether `keep` may leave a row of a range: if not, they are not read."""


class RowDeletes(Protocol):
    """What deletes rows of the files that a task reads."""

    def of(self, file: FileSlice) -> FileDeletes | None:
        """Return what deletes rows of a file, None if nothing does."""


def read_batches(
    storage: Storage, file: FileSlice, settings: ReadSettings, deletes: RowDeletes | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield a file's rows that are not deleted, with exactly the projection's schema.

    Args:
        storage: where the file lies.
        file: what to read of it.
        settings: how to read it.
        deletes: made of the settings' delete files by `lake.core.deletes.apply`; None if there are none.

    Raises:
        CorruptFileError: the file is not what its format or the table's metadata promises.
        RefusedError: its format cannot be read yet.
    """
    for _, batch in _read(storage, file, settings, deletes, with_positions=False):
        yield batch


def read_positions(
    storage: Storage, file: FileSlice, settings: ReadSettings, deletes: RowDeletes | None = None
) -> Iterator[tuple[npt.NDArray[np.int64], pa.RecordBatch]]:
    """Yield rows as `read_batches` does, each batch with its rows' positions in the file."""
    for positions, batch in _read(storage, file, settings, deletes, with_positions=True):
        if positions is not None:
            yield positions, batch


def read_keys(
    storage: Storage, file: FileSlice, settings: ReadSettings, ids: Sequence[int]
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield columns that equality deletes compare, of all rows of a slice, deleted or not.

    Args:
        storage: where the file lies.
        file: what to read of it.
        settings: how to read it; projection, filter and deletes do not count.
        ids: the columns, in this order; they are named by their ids.

    Returns:
        Batches, each with its first row's position in the file.
    """
    plain = replace(settings, projection=Schema(), row_filter=None, deletes=())
    with _opened(storage, file) as (parquet, source):
        reading = _Reading.of(parquet, source, file, plain, ids)
        for start, raw in reading.raw_batches():
            yield start, reading.keys_of(raw)


def _read(
    storage: Storage,
    file: FileSlice,
    settings: ReadSettings,
    deletes: RowDeletes | None,
    *,
    with_positions: bool,
) -> Iterator[tuple[npt.NDArray[np.int64] | None, pa.RecordBatch]]:
    if settings.deletes and deletes is None:
        raise ValueError("rows cannot be read without what their delete files say")
    own = None if deletes is None else deletes.of(file)
    with _opened(storage, file) as (parquet, source):
        reading = _Reading.of(parquet, source, file, settings, own.key_ids if own else ())
        for start, raw in reading.raw_batches(own):
            keep = None if own is None else own.keep(start, raw.num_rows, reading.keys_of(raw))
            positions, batch = reading.rows(start, raw, keep, with_positions=with_positions)
            if batch.num_rows:
                yield positions, _select(batch, settings, file)


@contextmanager
def _opened(storage: Storage, file: FileSlice) -> Iterator[tuple[Any, Any]]:
    """Open a Parquet file; give it and what it is read from."""
    if file.format.upper() != "PARQUET":
        raise RefusedError(f"cannot read {file.format} data files yet: {file.path}")
    with storage.open_input(file.path) as source, _corrupt(file.path):
        # What lies behind a network is fetched in few large pieces, a row group at a time.
        remote = not paths.parse(file.path).is_local
        parquet = pq.ParquetFile(source, page_checksum_verification=True, pre_buffer=remote)
        _check_footer(parquet, file)
        yield parquet, source


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reading:
    """One open file with what is to be read of it.

    Args:
        wanted: the columns to return, and those that only the filter needs.
        keys: the columns that equality deletes compare.
        resolved: for each of all these, by id, the file's top-level column; None where the file has none.
        tracks_positions: whether a column is made of positions.
    """

    parquet: Any
    source: Any
    file: FileSlice
    settings: ReadSettings
    wanted: Sequence[NestedField]
    keys: Sequence[KeyColumn]
    resolved: Mapping[int, pa.Field | None]
    tracks_positions: bool

    @classmethod
    def of(
        cls,
        parquet: Any,
        source: Any,
        file: FileSlice,
        settings: ReadSettings,
        key_ids: Sequence[int],
    ) -> _Reading:
        wanted = _columns_to_read(settings)
        keys = key_columns(settings.key_types, key_ids)
        tops = [*wanted, *(key.top for key in keys)]
        return cls(
            parquet=parquet,
            source=source,
            file=file,
            settings=settings,
            wanted=wanted,
            keys=keys,
            resolved=_resolve(parquet.schema_arrow, tops, settings, file),
            tracks_positions=any(item.field_id == ROW_ID for item in wanted),
        )

    def raw_batches(
        self, deletes: FileDeletes | None = None
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield rows as the file has them, each batch with its first row's position."""
        spans = _spans(self.parquet.metadata, self.file)
        if self.settings.row_filter is not None and len(spans) > 1:
            spans = _matching_spans(self.parquet, spans, self.settings, self.resolved)
        for span in spans:
            if deletes is None or deletes.leaves(span.start, span.rows):
                yield from _span_batches(self, span)

    def rows(
        self,
        start: int,
        raw: pa.RecordBatch,
        keep: npt.NDArray[np.bool_] | None,
        *,
        with_positions: bool,
    ) -> tuple[npt.NDArray[np.int64] | None, pa.RecordBatch]:
        """Return the rows of a batch that are kept and match the filter."""
        positions = None
        if with_positions or self.tracks_positions:
            positions = np.arange(start, start + raw.num_rows, dtype=np.int64)
        if keep is not None:
            raw = raw.filter(pa.array(keep))
            positions = None if positions is None else positions[keep]
        batch = _shape(raw, positions, self)
        if self.settings.row_filter is not None:
            mask = row_mask(self.settings.row_filter, batch, self.settings.schema)
            batch = batch.filter(mask)
            if positions is not None:
                positions = positions[mask.to_numpy(zero_copy_only=False)]
        return positions, batch

    def keys_of(self, raw: pa.RecordBatch) -> pa.RecordBatch:
        """Return what equality deletes compare, named by ids."""
        schema = pa.schema(
            [(str(key.leaf.field_id), arrow_type(key.leaf.field_type)) for key in self.keys]
        )
        columns = [key.of(_column(key.top, raw, self)) for key in self.keys]
        return pa.RecordBatch.from_arrays(columns, schema=schema)


def read_ahead(
    batches: Iterator[pa.RecordBatch], most_bytes: int = AHEAD_BYTES
) -> Iterator[pa.RecordBatch]:
    """Read in a thread while the caller works, at most so many bytes ahead (but always one batch)."""
    ahead = _Ahead(most_bytes)
    thread = threading.Thread(target=ahead.fill, args=(batches,), name="read-ahead", daemon=True)
    thread.start()
    try:
        while (item := ahead.take()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        ahead.stop()
        thread.join()
        # An unfinished reader holds its file open.
        if isinstance(batches, Generator):
            batches.close()


class _Ahead:
    """Batches that were read and not yet taken; None is the end, an error is one too."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._items: deque[Any] = deque()
        self._bytes = 0
        self._stopped = False
        self._changed = threading.Condition()

    def fill(self, batches: Iterator[pa.RecordBatch]) -> None:
        """Read until the end, an error, or `stop`."""
        try:
            for batch in batches:
                if not self._put(batch, batch.nbytes):
                    return
            self._put(None, 0)
        except BaseException as error:  # noqa: BLE001 - raised again by the one who reads
            self._put(error, 0)

    def _put(self, item: Any, size: int) -> bool:
        with self._changed:
            while self._items and not self._stopped and self._is_full(size):
                self._changed.wait()
            self._items.append(item)
            self._bytes += size
            self._changed.notify_all()
            return not self._stopped

    def _is_full(self, size: int) -> bool:
        return self._bytes + size > self._most_bytes or len(self._items) >= _MOST_AHEAD

    def take(self) -> Any:
        """Return the next batch, waiting for it."""
        with self._changed:
            while not self._items:
                self._changed.wait()
            item = self._items.popleft()
            self._bytes -= item.nbytes if isinstance(item, pa.RecordBatch) else 0
            self._changed.notify_all()
            return item

    def stop(self) -> None:
        """Let the reading thread end."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()


# What to read


def _columns_to_read(settings: ReadSettings) -> list[NestedField]:
    """Return the projection's columns, and those that only the filter needs."""
    fields = list(settings.projection.fields)
    if settings.row_filter is None:
        return fields
    known = {item.field_id: index for index, item in enumerate(fields)}
    for column in filter_columns(settings.row_filter):
        path = field_path(settings.schema, column)
        if path is None:
            raise CorruptFileError(f"the filter's column {column} is not in the schema")
        top = path[0]
        if top.field_id not in known:
            known[top.field_id] = len(fields)
            fields.append(top)
        elif top.field_id != column:
            # A nested projection may lack the filter's part: read the whole column.
            fields[known[top.field_id]] = top
    return fields


def _check_footer(parquet: Any, file: FileSlice) -> None:
    rows = parquet.metadata.num_rows
    if rows != file.record_count:
        raise CorruptFileError(
            f"{file.path} has {rows} rows, the table's metadata says {file.record_count}"
        )
    if parquet.metadata.num_row_groups > _MAX_ROW_GROUPS:
        raise CorruptFileError(f"{file.path} has too many row groups")


def _span_batches(reading: _Reading, span: _Span) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield rows of a row group as the file has them, exactly as many as its footer promises."""
    parquet, path = reading.parquet, reading.file.path
    names = list(dict.fromkeys(i.name for i in reading.resolved.values() if i is not None))
    columns = _leaf_indexes(parquet, names)
    size = batch_rows(parquet, reading.source, span.group, columns, reading.settings.batch_bytes)
    position, end = span.start - span.skip, span.start + span.rows
    for batch in parquet.iter_batches(
        batch_size=size, row_groups=[span.group], columns=names, use_threads=False
    ):
        skip = max(0, span.start - position)
        rows = batch.slice(skip, max(0, end - position - skip))
        if rows.num_rows:
            yield position + skip, rows
        position += batch.num_rows
        if position >= end:
            return
    raise CorruptFileError(f"{path} lacks {end - position} rows that its footer promises")


def _resolve(
    file_schema: pa.Schema, wanted: Sequence[NestedField], settings: ReadSettings, file: FileSlice
) -> dict[int, pa.Field | None]:
    """Return for each column to read the file's top-level field, None where the file has none.

    The fields carry the ids by which their parts are found, whether the file has them or the name mapping.
    """
    if not any(_has_ids(item) for item in file_schema):
        if settings.name_mapping:
            file_schema = _mapped(file_schema, settings.name_mapping, file.path)
        else:
            # No ids at all and no mapping: Iceberg Java numbers the file's columns from 1.
            file_schema = pa.schema(
                [_with_id(item, number) for number, item in enumerate(file_schema, 1)]
            )
    by_id = {field_id(item): item for item in file_schema}
    resolved = {item.field_id: by_id.get(item.field_id) for item in wanted}
    names = [item.name for item in resolved.values() if item is not None]
    if any(file_schema.get_all_field_indices(name)[1:] for name in names):
        raise CorruptFileError(f"{file.path} has columns of one name: {', '.join(names)}")
    return resolved


def _has_ids(item: pa.Field) -> bool:
    return field_id(item) is not None


def _with_id(item: pa.Field, number: int) -> pa.Field:
    return item.with_metadata({FIELD_ID: str(number).encode()})


def _mapped(file_schema: pa.Schema, text: str, path: str) -> pa.Schema:
    """Return a file's schema with the ids of the table's name mapping."""
    from pyiceberg.table.name_mapping import parse_mapping_from_json  # noqa: PLC0415

    try:
        mapping = parse_mapping_from_json(text)
    except ValueError as error:
        raise CorruptFileError(
            f"the table's name mapping cannot be read, so {path} neither"
        ) from error
    return pa.schema([_mapped_field(item, item.name, mapping.root) for item in file_schema])


def _mapped_field(item: pa.Field, name: str, mapping: Sequence[Any]) -> pa.Field:
    found = next((entry for entry in mapping if name in entry.names), None)
    number = _NO_ID if found is None or found.field_id is None else found.field_id
    kind = _mapped_type(item.type, found.fields if found else [])
    return _with_id(item.with_type(kind), number)


def _mapped_type(kind: pa.DataType, mapping: Sequence[Any]) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([_mapped_field(item, item.name, mapping) for item in kind])
    if pa.types.is_map(kind):
        return pa.map_(
            _mapped_field(kind.key_field, "key", mapping),
            _mapped_field(kind.item_field, "value", mapping),
        )
    if pa.types.is_large_list(kind):
        return pa.large_list(_mapped_field(kind.value_field, "element", mapping))
    if pa.types.is_list(kind):
        return pa.list_(_mapped_field(kind.value_field, "element", mapping))
    return kind


@dataclass(frozen=True, slots=True)
class _Span:
    """Rows of one row group that lie in a slice.

    Args:
        group: the row group's index.
        start: the position in the file of the first row.
        skip: how many rows of the row group lie before it.
        rows: how many rows there are.
    """

    group: int
    start: int
    skip: int
    rows: int


def _spans(metadata: Any, file: FileSlice) -> list[_Span]:
    """Return the rows that a slice is made of, row group by row group."""
    end = float("inf") if file.length is None else file.start + file.length
    left = float("inf") if file.take_rows is None else file.take_rows
    skip, position = file.skip_rows, 0
    spans = []
    for index in range(metadata.num_row_groups):
        group = metadata.row_group(index)
        if file.start <= _start_within(group, file) < end:
            skipped = min(skip, group.num_rows)
            rows = int(min(group.num_rows - skipped, left))
            if rows:
                spans.append(_Span(index, position + skipped, skipped, rows))
            skip, left = skip - skipped, left - rows
        position += group.num_rows
    return spans


def _start_within(group: Any, file: FileSlice) -> int:
    """Return where a row group begins, within the file: a wrong footer must not put it into no slice."""
    return min(max(row_group_start(group), 0), max(file.size_bytes - 1, 0))


def _matching_spans(
    parquet: Any,
    spans: list[_Span],
    settings: ReadSettings,
    resolved: Mapping[int, pa.Field | None],
) -> list[_Span]:
    """Drop row groups whose statistics exclude the filter, judged as if each were a file."""
    from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC  # noqa: PLC0415

    from lake.core.table.pruning import prune_files  # noqa: PLC0415

    if settings.row_filter is None:
        return spans
    columns = _file_leaves(parquet, settings.schema, resolved)
    full = {leaf.field_id: Mode(counts=True, bounds=True) for _, leaf in columns}
    files = []
    for span in spans:
        group = parquet.metadata.row_group(span.group)
        found = footer_metrics(
            _OneGroup(group, [position for position, _ in columns]),
            [leaf for _, leaf in columns],
            full,
            {},
        )
        files.append(
            DataFile(
                path=str(span.group),
                spec_id=0,
                record_count=group.num_rows,
                size_bytes=1,
                value_counts=found.value_counts,
                null_value_counts=found.null_value_counts,
                lower_bounds=found.lower_bounds,
                upper_bounds=found.upper_bounds,
            )
        )
    spec = UNPARTITIONED_PARTITION_SPEC
    entries = entries_of(files, spec=spec, schema=settings.schema, status=1, snapshot_id=0)
    mask = prune_files(entries, spec, settings.schema, settings.row_filter)
    return [span for span, keep in zip(spans, mask.to_pylist(), strict=True) if keep]


class _OneGroup:
    """A row group that looks like a footer with chosen columns."""

    num_row_groups = 1

    def __init__(self, group: Any, positions: Sequence[int]) -> None:
        self._group = group
        self._positions = positions

    def row_group(self, _index: int) -> _OneGroup:
        return self

    def column(self, position: int) -> Any:
        return self._group.column(self._positions[position])


def _file_leaves(
    parquet: Any, schema: Schema, resolved: Mapping[int, pa.Field | None]
) -> list[tuple[int, Any]]:
    """Return (position in the file, leaf of the table's schema) of flat columns of unchanged type."""
    known = {leaf.field_id: leaf for leaf in leaves(schema) if len(leaf.path) == 1}
    by_name = {item.name: column for column, item in resolved.items() if item is not None}
    found = []
    for item, places in _leaf_places(parquet):
        leaf = known.get(by_name.get(item.name, -1))
        if len(places) == 1 and leaf is not None and item.type == arrow_type(leaf.kind):
            found.append((places[0], leaf))
    return found


def _leaf_indexes(parquet: Any, names: Sequence[str]) -> list[int]:
    """Return the indexes of the Parquet columns of top-level columns; all if that cannot be told."""
    wanted = set(names)
    places = _leaf_places(parquet)
    if not places:
        return list(range(parquet.metadata.num_columns))
    return [index for item, found in places if item.name in wanted for index in found]


def _leaf_places(parquet: Any) -> list[tuple[pa.Field, range]]:
    """Return each top-level column with the indexes of its Parquet columns; none if they do not add up."""
    places, start = [], 0
    for item in parquet.schema_arrow:
        end = start + _leaf_count(item.type)
        places.append((item, range(start, end)))
        start = end
    return places if start == parquet.metadata.num_columns else []


def _leaf_count(kind: pa.DataType) -> int:
    if isinstance(kind, pa.BaseExtensionType):
        return _leaf_count(kind.storage_type)
    if pa.types.is_struct(kind):
        return sum(_leaf_count(item.type) for item in kind)
    if pa.types.is_map(kind):
        return _leaf_count(kind.key_type) + _leaf_count(kind.item_type)
    if pa.types.is_nested(kind):
        return _leaf_count(kind.value_type)
    return 1


# Shaping a batch


def _shape(
    raw: pa.RecordBatch, positions: npt.NDArray[np.int64] | None, reading: _Reading
) -> pa.RecordBatch:
    columns = []
    for item in reading.wanted:
        column = _column(item, raw, reading)
        if item.field_id in (ROW_ID, LAST_UPDATED):
            column = _lineage(item.field_id, column, positions, reading.file)
        columns.append(column)
    schema = pa.schema([arrow_field(item) for item in reading.wanted])
    shaped = pa.RecordBatch.from_arrays(columns, schema=schema)
    if name := null_in_required(shaped):
        raise CorruptFileError(f"{reading.file.path} has NULL in the required column {name}")
    return shaped


def _column(item: NestedField, raw: pa.RecordBatch, reading: _Reading) -> pa.Array:
    source = reading.resolved[item.field_id]
    if source is None:
        return _missing(item, raw.num_rows, reading.settings, reading.file)
    return convert(raw.column(source.name), item, reading.file.path, labels=source.type)


def _lineage(
    column: int, stored: pa.Array, positions: npt.NDArray[np.int64] | None, file: FileSlice
) -> pa.Array:
    """Fill in what a row inherits of its file: its id, or when it was last changed.

    Source: https://iceberg.apache.org/spec/#row-lineage; rows of files that were written before the table
    kept row ids have neither.
    """
    if file.first_row_id is None:
        return stored
    if column == LAST_UPDATED:
        return stored.fill_null(file.sequence_number)
    if stored.null_count == 0 or positions is None:
        return stored
    return pc.coalesce(stored, pa.array(positions + file.first_row_id))


def _select(batch: pa.RecordBatch, settings: ReadSettings, file: FileSlice) -> pa.RecordBatch:
    """Drop columns, and parts of columns, that only the filter needed."""
    target = arrow_schema(settings.projection)
    if batch.schema.equals(target, check_metadata=True):
        return batch
    columns = [
        convert(batch.column(index), item, file.path)
        for index, item in enumerate(settings.projection.fields)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=target)


def _missing(item: NestedField, rows: int, settings: ReadSettings, file: FileSlice) -> pa.Array:
    """Return what a column is that the file lacks: its partition's value, its default, or NULL."""
    if settings.complete:
        raise CorruptFileError(f"{file.path} lacks column {item.name} (field id {item.field_id})")
    kind = arrow_type(item.field_type)
    spec = settings.specs.get(file.spec_id)
    if spec is not None:
        schemas = [settings.schema, *([settings.key_types] if settings.key_types else [])]
        kinds = partition_type(spec, schemas).fields
        for position, part in enumerate(spec.fields):
            if part.source_id == item.field_id and str(part.transform) == "identity":
                value = from_single_values([file.partition[position]], kinds[position].field_type)
                return repeat(value.cast(kind), rows)
    if item.initial_default is not None:
        return repeat(default_value(item), rows)
    if item.required:
        raise CorruptFileError(f"{file.path} lacks the required column {item.name}")
    return pa.nulls(rows, kind)


@dataclass(slots=True)
class _corrupt:  # noqa: N801 - reads as a statement
    """Turns what PyArrow says of broken bytes into an error that names the file."""

    path: str

    def __enter__(self) -> None:
        return None

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, LakeError):
            return
        if isinstance(error, pa.ArrowException | OSError | UnicodeDecodeError | OverflowError):
            text = str(error).splitlines()
            raise CorruptFileError(
                f"{self.path} cannot be read: {(text or [''])[0][:200]}"
            ) from error
