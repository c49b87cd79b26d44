"""One predicate on one column: its operation, and the values for which it is TRUE.

A comparison with NULL is neither TRUE nor FALSE, as in SQL. NaN compares as in IEEE 754 and
pyarrow: FALSE with everything, except that ``!=`` and ``not in`` are TRUE.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import (
    BoundEqualTo,
    BoundGreaterThan,
    BoundGreaterThanOrEqual,
    BoundIn,
    BoundIsNaN,
    BoundIsNull,
    BoundLessThan,
    BoundLessThanOrEqual,
    BoundLiteralPredicate,
    BoundNotEqualTo,
    BoundNotIn,
    BoundNotNaN,
    BoundNotNull,
    BoundNotStartsWith,
    BoundPredicate,
    BoundSetPredicate,
    BoundStartsWith,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNaN,
    IsNull,
    LessThan,
    LessThanOrEqual,
    LiteralPredicate,
    NotEqualTo,
    NotIn,
    NotNaN,
    NotNull,
    NotStartsWith,
    SetPredicate,
    StartsWith,
    UnboundPredicate,
)

from lake.core.spec.expressions.like import BoundLike, BoundNotLike, Like, NotLike, matching

ORDERINGS = frozenset({"lt", "lt-eq", "gt", "gt-eq"})
OPPOSITES = {
    "is-null": "not-null",
    "is-nan": "not-nan",
    "in": "not-in",
    "lt": "gt-eq",
    "gt": "lt-eq",
    "eq": "not-eq",
    "starts-with": "not-starts-with",
    "like": "not-like",
}
OPPOSITES |= {negated: op for op, negated in OPPOSITES.items()}

BOUND_CLASSES: Mapping[str, Any] = {
    "is-null": BoundIsNull,
    "not-null": BoundNotNull,
    "is-nan": BoundIsNaN,
    "not-nan": BoundNotNaN,
    "in": BoundIn,
    "not-in": BoundNotIn,
    "lt": BoundLessThan,
    "lt-eq": BoundLessThanOrEqual,
    "gt": BoundGreaterThan,
    "gt-eq": BoundGreaterThanOrEqual,
    "eq": BoundEqualTo,
    "not-eq": BoundNotEqualTo,
    "starts-with": BoundStartsWith,
    "not-starts-with": BoundNotStartsWith,
    "like": BoundLike,
    "not-like": BoundNotLike,
}
UNBOUND_CLASSES: Mapping[str, Any] = {
    "is-null": IsNull,
    "not-null": NotNull,
    "is-nan": IsNaN,
    "not-nan": NotNaN,
    "in": In,
    "not-in": NotIn,
    "lt": LessThan,
    "lt-eq": LessThanOrEqual,
    "gt": GreaterThan,
    "gt-eq": GreaterThanOrEqual,
    "eq": EqualTo,
    "not-eq": NotEqualTo,
    "starts-with": StartsWith,
    "not-starts-with": NotStartsWith,
    "like": Like,
    "not-like": NotLike,
}
_BOUND_OPS = {class_: op for op, class_ in BOUND_CLASSES.items()}

_COMPARE = {
    "lt": pc.less,
    "lt-eq": pc.less_equal,
    "gt": pc.greater,
    "gt-eq": pc.greater_equal,
    "eq": pc.equal,
    "not-eq": pc.not_equal,
}


@dataclass(frozen=True, slots=True)
class Condition:
    """A predicate's condition on its column.

    Args:
        op: the name of the operation in Iceberg's REST expressions (``lt-eq``, ``not-in``, …).
        values: its literals in PyIceberg's form (dates and times as integers, UUIDs as bytes).
    """

    op: str
    values: tuple[Any, ...] = ()


def operation(predicate: UnboundPredicate | BoundPredicate) -> str:
    """Return the name of a predicate's operation in Iceberg's REST expressions."""
    class_ = type(predicate) if isinstance(predicate, BoundPredicate) else predicate.as_bound
    return _BOUND_OPS[class_]


def condition(predicate: UnboundPredicate | BoundPredicate) -> Condition:
    """Return a predicate's condition on its column."""
    op = operation(predicate)
    if isinstance(predicate, LiteralPredicate | BoundLiteralPredicate):
        return Condition(op, (predicate.literal.value,))
    if isinstance(predicate, SetPredicate | BoundSetPredicate):
        return Condition(op, tuple(literal.value for literal in predicate.literals))
    return Condition(op)


def matches(values: pa.Array, asked: Condition) -> pa.BooleanArray:
    """Return for which values, in their `comparable` form, a condition is TRUE; never NULL.

    Raises:
        pyarrow.ArrowException, ValueError, OverflowError: a literal does not have the array's type.
    """
    return _evaluate(values, asked).fill_null(fill_value=False)


def _evaluate(values: pa.Array, asked: Condition) -> pa.BooleanArray:
    op = asked.op
    if op in _COMPARE:
        return _COMPARE[op](values, pa.scalar(asked.values[0], values.type))
    if op in {"is-null", "not-null"}:
        return values.is_null() if op == "is-null" else values.is_valid()
    if op in {"is-nan", "not-nan"}:
        found = pc.is_nan(values)
    elif op in {"starts-with", "not-starts-with"}:
        found = pc.starts_with(values, asked.values[0])
    elif op in {"like", "not-like"}:
        found = matching(values, asked.values[0])
    else:
        found = _is_in(values, asked.values)
    return pc.invert(found) if op.startswith("not-") else found


def _is_in(values: pa.Array, wanted: tuple[Any, ...]) -> pa.BooleanArray:
    """Return membership; NULL for NULL."""
    value_set = pa.array(wanted, values.type)
    if pa.types.is_floating(values.type):
        # is_in compares bits, and -0.0 equals 0.0
        zero = pa.scalar(0.0, values.type)
        values, value_set = pc.add(values, zero), pc.add(value_set, zero)
    return pc.if_else(values.is_valid(), pc.is_in(values, value_set), None)
