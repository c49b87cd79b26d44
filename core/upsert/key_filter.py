"""A filter that every row with one of the source's keys matches; it selects the data files that may contain one."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

from pyiceberg.expressions import (
    AlwaysTrue,
    And,
    BooleanExpression,
    GreaterThanOrEqual,
    In,
    LessThanOrEqual,
    Or,
)
from pyiceberg.expressions.literals import StringLiteral

from lake.core.errors import BadInputError
from lake.core.expressions.filters import FieldIdReference, bind_filter

if TYPE_CHECKING:
    from pyiceberg.schema import Schema

# With more buckets, the filter would cover nearly the whole range of keys.
_MOST_BUCKETS = 16


def key_filter(
    schema: Schema, ids: Sequence[int], buckets: Sequence[Sequence[Any]]
) -> BooleanExpression | None:
    """Return a bound filter for keys; None if it would not exclude any row.

    Args:
        schema: the table's.
        ids: the key's columns.
        buckets: for each bucket of keys, the result of `column_values` for each column.
    """
    if not 0 < len(buckets) <= _MOST_BUCKETS:
        return None
    each = [
        reduce(And, [_column(schema, *pair) for pair in zip(ids, values, strict=True)])
        for values in buckets
    ]
    combined = reduce(Or, each)
    return None if isinstance(combined, AlwaysTrue) else bind_filter(combined, schema)


def _column(schema: Schema, column: int, values: Sequence[Any] | None) -> BooleanExpression:
    if values is None:
        return AlwaysTrue()
    form, *texts = values
    term = FieldIdReference(column)
    if form == "in":
        condition = _predicate(In, term, [StringLiteral(text) for text in texts[0]])
    else:
        least, greatest = (StringLiteral(text) for text in texts)
        condition = And(
            _predicate(GreaterThanOrEqual, term, least),
            _predicate(LessThanOrEqual, term, greatest),
        )
    try:
        bind_filter(condition, schema)
    except BadInputError:
        # Some values have no text that a filter accepts, e.g. years after 9999.
        return AlwaysTrue()
    return condition


def _predicate(make: Any, term: FieldIdReference, literal: Any) -> BooleanExpression:
    predicate: BooleanExpression = make(term, literal)
    return predicate
