"""Options that several verbs share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from lake.commands.context import session_of
from lake.commands.groups import Flag
from lake.commands.parsing import (
    absolute_ref,
    checked_filter,
    parse_moment,
    parse_names,
    parse_seconds,
    parse_table,
)
from lake.core.base.errors import InvalidRequestError, did_you_mean
from lake.core.base.units import parse_duration_ms, parse_size


def absolute_time(context: typer.Context, value: Any) -> Any:
    """Return the snapshots of an option with times that do not depend on the clock: ``@10m`` as ``@2026-…``."""
    if isinstance(value, list):
        return [absolute_time(context, item) for item in value]
    if not isinstance(value, str) or not value.startswith("@"):
        return value

    def now_ms() -> int:
        # Only an age needs the session, which opens the catalog.
        return session_of(context).clock.now_ms()

    return absolute_ref(value, now_ms)


def size(text: str) -> Flag:
    """Return the flag of an option whose value is a size in bytes."""
    return Flag(text, "SIZE", parse=parse_size)


def duration(text: str) -> Flag:
    """Return the flag of an option whose value is a duration in milliseconds."""
    return Flag(text, "DURATION", parse=parse_duration_ms)


def moment(text: str, metavar: str) -> Flag:
    """Return the flag of an option whose value is a `Moment`: an age or a time."""
    return Flag(text, metavar, parse=parse_moment)


def names(text: str, metavar: str) -> Flag:
    """Return the flag of an option whose value is a list of names."""
    return Flag(text, metavar, parse=parse_names)


TableArgument = Annotated[
    str, typer.Argument(metavar="TABLE", help="namespace.table", show_default=False)
]
PatternsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="PATTERN",
        help="Names such as 'db.*', namespaces, or one table.",
        show_default=False,
    ),
]
DryRun = Annotated[bool, Flag("Show the plan; change nothing.")]
Explain = Annotated[bool, Flag("With --dry-run: also show what is left alone, and why.")]
Wait = Annotated[int | None, duration("Wait this long for another run to end.")]
IgnoreUnreadable = Annotated[
    bool, Flag("Go on although another table that may own files there cannot be read.")
]
UnsafeRetention = Annotated[bool, Flag("Allow --older-than of less than 24 hours.")]
MaxSeconds = Annotated[
    int | None,
    Flag(
        "Begin nothing after this time; compactions end between groups.",
        "DURATION",
        parse=parse_seconds,
    ),
]
Jobs = Annotated[int | None, Flag("Small tables to work on at a time.", "N")]
MaxRewritten = Annotated[int | None, size("Maximum size of the files to rewrite.")]
RunLogFile = Annotated[str | None, Flag("Append a line for each action to this file.", "FILE")]
RunsTable = Annotated[
    str | None, Flag("Also append the runs to this Iceberg table.", "TABLE", parse=parse_table)
]
OnCommit = Annotated[
    str | None,
    Flag("Run a program after the commit, with the JSON document on its standard input.", "CMD"),
]
Branch = Annotated[str, Flag("Branch to work on.", "NAME")]
Replace = Annotated[bool, Flag("Replace an existing output.")]
Where = Annotated[
    str | None,
    Flag("Row filter, e.g. \"id > 5 and name = 'x'\".", "EXPR", parse=checked_filter),
]
PartialProgress = Annotated[bool, Flag("Commit parts of the work as they finish.")]
MaxCommits = Annotated[int | None, Flag("Maximum commits of --partial-progress [10].", "N")]


@dataclass(frozen=True, kw_only=True)
class ThisRun:
    """This run."""

    branch: Branch = "main"
    wait: Wait = None
    on_commit: OnCommit = None
    dry_run: DryRun = False


@dataclass(frozen=True, kw_only=True)
class WholeTableRun:
    """This run."""

    wait: Wait = None
    dry_run: DryRun = False


@dataclass(frozen=True, kw_only=True)
class ExplainedRun(ThisRun):
    """This run."""

    explain: Explain = False


@dataclass(frozen=True, kw_only=True)
class ExplainedTableRun(WholeTableRun):
    """This run."""

    explain: Explain = False


def require_preview(*, explain: bool, is_preview: bool) -> None:
    """Refuse to explain a run that changes something: only its plan says what is left alone.

    Raises:
        InvalidRequestError: it is asked.
    """
    if explain and not is_preview:
        raise InvalidRequestError("--explain needs --dry-run")


def require_actions(names: Sequence[str], flag: str) -> None:
    """Check names of actions of `lake maintain`.

    Raises:
        InvalidRequestError: one is unknown.
    """
    from lake.core.maintain.policies.policy import ACTIONS

    for name in names:
        if name not in ACTIONS:
            raise InvalidRequestError(
                f"{flag} names the unknown action {name!r}",
                hint=did_you_mean(name, ACTIONS) or f"known are: {', '.join(ACTIONS)}",
            )
