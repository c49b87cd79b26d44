"""Find the data manifests that contain live files of given partitions, and rows of these in files of other specs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.transforms import IdentityTransform, VoidTransform
from pyiceberg.types import DoubleType, FloatType

from lake.core.base.arrow import one_array
from lake.core.base.errors import RefusedError
from lake.core.base.options import Option
from lake.core.spec.types.bounds import BoundColumn, bound_array
from lake.core.spec.types.transforms import transformed_values
from lake.core.table.manifests.api import read_manifest, read_manifests
from lake.core.table.manifests.schemas import MANIFEST_SCHEMA
from lake.core.table.snapshots.pruning import (
    FILTER_COLUMNS,
    FileStatistics,
    partition_field_type,
    values_between,
)
from lake.core.transaction.commit.conflicts import Partition, partitions_of
from lake.core.transaction.commit.removed_files import manifests_of

if TYPE_CHECKING:
    from pyiceberg.partitioning import PartitionField
    from pyiceberg.table.metadata import TableMetadata

    from lake.core.io.storage.storage import Storage
    from lake.core.table.manifests.decode import Manifest
    from lake.core.transaction.commit.operations import EntryTable

# What `refuse_rows_elsewhere` reads of files.
COLUMNS_OF_OTHERS = ("file_path", "partition", "content", "record_count", *FILTER_COLUMNS)
_BOUNDS: tuple[BoundColumn, BoundColumn] = ("lower_bounds", "upper_bounds")


class LivePartitions:
    """Finds the manifests of partitions; each manifest is read once for all steps of a commit.

    Args:
        storage: the storage that contains the manifests.
        written_entries: entries, with ``spec_id``, of manifests that this commit wrote, as far as they are in memory.
    """

    def __init__(self, storage: Storage, written_entries: Mapping[str, pa.Table]) -> None:
        self._storage = storage
        self._written_entries = written_entries
        self._read: dict[str, frozenset[Partition]] = {}
        # A spec, the manifests of the others, and their entries: most steps of a commit find the same ones.
        self._others: tuple[tuple[int, list[str]], Mapping[int, pa.Table]] = ((-1, []), {})

    def holders(
        self,
        metadata: TableMetadata,
        current: Sequence[Manifest],
        wanted: frozenset[Partition] | None,
    ) -> list[Manifest]:
        """Return the data manifests in a list with live files in the given partitions; None means all partitions."""
        return [
            manifest
            for manifest in manifests_of(current, data=True)
            if (live := self._of(metadata, manifest)) and (wanted is None or live & wanted)
        ]

    def _of(self, metadata: TableMetadata, manifest: Manifest) -> frozenset[Partition]:
        path = manifest["manifest_path"]
        if path not in self._read:
            entries = self._written_entries.get(path)
            if entries is None:
                entries = read_manifest(
                    self._storage, manifest, metadata, columns=["partition"], live_only=True
                )
            self._read[path] = frozenset(partitions_of(entries))
        return self._read[path]

    def refuse_rows_elsewhere(
        self, metadata: TableMetadata, current: Sequence[Manifest], added: Sequence[EntryTable]
    ) -> None:
        """Refuse to replace the partitions of new files if rows of them may be in files of another spec.

        Raises:
            RefusedError: there is such a file.
        """
        specs = metadata.specs()
        if any(specs[part.spec_id].is_unpartitioned() for part in added):
            # All files are replaced.
            return
        for part in added:
            spec = specs[part.spec_id]
            partition = one_array(part.entries["partition"])
            values = [pc.struct_field(partition, str(field.field_id)) for field in spec.fields]
            others = [
                row
                for row in manifests_of(current, data=True)
                if row["partition_spec_id"] != part.spec_id
            ]
            key = (part.spec_id, [row["manifest_path"] for row in others])
            if key != self._others[0]:
                found = read_manifests(
                    self._storage,
                    pa.Table.from_pylist(others, schema=MANIFEST_SCHEMA),
                    metadata,
                    columns=COLUMNS_OF_OTHERS,
                    live_only=True,
                    fields=[field.source_id for field in spec.fields],
                )
                self._others = (key, found)
            refuse_rows_elsewhere(metadata, part.spec_id, values, self._others[1])


def refuse_rows_elsewhere(
    metadata: TableMetadata, own: int, values: Sequence[pa.Array], by_spec: Mapping[int, pa.Table]
) -> None:
    """Refuse to replace partitions of which rows may be in files of another spec: they would stay.

    Args:
        metadata: the table's metadata.
        own: the id of the partitions' spec.
        values: the values of each of its fields in the partitions.
        by_spec: spec id to entries, which have `COLUMNS_OF_OTHERS`.

    Raises:
        RefusedError: there is such a file.
    """
    specs, schema = metadata.specs(), metadata.schema()
    for spec_id, entries in by_spec.items():
        if spec_id == own:
            continue
        files = FileStatistics(entries, specs[spec_id], schema)
        may = pa.repeat(pa.scalar(value=True), entries.num_rows)
        for field, wanted in zip(specs[own].fields, values, strict=True):
            may = pc.and_(may, _may_have(files, field, wanted))
        found = entries.filter(may)
        if found.num_rows:  # check: replaced-in-every-spec
            raise RefusedError(
                f"{found.num_rows:,} files of another partition spec ({spec_id}) may have rows of the partitions, "
                f"e.g. {found['file_path'][0].as_py()}: those rows would stay beside the new ones",
                hint=f"{Option.OLD_SPECS} rewrites such files; {Option.OVERWRITE_WHERE} replaces rows in all files",
            )


def _may_have(files: FileStatistics, field: PartitionField, wanted: pa.Array) -> pa.BooleanArray:
    """Return which files may have rows with one of the values of a partition field of another spec than theirs."""
    transform, source = field.transform, field.source_id
    anything = pa.repeat(pa.scalar(value=True), files.entries.num_rows)
    is_known = files.schema.find_column_name(source) is not None
    if isinstance(transform, VoidTransform) or not is_known:
        return anything
    kind = files.schema.find_type(source)
    nulls, exact = pc.invert(files.ranges_of(source, kind).no_nulls), False
    values = [bound_array(files.entries, one, source, kind) for one in _BOUNDS]
    for own in files.spec.fields_by_source_id(source):
        is_identity = isinstance(own.transform, IdentityTransform)
        if is_identity or own.transform == transform:
            partition = one_array(files.entries["partition"])
            values, exact = [pc.struct_field(partition, str(own.field_id))], True
            nulls = pc.is_null(values[0])
            if not is_identity:
                kind = partition_field_type(own, files.schema)
                transform = IdentityTransform()
            break
    if not exact and (not transform.preserves_order or isinstance(kind, FloatType | DoubleType)):
        return anything
    ends = [_ordered(transformed_values(one, kind, transform)) for one in values]
    known = _ordered(wanted.drop_null())
    first, end = values_between(known.take(pc.sort_indices(known)), ends[0], ends[-1])
    inside = pa.array(end > first)
    if exact:
        inside = pc.and_not(inside, nulls)
    return pc.or_(inside, nulls) if wanted.null_count else inside


def _ordered(values: pa.Array) -> pa.Array:
    """Return values so that numpy or Arrow can search them."""
    kind = values.type
    if pa.types.is_boolean(kind):
        return values.cast(pa.uint8())
    if pa.types.is_temporal(kind):
        return values.view(pa.int32() if kind.bit_width == 32 else pa.int64())  # noqa: PLR2004
    return values
