"""The options of a load from a Kafka topic, and their checks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from lake.core.base.choices import OnGap
from lake.core.base.errors import InvalidRequestError
from lake.core.base.options import Option
from lake.core.table.snapshots import ancestry

JSON, AVRO = "json", "avro"
EARLIEST, LATEST, TIMESTAMP = "earliest", "latest", "timestamp"
# The names of Flink's connector for its option scan.startup.mode.
_STARTS = {"earliest-offset": EARLIEST, "latest-offset": LATEST}
VALUE_FORMATS = (JSON, AVRO)
METADATA = ("key", "headers", "topic", "partition", "offset", "timestamp")
_MINUTE_MS = 60_000
_MIB = 1 << 20
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_NUMBER = re.compile(r"[0-9]{1,18}")
# Settings on which exactly one load of each message depends.
_OWN = frozenset(
    {
        "allow.auto.create.topics",
        "auto.offset.reset",
        "bootstrap.servers",
        "enable.auto.commit",
        "enable.auto.offset.store",
        "enable.partition.eof",
        "isolation.level",
        "metadata.broker.list",
        "plugin.library.paths",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaOptions:
    """The options of a load from a topic. Sizes are in bytes, times in milliseconds.

    Args:
        topic: the topic.
        brokers: ``host:port``, or several of them with commas between.
        stream: the stream's id.
        branch: the branch to load into.
        format: the format of the messages' values, one of `VALUE_FORMATS`.
        avro_schema: the text of the schema of Avro values.
        conf: further settings of the client, by librdkafka's names.
        kafka_metadata: the columns that contain something else than a part of the value, one of `METADATA`.
        evolve: whether the table gets columns that it lacks.
        commit_interval: commit at least this often if there are messages.
        commit_size: commit as soon as there are values of this size.
        on_gap: what to do about messages that were deleted before they were loaded.
        start: where a new stream starts: `EARLIEST`, `LATEST`, or `TIMESTAMP` with a time.
        start_at: the time of the first messages of a new stream.
        skip: messages that are not loaded, by partition (None for the only one) and offset.
        bad_files: a folder for values that do not have the format; None to fail.
        rejects_aside: whether the values that do not fit the table are written to that folder too.
        once: load what is there and end.
        metrics_file: a file of metrics, replaced at each look; None to write none.
        quiet: print no line at the start and after commits.

    Raises:
        InvalidRequestError: a value is not valid or contradicts another.
    """

    topic: str
    brokers: str
    stream: str
    branch: str = ancestry.MAIN
    format: str = JSON
    avro_schema: str | None = None
    conf: Mapping[str, str] = field(default_factory=dict, repr=False)
    kafka_metadata: Mapping[str, str] = field(default_factory=dict)
    evolve: bool = False
    commit_interval: int = _MINUTE_MS
    commit_size: int = 512 * _MIB
    on_gap: OnGap = OnGap.FAIL
    start: str = EARLIEST
    start_at: int | None = None
    skip: frozenset[tuple[int | None, int]] = frozenset()
    bad_files: str | None = None
    rejects_aside: bool = False
    once: bool = False
    metrics_file: str | None = None
    quiet: bool = False

    def __post_init__(self) -> None:
        if not _TOPIC.fullmatch(self.topic) or self.topic in {".", ".."}:
            raise InvalidRequestError(f"not a name of a Kafka topic: {self.topic!r}")
        if self.commit_interval <= 0 or self.commit_size <= 0:
            raise InvalidRequestError(
                f"{Option.COMMIT_INTERVAL} and {Option.COMMIT_SIZE} must be positive"
            )
        if self.format not in VALUE_FORMATS:
            raise InvalidRequestError(
                f"values of messages are {' or '.join(VALUE_FORMATS)}, not {self.format}"
            )
        if (self.format == AVRO) != (self.avro_schema is not None):
            raise InvalidRequestError(
                f"{Option.AVRO_SCHEMA} and {Option.FORMAT} avro need each other"
            )
        if (self.start == TIMESTAMP) != (self.start_at is not None):
            raise InvalidRequestError(
                f"{Option.START} {TIMESTAMP} and {Option.START_AT} need each other"
            )
        for column, name in self.kafka_metadata.items():
            if name not in METADATA:
                raise InvalidRequestError(
                    f"{Option.KAFKA_METADATA} {column}={name} is not one of {', '.join(METADATA)}"
                )
        if own := sorted(_OWN.intersection(self.conf)):
            raise InvalidRequestError(
                f"{own[0]} cannot be set: lake sets it so that each message is loaded once"
            )


def parse_start(text: str) -> str:
    """Return where a new stream starts, by lake's name or by Flink's.

    Raises:
        InvalidRequestError: there is no such start.
    """
    name = _STARTS.get(text.lower(), text.lower())
    if name not in {EARLIEST, LATEST, TIMESTAMP}:
        raise InvalidRequestError(
            f"{Option.START} of a topic is {text!r}, not {EARLIEST}, {LATEST} or {TIMESTAMP}"
        )
    return name


def parse_skipped(text: str) -> tuple[int | None, int]:
    """Return the partition, if it is given, and the offset of a message.

    Raises:
        InvalidRequestError: the text is not ``PARTITION:OFFSET`` or ``OFFSET``.
    """
    partition, colon, offset = text.rpartition(":")
    if not _NUMBER.fullmatch(offset) or (colon and not _NUMBER.fullmatch(partition)):
        raise InvalidRequestError(
            f"{Option.SKIP} of a topic is {text!r}, not PARTITION:OFFSET",
            hint="the error about a message names its partition and its offset",
        )
    return int(partition) if colon else None, int(offset)


def parse_properties(lines: Iterable[str], name: str) -> dict[str, str]:
    """Read the settings in a file of lines ``name=value``; ``#`` begins a comment.

    Raises:
        InvalidRequestError: a line is not a setting. The message contains its number only: it may be a secret.
    """
    found: dict[str, str] = {}
    for number, line in enumerate(lines, start=1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise InvalidRequestError(f"line {number} of {name} is not a setting NAME=VALUE")
        found[key.strip()] = value.strip()
    return found
