"""Map the columns of a file to the columns of the table.

Columns are matched by field id, whatever their names in the file are. Types are promoted; a missing column gets
its partition's value, its default or NULL. Files without ids are read with the table's name mapping, else as Iceberg
Java does: Parquet by position, other formats by name. Source:
https://iceberg.apache.org/spec/#column-projection.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, StructType, UnknownType

from lake.core.base.errors import CorruptFileError
from lake.core.data.columns.defaults import initial_column, repeat
from lake.core.data.columns.file_slice import FileSlice, ReadSettings
from lake.core.data.columns.nullability import null_in_required
from lake.core.data.columns.type_promotion import convert
from lake.core.data.keys.columns import KeyColumn, key_columns
from lake.core.spec.expressions.filters import filter_columns
from lake.core.spec.types.arrow_schema import (
    FIELD_ID,
    LAST_UPDATED,
    ROW_ID,
    arrow_field,
    arrow_schema,
    arrow_type,
    field_id,
    field_path,
)
from lake.core.spec.types.single_values import from_single_values, partition_type
from lake.core.spec.types.unsupported_columns import UNSUPPORTED, has_unsupported

# An id that is not valid for a column.
_NO_ID = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnMapping:
    """The columns that are read of one file.

    Args:
        file: the file.
        settings: how to read it.
        wanted: the columns to return and those that only the filter needs.
        keys: the columns that equality deletes compare.
        found: the file's top-level column for each of these, and for those by which row groups are skipped, by id;
            None if the file does not have it.
    """

    file: FileSlice
    settings: ReadSettings
    wanted: Sequence[NestedField]
    keys: Sequence[KeyColumn]
    found: Mapping[int, pa.Field | None]

    @classmethod
    def of(
        cls, file_schema: pa.Schema, file: FileSlice, settings: ReadSettings, key_ids: Sequence[int]
    ) -> ColumnMapping:
        """Find the columns in a file.

        Raises:
            CorruptFileError: the file has several columns of one name, or the name mapping cannot be read.
        """
        wanted = _columns_to_read(settings)
        keys = key_columns(settings.key_types, key_ids)
        tops = [*wanted, *(key.top for key in keys), *_pruning_columns(settings)]
        return cls(
            file=file,
            settings=settings,
            wanted=wanted,
            keys=keys,
            found=_resolve(file_schema, tops, settings, file),
        )

    @property
    def names(self) -> list[str]:
        """The names of the columns in the file."""
        read = [*self.wanted, *(key.top for key in self.keys)]
        found = (self.found[item.field_id] for item in read)
        return list(dict.fromkeys(item.name for item in found if item is not None))

    @property
    def need_positions(self) -> bool:
        """Whether a column depends on the positions of rows."""
        return any(item.field_id == ROW_ID for item in self.wanted)

    def shape(self, raw: pa.RecordBatch, positions: npt.NDArray[np.int64] | None) -> pa.RecordBatch:
        """Convert rows to the columns of the table.

        Args:
            raw: the rows as read from the file.
            positions: the positions of the rows in the file, if needed.

        Raises:
            CorruptFileError: a required column contains NULL, or a column has an incompatible type.
        """
        columns = []
        for item in self.wanted:
            column = self._column(item, raw)
            if item.field_id in (ROW_ID, LAST_UPDATED):
                column = _lineage(item.field_id, column, positions, self.file)
            columns.append(column)
        schema = _as_read(pa.schema([arrow_field(item) for item in self.wanted]), columns)
        shaped = pa.RecordBatch.from_arrays(columns, schema=schema)
        if name := null_in_required(shaped):
            raise CorruptFileError(f"{self.file.path} has NULL in the required column {name}")
        return shaped

    def keys_of(self, raw: pa.RecordBatch) -> pa.RecordBatch:
        """Return the columns that equality deletes compare, with ids as names."""
        schema = pa.schema(
            [(str(key.leaf.field_id), arrow_type(key.leaf.field_type)) for key in self.keys]
        )
        columns = [key.of(self._column(key.top, raw)) for key in self.keys]
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    def select(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Drop the columns and nested fields that only the filter needs."""
        projection = self.settings.projection
        target = arrow_schema(projection)
        if batch.schema.equals(_as_read(target, batch.columns), check_metadata=True):
            return batch
        columns = [
            convert(batch.column(index), item, self.file.path)
            for index, item in enumerate(projection.fields)
        ]
        return pa.RecordBatch.from_arrays(columns, schema=target)

    def _column(self, item: NestedField, raw: pa.RecordBatch) -> pa.Array:
        source = self.found[item.field_id]
        if source is None:
            return _missing(item, raw.num_rows, self.settings, self.file)
        column = raw.column(source.name)
        if item.field_id in self.settings.dictionaries and is_text_dictionary(column.type):
            return column
        return convert(column, item, self.file.path, labels=source.type)


def is_text_dictionary(kind: pa.DataType) -> bool:
    """Whether a type is that of dictionary arrays of texts as PyArrow reads them."""
    return bool(kind == pa.dictionary(pa.int32(), pa.string()))


def _as_read(schema: pa.Schema, columns: Sequence[pa.Array]) -> pa.Schema:
    """Return a schema for columns of which some are dictionary arrays."""
    return pa.schema(
        [
            item.with_type(column.type) if is_text_dictionary(column.type) else item
            for item, column in zip(schema, columns, strict=False)
        ]
    )


def _columns_to_read(settings: ReadSettings) -> list[NestedField]:
    """Return the columns of the projection and those that only the filter needs."""
    fields = list(settings.projection.fields)
    known = {item.field_id: index for index, item in enumerate(fields)}
    tested = set() if settings.row_filter is None else filter_columns(settings.row_filter)
    if settings.keys is not None and settings.keys.test is not None:
        tested |= set(settings.keys.types)
    for column in sorted(tested):
        path = field_path(settings.schema, column)
        if path is None:
            raise CorruptFileError(f"the filter's column {column} is not in the schema")
        top = path[0]
        if top.field_id not in known:
            known[top.field_id] = len(fields)
            fields.append(_readable(top))
        elif top.field_id != column:
            # A nested projection may not contain the filter's field: read the whole column.
            fields[known[top.field_id]] = _readable(top)
    return fields


def _pruning_columns(settings: ReadSettings) -> list[NestedField]:
    """Return the columns whose row-group statistics are compared with keys; they are not projected."""
    if settings.keys is None:
        return []
    return [item for item in settings.schema.fields if item.field_id in settings.keys.types]


def _readable(item: NestedField) -> NestedField:
    """Return a field without nested fields of unsupported types, which the projection does not contain."""
    kind = item.field_type
    if not isinstance(kind, StructType) or not has_unsupported(kind):
        return item
    parts = [
        _readable(part) for part in kind.fields if not isinstance(part.field_type, UNSUPPORTED)
    ]
    return item.model_copy(update={"field_type": StructType(*parts)})


def _resolve(
    file_schema: pa.Schema, wanted: Sequence[NestedField], settings: ReadSettings, file: FileSlice
) -> dict[int, pa.Field | None]:
    """Return the file's top-level field for each column to read; None if the file does not have it.

    The fields have ids by which nested fields are matched, either the file's or those of the name mapping.
    """
    if any(_has_ids(item) for item in file_schema):
        _check_ids(file_schema, wanted, file.path)
    elif settings.name_mapping:
        file_schema = with_mapped_ids(file_schema, settings.name_mapping, file.path)
    elif file.format != "PARQUET":
        # Iceberg Java matches other formats by name.
        file_schema = _by_names(file_schema, settings.schema)
    else:
        # Without ids and mapping, Iceberg Java numbers the file's columns from 1.
        file_schema = pa.schema(
            [_with_id(item, number) for number, item in enumerate(file_schema, 1)]
        )
    by_id = {field_id(item): item for item in file_schema}
    resolved = {item.field_id: by_id.get(item.field_id) for item in wanted}
    names = [item.name for item in resolved.values() if item is not None]
    if any(file_schema.get_all_field_indices(name)[1:] for name in names):
        raise CorruptFileError(f"{file.path} has several columns of one name: {', '.join(names)}")
    return resolved


def _check_ids(file_schema: pa.Schema, wanted: Sequence[NestedField], path: str) -> None:
    """Refuse impossible ids: a footer has no checksum, and a column with a wrong id would be read as NULL."""
    ids = [number for item in file_schema if (number := field_id(item)) is not None]
    if len(set(ids)) < len(ids):
        raise CorruptFileError(f"{path} has several columns of one id")
    by_name = {item.name: field_id(item) for item in file_schema}
    for item in wanted:
        if item.field_id in ids or item.name not in by_name:
            continue
        found = by_name[item.name]
        # In older files, a column that was dropped and added again has a smaller id.
        if found is None or not 0 < found < item.field_id:
            raise CorruptFileError(
                f"{path} has the column {item.name} with id {found}, but its id in the table is {item.field_id}"
            )


def _has_ids(item: pa.Field) -> bool:
    return field_id(item) is not None


def _with_id(item: pa.Field, number: int) -> pa.Field:
    return item.with_metadata({FIELD_ID: str(number).encode()})


def with_mapped_ids(file_schema: pa.Schema, text: str, path: str) -> pa.Schema:
    """Return a file's schema with the ids of the table's name mapping; -1 for a field that the mapping lacks.

    Raises:
        CorruptFileError: the mapping cannot be read.
    """
    from pyiceberg.table.name_mapping import (  # noqa: PLC0415 - door: slow, only for files without ids
        parse_mapping_from_json,
    )

    try:
        mapping = parse_mapping_from_json(text)
    except ValueError as error:
        raise CorruptFileError(
            f"{path} cannot be read, because the table's name mapping is not valid"
        ) from error
    return pa.schema([_mapped_field(item, item.name, mapping.root) for item in file_schema])


def _by_names(file_schema: pa.Schema, schema: Schema) -> pa.Schema:
    """Return a file's schema with the ids of the table's columns of the same names."""
    from pyiceberg.table.name_mapping import (  # noqa: PLC0415 - door: slow, only for files without ids
        create_mapping_from_schema,
    )

    mapping = create_mapping_from_schema(schema)
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


def _lineage(
    column: int, stored: pa.Array, positions: npt.NDArray[np.int64] | None, file: FileSlice
) -> pa.Array:
    """Fill in the values that rows inherit from their file: the row id or the last sequence number.

    Source: https://iceberg.apache.org/spec/#row-lineage. Rows of files from before the upgrade to version 3 have
    neither.
    """
    if file.first_row_id is None:
        return stored
    if column == LAST_UPDATED:
        return stored.fill_null(file.sequence_number)
    if stored.null_count == 0 or positions is None:
        return stored
    return pc.coalesce(stored, pa.array(positions + file.first_row_id))


def _missing(item: NestedField, rows: int, settings: ReadSettings, file: FileSlice) -> pa.Array:
    """Return the values of a column that the file does not have: its partition's value, its default, or NULL."""
    if isinstance(item.field_type, (UnknownType, *UNSUPPORTED)):
        return pa.nulls(rows)
    if settings.complete:
        raise CorruptFileError(
            f"{file.path} does not have column {item.name} (field id {item.field_id})"
        )
    kind = arrow_type(item.field_type)
    spec = settings.specs.get(file.spec_id)
    if spec is not None:
        schemas = [settings.schema, *([settings.key_types] if settings.key_types else [])]
        kinds = partition_type(spec, schemas).fields
        for position, part in enumerate(spec.fields):
            if part.source_id == item.field_id and str(part.transform) == "identity":
                value = from_single_values([file.partition[position]], kinds[position].field_type)
                return repeat(value.cast(kind), rows)
    if item.required and item.initial_default is None:
        raise CorruptFileError(f"{file.path} does not have the required column {item.name}")
    return initial_column(item, rows)
