"""A table with a random history beside a model of its rows, snapshot by snapshot."""

from __future__ import annotations

import uuid
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import schema_to_pyarrow

from lake.core.spec.types import transform_syntax
from lake.core.table.manifests.data_files import DataFile
from lake.core.transaction.commit.commit import CommitRequest, commit_snapshot
from lake.core.transaction.commit.operations import (
    AppendFiles,
    DeleteKey,
    Operation,
    OverwriteFiles,
    RewriteFiles,
    RowDelta,
)
from support.tables.delete_files import equality_file, position_file, vectors
from support.tables.iceberg_tables import (
    SCHEMA,
    FixedClock,
    make_table,
    open_session,
    pyiceberg_catalog,
)

Row = tuple[int | None, str | None]


class History:
    """Commits to a table and to a model; `states` holds the rows after each snapshot, in order."""

    def __init__(self, warehouse: Path, version: int) -> None:
        self.session = open_session(warehouse, FixedClock())
        if version < 3:
            make_table(warehouse, format_version=str(version))
            self.table = self.session.table("db.t")
        else:
            pyiceberg_catalog(warehouse).create_namespace("db")
            spec, order = (
                transform_syntax.partition_spec(None, SCHEMA),
                transform_syntax.sort_order(None, SCHEMA),
            )
            properties = {"format-version": str(version)}
            self.table = self.session.catalog.stage("db.t", SCHEMA, spec, order, properties)
        self.version = version
        self.live: dict[str, dict[int, Row]] = {}
        self.vectors: dict[str, tuple[DeleteKey, set[int]]] = {}
        self.states: list[tuple[int, Counter[Row]]] = []

    @property
    def rows(self) -> Counter[Row]:
        return Counter(row for rows in self.live.values() for row in rows.values())

    @property
    def head(self) -> int | None:
        return self.table.metadata.current_snapshot_id

    def _commit(self, operation: Operation) -> None:
        done = commit_snapshot(
            self.session, self.table, operation, CommitRequest(operation_id=str(uuid.uuid4()))
        )
        self.table = done.table
        self.states.append((done.snapshot_id, self.rows))

    def _file(self, rows: list[Row]) -> DataFile:
        columns = list(zip(*rows, strict=True))
        data = pa.table([*map(list, columns)], schema=schema_to_pyarrow(SCHEMA))
        location = f"{self.table.data_location}/{uuid.uuid4()}.parquet"
        path = Path(location.removeprefix("file://"))
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(data, path, row_group_size=3)
        self.live[location] = dict(enumerate(rows))
        return DataFile(
            path=location,
            spec_id=self.table.spec.spec_id,
            record_count=len(rows),
            size_bytes=path.stat().st_size,
        )

    def _chosen(self, number: int) -> str | None:
        paths = sorted(self.live)
        return paths[number % len(paths)] if paths else None

    # What may happen; each does nothing where it cannot.

    def append(self, rows: list[Row]) -> None:
        if rows:
            self._commit(AppendFiles(added=[self._file(rows)]))

    def overwrite(self, number: int, rows: list[Row], kept: int) -> None:
        """Replace a file by one with some of its rows and others."""
        path = self._chosen(number)
        if path is None:
            return
        base, old = self.head, list(self.live.pop(path).values())
        self.vectors.pop(path, None)
        added = [self._file(new)] if (new := old[kept:] + rows) else []
        self._commit(OverwriteFiles(added=added, removed_paths=[path], base_snapshot_id=base))

    def delete_positions(self, number: int, places: set[int], rows: list[Row]) -> None:
        """Delete rows of a file by their places, and add others with the same commit."""
        path = self._chosen(number)
        size = len(self.live[path]) if path else 0
        wanted = sorted(
            place % 8 for place in places if place % 8 in (self.live.get(path or "") or {})
        )
        if path is None or not size or not wanted:
            return
        replaced: list[DeleteKey] = []
        if self.version == 3:
            known = self.vectors.get(path)
            every = (known[1] if known else set()) | set(wanted)
            deletes = vectors(self.table, {path: every})
            replaced = [known[0]] if known else []
            self.vectors[path] = DeleteKey(deletes[0].path, deletes[0].content_offset), every
        else:
            deletes = [position_file(self.table, [(path, place) for place in wanted])]
        for place in wanted:
            del self.live[path][place]
        self._delta(rows, deletes, replaced)

    def delete_keys(self, keys: list[int | None], rows: list[Row]) -> None:
        """Delete rows by their keys, and add others with the same commit."""
        if not keys:
            return
        deletes = [equality_file(self.table, [{"id": key} for key in keys], ["id"])]
        for path, old in self.live.items():
            self.live[path] = {place: row for place, row in old.items() if row[0] not in keys}
        self._delta(rows, deletes, [])

    def _delta(self, rows: list[Row], deletes: list[DataFile], replaced: list[DeleteKey]) -> None:
        base = self.head
        added = [self._file(rows)] if rows else []
        self._commit(
            RowDelta(
                added=added,
                deletes=deletes,
                replaced_deletes=replaced,
                base_snapshot_id=base,
                validates=base is not None,
            )
        )

    def compact(self) -> None:
        """Rewrite all files into one."""
        base = self.head
        if base is None or not self.live:
            return
        old, rows = sorted(self.live), [row for rows in self.live.values() for row in rows.values()]
        self.live, self.vectors = {}, {}
        added = [self._file(rows)] if rows else []
        self._commit(
            RewriteFiles(
                added=added,
                removed_paths=old,
                base_snapshot_id=base,
                data_sequence_number=None
                if self.version == 1
                else self.table.metadata.last_sequence_number,
            )
        )
