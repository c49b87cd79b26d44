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
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
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
from lake.core.rows.metrics import Mode, footer_metrics, leaves
from lake.core.rows.required import null_in_required
from lake.core.rows.schema import (
    FIELD_ID,
    arrow_field,
    arrow_schema,
    arrow_type,
    field_id,
    schema_from_plain,
    schema_to_plain,
    spec_from_plain,
    spec_to_plain,
)
from lake.core.rows.writer import row_group_start
from lake.core.table.files import DataFile
from lake.core.table.partition_values import from_single_values, partition_type
from lake.core.table.storage import Storage

if TYPE_CHECKING:
    from pyiceberg.expressions import BooleanExpression
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.schema import Schema

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

    `partition` holds single values as in `lake.core.table.files.DataFile`; the slice's first `skip_rows` rows
    are left out.
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

    @classmethod
    def of(cls, file: DataFile) -> FileSlice:
        """Return the whole of a data file."""
        return cls(
            path=file.path,
            format=file.format,
            size_bytes=file.size_bytes,
            record_count=file.record_count,
            spec_id=file.spec_id,
            partition=file.partition,
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
    """

    projection: Schema
    schema: Schema
    specs: Mapping[int, PartitionSpec]
    row_filter: BooleanExpression | None = None
    name_mapping: str | None = None
    batch_bytes: int = BATCH_BYTES

    def to_plain(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        return {
            "projection": schema_to_plain(self.projection),
            "schema": schema_to_plain(self.schema),
            "specs": [spec_to_plain(spec) for spec in self.specs.values()],
            "row_filter": None if self.row_filter is None else filter_to_plain(self.row_filter),
            "name_mapping": self.name_mapping,
            "batch_bytes": self.batch_bytes,
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
        )


def read_batches(
    storage: Storage, file: FileSlice, settings: ReadSettings
) -> Iterator[pa.RecordBatch]:
    """Yield a file's rows with exactly the projection's schema.

    Raises:
        CorruptFileError: the file is not what its format or the table's metadata promises.
        RefusedError: its format cannot be read yet.
    """
    if file.format.upper() != "PARQUET":
        raise RefusedError(f"cannot read {file.format} data files yet: {file.path}")
    wanted = _columns_to_read(settings)
    with storage.open_input(file.path) as source, _corrupt(file.path):
        # What lies behind a network is fetched in few large pieces, a row group at a time.
        remote = not paths.parse(file.path).is_local
        parquet = pq.ParquetFile(source, page_checksum_verification=True, pre_buffer=remote)
        _check_footer(parquet, file)
        resolved = _resolve(parquet.schema_arrow, settings, file)
        groups = _row_groups(parquet, file, settings, resolved)
        groups, skip = _without_rows(parquet.metadata, groups, file.skip_rows)
        for full in _raw_batches(parquet, source, groups, resolved, settings, file):
            batch, skip = full.slice(skip), max(0, skip - full.num_rows)
            shaped = _shape(batch, wanted, resolved, settings, file)
            if settings.row_filter is not None:
                shaped = shaped.filter(row_mask(settings.row_filter, shaped, settings.schema))
            if shaped.num_rows:
                yield _select(shaped, settings, file)


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


def _raw_batches(
    parquet: Any,
    source: Any,
    groups: Sequence[int],
    resolved: Mapping[int, pa.Field | None],
    settings: ReadSettings,
    file: FileSlice,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of row groups as the file has them, exactly as many as its footer promises."""
    names = [item.name for item in resolved.values() if item is not None]
    if len(names) > len(set(names)) or any(
        parquet.schema_arrow.get_field_index(name) < 0 for name in names
    ):
        raise CorruptFileError(f"{file.path} has columns of one name: {', '.join(names)}")
    columns = _leaf_indexes(parquet, names)
    for group in groups:
        left = parquet.metadata.row_group(group).num_rows
        rows = batch_rows(parquet, source, group, columns, settings.batch_bytes)
        for batch in parquet.iter_batches(
            batch_size=rows, row_groups=[group], columns=names, use_threads=False
        ):
            left -= batch.num_rows
            yield batch
        if left:
            raise CorruptFileError(f"{file.path} lacks {left} rows that its footer promises")


def _resolve(
    file_schema: pa.Schema, settings: ReadSettings, file: FileSlice
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
    return {item.field_id: by_id.get(item.field_id) for item in _columns_to_read(settings)}


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


def _row_groups(
    parquet: Any, file: FileSlice, settings: ReadSettings, resolved: Mapping[int, pa.Field | None]
) -> list[int]:
    """Return the row groups that begin in the slice and may hold rows of the filter."""
    metadata = parquet.metadata
    end = float("inf") if file.length is None else file.start + file.length
    groups = [
        index
        for index in range(metadata.num_row_groups)
        if file.start <= _start_within(metadata.row_group(index), file) < end
    ]
    if settings.row_filter is None or len(groups) < 2:  # noqa: PLR2004 - one group is read anyway
        return groups
    return _matching_groups(parquet, groups, settings, resolved)


def _start_within(group: Any, file: FileSlice) -> int:
    """Return where a row group begins, within the file: a wrong footer must not put it into no slice."""
    return min(max(row_group_start(group), 0), max(file.size_bytes - 1, 0))


def _without_rows(metadata: Any, groups: list[int], skip: int) -> tuple[list[int], int]:
    """Drop row groups that lie wholly in the rows to skip; return the rest and the rows still to skip."""
    for position, index in enumerate(groups):
        rows = metadata.row_group(index).num_rows
        if skip < rows:
            return groups[position:], skip
        skip -= rows
    return [], 0


def _matching_groups(
    parquet: Any,
    groups: list[int],
    settings: ReadSettings,
    resolved: Mapping[int, pa.Field | None],
) -> list[int]:
    """Drop row groups whose statistics exclude the filter, judged as if each were a file."""
    from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC  # noqa: PLC0415

    from lake.core.table.manifests import entries_of  # noqa: PLC0415
    from lake.core.table.pruning import prune_files  # noqa: PLC0415

    if settings.row_filter is None:
        return groups
    columns = _file_leaves(parquet, settings.schema, resolved)
    full = {leaf.field_id: Mode(counts=True, bounds=True) for _, leaf in columns}
    files = []
    for index in groups:
        group = parquet.metadata.row_group(index)
        found = footer_metrics(
            _OneGroup(group, [position for position, _ in columns]),
            [leaf for _, leaf in columns],
            full,
            {},
        )
        files.append(
            DataFile(
                path=str(index),
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
    return [index for index, keep in zip(groups, mask.to_pylist(), strict=True) if keep]


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
    batch: pa.RecordBatch,
    wanted: Sequence[NestedField],
    resolved: Mapping[int, pa.Field | None],
    settings: ReadSettings,
    file: FileSlice,
) -> pa.RecordBatch:
    columns = []
    for item in wanted:
        source = resolved[item.field_id]
        if source is None:
            columns.append(_missing(item, batch.num_rows, settings, file))
        else:
            column = batch.column(source.name)
            columns.append(convert(column, item, file.path, labels=source.type))
    schema = pa.schema([arrow_field(item) for item in wanted])
    shaped = pa.RecordBatch.from_arrays(columns, schema=schema)
    if name := null_in_required(shaped):
        raise CorruptFileError(f"{file.path} has NULL in the required column {name}")
    return shaped


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
    kind = arrow_type(item.field_type)
    spec = settings.specs.get(file.spec_id)
    if spec is not None:
        kinds = partition_type(spec, [settings.schema]).fields
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
