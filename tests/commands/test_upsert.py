"""`lake ingest --upsert`: one row a key, the newest, whatever mode deletes the old ones and whatever else commits."""

from __future__ import annotations

import itertools
import math
from datetime import date, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)
from support.cli.command_line import CommandLine
from support.tables.delete_files import equality_file
from support.tables.iceberg_tables import (
    after,
    files_below,
    make_table,
    open_session,
    pyiceberg_table,
    request_of,
)
from support.tiers import examples, in_turn

from lake.core.load.ingest.execute import execute as execute_ingest
from lake.core.load.ingest.load import Load
from lake.core.load.ingest.plan import plan_ingest
from lake.core.load.upsert import dedup_tasks, match_tasks
from lake.core.load.upsert import execute as upsert_execution
from lake.core.transaction.commit.commit import CommitRequest, commit_snapshot
from lake.core.transaction.commit.operations import RowDelta

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "part", StringType(), required=False),
    NestedField(3, "value", DoubleType(), required=False),
)
UNPARTITIONED = PartitionSpec()
BY_PART = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "part"))
BY_ID = PartitionSpec(PartitionField(1, 1000, BucketTransform(2), "id_bucket"))
MODES = ("position", "equality", "copy-on-write")
# For sources that lack columns of the table and add others.
NEW_ONLY = ("--evolve", "--missing", "default")
Row = tuple[int | None, str | None, float | None]


@pytest.fixture(autouse=True)
def _inline(lake: CommandLine) -> None:
    lake.engine = "inline"


_numbers = itertools.count()


def source(folder: Path, rows: list[Row]) -> Path:
    """Write a Parquet file of rows."""
    names = ["id", "part", "value"]
    types = [pa.int64(), pa.string(), pa.float64()]
    columns = [pa.array([row[at] for row in rows], kind) for at, kind in enumerate(types)]
    path = folder / f"source-{next(_numbers):04d}.parquet"
    pq.write_table(pa.table(columns, names=names), path)
    return path


def upsert(lake: CommandLine, path: Path | list[Path], *options: str) -> dict[str, Any]:
    """Upsert by id into db.t; return the result's numbers."""
    paths = path if isinstance(path, list) else [path]
    done = lake.ok("ingest", "db.t", *paths, "--upsert", *(options or ("--key", "id")))
    result: dict[str, Any] = done["result"]
    return result


def rows_of(lake: CommandLine, folder: Path) -> list[Row]:
    """Return the rows that `lake scan` gives, sorted."""
    path = folder / f"scan-{next(_numbers):04d}.parquet"
    lake.ok("scan", "db.t", "--output", path)
    found = pq.read_table(path).select(["id", "part", "value"]).to_pylist()
    return sorted(((row["id"], row["part"], row["value"]) for row in found), key=repr)


def by_pyiceberg(warehouse: Path) -> list[Row]:
    """Return the rows that PyIceberg reads, sorted."""
    found = pyiceberg_table(warehouse).scan().to_arrow().to_pylist()
    return sorted(((row["id"], row["part"], row["value"]) for row in found), key=repr)


def inserted_and_updated(result: dict[str, Any]) -> tuple[int, int]:
    return result["rows_inserted"], result["rows_updated"]


# One row a key

KEYS = st.integers(0, 7)
SOURCE_ROWS = st.lists(
    st.tuples(KEYS, st.sampled_from(["a", "b", None]), st.floats(0, 9).map(round)), max_size=6
)


@given(
    mode=st.sampled_from(MODES),
    version=st.sampled_from(["2", "3"]),
    spec=st.sampled_from([UNPARTITIONED, BY_PART, BY_ID]),
    loads=st.lists(SOURCE_ROWS, min_size=1, max_size=4),
    buckets=st.booleans(),
)
@settings(
    deadline=None,
    max_examples=examples(15),
    suppress_health_check=[HealthCheck.too_slow],
    # A world takes a second: shrinking one would take minutes.
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)
def test_upserts_of_any_mode_leave_what_a_dictionary_has(
    mode: str,
    version: str,
    spec: PartitionSpec,
    loads: list[list[Row]],
    buckets: bool,
) -> None:
    key = "id,part" if mode == "equality" and spec is BY_PART else "id"
    with pytest.MonkeyPatch.context() as patch:
        if buckets:
            patch.setattr(upsert_execution, "_BUCKET_ROWS", 2)
            patch.setattr(match_tasks, "_CHUNK_ROWS", 3)
        folder = Path.cwd() / f"world-{next(_numbers)}"
        folder.mkdir()
        lake = CommandLine(folder / "warehouse", engine="inline")
        make_table(folder / "warehouse", schema=SCHEMA, spec=spec, format_version=version)
        model: dict[Any, Row] = {}
        for rows in loads:
            if key == "id,part":
                rows = [(number, part or "c", value) for number, part, value in rows]  # noqa: PLW2901
            keyed = {(row[0], row[1]) if key == "id,part" else row[0]: row for row in rows}
            before = len(model)
            known = len(keyed.keys() & model.keys())
            model.update(keyed)
            found = upsert(lake, source(folder, rows), "--key", key, "--deletes", mode)
            assert found["rows_read"] == len(rows)
            assert found["rows_written"] == len(keyed)
            if mode != "equality":
                assert inserted_and_updated(found) == (len(model) - before, known)
            assert rows_of(lake, folder) == sorted(model.values(), key=repr)
        if mode != "equality" and model:
            assert by_pyiceberg(folder / "warehouse") == sorted(model.values(), key=repr)


def test_of_source_rows_of_one_key_the_last_wins(
    lake: CommandLine, warehouse: Path, tmp_path: Path
) -> None:
    make_table(warehouse, schema=SCHEMA)
    files = [
        source(tmp_path, [(1, "x", 1.0), (2, "x", 1.0), (1, "x", 2.0)]),
        source(tmp_path, [(2, "x", 2.0), (3, "x", 1.0)]),
    ]
    found = upsert(lake, files)
    assert (found["rows_read"], found["rows_written"]) == (5, 3)
    assert rows_of(lake, tmp_path) == [(1, "x", 2.0), (2, "x", 2.0), (3, "x", 1.0)]
    assert not [name for name in files_below(warehouse) if name.endswith(".arrow")]
    data = [name for name in files_below(warehouse) if name.startswith("db/t/data/")]
    assert len(data) == 1


def test_with_an_order_the_greatest_wins_and_null_is_the_least(
    lake: CommandLine, warehouse: Path, tmp_path: Path
) -> None:
    make_table(warehouse, schema=SCHEMA)
    rows: list[Row] = [
        (1, "b", 3.0),
        (1, "a", 9.0),
        (2, "x", None),
        (2, "y", -1.0),
        (3, "first", 5.0),
        (3, "second", 5.0),
    ]
    upsert(lake, source(tmp_path, rows), "--key", "id", "--order-by", "value")
    assert rows_of(lake, tmp_path) == [(1, "a", 9.0), (2, "y", -1.0), (3, "second", 5.0)]
    more: list[Row] = [(1, "b", 1.0), (1, "a", 2.0), (1, "b", 0.0)]
    upsert(lake, source(tmp_path, more), "--key", "id", "--order-by", "part,value")
    assert rows_of(lake, tmp_path)[0] == (1, "b", 1.0)


def test_the_schemas_identifier_fields_are_the_default_key(
    lake: CommandLine, warehouse: Path, tmp_path: Path
) -> None:
    schema = Schema(
        NestedField(1, "id", LongType(), required=True),
        *SCHEMA.fields[1:],
        identifier_field_ids=[1],
    )
    make_table(warehouse, schema=schema)
    path = source(tmp_path, [(1, "a", 1.0)])
    done = lake.ok("ingest", "db.t", path, "--upsert")
    assert done["plan"]["key"] == ["id"]
    assert lake.ok("ingest", "db.t", path, "--upsert")["result"]["rows_updated"] == 1


def test_without_any_key_the_upsert_is_refused(
    lake: CommandLine, warehouse: Path, tmp_path: Path
) -> None:
    make_table(warehouse, schema=SCHEMA)
    failed = lake("ingest", "db.t", source(tmp_path, [(1, "a", 1.0)]), "--upsert")
    assert failed.exit_code == 2
    assert "--upsert requires --key" in " ".join(failed.stderr.split())


def test_a_part_of_a_struct_may_be_the_key(
    lake: CommandLine, warehouse: Path, tmp_path: Path
) -> None:
    inner = StructType(NestedField(4, "number", LongType(), required=False))
    schema = Schema(
        NestedField(1, "id", LongType(), required=False),
        NestedField(2, "part", StringType(), required=False),
        NestedField(3, "value", DoubleType(), required=False),
        NestedField(5, "deep", inner, required=False),
    )
    make_table(warehouse, schema=schema)

    def load(*numbers: int, mark: str) -> dict[str, Any]:
        path = tmp_path / f"nested-{next(_numbers)}.parquet"
        deep = [{"number": number} for number in numbers]
        pq.write_table(pa.table({"part": [mark] * len(deep), "deep": deep}), path)
        return upsert(lake, path, *NEW_ONLY, "--key", "deep.number")

    load(1, 2, mark="old")
    assert inserted_and_updated(load(2, 3, mark="new")) == (1, 1)
    assert sorted(row[1] or "" for row in rows_of(lake, tmp_path)) == ["new", "new", "old"]


def test_a_new_table_gets_each_key_once(lake: CommandLine, tmp_path: Path) -> None:
    path = source(tmp_path, [(1, "a", 1.0), (1, "a", 2.0)])
    done = lake.ok("ingest", "db.t", path, "--create", "--upsert", "--key", "id")
    assert inserted_and_updated(done["result"]) == (1, 0)
    assert rows_of(lake, tmp_path) == [(1, "a", 2.0)]


def test_new_columns_come_with_the_upsert(
    lake: CommandLine, warehouse: Path, tmp_path: Path
) -> None:
    make_table(warehouse, schema=SCHEMA)
    upsert(lake, source(tmp_path, [(1, "a", 1.0), (2, "b", 2.0)]))
    path = tmp_path / "wide.parquet"
    pq.write_table(pa.table({"id": [2, 3], "extra": ["x", "y"]}), path)
    for mode in MODES:
        found = upsert(lake, path, *NEW_ONLY, "--key", "id", "--deletes", mode)
        assert found["rows_written"] == 2
    rows = {row["id"]: row["extra"] for row in lake.ok("scan", "db.t")["result"]["preview"]}
    assert rows == {1: None, 2: "x", 3: "y"}


def test_a_new_column_as_the_key_matches_nothing(
    lake: CommandLine, warehouse: Path, tmp_path: Path
) -> None:
    make_table(warehouse, schema=SCHEMA)
    upsert(lake, source(tmp_path, [(1, "a", 1.0)]))
    path = tmp_path / "wide.parquet"
    pq.write_table(pa.table({"id": [1], "extra": ["x"]}), path)
    found = upsert(lake, path, *NEW_ONLY, "--key", "extra")
    assert inserted_and_updated(found) == (1, 0)


@pytest.mark.parametrize("mode", MODES)
def test_a_run_id_makes_the_second_run_nothing(
    lake: CommandLine, warehouse: Path, tmp_path: Path, mode: str
) -> None:
    make_table(warehouse, schema=SCHEMA)
    path = source(tmp_path, [(1, "a", 1.0)])
    arguments = ("--key", "id", "--deletes", mode, "--run-id", "r1")
    upsert(lake, path, *arguments)
    before = files_below(warehouse)
    again = lake.ok("ingest", "db.t", path, "--upsert", *arguments)
    assert again["status"] == "nothing-to-do"
    assert files_below(warehouse) == before


def test_a_dry_run_shows_the_plan_and_writes_nothing(
    lake: CommandLine, warehouse: Path, tmp_path: Path
) -> None:
    make_table(warehouse, schema=SCHEMA)
    before = files_below(warehouse)
    path = source(tmp_path, [(1, "a", 1.0)])
    done = lake.ok(
        "ingest", "db.t", path, "--upsert", "--key", "id", "--order-by", "value", "--dry-run"
    )
    assert done["status"] == "dry-run"
    assert {name: done["plan"][name] for name in ("mode", "key", "order_by", "deletes")} == {
        "mode": "upsert",
        "key": ["id"],
        "order_by": ["value"],
        "deletes": "position",
    }
    assert files_below(warehouse) == before


def test_an_empty_source_changes_nothing(
    lake: CommandLine, warehouse: Path, tmp_path: Path
) -> None:
    make_table(warehouse, schema=SCHEMA)
    done = lake.ok("ingest", "db.t", source(tmp_path, []), "--upsert", "--key", "id")
    assert done["status"] == "nothing-to-do"


# The table's rows


def test_a_row_that_moves_leaves_its_old_partition(
    lake: CommandLine, warehouse: Path, tmp_path: Path
) -> None:
    make_table(warehouse, schema=SCHEMA, spec=BY_PART)
    upsert(lake, source(tmp_path, [(1, "a", 1.0), (2, "b", 1.0)]))
    assert inserted_and_updated(upsert(lake, source(tmp_path, [(1, "b", 2.0)]))) == (0, 1)
    assert rows_of(lake, tmp_path) == [(1, "b", 2.0), (2, "b", 1.0)]
    assert by_pyiceberg(warehouse) == [(1, "b", 2.0), (2, "b", 1.0)]


def test_rows_that_deletes_removed_are_not_there(
    lake: CommandLine, warehouse: Path, tmp_path: Path
) -> None:
    make_table(warehouse, schema=SCHEMA)
    upsert(lake, source(tmp_path, [(1, "a", 1.0), (2, "b", 1.0), (3, "c", 1.0)]))
    session = open_session(warehouse)
    table = session.table("db.t")
    gone = equality_file(table, [{"id": 1}], ["id"])
    commit_snapshot(
        session,
        table,
        RowDelta(added=(), deletes=[gone], validates=False),
        CommitRequest(operation_id="00000000-0000-0000-0000-000000000001"),
    )
    found = upsert(lake, source(tmp_path, [(1, "a", 2.0), (2, "b", 2.0)]))
    assert inserted_and_updated(found) == (1, 1)
    assert rows_of(lake, tmp_path) == [(1, "a", 2.0), (2, "b", 2.0), (3, "c", 1.0)]


@pytest.mark.parametrize("mode", ["position", "copy-on-write"])
def test_several_rows_of_a_key_are_an_error_that_names_some(
    lake: CommandLine, warehouse: Path, tmp_path: Path, mode: str
) -> None:
    make_table(warehouse, schema=SCHEMA)
    for value in (1.0, 2.0):
        lake.ok("ingest", "db.t", source(tmp_path, [(1, "a", value), (2, "b", value)]))
    lake.ok("ingest", "db.t", source(tmp_path, [(7, "c", 1.0), (7, "c", 2.0), (8, "d", 1.0)]))
    before = files_below(warehouse)
    path = source(tmp_path, [(number, "new", 3.0) for number in (1, 7, 8)])
    arguments = ("ingest", "db.t", path, "--upsert", "--key", "id", "--deletes", mode)
    failed = lake("--json", *arguments)
    assert failed.exit_code == 3
    assert (
        failed.json()["error"]["message"]
        == "db.t has several rows of 2 of the source's keys: id 1; id 7"
    )
    assert files_below(warehouse) == before
    found = lake.ok(*arguments, "--repair-duplicates")["result"]
    assert inserted_and_updated(found) == (0, 3)
    assert rows_of(lake, tmp_path) == [
        (1, "new", 3.0),
        (2, "b", 1.0),
        (2, "b", 2.0),
        (7, "new", 3.0),
        (8, "new", 3.0),
    ]


def test_files_that_cannot_hold_the_keys_are_not_read(
    lake: CommandLine, warehouse: Path, tmp_path: Path
) -> None:
    make_table(warehouse, schema=SCHEMA, spec=BY_PART)
    lake.ok("ingest", "db.t", source(tmp_path, [(number, "a", 1.0) for number in range(100)]))
    far = lake.ok("ingest", "db.t", source(tmp_path, [(500, "a", 1.0)]))
    other = lake.ok("ingest", "db.t", source(tmp_path, [(7, "b", 1.0)]))
    table = pyiceberg_table(warehouse)
    wanted = {int(far["snapshot_ids"][0]), int(other["snapshot_ids"][0])}
    for task in table.scan().plan_files():
        path = Path(task.file.file_path.removeprefix("file://"))
        if task.file.record_count == 1:
            path.write_bytes(b"broken")
    assert len(wanted) == 2
    found = upsert(lake, source(tmp_path, [(7, "a", 2.0), (90, "a", 2.0)]), "--key", "id,part")
    assert inserted_and_updated(found) == (0, 2)


# Keys that identify no row


@pytest.mark.parametrize(("column", "what"), [("id", "NULL"), ("value", "NaN")])
def test_a_row_without_a_usable_key_stops_the_upsert(
    lake: CommandLine, warehouse: Path, tmp_path: Path, column: str, what: str
) -> None:
    make_table(warehouse, schema=SCHEMA)
    upsert(lake, source(tmp_path, [(1, "a", 1.0)]))
    before = files_below(warehouse)
    path = source(tmp_path, [(2, "b", 2.0), (None, "c", math.nan)])
    failed = lake("ingest", "db.t", path, "--upsert", "--key", column)
    assert failed.exit_code == 7
    assert f"has {what} in the key column {column}" in failed.stderr
    assert files_below(warehouse) == before


@pytest.mark.parametrize("mode", MODES)
def test_rows_without_a_usable_key_are_set_aside(
    lake: CommandLine, warehouse: Path, tmp_path: Path, mode: str
) -> None:
    make_table(warehouse, schema=SCHEMA)
    rows: list[Row] = [(2, "b", 2.0), (None, "c", 3.0), (2, "b", 4.0), (None, "d", 5.0)]
    rejects = tmp_path / "rejects.csv"
    found = upsert(
        lake,
        source(tmp_path, rows),
        "--key",
        "id",
        "--deletes",
        mode,
        "--max-rejects",
        "99",
        "--rejects",
        str(rejects),
    )
    assert (found["rows_read"], found["rows_written"], found["rows_rejected"]) == (4, 1, 2)
    header, *found_rows = rejects.read_text().splitlines()
    assert header == '"id","part","value","_file","_line","_reason","_row"'
    assert [row[:6] for row in found_rows] == [',"c",3', ',"d",5']
    assert all("NULL in the key column id" in row for row in found_rows)
    assert rows_of(lake, tmp_path) == [(2, "b", 4.0)]
    assert not [name for name in files_below(warehouse) if name.endswith(".arrow")]


@pytest.mark.parametrize("mode", MODES)
def test_null_and_nan_among_the_keys_of_one_file_are_both_set_aside(
    lake: CommandLine, warehouse: Path, tmp_path: Path, mode: str
) -> None:
    make_table(warehouse, schema=SCHEMA)
    rows: list[Row] = [(1, "a", math.nan), (2, "b", 1.0), (3, "c", None), (4, "d", math.nan)]
    path, rejects = source(tmp_path, rows), tmp_path / "rejects.csv"
    options = ("--key", "value", "--deletes", mode)
    failed = lake("ingest", "db.t", path, "--upsert", *options)
    assert "has NaN in the key column value" in failed.stderr
    found = upsert(lake, path, *options, "--max-rejects", "99", "--rejects", str(rejects))
    assert (found["rows_written"], found["rows_rejected"]) == (1, 3)
    assert [line[0] for line in rejects.read_text().splitlines()[1:]] == ["1", "3", "4"]
    assert rows_of(lake, tmp_path) == [(2, "b", 1.0)]


@pytest.mark.parametrize("name", ["there.csv", "rejects.what", "other.csv"])
def test_a_path_that_cannot_take_rejects_is_refused_first(
    lake: CommandLine, warehouse: Path, tmp_path: Path, name: str
) -> None:
    make_table(warehouse, schema=SCHEMA)
    for mine in ("there.csv", "other.csv.part"):
        (tmp_path / mine).write_text("mine")
    path = source(tmp_path, [(None, "c", 3.0)])
    failed = lake(
        "ingest",
        "db.t",
        path,
        "--upsert",
        "--key",
        "id",
        "--max-rejects",
        "99",
        "--rejects",
        tmp_path / name,
    )
    assert failed.exit_code == 2
    assert (tmp_path / "there.csv").read_text() == "mine"
    assert (tmp_path / "other.csv.part").read_text() == "mine"


# Modes


@pytest.mark.parametrize("mode", ["position", "equality"])
def test_version_1_has_copy_on_write_only(
    lake: CommandLine, warehouse: Path, tmp_path: Path, mode: str
) -> None:
    make_table(warehouse, schema=SCHEMA, format_version="1")
    path = source(tmp_path, [(1, "a", 1.0)])
    failed = lake("ingest", "db.t", path, "--upsert", "--key", "id", "--deletes", mode)
    assert failed.exit_code == 3
    upsert(lake, path, "--key", "id", "--deletes", "copy-on-write")
    found = upsert(lake, path, "--key", "id", "--deletes", "copy-on-write")
    assert inserted_and_updated(found) == (0, 1)
    assert by_pyiceberg(warehouse) == [(1, "a", 1.0)]


def test_equality_deletes_need_the_partitions_columns_in_the_key(
    lake: CommandLine, warehouse: Path, tmp_path: Path
) -> None:
    make_table(warehouse, schema=SCHEMA, spec=BY_PART)
    path = source(tmp_path, [(1, "a", 1.0)])
    failed = lake("ingest", "db.t", path, "--upsert", "--key", "id", "--deletes", "equality")
    assert failed.exit_code == 3
    assert "an old row in another partition would remain" in " ".join(failed.stderr.split())


def test_equality_deletes_that_would_miss_files_of_an_old_spec_are_refused(
    lake: CommandLine, warehouse: Path, tmp_path: Path
) -> None:
    made = make_table(warehouse, schema=SCHEMA)
    path = source(tmp_path, [(1, "a", 1.0)])
    upsert(lake, path)
    with made.update_spec() as update:
        update.add_identity("part")
    arguments = ("ingest", "db.t", path, "--upsert", "--key", "id,part")
    failed = lake(*arguments, "--deletes", "equality")
    assert failed.exit_code == 3
    assert "files with other partition specs (0)" in " ".join(failed.stderr.split())
    assert inserted_and_updated(lake.ok(*arguments)["result"]) == (0, 1)
    assert by_pyiceberg(warehouse) == [(1, "a", 1.0)]


@pytest.mark.parametrize(
    "options",
    [
        ("--key", "id"),
        ("--max-rejects", "1"),
        ("--upsert", "--key", "id", "--overwrite"),
        ("--upsert", "--key", "id", "--deletes", "blind"),
        ("--upsert", "--key", "id,id"),
    ],
)
def test_options_that_contradict_are_refused(
    lake: CommandLine, warehouse: Path, tmp_path: Path, options: tuple[str, ...]
) -> None:
    make_table(warehouse, schema=SCHEMA)
    failed = lake("ingest", "db.t", source(tmp_path, [(1, "a", 1.0)]), *options)
    assert failed.exit_code == 2


def test_an_unknown_key_column_is_reported(
    lake: CommandLine, warehouse: Path, tmp_path: Path
) -> None:
    make_table(warehouse, schema=SCHEMA)
    path = source(tmp_path, [(1, "a", 1.0)])
    failed = lake("ingest", "db.t", path, "--upsert", "--key", "nr")
    assert failed.exit_code == 7
    assert "no column named nr" in failed.stderr


# Races and failures


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ours", "theirs", "version"), in_turn(itertools.product(MODES, MODES), ["2", "3"])
)
def test_two_racing_upserts_of_a_key_leave_one_row(
    lake: CommandLine, warehouse: Path, tmp_path: Path, ours: str, theirs: str, version: str
) -> None:
    make_table(warehouse, schema=SCHEMA, format_version=version)
    upsert(lake, source(tmp_path, [(1, "old", 1.0), (2, "old", 1.0)]))
    other = source(tmp_path, [(1, "theirs", 2.0), (3, "theirs", 2.0)])
    mine = source(tmp_path, [(1, "ours", 3.0), (3, "ours", 3.0)])
    race = lake.with_faults(after(lambda: upsert(lake, other, "--key", "id", "--deletes", theirs)))
    found = upsert(race, mine, "--key", "id", "--deletes", ours)
    assert rows_of(lake, tmp_path) == [(1, "ours", 3.0), (2, "old", 1.0), (3, "ours", 3.0)]
    if ours != "equality":
        assert inserted_and_updated(found) == (0, 2)
        assert not [name for name in files_below(warehouse) if name.endswith(".arrow")]


def test_a_lost_race_leaves_no_files_of_the_first_try(
    lake: CommandLine, warehouse: Path, tmp_path: Path
) -> None:
    make_table(warehouse, schema=SCHEMA)
    upsert(lake, source(tmp_path, [(1, "old", 1.0)]))
    race = lake.with_faults(after(lambda: upsert(lake, source(tmp_path, [(1, "theirs", 2.0)]))))
    upsert(race, source(tmp_path, [(1, "ours", 3.0)]))
    held = {
        row["file_path"].removeprefix(f"file://{warehouse}/")
        for row in pyiceberg_table(warehouse).inspect.all_files().to_pylist()
    }
    written = {name for name in files_below(warehouse) if name.startswith("db/t/data/")}
    assert written == held


@pytest.mark.parametrize("mode", MODES)
def test_two_racing_upserts_into_an_empty_table_leave_one_row(
    lake: CommandLine, warehouse: Path, tmp_path: Path, mode: str
) -> None:
    make_table(warehouse, schema=SCHEMA)
    other = source(tmp_path, [(1, "theirs", 2.0)])
    race = lake.with_faults(after(lambda: upsert(lake, other)))
    found = upsert(race, source(tmp_path, [(1, "ours", 3.0)]), "--key", "id", "--deletes", mode)
    assert rows_of(lake, tmp_path) == [(1, "ours", 3.0)]
    assert mode == "equality" or inserted_and_updated(found) == (0, 1)


@pytest.mark.parametrize("mode", MODES)
def test_an_upsert_that_races_a_compaction_still_replaces_its_rows(
    lake: CommandLine, warehouse: Path, tmp_path: Path, mode: str
) -> None:
    make_table(warehouse, schema=SCHEMA)
    for number in range(4):
        upsert(lake, source(tmp_path, [(number, "old", 1.0), (10 + number, "old", 1.0)]))
    race = lake.with_faults(after(lambda: lake.ok("compact", "db.t", "--rewrite-all")))
    mine = source(tmp_path, [(1, "ours", 3.0), (99, "ours", 3.0)])
    found = upsert(race, mine, "--key", "id", "--deletes", mode)
    assert mode == "equality" or inserted_and_updated(found) == (1, 1)
    expected = dict.fromkeys((0, 1, 2, 3, 10, 11, 12, 13), "old") | {1: "ours", 99: "ours"}
    rows = rows_of(lake, tmp_path)
    assert len(rows) == len(expected)
    assert {row[0]: row[1] for row in rows} == expected


def test_rejects_go_with_an_upsert_that_fails_later(
    lake: CommandLine, warehouse: Path, tmp_path: Path
) -> None:
    make_table(warehouse, schema=SCHEMA)
    lake.ok("ingest", "db.t", source(tmp_path, [(1, "a", 1.0), (1, "a", 2.0)]))
    rejects = tmp_path / "rejects.csv"
    path = source(tmp_path, [(1, "b", 3.0), (None, "c", 3.0)])
    failed = lake(
        "ingest",
        "db.t",
        path,
        "--upsert",
        "--key",
        "id",
        "--max-rejects",
        "99",
        "--rejects",
        rejects,
    )
    assert failed.exit_code == 3
    assert not rejects.exists()


def test_a_new_partition_spec_beside_a_blind_upsert_is_a_conflict(
    lake: CommandLine, warehouse: Path, tmp_path: Path
) -> None:
    made = make_table(warehouse, schema=SCHEMA)
    upsert(lake, source(tmp_path, [(1, "a", 1.0)]))

    def repartition() -> None:
        with made.refresh().update_spec() as update:
            update.add_identity("part")

    before = rows_of(lake, tmp_path)
    path = source(tmp_path, [(1, "b", 3.0)])
    failed = lake.with_faults(after(repartition))(
        "ingest", "db.t", path, "--upsert", "--key", "id", "--deletes", "equality"
    )
    assert failed.exit_code == 4
    assert "partition spec of db.t was changed" in " ".join(failed.stderr.split())
    assert rows_of(lake, tmp_path) == before


def test_a_writer_of_the_old_partition_spec_beside_a_blind_upsert_is_a_conflict(
    lake: CommandLine, warehouse: Path, tmp_path: Path
) -> None:
    made = make_table(warehouse, schema=SCHEMA, spec=BY_ID)
    stale = open_session(warehouse)
    late = plan_ingest(stale, "db.t", request_of(source(tmp_path, [(1, "a", 1.0)])))
    with made.refresh().update_spec() as update:
        update.remove_field("id_bucket")
        update.add_field("id", BucketTransform(3))
    path = source(tmp_path, [(1, "b", 3.0)])
    race = lake.with_faults(after(lambda: execute_ingest(stale, late)))
    failed = race("ingest", "db.t", path, "--upsert", "--key", "id", "--deletes", "equality")
    assert failed.exit_code in {3, 4}
    assert "other partition specs" in " ".join(failed.stderr.split())
    assert rows_of(lake, tmp_path) == [(1, "a", 1.0)]


@pytest.mark.parametrize("version", ["2", "3"])
def test_a_column_that_came_meanwhile_stays_in_the_rows_that_are_copied(
    lake: CommandLine, warehouse: Path, tmp_path: Path, version: str
) -> None:
    make_table(warehouse, schema=SCHEMA, format_version=version)
    upsert(lake, source(tmp_path, [(1, "old", 1.0), (2, "old", 1.0)]))
    wider = tmp_path / "wider.parquet"
    pq.write_table(pa.table({"id": [2], "part": ["b"], "value": [2.0], "more": ["new"]}), wider)
    copying = ("--key", "id", "--deletes", "copy-on-write")
    race = lake.with_faults(after(lambda: upsert(lake, wider, *copying, "--evolve")))
    upsert(race, source(tmp_path, [(1, "ours", 3.0)]), *copying)
    out = tmp_path / "rows.parquet"
    lake.ok("scan", "db.t", "--output", out)
    assert {row["id"]: row["more"] for row in pq.read_table(out).to_pylist()} == {1: None, 2: "new"}


@pytest.mark.parametrize("step", ["settle", "match", "commit"])
def test_a_failure_in_any_step_leaves_nothing_behind(
    lake: CommandLine,
    warehouse: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    step: str,
) -> None:
    make_table(warehouse, schema=SCHEMA)
    upsert(lake, source(tmp_path, [(1, "old", 1.0)]))
    before = files_below(warehouse)

    def broken(*_: Any, **__: Any) -> Any:
        raise OSError("the disk is gone")

    places = {
        "settle": (dedup_tasks, "_deduplicate"),
        "match": (match_tasks, "write_positions"),
        "commit": (Load, "commit_rows"),
    }
    monkeypatch.setattr(*places[step], broken)
    path = source(tmp_path, [(1, "new", 1.0), (1, "new", 2.0)])
    failed = lake("ingest", "db.t", path, "--upsert", "--key", "id")
    assert failed.exit_code == 1
    assert "the disk is gone" in failed.stderr
    assert files_below(warehouse) == before


def test_sources_and_tables_of_many_files_on_each_engine(
    lake_on: CommandLine, warehouse: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_table(warehouse, schema=SCHEMA, spec=BY_PART)
    old = [
        source(tmp_path, [(number * 10 + at, f"p{at % 3}", 0.0) for at in range(10)])
        for number in range(6)
    ]
    lake_on.ok("ingest", "db.t", *old)
    monkeypatch.setattr("lake.core.load.ingest.plan._SMALLEST_TASK_BYTES", 1)
    monkeypatch.setattr(upsert_execution, "_BUCKET_ROWS", 20)
    monkeypatch.setattr("lake.core.load.upsert.key_matching._TASK_ROWS", 25)
    new = [
        source(tmp_path, [(number * 10 + at, f"p{at % 2}", 1.0) for at in range(8)])
        for number in range(2, 8)
    ]
    again = source(tmp_path, [(20, "p9", 2.0), (75, "p9", 2.0)])
    found = upsert(lake_on, [*new, again])
    assert (found["rows_read"], found["rows_written"]) == (50, 48)
    assert inserted_and_updated(found) == (16, 32)
    expected = dict.fromkeys(range(60), 0.0)
    expected |= {number * 10 + at: 1.0 for number in range(2, 8) for at in range(8)}
    expected |= {20: 2.0, 75: 2.0}
    assert {row[0]: row[2] for row in by_pyiceberg(warehouse)} == expected
    assert len(by_pyiceberg(warehouse)) == len(expected)


_KEYS = [
    (IntegerType(), pa.array([-1, 0, 2**31 - 1], pa.int32())),
    (DoubleType(), pa.array([-0.0, 0.0, math.inf])),
    (BooleanType(), pa.array([True, False, True])),
    (DecimalType(38, 2), pa.array([Decimal("-1.00"), Decimal("1.00"), Decimal(10) ** 35])),
    (DateType(), pa.array([date(1969, 1, 1), date(1, 1, 1), date(9999, 1, 1)])),
    (TimeType(), pa.array([time(0), time(1, 2, 3, 4), time(23)], pa.time64("us"))),
    (TimestampType(), pa.array([-1, 0, 10**15], pa.timestamp("us"))),
    (TimestamptzType(), pa.array([-(10**17), 0, 10**18], pa.timestamp("us", "UTC"))),
    (StringType(), pa.array(["", "it's", "é" * 300])),
    (BinaryType(), pa.array([b"", b"\0", b"\xff"])),
    (FixedType(3), pa.array([b"abc", b"abd", b"\0\0\0"], pa.binary(3))),
    (UUIDType(), pa.array([bytes(16), b"\1" * 16, b"\2" * 16], pa.uuid())),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "values", "mode"),
    # The modes that look for old rows do so in the same way.
    [*in_turn(_KEYS, ["equality"]), *in_turn(_KEYS, ["position", "copy-on-write"])],
    ids=lambda value: str(value) if isinstance(value, IcebergType | str) else "",
)
def test_values_of_every_type_are_keys(
    lake: CommandLine, warehouse: Path, tmp_path: Path, kind: IcebergType, values: Any, mode: str
) -> None:
    fields = NestedField(1, "k", kind), NestedField(2, "mark", LongType(), required=False)
    make_table(warehouse, schema=Schema(*fields), format_version="2")
    different = 2 if kind == BooleanType() else 3
    for mark, rows, counts in ((1, 2, (2, 0)), (2, 3, (different - 2, 2)), (3, 1, (0, 1))):
        path = tmp_path / f"{mark}.parquet"
        pq.write_table(pa.table({"k": values[:rows], "mark": [mark] * rows}), path)
        found = upsert(lake, path, "--key", "k", "--deletes", mode)
        assert mode == "equality" or inserted_and_updated(found) == counts
    lake.ok("scan", "db.t", "--output", tmp_path / "found.parquet")
    marks = pq.read_table(tmp_path / "found.parquet")["mark"].to_pylist()
    assert sorted(marks) == [2] * (different - 1) + [3]
