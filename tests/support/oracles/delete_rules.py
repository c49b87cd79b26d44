"""The specification's rule on which delete files apply to a data file, one pair at a time."""

from __future__ import annotations

import struct
from collections.abc import Collection, Sequence
from typing import Any


def applies(delete: Any, data: Any, deletes: Sequence[Any], global_specs: Collection[int]) -> bool:
    """Whether a delete file applies to a data file.

    Args:
        delete: the delete file, with the attributes of `lake.core.table.manifests.data_files.DeleteFile`.
        data: the data file: its path, spec, partition and data sequence number.
        deletes: all live delete files.
        global_specs: ids of the specs that make no partitions.
    """
    here = delete.spec_id == data.spec_id and _bits(delete.partition) == _bits(data.partition)
    if delete.content == 2:
        everywhere = delete.spec_id in global_specs
        return data.sequence_number < delete.sequence_number and (everywhere or here)
    if delete.format == "PUFFIN":
        return bool(delete.referenced_data_file == data.path)
    if any(
        other.format == "PUFFIN" and other.referenced_data_file == data.path for other in deletes
    ):
        return False
    in_scope = (
        here if delete.referenced_data_file is None else delete.referenced_data_file == data.path
    )
    return bool(in_scope and data.sequence_number <= delete.sequence_number)


def _bits(partition: Sequence[Any]) -> list[Any]:
    return [struct.pack("<d", value) if isinstance(value, float) else value for value in partition]
