"""Access to the session of the current invocation."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import typer

if TYPE_CHECKING:
    from lake.core.base.outcome import Outcome
    from lake.core.transaction.session import Session


def session_of(context: typer.Context, **changes: Any) -> Session:
    """Return the invocation's session, opening it on first use.

    Args:
        context: the context of the verb.
        changes: settings that override the global options.

    Raises:
        InvalidRequestError: several catalogs are configured and none was chosen.
        NotFoundError: the chosen catalog is not configured.
    """
    state = context.obj
    if changes:
        state.settings = replace(state.settings, **changes)
    return cast("Session", state.session)


def with_session(context: typer.Context, session: Session) -> typer.Context:
    """Return a context whose verbs use a session of another thread, and print what concerns it."""
    if session is context.obj.session:
        return context
    found = copy(context)
    found.obj = context.obj.of_session(session)
    return found


def announce_warnings(context: typer.Context, session: Session) -> None:
    """Print each warning when it occurs: the command may never end."""
    for warning in session.warnings:
        context.obj.announce(warning)
    session.announce = context.obj.announce


def report_commits(context: typer.Context, command: str | None) -> None:
    """Let a program of the user run after each commit.

    Raises:
        InvalidRequestError: the command line of the program is not valid.
    """
    if command is not None:
        from lake.commands.commit_hook import hook_words

        context.obj.on_commit = hook_words(command)


def report_ends(context: typer.Context, *, done: str | None, failure: str | None) -> None:
    """Let a program of the user run after a run without failures, and another one after any other run.

    Raises:
        InvalidRequestError: the command line of a program is not valid.
    """
    from lake.commands.commit_hook import hook_words

    if done is not None:
        context.obj.on_done = hook_words(done, "--on-done")
    if failure is not None:
        context.obj.on_failure = hook_words(failure, "--on-failure")


def of_all_branches(context: typer.Context, outcome: Outcome) -> Outcome:
    """Return the outcome of a command that has an option for a branch, but did not work on one branch only."""
    context.obj.branch = None
    return outcome
