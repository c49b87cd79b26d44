"""Row ids of format version 3: each snapshot reserves a range of them for its new manifests.

Source: https://iceberg.apache.org/spec/#row-lineage and Iceberg Java's ManifestListWriter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lake.core.base.errors import CorruptFileError
from lake.core.spec.types.format_versions import ROW_LINEAGE_SINCE
from lake.core.table.manifests.data_files import DATA

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata


def assign_row_ids(
    metadata: TableMetadata, rows: Sequence[dict[str, Any]]
) -> tuple[list[dict[str, Any]], int]:
    """Assign a first row id to each data manifest without one; return all rows and the number of ids used.

    Manifests of an upgraded table get theirs with the first snapshot after the upgrade.

    Raises:
        CorruptFileError: the table's next row id, or a manifest's number of rows, is missing.
    """
    if metadata.format_version < ROW_LINEAGE_SINCE:
        return list(rows), 0
    first = next_row_id(metadata)
    numbered, following = [], first
    for row in rows:
        if row["content"] != DATA or row["first_row_id"] is not None:
            numbered.append(row)
            continue
        numbered.append({**row, "first_row_id": following})
        following += _row_count(row)
    return numbered, following - first


def next_row_id(metadata: TableMetadata) -> int:
    """Return the first row id that the table has not assigned.

    Raises:
        CorruptFileError: its metadata does not contain it.
    """
    found = getattr(metadata, "next_row_id", None)
    if found is None and not metadata.snapshots:
        return 0
    if found is None:
        raise CorruptFileError(
            "the table's metadata lacks next-row-id, which format version 3 requires"
        )
    return int(found)


def _row_count(row: Mapping[str, Any]) -> int:
    counts = (row["added_rows_count"], row["existing_rows_count"])
    if None in counts:
        raise CorruptFileError(f"the manifest list lacks the row counts of {row['manifest_path']}")
    return int(sum(counts))
