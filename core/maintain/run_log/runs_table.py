"""An Iceberg table with the runs of `lake maintain`: a round appends the entries of its actions in one commit.

Any engine can read the table, so that each host sees the runs of all. Its columns are those of `COLUMNS`, and all are
optional. A table is taken for one of runs by the columns in `_KEYS`; columns that others added stay NULL, and columns
that an older version did not write are added in the commit. What is read is not trusted: it is checked as a line of
the run log is, and decides nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lake.core.base.errors import CommitConflictError, NotFoundError, RefusedError
from lake.core.base.units import iso_time
from lake.core.data.columns.nullability import null_in_required
from lake.core.data.rows.writer import WriteSettings, open_writer
from lake.core.data.schemas.evolution import evolved, schema_changes
from lake.core.data.schemas.new_tables import NewColumns, new_table
from lake.core.maintain.run_log.entries import Entry, UnreadableEntryError
from lake.core.maintain.run_log.experience import saved_seconds
from lake.core.maintain.run_log.run_log import LoggedRuns
from lake.core.read.scan.execute import ScanRows
from lake.core.read.scan.plan import ScanOptions, plan_scan
from lake.core.spec.types.arrow_schema import arrow_schema
from lake.core.spec.types.type_text import type_text
from lake.core.table.catalogs.names import has_namespace, load_listed
from lake.core.transaction.commit.commit import CommitRequest, commit_snapshot
from lake.core.transaction.commit.operations import AppendFiles
from lake.core.transaction.commit.preconditions import require_writable
from lake.core.transaction.staging.operation_files import staged

if TYPE_CHECKING:
    from pyiceberg.schema import Schema

    from lake.core.table.catalogs.catalog import Table
    from lake.core.table.manifests.data_files import DataFile
    from lake.core.transaction.session import Session

_COUNTS = pa.int64()
_MEASURES = pa.struct(
    [
        *((name, _COUNTS) for name in ("files", "small_files", "bytes", "delete_files")),
        *((name, _COUNTS) for name in ("deleted_rows", "manifests", "snapshots")),
        ("metadata_bytes", _COUNTS),
        *((name, pa.float64()) for name in ("scan_seconds", "partition_scan_seconds")),
        ("manifest_bytes", _COUNTS),
        ("measured_seconds", pa.float64()),
    ]
)
# The columns, in their order. `table` is a reserved word of SQL.
COLUMNS = pa.schema(
    [
        ("ended_at", pa.timestamp("us", "UTC")),
        *((name, pa.string()) for name in ("run_id", "host", "catalog", "table_name")),
        *((name, pa.string()) for name in ("table_uuid", "action", "status")),
        ("seconds", pa.float64()),
        ("saved_seconds", pa.float64()),
        ("bytes", _COUNTS),
        (
            "forecast",
            pa.struct(
                [
                    *((name, _COUNTS) for name in ("before", "after", "bytes")),
                    *((name, pa.float64()) for name in ("seconds", "partition_seconds")),
                    ("work_seconds", pa.float64()),
                ]
            ),
        ),
        ("before", _MEASURES),
        ("after", _MEASURES),
        ("operation_id", pa.string()),
        ("snapshot_ids", pa.list_(pa.int64())),
        ("error", pa.struct([(name, pa.string()) for name in ("kind", "message", "hint")])),
        ("store", pa.string()),
    ]
)
_PARTITION_BY = "month(ended_at)"
_KEYS = ("ended_at", "run_id", "table_name", "table_uuid", "action", "status")
# The names of these columns in an entry.
_RENAMED = {"ended_at": "at", "run_id": "run", "table_name": "table"}
# Two processes may create the table at once.
_ATTEMPTS = 2
# As many entries as a run log has at most; more rows than the second number are never in memory.
_MOST_READ, _MOST_KEPT = 60_000, 240_000


def append_runs(session: Session, name: str, entries: Sequence[Entry]) -> None:
    """Append entries to a table in one commit; the table is created if it does not exist.

    Args:
        session: the session.
        name: the name of the table.
        entries: the entries, which contain no secrets.

    Raises:
        NotFoundError: the namespace does not exist.
        RefusedError: a table with this name is not one of runs, or cannot be written.
        CommitUnknownError: they may have been appended.
        LakeError: they could not be appended.
    """
    if not entries:
        return
    for attempt in range(1, _ATTEMPTS + 1):
        table = load_listed(session.catalog, name) or _created(session, name)
        try:
            _append(session, table, entries)
        except CommitConflictError:
            if attempt == _ATTEMPTS:
                raise
        else:
            return


def read_runs(session: Session, name: str, since_ms: int | None) -> LoggedRuns:
    """Return the newest entries of a table, the oldest first.

    Args:
        session: the session.
        name: the name of the table.
        since_ms: only those that ended at this time or later, in ms since 1970; None for all.

    Raises:
        RefusedError: the table is not one of runs.
        LakeError: it cannot be read.
    """
    table = load_listed(session.catalog, name)
    if table is None:
        return LoggedRuns(is_found=False)
    _require_runs(table)
    where = None if since_ms is None else f"ended_at >= '{iso_time(since_ms)}'"
    names = [item.name for item in table.schema.fields if item.name in COLUMNS.names]
    scan = plan_scan(table, ScanOptions(where=where, select=names))
    entries: list[Entry] = []
    unreadable = 0
    for row in _newest(ScanRows(scan)):
        try:
            entries.append(Entry.of_values(_entry_values(row)))
        except UnreadableEntryError:
            unreadable += 1
    return LoggedRuns(entries, unreadable)


# Writing


def _created(session: Session, name: str) -> Table:
    """Return a table that the first commit creates.

    Raises:
        NotFoundError: its namespace does not exist.
    """
    namespace = name.rpartition(".")[0]
    if not has_namespace(session.catalog, namespace):
        raise NotFoundError(f"the namespace {namespace} does not exist", hint="create it")
    made = new_table(
        NewColumns().schema_of(COLUMNS),
        partition_by=_PARTITION_BY,
        sort_by=None,
        properties={},
        warn=session.warn,
    )
    return made.stage(session.catalog, name, make_namespace=False)


def _append(session: Session, table: Table, entries: Sequence[Entry]) -> None:
    _require_runs(table)
    require_writable(table)
    metadata = table.metadata
    schema = table.schema
    if not table.creating:
        next_id = max(item.schema_id for item in metadata.schemas) + 1
        schema = evolved(schema, metadata.last_column_id, next_id, COLUMNS)
    requirements, updates = ((), ()) if schema is table.schema else schema_changes(table, schema)
    operation_id = session.ids.uuid()
    with staged(session, table, operation_id):
        files = _written(table, schema, entries, operation_id)
        request = CommitRequest(
            operation_id=operation_id, requirements=requirements, updates=updates
        )
        commit_snapshot(session, table, AppendFiles(added=files), request)


def _written(
    table: Table, schema: Schema, entries: Sequence[Entry], operation_id: str
) -> list[DataFile]:
    settings = WriteSettings.of(table, operation_id, schema=schema)
    batch = _batch(schema, [_row(entry) for entry in entries], table.identifier)
    with open_writer(table.storage, settings, task=0, attempt=operation_id) as writer:
        writer.write(batch)
        return writer.close()


def _batch(schema: Schema, rows: Sequence[Mapping[str, Any]], name: str) -> pa.RecordBatch:
    """Return rows with the columns of a table, by their names.

    Raises:
        RefusedError: a column has another type, or requires a value.
    """
    target = arrow_schema(schema)
    columns = []
    for item in target:
        try:
            columns.append(pa.array([row.get(item.name) for row in rows], type=item.type))
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise RefusedError(
                f"runs cannot be appended to {name}: its column {item.name} is of type {type_text(item.type)}"
            ) from error
    batch = pa.RecordBatch.from_arrays(columns, schema=target)
    if required := null_in_required(batch):
        raise RefusedError(
            f"runs cannot be appended to {name}: its column {required} requires a value"
        )
    return batch


def _row(entry: Entry) -> dict[str, Any]:
    found = entry.document()
    row = {name: found.get(_RENAMED.get(name, name)) for name in COLUMNS.names}
    row["ended_at"] = datetime.fromisoformat(entry.at)
    row["saved_seconds"] = saved_seconds(entry)
    row["snapshot_ids"] = [int(item) for item in entry.snapshot_ids]
    return row


def _require_runs(table: Table) -> None:
    """Refuse a table of something else: its columns would be changed.

    Raises:
        RefusedError: it is not a table of runs.
    """
    known = {item.name for item in table.schema.fields}
    if missing := [name for name in _KEYS if name not in known]:
        raise RefusedError(
            f"{table.identifier} is not a table of runs: it has no column {missing[0]}",
            hint="name another table; one that does not exist is created",
        )


# Reading


def _newest(rows: ScanRows) -> Iterator[dict[str, Any]]:
    """Yield the newest rows, the oldest first."""
    kept: list[pa.Table] = []
    count = 0
    for batch in rows.stream(Counter()):
        kept.append(pa.Table.from_batches([batch]))
        count += batch.num_rows
        if count > _MOST_KEPT:
            kept = [_last(kept)]
            count = kept[0].num_rows
    if kept:
        for batch in _last(kept).to_batches(max_chunksize=1024):
            yield from batch.to_pylist()


def _last(parts: Sequence[pa.Table]) -> pa.Table:
    found = pa.concat_tables(parts)
    ordered = found.sort_by("ended_at")
    return ordered.slice(max(ordered.num_rows - _MOST_READ, 0))


def _entry_values(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row as a line of the run log has it."""
    values = {_RENAMED.get(name, name): value for name, value in row.items()}
    at = values.get("at")
    values["at"] = at.isoformat() if isinstance(at, datetime) else None
    values["snapshot_ids"] = [str(item) for item in values.get("snapshot_ids") or ()]
    return values
