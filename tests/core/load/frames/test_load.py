"""A DataFrame's write without Spark: the tasks run here, and the commit is that of the driver."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from pyiceberg.expressions import EqualTo
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType
from support.cli.command_line import CommandLine
from support.tables.frame_writes import QUERY, Write
from support.tables.iceberg_tables import (
    FixedClock,
    applied_then,
    ids_in,
    inject,
    make_table,
    named_rows,
    pyiceberg_catalog,
    pyiceberg_table,
    refused_with,
)

from lake.core.base.errors import (
    BadInputError,
    CommitConflictError,
    CommitUnknownError,
    NotFoundError,
    RefusedError,
)
from lake.core.table.snapshots.streams import EPOCH_ID, QUERY_ID

BY_NAME = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "name"))


def unreferenced(warehouse: Path) -> set[str]:
    """Return the data files that no snapshot has."""
    table = pyiceberg_table(warehouse)
    live = {
        path.rpartition("/")[2]
        for snapshot in table.snapshots()
        for path in table.inspect.files(snapshot.snapshot_id)["file_path"].to_pylist()
    }
    return {path.name for path in warehouse.rglob("*.parquet")} - live


def summaries(warehouse: Path) -> Sequence[dict[str, str]]:
    return [item.summary.additional_properties for item in pyiceberg_table(warehouse).snapshots()]


def test_the_files_of_all_tasks_are_one_snapshot(warehouse: Path) -> None:
    make_table(warehouse, spec=BY_NAME)
    write = Write(warehouse)

    done = write.commit(*(write.task(number, named_rows(number, 7)) for number in range(3)))

    assert ids_in(warehouse) == [0, 1, 2, 7, 7, 7]
    assert done.snapshot_ids == (pyiceberg_table(warehouse).current_snapshot().snapshot_id,)
    assert done.operation_id == write.plan.task.write.operation_id
    assert summaries(warehouse)[0]["lake.command"] == "Spark write"


def test_a_run_is_written_once_also_by_two_drivers(warehouse: Path) -> None:
    make_table(warehouse)
    one, other = (Write(warehouse, run_id="day-1") for _ in range(2))
    one.ids(1, 2)
    other.ids(1, 2)
    late = Write(warehouse, run_id="day-1")
    late.ids(1, 2)

    assert late.plan.already
    assert ids_in(warehouse) == [1, 2]
    assert not unreferenced(warehouse)


@pytest.mark.parametrize(("run_id", "epoch"), [(None, None), ("day-1", None), (None, 4)])
def test_files_of_a_write_that_is_committed_again_stay(
    warehouse: Path, run_id: str | None, epoch: int | None
) -> None:
    make_table(warehouse)
    write = Write(warehouse, run_id=run_id)
    report = write.task(0, named_rows(1, 2))

    assert write.commit(report, epoch=epoch)
    assert write.commit(report, epoch=epoch) is None
    assert ids_in(warehouse) == [1, 2]


def test_an_epoch_is_committed_once_and_an_older_one_never(warehouse: Path) -> None:
    make_table(warehouse)
    for epoch, row in ((0, 1), (0, 1), (3, 2), (2, 9), (3, 9)):
        Write(warehouse).ids(row, epoch=epoch)

    assert ids_in(warehouse) == [1, 2]
    found = [(item[QUERY_ID], item[EPOCH_ID]) for item in summaries(warehouse)]
    assert found == [(QUERY, "0"), (QUERY, "3")]
    assert not unreferenced(warehouse)


def test_of_two_drivers_on_one_checkpoint_one_commits_an_epoch(warehouse: Path) -> None:
    make_table(warehouse)
    one, other = Write(warehouse), Write(warehouse)
    # The other driver commits after this one has looked, and before its request arrives.
    inject(one.session, [lambda commit: (other.ids(5, epoch=4), commit())[1]])
    one.ids(5, epoch=4)

    assert ids_in(warehouse) == [5]
    assert not unreferenced(warehouse)


@pytest.mark.parametrize("epoch", [None, 4])
def test_a_lost_answer_is_read_back(warehouse: Path, epoch: int | None) -> None:
    make_table(warehouse)
    write = Write(warehouse)
    inject(write.session, [applied_then(CommitStateUnknownException("no answer"))])
    write.ids(1, 2, epoch=epoch)
    assert ids_in(warehouse) == [1, 2]
    assert not unreferenced(warehouse)


def test_an_unknown_outcome_deletes_nothing_and_the_epoch_comes_once(warehouse: Path) -> None:
    make_table(warehouse)
    write = Write(warehouse)
    write.session.clock = FixedClock()  # for the waits between requests
    real = write.session.catalog.load
    gone = CommitStateUnknownException("no answer")

    def load(identifier: str) -> Any:
        raise CommitUnknownError("the catalog is away")

    def lost(commit: Any) -> Any:
        commit()
        write.session.catalog.load = load  # type: ignore[method-assign]
        raise gone

    inject(write.session, [lost])
    with pytest.raises(CommitUnknownError):
        write.ids(1, 2, epoch=4)
    write.session.catalog.load = real  # type: ignore[method-assign]

    assert ids_in(warehouse) == [1, 2]
    Write(warehouse).ids(1, 2, epoch=4)
    assert ids_in(warehouse) == [1, 2]
    assert not unreferenced(warehouse)


def test_a_refused_commit_leaves_no_files(warehouse: Path) -> None:
    make_table(warehouse, commit__retry__num_retries="0")
    write = Write(warehouse)
    inject(write.session, [refused_with(CommitFailedException("changed"))] * 20)

    with pytest.raises(CommitConflictError):
        write.ids(1, 2, epoch=0)

    assert not list(warehouse.rglob("*.parquet"))


def test_the_files_of_repeated_attempts_are_removed(warehouse: Path) -> None:
    make_table(warehouse)
    write = Write(warehouse)
    write.task(0, named_rows(1, 2), "lost")
    report = write.task(0, named_rows(1, 2), "again")

    write.commit(report, repeated=True)

    assert ids_in(warehouse) == [1, 2]
    assert not unreferenced(warehouse)


def test_an_overwrite_is_validated_since_it_was_planned(warehouse: Path) -> None:
    table = make_table(warehouse, spec=BY_NAME)
    table.append(named_rows(1, 2))
    for options in (
        {"mode": "overwrite"},
        {"mode": "replace-partitions"},
        {"mode": "overwrite-where", "overwrite_where": "name = 'n2'"},
    ):
        write = Write(warehouse, **options)
        pyiceberg_table(warehouse).append(named_rows(2))
        before = ids_in(warehouse)
        with pytest.raises(CommitConflictError):
            write.ids(2)
        assert ids_in(warehouse) == before
        assert not unreferenced(warehouse)


def test_other_writers_may_change_what_an_overwrite_does_not_replace(warehouse: Path) -> None:
    make_table(warehouse, spec=BY_NAME).append(named_rows(1, 2))
    write = Write(warehouse, mode="overwrite-where", overwrite_where="name = 'n2'")
    pyiceberg_table(warehouse).append(named_rows(3))

    write.commit(write.task(0, pa.table({"id": [20, 21], "name": ["n2", "n2"]})))

    assert ids_in(warehouse) == [1, 3, 20, 21]


def test_an_overwrite_by_a_filter_keeps_the_other_rows_of_a_file(warehouse: Path) -> None:
    make_table(warehouse).append(named_rows(*range(10)))
    write = Write(warehouse, mode="overwrite-where", overwrite_where="id >= 5")
    with pytest.raises(BadInputError, match="partition 0 of the DataFrame has a row outside"):
        write.task(0, named_rows(5, 4))

    write.ids(50, 51)

    assert ids_in(warehouse) == [0, 1, 2, 3, 4, 50, 51]
    assert not unreferenced(warehouse)


def test_an_empty_overwrite_needs_a_word(warehouse: Path) -> None:
    make_table(warehouse).append(named_rows(1))
    with pytest.raises(RefusedError, match="the DataFrame has no rows"):
        Write(warehouse, mode="overwrite").ids()
    assert ids_in(warehouse) == [1]

    Write(warehouse, mode="overwrite", allow_empty=True).ids()
    Write(warehouse, mode="replace-partitions").ids()
    Write(warehouse).ids(epoch=1)

    assert ids_in(warehouse) == []
    assert len(summaries(warehouse)) == 2


def test_new_columns_are_those_that_were_written(warehouse: Path) -> None:
    make_table(warehouse)
    rows = named_rows(1).append_column("price", pa.array([5], pa.int64()))
    with pytest.raises(BadInputError, match="has column price"):
        Write(warehouse, rows=rows)
    write, late = (Write(warehouse, rows=rows, evolve=True) for _ in range(2))

    write.commit(write.task(0, rows))
    assert pyiceberg_table(warehouse).scan().to_arrow()["price"].to_pylist() == [5]
    # The same column with the same id is there now.
    late.commit(late.task(0, rows))
    assert ids_in(warehouse) == [1, 1]


def test_a_column_that_became_another_one_is_a_conflict(warehouse: Path) -> None:
    make_table(warehouse)
    rows = named_rows(1).append_column("price", pa.array(["x"]))
    write = Write(warehouse, rows=rows, evolve=True)
    with pyiceberg_table(warehouse).update_schema() as change:
        change.add_column("other", LongType())

    with pytest.raises(CommitConflictError, match="columns of db.t changed"):
        write.commit(write.task(0, rows))
    assert not list(warehouse.rglob("*.parquet"))


def test_a_table_that_was_replaced_is_a_conflict(warehouse: Path) -> None:
    make_table(warehouse)
    write = Write(warehouse)
    report = write.task(0, named_rows(1))
    pyiceberg_catalog(warehouse).drop_table("db.t")
    with pytest.raises(NotFoundError):
        write.commit(report)
    make_table(warehouse)

    with pytest.raises(CommitConflictError, match="was replaced while rows were written"):
        write.commit(report)
    assert ids_in(warehouse) == []


def test_a_load_that_would_replace_rows_by_key_is_refused(warehouse: Path) -> None:
    made = make_table(warehouse, write__upsert__enabled="true")
    with made.update_schema(allow_incompatible_changes=True) as change:
        change.update_column("id", required=True)
        change.set_identifier_fields("id")

    with pytest.raises(RefusedError, match="replace rows by key"):
        Write(warehouse)
    Write(warehouse, no_upsert=True).ids(1)
    assert ids_in(warehouse) == [1]


def test_an_epoch_is_known_after_its_snapshot_expired(warehouse: Path, lake: CommandLine) -> None:
    make_table(warehouse)
    Write(warehouse).ids(1, epoch=7)
    pyiceberg_table(warehouse).append(named_rows(2))
    pyiceberg_table(warehouse).delete(EqualTo("id", 2))
    lake.ok("expire", "db.t", "--older-than", "0s", "--retain-last", "1", "--unsafe-retention")
    assert len(summaries(warehouse)) == 1

    Write(warehouse).ids(1, epoch=7)
    assert ids_in(warehouse) == [1]
    Write(warehouse).ids(3, epoch=8)
    assert ids_in(warehouse) == [1, 3]
