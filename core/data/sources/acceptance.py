"""Decide which rows of a source are loaded; the others are an error, or are set aside with their reasons."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from lake.core.base.errors import BadInputError
from lake.core.base.options import Option
from lake.core.base.plain import PlainData

if TYPE_CHECKING:
    from pyiceberg.schema import Schema


class RowProblem(NamedTuple):
    """Why some rows of a batch cannot be loaded.

    Args:
        mask: the rows, a Boolean for each row of the batch.
        reason: what is wrong with each of them.
        error: the error if they are not set aside.
    """

    mask: Any
    reason: str
    error: BadInputError


# Returns the problem of some rows of a batch from a file; called again until there is none.
RowCheck = Callable[[pa.RecordBatch, str], RowProblem | None]


class RejectedRows(NamedTuple):
    """Rows that are not loaded, in the order of their file.

    Args:
        where: the file.
        lines: the line, or the row in files without lines; None if not known.
        reasons: what is wrong with each.
        texts: the row as text.
        rows: the rows with the table's columns; NULL in rows that cannot be converted.
    """

    where: str
    lines: Sequence[int | None]
    reasons: Sequence[str]
    texts: Sequence[str]
    rows: pa.RecordBatch


class Rejects(Protocol):
    """Receives the rows that are not loaded."""

    def add(self, rejected: RejectedRows) -> None:
        """Set rows aside.

        Raises:
            BadInputError: there are too many of them.
        """


class BadRow(NamedTuple):
    """A row that cannot be loaded: its number in the order of the file, and the reason."""

    number: int
    reason: str


class RawRows(NamedTuple):
    """Rows of a source that are not converted to the table's types yet.

    Args:
        size: the number of rows.
        convert: returns the rows from a position on, by their number, with the table's columns; raises
            `BadInputError` if one of them cannot be converted.
        numbers: the number of each row in the order of the file.
        locate: returns the lines and the texts of rows by their numbers, which ascend.
        unreadable: rows between these that could not even be read.
    """

    size: int
    convert: Callable[[int, int], pa.RecordBatch]
    numbers: Sequence[int]
    locate: Callable[[Sequence[int]], tuple[Sequence[int | None], Sequence[str]]]
    unreadable: Sequence[BadRow] = ()


class ValuedRows(NamedTuple):
    """Rows of a source with the value of one column, by which they are divided.

    Args:
        values: the value of each row as text, an Arrow array.
        numbers: the number of each row in the order of the file.
        part: returns the rows at some positions, which ascend, to be converted to the columns of a schema, with the
            columns that each must have, if any; their `locate` is `located_later`.
        locate: as in `RawRows`.
        unreadable: as in `RawRows`.
    """

    values: pa.StringArray
    numbers: Sequence[int]
    part: Callable[[Sequence[int], Schema, NeededColumns | None], RawRows]
    locate: Callable[[Sequence[int]], tuple[Sequence[int | None], Sequence[str]]]
    unreadable: Sequence[BadRow] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NeededColumns(PlainData):
    """The columns that each row of a source must have: its row replaces one, whose values would be lost.

    A column that is NULL is there; one that a file's header or a JSON object does not name is not.

    Args:
        names: the columns.
        kinds: the column of a change log that contains the row kind; None if rows are not changes.
        whole_kinds: the row kinds, in lower case, whose rows need the columns.
    """

    names: tuple[str, ...]
    kinds: str | None = None
    whole_kinds: tuple[str, ...] = ()

    def lacking(self, present: Collection[str]) -> list[str]:
        """Return the columns that are not among those of a file or a row."""
        return [name for name in self.names if name not in present]

    def needs(self, kind: object) -> bool:
        """Whether a row with this value in the column of row kinds needs the columns."""
        if self.kinds is None:
            return True
        return isinstance(kind, str) and kind.strip().lower() in self.whole_kinds

    def check_row(self, row: Mapping[str, object], where: str) -> None:
        """Refuse a JSON object without one of the columns.

        Raises:
            BadInputError: it lacks one.
        """
        lacking = self.lacking(row)
        if lacking and self.needs(None if self.kinds is None else row.get(self.kinds)):
            raise lacks_columns(where, lacking, in_log=self.kinds is not None)

    def check_rows(self, rows: pa.RecordBatch, numbers: Sequence[int], where: str) -> None:
        """Refuse rows of a file that does not have all of the columns.

        Raises:
            BadInputError: a row needs a column that the file lacks.
        """
        if not rows.num_rows or not (lacking := self.lacking(rows.schema.names)):
            return
        index = 0 if self.kinds is None else rows.schema.get_field_index(self.kinds)
        if index < 0:
            return
        kinds = [None] if self.kinds is None else rows.column(index).to_pylist()
        place = next((place for place, kind in enumerate(kinds) if self.needs(kind)), None)
        if place is not None:
            where = f"{where}, row {numbers[place]}"
            raise lacks_columns(where, lacking, in_log=self.kinds is not None)


def lacks_columns(where: str, names: Sequence[str], *, in_log: bool) -> BadInputError:
    """Return the error for a source, or a row of one, that lacks columns of a table whose rows it replaces.

    Args:
        where: the source, or the place of the row.
        names: the columns.
        in_log: whether the rows are changes, which cannot be merged column by column.
    """
    plural = "column" if len(names) == 1 else "columns"
    keep = "" if in_log else f"{Option.MERGE} partial-update keeps the table's values; "
    return BadInputError(
        f"{where} lacks the {plural} {', '.join(names)} of the table, whose values a replaced row would lose",
        hint=f"{keep}{Option.MISSING} default sets them to NULL, or to the column's write default",
    )


def located_later(numbers: Sequence[int]) -> tuple[Sequence[int], Sequence[str]]:
    """Return the numbers of rows instead of their lines: the bad rows of all parts are located together."""
    return list(numbers), [""] * len(numbers)


@dataclass(frozen=True, slots=True)
class Acceptance:
    """What rows must fulfil to be loaded.

    Args:
        checks: what is checked of converted rows.
        rejects: receives the rows that are not loaded; if None, the first of them is an error.
    """

    checks: Sequence[RowCheck] = ()
    rejects: Rejects | None = None

    def accepted(self, raw: RawRows, where: str) -> pa.RecordBatch:
        """Return the rows that are loaded.

        Raises:
            BadInputError: a row cannot be loaded, and is not set aside.
        """
        if self.rejects is None:
            batch = raw.convert(0, raw.size)
            for check in self.checks:
                if problem := check(batch, where):
                    raise problem.error
            return batch
        bad = list(raw.unreadable)
        batch, numbers = _convertible(raw, bad)
        failed = [batch.slice(0, 0)]
        for check in self.checks:
            while problem := check(batch, where):
                bad += [BadRow(int(number), problem.reason) for number in numbers[problem.mask]]
                failed.append(batch.filter(pa.array(problem.mask)))
                batch, numbers = batch.filter(pa.array(~problem.mask)), numbers[~problem.mask]
        if bad:
            self.rejects.add(_rejected(raw, where, bad, pa.concat_batches(failed)))
        return batch


def _convertible(raw: RawRows, bad: list[BadRow]) -> tuple[pa.RecordBatch, Any]:
    """Return the rows that can be converted, and their numbers; add the others to ``bad``.

    Parts that cannot be converted are halved, so that a single bad row takes about as long as two conversions.
    """
    numbers = np.array(raw.numbers, np.int64)
    batches, found = [raw.convert(0, 0)], [numbers[:0]]
    pending = [(0, raw.size)] if raw.size else []
    while pending:
        start, count = pending.pop()
        try:
            batches.append(raw.convert(start, count))
            found.append(numbers[start : start + count])
        except BadInputError as error:
            if count == 1:
                bad.append(BadRow(int(numbers[start]), error.message))
            else:
                half = count // 2
                pending += [(start + half, count - half), (start, half)]
    return pa.concat_batches(batches), np.concatenate(found)


def _rejected(
    raw: RawRows, where: str, bad: Sequence[BadRow], failed: pa.RecordBatch
) -> RejectedRows:
    converted = range(len(bad) - failed.num_rows, len(bad))
    order = sorted(range(len(bad)), key=lambda index: bad[index].number)
    lines, texts = raw.locate([bad[index].number for index in order])
    places = [index - converted.start if index in converted else None for index in order]
    return RejectedRows(
        where=where,
        lines=lines,
        reasons=[bad[index].reason for index in order],
        texts=texts,
        rows=failed.take(pa.array(places, pa.int64())),
    )


def halves_with(batch: pa.RecordBatch, is_bad: Callable[[pa.RecordBatch], bool]) -> Any:
    """Return the mask of the rows for which a condition is true, by a test for whether some rows have one."""
    mask = np.zeros(batch.num_rows, np.bool_)
    for start, count in _bad_rows(batch, is_bad):
        mask[start : start + count] = True
    return mask


def _bad_rows(
    batch: pa.RecordBatch, is_bad: Callable[[pa.RecordBatch], bool]
) -> Iterator[tuple[int, int]]:
    pending = [(0, batch.num_rows)]
    while pending:
        start, count = pending.pop()
        if not count or not is_bad(batch.slice(start, count)):
            continue
        if count == 1:
            yield start, 1
        else:
            half = count // 2
            pending += [(start, half), (start + half, count - half)]


EVERY_ROW = Acceptance()
