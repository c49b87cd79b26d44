"""The partitions of manifest entries, by the names that people see."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lake.core.spec.types.partition_codes import partition_codes, partition_tuples
from lake.core.spec.types.partition_paths import partition_path
from lake.core.spec.types.single_values import single_values, stored_partition_type
from lake.core.table.snapshots.delete_scopes import all_schemas

if TYPE_CHECKING:
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.table.metadata import TableMetadata


@dataclass(frozen=True, slots=True)
class PartitionNames:
    """The partitions of some entries of one spec.

    Args:
        names: the name of each distinct partition, as in folders and in snapshot summaries: ``day=2026-01-31``;
            empty for an unpartitioned spec.
        codes: an index into `names` for each entry.
    """

    names: list[str]
    codes: npt.NDArray[np.int64]


def partition_names(entries: pa.Table, spec_id: int, metadata: TableMetadata) -> PartitionNames:
    """Return the partitions of entries (canonical columns) of one spec, in the order of their first entry."""
    (tuples,) = partition_codes([entries["partition"]])
    # The codes of a dictionary are in the order of their first entry: those are higher than all before them.
    codes = pa.array(tuples).dictionary_encode().indices.to_numpy()
    first = np.flatnonzero(np.diff(np.maximum.accumulate(codes), prepend=-1))
    some = entries["partition"].take(pa.array(first)).combine_chunks()
    spec = metadata.specs()[spec_id]
    schema = next((item for item in all_schemas(metadata) if _knows(item, spec)), None)
    names = _values(some, spec) if schema is None else _paths(some, spec, schema)
    return PartitionNames(names, codes.astype(np.int64))


def _paths(partitions: pa.StructArray, spec: PartitionSpec, schema: Schema) -> list[str]:
    if not spec.fields:
        return [""] * len(partitions)
    kinds = stored_partition_type(spec, schema, partitions.type).fields
    columns = [
        single_values(pc.struct_field(partitions, str(kind.field_id)), kind.field_type)
        for kind in kinds
    ]
    return [partition_path(spec, schema, values) for values in zip(*columns, strict=True)]


def _values(partitions: pa.StructArray, spec: PartitionSpec) -> list[str]:
    """Return names with the stored values, for a spec whose columns no schema has any more."""
    fields = [field.name for field in spec.fields]
    return [
        "/".join(f"{name}={_text(value)}" for name, value in zip(fields, values, strict=True))
        for values in partition_tuples(pa.chunked_array([partitions]))
    ]


def _text(value: object) -> str:
    if value is None:
        return "null"
    return value.hex() if isinstance(value, bytes) else str(value)


def _knows(schema: Schema, spec: PartitionSpec) -> bool:
    return all(item.source_id in schema.field_ids for item in spec.fields)
