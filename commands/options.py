"""Arguments and options that several verbs share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import typer

from lake.core.options import Option

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

# Options of the core that verbs declare as a parameter with another name.
PARAMETERS: Mapping[Option, str] = {
    Option.CHECKPOINTS: "checkpoint",
    Option.END: "to_snapshot",
    Option.FORMAT: "format_name",
    Option.FORMAT_NAME: "output_format",
    Option.JOB_ID: "job",
    Option.KEEP_CHECKPOINTS_MS: "keep_checkpoints",
    Option.OLDER_THAN_MS: "older_than",
    Option.QUIET_MS: "quiet_time",
    Option.REPLACE: "replace_output",
    Option.START: "from_snapshot",
    Option.UNSAFE: "unsafe_retention",
    Option.WAIT_MS: "wait",
}
