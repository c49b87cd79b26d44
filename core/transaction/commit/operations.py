"""The operations of a commit on a table's files, as values.

`lake.core.transaction.commit.snapshot_producer` executes them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from lake.core.spec.properties.table_properties import SERIALIZABLE
from lake.core.table.manifests.clusters import Clustering
from lake.core.table.manifests.data_files import DataFile

if TYPE_CHECKING:
    from pyiceberg.expressions import BooleanExpression


@dataclass(frozen=True, slots=True)
class EntryTable:
    """Files of one partition spec in columnar form.

    Args:
        spec_id: the partition spec.
        entries: `ENTRY_COLUMNS`; the status, snapshot id, sequence numbers and row ids in them are ignored.
    """

    spec_id: int
    entries: pa.Table


Files = Sequence[DataFile] | Sequence[EntryTable]


@dataclass(frozen=True, slots=True, order=True)
class DeleteKey:
    """The key of a live delete file: its path, and for a deletion vector its offset in the Puffin file."""

    path: str
    content_offset: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendFiles:
    """Add files.

    Args:
        added: the new files.
        only_new: whether a file that is live already is refused; otherwise an append never conflicts.
    """

    added: Files
    only_new: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class OverwriteFiles:
    """Replace files, or rows that match a filter, with others.

    Args:
        added: the new files.
        removed_paths: live files to remove; one that is no longer live is a conflict.
        base_snapshot_id: the snapshot that the caller had read when it decided.
        conflict_filter: bound filter of the rows that were replaced; None means every row of the table.
        isolation: with ``serializable``, a concurrent file that may contain matching rows is a conflict too.
        removed_deletes: delete files that apply to removed files only; one that is no longer live is not a conflict.
    """

    added: Files
    removed_paths: Sequence[str]
    base_snapshot_id: int | None
    conflict_filter: BooleanExpression | None = None
    isolation: str = SERIALIZABLE
    removed_deletes: Sequence[DeleteKey] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplacePartitions:
    """Replace all files of the partitions to which files are added (all files, if unpartitioned).

    Args:
        added: the new files.
        base_snapshot_id: the snapshot that the caller had read when it decided.
        validates: whether files that were added to those partitions meanwhile are a conflict; otherwise they are
            replaced too.
        isolation: with ``serializable``, added data files are a conflict; at every level, delete files are.
    """

    added: Files
    base_snapshot_id: int | None = None
    validates: bool = True
    isolation: str = SERIALIZABLE


@dataclass(frozen=True, slots=True, kw_only=True)
class RewriteFiles:
    """Replace files with others that contain the same rows; the replaced files' deletion vectors are removed too.

    Args:
        added: the new files.
        removed_paths: the files they replace; one that is no longer live, or has new deletes, is a conflict.
        base_snapshot_id: the snapshot that the rewrite had read.
        data_sequence_number: the base snapshot's, so that equality deletes committed meanwhile still
            apply to the rewritten rows; None means the new snapshot's.
        removed_deletes: delete files that no longer apply to any file; one that is no longer live is not a conflict.
    """

    added: Files
    removed_paths: Sequence[str]
    base_snapshot_id: int
    data_sequence_number: int | None = None
    removed_deletes: Sequence[DeleteKey] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RowDelta:
    """Add rows and delete rows in one step.

    Rows and deletes share the new sequence number: the equality deletes do not apply to the added rows, the position
    deletes may reference them.

    Args:
        added: new data files.
        deletes: new delete files.
        removed_paths: live data files to remove; one that is no longer live, or has new deletes, is a conflict.
        replaced_deletes: delete files whose positions ``deletes`` contains again, e.g. deletion vectors with
            additional positions; one that is no longer live is a conflict.
        base_snapshot_id: the snapshot that the caller had read when it decided.
        validates: whether the decision depends on data of the table: then data files that position deletes
            reference must still be live and must not have other new deletes.
        conflict_filter: bound filter of the rows that were searched for; None means any row.
        isolation: with ``serializable``, a concurrent data file that may contain such rows is a conflict too.
        ignore_equality: whether equality deletes committed since are not a conflict: they still apply to the data
            files that stay, which keep their sequence numbers.
        sole_spec: the only partition spec that data files may have, if the equality deletes do not apply to others;
            a data file with another spec, e.g. from a writer that began before the spec changed, is a conflict.
    """

    added: Files
    deletes: Files
    removed_paths: Sequence[str] = ()
    replaced_deletes: Sequence[DeleteKey] = ()
    base_snapshot_id: int | None = None
    validates: bool = True
    conflict_filter: BooleanExpression | None = None
    isolation: str = SERIALIZABLE
    ignore_equality: bool = False
    sole_spec: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RewriteDeletes:
    """Replace delete files by others that delete the same rows; data files stay.

    The caller refuses data files that were written since and keep an older sequence number.

    Args:
        deletes: the new delete files.
        replaced_deletes: the delete files that they replace; one that is no longer live is a conflict.
        referenced_paths: the data files whose rows the new ones delete; one that is no longer live is a conflict.
        base_snapshot_id: the snapshot that the rewrite had read.
        data_sequence_number: the greatest of those of the replaced files, so that the new ones apply to no data file
            that is added later.
    """

    deletes: Files
    replaced_deletes: Sequence[DeleteKey]
    referenced_paths: Sequence[str]
    base_snapshot_id: int | None
    data_sequence_number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RewriteManifests:
    """Write the live entries of manifests again, into manifests of about one size, sorted by partition.

    Args:
        manifests: the locations of the manifests; one that is no longer in the list is a conflict.
        target_bytes: the size of new manifests.
        sort_by: the partition fields by which entries are sorted; empty for all fields of each spec.
        measured: is called with the content, the partition spec and the clustering of the entries that were read.
    """

    manifests: frozenset[str]
    target_bytes: int
    sort_by: tuple[str, ...] = ()
    measured: Callable[[int, int, Clustering], None] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DropDuplicates:
    """Keep one entry of each of some data files that have several; the file itself stays live.

    The caller has made sure that the entries describe the same rows, and that the same deletes apply to them.

    Args:
        paths: the data files; one that is no longer live is a conflict.
        base_snapshot_id: the snapshot in which the caller compared the entries; another head is a conflict.
    """

    paths: frozenset[str]
    base_snapshot_id: int


@dataclass(frozen=True, slots=True)
class RecountTotals:
    """Change no file; the summary's totals are counted from the manifests, and not derived from the parent's."""


Operation = (
    AppendFiles
    | OverwriteFiles
    | ReplacePartitions
    | RewriteFiles
    | RowDelta
    | RewriteDeletes
    | RewriteManifests
    | DropDuplicates
    | RecountTotals
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SnapshotStep:
    """One snapshot of a commit, and additional keys for its summary."""

    operation: Operation
    summary: Mapping[str, str] = field(default_factory=dict)
