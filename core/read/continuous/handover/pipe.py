"""Hand rows over to a stream: each row at least once.

Rows are flushed before the position within their split is saved, so a killed run repeats at most what it wrote after
the last save. With epoch markers, a reader can drop what it has already.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import IO

from pyiceberg.schema import Schema

from lake.core.base.clock import Clock
from lake.core.data.rows.reader import prefetch
from lake.core.read.continuous.handover.state import ReaderPosition
from lake.core.read.continuous.handover.work import WorkRows
from lake.core.read.exports.export import Noted
from lake.core.read.exports.formats import ARROW_STREAM, CSV, TSV, Sink, open_sink
from lake.core.read.scan.execute import DROPPED

_SAVE_SECONDS = 10.0
_SAVE_BYTES = 64 * 1024 * 1024
# The header of these formats is at the beginning of the stream, so all rows have one schema.
_ONE_SCHEMA = frozenset({CSV, TSV, ARROW_STREAM})


@dataclass(frozen=True, slots=True)
class Written:
    """What was written of an epoch: its rows, those that delete files removed, and bytes in memory."""

    rows: int
    deleted: int
    bytes: int


class Pipe:
    """A stream of rows.

    Args:
        stream: the open stream.
        format_name: the format.
        clock: the time between two saves.
    """

    def __init__(self, stream: IO[bytes], format_name: str, clock: Clock) -> None:
        self.stream = stream
        self.format = format_name
        self._clock = clock
        self.reader: ReaderPosition | None = None
        self._sink: Sink | None = None
        self._schema: Schema | None = None
        self._saved_at = clock.monotonic()
        self._unsaved_bytes = 0

    def accepts(self, schema: Schema) -> bool:
        """Whether rows of a schema can follow those that were written."""
        return self._schema in (None, schema) or self.format not in _ONE_SCHEMA

    def write(
        self,
        source: WorkRows,
        first: int,
        reader: ReaderPosition | None,
        save: Callable[[ReaderPosition], object],
        noted: Noted,
    ) -> Written:
        """Write the rows of an epoch. `reader` shows afterwards, or after a failure, what was written.

        Args:
            source: the rows.
            first: the index of the first split.
            reader: where an earlier attempt stopped.
            save: saves where this one is.
            noted: the counters of the rows.

        Raises:
            BrokenPipeError: no process reads the stream.
        """
        sink = self._opened(source.plan.projection)
        rows = size = 0
        self.reader = reader
        for number, batches in source.streams(noted):
            index = first + number
            skipped = reader.row if reader is not None and reader.split == index else 0
            row = 0
            if reader is None or index > reader.split:
                self.reader = ReaderPosition(split=index, row=0)
            with closing(prefetch(batches)) as found:
                for batch in found:
                    before, row = row, row + batch.num_rows
                    if row <= skipped:
                        continue
                    fresh = batch.slice(max(skipped - before, 0))
                    sink.write(fresh)
                    self.stream.flush()
                    size += fresh.nbytes
                    self._unsaved_bytes += fresh.nbytes
                    self.reader = ReaderPosition(split=index, row=row)
                    if self._is_due():
                        save(self.reader)
                        self._is_saved()
            rows += row
        self.reader = None
        return Written(rows, noted[DROPPED], size)

    def mark(self, epoch: int, position: str | None) -> None:
        """Write the marker of an epoch's end, with the snapshot up to which its discovery reads."""
        line = json.dumps({"lake": "epoch", "epoch": epoch, "position": position})
        self.stream.write(line.encode() + b"\n")
        self.stream.flush()

    def close(self) -> None:
        """Finish the stream; it stays open."""
        if self._sink is not None:
            self._sink.close()
            self._sink = None
            self.stream.flush()

    def _opened(self, schema: Schema) -> Sink:
        if self._sink is None or self._schema != schema:
            self._sink = open_sink(self.format, self.stream, schema)
            self._schema = schema
        return self._sink

    def _is_due(self) -> bool:
        late = self._clock.monotonic() - self._saved_at >= _SAVE_SECONDS
        return late or self._unsaved_bytes >= _SAVE_BYTES

    def _is_saved(self) -> None:
        self._saved_at, self._unsaved_bytes = self._clock.monotonic(), 0
