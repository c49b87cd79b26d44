"""Keys that choose the row groups and rows which one task reads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema

from lake.core.base.arrow import Mask
from lake.core.data.keys.extraction import columns_of, cut
from lake.core.data.keys.key_pruning import KeyEvidence
from lake.core.data.keys.key_set import KeySet, normal_keys

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyiceberg.types import IcebergType

# Positions of rows, or None, with the rows.
Rows = tuple[npt.NDArray[np.int64] | None, pa.RecordBatch]


class KeyTest(Protocol):
    """Tests rows exactly."""

    @property
    def chunk_bytes(self) -> int:
        """The bytes of the rows that are tested together; 0 for one batch at a time."""

    def contained(self, keys: Sequence[pa.RecordBatch]) -> list[Mask]:
        """Return for batches of `normal_keys` which of them the set contains."""


@dataclass
class RowKeys:
    """Keys by which row groups are skipped and rows are tested; counts both.

    Args:
        types: the columns of the key.
        keys: the keys by which row groups are skipped; None if none is skipped.
        test: tests rows; None if rows are not tested.
    """

    types: Mapping[int, IcebergType]
    keys: KeySet | None = None
    test: KeyTest | None = None
    row_groups_skipped: int = field(default=0, init=False)
    rows_without_partner: int = field(default=0, init=False)

    def groups_match(self, groups: pa.Table, schema: Schema) -> Mask:
        """Return which row groups may contain a key, and count the others.

        Args:
            groups: entries with the statistics of each row group.
            schema: the schema of the entries.
        """
        if self.keys is None:
            return np.ones(groups.num_rows, np.bool_)
        found = KeyEvidence(self.keys, schema).bounds_match(groups, UNPARTITIONED_PARTITION_SPEC)
        self.row_groups_skipped += int(np.count_nonzero(~found))
        return found

    def tested(self, rows: Iterator[Rows], schema: Schema) -> Iterator[Rows]:
        """Yield the rows with one of the keys, and count the others.

        Args:
            rows: batches with the columns of the schema.
            schema: the columns, by which those of the key are found.
        """
        if self.test is None:
            yield from rows
            return
        chunk: list[Rows] = []
        size = 0
        for item in rows:
            chunk.append(item)
            size += item[1].nbytes
            if size >= self.test.chunk_bytes:
                yield from self._tested(chunk, schema, self.test)
                chunk, size = [], 0
        yield from self._tested(chunk, schema, self.test)

    def _tested(self, chunk: Sequence[Rows], schema: Schema, test: KeyTest) -> Iterator[Rows]:
        columns = columns_of(schema, list(self.types))
        keys = [normal_keys(cut(batch, columns).columns, self.types) for _, batch in chunk]
        for (positions, batch), found in zip(chunk, test.contained(keys), strict=True):
            self.rows_without_partner += int(np.count_nonzero(~found))
            if found.any():
                yield (
                    None if positions is None else positions[found],
                    batch.filter(pa.array(found)),
                )
