"""Send a change of a catalog's entry of a table (drop, rename, register), and determine its outcome.

Most of these requests have no condition on the table's state, so none is sent twice. If the response to one is
missing, the catalog is read to find out whether it was carried out.
"""

from __future__ import annotations

from collections.abc import Callable

from pyiceberg.exceptions import (
    AuthorizationExpiredError,
    BadRequestError,
    CommitFailedException,
    ForbiddenError,
    TableAlreadyExistsError,
    TooManyRequestsError,
    UnauthorizedError,
)

from lake.core.base.errors import CommitUnknownError, LakeError, RefusedError, StoppedError
from lake.core.base.interrupts import uninterrupted
from lake.core.table.catalogs.catalog import Catalog
from lake.core.table.catalogs.errors import catalog_errors, first_line
from lake.core.transaction.session import Session

# A server that responds so has not carried out the request, unless an earlier copy of it arrived first. A response
# that the table or the namespace does not exist is not among them: both existed before the request.
_REFUSALS = (
    TableAlreadyExistsError,
    CommitFailedException,
    UnauthorizedError,
    ForbiddenError,
    AuthorizationExpiredError,
    BadRequestError,
    TooManyRequestsError,
)


def refuse_folders(catalog: Catalog, action: str, hint: str) -> None:
    """Refuse a change of an entry in a catalog whose tables are folders without an entry.

    Raises:
        RefusedError: the catalog is a Hadoop catalog.
    """
    if not catalog.has_entries:
        raise RefusedError(
            f"a hadoop catalog cannot {action} a table: its name is its folder, which its metadata contains",
            hint=hint,
        )


def change_entry(
    session: Session, what: str, send: Callable[[], object], is_made: Callable[[], bool]
) -> bool:
    """Send a change once; return whether the catalog confirmed it, and not only shows it now.

    Args:
        session: the session of the invocation.
        what: the table, for messages.
        send: sends the change; PyIceberg's exceptions are not translated.
        is_made: whether the catalog shows the change.

    Raises:
        LakeError: the catalog refused the change, and nothing was changed.
        CommitUnknownError: the change may have been made.
    """
    failure: Exception | None = None
    try:
        with uninterrupted():
            try:
                send()
            except Exception as error:  # noqa: BLE001 - the catalog shows whether the change was made
                failure = error
            else:
                session.interrupts.committed()
    except (StoppedError, KeyboardInterrupt) as stop:
        # The stop came too late for the change, which was made or may have been made.
        session.interrupts.defer(stop)
    if failure is None:
        return True
    try:
        if is_made():
            return False
    except LakeError as error:
        raise _unknown(what, failure) from error
    if not session.catalog.is_served or isinstance(failure, _REFUSALS):
        with catalog_errors(what, session.catalog):
            raise failure
    raise _unknown(what, failure) from failure


def _unknown(what: str, failure: Exception) -> CommitUnknownError:
    return CommitUnknownError(
        f"the catalog did not confirm the change of {what}: {first_line(failure)}",
        hint="it may have been made: look at the catalog with `lake tables`",
    )
