"""Rows of a change log that are divided among tables: their columns, and the checks of each row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
from pyiceberg.schema import Schema

from lake.core.base.errors import BadInputError
from lake.core.data.deletes.delta_writer import INSERT, UPDATE_AFTER, UPSERT
from lake.core.load.changelog_load.plan import ChangeOptions
from lake.core.load.upsert.change_rows import source_schema
from lake.core.load.upsert.row_kinds import UNKNOWN, row_kinds, unknown_kind

if TYPE_CHECKING:
    from lake.core.data.sources.acceptance import RowCheck, RowProblem
    from lake.core.load.upsert.options import UpsertOptions


class LogFormat(NamedTuple):
    """How rows are changes.

    Args:
        column: the column that contains the row kind.
        by_key: whether a change replaces the row of its key, so that a delete may have the key only.
    """

    column: str
    by_key: bool


def log_format(by_key: UpsertOptions | ChangeOptions | None) -> LogFormat | None:
    """Return how the rows of a load are changes; None if they are not."""
    if isinstance(by_key, ChangeOptions):
        return LogFormat(by_key.changes_column, by_key.changes_mode == UPSERT)
    if by_key is None or by_key.changes_column is None:
        return None
    return LogFormat(by_key.changes_column, by_key=True)


def with_kinds(schema: Schema, log: LogFormat) -> Schema:
    """Return the columns of a table's rows as a change log contains them: all optional, and the row kind."""
    fields = [item for item in schema.fields if item.name != log.column]
    return source_schema(Schema(*fields), log.column)


def change_check(schema: Schema, log: LogFormat) -> RowCheck:
    """Return the check that each row has a known kind, and that rows that are written have all required values.

    As in a load into one table, such a row is an error also if other rows are set aside: without it, the changes that
    follow would be applied to other rows than those of the source.

    Args:
        schema: the columns of the table that the source has.
        log: how the rows are changes.
    """
    column = log.column
    required = [item.name for item in schema.fields if item.required and item.name != column]

    def check(batch: pa.RecordBatch, where: str) -> RowProblem | None:
        texts = batch.column(batch.schema.get_field_index(column))
        kinds = row_kinds(texts)
        for index in np.flatnonzero(kinds == UNKNOWN):
            raise unknown_kind(texts[index].as_py(), column, where, "")
        if required:
            written = batch
            if log.by_key:
                # Such a delete may have the key only.
                written = batch.filter(pa.array((kinds == INSERT) | (kinds == UPDATE_AFTER)))
            _refuse_nulls(written, required, where)
        return None

    return check


def _refuse_nulls(batch: pa.RecordBatch, names: Sequence[str], where: str) -> None:
    for name in names:
        if batch.column(batch.schema.get_field_index(name)).null_count:
            raise BadInputError(f"{where} has NULL in the required column {name}")
