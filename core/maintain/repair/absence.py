"""Whether files are gone, by what the storage answers for each of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from lake.core.base import locations
from lake.core.base.errors import BadInputError, NotFoundError, RefusedError
from lake.core.io.work_ahead import ReadingThreads

if TYPE_CHECKING:
    from lake.core.io.storage.storage import Storage
    from lake.core.table.catalogs.catalog import Table

_THREADS = 16


def gone_files(storage: Storage, paths: Iterable[str]) -> frozenset[str]:
    """Return the files that the storage does not find, neither when they are looked up nor when they are opened.

    A link, a folder, and a path that cannot exist are not among them: the rows may still be there.

    Raises:
        StorageError: the storage fails; this answer does not prove that a file is gone.
        NotAuthorisedError: the storage does not allow to look a file up.
        TimedOutError: the storage does not answer.
    """
    found = storage.look_up(paths)
    suspects = [path for path, file in found.items() if file is None]
    with ReadingThreads(_THREADS) as pool:
        return frozenset(
            path
            for path, is_gone in zip(
                suspects, pool.map(lambda path: _cannot_open(storage, path), suspects), strict=True
            )
            if is_gone  # check: second-lookup
        )


def _cannot_open(storage: Storage, path: str) -> bool:
    try:
        with storage.open_input(path):
            return False
    except NotFoundError:
        return True
    except BadInputError:
        return False


def require_reachable(table: Table, live: Iterable[str], gone: frozenset[str]) -> None:
    """Refuse to believe that all files in one place are gone: a disk may not be mounted, or an endpoint be wrong.

    A place is one of the table's folders, or a bucket or host if the files are in none of these.

    Raises:
        RefusedError: in one place, no data file is found.
    """
    places = {_place(table, path) for path in gone}
    for path in live:
        if not places:
            return
        if path not in gone:
            places.discard(_place(table, path))
    if places:
        raise RefusedError(
            f"not one data file of {table.identifier} was found in {min(places)}: its storage may not be mounted, or "
            "the files were moved",
            hint="make the files accessible; if they are lost, load the rows again, or roll back",
        )


def _place(table: Table, path: str) -> str:
    roots = [root for root in table.roots if locations.within(path, root)]
    if roots:
        return max(roots, key=len)
    parsed = locations.parse(path)
    return f"{parsed.scheme}://{parsed.authority}"
