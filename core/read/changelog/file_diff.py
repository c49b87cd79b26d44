"""Find the files that a commit added and removed, from the entries of the manifests that it exchanged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from lake.core.table.manifests.schemas import DELETED

Entries = Mapping[int, pa.Table]


@dataclass(frozen=True, slots=True)
class Exchange:
    """Entries by spec id: of files that are live only after a commit, only before it, and both."""

    added: Entries
    removed: Entries
    kept: Entries

    @property
    def is_empty(self) -> bool:
        """Whether the same files are live on both sides."""
        return not (count(self.added) or count(self.removed))


def exchange(before: Entries, after: Entries) -> Exchange:
    """Compare live entries. Entries of manifests on both sides may be omitted from both.

    A file is identified by its path and, for a deletion vector, by its offset in the Puffin file.
    """
    old, new = identities(before), identities(after)
    return Exchange(
        added={spec: _chosen(entries, old, among=False) for spec, entries in after.items()},
        removed={spec: _chosen(entries, new, among=False) for spec, entries in before.items()},
        kept={spec: _chosen(entries, old, among=True) for spec, entries in after.items()},
    )


def live(entries: Entries) -> Entries:
    """Return the entries without those that are marked as deleted."""
    return {
        spec: table.filter(pc.not_equal(table["status"], DELETED))
        for spec, table in entries.items()
    }


def lived_before(entries: Entries, snapshot_id: int) -> Entries:
    """Return the entries of a snapshot's own manifests that were live in its parent."""
    return {
        spec: table.filter(
            pc.equal(
                pc.equal(table["snapshot_id"], snapshot_id), pc.equal(table["status"], DELETED)
            )
        )
        for spec, table in entries.items()
    }


def count(entries: Entries) -> int:
    """Return the number of entries."""
    return sum(table.num_rows for table in entries.values())


def joined(*parts: Entries) -> Entries:
    """Concatenate entries."""
    specs = dict.fromkeys(spec for part in parts for spec in part)
    return {
        spec: pa.concat_tables([part[spec] for part in parts if spec in part]) for spec in specs
    }


def _identity(entries: pa.Table) -> pa.ChunkedArray:
    paths = entries["file_path"].cast(pa.string())
    if "content_offset" not in entries.column_names:
        return paths
    offsets = pc.fill_null(entries["content_offset"], 0).cast(pa.string())
    return pc.binary_join_element_wise(paths, offsets, "\x00")


def identities(entries: Entries) -> pa.ChunkedArray:
    """Return the identities of files: the path, for delete files with the offset."""
    chunks = [chunk for table in entries.values() for chunk in _identity(table).chunks]
    return pa.chunked_array(chunks, pa.string())


def _chosen(entries: pa.Table, others: pa.ChunkedArray, *, among: bool) -> pa.Table:
    mask = pc.is_in(_identity(entries), value_set=others)
    return entries.filter(mask if among else pc.invert(mask))
