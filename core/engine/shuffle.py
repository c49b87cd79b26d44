"""Rows on their way to other tasks: Arrow IPC streams, buffered by slot, and the senders' reports."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pyarrow as pa

from lake.core.base.plain import PlainData

_BLOB_BYTES = 4 * 1024 * 1024
_WAITING_BYTES = 64 * 1024 * 1024
_REPORT, _PART = b"lake.report", b"lake.part"

Report = TypeVar("Report", bound=PlainData)


@dataclass(slots=True)
class ShuffleBuffer:
    """Rows that wait to be sent. The buffer of each slot, and that of all together, is bounded.

    Args:
        parts: the number of slots of a reducer.
    """

    parts: int = 1
    waiting: dict[int, list[pa.RecordBatch]] = field(default_factory=dict)
    sizes: dict[int, int] = field(default_factory=dict)

    def add(self, slot: int, rows: pa.RecordBatch) -> Iterator[tuple[int, bytes]]:
        """Buffer rows; yield the streams that are full."""
        self.waiting.setdefault(slot, []).append(rows)
        self.sizes[slot] = self.sizes.get(slot, 0) + rows.nbytes
        if self.sizes[slot] >= _BLOB_BYTES:
            yield self._take(slot)
        if sum(self.sizes.values()) >= _WAITING_BYTES:
            yield from self.drain()

    def drain(self) -> Iterator[tuple[int, bytes]]:
        """Yield all buffered rows."""
        for slot in list(self.waiting):
            yield self._take(slot)

    def _take(self, slot: int) -> tuple[int, bytes]:
        self.sizes.pop(slot)
        batches = self.waiting.pop(slot)
        schema = batches[0].schema
        if self.parts > 1:
            schema = schema.with_metadata({_PART: str(slot % self.parts)})
        return slot, bytes(arrow_stream(schema, batches, compression="lz4"))


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


def received(
    blobs: Iterable[bytes], report_type: type[Report], reports: list[Report]
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the rows of a reducer's blobs, each batch with the number of its part, in the order of parts.

    Args:
        blobs: the blobs, in the order of slots.
        report_type: the type of the senders' reports.
        reports: receives the reports.
    """
    for blob in blobs:
        stream = pa.ipc.open_stream(blob)
        if (report := decode_report(stream, report_type)) is not None:
            reports.append(report)
            continue
        part = int((stream.schema.metadata or {}).get(_PART, 0))
        for batch in stream:
            yield part, batch.replace_schema_metadata()


def decode_report(stream: Any, report_type: type[Report]) -> Report | None:
    """Return the report that a blob contains; None if it contains rows."""
    metadata = stream.schema.metadata or {}
    if _REPORT not in metadata:
        return None
    return report_type.from_plain(json.loads(metadata[_REPORT]))
