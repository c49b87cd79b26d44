"""`lake ingest`: load files into a table."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

import typer

from lake.commands.context import (
    announce_warnings,
    of_all_branches,
    report_commits,
    session_of,
)
from lake.commands.groups import Flag, flags_given, given, require
from lake.commands.loads.options import Streaming
from lake.commands.loads.stream import run_stream
from lake.commands.options import Branch, DryRun, OnCommit, TableArgument, names, size
from lake.commands.parsing import parse_pairs
from lake.core.base.choices import CHANGE_MODES, MERGES, SOURCE_FORMATS, UPSERT_MODES
from lake.core.base.errors import BadInputError, InvalidRequestError
from lake.core.base.outcome import Outcome
from lake.core.base.redaction import shown_as
from lake.core.base.units import parse_size

if TYPE_CHECKING:
    from lake.core.load.changelog_load.plan import ChangeOptions
    from lake.core.load.routing.options import RouteOptions
    from lake.core.load.upsert.options import UpsertOptions


# How the delimiter that a shell does not take as it is can be typed.
_SPELLED = {r"\t": "\t", "tab": "\t"}


def _delimiter(text: str) -> str:
    return _SPELLED.get(text, text)


def _format(name: str) -> str:
    if name not in SOURCE_FORMATS:
        raise InvalidRequestError(f"--format {name!r} is not one of {', '.join(SOURCE_FORMATS)}")
    return name


def _size_or_off(text: str) -> int:
    return 0 if text == "off" else parse_size(text)


@dataclass(frozen=True, kw_only=True)
class Source:
    """Source."""

    from_table: Annotated[str | None, Flag("Load another table's rows.", "NS.T")] = None
    format: Annotated[
        str | None,
        Flag("Format [default: from the file name].", "|".join(SOURCE_FORMATS), parse=_format),
    ] = None
    union_columns: Annotated[
        bool, Flag("Load files with different columns together; a missing one is NULL.")
    ] = False


@dataclass(frozen=True, kw_only=True)
class Text:
    """CSV."""

    delimiter: Annotated[
        str | None,
        Flag(
            "CSV: character between columns [default: , or what the first lines show].",
            "CHAR",
            parse=_delimiter,
        ),
    ] = None
    encoding: Annotated[
        str | None,
        Flag(
            "CSV, JSON: encoding, e.g. latin-1 [default: utf-8, or the byte order mark's].", "NAME"
        ),
    ] = None
    quote: Annotated[str, Flag("CSV: character around values; '' for none.", "CHAR")] = '"'
    header: Annotated[
        bool,
        Flag(
            "CSV: the first line names the columns. Without it, they are the table's, or f0, f1, ...",
            name="--header/--no-header",
        ),
    ] = True
    skip_rows: Annotated[int, Flag("CSV: number of lines before the header.", "N")] = 0


@dataclass(frozen=True, kw_only=True)
class Forms:
    """CSV.

    How values are written.
    """

    nulls: Annotated[
        tuple[str, ...], Flag("CSV: word that means NULL; repeatable.", "WORD", name="--null")
    ] = ()
    decimal: Annotated[
        str | None,
        Flag(
            "CSV: decimal separator; the others may separate thousands [default: . without thousands].",
            ".|,",
        ),
    ] = None
    date_formats: Annotated[
        tuple[str, ...],
        Flag(
            "CSV, JSON: format of dates and times, e.g. %d.%m.%Y, or iso; repeatable [default: iso].",
            "FORMAT",
            name="--date-format",
        ),
    ] = ()


@dataclass(frozen=True, kw_only=True)
class NewTable:
    """New table."""

    create: Annotated[bool, Flag("Create the table if it is missing.")] = False
    partition_by: Annotated[
        str | None, Flag('Partitioning of a new table, e.g. "day(ts), bucket(16, id)".', "TERMS")
    ] = None
    sort_by: Annotated[
        str | None, Flag('Sort order of a new table, e.g. "a desc, b".', "TERMS")
    ] = None
    properties: Annotated[
        tuple[str, ...], Flag("Property of a new table; repeatable.", "K=V", name="--property")
    ] = ()


@dataclass(frozen=True, kw_only=True)
class Columns:
    """Existing rows and columns."""

    evolve: Annotated[bool, Flag("Add new columns of the source to the table.")] = False
    missing: Annotated[
        str | None,
        Flag(
            "With --upsert or a change log: set columns that the source lacks to NULL or their default.",
            "default",
        ),
    ] = None
    allow_empty: Annotated[
        bool, Flag("Allow an overwrite with no rows, which deletes the old rows.")
    ] = False


@dataclass(frozen=True, kw_only=True)
class Replaced:
    """Existing rows and columns.

    What the rows replace.
    """

    overwrite: Annotated[bool, Flag("Replace all rows.")] = False
    overwrite_where: Annotated[
        str | None, Flag("Replace the rows that match a filter.", "EXPR")
    ] = None
    replace_partitions: Annotated[bool, Flag("Replace the partitions that receive rows.")] = False

    @property
    def mode(self) -> str:
        """Whether rows are appended, or what they replace.

        Raises:
            InvalidRequestError: several were chosen.
        """
        chosen = flags_given(self)
        if len(chosen) > 1:
            raise InvalidRequestError(f"{' and '.join(chosen)} contradict each other")
        return chosen[0].removeprefix("--") if chosen else "append"


@dataclass(frozen=True, kw_only=True)
class Upsert:
    """Updates by key."""

    upsert: Annotated[bool, Flag("Replace the rows with the same keys.")] = False
    no_upsert: Annotated[
        bool, Flag("Append, also if the table property write.upsert.enabled is true.")
    ] = False


@dataclass(frozen=True, kw_only=True)
class ByKey:
    """Updates by key.

    How rows with equal keys are found and replaced.
    """

    key: Annotated[
        Sequence[str], names("Key columns [default: the schema's identifier fields].", "A,B")
    ] = ()
    deletes: Annotated[
        str | None, Flag("How a load by key deletes the old rows.", "|".join(UPSERT_MODES))
    ] = None
    order_by: Annotated[
        Sequence[str], names("Keep the last source row of a key by these columns.", "A,B")
    ] = ()
    sequence: Annotated[
        str | None, Flag("Drop source rows whose value is less than the table row's.", "COLUMN")
    ] = None
    merge: Annotated[
        str | None,
        Flag(
            "first-row: add new keys only. partial-update: NULL keeps the table's value.",
            "|".join(MERGES),
        ),
    ] = None
    null_overwrites: Annotated[
        Sequence[str],
        names("With partial-update: columns in which NULL replaces the value.", "A,B"),
    ] = ()
    match_where: Annotated[
        str | None, Flag("Compare keys only with the table's rows of a filter.", "EXPR")
    ] = None
    repair_duplicates: Annotated[bool, Flag("Replace all rows of a key that has several.")] = False


@dataclass(frozen=True, kw_only=True)
class Changes:
    """Change logs."""

    changes_column: Annotated[
        str | None, Flag("Column with the kind of change: +I, -U, +U or -D.", "NAME")
    ] = None
    changes_mode: Annotated[
        str | None,
        Flag("Whether the source contains the old rows too (retract).", "|".join(CHANGE_MODES)),
    ] = None
    ignore_deletes: Annotated[bool, Flag("Leave out the rows of kind -D.")] = False
    local_merge: Annotated[
        int | None,
        Flag(
            "Keep the last change of each key among this much, before writing [off].",
            "SIZE|off",
            parse=_size_or_off,
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class Writing:
    """Writing."""

    distribution: Annotated[
        str | None, Flag("How rows are distributed among writers.", "none|hash|range")
    ] = None
    target_size: Annotated[int | None, size("Size of a data file, e.g. 512MB.")] = None
    write_parallelism: Annotated[
        int | None, Flag("Number of tasks that write [default: by the source's size].", "N")
    ] = None


@dataclass(frozen=True, kw_only=True)
class ManyTables:
    """Many tables."""

    route: Annotated[
        str | None,
        Flag("Load each row into the table that its value names: {COLUMN} in TABLE.", "COLUMN"),
    ] = None
    max_tables: Annotated[
        int | None, Flag("Load nothing if --route finds more tables [100].", "N")
    ] = None

    def options(self, table: str) -> RouteOptions | None:
        """Return how rows are divided among tables; None if they are not.

        Raises:
            InvalidRequestError: options contradict each other.
        """
        if self.route is None:
            require("--route", self)
            return None
        from lake.core.load.routing.options import RouteOptions

        chosen = given(self)
        return RouteOptions(name=table, column=chosen.pop("route"), **chosen)


@dataclass(frozen=True, kw_only=True)
class BadRows:
    """Bad rows."""

    rejects: Annotated[
        str | None,
        Flag("Write rows that cannot be loaded, with the reasons, to this new file.", "PATH"),
    ] = None
    max_rejects: Annotated[
        int | None,
        Flag("Load nothing if more rows than this cannot be loaded [default: half of them].", "N"),
    ] = None


@dataclass(frozen=True, kw_only=True)
class LoadRun:
    """This run."""

    run_id: Annotated[
        str | None, Flag("Load once: another run with this id does nothing.", "ID")
    ] = None
    stage: Annotated[bool, Flag("Write the files now; commit them later with lake replay.")] = False
    branch: Branch = "main"


@dataclass(frozen=True, kw_only=True)
class ThisRun:
    """This run.

    What is done beside a load, or in place of one.
    """

    discard: Annotated[str | None, Flag("Delete the files of a staged run.", "RUN_ID")] = None
    on_commit: OnCommit = None
    dry_run: DryRun = False


def ingest(
    context: typer.Context,
    table: TableArgument,
    sources: Annotated[
        list[str] | None,
        typer.Argument(metavar="SOURCE...", help="Files, globs, folders, URLs; - for stdin."),
    ] = None,
    *,
    source: Source,
    text: Text,
    forms: Forms,
    new: NewTable,
    columns: Columns,
    replaced: Replaced,
    upsert: Upsert,
    keys: ByKey,
    changes: Changes,
    writing: Writing,
    many: ManyTables,
    bad: BadRows,
    streaming: Streaming,
    load_run: LoadRun,
    run: ThisRun,
) -> Outcome:
    """Load files into a table, in one commit.

    Columns are matched by name. With --create, a missing table (and namespace) is created in the same commit; an
    existing table is used as it is, so that the command can run from cron.

    CSV and JSON are read as the manual's section "CSV and JSON" describes: an empty cell is NULL, and "" in
    quotes is the empty text; times are ISO 8601; JSON has objects in lines or in an array.
    """
    from lake.core.data.sources.text_format import TextFormat
    from lake.core.data.sources.text_forms import TextForms
    from lake.core.load.ingest.options import IngestOptions, LoadRequest
    from lake.core.load.ingest.recovery import discard as discard_run
    from lake.core.load.routing.execute import run_route
    from lake.core.load.run import load

    if run.discard is not None:
        if sources or source.from_table or load_run.stage or load_run.run_id or many.route:
            raise InvalidRequestError(
                "--discard takes the id of a run, and neither sources nor --stage, --run-id or --route"
            )
        session = session_of(context)
        discarded = discard_run(session, table, run.discard, dry_run=run.dry_run)
        return of_all_branches(context, discarded)
    if upsert.upsert and upsert.no_upsert:
        raise InvalidRequestError("--upsert and --no-upsert contradict each other")
    by_key = _by_key(keys, changes, is_upsert=upsert.upsert)
    report_commits(context, run.on_commit)
    session = session_of(context)
    with _spooled(sources or [], source.format) as stdin:
        chosen = given(source, new, columns, writing, bad, load_run)
        chosen["properties"] = parse_pairs(new.properties, "--property")
        options = IngestOptions(
            sources=streaming.sources(sources or []),
            mode=replaced.mode,
            overwrite_where=replaced.overwrite_where,
            no_upsert=upsert.no_upsert,
            text=TextFormat(**vars(text), forms=TextForms(**vars(forms))),
            **chosen,
        )
        route, landed = many.options(table), context.obj.landed
        if streaming.way is not None:
            from lake.core.load.continuous.loader import Loader

            if not (streaming.stream.once or run.dry_run or streaming.beside.status):
                announce_warnings(context, session)
            loader = Loader(
                session=session,
                table=table,
                options=options,
                by_key=by_key,
                route=route,
                landed=landed,
            )
            return run_stream(loader, streaming, quiet=context.obj.quiet, dry_run=run.dry_run)
        request = LoadRequest(options=options, epoch=None, stdin=stdin)
        if route is not None:
            return run_route(session, request, route, by_key, landed, dry_run=run.dry_run)
        return load(session, table, request, by_key, dry_run=run.dry_run)


def _by_key(
    keys: ByKey, changes: Changes, *, is_upsert: bool
) -> UpsertOptions | ChangeOptions | None:
    """Return the options of a load by key; None for a load that does not compare keys."""
    from lake.core.load.changelog_load.plan import ChangeOptions
    from lake.core.load.upsert.options import UpsertOptions

    options = UpsertOptions(**given(keys))
    changes_column, changes_mode = changes.changes_column, changes.changes_mode
    if is_upsert and changes_column:
        raise InvalidRequestError("--upsert and --changes-column contradict each other")
    if changes.ignore_deletes and not changes_column:
        raise InvalidRequestError("--ignore-deletes needs --changes-column")
    if changes.local_merge is not None and not changes_column:
        raise InvalidRequestError("--local-merge needs --changes-column")
    if is_upsert:
        return options
    key = options.key
    if changes_column and changes_mode:
        if options.deletes not in {None, "equality"}:
            return _lookup(options, changes)
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
            ignore_deletes=changes.ignore_deletes,
            local_merge=changes.local_merge or None,
        )
    if changes_column or changes_mode:
        raise InvalidRequestError(
            "--changes-column and --changes-mode go together",
            hint="upsert: a row replaces the row with its key; retract: the source has the old row too, as -U or -D",
        )
    if key:
        raise InvalidRequestError("--key needs --upsert or --changes-column")
    return None


def _lookup(options: UpsertOptions, changes: Changes) -> UpsertOptions:
    """Return the options of the load of a change log that finds the table's rows by key."""
    if changes.changes_mode != "upsert":
        raise InvalidRequestError(
            f"--changes-mode {changes.changes_mode} and --deletes {options.deletes} contradict each other: the log "
            "has the old rows, and the table is not read"
        )
    if changes.local_merge:
        raise InvalidRequestError(
            f"--local-merge and --deletes {options.deletes} contradict each other: only the last change of each key "
            "is written"
        )
    return replace(
        options,
        changes_column=changes.changes_column,
        ignore_deletes=changes.ignore_deletes,
    )


@contextmanager
def _spooled(names: list[str], format_name: str | None) -> Iterator[str | None]:
    """Copy standard input, if it is a source, to a temporary file: it is read more than once."""
    if "-" not in names:
        yield None
        return
    if format_name is None:
        raise InvalidRequestError(
            "the format of standard input is not known", hint="add --format csv, or another format"
        )
    if sys.stdin is None:
        raise BadInputError("standard input is closed")
    with tempfile.NamedTemporaryFile(prefix="lake-stdin-", suffix=f".{format_name}") as spool:
        shutil.copyfileobj(sys.stdin.buffer, spool)
        spool.flush()
        with shown_as("standard input", [spool.name]):
            yield spool.name
