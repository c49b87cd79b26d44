"""`lake maintain`: give each table of a catalog the maintenance that it needs."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Annotated

import typer

from lake.commands.context import announce_warnings, report_commits, report_ends, session_of
from lake.commands.defaults import policy_file, project_policy, working_folder
from lake.commands.groups import Flag, arguments_of, option_names
from lake.commands.options import DryRun, OnCommit, duration, size
from lake.core.base.errors import InvalidRequestError, LakeError
from lake.core.base.outcome import Outcome

if TYPE_CHECKING:
    from lake.core.maintain.policies.policy import Choices, Policy
    from lake.core.maintain.rounds.options import Call, RoundOptions
    from lake.core.table.catalogs.catalog import Table

# Options of a verb that a policy does not set: they belong to one run, to one table, or to the round.
_OF_A_RUN = frozenset(
    {
        *("branch", "dry-run", "wait", "on-commit", "when", "if", "explain", "verify"),
        *("exact", "inventory", "location", "output", "purge", "purge-older-than", "replace"),
        *("restore", "snapshot", "max-bytes"),
    }
)
# What a property of a table may set: how the work is done, but nothing that protects its rows and files. Whoever may
# set properties may not be allowed to delete files.
_OF_PROPERTIES: Mapping[str, tuple[str, ...]] = {
    "expire": (),
    "compact": (
        *("where", "min-size", "max-size", "min-input-files", "delete-file-threshold"),
        *("delete-ratio", "strategy", "by", "target-size", "max-files", "max-group-size"),
        *("max-group-files", "job-order", "partial-progress", "max-commits", "idle"),
    ),
    "deletes": ("rewrite", "convert", "where", "max-files", "partial-progress", "max-commits"),
    "manifests": ("target-size", "sort-by"),
    "clean": ("exclude",),
    "stats": ("select",),
}


@dataclass(frozen=True, kw_only=True)
class WhatIsDone:
    """What is done."""

    policy: Annotated[
        tuple[str, ...],
        Flag("File with rules for tables; repeatable, the last one wins.", "FILE"),
    ] = ()
    only: Annotated[str | None, Flag("Do these actions only.", "ACTIONS")] = None
    max_seconds: Annotated[
        int | None, duration("Begin nothing after this time; compactions end between groups.")
    ] = None
    max_bytes: Annotated[int | None, size("Maximum size of the files to rewrite.")] = None


@dataclass(frozen=True, kw_only=True)
class Repetition:
    """A process that stays."""

    every: Annotated[int | None, duration("Begin again each time this has passed.")] = None
    status: Annotated[
        str | None, Flag("Replace a file with a heartbeat, for the probe of a container.", "FILE")
    ] = None


@dataclass(frozen=True, kw_only=True)
class MaintenanceRun:
    """This run."""

    log: Annotated[str | None, Flag("Append a line for each action to this file.", "FILE")] = None
    on_commit: OnCommit = None
    on_done: Annotated[str | None, Flag("Run a program after a run without failures.", "CMD")] = (
        None
    )
    on_failure: Annotated[str | None, Flag("Run a program after any other run.", "CMD")] = None
    dry_run: DryRun = False


def maintain(
    context: typer.Context,
    patterns: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PATTERN",
            help="Names such as 'db.*', namespaces, or one table.",
            show_default=False,
        ),
    ] = None,
    *,
    what: WhatIsDone,
    repetition: Repetition,
    run: MaintenanceRun,
) -> Outcome:
    """Give each table the maintenance it needs.

    Without a policy, an action is done if its forecast says that it pays, with the options that the
    verb has by default. Tables that gain most for each second of work are first. What fails does
    not stop the rest; the exit code is 6 then.
    """
    from lake.core.maintain.rounds.repeated import maintain_repeatedly
    from lake.core.maintain.rounds.report import dry_run_outcome, with_details
    from lake.core.maintain.rounds.round import maintain as maintain_tables
    from lake.core.maintain.rounds.status import StatusFile
    from lake.core.maintain.rounds.tables import preview

    _check(repetition, run)
    report_commits(context, run.on_commit)
    report_ends(context, done=run.on_done, failure=run.on_failure)
    options = _options(context, patterns or [], what, repetition, run)
    session = session_of(context)
    verbose = session.settings.verbose
    if run.dry_run:
        return dry_run_outcome(preview(session, options), verbose=verbose)
    announce_warnings(context, session)

    def run_verb(call: Call) -> Outcome:
        try:
            return _run(context, call)
        finally:
            context.obj.begin_action("maintain", None)

    if repetition.every is not None:
        maintain_repeatedly(
            session,
            run_verb,
            options,
            every_ms=repetition.every,
            status=StatusFile(repetition.status, session.clock, session.ids),
            ended=context.obj.run_ended,
        )
    return with_details(maintain_tables(session, run_verb, options), verbose=verbose)


def _check(repetition: Repetition, run: MaintenanceRun) -> None:
    if repetition.every is None and repetition.status is not None:
        raise InvalidRequestError("--status needs --every")
    if run.dry_run and repetition.every is not None:
        raise InvalidRequestError("--dry-run contradicts --every")
    if repetition.every == 0:
        raise InvalidRequestError("--every must be > 0")


def _options(
    context: typer.Context,
    patterns: Sequence[str],
    what: WhatIsDone,
    repetition: Repetition,
    run: MaintenanceRun,
) -> RoundOptions:
    from lake.core.maintain.rounds.options import RoundOptions
    from lake.core.maintain.run_log.run_log import default_path

    choices = _choices()

    def pending(table: Table) -> int:
        return _pending(context, table)

    return RoundOptions(
        patterns=tuple(dict.fromkeys(patterns)),
        policy=_policy(what.policy, choices),
        choices=choices,
        only=_actions(what.only),
        max_ms=what.max_seconds,
        max_bytes=what.max_bytes,
        log=run.log or default_path(),
        status=repetition.status,
        pending=pending,
        clean=context.obj.clean,
    )


@cache
def _verb(action: str) -> Callable[..., Outcome]:
    # Without the decorator that takes a name with special characters for a pattern.
    verb: Callable[..., Outcome] = inspect.unwrap(
        getattr(import_module(f"lake.commands.{action}"), action)
    )
    return verb


def _choices() -> Choices:
    from lake.core.maintain.policies.policy import ACTIONS, Choices

    of_files = {
        action: [name for name in option_names(_verb(action)) if name not in _OF_A_RUN]
        for action in ACTIONS
    }
    return Choices(of_files, _OF_PROPERTIES)


def _policy(paths: tuple[str, ...], choices: Choices) -> Policy:
    """Return the rules of policy files, and of the project file before them.

    Raises:
        InvalidRequestError: a file contains an unknown name or a value that is not allowed.
        BadInputError: a file cannot be read.
        RefusedError: the project file belongs to another user.
    """
    from lake.core.maintain.policies.policy import Policy, policy_rules

    found = [(path, policy_file(path)) for path in reversed(paths)]
    if (project := project_policy(working_folder())) is not None:
        found.append(project)
    rules = [rule for path, document in found for rule in policy_rules(document, path, choices)]
    policy = Policy(rules)
    for action, name, option in policy.options():
        arguments_of(_verb(action), {name: option})
    return policy


def _actions(text: str | None) -> tuple[str, ...]:
    from lake.core.maintain.policies.policy import ACTIONS

    names = [name.strip() for name in (text or "").split(",") if name.strip()]
    for name in names:
        if name not in ACTIONS:
            raise InvalidRequestError(
                f"--only names the unknown action {name!r}", hint=f"known are: {', '.join(ACTIONS)}"
            )
    if text is not None and not names:
        raise InvalidRequestError("--only needs the name of an action")
    return tuple(names)


def _run(context: typer.Context, call: Call) -> Outcome:
    """Run a verb on a table, and print how it ended.

    Raises:
        LakeError: it fails.
    """
    state = context.obj
    state.begin_action(call.action, call.table)
    options = {name: (value, f"{name} of {call.action}") for name, value in call.options.items()}
    verb = _verb(call.action)
    try:
        outcome = verb(context, call.table, **arguments_of(verb, options))
    except LakeError as error:
        state.table_ended(call.table, error)
        raise
    state.table_ended(call.table, outcome)
    return outcome


def _pending(context: typer.Context, table: Table) -> int:
    """Return the number of checkpoints that a replay could commit.

    Raises:
        LakeError: they cannot be read.
    """
    from lake.core.load.replay.model import PENDING
    from lake.core.load.replay.options import ReplayOptions
    from lake.core.load.replay.plan import plan_replay

    plan = plan_replay(session_of(context), table, ReplayOptions())
    return sum(found.state == PENDING for found in plan.found)
