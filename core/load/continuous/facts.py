"""What a continuous load plans and what it did, as its JSON document has it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lake.core.base.facts import Facts, inlined, omitted

if TYPE_CHECKING:
    from lake.core.load.ingest.facts import IngestResult
    from lake.core.load.routing.facts import RoutedTable
    from lake.core.read.continuous.position import Gap, Lag, Position


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutedRows(Facts):
    """The rows of all epochs that were divided among tables."""

    rows_read: int = 0
    """Rows that were read."""
    rows_written: int = 0
    """Rows that were loaded."""
    rows_rejected: int = 0
    """Rows that could not be loaded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamResult(Facts):
    """What the epochs of a run loaded; it has no counts of rows if no epoch was loaded."""

    rows: IngestResult | RoutedRows | None = inlined()
    tables: Sequence[RoutedTable] | None = omitted()
    """With `route=`, the tables and the sums of all epochs of the run."""
    epochs: int = 0
    """Epochs that were committed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchFacts(Facts):
    """The files that a watch loads next."""

    route: str | None = omitted()
    """The column that divides rows among tables."""
    max_tables: int | None = omitted()
    """The most tables of one epoch."""
    source: str = ""
    """What is watched."""
    stream: str = ""
    """The name of the stream."""
    state: str = ""
    """The folder that records what was loaded."""
    epoch: int = 0
    """The last epoch that was committed; 0 for a new stream."""
    files: int = 0
    """Files that the next epoch loads."""
    bytes: int = 0
    """Bytes of these files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchResult(StreamResult):
    """What a watch loaded and left out."""

    files_loaded: int = 0
    """Files that were loaded."""
    files_set_aside: int = 0
    """Files that could not be loaded and were moved to `bad_files=`."""
    files_skipped: Sequence[str] = ()
    """Names of the files that `skip=` left out."""
    files_known: Sequence[str] = ()
    """Names of new files that seem to be loaded ones in another folder."""
    lag_files: int = 0
    """Files that are there and not loaded."""
    oldest_file_ms: int | None = None
    """The age of the oldest of these; null without one."""
    compactions: int = 0
    """Compactions that were made on the way."""
    stopped_by: str | None = None
    """What ended the run: `once` or `signal`; with `route=` also `error`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchStatus(Facts):
    """Where a watch is."""

    epoch: int = 0
    """The last epoch that was committed."""
    files_total: int = 0
    """Files that were loaded so far."""
    stuck_epoch: int | None = None
    """The epoch that was begun and is not committed; null without one."""
    stuck_files: Sequence[str] = ()
    """Names of its files."""
    lag_files: int = 0
    """Files that are there and not loaded."""
    oldest_file: str | None = None
    """The oldest of these; null without one."""
    oldest_file_ms: int | None = None
    """Its age."""
    files_known: Sequence[str] = ()
    """Names of new files that seem to be loaded ones in another folder."""
    files_ahead: int = 0
    """Files whose times are in the future."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyFacts(Facts):
    """What a load that follows a table loads next; its status does not look for that."""

    source: str = ""
    """The table whose rows are loaded."""
    stream: str = ""
    """The name of the stream."""
    epoch: int = 0
    """The last epoch that was committed; 0 for a new stream."""
    position: Position | None = None
    """The last snapshot that was loaded; null for a new stream."""
    snapshots: int | None = omitted()
    """Snapshots whose rows are loaded next."""
    files: int | None = omitted()
    """Files of these."""
    bytes: int | None = omitted()
    """Bytes of these files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyResult(StreamResult):
    """What a load that follows a table loaded, and where it is."""

    files_loaded: int = 0
    """Files that were loaded."""
    position: Position | None = None
    """The last snapshot that was loaded."""
    lag: Lag | None = None
    """What is not loaded yet; null for a new stream."""
    gaps: Sequence[Gap] = ()
    """What expired before it was loaded, and was left out."""
    compactions: int = 0
    """Compactions that were made on the way."""
    stopped_by: str | None = None
    """What ended the run: `once` or `signal`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyStatus(Facts):
    """Where a load that follows a table is."""

    epoch: int = 0
    """The last epoch that was committed."""
    position: Position | None = None
    """The last snapshot that was loaded."""
    lag: Lag | None = None
    """What is not loaded yet; null for a new stream."""
    gap: Gap | None = None
    """The gap at which the next run would end; null without one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicFacts(Facts):
    """The messages that a load from a topic can read."""

    topic: str = ""
    """The topic."""
    stream: str = ""
    """The name of the stream."""
    metadata: Mapping[str, str] | None = omitted()
    """The columns of `kafka_metadata=`, and what is loaded into them."""
    epoch: int = 0
    """The last epoch that was committed; 0 for a new stream."""
    offsets: Mapping[str, int] = field(default_factory=dict)
    """The next offset by partition."""
    messages: int = 0
    """The most messages that the topic has after these."""


@dataclass(frozen=True, slots=True)
class TopicGap(Facts):
    """Messages that were deleted from a topic before they were loaded."""

    partition: int
    """The partition of the topic."""
    offset: int
    """The next message to load, which was deleted."""
    first_offset: int
    """The first message that is left."""


@dataclass(frozen=True, slots=True)
class TopicGaps(Facts):
    """The gaps at which a load from a topic ended."""

    gaps: Sequence[TopicGap] = ()
    """Messages that were deleted before they were loaded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTransaction(Facts):
    """The messages of a partition that wait for a transaction which is not complete."""

    partition: int
    """The partition of the topic."""
    offset: int
    """The first message that waits."""
    end: int
    """The offset after the last message of the partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicResult(StreamResult):
    """What a load from a topic loaded and left out."""

    messages: int = 0
    """Messages that were loaded."""
    messages_set_aside: int = 0
    """Messages that could not be loaded and were written to `bad_files=` or `rejects=`."""
    messages_skipped: Sequence[str] = ()
    """Messages that `skip=` left out."""
    offsets: Mapping[str, int] = field(default_factory=dict)
    """The next offset by partition."""
    lag_messages: int = 0
    """Messages that are not loaded, up to the high watermark."""
    open_transactions: Sequence[OpenTransaction] = ()
    """Partitions whose messages wait for a transaction which is not complete."""
    gaps: Sequence[TopicGap] = ()
    """Messages that were deleted before they were loaded."""
    compactions: int = 0
    """Compactions that were made on the way."""
    stopped_by: str | None = None
    """What ended the run: `once` or `signal`."""
