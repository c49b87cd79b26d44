"""Reading a checkpoint or savepoint: which Iceberg sinks were in it, and what they had yet to commit."""

from __future__ import annotations

from lake.core import locations
from lake.core.errors import BadInputError, NotFoundError
from lake.core.flink.byte_reader import ByteReader
from lake.core.flink.checkpoint_files import METADATA, metadata_below
from lake.core.flink.checkpoint_metadata import read_metadata
from lake.core.flink.committers import COMMITTER_STATES, read_committers
from lake.core.flink.consistency import check_size, check_state
from lake.core.flink.state import Checkpoint
from lake.core.storage.storage import Storage


def read_checkpoint(storage: Storage, location: str) -> Checkpoint:
    """Read what the Iceberg sinks of a checkpoint or savepoint had taken and not committed.

    A sink whose committer holds nothing back is not told apart from other sinks and left out.

    Args:
        storage: where it lies.
        location: its folder or the ``_metadata`` file in it.

    Raises:
        BadInputError: it is a folder of checkpoints.
        CorruptFileError: its bytes are not what Flink and Iceberg write.
        NotFoundError: there is no completed checkpoint, or a file of its state is missing.
        RefusedError: it may hold more of the sinks than can be read: an unknown version or kind of state, or
            what was on its way to a committer when an unaligned checkpoint was taken.
    """
    metadata = _find_metadata(storage, location)
    data = memoryview(storage.read(metadata))
    checkpoint_id, operators = read_metadata(ByteReader(data, metadata), COMMITTER_STATES)
    check_size(metadata, operators)
    committers = tuple(
        committer
        for operator in operators
        for committer in read_committers(storage, metadata, operator)
    )
    found = Checkpoint(location=metadata, checkpoint_id=checkpoint_id, committers=committers)
    check_state(data, operators, found)
    return found


def _find_metadata(storage: Storage, location: str) -> str:
    found = locations.parse(location)
    base = location if ":/" in location else found.path
    base = base.rstrip("/") or "/"
    if base.rpartition("/")[2] == METADATA:
        if storage.exists(base):
            return base
        base = base.rpartition("/")[0]
    elif storage.exists(inside := locations.join(base, METADATA)):
        return inside
    elif storage.exists(base):
        return base
    newest = _newest_below(storage, base)
    if newest is not None:
        raise BadInputError(
            f"{base} holds checkpoints and is none",
            hint=f"Give one of them; the newest is {newest}.",
        )
    raise NotFoundError(
        f"{base} holds no {METADATA}: it is not a completed checkpoint",
        hint="Flink writes that file last; without it the checkpoint failed or is still being taken.",
    )


def _newest_below(storage: Storage, folder: str) -> str | None:
    """Return the completed checkpoint of the largest number right in a job's folder."""
    newest_first = sorted(metadata_below(storage, folder).items(), reverse=True)
    return next((path.rpartition("/")[0] for _, path in newest_first if storage.exists(path)), None)
