"""`lake show`: describe a table."""

from __future__ import annotations

import typer

from lake.commands.context import session_of
from lake.commands.options import Branch, TableArgument
from lake.core.base.outcome import Outcome


def show(context: typer.Context, table: TableArgument, branch: Branch = "main") -> Outcome:
    """Show a table's columns, properties, refs, sizes and users.

    The writers are the Flink jobs, streams and runs in the retained history of the branch.
    """
    from lake.core.read.inspection.show import show_table

    return show_table(session_of(context).table(table), branch=branch)
