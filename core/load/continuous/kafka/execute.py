"""Load a topic: read messages from the offsets in the table, and commit them with the offsets after them."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from lake.core.base.errors import (
    BadInputError,
    InvalidRequestError,
    LakeError,
    NotFoundError,
    RefusedError,
    ReportedError,
)
from lake.core.base.options import Option
from lake.core.base.outcome import Outcome, Status
from lake.core.base.units import iso_time
from lake.core.load.continuous.kafka.client import Client, Item, OffsetsGoneError
from lake.core.load.continuous.kafka.metadata import check_columns
from lake.core.load.continuous.kafka.offsets import (
    Topic,
    TopicGap,
    recreated_error,
    starting_offsets,
    to_offsets,
)
from lake.core.load.continuous.kafka.options import EARLIEST, LATEST, KafkaOptions
from lake.core.load.continuous.kafka.spool import Check, Spool, check_of
from lake.core.load.continuous.monitor import Monitor
from lake.core.load.continuous.runs import (
    Stopped,
    Totals,
    between_epochs,
    commit_mark,
    compacted,
    with_new_plans,
)
from lake.core.read.continuous.options import OnGap
from lake.core.table.snapshots import ancestry
from lake.core.table.snapshots.branch_notes import key_of
from lake.core.table.snapshots.streams import STREAM_NOTES, StreamEpoch, newest_epoch
from lake.core.transaction.session import Session

if TYPE_CHECKING:
    from lake.core.table.catalogs.catalog import Table

# Loads the files of an epoch, whose rows have these names and offsets, and more columns in the files beside them.
LoadMessages = Callable[
    [
        Sequence[str],
        StreamEpoch,
        Mapping[str, tuple[str, Sequence[int]]],
        Mapping[str, str],
    ],
    Outcome,
]
# Without a message and without the end of a partition for this long, a run with `once` ends.
_STALLED_SECONDS = 60.0
# A service reports a transaction that is not complete for longer than this.
_LONG_SECONDS = 60.0
_UNSEEN = Topic("", None, {})


def preview_topic(session: Session, table: str, options: KafkaOptions) -> Outcome:
    """Describe what the next run would load; no message is read."""
    load = _TopicLoad(session, table, options, check_of(options))
    try:
        plan = load.plan()
    finally:
        load.client.close()
    return load.outcome(Status.DRY_RUN, plan)


def topic_status(session: Session, table: str, options: KafkaOptions) -> Outcome:
    """Report where a load from a topic is; no message is read, and nothing is written.

    A gap, at which the next run would end, makes the outcome suspect.
    """
    load = _TopicLoad(session, table, replace(options, on_gap=OnGap.SKIP), check_of(options))
    try:
        plan = load.plan()
    finally:
        load.client.close()
    outcome = load.outcome(Status.SUSPECT if load.gaps else Status.DONE, plan)
    if not load.gaps:
        return outcome
    hint = f"{Option.ON_GAP} skip goes on with the messages that are left; without it, a run ends at the gap"
    return replace(outcome, warnings=[hint])


def run_topic(
    session: Session,
    table: str,
    options: KafkaOptions,
    load_epoch: LoadMessages,
    compact: Callable[[], Outcome] | None = None,
) -> Outcome:
    """Load messages, epoch by epoch, until the options or a signal say to stop.

    Args:
        session: the session.
        table: the table's name.
        options: what is loaded.
        load_epoch: loads the files of an epoch.
        compact: compacts the table if that is due; None to never do it.

    Raises:
        InvalidRequestError: the start is in the future.
        RefusedError: the topic was created again, or the stream loads another source.
        TopicGapError: messages were deleted before they were loaded.
        BadInputError: a message cannot be loaded.
        CommitUnknownError: the outcome of an epoch is unknown; the next run finds out.
    """
    load = _TopicLoad(session, table, options, check_of(options))
    with session.interrupts.several_commits():
        try:
            plan = load.plan()
            load.keep_start()
            load.run(load_epoch, compact)
        except ReportedError as error:
            if load.totals.epochs:
                error.result = load.facts()
            with suppress(LakeError):
                load.show(failed=True)
            raise
        finally:
            load.client.close()
    return load.outcome(None, plan)


@dataclass(slots=True)
class _TopicLoad:
    """One run of a load from a topic."""

    session: Session
    table: str
    options: KafkaOptions
    check: Check
    client: Client = field(init=False)
    topic: Topic = _UNSEEN
    # The next offsets to read, and the epoch after which they are; None before the table was looked at.
    following: dict[int, int] = field(default_factory=dict)
    epoch: StreamEpoch | None = None
    gaps: list[TopicGap] = field(default_factory=list)
    totals: Totals = field(default_factory=Totals)
    messages: int = 0
    set_aside: int = 0
    skipped: list[str] = field(default_factory=list)
    compactions: int = 0
    stopped_by: str | None = None
    base_snapshot_id: int | None = None
    # The error of a message, to be raised after the messages before it were loaded.
    failure: BadInputError | None = None
    # Transactions that are not complete, by partition and first offset, and those that were reported.
    _open_since: dict[tuple[int, int], float] = field(default_factory=dict)
    _reported: set[tuple[int, int]] = field(default_factory=set)
    # The offsets after the last messages when the run began, by partition.
    ends: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.client = Client(self.options)

    def run(self, load_epoch: LoadMessages, compact: Callable[[], Outcome] | None) -> None:
        """Load epochs until there is a reason to stop."""
        self.ends = {partition: end for partition, (_, end) in self.topic.bounds.items()}
        if self.epoch is not None:
            # A killed run may have committed the last epoch and not compacted after it.
            self.compactions += compacted(self.session, compact)
        number, lag = self.epoch.number if self.epoch else 0, self.topic.lag(self.following)
        self.monitor.say(
            f"loading topic {self.options.topic} as stream {self.options.stream} after epoch {number}; "
            f"messages waiting: {lag:,}",
            epoch=number,
            lag_messages=lag,
        )
        try:
            while not self._is_complete():
                with tempfile.TemporaryDirectory(prefix="lake-kafka-") as folder:
                    spool = Spool(folder, self.options, self.check)
                    with between_epochs():
                        self.session.interrupts.checkpoint()
                        self._collect(spool)
                    is_loaded = self._load(spool, load_epoch)
                if self.failure is not None:
                    raise self.failure
                self.show()
                if is_loaded:
                    lag = self.topic.lag(self.following)
                    number = self.epoch.number if self.epoch else 0
                    self.monitor.say(
                        f"epoch {number}: messages: {spool.rows:,}; waiting: {lag:,}",
                        epoch=number,
                        messages=spool.rows,
                        lag_messages=lag,
                    )
                    self.compactions += compacted(self.session, compact)
                if not self.options.once:
                    with between_epochs():
                        self._look()
        except Stopped:
            self.stopped_by = "signal"
        else:
            self.stopped_by = "once"

    def _is_complete(self) -> bool:
        """Whether everything was read that was there when the run began."""
        return self.options.once and all(
            self.following[partition] >= end for partition, end in self.ends.items()
        )

    # Where to read

    def plan(self) -> dict[str, Any]:
        """Look at the topic and the table, and return the plan."""
        self._check_request()
        self._look()
        metadata = dict(self.options.kafka_metadata)
        return {
            "topic": self.options.topic,
            "stream": self.options.stream,
            **({"metadata": metadata} if metadata else {}),
            "epoch": self.epoch.number if self.epoch else 0,
            "offsets": _plain(self.following),
            "messages": self.topic.readable(self.following),
        }

    def _check_request(self) -> None:
        """Refuse what cannot be loaded before any message is read.

        Raises:
            InvalidRequestError: the start is in the future.
            BadInputError: a metadata column does not fit the table.
        """
        options = self.options
        start, now_ms = options.start_at_ms, self.session.clock.now_ms()
        if start is not None and start > now_ms:
            raise InvalidRequestError(
                f"{Option.START_AT_MS} {iso_time(start)} is in the future: it is {iso_time(now_ms)}",
                hint=f"{Option.STARTING} {LATEST} starts with the messages that arrive from now on",
            )
        if (table := self._table()) is not None:
            check_columns(table, options.topic, options.kafka_metadata, evolve=options.evolve)

    def _look(self) -> None:
        """Determine the offsets to read from: those in the table, or later ones that contained no row."""
        before, self.topic = self.topic, self.client.topic()
        table = self._table()
        newest = newest_epoch(table, self.options.branch, self.options.stream) if table else None
        if self.base_snapshot_id is None and table is not None:
            self.base_snapshot_id = ancestry.head_id(table.metadata, self.options.branch)
        saved: Mapping[str, Any] | None = newest.offsets if newest else None
        if self.following and newest == self.epoch:
            saved = to_offsets(before, self.following)
        if saved is None and self.options.starting != EARLIEST:
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
        if self.options.start_at_ms is not None:
            return self.client.offsets_at(self.options.start_at_ms, self.topic)
        return {partition: end for partition, (_, end) in self.topic.bounds.items()}

    def keep_start(self) -> None:
        """Commit the start of a new stream: the next run would start with later messages.

        Raises:
            NotFoundError: there is no table yet that could keep it.
            RefusedError: the stream is not new: the table was rolled back to before it.
        """
        if self.epoch is not None or self.options.starting == EARLIEST:
            return
        table, stream = self._table(), self.options.stream
        if table is None:
            raise NotFoundError(
                f"no table named {self.table}",
                hint=f"a stream that does not start with the first message needs a table that keeps its offsets: "
                f"create it, or load with {Option.STARTING} {EARLIEST}",
            )
        if STREAM_NOTES.notes(table.metadata, self.options.branch).get(key_of(stream)):
            raise RefusedError(
                f"the start of stream {stream} in {self.table} is not known: branch {self.options.branch} was rolled "
                "back to a snapshot before the stream's first epoch",
                hint=f"choose another {Option.STREAM}, and its start",
            )
        epoch = StreamEpoch(stream, 1, to_offsets(self.topic, self.following))
        self.totals.mark(commit_mark(self.session, table, self.options.branch, epoch))
        self._look()

    def _table(self) -> Table | None:
        try:
            return self.session.table(self.table)
        except NotFoundError:
            return None

    # Reading

    def _collect(self, spool: Spool) -> None:
        """Read messages until they make an epoch, or nothing is left of what there was at the beginning."""
        clock = self.session.clock
        due = clock.monotonic() + self.options.commit_interval_ms / 1000
        heard = clock.monotonic()
        while spool.size < self.options.commit_bytes and self.failure is None:
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

    def _load(self, spool: Spool, load_epoch: LoadMessages) -> bool:
        """Commit the messages as the next epoch, and return whether this run did it."""
        self.set_aside += spool.set_aside
        if not spool.rows and not spool.passed:
            return False
        topic_id = self.client.topic_id()
        if topic_id != self.topic.topic_id:
            raise recreated_error(
                self.options.topic, f"its id was {self.topic.topic_id} and is {topic_id}"
            )
        number = self.epoch.number + 1 if self.epoch else 1
        wanted = StreamEpoch(self.options.stream, number, to_offsets(self.topic, self.following))
        if not spool.rows:
            # Without their offsets, the next run would find the messages again.
            is_own = self._continue_after(wanted, is_own=self._mark(wanted))
            self.totals.epochs += is_own
            return is_own
        files = spool.finish()
        with spool.messages_named():
            outcome = with_new_plans(
                self.session, lambda: load_epoch(files, wanted, spool.places, spool.added)
            )
        is_own = outcome.status is not Status.NOTHING_TO_DO
        if outcome.result.get("rows_rejected") and not outcome.snapshot_ids:
            # All messages were rejected: without their offsets they would be rejected again.
            is_own = self._mark(wanted)
        if not self._continue_after(wanted, is_own=is_own):
            return False
        if self.options.rejects_aside:
            self.set_aside += outcome.result.get("rows_rejected", 0)
        self.totals.add(outcome, len(files))
        self.messages += spool.rows
        return True

    def _mark(self, wanted: StreamEpoch) -> bool:
        """Commit the offsets of messages without a row, and return whether this run did it."""
        table = self._table()
        if table is None:
            return False
        marked = commit_mark(self.session, table, self.options.branch, wanted)
        if not marked.already:
            self.totals.snapshot_id = marked.snapshot_id
        return not marked.already

    def _continue_after(self, wanted: StreamEpoch, *, is_own: bool) -> bool:
        """Take the stream's newest epoch for the one to continue after; return whether this run committed it."""
        table = self._table()
        newest = newest_epoch(table, self.options.branch, self.options.stream) if table else None
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

    @property
    def monitor(self) -> Monitor:
        """Shows the progress."""
        return Monitor.of(self.session, self.table, self.options)

    def show(self, *, failed: bool = False) -> None:
        """Replace the file of metrics."""
        facts = self.facts()
        self.monitor.looked(
            {
                "epoch": self.epoch.number if self.epoch else 0,
                "lag_messages": facts["lag_messages"],
                "open_transactions": len(facts["open_transactions"]),
                "gaps": len(facts["gaps"]),
                "epochs_total": facts["epochs"],
                "rows_total": facts.get("rows_written") or 0,
                "rows_rejected_total": facts.get("rows_rejected") or 0,
                "set_aside_total": facts["messages_set_aside"],
            },
            failed=failed,
        )

    def facts(self) -> dict[str, Any]:
        """Return the result."""
        counted = {
            key: value for key, value in self.totals.facts().items() if not key.startswith("files_")
        }
        return {
            **counted,
            "messages": self.messages,
            "messages_set_aside": self.set_aside,
            "messages_skipped": self.skipped,
            "offsets": _plain(self.following),
            "lag_messages": self.topic.lag(self.following),
            "open_transactions": [
                {"partition": partition, "offset": first, "end": end}
                for partition, (first, end) in sorted(self.topic.open_transactions.items())
            ],
            "gaps": [gap.to_plain() for gap in self.gaps],
            "compactions": self.compactions,
            "stopped_by": self.stopped_by,
        }

    def outcome(self, status: Status | None, plan: Mapping[str, Any]) -> Outcome:
        """Return the outcome; the status follows from what was done if it is None."""
        if status is None:
            is_changed = self.compactions or self.totals.epochs
            status = Status.DONE if is_changed else Status.NOTHING_TO_DO
            if self.gaps or self.set_aside:
                status = Status.PARTIAL
        snapshot_id = self.totals.snapshot_id
        return Outcome(
            command="ingest",
            table=self.table,
            branch=self.options.branch,
            status=status,
            operation_id=self.totals.operation_id,
            base_snapshot_id=self.base_snapshot_id,
            snapshot_ids=[] if snapshot_id is None else [snapshot_id],
            plan=plan,
            result={} if status is Status.DRY_RUN else self.facts(),
        )


def _plain(following: Mapping[int, int]) -> dict[str, int]:
    return {str(partition): following[partition] for partition in sorted(following)}
