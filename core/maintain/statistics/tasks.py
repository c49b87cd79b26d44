"""Read the rows of a split and sketch the values of their columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass

import numpy as np

from lake.core.base.plain import PlainData
from lake.core.data.deletes.apply import Deletes, read_rows
from lake.core.data.rows.reader import FileSlice, ReadSettings
from lake.core.engine.tasks import TaskContext
from lake.core.maintain.statistics.theta_sketch import ThetaSketch, hashes_of
from lake.core.maintain.statistics.value_bytes import value_bytes


@dataclass(frozen=True, slots=True)
class SketchTask(PlainData):
    """Sketch the columns of a split.

    Args:
        reading: how the files are read; its projection has the columns.
        files: the slices of files.
    """

    reading: ReadSettings
    files: Sequence[FileSlice]


@dataclass(frozen=True, slots=True)
class ColumnSketch(PlainData):
    """A sketch as a task reports it.

    Args:
        theta: its bound.
        hashes: its hashes, as unsigned integers of 64 bits, little-endian.
    """

    theta: int
    hashes: bytes

    @classmethod
    def of(cls, sketch: ThetaSketch) -> ColumnSketch:
        """Return the report of a sketch."""
        return cls(sketch.theta, sketch.hashes.astype("<u8").tobytes())

    def sketch(self) -> ThetaSketch:
        """Return the sketch."""
        return ThetaSketch(self.theta, np.frombuffer(self.hashes, "<u8").astype(np.uint64))


@dataclass(frozen=True, slots=True)
class SplitSketches(PlainData):
    """What a task reports: the rows that it read, and the sketches of the columns in their order."""

    rows: int
    columns: Sequence[ColumnSketch]


def sketch_columns(task: SketchTask, context: TaskContext) -> Iterator[SplitSketches]:
    """Task: sketch the columns of the live rows of a split."""
    sketches = [ThetaSketch() for _ in task.reading.projection.fields]
    expected = sum(file.take_rows or file.record_count for file in task.files)
    rows = 0
    with closing(Deletes(context.storage, task.reading, task.files)) as deletes:
        for batch in read_rows(context.storage, task.files, task.reading, deletes):
            context.check_cancelled()
            for column, sketch in zip(batch.columns, sketches, strict=True):
                for values in value_bytes(column):
                    sketch.add(hashes_of(values))
            rows += batch.num_rows
            context.report(rows, rows / max(expected, 1))
    yield SplitSketches(rows, [ColumnSketch.of(sketch) for sketch in sketches])
