"""`lake clean`: list, move away or delete files that a table does not reference."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from lake.commands.context import session_of
from lake.commands.each_table import TablesArgument, for_each_table
from lake.commands.groups import Flag, flags_given
from lake.commands.options import (
    ExplainedTableRun,
    IgnoreUnreadable,
    Replace,
    UnsafeRetention,
    moment,
    require_preview,
)
from lake.commands.outputs import OutputOptions, output_of
from lake.commands.parsing import Moment, parse_prefixes, parse_share
from lake.core.base.errors import InvalidRequestError, NotFoundError
from lake.core.base.outcome import Outcome
from lake.core.maintain.orphans.options import (
    DEFAULT_AGE_MS,
    DEFAULT_SHARE,
    CleanOptions,
    Mode,
    PrefixMismatch,
)

if TYPE_CHECKING:
    from lake.core.read.exports.destinations import Output
    from lake.core.table.catalogs.catalog import Table


_DEFAULT_AGE = Moment(age_ms=DEFAULT_AGE_MS)


@dataclass(frozen=True, kw_only=True)
class WhatToDo:
    """What to do."""

    quarantine: Annotated[bool, Flag("Move the files to .lake-trash in the table's folder.")] = (
        False
    )
    delete: Annotated[bool, Flag("Delete the files permanently.")] = False
    restore: Annotated[str | None, Flag("Move the files of this run back.", "RUN")] = None
    purge: Annotated[str | None, Flag("Delete the files that this run moved away.", "RUN")] = None
    purge_older_than: Annotated[
        Moment | None, moment("Delete the files that were moved away before this.", "14d|TIME")
    ] = None


@dataclass(frozen=True, kw_only=True)
class WhichFiles:
    """Which files."""

    older_than: Annotated[
        Moment, moment("Keep files that are younger than this [7d].", "7d|TIME")
    ] = _DEFAULT_AGE
    location: Annotated[
        tuple[str, ...], Flag("Also list this earlier folder of the table; repeatable.", "FOLDER")
    ] = ()
    inventory: Annotated[
        str | None,
        Flag(
            "Read this inventory of the store instead of listing the data folders.", "FILE|FOLDER"
        ),
    ] = None
    exclude: Annotated[
        tuple[str, ...], Flag("Keep the files whose paths match; repeatable.", "GLOB")
    ] = ()


@dataclass(frozen=True, kw_only=True)
class EqualLocations:
    """Equal locations."""

    prefix_mismatch: Annotated[
        PrefixMismatch,
        Flag("What to do if only scheme or authority differ from a referenced file's."),
    ] = PrefixMismatch.ERROR
    equal_schemes: Annotated[
        tuple[str, ...], Flag("Compare scheme A as scheme B; repeatable.", "A=B")
    ] = ()
    equal_authorities: Annotated[
        tuple[str, ...], Flag("Compare bucket or host A as B; repeatable.", "A=B")
    ] = ()


@dataclass(frozen=True, kw_only=True)
class Safety:
    """Safety."""

    max_share: Annotated[
        float,
        Flag(
            "Refuse to remove more of the files or bytes than this [50%].",
            "PERCENT",
            parse=parse_share,
        ),
    ] = DEFAULT_SHARE
    unsafe_retention: UnsafeRetention = False
    ignore_unreadable: IgnoreUnreadable = False


@dataclass(frozen=True, kw_only=True)
class ListOfFiles:
    """List of the files."""

    output: Annotated[
        str | None,
        Flag("Write all files that no snapshot references, each with its reason.", "FILE"),
    ] = None
    replace: Replace = False


@for_each_table("--location", "--output", "--purge", "--restore")
def clean(
    context: typer.Context,
    table: TablesArgument,
    what: WhatToDo,
    which: WhichFiles,
    equal: EqualLocations,
    safety: Safety,
    listed: ListOfFiles,
    run: ExplainedTableRun,
) -> Outcome:
    """Find, move or delete files that no snapshot references.

    Without --quarantine or --delete, files are only listed. Files of uncommitted checkpoints and
    staged runs, of other tables, and files that may be about to be committed are kept.
    """
    from lake.core.maintain.orphans import execute
    from lake.core.maintain.orphans.plan import CleaningPlan, plan_cleaning
    from lake.core.maintain.orphans.report import write_report
    from lake.core.maintain.orphans.trash import Trash
    from lake.core.transaction.locks.table_lock import with_table_lock
    from lake.core.transaction.store_clock import require_clock, require_clock_of

    _check(what, dry_run=run.dry_run)
    removes = what.quarantine or what.delete
    changes = any(vars(what).values())
    require_preview(explain=run.explain, is_preview=run.dry_run or not changes)
    report = _report(context, listed)
    if report is not None and changes and not removes:
        raise InvalidRequestError("--output needs a list of orphan files")
    session = session_of(context)
    now_ms = session.clock.now_ms()
    options = CleanOptions(
        older_than=which.older_than.at(now_ms),
        mode=Mode.QUARANTINE if what.quarantine else Mode.DELETE if what.delete else Mode.LIST,
        location=which.location,
        inventory=which.inventory,
        exclude=which.exclude,
        max_share=safety.max_share,
        prefix_mismatch=equal.prefix_mismatch,
        equal_schemes=parse_prefixes(equal.equal_schemes, "--equal-schemes"),
        equal_authorities=parse_prefixes(equal.equal_authorities, "--equal-authorities"),
        unsafe_retention=safety.unsafe_retention,
        ignore_unreadable=safety.ignore_unreadable,
    )
    purge_ms = what.purge_older_than.at(now_ms) if what.purge_older_than else None
    removing = [what.purge] if what.purge is not None else None
    try:
        loaded = session.table(table)
    except NotFoundError:
        if len(options.location) != 1 or (removing is None and purge_ms is None):
            raise
        place = execute.trash_of_dropped(session, table, options.location[0])
        if removing is None:
            require_clock_of(session, place.storage, place.folder, place.name)
            removing = execute.runs_older_than(place, purge_ms or 0)
        return execute.purge(session, place, removing)

    def work(now: Table, operation_id: str) -> Outcome:
        if what.restore is not None:
            return execute.restore(session, now, what.restore)
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

    if run.dry_run or not changes:
        return execute.preview(session, planned(loaded), explain=run.explain)
    typed = what.restore is not None or what.purge is not None
    return with_table_lock(
        session, loaded, work, command="clean", wait_ms=run.wait, repeated=not typed
    )


def _report(context: typer.Context, listed: ListOfFiles) -> Output | None:
    path = listed.output
    if path is None and not listed.replace:
        return None
    output = output_of(context, OutputOptions(output=path, replace=listed.replace))
    if output is not None and not (output.single and output.path):
        raise InvalidRequestError(
            f"--output is {path!r}, not the name of a file", hint="write it as: orphans.parquet"
        )
    return output


def _check(what: WhatToDo, *, dry_run: bool) -> None:
    chosen = flags_given(what)
    if len(chosen) > 1:
        raise InvalidRequestError(f"{' and '.join(chosen)} contradict each other")
    if dry_run and chosen and not (what.quarantine or what.delete):
        raise InvalidRequestError(f"{chosen[0]} has no --dry-run")
