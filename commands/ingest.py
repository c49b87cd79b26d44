"""`lake ingest`: load files into a table."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from lake.commands.context import announce_warnings, report_commits, session_of
from lake.commands.options import (
    Branch,
    DryRun,
    OnCommit,
    TableArgument,
    Wait,
    absolute_time,
)
from lake.commands.parsing import parse_names, parse_pairs
from lake.core.base.choices import CHANGE_MODES, MERGES, SOURCE_FORMATS, UPSERT_MODES
from lake.core.base.errors import BadInputError, InvalidRequestError
from lake.core.base.outcome import Outcome
from lake.core.base.units import parse_size

if TYPE_CHECKING:
    from lake.core.load.changelog_load.plan import ChangeOptions
    from lake.core.load.upsert.options import UpsertOptions


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
    union_columns: Annotated[
        bool,
        typer.Option(
            "--union-columns",
            help="Load files with different columns together; a missing one is NULL.",
        ),
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
    write_parallelism: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="Number of tasks that write [default: by the source's size]."
        ),
    ] = None,
    route: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Load each row into the table that its value names: {COLUMN} in TABLE.",
        ),
    ] = None,
    max_tables: Annotated[
        int | None,
        typer.Option(metavar="N", help="Load nothing if --route finds more tables [100]."),
    ] = None,
    run_id: Annotated[
        str | None,
        typer.Option(metavar="ID", help="Load once: another run with this id does nothing."),
    ] = None,
    upsert: Annotated[
        bool, typer.Option("--upsert", help="Replace the rows with the same keys.")
    ] = False,
    no_upsert: Annotated[
        bool,
        typer.Option(
            "--no-upsert", help="Append, also if the table property write.upsert.enabled is true."
        ),
    ] = False,
    key: Annotated[
        str | None,
        typer.Option(metavar="A,B", help="Key columns [default: the schema's identifier fields]."),
    ] = None,
    deletes: Annotated[
        str | None,
        typer.Option(
            metavar="|".join(UPSERT_MODES), help="How a load by key deletes the old rows."
        ),
    ] = None,
    order_by: Annotated[
        str | None,
        typer.Option(metavar="A,B", help="Keep the last source row of a key by these columns."),
    ] = None,
    sequence: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN", help="Drop source rows whose value is less than the table row's."
        ),
    ] = None,
    merge: Annotated[
        str | None,
        typer.Option(
            metavar="|".join(MERGES),
            help="first-row: add new keys only. partial-update: NULL keeps the table's value.",
        ),
    ] = None,
    null_overwrites: Annotated[
        str | None,
        typer.Option(
            metavar="A,B", help="With partial-update: columns in which NULL replaces the value."
        ),
    ] = None,
    missing: Annotated[
        str | None,
        typer.Option(
            metavar="default",
            help="With --upsert or a change log: set columns that the source lacks to NULL or their default.",
        ),
    ] = None,
    match_where: Annotated[
        str | None,
        typer.Option(metavar="EXPR", help="Compare keys only with the table's rows of a filter."),
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
    ignore_deletes: Annotated[
        bool, typer.Option("--ignore-deletes", help="Leave out the rows of kind -D.")
    ] = False,
    local_merge: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE|off",
            help="Keep the last change of each key among this much, before writing [off].",
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
            help="Load nothing if more rows than this cannot be loaded [default: half of them].",
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
    watch: Annotated[
        str | None,
        typer.Option(
            metavar="SOURCE", help="Load files that arrive in a folder, prefix or glob, each once."
        ),
    ] = None,
    follow: Annotated[
        bool,
        typer.Option(
            "--follow", help="With --from-table: load the rows that are added, once each."
        ),
    ] = False,
    on_gap: Annotated[
        str | None,
        typer.Option(
            metavar="fail|skip|table",
            help="If rows or messages are gone before they were loaded [fail].",
        ),
    ] = None,
    start: Annotated[
        str | None,
        typer.Option(
            metavar="table|latest|latest-exclusive|earliest",
            help="Where a new stream starts [default: table; Kafka: earliest].",
        ),
    ] = None,
    from_snapshot: Annotated[
        str | None,
        typer.Option(
            metavar="REF",
            callback=absolute_time,
            help="Start after this snapshot of the table that is followed.",
        ),
    ] = None,
    inclusive: Annotated[
        bool, typer.Option("--inclusive", help="Start with the rows of --from-snapshot itself.")
    ] = False,
    start_at: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Start with the first snapshot or message since TIME."),
    ] = None,
    stream: Annotated[
        str | None,
        typer.Option(metavar="ID", help="Name of the stream that the load continues."),
    ] = None,
    state: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="Local folder in which --watch notes what was loaded."),
    ] = None,
    once: Annotated[
        bool, typer.Option("--once", help="Load what is there, then end; for cron.")
    ] = False,
    commit_interval: Annotated[
        str | None,
        typer.Option(metavar="DURATION", help="Commit at least this often [60s]."),
    ] = None,
    commit_size: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Commit at this size of files [512MB].")
    ] = None,
    commit_files: Annotated[
        int | None, typer.Option(metavar="N", help="Commit at this number of files [1000].")
    ] = None,
    settle: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION", help="Take files that did not change for this long [10s]."
        ),
    ] = None,
    done: Annotated[
        str | None,
        typer.Option(metavar="keep|delete|move:DIR", help="What happens to loaded files [keep]."),
    ] = None,
    on_rewrite: Annotated[
        str | None,
        typer.Option(metavar="fail|ignore|again", help="If a loaded file was changed [fail]."),
    ] = None,
    on_copy: Annotated[
        str | None,
        typer.Option(
            metavar="report|ignore|load",
            help="If a new file has the name, size and time of a loaded one in another folder [report].",
        ),
    ] = None,
    new_source: Annotated[
        bool,
        typer.Option(
            "--new-source",
            help="The watched folder was moved: the files in it by the names of loaded ones are loaded.",
        ),
    ] = False,
    skip: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE|PARTITION:OFFSET",
            help="Never load this file or message; repeatable.",
        ),
    ] = None,
    bad_files: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="Move what cannot be loaded there, and go on."),
    ] = None,
    status: Annotated[
        bool, typer.Option("--status", help="Show epoch, lag and what is stuck; load nothing.")
    ] = False,
    metrics_file: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Replace this file of Prometheus metrics at each look."),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Continue a stream whose state folder was lost."),
    ] = False,
    then_compact: Annotated[
        str | None,
        typer.Option(
            metavar="EXPR", help="Compact after a commit if this is due, e.g. 'files >= 100'."
        ),
    ] = None,
    kafka: Annotated[
        str | None,
        typer.Option(metavar="TOPIC", help="Load the messages of a Kafka topic, each once."),
    ] = None,
    brokers: Annotated[
        str | None, typer.Option(metavar="HOST:PORT,…", help="Brokers of the topic.")
    ] = None,
    kafka_conf: Annotated[
        list[str] | None,
        typer.Option(metavar="K=V", help="Setting of the Kafka client (librdkafka); repeatable."),
    ] = None,
    kafka_conf_file: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="File of such settings, for passwords."),
    ] = None,
    kafka_metadata: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN=FIELD",
            help="Load key, headers, topic, partition, offset or timestamp; repeatable.",
        ),
    ] = None,
    avro_schema: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Schema of the messages, with --format avro."),
    ] = None,
    wait: Wait = None,
    branch: Branch = "main",
    on_commit: OnCommit = None,
    dry_run: DryRun = False,
) -> Outcome:
    """Load files into a table, in one commit.

    Columns are matched by name. With --create, a missing table (and namespace) is created in the same commit; an
    existing table is used as it is, so that the command can run from cron.

    CSV and JSON are read as the manual's section "CSV and JSON" describes: an empty cell is NULL, and "" in
    quotes is the empty text; times are ISO 8601; JSON has objects in lines or in an array.
    """
    from lake.commands.loads.route import routing
    from lake.commands.loads.stream import StreamFlags, run_stream
    from lake.core.data.sources.text_format import TextFormat
    from lake.core.data.sources.text_forms import TextForms
    from lake.core.load.ingest.options import IngestOptions
    from lake.core.load.ingest.recovery import discard as discard_run
    from lake.core.load.routing.execute import run_route
    from lake.core.load.run import load
    from lake.core.load.upsert.options import UpsertOptions

    flags = StreamFlags(
        watch=watch,
        follow=follow,
        on_gap=on_gap,
        start=start,
        from_snapshot=from_snapshot,
        inclusive=inclusive,
        start_at=start_at,
        stream=stream,
        state=state,
        once=once,
        commit_interval=commit_interval,
        commit_size=commit_size,
        commit_files=commit_files,
        settle=settle,
        done=done,
        on_rewrite=on_rewrite,
        on_copy=on_copy,
        new_source=new_source,
        skip=skip,
        status=status,
        metrics_file=metrics_file,
        quiet=context.obj.quiet,
        bad_files=bad_files,
        resume=resume,
        then_compact=then_compact,
        wait=wait,
        kafka=kafka,
        brokers=brokers,
        kafka_conf=kafka_conf,
        kafka_conf_file=kafka_conf_file,
        kafka_metadata=kafka_metadata,
        avro_schema=avro_schema,
    )

    if discard is not None:
        if sources or from_table or stage or run_id or route:
            raise InvalidRequestError(
                "--discard takes the id of a run, and neither sources nor --stage, --run-id or --route"
            )
        return discard_run(session_of(context), table, discard, dry_run=dry_run)
    if upsert and no_upsert:
        raise InvalidRequestError("--upsert and --no-upsert contradict each other")
    by_key = _by_key(
        UpsertOptions(
            key=parse_names(key) or (),
            deletes=deletes,
            order_by=parse_names(order_by) or (),
            repair_duplicates=repair_duplicates,
            sequence=sequence,
            merge=merge or "deduplicate",
            match_where=match_where,
            null_overwrites=parse_names(null_overwrites) or (),
        ),
        upsert,
        changes_column,
        changes_mode,
        ignore_deletes=ignore_deletes,
        local_merge=local_merge,
    )
    report_commits(context, on_commit)
    session = session_of(context)
    with _spooled(sources or [], format_name) as stdin:
        options = IngestOptions(
            sources=flags.sources(sources or []),
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
            write_parallelism=write_parallelism,
            run_id=run_id,
            branch=branch,
            stage=stage,
            allow_empty=allow_empty,
            rejects=rejects,
            max_rejects=max_rejects,
            no_upsert=no_upsert,
            missing=missing,
            union_columns=union_columns,
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
        division = routing(table, route, max_tables)
        landed = context.obj.landed
        if flags.is_given:
            from lake.core.load.continuous.loader import Loader

            if not (once or dry_run or status):
                announce_warnings(context, session)
            loader = Loader(
                session=session,
                table=table,
                options=options,
                by_key=by_key,
                route=division,
                landed=landed,
            )
            return run_stream(loader, flags, dry_run=dry_run)
        if division is not None:
            return run_route(session, options, division, by_key, landed, dry_run=dry_run)
        return load(session, table, options, by_key, dry_run=dry_run)


def _by_key(
    options: UpsertOptions,
    upsert: bool,  # noqa: FBT001
    changes_column: str | None,
    changes_mode: str | None,
    *,
    ignore_deletes: bool,
    local_merge: str | None,
) -> UpsertOptions | ChangeOptions | None:
    """Return the options of a load by key; None for a load that does not compare keys."""
    from lake.core.load.changelog_load.plan import ChangeOptions
    from lake.core.load.upsert.options import UpsertOptions

    if upsert and changes_column:
        raise InvalidRequestError("--upsert and --changes-column contradict each other")
    if ignore_deletes and not changes_column:
        raise InvalidRequestError("--ignore-deletes needs --changes-column")
    if local_merge and not changes_column:
        raise InvalidRequestError("--local-merge needs --changes-column")
    if upsert:
        return options
    key = options.key
    if changes_column and changes_mode:
        if options.deletes not in {None, "equality"}:
            return _lookup(options, changes_column, changes_mode, ignore_deletes, local_merge)
        if options.sequence or options.match_where or options.repair_duplicates:
            raise InvalidRequestError(
                "--sequence, --match-where and --repair-duplicates compare the table's rows, which this load of a "
                "change log does not read",
                hint="add --deletes position",
            )
        options = replace(options, deletes=None)
    if options != UpsertOptions(key=key):
        raise InvalidRequestError(
            "--deletes, --order-by, --sequence, --merge, --null-overwrites, --match-where and --repair-duplicates "
            "need --upsert"
        )
    if changes_column and changes_mode:
        return ChangeOptions(
            changes_column=changes_column,
            changes_mode=changes_mode,
            key=key,
            ignore_deletes=ignore_deletes,
            local_merge_bytes=None if local_merge in {None, "off"} else parse_size(local_merge),
        )
    if changes_column or changes_mode:
        raise InvalidRequestError(
            "--changes-column and --changes-mode go together",
            hint="upsert: a row replaces the row with its key; retract: the source has the old row too, as -U or -D",
        )
    if key:
        raise InvalidRequestError("--key needs --upsert or --changes-column")
    return None


def _lookup(
    options: UpsertOptions,
    changes_column: str,
    changes_mode: str,
    ignore_deletes: bool,  # noqa: FBT001
    local_merge: str | None,
) -> UpsertOptions:
    """Return the options of the load of a change log that finds the table's rows by key."""
    if changes_mode != "upsert":
        raise InvalidRequestError(
            f"--changes-mode {changes_mode} and --deletes {options.deletes} contradict each other: the log has the "
            "old rows, and the table is not read"
        )
    if local_merge not in {None, "off"}:
        raise InvalidRequestError(
            f"--local-merge and --deletes {options.deletes} contradict each other: only the last change of each key "
            "is written"
        )
    return replace(options, changes_column=changes_column, ignore_deletes=ignore_deletes)


def _mode(overwrite: bool, where: str | None, replace: bool) -> str:  # noqa: FBT001 - three flags
    from lake.core.load.ingest.options import APPEND, OVERWRITE, OVERWRITE_WHERE, REPLACE

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
