"""Plan a conversion: which equality deletes a branch has, and to which data files they may apply."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lake.core.errors import RefusedError
from lake.core.manifests.data_files import EQUALITY_DELETES, DeleteFile
from lake.core.rows.reader import FileSlice, slices_of
from lake.core.snapshots import ancestry
from lake.core.snapshots.live_files import LiveFiles, live_files
from lake.core.types.format_versions import DELETE_FILES_SINCE, DELETION_VECTORS_SINCE

if TYPE_CHECKING:
    from pyiceberg.table.snapshots import Snapshot

    from lake.core.catalogs.catalog import Table

Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversionPlan:
    """A planned conversion of all equality deletes of one snapshot.

    Args:
        table: the table that the plan was made for.
        branch: the branch.
        base: its head; None for an empty branch.
        found: the live files; None for an empty branch.
        equality: all live equality delete files.
        numbers: the numbers in ``found`` of the data files to which some of them may apply, ascending.
        files: these data files, in the same order.
    """

    table: Table
    branch: str
    base: Snapshot | None
    found: LiveFiles | None = None
    equality: Sequence[DeleteFile] = ()
    numbers: Sequence[int] = ()
    files: Sequence[FileSlice] = ()

    @property
    def input_bytes(self) -> int:
        """The size of the data files, of which only the compared columns are read."""
        return sum(file.size_bytes for file in self.files)

    def facts(self) -> dict[str, Any]:
        """Return the plan's figures for the outcome."""
        vectors = self.table.metadata.format_version >= DELETION_VECTORS_SINCE
        return {
            "equality_deletes": len(self.equality),
            "equality_rows": sum(item.record_count for item in self.equality),
            "data_files": len(self.files),
            "input_bytes": self.input_bytes,
            "kind": "vector" if vectors else "position",
        }


def plan_conversion(table: Table, branch: str = ancestry.MAIN) -> ConversionPlan:
    """Plan the conversion of all equality deletes of a branch; reads manifests only.

    Raises:
        NotFoundError: there is no such branch.
        RefusedError: the format version does not support delete files.
        CorruptFileError: a manifest does not match its list, or a delete file's entry is not valid.
    """
    if table.metadata.format_version < DELETE_FILES_SINCE:
        raise RefusedError(
            f"tables of format version {table.metadata.format_version} do not support delete files"
        )
    head = ancestry.branch_head(table.metadata, branch)
    if head is None:
        return ConversionPlan(table=table, branch=branch, base=None)
    found = live_files(table, head)
    equality = found.equality_deletes()
    numbers = _affected(found) if equality else np.zeros(0, np.int64)
    specs = table.metadata.specs()
    files: list[FileSlice] = []
    base = 0
    for spec_id, entries in found.by_spec.items():
        own = numbers[(numbers >= base) & (numbers < base + entries.num_rows)] - base
        chosen = entries.take(pa.array(own))
        files += slices_of(chosen, spec=specs[spec_id], schema=found.schema)
        base += entries.num_rows
    return ConversionPlan(
        table=table,
        branch=branch,
        base=head,
        found=found,
        equality=equality,
        numbers=numbers.tolist(),
        files=files,
    )


def _affected(found: LiveFiles) -> Int64s:
    """Return the numbers of the data files to which an equality delete may apply."""
    numbers: list[int] = []
    base = 0
    for spec_id, entries in found.by_spec.items():
        pairing = found.pairs[spec_id]
        for row in np.flatnonzero(pairing.counts):
            contents = found.delete_index.content[pairing.ordinals(np.array([row]))]
            if np.any(contents == EQUALITY_DELETES):
                numbers.append(base + int(row))
        base += entries.num_rows
    return np.array(numbers, np.int64)
