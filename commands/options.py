"""Arguments and options that several verbs share."""

from __future__ import annotations

from typing import Annotated

import typer

TableArgument = Annotated[
    str, typer.Argument(metavar="TABLE", help="namespace.table", show_default=False)
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show the plan; change nothing.")]
Wait = Annotated[
    str | None,
    typer.Option("--wait", metavar="DURATION", help="Wait this long for another run to end."),
]
Branch = Annotated[str, typer.Option("--branch", metavar="NAME", help="Branch to work on.")]
Where = Annotated[
    str | None,
    typer.Option("--where", metavar="EXPR", help="Row filter, e.g. \"id > 5 and name = 'x'\"."),
]
