"""Delete files as another engine would commit them: lake itself writes none yet."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import AddSnapshotUpdate, AssertRefSnapshotId, SetSnapshotRefUpdate
from table_support import open_session

from lake.core.table.files import EQUALITY_DELETES, POSITION_DELETES, DataFile
from lake.core.table.manifest_schemas import MANIFEST_SCHEMA
from lake.core.table.manifests import (
    describe_manifest,
    encode_manifest,
    encode_manifest_list,
    entries_of,
    read_manifest_list,
)

_PATH, _POSITION = 2147483546, 2147483545


def commit_position_delete(warehouse: Path, path: str, position: int, name: str = "db.t") -> None:
    """Delete one row of a data file of an unpartitioned table, in a snapshot of its own."""
    schema = pa.schema(
        [
            pa.field("file_path", pa.string(), metadata={"PARQUET:field_id": str(_PATH)}),
            pa.field("pos", pa.int64(), metadata={"PARQUET:field_id": str(_POSITION)}),
        ]
    )
    rows = pa.table([[path], [position]], schema=schema)
    bounds = {_PATH: path.encode()}
    _commit(
        warehouse, name, rows, content=POSITION_DELETES, lower_bounds=bounds, upper_bounds=bounds
    )


def commit_equality_delete(warehouse: Path, ids: list[int], name: str = "db.t") -> None:
    """Delete the rows of an unpartitioned table whose column 1 is among ids, in a snapshot of its own."""
    field = pa.field("id", pa.int64(), metadata={"PARQUET:field_id": "1"})
    rows = pa.table([pa.array(ids, pa.int64())], schema=pa.schema([field]))
    _commit(warehouse, name, rows, content=EQUALITY_DELETES, equality_ids=(1,))


def _commit(warehouse: Path, name: str, rows: pa.Table, **described: Any) -> None:
    table = open_session(warehouse).table(name)
    metadata, head = table.metadata, table.metadata.current_snapshot()
    location = f"{table.data_location}/{uuid.uuid4()}-deletes.parquet"
    path = Path(location.removeprefix("file://"))
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows, path)
    file = DataFile(
        path=location,
        spec_id=table.spec.spec_id,
        record_count=rows.num_rows,
        size_bytes=path.stat().st_size,
        **described,
    )
    snapshot_id, sequence_number = uuid.uuid4().int >> 66, metadata.last_sequence_number + 1
    shared: dict[str, Any] = {"spec": table.spec, "schema": table.schema}
    entries = entries_of([file], status=1, snapshot_id=snapshot_id, **shared)
    data = encode_manifest(entries, format_version=2, content=1, **shared)
    manifest = f"{table.metadata_folder}/{uuid.uuid4()}-m0.avro"
    table.storage.write(manifest, data)
    row = describe_manifest(
        entries,
        location=manifest,
        length=len(data),
        content=1,
        sequence_number=sequence_number,
        added_snapshot_id=snapshot_id,
        **shared,
    )
    before = read_manifest_list(table.storage, head.manifest_list).to_pylist()
    listed = f"{table.metadata_folder}/snap-{snapshot_id}.avro"
    table.storage.write(
        listed,
        encode_manifest_list(
            pa.Table.from_pylist([row, *before], schema=MANIFEST_SCHEMA),
            format_version=2,
            snapshot_id=snapshot_id,
            parent_snapshot_id=head.snapshot_id,
            sequence_number=sequence_number,
        ),
    )
    snapshot = Snapshot(
        snapshot_id=snapshot_id,
        parent_snapshot_id=head.snapshot_id,
        sequence_number=sequence_number,
        timestamp_ms=metadata.last_updated_ms + 1,
        manifest_list=listed,
        summary=Summary(Operation.DELETE),
        schema_id=metadata.current_schema_id,
    )
    table.send(
        (AssertRefSnapshotId(ref="main", snapshot_id=head.snapshot_id),),
        (
            AddSnapshotUpdate(snapshot=snapshot),
            SetSnapshotRefUpdate(ref_name="main", type="branch", snapshot_id=snapshot_id),
        ),
    )
