"""Delete files whose positions new deletion vectors contain."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lake.core.table.manifests.data_files import POSITION_DELETES
from lake.core.table.snapshots.delete_scopes import PUFFIN
from lake.core.transaction.commit.operations import DeleteKey

if TYPE_CHECKING:
    from lake.core.table.manifests.data_files import DataFile
    from lake.core.table.snapshots.live_files import LiveFiles


def superseded_deletes(
    live: LiveFiles, paths: Sequence[str], deletes: Sequence[DataFile]
) -> list[DeleteKey]:
    """Return the deletion vectors, and the delete files for one data file, that new vectors replace.

    Args:
        live: the data files that were read.
        paths: those of them to which the new delete files apply.
        deletes: the new delete files.
    """
    if not any(file.format == PUFFIN for file in deletes):
        return []
    wanted = set(paths)
    hit = pa.array(paths, pa.string())
    masks = [
        pc.is_in(entries["file_path"].cast(pa.string()), value_set=hit).to_numpy()
        for entries in live.by_spec.values()
    ]
    known = live.deletes_of(np.flatnonzero(np.concatenate(masks)))
    return [
        DeleteKey(item.path, item.content_offset)
        for item in known
        if item.content == POSITION_DELETES and item.referenced_data_file in wanted
    ]
