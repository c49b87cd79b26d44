"""The client of a topic: its bounds, and its messages from given offsets, through confluent-kafka.

Only messages of committed transactions are read. The client commits no offsets to the brokers and never resets one:
the offsets are in the table.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from lake.core.base.errors import (
    InvalidRequestError,
    LakeError,
    NotAuthorisedError,
    NotFoundError,
    StorageError,
    TimedOutError,
)
from lake.core.base.redaction import one_line
from lake.core.load.continuous.kafka.metadata import Values, reader_of
from lake.core.load.continuous.kafka.offsets import Topic
from lake.core.load.continuous.kafka.options import KafkaOptions

_TIMEOUT_SECONDS = 30.0
_ATTEMPTS, _ATTEMPT_SECONDS = 10, 3.0
# A stop signal is noticed between two calls.
_POLL_SECONDS = 0.2
_MESSAGES_AT_ONCE = 5_000
_LONGEST_REASON = 300
_UNAUTHORISED = (
    "_AUTHENTICATION",
    "CLUSTER_AUTHORIZATION_FAILED",
    "GROUP_AUTHORIZATION_FAILED",
    "SASL_AUTHENTICATION_FAILED",
    "TOPIC_AUTHORIZATION_FAILED",
)
_MISSING = ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_PARTITION", "_UNKNOWN_TOPIC")
_SLOW = ("REQUEST_TIMED_OUT", "_ALL_BROKERS_DOWN", "_TIMED_OUT", "_TRANSPORT")
# What the client reports while it goes on trying.
_TEMPORARY = (*_SLOW, "_RESOLVE")


class OffsetsGoneError(LakeError):
    """Offsets to read are not in the topic any more; the topic must be looked at again."""


class Item(NamedTuple):
    """A message, or the end of a partition: then the value is None and the offset is the next one.

    A message whose value is null is a tombstone, which contains no row. The metadata are the values of the options'
    metadata columns.
    """

    partition: int
    offset: int
    value: bytes | None
    is_end: bool = False
    metadata: Values = ()


class Client:
    """A connection to the brokers of a topic."""

    def __init__(self, options: KafkaOptions) -> None:
        """Make the client; nothing is connected yet.

        Raises:
            InvalidRequestError: confluent-kafka is not installed, or does not accept a setting.
        """
        try:
            import confluent_kafka  # noqa: PLC0415 - an extra
            import confluent_kafka.admin  # noqa: PLC0415
        except ImportError as error:
            raise InvalidRequestError(
                "a Kafka topic needs the package confluent-kafka",
                hint="pip install 'lake-iceberg[kafka]'",
            ) from error
        self._api: Any = confluent_kafka
        self._topic = options.topic
        self._metadata = reader_of(options.kafka_metadata)
        self._trouble: str | None = None
        self._refused: str | None = None
        # Without a logger the client writes to standard error.
        logger = logging.Logger("lake.kafka")
        logger.addHandler(logging.NullHandler())
        common: dict[str, Any] = {
            **options.conf,
            "bootstrap.servers": options.brokers,
            "error_cb": self._note,
            "logger": logger,
        }
        reading: dict[str, Any] = {
            "group.id": f"lake-{options.stream}",
            **common,
            "allow.auto.create.topics": False,
            "auto.offset.reset": "error",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
        try:
            self._consumer: Any = confluent_kafka.Consumer(reading)
            self._admin: Any = confluent_kafka.admin.AdminClient(common)
        except (confluent_kafka.KafkaException, ValueError, TypeError) as error:
            raise InvalidRequestError(
                f"the Kafka client does not accept its settings: {self._text(error)}"
            ) from error

    def close(self) -> None:
        """Close the connections."""
        self._consumer.close()

    def _note(self, error: Any) -> None:
        """Keep the reason of the last trouble: later errors only say that time ran out."""
        self._trouble = str(error.str())
        if self._is_one_of(error, _UNAUTHORISED):
            self._refused = self._trouble

    def topic(self) -> Topic:
        """Return the topic as it is.

        Raises:
            NotFoundError: there is no such topic.
            NotAuthorisedError: the brokers refuse the credentials.
            TimedOutError: no broker answers.
        """
        api = self._api
        try:
            found = self._described()
            described = found.topics.get(self._topic)
            if described is None or described.error is not None:
                raise self._failure(described.error if described else None)
            bounds = {}
            for partition in sorted(described.partitions):
                at = api.TopicPartition(self._topic, partition)
                bounds[partition] = self._consumer.get_watermark_offsets(
                    at, timeout=_TIMEOUT_SECONDS
                )
        except api.KafkaException as error:
            raise self._failure(error.args[0]) from error
        if not bounds:
            raise NotFoundError(f"no topic named {self._topic}")
        return Topic(self._topic, self.topic_id(), bounds, self._ends(bounds))

    def _ends(self, partitions: Iterable[int]) -> dict[int, int]:
        """Return the offsets after the last messages, whether their transactions are complete or not."""
        api = self._api
        wanted = {
            api.TopicPartition(self._topic, partition): api.admin.OffsetSpec.latest()
            for partition in partitions
        }
        level = api.IsolationLevel.READ_UNCOMMITTED
        asked = self._admin.list_offsets(
            wanted, isolation_level=level, request_timeout=_TIMEOUT_SECONDS
        )
        try:
            return {at.partition: found.result().offset for at, found in asked.items()}
        except api.KafkaException as error:
            raise self._failure(error.args[0]) from error

    def _described(self) -> Any:
        """Return the brokers' description of the topic.

        The client tries again and again, and only a callback says that the brokers refuse the credentials.
        """
        for remaining in reversed(range(_ATTEMPTS)):
            try:
                return self._consumer.list_topics(self._topic, timeout=_ATTEMPT_SECONDS)
            except self._api.KafkaException as error:
                self._consumer.poll(0)
                if self._refused or not remaining or not self._is_one_of(error.args[0], _SLOW):
                    raise
        raise AssertionError("the last attempt returns or raises")

    def topic_id(self) -> str | None:
        """Return the topic's id; None if the brokers are older than these ids. See `topic` for errors."""
        wanted = self._api.TopicCollection([self._topic])
        asked = self._admin.describe_topics(wanted, request_timeout=_TIMEOUT_SECONDS)
        try:
            described = asked[self._topic].result()
        except self._api.KafkaException as error:
            if self._is_one_of(error.args[0], ("_UNSUPPORTED_FEATURE", "UNSUPPORTED_VERSION")):
                return None
            raise self._failure(error.args[0]) from error
        found = described.topic_id
        is_known = found.get_most_significant_bits() or found.get_least_significant_bits()
        return str(found) if is_known else None

    def offsets_at(self, time_ms: int, topic: Topic) -> dict[int, int]:
        """Return the offset of each partition's first message of a time or later; its end if there is none.

        Raises:
            StorageError: the brokers cannot look it up. See `topic` for more errors.
        """
        wanted = [
            self._api.TopicPartition(self._topic, partition, time_ms) for partition in topic.bounds
        ]
        try:
            found = self._consumer.offsets_for_times(wanted, timeout=_TIMEOUT_SECONDS)
        except self._api.KafkaException as error:
            raise self._failure(error.args[0]) from error
        for item in found:
            if item.error is not None:
                raise self._failure(item.error)
        return {
            item.partition: item.offset if item.offset >= 0 else topic.bounds[item.partition][1]
            for item in found
        }

    def seek(self, following: Mapping[int, int]) -> None:
        """Read from these offsets on."""
        try:
            self._consumer.assign(
                [
                    self._api.TopicPartition(self._topic, partition, offset)
                    for partition, offset in sorted(following.items())
                ]
            )
        except self._api.KafkaException as error:
            raise self._failure(error.args[0]) from error

    def read(self) -> Iterator[Item]:
        """Yield what has arrived; nothing if nothing arrives within a fraction of a second.

        Raises:
            OffsetsGoneError: an offset does not exist any more.
            NotAuthorisedError: the brokers refuse the credentials.
            StorageError: a message cannot be read.
            BadInputError: the name of a header is not UTF-8.
        """
        api = self._api
        try:
            messages = self._consumer.consume(_MESSAGES_AT_ONCE, timeout=_POLL_SECONDS)
        except api.KafkaException as error:
            raise self._failure(error.args[0]) from error
        for message in messages:
            trouble = message.error()
            if trouble is None:
                at, offset = message.partition(), message.offset()
                yield Item(at, offset, message.value(), metadata=self._metadata(message))
            elif self._is_one_of(trouble, ("_PARTITION_EOF",)):
                yield Item(message.partition(), message.offset(), None, is_end=True)
            elif self._is_one_of(trouble, ("_AUTO_OFFSET_RESET", "OFFSET_OUT_OF_RANGE")):
                raise OffsetsGoneError(f"topic {self._topic} has lost offsets: {trouble.str()}")
            elif not self._is_one_of(trouble, _TEMPORARY):
                raise self._failure(trouble)

    def stalled(self) -> LakeError:
        """Return the error of a run that received nothing for too long."""
        reason = f": {self._trouble}" if self._trouble else ""
        return TimedOutError(f"the brokers of topic {self._topic} do not answer{reason}")

    def _is_one_of(self, error: Any, names: tuple[str, ...]) -> bool:
        return error is not None and error.code() in {
            getattr(self._api.KafkaError, name, None) for name in names
        }

    def _failure(self, error: Any) -> LakeError:
        """Return the error of lake for one of the client."""
        if error is None or self._is_one_of(error, _MISSING):
            return NotFoundError(f"no topic named {self._topic}")
        reason = one_line(str(error.str()))[:_LONGEST_REASON]
        if self._refused is not None or self._is_one_of(error, _UNAUTHORISED):
            return NotAuthorisedError(
                f"the brokers do not allow to read topic {self._topic}: {self._refused or reason}"
            )
        if self._is_one_of(error, _SLOW):
            detail = f" ({one_line(self._trouble)[:_LONGEST_REASON]})" if self._trouble else ""
            return TimedOutError(
                f"the brokers of topic {self._topic} do not answer: {reason}{detail}"
            )
        return StorageError(f"topic {self._topic} cannot be read: {reason}")

    def _text(self, error: BaseException) -> str:
        first = error.args[0] if error.args else error
        text = first.str() if hasattr(first, "str") else str(first)
        return one_line(str(text))[:_LONGEST_REASON]
