"""States of the table that are not in its log: another catalog may contain the table and continue from them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lake.core import locations
from lake.core.errors import CorruptFileError, RefusedError
from lake.core.metadata.files import find_metadata, is_metadata_name, version_of

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

    from lake.core.catalogs.catalog import Table
    from lake.core.session import Session

_THREADS = 16
_TRIES = 5


@dataclass(frozen=True, slots=True)
class OtherState:
    """A state of the table that is not in its log.

    Args:
        metadata: what its file contains.
        is_committed: whether another catalog must have committed it; False if a commit may have failed.
        is_newer: whether its version is greater than the current one.
    """

    metadata: TableMetadata
    is_committed: bool
    is_newer: bool


def other_states(table: Table, paths: Sequence[str]) -> dict[str, OtherState]:
    """Return by file those states of the table that another catalog may use.

    A metadata file whose version is not less than the current one may be such a state. An earlier one is, if it
    continues from a file that is not in the table's log either: a commit that failed continues from one in the log.
    States that are older than the log are left out, and so are files that are not complete.

    Args:
        table: the table as it was before the files were listed.
        paths: metadata files that were not in its log then.

    Raises:
        CorruptFileError: files are removed again and again, so another catalog may have a newer one.
        RefusedError: a state uses something that lake does not support.
    """
    for _ in range(_TRIES):
        if not paths:
            return {}
        found, removed = _states(table, paths)
        if not removed:
            return found
        # A commit that failed removes its file. Another catalog that removes one has a newer one.
        folders = {path.rpartition("/")[0] for path in removed}
        paths = sorted({*paths} - {*removed} | {*_listed(table, folders)})
    raise CorruptFileError(f"metadata files of {table.identifier} are removed while they are read")


def _listed(table: Table, folders: Iterable[str]) -> list[str]:
    """Return the metadata files in folders."""
    return [
        locations.join(folder, name)
        for folder in folders
        for name, is_folder in table.storage.list_folder(folder)
        if not is_folder and is_metadata_name(name)
    ]


def _states(table: Table, paths: Sequence[str]) -> tuple[dict[str, OtherState], list[str]]:
    """Return the states that another catalog may use, and the files that do not exist any more."""
    # What was committed since the table was loaded is in its log now.
    table = table.refreshed()
    log = table.logged_files
    own = {locations.canonical(path) for path in log}
    current = version_of(table.metadata_location)
    oldest = min((number for path in log if (number := version_of(path)) is not None), default=0)

    def is_within(path: str) -> bool:
        version = version_of(path)
        return version is None or version >= oldest

    removed = list[str]()

    def state(path: str) -> OtherState | None:
        try:
            metadata = find_metadata(table.storage, path)
        except CorruptFileError:
            return None
        if metadata is None:
            removed.append(path)
            return None
        if metadata.table_uuid != table.metadata.table_uuid:
            return None
        before = metadata.metadata_log[-1].metadata_file if metadata.metadata_log else None
        is_committed = (
            before is not None and locations.canonical(before) not in own and is_within(before)
        )
        version = version_of(path)
        is_newer = version is None or current is None or version > current
        # Of several commits at the same time, all but one fail, and leave files of the current version.
        return (
            OtherState(metadata, is_committed, is_newer)
            if is_committed or is_newer or version == current
            else None
        )

    within = [path for path in paths if locations.canonical(path) not in own and is_within(path)]
    with ThreadPoolExecutor(_THREADS) as pool:
        found = dict(zip(within, pool.map(state, within), strict=True))
    return {path: item for path, item in found.items() if item is not None}, removed


def refuse_continued(
    session: Session, table: Table, hint: str, *, also_failed: bool = False
) -> None:
    """Refuse to delete files that another catalog may need, because it contains the table and continues it.

    Args:
        session: the session of the invocation.
        table: the table.
        hint: what can be done with the table otherwise.
        also_failed: whether a newer metadata file that a commit may have left that failed is a reason, too.

    Raises:
        RefusedError: the metadata folder shows such a catalog, or contains what lake does not support.
        CorruptFileError: metadata files are removed again and again.
    """
    if not session.catalog.has_entries:
        return
    own = {locations.canonical(path) for path in table.logged_files}
    paths = [
        path
        for path in _listed(table, [table.metadata_folder])
        if version_of(path) is not None and locations.canonical(path) not in own
    ]
    others = [
        path
        for path, state in other_states(table, paths).items()
        if state.is_committed or (also_failed and state.is_newer)
    ]
    if others:
        more = f" and {len(others) - 1} other files continue" if others[1:] else " continues"
        raise RefusedError(
            f"{others[0]}{more} {table.identifier} outside of its log: another catalog may contain the table",
            hint=f"{hint}; if no other catalog contains it, move such files away and run the command again",
        )
