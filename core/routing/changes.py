"""Rows of a change log that are divided among tables: their columns, and the checks of each row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyiceberg.schema import Schema

from lake.core.deletes.delta_writer import INSERT, UPDATE_AFTER, UPSERT
from lake.core.errors import BadInputError
from lake.core.upsert.change_rows import source_schema
from lake.core.upsert.row_kinds import UNKNOWN, row_kinds, unknown_kind

if TYPE_CHECKING:
    from lake.core.changelog_load.plan import ChangeOptions
    from lake.core.sources.acceptance import RowCheck, RowProblem


def with_kinds(schema: Schema, changes: ChangeOptions) -> Schema:
    """Return the columns of a table's rows as a change log contains them: all optional, and the row kind."""
    fields = [item for item in schema.fields if item.name != changes.changes_column]
    return source_schema(Schema(*fields), changes.changes_column)


def change_check(schema: Schema, changes: ChangeOptions) -> RowCheck:
    """Return the check that each row has a known kind, and that rows that are written have all required values.

    As in a load into one table, such a row is an error also if other rows are set aside: without it, the changes that
    follow would be applied to other rows than those of the source.

    Args:
        schema: the columns of the table that the source has.
        changes: how the change log is loaded.
    """
    column = changes.changes_column
    required = [item.name for item in schema.fields if item.required and item.name != column]

    def check(batch: pa.RecordBatch, where: str) -> RowProblem | None:
        texts = batch.column(batch.schema.get_field_index(column))
        kinds = row_kinds(texts)
        for index in np.flatnonzero(kinds == UNKNOWN):
            raise unknown_kind(texts[index].as_py(), column, where, "")
        if required:
            written = batch
            if changes.changes_mode == UPSERT:
                # A delete of an upsert may have the key only.
                written = batch.filter(pa.array((kinds == INSERT) | (kinds == UPDATE_AFTER)))
            _refuse_nulls(written, required, where)
        return None

    return check


def _refuse_nulls(batch: pa.RecordBatch, names: Sequence[str], where: str) -> None:
    for name in names:
        if batch.column(batch.schema.get_field_index(name)).null_count:
            raise BadInputError(f"{where} has NULL in the required column {name}")
