"""Which columns of a file are encoded by a dictionary, and dictionary arrays that the writer takes as they are."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

# Larger dictionaries take longer to combine than to write their values.
_COMBINED_BYTES = 8 * 1024 * 1024
# The values of a large row group that are looked at. With fewer rows, a dictionary costs little.
_SAMPLED = 32 * 1024
_FEWEST_ROWS = 4 * _SAMPLED
_NOT_SAMPLED = (pa.DictionaryType, pa.BaseExtensionType)
_PRIME = 2_654_435_761
# A dictionary of values that repeat less often does not make a compressed file smaller.
_LEAST_REPEATED = 8


def poor_dictionaries(table: pa.Table, most_bytes: int) -> Iterator[str]:
    """Yield the columns whose values repeat too rarely for a dictionary.

    Arrow's writer looks up each value until the dictionary is too large, and then writes the rest as values. That
    takes longer than all else that it does with the column, and the file is not smaller.

    Args:
        table: the rows of a row group; nested columns are not looked at.
        most_bytes: the most bytes of a dictionary.
    """
    rows = table.num_rows
    if rows < _FEWEST_ROWS:
        return
    # Neighbours are often equal, and rows at equal distances may be.
    places = pa.array(np.unique(np.arange(_SAMPLED, dtype=np.int64) * _PRIME % rows))
    for name, column in zip(table.column_names, table.columns, strict=True):
        if pa.types.is_nested(column.type) or isinstance(column.type, _NOT_SAMPLED):
            continue
        sampled = column.take(places).drop_null()
        if not sampled:
            continue
        values = rows * len(sampled) / len(places)
        distinct = _distinct(len(sampled), len(sampled.unique()), values)
        value_bytes = sampled.nbytes / len(sampled)
        if distinct * _LEAST_REPEATED > values or distinct * value_bytes > most_bytes:
            yield name


def _distinct(sampled: int, distinct: int, most: float) -> float:
    """Estimate the number of distinct values by those of a sample, as if all were equally frequent."""
    least = float(distinct)
    # A number of values gives more distinct ones in a sample the larger it is.
    for _ in range(32):
        middle = (least + most) / 2
        if middle * -np.expm1(-sampled / middle) < distinct:
            least = middle
        else:
            most = middle
    return least


def with_one_dictionary(column: pa.ChunkedArray, most_bytes: int) -> pa.ChunkedArray | None:
    """Return a column of dictionary arrays with one dictionary; None if that would be too large."""
    if sum(chunk.dictionary.nbytes for chunk in column.chunks) > _COMBINED_BYTES:
        return None
    column = _used(column.unify_dictionaries())
    is_small = not column.num_chunks or column.chunk(0).dictionary.nbytes <= most_bytes
    return column if is_small else None


def _used(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column with one dictionary without the entries that no row has: all of them would be written."""
    if not column.num_chunks:
        return column
    entries = column.chunk(0).dictionary
    has_rows = np.zeros(len(entries), np.bool_)
    for chunk in column.chunks:
        has_rows[chunk.indices.drop_null().to_numpy()] = True
    if has_rows.all():
        return column
    places = pa.array(np.cumsum(has_rows, dtype=np.int32) - 1, pa.int32())
    kept = entries.filter(pa.array(has_rows))
    return pa.chunked_array(
        [
            pa.DictionaryArray.from_arrays(places.take(chunk.indices), kept)
            for chunk in column.chunks
        ]
    )
