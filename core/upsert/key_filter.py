"""A filter that every row with one of the source's keys matches: it tells which data files may hold some."""

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

# More buckets of keys span all there is anyway.
_MOST_BUCKETS = 16


def key_filter(
    schema: Schema, ids: Sequence[int], buckets: Sequence[Sequence[Any]]
) -> BooleanExpression | None:
    """Return a bound filter for keys; None where nothing is known of them.

    Args:
        schema: the table's.
        ids: the key's columns.
        buckets: for each bucket of keys what `column_values` tells of each column.
    """
    if not 0 < len(buckets) <= _MOST_BUCKETS:
        return None
    each = [
        reduce(And, [_column(schema, *pair) for pair in zip(ids, values, strict=True)])
        for values in buckets
    ]
    found = reduce(Or, each)
    return None if isinstance(found, AlwaysTrue) else bind_filter(found, schema)


def _column(schema: Schema, column: int, values: Sequence[Any] | None) -> BooleanExpression:
    if values is None:
        return AlwaysTrue()
    kind, *texts = values
    term = FieldIdReference(column)
    if kind == "in":
        found = _predicate(In, term, [StringLiteral(text) for text in texts[0]])
    else:
        least, greatest = (StringLiteral(text) for text in texts)
        found = And(
            _predicate(GreaterThanOrEqual, term, least),
            _predicate(LessThanOrEqual, term, greatest),
        )
    try:
        bind_filter(found, schema)
    except BadInputError:
        # Not every value has a text that a filter takes, e.g. years beyond 9999.
        return AlwaysTrue()
    return found


def _predicate(make: Any, term: FieldIdReference, literal: Any) -> BooleanExpression:
    predicate: BooleanExpression = make(term, literal)
    return predicate
