"""`lake tag`: list, set, move and drop tags."""

from __future__ import annotations

from typing import Annotated

import typer

from lake.commands.context import session_of
from lake.commands.options import Branch, DryRun, TableArgument, absolute_time
from lake.core.base.errors import InvalidRequestError
from lake.core.base.outcome import Outcome
from lake.core.base.units import parse_duration_ms


def tag(
    context: typer.Context,
    table: TableArgument,
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Tag to set.", show_default=False)
    ] = None,
    at: Annotated[
        str | None,
        typer.Option(
            metavar="REF",
            callback=absolute_time,
            help="Snapshot to tag: id, tag, branch or @TIME [the newest].",
        ),
    ] = None,
    move: Annotated[
        bool, typer.Option("--move", help="Move a tag that refers to another snapshot.")
    ] = False,
    drop: Annotated[str | None, typer.Option(metavar="NAME", help="Drop this tag.")] = None,
    retain: Annotated[
        str | None,
        typer.Option(metavar="DURATION", help="Let expiry drop the tag of an older snapshot."),
    ] = None,
    auto: Annotated[
        str | None,
        typer.Option(
            metavar="hourly|daily|weekly|monthly",
            help="Tag the state at the end of the last period.",
        ),
    ] = None,
    zone: Annotated[
        str | None, typer.Option(metavar="ZONE", help="Time zone of the periods [default: UTC].")
    ] = None,
    delay: Annotated[
        str | None, typer.Option(metavar="DURATION", help="Tag this long after the period's end.")
    ] = None,
    format_name: Annotated[
        str | None,
        typer.Option("--format", metavar="FORMAT", help="Format of the names, e.g. eod-%Y-%m-%d."),
    ] = None,
    keep: Annotated[
        int | None, typer.Option(metavar="N", help="Keep the newest N tags of these periods.")
    ] = None,
    backfill: Annotated[
        bool, typer.Option("--backfill", help="Tag all periods of the retained history.")
    ] = False,
    branch: Branch = "main",
    dry_run: DryRun = False,
) -> Outcome:
    """List, set, move or drop a table's tags.

    A tag keeps its snapshot: expiry does not remove it while the tag exists. A line in cron with
    the option --auto keeps the state at the end of each day.
    """
    from lake.core.maintain.branching.tags import (
        PeriodTags,
        execute,
        list_tags,
        plan_drop,
        plan_period_tags,
        plan_tag,
    )
    from lake.core.table.refs.periods import Calendar
    from lake.core.transaction.locks.store_clock import require_clock

    _check(
        {"NAME": name, "--drop": drop, "--auto": auto},
        {
            "--auto": (
                ("--zone", zone),
                ("--delay", delay),
                ("--format", format_name),
                ("--keep", keep),
                ("--backfill", backfill or None),
            ),
            "NAME": (("--at", at),),
            "NAME or --auto": (("--retain", retain), ("--move", move or None)),
            "NAME, --drop or --auto": (("--dry-run", dry_run or None),),
        },
    )
    retain_ms = None if retain is None else parse_duration_ms(retain)
    periods = None
    if auto is not None:
        periods = PeriodTags(
            calendar=Calendar(auto, zone or "UTC", format_name),
            delay_ms=0 if delay is None else parse_duration_ms(delay),
            keep=keep,
            backfill=backfill,
        )
    session = session_of(context)
    loaded = session.table(table)
    if drop is not None:
        changes = plan_drop(loaded, drop)
    elif periods is not None:
        if not dry_run:
            require_clock(session, loaded)
        changes = plan_period_tags(
            loaded,
            periods,
            branch=branch,
            retain_ms=retain_ms,
            now_ms=session.clock.now_ms(),
            move=move,
        )
    elif name is not None:
        changes = plan_tag(loaded, name, at=at, branch=branch, retain_ms=retain_ms, move=move)
    else:
        return list_tags(loaded)
    return execute(session, changes, dry_run=dry_run)


def _check(
    modes: dict[str, str | None], needing: dict[str, tuple[tuple[str, object], ...]]
) -> None:
    """Refuse several modes at once, and options without the mode that they belong to."""
    given = [word for word, value in modes.items() if value is not None]
    if len(given) > 1:
        raise InvalidRequestError(f"{' and '.join(given)} contradict each other")
    for mode, options in needing.items():
        for option, value in options:
            if value is not None and not any(word in mode for word in given):
                raise InvalidRequestError(f"{option} needs {mode}")
