"""The columns of CSV files, with types for all of the texts in them."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import UnknownType

from lake.core.base.errors import BadInputError
from lake.core.data.sources.csv.texts import text_rows
from lake.core.data.sources.discovery import Source
from lake.core.data.sources.inference import InferredType, infer_type, joined
from lake.core.data.sources.type_notes import TypeNote, explain
from lake.core.io.storage.storage import Storage
from lake.core.spec.types.arrow_schema import arrow_type


def csv_columns(
    storage: Storage,
    source: Source,
    names: Sequence[str],
    known: Schema | None,
    *,
    infer: bool,
    notes: list[TypeNote] | None,
    skip_bad: bool,
) -> pa.Schema:
    """Return the columns of these names; the arguments are those of `source_columns` in `batches`.

    Columns of the table have its types. Others are text, unless their types are inferred from the whole file.

    Raises:
        BadInputError: two columns have one name.
        CorruptFileError: a row is ragged, and not skipped, or the file is not UTF-8.
    """
    types = {
        item.name: arrow_type(item.field_type)
        for item in (known.fields if known else ())
        if not (infer and isinstance(item.field_type, UnknownType))
    }
    new = [name for name in names if name not in types]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise BadInputError(
            f"the header of {source.path} has two columns named {twice}", hint="rename one of them"
        )
    if infer and new:
        types.update(_inferred_types(storage, source, new, notes, skip_bad=skip_bad))
    return pa.schema([(name, types.get(name, pa.string())) for name in names])


def _inferred_types(
    storage: Storage,
    source: Source,
    names: Sequence[str],
    notes: list[TypeNote] | None,
    *,
    skip_bad: bool,
) -> dict[str, pa.DataType]:
    """Return the narrowest type for all values of each named column in the whole file."""
    kinds = dict.fromkeys(names, InferredType.NOTHING)
    forms = source.text.forms
    for rows in text_rows(storage, source, skip_ragged=skip_bad):
        for name, kind in kinds.items():
            if kind is InferredType.TEXT:
                continue
            column = rows.batch.column(name)
            kinds[name] = joined(kind, infer_type(column, forms))
            if kinds[name] is InferredType.TEXT and notes is not None:
                reason = explain(column, rows.numbers, kind, forms)
                if reason is not None:
                    row, value, options = reason
                    notes.append(
                        TypeNote(
                            column=name, path=source.path, row=row, value=value, options=options
                        )
                    )
    return {
        name: pa.string() if kind is InferredType.NOTHING else kind.arrow
        for name, kind in kinds.items()
    }
