"""`lake demo`: tours of the commands, on real data and on tables that need maintenance."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lake.commands.context import session_of
from lake.commands.groups import Flag
from lake.core.base.interrupts import Interrupts
from lake.core.base.outcome import Outcome


def demo(
    context: typer.Context,
    *,
    lake: Annotated[
        bool, Flag("Maintain 30 tables in ./lake-demo-warehouse instead, without Java.")
    ] = False,
) -> Outcome:
    """Try the commands on real flights in ./lake-demo."""
    from lake.commands.actions import call_verb
    from lake.commands.tours import flights, maintenance

    folder = Path(maintenance.FOLDER if lake else flights.FOLDER).absolute()
    session = session_of(context, warehouse=str(folder), catalog=None, catalog_type="sql")
    # A tour makes several commits; a stop signal must be able to end it after any of them.
    session.interrupts = Interrupts()
    if lake:
        return maintenance.run_maintenance_demo(
            session, folder, lambda _, call: call_verb(context, call), context.obj.clean
        )
    return flights.run_demo(session, folder)
