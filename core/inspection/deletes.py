"""List a branch's delete files, and to how many data files and rows each of them may apply."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from lake.core.inspection.deleted_rows import Key, deleted_rows
from lake.core.manifests.data_files import EQUALITY_DELETES
from lake.core.outcome import Detail, Outcome, Status
from lake.core.snapshots import ancestry
from lake.core.snapshots.delete_scopes import all_schemas
from lake.core.snapshots.live_files import LiveFiles, live_files
from lake.core.snapshots.partition_names import partition_names

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

    from lake.core.catalogs.catalog import Table
    from lake.core.session import Session

_NEVER = np.iinfo(np.int64).max
_GROUPED = ("partition", "spec_id", "kind", "columns")


def list_deletes(
    table: Table, *, branch: str = ancestry.MAIN, exact: Session | None = None
) -> Outcome:
    """Return the live delete files, by spec and in the order of their manifests.

    Args:
        table: the table.
        branch: the branch.
        exact: the session whose engine counts the rows that each delete file deletes; None to read metadata only.

    Raises:
        NotFoundError: there is no such branch.
        CorruptFileError: a manifest does not match its list, or a delete file's entry is not valid.
    """
    head = ancestry.branch_head(table.metadata, branch)
    rows: list[dict[str, Any]] = []
    if head is not None:
        columns = None if exact else ("record_count",)
        found = live_files(table, head, columns=columns)
        if found.delete_manifests.num_rows:
            rows = _rows(found, deleted_rows(exact, found) if exact else None)
    groups = _groups(rows)
    return Outcome(
        command="deletes",
        table=table.identifier,
        branch=branch,
        status=Status.DONE,
        base_snapshot_id=head.snapshot_id if head else None,
        result={"groups": groups, "delete_files": rows},
        details=[_table(groups, exact=exact is not None)],
    )


def _rows(found: LiveFiles, counts: Mapping[Key, int] | None) -> list[dict[str, Any]]:
    index, metadata = found.delete_index, found.table.metadata
    files, data_rows = (np.zeros(index.count, np.int64) for _ in range(2))
    oldest = np.full(index.count, _NEVER, np.int64)
    for spec_id, pairing in found.pairs.items():
        records = found.by_spec[spec_id]["record_count"].to_numpy().astype(np.int64)
        some_files, some_rows, lowest = pairing.reach(records)
        files, data_rows = files + some_files, data_rows + some_rows
        oldest = np.minimum(oldest, lowest)
    rows = []
    for spec_id, entries in index.by_spec.items():
        base = index.bases[spec_id]
        named = partition_names(entries, spec_id, metadata)
        ordinals = np.arange(base, base + entries.num_rows)
        for place, file in enumerate(index.describe(ordinals)):
            ordinal = base + place
            is_vector = bool(index.is_vector[ordinal])
            of_keys = file.content == EQUALITY_DELETES
            rows.append(
                {
                    "path": file.path,
                    "kind": "equality" if of_keys else "vector" if is_vector else "position",
                    "partition": named.names[named.codes[place]],
                    "spec_id": spec_id,
                    "columns": _columns(file.equality_ids or (), metadata) if of_keys else None,
                    "data_file": file.referenced_data_file,
                    "rows": file.record_count,
                    "bytes": file.content_size_bytes if is_vector else file.size_bytes,
                    "sequence_number": file.sequence_number,
                    "data_files": int(files[ordinal]),
                    "data_rows": int(data_rows[ordinal]),
                    "oldest_data_sequence_number": (
                        int(oldest[ordinal]) if files[ordinal] else None
                    ),
                    "dangling": not files[ordinal],
                    "deleted_rows": (
                        None if counts is None else counts.get((file.path, file.content_offset), 0)
                    ),
                }
            )
    return rows


def _columns(ids: Sequence[int], metadata: TableMetadata) -> list[str]:
    """Return the names of columns; the id as a text for a column that no schema has any more."""
    schemas = all_schemas(metadata)
    names = []
    for column in sorted(ids):
        found = (schema.find_column_name(column) for schema in schemas)
        names.append(next((name for name in found if name is not None), str(column)))
    return names


def _groups(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    groups: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in rows:
        group = groups.setdefault(
            (row["partition"], row["spec_id"], row["kind"], tuple(row["columns"] or ())),
            {
                **{key: row[key] for key in _GROUPED},
                **dict.fromkeys(("files", "rows", "bytes", "dangling"), 0),
                "oldest_sequence_number": row["sequence_number"],
                "deleted_rows": None if row["deleted_rows"] is None else 0,
            },
        )
        group["files"] += 1
        group["rows"] += row["rows"]
        group["bytes"] += row["bytes"] or 0
        group["dangling"] += row["dangling"]
        if row["deleted_rows"] is not None:
            group["deleted_rows"] += row["deleted_rows"]
        least = min(group["oldest_sequence_number"], row["sequence_number"])
        group["oldest_sequence_number"] = least
    return [groups[key] for key in sorted(groups)]


def _table(groups: Sequence[dict[str, Any]], *, exact: bool) -> Detail:
    counted = ("deleted_rows",) if exact else ()
    return Detail(
        "deletes",
        [
            *("partition", "kind", "columns", "files", "rows", "size_bytes", "dangling"),
            "oldest_sequence_number",
            *counted,
        ],
        [
            [
                group["partition"] or "(not partitioned)",
                group["kind"],
                ", ".join(group["columns"] or ()),
                *(group[key] for key in ("files", "rows", "bytes", "dangling")),
                group["oldest_sequence_number"],
                *(group[key] for key in counted),
            ]
            for group in groups
        ],
    )
