"""What a commit may do to a table's files. Each is a value; `lake.core.table.producer` carries it out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lake.core.table.files import DataFile

if TYPE_CHECKING:
    from pyiceberg.expressions import BooleanExpression

SERIALIZABLE = "serializable"
SNAPSHOT = "snapshot"


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendFiles:
    """Add files. Never conflicts."""

    added: Sequence[DataFile]


@dataclass(frozen=True, slots=True, kw_only=True)
class OverwriteFiles:
    """Replace files, or rows that match a filter, by others.

    Args:
        added: the new files.
        removed_paths: live files to remove; one that is gone is a conflict.
        base_snapshot_id: what the caller had read when it decided.
        conflict_filter: bound filter of the rows that were replaced; None means every row of the table.
        isolation: under ``serializable`` a concurrent file that may hold matching rows is a conflict too.
    """

    added: Sequence[DataFile]
    removed_paths: Sequence[str]
    base_snapshot_id: int | None
    conflict_filter: BooleanExpression | None = None
    isolation: str = SERIALIZABLE


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplacePartitions:
    """Replace all files of the partitions in which files are added (all files, if unpartitioned)."""

    added: Sequence[DataFile]
    base_snapshot_id: int | None
    isolation: str = SERIALIZABLE


@dataclass(frozen=True, slots=True, kw_only=True)
class RewriteFiles:
    """Replace files by others with the same rows.

    Args:
        added: the new files.
        removed_paths: the files they replace; one that is gone, or has got deletes, is a conflict.
        base_snapshot_id: what the rewrite had read.
        data_sequence_number: the base snapshot's, so that equality deletes committed meanwhile still
            apply to the rewritten rows; None gives the new snapshot's.
    """

    added: Sequence[DataFile]
    removed_paths: Sequence[str]
    base_snapshot_id: int
    data_sequence_number: int | None = None


Operation = AppendFiles | OverwriteFiles | ReplacePartitions | RewriteFiles
