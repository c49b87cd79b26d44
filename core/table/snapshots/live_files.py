"""The live files of a snapshot as columns, the input of plans."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lake.core.table.manifests.api import live_manifests, read_manifests
from lake.core.table.manifests.data_files import DATA, EQUALITY_DELETES, DeleteFile
from lake.core.table.manifests.schemas import MANIFEST_SCHEMA
from lake.core.table.snapshots.completeness import (
    count_list,
    missing_files_message,
    read_list,
    verify_manifest_list,
)
from lake.core.table.snapshots.delete_index import (
    DATA_BOUNDS,
    DATA_COLUMNS,
    DELETE_COLUMNS,
    DeleteIndex,
    DeletePairing,
)
from lake.core.table.snapshots.delete_scopes import all_schemas
from lake.core.table.snapshots.pruning import (
    FILTER_COLUMNS,
    FileChoice,
    prune_files,
    prune_manifests,
    strict_files,
)

if TYPE_CHECKING:
    from pyiceberg.expressions import BooleanExpression
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.table.snapshots import Snapshot

    from lake.core.table.catalogs.catalog import Table


@dataclass(frozen=True)
class LiveFiles:
    """Live data files of a snapshot, and the delete files that may apply to them.

    Delete files are read on first use. A data file's number is its position among all entries, in the order
    of specs.

    Args:
        table: the table.
        by_spec: spec id to entries (canonical columns), pruned by the filter if there was one.
        delete_manifests: rows of the manifest list for delete manifests with live entries.
        schema: the schema to which the filter was bound: the table's, or that of a past snapshot.
        manifests: the number of data manifests.
        skipped_manifests: the number of those that the filter excluded.
        skipped_files: the number of files that it excluded in the other manifests.
        doubts: reasons why some files may be missing.
    """

    table: Table
    by_spec: Mapping[int, pa.Table]
    delete_manifests: pa.Table
    schema: Schema
    manifests: int = 0
    skipped_manifests: int = 0
    skipped_files: int = 0
    doubts: tuple[str, ...] = ()

    @property
    def count(self) -> int:
        """The number of files."""
        return sum(entries.num_rows for entries in self.by_spec.values())

    @property
    def delete_count(self) -> int:
        """The number of live delete files of the snapshot, from its manifest list."""
        live = pc.add(
            pc.fill_null(self.delete_manifests["added_files_count"], 1),
            pc.fill_null(self.delete_manifests["existing_files_count"], 0),
        )
        return int(pc.sum(live).as_py() or 0)

    @cached_property
    def delete_index(self) -> DeleteIndex:
        """The live delete files.

        Raises:
            CorruptFileError: a manifest does not match its list, or a delete file's entry is not valid.
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
        """The data files with their deletes, by spec id; requires that the `DATA_COLUMNS` were read."""
        index = self.delete_index
        return {spec_id: index.pair(spec_id, entries) for spec_id, entries in self.by_spec.items()}

    def row_bounds(self, spec_id: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the least and the most rows that deletes leave in each data file of a spec.

        They are equal if no delete file but a deletion vector applies to the file: the records of other delete
        files may repeat one another, and those that delete by key do not name the rows.
        """
        records = self.by_spec[spec_id]["record_count"].to_numpy().astype(np.int64)
        if not self.delete_manifests.num_rows:
            return records, records
        least, most = self.pairs[spec_id].deleted_bounds(records)
        return records - most, records - least

    def deletes_of(self, numbers: npt.NDArray[np.int64]) -> tuple[DeleteFile, ...]:
        """Return the distinct delete files that may apply to some data files.

        Args:
            numbers: the numbers of the data files, ascending.
        """
        if not self.delete_manifests.num_rows:
            return ()
        ordinals, base = [np.zeros(0, np.int64)], 0
        for spec_id, entries in self.by_spec.items():
            end = base + entries.num_rows
            own = numbers[np.searchsorted(numbers, base) : np.searchsorted(numbers, end)]
            ordinals.append(self.pairs[spec_id].ordinals(own - base))
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
        """The total size of the data files."""
        sizes = [pc.sum(entries["file_size_in_bytes"]) for entries in self.by_spec.values()]
        return sum(int(size.as_py() or 0) for size in sizes)

    def split(self, condition: BooleanExpression | None) -> tuple[LiveFiles, LiveFiles]:
        """Return the files all of whose rows match, and the files of which only some rows may."""
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


def no_files(table: Table, schema: Schema | None = None) -> LiveFiles:
    """Return no files of a table; see `LiveFiles` for the schema."""
    return LiveFiles(table, {}, MANIFEST_SCHEMA.empty_table(), schema or table.schema)


class FileSelection:
    """Chooses files while manifests are decoded, so that statistics are in memory for a short time only.

    Args:
        specs: the partition specs by id.
        schema: the schema to which the filter is bound.
        columns: the entry columns of the result; None for all.
        condition: a filter.
        keys: chooses the files that may contain rows with some keys.
        own: which entries are files at all, as a function; None for all.
    """

    def __init__(
        self,
        specs: Mapping[int, PartitionSpec],
        schema: Schema,
        columns: Collection[str] | None,
        condition: BooleanExpression | None,
        keys: FileChoice | None,
        own: Callable[[pa.Table], pa.BooleanArray] | None = None,
    ) -> None:
        self._specs = specs
        self._schema = schema
        self._condition = condition
        self._keys = keys
        self._own = own
        self._dropped: list[str] = []
        self.columns_read = columns
        if columns is not None and (condition is not None or keys is not None):
            self.columns_read = {*columns, *FILTER_COLUMNS}
            self._dropped = [column for column in FILTER_COLUMNS if column not in columns]
        self.skipped = 0

    def kept(self, spec_id: int, entries: pa.Table) -> pa.Table:
        """Return the entries of files that are not excluded, with the columns of the result."""
        files = entries if self._own is None else entries.filter(self._own(entries))
        found = files
        if self._condition is not None:
            mask = prune_files(files, self._specs[spec_id], self._schema, self._condition)
            # A filter copies all columns.
            found = files if pc.all(mask).as_py() else files.filter(mask)
        if self._keys is not None:
            found = self._keys.prune_files(found, self._specs[spec_id])
        self.skipped += files.num_rows - found.num_rows
        return found.drop_columns(self._dropped)


def live_files(  # noqa: PLR0913 - each option is used alone
    table: Table,
    snapshot: Snapshot,
    condition: BooleanExpression | None = None,
    *,
    columns: Collection[str] | None = None,
    schema: Schema | None = None,
    with_deletes: bool = True,
    strict: bool = True,
    keys: FileChoice | None = None,
    fields: Collection[int] | None = None,
) -> LiveFiles:
    """Read a snapshot's live data files, without those that a bound filter excludes.

    Args:
        table: the table.
        snapshot: the snapshot.
        condition: a filter.
        columns: the entry columns of the result; None for all. Those that choose files are read, too.
        schema: the schema to which the filter is bound; by default the table's.
        with_deletes: also read the columns that pair the files with delete files, if there are any.
        keys: chooses the files that may contain rows with some keys.
        fields: the ids of the columns whose metrics are wanted; None for all. If there are delete files to pair with,
            all are read.
        strict: fail, instead of recording a doubt, if the manifest list may be incomplete.

    Raises:
        CorruptFileError: a manifest does not match its list.
    """
    metadata, schema = table.metadata, schema or table.schema
    manifests = read_list(table.storage, metadata, snapshot)
    if strict:
        verify_manifest_list(table.storage, metadata, snapshot, manifests)
    doubt = None if strict else missing_files_message(metadata, snapshot, count_list(manifests))
    is_data = pc.equal(manifests["content"], DATA)
    data, deletes = manifests.filter(is_data), manifests.filter(pc.invert(is_data))
    chosen = (
        data if condition is None else prune_manifests(data, metadata, condition, schema=schema)
    )
    if keys is not None:
        chosen = keys.prune_manifests(chosen, metadata)
    deletes = live_manifests(deletes)
    if with_deletes and columns is not None and deletes.num_rows:
        columns, fields = {*columns, *DATA_COLUMNS, *DATA_BOUNDS}, None
    selection = FileSelection(metadata.specs(), schema, columns, condition, keys)
    by_spec = read_manifests(
        table.storage,
        chosen,
        metadata,
        columns=selection.columns_read,
        live_only=True,
        fields=fields,
        choose=selection.kept,
    )
    return LiveFiles(
        table=table,
        by_spec=by_spec,
        delete_manifests=deletes,
        schema=schema,
        manifests=data.num_rows,
        skipped_manifests=data.num_rows - chosen.num_rows,
        skipped_files=selection.skipped,
        doubts=() if doubt is None else (doubt,),
    )
