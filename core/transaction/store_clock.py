"""Compare this machine's clock with the clock of the table's store, before something is deleted because of its age.

Times of files come from the store, and a server of files has a clock of its own. On a machine whose clock is ahead,
everything looks older than it is.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from lake.core.base import locations
from lake.core.base.errors import LakeError, NotAuthorisedError, RefusedError
from lake.core.base.units import format_duration

if TYPE_CHECKING:
    from lake.core.io.storage.storage import Storage
    from lake.core.table.catalogs.catalog import Table
    from lake.core.transaction.session import Session

# The file that is written. A check overwrites one that stayed.
_NAME = "lake.clock"
# Clocks that are synchronised differ by less than a second. The smallest age that is allowed is 24 hours.
MOST_MS = 300_000


def require_clock(session: Session, table: Table) -> None:
    """Check that this machine's clock is not ahead of the clock of a table's store; see `require_clock_of`."""
    require_clock_of(session, table.storage, table.metadata_folder, table.identifier)


def require_clock_of(session: Session, storage: Storage, folder: str, name: str) -> None:
    """Check that this machine's clock is not ahead of the clock of a store.

    The check writes a small file, reads its time and removes it. If this run may not write there, or if the store
    does not report the file's time, nothing is checked.

    Raises:
        RefusedError: the clock is ahead by more than `MOST_MS`.
        LakeError: the store failed, so the clock is not known.
    """
    ahead_ms = _ahead_ms(session, storage, locations.join(folder, _NAME))
    if ahead_ms > MOST_MS:  # check: clock-of-store
        raise RefusedError(
            f"the clock of this machine is {format_duration(ahead_ms / 1000)} ahead of the clock of the store of "
            f"{name}: everything looks older than it is; nothing was changed",
            hint="set the clock, for example by NTP, and run the command again",
        )


def _ahead_ms(session: Session, storage: Storage, location: str) -> int:
    """Return by how much this machine's clock is ahead at least, in ms; 0 if this is not known."""
    began_ms = session.clock.now_ms()
    try:
        storage.write(location, b"{}", durable=False)
        file = storage.look_up([location])[location]
    except NotAuthorisedError:
        # A catalog's server may write the metadata, and this run only read and delete.
        return 0
    finally:
        with suppress(LakeError):
            storage.delete([location])
    return 0 if file is None or file.modified_ms is None else began_ms - file.modified_ms
