"""Plan and execute one load of any mode."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lake.core.base.errors import InvalidRequestError
from lake.core.base.outcome import Outcome

if TYPE_CHECKING:
    from lake.core.load.changelog_load.plan import ChangeOptions
    from lake.core.load.ingest.options import IngestOptions
    from lake.core.load.upsert.options import UpsertOptions
    from lake.core.transaction.session import Session


def load(
    session: Session,
    table: str,
    options: IngestOptions,
    by_key: UpsertOptions | ChangeOptions | None,
    *,
    dry_run: bool = False,
) -> Outcome:
    """Load files or a table's rows once.

    Args:
        session: the session.
        table: the table's name.
        options: what is loaded.
        by_key: the options of a load by key; None for other loads.
        dry_run: describe the plan only.
    """
    from lake.core.load.changelog_load.load import execute_changes, preview_changes
    from lake.core.load.changelog_load.plan import ChangeOptions, plan_changelog_load
    from lake.core.load.ingest.execute import execute, preview
    from lake.core.load.ingest.options import APPEND
    from lake.core.load.ingest.plan import plan_ingest
    from lake.core.load.upsert.execute import execute_upsert, preview_upsert
    from lake.core.load.upsert.plan import plan_upsert, upsert_of_property

    if by_key is None:
        plan = plan_ingest(session, table, options)
        by_key = upsert_of_property(session, plan) if options.mode == APPEND else None
        if by_key is None:
            return preview(session, plan) if dry_run else execute(session, plan)
    changes = isinstance(by_key, ChangeOptions)
    if options.mode != APPEND:
        option = "--changes-column" if changes else "--upsert"
        raise InvalidRequestError(f"{option} and --{options.mode} contradict each other")
    if isinstance(by_key, ChangeOptions):
        log = plan_changelog_load(session, table, options, by_key)
        return preview_changes(session, log) if dry_run else execute_changes(session, log)
    wanted = plan_upsert(session, table, options, by_key)
    return preview_upsert(session, wanted) if dry_run else execute_upsert(session, wanted)
