"""The scope of a delete file: one data file, a partition, or the whole table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from lake.core.spec.types.bounds import map_values
from lake.core.table.manifests.data_files import POSITION_DELETES

if TYPE_CHECKING:
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.table.metadata import TableMetadata

# Field id of `file_path` in a position delete file (reserved by the specification).
DELETED_PATH = 2147483546
PUFFIN = "PUFFIN"


def is_global(spec: PartitionSpec) -> bool:
    """Whether a spec is unpartitioned: its equality deletes apply to the whole table."""
    return all(str(field.transform) == "void" for field in spec.fields)


def referenced_paths(entries: pa.Table) -> pa.Array:
    """Return the single data file to which each delete file applies, as UTF-8; NULL if there may be several.

    It is the referenced data file, or the only path within the bounds.
    """
    is_position = pc.equal(entries["content"].combine_chunks(), POSITION_DELETES)
    named = entries["referenced_data_file"].combine_chunks().cast(pa.binary())
    lower, upper = (
        map_values(entries, side, DELETED_PATH, pa.binary())
        for side in ("lower_bounds", "upper_bounds")
    )
    nothing = pa.scalar(None, pa.binary())
    single = pc.fill_null(pc.equal(lower, upper), fill_value=False)
    found = pc.coalesce(named, pc.if_else(single, lower, nothing))
    return pc.if_else(is_position, found, nothing)


def all_schemas(metadata: TableMetadata) -> list[Schema]:
    """Return the schemas to search for key columns: the current one, then the others from the newest."""
    older = sorted(metadata.schemas, key=lambda item: item.schema_id, reverse=True)
    return [metadata.schema(), *older]
