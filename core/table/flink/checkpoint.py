"""Read a checkpoint or savepoint: the Iceberg sinks in it, and their uncommitted files."""

from __future__ import annotations

from lake.core.base import locations
from lake.core.base.errors import BadInputError, NotFoundError
from lake.core.io.storage.storage import Storage
from lake.core.table.flink.byte_reader import ByteReader
from lake.core.table.flink.checkpoint_files import METADATA, metadata_below
from lake.core.table.flink.checkpoint_metadata import read_metadata
from lake.core.table.flink.committers import COMMITTER_STATES, read_committers
from lake.core.table.flink.consistency import check_size, check_state
from lake.core.table.flink.state import Checkpoint


def read_checkpoint(storage: Storage, location: str) -> Checkpoint:
    """Read what the Iceberg sinks of a checkpoint or savepoint had received but not committed.

    A sink whose committer has nothing to commit cannot be distinguished from other sinks and is omitted.

    Args:
        storage: the storage that contains it.
        location: its folder, or the ``_metadata`` file in it.

    Raises:
        BadInputError: it is a folder of checkpoints, not a checkpoint.
        CorruptFileError: the bytes do not have the format of Flink and Iceberg.
        NotFoundError: there is no completed checkpoint, or a file of its state is missing.
        RefusedError: it may contain sink state that cannot be read: an unknown version or kind of state, or
            records in transit to a committer when an unaligned checkpoint was taken.
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
            f"{base} contains checkpoints but is not a checkpoint",
            hint=f"Pass one of them; the newest is {newest}.",
        )
    raise NotFoundError(
        f"{base} does not contain {METADATA}: it is not a completed checkpoint",
        hint="Flink writes that file last; without it, the checkpoint failed or is in progress.",
    )


def _newest_below(storage: Storage, folder: str) -> str | None:
    """Return the completed checkpoint with the largest number directly in a job's folder."""
    newest_first = sorted(metadata_below(storage, folder).items(), reverse=True)
    return next((path.rpartition("/")[0] for _, path in newest_first if storage.exists(path)), None)
