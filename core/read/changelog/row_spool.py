"""Store the rows that a commit removed and added, in memory or, if they are many, in parts on disk.

Rows with one key, or equal rows, are in one part.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from lake.core.base.arrow import Int64s, Mask
from lake.core.data.keys.encoding import partition_of
from lake.core.data.keys.row_identity import encode_rows
from lake.core.data.sorting.part_spool import PARTS, PartSpool

MEMORY_BYTES = 48 * 1024 * 1024
# The last column; other columns may have the same name.
_SIDE = "inserted"


class RowSpool:
    """Collects rows of both sides and returns them in parts that can be compared independently.

    Args:
        key: the columns whose equal values must be in one part; none for all columns.
        memory_bytes: how much to keep in memory before writing to disk.
    """

    def __init__(self, key: Sequence[str], memory_bytes: int | None = None) -> None:
        self._key = list(key)
        limit = MEMORY_BYTES if memory_bytes is None else memory_bytes
        self._spool = PartSpool("rows that do not fit in memory", self._part_of, limit)

    def add(self, batch: pa.RecordBatch, inserted: Mask) -> None:
        """Add rows and whether each was added by the commit."""
        self._spool.add(batch.append_column(_SIDE, pa.array(inserted)))

    def parts(self) -> Iterator[tuple[pa.RecordBatch, Mask]]:
        """Yield all rows, part by part."""
        for rows in self._spool.parts():
            side = rows.column(rows.num_columns - 1).to_numpy(zero_copy_only=False)
            yield _without_side(rows), side

    def close(self) -> None:
        """Free the disk space."""
        self._spool.close()

    def _part_of(self, rows: pa.RecordBatch) -> Int64s:
        identity = rows.select(self._key) if self._key else _without_side(rows)
        return partition_of(encode_rows(identity).hashes(), PARTS)


def _without_side(rows: pa.RecordBatch) -> pa.RecordBatch:
    return rows.select(list(range(rows.num_columns - 1)))
