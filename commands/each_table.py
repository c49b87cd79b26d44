"""A pattern in place of a table: the verb runs for each table that matches, in one process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import is_dataclass
from functools import partial, wraps
from typing import Annotated, Any, TypeAlias

import typer

from lake.commands.context import announce_warnings, session_of
from lake.commands.groups import flags_given
from lake.core.base.errors import InvalidRequestError
from lake.core.base.outcome import Outcome

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
    """Return a decorator: the verb also takes a pattern of names, and then works on one table after the other.

    Args:
        of_one_table: the flags that contradict a pattern, because they name something of one table.
    """
    return partial(_on_each, frozenset(of_one_table))


def _on_each(of_one_table: frozenset[str], verb: _Verb) -> _Verb:
    @wraps(verb)
    def on_each(context: typer.Context, table: str, **options: Any) -> Outcome:
        from lake.core.table.catalogs.patterns import is_glob

        if not is_glob(table):
            return verb(context, table, **options)
        for flag in flags_given(*filter(is_dataclass, options.values())):
            if flag in of_one_table:
                raise InvalidRequestError(
                    f"{flag} is for one table, and {table} is a pattern", hint="name the table"
                )
        from lake.core.transaction.each_table import run_each

        state, session, branch = context.obj, session_of(context), context.obj.branch
        announce_warnings(context, session)

        def work(name: str) -> Outcome:
            state.begin_table(name, branch)
            state.trace.begin_table(state.command, name)
            return verb(context, name, **options)

        try:
            return run_each(session, table, work, state.table_ended)
        finally:
            state.begin_table(table, branch)

    return on_each
