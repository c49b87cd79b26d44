"""Delete files that no longer delete anything, found over columns.

A position delete applies to rows of its sequence number and older ones, an equality delete to older ones
only; so where every data file of its scope is younger, it is garbage. Source: Iceberg's
RemoveDanglingDeletesSparkAction; a delete without partitions is compared with all data files of the table,
which that action leaves out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lake.core.commit.operations import DeleteKey
from lake.core.manifests.data_files import EQUALITY_DELETES
from lake.core.snapshots.delete_scopes import is_global, referenced_paths
from lake.core.types.partition_codes import partition_codes

if TYPE_CHECKING:
    from lake.core.snapshots.live_files import LiveFiles

Int64s = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
COLUMNS = ("status", "sequence_number", "content", "file_path", "partition")
_NEVER = np.iinfo(np.int64).max


def dangling_deletes(found: LiveFiles) -> list[DeleteKey]:
    """Return the live delete files of a snapshot that apply to none of its data files.

    Args:
        found: all of its live files, the data files with at least `COLUMNS`.
    """
    index = found.delete_index
    everywhere = min(
        (int(_numbers(entries).min()) for entries in found.by_spec.values() if entries.num_rows),
        default=_NEVER,
    )
    keys: list[DeleteKey] = []
    for spec_id, deletes in index.by_spec.items():
        oldest = _oldest(deletes, found.by_spec.get(spec_id))
        if is_global(index.specs[spec_id]):
            is_equality = _mask(pc.equal(deletes["content"], EQUALITY_DELETES))
            oldest = np.where(is_equality, everywhere, oldest)
        gone = deletes.filter(pa.array(_dangles(deletes, oldest, found)))
        columns = (gone["file_path"].to_pylist(), gone["content_offset"].to_pylist())
        keys += [DeleteKey(path, offset) for path, offset in zip(*columns, strict=True)]
    return keys


def _dangles(deletes: pa.Table, oldest: Int64s, found: LiveFiles) -> Mask:
    numbers = _numbers(deletes)
    is_equality = _mask(pc.equal(deletes["content"], EQUALITY_DELETES))
    too_old: Mask = np.where(is_equality, numbers <= oldest, numbers < oldest)
    named = referenced_paths(deletes)
    wanted = pc.unique(named.drop_null())
    live = [
        pc.unique(paths.filter(pc.is_in(paths, value_set=wanted)))
        for paths in (item["file_path"].cast(wanted.type) for item in found.by_spec.values())
    ]
    there = pc.is_in(named, value_set=pa.concat_arrays([wanted.slice(0, 0), *live]))
    return too_old | _mask(pc.and_(pc.is_valid(named), pc.invert(there)))


def _oldest(deletes: pa.Table, data: pa.Table | None) -> Int64s:
    """Return for each delete file the least sequence number of a data file of its partition."""
    if data is None:
        return np.full(deletes.num_rows, _NEVER, np.int64)
    mine, theirs = partition_codes([data["partition"], deletes["partition"]])
    codes = np.concatenate([mine, theirs])
    least = np.full(int(codes.max(initial=0)) + 1, _NEVER, np.int64)
    np.minimum.at(least, mine, _numbers(data))
    found: Int64s = least[theirs]
    return found


def _numbers(entries: pa.Table) -> Int64s:
    found: Int64s = pc.fill_null(entries["sequence_number"], 0).to_numpy().astype(np.int64)
    return found


def _mask(values: pa.ChunkedArray | pa.Array) -> Mask:
    found: Mask = np.asarray(pc.fill_null(values, fill_value=False), dtype=np.bool_)
    return found
