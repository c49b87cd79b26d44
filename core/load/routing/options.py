"""The options of a load into many tables."""

from __future__ import annotations

import re
from dataclasses import dataclass

from lake.core.base.errors import InvalidRequestError
from lake.core.base.options import Option
from lake.core.load.ingest.options import APPEND, IngestOptions

MOST_TABLES = 100
_ALLOWED = re.compile(r"[A-Za-z0-9_]+")  # check: plain-table-names
_LONGEST = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteOptions:
    """How rows are divided among tables.

    Args:
        name: the tables' name; `{column}` in it is replaced by a row's value.
        column: the column by which rows are divided.
        max_tables: the largest number of tables of one run.

    Raises:
        InvalidRequestError: a value is not allowed.
    """

    name: str
    column: str
    max_tables: int = MOST_TABLES

    def __post_init__(self) -> None:
        if self._place not in self.name:
            raise InvalidRequestError(
                f"{Option.ROUTE} {self.column} needs a table name with {self._place}, which is replaced by the "
                "rows' values",
                hint=f"for example db.{self._place}",
            )
        if self.max_tables < 1:
            raise InvalidRequestError(f"{Option.MAX_TABLES} {self.max_tables} is less than 1")

    @property
    def _place(self) -> str:
        return f"{{{self.column}}}"

    def table(self, value: str) -> str:
        """Return the name of the table of the rows with a value."""
        return self.name.replace(self._place, value)

    @property
    def pattern(self) -> str:
        """A regular expression for the names of the tables."""
        allowed = f"{_ALLOWED.pattern.removesuffix('+')}{{1,{_LONGEST}}}"
        return allowed.join(map(re.escape, self.name.split(self._place)))

    def is_in(self, text: str) -> bool:
        """Whether a part of the name contains the place of the value."""
        return self._place in text

    def problem(self, value: str | None) -> str | None:
        """Return why a value cannot be part of a table's name; None if it can."""
        if value is None:
            return f"NULL in column {self.column}, which names the table"
        if len(value) <= _LONGEST and _ALLOWED.fullmatch(value):
            return None
        shown = value if len(value) <= _LONGEST else f"{value[:_LONGEST]}…"
        return (
            f"column {self.column} has {shown!r}, which cannot be part of a table's name: letters A to Z, digits "
            f"and _ are allowed, up to {_LONGEST} of them"
        )


def refuse_others(options: IngestOptions) -> None:
    """Refuse the options of a load that a load into many tables does not have.

    Raises:
        InvalidRequestError: there is one.
    """
    for option, given in (
        (Option.FROM_TABLE, options.from_table is not None),
        (Option.STAGE, options.stage),
    ):
        if given:
            raise InvalidRequestError(f"{option} and {Option.ROUTE} contradict each other")
    if options.mode != APPEND:
        option = Option(options.mode.replace("-", "_"))
        raise InvalidRequestError(
            f"{option} and {Option.ROUTE} contradict each other",
            hint="a table without rows in the source would keep its old rows",
        )
    if not options.text.header:
        raise InvalidRequestError(f"{Option.ROUTE} needs files with a header: it names a column")
