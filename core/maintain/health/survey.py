"""Read what the main branch of a table contains: one manifest list, and each manifest with live files once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lake.core.base.arrow import Int64s
from lake.core.maintain.compaction.concurrency.busy_partitions import (
    BusyPartitions,
    busy_partitions,
    rhythm_of,
)
from lake.core.maintain.compaction.grouping import Grouping
from lake.core.maintain.compaction.options import CompactionOptions, compaction_options
from lake.core.maintain.compaction.plan import choose_files
from lake.core.maintain.health.facts import ReadingFacts
from lake.core.maintain.manifest_rewrite.plan import ManifestGroup, group_of
from lake.core.spec.properties.table_properties import MANIFEST_BYTES
from lake.core.spec.types.partition_codes import partition_codes
from lake.core.table.manifests.api import live_manifests, read_manifests
from lake.core.table.manifests.data_files import DATA, EQUALITY_DELETES
from lake.core.table.snapshots import ancestry
from lake.core.table.snapshots.completeness import count_list, read_list, verify_manifest_list
from lake.core.table.snapshots.delete_index import DATA_COLUMNS
from lake.core.table.snapshots.live_files import LiveFiles, no_files
from lake.core.table.snapshots.pruning import FILTER_COLUMNS

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

    from lake.core.table.catalogs.catalog import Table

_COLUMNS = (
    *("status", "snapshot_id", "file_sequence_number"),
    *("content", "record_count", "file_size_in_bytes", "sort_order_id"),
    *DATA_COLUMNS,
)
# The parts of metadata that decide how files are read and judged.
_BASIS = (
    *("format_version", "location", "properties", "schemas", "current_schema_id"),
    *("partition_specs", "default_spec_id", "sort_orders", "default_sort_order_id"),
)
# Of a table with more entries, one of many, the manifests are not read: their entries would be in memory at once.
MOST_ENTRIES = 1_000_000


@dataclass(frozen=True, kw_only=True)
class Deletes:
    """The live delete files of a branch.

    Args:
        position: the number of position delete files, without deletion vectors.
        equality: the number of equality delete files.
        vectors: the number of deletion vectors.
        bytes: the bytes of all.
        position_rows: the positions in position delete files and deletion vectors.
        equality_rows: the rows of equality delete files.
        partitions: the number of partitions that contain delete files.
        least: the rows of the branch that are certainly deleted.
        most: the rows that may be.
        pairs: the number of pairs of a data file and a delete file that may apply to it.
    """

    position: int = 0
    equality: int = 0
    vectors: int = 0
    bytes: int = 0
    position_rows: int = 0
    equality_rows: int = 0
    partitions: int = 0
    least: int = 0
    most: int = 0
    pairs: int = 0

    @property
    def files(self) -> int:
        """The number of all kinds."""
        return self.position + self.equality + self.vectors


@dataclass(frozen=True, kw_only=True)
class Survey:
    """What the main branch contains.

    Args:
        table: the table.
        found: its live files.
        sizes: the sizes of all data files.
        partitions: a number for the partition of each of them, from 0 on.
        options: what a compaction would use.
        grouping: what it would rewrite.
        busy: the partitions that it would leave alone; None if that is not a condition.
        manifests: the number of all manifests.
        groups: the manifests with live files, by spec and content.
        deletes: the live delete files.
        has_bounds: whether the entries have the bounds of the sort columns.
    """

    table: Table
    found: LiveFiles
    sizes: Int64s
    partitions: Int64s
    options: CompactionOptions
    grouping: Grouping
    manifests: int
    groups: Sequence[ManifestGroup]
    deletes: Deletes
    has_bounds: bool = False
    busy: BusyPartitions | None = None

    @property
    def partition_count(self) -> int:
        """The number of partitions with data files."""
        return int(self.partitions.max()) + 1 if len(self.partitions) else 0

    @property
    def partition_bytes(self) -> Int64s:
        """The bytes of the data files of each partition."""
        totals = np.zeros(self.partition_count, np.int64)
        np.add.at(totals, self.partitions, self.sizes)
        return totals

    @property
    def ideal_files(self) -> Int64s:
        """The fewest files of the target size that could contain the bytes of each partition."""
        return np.maximum(-(-self.partition_bytes // self.options.target_size), 1)

    @property
    def live_manifests(self) -> int:
        """The number of manifests with live files."""
        return sum(len(group.paths) for group in self.groups)

    @property
    def manifest_bytes(self) -> int:
        """The bytes of the manifests with live files."""
        return sum(group.size for group in self.groups)

    @property
    def rows(self) -> int:
        """The rows of the data files, deleted or not."""
        return sum(int(pc.sum(x["record_count"]).as_py() or 0) for x in self.found.by_spec.values())

    @property
    def small(self) -> npt.NDArray[np.bool_]:
        """Which data files are smaller than what a compaction leaves alone."""
        return np.asarray(self.sizes < self.options.min_size, np.bool_)

    def facts(self) -> ReadingFacts:
        """Return the counts for the outcome."""
        deletes = self.deletes
        return ReadingFacts(
            rows=self.rows,
            files=len(self.sizes),
            bytes=int(self.sizes.sum()),
            small_files=int(self.small.sum()),
            partitions=self.partition_count,
            deleted_rows=deletes.least if deletes.least == deletes.most else None,
            deleted_rows_at_most=deletes.most,
            delete_files=deletes.files,
            position_delete_files=deletes.position,
            equality_delete_files=deletes.equality,
            deletion_vectors=deletes.vectors,
            manifests=self.manifests,
        )


def survey(
    table: Table,
    *,
    most_entries: int | None = MOST_ENTRIES,
    with_bounds: bool = False,
    compaction: Mapping[str, object] | None = None,
    earlier: Survey | None = None,
) -> Survey | ReadingFacts:
    """Read the files of a table's main branch; only counts of the manifest list if there are too many.

    Args:
        table: the table.
        most_entries: the most entries that are read; None for all.
        with_bounds: also read the bounds of the sort columns.
        compaction: the options of the compaction that is planned, see `compaction_options`; None for its defaults.
        earlier: an earlier survey of the table, which is returned if all that it depends on is the same.

    Raises:
        CorruptFileError: the manifest list is incomplete, or a manifest cannot be read.
        NotFoundError: one is missing.
        LakeError: a property of the table has a value that is not allowed.
    """
    metadata, storage = table.metadata, table.storage
    options = compaction_options(compaction or {}, {}, table.properties)
    if (
        earlier is not None
        and (earlier.options, earlier.has_bounds) == (options, with_bounds)
        and _basis(earlier.table.metadata) == _basis(metadata)
    ):
        return replace(earlier, table=table)
    head = ancestry.branch_head(metadata, ancestry.MAIN)
    if head is None:
        none = np.zeros(0, np.int64)
        return Survey(
            table=table,
            found=no_files(table),
            sizes=none,
            partitions=none,
            options=options,
            grouping=Grouping([], 0, {}),
            manifests=0,
            groups=(),
            deletes=Deletes(),
        )
    listed = read_list(storage, metadata, head)
    verify_manifest_list(storage, metadata, head, listed)
    counts = count_list(listed)
    if most_entries is not None and (counts.data or 0) + (counts.deletes or 0) > most_entries:
        return ReadingFacts(
            files=counts.data, delete_files=counts.deletes, manifests=counts.manifests
        )
    live = live_manifests(listed)
    is_data = pc.equal(live["content"], DATA)
    deletes = live.filter(pc.invert(is_data))
    # Bounds show to how many partitions of the present spec the files of older ones would move.
    sources = {item.source_id for item in table.spec.fields} if len(metadata.specs()) > 1 else set()
    if with_bounds:
        sources |= {item.source_id for item in metadata.sort_order().fields}
    by_spec = read_manifests(
        storage,
        live.filter(is_data),
        metadata,
        columns=(*_COLUMNS, *(FILTER_COLUMNS if sources else ())),
        live_only=True,
        fields=sources,
        threads=1,
    )
    by_spec = {spec_id: entries for spec_id, entries in by_spec.items() if entries.num_rows}
    found = LiveFiles(table, by_spec, deletes, table.schema)
    busy = busy_partitions(found, options, rhythm_of(metadata, options, ancestry.MAIN))
    return Survey(
        table=table,
        found=found,
        sizes=_joined([x["file_size_in_bytes"].to_numpy() for x in by_spec.values()]),
        partitions=_partitions(by_spec),
        options=options,
        grouping=choose_files(table, found, options, table.spec, busy=busy),
        manifests=listed.num_rows,
        groups=_groups(found, live),
        deletes=_deletes(found),
        has_bounds=with_bounds,
        busy=busy,
    )


def _basis(metadata: TableMetadata) -> tuple[object, ...]:
    """Return what a survey depends on: the files of a snapshot do not change."""
    head = ancestry.branch_head(metadata, ancestry.MAIN)
    return (metadata.table_uuid, head, *(getattr(metadata, name) for name in _BASIS))


def _joined(arrays: Sequence[npt.NDArray[np.int64]]) -> Int64s:
    return np.concatenate([np.zeros(0, np.int64), *arrays]).astype(np.int64)


def _partitions(by_spec: Mapping[int, pa.Table]) -> Int64s:
    """Return a number for the partition of each file; those of different specs differ."""
    numbers, base = [], 0
    for entries in by_spec.values():
        codes = np.unique(partition_codes([entries["partition"]])[0], return_inverse=True)[1]
        numbers.append(codes + base)
        base += int(codes.max()) + 1
    return _joined(numbers)


def _groups(found: LiveFiles, live: pa.Table) -> list[ManifestGroup]:
    target = MANIFEST_BYTES.of(found.table.properties)
    groups = []
    entries_of = {(DATA, spec_id): entries for spec_id, entries in found.by_spec.items()}
    if found.delete_manifests.num_rows:
        index = found.delete_index
        entries_of |= {(1, spec_id): entries for spec_id, entries in index.by_spec.items()}
    for (content, spec_id), entries in entries_of.items():
        mask = pc.and_(
            pc.equal(live["content"], content), pc.equal(live["partition_spec_id"], spec_id)
        )
        if group := group_of(entries, live.filter(mask), target):
            groups.append(group)
    return groups


def _deletes(found: LiveFiles) -> Deletes:
    if not found.delete_manifests.num_rows:
        return Deletes()
    index = found.delete_index
    by_key = index.content == EQUALITY_DELETES
    least = most = pairs = partitions = size = 0
    for spec_id, entries in found.by_spec.items():
        records = entries["record_count"].to_numpy().astype(np.int64)
        pairing = found.pairs[spec_id]
        low, high = pairing.deleted_bounds(records)
        pairs += int(pairing.counts.sum())
        least, most = least + int(low.sum()), most + int(high.sum())
    for entries in index.by_spec.values():
        partitions += len(np.unique(partition_codes([entries["partition"]])[0]))
        # A deletion vector shares its file with others.
        own = pc.coalesce(entries["content_size_in_bytes"], entries["file_size_in_bytes"])
        size += int(pc.sum(own).as_py() or 0)
    return Deletes(
        position=int((~by_key & ~index.is_vector).sum()),
        equality=int(by_key.sum()),
        vectors=int(index.is_vector.sum()),
        bytes=size,
        position_rows=int(index.record_counts[~by_key].sum()),
        equality_rows=int(index.record_counts[by_key].sum()),
        partitions=partitions,
        least=least,
        most=most,
        pairs=pairs,
    )
