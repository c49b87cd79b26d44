"""Plan what becomes of delete files: conversion of equality deletes, and what it has in common with a rewrite."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from lake.core.commit.operations import DeleteKey, Operation, RowDelta
from lake.core.errors import RefusedError
from lake.core.expressions.filters import bind_filter
from lake.core.expressions.parser import parse_filter
from lake.core.manifests.data_files import EQUALITY_DELETES, POSITION_DELETES, DataFile, DeleteFile
from lake.core.properties.table_properties import FILE, SNAPSHOT
from lake.core.rows.live_slices import slices_at
from lake.core.rows.reader import FileSlice
from lake.core.snapshots import ancestry
from lake.core.snapshots.delete_scopes import PUFFIN
from lake.core.snapshots.live_files import LiveFiles, live_files
from lake.core.snapshots.pruning import prune_files
from lake.core.types.format_versions import DELETE_FILES_SINCE, DELETION_VECTORS_SINCE

if TYPE_CHECKING:
    from pyiceberg.table.snapshots import Snapshot

    from lake.core.catalogs.catalog import Table

Mask = npt.NDArray[np.bool_]
_TASK_ROWS = 4_000_000
_TASK_FILES = 500


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


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletePlan(ABC):
    """A planned replacement of delete files of one snapshot.

    Args:
        table: the table that the plan was made for.
        branch: the branch.
        base: its head; None for an empty branch.
        chosen: the delete files that are removed.
        files: the data files for which there may be new deletes.
        granularity: whether a new position delete file is for one data file, or for several of a partition.
    """

    table: Table
    branch: str
    base: Snapshot | None
    chosen: Sequence[DeleteFile] = ()
    files: Sequence[FileSlice] = ()
    granularity: str = FILE

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

    @abstractmethod
    def facts(self) -> dict[str, Any]:
        """Return the plan's figures for the outcome."""

    @abstractmethod
    def result(self, written: Written) -> dict[str, Any]:
        """Return the figures of what was done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversionPlan(DeletePlan):
    """A planned conversion of equality deletes of one snapshot.

    Args:
        found: the live files; None for an empty branch.
        numbers: the numbers in ``found`` of the data files, ascending.
    """

    found: LiveFiles | None = None
    numbers: Sequence[int] = ()

    @property
    def compares_keys(self) -> bool:
        """Whether the compared columns of the data files are read."""
        return True

    @property
    def input_bytes(self) -> int:
        """The size of the data files, of which only the compared columns are read."""
        return sum(file.size_bytes for file in self.files)

    def parts(self, parallelism: int) -> Iterator[slice]:
        """Yield adjacent data files, by their rows."""
        most = min(_TASK_ROWS, -(-sum(file.record_count for file in self.files) // parallelism))
        start = taken = 0
        for place, file in enumerate(self.files):
            if place > start and (taken + file.record_count > most or place - start >= _TASK_FILES):
                yield slice(start, place)
                start, taken = place, 0
            taken += file.record_count
        yield slice(start, len(self.files))

    def deletes_of(self, places: slice) -> tuple[DeleteFile, ...]:
        """Return all delete files that may apply to some of the data files."""
        numbers = np.array(self.numbers[places], np.int64)
        return self.found.deletes_of(numbers) if self.found else ()

    def operation(self, written: Written) -> RowDelta:
        """Return the change of the table."""
        return RowDelta(
            added=[],
            deletes=written.deletes,
            replaced_deletes=[
                *(DeleteKey(item.path) for item in self.chosen),
                *self._superseded(written),
            ],
            base_snapshot_id=self.base_id,
            isolation=SNAPSHOT,
            ignore_equality=True,
        )

    def _superseded(self, written: Written) -> list[DeleteKey]:
        """Return the vectors, and the delete files for one data file, whose positions new vectors contain."""
        if not any(file.format == PUFFIN for file in written.deletes):
            return []
        hit = set(written.hit)
        return [
            DeleteKey(item.path, item.content_offset)
            for item in self.deletes_of(slice(None))
            if item.content == POSITION_DELETES and item.referenced_data_file in hit
        ]

    def facts(self) -> dict[str, Any]:
        """Return the plan's figures for the outcome."""
        return {
            "equality_deletes": len(self.chosen),
            "equality_rows": sum(item.record_count for item in self.chosen),
            "data_files": len(self.files),
            "input_bytes": self.input_bytes,
            "kind": self.kind,
        }

    def result(self, written: Written) -> dict[str, Any]:
        """Return the figures of what was done."""
        return {
            "removed_equality_deletes": len(self.chosen),
            "added_deletes": len(written.deletes),
            "changed_data_files": len(written.hit),
            "deleted_rows": written.rows,
        }


def plan_conversion(
    table: Table, branch: str = ancestry.MAIN, where: str | None = None
) -> ConversionPlan:
    """Plan the conversion of a branch's equality deletes; reads manifests only.

    Args:
        table: the table.
        branch: the branch.
        where: a filter; equality deletes of partitions that have no such rows stay.

    Raises:
        NotFoundError: there is no such branch or column.
        BadInputError: the filter is not valid.
        RefusedError: the format version does not support delete files.
        CorruptFileError: a manifest does not match its list, or a delete file's entry is not valid.
    """
    head = head_with_deletes(table, branch)
    if head is None:
        return ConversionPlan(table=table, branch=branch, base=None)
    found = live_files(table, head)
    if not found.delete_manifests.num_rows:
        return ConversionPlan(table=table, branch=branch, base=head)
    index = found.delete_index
    chosen = (index.content == EQUALITY_DELETES) & in_partitions(found, where)
    masks = [
        pairing.touched_by_key(pairing.count_equality_files(chosen) == 0)
        for pairing in found.pairs.values()
    ]
    affected = np.flatnonzero(np.concatenate([np.zeros(0, np.bool_), *masks]))
    return ConversionPlan(
        table=table,
        branch=branch,
        base=head,
        found=found,
        chosen=index.describe(np.flatnonzero(chosen)),
        numbers=affected.tolist(),
        files=slices_at(found, affected),
    )


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
