"""Live data files of a snapshot in the form in which files are read."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lake.core.columns.file_slice import FileSlice, slices_of
from lake.core.snapshots.live_files import LiveFiles

Int64s = npt.NDArray[np.int64]


def slices_at(found: LiveFiles, numbers: Int64s) -> list[FileSlice]:
    """Return data files by their numbers, ascending."""
    specs = found.table.metadata.specs()
    files: list[FileSlice] = []
    base = 0
    for spec_id, entries in found.by_spec.items():
        own = numbers[(numbers >= base) & (numbers < base + entries.num_rows)] - base
        chosen = entries.take(pa.array(own))
        files += slices_of(chosen, spec=specs[spec_id], schema=found.schema)
        base += entries.num_rows
    return files
