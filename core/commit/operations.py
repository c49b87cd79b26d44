"""What a commit may do to a table's files. Each is a value; `lake.core.commit.snapshot_producer` carries it out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from lake.core.manifests.data_files import DataFile
from lake.core.properties.table_properties import SERIALIZABLE

if TYPE_CHECKING:
    from pyiceberg.expressions import BooleanExpression


@dataclass(frozen=True, slots=True)
class FileColumns:
    """Files of one partition spec as columns, for those who have them so.

    Args:
        spec_id: the spec.
        entries: `ENTRY_COLUMNS`; what they say of status, snapshot, sequence numbers and row ids counts for nothing.
    """

    spec_id: int
    entries: pa.Table


Files = Sequence[DataFile] | Sequence[FileColumns]


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendFiles:
    """Add files. Never conflicts."""

    added: Files


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

    added: Files
    removed_paths: Sequence[str]
    base_snapshot_id: int | None
    conflict_filter: BooleanExpression | None = None
    isolation: str = SERIALIZABLE


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplacePartitions:
    """Replace all files of the partitions in which files are added (all files, if unpartitioned).

    Args:
        added: the new files.
        base_snapshot_id: what the caller had read when it decided.
        validates: whether files that were added to those partitions meanwhile are a conflict; else they go too.
        isolation: under ``serializable`` data files are one, under any level delete files.
    """

    added: Files
    base_snapshot_id: int | None = None
    validates: bool = True
    isolation: str = SERIALIZABLE


@dataclass(frozen=True, slots=True, order=True)
class DeleteKey:
    """Names a live delete file: its path, and for a deletion vector where in its Puffin file it lies."""

    path: str
    content_offset: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RewriteFiles:
    """Replace files by others with the same rows; deletion vectors of the replaced files go too.

    Args:
        added: the new files.
        removed_paths: the files they replace; one that is gone, or has got deletes, is a conflict.
        base_snapshot_id: what the rewrite had read.
        data_sequence_number: the base snapshot's, so that equality deletes committed meanwhile still
            apply to the rewritten rows; None gives the new snapshot's.
        removed_deletes: delete files that apply to no file any more; one that is gone already is no conflict.
    """

    added: Files
    removed_paths: Sequence[str]
    base_snapshot_id: int
    data_sequence_number: int | None = None
    removed_deletes: Sequence[DeleteKey] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RowDelta:
    """Add rows and delete rows in one step.

    Rows and deletes share the new sequence number: its equality deletes miss its own rows, its position
    deletes may name them.

    Args:
        added: new data files.
        deletes: new delete files.
        replaced_deletes: delete files whose positions ``deletes`` holds again, e.g. deletion vectors that got
            more positions; one that is gone is a conflict.
        base_snapshot_id: what the caller had read when it decided.
        validates: whether anything of the table was read to decide: then data files that position deletes
            name must still be live and have no other new deletes.
        conflict_filter: bound filter of the rows that were looked for; None means any row.
        isolation: under ``serializable`` a concurrent data file that may hold such rows is a conflict too.
        sole_spec: the partition spec that all data files must have, where the equality deletes reach no others;
            one of another spec, e.g. by a writer that began before the spec changed, is a conflict.
    """

    added: Files
    deletes: Files
    replaced_deletes: Sequence[DeleteKey] = ()
    base_snapshot_id: int | None = None
    validates: bool = True
    conflict_filter: BooleanExpression | None = None
    isolation: str = SERIALIZABLE
    sole_spec: int | None = None


Operation = AppendFiles | OverwriteFiles | ReplacePartitions | RewriteFiles | RowDelta


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Step:
    """One snapshot of a commit.

    Args:
        operation: what it does.
        summary: keys for its summary, beside those that tell what it did.
    """

    operation: Operation
    summary: Mapping[str, str] = field(default_factory=dict)
