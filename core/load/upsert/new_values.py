"""The new values of the table's rows: chosen from the merged rows of the source, and put into the old rows."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema

from lake.core.base.arrow import Int64s, Mask, one_array
from lake.core.data.columns.type_promotion import convert
from lake.core.io.storage.storage import Storage
from lake.core.load.ingest.checksummed_batches import batches_in
from lake.core.load.upsert.merge_tasks import COLUMN, KEY, SEQUENCE, column_name
from lake.core.spec.types.arrow_schema import LAST_UPDATED


class MergedRows:
    """The merged rows of one bucket of keys."""

    def __init__(self, storage: Storage, path: str) -> None:
        table = pa.Table.from_batches(batches_in(storage, path))
        numbers = table[KEY].to_numpy()
        self._starts = np.append(np.flatnonzero(np.diff(numbers, prepend=-1)), len(numbers))
        names = table.column_names
        self._sequence = one_array(table[SEQUENCE]) if SEQUENCE in names else None
        self._columns = table.select([name for name in names if name.startswith(COLUMN)])

    def choose(self, keys: Int64s, sequences: pa.Array | None) -> tuple[Int64s, int]:
        """Return the merged row for each of the table's rows, and how many source rows are older.

        Args:
            keys: the number of the key of each of the table's rows.
            sequences: the sequence of each of them; None to compare none.

        Returns:
            The numbers of the merged rows; -1 if all source rows of the key are older.
        """
        first, end = self._starts[keys], self._starts[keys + 1]
        if sequences is None or self._sequence is None:
            return first, 0
        low, high = first.copy(), np.where(_is_known(sequences), end, first)
        while len(open_ := np.flatnonzero(low < high)):
            middle = (low[open_] + high[open_]) // 2
            ours = self._sequence.take(pa.array(middle))
            theirs = sequences.take(pa.array(open_))
            older = pc.fill_null(pc.less(ours, theirs), True)  # noqa: FBT003 - the source's is NULL
            mask = older.to_numpy(zero_copy_only=False)
            low[open_[mask]] = middle[mask] + 1  # check: newer-source-rows
            high[open_[~mask]] = middle[~mask]
        return np.where(low < end, low, -1), int((low - first).sum())

    def take(self, rows: Int64s) -> pa.Table:
        """Return the columns of merged rows."""
        return self._columns.take(pa.array(rows))


def _is_known(sequences: pa.Array) -> Mask:
    """Return which values of the table have a place in the order: neither NULL nor NaN."""
    known = sequences.is_null(nan_is_null=pa.types.is_floating(sequences.type))
    mask: Mask = pc.invert(known).to_numpy(zero_copy_only=False)
    return mask


class NewValues:
    """The new values of some rows of one data file."""

    def __init__(self, parts: Sequence[tuple[Int64s, pa.Table]]) -> None:
        """Combine the parts: positions in the file, and the columns of the merged row of each."""
        positions = np.concatenate([part[0] for part in parts])
        order = np.argsort(positions)
        self._positions = positions[order]
        self._columns = pa.concat_tables([part[1] for part in parts]).take(pa.array(order))

    def put_into(
        self,
        batch: pa.RecordBatch,
        positions: Int64s,
        *,
        schema: Schema,
        overwrites: Collection[int],
    ) -> tuple[Mask, pa.RecordBatch]:
        """Return which rows of a batch have new values, and the batch with these values.

        Such a row keeps its row id, and its last change is that of the commit.

        Args:
            batch: rows of the file.
            positions: the position of each in the file.
            schema: the schema of the batch.
            overwrites: ids of the columns in which NULL is a value.
        """
        at = np.searchsorted(self._positions, positions)
        at[at == len(self._positions)] = 0
        changed: Mask = self._positions[at] == positions
        if not changed.any():
            return changed, batch
        hit = pa.array(changed)
        rows = pa.array(at, mask=~changed)
        known = set(self._columns.column_names)
        columns = []
        for item, old in zip(schema.fields, batch.columns, strict=True):
            name = column_name(item.field_id)
            if item.field_id == LAST_UPDATED:
                columns.append(pc.if_else(hit, pa.scalar(None, old.type), old))
            elif name in known:
                # The table's column may have been widened since the source was read.
                values = one_array(self._columns[name].take(rows))
                values = convert(values, item.model_copy(update={"required": False}), "the source")
                # check: null-keeps-value
                mask = hit if item.field_id in overwrites else values.is_valid()
                columns.append(pc.if_else(mask, values, old))
            else:
                columns.append(old)
        return changed, pa.RecordBatch.from_arrays(columns, schema=batch.schema)
