"""Rows on their way to other tasks: Arrow IPC streams, buffered by receiver, and the senders' reports."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pyarrow as pa

from lake.core.base.plain import PlainData

_BLOB_BYTES = 4 * 1024 * 1024
_WAITING_BYTES = 64 * 1024 * 1024
_REPORT = b"lake.report"

Report = TypeVar("Report", bound=PlainData)


@dataclass(slots=True)
class ShuffleBuffer:
    """Rows that wait to be sent. The buffer of each reducer, and that of all together, is bounded."""

    reducers: int
    waiting: dict[int, list[pa.RecordBatch]] = field(default_factory=dict)
    sizes: dict[int, int] = field(default_factory=dict)

    def add(self, reducer: int, rows: pa.RecordBatch) -> Iterator[tuple[int, bytes]]:
        """Buffer rows; yield the streams that are full."""
        self.waiting.setdefault(reducer, []).append(rows)
        self.sizes[reducer] = self.sizes.get(reducer, 0) + rows.nbytes
        if self.sizes[reducer] >= _BLOB_BYTES:
            yield self._take(reducer)
        if sum(self.sizes.values()) >= _WAITING_BYTES:
            yield from self.drain()

    def drain(self) -> Iterator[tuple[int, bytes]]:
        """Yield all buffered rows."""
        for reducer in list(self.waiting):
            yield self._take(reducer)

    def _take(self, reducer: int) -> tuple[int, bytes]:
        self.sizes.pop(reducer)
        batches = self.waiting.pop(reducer)
        return reducer, bytes(arrow_stream(batches[0].schema, batches, compression="lz4"))


def arrow_stream(
    schema: pa.Schema, batches: Sequence[pa.RecordBatch], *, compression: str | None = None
) -> pa.Buffer:
    """Return batches as an Arrow stream."""
    sink = pa.BufferOutputStream()
    # Each task has one core.
    options = pa.ipc.IpcWriteOptions(compression=compression, use_threads=False)
    with pa.ipc.new_stream(sink, schema, options=options) as stream:
        for batch in batches:
            stream.write_batch(batch)
    return sink.getvalue()


def encode_report(report: PlainData) -> bytes:
    """Return a sender's report as a blob, which the receiver adds to its own."""
    text = json.dumps(report.to_plain())
    return bytes(arrow_stream(pa.schema([], {_REPORT: text.encode()}), []))


def decode_report(stream: Any, report_type: type[Report]) -> Report | None:
    """Return the report that a blob contains; None if it contains rows."""
    metadata = stream.schema.metadata or {}
    if _REPORT not in metadata:
        return None
    return report_type.from_plain(json.loads(metadata[_REPORT]))
