"""The state handles in a checkpoint's metadata: the locations of all pieces of state.

Source: Flink's MetadataV2V3SerializerBase and ChannelStateHandleSerializerV1 and V2. Handles do not have a length,
so handles that are not needed are parsed byte by byte as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import ne

from lake.core.table.flink.byte_reader import ByteReader

SPLIT_DISTRIBUTE = 0
_MODES = range(3)
# Handles contain handles at most two levels deep; more would be an attack on the stack.
_MAX_DEPTH = 8
_NULL = 0
# The minimum size of a state, and the maximum number of states that Flink's format allows.
_STATE_BYTES = 7
_DAMAGED_CHARACTERS = 4
_MAX_STATES = 2 * 0x7FFF
_TOO_DEEP = "state handles within state handles"


@dataclass(frozen=True, slots=True)
class InlineState:
    """State that is stored in the metadata itself."""

    reader: ByteReader


@dataclass(frozen=True, slots=True)
class StateFile:
    """State in a separate file, or in a part of a file.

    Args:
        path: absolute, or relative to the folder of the metadata.
        relative: whether the path is relative.
        size: the size of the state in bytes.
        start: its offset; None if the state is the whole file.
    """

    path: str
    relative: bool
    size: int
    start: int | None = None


@dataclass(frozen=True, slots=True)
class OtherState:
    """State of a kind that operator state never has."""

    kind: int


StreamState = InlineState | StateFile | OtherState


@dataclass(frozen=True, slots=True)
class ListState:
    """The elements of an operator's list state: big-endian offsets, and the redistribution mode."""

    mode: int
    offsets: memoryview


@dataclass(frozen=True, slots=True)
class OperatorHandle:
    """One subtask's operator state.

    Args:
        names: the wanted states that it contains.
        states: the number of states and each state, as stored in the metadata.
        stream: the handle of the states' bytes; None if there are none.
    """

    names: frozenset[str]
    states: ByteReader
    stream: StreamState | None

    @property
    def is_empty(self) -> bool:
        """Whether it contains no state at all."""
        return self.states.between(0, 4).int32() == 0

    def list_states(self) -> dict[str, ListState]:
        """Return its states by name."""
        states = self.states.between(0, self.states.remaining)
        return dict(_list_state(states) for _ in range(states.count(_STATE_BYTES)))


def read_operator_handle(source: ByteReader, wanted: frozenset[str]) -> OperatorHandle | None:
    """Read a handle of operator state; None if it contains nothing.

    Raises:
        CorruptFileError: the bytes are not such a handle.
        RefusedError: its kind is not known.
    """
    kind = source.int8()
    if kind == _NULL:
        return None
    if kind not in (4, 17):
        raise source.refused(f"an operator-state handle has the unknown kind {kind}")
    begin = source.position
    number = source.count(_STATE_BYTES)
    if number > _MAX_STATES:
        raise source.corrupt(f"a subtask has {number} states")
    names = [_list_state(source)[0] for _ in range(number)]
    if len(set(names)) != number:
        raise source.corrupt("two states have one name")
    for name in names:
        if name not in wanted and any(_is_almost(name, each) for each in wanted):
            # If it were treated as another operator's state, a committer would be omitted silently.
            raise source.corrupt(f"a state has the damaged name {name!r}")
    states = source.between(begin, source.position)
    empty = False
    if kind == 17:  # noqa: PLR2004 - Flink's code
        source.skip_text()
        source.skip_text()
        empty = source.boolean()
    stream = read_stream_handle(source)
    return None if empty else OperatorHandle(wanted.intersection(names), states, stream)


def _is_almost(name: str, other: str) -> bool:
    """Whether two names differ only in a few characters."""
    return len(name) == len(other) and sum(map(ne, name, other)) <= _DAMAGED_CHARACTERS


def _list_state(source: ByteReader) -> tuple[str, ListState]:
    name, mode = source.text(), source.int8()
    if mode not in _MODES:
        raise source.corrupt(f"unknown redistribution mode {mode} of state {name[:80]!r}")
    return name, ListState(mode, source.longs())


def read_stream_handle(source: ByteReader, depth: int = 0) -> StreamState | None:
    """Read a handle of bytes; None for a null handle.

    Raises:
        CorruptFileError: the bytes are not such a handle.
        RefusedError: its kind is not known.
    """
    kind = source.int8()
    match kind:
        case 0:
            return None
        case 1:
            source.skip_text()
            return InlineState(source.reader(source.count(1)))
        case 2:
            size = source.size()
            return StateFile(source.text(), relative=False, size=size)
        case 3:
            if depth >= _MAX_DEPTH:
                raise source.corrupt(_TOO_DEEP)
            _key_groups(source, depth)
            return OtherState(kind)
        case 6:
            path = source.text()
            return StateFile(path, relative=True, size=source.size())
        case 15:
            start, size = source.size(), source.size()
            source.int32()
            path = source.text()
            source.skip_text()
            return StateFile(path, relative=False, size=size, start=start)
        case 16:
            return OtherState(kind)
        case _:
            raise source.refused(f"a state handle has the unknown kind {kind}")


def _key_groups(source: ByteReader, depth: int) -> None:
    source.int32()
    source.longs()
    read_stream_handle(source, depth + 1)


def skip_keyed_handle(source: ByteReader, depth: int = 0) -> bool:
    """Skip a handle of keyed state and return whether there was one.

    Raises:
        CorruptFileError: the bytes are not such a handle.
        RefusedError: its kind is not known.
    """
    kind = source.int8()
    if depth >= _MAX_DEPTH:
        raise source.corrupt(_TOO_DEEP)
    match kind:
        case 0:
            return False
        case 3 | 7 | 12:
            _key_groups(source, depth)
            if kind == 12:  # noqa: PLR2004 - Flink's code
                source.skip_text()
        case 5 | 11:
            _skip_incremental(source, sized=kind == 11)  # noqa: PLR2004 - Flink's code
        case 8 | 14:
            _skip_changelog(source, depth, numbered=kind == 14)  # noqa: PLR2004 - Flink's code
        case 9:
            _skip_changes(source)
        case 10 | 13:
            _skip_change_files(source, stored=kind == 13)  # noqa: PLR2004 - Flink's code
        case _:
            raise source.refused(f"a keyed-state handle has the unknown kind {kind}")
    return True


def _skip_incremental(source: ByteReader, *, sized: bool) -> None:
    source.int64()
    source.skip_text()
    source.take(8)
    if sized:
        source.int64()
    read_stream_handle(source)
    for _ in range(2):
        for _ in range(source.count(3)):
            source.skip_text()
            read_stream_handle(source)
    if sized:
        source.skip_text()


def _skip_changelog(source: ByteReader, depth: int, *, numbered: bool) -> None:
    source.take(8)
    source.int64()
    for _ in range(2):
        for _ in range(source.count(1)):
            skip_keyed_handle(source, depth + 1)
    source.int64()
    if numbered:
        source.int64()
    source.skip_text()


def _skip_changes(source: ByteReader) -> None:
    source.take(24)
    for _ in range(source.count(8)):
        source.int32()
        source.block()
    source.skip_text()


def _skip_change_files(source: ByteReader, *, stored: bool) -> None:
    source.take(8)
    for _ in range(source.count(9)):
        source.int64()
        read_stream_handle(source)
    source.take(16)
    source.skip_text()
    if stored:
        source.skip_text()


def skip_channel_handles(source: ByteReader, *, tagged: bool) -> int:
    """Skip the handles of records in transit between operators, and return their number.

    Args:
        source: the metadata.
        tagged: whether each handle begins with its kind, as since version 6.

    Raises:
        CorruptFileError: the bytes are not such handles.
        RefusedError: the kind of one is not known.
    """
    number = source.count(17)
    for _ in range(number):
        _skip_channel_handle(source, tagged=tagged)
    return number


def _skip_channel_handle(source: ByteReader, *, tagged: bool) -> None:
    kind = source.int8() if tagged else 1
    source.int32()
    if kind in (1, 2):
        source.take(8)
        source.longs()
        source.int64()
        read_stream_handle(source)
    elif kind in (3, 4):
        source.int64()
        read_stream_handle(source)
        source.block()
    else:
        raise source.refused(f"a channel-state handle has the unknown kind {kind}")
