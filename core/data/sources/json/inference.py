"""Infer the columns of JSON from its objects, with types for all of their values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, ListType, MapType, StructType, UnknownType

from lake.core.base.arrow import one_array
from lake.core.base.errors import BadInputError
from lake.core.base.options import Option
from lake.core.data.sources.discovery import Source
from lake.core.data.sources.inference import TIMES, InferredType, infer_type, joined
from lake.core.data.sources.json.blocks import Block, blocks
from lake.core.data.sources.json.documents import HINT
from lake.core.data.sources.json.exact import double_of
from lake.core.data.sources.json.parsing import (
    parsed_line,
    refuse_deep,
    refuse_fatal,
    refuse_unreadable,
)
from lake.core.data.sources.json.typed import read_block
from lake.core.data.sources.text_forms import TextForms
from lake.core.data.sources.text_values import tidied
from lake.core.io.storage.storage import Storage
from lake.core.spec.types.arrow_schema import arrow_type
from lake.core.spec.types.type_text import type_text

_ONE_TYPE = (
    f"a new column has the type of its first value; {Option.REJECTS} PATH writes rows of other types to a file and "
    "loads the rest"
)
_WORDS = (
    (pa.types.is_string, "text"),
    (pa.types.is_boolean, "true or false"),
    (pa.types.is_integer, "a number"),
    (pa.types.is_floating, "a number"),
    (pa.types.is_struct, "an object"),
    (pa.types.is_list, "an array"),
)


def infer_columns(
    storage: Storage,
    source: Source,
    known: Schema | None = None,
    seen: Mapping[str, pa.DataType] | None = None,
    *,
    skip_bad: bool = False,
) -> pa.Schema | None:
    """Return the columns of all lines, with types for all of their values; None for no lines.

    Args:
        storage: the storage of the file.
        source: the file.
        known: the table's columns; a value that is not of such a type is reported when it is read.
        seen: the types of other columns in the files before this one.
        skip_bad: ignore lines that are not objects, or have a value of another type than the lines before: they will
            be rejected.

    Raises:
        BadInputError: a line is not an object, or has a value of another type than the lines before.
    """
    inference = _Inference(source, known, seen or {}, skip_bad=skip_bad)
    for block in blocks(storage, source):
        inference.add(block)
    return inference.columns()


def first_columns(
    storage: Storage, source: Source, known: Schema | None = None, *, skip_bad: bool = False
) -> pa.Schema | None:
    """Return the columns of the first lines; None if they are not valid, which reading reports."""
    for block in blocks(storage, source):
        if not skip_bad:
            refuse_fatal(block, source.path)
        inference = _Inference(source, known, {}, skip_bad=skip_bad)
        try:
            inference.add(block)
        except BadInputError:
            return None
        return inference.columns(refined=False)
    return None


class _Inference:
    """The columns of a source so far, inferred from blocks of lines; the arguments are those of `infer_columns`."""

    def __init__(
        self,
        source: Source,
        known: Schema | None,
        seen: Mapping[str, pa.DataType],
        *,
        skip_bad: bool,
    ) -> None:
        self._source = source
        self._skip_bad = skip_bad
        fields = known.fields if known else ()
        self._known = {
            item.name: item.field_type
            for item in fields
            if not isinstance(item.field_type, UnknownType)
        }
        self._seen = seen
        # Texts of files before are compared as what they were taken for, at the end.
        self._types = {
            name: pa.string() if _has_time(kind) else kind for name, kind in seen.items()
        }
        self._texts: dict[str, InferredType] = {}
        # In the order of their first lines.
        self._names: dict[str, None] = {}
        self._has_lines = False

    def add(self, block: Block) -> None:
        """Add the columns of a block.

        Raises:
            BadInputError: a line is not an object, or has a value of another type than the lines before.
        """
        try:
            refuse_fatal(block, self._source.path)
            found = _inferred_lines(block, self._source.path)
            types = self._with_types(found.schema, self._types)
        except BadInputError:
            self._add_lines(block)
            return
        self._has_lines = self._has_lines or found.num_rows > 0
        self._types = types
        for name in found.schema.names:
            self._names[name] = None
            if pa.types.is_string(found.schema.field(name).type):
                self._add_texts(name, found.column(name))

    def columns(self, *, refined: bool = True) -> pa.Schema | None:
        """Return the columns; None for no lines.

        Args:
            refined: whether columns of texts that all are times have a type of times.
        """
        columns = [(name, self._type(name, refined=refined)) for name in self._names]
        return pa.schema(columns) if self._has_lines else None

    def _with_types(
        self, found: Iterable[pa.Field], types: Mapping[str, pa.DataType]
    ) -> dict[str, pa.DataType]:
        """Return the types of all columns, with those of more lines.

        Raises:
            BadInputError: a column has another type.
        """
        joint = dict(types)
        for item in found:
            kind = self._known.get(item.name)
            if kind is not None and self._skip_bad:
                if kind.is_primitive:
                    continue
                _check_shape(item.type, kind, item.name)
            new = (
                item.type if kind is None or kind.is_primitive else _without_known(item.type, kind)
            )
            joint[item.name] = _joined(types.get(item.name, pa.null()), new, item.name)
        return joint

    def _add_lines(self, block: Block) -> None:
        """Add the lines of a block that Arrow cannot read as a whole, one by one."""
        texts: dict[str, list[str]] = {}
        for number, line in block.numbered():
            try:
                self._add_line(line, number, texts)
            except BadInputError:
                if not self._skip_bad:
                    raise
        for name, values in texts.items():
            self._add_texts(name, pa.chunked_array([pa.array(values, pa.string())]))

    def _add_line(self, line: bytes, number: int, texts: dict[str, list[str]]) -> None:
        path = self._source.path
        refuse_deep(line, number, path)
        row = parsed_line(line, number, path)
        fields = [(name, value) for name, value in row.items() if not self._is_plain(name)]
        try:
            found = [
                pa.field(name, _type_of(value, name, self._known.get(name)))
                for name, value in fields
            ]
            self._types = self._with_types(found, self._types)
        except BadInputError as error:
            raise BadInputError(
                f"line {number} of {path}: {error.message}", hint=_ONE_TYPE
            ) from error
        self._has_lines = True
        self._names |= dict.fromkeys(row)
        for name, value in fields:
            if isinstance(value, str):
                texts.setdefault(name, []).append(value)

    def _is_plain(self, name: str) -> bool:
        """Whether the values of a column are checked when they are read, and show nothing new."""
        kind = self._known.get(name)
        return kind is not None and kind.is_primitive

    def _add_texts(self, name: str, column: pa.ChunkedArray) -> None:
        kind = _time_kind(column, self._source.text.forms)
        self._texts[name] = joined(self._texts.get(name, InferredType.NOTHING), kind)

    def _type(self, name: str, *, refined: bool) -> pa.DataType:
        known, kind = self._known.get(name), self._types.get(name)
        if known is not None and (kind is None or (self._skip_bad and known.is_primitive)):
            return arrow_type(known)
        if kind is None:
            return pa.null()
        if not (refined and pa.types.is_string(kind)):
            return kind
        texts = self._texts.get(name, InferredType.NOTHING)
        own = texts.arrow if texts in TIMES else kind
        before = self._seen.get(name)
        return before if before is not None and self._skip_bad else own


def _check_shape(found: pa.DataType, kind: IcebergType, name: str) -> None:
    """Refuse a value that no value of a nested type can be; a map may be an object or a list of pairs."""
    is_object, is_array = pa.types.is_struct(found), pa.types.is_list(found)
    if pa.types.is_null(found) or (isinstance(kind, MapType) and (is_object or is_array)):
        return
    if not (is_object if isinstance(kind, StructType) else is_array):
        raise BadInputError(f"column {name} is {_word(found)}, and {type_text(kind)} in the table")


def _is_known(kind: IcebergType | None, *, nested: bool) -> bool:
    """Whether a value has a type in the table: it is checked when it is read, and shows no new field."""
    if isinstance(kind, MapType):
        return nested
    return kind is not None and kind.is_primitive and not (nested or isinstance(kind, UnknownType))


def _parts(kind: IcebergType | None) -> Mapping[str, IcebergType]:
    fields = kind.fields if isinstance(kind, StructType) else ()
    return {item.name: item.field_type for item in fields}


def _without_known(found: pa.DataType, kind: IcebergType | None) -> pa.DataType:
    """Return an inferred type with NULL for the values that have a type in the table."""
    is_object, is_array = pa.types.is_struct(found), pa.types.is_list(found)
    if _is_known(kind, nested=is_object or is_array):
        return pa.null()
    if is_object:
        parts = _parts(kind)
        fields = [(item.name, _without_known(item.type, parts.get(item.name))) for item in found]
        return pa.struct(fields)
    if is_array and isinstance(kind, ListType):
        return pa.list_(_without_known(found.value_type, kind.element_type))
    return found


def _type_of(value: Any, name: str, known: IcebergType | None = None) -> pa.DataType:
    """Return the type of a value of Python's parser; NULL for what has a type in the table.

    Raises:
        BadInputError: no type fits all values of a list, or a number is too large.
    """
    if _is_known(known, nested=isinstance(value, Mapping | list)):
        return pa.null()
    if isinstance(value, bool):
        return pa.bool_()
    if isinstance(value, int) and -(2**63) <= value < 2**63:
        return pa.int64()
    if isinstance(value, int | Decimal):
        if double_of(value) is None:
            raise BadInputError(f"column {name} has a number that is too large: {str(value)[:20]}")
        return pa.float64()
    if isinstance(value, str):
        return pa.string()
    if isinstance(value, Mapping):
        parts = _parts(known)
        return pa.struct(
            [(key, _type_of(one, f"{name}.{key}", parts.get(key))) for key, one in value.items()]
        )
    if isinstance(value, list):
        kind, inner = pa.null(), f"{name}.element"
        element = known.element_type if isinstance(known, ListType) else None
        for one in value:
            kind = _joined(kind, _type_of(one, inner, element), inner)
        return pa.list_(kind)
    return pa.null()


def _inferred_lines(block: Block, where: str) -> pa.Table:
    try:
        found = read_block(block.data, None, "infer")
        timed = [item for item in found.schema if _has_time(item.type)]
        if timed:
            # Arrow infers whole seconds for times and drops their zones.
            texts = pa.schema([item.with_type(_without_times(item.type)) for item in found.schema])
            found = read_block(block.data, texts, "error")
    except (pa.ArrowException, UnicodeDecodeError) as error:
        refuse_unreadable(block, where)
        end = block.line(block.data.count(b"\n"))
        raise BadInputError(
            f"{where} cannot be read between lines {block.first_line} and {end}: {error}",
            hint=HINT,
        ) from error
    return found


def _has_time(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return any(_has_time(kind.field(index).type) for index in range(kind.num_fields))
    if pa.types.is_list(kind):
        return _has_time(kind.value_type)
    return bool(pa.types.is_timestamp(kind))


def _without_times(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([item.with_type(_without_times(item.type)) for item in kind])
    if pa.types.is_list(kind):
        return pa.list_(_without_times(kind.value_type))
    return pa.string() if pa.types.is_timestamp(kind) else kind


def _time_kind(column: pa.ChunkedArray, forms: TextForms) -> InferredType:
    """Return the type of time in a column of strings, TEXT if any is not a time."""
    texts = one_array(column)
    if tidied(texts).null_count > texts.null_count:
        return InferredType.TEXT
    kind = infer_type(texts, forms)
    return kind if kind in TIMES or kind is InferredType.NOTHING else InferredType.TEXT


def _joined(first: pa.DataType, second: pa.DataType, name: str) -> pa.DataType:
    """Return the type for the values of both.

    Raises:
        BadInputError: there is none.
    """
    if first == second or pa.types.is_null(second):
        return first
    if pa.types.is_null(first):
        return second
    if {first, second} == {pa.int64(), pa.float64()}:
        return pa.float64()
    if pa.types.is_struct(first) and pa.types.is_struct(second):
        parts = {item.name: item.type for item in first}
        for item in second:
            inner = parts.get(item.name, pa.null())
            parts[item.name] = _joined(inner, item.type, f"{name}.{item.name}")
        return pa.struct(list(parts.items()))
    if pa.types.is_list(first) and pa.types.is_list(second):
        return pa.list_(_joined(first.value_type, second.value_type, f"{name}.element"))
    raise BadInputError(f"column {name} is {_word(second)}, and {_word(first)} in the lines before")


def _word(kind: pa.DataType) -> str:
    """Return what JSON calls values of a type."""
    for test, word in _WORDS:
        if test(kind):
            return word
    return type_text(kind)
