"""The live files of a snapshot, as columns: what plans choose from."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lake.core.manifests.api import live_manifests, read_manifests
from lake.core.manifests.data_files import DATA, EQUALITY_DELETES, DeleteFile
from lake.core.snapshots.completeness import (
    count_list,
    missing_files_message,
    read_list,
    verify_manifest_list,
)
from lake.core.snapshots.delete_index import (
    DATA_BOUNDS,
    DATA_COLUMNS,
    DELETE_COLUMNS,
    DeleteIndex,
    DeletePairing,
)
from lake.core.snapshots.delete_scopes import all_schemas
from lake.core.snapshots.pruning import prune_files, prune_manifests, strict_files

if TYPE_CHECKING:
    from pyiceberg.expressions import BooleanExpression
    from pyiceberg.schema import Schema
    from pyiceberg.table.snapshots import Snapshot

    from lake.core.catalogs.catalog import Table


@dataclass(frozen=True)
class LiveFiles:
    """Live data files of a snapshot, and the delete files that may apply to them.

    Delete files are read when first asked for. A data file's number is its place among all entries, spec
    after spec.

    Args:
        table: whose they are.
        by_spec: spec id to entries (canonical columns), pruned by the filter if there was one.
        delete_manifests: rows of the manifest list that hold delete files with live entries.
        schema: what the filter was bound to: the table's, or a past snapshot's own.
        skipped_manifests: data manifests that the filter excluded.
        skipped_files: files that it excluded in the others.
        doubts: why some files may be missing.
    """

    table: Table
    by_spec: Mapping[int, pa.Table]
    delete_manifests: pa.Table
    schema: Schema
    skipped_manifests: int = 0
    skipped_files: int = 0
    doubts: tuple[str, ...] = ()

    @property
    def count(self) -> int:
        """How many files there are."""
        return sum(entries.num_rows for entries in self.by_spec.values())

    @property
    def delete_count(self) -> int:
        """How many live delete files the snapshot has, by its manifest list."""
        live = pc.add(
            pc.fill_null(self.delete_manifests["added_files_count"], 1),
            pc.fill_null(self.delete_manifests["existing_files_count"], 0),
        )
        return int(pc.sum(live).as_py() or 0)

    @cached_property
    def delete_index(self) -> DeleteIndex:
        """The live delete files.

        Raises:
            CorruptFileError: a manifest is not what its list says, or a delete file's entry not what it must be.
        """
        metadata = self.table.metadata
        found = read_manifests(
            self.table.storage,
            self.delete_manifests,
            metadata,
            columns=DELETE_COLUMNS,
            live_only=True,
        )
        return DeleteIndex(found, metadata.specs(), all_schemas(metadata), self.schema)

    @cached_property
    def pairs(self) -> Mapping[int, DeletePairing]:
        """The data files with their deletes, by spec id; files' `DATA_COLUMNS` must have been read."""
        index = self.delete_index
        return {spec_id: index.pair(spec_id, entries) for spec_id, entries in self.by_spec.items()}

    def deletes_of(self, numbers: npt.NDArray[np.int64]) -> tuple[DeleteFile, ...]:
        """Return the delete files that may apply to some data files, each once.

        Args:
            numbers: of the data files, ascending.
        """
        if not self.delete_manifests.num_rows:
            return ()
        ordinals, base = [np.zeros(0, np.int64)], 0
        for spec_id, entries in self.by_spec.items():
            end = base + entries.num_rows
            mine = numbers[np.searchsorted(numbers, base) : np.searchsorted(numbers, end)]
            ordinals.append(self.pairs[spec_id].ordinals(mine - base))
            base = end
        chosen = np.unique(np.concatenate(ordinals))
        return tuple(self.delete_index.describe(chosen))

    def equality_deletes(self) -> tuple[DeleteFile, ...]:
        """Return all live equality delete files."""
        if not self.delete_manifests.num_rows:
            return ()
        index = self.delete_index
        chosen = np.flatnonzero(index.content == EQUALITY_DELETES)
        return tuple(index.describe(chosen))

    @property
    def paths(self) -> list[str]:
        """The data files' paths, in the order of their numbers."""
        return [
            path for entries in self.by_spec.values() for path in entries["file_path"].to_pylist()
        ]

    @property
    def bytes(self) -> int:
        """The data files' sizes together."""
        sizes = [pc.sum(entries["file_size_in_bytes"]) for entries in self.by_spec.values()]
        return sum(int(size.as_py() or 0) for size in sizes)

    def split(self, condition: BooleanExpression | None) -> tuple[LiveFiles, LiveFiles]:
        """Return the files all of whose rows match, and those of which only some may."""
        specs = self.table.metadata.specs()
        whole: dict[int, pa.Table] = {}
        partly: dict[int, pa.Table] = {}
        for spec_id, entries in self.by_spec.items():
            every = (
                pa.array([True] * entries.num_rows, pa.bool_())
                if condition is None
                else strict_files(entries, specs[spec_id], self.schema, condition)
            )
            whole[spec_id] = entries.filter(every)
            partly[spec_id] = entries.filter(pc.invert(every))
        return replace(self, by_spec=whole), replace(self, by_spec=partly)


def live_files(
    table: Table,
    snapshot: Snapshot,
    condition: BooleanExpression | None = None,
    *,
    columns: Collection[str] | None = None,
    schema: Schema | None = None,
    paired: bool = True,
    whole: bool = True,
) -> LiveFiles:
    """Read a snapshot's live data files, leaving out what a bound filter excludes.

    Args:
        table: whose they are.
        snapshot: the snapshot.
        condition: a filter.
        columns: of their entries; None for all.
        schema: what the filter is bound to; the table's by default.
        paired: read also what pairs them with delete files, if there are any; else they cannot be paired.
        whole: fail, not only doubt, where the manifest list may not name all files.

    Raises:
        CorruptFileError: a manifest is not what its list says.
    """
    metadata, schema = table.metadata, schema or table.schema
    manifests = read_list(table.storage, metadata, snapshot)
    if whole:
        verify_manifest_list(table.storage, metadata, snapshot, manifests)
    doubt = None if whole else missing_files_message(metadata, snapshot, count_list(manifests))
    is_data = pc.equal(manifests["content"], DATA)
    data, deletes = manifests.filter(is_data), manifests.filter(pc.invert(is_data))
    chosen = (
        data if condition is None else prune_manifests(data, metadata, condition, schema=schema)
    )
    deletes = live_manifests(deletes)
    if paired and columns is not None and deletes.num_rows:
        columns = {*columns, *DATA_COLUMNS, *DATA_BOUNDS}
    found = read_manifests(table.storage, chosen, metadata, columns=columns, live_only=True)
    skipped = 0
    by_spec = {}
    for spec_id, entries in found.items():
        kept = entries
        if condition is not None:
            mask = prune_files(entries, metadata.specs()[spec_id], schema, condition)
            kept = entries.filter(mask)
            skipped += entries.num_rows - kept.num_rows
        by_spec[spec_id] = kept
    return LiveFiles(
        table=table,
        by_spec=by_spec,
        delete_manifests=deletes,
        schema=schema,
        skipped_manifests=data.num_rows - chosen.num_rows,
        skipped_files=skipped,
        doubts=() if doubt is None else (doubt,),
    )
