"""The result of a command, in the one form that is printed and that scripts read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import islice
from typing import Any, NamedTuple, TypeVar

from lake.core.base.facts import Facts, NoFacts, inlined
from lake.core.base.options import Option

T = TypeVar("T")
# The number of rows of a table that are shown without a limit, and the most that are shown with one: they are in
# memory as objects.
PREVIEW_ROWS, MOST_SHOWN = 20, 10_000
# The number of reasons that a dry run shows, unless all are asked for.
_SHOWN_REASONS = 50


# Commands that change something when they are done, and whose outcomes have neither an operation nor a snapshot.
_CHANGE_WITHOUT_ID = frozenset(
    {
        *("alter", "apply", "clean", "consumers", "create", "demo", "drop", "maintain"),
        *("ref", "register", "rename", "rollback", "tag"),
    }
)


class Status(StrEnum):
    """How a command ended, as in the JSON output."""

    DONE = "done"
    NOTHING_TO_DO = "nothing-to-do"
    DRY_RUN = "dry-run"
    PARTIAL = "partial"
    REFUSED = "refused"
    CONFLICT = "conflict"
    UNKNOWN = "unknown"
    ALREADY_RUNNING = "already-running"
    FAILED = "failed"
    SUSPECT = "suspect"
    DAMAGED = "damaged"

    @property
    def exit_code(self) -> int:
        """The exit code of an outcome: 0; 6 if only a part was done or a check has warnings; 7 if it found errors."""
        if self is Status.DAMAGED:
            return 7
        return 6 if self in {Status.PARTIAL, Status.SUSPECT} else 0


class Detail(NamedTuple):
    """A table to print above the summary.

    Args:
        title: what the table shows.
        columns: the names of the columns.
        rows: a JSON-ready value for each column.
        types: the columns' types, if the rows are data; empty in a report.
        vertical: whether a row is a block of lines on a terminal, because its texts are long.
        first: the names of columns that a narrow terminal shows before all others.
        root: a location; a terminal shows paths below it relative to it.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    types: Sequence[str] = ()
    vertical: bool = False
    first: Sequence[str] = ()
    root: str = ""


@dataclass(frozen=True, slots=True)
class MadeRows(Sequence[Sequence[Any]]):
    """Rows of a table to print that are made when they are printed: a document for scripts needs none of them.

    Args:
        items: one for each row.
        cells: returns the values of a row.
    """

    items: Sequence[Any]
    cells: Callable[[Any], Sequence[Any]]

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, place: Any) -> Any:
        found = self.items[place]
        return [*map(self.cells, found)] if isinstance(place, slice) else self.cells(found)


def report(title: str, columns: Mapping[str, Sequence[Any]], first: Sequence[str] = ()) -> Detail:
    """Return a table without the columns that only have zeros and missing values; the first one stays."""
    (name, values), *others = columns.items()
    kept = {name: values} | {key: column for key, column in others if any(column)}
    rows = [list(row) for row in zip(*kept.values(), strict=True)]
    return Detail(title, list(kept), rows, first=first)


def first_rows(
    rows: Sequence[T], most: int, noun: str, *, every: bool
) -> tuple[Sequence[T], list[str]]:
    """Return the rows of a report to print, and a note of those that are left out."""
    hidden = 0 if every else max(len(rows) - most, 0)
    what = f"{noun.removesuffix('s')} is" if hidden == 1 else f"{noun} are"
    note = f"{hidden:,} more {what} not shown ({Option.VERBOSE} shows all)"
    return rows[: len(rows) - hidden], [note] if hidden else []


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of one command.

    `plan` and `result` have exactly the keys of the command's documented JSON. `details` and `notes`, the lines below
    these tables, are for people only. When the command has ended, the command line sets `command`, and `table` and
    `branch` as the user gave them.
    """

    status: Status
    command: str = ""
    table: str = ""
    branch: str | None = None
    operation_id: str | None = None
    base_snapshot_id: int | None = None
    snapshot_ids: Sequence[int] = ()
    plan: Facts = NoFacts()
    result: Facts = NoFacts()
    warnings: Sequence[str] = ()
    notes: Sequence[str] = ()
    details: Sequence[Detail] = ()

    @property
    def exit_code(self) -> int:
        """The exit code of the status."""
        return self.status.exit_code

    @property
    def has_changes(self) -> bool:
        """Whether the command has changed a table, a catalog or files other than its own output.

        Verbs that only read have no operation and no snapshot of their own, nor do `drop` and its like, which change
        entries and files.
        """
        if self.status not in {Status.DONE, Status.PARTIAL}:
            return False
        return bool(self.snapshot_ids or self.operation_id) or self.command in _CHANGE_WITHOUT_ID


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """What a plan does not choose, and why.

    Args:
        noun: what is left alone, in the plural.
        columns: the names of the columns of `groups`, of which the first is ``reason``.
        groups: a row for each reason, with what the reason applies to and how much is left alone for it.
        item_columns: the names of the columns of an item.
        items: yields a row for each item; called only if items are shown, and read only as far as they are.
    """

    noun: str
    columns: Sequence[str]
    groups: Sequence[Sequence[Any]]
    item_columns: Sequence[str]
    items: Callable[[], Iterable[Sequence[Any]]]

    def explain(self, outcome: Outcome, *, verbose: bool) -> Outcome:
        """Return the outcome of a dry run with the reasons.

        Args:
            outcome: the outcome.
            verbose: also list the items, up to `MOST_SHOWN`, and all groups up to this number.
        """
        most = MOST_SHOWN if verbose else _SHOWN_REASONS
        shown, notes = first_rows(self.groups, most, "reasons", every=False)
        details = [
            *outcome.details,
            Detail(f"{self.noun} that are left alone", self.columns, shown),
        ]
        if verbose:
            rows = list(islice(self.items(), MOST_SHOWN + 1))
            if len(rows) > MOST_SHOWN:
                notes = [*notes, f"more than {MOST_SHOWN:,} {self.noun}: the others are not shown"]
            title = f"reasons of {self.noun}"
            details.append(Detail(title, self.item_columns, rows[:MOST_SHOWN]))
        return replace(outcome, details=details, notes=[*outcome.notes, *notes])


@dataclass(frozen=True, slots=True, kw_only=True)
class InterruptedResult(Facts):
    """What a command did before an error, and the result of the error itself, whose values count."""

    done: Facts = inlined()
    own: Facts = inlined()
