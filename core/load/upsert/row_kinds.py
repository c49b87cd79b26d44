"""Parse the row kinds of a change log from a column of texts, with Flink's short or long names."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lake.core.base.errors import BadInputError
from lake.core.data.deletes.delta_writer import DELETE, INSERT, UPDATE_AFTER, UPDATE_BEFORE, Kinds

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
# The usual spellings, which are found without folding case.
_EXACT = {**_NAMES, **{name.upper(): kind for name, kind in _NAMES.items()}}
# The kinds, in lower case, of rows that are written to the table.
WRITTEN = tuple(name for name, kind in _NAMES.items() if kind in {INSERT, UPDATE_AFTER})
UNKNOWN = -1
_SHOWN = 40


def row_kinds(column: pa.Array) -> Kinds:
    """Return the kind of each row; `UNKNOWN` for NULL or a text that is not a row kind."""
    names = pa.array(_EXACT)
    indices = pc.index_in(column, names)
    if indices.null_count:
        # Other spellings are rare, and folding all texts takes longer than finding them.
        indices = pc.index_in(pc.utf8_lower(pc.utf8_trim_whitespace(column)), names)
    numbers = np.array([*_EXACT.values(), UNKNOWN], np.int8)
    kinds: Kinds = numbers[pc.fill_null(indices, len(_EXACT)).to_numpy()]
    return kinds


def unknown_kind(value: str | None, name: str, where: str, row: str) -> BadInputError:
    """Return the error for a row whose kind is unknown."""
    text = "NULL" if value is None else repr(value[:_SHOWN])
    return BadInputError(
        f"{where} has {text} in the column {name}, which must contain the row kind{row}",
        hint="valid kinds are +I, -U, +U and -D, or INSERT, UPDATE_BEFORE, UPDATE_AFTER and DELETE",
    )
