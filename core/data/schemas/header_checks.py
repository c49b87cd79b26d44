"""Check the names of sources' columns: a wrong delimiter, a file without a header, files that differ."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from lake.core.base.errors import BadInputError
from lake.core.base.options import Option
from lake.core.data.schemas.source_checks import SourceColumns, named_files
from lake.core.data.sources.discovery import CSV, JSON
from lake.core.data.sources.inference import InferredType, infer_type

if TYPE_CHECKING:
    from pyiceberg.schema import Schema

# What separates columns in a header that was read as one; a comma before a space is more likely part of a name.
_DELIMITER = re.compile(r"[;|\t]|,(?! )")
_WORDS = {"\t": r"'\t'"}
_SHOWN = 3
_NOT_NAMES = frozenset(
    {
        InferredType.INTEGER,
        InferredType.LARGE_INTEGER,
        InferredType.FLOATING,
        InferredType.DATE,
        InferredType.TIMESTAMP,
        InferredType.ZONED_TIMESTAMP,
    }
)


def check_one_column(
    sources: Iterable[SourceColumns], *, given: bool, warn: Callable[[str], None]
) -> None:
    """Refuse a CSV file of one column whose name contains a delimiter: the table would have a column of whole lines.

    Args:
        sources: the columns of the files.
        given: whether the user named the delimiter; then such a file is a warning.
        warn: receives it.

    Raises:
        BadInputError: there is such a file.
    """
    for source in sources:
        if not _is_csv(source) or len(source.columns.names) != 1:
            continue
        (name,) = source.columns.names
        if found := _DELIMITER.search(name):
            word = _WORDS.get(found[0], f"'{found[0]}'")
            problem = f"{source.name} has the one column {name!r}: its delimiter may be another one"
            if given:
                warn(f"{problem} ({Option.DELIMITER} {word})")
                continue
            raise BadInputError(
                problem, hint=f"{Option.DELIMITER} {word} divides it, {Option.DELIMITER} , does not"
            )


def warn_of_values(
    sources: Iterable[SourceColumns], known: Iterable[str], warn: Callable[[str], None]
) -> None:
    """Warn of CSV files of which a new column is named like a number or a time: their first line may be a row."""
    taken = set(known)
    by_names: dict[tuple[str, ...], list[str]] = {}
    for source in sources:
        if _is_csv(source):
            names = [name for name in source.columns.names if name not in taken and is_value(name)]
            by_names.setdefault(tuple(names[:_SHOWN]), []).append(source.name)
    by_names.pop((), None)
    for values, files in by_names.items():
        warn(
            f"the first line of {named_files(files)} may be a row and not the names of the columns: "
            f"{', '.join(values)} ({Option.HEADER} says that there is no header)"
        )


def is_value(name: str) -> bool:
    """Whether the name of a column is a number or a time."""
    text = re.sub(r"^(\d{4})/(\d{1,2})/(\d{1,2})", r"\1-\2-\3", name.strip())
    return infer_type(pa.array([text])) in _NOT_NAMES


def refuse_different(sources: Sequence[SourceColumns]) -> None:
    """Refuse files with different columns; each row of JSON has its own.

    Raises:
        BadInputError: two files have different columns.
    """
    files = [one for one in sources if one.file is not None and one.file.format != JSON]
    for other in files[1:]:
        first = files[0]
        names, found = set(first.columns.names), set(other.columns.names)
        if names == found:
            continue
        parts = [
            f"{one.name} has {_listed(own, one)}"
            for one, own in ((first, names - found), (other, found - names))
            if own
        ]
        values = [one for one in (first, other) if all(map(is_value, one.columns.names))]
        headless = _is_csv(other) and any(map(is_value, found - names))
        hint = f"{Option.UNION_COLUMNS} loads them together: a row has NULL in the columns that its file lacks"
        if headless or values:
            hint = (
                f"if its first line is a row, load the file by itself with {Option.HEADER}; {hint}"
            )
        raise BadInputError(
            f"the files have different columns: {', and '.join(parts)}, which the other lacks",
            hint=hint,
        )


def _listed(names: set[str], source: SourceColumns) -> str:
    ordered = [name for name in source.columns.names if name in names]
    more = f" and {len(ordered) - _SHOWN} more" if len(ordered) > _SHOWN else ""
    return f"{', '.join(ordered[:_SHOWN])}{more}"


def refuse_unrelated(schema: Schema, sources: Iterable[SourceColumns]) -> None:
    """Refuse to add all columns of a source to a table that has none of them: it belongs to another table.

    Raises:
        BadInputError: there is such a source.
    """
    known = {item.name for item in schema.fields}
    for source in sources:
        if known and source.columns.names and known.isdisjoint(source.columns.names):
            raise BadInputError(
                f"{source.name} has none of the table's columns: {_listed(set(source.columns.names), source)}",
                hint="check the table's name, the header and the delimiter; lake alter adds such columns",
            )


def _is_csv(source: SourceColumns) -> bool:
    return source.file is not None and source.file.format == CSV
