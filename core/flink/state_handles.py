"""The state handles in a checkpoint's metadata: where each piece of state lies.

Source: Flink's MetadataV2V3SerializerBase and ChannelStateHandleSerializerV1 and V2. Handles have no length, so
those of no interest are walked byte by byte as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import ne

from lake.core.flink.byte_reader import ByteReader

SPLIT_DISTRIBUTE = 0
_MODES = range(3)
# Handles that hold handles do so twice at most; more is an attack on the stack.
_MAX_DEPTH = 8
_NULL = 0
# The fewest bytes that a state takes, and the most states that Flink's own format for their bytes allows.
_STATE_BYTES = 7
_DAMAGED_CHARACTERS = 4
_MAX_STATES = 2 * 0x7FFF
_TOO_DEEP = "state handles within state handles"


@dataclass(frozen=True, slots=True)
class InlineState:
    """State that is kept in the metadata itself."""

    reader: ByteReader


@dataclass(frozen=True, slots=True)
class StateFile:
    """State in a file of its own, or in a part of a file.

    Args:
        path: absolute, or relative to the folder of the metadata.
        relative: which of the two.
        size: of the state in bytes.
        start: where it begins; None where it is the whole file.
    """

    path: str
    relative: bool
    size: int
    start: int | None = None


@dataclass(frozen=True, slots=True)
class OtherState:
    """State that is kept in a way that operator state never is."""

    kind: int


StreamState = InlineState | StateFile | OtherState


@dataclass(frozen=True, slots=True)
class ListState:
    """Where an operator's list state has its elements: big-endian longs, and how they are shared out."""

    mode: int
    offsets: memoryview


@dataclass(frozen=True, slots=True)
class OperatorHandle:
    """One subtask's operator state.

    Args:
        names: those of its states that were asked for.
        states: a count and each state, as they stand in the metadata.
        stream: where the states' bytes are; None where nothing is kept.
    """

    names: frozenset[str]
    states: ByteReader
    stream: StreamState | None

    @property
    def is_empty(self) -> bool:
        """Whether it holds no state at all."""
        return self.states.between(0, 4).int32() == 0

    def list_states(self) -> dict[str, ListState]:
        """Return its states by name."""
        states = self.states.between(0, self.states.remaining)
        return dict(_list_state(states) for _ in range(states.count(_STATE_BYTES)))


def read_operator_handle(source: ByteReader, wanted: frozenset[str]) -> OperatorHandle | None:
    """Read a handle of operator state; None for one that keeps nothing.

    Raises:
        CorruptFileError: the bytes are no such handle.
        RefusedError: it is of a kind that this release does not know.
    """
    kind = source.int8()
    if kind == _NULL:
        return None
    if kind not in (4, 17):
        raise source.refused(f"an operator-state handle of the unknown kind {kind}")
    begin = source.position
    number = source.count(_STATE_BYTES)
    if number > _MAX_STATES:
        raise source.corrupt(f"{number} states in one subtask")
    names = [_list_state(source)[0] for _ in range(number)]
    if len(set(names)) != number:
        raise source.corrupt("two states of one name")
    for name in names:
        if name not in wanted and any(_is_almost(name, each) for each in wanted):
            # Taken for some other operator's, a committer would silently be left out.
            raise source.corrupt(f"a state with the damaged name {name!r}")
    states = source.between(begin, source.position)
    empty = False
    if kind == 17:  # noqa: PLR2004 - Flink's code
        source.skip_text()
        source.skip_text()
        empty = source.boolean()
    stream = read_stream_handle(source)
    return None if empty else OperatorHandle(wanted.intersection(names), states, stream)


def _is_almost(name: str, other: str) -> bool:
    """Whether two names differ in some characters only."""
    return len(name) == len(other) and sum(map(ne, name, other)) <= _DAMAGED_CHARACTERS


def _list_state(source: ByteReader) -> tuple[str, ListState]:
    name, mode = source.text(), source.int8()
    if mode not in _MODES:
        raise source.corrupt(f"an unknown way {mode} of sharing out state {name[:80]!r}")
    return name, ListState(mode, source.longs())


def read_stream_handle(source: ByteReader, depth: int = 0) -> StreamState | None:
    """Read a handle of bytes; None for a null one.

    Raises:
        CorruptFileError: the bytes are no such handle.
        RefusedError: it is of a kind that this release does not know.
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
            raise source.refused(f"a state handle of the unknown kind {kind}")


def _key_groups(source: ByteReader, depth: int) -> None:
    source.int32()
    source.longs()
    read_stream_handle(source, depth + 1)


def skip_keyed_handle(source: ByteReader, depth: int = 0) -> bool:
    """Step over a handle of keyed state and say whether there was one.

    Raises:
        CorruptFileError: the bytes are no such handle.
        RefusedError: it is of a kind that this release does not know.
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
            raise source.refused(f"a keyed-state handle of the unknown kind {kind}")
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
    """Step over the handles of what was on its way between operators, and return how many there were.

    Args:
        source: the metadata.
        tagged: whether each handle begins with its kind, as from version 6 on.

    Raises:
        CorruptFileError: the bytes are no such handles.
        RefusedError: one is of a kind that this release does not know.
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
        raise source.refused(f"a channel-state handle of the unknown kind {kind}")
