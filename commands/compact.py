"""`lake compact`: rewrite small files into large ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from lake.commands.context import report_commits, session_of
from lake.commands.each_table import TablesArgument, for_each_table
from lake.commands.groups import Flag, given
from lake.commands.options import (
    Explain,
    MaxCommits,
    PartialProgress,
    ThisRun,
    Where,
    require_preview,
    size,
)
from lake.commands.parsing import parse_pairs
from lake.core.base.choices import COPY_MODES, JOB_ORDERS, STRATEGIES
from lake.core.base.outcome import Outcome
from lake.core.base.units import parse_duration_ms


@dataclass(frozen=True, kw_only=True)
class WhichFiles:
    """Which files."""

    where: Where = None
    min_size: Annotated[int | None, size("Rewrite smaller files [75%].")] = None
    max_size: Annotated[int | None, size("Rewrite larger files [180%].")] = None
    min_input_files: Annotated[int | None, Flag("Rewrite groups of at least N files [5].", "N")] = (
        None
    )
    delete_file_threshold: Annotated[
        int | None, Flag("Rewrite files with at least N delete files.", "N")
    ] = None
    delete_ratio: Annotated[
        float | None, Flag("Rewrite files with this share of deleted rows [0.3].", "R")
    ] = None
    rewrite_all: Annotated[bool, Flag("Rewrite every file.")] = False
    old_specs: Annotated[bool, Flag("Rewrite the files of older partition specs only.")] = False
    old_sort_orders: Annotated[
        bool, Flag("Rewrite the files without the table's sort order only, and sort them.")
    ] = False
    where_overlap: Annotated[
        int | None,
        Flag("Sort the files that overlap more than N others in the sort columns only.", "N"),
    ] = None


@dataclass(frozen=True, kw_only=True)
class NewFiles:
    """New files."""

    strategy: Annotated[
        str, Flag("How rows are arranged in the new files.", "|".join(STRATEGIES))
    ] = "binpack"
    by: Annotated[str | None, Flag("Sort order, or columns of the curve.", "TERMS")] = None
    target_size: Annotated[int | None, size("Size of the new files [the table's, else 512MB].")] = (
        None
    )
    copy_row_groups: Annotated[
        str, Flag("Whether large row groups are copied as they are stored.", "|".join(COPY_MODES))
    ] = "auto"
    spec_id: Annotated[int | None, Flag("Partition spec to write with.", "ID")] = None
    no_starting_sequence_number: Annotated[bool, Flag("Assign new sequence numbers.")] = False
    remove_dangling_deletes: Annotated[
        bool, Flag("Also remove delete files that apply to no data file.")
    ] = False
    verify: Annotated[bool, Flag("Compare all values before the commit.")] = False


@dataclass(frozen=True, kw_only=True)
class Work:
    """Amount of work."""

    max_files: Annotated[int | None, Flag("Maximum files to rewrite in total.", "N")] = None
    max_bytes: Annotated[int | None, size("Maximum size of the files to rewrite in total.")] = None
    max_group_size: Annotated[int | None, size("Maximum size of a group [100GB].")] = None
    max_group_files: Annotated[int | None, Flag("Maximum files in a group.", "N")] = None
    job_order: Annotated[
        str | None, Flag("Order in which groups are rewritten.", "|".join(JOB_ORDERS))
    ] = None
    partial_progress: PartialProgress = False
    max_commits: MaxCommits = None


def parse_idle(text: str) -> int | None:
    """Return a duration in milliseconds; None for ``auto``.

    Raises:
        InvalidRequestError: it is neither.
    """
    return None if text.strip() == "auto" else parse_duration_ms(text)


@dataclass(frozen=True, kw_only=True)
class CompactionRun(ThisRun):
    """This run."""

    when: Annotated[
        str | None, Flag("Compact only if enough was committed, e.g. 'files >= 1000'.", "EXPR")
    ] = None
    idle: Annotated[
        int | None,
        Flag(
            "Leave out partitions that changed within this time [by the writers' commits].",
            "DURATION|auto",
            parse=parse_idle,
        ),
    ] = None
    option: Annotated[
        tuple[str, ...], Flag("Option of Spark's rewrite_data_files.", "NAME=VALUE")
    ] = ()
    explain: Explain = False


@for_each_table()
def compact(
    context: typer.Context,
    table: TablesArgument,
    which: WhichFiles,
    new: NewFiles,
    amount: Work,
    run: CompactionRun,
) -> Outcome:
    """Rewrite small files into large ones; no row changes."""
    from lake.core.maintain.compaction.run import Compaction
    from lake.core.maintain.compaction.triggers import parse_trigger

    require_preview(explain=run.explain, is_preview=run.dry_run)
    report_commits(context, run.on_commit)
    session = session_of(context)
    compaction = Compaction(
        session=session,
        branch=run.branch,
        chosen=given(which, new, amount),
        spark=parse_pairs(run.option, "--option"),
        idle_ms=run.idle,
        condition=None if run.when is None else parse_trigger(run.when),
        wait_ms=run.wait,
    )
    loaded = session.table(table)
    if run.dry_run:
        return compaction.preview(loaded, explain=run.explain)
    return compaction.run(loaded)
