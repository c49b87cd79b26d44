"""PyArrow without pandas, Arrow columns as single arrays, and the types of NumPy's arrays."""

from __future__ import annotations

import os
import struct
import sys
from collections.abc import Iterable, Mapping
from functools import reduce
from importlib.abc import MetaPathFinder
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Int64s = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.uint8]
# The parts of an object that was read whole begin at any address, about which Arrow would print a warning.
os.environ.setdefault("ACERO_ALIGNMENT_HANDLING", "reallocate")


def one_array(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return a column as one array, copied only if it has several chunks.

    Parts of extension types, and strings of over 2 GiB in total, do not fit in one array: the caller limits both.
    """
    if not isinstance(column, pa.ChunkedArray):
        return column
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def struct_field(column: Any, name: str) -> Any:
    """Return a field of structs; NULL where the struct is.

    PyArrow would take a name that begins with a dot for a path to another field.
    """
    return pc.struct_field(column, [column.type.get_field_index(name)])


def nested_field(column: Any, names: Iterable[str]) -> Any:
    """Return a field inside structs by the names below the column; NULL where one of the structs is."""
    return reduce(struct_field, names, column)


def is_list(kind: pa.DataType) -> bool:
    """Whether the type is one of Arrow's list types, of any layout."""
    types = pa.types
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def release_memory() -> None:
    """Return free memory to the system: that of Arrow's allocator, and that of the C library's."""
    pa.default_memory_pool().release_unused()
    # With glibc, this calls `malloc_trim`.
    pa.system_memory_pool().release_unused()


def one_row(schema: pa.Schema, values: Mapping[str, Any]) -> pa.RecordBatch:
    """Return a row of columns that are integers of 32 bits, texts or bytes; a missing value is NULL.

    PyArrow's own conversion of Python values imports pandas: a quarter of a second in each worker of Spark.
    """
    columns = [_cell(values.get(field.name), field.type) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _cell(value: Any, kind: pa.DataType) -> pa.Array:
    """Return an array of one value: an integer of 32 bits, text, bytes, or None."""
    validity = pa.py_buffer(b"\0") if value is None else None
    if pa.types.is_int32(kind):
        buffers = [validity, pa.py_buffer(struct.pack("=i", value or 0))]
    else:
        data = value.encode() if isinstance(value, str) else value or b""
        offsets = struct.pack("=ii", 0, len(data))
        buffers = [validity, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(kind, 1, buffers)


class _Absent(MetaPathFinder):
    """Reports that pandas is not installed."""

    def find_spec(self, name: str, *_: object) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def keep_pandas_out() -> None:
    """Make PyArrow search for pandas now, and not find it; if pandas is already imported, do nothing.

    `lake` does not use pandas, and its import takes 0.3 s. PyArrow searches for pandas once, when it first makes an
    array of Python objects. If it does not find pandas then, it imports it only for a conversion to pandas. Source:
    pandas-shim.pxi and helpers.cc of PyArrow.
    """
    if "pandas" in sys.modules:
        return
    absent = _Absent()
    sys.meta_path.insert(0, absent)
    try:
        # Both PyArrow's Python part and its C++ part search now.
        pa.array([None])
    finally:
        sys.meta_path.remove(absent)
