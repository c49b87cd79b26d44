"""The streams that a branch contains: each has committed its epochs up to a number, in order.

A stream is a load that goes on: its epochs 1, 2, 3 … are one snapshot each. A snapshot's summary says which epoch it
is, and how far the source was read. Only the newest epoch of a stream is noted
(`lake.core.table.snapshots.branch_notes`), so that a stream that runs for years needs one note.

A streaming query of Spark is a stream too. Its snapshots have the keys of Iceberg's own sink, so that a query may
change from one sink to the other; an epoch without rows has no snapshot, so numbers have gaps.

Source: Iceberg's SparkWrite.BaseStreamingWrite.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from lake.core.base.errors import RefusedError
from lake.core.base.options import Option
from lake.core.base.units import whole_number
from lake.core.table.snapshots.branch_notes import (
    NoteKind,
    changed_notes_in_expiry,
    find_mark,
    json_object,
    newest_value,
)

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot

    from lake.core.table.catalogs.catalog import Table

# The summary key of an epoch: JSON of its stream, its number, and how far the source was read.
STREAM = "lake.stream"
STREAMS = "lake.streams"
# The summary keys of an epoch of a query, and the property of the notes.
QUERY_ID = "spark.sql.streaming.queryId"
EPOCH_ID = "spark.sql.streaming.epochId"
# The summary key of an epoch's rows: their content hash.
EPOCH_ROWS = "lake.spark-rows"
QUERIES = "lake.spark-queries"
# The key of offsets for the name of the last file.
LAST = "last"
MAX_STREAMS = 1_000
# The value of a note: the number of the epoch, and its offsets.
_VALUES = 2
_LARGEST_EPOCH = 2**62
_ROWS = re.compile(r"\d{1,19}-[0-9a-f]{16}", re.ASCII)


@dataclass(frozen=True, slots=True)
class StreamEpoch:
    """An epoch of a stream.

    Args:
        stream: the stream's id.
        number: of the epoch, from 1.
        offsets: how far the source was read after it; JSON-ready.
    """

    stream: str
    number: int
    offsets: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __str__(self) -> str:
        return f"epoch {self.number} of stream {self.stream}"

    @property
    def text(self) -> str:
        """The value of `STREAM` in a summary."""
        return json.dumps(
            {"id": self.stream, "epoch": self.number, "offsets": dict(self.offsets)},
            ensure_ascii=False,
        )

    @classmethod
    def of_text(cls, text: str | None) -> StreamEpoch | None:
        """Read an untrusted value of `STREAM`; None if it is not valid."""
        found = json_object(text)
        stream, number, offsets = found.get("id"), found.get("epoch"), found.get("offsets")
        if not isinstance(stream, str) or not _is_value([number, offsets]):
            return None
        return cls(stream, int(number or 0), dict(offsets or {}))


def _is_value(value: Sequence[Any]) -> bool:
    return (
        len(value) == _VALUES
        and type(value[0]) is int
        and 0 < value[0] < _LARGEST_EPOCH
        and isinstance(value[1], dict)
    )


def _marks(summary: Mapping[str, str]) -> Sequence[tuple[str, tuple[Any, ...]]]:
    epoch = StreamEpoch.of_text(summary.get(STREAM))
    if epoch is None:
        return []
    # A file's name is for people, and too long for a note.
    offsets = {key: value for key, value in epoch.offsets.items() if key != LAST}
    return [(epoch.stream, (epoch.number, offsets))]


STREAM_NOTES = NoteKind(STREAMS, _marks, MAX_STREAMS, None, _is_value)
streams_noted_in_expiry = partial(changed_notes_in_expiry, STREAM_NOTES)


def find_epoch(
    metadata: TableMetadata, branch: str, stream: str
) -> tuple[Snapshot, StreamEpoch] | None:
    """Return the snapshot of a stream's newest epoch in a branch's retained history, and the epoch."""
    found = find_mark(STREAM_NOTES, metadata, branch, stream)
    return None if found is None else (found[0], StreamEpoch(stream, *found[1]))


def contains_epoch(table: Table | None, branch: str, epoch: StreamEpoch) -> bool:
    """Whether a branch of a table contains an epoch.

    Raises:
        RefusedError: the branch has this or a later epoch of a run that has read something else.
    """
    newest = newest_epoch(table, branch, epoch.stream) if table is not None else None
    if table is None or newest is None or newest.number < epoch.number:
        return False
    if newest.number > epoch.number or _compared(newest) != _compared(epoch):
        raise RefusedError(
            f"branch {branch} of {table.identifier} has {newest} of another run, with other files",
            hint=f"two state folders cannot have one stream: choose another {Option.STREAM}",
        )
    return True


def _compared(epoch: StreamEpoch) -> dict[str, Any]:
    return {key: value for key, value in epoch.offsets.items() if key != LAST}


def newest_epoch(table: Table, branch: str, stream: str) -> StreamEpoch | None:
    """Return a stream's newest epoch in a branch's history, even if its snapshot expired; None if there is none."""
    value = newest_value(STREAM_NOTES, table, branch, stream)
    return None if value is None else StreamEpoch(stream, *value)


# Queries of Spark


@dataclass(frozen=True, slots=True)
class QueryEpoch:
    """An epoch of a query.

    Args:
        query: the query's id, which is new for each checkpoint; or a name that a user gave where Spark shows no id.
        number: of the epoch, from 0.
        rows: the content hash of its rows. None if the query has an id, by which Spark repeats the same rows.
    """

    query: str
    number: int
    rows: str | None = None

    def __str__(self) -> str:
        return f"epoch {self.number} of query {self.query}"

    @property
    def summary(self) -> Mapping[str, str]:
        """What a snapshot's summary contains for it."""
        rows = {} if self.rows is None else {EPOCH_ROWS: self.rows}
        return {QUERY_ID: self.query, EPOCH_ID: str(self.number), **rows}

    @classmethod
    def of_summary(cls, summary: Mapping[str, str]) -> QueryEpoch | None:
        """Return the epoch in a summary, which any writer may have written; None if it has none."""
        query, number = summary.get(QUERY_ID), whole_number(summary.get(EPOCH_ID, ""))
        if not query or number is None or not _is_query_value([number]):
            return None
        rows = summary.get(EPOCH_ROWS)
        return cls(query, number, rows if _is_query_value([number, rows]) else None)


def _is_query_value(value: Sequence[Any]) -> bool:
    number, *rows = value or [None]
    return (
        type(number) is int
        and 0 <= number < _LARGEST_EPOCH
        and len(rows) < _VALUES
        and all(isinstance(one, str) and _ROWS.fullmatch(one) for one in rows)
    )


def _query_marks(summary: Mapping[str, str]) -> Sequence[tuple[str, tuple[Any, ...]]]:
    epoch = QueryEpoch.of_summary(summary)
    if epoch is None:
        return []
    return [(epoch.query, (epoch.number,) if epoch.rows is None else (epoch.number, epoch.rows))]


QUERY_NOTES = NoteKind(QUERIES, _query_marks, MAX_STREAMS, None, _is_query_value)
queries_noted_in_expiry = partial(changed_notes_in_expiry, QUERY_NOTES)


def find_query_epoch(
    metadata: TableMetadata, branch: str, query: str
) -> tuple[Snapshot, QueryEpoch] | None:
    """Return the snapshot of a query's newest epoch in a branch's retained history, and the epoch."""
    found = find_mark(QUERY_NOTES, metadata, branch, query)
    return None if found is None else (found[0], QueryEpoch(query, *found[1]))


def newest_query_epoch(table: Table, branch: str, query: str) -> QueryEpoch | None:
    """Return a query's newest epoch in a branch's history, even if its snapshot expired; None if there is none."""
    value = newest_value(QUERY_NOTES, table, branch, query)
    return None if value is None else QueryEpoch(query, *value)


def contains_query_epoch(table: Table, branch: str, epoch: QueryEpoch) -> bool:
    """Whether a branch of a table contains an epoch of a query, or a later one.

    Raises:
        RefusedError: the query has a name only, and its newest epoch is not this one with these rows: a query repeats
            only its newest, so this one is of another checkpoint, and its rows are not in the table.
    """
    newest = newest_query_epoch(table, branch, epoch.query)
    if newest is None or newest.number < epoch.number:  # check: query-epoch
        return False
    if epoch.rows is not None and newest != epoch:  # check: query-rows
        found = f"comes after batch {newest.number} of that name"
        if newest.number == epoch.number:
            may = "may have" if newest.rows is None else "has"
            found = f"{may} other rows than the batch of that name and number"
        raise RefusedError(
            f"batch {epoch.number} of {epoch.query!r} {found} in branch {branch} of {table.identifier}: "
            "it was not loaded",
            hint="if the checkpoint is new, or if Spark repeats batches with other rows, give the upsert another "
            "name of the query: the batch is loaded then",
        )
    return True
