"""The live files of a snapshot as columns, the input of plans."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lake.core.base.arrow import Int64s, one_array
from lake.core.base.errors import CorruptFileError
from lake.core.base.plain import PlainData
from lake.core.engine.tasks import TaskContext
from lake.core.spec.expressions.filters import PlainFilter, bind_filter, filter_columns
from lake.core.spec.types.arrow_schema import PlainSchema, top_columns
from lake.core.table.manifests.api import joined_entries, live_manifests, read_manifests
from lake.core.table.manifests.batches import (
    EngineOf,
    PackedTable,
    bytes_of,
    in_tasks,
    in_this_process,
    metadata_of,
)
from lake.core.table.manifests.data_files import DATA, EQUALITY_DELETES, DeleteFile
from lake.core.table.manifests.schemas import ADDED, MANIFEST_SCHEMA
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
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot

    from lake.core.io.storage.storage import Storage
    from lake.core.table.catalogs.catalog import Table

_NAMES = ["manifest_path", "file_path"]


@dataclass(frozen=True)
class LiveFiles:
    """Live data files of a snapshot, and the delete files that may apply to them.

    Delete files are read on first use, unless `index` has them. A data file's number is its position among all
    entries, in the order of specs.

    Args:
        table: the table.
        by_spec: spec id to entries (canonical columns), pruned by the filter if there was one.
        delete_manifests: rows of the manifest list for delete manifests with live entries.
        schema: the schema to which the filter was bound: the table's, or that of a past snapshot.
        data_manifests: rows of the manifest list for the manifests that contain the data files.
        manifests: the number of data manifests.
        skipped_manifests: the number of those that the filter excluded.
        skipped_files: the number of files that it excluded in the other manifests.
        doubts: reasons why some files may be missing.
        engine_of: returns the engine that reads delete manifests of some bytes; None for this process.
        index: the live delete files, if they were read already.
    """

    table: Table
    by_spec: Mapping[int, pa.Table]
    delete_manifests: pa.Table
    schema: Schema
    data_manifests: pa.Table = field(default_factory=MANIFEST_SCHEMA.empty_table)
    manifests: int = 0
    skipped_manifests: int = 0
    skipped_files: int = 0
    doubts: tuple[str, ...] = ()
    engine_of: EngineOf = in_this_process
    index: DeleteIndex | None = None

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
        if self.index is not None:
            return self.index
        return _delete_index(self.table, self.delete_manifests, self.schema, self.engine_of)

    @cached_property
    def pairs(self) -> Mapping[int, DeletePairing]:
        """The data files with their deletes, by spec id; requires that the `DATA_COLUMNS` were read."""
        index = self.delete_index
        return {spec_id: index.pair(spec_id, entries) for spec_id, entries in self.by_spec.items()}

    def row_bounds(self, spec_id: int) -> tuple[Int64s, Int64s]:
        """Return the least and the most rows that deletes leave in each data file of a spec.

        They are equal if no delete file but a deletion vector applies to the file: the records of other delete
        files may repeat one another, and those that delete by key do not name the rows.
        """
        records = self.by_spec[spec_id]["record_count"].to_numpy().astype(np.int64)
        if not self.delete_manifests.num_rows:
            return records, records
        least, most = self.pairs[spec_id].deleted_bounds(records)
        return records - most, records - least

    def places(self, numbers: Int64s) -> Iterator[tuple[int, Int64s, Int64s]]:
        """Yield the files of each spec among some files.

        Args:
            numbers: the numbers of the files, in any order.

        Yields:
            the id of the spec, the indices of its files in `numbers`, and their rows in its entries.
        """
        base = 0
        for spec_id, entries in self.by_spec.items():
            end = base + entries.num_rows
            own = np.flatnonzero((numbers >= base) & (numbers < end))
            if len(own):
                yield spec_id, own, numbers[own] - base
            base = end

    def take(self, numbers: Int64s, columns: Sequence[str]) -> pa.Table:
        """Return some columns, of one type in all specs, of some files, in the order of the given numbers."""
        parts, at, base = [], np.zeros(len(numbers), np.int64), 0
        for spec_id, own, rows in self.places(numbers):
            parts.append(self.by_spec[spec_id].select(columns).take(pa.array(rows)))
            at[own] = np.arange(base, base + len(own))
            base += len(own)
        return pa.concat_tables(parts).take(pa.array(at))

    def deletes_of(self, numbers: Int64s) -> tuple[DeleteFile, ...]:
        """Return the distinct delete files that may apply to some data files, given by their numbers."""
        if not self.delete_manifests.num_rows:
            return ()
        ordinals = [np.zeros(0, np.int64)]
        for spec_id, _, rows in self.places(numbers):
            ordinals.append(self.pairs[spec_id].ordinals(np.sort(rows)))
        chosen = np.unique(np.concatenate(ordinals))
        return tuple(self.delete_index.describe(chosen))

    def equality_deletes(self) -> tuple[DeleteFile, ...]:
        """Return all live equality delete files."""
        if not self.delete_manifests.num_rows:
            return ()
        index = self.delete_index
        chosen = np.flatnonzero(index.content == EQUALITY_DELETES)
        return tuple(index.describe(chosen))

    def statistics(self, numbers: Int64s) -> pa.Table:
        """Return the `FILTER_COLUMNS` of some data files, which are most of the bytes of manifests.

        Raises:
            CorruptFileError: a manifest cannot be read any more, or has other files than before.
        """
        names = {
            spec_id: (own, self.by_spec[spec_id].select(_NAMES).take(pa.array(rows)))
            for spec_id, own, rows in self.places(numbers)
        }
        wanted, listed = joined_entries([own for _, own in names.values()]), self.data_manifests
        paths = pc.unique(wanted["manifest_path"].cast(pa.string()))
        selection = FileSelection(
            schema=self.schema, columns=("file_path", *FILTER_COLUMNS), named=wanted
        )
        found = select_files(
            self.engine_of,
            self.table.storage,
            listed.filter(pc.is_in(listed["manifest_path"], value_set=paths)),
            self.table.metadata,
            selection,
        ).by_spec
        at, base = np.zeros(len(numbers), np.int64), 0
        for spec_id, (own, named) in names.items():
            read = one_array(found[spec_id]["file_path"])
            indices = pc.index_in(one_array(named["file_path"]), value_set=read)
            if indices.null_count:
                raise CorruptFileError("a manifest has other files than before")
            at[own] = base + indices.to_numpy()
            base += len(read)
        parts = [found[spec_id].select(FILTER_COLUMNS) for spec_id in names]
        return pa.concat_tables(parts).take(pa.array(at))

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


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectedFiles(PlainData):
    """Entries of files by spec id, and how many files were excluded."""

    by_spec: Mapping[int, PackedTable]
    skipped: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSelection(PlainData):
    """Which files are chosen while manifests are decoded, so that statistics are in memory for a short time only.

    Args:
        schema: the schema to which the filter is bound.
        columns: the entry columns of the result; None for all.
        condition: a filter.
        added_by: only files that one of these snapshots added; None for all live files.
        named: only these files (``manifest_path``, ``file_path``); None for all.
        fields: the ids of the columns whose metrics are read; None for all.
    """

    schema: PlainSchema
    columns: tuple[str, ...] | None = None
    condition: PlainFilter | None = None
    added_by: tuple[int, ...] | None = None
    named: PackedTable | None = None
    fields: tuple[int, ...] | None = None

    def read(
        self,
        storage: Storage,
        manifests: pa.Table,
        metadata: TableMetadata,
        *,
        choose: Callable[[int, pa.Table], pa.Table] = lambda _, entries: entries,
        threads: int | None = None,
    ) -> SelectedFiles:
        """Return the chosen files of manifests; see `read_manifests` for the other arguments and the errors."""
        skipped, names = 0, None if self.named is None else _Names(self.named)

        def kept(spec_id: int, entries: pa.Table) -> pa.Table:
            nonlocal skipped
            files = self._added(entries if names is None else names.entries(entries))
            found = self._matching(files, metadata.specs()[spec_id])
            skipped += files.num_rows - found.num_rows
            return choose(spec_id, found)

        columns, used = self.columns, () if self.condition is None else FILTER_COLUMNS
        by_spec = read_manifests(
            storage,
            manifests,
            metadata,
            columns=None if columns is None else {*columns, *used},
            live_only=self.added_by is None,
            fields=self.fields,
            threads=threads,
            choose=kept,
        )
        return SelectedFiles(by_spec=by_spec, skipped=skipped)

    def with_statistics(self) -> FileSelection:
        """Return the selection with the columns that choose files in the result."""
        columns = self.columns
        return replace(self, columns=None if columns is None else (*columns, *FILTER_COLUMNS))

    def without_others(self, entries: pa.Table) -> pa.Table:
        """Return entries without statistics that are not wanted."""
        wanted = FILTER_COLUMNS if self.columns is None else self.columns
        have = entries.column_names
        return entries.drop_columns(
            [name for name in FILTER_COLUMNS if name in have and name not in wanted]
        )

    def sent(self) -> FileSelection:
        """Return the selection with as much of the schema as the filter needs, for tasks."""
        ids = () if self.condition is None else sorted(filter_columns(self.condition))
        return replace(self, schema=top_columns(self.schema, ids))

    def received(self) -> FileSelection:
        """Return the selection with its filter bound again, in a task."""
        if self.condition is None:
            return self
        return replace(self, condition=bind_filter(self.condition, self.schema))

    def _added(self, entries: pa.Table) -> pa.Table:
        if self.added_by is None:
            return entries
        chosen = pa.array(self.added_by, pa.int64())
        is_chosen = pc.is_in(entries["snapshot_id"], value_set=chosen)
        return entries.filter(pc.and_(pc.equal(entries["status"], ADDED), is_chosen))

    def _matching(self, files: pa.Table, spec: PartitionSpec) -> pa.Table:
        if self.condition is None:
            return files
        mask = prune_files(files, spec, self.schema, self.condition)
        # A filter copies all columns.
        return self.without_others(files if pc.all(mask).as_py() else files.filter(mask))


@dataclass(frozen=True, slots=True)
class SelectedManifests(PlainData):
    """The payload of a task: manifests (`MANIFEST_COLUMNS`), and which of their files are chosen."""

    manifests: PackedTable
    selection: FileSelection


def select_files(
    engine_of: EngineOf,
    storage: Storage,
    manifests: pa.Table,
    metadata: TableMetadata,
    selection: FileSelection,
    keys: FileChoice | None = None,
) -> SelectedFiles:
    """Return the chosen files of manifests, read by this process or by the tasks of an engine.

    Args:
        engine_of: returns the engine for manifests of some bytes; None for this process.
        storage: the storage that contains the manifests.
        manifests: their rows in the manifest list (`MANIFEST_COLUMNS`).
        metadata: the table's metadata, for specs and schemas.
        selection: which files.
        keys: chooses among them those that may contain rows with some keys, always in this process.

    Raises:
        CorruptFileError: a manifest does not match its list.
        NotFoundError: a manifest or a partition spec is missing.
    """
    # Keys may be many, and are not sent.
    asked = selection if keys is None else selection.with_statistics()
    specs, skipped = metadata.specs(), 0

    def with_keys(spec_id: int, entries: pa.Table) -> pa.Table:
        nonlocal skipped
        if keys is None:
            return entries
        kept = keys.prune_files(entries, specs[spec_id])
        skipped += entries.num_rows - kept.num_rows
        return selection.without_others(kept)

    engine = engine_of(bytes_of(manifests))
    if engine is None:
        found = asked.read(storage, manifests, metadata, choose=with_keys)
        return replace(found, skipped=found.skipped + skipped)
    sent, names = asked.sent(), None if asked.named is None else _Names(asked.named)

    def payload(batch: pa.Table) -> SelectedManifests:
        if names is None:
            return SelectedManifests(batch, sent)
        named = names.of(batch["manifest_path"].to_pylist())
        return SelectedManifests(batch, replace(sent, named=named))

    parts: dict[int, list[pa.Table]] = {}
    for part in in_tasks(engine, storage, manifests, metadata, read_selected, payload):
        skipped += part.skipped
        for spec_id, entries in part.by_spec.items():
            parts.setdefault(spec_id, []).append(with_keys(spec_id, entries))
    by_spec = {spec_id: joined_entries(tables) for spec_id, tables in parts.items()}
    return SelectedFiles(by_spec=by_spec, skipped=skipped)


class _Names:
    """Names of files by their manifests.

    Args:
        files: the names (``manifest_path``, ``file_path``).
    """

    def __init__(self, files: pa.Table) -> None:
        named = one_array(files["manifest_path"]).cast(pa.string()).dictionary_encode()
        codes = named.indices.to_numpy()
        order = np.argsort(codes, kind="stable")
        ends = np.searchsorted(codes[order], np.arange(len(named.dictionary)), side="right")
        self._files = files.select(["file_path"]).take(pa.array(order)).combine_chunks()
        self._places = dict(
            zip(named.dictionary.to_pylist(), itertools.pairwise([0, *ends.tolist()]), strict=True)
        )

    def entries(self, entries: pa.Table) -> pa.Table:
        """Return those of some entries that are named."""
        own = self.of(pc.unique(entries["manifest_path"].cast(pa.string())).to_pylist())
        return entries.filter(pc.is_in(entries["file_path"], value_set=one_array(own["file_path"])))

    def of(self, manifests: Iterable[str]) -> pa.Table:
        """Return the names of the files of some manifests."""
        parts = [self._files.slice(0, 0).append_column("manifest_path", pa.array([], pa.string()))]
        for name in manifests:
            start, end = self._places.get(name, (0, 0))
            files = self._files.slice(start, end - start)
            parts.append(files.append_column("manifest_path", pa.repeat(name, end - start)))
        return pa.concat_tables(parts)


def read_selected(batch: SelectedManifests, context: TaskContext) -> Iterator[SelectedFiles]:
    """Yield the chosen files of manifests, in a task."""
    metadata, selection = metadata_of(context), batch.selection.received()
    yield selection.read(context.storage, batch.manifests, metadata, threads=1)


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
    engine_of: EngineOf = in_this_process,
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
        fields: the ids of the columns whose metrics are wanted; None for all. Those of the columns that equality
            deletes compare are read, too.
        strict: fail, instead of recording a doubt, if the manifest list may be incomplete.
        engine_of: returns the engine that reads manifests of some bytes; None for this process.

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
    index = None
    if with_deletes and columns is not None and deletes.num_rows:
        # Only with the columns that equality deletes compare are files compared with them.
        index = _delete_index(table, deletes, schema, engine_of)
        keys_compared = index.equality_ids
        columns = {*columns, *DATA_COLUMNS, *(DATA_BOUNDS if keys_compared else ())}
        fields = None if fields is None else {*fields, *keys_compared}
    selection = FileSelection(
        schema=schema,
        columns=None if columns is None else tuple(columns),
        condition=condition,
        fields=None if fields is None else tuple(fields),
    )
    found = select_files(engine_of, table.storage, chosen, metadata, selection, keys)
    return LiveFiles(
        table=table,
        by_spec=found.by_spec,
        delete_manifests=deletes,
        schema=schema,
        data_manifests=chosen,
        manifests=data.num_rows,
        skipped_manifests=data.num_rows - chosen.num_rows,
        skipped_files=found.skipped,
        doubts=() if doubt is None else (doubt,),
        engine_of=engine_of,
        index=index,
    )


def _delete_index(
    table: Table, manifests: pa.Table, schema: Schema, engine_of: EngineOf
) -> DeleteIndex:
    every, metadata = FileSelection(schema=schema, columns=DELETE_COLUMNS), table.metadata
    found = select_files(engine_of, table.storage, manifests, metadata, every)
    return DeleteIndex(found.by_spec, metadata.specs(), all_schemas(metadata), schema)
