"""Validate new delete files: the format version allows them, no vector is duplicated, replaced ones are live."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from lake.core.base.errors import ConflictingFilesError, RefusedError
from lake.core.base.options import Option
from lake.core.spec.types.format_versions import DELETION_VECTORS_SINCE
from lake.core.table.manifests.api import read_manifest
from lake.core.table.manifests.data_files import POSITION_DELETES
from lake.core.table.snapshots.delete_scopes import PUFFIN
from lake.core.transaction.commit.operations import DeleteKey
from lake.core.transaction.commit.removed_files import AGAIN, keys_of, manifests_of

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

    from lake.core.io.storage.storage import Storage
    from lake.core.table.manifests.decode import Manifest

_COLUMNS = ("file_path", "file_format", "content_offset", "referenced_data_file")


class DeleteConflicts:
    """Compares the new delete files of a commit's steps with the live ones; each manifest is read once.

    Args:
        storage: the storage that contains the manifests.
        written_entries: entries of manifests that this commit wrote, by location, as far as they are in memory.
    """

    def __init__(self, storage: Storage, written_entries: Mapping[str, pa.Table]) -> None:
        self._storage = storage
        self._written_entries = written_entries
        self._targets: set[str] = set()
        self._replaced: set[DeleteKey] = set()
        self._read: dict[str, list[tuple[DeleteKey, str | None]]] = {}

    def declare_deletes(self, added: Sequence[pa.Table], replaced: Iterable[DeleteKey]) -> None:
        """Declare the delete files that a step adds and replaces, before the first check."""
        self._targets |= _vector_targets(added)
        self._replaced.update(replaced)

    def check(
        self,
        metadata: TableMetadata,
        current: Sequence[Manifest],
        added: Sequence[pa.Table],
        replaced: frozenset[DeleteKey],
    ) -> None:
        """Check that new delete files are allowed, replace live ones, and do not duplicate a vector.

        Args:
            metadata: the table's metadata.
            current: the manifest list on which the step is built.
            added: entries of new delete files.
            replaced: live delete files that some of them replace.

        Raises:
            RefusedError: the table's format version does not allow such delete files, or two vectors have one target.
            ConflictingFilesError: a replaced one is no longer live, or another writer added a vector for a file.
        """
        _check_version(metadata.format_version, added)  # check: delete-kinds-of-version
        _check_targets(added)  # check: one-new-vector-per-file
        vectors = _vector_targets(added)
        if not (vectors or replaced):
            return
        live: set[DeleteKey] = set()
        duplicated: set[str] = set()
        for manifest in manifests_of(current, data=False):
            for key, target in self._relevant(metadata, manifest):
                live.add(key)
                if key not in replaced and target in vectors:
                    duplicated.add(target)
        if duplicated or replaced - live:  # check: one-vector-per-file, replaced-vector-live
            affected = frozenset(duplicated or vectors)
            raise ConflictingFilesError(
                f"other deletes were committed meanwhile for {', '.join(sorted(affected)[:3])}",
                affected,
                hint=AGAIN,
            )

    def _relevant(
        self, metadata: TableMetadata, manifest: Manifest
    ) -> list[tuple[DeleteKey, str | None]]:
        """Return the relevant delete files of a manifest, and the data file that each vector references."""
        path = manifest["manifest_path"]
        if path not in self._read:
            entries = self._written_entries.get(path)
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
    """Return the data files that deletion vectors reference."""
    return set(_vectors(deletes))


def _vectors(deletes: Iterable[pa.Table]) -> Iterator[str]:
    """Yield the data file that each deletion vector references."""
    for entries in deletes:
        vectors = entries.filter(pc.equal(entries["file_format"], PUFFIN))
        yield from vectors["referenced_data_file"].drop_null().to_pylist()


def _check_targets(added: Sequence[pa.Table]) -> None:
    """Refuse two new vectors for one data file: rows of it were found by each of its entries."""
    if twice := [path for path, count in Counter(_vectors(added)).items() if count > 1]:
        raise RefusedError(
            f"the table lists the data file {min(twice)} several times, and can have one deletion vector for it only",
            hint=f"{Option.REPAIR} duplicate-files removes the other entries; {Option.REWRITE_ALL} keeps their rows, "
            "in files of their own",
        )


def _check_version(version: int, added: Sequence[pa.Table]) -> None:
    if version == 1 and any(entries.num_rows for entries in added):
        raise RefusedError(
            "a table of format version 1 does not support row-level deletes",
            hint="upgrade the table to format version 2, or rewrite whole files",
        )
    # Format version 3 replaced position delete files by deletion vectors.
    takes_vectors = version >= DELETION_VECTORS_SINCE
    refused = "position delete files" if takes_vectors else "deletion vectors"
    for entries in added:
        formats = entries["file_format"].filter(pc.equal(entries["content"], POSITION_DELETES))
        if pc.any(pc.not_equal(pc.equal(formats, PUFFIN), takes_vectors), min_count=0).as_py():
            raise RefusedError(
                f"a table of format version {version} does not support new {refused}"
            )
