"""What the rows of a change log do, out of a column of texts as Flink names them, short or long."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lake.core.deletes.delta import DELETE, INSERT, UPDATE_AFTER, UPDATE_BEFORE, Kinds
from lake.core.errors import BadInputError

_NAMES = {
    "+i": INSERT,
    "-u": UPDATE_BEFORE,
    "+u": UPDATE_AFTER,
    "-d": DELETE,
    "insert": INSERT,
    "update_before": UPDATE_BEFORE,
    "update_after": UPDATE_AFTER,
    "delete": DELETE,
}
_SHOWN = 40


def row_kinds(column: pa.Array, name: str, where: str) -> Kinds:
    """Return the kind of each row.

    Args:
        column: texts.
        name: the column's, for errors.
        where: what it was read from, for errors.

    Raises:
        BadInputError: a text names no kind.
    """
    folded = pc.utf8_lower(pc.utf8_trim_whitespace(column))
    found = pc.index_in(folded, pa.array(_NAMES))
    if found.null_count:
        value = column.filter(found.is_null())[0].as_py()
        said = "NULL" if value is None else repr(value[:_SHOWN])
        raise BadInputError(
            f"{where} has {said} in the column {name}, which tells what a row does",
            hint="+I, -U, +U and -D are known, or INSERT, UPDATE_BEFORE, UPDATE_AFTER and DELETE",
        )
    kinds: Kinds = np.array(list(_NAMES.values()), np.int8)[found.to_numpy()]
    return kinds
