"""`lake ref`: list, create and drop branches and tags; fast-forward branches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from lake.commands.context import session_of
from lake.commands.groups import Flag, flags_given
from lake.commands.options import DryRun, TableArgument, absolute_time, duration
from lake.core.base.errors import InvalidRequestError
from lake.core.base.outcome import Outcome


@dataclass(frozen=True, kw_only=True)
class WhatToDo:
    """What to do."""

    tag: Annotated[str | None, Flag("Create a tag.", "NAME")] = None
    branch_create: Annotated[str | None, Flag("Create a branch.", "NAME")] = None
    dropped_ref: Annotated[str | None, Flag("Drop a branch or tag.", "NAME", name="--drop")] = None
    fast_forward: Annotated[str | None, Flag("Move a branch forward; needs --to.", "BRANCH")] = None


@dataclass(frozen=True, kw_only=True)
class Target:
    """What it refers to."""

    at: Annotated[
        str | None,
        Flag(
            "Its snapshot: id, tag, branch or @TIME [default: the head of main].",
            "REF",
            callback=absolute_time,
        ),
    ] = None
    retain: Annotated[int | None, duration("Let expiry drop it if its snapshot is older.")] = None
    to: Annotated[
        str | None,
        Flag("A descendant of the head: id, tag, branch or @TIME.", "REF", callback=absolute_time),
    ] = None


def ref(
    context: typer.Context,
    table: TableArgument,
    what: WhatToDo,
    target: Target,
    *,
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
    from lake.core.transaction.commit.refs import BRANCH, TAG

    chosen = flags_given(what)
    if len(chosen) > 1:
        raise InvalidRequestError(f"{' and '.join(chosen)} contradict each other")
    created = what.tag if what.tag is not None else what.branch_create
    if (target.at is not None or target.retain is not None) and created is None:
        raise InvalidRequestError("--at and --retain need --tag or --branch-create")
    if (target.to is None) != (what.fast_forward is None):
        raise InvalidRequestError("--fast-forward and --to need each other")
    if dry_run and not chosen:
        raise InvalidRequestError(
            "--dry-run needs --tag, --branch-create, --drop or --fast-forward"
        )
    session = session_of(context)
    loaded = session.table(table)
    if created is not None:
        kind = BRANCH if what.tag is None else TAG
        plan = plan_create(loaded, created, kind=kind, at=target.at, retain_ms=target.retain)
    elif what.dropped_ref is not None:
        plan = plan_drop(loaded, what.dropped_ref)
    elif what.fast_forward is not None and target.to is not None:
        plan = plan_fast_forward(loaded, what.fast_forward, to=target.to)
    else:
        return list_refs(loaded)
    return execute(session, plan, dry_run=dry_run)
