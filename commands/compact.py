"""`lake compact`: rewrite small files into large ones."""

from __future__ import annotations

from typing import Annotated

import typer

from lake.commands.context import report_commits, session_of
from lake.commands.options import (
    Branch,
    DryRun,
    MaxCommits,
    OnCommit,
    PartialProgress,
    TableArgument,
    Wait,
    Where,
)
from lake.commands.parsing import parse_pairs
from lake.core.base.errors import InvalidRequestError
from lake.core.base.outcome import Outcome
from lake.core.base.units import parse_duration_ms, parse_size


def compact(
    context: typer.Context,
    table: TableArgument,
    strategy: Annotated[
        str,
        typer.Option(metavar="binpack|sort|zorder", help="How rows are arranged in the new files."),
    ] = "binpack",
    by: Annotated[
        str | None, typer.Option(metavar="TERMS", help="Sort order or Z-order columns.")
    ] = None,
    where: Where = None,
    target_size: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Size of the new files [the table's, else 512MB]."),
    ] = None,
    min_size: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Rewrite smaller files [75%].")
    ] = None,
    max_size: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Rewrite larger files [180%].")
    ] = None,
    min_input_files: Annotated[
        int | None, typer.Option(metavar="N", help="Rewrite groups of at least N files [5].")
    ] = None,
    max_group_size: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Maximum size of a group [100GB].")
    ] = None,
    max_group_files: Annotated[
        int | None, typer.Option(metavar="N", help="Maximum files in a group.")
    ] = None,
    delete_file_threshold: Annotated[
        int | None, typer.Option(metavar="N", help="Rewrite files with at least N delete files.")
    ] = None,
    delete_ratio: Annotated[
        float | None,
        typer.Option(metavar="R", help="Rewrite files with this share of deleted rows [0.3]."),
    ] = None,
    rewrite_all: Annotated[bool, typer.Option("--rewrite-all", help="Rewrite every file.")] = False,
    max_files: Annotated[
        int | None, typer.Option(metavar="N", help="Maximum files to rewrite in total.")
    ] = None,
    job_order: Annotated[
        str | None,
        typer.Option(
            metavar="none|bytes-asc|bytes-desc|files-asc|files-desc",
            help="Order in which groups are rewritten.",
        ),
    ] = None,
    partial_progress: PartialProgress = False,
    max_commits: MaxCommits = None,
    spec_id: Annotated[
        int | None, typer.Option(metavar="ID", help="Partition spec to write with.")
    ] = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Compare all values before the commit.")
    ] = False,
    no_starting_sequence_number: Annotated[
        bool, typer.Option("--no-starting-sequence-number", help="Assign new sequence numbers.")
    ] = False,
    remove_dangling_deletes: Annotated[
        bool,
        typer.Option(
            "--remove-dangling-deletes", help="Also remove delete files that apply to no data file."
        ),
    ] = False,
    when: Annotated[
        str | None,
        typer.Option(
            metavar="EXPR", help="Compact only if enough was committed, e.g. 'files >= 1000'."
        ),
    ] = None,
    idle: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION", help="Leave out partitions that changed within this time."
        ),
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Option of Spark's rewrite_data_files."),
    ] = None,
    explain: Annotated[
        bool,
        typer.Option(
            "--explain", help="With --dry-run: list the files that are left alone, and why."
        ),
    ] = False,
    branch: Branch = "main",
    wait: Wait = None,
    on_commit: OnCommit = None,
    dry_run: DryRun = False,
) -> Outcome:
    """Rewrite small files into large ones; no row changes."""
    from lake.core.maintain.compaction.run import Compaction
    from lake.core.maintain.compaction.triggers import parse_trigger

    if explain and not dry_run:
        raise InvalidRequestError("--explain needs --dry-run")
    report_commits(context, on_commit)
    session = session_of(context)
    now_ms = session.clock.now_ms()
    chosen = {
        "strategy": strategy,
        "by": by,
        "target_bytes": _bytes(target_size),
        "min_bytes": _bytes(min_size),
        "max_bytes": _bytes(max_size),
        "min_input_files": min_input_files,
        "max_group_bytes": _bytes(max_group_size),
        "max_group_files": max_group_files,
        "delete_file_threshold": delete_file_threshold,
        "delete_ratio": delete_ratio,
        "rewrite_all": rewrite_all or None,
        "max_files": max_files,
        "job_order": job_order,
        "partial_progress": partial_progress or None,
        "max_commits": max_commits,
        "spec_id": spec_id,
        "where": where,
        "changed_before_ms": None if idle is None else now_ms - parse_duration_ms(idle),
        "verify": verify or None,
        "starting_sequence_number": False if no_starting_sequence_number else None,
        "remove_dangling_deletes": remove_dangling_deletes or None,
    }
    compaction = Compaction(
        session=session,
        branch=branch,
        chosen=chosen,
        spark=parse_pairs(option or [], "--option"),
        condition=None if when is None else parse_trigger(when),
        wait_ms=None if wait is None else parse_duration_ms(wait),
    )
    loaded = session.table(table)
    return compaction.preview(loaded, explain=explain) if dry_run else compaction.run(loaded)


def _bytes(text: str | None) -> int | None:
    return None if text is None else parse_size(text)
