"""`lake ref`: list, create and drop branches and tags; fast-forward branches."""

from __future__ import annotations

from typing import Annotated

import typer

from lake.commands.context import session_of
from lake.commands.options import DryRun, TableArgument, absolute_time
from lake.core.base.errors import InvalidRequestError
from lake.core.base.outcome import Outcome
from lake.core.base.units import parse_duration_ms


def ref(
    context: typer.Context,
    table: TableArgument,
    tag: Annotated[str | None, typer.Option(metavar="NAME", help="Create a tag.")] = None,
    branch_create: Annotated[
        str | None, typer.Option(metavar="NAME", help="Create a branch.")
    ] = None,
    at: Annotated[
        str | None,
        typer.Option(
            metavar="REF",
            callback=absolute_time,
            help="Its snapshot: id, tag, branch or @TIME [default: the head of main].",
        ),
    ] = None,
    retain: Annotated[
        str | None,
        typer.Option(metavar="DURATION", help="Let expiry drop it if its snapshot is older."),
    ] = None,
    dropped_ref: Annotated[
        str | None, typer.Option("--drop", metavar="NAME", help="Drop a branch or tag.")
    ] = None,
    fast_forward: Annotated[
        str | None, typer.Option(metavar="BRANCH", help="Move a branch forward; needs --to.")
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(
            metavar="REF",
            callback=absolute_time,
            help="A descendant of the head: id, tag, branch or @TIME.",
        ),
    ] = None,
    dry_run: DryRun = False,
) -> Outcome:
    """List, create, drop or move branches and tags.

    lake tag also moves tags and tags periods; lake rollback sets a branch back.
    """
    from lake.core.maintain.branching.branches import (
        execute,
        list_refs,
        plan_create,
        plan_drop,
        plan_fast_forward,
    )
    from lake.core.maintain.branching.commit import BRANCH, TAG

    given = {
        "--tag": tag,
        "--branch-create": branch_create,
        "--drop": dropped_ref,
        "--fast-forward": fast_forward,
    }
    chosen = [option for option, value in given.items() if value is not None]
    if len(chosen) > 1:
        raise InvalidRequestError(f"{' and '.join(chosen)} contradict each other")
    created = tag if tag is not None else branch_create
    if (at is not None or retain is not None) and created is None:
        raise InvalidRequestError("--at and --retain need --tag or --branch-create")
    if (to is None) != (fast_forward is None):
        raise InvalidRequestError("--fast-forward and --to need each other")
    if dry_run and not chosen:
        raise InvalidRequestError(
            "--dry-run needs --tag, --branch-create, --drop or --fast-forward"
        )
    retain_ms = None if retain is None else parse_duration_ms(retain)
    session = session_of(context)
    loaded = session.table(table)
    if created is not None:
        kind = BRANCH if tag is None else TAG
        plan = plan_create(loaded, created, kind=kind, at=at, retain_ms=retain_ms)
    elif dropped_ref is not None:
        plan = plan_drop(loaded, dropped_ref)
    elif fast_forward is not None and to is not None:
        plan = plan_fast_forward(loaded, fast_forward, to=to)
    else:
        return list_refs(loaded)
    return execute(session, plan, dry_run=dry_run)
