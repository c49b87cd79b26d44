"""`lake clean`: list, move away or delete files that a table does not reference."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from lake.commands.context import session_of
from lake.commands.options import DryRun, IgnoreUnreadable, ReplaceOutput, TableArgument, Wait
from lake.commands.parsing import older_than_ms, parse_choice, parse_prefixes, parse_share
from lake.commands.scan import output_of
from lake.core.base.errors import InvalidRequestError, NotFoundError
from lake.core.base.outcome import Outcome
from lake.core.maintain.orphans.options import (
    DEFAULT_AGE_MS,
    CleanOptions,
    Mode,
    PrefixMismatch,
)

if TYPE_CHECKING:
    from lake.core.read.exports.destinations import Output
    from lake.core.table.catalogs.catalog import Table


def clean(
    context: typer.Context,
    table: TableArgument,
    quarantine: Annotated[
        bool,
        typer.Option("--quarantine", help="Move the files to .lake-trash in the table's folder."),
    ] = False,
    delete: Annotated[bool, typer.Option("--delete", help="Delete the files permanently.")] = False,
    older_than: Annotated[
        str, typer.Option(metavar="7d|TIME", help="Keep files that are younger than this.")
    ] = "7d",
    location: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FOLDER", help="Also list this earlier folder of the table; repeatable."
        ),
    ] = None,
    inventory: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|FOLDER",
            help="Read this inventory of the store instead of listing the data folders.",
        ),
    ] = None,
    exclude: Annotated[
        list[str] | None,
        typer.Option(metavar="GLOB", help="Keep the files whose paths match; repeatable."),
    ] = None,
    max_share: Annotated[
        str,
        typer.Option(
            metavar="PERCENT", help="Refuse to remove more of the files or bytes than this."
        ),
    ] = "50%",
    prefix_mismatch: Annotated[
        str,
        typer.Option(
            metavar="error|ignore",
            help="What to do if only scheme or authority differ from a referenced file's.",
        ),
    ] = "error",
    equal_schemes: Annotated[
        list[str] | None,
        typer.Option(metavar="A=B", help="Compare scheme A as scheme B; repeatable."),
    ] = None,
    equal_authorities: Annotated[
        list[str] | None,
        typer.Option(metavar="A=B", help="Compare bucket or host A as B; repeatable."),
    ] = None,
    unsafe_retention: Annotated[
        bool, typer.Option("--unsafe-retention", help="Allow --older-than of less than 24 hours.")
    ] = False,
    ignore_unreadable: IgnoreUnreadable = False,
    restore: Annotated[
        str | None, typer.Option(metavar="RUN", help="Move the files of this run back.")
    ] = None,
    purge: Annotated[
        str | None, typer.Option(metavar="RUN", help="Delete the files that this run moved away.")
    ] = None,
    purge_older_than: Annotated[
        str | None,
        typer.Option(metavar="14d|TIME", help="Delete the files that were moved away before this."),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Write all files that no snapshot references, each with its reason.",
        ),
    ] = None,
    replace_output: ReplaceOutput = False,
    wait: Wait = None,
    dry_run: DryRun = False,
) -> Outcome:
    """Find, move or delete files that no snapshot references.

    Without --quarantine or --delete, files are only listed. Files of uncommitted checkpoints and
    staged runs, of other tables, and files that may be about to be committed are kept.
    """
    from lake.core.maintain.orphans import execute
    from lake.core.maintain.orphans.plan import CleaningPlan, plan_cleaning
    from lake.core.maintain.orphans.report import write_report
    from lake.core.maintain.orphans.trash import Trash
    from lake.core.transaction.locks.store_clock import require_clock, require_clock_of
    from lake.core.transaction.locks.table_lock import with_table_lock

    _check(
        {
            "--quarantine": quarantine,
            "--delete": delete,
            "--restore": restore is not None,
            "--purge": purge is not None,
            "--purge-older-than": purge_older_than is not None,
        },
        dry_run=dry_run,
    )
    report = _report(context, output, replace_it=replace_output)
    if report is not None and (restore or purge or purge_older_than):
        raise InvalidRequestError("--output needs a list of orphan files")
    session = session_of(context)
    now_ms = session.clock.now_ms()
    mode = Mode.QUARANTINE if quarantine else Mode.DELETE if delete else Mode.LIST
    options = CleanOptions(
        older_than_ms=older_than_ms(older_than, now_ms) or now_ms - DEFAULT_AGE_MS,
        mode=mode,
        locations=tuple(location or ()),
        inventory=inventory,
        excluded=tuple(exclude or ()),
        max_share=parse_share(max_share, "--max-share"),
        prefix_mismatch=PrefixMismatch(
            parse_choice(prefix_mismatch, "--prefix-mismatch", list(PrefixMismatch))
        ),
        equal_schemes=parse_prefixes(equal_schemes, "--equal-schemes"),
        equal_authorities=parse_prefixes(equal_authorities, "--equal-authorities"),
        unsafe=unsafe_retention,
        ignore_unreadable=ignore_unreadable,
    )
    purge_ms = older_than_ms(purge_older_than, now_ms)
    removing = [purge] if purge is not None else None
    try:
        loaded = session.table(table)
    except NotFoundError:
        if len(options.locations) != 1 or (removing is None and purge_ms is None):
            raise
        place = execute.trash_of_dropped(session, table, options.locations[0])
        if removing is None:
            require_clock_of(session, place.storage, place.folder, place.name)
            removing = execute.runs_older_than(place, purge_ms or 0)
        return execute.purge(session, place, removing)

    def work(now: Table, operation_id: str) -> Outcome:
        if restore is not None:
            return execute.restore(session, now, restore)
        place = Trash.of(now)
        if removing is not None:
            return execute.purge(session, place, removing, now)
        require_clock(session, now)
        if purge_ms is not None:
            return execute.purge(session, place, execute.runs_older_than(place, purge_ms), now)
        return execute.execute(session, planned(now), operation_id)

    def planned(now: Table) -> CleaningPlan:
        plan = plan_cleaning(session, now, options)
        if report is not None:
            write_report(plan, report)
        return plan

    if dry_run or not (quarantine or delete or restore or purge or purge_older_than):
        return execute.preview(session, planned(loaded))
    typed = restore is not None or purge is not None
    return with_table_lock(session, loaded, work, command="clean", wait_ms=wait, repeated=not typed)


def _report(context: typer.Context, path: str | None, *, replace_it: bool) -> Output | None:
    if path is None and not replace_it:
        return None
    output = output_of(context, path, None, replace_it=replace_it)
    if output is not None and not (output.single and output.path):
        raise InvalidRequestError(
            f"--output is {path!r}, not the name of a file", hint="write it as: orphans.parquet"
        )
    return output


def _check(modes: dict[str, bool], *, dry_run: bool) -> None:
    given = [name for name, is_given in modes.items() if is_given]
    if len(given) > 1:
        raise InvalidRequestError(f"{' and '.join(given)} contradict each other")
    if dry_run and given and given[0] not in {"--quarantine", "--delete"}:
        raise InvalidRequestError(f"{given[0]} has no --dry-run")
