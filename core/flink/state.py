"""What a checkpoint says of the sinks in it, as plain values."""

from __future__ import annotations

from dataclasses import dataclass

FLINK_SINK = "FlinkSink"
ICEBERG_SINK = "IcebergSink"
DYNAMIC_SINK = "DynamicIcebergSink"


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestReference:
    """A temporary manifest as a committer's state names it.

    Args:
        path: its location, exactly as written there.
        length: bytes.
        spec_id: of its entries.
        content: `files.DATA` (0) or 1 for a manifest of delete files.
        added_files: its entries; None where the state does not tell.
        added_rows: their rows; None where the state does not tell.
    """

    path: str
    length: int
    spec_id: int
    content: int
    added_files: int | None = None
    added_rows: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenCheckpoint:
    """One checkpoint's entry in a committer's state.

    Args:
        checkpoint_id: its number.
        manifests: the data manifest, then the delete manifest, as far as there are any; a DynamicIcebergSink may
            have several of each, one of every partition spec that it wrote with.
        blank: True for an entry of no bytes, which FlinkSink skips among row deltas, while an entry that
            names no manifest is committed there as an empty snapshot.
    """

    checkpoint_id: int
    manifests: tuple[ManifestReference, ...] = ()
    blank: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitterState:
    """What one sink's committer had to commit when the checkpoint was taken.

    Args:
        sink: `FLINK_SINK`, `ICEBERG_SINK` or `DYNAMIC_SINK`: they commit differently.
        job_id: ``flink.job-id`` of its commits, 32 hexadecimal digits.
        operator_id: ``flink.operator-id`` of its commits, 32 hexadecimal digits.
        checkpoints: in ascending order, each number once.
        table: the table's name, where the state tells it (`DYNAMIC_SINK` only).
        branch: the branch, where the state tells it (`DYNAMIC_SINK` only).
    """

    sink: str
    job_id: str
    operator_id: str
    checkpoints: tuple[TakenCheckpoint, ...]
    table: str | None = None
    branch: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A completed checkpoint or savepoint.

    Args:
        location: of its ``_metadata`` file.
        checkpoint_id: its number.
        committers: the sinks found in it; none if it has no Iceberg sink.
    """

    location: str
    checkpoint_id: int
    committers: tuple[CommitterState, ...]
