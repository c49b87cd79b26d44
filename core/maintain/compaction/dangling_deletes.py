"""Find the delete files that no longer delete anything.

A position delete applies to rows with its sequence number or a lower one, an equality delete to rows with a
lower one only. A delete file is dangling if every data file of its scope is younger. Source: Iceberg's
RemoveDanglingDeletesSparkAction; in addition, a delete without partitions is compared with all data files of
the table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lake.core.base.arrow import Int64s, Mask
from lake.core.spec.types.partition_codes import partition_codes
from lake.core.table.manifests.data_files import EQUALITY_DELETES
from lake.core.table.snapshots.delete_scopes import is_global, referenced_paths
from lake.core.transaction.commit.operations import DeleteKey

if TYPE_CHECKING:
    from lake.core.table.snapshots.live_files import LiveFiles

COLUMNS = ("status", "sequence_number", "content", "file_path", "partition")
_NEVER = np.iinfo(np.int64).max


def dangling_deletes(live: LiveFiles) -> list[DeleteKey]:
    """Return the live delete files of a snapshot that do not apply to any of its data files.

    Args:
        live: all live files of the snapshot, the data files with at least `COLUMNS`.
    """
    index = live.delete_index
    table_minimum = min(
        (int(_numbers(entries).min()) for entries in live.by_spec.values() if entries.num_rows),
        default=_NEVER,
    )
    keys: list[DeleteKey] = []
    for spec_id, deletes in index.by_spec.items():
        oldest = _oldest(deletes, live.by_spec.get(spec_id))
        if is_global(index.specs[spec_id]):
            is_equality = _mask(pc.equal(deletes["content"], EQUALITY_DELETES))
            oldest = np.where(is_equality, table_minimum, oldest)
        dangling = deletes.filter(pa.array(_is_dangling(deletes, oldest, live)))
        columns = (dangling["file_path"].to_pylist(), dangling["content_offset"].to_pylist())
        keys += [DeleteKey(path, offset) for path, offset in zip(*columns, strict=True)]
    return keys


def _is_dangling(deletes: pa.Table, oldest: Int64s, live: LiveFiles) -> Mask:
    numbers = _numbers(deletes)
    is_equality = _mask(pc.equal(deletes["content"], EQUALITY_DELETES))
    # check: dangling-position-deletes
    too_old: Mask = np.where(is_equality, numbers <= oldest, numbers < oldest)
    referenced = referenced_paths(deletes)
    distinct = pc.unique(referenced.drop_null())
    live_paths = [
        pc.unique(paths.filter(pc.is_in(paths, value_set=distinct)))
        for paths in (item["file_path"].cast(distinct.type) for item in live.by_spec.values())
    ]
    is_live = pc.is_in(referenced, value_set=pa.concat_arrays([distinct.slice(0, 0), *live_paths]))
    return too_old | _mask(pc.and_(pc.is_valid(referenced), pc.invert(is_live)))


def _oldest(deletes: pa.Table, data: pa.Table | None) -> Int64s:
    """Return, for each delete file, the lowest sequence number of a data file of its partition."""
    if data is None:
        return np.full(deletes.num_rows, _NEVER, np.int64)
    data_codes, delete_codes = partition_codes([data["partition"], deletes["partition"]])
    codes = np.concatenate([data_codes, delete_codes])
    lowest = np.full(int(codes.max(initial=0)) + 1, _NEVER, np.int64)
    np.minimum.at(lowest, data_codes, _numbers(data))
    of_deletes: Int64s = lowest[delete_codes]
    return of_deletes


def _numbers(entries: pa.Table) -> Int64s:
    numbers: Int64s = pc.fill_null(entries["sequence_number"], 0).to_numpy().astype(np.int64)
    return numbers


def _mask(values: pa.ChunkedArray | pa.Array) -> Mask:
    mask: Mask = np.asarray(pc.fill_null(values, fill_value=False), dtype=np.bool_)
    return mask
