"""Complete the journals of killed expiries: restore lost refs and delete the listed files.

Every file is checked again: only files below the table's roots that no retained snapshot references are deleted. So
the journal of a run that still works, or that never committed, does no harm.
"""

from __future__ import annotations

from collections.abc import Collection

from lake.core.catalogs.catalog import Table
from lake.core.errors import BadInputError, NotAuthorisedError, NotFoundError
from lake.core.expiration import journal
from lake.core.expiration.journal import Journal
from lake.core.expiration.ref_recovery import restore_refs
from lake.core.garbage.file_deletion import Removed, delete_files
from lake.core.garbage.reachability import Reachability
from lake.core.session import Session
from lake.core.snapshots import ancestry

# The run of an older journal no longer works, and the files that it could not delete are given up.
_STALE_MS = 24 * 3_600_000


def finish_journals(
    session: Session,
    table: Table,
    removed: Removed,
    *,
    but: str | None = None,
    removed_refs: Collection[str] = (),
) -> None:
    """Complete the table's journals, except an operation's own. Most tables have none.

    Args:
        session: the clock and the warnings.
        table: the table's current state.
        removed: counts the deleted files.
        but: the operation whose journal is skipped.
        removed_refs: the refs that this operation removed on purpose.

    Raises:
        LakeError: the table or its manifests cannot be read: nothing more is deleted.
    """
    own = journal.location_of(table, but) if but else None
    found = _readable(session, table, [name for name in journal.find(table) if name != own])
    if not found:
        return
    on_purpose = {*removed_refs, *(name for item in found.values() for name in item.refs)}
    for location, item in found.items():
        _finish(session, table.refreshed(), location, item, on_purpose, removed)


def _readable(session: Session, table: Table, locations: list[str]) -> dict[str, Journal]:
    found = {}
    for location in sorted(locations):
        try:
            found[location] = journal.read(table, location)
        except NotFoundError:
            continue
        except NotAuthorisedError:
            session.warn(
                f"not allowed to read {location}: run lake expire again as the user that started that expiry"
            )
        except BadInputError as error:
            # An incomplete journal's run was killed before it changed anything.
            if location.endswith(journal.ENDING):
                session.warn(f"{error.message}: removed")
            journal.remove(table, location)
    return found


def _finish(
    session: Session,
    table: Table,
    location: str,
    item: Journal,
    removed_refs: set[str],
    removed: Removed,
) -> None:
    present = ancestry.snapshots_by_id(table.metadata).keys()
    # A time far in the future is a wrong clock's; without abs() such a journal would stay forever.
    stale = abs(session.clock.now_ms() - item.created_ms) > _STALE_MS
    if present >= set(item.snapshots):
        # Its commit has not succeeded: the run was killed, or may still send it.
        if stale:
            journal.remove(table, location)
        return
    table = restore_refs(session, table, set(item.snapshots) - present, removed_refs)
    failures = len(removed.failed)
    delete_files(session, table, Reachability(table.storage), item.files, removed)
    if stale or len(removed.failed) == failures:
        journal.remove(table, location)
