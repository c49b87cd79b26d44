"""Complete the journals of killed expiries: restore lost refs and delete the listed files.

Every file is checked again: only files below the table's roots that no retained snapshot references are deleted. So
the journal of a run that still works, or that never committed, does no harm.
"""

from __future__ import annotations

from collections.abc import Collection

from lake.core.base.errors import BadInputError, NotAuthorisedError, NotFoundError
from lake.core.base.options import Option
from lake.core.maintain.expiration import journal
from lake.core.maintain.expiration.journal import Journal
from lake.core.maintain.expiration.ref_recovery import restore_refs
from lake.core.table.catalogs.catalog import Table
from lake.core.table.snapshots import ancestry
from lake.core.transaction.garbage.file_deletion import Removed, delete_files
from lake.core.transaction.garbage.other_histories import refuse_continued
from lake.core.transaction.garbage.other_tables import OtherTables
from lake.core.transaction.garbage.reachability import Reachability
from lake.core.transaction.session import Session

# The run of an older journal no longer works, and the files that it could not delete are given up.
_STALE_MS = 24 * 3_600_000


class JournalRecovery:
    """Completes the journals that other runs left, except an operation's own. Most tables have none.

    Args:
        session: the clock and the warnings.
        table: the table's current state.
        but: the operation whose journal is skipped.
        removed_refs: the refs that this operation removed on purpose.

    Raises:
        LakeError: the journals cannot be listed or read now.
    """

    def __init__(
        self,
        session: Session,
        table: Table,
        *,
        but: str | None = None,
        removed_refs: Collection[str] = (),
    ) -> None:
        own = journal.location_of(table, but) if but else None
        names = [name for name in journal.find(table) if name != own]
        self._session = session
        self._found = _readable(session, table, names)
        self._on_purpose = {
            *removed_refs,
            *(name for item in self._found.values() for name in item.refs),
        }
        # The journals whose commits are known to have succeeded.
        self._succeeded: set[str] = set()

    def restore_refs(self, table: Table) -> Table:
        """Restore the refs that the commits of these runs removed by a race, and return the table.

        This comes before any deletion: the snapshots of such refs share files with other snapshots, so that an
        expiry of those would delete files that are needed again.

        Raises:
            LakeError: lost refs cannot be determined now: no file may be deleted.
        """
        for location, item in self._found.items():
            missing = set(item.snapshots) - ancestry.snapshots_by_id(table.metadata).keys()
            if missing:
                self._succeeded.add(location)
                table = restore_refs(self._session, table, missing, self._on_purpose)
        return table

    def finish(self, table: Table, removed: Removed) -> None:
        """Restore lost refs, then delete the listed files.

        Raises:
            LakeError: the table or its manifests cannot be read: nothing more is deleted.
            RefusedError: another catalog may contain the table.
        """
        for location, item in self._found.items():
            # Those of all journals, because one may list what a ref of another needs; and each time, because a
            # commit may succeed late.
            table = self.restore_refs(table.refreshed())
            self._finish(table, location, item, removed)

    def _finish(self, table: Table, location: str, item: Journal, removed: Removed) -> None:
        # A time far in the future is a wrong clock's; without abs() such a journal would stay forever.
        stale = abs(self._session.clock.now_ms() - item.created_ms) > _STALE_MS
        if location not in self._succeeded:
            # The run was killed before its commit, or may still send it.
            if stale:
                journal.remove(table, location)
            return
        refuse_continued(self._session, table, f"{Option.KEEP_FILES} changes metadata only")
        failures = len(removed.failed)
        others = OtherTables(self._session, table)
        reach = Reachability(table.storage, engine_of=self._session.manifest_engine)
        # check: killed-expiry-finished
        delete_files(self._session, table, reach, item.files, removed, others)
        if stale or len(removed.failed) == failures:
            journal.remove(table, location)


def _readable(session: Session, table: Table, locations: list[str]) -> dict[str, Journal]:
    found: dict[str, Journal] = {}
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
