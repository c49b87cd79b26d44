"""Where Flink keeps a job's checkpoints: ``chk-<number>/_metadata``, written last, side by side."""

from __future__ import annotations

import re

from lake.core import locations
from lake.core.storage.storage import Storage

METADATA = "_metadata"
_NAME = re.compile(r"chk-([0-9]{1,19})")


def number_of(metadata: str) -> int | None:
    """Return the number that the folder of a ``_metadata`` file is named after; None for a savepoint's."""
    found = _NAME.fullmatch(metadata.rpartition("/")[0].rpartition("/")[2])
    return int(found[1]) if found else None


def metadata_below(storage: Storage, folder: str) -> dict[int, str]:
    """Return by number where the checkpoints right in a folder have their ``_metadata``, once they complete."""
    inside = [
        locations.join(folder, name, METADATA)
        for name, is_folder in storage.list_folder(folder)
        if is_folder
    ]
    return {number: path for path in inside if (number := number_of(path)) is not None}
