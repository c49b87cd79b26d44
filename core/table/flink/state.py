"""The contents of a checkpoint about its sinks, as plain values."""

from __future__ import annotations

from dataclasses import dataclass

FLINK_SINK = "FlinkSink"
ICEBERG_SINK = "IcebergSink"
DYNAMIC_SINK = "DynamicIcebergSink"


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestReference:
    """A reference to a temporary manifest in a committer's state.

    Args:
        path: its location, exactly as stored.
        length: its length in bytes.
        spec_id: the partition spec of its entries.
        content: `files.DATA` (0) or 1 for a manifest of delete files.
        added_files: the number of its entries; None if the state does not contain it.
        added_rows: the number of their rows; None if the state does not contain it.
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
        manifests: the data manifest, then the delete manifest, if there are any; a DynamicIcebergSink may
            have several of each, one for each partition spec that it used.
        blank: True for an entry without bytes, which FlinkSink skips among row deltas, while it commits an entry
            without manifests as an empty snapshot.
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
        table: the table's name, if the state contains it (`DYNAMIC_SINK` only).
        branch: the branch, if the state contains it (`DYNAMIC_SINK` only).
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
        location: the location of its ``_metadata`` file.
        checkpoint_id: its number.
        committers: its Iceberg sinks; empty if there are none.
    """

    location: str
    checkpoint_id: int
    committers: tuple[CommitterState, ...]
