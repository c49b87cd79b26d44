"""Upserts of the epochs of a query without Spark: each once, whatever becomes of its commit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from support.cli.command_line import CommandLine
from support.tables.frame_writes import QUERY
from support.tables.iceberg_tables import (
    applied_then,
    inject,
    make_table,
    open_session,
    refused_with,
)

from lake.core.base.errors import CommitConflictError, RefusedError
from lake.core.base.outcome import Outcome
from lake.core.data.rows.content_hash import hash_all
from lake.core.load.ingest.options import IngestOptions, LoadRequest
from lake.core.load.run import load
from lake.core.load.upsert.options import UpsertOptions
from lake.core.table.snapshots.streams import EPOCH_ID, EPOCH_ROWS, QUERY_ID, QueryEpoch
from lake.core.transaction.session import Session


def hash_of(text: str) -> str:
    return hash_all([pa.record_batch({"row": text.splitlines()})])


class Upserts:
    """Upserts of rows into a table, each with a session of its own."""

    def __init__(self, warehouse: Path) -> None:
        self.warehouse = warehouse
        self.table = make_table(warehouse)
        self._number = 0

    def load(
        self,
        epoch: int,
        text: str,
        session: Session | None = None,
        *,
        named: bool = False,
        **options: str,
    ) -> Outcome:
        self._number += 1
        source = self.warehouse.parent / f"{self._number}.csv"
        source.write_text(f"id,name\n{text}")
        request = LoadRequest(
            options=IngestOptions(sources=[str(source)]),
            epoch=None,
            query_epoch=QueryEpoch(QUERY, epoch, hash_of(text) if named else None),
            origin=["Spark"],
        )
        keys = UpsertOptions(key=["id"], **options)
        return load(session or open_session(self.warehouse), "db.t", request, keys)

    @property
    def rows(self) -> dict[int, str]:
        columns = self.table.refresh().scan().to_arrow().to_pydict()
        return dict(zip(columns["id"], columns["name"], strict=True))

    @property
    def written(self) -> dict[int, str]:
        """The rows of the newest snapshot's data files; PyIceberg does not scan a table with equality deletes."""
        files = self.table.refresh().inspect.data_files()["file_path"].to_pylist()
        rows = [
            row for path in files for row in pq.read_table(path.removeprefix("file://")).to_pylist()
        ]
        return {row["id"]: row["name"] for row in rows}

    @property
    def epochs(self) -> list[str]:
        found = [item.summary.additional_properties for item in self.table.refresh().snapshots()]
        return [item[EPOCH_ID] for item in found if item.get(QUERY_ID) == QUERY]

    @property
    def files(self) -> set[str]:
        """The files below the table's data that no snapshot has."""
        live = {
            path.rpartition("/")[2]
            for snapshot in self.table.refresh().snapshots()
            for path in self.table.inspect.files(snapshot.snapshot_id)["file_path"].to_pylist()
        }
        return {path.name for path in self.warehouse.glob("db/t/data/**/*.*")} - live


@pytest.fixture
def upserts(warehouse: Path) -> Upserts:
    return Upserts(warehouse)


def test_an_epoch_is_loaded_once_and_an_older_one_never(upserts: Upserts) -> None:
    for epoch, text in ((0, "1,a\n2,b\n"), (0, "1,x\n"), (3, "2,c\n"), (2, "2,x\n"), (3, "1,x\n")):
        upserts.load(epoch, text)

    assert upserts.rows == {1: "a", 2: "c"}
    assert upserts.epochs == ["0", "3"]
    assert not upserts.files


@pytest.mark.parametrize("deletes", ["position", "equality", "copy-on-write"])
def test_a_lost_answer_is_read_back(upserts: Upserts, deletes: str) -> None:
    session = open_session(upserts.warehouse)
    inject(session, [applied_then(CommitStateUnknownException("no answer"))])

    upserts.load(4, "1,a\n", session, deletes=deletes)

    upserts.load(4, "1,x\n", deletes=deletes)
    assert upserts.written == {1: "a"}
    assert upserts.epochs == ["4"]
    assert not upserts.files


@pytest.mark.parametrize("deletes", ["position", "equality"])
def test_of_two_drivers_on_one_checkpoint_one_loads_an_epoch(
    upserts: Upserts, deletes: str
) -> None:
    session = open_session(upserts.warehouse)
    # The other driver commits after this one has looked, and before its request arrives.
    inject(session, [lambda commit: (upserts.load(4, "1,a\n", deletes=deletes), commit())[1]])

    upserts.load(4, "1,x\n", session, deletes=deletes)

    assert upserts.written == {1: "a"}
    assert not upserts.files


@pytest.mark.parametrize("deletes", ["position", "equality"])
def test_only_its_query_can_commit_an_epoch(upserts: Upserts, deletes: str) -> None:
    seen: list[str] = []

    def look(commit: object) -> None:
        seen.extend(path.name for path in upserts.warehouse.rglob("*") if "staged" in path.name)
        refused_with(CommitFailedException("changed"))(commit)  # type: ignore[arg-type]

    with upserts.table.transaction() as change:
        change.set_properties({"commit.retry.num-retries": "0"})
    session = open_session(upserts.warehouse)
    inject(session, [look] * 20)
    with pytest.raises(CommitConflictError):
        upserts.load(0, "1,a\n", session, deletes=deletes)

    assert seen == []
    assert upserts.rows == {}
    assert not upserts.files


def test_rows_that_changed_nothing_do_not_come_back_with_a_repetition(
    upserts: Upserts, lake: CommandLine
) -> None:
    upserts.load(0, "1,a\n")
    upserts.load(1, "1,x\n", merge="first-row")
    lake.ok("delete", "db.t", "--where", "id = 1")

    upserts.load(1, "1,x\n", merge="first-row")

    assert upserts.rows == {}
    assert upserts.epochs == ["0", "1"]


def test_an_epoch_is_known_after_its_snapshot_expired(upserts: Upserts, lake: CommandLine) -> None:
    upserts.load(7, "1,a\n")
    lake.ok("delete", "db.t", "--where", "id = 1")
    lake.ok("expire", "db.t", "--older-than", "0s", "--retain-last", "1", "--unsafe-retention")
    assert upserts.epochs == []

    upserts.load(7, "1,x\n")
    assert upserts.rows == {}
    upserts.load(8, "2,b\n")
    assert upserts.rows == {2: "b"}


# Queries that are known by a name only


def test_a_batch_of_a_name_is_skipped_only_if_it_is_the_newest_with_the_same_rows(
    upserts: Upserts,
) -> None:
    upserts.load(0, "1,a\n2,b\n", named=True)
    upserts.load(0, "2,b\n1,a\n", named=True)
    with pytest.raises(RefusedError, match="batch 0 of .* has other rows than the batch"):
        upserts.load(0, "3,c\n4,d\n", named=True)
    upserts.load(1, "2,c\n", named=True)
    with pytest.raises(RefusedError, match="batch 0 of .* comes after batch 1 of that name"):
        upserts.load(0, "1,a\n2,b\n", named=True)

    assert upserts.rows == {1: "a", 2: "c"}
    assert upserts.epochs == ["0", "1"]
    assert not upserts.files


def test_rows_of_a_name_are_compared_after_the_snapshot_expired(
    upserts: Upserts, lake: CommandLine
) -> None:
    upserts.load(0, "1,a\n", named=True)
    lake.ok("delete", "db.t", "--where", "id = 1")
    lake.ok("expire", "db.t", "--older-than", "0s", "--retain-last", "1", "--unsafe-retention")
    assert upserts.epochs == []

    upserts.load(0, "1,a\n", named=True)
    with pytest.raises(RefusedError, match="has other rows"):
        upserts.load(0, "2,b\n", named=True)
    assert upserts.rows == {}


def test_a_batch_of_a_name_is_refused_if_the_rows_of_the_committed_one_are_not_known(
    upserts: Upserts,
) -> None:
    upserts.load(0, "1,a\n")
    with pytest.raises(RefusedError, match="may have other rows"):
        upserts.load(0, "1,a\n", named=True)

    upserts.load(1, "1,b\n", named=True)
    newest = upserts.table.refresh().current_snapshot()
    assert newest is not None
    assert newest.summary is not None
    assert newest.summary[EPOCH_ROWS] == hash_of("1,b\n")


@pytest.mark.parametrize("deletes", ["position", "equality"])
@pytest.mark.parametrize("text", ["1,a\n", "2,x\n"])
def test_of_two_checkpoints_with_one_name_no_batch_is_lost(
    upserts: Upserts, deletes: str, text: str
) -> None:
    session = open_session(upserts.warehouse)
    first: dict[str, Any] = {"deletes": deletes, "named": True}
    # The other query commits after this one has looked, and before its request arrives.
    inject(session, [lambda commit: (upserts.load(0, "1,a\n", **first), commit())[1]])

    if text == "1,a\n":
        upserts.load(0, text, session, **first)
    else:
        with pytest.raises(RefusedError, match="has other rows"):
            upserts.load(0, text, session, **first)

    assert upserts.written == {1: "a"}
    assert not upserts.files
