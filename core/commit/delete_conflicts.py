"""Whether a table may get delete files: none of a kind it lacks, no second vector, no lost predecessor."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from lake.core.commit.operations import DeleteKey
from lake.core.commit.removed_files import AGAIN, keys_of, manifests_of
from lake.core.errors import ConflictingFilesError, RefusedError
from lake.core.manifests.api import read_manifest
from lake.core.manifests.data_files import POSITION_DELETES
from lake.core.snapshots.delete_scopes import PUFFIN
from lake.core.types.format_versions import DELETION_VECTORS_SINCE

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

    from lake.core.manifests.decode import Manifest
    from lake.core.storage.storage import Storage

_COLUMNS = ("file_path", "file_format", "content_offset", "referenced_data_file")
# Deletion vectors came with format version 3, and took the place of position delete files.


class DeleteClashes:
    """Holds new delete files of one commit's steps against the live ones; each manifest is read once.

    Args:
        storage: where manifests lie.
        fresh: entries of manifests that the commit wrote, by location, as far as they are at hand.
    """

    def __init__(self, storage: Storage, fresh: Mapping[str, pa.Table]) -> None:
        self._storage = storage
        self._fresh = fresh
        self._targets: set[str] = set()
        self._replaced: set[DeleteKey] = set()
        self._read: dict[str, list[tuple[DeleteKey, str | None]]] = {}

    def watch(self, added: Sequence[pa.Table], replaced: Iterable[DeleteKey]) -> None:
        """Name what a step adds and replaces, before the first check."""
        self._targets |= _vector_targets(added)
        self._replaced.update(replaced)

    def check(
        self,
        metadata: TableMetadata,
        current: Sequence[Manifest],
        added: Sequence[pa.Table],
        replaced: frozenset[DeleteKey],
    ) -> None:
        """Check that a table may get delete files, that those they replace are live, and no vector gets a twin.

        Args:
            metadata: the table's.
            current: the manifest list that the step is built on.
            added: entries of new delete files.
            replaced: live delete files in whose place some of them come.

        Raises:
            RefusedError: the table's format version has no such delete files.
            ConflictingFilesError: a replaced one is gone, or another writer made a vector for the same file.
        """
        _check_version(metadata.format_version, added)
        vectors = _vector_targets(added)
        if not (vectors or replaced):
            return
        live: set[DeleteKey] = set()
        twins: set[str] = set()
        for manifest in manifests_of(current, data=False):
            for key, target in self._watched(metadata, manifest):
                live.add(key)
                if key not in replaced and target in vectors:
                    twins.add(target)
        if twins or replaced - live:
            touched = frozenset(twins or vectors)
            raise ConflictingFilesError(
                f"other deletes were committed meanwhile for {', '.join(sorted(touched)[:3])}",
                touched,
                hint=AGAIN,
            )

    def _watched(
        self, metadata: TableMetadata, manifest: Manifest
    ) -> list[tuple[DeleteKey, str | None]]:
        """Return the delete files of a manifest that matter, and the data file that each vector is for."""
        path = manifest["manifest_path"]
        if path not in self._read:
            entries = self._fresh.get(path)
            if entries is None:
                entries = read_manifest(
                    self._storage, manifest, metadata, columns=_COLUMNS, live_only=True
                )
            vectors = pc.equal(entries["file_format"], PUFFIN).to_pylist()
            targets = entries["referenced_data_file"].to_pylist()
            self._read[path] = [
                (key, target if is_vector else None)
                for key, target, is_vector in zip(keys_of(entries), targets, vectors, strict=True)
                if key in self._replaced or (is_vector and target in self._targets)
            ]
        return self._read[path]


def _vector_targets(deletes: Iterable[pa.Table]) -> set[str]:
    """Return the data files that deletion vectors are for."""
    targets: set[str] = set()
    for entries in deletes:
        vectors = entries.filter(pc.equal(entries["file_format"], PUFFIN))
        targets.update(vectors["referenced_data_file"].drop_null().to_pylist())
    return targets


def _check_version(version: int, added: Sequence[pa.Table]) -> None:
    if version == 1 and any(entries.num_rows for entries in added):
        raise RefusedError(
            "a table of format version 1 has no row-level deletes",
            hint="upgrade the table to format version 2, or rewrite whole files",
        )
    takes_vectors = version >= DELETION_VECTORS_SINCE
    kind = "position delete files" if takes_vectors else "deletion vectors"
    for entries in added:
        formats = entries["file_format"].filter(pc.equal(entries["content"], POSITION_DELETES))
        if pc.any(pc.not_equal(pc.equal(formats, PUFFIN), takes_vectors), min_count=0).as_py():
            raise RefusedError(f"a table of format version {version} takes no new {kind}")
