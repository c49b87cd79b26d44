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
    rows_written: int = 0
    rows_rejected: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamResult(Facts):
    """What the epochs of a run loaded. `rows` is None if no epoch was loaded."""

    rows: IngestResult | RoutedRows | None = inlined()
    tables: Sequence[RoutedTable] | None = omitted()
    epochs: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchFacts(Facts):
    """The files that a watch loads next."""

    route: str | None = omitted()
    max_tables: int | None = omitted()
    source: str = ""
    stream: str = ""
    state: str = ""
    epoch: int = 0
    files: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchResult(StreamResult):
    """What a watch loaded and left out; `oldest_file_ms` is the age of the oldest file that waits."""

    files_loaded: int = 0
    files_set_aside: int = 0
    files_skipped: Sequence[str] = ()
    files_known: Sequence[str] = ()
    lag_files: int = 0
    oldest_file_ms: int | None = None
    compactions: int = 0
    stopped_by: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchStatus(Facts):
    """Where a watch is; an epoch is stuck if it was begun and is not committed."""

    epoch: int = 0
    files_total: int = 0
    stuck_epoch: int | None = None
    stuck_files: Sequence[str] = ()
    lag_files: int = 0
    oldest_file: str | None = None
    oldest_file_ms: int | None = None
    files_known: Sequence[str] = ()
    files_ahead: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyFacts(Facts):
    """What a load that follows a table loads next; its status does not look for that."""

    source: str = ""
    stream: str = ""
    epoch: int = 0
    position: Position | None = None
    snapshots: int | None = omitted()
    files: int | None = omitted()
    bytes: int | None = omitted()


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyResult(StreamResult):
    """What a load that follows a table loaded, and where it is."""

    files_loaded: int = 0
    position: Position | None = None
    lag: Lag | None = None
    gaps: Sequence[Gap] = ()
    compactions: int = 0
    stopped_by: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyStatus(Facts):
    """Where a load that follows a table is; `gap` is the one at which the next run would end."""

    epoch: int = 0
    position: Position | None = None
    lag: Lag | None = None
    gap: Gap | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicFacts(Facts):
    """The messages that a load from a topic can read, and the next offset by partition."""

    topic: str = ""
    stream: str = ""
    metadata: Mapping[str, str] | None = omitted()
    epoch: int = 0
    offsets: Mapping[str, int] = field(default_factory=dict)
    messages: int = 0


@dataclass(frozen=True, slots=True)
class TopicGap(Facts):
    """Messages that were deleted from a topic before they were loaded."""

    partition: int
    offset: int
    first_offset: int


@dataclass(frozen=True, slots=True)
class TopicGaps(Facts):
    """The gaps at which a load from a topic ended."""

    gaps: Sequence[TopicGap] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTransaction(Facts):
    """The messages of a partition that wait for a transaction which is not complete."""

    partition: int
    offset: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicResult(StreamResult):
    """What a load from a topic loaded and left out, and the next offset by partition."""

    messages: int = 0
    messages_set_aside: int = 0
    messages_skipped: Sequence[str] = ()
    offsets: Mapping[str, int] = field(default_factory=dict)
    lag_messages: int = 0
    open_transactions: Sequence[OpenTransaction] = ()
    gaps: Sequence[TopicGap] = ()
    compactions: int = 0
    stopped_by: str | None = None
