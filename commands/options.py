"""Arguments and options that several verbs share."""

from __future__ import annotations

from typing import Annotated

import typer

from lake.core.units import parse_size

TableArgument = Annotated[
    str, typer.Argument(metavar="TABLE", help="namespace.table", show_default=False)
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show the plan and touch nothing.")]
Wait = Annotated[
    str | None,
    typer.Option("--wait", metavar="DURATION", help="Wait so long for another run to end."),
]
Branch = Annotated[str, typer.Option("--branch", metavar="NAME", help="The branch to work on.")]
Where = Annotated[
    str | None,
    typer.Option("--where", metavar="EXPR", help="Row filter, e.g. \"id > 5 and name = 'x'\"."),
]


def size_option(flag: str, help_text: str) -> object:
    """Return the declaration of an option that takes a size such as 512MB."""
    return typer.Option(flag, metavar="SIZE", parser=parse_size, help=help_text)
