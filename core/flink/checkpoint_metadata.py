"""A checkpoint's ``_metadata``: which operators have state, and where it lies.

Source: Flink's Checkpoints, MetadataV2Serializer up to MetadataV7Serializer.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from lake.core.flink.byte_reader import ByteReader
from lake.core.flink.state_handles import (
    InlineState,
    OperatorHandle,
    read_operator_handle,
    read_stream_handle,
    skip_channel_handles,
    skip_keyed_handle,
)

_MAGIC = 0x4960672D
_MASTER_MAGIC = -0x3694E96A
_JAVA_OBJECT = b"\xac\xed\x00\x05"
_FINISHED = -1
# Metadata versions by what they brought.
_OLDEST, _COORDINATORS, _PROPERTIES, _NAMES, _TAGGED_CHANNELS, _REGIONS = range(2, 8)
_NEWEST = _REGIONS
# The fewest bytes that an operator can take.
_OPERATOR_BYTES = 28
# Flink's own bound, and what no job comes near.
_MAX_PARALLELISM = 1 << 15
_MAX_OPERATORS = 1 << 14
_MAX_HANDLES = 1 << 17


@dataclass(slots=True, kw_only=True)
class OperatorState:
    """What an operator had in a checkpoint, all its subtasks together.

    Args:
        operator_id: 32 hexadecimal digits.
        name: as the job named it; empty where the metadata does not tell.
        handles: its operator state, where that has a state that was asked for.
        listed: how many subtasks have operator state.
        raw: how many subtasks have raw operator state.
        keyed: how many handles of keyed state there are.
        inputs: how many handles of what was on its way to it.
        outputs: how many handles of what was on its way from it.
    """

    operator_id: str
    name: str = ""
    handles: list[OperatorHandle] = field(default_factory=list)
    listed: int = 0
    raw: int = 0
    keyed: int = 0
    inputs: int = 0
    outputs: int = 0

    @property
    def title(self) -> str:
        """How messages call it."""
        return f"{self.name!r} ({self.operator_id})" if self.name else self.operator_id

    @property
    def is_stateless(self) -> bool:
        """Whether it has no state of its own; what is on its way to or from it is not its own."""
        return not (self.listed or self.raw or self.keyed)


def read_metadata(source: ByteReader, wanted: frozenset[str]) -> tuple[int, list[OperatorState]]:
    """Return a checkpoint's number, and the operators that have a state asked for or something on its way.

    Args:
        source: the metadata, whole.
        wanted: names of states.

    Raises:
        CorruptFileError: the bytes are no checkpoint metadata.
        RefusedError: they are of a version or hold a handle that this release does not know.
    """
    version = _version(source)
    checkpoint_id = source.int64()
    if checkpoint_id < 0:
        raise source.corrupt(f"a checkpoint number of {checkpoint_id}")
    for _ in range(source.count(8)):
        _skip_master_state(source)
    operators = []
    handles = 0
    for _ in range(source.count(_OPERATOR_BYTES)):
        operator = _operator(source, version, wanted)
        if operator.handles or operator.inputs or operator.outputs:
            operators.append(operator)
        handles += len(operator.handles)
        if len(operators) > _MAX_OPERATORS or handles > _MAX_HANDLES:
            raise source.refused(f"{len(operators)} committers in {handles} subtasks")
    if version < _PROPERTIES:
        source.silence_shutdown()
    elif bytes(source.take(len(_JAVA_OBJECT))) != _JAVA_OBJECT:
        # What follows is one Java object, the checkpoint's properties; it is never looked into.
        raise source.corrupt("the operators do not end where the checkpoint's properties begin")
    return checkpoint_id, operators


def _version(source: ByteReader) -> int:
    magic = source.int32()
    if magic.to_bytes(4, "big", signed=True) == _JAVA_OBJECT:
        raise source.refused("a Java-serialised object, not a checkpoint's metadata")
    if magic != _MAGIC:
        raise source.corrupt("not a checkpoint's metadata")
    version = source.int32()
    if not _OLDEST <= version <= _NEWEST:
        raise source.refused(
            f"checkpoint metadata of version {version}; known are {_OLDEST} to {_NEWEST}"
        )
    return version


def _skip_master_state(source: ByteReader) -> None:
    if source.int32() != _MASTER_MAGIC:
        raise source.corrupt("not the state of a master hook")
    source.block()


def _operator(source: ByteReader, version: int, wanted: frozenset[str]) -> OperatorState:
    name = ""
    if version >= _NAMES:
        name = source.text()
        source.skip_text()
    operator = OperatorState(operator_id=bytes(source.take(16)).hex(), name=name)
    parallelism = source.int32()
    source.int32()
    if version < _COORDINATORS:
        source.int32()
    else:
        coordinator = read_stream_handle(source)
        if not isinstance(coordinator, InlineState | None):
            raise source.corrupt("a coordinator's state that is not in the metadata")
    subtasks = source.int32()
    if subtasks == _FINISHED and version >= _COORDINATORS:
        return operator
    if not 0 <= subtasks <= parallelism <= _MAX_PARALLELISM:
        raise source.corrupt(f"{subtasks} subtasks of {parallelism}")
    seen = set()
    for _ in range(subtasks):
        index = source.int32()
        finished = index < 0 and version >= _COORDINATORS
        number = -index - 1 if finished else index
        if not 0 <= number < parallelism or number in seen:
            raise source.corrupt(f"subtask {number} of {parallelism}, or a second time")
        seen.add(number)
        if not finished:
            _subtask_state(source, version, operator, wanted)
    return operator


def _subtask_state(
    source: ByteReader, version: int, operator: OperatorState, wanted: frozenset[str]
) -> None:
    if version < _COORDINATORS:
        source.int64()
        if source.int32():
            raise source.refused("state of a release of Flink before 1.2")
    managed = read_operator_handle(source, wanted) if source.flag() else None
    if managed is not None:
        operator.listed += not managed.is_empty
        if managed.names:
            operator.handles.append(managed)
    operator.raw += source.flag() and read_operator_handle(source, wanted) is not None
    operator.keyed += skip_keyed_handle(source)
    operator.keyed += skip_keyed_handle(source)
    if version >= _COORDINATORS:
        operator.inputs += skip_channel_handles(source, tagged=version >= _TAGGED_CHANNELS)
        operator.outputs += skip_channel_handles(source, tagged=version >= _TAGGED_CHANNELS)
    if version >= _REGIONS and source.boolean():
        source.int64()
