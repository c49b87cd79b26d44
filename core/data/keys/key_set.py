"""Sets of keys by which files, row groups and rows of a table are chosen: distinct tuples as Arrow columns.

A key that contains NULL equals nothing, and is not in a set. NaN equals NaN, and -0.0 equals 0.0.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, reduce
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, PrimitiveType, UnknownType

from lake.core.base.arrow import one_array
from lake.core.base.errors import InvalidRequestError
from lake.core.spec.types.arrow_schema import schema_from_plain, schema_to_plain
from lake.core.spec.types.bounds import comparable
from lake.core.spec.types.single_values import arrow_type, source_type

if TYPE_CHECKING:
    from pyiceberg.types import IcebergType

# The size of the length of a text or binary value, as in a network protocol.
_LENGTH_BYTES = 4
_HEADER = b"lake.keys"
# Without a limit, repeated keys are first removed from this many bytes.
_FIRST_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class ColumnValues:
    """The values of one column of a set of keys, in `comparable` form.

    Args:
        values: the distinct values, ascending, without NaN; if the set is not exact, the least and the greatest.
        has_nan: whether NaN is one of the values.
    """

    values: pa.Array
    has_nan: bool


@dataclass(frozen=True)
class KeySet:
    """Keys of a table's columns.

    Args:
        types: the columns' types, by field id, in the order of the key.
        rows: the distinct keys, one column per column of the key, named by field ids; if the set is not exact, a row
            with each column's least and one with its greatest value.
        exact: whether the set contains all keys. If not, only their ranges are known.
        nans: the columns of a set that is not exact that contain NaN.
    """

    types: Mapping[int, IcebergType]
    rows: pa.Table
    exact: bool = True
    nans: frozenset[int] = frozenset()

    def __len__(self) -> int:
        return int(self.rows.num_rows)

    @property
    def ids(self) -> tuple[int, ...]:
        """The columns of the key."""
        return tuple(self.types)

    @property
    def size_bytes(self) -> int:
        """The bytes of the keys' values (see `key_bytes`)."""
        return key_bytes(self.rows)

    @cached_property
    def columns(self) -> Mapping[int, ColumnValues]:
        """The values of each column."""
        return {column: _column_values(self, column, kind) for column, kind in self.types.items()}

    @cached_property
    def ranks(self) -> npt.NDArray[np.int64] | None:
        """The keys as ranks of their values: (columns, keys), ordered by the first column.

        None if a key contains NaN, which has no rank.
        """
        if any(column.has_nan for column in self.columns.values()):
            return None
        found = []
        for column, kind in self.types.items():
            values = comparable(one_array(self.rows[str(column)]), kind)
            index = pc.index_in(values, value_set=self.columns[column].values)
            found.append(index.to_numpy(zero_copy_only=False).astype(np.int64))
        ranks = np.stack(found)
        return ranks[:, np.argsort(ranks[0], kind="stable")]

    def to_bytes(self) -> bytes:
        """Return the set as an Arrow stream, to send it to tasks."""
        fields = [NestedField(column, str(column), kind) for column, kind in self.types.items()]
        header = {
            "types": schema_to_plain(Schema(*fields)),
            "exact": self.exact,
            "nans": sorted(self.nans),
        }
        sink = pa.BufferOutputStream()
        schema = self.rows.schema.with_metadata({_HEADER: json.dumps(header).encode()})
        with pa.ipc.new_stream(sink, schema) as stream:
            stream.write_table(self.rows.replace_schema_metadata(schema.metadata))
        return bytes(sink.getvalue())

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Rebuild a set from `to_bytes`'s result."""
        rows = pa.ipc.open_stream(data).read_all()
        header = json.loads(rows.schema.metadata[_HEADER])
        fields = schema_from_plain(header["types"]).fields
        return cls(
            types={item.field_id: item.field_type for item in fields},
            rows=rows.replace_schema_metadata(None),
            exact=header["exact"],
            nans=frozenset(header["nans"]),
        )


def _column_values(keys: KeySet, column: int, kind: IcebergType) -> ColumnValues:
    values = comparable(one_array(keys.rows[str(column)]), kind).drop_null()
    has_nan = column in keys.nans
    if pa.types.is_floating(values.type):
        nan = pc.is_nan(values)
        has_nan = has_nan or bool(pc.any(nan).as_py())
        values = values.filter(pc.invert(nan))
    if pa.types.is_integer(values.type) or pa.types.is_floating(values.type):
        return ColumnValues(_ascending(values), has_nan)
    if len(keys.types) > 1 or not keys.exact:
        values = pc.unique(values)
    return ColumnValues(values.take(pc.sort_indices(values)), has_nan)


def _ascending(values: pa.Array) -> pa.Array:
    """Return the distinct values of numbers without NULL and NaN.

    NumPy sorts numbers 20 times as fast as Arrow. `np.unique` is slower than both, because it hashes them.
    """
    given = values.to_numpy()
    if (given[1:] > given[:-1]).all():
        # A copy would double the memory of a set, whose keys are distinct and ascending.
        return values
    ordered = np.sort(given)
    first = np.ones(len(ordered), np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    return pa.array(ordered[first], values.type)


def is_key_type(kind: IcebergType) -> bool:
    """Whether keys may have columns of a type."""
    return isinstance(kind, PrimitiveType) and not (
        isinstance(kind, UnknownType) or pa.types.is_null(arrow_type(kind))
    )


def key_types(schema: Schema, ids: Sequence[int]) -> dict[int, IcebergType]:
    """Return the types of columns by field id."""
    return {column: source_type(column, [schema]) for column in ids}


def normal_keys(columns: Sequence[pa.Array], types: Mapping[int, IcebergType]) -> pa.RecordBatch:
    """Return columns of rows as keys, such that equal keys have equal bits."""
    arrays = [
        _normal(column, arrow_type(kind))
        for column, kind in zip(columns, types.values(), strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, names=[str(column) for column in types])


def _normal(column: pa.Array, kind: pa.DataType) -> pa.Array:
    values = column.storage if isinstance(column, pa.ExtensionArray) else column
    values = values if values.type == kind else values.cast(kind)
    if not pa.types.is_floating(kind):
        return values
    nan, zero = pa.scalar(float("nan"), kind), pa.scalar(0.0, kind)
    return pc.if_else(pc.is_nan(values), nan, pc.add(values, zero))


def without_nulls(keys: pa.RecordBatch) -> pa.RecordBatch:
    """Return the keys that do not contain NULL."""
    if not any(column.null_count for column in keys.columns):
        return keys
    return keys.filter(reduce(pc.and_, [column.is_valid() for column in keys.columns]))


def distinct(keys: pa.Table) -> pa.Table:
    """Return the distinct rows of keys without NULL."""
    if keys.num_columns == 1:
        column = one_array(keys.column(0))
        values = _ascending(column) if pa.types.is_integer(column.type) else pc.unique(column)
        return pa.Table.from_arrays([values], schema=keys.schema)
    return keys.group_by(keys.column_names, use_threads=False).aggregate([])


def key_bytes(keys: pa.Table | pa.RecordBatch) -> int:
    """Return the bytes of the keys' values: of texts and binaries, their lengths and 4 for each."""
    return sum(_value_bytes(column) for column in keys.columns)


def _value_bytes(column: pa.Array | pa.ChunkedArray) -> int:
    kind = column.type
    if pa.types.is_boolean(kind):
        return len(column)
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return int(pc.sum(pc.binary_length(column)).as_py() or 0) + _LENGTH_BYTES * len(column)
    return int(kind.bit_width // 8) * len(column)


@dataclass
class KeyCollector:
    """Collects keys until they have more bytes than a limit; keeps the range of each column in any case.

    Args:
        types: the columns of the key.
        limit_bytes: the most `key_bytes` of the distinct keys; 0 for no limit.
        spill: receives all keys if there are too many.
    """

    types: Mapping[int, IcebergType]
    limit_bytes: int
    spill: Callable[[pa.RecordBatch], None] | None = None
    overflowed: bool = field(default=False, init=False)
    size_bytes: int = field(default=0, init=False)
    _kept: list[Any] = field(default_factory=list, init=False)
    _waiting_bytes: int = field(default=0, init=False)
    _ranges: list[Any] = field(default_factory=list, init=False)
    _nans: set[int] = field(default_factory=set, init=False)

    def __post_init__(self) -> None:
        if self.limit_bytes < 0:
            raise InvalidRequestError(f"the limit of keys must not be negative: {self.limit_bytes}")

    def add(self, keys: pa.RecordBatch) -> None:
        """Add keys from `normal_keys` without NULL."""
        if not keys.num_rows:
            return
        self._add_range(keys)
        if self.overflowed and self.spill is None:
            return
        found = pa.Table.from_batches([keys])
        if self.overflowed:
            self._give_up([distinct(found)])
            return
        self._kept.append(found)
        self._waiting_bytes += key_bytes(found)
        most = max(2 * self.size_bytes, self.limit_bytes or _FIRST_BYTES)
        if self._waiting_bytes > most:
            self._settle()

    def _settle(self) -> None:
        """Remove repeated keys; give the set up if it is too large."""
        if self._kept:
            self._kept = [distinct(pa.concat_tables(self._kept))]
            self._waiting_bytes = self.size_bytes = key_bytes(self._kept[0])
        if self.limit_bytes and self.size_bytes > self.limit_bytes:
            self._give_up(self._kept)
            self.overflowed, self._kept = True, []

    def _give_up(self, parts: Sequence[pa.Table]) -> None:
        if self.spill is not None:
            for batch in pa.concat_tables(parts).to_batches() if parts else ():
                self.spill(batch)

    def _add_range(self, keys: pa.RecordBatch) -> None:
        columns = []
        for name, column in zip(keys.schema.names, keys.columns, strict=True):
            values = column
            if pa.types.is_floating(column.type):
                nan = pc.is_nan(column)
                if pc.any(nan).as_py():
                    self._nans.add(int(name))
                    values = column.filter(pc.invert(nan))
            # The ends of an array without values are NULL.
            columns.append(_ends(pc.min_max(values)))
        self._ranges.append(pa.RecordBatch.from_arrays(columns, schema=keys.schema))

    def finish(self) -> KeySet:
        """Return the keys; if there are too many, their ranges."""
        if not self.overflowed:
            self._settle()
        if self.overflowed:
            return ranges_of([pa.Table.from_batches(self._ranges)], self.types, self._nans)
        schema = pa.schema([(str(column), arrow_type(kind)) for column, kind in self.types.items()])
        rows = self._kept[0] if self._kept else schema.empty_table()
        return KeySet(self.types, rows.combine_chunks())


def _ends(ends: pa.StructScalar) -> pa.Array:
    """Return the least and the greatest value as an array."""
    return pa.concat_arrays([pa.repeat(ends[name], 1) for name in ("min", "max")])


def ranges_of(
    parts: Sequence[pa.Table], types: Mapping[int, IcebergType], nans: set[int] | None = None
) -> KeySet:
    """Return the range of each column of some keys."""
    whole = pa.concat_tables(parts)
    columns = [_ends(pc.min_max(whole[name])) for name in whole.column_names]
    rows = pa.Table.from_arrays(columns, schema=whole.schema)
    return KeySet(types, rows, exact=False, nans=frozenset(nans or ()))
