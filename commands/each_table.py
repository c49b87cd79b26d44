"""A pattern in place of a table: the verb runs for each table that matches, in one process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import is_dataclass
from functools import partial, wraps
from inspect import Parameter, signature
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from lake.commands.context import announce_warnings, session_of, with_session
from lake.commands.groups import flags_given
from lake.commands.options import Jobs
from lake.core.base.errors import InvalidRequestError, LakeError
from lake.core.base.options import Option
from lake.core.base.outcome import Outcome

if TYPE_CHECKING:
    from lake.core.transaction.session import Session

_Verb: TypeAlias = Callable[..., Outcome]
TablesArgument = Annotated[
    str,
    typer.Argument(
        metavar="TABLE",
        help="namespace.table, or a pattern such as 'db.*' for each table that matches.",
        show_default=False,
    ),
]


def for_each_table(*of_one_table: str) -> Callable[[_Verb], _Verb]:
    """Return a decorator: the verb also takes a pattern of names, and then works on each table, several at a time.

    The verb gets the option ``--jobs``; called as a function, it has none.

    Args:
        of_one_table: the flags that contradict a pattern, because they name something of one table.
    """
    return partial(_on_each, frozenset(of_one_table))


def _on_each(of_one_table: frozenset[str], verb: _Verb) -> _Verb:
    @wraps(verb)
    def on_each(
        context: typer.Context, table: str, *, jobs: int | None = None, **options: Any
    ) -> Outcome:
        from lake.core.table.catalogs.patterns import is_glob

        if not is_glob(table):
            if jobs is not None:
                raise InvalidRequestError(f"{Option.JOBS} is for a pattern, and {table} is a table")
            return verb(context, table, **options)
        for flag in flags_given(*filter(is_dataclass, options.values())):
            if flag in of_one_table:
                raise InvalidRequestError(
                    f"{flag} is for one table, and {table} is a pattern", hint="name the table"
                )
        from lake.core.transaction.each_table import run_each

        state, session, branch = context.obj, session_of(context), context.obj.branch
        announce_warnings(context, session)
        # The context of each thread, by its session.
        contexts = {id(session): context}

        def context_of(session: Session) -> typer.Context:
            if id(session) not in contexts:
                contexts[id(session)] = with_session(context, session)
            return contexts[id(session)]

        def work(session: Session, name: str) -> Outcome:
            own = context_of(session)
            own.obj.begin_table(name, branch)
            state.trace.begin_table(state.command, name)
            return verb(own, name, **options)

        def ended(session: Session, name: str, ending: Outcome | LakeError) -> None:
            context_of(session).obj.table_ended(name, ending)

        try:
            return run_each(session, table, work, ended, jobs)
        finally:
            state.begin_table(table, branch)

    taken = signature(verb)
    option = Parameter("jobs", Parameter.KEYWORD_ONLY, default=None)
    on_each.__signature__ = taken.replace(  # type: ignore[attr-defined]
        parameters=[*taken.parameters.values(), option]
    )
    on_each.__annotations__ = {**verb.__annotations__, "jobs": Jobs}
    return on_each
