"""Finish what killed expiries left: refs that they lost are put back, and their lists of files deleted.

Every file is asked for again: only what lies below the table's roots and nothing retained reaches goes. So a
journal whose run still works, or never came to its commit, costs nothing.
"""

from __future__ import annotations

from collections.abc import Collection

from lake.core.catalogs.catalog import Table
from lake.core.errors import BadInputError, NotAuthorisedError, NotFoundError
from lake.core.expiration import journal
from lake.core.expiration.file_deletion import Removed, delete_files
from lake.core.expiration.journal import Journal
from lake.core.expiration.reachability import Reachability
from lake.core.expiration.ref_recovery import restore_refs
from lake.core.session import Session
from lake.core.snapshots import ancestry

# The run of an older journal is not at work any more, and what it could not delete is let go.
_STALE_MS = 24 * 3_600_000


def finish_journals(
    session: Session,
    table: Table,
    removed: Removed,
    *,
    but: str | None = None,
    removed_refs: Collection[str] = (),
) -> None:
    """Finish the journals that lie there, but an operation's own; most often there are none.

    Args:
        session: clock and warnings.
        table: as it is now.
        removed: where to count.
        but: the operation whose journal is left alone.
        removed_refs: what that operation removed on purpose.

    Raises:
        LakeError: the table, or what it reaches, cannot be read: nothing more is deleted.
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
            session.warn(f"not allowed to read {location}: who began that expiry can end it")
        except BadInputError as error:
            # A run that was killed before it had written it had done nothing else either.
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
    # A time far ahead is a clock's mistake: such a journal would stay for ever.
    stale = abs(session.clock.now_ms() - item.created_ms) > _STALE_MS
    if present >= set(item.snapshots):
        # Its commit did not land: its run is gone, or may still send it.
        if stale:
            journal.remove(table, location)
        return
    table = restore_refs(session, table, set(item.snapshots) - present, removed_refs)
    failures = len(removed.failed)
    delete_files(session, table, Reachability(table.storage), item.files, removed)
    if stale or len(removed.failed) == failures:
        journal.remove(table, location)
