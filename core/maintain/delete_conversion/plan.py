"""What a plan for equality deletes and a plan for position deletes have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

import numpy as np

from lake.core.base.arrow import Int64s, Mask
from lake.core.base.errors import RefusedError
from lake.core.base.facts import Facts
from lake.core.data.rows.reader import FileSlice
from lake.core.maintain.delete_conversion.facts import (
    ConversionFacts,
    ConversionResult,
    RewriteFacts,
    RewriteResult,
)
from lake.core.spec.expressions.filters import bind_filter
from lake.core.spec.expressions.parser import parse_filter
from lake.core.spec.properties.table_properties import FILE
from lake.core.spec.types.format_versions import DELETE_FILES_SINCE, DELETION_VECTORS_SINCE
from lake.core.table.manifests.data_files import DataFile, DeleteFile
from lake.core.table.snapshots import ancestry
from lake.core.table.snapshots.live_files import LiveFiles
from lake.core.table.snapshots.pruning import prune_files
from lake.core.transaction.commit.operations import Operation

if TYPE_CHECKING:
    from pyiceberg.table.snapshots import Snapshot

    from lake.core.table.catalogs.catalog import Table
    from lake.core.table.snapshots.delete_index import DeleteIndex


# Why delete files are left alone: they are equality deletes, position delete files or deletion vectors, which the
# plan does not replace; their partition has no rows that match the filter; their data file has no other one; they are
# large enough; their partition has no other small one; a limit of the run leaves them to the next one.
EQUALITY, POSITION, VECTOR = "equality", "position", "vector"
OTHER_PARTITION, ONE_FOR_ITS_FILE = "other-partition", "one-for-its-file"
RIGHT_SIZE, ONLY_SMALL_FILE, LIMIT = "right-size", "only-small-file", "limit"


@dataclass(frozen=True, slots=True)
class KeptDeletes:
    """The delete files of a snapshot that a plan leaves alone.

    Args:
        index: all delete files.
        reasons: the ordinals of those that are left alone, by the reason.
    """

    index: DeleteIndex
    reasons: Mapping[str, Int64s]

    @classmethod
    def of(cls, index: DeleteIndex, chosen: Mask, reasons: Mapping[str, Mask]) -> Self:
        """Return the delete files that are not chosen, each with the first of the reasons that apply."""
        rest, found = ~chosen, {}
        for reason, mask in reasons.items():
            found[reason] = np.flatnonzero(rest & mask)
            rest = rest & ~mask
        return cls(index, found)


@dataclass(slots=True)
class Written:
    """What the tasks of a plan wrote.

    Args:
        hit: the data files for which there are new deletes.
        deletes: the new delete files.
        rows: the rows that these delete, without those that other delete files still delete.
    """

    hit: list[str] = field(default_factory=list)
    deletes: list[DataFile] = field(default_factory=list)
    rows: int = 0


@dataclass(frozen=True, kw_only=True)
class DeletePlan(ABC):
    """A planned replacement of delete files of one snapshot.

    Args:
        table: the table that the plan was made for.
        branch: the branch.
        base: its head; None for an empty branch.
        chosen: the delete files that are removed.
        granularity: whether a new position delete file is for one data file, or for several of a partition.
        remaining: how many files of the whole plan are left to later commits, if this is a part of it.
        kept: the delete files that are left alone; None if there is none.
    """

    table: Table
    branch: str
    base: Snapshot | None
    chosen: Sequence[DeleteFile] = ()
    granularity: str = FILE
    remaining: int = 0
    kept: KeptDeletes | None = field(default=None, repr=False, compare=False)

    @property
    @abstractmethod
    def files(self) -> Sequence[FileSlice]:
        """The data files for which there may be new deletes."""

    @property
    @abstractmethod
    def size(self) -> int:
        """The number of files that count for the limit of a run."""

    @property
    def least(self) -> int:
        """The least size of a part that changes something."""
        return 1

    @abstractmethod
    def limited(self, most: int | None) -> Self:
        """Return the part of the plan that comes first.

        Args:
            most: its greatest `size`; None for the whole plan.
        """

    @property
    def base_id(self) -> int | None:
        """The id of the branch's head."""
        return self.base.snapshot_id if self.base else None

    @property
    def kind(self) -> str:
        """What the new deletes are: ``vector`` or ``position``."""
        vectors = self.table.metadata.format_version >= DELETION_VECTORS_SINCE
        return "vector" if vectors else "position"

    @property
    @abstractmethod
    def compares_keys(self) -> bool:
        """Whether the compared columns of the data files are read."""

    @property
    @abstractmethod
    def input_bytes(self) -> int:
        """The size of the files that are read."""

    @abstractmethod
    def parts(self, parallelism: int) -> Iterator[slice]:
        """Yield the data files of each task; a data file is in one of them, as it has one vector."""

    @abstractmethod
    def deletes_of(self, places: slice) -> tuple[DeleteFile, ...]:
        """Return the delete files that are read for some of the data files."""

    @abstractmethod
    def operation(self, written: Written) -> Operation:
        """Return the change of the table."""

    @property
    def summary(self) -> Mapping[str, str]:
        """Additional entries of the snapshot's summary."""
        return {}

    @abstractmethod
    def facts(self) -> ConversionFacts | RewriteFacts:
        """Return the plan's figures for the outcome."""

    @abstractmethod
    def result(self, before: Facts, written: Written) -> ConversionResult | RewriteResult:
        """Return what was done, together with what earlier parts of the same plan did before."""


def in_partitions(found: LiveFiles, where: str | None) -> Mask:
    """Return for each delete file, by its ordinal, whether its partition may have rows that match a filter.

    Raises:
        NotFoundError: there is no such column.
        BadInputError: the filter is not valid.
    """
    condition = None if where is None else bind_filter(parse_filter(where), found.schema)
    index = found.delete_index
    masks = [np.zeros(0, np.bool_)]
    for spec_id, entries in index.by_spec.items():
        if condition is None:
            masks.append(np.ones(entries.num_rows, np.bool_))
            continue
        # Metrics of delete files exclude nothing, but must be there.
        described = entries.append_column("nan_value_counts", entries["null_value_counts"])
        mask = prune_files(described, index.specs[spec_id], found.schema, condition)
        masks.append(mask.to_numpy(zero_copy_only=False))
    return np.concatenate(masks)


def head_with_deletes(table: Table, branch: str) -> Snapshot | None:
    """Return a branch's head; None for an empty branch.

    Raises:
        NotFoundError: there is no such branch.
        RefusedError: the format version does not support delete files.
    """
    if table.metadata.format_version < DELETE_FILES_SINCE:
        raise RefusedError(
            f"tables of format version {table.metadata.format_version} do not support delete files"
        )
    return ancestry.branch_head(table.metadata, branch)
