"""Load a topic: read messages from the offsets in the table, and commit them with the offsets after them."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from lake.core.base.choices import OnGap
from lake.core.base.errors import (
    BadInputError,
    InvalidRequestError,
    NotFoundError,
)
from lake.core.base.options import Option
from lake.core.base.outcome import Outcome, Status
from lake.core.base.units import iso_time
from lake.core.io.storage.errors import translate_errors
from lake.core.load.continuous.facts import OpenTransaction, TopicFacts, TopicGap, TopicResult
from lake.core.load.continuous.kafka.client import Client, Item, OffsetsGoneError
from lake.core.load.continuous.kafka.metadata import check_columns
from lake.core.load.continuous.kafka.offsets import (
    Topic,
    recreated_error,
    starting_offsets,
    to_offsets,
)
from lake.core.load.continuous.kafka.options import EARLIEST, LATEST, KafkaOptions
from lake.core.load.continuous.kafka.spool import Check, Spool, check_of
from lake.core.load.continuous.runner import ContinuousLoad
from lake.core.load.continuous.totals import commit_mark
from lake.core.load.ingest.facts import IngestResult
from lake.core.load.ingest.options import LoadRequest
from lake.core.table.snapshots.streams import StreamEpoch

if TYPE_CHECKING:
    from lake.core.load.continuous.loader import Loader

# Without a message and without the end of a partition for this long, a run with `once` ends.
_STALLED_SECONDS = 60.0
# A service reports a transaction that is not complete for longer than this.
_LONG_SECONDS = 60.0
_UNSEEN = Topic("", None, {})


def preview_topic(loader: Loader, options: KafkaOptions) -> Outcome:
    """Describe what the next run would load; no message is read."""
    with _opened(loader, options) as load:
        load.plan = load.planned()
        return load.outcome(Status.DRY_RUN)


def topic_status(loader: Loader, options: KafkaOptions) -> Outcome:
    """Report where a load from a topic is; no message is read, and nothing is written.

    A gap, at which the next run would end, makes the outcome suspect.
    """
    with _opened(loader, replace(options, on_gap=OnGap.SKIP)) as load:
        load.plan = load.planned()
        outcome = load.outcome(Status.SUSPECT if load.gaps else Status.DONE)
    if not load.gaps:
        return outcome
    hint = f"{Option.ON_GAP} skip goes on with the messages that are left; without it, a run ends at the gap"
    return replace(outcome, warnings=[hint])


def run_topic(
    loader: Loader, options: KafkaOptions, compact: Callable[[], Outcome] | None
) -> Outcome:
    """Load messages, epoch by epoch, until the options or a signal say to stop.

    Args:
        loader: loads the epochs.
        options: what is loaded.
        compact: compacts the table if that is due; None to never do it.

    Raises:
        InvalidRequestError: the start is in the future.
        RefusedError: the topic was created again, or the stream loads another source.
        TopicGapError: messages were deleted before they were loaded.
        BadInputError: a message cannot be loaded.
        CommitUnknownError: the outcome of an epoch is unknown; the next run finds out.
    """
    if options.bad_files is not None and options.rejects_aside:
        # Messages that do not fit the table are set aside too.
        with translate_errors(options.bad_files):
            os.makedirs(options.bad_files, exist_ok=True)
        name = os.path.join(options.bad_files, f"{options.stream}-rejected.json")
        loader = replace(loader, options=replace(loader.options, rejects=name))
    with _opened(loader, options) as load:
        return load.run(compact)


@contextmanager
def _opened(loader: Loader, options: KafkaOptions) -> Iterator[_TopicLoad]:
    """Yield a load with a connection to the brokers, and an empty folder for messages."""
    with tempfile.TemporaryDirectory(prefix="lake-kafka-") as folder:
        load = _TopicLoad(loader=loader, options=options, folder=folder, check=check_of(options))
        try:
            yield load
        finally:
            load.client.close()


@dataclass(slots=True, kw_only=True)
class _TopicLoad(ContinuousLoad[Spool]):
    """One run of a load from a topic."""

    options: KafkaOptions
    # The folder for messages until they are loaded.
    folder: str
    check: Check
    client: Client = field(init=False)
    topic: Topic = _UNSEEN
    # The next offsets to read, and the epoch after which they are; None before the table was looked at.
    following: dict[int, int] = field(default_factory=dict)
    epoch: StreamEpoch | None = None
    gaps: list[TopicGap] = field(default_factory=list)
    messages: int = 0
    set_aside: int = 0
    skipped: list[str] = field(default_factory=list)
    # Whether an epoch was collected.
    _is_begun: bool = False
    # The error of a message, to be raised after the messages before it were loaded.
    failure: BadInputError | None = None
    # Transactions that are not complete, by partition and first offset, and those that were reported.
    _open_since: dict[tuple[int, int], float] = field(default_factory=dict)
    _reported: set[tuple[int, int]] = field(default_factory=set)
    # The offsets after the last messages when the run began, by partition.
    ends: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.client = Client(self.options)

    @property
    def stream(self) -> KafkaOptions:
        """The options of the stream."""
        return self.options

    @property
    def epoch_number(self) -> int:
        """The number of the last epoch in the table."""
        return self.epoch.number if self.epoch else 0

    def begin(self) -> None:
        """Look at the topic and the table, and keep the start of a new stream."""
        self.plan = self.planned()
        self.keep_start()
        self.ends = {partition: end for partition, (_, end) in self.topic.bounds.items()}

    def next_work(self) -> Spool | None:
        """Read the messages of the next epoch."""
        if self._is_complete():
            return None
        if self._is_begun and not self.options.once:
            self._look()
        self._is_begun = True
        spool = Spool(tempfile.mkdtemp(dir=self.folder), self.options, self.check)
        self._collect(spool)
        return spool

    def load(self, work: Spool) -> Mapping[str, int] | None:
        """Commit the messages as the next epoch.

        Raises:
            BadInputError: a message cannot be loaded; those before it are.
        """
        try:
            is_loaded = self._load(work)
        finally:
            shutil.rmtree(work.folder)
        if self.failure is not None:
            raise self.failure
        return {"messages": work.rows} if is_loaded else None

    def _is_complete(self) -> bool:
        """Whether everything was read that was there when the run began."""
        return self.options.once and all(
            self.following[partition] >= end for partition, end in self.ends.items()
        )

    # Where to read

    def planned(self) -> TopicFacts:
        """Look at the topic and the table, and return the plan."""
        self._check_request()
        self._look()
        return TopicFacts(
            topic=self.options.topic,
            stream=self.options.stream,
            metadata=dict(self.options.kafka_metadata) or None,
            epoch=self.epoch_number,
            offsets=_plain(self.following),
            messages=self.topic.readable(self.following),
        )

    def _check_request(self) -> None:
        """Refuse what cannot be loaded before any message is read.

        Raises:
            InvalidRequestError: the start is in the future.
            BadInputError: a metadata column does not fit the table.
        """
        options = self.options
        start, now_ms = options.start_at, self.session.clock.now_ms()
        if start is not None and start > now_ms:
            raise InvalidRequestError(
                f"{Option.START_AT} {iso_time(start)} is in the future: it is {iso_time(now_ms)}",
                hint=f"{Option.START} {LATEST} starts with the messages that arrive from now on",
            )
        if (table := self.table_now()) is not None:
            check_columns(table, options.topic, options.kafka_metadata, evolve=options.evolve)

    def _look(self) -> None:
        """Determine the offsets to read from: those in the table, or later ones that contained no row."""
        before, self.topic = self.topic, self.client.topic()
        table, newest = self.newest()
        if table is not None and newest is None:
            self.require_no_epoch(table)
        saved: Mapping[str, Any] | None = newest.offsets if newest else None
        if self.following and newest == self.epoch:
            saved = to_offsets(before, self.following)
        if saved is None and self.options.start != EARLIEST:
            saved = to_offsets(self.topic, self._first_offsets())
        if len(self.topic.bounds) != 1 and any(at is None for at, _ in self.options.skip):
            raise InvalidRequestError(
                f"topic {self.options.topic} has {len(self.topic.bounds)} partitions: {Option.SKIP} needs "
                "PARTITION:OFFSET"
            )
        start = starting_offsets(self.topic, saved, self.options.stream, self.options.on_gap)
        for gap in start.gaps:
            self.session.warn(
                f"partition {gap.partition} of topic {self.options.topic}: the messages with offsets {gap.offset} to "
                f"{gap.first_offset - 1} were deleted before they were loaded"
            )
        self.gaps.extend(start.gaps)
        self._report_open()
        self.epoch = newest
        if start.following != self.following:
            self.following = dict(start.following)
            self.client.seek(self.following)

    def _report_open(self) -> None:
        """Warn of messages behind a transaction that is not complete: by a service, if that lasts."""
        found, now = self.topic.open_transactions, self.session.clock.monotonic()
        self._open_since = {
            at: since
            for at, since in self._open_since.items()
            if found.get(at[0], (-1, 0))[0] == at[1]
        }
        for partition, (first, end) in sorted(found.items()):
            since = self._open_since.setdefault((partition, first), now)
            if (partition, first) in self._reported or (
                not self.options.once and now - since < _LONG_SECONDS
            ):
                continue
            self._reported.add((partition, first))
            self.session.warn(
                f"partition {partition} of topic {self.options.topic}: {end - first:,} messages from offset {first} "
                "on wait for a transaction that is not complete; if its producer has ended, abort it with "
                "kafka-transactions.sh"
            )

    def _first_offsets(self) -> dict[int, int]:
        """Return where a new stream starts."""
        if self.options.start_at is not None:
            return self.client.offsets_at(self.options.start_at, self.topic)
        return {partition: end for partition, (_, end) in self.topic.bounds.items()}

    def keep_start(self) -> None:
        """Commit the start of a new stream: the next run would start with later messages.

        Raises:
            NotFoundError: there is no table yet that could keep it.
            RefusedError: the stream is not new: the table was rolled back to before it.
        """
        if self.epoch is not None or self.options.start == EARLIEST:
            return
        table, stream = self.table_now(), self.options.stream
        if table is None:
            raise NotFoundError(
                f"no table named {self.table}",
                hint=f"a stream that does not start with the first message needs a table that keeps its offsets: "
                f"create it, or load with {Option.START} {EARLIEST}",
            )
        if self.is_noted(table):
            raise self.lost_start()
        epoch = StreamEpoch(stream, 1, to_offsets(self.topic, self.following))
        self.totals.mark(commit_mark(self.session, table, self.options.branch, epoch))
        self._look()

    # Reading

    def _collect(self, spool: Spool) -> None:
        """Read messages until they make an epoch, or nothing is left of what there was at the beginning."""
        clock = self.session.clock
        due = clock.monotonic() + self.options.commit_interval / 1000
        heard = clock.monotonic()
        while spool.size < self.options.commit_size and self.failure is None:
            now = clock.monotonic()
            if self._is_complete() or (not self.options.once and now >= due):
                return
            if self.options.once and now - heard > _STALLED_SECONDS:
                raise self.client.stalled()
            if self._read(spool):
                heard = clock.monotonic()

    def _read(self, spool: Spool) -> bool:
        """Read what has arrived, and return whether that was anything."""
        arrived = False
        try:
            for item in self.client.read():
                arrived = True
                if item.is_end:
                    self._reached_end(item)
                elif item.offset >= self.following[item.partition]:
                    if self._is_skipped(item):
                        self._skip(spool, item)
                    elif item.value is not None:
                        spool.add(item.partition, item.offset, item.value, item.metadata)
                    self.following[item.partition] = item.offset + 1
        except OffsetsGoneError:
            self._look()
            # Other messages may have arrived with the error, and were not looked at.
            self.client.seek(self.following)
        except BadInputError as error:
            self.failure = error
        return arrived

    def _is_skipped(self, item: Item) -> bool:
        return not self.options.skip.isdisjoint(
            {(item.partition, item.offset), (None, item.offset)}
        )

    def _skip(self, spool: Spool, item: Item) -> None:
        """Leave out a message that the user named."""
        spool.skipped += 1
        self.skipped.append(f"{item.partition}:{item.offset}")
        self.session.warn(
            f"the message at offset {item.offset} of partition {item.partition} of topic {self.options.topic} is "
            "skipped: it is not loaded"
        )

    def _reached_end(self, item: Item) -> None:
        # Behind the last message there may be marks of transactions, which have offsets too.
        self.following[item.partition] = max(item.offset, self.following[item.partition])
        # Behind it there may also be messages of transactions that are not committed yet.
        if item.partition in self.ends:
            self.ends[item.partition] = min(item.offset, self.ends[item.partition])

    # Loading

    def _load(self, spool: Spool) -> bool:
        """Commit the messages as the next epoch, and return whether this run did it."""
        self.set_aside += spool.set_aside
        if not spool.rows and not spool.passed:
            return False
        topic_id = self.client.topic_id()
        if topic_id != self.topic.topic_id:
            raise recreated_error(
                self.options.topic, f"its id was {self.topic.topic_id} and is {topic_id}"
            )
        number = self.epoch_number + 1
        wanted = StreamEpoch(self.options.stream, number, to_offsets(self.topic, self.following))
        if not spool.rows:
            # Without their offsets, the next run would find the messages again.
            is_own = self._continue_after(wanted, is_own=self._mark(wanted))
            self.totals.epochs += is_own
            return is_own
        files = spool.finish()
        request = LoadRequest(
            options=replace(self.loader.options, sources=files),
            epoch=wanted,
            places=spool.places,
            added=spool.added,
        )
        with spool.messages_named():
            outcome = self.loader.load(lambda: request)
        is_own = outcome.status is not Status.NOTHING_TO_DO
        rejected = IngestResult.of(outcome.result).rows_rejected
        if rejected and not outcome.snapshot_ids:
            # All messages were rejected: without their offsets they would be rejected again.
            is_own = self._mark(wanted)
        if not self._continue_after(wanted, is_own=is_own):
            return False
        if self.options.rejects_aside:
            self.set_aside += rejected
        self.totals.add(outcome, len(files))
        self.messages += spool.rows
        return True

    def _mark(self, wanted: StreamEpoch) -> bool:
        """Commit the offsets of messages without a row, and return whether this run did it."""
        table = self.table_now()
        if table is None:
            return False
        marked = commit_mark(self.session, table, self.options.branch, wanted)
        if not marked.already:
            self.totals.snapshot_id = marked.snapshot_id
        return not marked.already

    def _continue_after(self, wanted: StreamEpoch, *, is_own: bool) -> bool:
        """Take the stream's newest epoch for the one to continue after; return whether this run committed it."""
        _, newest = self.newest()
        if newest == wanted and is_own:
            self.epoch = newest
            return True
        if newest != self.epoch:
            self.session.warn(
                f"another run of stream {self.options.stream} committed {newest}: this run continues after it"
            )
            self._look()
        return False

    # The outcome

    def describe(self) -> str:
        """Return what is loaded."""
        return f"loading topic {self.options.topic}"

    def count_waiting(self) -> tuple[str, int | None]:
        """Return how many messages wait."""
        return "messages", self.topic.lag(self.following)

    @property
    def is_odd(self) -> bool:
        """Whether messages were passed over or set aside."""
        return bool(self.gaps or self.set_aside)

    def metrics(self) -> Mapping[str, float | None]:
        """Return what the file of metrics contains."""
        return {
            "epoch": self.epoch_number,
            "lag_messages": self.topic.lag(self.following),
            "open_transactions": len(self.topic.open_transactions),
            "gaps": len(self.gaps),
            "set_aside_total": self.set_aside,
        }

    def facts(self) -> TopicResult:
        """Return the result."""
        return TopicResult(
            rows=self.totals.rows,
            epochs=self.totals.epochs,
            messages=self.messages,
            messages_set_aside=self.set_aside,
            messages_skipped=self.skipped,
            offsets=_plain(self.following),
            lag_messages=self.topic.lag(self.following),
            open_transactions=[
                OpenTransaction(partition=partition, offset=first, end=end)
                for partition, (first, end) in sorted(self.topic.open_transactions.items())
            ],
            gaps=self.gaps,
            compactions=self.compactions,
            stopped_by=self.stopped_by,
        )


def _plain(following: Mapping[int, int]) -> dict[str, int]:
    return {str(partition): following[partition] for partition in sorted(following)}
