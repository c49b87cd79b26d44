"""The options of continuous loads: `lake ingest --watch`, `--follow` and `--kafka`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from lake.commands.groups import Flag, flags_given
from lake.commands.options import Wait, absolute_time, duration, size
from lake.core.base.choices import STARTS, OnCopy, OnGap, OnRewrite
from lake.core.base.errors import InvalidRequestError
from lake.core.base.units import parse_time_ms


@dataclass(frozen=True, kw_only=True)
class Stream:
    """Continuous load."""

    stream: Annotated[str | None, Flag("Name of the stream that the load continues.", "ID")] = None
    once: Annotated[bool, Flag("Load what is there, then end; for cron.")] = False
    commit_interval: Annotated[int | None, duration("Commit at least this often [60s].")] = None
    metrics_file: Annotated[
        str | None, Flag("Replace this file of Prometheus metrics at each look.", "FILE")
    ] = None


@dataclass(frozen=True, kw_only=True)
class Beside:
    """Continuous load.

    What is done beside the loads, or in place of them.
    """

    then_compact: Annotated[
        str | None, Flag("Compact after a commit if this is due, e.g. 'files >= 100'.", "EXPR")
    ] = None
    status: Annotated[bool, Flag("Show epoch, lag and what is stuck; load nothing.")] = False


@dataclass(frozen=True, kw_only=True)
class Watch:
    """Continuous load of files."""

    watch: Annotated[
        str | None, Flag("Load files that arrive in a folder, prefix or glob, each once.", "SOURCE")
    ] = None
    state: Annotated[
        str | None, Flag("Local folder in which --watch notes what was loaded.", "DIR")
    ] = None
    commit_files: Annotated[int | None, Flag("Commit at this number of files [1000].", "N")] = None
    settle: Annotated[
        int | None, duration("Take files that did not change for this long [10s].")
    ] = None
    done: Annotated[
        str | None, Flag("What happens to loaded files [keep].", "keep|delete|move:DIR")
    ] = None
    on_rewrite: Annotated[OnRewrite | None, Flag("If a loaded file was changed [fail].")] = None
    on_copy: Annotated[
        OnCopy | None,
        Flag(
            "If a new file has the name, size and time of a loaded one in another folder [report]."
        ),
    ] = None
    new_source: Annotated[
        bool,
        Flag(
            "The watched folder was moved: the files in it by the names of loaded ones are loaded."
        ),
    ] = False
    resume: Annotated[bool, Flag("Continue a stream whose state folder was lost.")] = False
    wait: Wait = None


@dataclass(frozen=True, kw_only=True)
class Arrivals:
    """Continuous load of files or messages."""

    commit_size: Annotated[int | None, size("Commit at this size of files [512MB].")] = None
    skip: Annotated[
        tuple[str, ...],
        Flag("Never load this file or message; repeatable.", "FILE|PARTITION:OFFSET"),
    ] = ()
    bad_files: Annotated[
        str | None, Flag("Move what cannot be loaded there, and go on.", "DIR")
    ] = None


@dataclass(frozen=True, kw_only=True)
class Follow:
    """Continuous load of a table."""

    follow: Annotated[bool, Flag("With --from-table: load the rows that are added, once each.")] = (
        False
    )
    from_snapshot: Annotated[
        str | None,
        Flag(
            "Start after this snapshot of the table that is followed.",
            "REF",
            callback=absolute_time,
        ),
    ] = None
    inclusive: Annotated[bool, Flag("Start with the rows of --from-snapshot itself.")] = False


@dataclass(frozen=True, kw_only=True)
class Position:
    """Continuous load of a table or of messages."""

    on_gap: Annotated[
        str | None,
        Flag("If rows or messages are gone before they were loaded [fail].", "|".join(OnGap)),
    ] = None
    start: Annotated[
        str | None,
        Flag("Where a new stream starts [default: table; Kafka: earliest].", "|".join(STARTS)),
    ] = None
    start_at: Annotated[
        int | None,
        Flag("Start with the first snapshot or message since TIME.", "TIME", parse=parse_time_ms),
    ] = None


@dataclass(frozen=True, kw_only=True)
class Topic:
    """Continuous load of messages."""

    kafka: Annotated[
        str | None, Flag("Load the messages of a Kafka topic, each once.", "TOPIC")
    ] = None
    brokers: Annotated[str | None, Flag("Brokers of the topic.", "HOST:PORT,…")] = None
    kafka_conf: Annotated[
        tuple[str, ...], Flag("Setting of the Kafka client (librdkafka); repeatable.", "K=V")
    ] = ()
    kafka_conf_file: Annotated[
        str | None, Flag("File of such settings, for passwords.", "FILE")
    ] = None
    kafka_metadata: Annotated[
        tuple[str, ...],
        Flag(
            "Load key, headers, topic, partition, offset or timestamp; repeatable.", "COLUMN=FIELD"
        ),
    ] = ()
    avro_schema: Annotated[
        str | None, Flag("Schema of the messages, with --format avro.", "FILE")
    ] = None


@dataclass(frozen=True, kw_only=True)
class Streaming:
    """All options of continuous loads, by the ways to go on that have them."""

    stream: Stream
    beside: Beside
    watch: Watch
    arrivals: Arrivals
    follow: Follow
    position: Position
    topic: Topic

    @property
    def way(self) -> str | None:
        """The option by which the load goes on; None if it does not.

        Raises:
            InvalidRequestError: an option needs one that makes it go on, or contradicts it.
        """
        own = {
            "--watch": (self.watch, self.arrivals),
            "--follow": (self.follow, self.position),
            "--kafka": (self.topic, self.arrivals, self.position),
        }
        chosen = flags_given(self)
        way = next((flag for flag in own if flag in chosen), None)
        for flag in chosen:
            having = [
                name
                for name, groups in own.items()
                if flag in flags_given(self.stream, self.beside, *groups)
            ]
            if way is None:
                raise InvalidRequestError(f"{flag} needs {' or '.join(having)}")
            if way not in having:
                raise InvalidRequestError(f"{flag} and {way} contradict each other")
        return way

    def sources(self, given_names: list[str]) -> list[str]:
        """Return the sources of the load; what is watched counts as one."""
        watched, topic = self.watch.watch, self.topic.kafka
        source = topic if watched is None else watched
        if source is None:
            return given_names
        if given_names:
            option = "--kafka" if watched is None else "--watch"
            raise InvalidRequestError(f"files and {option} contradict each other")
        return [source]
