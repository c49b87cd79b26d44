"""Choose the row groups of Parquet files that are copied; the rows of the others are read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import NamedTuple

from lake.core.data.columns.file_slice import FileSlice
from lake.core.data.formats.parquet.copying.model import SIZE, Model, UncopiedError
from lake.core.data.formats.parquet.copying.source import CopySource, Part
from lake.core.data.formats.parquet.reader import ParquetRows
from lake.core.data.rows.reader import opened
from lake.core.io.storage.storage import Storage
from lake.core.spec.types.transforms import Partition


class FoundGroup(NamedTuple):
    """A row group to copy, its partition, and how many NaN it has by the id of the column, where that is known."""

    part: Part
    partition: Partition
    nan_counts: Mapping[int, int]

    @property
    def nbytes(self) -> int:
        """Its bytes."""
        return len(self.part.data)


@dataclass(slots=True)
class RowGroupChoice:
    """What is copied of some files, and what is left to be read.

    Args:
        files: slices of files. A row group belongs to the slice with its first row, also if it is not copied, so that
            the slices of one file need not begin with a row group. Files without large row groups are cut by rows.
        nan_counts: how many NaN each file has, by the id of the column; others are not known.
        least_bytes: smaller row groups are not copied.
        most_bytes: larger row groups are not copied.
        copied: the slices of row groups that were copied.
        remaining: the slices to read; complete after the last of `parts`.
        reasons: how many large row groups are not copied, by the reason.
    """

    files: Sequence[FileSlice]
    nan_counts: Sequence[Mapping[int, int]]
    least_bytes: int
    most_bytes: int
    copied: list[FileSlice] = field(default_factory=list)
    remaining: list[FileSlice] = field(default_factory=list)
    reasons: Counter[str] = field(default_factory=Counter)

    def parts(self, storage: Storage, model: Model) -> Iterator[FoundGroup]:
        """Yield the row groups that are copied.

        Raises:
            CorruptFileError: a file is not valid, or does not match the table's metadata.
        """
        for file, nan_counts in zip(self.files, self.nan_counts, strict=True):
            if file.format != "PARQUET" or file.size_bytes < self.least_bytes:
                self.remaining.append(file)
                continue
            with opened(storage, file) as rows:
                if isinstance(rows, ParquetRows):
                    yield from self._of_file(file, rows, model, nan_counts)

    def _of_file(
        self, file: FileSlice, rows: ParquetRows, model: Model, nan_counts: Mapping[int, int]
    ) -> Iterator[FoundGroup]:
        counts = rows.rows_of_groups(file.path)
        own = _own_groups(file, counts)
        # The counts of the whole file are those of a row group if it is the only one, or if they are 0.
        known = {
            column: count for column, count in nan_counts.items() if count == 0 or len(counts) == 1
        }
        source = self._source(rows, model, len(own))
        end = None
        for index, first in own:
            part = None if source is None else self._part(source, index)
            if part is not None:
                self.copied.append(replace(file, skip_rows=first, take_rows=counts[index]))
                yield FoundGroup(part, file.partition, known)
                continue
            start = first if end != first else self.remaining.pop().skip_rows
            end = first + counts[index]
            self.remaining.append(replace(file, skip_rows=start, take_rows=end - start))

    def _source(self, rows: ParquetRows, model: Model, groups: int) -> CopySource | None:
        try:
            return rows.copy_source(model)
        except UncopiedError as error:
            self.reasons[str(error)] += groups
            return None

    def _part(self, source: CopySource, index: int) -> Part | None:
        """Return a row group that is copied; None for a small one, and one that cannot be copied."""
        try:
            size = source.size(index)
            if size < self.least_bytes:
                return None
            if size > self.most_bytes:
                self.reasons[SIZE] += 1
                return None
            return source.part(index)
        except UncopiedError as error:
            self.reasons[str(error)] += 1
            return None


def _own_groups(file: FileSlice, counts: Sequence[int]) -> list[tuple[int, int]]:
    """Return the row groups with rows that begin in a slice: each one's index, and the position of its first row."""
    taken = file.record_count if file.take_rows is None else file.take_rows
    firsts = accumulate(counts, initial=0)
    return [
        (index, first)
        for index, (first, rows) in enumerate(zip(firsts, counts, strict=False))
        if rows and file.skip_rows <= first < file.skip_rows + taken
    ]
