"""Streams of Spark's data source: what batches read, through crashes, gaps and limits; PyIceberg judges the rows.

`support.peers.streaming` calls the reader as Spark does; the tests with a notebook run Spark.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.expressions import EqualTo
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType
from support.cli.command_line import CommandLine
from support.peers.notebook import Notebook
from support.peers.streaming import Query
from support.tables.iceberg_tables import (
    make_table,
    named_rows,
    pyiceberg_catalog,
    pyiceberg_table,
)

from lake.core.base.errors import (
    BadInputError,
    InvalidRequestError,
    LakeError,
    NotFoundError,
    RefusedError,
    StorageError,
)
from lake.core.read.continuous.position import GapError
from lake.core.transaction.session import Session

BY_NAME = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "name"))
EXPIRE = ("expire", "db.t", "--older-than", "0s", "--retain-last", "1", "--unsafe-retention")
Make = Callable[..., Query]


@pytest.fixture
def table(warehouse: Path) -> Any:
    """A table with the appends 1, 2 and 3 to 5."""
    made = make_table(warehouse)
    for ids in ((1,), (2,), (3, 4, 5)):
        made.append(named_rows(*ids))
    return made


@pytest.fixture(params=[False, True], ids=["before-4.2", "from-4.2"])
def query(request: pytest.FixtureRequest, warehouse: Path) -> Make:
    """Make a query of a Spark that shows readers the start of a batch, or of one that does not."""
    return lambda **options: Query(warehouse, admission=request.param, **options)


def numbers(table: Any) -> list[int]:
    return [item.snapshot_id for item in table.refresh().snapshots()]


def scanned(warehouse: Path) -> list[int]:
    return sorted(pyiceberg_table(warehouse).scan().to_arrow()["id"].to_pylist())


def three_files(*ids: int) -> pa.Table:
    """Rows that a table by name has in three files."""
    return pa.table({"id": ids, "name": [f"n{number % 3}" for number in ids]})


# Starts

STARTS: dict[str, tuple[dict[str, str], list[int]]] = {
    "default": ({}, [1, 2, 3, 4, 5, 6]),
    "table": ({"start": "table"}, [1, 2, 3, 4, 5, 6]),
    "java": ({"start": "table-scan-then-incremental"}, [1, 2, 3, 4, 5, 6]),
    "earliest": ({"start": "earliest"}, [1, 2, 3, 4, 5, 6]),
    "latest": ({"start": "latest"}, [3, 4, 5, 6]),
    "latest-exclusive": ({"start": "latest-exclusive"}, [6]),
    "snapshot": ({"from_snapshot": "main~1"}, [3, 4, 5, 6]),
    "inclusive": ({"from_snapshot": "main~1", "inclusive": "true"}, [2, 3, 4, 5, 6]),
    "time": ({"start_at": "2020-01-01"}, [1, 2, 3, 4, 5, 6]),
}


@pytest.mark.parametrize("name", STARTS)
def test_a_stream_starts_where_the_options_say(query: Make, table: Any, name: str) -> None:
    options, expected = STARTS[name]
    made = query(**options).run()
    made.stop()
    table.append(named_rows(6))

    assert made.run().ids == expected
    assert len(made.offsets) == 2


@pytest.mark.parametrize("start", ["table", "latest", "latest-exclusive", "earliest"])
def test_of_an_empty_table_every_stream_reads_all_that_comes(
    query: Make, warehouse: Path, start: str
) -> None:
    made = make_table(warehouse)
    stream = query(start=start).run()
    stream.stop()
    made.append(named_rows(1))
    made.append(named_rows(2))

    assert stream.run().ids == [1, 2]


def test_the_first_batch_is_repeated_from_where_it_started(query: Make, table: Any) -> None:
    stream = query(start="latest")
    assert stream.plan()
    stream.stop()
    table.append(named_rows(6))

    assert stream.run().ids == [3, 4, 5, 6]


# Batches

LIMITS: dict[str, tuple[dict[str, str], list[list[int]]]] = {
    "none": ({}, [[1, 2, 3, 4, 5, 6, 7]]),
    "snapshots": ({"max_snapshots_per_batch": "2"}, [[1, 2, 3], [4, 5, 6, 7]]),
    "files": ({"max_files_per_batch": "2"}, [[1], [2, 3], [4, 5, 6], [7]]),
    "rows": ({"max_rows_per_batch": "3"}, [[1, 2, 3], [4, 5, 6], [7]]),
    "bytes": ({"max_bytes_per_batch": "1B"}, [[1], [2], [3], [4], [5, 6], [7]]),
    "both": ({"max_rows_per_batch": "100", "max_files_per_batch": "4"}, [[1, 2, 3], [4, 5, 6, 7]]),
}


@pytest.mark.parametrize("name", LIMITS)
def test_a_batch_is_within_its_limits(query: Make, warehouse: Path, name: str) -> None:
    made = make_table(warehouse, spec=BY_NAME)
    made.append(pa.table({"id": [1], "name": ["a"]}))
    made.append(pa.table({"id": [2, 3], "name": ["a", "b"]}))
    made.append(pa.table({"id": [4, 5, 6], "name": ["a", "b", "b"]}))
    made.append(pa.table({"id": [7], "name": ["a"]}))
    options, expected = LIMITS[name]
    stream = query(start="earliest", **options).run()

    found = [sorted(row["id"] for row in stream.batches[at]) for at in sorted(stream.batches)]
    assert sorted(number for batch in found for number in batch) == scanned(warehouse)
    assert found == expected


@pytest.mark.parametrize("where", [None, "id > 2"])
@pytest.mark.parametrize("start", ["table", "earliest"])
def test_a_snapshot_is_read_in_parts_that_stay_the_same(
    query: Make, lake: CommandLine, warehouse: Path, start: str, where: str | None
) -> None:
    made = make_table(warehouse, spec=BY_NAME)
    made.append(three_files(*range(9)))
    stream = query(start=start, max_files_per_batch="1", **({"where": where} if where else {}))
    for _ in range(2):
        assert stream.plan()
        stream.write()
        planned = stream.batches[len(stream.offsets) - 1]
        stream.stop()
        lake.ok("compact", "db.t", "--rewrite-all")
        assert stream.plan()
        stream.write()
        assert stream.batches[len(stream.offsets) - 1] == planned
        stream.commit()

    assert sorted(stream.run().ids) == [
        number for number in range(9) if where is None or number > 2
    ]


def test_a_filter_and_columns_are_those_of_the_options(query: Make, table: Any) -> None:
    stream = query(where="ID > 3", ignore_case="true", select="name")

    assert sorted(row["name"] for row in stream.run().rows) == ["n4", "n5"]
    assert stream.schema.fieldNames() == ["name"]


def test_deleted_rows_are_not_in_the_first_batch(
    query: Make, lake: CommandLine, warehouse: Path
) -> None:
    made = make_table(warehouse, write__delete__mode="merge-on-read")
    made.append(named_rows(1, 2, 3))
    lake.ok("delete", "db.t", "--where", "id = 2")
    stream = query().run()

    assert stream.ids == scanned(warehouse) == [1, 3]


# Crashes and what others do meanwhile


def test_a_batch_that_was_cut_off_is_repeated_with_the_same_rows(
    query: Make, lake: CommandLine, table: Any, warehouse: Path
) -> None:
    stream = query(start="earliest", max_snapshots_per_batch="2")
    while stream.plan():
        stream.write()
        written = stream.batches[len(stream.offsets) - 1]
        stream.stop()
        # What others do between the crash and the restart.
        if len(numbers(table)) == 3:
            table.append(named_rows(6))
            lake.ok("compact", "db.t", "--rewrite-all")
        stream.plan()
        stream.write()
        assert stream.batches[len(stream.offsets) - 1] == written
        stream.commit()

    assert stream.ids == scanned(warehouse)


def test_a_batch_that_was_rolled_back_is_repeated_and_the_next_one_fails(
    query: Make, lake: CommandLine, table: Any
) -> None:
    stream = query(start="earliest")
    assert stream.plan()
    stream.stop()
    lake.ok("rollback", "db.t", "main~1")
    assert stream.plan()
    stream.write()
    stream.commit()

    assert stream.ids == [1, 2, 3, 4, 5]
    with pytest.raises(GapError, match="is not in the history of branch main .*on-gap skip"):
        stream.plan()


def test_a_batch_whose_snapshots_have_expired_is_not_repeated_with_fewer_rows(
    query: Make, lake: CommandLine, table: Any
) -> None:
    stream = query(start="earliest")
    assert stream.plan()
    stream.stop()
    lake.ok(*EXPIRE)

    with pytest.raises(LakeError, match="expired"):
        stream.plan()


def test_a_start_that_has_expired_is_enough_if_the_next_snapshot_is_there(
    query: Make, lake: CommandLine, table: Any
) -> None:
    stream = query().run()
    stream.stop()
    table.append(named_rows(6))
    lake.ok(*EXPIRE)

    assert stream.run().ids == [1, 2, 3, 4, 5, 6]


GAPS = {"fail": None, "skip": [1, 2, 3, 4, 5, 7], "table": [*range(1, 6), *range(1, 8)]}


@pytest.mark.parametrize("policy", GAPS)
def test_expired_snapshots_are_a_gap(
    query: Make, lake: CommandLine, table: Any, policy: str
) -> None:
    stream = query(on_gap=policy).run()
    stream.stop()
    table.append(named_rows(6))
    table.append(named_rows(7))
    lake.ok(*EXPIRE)
    if GAPS[policy] is None:
        with pytest.raises(GapError, match="no retained snapshot follows"):
            stream.run()
        return
    stream.plan()
    stream.stop()
    table.append(named_rows(8))
    stream.plan()
    stream.write()
    stream.commit()

    assert stream.ids == GAPS[policy]
    assert json.loads(stream.offsets[-1])["origin"]["gap"] == "expired"
    assert stream.run().ids == [*GAPS[policy], 8]


def test_a_rest_that_has_expired_is_a_gap(query: Make, lake: CommandLine, warehouse: Path) -> None:
    made = make_table(warehouse, spec=BY_NAME)
    made.append(three_files(0, 1, 2))
    stream = query(max_files_per_batch="1")
    stream.plan()
    stream.write()
    stream.commit()
    stream.stop()
    made.append(three_files(3))
    lake.ok(*EXPIRE)

    with pytest.raises(GapError, match="no retained snapshot follows"):
        stream.run()
    stream.set(**{"on-gap": "skip"})
    stream.stop()
    assert stream.run().ids == [stream.batches[0][0]["id"], 3]


ROLLED_BACK = {"skip": [*range(1, 6), 6], "table": [*range(1, 6), 1, 2, 6]}


@pytest.mark.parametrize("policy", ROLLED_BACK)
def test_a_rolled_back_start_is_a_gap(
    query: Make, lake: CommandLine, table: Any, policy: str
) -> None:
    stream = query(on_gap=policy).run()
    stream.stop()
    lake.ok("rollback", "db.t", "main~1")
    table.refresh().append(named_rows(6))

    assert stream.run().ids == ROLLED_BACK[policy]


def test_a_table_that_was_created_again_is_another_one(
    query: Make, table: Any, warehouse: Path
) -> None:
    stream = query().run()
    stream.stop()
    pyiceberg_catalog(warehouse).drop_table("db.t")
    make_table(warehouse).append(named_rows(1))

    with pytest.raises(RefusedError, match="the checkpoint is of a table with the UUID"):
        stream.run()


def test_a_snapshot_that_is_not_an_append_ends_the_stream(query: Make, table: Any) -> None:
    stream = query().run()
    table.append(named_rows(6))
    table.delete(EqualTo("id", 1))
    table.append(named_rows(7))

    with pytest.raises(RefusedError, match="not an append .*non-append skip"):
        stream.run()
    assert stream.ids == [1, 2, 3, 4, 5, 6]
    stream.set(non_append="skip")
    stream.stop()
    assert stream.run().ids == [1, 2, 3, 4, 5, 6, 7]


# Changes


def test_changes_are_those_of_the_command_line(
    query: Make, lake: CommandLine, warehouse: Path, tmp_path: Path
) -> None:
    make_table(warehouse, write__delete__mode="merge-on-read")
    for text, mode in (("1,a\n2,b", "position"), ("2,c\n3,d", "equality"), ("1,e", "position")):
        file = tmp_path / "rows.csv"
        file.write_text(f"id,name\n{text}\n")
        lake.ok("ingest", "db.t", str(file), "--upsert", "--key", "id", "--deletes", mode)
    lake.ok("delete", "db.t", "--where", "id = 3")
    options = {"changes": "true", "key": "id", "start": "earliest"}
    stream = query(**options, max_snapshots_per_batch="1")
    while stream.plan():
        stream.stop()
        stream.plan()
        stream.write()
        stream.commit()

    out = tmp_path / "changes.json"
    lake.ok("scan", "db.t", "--changes", "--key", "id", "--output", str(out))
    expected = [json.loads(line) for line in out.read_text().splitlines()]
    shown = [{**row, "_commit_snapshot_id": str(row["_commit_snapshot_id"])} for row in stream.rows]
    assert len(stream.offsets) == 4
    assert sorted(map(repr, _texts(shown))) == sorted(map(repr, _texts(expected)))


def _texts(rows: list[dict[str, Any]]) -> list[dict[str, str]]:
    return [{name: str(value) for name, value in row.items()} for row in rows]


def test_a_change_log_starts_with_all_rows_as_inserts(query: Make, table: Any) -> None:
    stream = query(changes="true", max_rows_per_batch="1").run()
    first = numbers(table)[-1]
    stream.stop()
    table.delete(EqualTo("id", 2))
    stream.run()

    by_id = [(row["id"], row["_change_type"], row["_change_ordinal"]) for row in stream.rows]
    assert sorted(by_id) == [
        (1, "insert", 0),
        (2, "delete", 1),
        (2, "insert", 0),
        *((number, "insert", 0) for number in (3, 4, 5)),
    ]
    assert {row["_commit_snapshot_id"] for row in stream.rows[:5]} == {first}


# The schema


def test_a_stream_keeps_the_columns_that_it_was_loaded_with(query: Make, table: Any) -> None:
    stream = query().run()
    with table.update_schema() as change:
        change.rename_column("name", "title")
        change.add_column("more", LongType())
    table.append(pa.table({"id": [6], "title": ["n6"], "more": [1]}))

    assert stream.run().rows[-1] == {"id": 6, "name": "n6"}
    table.append(pa.table({"id": [7], "title": ["n7"], "more": [1]}))
    stream.stop()
    assert stream.run().rows[-1] == {"id": 7, "title": "n7", "more": 1}


# Failures


def failing(monkeypatch: pytest.MonkeyPatch, failures: list[LakeError | None]) -> None:
    """Let the next loads of a table fail; None lets one succeed."""
    load = Session.table

    def loaded(session: Session, identifier: str) -> Any:
        error = failures.pop(0) if failures else None
        if error is not None:
            raise error
        return load(session, identifier)

    monkeypatch.setattr(Session, "table", loaded)


def test_failures_that_pass_are_tolerated_up_to_a_limit(
    warehouse: Path, table: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = Query(warehouse, max_planning_failures="2").run()
    table.append(named_rows(6))
    failing(monkeypatch, [StorageError("away"), StorageError("away")])

    assert not stream.plan()
    assert not stream.plan()
    assert stream.run().ids == [1, 2, 3, 4, 5, 6]
    failing(monkeypatch, [StorageError("away")] * 3)
    assert not stream.plan()
    assert not stream.plan()
    with pytest.raises(StorageError, match="away"):
        stream.plan()


def test_the_first_look_must_succeed(
    warehouse: Path, table: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = Query(warehouse)
    # The first load is that of the frame's schema.
    failing(monkeypatch, [None, StorageError("away")])

    with pytest.raises(StorageError, match="away"):
        stream.plan()


# Checkpoints of Iceberg's stream


def of_java(number: int, position: int, *, scan_all: bool = False) -> str:
    plain = {"version": 1, "snapshot_id": number, "position": position}
    return json.dumps({**plain, "scan_all_files": scan_all}, separators=(",", ":"))


def test_an_offset_of_icebergs_stream_is_continued(query: Make, table: Any) -> None:
    stream = query()
    stream.offsets, stream.committed = [of_java(numbers(table)[1], 1)], 1

    assert stream.run().ids == [3, 4, 5]
    stream.stop()
    assert len(stream.run().offsets) == 2


def test_an_offset_within_a_snapshot_is_continued(query: Make, warehouse: Path) -> None:
    made = make_table(warehouse, spec=BY_NAME)
    made.append(three_files(0, 1, 2))
    stream = query()
    (number,) = numbers(made)
    made.append(three_files(3))
    for scan_all in (False, True):
        stream.offsets, stream.committed = [of_java(number, 2, scan_all=scan_all)], 1
        stream.batches = {}
        found = stream.run().ids
        stream.stop()

        assert len(found) == 2
        assert found[-1] == 3


def test_a_first_batch_of_icebergs_stream_is_not_guessed(query: Make, table: Any) -> None:
    stream = query()
    stream.offsets = [of_java(numbers(table)[1], 1)]

    with pytest.raises(RefusedError, match="another stream began the first batch"):
        stream.plan()


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "{}",
        '{"version": 2, "snapshot_id": 1, "position": 0, "scan_all_files": false}',
        '{"version": 1, "snapshot_id": "1", "position": 0, "scan_all_files": false}',
        '{"version": 1, "snapshot_id": 1, "position": 0, "scan_all_files": 1}',
        '{"version": 1, "snapshot_id": 1, "position": 0, "scan_all_files": false, "origin": {"x": 1}}',
    ],
)
def test_an_offset_that_cannot_be_read_is_refused(query: Make, table: Any, text: str) -> None:
    stream = query()
    stream.offsets, stream.committed = [text], 1

    with pytest.raises(BadInputError, match="not an offset of a stream"):
        stream.run()


# Options

REFUSALS = {
    "snapshot": ({"snapshot": "main"}, "snapshot is not an option of a stream"),
    "start": ({"start": "sometime"}, "start: .*not one of table"),
    "both": ({"start": "latest", "start-at": "2020-01-01"}, "start contradicts start-at"),
    "limit": ({"max-files-per-batch": "0"}, "max-files-per-batch must be at least 1"),
    "number": ({"max-rows-per-batch": "many"}, "max-rows-per-batch cannot be 'many'"),
    "gap": ({"on-gap": "ignore"}, "on-gap"),
    "key": ({"key": "id"}, "key needs changes"),
    "future": ({"start-at": "2999-01-01"}, "start-at is in the future"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_options_that_cannot_be_used_are_refused(warehouse: Path, table: Any, name: str) -> None:
    options, text = REFUSALS[name]

    with pytest.raises(InvalidRequestError, match=text):
        Query(warehouse, **options).run()


def test_a_start_that_does_not_exist_is_refused(warehouse: Path, table: Any) -> None:
    with pytest.raises(NotFoundError, match="no snapshot, tag or branch named nope"):
        Query(warehouse, from_snapshot="nope").run()
    with pytest.raises(NotFoundError, match="no branch named nope"):
        Query(warehouse, branch="nope").run()


# Spark itself

SINK = """
import os
def sink(rows, number):
    rows.write.mode('overwrite').parquet(f'{folder}/rows/{number}')
    if killed == number:
        os.kill(os.getpid(), 9)
frame = spark.readStream.format('lake').options(warehouse=warehouse, **options).load('db.t')
query = frame.writeStream.foreachBatch(sink).option('checkpointLocation', f'{folder}/checkpoint')
query.trigger(availableNow=True).start().awaitTermination()
found = spark.read.parquet(f'{folder}/rows/*')
answer = sorted(row.id for row in found.collect())
"""


@pytest.mark.spark
def test_a_killed_driver_repeats_its_batch_when_it_is_started_again(
    warehouse: Path, table: Any, tmp_path: Path
) -> None:
    names: dict[str, Any] = {"warehouse": str(warehouse), "folder": str(tmp_path), "options": {}}
    with closing(notebook(tmp_path / "first")) as killed:
        with pytest.raises(RuntimeError, match="the peer died"):
            killed.run(SINK, **names, killed=0)
    table.append(named_rows(6))

    with closing(notebook(tmp_path / "second")) as spark:
        assert spark.run(SINK, **names, killed=None) == [1, 2, 3, 4, 5, 6]
        # What was read before the crash is read again, and no more.
        cell = "answer = sorted(row.id for row in spark.read.parquet(f'{folder}/rows/0').collect())"
        assert spark.run(cell) == [1, 2, 3, 4, 5]
        table.append(named_rows(7))
        assert spark.run(SINK) == scanned(warehouse)
        changes = {"changes": "true", "key": "id", "max-files-per-batch": "1"}
        names |= {"folder": str(tmp_path / "changes"), "options": changes}
        spark.run(SINK, **names)
        kinds = "answer = {(row._change_type, row._change_ordinal) for row in found.collect()}"
        assert spark.run(f"{kinds}; answer = sorted(answer)") == [["insert", 0]]
        with pytest.raises(RuntimeError, match="changes is an option of spark.readStream only"):
            spark.run(
                "spark.read.format('lake').options(warehouse=warehouse, changes='true').load('db.t').count()"
            )


def notebook(folder: Path) -> Notebook:
    folder.mkdir()
    return Notebook(folder)
