"""The rows of a change log: divided into rows of the table and their kinds, and checked."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, StringType

from lake.core.base.errors import BadInputError
from lake.core.data.columns.defaults import without_write_defaults
from lake.core.data.columns.nullability import null_in_required
from lake.core.data.columns.text_encoding import json_lines
from lake.core.data.deletes.delta_writer import (
    DELETE,
    INSERT,
    UPDATE_AFTER,
    UPDATE_BEFORE,
    Kinds,
)
from lake.core.load.upsert.row_kinds import UNKNOWN, row_kinds, unknown_kind
from lake.core.spec.types.arrow_schema import arrow_schema

# The number of characters of a row in a message.
_SHOWN = 200


@dataclass(frozen=True, slots=True)
class Known:
    """The changes of a batch that have an effect.

    Args:
        rows: the rows of the table.
        kinds: the kind of each.
        ignored: the number of rows of kind -D that were left out.
    """

    rows: pa.RecordBatch
    kinds: Kinds
    ignored: int

    @property
    def inserts(self) -> npt.NDArray[np.bool_]:
        """Which rows are added."""
        mask: npt.NDArray[np.bool_] = (self.kinds == INSERT) | (self.kinds == UPDATE_AFTER)
        return mask


class ChangeRows:
    """Divides batches of a change log into rows and kinds.

    Args:
        schema: the table's.
        kinds: the column with the row kind; it is the last one of a batch.
        key: ids of the key's columns; a missing key is not replaced by a default value.
        by_key: whether rows replace each other by key: rows of kind -U have no effect, and a row of kind -D may
            have the key only.
        ignore_deletes: whether rows of kind -D are left out.
        also: ids of other columns in which a missing value is not replaced by a default value.
    """

    def __init__(
        self,
        schema: Schema,
        kinds: str,
        key: list[int],
        *,
        by_key: bool,
        ignore_deletes: bool,
        also: tuple[int, ...] = (),
    ) -> None:
        self._kinds = kinds
        self._by_key = by_key
        self._ignore_deletes = ignore_deletes
        self._columns = arrow_schema(schema)
        # The schema for reading.
        self.schema = source_schema(without_write_defaults(schema, [*key, *also]), kinds)

    def known(self, batch: pa.RecordBatch, where: str) -> Known:
        """Return the rows of a batch and their kinds, without those that have no effect.

        Raises:
            BadInputError: the kind of a row is not known, or a row has NULL in a required column.
        """
        *columns, texts = batch.columns
        kinds = row_kinds(texts)
        for index in np.flatnonzero(kinds == UNKNOWN):
            row = self.shown(batch, int(index))
            raise unknown_kind(texts[index].as_py(), self._kinds, where, row)
        rows = pa.RecordBatch.from_arrays(columns, schema=self._columns)
        ignored = 0
        if self._ignore_deletes:
            ignored = int(np.count_nonzero(kinds == DELETE))
            rows, kinds = _where(kinds != DELETE, rows, kinds)
        if self._by_key:
            rows, kinds = _where(kinds != UPDATE_BEFORE, rows, kinds)
        found = Known(rows, kinds, ignored)
        whole, missing = rows, null_in_required(rows)
        if missing and self._by_key:
            # A delete of an upsert may have the key only.
            whole = rows.filter(pa.array(found.inserts))
            missing = null_in_required(whole)
        if missing:
            row = self.shown(whole, _first_with_null(whole))
            raise BadInputError(f"{where} has NULL in the required column {missing}{row}")
        return found

    def shown(self, rows: pa.RecordBatch, index: int) -> str:
        """Return a row as the end of a message; empty if it cannot be written as text."""
        schema = self.schema.select(*rows.schema.names)
        try:
            lines = json_lines(rows.slice(index, 1), schema)
        except BadInputError:
            return ""
        return f", in the row {lines[0].as_py().strip()[:_SHOWN]}"


def _where(
    chosen: npt.NDArray[np.bool_], rows: pa.RecordBatch, kinds: Kinds
) -> tuple[pa.RecordBatch, Kinds]:
    if chosen.all():
        return rows, kinds
    return rows.filter(pa.array(chosen)), kinds[chosen]


def _first_with_null(rows: pa.RecordBatch) -> int:
    """Return the index of the first row with NULL in a required column; there must be one."""

    def is_within(last: int) -> bool:
        return null_in_required(rows.slice(0, last + 1)) is not None

    return bisect_left(range(rows.num_rows), True, key=is_within)  # noqa: FBT003 - the value searched for


def source_schema(schema: Schema, kinds: str) -> Schema:
    """Return the columns of a change log, all optional: a row that is deleted by key may lack most columns."""
    fields = [field.model_copy(update={"required": False}) for field in schema.fields]
    return Schema(*fields, NestedField(schema.highest_field_id + 1, kinds, StringType()))
