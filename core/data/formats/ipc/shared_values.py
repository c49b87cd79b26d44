"""The lengths of texts that the rows of an Arrow batch share: each row gets a copy of its own in a table.

Format: https://arrow.apache.org/docs/format/Columnar.html#variable-size-binary-view-layout.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

# A view begins with the length of its text.
_VIEW = np.dtype([("length", "<i4"), ("rest", "V12")])


def longest_shared(column: pa.Array) -> int:
    """Return the bytes of the longest text that rows may share, at least 1; without texts in lists and structs.

    Args:
        column: a column that was validated.
    """
    kind = column.type
    if pa.types.is_dictionary(kind):
        return longest_shared(column.dictionary) if _is_view(kind.value_type) else _longest(column)
    if not _is_view(kind) or not len(column):
        return 1
    views = np.frombuffer(column.buffers()[1], _VIEW, len(column), column.offset * _VIEW.itemsize)
    # The length of a NULL may be any number.
    return max(int(views["length"].max()), 1)


def _longest(column: pa.DictionaryArray) -> int:
    texts = column.dictionary
    if pa.types.is_primitive(texts.type):
        return 1
    try:
        return int(pc.max(pc.binary_length(texts)).as_py() or 1)
    except pa.ArrowNotImplementedError:
        # These are not texts.
        return max(int(texts.nbytes), 1)


def _is_view(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string_view(kind) or pa.types.is_binary_view(kind))
