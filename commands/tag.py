"""`lake tag`: list, set, move and drop tags."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from lake.commands.context import session_of
from lake.commands.groups import Flag, require
from lake.commands.options import Branch, DryRun, TableArgument, absolute_time, duration
from lake.core.base.errors import InvalidRequestError
from lake.core.base.outcome import Outcome


@dataclass(frozen=True, kw_only=True)
class SetTag:
    """A tag that is set."""

    at: Annotated[
        str | None,
        Flag(
            "Snapshot to tag: id, tag, branch or @TIME [the newest].", "REF", callback=absolute_time
        ),
    ] = None
    move: Annotated[bool, Flag("Move a tag that refers to another snapshot.")] = False
    retain: Annotated[int | None, duration("Let expiry drop the tag of an older snapshot.")] = None


@dataclass(frozen=True, kw_only=True)
class Periods:
    """Tags of periods."""

    auto: Annotated[
        str | None,
        Flag("Tag the state at the end of the last period.", "hourly|daily|weekly|monthly"),
    ] = None
    zone: Annotated[str | None, Flag("Time zone of the periods [default: UTC].", "ZONE")] = None
    delay: Annotated[int | None, duration("Tag this long after the period's end.")] = None
    format: Annotated[str | None, Flag("Format of the names, e.g. eod-%Y-%m-%d.", "FORMAT")] = None
    keep: Annotated[int | None, Flag("Keep the newest N tags of these periods.", "N")] = None
    backfill: Annotated[bool, Flag("Tag all periods of the retained history.")] = False


def tag(
    context: typer.Context,
    table: TableArgument,
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Tag to set.", show_default=False)
    ] = None,
    *,
    one: SetTag,
    periods: Periods,
    drop: Annotated[str | None, Flag("Drop this tag.", "NAME")] = None,
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
    from lake.core.transaction.store_clock import require_clock

    modes = {"NAME": name, "--drop": drop, "--auto": periods.auto}
    chosen = [word for word, value in modes.items() if value is not None]
    if len(chosen) > 1:
        raise InvalidRequestError(f"{' and '.join(chosen)} contradict each other")
    if periods.auto is None:
        require("--auto", periods)
    if one.at is not None and name is None:
        raise InvalidRequestError("--at needs NAME")
    if name is None and periods.auto is None:
        require("NAME or --auto", one)
    if dry_run and not chosen:
        raise InvalidRequestError("--dry-run needs NAME, --drop or --auto")
    kept = None
    if periods.auto is not None:
        kept = PeriodTags(
            calendar=Calendar(periods.auto, periods.zone or "UTC", periods.format),
            delay_ms=periods.delay or 0,
            keep=periods.keep,
            backfill=periods.backfill,
        )
    session = session_of(context)
    loaded = session.table(table)
    if drop is not None:
        changes = plan_drop(loaded, drop)
    elif kept is not None:
        if not dry_run:
            require_clock(session, loaded)
        changes = plan_period_tags(
            loaded,
            kept,
            branch=branch,
            retain_ms=one.retain,
            now_ms=session.clock.now_ms(),
            move=one.move,
        )
    elif name is not None:
        changes = plan_tag(
            loaded, name, at=one.at, branch=branch, retain_ms=one.retain, move=one.move
        )
    else:
        return list_tags(loaded)
    return execute(session, changes, dry_run=dry_run)
