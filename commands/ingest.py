"""`lake ingest`: load files into a table."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from lake.commands.context import session_of
from lake.commands.options import (
    CHANGE_MODES,
    SOURCE_FORMATS,
    UPSERT_MODES,
    Branch,
    DryRun,
    TableArgument,
)
from lake.commands.parsing import parse_names, parse_pairs
from lake.core.errors import BadInputError, InvalidRequestError
from lake.core.outcome import Outcome
from lake.core.units import parse_size

if TYPE_CHECKING:
    from lake.core.changelog_load.plan import ChangeOptions
    from lake.core.upsert.options import UpsertOptions


# How the delimiter that a shell does not take as it is can be typed.
_SPELLED = {r"\t": "\t", "tab": "\t"}


def ingest(
    context: typer.Context,
    table: TableArgument,
    sources: Annotated[
        list[str] | None,
        typer.Argument(metavar="SOURCE...", help="Files, globs, folders, URLs; - for stdin."),
    ] = None,
    from_table: Annotated[
        str | None, typer.Option(metavar="NS.T", help="Load another table's rows.")
    ] = None,
    format_name: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="|".join(SOURCE_FORMATS),
            help="Format [default: from the file name].",
        ),
    ] = None,
    create: Annotated[
        bool, typer.Option("--create", help="Create the table if it is missing.")
    ] = False,
    partition_by: Annotated[
        str | None,
        typer.Option(
            metavar="TERMS", help='Partitioning of a new table, e.g. "day(ts), bucket(16, id)".'
        ),
    ] = None,
    sort_by: Annotated[
        str | None,
        typer.Option(metavar="TERMS", help='Sort order of a new table, e.g. "a desc, b".'),
    ] = None,
    properties: Annotated[
        list[str] | None,
        typer.Option("--property", metavar="K=V", help="Property of a new table; repeatable."),
    ] = None,
    evolve: Annotated[
        bool, typer.Option("--evolve", help="Add new columns of the source to the table.")
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace all rows.")] = False,
    overwrite_where: Annotated[
        str | None, typer.Option(metavar="EXPR", help="Replace the rows that match a filter.")
    ] = None,
    allow_empty: Annotated[
        bool,
        typer.Option(
            "--allow-empty", help="Allow an overwrite with no rows, which deletes the old rows."
        ),
    ] = False,
    replace_partitions: Annotated[
        bool, typer.Option("--replace-partitions", help="Replace the partitions that receive rows.")
    ] = False,
    distribution: Annotated[
        str | None,
        typer.Option(metavar="none|hash|range", help="How rows are distributed among writers."),
    ] = None,
    target_size: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Size of a data file, e.g. 512MB.")
    ] = None,
    run_id: Annotated[
        str | None,
        typer.Option(metavar="ID", help="Load once: another run with this id does nothing."),
    ] = None,
    upsert: Annotated[
        bool, typer.Option("--upsert", help="Replace the rows with the same keys.")
    ] = False,
    key: Annotated[
        str | None,
        typer.Option(metavar="A,B", help="Key columns [default: the schema's identifier fields]."),
    ] = None,
    deletes: Annotated[
        str | None,
        typer.Option(metavar="|".join(UPSERT_MODES), help="How --upsert deletes the old rows."),
    ] = None,
    order_by: Annotated[
        str | None,
        typer.Option(metavar="A,B", help="Keep the last source row of a key by these columns."),
    ] = None,
    repair_duplicates: Annotated[
        bool,
        typer.Option("--repair-duplicates", help="Replace all rows of a key that has several."),
    ] = False,
    changes_column: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Column with the kind of change: +I, -U, +U or -D."),
    ] = None,
    changes_mode: Annotated[
        str | None,
        typer.Option(
            metavar="|".join(CHANGE_MODES),
            help="Whether the source contains the old rows too (retract).",
        ),
    ] = None,
    stage: Annotated[
        bool,
        typer.Option("--stage", help="Write the files now; commit them later with lake replay."),
    ] = False,
    discard: Annotated[
        str | None, typer.Option(metavar="RUN_ID", help="Delete the files of a staged run.")
    ] = None,
    rejects: Annotated[
        str | None,
        typer.Option(
            metavar="PATH",
            help="Write rows that cannot be loaded, with the reasons, to this new file.",
        ),
    ] = None,
    max_rejects: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Load nothing if more rows than this cannot be loaded [default: no limit].",
        ),
    ] = None,
    delimiter: Annotated[
        str | None,
        typer.Option(
            metavar="CHAR",
            help="CSV: character between columns [default: , or what the first lines show].",
        ),
    ] = None,
    encoding: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="CSV, JSON: encoding, e.g. latin-1 [default: utf-8, or the byte order mark's].",
        ),
    ] = None,
    nulls: Annotated[
        list[str] | None,
        typer.Option("--null", metavar="WORD", help="CSV: word that means NULL; repeatable."),
    ] = None,
    header: Annotated[
        bool,
        typer.Option(
            "--header/--no-header",
            help="CSV: the first line names the columns. Without it, they are the table's, or f0, f1, ...",
        ),
    ] = True,
    decimal: Annotated[
        str | None,
        typer.Option(
            metavar=".|,",
            help="CSV: decimal separator; the others may separate thousands [default: . without thousands].",
        ),
    ] = None,
    date_formats: Annotated[
        list[str] | None,
        typer.Option(
            "--date-format",
            metavar="FORMAT",
            help="CSV, JSON: format of dates and times, e.g. %d.%m.%Y, or iso; repeatable [default: iso].",
        ),
    ] = None,
    quote: Annotated[
        str,
        typer.Option(metavar="CHAR", help="CSV: character around values; '' for none."),
    ] = '"',
    skip_rows: Annotated[
        int, typer.Option(metavar="N", help="CSV: number of lines before the header.")
    ] = 0,
    branch: Branch = "main",
    dry_run: DryRun = False,
) -> Outcome:
    """Load files into a table: check all rows, write, and commit once.

    Columns are matched by name. With --create, a missing table (and namespace) is created in the same commit; an
    existing table is used as it is, so that the command can run from cron.

    CSV and JSON are read as the manual's section "CSV and JSON" describes: an empty cell is NULL, and "" in
    quotes is the empty text; times are ISO 8601; JSON has objects in lines or in an array.
    """
    from lake.core.changelog_load.load import execute_changes, preview_changes
    from lake.core.changelog_load.plan import ChangeOptions, plan_changelog_load
    from lake.core.ingest.execute import execute, preview
    from lake.core.ingest.plan import APPEND, IngestOptions, plan_ingest
    from lake.core.ingest.recovery import discard as discard_run
    from lake.core.sources.text_format import TextFormat
    from lake.core.sources.text_forms import TextForms
    from lake.core.upsert.execute import execute_upsert, preview_upsert
    from lake.core.upsert.options import UpsertOptions
    from lake.core.upsert.plan import plan_upsert

    if discard is not None:
        if sources or from_table or stage or run_id:
            raise InvalidRequestError(
                "--discard takes the id of a run, and neither sources nor --stage or --run-id"
            )
        return discard_run(session_of(context), table, discard, dry_run=dry_run)
    by_key = _by_key(
        UpsertOptions(
            key=parse_names(key) or (),
            deletes=deletes,
            order_by=parse_names(order_by) or (),
            repair_duplicates=repair_duplicates,
        ),
        upsert,
        changes_column,
        changes_mode,
    )
    session = session_of(context)
    with _spooled(sources or [], format_name) as stdin:
        options = IngestOptions(
            sources=sources or [],
            stdin=stdin,
            from_table=from_table,
            format=_format(format_name),
            create=create,
            partition_by=partition_by,
            sort_by=sort_by,
            properties=parse_pairs(properties or [], "--property"),
            evolve=evolve,
            mode=_mode(overwrite, overwrite_where, replace_partitions),
            where=overwrite_where,
            distribution=distribution,
            target_bytes=None if target_size is None else parse_size(target_size),
            run_id=run_id,
            branch=branch,
            stage=stage,
            allow_empty=allow_empty,
            rejects=rejects,
            max_rejects=max_rejects,
            text=TextFormat(
                delimiter=_SPELLED.get(delimiter or "", delimiter),
                encoding=encoding,
                quote=quote,
                header=header,
                skip_rows=skip_rows,
                forms=TextForms(
                    nulls=tuple(nulls or ()),
                    decimal=decimal,
                    date_formats=tuple(date_formats or ()),
                ),
            ),
        )
        if by_key is None:
            plan = plan_ingest(session, table, options)
            return preview(session, plan) if dry_run else execute(session, plan)
        if options.mode != APPEND:
            option = "--upsert" if upsert else "--changes-column"
            raise InvalidRequestError(f"{option} and --{options.mode} contradict each other")
        if isinstance(by_key, ChangeOptions):
            changes = plan_changelog_load(session, table, options, by_key)
            return (
                preview_changes(session, changes) if dry_run else execute_changes(session, changes)
            )
        wanted = plan_upsert(session, table, options, by_key)
        return preview_upsert(session, wanted) if dry_run else execute_upsert(session, wanted)


def _by_key(
    options: UpsertOptions,
    upsert: bool,  # noqa: FBT001
    changes_column: str | None,
    changes_mode: str | None,
) -> UpsertOptions | ChangeOptions | None:
    """Return the options of a load by key; None for a load that does not compare keys."""
    from lake.core.changelog_load.plan import ChangeOptions
    from lake.core.upsert.options import UpsertOptions

    if upsert and changes_column:
        raise InvalidRequestError("--upsert and --changes-column contradict each other")
    if upsert:
        return options
    key = options.key
    if options != UpsertOptions(key=key):
        raise InvalidRequestError("--deletes, --order-by and --repair-duplicates need --upsert")
    if changes_column and changes_mode:
        return ChangeOptions(changes_column=changes_column, changes_mode=changes_mode, key=key)
    if changes_column or changes_mode:
        raise InvalidRequestError(
            "--changes-column and --changes-mode go together",
            hint="upsert: a row replaces the row with its key; retract: the source has the old row too, as -U or -D",
        )
    if key:
        raise InvalidRequestError("--key needs --upsert or --changes-column")
    return None


def _mode(overwrite: bool, where: str | None, replace: bool) -> str:  # noqa: FBT001 - three flags
    from lake.core.ingest.plan import APPEND, OVERWRITE, OVERWRITE_WHERE, REPLACE

    chosen = [
        mode
        for mode, given in (
            (OVERWRITE, overwrite),
            (OVERWRITE_WHERE, where is not None),
            (REPLACE, replace),
        )
        if given
    ]
    if len(chosen) > 1:
        raise InvalidRequestError(f"--{' and --'.join(chosen)} contradict each other")
    return chosen[0] if chosen else APPEND


def _format(name: str | None) -> str | None:
    if name is not None and name not in SOURCE_FORMATS:
        raise InvalidRequestError(f"--format {name!r} is not one of {', '.join(SOURCE_FORMATS)}")
    return name


@contextmanager
def _spooled(names: list[str], format_name: str | None) -> Iterator[str | None]:
    """Copy standard input, if it is a source, to a temporary file: it is read more than once."""
    if "-" not in names:
        yield None
        return
    if format_name is None:
        raise InvalidRequestError("the format of standard input is not known", hint="add --format")
    if sys.stdin is None:
        raise BadInputError("standard input is closed")
    with tempfile.NamedTemporaryFile(prefix="lake-stdin-", suffix=f".{format_name}") as spool:
        shutil.copyfileobj(sys.stdin.buffer, spool)
        spool.flush()
        yield spool.name
