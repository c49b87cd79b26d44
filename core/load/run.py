"""One load of any mode: an append, an overwrite, an upsert or a change log, as its options or the table say."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from lake.core.base.errors import InvalidRequestError
from lake.core.base.options import Option
from lake.core.base.outcome import Outcome
from lake.core.load.changelog_load.load import execute_changes, preview_changes
from lake.core.load.changelog_load.plan import ChangeOptions, plan_changelog_load
from lake.core.load.ingest.execute import execute, preview
from lake.core.load.ingest.options import APPEND
from lake.core.load.ingest.plan import plan_ingest
from lake.core.load.upsert.execute import execute_upsert, preview_upsert
from lake.core.load.upsert.plan import plan_upsert, upsert_of_property
from lake.core.transaction.replanning import replanned

if TYPE_CHECKING:
    from lake.core.load.ingest.options import LoadRequest
    from lake.core.load.upsert.options import UpsertOptions
    from lake.core.transaction.session import Session


def load(
    session: Session,
    table: str,
    request: LoadRequest,
    by_key: UpsertOptions | ChangeOptions | None,
    *,
    dry_run: bool = False,
) -> Outcome:
    """Load files or a table's rows once.

    Raises:
        InvalidRequestError: options contradict each other.
    """
    options = request.options
    if by_key is None:
        plan = plan_ingest(session, table, request)
        by_key = upsert_of_property(session, plan) if options.mode == APPEND else None
        if by_key is None:
            return preview(session, plan) if dry_run else execute(session, plan)
    if options.mode != APPEND:
        mode = Option(options.mode.replace("-", "_"))
        option = Option.CHANGES_COLUMN if isinstance(by_key, ChangeOptions) else Option.UPSERT
        raise InvalidRequestError(f"{option} and {mode} contradict each other")
    if isinstance(by_key, ChangeOptions):
        log = plan_changelog_load(session, table, request, by_key)
        return preview_changes(session, log) if dry_run else execute_changes(session, log)
    wanted = plan_upsert(session, table, request, by_key)
    return preview_upsert(session, wanted) if dry_run else execute_upsert(session, wanted)


def load_epoch(session: Session, load_once: Callable[[], Outcome]) -> Outcome:
    """Load an epoch of a stream; after a conflict it is planned again, a few times.

    Stops that come after its commit are held back until the stream has recorded the epoch.

    Raises:
        CommitConflictError: each plan was in conflict; nothing was changed.
    """
    session.protected_files.clear()

    def attempt(_: None) -> Outcome:
        with session.interrupts.recorded():
            return load_once()

    return replanned(attempt, None, lambda start: start)
