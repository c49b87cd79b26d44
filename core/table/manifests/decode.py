"""Decode records of manifest lists and manifests into checked Arrow tables, with inherited values.

Format: https://iceberg.apache.org/spec/#manifests, #sequence-number-inheritance and
#first-row-id-inheritance.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, StructType, UnknownType

from lake.core.base.arrow import one_array
from lake.core.base.errors import CorruptFileError
from lake.core.io.avro.container import Block, Container
from lake.core.io.avro.decode import Layout, decode, layout_of
from lake.core.spec.types.single_values import (
    arrow_type,
    from_avro,
    partition_type,
    searched_schemas,
    source_type,
    struct_array,
)
from lake.core.table.manifests.schemas import (
    ADDED,
    DATA_FILE_ID,
    DELETED,
    ENTRY_COLUMNS,
    ENTRY_PATHS,
    EXISTING,
    ITEM_NAMES,
    MANIFEST_COLUMNS,
    MANIFEST_PATHS,
    METRIC_COLUMNS,
    PARTITION_ID,
    PARTITION_PATH,
)

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

_ENTRY_RECORDS = frozenset({DATA_FILE_ID, PARTITION_ID})
_REQUIRED_ENTRY = ("status", "file_path", "file_format", "record_count", "file_size_in_bytes")
_REQUIRED_MANIFEST = ("manifest_path", "manifest_length", "partition_spec_id")
# The columns that the checks and the inheritance use; always decoded.
_CHECKED = ("status", "content", "record_count", "file_size_in_bytes")
# Fields inside lists and maps.
_REQUIRED_ITEMS = frozenset({"key", "value", "contains_null"})
_ABSENT_IN_V1 = {"content": 0, "sequence_number": 0, "min_sequence_number": 0}
# A limit for the rows or bytes of one file; sums of them fit in 64 bits.
_MOST = 2**50
_NEVER_NEGATIVE = ("manifest_length", "sequence_number", "min_sequence_number")
_COUNTS = {ADDED: "added", EXISTING: "existing", DELETED: "deleted"}

Manifest = Mapping[str, Any]


def decode_manifest_rows(schema_json: bytes, blocks: Sequence[Block], *, name: str) -> pa.Table:
    """Return manifest-list rows as `MANIFEST_COLUMNS`, matched by field id.

    Args:
        schema_json: the Avro schema of the records.
        blocks: the records.
        name: the file's location, for messages.

    Raises:
        CorruptFileError: they do not match the schema, or contain impossible values.
    """
    layout = layout_of(schema_json, frozenset(), name=name)
    _require(layout, [MANIFEST_PATHS[column] for column in _REQUIRED_MANIFEST], name)
    stored = {c: path for c, path in MANIFEST_PATHS.items() if path in layout.columns}
    if 0 < len(stored.keys() & _ABSENT_IN_V1.keys()) < len(_ABSENT_IN_V1):
        # A missing sequence number would be read as 0, and a missing content as data.
        raise CorruptFileError(f"{name} has some of {', '.join(_ABSENT_IN_V1)} only")
    decoded = decode(layout, blocks, list(stored.values()), name=name)
    columns = {}
    for column, data_type in MANIFEST_COLUMNS.items():
        if column in stored:
            columns[column] = _conform(one_array(decoded[stored[column]]), data_type, name)
        else:
            columns[column] = pa.repeat(
                pa.scalar(_ABSENT_IN_V1.get(column), data_type), decoded.num_rows
            )
    table = pa.table(columns)
    _check_manifests(table, name)
    return table


@dataclass(frozen=True, slots=True)
class Opened:
    """A manifest's row in the list, and its container file."""

    manifest: Manifest
    container: Container
    layout: Layout

    @property
    def path(self) -> str:
        """The manifest's location."""
        return self.container.name


def open_manifest(manifest: Manifest, container: Container) -> Opened:
    """Read a manifest's schema.

    Raises:
        CorruptFileError: the file does not contain manifest entries.
    """
    layout = layout_of(container.schema_json, _ENTRY_RECORDS, name=container.name)
    _require(layout, [ENTRY_PATHS[column] for column in _REQUIRED_ENTRY], container.name)
    return Opened(manifest, container, layout)


def decode_entries(
    group: Sequence[Opened],
    metadata: TableMetadata,
    wanted: Sequence[str],
    *,
    live_only: bool = False,
    fields: Collection[int] | None = None,
) -> pa.Table:
    """Return the entries of manifests that share a partition spec and a layout.

    Args:
        group: the manifests; at least one.
        metadata: the table's metadata, for specs and schemas.
        wanted: the `ENTRY_COLUMNS` to decode, in their order.
        live_only: leave out entries of deleted files.
        fields: the ids of the columns whose metrics are returned; None for all.

    Raises:
        CorruptFileError: a manifest is damaged, or does not match its row in the list.
    """
    try:
        return _EntryReader(group, metadata, fields).table(wanted, live_only=live_only)
    except (CorruptFileError, pa.ArrowException) as error:
        if len(group) > 1:
            # One of them is damaged: decode each separately, so that the error names it.
            for opened in group:
                decode_entries([opened], metadata, wanted, fields=fields)
        if isinstance(error, CorruptFileError):
            raise
        raise CorruptFileError(f"{group[0].path} contains invalid values") from error


class _EntryReader:
    """Decodes manifests that share a spec and a layout into a table of entries."""

    def __init__(
        self,
        group: Sequence[Opened],
        metadata: TableMetadata,
        fields: Collection[int] | None,
    ) -> None:
        self._group = group
        self._fields = None if fields is None else pa.array(sorted(fields), pa.int32())
        self._layout = group[0].layout
        self._name = group[0].path
        self._spec_id = int(group[0].manifest["partition_spec_id"])
        self._metadata = metadata
        self._counts = np.array([opened.container.objects for opened in group], np.int64)
        self._owner = np.repeat(np.arange(len(group)), self._counts)
        self._decoded = pa.table({})
        # Columns that are used several times: of numbers, and of the manifest list.
        self._read: dict[str, np.ndarray[Any, np.dtype[Any]]] = {}
        self._repeated: dict[str, pa.Array] = {}

    def table(self, wanted: Sequence[str], *, live_only: bool) -> pa.Table:
        """Decode the wanted columns, check them, and fill in inherited values."""
        blocks = [block for opened in self._group for block in opened.container.blocks]
        needed = dict.fromkeys((*wanted, *_CHECKED))
        paths = [ENTRY_PATHS[c] for c in needed if ENTRY_PATHS.get(c) in self._layout.columns]
        partition = self._partition_type() if "partition" in needed else StructType()
        paths += [p for p in _partition_paths(partition) if p in self._layout.columns]
        self._decoded = decode(
            self._layout, blocks, paths, name=self._name, reduced=self._with_wanted_metrics
        )
        self._check()
        columns = {}
        for column in wanted:
            if column == "partition":
                columns[column] = self._partition(partition)
            else:
                columns[column] = self._inherited(column)
        columns["spec_id"] = pa.repeat(pa.scalar(self._spec_id, pa.int32()), len(self._owner))
        paths = pa.array([opened.path for opened in self._group], pa.string())
        columns["manifest_path"] = pa.DictionaryArray.from_arrays(
            pa.array(self._owner, pa.int32()), paths
        )
        entries = pa.table(columns)
        live = self._status() != DELETED
        # A filter copies all columns.
        return entries.filter(pa.array(live)) if live_only and not live.all() else entries

    def _with_wanted_metrics(self, decoded: pa.Table) -> pa.Table:
        if self._fields is None:
            return decoded
        for column in METRIC_COLUMNS:
            index = decoded.schema.get_field_index(ENTRY_PATHS[column])
            if index >= 0:
                raw = one_array(decoded.column(index))
                maps = _conform(raw, ENTRY_COLUMNS[column], self._name)
                name = decoded.schema.names[index]
                decoded = decoded.set_column(index, name, _with_keys(maps, self._fields))
        return decoded

    def _column(self, column: str) -> pa.Array:
        data_type, path = ENTRY_COLUMNS[column], ENTRY_PATHS[column]
        if path in self._layout.columns:
            return _conform(one_array(self._decoded[path]), data_type, self._name)
        return pa.repeat(pa.scalar(0 if column == "content" else None, data_type), len(self._owner))

    def _numbers(self, column: str) -> np.ndarray[Any, np.dtype[Any]]:
        if column not in self._read:
            values = self._column(column)
            if values.null_count:
                self._reject(values.is_null(), f"an entry without {column}")
            self._read[column] = np.asarray(values.to_numpy(zero_copy_only=False))
        return self._read[column]

    def _status(self) -> np.ndarray[Any, np.dtype[Any]]:
        return self._numbers("status")

    def _of_manifest(self, column: str) -> pa.Array:
        """Return a column of the manifest list, repeated for each entry of the manifest."""
        if column not in self._repeated:
            values = [opened.manifest[column] for opened in self._group]
            found = pa.array(values, MANIFEST_COLUMNS[column])
            self._repeated[column] = found.take(pa.array(self._owner))
        return self._repeated[column]

    def _inherited(self, column: str) -> pa.Array:
        values = self._column(column)
        if column == "snapshot_id":
            return pc.coalesce(values, self._of_manifest("added_snapshot_id"))
        if column in {"sequence_number", "file_sequence_number"}:
            return self._sequence_numbers(column, values)
        if column == "first_row_id":
            return self._first_row_ids(values)
        if column == "file_format":
            return pc.utf8_upper(values)
        if column == "file_path":
            self._reject(pc.equal(pc.binary_length(values), 0), "a file without a path")
        return values

    def _sequence_numbers(self, column: str, values: pa.Array) -> pa.Array:
        """Fill in the manifest's number for added entries without one; entries of version 1 get 0.

        Every live entry must have a data sequence number: it determines which deletes apply.
        """
        own = self._of_manifest("sequence_number")
        status = pa.array(self._status())
        inherits = pc.or_(pc.equal(status, ADDED), pc.equal(own, 0))
        filled = pc.coalesce(values, pc.if_else(inherits, own, pa.scalar(None, pa.int64())))
        if column == "sequence_number":
            live = pc.not_equal(status, DELETED)
            self._reject(pc.and_(pc.is_null(filled), live), "a live file without a sequence number")
            newer = pc.fill_null(pc.greater(filled, own), fill_value=False)
            self._reject(
                pc.and_(newer, live), "a file of a higher sequence number than the manifest's"
            )
        return filled

    def _first_row_ids(self, values: pa.Array) -> pa.Array:
        """Assign row ids to data files that have none, from the manifest's first row id on.

        If a data manifest does not have a first row id, its files do not get any, as in Iceberg Java.
        """
        live = self._status() != DELETED
        is_data = _flags(pc.equal(self._of_manifest("content"), 0))
        base = self._of_manifest("first_row_id")
        takes = live & is_data & _flags(values.is_null()) & _flags(base.is_valid())
        rows = np.where(takes, self._numbers("record_count"), 0)
        before = np.concatenate(([0], np.cumsum(rows)))
        starts = np.concatenate(([0], np.cumsum(self._counts)))[:-1]
        given = before[:-1] - before[starts][self._owner]
        numbered = pc.add(base, pa.array(given))
        none = pa.scalar(None, pa.int64())
        kept = pc.if_else(pa.array(is_data & _flags(base.is_null())), none, values)
        return pc.if_else(pa.array(takes), numbered, kept)

    def _partition_type(self) -> StructType:
        spec = _spec(self._metadata, self._spec_id, self._name)
        schemas = searched_schemas(self._metadata)
        struct_type = partition_type(spec, schemas)
        if not any(isinstance(field.field_type, UnknownType) for field in struct_type.fields):
            return struct_type
        # A column may be missing from all schemas that the table kept; the manifest contains its own schema.
        header = self._group[0].container.metadata
        struct_type = partition_type(spec, [*schemas, *_header_schemas(header, "schema")])
        return _known_types(struct_type, _header_schemas(header, "iceberg.schema"))

    def _partition(self, struct_type: StructType) -> pa.Array:
        rows = len(self._owner)
        children = []
        for field, path in zip(struct_type.fields, _partition_paths(struct_type), strict=True):
            if path not in self._layout.columns:
                children.append(pa.nulls(rows, arrow_type(field.field_type)))
                continue
            raw = one_array(self._decoded[path])
            unknown = isinstance(field.field_type, UnknownType)
            children.append(raw if unknown else from_avro(raw, field.field_type))
        names = [str(field.field_id) for field in struct_type.fields]
        types = [(n, child.type) for n, child in zip(names, children, strict=True)]
        return struct_array(children, pa.struct(types), rows)

    def _check(self) -> None:
        status, rows = self._status(), self._numbers("record_count")
        self._reject(
            pa.array((status < EXISTING) | (status > DELETED)), "an entry of unknown status"
        )
        self._reject(
            pa.array((rows < 0) | (rows > _MOST)), "a file with an impossible number of rows"
        )
        size = self._numbers("file_size_in_bytes")
        self._reject(pa.array((size < 0) | (size > _MOST)), "a file with an impossible size")
        content = self._numbers("content")
        of_manifest = self._of_manifest("content").to_numpy(zero_copy_only=False)
        fits = np.where(of_manifest == 0, content == 0, (content == 1) | (content == 2))  # noqa: PLR2004
        self._reject(pa.array(~fits), "a file whose content does not match the manifest's")
        slots = self._owner * 3 + status
        files = np.bincount(slots, minlength=3 * len(self._group))
        sums = np.zeros(3 * len(self._group), np.int64)
        np.add.at(sums, slots, rows)
        for index, opened in enumerate(self._group):
            for code, name in _COUNTS.items():
                _check_count(opened, f"{name}_files_count", int(files[3 * index + code]))
            by_status = sums[3 * index : 3 * index + 3]
            _check_live_rows(opened, int(by_status[ADDED]), int(by_status[EXISTING]))
            _check_count(opened, "deleted_rows_count", int(by_status[DELETED]))

    def _reject(self, bad: Any, reason: str) -> None:
        rejected = _flags(pc.fill_null(bad, fill_value=True) if bad.null_count else bad)
        if rejected.any():
            path = self._group[int(self._owner[int(np.argmax(rejected))])].path
            raise CorruptFileError(f"{path} contains {reason}")


def _header_schemas(header: Mapping[str, bytes], key: str) -> list[Schema]:
    with suppress(ValueError, KeyError):
        return [Schema.model_validate_json(header[key])]
    return []


def _known_types(struct_type: StructType, entries: Sequence[Schema]) -> StructType:
    """Return a partition struct with its unknown types taken from a schema of manifest entries."""
    fields = []
    for field in struct_type.fields:
        field_type = field.field_type
        if isinstance(field_type, UnknownType):
            field_type = source_type(field.field_id, entries)
        fields.append(NestedField(field.field_id, field.name, field_type, required=False))
    return StructType(*fields)


def _partition_paths(struct_type: StructType) -> list[str]:
    return [f"{PARTITION_PATH}{field.field_id}" for field in struct_type.fields]


def _spec(metadata: TableMetadata, spec_id: int, name: str) -> PartitionSpec:
    for spec in metadata.partition_specs:
        if spec.spec_id == spec_id:
            return spec
    raise CorruptFileError(f"{name} has partition spec {spec_id}, which the table does not have")


def _require(layout: Layout, paths: Sequence[str], name: str) -> None:
    missing = [path.rpartition(".")[2] for path in paths if path not in layout.columns]
    if missing:
        raise CorruptFileError(f"{name} lacks the fields with ids {', '.join(missing)}")


def _check_count(opened: Opened, column: str, count: int) -> None:
    declared = opened.manifest.get(column)
    if declared is not None and declared != count:  # check: manifest-counts
        noun = column.removesuffix("_count").replace("_", " ")
        raise CorruptFileError(
            f"{opened.path} contains {count} {noun}, but its manifest list declares {declared}"
        )


def _check_live_rows(opened: Opened, added: int, existing: int) -> None:
    """Compare the rows of live files with the manifest list.

    Some lists of PyIceberg count rows of existing files as added rows: only the sum is reliable there.
    """
    known = (opened.manifest.get("added_rows_count"), opened.manifest.get("existing_rows_count"))
    # check: live-rows-of-manifest
    if None not in known and sum(count or 0 for count in known) == added + existing:
        return
    _check_count(opened, "added_rows_count", added)
    _check_count(opened, "existing_rows_count", existing)


def _check_manifests(table: pa.Table, name: str) -> None:
    for column in (*_REQUIRED_MANIFEST, *_ABSENT_IN_V1):
        if table[column].null_count:
            raise CorruptFileError(f"{name} contains a manifest without {column}")
    counted = [column for column in table.column_names if column.endswith("_count")]
    shortest = pc.min(pc.binary_length(table["manifest_path"])).as_py()
    least = {column: pc.min(table[column]).as_py() for column in (*_NEVER_NEGATIVE, *counted)}
    impossible = [
        *(["manifest_path"] if shortest == 0 else []),
        *([] if _is_in_range(table["content"]) else ["content"]),
        *(column for column, value in least.items() if value is not None and value < 0),
    ]
    if impossible:
        raise CorruptFileError(f"{name} contains a manifest with an impossible {impossible[0]}")
    counts = table.filter(pc.not_equal(table["content"], 0)).select(
        [column for column in table.column_names if column.endswith("_files_count")]
    )
    if any(column.null_count for column in counts.columns):
        raise CorruptFileError(f"{name} contains a delete manifest without file counts")


def _is_in_range(contents: pa.ChunkedArray) -> bool:
    found = pc.min_max(contents).as_py()
    return found["min"] is None or bool(found["min"] >= 0 and found["max"] <= 1)


def _conform(column: pa.Array, data_type: pa.DataType, name: str) -> pa.Array:
    """Return a decoded column in its canonical type; only lossless differences are converted."""
    if column.type == data_type and not pa.types.is_nested(data_type):
        return column
    problem = CorruptFileError(
        f"{name} contains a field of type {column.type} instead of {data_type}"
    )
    if pa.types.is_list(data_type):
        if not pa.types.is_list(column.type):
            raise problem
        items = _conform(column.values, data_type.value_type, name)
        if _has_holes(items):
            raise CorruptFileError(f"{name} contains a list or map with a missing value")
        validity, offsets = column.buffers()[:2]
        parts = [validity, offsets]
        return pa.Array.from_buffers(
            data_type, len(column), parts, offset=column.offset, children=[items]
        )
    if pa.types.is_struct(data_type):
        if not pa.types.is_struct(column.type) or column.null_count:
            raise problem
        return _conform_struct(column, data_type, name)
    if _family(column.type) != _family(data_type):
        raise problem
    try:
        return column.cast(data_type)
    except pa.ArrowInvalid as error:
        raise problem from error


def _with_keys(maps: pa.ListArray, keys: pa.Array) -> pa.ListArray:
    """Return maps, which are lists of structs, with the entries of some keys only."""
    items = maps.values
    kept = pc.is_in(items.field("key"), value_set=keys)
    before = np.concatenate(([0], np.cumsum(_flags(kept), dtype=np.int32)))
    offsets = pa.array(before[maps.offsets.to_numpy()], pa.int32())
    return pa.ListArray.from_arrays(
        offsets,
        items.filter(kept),
        type=maps.type,
        mask=maps.is_null() if maps.null_count else None,
    )


def _has_holes(items: pa.Array) -> bool:
    if not pa.types.is_struct(items.type):
        return bool(items.null_count)
    required = [item.name for item in items.type if item.name in _REQUIRED_ITEMS]
    return any(items.field(name).null_count for name in required)


def _conform_struct(column: pa.Array, struct_type: pa.StructType, name: str) -> pa.Array:
    present = {
        ITEM_NAMES.get(item.name, item.name): column.field(item.name) for item in column.type
    }
    children = []
    for item in struct_type:
        if item.name in present:
            children.append(_conform(present[item.name], item.type, name))
        else:
            children.append(pa.nulls(len(column), item.type))
    return struct_array(children, struct_type, len(column))


def _family(data_type: pa.DataType) -> str:
    if pa.types.is_integer(data_type):
        return "integer"
    if (
        pa.types.is_string(data_type)
        or pa.types.is_string_view(data_type)
        or pa.types.is_large_string(data_type)
    ):
        return "text"
    if (
        pa.types.is_binary(data_type)
        or pa.types.is_binary_view(data_type)
        or pa.types.is_large_binary(data_type)
    ):
        return "bytes"
    return str(data_type)


def _flags(values: Any) -> np.ndarray[Any, np.dtype[np.bool_]]:
    return np.asarray(values.to_numpy(zero_copy_only=False), bool)
