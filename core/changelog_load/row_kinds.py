"""What the rows of a change log do, out of a column of texts as Flink names them, short or long."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lake.core.deletes.delta_writer import DELETE, INSERT, UPDATE_AFTER, UPDATE_BEFORE, Kinds
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
UNKNOWN = -1
_SHOWN = 40


def row_kinds(column: pa.Array) -> Kinds:
    """Return the kind of each row; `UNKNOWN` for a text, or NULL, that names none."""
    folded = pc.utf8_lower(pc.utf8_trim_whitespace(column))
    found = pc.index_in(folded, pa.array(_NAMES))
    numbers = np.array([*_NAMES.values(), UNKNOWN], np.int8)
    kinds: Kinds = numbers[pc.fill_null(found, len(_NAMES)).to_numpy()]
    return kinds


def unknown_kind(value: str | None, name: str, where: str, row: str) -> BadInputError:
    """Return the error for a row of no known kind.

    Args:
        value: what the row has in place of a kind.
        name: the column's.
        where: what it was read from.
        row: the row as text.
    """
    said = "NULL" if value is None else repr(value[:_SHOWN])
    return BadInputError(
        f"{where} has {said} in the column {name}, which tells what a row does{row}",
        hint="+I, -U, +U and -D are known, or INSERT, UPDATE_BEFORE, UPDATE_AFTER and DELETE",
    )
