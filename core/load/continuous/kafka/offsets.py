"""Where to continue in a topic: pure functions of the offsets in the table and of the topic as it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from lake.core.base.choices import OnGap
from lake.core.base.errors import BadInputError, RefusedError
from lake.core.base.options import Option
from lake.core.load.continuous.facts import TopicGap, TopicGaps

# The key of the ids of topics in an epoch's offsets: no topic has a name with this sign.
_IDS = "@ids"


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic as its brokers describe it.

    Args:
        name: its name.
        topic_id: its id, which changes when it is created again; None if the brokers do not say it.
        bounds: the first offset and the offset after the last message that can be read, by partition: messages of
            a transaction that is not complete, and those after them, cannot be read (the last stable offset).
        ends: the offset after the last message, by partition (the high watermark); empty if it is not known.
    """

    name: str
    topic_id: str | None
    bounds: Mapping[int, tuple[int, int]]
    ends: Mapping[int, int] = field(default_factory=dict)

    def lag(self, following: Mapping[int, int]) -> int:
        """Return how many offsets follow those up to which the topic was read, up to the high watermark."""
        return sum(
            max(
                max(end, self.ends.get(partition, end))
                - max(following.get(partition, first), first),
                0,
            )
            for partition, (first, end) in self.bounds.items()
        )

    def readable(self, following: Mapping[int, int]) -> int:
        """Return how many of them can be read now."""
        return replace(self, ends={}).lag(following)

    @property
    def open_transactions(self) -> Mapping[int, tuple[int, int]]:
        """The offsets from the last stable one to the high watermark, of partitions in which they differ."""
        return {
            partition: (end, self.ends[partition])
            for partition, (_, end) in self.bounds.items()
            if self.ends.get(partition, end) > end
        }


class TopicGapError(BadInputError):
    """Messages that were not loaded do not exist any more; nothing was changed."""

    kind = "gap"


@dataclass(frozen=True, slots=True)
class Start:
    """The next offset to read by partition, and what was deleted before it was read."""

    following: Mapping[int, int]
    gaps: tuple[TopicGap, ...] = field(default=())


def to_offsets(topic: Topic, following: Mapping[int, int]) -> dict[str, Any]:
    """Return the offsets of an epoch: the next offset by partition, by topic."""
    found: dict[str, Any] = {topic.name: {str(key): following[key] for key in sorted(following)}}
    if topic.topic_id is not None:
        found[_IDS] = {topic.name: topic.topic_id}
    return found


def starting_offsets(
    topic: Topic, saved: Mapping[str, Any] | None, stream: str, on_gap: OnGap
) -> Start:
    """Return where to continue.

    Args:
        topic: the topic as it is.
        saved: the offsets of the stream's newest epoch; None to begin with the first message.
        stream: the stream's id.
        on_gap: what to do about deleted messages.

    Raises:
        RefusedError: the topic was created again, or the stream is not one of this topic.
        TopicGapError: messages that were not loaded do not exist any more.
    """
    if saved is None:
        return Start({partition: first for partition, (first, _) in topic.bounds.items()})
    following = _following(topic, saved, stream)
    _refuse_another(topic, saved, following)  # check: same-topic
    gaps = tuple(
        TopicGap(partition, offset, topic.bounds[partition][0])
        for partition, offset in sorted(following.items())
        if offset < topic.bounds[partition][0]
    )
    if gaps and on_gap is OnGap.FAIL:  # check: gap-in-topic
        raise _gap_error(topic, gaps)
    starts = {partition: first for partition, (first, _) in topic.bounds.items()}
    for partition, offset in following.items():
        starts[partition] = max(offset, starts[partition])
    return Start(starts, gaps)


def _following(topic: Topic, saved: Mapping[str, Any], stream: str) -> dict[int, int]:
    """Return the next offsets in the table, which are untrusted.

    Raises:
        RefusedError: there are none of this topic, or they are not valid.
    """
    found = saved.get(topic.name)
    if not isinstance(found, dict):
        others = sorted(name for name in saved if name != _IDS)
        raise RefusedError(
            f"stream {stream} loads {', '.join(others)[:200] or 'another source'}, not topic {topic.name}",
            hint=f"choose another {Option.STREAM} for each source",
        )
    valid = {
        int(key): value
        for key, value in found.items()
        if str(key).isascii() and str(key).isdigit() and type(value) is int and value >= 0
    }
    if len(valid) != len(found):
        raise RefusedError(f"the offsets of stream {stream} in the table are not valid")
    return valid


def _refuse_another(topic: Topic, saved: Mapping[str, Any], following: Mapping[int, int]) -> None:
    """Refuse a topic that was deleted and created again: its offsets mean other messages.

    Raises:
        RefusedError: it was.
    """
    ids = saved.get(_IDS)
    before = ids.get(topic.name) if isinstance(ids, dict) else None
    reason = None
    if before is not None and topic.topic_id is not None and before != topic.topic_id:
        reason = f"its id is {topic.topic_id}, but {before} was loaded"
    for partition, offset in following.items():
        end = topic.bounds[partition][1] if partition in topic.bounds else None
        if end is None:
            reason = reason or f"it does not have partition {partition} any more"
        elif offset > end:
            reason = reason or f"partition {partition} ends at {end}, but was loaded up to {offset}"
    if reason is not None:
        raise recreated_error(topic.name, reason)


def recreated_error(name: str, reason: str) -> RefusedError:
    """Return the error of a topic that was deleted and created again."""
    return RefusedError(
        f"topic {name} was deleted and created again: {reason}",
        hint=f"choose another {Option.STREAM} to load the new topic from its beginning",
    )


def _gap_error(topic: Topic, gaps: tuple[TopicGap, ...]) -> TopicGapError:
    first = gaps[0]
    more = f" (and {len(gaps) - 1} more partitions)" if len(gaps) > 1 else ""
    error = TopicGapError(
        f"gap in topic {topic.name}: partition {first.partition} was loaded up to offset {first.offset}, but its "
        f"first message now has offset {first.first_offset}{more}",
        hint=f"{Option.ON_GAP} skip goes on with the messages that are left",
    )
    error.result = TopicGaps(gaps)
    return error
