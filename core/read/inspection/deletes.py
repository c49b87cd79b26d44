"""List a branch's delete files, and to how many data files and rows each of them may apply."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa

from lake.core.base.arrow import Int64s
from lake.core.base.options import Option
from lake.core.base.outcome import Detail, Outcome, Status
from lake.core.read.inspection.deleted_rows import Key, deleted_rows
from lake.core.read.inspection.facts import DeleteFileFacts, DeleteGroupFacts, DeletesResult
from lake.core.spec.types.format_versions import DELETION_VECTORS_SINCE
from lake.core.table.manifests.data_files import EQUALITY_DELETES
from lake.core.table.snapshots import ancestry
from lake.core.table.snapshots.delete_scopes import all_schemas
from lake.core.table.snapshots.live_files import LiveFiles, live_files
from lake.core.table.snapshots.partition_names import partition_names

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

    from lake.core.table.catalogs.catalog import Table
    from lake.core.transaction.session import Session

_DESCRIBED = ("file_path", "partition", "sequence_number")
# Why delete files of a kind are needed, and what makes them needless.
_RELEASES = {
    "equality": (
        "needed while older data files are live",
        f"{Option.CONVERT} replaces them by positions; `lake compact` rewrites the data files without the rows",
    ),
    "position": (
        "needed while their data files are live",
        (
            "`lake compact` rewrites the data files without the rows; "
            f"{Option.REWRITE} merges many delete files, and replaces all by vectors in format version 3"
        ),
    ),
    "vector": (
        "needed while their data files are live",
        "`lake compact` rewrites the data files without the rows",
    ),
}


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
    rows: list[DeleteFileFacts] = []
    if head is not None:
        columns = None if exact else ("record_count",)
        found = live_files(table, head, columns=columns)
        if found.delete_manifests.num_rows:
            rows = _rows(found, deleted_rows(exact, found) if exact else None)
    groups = _groups(rows)
    return Outcome(
        status=Status.DONE,
        base_snapshot_id=head.snapshot_id if head else None,
        result=DeletesResult(groups=groups, delete_files=rows),
        details=[_table(groups, exact=exact is not None)] if groups else [],
        notes=_notes(rows),
    )


@dataclass(frozen=True, slots=True)
class _Reach:
    """The data files to which delete files may apply.

    Args:
        files: their number, for each delete file by its ordinal.
        rows: the sum of their rows.
        oldest: the path, the partition and the sequence number of one with the lowest sequence number; None if the
            delete file applies to none.
    """

    files: Int64s
    rows: Int64s
    oldest: Sequence[tuple[str, str, int] | None]

    @classmethod
    def of(cls, found: LiveFiles) -> Self:
        """Compare the scopes and sequence numbers of a snapshot's files."""
        count = found.delete_index.count
        files, rows = (np.zeros(count, np.int64) for _ in range(2))
        oldest: list[tuple[str, str, int] | None] = [None] * count
        for spec_id, pairing in found.pairs.items():
            entries = found.by_spec[spec_id]
            records = entries["record_count"].to_numpy().astype(np.int64)
            some_files, some_rows, first = pairing.reach(records)
            files, rows = files + some_files, rows + some_rows
            reached = np.flatnonzero(some_files)
            chosen = entries.select(_DESCRIBED).take(pa.array(first[reached]))
            named = partition_names(chosen, spec_id, found.table.metadata)
            columns = chosen["file_path"].to_pylist(), chosen["sequence_number"].to_pylist()
            for place, (ordinal, path, number) in enumerate(
                zip(reached.tolist(), *columns, strict=True)
            ):
                known = oldest[ordinal]
                if known is None or number < known[2]:
                    oldest[ordinal] = path, named.names[named.codes[place]], number
        return cls(files, rows, oldest)


def _rows(found: LiveFiles, counts: Mapping[Key, int] | None) -> list[DeleteFileFacts]:
    index, metadata = found.delete_index, found.table.metadata
    reach = _Reach.of(found)
    vectors = metadata.format_version >= DELETION_VECTORS_SINCE
    rows = []
    for spec_id, entries in index.by_spec.items():
        base = index.bases[spec_id]
        named = partition_names(entries, spec_id, metadata)
        ordinals = np.arange(base, base + entries.num_rows)
        for place, file in enumerate(index.describe(ordinals)):
            ordinal = base + place
            is_vector = bool(index.is_vector[ordinal])
            of_keys = file.content == EQUALITY_DELETES
            kind = "equality" if of_keys else "vector" if is_vector else "position"
            files, data_rows = int(reach.files[ordinal]), int(reach.rows[ordinal])
            path, partition, number = reach.oldest[ordinal] or (None, None, None)
            rows.append(
                DeleteFileFacts(
                    path=file.path,
                    kind=kind,
                    partition=named.names[named.codes[place]],
                    spec_id=spec_id,
                    columns=_columns(file.equality_ids or (), metadata) if of_keys else None,
                    data_file=file.referenced_data_file,
                    rows=file.record_count,
                    bytes=file.content_size_bytes if is_vector else file.size_bytes,
                    sequence_number=file.sequence_number,
                    data_files=files,
                    data_rows=data_rows,
                    oldest_data_file=path,
                    oldest_data_partition=partition,
                    oldest_data_sequence_number=number,
                    dangling=not files,
                    released_by=_released_by(kind, dangling=not files, vectors=vectors),
                    # One key may be that of many rows.
                    deleted_rows_at_most=(
                        data_rows if of_keys else min(file.record_count, data_rows)
                    ),
                    deleted_rows=(
                        None if counts is None else counts.get((file.path, file.content_offset), 0)
                    ),
                )
            )
    return rows


def _released_by(kind: str, *, dangling: bool, vectors: bool) -> list[str]:
    """Return what removes a delete file: the verb, or an option of `lake deletes`.

    A live delete file is needed until others replace it, or its data files are rewritten, the last of them.

    Args:
        kind: its kind.
        dangling: whether it applies to no data file.
        vectors: whether the table's format version has deletion vectors, which replace position delete files.
    """
    if kind == "equality":
        return ["compact"] if dangling else ["convert", "compact"]
    if dangling:
        return ["rewrite"]
    return ["rewrite", "compact"] if vectors and kind == "position" else ["compact"]


def _columns(ids: Sequence[int], metadata: TableMetadata) -> list[str]:
    """Return the names of columns; the id as a text for a column that no schema has any more."""
    schemas = all_schemas(metadata)
    names = []
    for column in sorted(ids):
        found = (schema.find_column_name(column) for schema in schemas)
        names.append(next((name for name in found if name is not None), str(column)))
    return names


def _groups(rows: Sequence[DeleteFileFacts]) -> list[DeleteGroupFacts]:
    groups: dict[tuple[Any, ...], DeleteGroupFacts] = {}
    for row in rows:
        group = groups.setdefault(
            (row.partition, row.spec_id, row.kind, tuple(row.columns or ())),
            DeleteGroupFacts(
                partition=row.partition,
                spec_id=row.spec_id,
                kind=row.kind,
                columns=row.columns,
                oldest_sequence_number=row.sequence_number,
                deleted_rows=None if row.deleted_rows is None else 0,
            ),
        )
        group.files += 1
        group.rows += row.rows
        group.bytes += row.bytes or 0
        group.dangling += row.dangling
        at_most = row.deleted_rows_at_most
        if row.kind == "equality":
            # The newest applies to all data files of the others.
            group.data_files = max(group.data_files, row.data_files)
            group.deleted_rows_at_most = max(group.deleted_rows_at_most, at_most)
        else:
            group.data_files += row.data_files
            group.deleted_rows_at_most += at_most
        if group.deleted_rows is not None:
            group.deleted_rows += row.deleted_rows or 0
        group.oldest_sequence_number = min(group.oldest_sequence_number, row.sequence_number)
    return [groups[key] for key in sorted(groups)]


def _table(groups: Sequence[DeleteGroupFacts], *, exact: bool) -> Detail:
    """Return the groups with as few columns as they need, so that the table fits on a terminal."""
    cells: dict[str, list[Any]] = {}
    if any(group.partition for group in groups):
        cells["partition"] = [group.partition or "(not partitioned)" for group in groups]
    cells["kind"] = [
        f"{group.kind} ({', '.join(group.columns)})" if group.columns else group.kind
        for group in groups
    ]
    cells["files"] = [group.files for group in groups]
    cells["rows"] = [group.rows for group in groups]
    cells["size_bytes"] = [group.bytes for group in groups]
    cells["data_files"] = [group.data_files for group in groups]
    if exact:
        cells["deleted_rows"] = [group.deleted_rows for group in groups]
    if any(group.dangling for group in groups):
        cells["dangling"] = [group.dangling for group in groups]
    return Detail("deletes", list(cells), list(zip(*cells.values(), strict=True)))


def _notes(rows: Sequence[DeleteFileFacts]) -> list[str]:
    """Return what each kind of delete file waits for, with an example."""
    notes = []
    for kind, (reason, release) in _RELEASES.items():
        needed = [row for row in rows if row.kind == kind and not row.dangling]
        if needed:
            oldest = min(needed, key=lambda row: row.oldest_data_sequence_number or 0)
            where = f" in {oldest.oldest_data_partition}" * bool(oldest.oldest_data_partition)
            number = oldest.oldest_data_sequence_number
            notes.append(f"{kind}: {reason}, the oldest{where} with sequence number {number}")
            notes.append(f"{kind}: {release}")
    if any(row.dangling for row in rows):
        notes.append(
            f"dangling: apply to no data file; {Option.REWRITE} removes those of positions, `lake compact` all others"
        )
    return notes
