"""The files of a checkpoint: ``chk-<number>/_metadata``, which is written last, and those of state handles."""

from __future__ import annotations

import re

from lake.core.base import locations
from lake.core.base.errors import CorruptFileError, RefusedError
from lake.core.io.storage.storage import Storage
from lake.core.table.flink.byte_reader import ByteReader
from lake.core.table.flink.state_handles import InlineState, StateFile, StreamState

METADATA = "_metadata"
_NAME = re.compile(r"chk-([0-9]{1,19})")


def number_of(metadata: str) -> int | None:
    """Return the number in the name of a ``_metadata`` file's folder; None for a savepoint."""
    found = _NAME.fullmatch(metadata.rpartition("/")[0].rpartition("/")[2])
    return int(found[1]) if found else None


def metadata_below(storage: Storage, folder: str) -> dict[int, str]:
    """Return by number the ``_metadata`` locations of the checkpoints directly in a folder, completed or not."""
    inside = [
        locations.join(folder, name, METADATA)
        for name, is_folder in storage.list_folder(folder)
        if is_folder
    ]
    return {number: path for path in inside if (number := number_of(path)) is not None}


def read_state(storage: Storage, metadata: str, state: StreamState | None) -> ByteReader:
    """Return the bytes of a subtask's operator state.

    A checkpoint that was copied or moved as a whole still contains the original paths of its files. So a file with
    the same name and length next to the metadata, or at the same path below the job's folder, takes precedence
    over the stored path.

    Args:
        storage: the storage that contains the checkpoint.
        metadata: the location of its ``_metadata``.
        state: the handle of the bytes.

    Raises:
        CorruptFileError: the file does not have the length in the handle.
        NotFoundError: the file does not exist.
        LakeError: the storage denies access, or does not respond.
        RefusedError: the handle is of a kind that operator state never has.
    """
    if isinstance(state, InlineState):
        return state.reader.between(0, state.reader.remaining)
    if not isinstance(state, StateFile):
        kind = state.kind if state else 0
        raise RefusedError(f"{metadata}: operator state has a handle of kind {kind}")
    return _read_file(storage, _locate(storage, metadata, state), state)


def _locate(storage: Storage, metadata: str, state: StateFile) -> str:
    """Return the location of a state's file: the first candidate that is long enough, else the last candidate."""
    folder = metadata.rpartition("/")[0]
    if state.relative:
        if ".." in state.path.split("/"):
            raise CorruptFileError(f"{metadata}: state has the invalid path {state.path[:80]!r}")
        return locations.join(folder, state.path)
    candidates = [locations.join(folder, state.path.rpartition("/")[2])]
    job = folder.rpartition("/")[0]
    before, inside, below = state.path.rpartition(f"/{job.rpartition('/')[2]}/")
    if inside and before:
        candidates.append(locations.join(job, below))
    for candidate in candidates:
        if storage.exists(candidate) and _fits(storage.size(candidate), state):
            return candidate
    return state.path


def _fits(length: int, state: StateFile) -> bool:
    if state.start is None:
        return length == state.size
    return length >= state.start + state.size


def _read_file(storage: Storage, location: str, state: StateFile) -> ByteReader:
    length = storage.size(location)
    if not _fits(length, state):
        raise CorruptFileError(
            f"{location} has {length} bytes, but its checkpoint declares {(state.start or 0) + state.size}"
        )
    start = state.start or 0
    data = storage.read_part(location, start, state.size)
    if len(data) != state.size:
        raise CorruptFileError(f"{location} ends before byte {start + state.size}")
    return ByteReader(memoryview(data), location, start)
