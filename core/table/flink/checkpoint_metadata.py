"""A checkpoint's ``_metadata``: the operators with state, and the handles of the state.

Source: Flink's Checkpoints, MetadataV2Serializer to MetadataV7Serializer.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from lake.core.table.flink.byte_reader import ByteReader
from lake.core.table.flink.state_handles import (
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
# Metadata versions, named by what they introduced.
_OLDEST, _COORDINATORS, _PROPERTIES, _NAMES, _TAGGED_CHANNELS, _REGIONS = range(2, 8)
_NEWEST = _REGIONS
# The minimum number of bytes of an operator.
_OPERATOR_BYTES = 28
# Flink's own limit.
_MAX_PARALLELISM = 1 << 15
_MAX_OPERATORS = 1 << 14
_MAX_HANDLES = 1 << 17


@dataclass(slots=True, kw_only=True)
class OperatorState:
    """An operator's state in a checkpoint, of all its subtasks together.

    Args:
        operator_id: 32 hexadecimal digits.
        name: the name in the job; empty if the metadata does not contain it.
        handles: its operator state handles that contain a wanted state.
        listed: the number of subtasks with operator state.
        raw: the number of subtasks with raw operator state.
        keyed: the number of keyed state handles.
        inputs: the number of handles of records in transit to it.
        outputs: the number of handles of records in transit from it.
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
        """The operator's name in messages."""
        return f"{self.name!r} ({self.operator_id})" if self.name else self.operator_id

    @property
    def is_stateless(self) -> bool:
        """Whether it has no state of its own; records in transit do not count."""
        return not (self.listed or self.raw or self.keyed)


def read_metadata(source: ByteReader, wanted: frozenset[str]) -> tuple[int, list[OperatorState]]:
    """Return a checkpoint's number, and the operators with a wanted state or with records in transit.

    Args:
        source: the complete metadata.
        wanted: the names of states.

    Raises:
        CorruptFileError: the bytes are not checkpoint metadata.
        RefusedError: they have an unknown version or contain an unknown handle.
    """
    version = _version(source)
    checkpoint_id = source.int64()
    if checkpoint_id < 0:
        raise source.corrupt(f"invalid checkpoint number {checkpoint_id}")
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
        source.expect_end()
    elif bytes(source.take(len(_JAVA_OBJECT))) != _JAVA_OBJECT:
        # The rest is one Java object, the checkpoint's properties, which is never deserialised.
        raise source.corrupt("the checkpoint's properties do not follow the operators")
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
            f"checkpoint metadata has version {version}; supported are {_OLDEST} to {_NEWEST}"
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
            raise source.corrupt("a coordinator's state is not stored in the metadata")
    subtasks = source.int32()
    if subtasks == _FINISHED and version >= _COORDINATORS:
        return operator
    if not 0 <= subtasks <= parallelism <= _MAX_PARALLELISM:
        raise source.corrupt(f"{subtasks} subtasks for a parallelism of {parallelism}")
    seen = set()
    for _ in range(subtasks):
        index = source.int32()
        finished = index < 0 and version >= _COORDINATORS
        number = -index - 1 if finished else index
        if not 0 <= number < parallelism or number in seen:
            raise source.corrupt(f"subtask {number} of {parallelism} is invalid or repeated")
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
            raise source.refused("the state was written by a release of Flink before 1.2")
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
