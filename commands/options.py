"""Arguments and options that several verbs share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from lake.commands.context import session_of
from lake.commands.parsing import absolute_ref
from lake.core.base.options import Option

# The values of options, as the core defines them; help does not import it.
SOURCE_FORMATS = ("parquet", "csv", "json", "arrow", "orc", "avro")
EXPORT_FORMATS = ("parquet", "csv", "tsv", "json", "arrow")
UPSERT_MODES = ("position", "equality", "copy-on-write")
DELETE_MODES = ("position", "copy-on-write")
MERGES = ("deduplicate", "first-row", "partial-update")
CHANGE_MODES = ("upsert", "retract")


def absolute_time(context: typer.Context, value: Any) -> Any:
    """Return the snapshots of an option with times that do not depend on the clock: ``@10m`` as ``@2026-…``."""
    if isinstance(value, list):
        return [absolute_time(context, item) for item in value]
    if not isinstance(value, str) or not value.startswith("@"):
        return value

    def now_ms() -> int:
        # Only an age needs the session, which opens the catalog.
        return session_of(context).clock.now_ms()

    return absolute_ref(value, now_ms)


TableArgument = Annotated[
    str, typer.Argument(metavar="TABLE", help="namespace.table", show_default=False)
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show the plan; change nothing.")]
Wait = Annotated[
    str | None,
    typer.Option("--wait", metavar="DURATION", help="Wait this long for another run to end."),
]
IgnoreUnreadable = Annotated[
    bool,
    typer.Option(
        "--ignore-unreadable",
        help="Go on although another table that may own files there cannot be read.",
    ),
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
    Option.METRICS_PATH: "metrics_file",
    Option.MONITOR_INTERVAL_MS: "monitor_interval",
    Option.KIND: "auto",
    Option.OLDER_THAN_MS: "older_than",
    Option.OVERFLOW: "prune_overflow",
    Option.QUIET_MS: "quiet_time",
    Option.REPLACE: "replace_output",
    Option.SETTLE_MS: "settle",
    Option.START: "from_snapshot",
    Option.STARTING: "start",
    Option.START_AT_MS: "start_at",
    Option.TRUSTED: "trust",
    Option.UNSAFE: "unsafe_retention",
    Option.WAIT_MS: "wait",
}
