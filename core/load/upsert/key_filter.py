"""A filter that every row with one of the source's keys matches, by which a commit finds concurrent changes."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyiceberg.expressions import (
    AlwaysTrue,
    And,
    BooleanExpression,
    GreaterThanOrEqual,
    In,
    LessThanOrEqual,
)
from pyiceberg.expressions.literals import StringLiteral

from lake.core.base.errors import BadInputError
from lake.core.spec.expressions.filters import FieldIdReference, bind_filter
from lake.core.spec.types.single_values import arrow_type

if TYPE_CHECKING:
    from pyiceberg.schema import Schema

    from lake.core.data.keys.key_set import KeySet

# More values are replaced by their range.
_MOST_VALUES = 100
_LONGEST_VALUE = 200


def key_filter(schema: Schema, keys: KeySet) -> BooleanExpression | None:
    """Return a bound filter for keys; None if it would not exclude any row."""
    combined = reduce(And, [_column(schema, keys, column) for column in keys.ids])
    return None if isinstance(combined, AlwaysTrue) else bind_filter(combined, schema)


def _column(schema: Schema, keys: KeySet, column: int) -> BooleanExpression:
    values, kind = keys.columns[column].values, arrow_type(keys.types[column])
    if not len(values) or not _is_exact(kind):
        return AlwaysTrue()
    each = keys.exact and len(values) <= _MOST_VALUES
    chosen = values if each else pa.concat_arrays([values[:1], values[-1:]])
    texts = chosen.view(kind).cast(pa.string()).to_pylist()
    if any(len(text) > _LONGEST_VALUE for text in texts):
        return AlwaysTrue()
    term, literals = FieldIdReference(column), [StringLiteral(text) for text in texts]
    if each:
        condition = _predicate(In, term, literals)
    else:
        condition = And(
            _predicate(GreaterThanOrEqual, term, literals[0]),
            _predicate(LessThanOrEqual, term, literals[1]),
        )
    try:
        bind_filter(condition, schema)
    except BadInputError:
        # Some values have no text that a filter accepts, e.g. years after 9999.
        return AlwaysTrue()
    return condition


def _is_exact(kind: pa.DataType) -> bool:
    """Whether values of a type have texts that filters read as the same values."""
    return bool(
        pa.types.is_integer(kind)
        or pa.types.is_date(kind)
        or pa.types.is_timestamp(kind)
        or pa.types.is_time(kind)
        or pa.types.is_decimal(kind)
        or pa.types.is_string(kind)
    )


def _predicate(make: Any, term: FieldIdReference, literal: Any) -> BooleanExpression:
    predicate: BooleanExpression = make(term, literal)
    return predicate
