"""Delete files written by hand, for tests of what commits and readers do with them."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lake.core.base.settings import Settings
from lake.core.data.deletes.puffin import PuffinWriter
from lake.core.data.deletes.row_positions import RowPositions
from lake.core.io.storage.storage import Storage
from lake.core.table.catalogs.catalog import Table
from lake.core.table.manifests.data_files import EQUALITY_DELETES, POSITION_DELETES, DataFile
from lake.core.transaction.commit.commit import CommitRequest, commit_snapshot
from lake.core.transaction.commit.operations import RowDelta
from lake.core.transaction.session import Session
from support.tables.iceberg_tables import open_session

_PATH, _POS = 2147483546, 2147483545
_FIELD_ID = b"PARQUET:field_id"


def commit_deletes(table: Table, *deletes: DataFile) -> Table:
    """Commit delete files in a snapshot of their own; return the table after it."""
    head = table.metadata.current_snapshot_id
    delta = RowDelta(added=[], deletes=deletes, base_snapshot_id=head)
    session = Session(settings=Settings(), catalog=table.catalog)
    return commit_snapshot(
        session, table, delta, CommitRequest(operation_id=str(uuid.uuid4()))
    ).table


def commit_position_delete(warehouse: Path, path: str, position: int, name: str = "db.t") -> None:
    """Delete one row of a data file of an unpartitioned table, in a snapshot of its own."""
    table = open_session(warehouse).table(name)
    commit_deletes(table, position_file(table, [(path, position)]))


def commit_equality_delete(warehouse: Path, ids: Sequence[int], name: str = "db.t") -> None:
    """Delete the rows of an unpartitioned table whose `id` is among ids, in a snapshot of its own."""
    table = open_session(warehouse).table(name)
    commit_deletes(table, equality_file(table, [{"id": number} for number in ids], ["id"]))


def _field(name: str, kind: pa.DataType, number: int, *, required: bool) -> pa.Field:
    return pa.field(name, kind, nullable=not required, metadata={_FIELD_ID: str(number).encode()})


def _written(table: Table, rows: pa.Table) -> tuple[str, int]:
    location = f"{table.data_location}/{uuid.uuid4()}-deletes.parquet"
    path = Path(location.removeprefix("file://"))
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows, path, write_page_checksum=True)
    return location, path.stat().st_size


def position_file(
    table: Table,
    places: Sequence[tuple[str, int]],
    *,
    partition: tuple[bytes | None, ...] = (),
    names_file: bool = True,
) -> DataFile:
    """Write a Parquet position delete file; it says which data file it is for if there is one only."""
    ordered = sorted(places)
    schema = pa.schema(
        [
            _field("file_path", pa.string(), _PATH, required=True),
            _field("pos", pa.int64(), _POS, required=True),
        ]
    )
    rows = pa.table([[p for p, _ in ordered], [n for _, n in ordered]], schema=schema)
    location, size = _written(table, rows)
    paths = sorted({path for path, _ in places})
    return DataFile(
        content=POSITION_DELETES,
        path=location,
        spec_id=table.spec.spec_id,
        partition=partition,
        record_count=len(ordered),
        size_bytes=size,
        lower_bounds={_PATH: paths[0].encode()},
        upper_bounds={_PATH: paths[-1].encode()},
        referenced_data_file=paths[0] if names_file and len(paths) == 1 else None,
    )


def equality_file(
    table: Table,
    rows: Iterable[Mapping[str, Any]],
    keys: Sequence[str],
    *,
    partition: tuple[bytes | None, ...] = (),
) -> DataFile:
    """Write a Parquet equality delete file with the given rows (columns of the table's schema)."""
    found = list(rows)
    from pyiceberg.io.pyarrow import schema_to_pyarrow

    names = list(found[0])
    schema = schema_to_pyarrow(table.schema.select(*names))
    arrow = pa.table([[row[name] for row in found] for name in schema.names], schema=schema)
    location, size = _written(table, arrow)
    return DataFile(
        content=EQUALITY_DELETES,
        path=location,
        spec_id=table.spec.spec_id,
        partition=partition,
        record_count=len(found),
        size_bytes=size,
        equality_ids=tuple(table.schema.find_field(name).field_id for name in keys),
    )


def vectors(
    table: Table,
    positions: Mapping[str, Iterable[int]],
    *,
    partition: tuple[bytes | None, ...] = (),
) -> list[DataFile]:
    """Write deletion vectors, one for each data file, into one Puffin file."""
    location = f"{table.data_location}/{uuid.uuid4()}-deletes.puffin"
    found = {path: np.array(sorted(rows), np.int64) for path, rows in positions.items()}
    Path(location.removeprefix("file://")).parent.mkdir(parents=True, exist_ok=True)
    with PuffinWriter(Storage(), location) as writer:
        places = [
            writer.add_vector(RowPositions(rows).to_blob(), data_file=path, positions=len(rows))
            for path, rows in found.items()
        ]
        size = writer.close()
    return [
        DataFile(
            content=POSITION_DELETES,
            path=location,
            format="PUFFIN",
            spec_id=table.spec.spec_id,
            partition=partition,
            record_count=len(rows),
            size_bytes=size,
            referenced_data_file=path,
            content_offset=offset,
            content_size_bytes=length,
        )
        for (path, rows), (offset, length) in zip(found.items(), places, strict=True)
    ]
