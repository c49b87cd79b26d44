"""`lake deletes`: list a table's delete files."""

from __future__ import annotations

import typer

from lake.commands.context import session_of
from lake.commands.options import Branch, TableArgument
from lake.core.outcome import Outcome


def deletes(context: typer.Context, table: TableArgument, branch: Branch = "main") -> Outcome:
    """Show a table's delete files: kind, rows, bytes, and the data files that they apply to.

    A delete file that applies to no data file is dangling: it deletes nothing.
    """
    from lake.core.inspection.deletes import list_deletes

    session = session_of(context)
    return list_deletes(session.table(table), branch=branch)
