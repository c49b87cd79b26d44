"""Row filters: bound to a schema, sent to tasks as plain data, evaluated on rows.

A filter keeps the rows for which it is TRUE in SQL's three-valued logic: neither ``a == 1`` nor
``not a == 1`` keeps a row whose ``a`` is NULL. `lake.core.spec.expressions.predicates` defines the predicates.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import (
    AlwaysFalse,
    AlwaysTrue,
    And,
    BooleanExpression,
    BoundLiteralPredicate,
    BoundPredicate,
    BoundReference,
    BoundSetPredicate,
    LiteralPredicate,
    Not,
    Or,
    Reference,
    SetPredicate,
    UnboundPredicate,
    UnboundTerm,
)
from pyiceberg.expressions.literals import DecimalLiteral, Literal, LongLiteral, StringLiteral
from pyiceberg.schema import Schema
from pyiceberg.types import (
    DoubleType,
    FloatType,
    IcebergType,
    NestedField,
    StringType,
)

from lake.core.base.errors import BadInputError, NotFoundError, listed_columns, unknown_column
from lake.core.base.plain import Codec
from lake.core.spec.expressions.literals import (
    EXAMPLES,
    Coerced,
    MissingZoneError,
    TypedTextLiteral,
    coerce,
    literal_from_plain,
    literal_to_plain,
)
from lake.core.spec.expressions.parser import Unknown
from lake.core.spec.expressions.predicates import (
    BOUND_CLASSES,
    OPPOSITES,
    ORDERINGS,
    UNBOUND_CLASSES,
    condition,
    matches,
    operation,
)
from lake.core.spec.types.arrow_schema import field_path
from lake.core.spec.types.bounds import comparable
from lake.core.spec.types.type_text import type_text

TRUE = AlwaysTrue()

_MAX_PLAIN_DEPTH = 400
_SHOWN_CHARACTERS = 60
_FIELD_ID = b"PARQUET:field_id"

_CONSTANTS: Mapping[str, type[BooleanExpression]] = {
    "true": AlwaysTrue,
    "false": AlwaysFalse,
    "unknown": Unknown,
}

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class FieldIdReference(UnboundTerm):
    """A term that refers to its column by field id, so that it survives a rename."""

    field_id: int

    def bind(self, schema: Schema, case_sensitive: bool = True) -> BoundReference:  # noqa: ARG002, FBT001, FBT002
        """Bind to the schema's field with that id; ``ValueError`` if there is none."""
        field = schema.find_field(self.field_id)
        return BoundReference(field, schema.accessor_for_field(field.field_id))

    @property
    def as_bound(self) -> type[BoundReference]:
        """The class of the bound term."""
        return BoundReference


# How hints write an operation, and the names that filters write without quotes.
_SIGNS = {"eq": "=", "not-eq": "<>", "lt": "<", "lt-eq": "<=", "gt": ">", "gt-eq": ">="}
_PLAIN_NAME = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")


def bind_filter(
    expression: BooleanExpression, schema: Schema, *, case_sensitive: bool = True
) -> BooleanExpression:
    """Bind a filter's columns to a schema and convert its literals to their types, exactly.

    The result does not contain `Not`. A literal that the column's type cannot represent (1.5 or 1e12 for an
    int) is not rounded: the predicate is replaced by one that matches the same rows. A filter that is already
    bound is bound again by field id.

    Raises:
        NotFoundError: the schema has no such column.
        BadInputError: a column cannot be compared with its literal.
    """
    return _Binder(schema, case_sensitive=case_sensitive).bind(expression, negated=False)


def filter_columns(bound: BooleanExpression) -> set[int]:
    """Return the field ids that a bound filter references."""
    return fold(
        bound,
        lambda predicate: {predicate.term.ref().field.field_id},
        constant=lambda _: set[int](),
        both=set.union,
        either=set.union,
    )


def fold(
    bound: BooleanExpression,
    leaf: Callable[[BoundPredicate], Result],
    *,
    constant: Callable[[bool], Result],
    both: Callable[[Result, Result], Result],
    either: Callable[[Result, Result], Result],
) -> Result:
    """Combine the results of a bound filter's predicates, bottom-up.

    Raises:
        TypeError: the filter does not come from `bind_filter`.
    """

    # A function that calls itself refers to itself: it would keep what the leaf refers to, such as the columns of a
    # manifest, until the next garbage collection.
    def part(node: BooleanExpression) -> Result:
        return fold(node, leaf, constant=constant, both=both, either=either)

    if isinstance(bound, And):
        return both(part(bound.left), part(bound.right))
    if isinstance(bound, Or):
        return either(part(bound.left), part(bound.right))
    if isinstance(bound, AlwaysTrue | AlwaysFalse):
        return constant(isinstance(bound, AlwaysTrue))
    if isinstance(bound, BoundPredicate):
        return leaf(bound)
    raise TypeError(f"bind the filter with bind_filter first: {type(bound).__name__}")


def row_mask(bound: BooleanExpression, batch: pa.RecordBatch, schema: Schema) -> pa.BooleanArray:
    """Return, for each row, whether a bound filter is TRUE; never NULL.

    Its inverse selects exactly the rows that an overwrite by filter must keep. Columns are found by the
    field ids in the batch's schema, or by name if a column of the batch has no field id.

    Raises:
        NotFoundError: the batch lacks a column of the filter.
    """
    return fold(
        bound,
        lambda predicate: _predicate_mask(predicate, batch, schema),
        constant=lambda value: pa.repeat(pa.scalar(value), batch.num_rows),
        both=pc.and_,
        either=pc.or_,
    )


def filter_to_plain(expression: BooleanExpression) -> dict[str, Any] | str:
    """Return a filter, bound or not, as JSON-ready data.

    Columns of a bound filter are written as field ids, others as names; literals are exact.
    """
    for name, class_ in _CONSTANTS.items():
        if isinstance(expression, class_):
            return name
    if isinstance(expression, And | Or):
        op = "and" if isinstance(expression, And) else "or"
        left, right = filter_to_plain(expression.left), filter_to_plain(expression.right)
        return {"op": op, "left": left, "right": right}
    if isinstance(expression, Not):
        return {"op": "not", "child": filter_to_plain(expression.child)}
    return _predicate_to_plain(_predicate(expression))


def filter_from_plain(plain: Mapping[str, Any] | str) -> BooleanExpression:
    """Rebuild a filter from `filter_to_plain`'s data, unbound: give it to `bind_filter`.

    Raises:
        BadInputError: the data does not have that form.
    """
    try:
        return _from_plain(plain, 0)
    except (KeyError, TypeError, ValueError, ArithmeticError) as error:
        raise BadInputError("the filter of a task is not valid") from error


PlainFilter = Annotated[BooleanExpression, Codec(filter_to_plain, filter_from_plain)]


def _predicate(node: BooleanExpression) -> UnboundPredicate | BoundPredicate:
    if not isinstance(node, UnboundPredicate | BoundPredicate):
        raise TypeError(f"not a filter: {type(node).__name__}")
    return node


def _column_key(node: UnboundPredicate | BoundPredicate) -> str | int:
    """Return the name or the field id with which a predicate refers to its column."""
    if isinstance(node, BoundPredicate):
        return node.term.ref().field.field_id
    if isinstance(node.term, FieldIdReference):
        return node.term.field_id
    if isinstance(node.term, Reference):
        return node.term.name
    raise TypeError(f"not a column: {node.term!r}")


class _Binder:
    """Binds leaves and pushes negations down to them in one pass."""

    def __init__(self, schema: Schema, *, case_sensitive: bool) -> None:
        self.schema = schema
        self.case_sensitive = case_sensitive

    def bind(self, node: BooleanExpression, *, negated: bool) -> BooleanExpression:
        if isinstance(node, Not):
            return self.bind(node.child, negated=not negated)
        if isinstance(node, And | Or):
            join = And if isinstance(node, And) != negated else Or
            left = self.bind(node.left, negated=negated)
            return join(left, self.bind(node.right, negated=negated))
        if isinstance(node, AlwaysTrue | AlwaysFalse):
            return ~node if negated else node
        if isinstance(node, Unknown):
            # Rows for which a filter is not TRUE are not kept.
            return AlwaysFalse()
        return self._bind_predicate(_predicate(node), negated=negated)

    def _bind_predicate(
        self, node: UnboundPredicate | BoundPredicate, *, negated: bool
    ) -> BooleanExpression:
        term = self._term(node)
        op = operation(node)
        bound = self._bind_operation(OPPOSITES[op] if negated else op, term, node)
        if negated and op in ORDERINGS and _has_nan(term):
            # NaN is not less than 1, so it is among the rows of "not x < 1"
            return Or(bound, _bound("is-nan", term))
        return bound

    def _bind_operation(
        self, op: str, term: BoundReference, node: UnboundPredicate | BoundPredicate
    ) -> BooleanExpression:
        if isinstance(node, LiteralPredicate | BoundLiteralPredicate):
            return _bind_comparison(op, term, self._coerce(term, node.literal, op))
        if isinstance(node, SetPredicate | BoundSetPredicate):
            coerced = [self._coerce(term, literal, op) for literal in node.literals]
            return _bind_set(op, term, {one.literal for one in coerced if one.exact})
        if op == "not-nan" and not _has_nan(term):
            return _bound("not-null", term)
        return _bound(op, term)

    def _term(self, node: UnboundPredicate | BoundPredicate) -> BoundReference:
        field = self._field(_column_key(node))
        path = field_path(self.schema, field.field_id)
        if path is None:
            name = self.schema.find_column_name(field.field_id)
            raise BadInputError(f"cannot filter by {name}: it is inside a list or map")
        if field.required and not all(parent.required for parent in path):
            # The field is NULL if its parent is.
            field = NestedField(field.field_id, field.name, field.field_type, required=False)
        return BoundReference(field, self.schema.accessor_for_field(field.field_id))

    def _field(self, key: str | int) -> NestedField:
        if isinstance(key, str) and not self.case_sensitive:
            self._refuse_ambiguous(key)
        try:
            return self.schema.find_field(key, case_sensitive=self.case_sensitive)
        except ValueError as error:
            raise unknown_column(str(key), self.schema.column_names, "the table") from error

    def _refuse_ambiguous(self, name: str) -> None:
        alike = [known for known in self.schema.column_names if known.lower() == name.lower()]
        if len(alike) > 1:
            raise BadInputError(f"{name} is ambiguous; it matches the columns {', '.join(alike)}")

    def _coerce(self, term: BoundReference, literal: Literal[Any], op: str) -> Coerced:
        type_ = term.field.field_type
        try:
            if op.endswith(("starts-with", "like")):
                _refuse_pattern(type_)
            return coerce(literal, type_)
        except (TypeError, ValueError, ArithmeticError) as error:
            name = str(self.schema.find_column_name(term.field.field_id))
            hint = listed_columns(self.schema.column_names)
            if correct := _correction(type_, literal, error):
                hint = f"write {_quoted(name)} {_SIGNS.get(op, '=')} {correct}"
            raise BadInputError(
                f"column {name} is a {type_text(type_)}, which cannot be compared with "
                f"{_shown(literal)}: {error}",
                hint=hint,
            ) from error


def _correction(type_: IcebergType, literal: Literal[Any], error: Exception) -> str | None:
    """Return the value that was probably meant instead of a literal, or an example; None for a nested type."""
    if isinstance(error, MissingZoneError):
        return f"'{error.suggestion}'"
    if isinstance(type_, StringType) and isinstance(literal, LongLiteral | DecimalLiteral):
        return f"'{_shown(literal)}'"
    if isinstance(type_, StringType) and isinstance(literal, TypedTextLiteral):
        return _shown(StringLiteral(literal.value))
    return EXAMPLES.get(type(type_))


def _quoted(name: str) -> str:
    """Return the name of a column as filters write it."""
    return name if _PLAIN_NAME.fullmatch(name) else '"' + name.replace('"', '""') + '"'


def _refuse_pattern(type_: IcebergType) -> None:
    if not isinstance(type_, StringType):
        raise TypeError("like is for text")


def _has_nan(term: BoundReference) -> bool:
    return isinstance(term.field.field_type, FloatType | DoubleType)


def _bound(op: str, term: BoundReference, *literals: Any) -> BooleanExpression:
    bound: BooleanExpression = BOUND_CLASSES[op](term, *literals)
    return bound


def _bind_comparison(op: str, term: BoundReference, coerced: Coerced) -> BooleanExpression:
    if coerced.exact:
        return _bound(op, term, coerced.literal)
    if op in {"not-eq", "eq"}:
        return AlwaysFalse() if op == "eq" else _bound("not-null", term)
    less = op in {"lt", "lt-eq"}
    if coerced.literal is None:
        return AlwaysFalse() if less else _bound("not-null", term)
    return _bound("lt-eq" if less else "gt", term, coerced.literal)


def _bind_set(op: str, term: BoundReference, literals: set[Any]) -> BooleanExpression:
    if op == "not-in" and not literals:
        return _bound("not-null", term)
    return _bound(op, term, literals)


def _shown(literal: Literal[Any]) -> str:
    """Return the start of a literal as filters write it."""
    value = literal.value
    if isinstance(literal, StringLiteral):
        kind = f"{literal.type_name} " if isinstance(literal, TypedTextLiteral) else ""
        text = kind + "'" + value.replace("'", "''") + "'"
    elif isinstance(value, bool):
        text = str(value).lower()
    else:
        text = f"X'{value.hex()}'" if isinstance(value, bytes) else str(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"


def _predicate_mask(
    predicate: BoundPredicate, batch: pa.RecordBatch, schema: Schema
) -> pa.BooleanArray:
    field = predicate.term.ref().field
    column = _column(batch, field_path(schema, field.field_id) or (field,))
    return matches(comparable(column, field.field_type), condition(predicate))


def _column(batch: pa.RecordBatch, path: tuple[NestedField, ...]) -> pa.Array:
    column = batch.column(_child_index(list(batch.schema), path[0]))
    for field in path[1:]:
        column = pc.struct_field(column, [_child_index(list(column.type), field)])
    return column


def _child_index(children: list[pa.Field], wanted: NestedField) -> int:
    ids = [(child.metadata or {}).get(_FIELD_ID) for child in children]
    number = str(wanted.field_id).encode()
    if number in ids:
        return ids.index(number)
    for index, child in enumerate(children):
        if ids[index] is None and child.name == wanted.name:
            return index
    raise NotFoundError(f"the rows lack the filter's column {wanted.name} ({wanted.field_id})")


def _predicate_to_plain(predicate: UnboundPredicate | BoundPredicate) -> dict[str, Any]:
    key = _column_key(predicate)
    plain: dict[str, Any] = {
        "op": operation(predicate),
        "field-id" if isinstance(key, int) else "column": key,
    }
    if isinstance(predicate, LiteralPredicate | BoundLiteralPredicate):
        plain["literal"] = literal_to_plain(predicate.literal)
    if isinstance(predicate, SetPredicate | BoundSetPredicate):
        plain["literals"] = [literal_to_plain(literal) for literal in predicate.literals]
    return plain


def _from_plain(plain: Any, depth: int) -> BooleanExpression:
    if depth > _MAX_PLAIN_DEPTH:
        raise ValueError("nested too deep")
    if isinstance(plain, str):
        return _CONSTANTS[plain]()
    op = plain["op"]
    if op == "not":
        return Not(_from_plain(plain["child"], depth + 1))
    if op in {"and", "or"}:
        join = And if op == "and" else Or
        left = _from_plain(plain["left"], depth + 1)
        return join(left, _from_plain(plain["right"], depth + 1))
    return _predicate_from_plain(op, plain)


def _predicate_from_plain(op: str, plain: Mapping[str, Any]) -> BooleanExpression:
    arguments: list[Any] = []
    if "literal" in plain:
        arguments = [literal_from_plain(plain["literal"])]
    if "literals" in plain:
        arguments = [[literal_from_plain(literal) for literal in plain["literals"]]]
    by_id = "field-id" in plain
    term = FieldIdReference(int(plain["field-id"])) if by_id else Reference(plain["column"])
    predicate: BooleanExpression = UNBOUND_CLASSES[op](term, *arguments)
    return predicate
