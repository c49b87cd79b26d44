"""The statistics of a Parquet footer that hold, in the form of PyArrow's descriptions of column chunks.

Which do, `lake.core.data.columns.trusted_statistics` decides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lake.core.data.columns.metrics import Leaf, Metrics, Mode, footer_metrics, ordered_value
from lake.core.data.columns.trusted_statistics import (
    ParquetColumn,
    Writer,
    bounds_hold,
    null_count_holds,
)
from lake.core.data.formats.parquet.thrift_footer import BoundNotes

_NO_LOGICAL_TYPE = frozenset({"NONE", "UNKNOWN"})


@dataclass(frozen=True, slots=True)
class ChunkStatistics:
    """The statistics of a column chunk that hold, with the names of PyArrow's."""

    has_null_count: bool
    null_count: int | None
    has_min_max: bool
    min_raw: Any = None
    max_raw: Any = None


@dataclass(frozen=True, slots=True)
class Chunk:
    """The sizes and the statistics of a column chunk, with the names of PyArrow's."""

    num_values: int
    total_compressed_size: int
    statistics: ChunkStatistics


class TrustedFooter:
    """A footer with only those statistics that hold.

    Args:
        parquet: the open `pyarrow.parquet.ParquetFile`.
        notes: what its bytes say about the columns to describe.
    """

    def __init__(self, parquet: Any, notes: BoundNotes) -> None:
        self.metadata = parquet.metadata
        self.truncated = notes.truncated
        self._schema = parquet.schema
        self._typed = notes.typed
        self._writer = Writer.of(parquet.metadata.created_by)
        self._columns: dict[int, tuple[ParquetColumn, bool]] = {}

    def statistics(self, group: int, position: int) -> ChunkStatistics:
        """Return the statistics of a column chunk."""
        return self._described(self.metadata.row_group(group).column(position), position)

    def metrics(
        self,
        columns: Sequence[tuple[int, Leaf]],
        chosen: Mapping[int, Mode],
        group: int | None = None,
    ) -> Metrics:
        """Return the metrics of chosen Parquet columns of the file, or of a row group.

        Args:
            columns: positions in the file, each with the table's column, which has the same type; with another type,
                a column's mode must not contain bounds.
            chosen: the mode of each column.
            group: the row group's index; None for the whole file.
        """
        wanted = range(self.metadata.num_row_groups) if group is None else [group]
        part = _Part(self, [position for position, _ in columns], wanted)
        return footer_metrics(part, [leaf for _, leaf in columns], chosen, {})

    def is_ordered(self, group: int, position: int, leaf: Leaf) -> bool:
        """Whether the minimum of a column chunk is not greater than its maximum; True if it has none."""
        found = self.statistics(group, position)
        if not found.has_min_max:
            return True
        low, high = (ordered_value(raw, leaf.kind) for raw in (found.min_raw, found.max_raw))
        return not low > high

    def chunk(self, stored: Any, position: int) -> Chunk:
        """Return the description of a column chunk from PyArrow's."""
        return Chunk(
            stored.num_values, stored.total_compressed_size, self._described(stored, position)
        )

    def _described(self, stored: Any, position: int) -> ChunkStatistics:
        found = stored.statistics
        if found is None:
            return ChunkStatistics(has_null_count=False, null_count=None, has_min_max=False)
        column, are_bounds = self._column(position)
        bounded = bool(found.has_min_max)
        counts = found.has_null_count and null_count_holds(
            self._writer, column, found.null_count, stored.num_values, bounded=bounded
        )
        nulls = found.null_count if counts else None  # check: null-counts-of-trusted-writer
        if not (bounded and are_bounds):  # check: bounds-of-trusted-writer
            return ChunkStatistics(has_null_count=bool(counts), null_count=nulls, has_min_max=False)
        return ChunkStatistics(
            has_null_count=bool(counts),
            null_count=nulls,
            has_min_max=True,
            min_raw=found.min_raw,
            max_raw=found.max_raw,
        )

    def _column(self, position: int) -> tuple[ParquetColumn, bool]:
        """Return what the file declares about a column, and whether its minima and maxima are bounds."""
        if position not in self._columns:
            stored = self._schema.column(position)
            logical, converted = str(stored.logical_type.type), str(stored.converted_type)
            column = ParquetColumn(
                physical=stored.physical_type,
                logical=converted if logical in _NO_LOGICAL_TYPE else logical,
                unsigned=converted.startswith("UINT"),
                typed=position in self._typed,
                required=stored.max_definition_level == 0,
                repeated=stored.max_repetition_level > 0,
            )
            self._columns[position] = column, bounds_hold(self._writer, column)
        return self._columns[position]


class _Part:
    """Some row groups and columns of a footer, with the interface of PyArrow's."""

    def __init__(
        self, footer: TrustedFooter, positions: Sequence[int], groups: Sequence[int]
    ) -> None:
        self._footer, self._positions, self._groups = footer, positions, groups
        self.num_row_groups = len(groups)

    def row_group(self, index: int) -> _Group:
        group = self._footer.metadata.row_group(self._groups[index])
        return _Group(self._footer, self._positions, group)


class _Group:
    """A row group with only the given columns."""

    def __init__(self, footer: TrustedFooter, positions: Sequence[int], group: Any) -> None:
        self._footer, self._positions, self._group = footer, positions, group

    def column(self, index: int) -> Chunk:
        position = self._positions[index]
        return self._footer.chunk(self._group.column(position), position)
