"""Data files that are gone: which rows are lost, and which delete files go with them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from lake.core.base.errors import BadInputError, RefusedError
from lake.core.maintain.checking.stored_files import StoredFiles
from lake.core.maintain.compaction.dangling_deletes import dangling_deletes
from lake.core.maintain.repair.absence import gone_files, require_reachable
from lake.core.maintain.repair.facts import LostPartitionFacts, MissingFilesFacts
from lake.core.table.manifests.api import read_manifest_list, read_manifests
from lake.core.table.manifests.data_files import DATA
from lake.core.transaction.commit.operations import DeleteKey
from lake.core.transaction.removals import Removals, removals_of

if TYPE_CHECKING:
    from lake.core.table.catalogs.catalog import Table
    from lake.core.table.snapshots.live_files import LiveFiles

_AT_ONCE = 10_000
_SHOWN = 1000
_F001, _F002 = "F001", "F002"


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingFiles:
    """The files of a branch that are gone.

    Args:
        paths: the data files.
        bytes: their size.
        removals: the rows that are lost.
        deletes: the delete files that apply to these data files only, and gone ones that apply to none.
        gone: all files that must still be gone when the commit is sent.
        uncertain: files of which it is not certain that they are gone, such as links; they stay.
        refs: other branches and tags whose snapshots contain some of the data files.
        snapshots: the number of snapshots that contain some of them, and keep them.
    """

    paths: Sequence[str] = ()
    bytes: int = 0
    removals: Removals = field(default_factory=Removals)
    deletes: Sequence[DeleteKey] = ()
    gone: frozenset[str] = frozenset()
    uncertain: Sequence[str] = ()
    refs: Sequence[str] = ()
    snapshots: int = 0

    def __bool__(self) -> bool:
        return bool(self.paths or self.deletes)

    def facts(self) -> MissingFilesFacts:
        """Return what is dropped for the outcome."""
        return MissingFilesFacts(
            data_files=len(self.paths),
            delete_files=len(self.deletes),
            bytes=self.bytes,
            rows=self.removals.rows,
            rows_at_most=self.removals.rows_at_most,
            partitions=[
                LostPartitionFacts(
                    partition=item.partition, files=item.files, rows_at_most=item.rows
                )
                for item in self.removals.partitions
            ],
            paths=self.paths[:_SHOWN],
            snapshots=self.snapshots,
            other_refs=self.refs,
        )


def find_missing_files(live: LiveFiles, branch: str) -> MissingFiles:
    """Find the files of a branch that the storage does not have.

    Raises:
        RefusedError: a delete file is gone and may apply to a data file that is there, whose rows would come back; or
            no data file is found in one place.
        StorageError: the storage fails, does not answer or refuses access: nothing is known then.
    """
    table = live.table
    found = list(_findings(live))
    gone = gone_files(table.storage, [path for _, path in found])
    uncertain = sorted(path for _, path in found if path not in gone)
    lost = pa.array(
        sorted(path for code, path in found if code == _F001 and path in gone), pa.string()
    )
    require_reachable(table, live.paths, gone)  # check: place-reachable
    rest, whole = dict[int, pa.Table](), dict[int, pa.Table]()
    for spec_id, entries in live.by_spec.items():
        is_lost = pc.is_in(entries["file_path"], value_set=lost)
        whole[spec_id] = entries.filter(is_lost)
        rest[spec_id] = entries.filter(pc.invert(is_lost))
    after = dangling_deletes(replace(live, by_spec=rest))
    gone_deletes = [key for key in delete_keys(live) if key.path in gone]
    _refuse_revived(table, gone_deletes, after)  # check: no-revived-rows
    before = set(dangling_deletes(live))
    went = replace(live, by_spec=whole)
    paths = went.paths
    deletes = sorted({key for key in after if key not in before} | set(gone_deletes))
    refs, snapshots = _referrers(table, branch, lost) if len(lost) else ((), 0)
    return MissingFiles(
        paths=paths,
        bytes=went.bytes,
        removals=removals_of(went),
        deletes=deletes,
        gone=gone,
        uncertain=uncertain,
        refs=refs,
        snapshots=snapshots,
    )


def delete_keys(live: LiveFiles) -> list[DeleteKey]:
    """Return the keys of all live delete files."""
    return [
        DeleteKey(path, offset)
        for entries in live.delete_index.by_spec.values()
        for path, offset in zip(
            entries["file_path"].to_pylist(), entries["content_offset"].to_pylist(), strict=True
        )
    ]


def _findings(live: LiveFiles) -> Iterable[tuple[str, str]]:
    """Yield the files that do not seem to exist, each once, with their codes."""
    stored = StoredFiles(live.table)
    seen: set[str] = set()
    for entries in (*live.by_spec.values(), *live.delete_index.by_spec.values()):
        for start in range(0, entries.num_rows, _AT_ONCE):
            for item in stored.findings(entries.slice(start, _AT_ONCE)):
                if item.code in {_F001, _F002} and item.place not in seen:
                    seen.add(item.place)
                    yield item.code, item.place


def _refuse_revived(
    table: Table, gone: Sequence[DeleteKey], dangling: Collection[DeleteKey]
) -> None:
    """Refuse to drop delete files that may apply to a data file that is there.

    Raises:
        RefusedError: there is such a file.
    """
    harmless = set(dangling)
    needed = sorted({key.path for key in gone if key not in harmless})
    if needed:
        raise RefusedError(
            f"{len(needed)} delete files of {table.identifier} are gone, e.g. {needed[0]}: without their entries, "
            "rows that they deleted would come back",
            hint="restore the files from a backup, or roll back to an earlier snapshot; nothing was changed",
        )


def _referrers(table: Table, branch: str, lost: pa.Array) -> tuple[Sequence[str], int]:
    """Return the other refs, and the number of snapshots, whose live files include some of the given ones."""
    metadata = table.metadata
    holds: dict[str, bool] = {}
    holders: set[int] = set()
    for snapshot in metadata.snapshots:
        try:
            listed = read_manifest_list(table.storage, snapshot.manifest_list)
            data = listed.filter(pc.equal(listed["content"], DATA))
            _look_into(table, data, lost, holds)
        except BadInputError:
            # It cannot be read anyway.
            continue
        if any(holds[path] for path in data["manifest_path"].to_pylist()):
            holders.add(snapshot.snapshot_id)
    refs = [
        f"{ref.snapshot_ref_type} {name}"
        for name, ref in sorted(metadata.refs.items())
        if ref.snapshot_id in holders and name != branch
    ]
    return refs, len(holders)


def _look_into(table: Table, data: pa.Table, lost: pa.Array, holds: dict[str, bool]) -> None:
    """Record for each manifest that was not read before whether it contains one of the files."""
    new = [path not in holds for path in data["manifest_path"].to_pylist()]
    unread = data.filter(pa.array(new, pa.bool_()))
    if not unread.num_rows:
        return
    read: Mapping[int, pa.Table] = read_manifests(
        table.storage, unread, table.metadata, columns=("file_path",), live_only=True
    )
    found: set[str] = set()
    for entries in read.values():
        hits = entries.filter(pc.is_in(entries["file_path"], value_set=lost))
        found.update(hits["manifest_path"].cast(pa.string()).to_pylist())
    for path in unread["manifest_path"].to_pylist():
        holds[path] = path in found
