"""Row deltas that lake commits, read by Iceberg Java: position deletes, vectors, equality deletes."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest
from support.peers.java_peer import JavaPeer
from support.tables.delete_files import equality_file, position_file, vectors
from support.tables.iceberg_tables import make_table, open_session, pyiceberg_catalog, write_file

from lake.core.table.catalogs.catalog import Table
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
from lake.core.transaction.session import Session

pytestmark = pytest.mark.java


class RowDeltaTable:
    """A table whose rows Java reads after each of lake's commits."""

    def __init__(self, warehouse: Path, java: JavaPeer, version: int) -> None:
        self.warehouse, self.java = warehouse, java
        if version == 3:
            pyiceberg_catalog(warehouse).create_namespace("db")
            java.sql(
                warehouse,
                "CREATE TABLE lake.db.t (id BIGINT, name STRING) USING iceberg "
                "TBLPROPERTIES ('format-version' = '3')",
            )
        else:
            make_table(warehouse, format_version=str(version))
        self.session: Session = open_session(warehouse)
        self.table: Table = self.session.table("db.t")

    def file(self, *ids: int) -> DataFile:
        return write_file(self.table, ids)

    def commit(self, operation: Operation) -> int:
        done = commit_snapshot(
            self.session, self.table, operation, CommitRequest(operation_id=str(uuid.uuid4()))
        )
        self.table = done.table
        return done.snapshot_id

    @property
    def ids(self) -> list[int]:
        rows = self.java.sql(self.warehouse, "SELECT id FROM lake.db.t ORDER BY id")
        return [row["id"] for row in rows]

    @property
    def summary(self) -> dict[str, str]:
        snapshot = self.table.metadata.current_snapshot()
        assert snapshot is not None
        assert snapshot.summary is not None
        return {
            "operation": snapshot.summary.operation.value,
            **snapshot.summary.additional_properties,
        }

    def live_deletes(self) -> int:
        rows = self.java.sql(self.warehouse, "SELECT count(*) AS n FROM lake.db.t.delete_files")
        return int(rows[0]["n"])


def test_position_and_equality_deletes_of_version_2(warehouse: Path, java: JavaPeer) -> None:
    target = RowDeltaTable(warehouse, java, 2)
    first, second = target.file(1, 2, 3), target.file(3, 4, 5)
    target.commit(AppendFiles(added=[first, second]))
    base = target.commit(
        RowDelta(
            added=[target.file(3, 30)],
            deletes=[
                position_file(target.table, [(first.path, 0), (first.path, 2)]),
                equality_file(target.table, [{"id": 3}, {"id": 77}], ["id"]),
            ],
            base_snapshot_id=target.table.metadata.current_snapshot_id,
        )
    )

    assert target.ids == [2, 3, 4, 5, 30]
    assert (
        target.summary
        | {
            "operation": "overwrite",
            "added-data-files": "1",
            "added-delete-files": "2",
            "added-position-delete-files": "1",
            "added-equality-delete-files": "1",
            "added-position-deletes": "2",
            "added-equality-deletes": "2",
            "total-delete-files": "2",
            "total-position-deletes": "2",
            "total-equality-deletes": "2",
            "total-records": "8",
        }
        == target.summary
    )

    target.commit(
        RewriteFiles(
            added=[target.file(2)],
            removed_paths=[first.path],
            base_snapshot_id=base,
            data_sequence_number=2,
        )
    )

    assert target.ids == [2, 3, 4, 5, 30]
    assert target.live_deletes() == 1
    assert target.summary["removed-position-delete-files"] == "1"


def test_vectors_of_version_3_are_replaced_and_go_with_their_files(
    warehouse: Path, java: JavaPeer
) -> None:
    target = RowDeltaTable(warehouse, java, 3)
    first, second = target.file(*range(10)), target.file(*range(10, 20))
    target.commit(AppendFiles(added=[first, second]))
    one, other = vectors(target.table, {first.path: [0, 1], second.path: [9]})
    base = target.commit(
        RowDelta(
            added=[],
            deletes=[one, other],
            base_snapshot_id=target.table.metadata.current_snapshot_id,
        )
    )
    assert target.ids == list(range(2, 19))
    assert (
        target.summary
        | {
            "operation": "delete",
            "added-dvs": "2",
            "added-delete-files": "2",
            "added-position-deletes": "3",
        }
        == target.summary
    )

    base = target.commit(
        RowDelta(
            added=[target.file(100)],
            deletes=[
                *vectors(target.table, {first.path: [0, 1, 2]}),
                equality_file(target.table, [{"id": 15}], ["id"]),
            ],
            replaced_deletes=[DeleteKey(one.path, one.content_offset)],
            base_snapshot_id=base,
        )
    )
    assert target.ids == [*range(3, 15), *range(16, 19), 100]
    assert (target.summary["removed-dvs"], target.live_deletes()) == ("1", 3)

    target.commit(
        OverwriteFiles(
            added=[target.file(*range(3, 10))], removed_paths=[first.path], base_snapshot_id=base
        )
    )
    assert target.ids == [*range(3, 15), *range(16, 19), 100]
    assert target.live_deletes() == 2


def test_java_deletes_more_rows_of_a_file_that_has_a_vector_of_lakes(
    warehouse: Path, java: JavaPeer
) -> None:
    target = RowDeltaTable(warehouse, java, 3)
    file = target.file(*range(10))
    target.commit(AppendFiles(added=[file]))
    target.commit(
        RowDelta(
            added=[],
            deletes=vectors(target.table, {file.path: [0]}),
            base_snapshot_id=target.table.metadata.current_snapshot_id,
        )
    )

    java.sql(
        warehouse, "ALTER TABLE lake.db.t SET TBLPROPERTIES ('write.delete.mode'='merge-on-read')"
    )
    java.sql(warehouse, "DELETE FROM lake.db.t WHERE id = 5")

    assert target.ids == [1, 2, 3, 4, 6, 7, 8, 9]
    assert target.live_deletes() == 1
