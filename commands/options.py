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
MERGES = ("deduplicate", "first-row", "partial-update")
CHANGE_MODES = ("upsert", "retract")

TableArgument = Annotated[
    str, typer.Argument(metavar="TABLE", help="namespace.table", show_default=False)
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show the plan; change nothing.")]
Wait = Annotated[
    str | None,
    typer.Option("--wait", metavar="DURATION", help="Wait this long for another run to end."),
]
OnCommit = Annotated[
    str | None,
    typer.Option(
        "--on-commit",
        metavar="CMD",
        help="Run a program after the commit, with the JSON document on its standard input.",
    ),
]
Branch = Annotated[str, typer.Option("--branch", metavar="NAME", help="Branch to work on.")]
OutputPath = Annotated[
    str | None,
    typer.Option("--output", metavar="PATH|-", help="Write to a file, a folder, or stdout."),
]
OutputFormat = Annotated[
    str | None,
    typer.Option(
        "--output-format",
        metavar="|".join(EXPORT_FORMATS),
        help="Format [default: from the output's name].",
    ),
]
ReplaceOutput = Annotated[bool, typer.Option("--replace", help="Replace an existing output.")]
Where = Annotated[
    str | None,
    typer.Option("--where", metavar="EXPR", help="Row filter, e.g. \"id > 5 and name = 'x'\"."),
]
PartialProgress = Annotated[
    bool, typer.Option("--partial-progress", help="Commit parts of the work as they finish.")
]
MaxCommits = Annotated[
    int | None,
    typer.Option("--max-commits", metavar="N", help="Maximum commits of --partial-progress [10]."),
]

# Options of the core that verbs declare as a parameter with another name.
PARAMETERS: Mapping[Option, str] = {
    Option.CASE_SENSITIVE: "ignore_case",
    Option.CHECKPOINTS: "checkpoint",
    Option.COMMIT_BYTES: "commit_size",
    Option.COMMIT_INTERVAL_MS: "commit_interval",
    Option.END: "to_snapshot",
    Option.EPOCH_BYTES: "epoch_size",
    Option.FORMAT: "format_name",
    Option.FORMAT_NAME: "output_format",
    Option.JOB_ID: "job",
    Option.KEEP_CHECKPOINTS_MS: "keep_checkpoints",
    Option.LIMIT_BYTES: "prune_limit",
    Option.LOCAL_MERGE_BYTES: "local_merge",
    Option.LOCATIONS: "location",
    Option.MONITOR_INTERVAL_MS: "monitor_interval",
    Option.KIND: "auto",
    Option.OLDER_THAN_MS: "older_than",
    Option.OVERFLOW: "prune_overflow",
    Option.QUIET_MS: "quiet_time",
    Option.REPLACE: "replace_output",
    Option.START: "from_snapshot",
    Option.STARTING: "start",
    Option.START_AT_MS: "start_at",
    Option.UNSAFE: "unsafe_retention",
    Option.WAIT_MS: "wait",
}
