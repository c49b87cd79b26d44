"""Check that a source's columns fit a table, and report all problems before anything is written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import (
    IcebergType,
    ListType,
    MapType,
    NestedField,
    StructType,
    UnknownType,
)

from lake.core.base.arrow import is_list
from lake.core.base.errors import BadInputError, RefusedError, did_you_mean
from lake.core.base.options import Option
from lake.core.data.columns.type_promotion import promotable
from lake.core.data.sources.discovery import CSV, Source
from lake.core.spec.types.type_text import type_text
from lake.core.spec.types.unsupported_columns import UNSUPPORTED

# Arrow can write a Parquet file with more than 100 levels but cannot read it; a list takes two levels.
_MOST_LEVELS = 40


@dataclass(frozen=True, slots=True)
class SourceColumns:
    """The columns of one source; `name` is a file's path or a table's name, `file` None for a table.

    Raises:
        BadInputError: a column is nested too deeply; the written file could not be read.
    """

    name: str
    columns: pa.Schema
    file: Source | None = None

    def __post_init__(self) -> None:
        for column in self.columns:
            if _levels(column.type) > _MOST_LEVELS:
                raise BadInputError(
                    f"column {column.name} of {self.name} is nested deeper than {_MOST_LEVELS} levels"
                )


def _levels(type_: pa.DataType) -> int:
    deepest, pending = 0, [(type_, 1)]
    while pending:
        part, level = pending.pop()
        deepest = max(deepest, level)
        pending += [(part.field(index).type, level + 1) for index in range(part.num_fields)]
    return deepest


def check_sources(
    schema: Schema,
    sources: Iterable[SourceColumns],
    *,
    evolve: bool,
    partial: bool = False,
    by_row: Callable[[SourceColumns], bool] = lambda _: False,
) -> None:
    """Refuse sources that do not fit, with all problems in one message.

    Args:
        schema: the table's.
        sources: the columns of the sources to load.
        evolve: whether unknown columns will be added.
        partial: whether sources may lack required columns.
        by_row: whether the rows of a source that do not fit are set aside one by one.

    Raises:
        BadInputError: a required column is missing, a type does not fit or a column is unknown.
        RefusedError: a column has values of a type that lake cannot write.
    """
    check = _Check(evolve=evolve, partial=partial)
    by_problems: dict[str, list[str]] = {}
    for source in sources:
        if (problems := list(check.problems(schema, source))) and not by_row(source):
            # Similar files have the same problems, which are reported once.
            by_problems.setdefault("; ".join(problems), []).append(source.name)
    if not by_problems:
        return
    shown = "; ".join(f"{named_files(names)} {problems}" for problems, names in by_problems.items())
    hints = ["Nothing was written."]
    if check.unknown:
        hints.insert(0, f"Add {Option.EVOLVE} to add new columns.")
    raise BadInputError(f"the source does not fit the table: {shown}", hint=" ".join(hints))


def named_files(names: Sequence[str]) -> str:
    """Return the first of some files and the number of the others."""
    return names[0] if len(names) == 1 else f"{names[0]} (and {len(names) - 1} more files)"


@dataclass(slots=True)
class _Check:
    evolve: bool
    partial: bool
    unknown: bool = False
    # The source that was checked last, and its problems: the files of a folder often have equal columns.
    last: SourceColumns | None = None
    found: Sequence[str] = ()

    def problems(self, schema: Schema, source: SourceColumns) -> Iterator[str]:
        """Yield one text for each column of a source that does not fit."""
        if self.last is None or not _are_alike(self.last, source):
            self.found = list(self._fields(schema.fields, list(source.columns), source, ""))
            self.last = source
        yield from self.found
        if source.file is not None:
            yield from _named_by_folders(schema, source)

    def _fields(
        self,
        wanted: Sequence[NestedField],
        found: Sequence[pa.Field],
        source: SourceColumns,
        prefix: str,
    ) -> Iterator[str]:
        types = {item.name: item.type for item in found}
        names = [item.name for item in found]
        for name in [name for name in types if names.count(name) > 1]:
            yield f"has two columns named {prefix}{name}"
        for field in wanted:
            type_ = types.pop(field.name, None)
            name = prefix + field.name
            if type_ is not None:
                yield from self._value(field.field_type, type_, source, name)
            elif self.partial and not prefix:
                continue
            elif field.required and field.write_default is None:
                yield f"lacks the required column {name} ({type_text(field.field_type)})"
        lacking = [prefix + field.name for field in wanted if field.name not in names]
        for name, type_ in types.items():
            if self.evolve:
                continue
            self.unknown = True
            meant = did_you_mean(prefix + name.strip(), lacking)
            hint = f" ({meant})" if meant else ""
            yield f"has column {prefix}{name} ({type_text(type_)}), which the table lacks{hint}"

    def _value(
        self, wanted: IcebergType, found: pa.DataType, source: SourceColumns, name: str
    ) -> Iterator[str]:
        if isinstance(wanted, UNSUPPORTED) and (is_text(source) or not pa.types.is_null(found)):
            raise RefusedError(
                f"{source.name} has values for column {name} of type {wanted}, which lake cannot write",
                hint="Remove the column from the source; the new rows then have NULL there.",
            )
        if isinstance(wanted, StructType) and pa.types.is_struct(found):
            yield from self._fields(wanted.fields, list(found), source, f"{name}.")
        elif isinstance(wanted, ListType) and is_list(found):
            yield from self._value(wanted.element_type, found.value_type, source, f"{name}.element")
        elif isinstance(wanted, MapType) and pa.types.is_map(found):
            # A key gets no new field, which would change which keys are equal.
            keys = _Check(evolve=False, partial=self.partial)
            yield from keys._value(wanted.key_type, found.key_type, source, f"{name}.key")
            yield from self._value(wanted.value_type, found.item_type, source, f"{name}.value")
        elif isinstance(wanted, UnknownType) and self.evolve:
            return
        elif (
            isinstance(wanted, UnknownType) and not pa.types.is_null(found) and not is_text(source)
        ):
            yield f"has column {name} as {type_text(found)}, the table as unknown ({Option.EVOLVE} sets its type)"
        elif not _fits(wanted, found, source):
            yield f"has column {name} as {type_text(found)}, the table as {type_text(wanted)}"


def _are_alike(one: SourceColumns, other: SourceColumns) -> bool:
    """Whether two sources have equal columns and the same format."""
    formats = [source.file.format if source.file else None for source in (one, other)]
    return formats[0] == formats[1] and bool(one.columns.equals(other.columns))


def is_text(source: SourceColumns) -> bool:
    """Whether a source's values are texts."""
    return source.file is not None and source.file.is_text


def _fits(wanted: IcebergType, found: pa.DataType, source: SourceColumns) -> bool:
    if source.file is None or not is_text(source):
        return promotable(found, wanted, by_name=True)
    if source.file.format == CSV:
        return True  # cells are parsed as the table's type
    # Values of text formats are checked one by one when they are read; an object or a list of pairs may be a map.
    nested = pa.types.is_struct(found) or is_list(found)
    if wanted.is_primitive:
        return not nested
    return pa.types.is_null(found) or (isinstance(wanted, MapType) and nested)


def _named_by_folders(schema: Schema, source: SourceColumns) -> Iterator[str]:
    """Yield columns whose values are only in the folders' names: they would be loaded as NULL."""
    known = {field.name for field in schema.fields} - set(source.columns.names)
    for part in source.name.split("/")[:-1]:
        name, equals, _ = part.partition("=")
        if equals and name in known:
            yield f"has column {name} only in its folder's name, which is not read"
