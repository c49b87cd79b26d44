"""The help text: usage, arguments, options in groups, and examples.

The groups and the examples are here, and not with the options, so that they can be read as one text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_Groups = tuple[tuple[str, tuple[str, ...]], ...]

_THIS_RUN = ("--branch", "--wait", "--dry-run")
# Titles and options by verb; the empty name is the whole command. What is not named here is in a last group.
GROUPS: Mapping[str, _Groups] = {
    "": (
        ("Catalog", ("--catalog", "--warehouse", "--catalog-type")),
        ("Engine", ("--engine", "--master", "--remote", "--spark-conf")),
        (
            "Output",
            (
                *("--json", "--quiet", "--verbose", "--vertical", "--columns", "--color"),
                "--progress",
            ),
        ),
    ),
    "ingest": (
        ("Source", ("--from-table", "--format")),
        (
            "CSV",
            (
                *("--delimiter", "--encoding", "--null", "--header", "--decimal", "--date-format"),
                *("--quote", "--skip-rows"),
            ),
        ),
        ("New table", ("--create", "--partition-by", "--sort-by", "--property")),
        (
            "Existing rows and columns",
            (
                *("--evolve", "--overwrite", "--overwrite-where", "--replace-partitions"),
                "--allow-empty",
            ),
        ),
        (
            "Updates by key",
            (
                *("--upsert", "--key", "--deletes", "--order-by", "--repair-duplicates"),
                *("--changes-column", "--changes-mode"),
            ),
        ),
        ("Writing", ("--distribution", "--target-size")),
        ("Bad rows", ("--rejects", "--max-rejects")),
        ("This run", ("--run-id", "--stage", "--discard", *_THIS_RUN)),
    ),
    "scan": (
        ("Rows and columns", ("--where", "--select", "--limit", "--ignore-case")),
        (
            "Snapshots",
            (
                *("--snapshot", "--from-snapshot", "--inclusive", "--to-snapshot"),
                *("--changes", "--key", "--branch"),
            ),
        ),
        ("Output", ("--output", "--output-format", "--replace")),
        ("Plan", ("--plan", "--split-size", "--split-lookback", "--split-open-cost")),
    ),
    "compact": (
        (
            "Which files",
            (
                *("--where", "--min-size", "--max-size", "--min-input-files"),
                *("--delete-file-threshold", "--delete-ratio", "--rewrite-all"),
            ),
        ),
        (
            "New files",
            (
                *("--strategy", "--by", "--target-size", "--spec-id"),
                *("--no-starting-sequence-number", "--remove-dangling-deletes"),
            ),
        ),
        (
            "Amount of work",
            (
                *("--max-files", "--max-group-size", "--max-group-files", "--job-order"),
                *("--partial-progress", "--max-commits"),
            ),
        ),
        ("This run", ("--when", "--verify", "--option", *_THIS_RUN)),
    ),
    "expire": (
        (
            "Which snapshots",
            ("--older-than", "--retain-last", "--snapshot", "--keep-checkpoints"),
        ),
        ("What is removed", ("--keep-files", "--clean-metadata")),
        ("This run", ("--unsafe-retention", *_THIS_RUN)),
    ),
    "replay": (
        ("What to commit", ("--checkpoint", "--job", "--completed", "--replace-partitions")),
        ("Safety", ("--quiet-time", "--assume-uncommitted")),
        ("This run", ("--status", *_THIS_RUN)),
    ),
}

EXAMPLES: Mapping[str, Sequence[str]] = {
    "": (
        "lake ingest db.events day.csv --create",
        "lake --warehouse ./warehouse snapshots db.events",
        "lake -q --catalog prod compact db.events",
    ),
    "ingest": (
        'lake ingest db.events day.csv --create --partition-by "day(ts)"',
        "lake ingest db.events 'drop/*.parquet' --run-id 2026-01-31",
        "lake ingest db.users changed.csv --upsert --key id --dry-run",
    ),
    "scan": (
        "lake scan db.events --where \"country = 'NZ'\" --select id,ts --limit 100",
        "lake scan db.events --output events.parquet",
        "lake scan db.events --changes --key id --from-snapshot @2026-01-30",
    ),
    "snapshots": (
        "lake snapshots db.events --limit 5",
        "lake snapshots db.events --all",
        "lake --json snapshots db.events",
    ),
    "compact": (
        "lake compact db.events --dry-run",
        "lake compact db.events --target-size 256MB --where \"day = '2026-01-01'\"",
        'lake compact db.events --strategy sort --by "country, ts desc" --rewrite-all',
    ),
    "expire": (
        "lake expire db.events --dry-run --verbose",
        "lake expire db.events --older-than 7d --retain-last 10",
        "lake expire db.events --snapshot @2026-01-31 --keep-files",
    ),
    "replay": (
        "lake replay db.events",
        "lake replay db.events --checkpoint s3://state/checkpoints/5f3a/chk-42 --dry-run",
        "lake replay db.events --job 5f3a0e2c9b1d4f6a8c7e5d3b2a190817 --completed 42",
    ),
    "config": (
        "lake config",
        "lake --json config",
        "lake --catalog prod config",
    ),
    "demo": (
        "lake demo",
        "lake demo --quiet",
        "lake --warehouse lake-demo snapshots nyc.flights",
    ),
}


def write_usage(name: str, params: Sequence[Any], formatter: Any) -> None:
    """Write the line with the arguments, as ``lake scan TABLE [options]``."""
    words = [_argument(item) for item in params if item.param_type_name == "argument"]
    formatter.write_usage("lake", " ".join([*filter(None, [name]), *words, "[options]"]))


def write_arguments(params: Sequence[Any], formatter: Any) -> None:
    """Write the arguments and what they are."""
    rows = [
        (_argument(item), item.help or "") for item in params if item.param_type_name == "argument"
    ]
    if rows:
        with formatter.section("Arguments"):
            formatter.write_dl(rows)


def write_options(name: str, ctx: Any, params: Sequence[Any], formatter: Any) -> None:
    """Write the options by their groups."""
    records = {
        item.opts[0]: record
        for item in params
        if item.param_type_name == "option" and (record := item.get_help_record(ctx))
    }
    for title, found in _grouped(name, records):
        with formatter.section(title):
            formatter.write_dl(found)


def write_examples(name: str, formatter: Any) -> None:
    """Write the examples, each on a line of its own, so that it can be copied."""
    with formatter.section("Examples"):
        for example in EXAMPLES.get(name, ()):
            formatter.write(f"  {example}\n")


def _grouped(
    name: str, records: Mapping[str, tuple[str, str]]
) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    groups = GROUPS.get(name, ())
    for title, options in groups:
        if found := [records[option] for option in options if option in records]:
            yield title, found
    named = {option for _, options in groups for option in options}
    if rest := [record for option, record in records.items() if option not in named]:
        yield ("Other" if groups else "Options"), rest


def _argument(item: Any) -> str:
    text = str(item.metavar or item.name.upper()).removesuffix("...")
    several = "…" if item.nargs != 1 else ""
    return f"{text}{several}" if item.required else f"[{text}{several}]"
