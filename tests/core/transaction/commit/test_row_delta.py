"""Commits of row deltas: what they refuse, what counts as a conflict, and how delete manifests are kept."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest
from pyiceberg.exceptions import CommitFailedException
from support.tables.delete_files import equality_file, position_file, vectors
from support.tables.iceberg_tables import (
    SCHEMA,
    FixedClock,
    ids_in,
    inject,
    make_table,
    open_session,
    pyiceberg_catalog,
    pyiceberg_table,
    refused_with,
    write_file,
)

from lake.core.base.errors import (
    CommitConflictError,
    ConflictingFilesError,
    RefusedError,
)
from lake.core.maintain.compaction import dangling_deletes
from lake.core.spec.expressions.filters import bind_filter
from lake.core.spec.expressions.parser import parse_filter
from lake.core.spec.types import transform_syntax
from lake.core.table.catalogs.catalog import Table
from lake.core.table.manifests.api import read_manifest_list, read_manifests
from lake.core.table.manifests.data_files import DataFile
from lake.core.table.snapshots.live_files import live_files
from lake.core.transaction.commit.commit import CommitRequest, Committed, commit_snapshot
from lake.core.transaction.commit.operations import (
    AppendFiles,
    DeleteKey,
    Operation,
    OverwriteFiles,
    RewriteFiles,
    RowDelta,
)
from lake.core.transaction.commit.snapshot_producer import SnapshotProducer


class RowDeltaTable:
    """One table of a format version, with a file of the ids 0 to 9 in it."""

    def __init__(self, warehouse: Path, version: int, **properties: str) -> None:
        self.warehouse = warehouse
        self.session = open_session(warehouse, FixedClock())
        if version < 3:
            make_table(warehouse, format_version=str(version), **properties)
            self.table = self.session.table("db.t")
        else:
            pyiceberg_catalog(warehouse).create_namespace("db")
            named = {k.replace("__", ".").replace("_", "-"): v for k, v in properties.items()}
            self.table = self.session.catalog.stage(
                "db.t",
                SCHEMA,
                transform_syntax.partition_spec(None, SCHEMA),
                transform_syntax.sort_order(None, SCHEMA),
                {"format-version": str(version), **named},
            )
        self.first = self.file(*range(10))
        self.commit(AppendFiles(added=[self.first]))

    def file(self, *ids: int) -> DataFile:
        return write_file(self.table, ids)

    def commit(self, operation: Operation, *, fresh: bool = False) -> Committed:
        """Commit from the table as it was last seen, or as another writer that knows its head."""
        session = open_session(self.warehouse, FixedClock()) if fresh else self.session
        table: Table = session.table("db.t") if fresh else self.table
        done = commit_snapshot(
            session, table, operation, CommitRequest(operation_id=str(uuid.uuid4()))
        )
        if not fresh:
            self.table = done.table
        return done

    def delta(self, deletes: list[DataFile], *added: int, **options: object) -> RowDelta:
        return RowDelta(
            added=[self.file(*added)] if added else [],
            deletes=deletes,
            base_snapshot_id=self.head,
            **options,  # type: ignore[arg-type]
        )

    @property
    def head(self) -> int | None:
        return self.table.metadata.current_snapshot_id

    def positions(self, *rows: int) -> list[DataFile]:
        if self.table.metadata.format_version == 3:
            return vectors(self.table, {self.first.path: rows})
        return [position_file(self.table, [(self.first.path, row) for row in rows])]

    def delete_paths(self) -> list[str]:
        snapshot = self.session.table("db.t").metadata.current_snapshot()
        assert snapshot is not None
        found = live_files(self.session.table("db.t"), snapshot)
        entries = read_manifests(
            self.table.storage, found.delete_manifests, self.table.metadata, live_only=True
        )
        return sorted(path for table in entries.values() for path in table["file_path"].to_pylist())


@pytest.fixture(params=[2, 3], ids=["v2", "v3"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> RowDeltaTable:
    return RowDeltaTable(tmp_path, request.param)


def test_version_1_takes_no_deletes(tmp_path: Path) -> None:
    target = RowDeltaTable(tmp_path, 1)

    with pytest.raises(RefusedError, match="format version 1 does not support row-level deletes"):
        target.commit(target.delta(target.positions(1)))


def test_each_version_takes_its_own_kind_of_positions_only(tmp_path: Path) -> None:
    for version, said in (
        (2, "not support new deletion vectors"),
        (3, "not support new position delete files"),
    ):
        target = RowDeltaTable(tmp_path / str(version), version)
        wrong = (
            vectors(target.table, {target.first.path: [1]})
            if version == 2
            else [position_file(target.table, [(target.first.path, 1)])]
        )
        with pytest.raises(RefusedError, match=said):
            target.commit(target.delta(wrong))


def test_pyiceberg_reads_the_rows_that_positions_leave(target: RowDeltaTable) -> None:
    target.commit(target.delta(target.positions(0, 5), 20))

    assert ids_in(target.warehouse) == [1, 2, 3, 4, 6, 7, 8, 9, 20]


def test_a_delete_for_a_file_that_is_gone_is_a_conflict_that_names_it(
    target: RowDeltaTable,
) -> None:
    operation = target.delta(target.positions(1))
    gone = OverwriteFiles(
        added=[target.file(7)], removed_paths=[target.first.path], base_snapshot_id=target.head
    )
    target.commit(gone, fresh=True)

    with pytest.raises(ConflictingFilesError) as caught:
        target.commit(operation)

    assert caught.value.paths == {target.first.path}
    assert ids_in(target.warehouse) == [7]


@pytest.mark.parametrize(
    ("isolation", "condition", "conflicts"),
    [
        ("serializable", None, True),
        ("serializable", "id < 50", True),
        ("serializable", "id > 200", False),
        ("snapshot", None, False),
    ],
)
def test_rows_added_meanwhile_conflict_where_isolation_and_filter_say_so(
    target: RowDeltaTable, isolation: str, condition: str | None, conflicts: bool
) -> None:
    from support.tables.random_rows import batch_of

    from lake.core.data.rows.writer import WriteSettings, open_writer

    bound = None if condition is None else bind_filter(parse_filter(condition), target.table.schema)
    operation = target.delta(target.positions(1), isolation=isolation, conflict_filter=bound)
    settings = WriteSettings.of(target.table, str(uuid.uuid4()))
    with open_writer(target.table.storage, settings, task=0, attempt="a") as writer:
        writer.write(batch_of(target.table.schema, [{"id": 20, "name": "x"}]))
        (other,) = writer.close()
    target.commit(AppendFiles(added=[other]), fresh=True)

    if conflicts:
        with pytest.raises(CommitConflictError):
            target.commit(operation)
    else:
        target.commit(operation)
    assert (1 in ids_in(target.warehouse)) is conflicts


@pytest.mark.parametrize("isolation", ["serializable", "snapshot"])
def test_two_writers_who_delete_rows_of_one_file_conflict(
    target: RowDeltaTable, isolation: str
) -> None:
    operation = target.delta(target.positions(1), isolation=isolation)
    target.commit(target.delta(target.positions(2)), fresh=True)

    with pytest.raises(ConflictingFilesError) as caught:
        target.commit(operation)

    assert caught.value.paths == {target.first.path}
    assert ids_in(target.warehouse) == [0, 1, *range(3, 10)]


def test_a_vector_without_its_forerunner_is_a_conflict_though_nothing_is_validated(
    tmp_path: Path,
) -> None:
    target = RowDeltaTable(tmp_path, 3)
    target.commit(target.delta(target.positions(2)))

    with pytest.raises(ConflictingFilesError):
        target.commit(target.delta(target.positions(1, 2), validates=False))


def test_a_replaced_delete_that_is_gone_is_a_conflict(target: RowDeltaTable) -> None:
    (old,) = target.positions(2)
    target.commit(target.delta([old]))
    key = DeleteKey(old.path, old.content_offset)
    again = target.delta(target.positions(1, 2), replaced_deletes=[key])
    target.commit(target.delta(target.positions(2, 3), replaced_deletes=[key]), fresh=True)

    with pytest.raises(ConflictingFilesError):
        target.commit(again)

    assert ids_in(target.warehouse) == [0, 1, *range(4, 10)]


def test_deletes_of_a_stream_are_not_validated(target: RowDeltaTable) -> None:
    keys = equality_file(target.table, [{"id": 4}], ["id"])
    operation = target.delta([keys], 4, validates=False)
    target.commit(AppendFiles(added=[target.file(50)]), fresh=True)

    target.commit(operation)

    assert len(target.delete_paths()) == 1


def test_a_conflict_of_the_catalog_is_tried_again_and_counted_once(target: RowDeltaTable) -> None:
    inject(target.session, [refused_with(CommitFailedException("409"))] * 2)

    done = target.commit(target.delta(target.positions(0), 20))

    summary = done.table.metadata.current_snapshot()
    assert summary is not None
    assert summary.summary is not None
    assert summary.summary.additional_properties["total-position-deletes"] == "1"
    assert ids_in(target.warehouse) == [*range(1, 10), 20]


def test_manifests_of_deletes_are_merged_among_themselves(tmp_path: Path) -> None:
    target = RowDeltaTable(tmp_path, 2, commit__manifest__min_count_to_merge="2")
    for row in range(5):
        target.commit(target.delta(target.positions(row), 100 + row))

    snapshot = target.table.metadata.current_snapshot()
    assert snapshot is not None
    manifests = read_manifest_list(target.table.storage, snapshot.manifest_list)
    assert sorted(manifests["content"].to_pylist()) == [0, 1]
    assert ids_in(target.warehouse) == [*range(5, 10), *range(100, 105)]


def test_a_file_that_is_replaced_takes_its_own_deletes_along(target: RowDeltaTable) -> None:
    target.commit(target.delta(target.positions(0, 1)))
    target.commit(
        OverwriteFiles(
            added=[target.file(*range(2, 10))],
            removed_paths=[target.first.path],
            base_snapshot_id=target.head,
        )
    )

    assert target.delete_paths() == []
    snapshot = target.table.metadata.current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    assert snapshot.summary.additional_properties["total-delete-files"] == "0"
    assert ids_in(target.warehouse) == list(range(2, 10))


@pytest.mark.parametrize("isolation", ["serializable", "snapshot"])
def test_deletes_meanwhile_conflict_with_an_overwrite(
    target: RowDeltaTable, isolation: str
) -> None:
    rewritten = OverwriteFiles(
        added=[target.file(*range(10), 99)],
        removed_paths=[target.first.path],
        base_snapshot_id=target.head,
        isolation=isolation,
    )
    target.commit(target.delta(target.positions(1)), fresh=True)

    with pytest.raises(CommitConflictError):
        target.commit(rewritten)

    assert ids_in(target.warehouse) == [0, *range(2, 10)]


def test_a_replaced_delete_must_be_live_though_nothing_is_validated(tmp_path: Path) -> None:
    target = RowDeltaTable(tmp_path, 2)
    (old,) = target.positions(2)
    target.commit(target.delta([old]))
    key = DeleteKey(old.path, old.content_offset)
    again = target.delta(target.positions(1, 2), replaced_deletes=[key], validates=False)
    target.commit(target.delta(target.positions(2, 3), replaced_deletes=[key]), fresh=True)

    with pytest.raises(ConflictingFilesError):
        target.commit(again)


def test_key_deletes_for_all_partitions_conflict_with_a_rewrite_in_any(tmp_path: Path) -> None:
    target = RowDeltaTable(tmp_path, 2)
    keys = equality_file(target.table, [{"id": 1}], ["id"])
    with pyiceberg_table(tmp_path).update_spec() as update:
        update.add_identity("name")
    target.table = target.session.table("db.t")
    old, new = (write_file(target.table, [1], partition=(b"n1",)) for _ in range(2))
    target.commit(AppendFiles(added=[old]))
    rewrite = RewriteFiles(added=[new], removed_paths=[old.path], base_snapshot_id=target.head)
    target.commit(target.delta([keys], validates=False), fresh=True)

    with pytest.raises(ConflictingFilesError):
        target.commit(rewrite)


def test_deletes_that_a_rewrite_brought_meanwhile_conflict(
    target: RowDeltaTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    rewrite = RewriteFiles(
        added=[target.file(*range(10))],
        removed_paths=[target.first.path],
        base_snapshot_id=target.head,
    )
    deletes = target.delta(target.positions(1))
    with monkeypatch.context() as patched:
        # As Iceberg Java's rewrites of delete files are.
        patched.setattr(SnapshotProducer, "_operation_name", lambda *_: "replace")
        target.commit(deletes, fresh=True)

    with pytest.raises(ConflictingFilesError):
        target.commit(rewrite)


def test_positions_of_a_commits_own_rows_do_not_dangle(tmp_path: Path) -> None:
    target = RowDeltaTable(tmp_path, 2)
    empty = OverwriteFiles(
        added=[], removed_paths=[target.first.path], base_snapshot_id=target.head
    )
    target.commit(empty)
    own = target.file(1, 2)
    deletes = [position_file(target.table, [(own.path, 0)])]
    target.commit(RowDelta(added=[own], deletes=deletes, base_snapshot_id=target.head))
    head = target.table.metadata.current_snapshot()
    assert head is not None

    found = live_files(target.table, head, columns=dangling_deletes.COLUMNS, with_deletes=False)

    assert dangling_deletes.dangling_deletes(found) == []
