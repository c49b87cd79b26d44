"""The files of a checkpoint: ``chk-<number>/_metadata``, written last, and those that state handles name."""

from __future__ import annotations

import re

from lake.core import locations
from lake.core.errors import CorruptFileError, RefusedError
from lake.core.flink.byte_reader import ByteReader
from lake.core.flink.state_handles import InlineState, StateFile, StreamState
from lake.core.storage.storage import Storage

METADATA = "_metadata"
_NAME = re.compile(r"chk-([0-9]{1,19})")


def number_of(metadata: str) -> int | None:
    """Return the number that the folder of a ``_metadata`` file is named after; None for a savepoint's."""
    found = _NAME.fullmatch(metadata.rpartition("/")[0].rpartition("/")[2])
    return int(found[1]) if found else None


def metadata_below(storage: Storage, folder: str) -> dict[int, str]:
    """Return by number where the checkpoints right in a folder have their ``_metadata``, once they complete."""
    inside = [
        locations.join(folder, name, METADATA)
        for name, is_folder in storage.list_folder(folder)
        if is_folder
    ]
    return {number: path for path in inside if (number := number_of(path)) is not None}


def read_state(storage: Storage, metadata: str, state: StreamState | None) -> ByteReader:
    """Return the bytes of a subtask's operator state.

    A checkpoint that was copied or moved as a whole still names its files by where they were. So a file of the
    name and length that lies beside the metadata, or at the same place below the job's folder,
    comes before the place that is named.

    Args:
        storage: where the checkpoint lies.
        metadata: the location of its ``_metadata``.
        state: what names the bytes.

    Raises:
        CorruptFileError: the file is not as long as the handle says.
        NotFoundError: there is no such file.
        LakeError: the storage refuses it, or does not answer.
        RefusedError: the bytes are kept in a way that operator state never is.
    """
    if isinstance(state, InlineState):
        return state.reader.between(0, state.reader.remaining)
    if not isinstance(state, StateFile):
        kind = state.kind if state else 0
        raise RefusedError(f"{metadata}: operator state in a handle of the kind {kind}")
    return _read_file(storage, _place(storage, metadata, state), state)


def _place(storage: Storage, metadata: str, state: StateFile) -> str:
    """Return where a state's file lies: the first place with a file that is long enough, else the last."""
    folder = metadata.rpartition("/")[0]
    if state.relative:
        if ".." in state.path.split("/"):
            raise CorruptFileError(f"{metadata}: state in {state.path[:80]!r}")
        return locations.join(folder, state.path)
    places = [locations.join(folder, state.path.rpartition("/")[2])]
    job = folder.rpartition("/")[0]
    before, inside, below = state.path.rpartition(f"/{job.rpartition('/')[2]}/")
    if inside and before:
        places.append(locations.join(job, below))
    for place in places:
        if storage.exists(place) and _fits(storage.size(place), state):
            return place
    return state.path


def _fits(length: int, state: StateFile) -> bool:
    if state.start is None:
        return length == state.size
    return length >= state.start + state.size


def _read_file(storage: Storage, location: str, state: StateFile) -> ByteReader:
    length = storage.size(location)
    if not _fits(length, state):
        raise CorruptFileError(
            f"{location} has {length} bytes, its checkpoint says {(state.start or 0) + state.size}"
        )
    start = state.start or 0
    data = storage.read_part(location, start, state.size)
    if len(data) != state.size:
        raise CorruptFileError(f"{location} ends before byte {start + state.size}")
    return ByteReader(memoryview(data), location, start)
