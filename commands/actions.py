"""The verbs of maintenance as actions of a round: their options by names, and how they are run."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

import typer

from lake.commands.context import session_of, with_session
from lake.commands.groups import arguments_of, given, option_names
from lake.core.base.errors import LakeError
from lake.core.base.outcome import Outcome

if TYPE_CHECKING:
    from lake.core.maintain.health.measure import Asked
    from lake.core.maintain.policies.policy import Choices, TablePolicy
    from lake.core.maintain.rounds.options import Call
    from lake.core.table.catalogs.catalog import Table
    from lake.core.transaction.session import Session

# Options of a verb that a policy does not set: they belong to one run, to one table, or to the round.
_OF_A_RUN = frozenset(
    {
        *("branch", "dry-run", "wait", "on-commit", "when", "if", "explain", "verify"),
        *("exact", "inventory", "location", "output", "purge", "purge-older-than", "replace"),
        *("restore", "snapshot", "max-bytes"),
    }
)
# What a property of a table may set: how the work is done, but nothing that protects its rows and files. The
# right to set properties is not the right to delete files.
_OF_PROPERTIES: Mapping[str, tuple[str, ...]] = {
    "expire": (),
    "compact": (
        *("where", "min-size", "max-size", "min-input-files", "delete-file-threshold"),
        *("delete-ratio", "strategy", "by", "target-size", "max-files", "max-group-size"),
        *("max-group-files", "job-order", "partial-progress", "max-commits", "idle"),
        "copy-row-groups",
    ),
    "deletes": ("rewrite", "convert", "where", "max-files", "partial-progress", "max-commits"),
    "manifests": ("target-size", "sort-by"),
    "clean": ("exclude",),
    "stats": ("select",),
}


@cache
def verb_of(action: str) -> Callable[..., Outcome]:
    """Return the verb of an action."""
    # Without the decorator that takes a name with special characters for a pattern.
    verb: Callable[..., Outcome] = inspect.unwrap(
        getattr(import_module(f"lake.commands.{action}"), action)
    )
    return verb


def choices() -> Choices:
    """Return the options that policies may set."""
    from lake.core.maintain.policies.policy import ACTIONS, Choices

    of_files = {
        action: [name for name in option_names(verb_of(action)) if name not in _OF_A_RUN]
        for action in ACTIONS
    }
    return Choices(
        of_files,
        _OF_PROPERTIES,
        lambda action, name, value, place: arguments_of(verb_of(action), {name: (value, place)}),
    )


def asked_of(policy: TablePolicy, now_ms: int) -> Asked:
    """Return what the policy of a table asks an expiration and a compaction to do.

    Raises:
        InvalidRequestError: an option has a value that is not allowed.
    """
    from lake.core.maintain.compaction.options import idle_options
    from lake.core.maintain.health.measure import Asked

    expiration, compaction = (
        arguments_of(verb_of(action), policy.actions[action].options)
        for action in ("expire", "compact")
    )
    # How much a run may do does not change what there is to do.
    chosen = given(compaction["which"], compaction["new"])
    chosen |= idle_options(compaction["run"].idle, now_ms)
    return Asked(retention=expiration["which"].retention(now_ms), compaction=chosen)


def run_action(context: typer.Context, session: Session, call: Call) -> Outcome:
    """Run a verb on a table with the session of a thread, and print how it ended.

    Raises:
        LakeError: it fails.
    """
    context = with_session(context, session)
    state, command = context.obj, context.obj.command
    state.begin_action(call.action, call.table)
    try:
        outcome = call_verb(context, call)
        state.table_ended(call.table, outcome)
        warnings = session_of(context).warnings
        warnings[:] = map(state.clean, warnings)
        return replace(outcome, warnings=[state.clean(text) for text in outcome.warnings])
    except LakeError as error:
        state.table_ended(call.table, error)
        # What the texts refer to are options of this verb; others have some of the same names.
        error.message = state.clean(error.message)
        error.hint = error.hint and state.clean(error.hint)
        raise
    finally:
        state.begin_action(command, None)


def call_verb(context: typer.Context, call: Call) -> Outcome:
    """Run a verb on a table.

    Raises:
        LakeError: it fails.
    """
    verb = verb_of(call.action)
    options = {name: (value, f"{name} of {call.action}") for name, value in call.options.items()}
    return verb(context, call.table, **arguments_of(verb, options))


def pending_checkpoints(context: typer.Context, table: Table) -> int:
    """Return the number of checkpoints that a replay could commit.

    Raises:
        LakeError: they cannot be read.
    """
    from lake.core.load.replay.model import PENDING
    from lake.core.load.replay.options import ReplayOptions
    from lake.core.load.replay.plan import plan_replay

    plan = plan_replay(session_of(context), table, ReplayOptions())
    return sum(found.state == PENDING for found in plan.found)
