"""Compare the columns of an existing Parquet file with a table's schema, more strictly than a reader does.

Every engine must read the file as the table's: all of its columns are known by id and name, and have a type that
Iceberg can promote. Source: https://iceberg.apache.org/spec/#schema-evolution and #column-projection.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyiceberg.types import (
    DoubleType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StructType,
    TimestampType,
    TimestamptzType,
    UUIDType,
)

from lake.core.base.arrow import is_list
from lake.core.base.errors import CorruptFileError, RefusedError
from lake.core.data.columns.column_mapping import with_mapped_ids
from lake.core.data.columns.int96 import Int96Type
from lake.core.data.columns.metrics import Leaf
from lake.core.spec.types.arrow_schema import field_id, parts_of
from lake.core.spec.types.arrow_types import primitive_type
from lake.core.spec.types.type_text import type_text

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

_LOAD = "load its rows with `lake ingest` instead"


@dataclass(frozen=True, slots=True)
class FileLeaf:
    """A Parquet column of a file.

    Args:
        position: its index in the file.
        leaf: the table's column.
        exact: whether the values of its statistics are the column's.
    """

    position: int
    leaf: Leaf
    exact: bool


@dataclass(frozen=True, slots=True)
class FileColumns:
    """The columns of a file that was compared with a table's schema.

    Args:
        leaves: its Parquet columns, in order.
        has_ids: whether the file itself has field ids.
        tops: the ids of the table's top-level columns that it has.
        unproven: required fields of the table that the file declares as optional: their names, each with the
            positions of the Parquet columns of which one without NULL shows that the field has none.
    """

    leaves: Sequence[FileLeaf]
    has_ids: bool
    tops: frozenset[int]
    unproven: Sequence[tuple[str, Sequence[int]]]


def field_names(metadata: TableMetadata) -> dict[int, frozenset[str]]:
    """Return the names that each field has or had in a schema of the table, by field id."""
    found: dict[int, set[str]] = {}
    for schema in [*metadata.schemas, metadata.schema()]:
        for item in _fields_below(schema.fields):
            found.setdefault(item.field_id, set()).add(item.name)
    return {number: frozenset(names) for number, names in found.items()}


def _fields_below(fields: Sequence[NestedField]) -> Iterator[NestedField]:
    for item in fields:
        yield item
        yield from _fields_below(parts_of(item.field_type))


def compare_columns(
    file_schema: pa.Schema,
    fields: Sequence[NestedField],
    names: Mapping[int, frozenset[str]],
    mapping: str,
    path: str,
    elsewhere: Collection[str] = (),
) -> FileColumns:
    """Find the table's column for every column of a file.

    Args:
        file_schema: the file's schema as PyArrow reads it.
        fields: the table's top-level columns.
        names: see `field_names`.
        mapping: the name mapping for a file without field ids.
        path: the file's name, for errors.
        elsewhere: the top-level columns whose values the file's partition contains.

    Raises:
        RefusedError: a column is not the table's, or a required column is missing.
        CorruptFileError: the file has several columns of one name or id, or the mapping cannot be read.
    """
    plain = pa.schema([item.with_type(_stored(item.type)) for item in file_schema])
    numbered = [field_id(item) is not None for item in _below(list(plain))]
    if any(numbered) and not all(numbered):
        raise RefusedError(f"{path} has field ids for some of its columns only", hint=_LOAD)
    has_ids = any(numbered)
    labelled = plain if has_ids else with_mapped_ids(plain, mapping, path)
    compared = _Comparison(path, names if has_ids else {}, elsewhere, has_ids=has_ids)
    compared.compare(list(labelled), fields, ())
    return FileColumns(
        leaves=compared.leaves,
        has_ids=has_ids,
        tops=frozenset(number for item in labelled if (number := field_id(item)) is not None),
        unproven=compared.unproven,
    )


@dataclass(slots=True)
class _Comparison:
    """Compares fields in the order in which Parquet stores their columns."""

    path: str
    names: Mapping[int, frozenset[str]]
    elsewhere: Collection[str]
    has_ids: bool
    leaves: list[FileLeaf] = field(default_factory=list)
    unproven: list[tuple[str, Sequence[int]]] = field(default_factory=list)
    _position: int = 0

    def compare(
        self,
        found: Sequence[pa.Field],
        fields: Sequence[NestedField],
        parent: tuple[str, ...],
        *,
        repeated: bool = False,
    ) -> None:
        """Compare the fields of a struct or schema."""
        by_id = {item.field_id: item for item in fields}
        ids = [field_id(item) for item in found]
        shown = [".".join((*parent, item.name)) for item in found]
        for values, what in ((ids, "id"), (shown, "name")):
            known = [value for value in values if what == "name" or value in by_id]
            if len(set(known)) < len(known):
                raise CorruptFileError(f"{self.path} has several columns of one {what}")
        for item, number, name in zip(found, ids, shown, strict=True):
            wanted = by_id.get(-1 if number is None else number)
            if wanted is None:
                where = (
                    f"id {number} is not a column's"
                    if self.has_ids
                    else "its name mapping lacks it"
                )
                raise RefusedError(
                    f"{self.path} has the column {name}, which the table does not have ({where})",
                    hint=f"add the column with `lake alter` and to the table's name mapping, or {_LOAD}",
                )
            if self.has_ids and item.name not in self.names.get(wanted.field_id, frozenset()):
                raise RefusedError(
                    f"{self.path} has the column {name} with field id {number}, which is the table's column "
                    f"{wanted.name}: its ids are another table's",
                    hint=_LOAD,
                )
            self._one(item, wanted, parent, repeated=repeated)
        for wanted in fields:
            name = ".".join((*parent, wanted.name))
            is_known = wanted.field_id in ids or name in self.elsewhere
            if wanted.required and not is_known and wanted.initial_default is None:
                raise RefusedError(f"{self.path} does not have the required column {name}")

    def _one(
        self, found: pa.Field, wanted: NestedField, parent: tuple[str, ...], *, repeated: bool
    ) -> None:
        start, here = self._position, (*parent, wanted.name)
        kind, source = wanted.field_type, found.type
        if isinstance(kind, StructType) and pa.types.is_struct(source):
            self.compare(list(source), kind.fields, here, repeated=repeated)
        elif isinstance(kind, ListType) and pa.types.is_list(source):
            self._part(source.value_field, kind.element_field, here)
        elif isinstance(kind, MapType) and pa.types.is_map(source):
            self._part(source.key_field, kind.key_field, here)
            self._part(source.item_field, kind.value_field, here)
        elif kind.is_primitive and _reads_as(source, kind):
            leaf = Leaf(wanted.field_id, kind, here, repeated)  # type: ignore[arg-type]
            self.leaves.append(FileLeaf(self._position, leaf, _has_bounds_of(source, kind)))
            self._position += 1
        else:
            raise RefusedError(
                f"column {'.'.join(here)} of {self.path} has type {type_text(source)}, which Iceberg does not read "
                f"as {type_text(kind)}",
                hint=_LOAD,
            )
        if wanted.required and found.nullable:
            self.unproven.append((".".join(here), range(start, self._position)))

    def _part(self, found: pa.Field, wanted: NestedField, parent: tuple[str, ...]) -> None:
        number = field_id(found)
        if number != wanted.field_id:
            raise RefusedError(
                f"the part {wanted.name} of column {'.'.join(parent)} of {self.path} has the field id {number}, "
                f"and {wanted.field_id} in the table",
                hint="correct the table's name mapping" if not self.has_ids else _LOAD,
            )
        self._one(found, wanted, parent, repeated=True)


def _below(fields: Sequence[pa.Field]) -> Iterator[pa.Field]:
    for item in fields:
        yield item
        yield from _below(_children(item.type))


def _children(kind: pa.DataType) -> list[pa.Field]:
    if pa.types.is_map(kind):
        return [kind.key_field, kind.item_field]
    if pa.types.is_struct(kind) or pa.types.is_list(kind):
        return [kind.field(index) for index in range(kind.num_fields)]
    return []


def _stored(kind: Any) -> pa.DataType:
    """Return the type that Parquet stores for an Arrow type, which a file's Arrow schema may restore differently."""
    types = pa.types
    if isinstance(kind, pa.BaseExtensionType):
        return (
            kind if isinstance(kind, Int96Type) or kind == pa.uuid() else _stored(kind.storage_type)
        )
    if types.is_dictionary(kind):
        return _stored(kind.value_type)
    if types.is_struct(kind):
        return pa.struct([item.with_type(_stored(item.type)) for item in kind])
    if types.is_map(kind):
        key, value = (
            item.with_type(_stored(item.type)) for item in (kind.key_field, kind.item_field)
        )
        return pa.map_(key, value)
    if is_list(kind):
        return pa.list_(kind.value_field.with_type(_stored(kind.value_type)))
    if types.is_large_string(kind) or types.is_string_view(kind):
        return pa.string()
    if types.is_large_binary(kind) or types.is_binary_view(kind):
        return pa.binary()
    if types.is_timestamp(kind) and kind.tz is not None:
        return pa.timestamp(kind.unit, "UTC")
    if types.is_date64(kind):
        return pa.date32()
    if types.is_decimal32(kind) or types.is_decimal64(kind):
        return pa.decimal128(kind.precision, kind.scale)
    return kind


def _reads_as(source: pa.DataType, kind: IcebergType) -> bool:
    """Whether every reader of Iceberg reads a file's type as a table's primitive type."""
    types = pa.types
    if isinstance(source, Int96Type):
        return isinstance(kind, TimestampType | TimestamptzType)
    if isinstance(kind, UUIDType) or source == pa.uuid():
        return isinstance(kind, UUIDType) and bool(source == pa.uuid())
    target = primitive_type(kind)
    if target is None or types.is_null(target):
        return False
    if source == target:
        return True
    if isinstance(kind, IntegerType | LongType):
        return bool(types.is_signed_integer(source)) and source.bit_width <= target.bit_width
    if isinstance(kind, DoubleType):
        return bool(types.is_float32(source))
    if types.is_decimal(target):
        same = types.is_decimal128(source) and source.scale == target.scale
        return bool(same and source.precision <= target.precision)
    if isinstance(kind, TimestampType | TimestamptzType) and types.is_timestamp(source):
        return source.unit in {"s", "ms"} and (source.tz is None) == (target.tz is None)
    return False


def _has_bounds_of(source: pa.DataType, kind: IcebergType) -> bool:
    """Whether the statistics of a file's type contain the same numbers or bytes as bounds of a table's type."""
    if isinstance(source, Int96Type):
        return False
    return not pa.types.is_timestamp(source) or bool(source == primitive_type(kind))
