"""`lake demo`: a tour of the commands on real data."""

from __future__ import annotations

from pathlib import Path

import typer

from lake.commands.context import session_of
from lake.core.base.interrupts import Interrupts
from lake.core.base.outcome import Outcome


def demo(context: typer.Context) -> Outcome:
    """Try the commands on real flights in ./lake-demo."""
    from lake.commands.reports.demo_tour import FOLDER, run_demo

    folder = Path(FOLDER).absolute()
    session = session_of(context, warehouse=str(folder), catalog=None, catalog_type="sql")
    # The tour makes several commits; a stop signal must be able to end it after any of them.
    session.interrupts = Interrupts()
    return run_demo(session, folder)
