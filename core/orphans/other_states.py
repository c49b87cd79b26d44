"""States of the table that are not in its log: another catalog may contain the table and continue from them."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from lake.core import locations
from lake.core.errors import CorruptFileError, NotFoundError
from lake.core.metadata.files import read_metadata, version_of
from lake.core.orphans.references import metadata_files

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

    from lake.core.catalogs.catalog import Table

_THREADS = 16


def other_states(table: Table, paths: Iterable[str]) -> dict[str, TableMetadata]:
    """Return the metadata by file of those states of the table that another catalog may use.

    A metadata file whose version is not less than the current one may be such a state. An earlier one is, if it
    continues from a file that is not in the table's log either: a commit that failed continues from one in the log.
    States that are older than the log are left out, and so are files that are not complete.

    Args:
        table: the table.
        paths: metadata files of the table that are not in its log.

    Raises:
        RefusedError: a state has a format version that is not supported.
    """
    log = metadata_files(table)
    own = {locations.canonical(path) for path in log}
    current = version_of(table.metadata_location)
    oldest = min((number for path in log if (number := version_of(path)) is not None), default=0)

    def is_within(path: str) -> bool:
        version = version_of(path)
        return version is None or version >= oldest

    def state(path: str) -> TableMetadata | None:
        try:
            metadata = read_metadata(table.storage, path)
        except (CorruptFileError, NotFoundError):
            return None
        version = version_of(path)
        if version is None or current is None or version >= current:
            return metadata
        before = metadata.metadata_log[-1].metadata_file if metadata.metadata_log else None
        if before is None or locations.canonical(before) in own or not is_within(before):
            return None
        return metadata

    within = [path for path in paths if is_within(path)]
    with ThreadPoolExecutor(_THREADS) as pool:
        found = dict(zip(within, pool.map(state, within), strict=True))
    return {path: metadata for path, metadata in found.items() if metadata is not None}
