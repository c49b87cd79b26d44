"""Arguments and options that several verbs share."""

from __future__ import annotations

from typing import Annotated

import typer

# The values of options, as the core defines them; help does not import it.
SOURCE_FORMATS = ("parquet", "csv", "json", "arrow", "orc", "avro")
EXPORT_FORMATS = ("parquet", "csv", "json", "arrow")
UPSERT_MODES = ("position", "equality", "copy-on-write")
CHANGE_MODES = ("upsert", "retract")

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
