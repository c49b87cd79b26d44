"""Upserts that merge rows column by column: `--merge partial-update`."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import (
    DoubleType,
    ListType,
    LongType,
    NestedField,
    StringType,
)
from support.cli.command_line import CommandLine
from support.tables.iceberg_tables import (
    after,
    files_below,
    make_table,
    pyiceberg_table,
)
from support.tiers import examples

from lake.core.load.upsert import dedup_tasks, match_tasks
from lake.core.load.upsert import execute as upsert_execution
from lake.core.table.catalogs import pyiceberg_patches

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "part", StringType(), required=False),
    NestedField(3, "at", DoubleType(), required=False),
    NestedField(
        4,
        "tags",
        ListType(5, StringType(), element_required=False),
        required=False,
    ),
)
TYPES = {
    "id": pa.int64(),
    "part": pa.string(),
    "at": pa.float64(),
    "tags": pa.list_(pa.string()),
}
BY_PART = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "part"))
MODES = ("position", "copy-on-write")
PARTIAL = ("--upsert", "--key", "id", "--merge", "partial-update")
Row = dict[str, Any]
_numbers = itertools.count()


@pytest.fixture(autouse=True)
def _inline(lake: CommandLine) -> None:
    lake.engine = "inline"


def source(folder: Path, rows: Sequence[Row], names: Sequence[str] = tuple(TYPES)) -> Path:
    columns = [pa.array([row.get(name) for row in rows], TYPES[name]) for name in names]
    path = folder / f"source-{next(_numbers):04d}.parquet"
    pq.write_table(pa.table(columns, names=list(names)), path)
    return path


def load(lake: CommandLine, path: Path, *options: str) -> dict[str, Any]:
    """Merge a file by id into db.t; return the outcome."""
    return lake.ok("ingest", "db.t", path, *PARTIAL, *options)


def in_order(rows: Sequence[Row]) -> list[Row]:
    return sorted(rows, key=repr)


def rows_of(warehouse: Path) -> list[Row]:
    """Return the rows that PyIceberg reads, without NULLs, sorted."""
    found = pyiceberg_table(warehouse).scan().to_arrow().to_pylist()
    return in_order([valid(row) for row in found])


def valid(row: Row) -> Row:
    return {name: value for name, value in row.items() if value is not None}


def held(warehouse: Path) -> set[str]:
    """Return the files of the table that its snapshots reference."""
    files = pyiceberg_table(warehouse).inspect.all_files().to_pylist()
    return {row["file_path"].removeprefix(f"file://{warehouse}/") for row in files}


def data_files(warehouse: Path) -> set[str]:
    return {name for name in files_below(warehouse) if name.startswith("db/t/data/")}


ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "id": st.integers(0, 5),
            "part": st.sampled_from(["a", "b", None]),
            "at": st.none() | st.integers(0, 3).map(float),
            "tags": st.none() | st.lists(st.sampled_from(["x", None]), max_size=2),
        }
    ),
    min_size=1,
    max_size=7,
)
LOADS = st.lists(st.tuples(ROWS, st.sampled_from([(), ("part",), ("tags",)])), max_size=4)


def _age(row: Row) -> float:
    at = row.get("at")
    return -1.0 if at is None else at


class _Model:
    """What partial updates leave, row by row."""

    def __init__(self, order: str | None, overwrites: set[str]) -> None:
        self.rows: dict[int, Row] = {}
        self.order = order
        self.overwrites = overwrites

    def load(self, rows: list[Row], names: Sequence[str]) -> dict[str, int]:
        before = {key: dict(row) for key, row in self.rows.items()}
        counts = {"rows_inserted": 0, "rows_updated": 0, "rows_stale": 0}
        if self.order:
            rows = sorted(rows, key=_age)
        touched = set()
        for row in rows:
            old = before.get(row["id"])
            if self.order == "--sequence" and old is not None and _age(row) < _age(old):
                counts["rows_stale"] += 1
                continue
            touched.add(row["id"])
            merged = self.rows.setdefault(row["id"], {})
            for name in names:
                if row[name] is not None or name in self.overwrites:
                    merged[name] = row[name]
        counts["rows_updated"] = len(touched & before.keys())
        counts["rows_inserted"] = len(touched - before.keys())
        return counts


@given(
    order=st.sampled_from([None, "--order-by", "--sequence"]),
    mode=st.sampled_from(MODES),
    version=st.sampled_from(["1", "2", "3"]),
    partitioned=st.booleans(),
    overwrites=st.sampled_from([(), ("tags",)]),
    loads=LOADS,
    buckets=st.booleans(),
)
@settings(
    deadline=None,
    max_examples=examples(15),
    suppress_health_check=[HealthCheck.too_slow],
    # A world takes a second: shrinking one would take minutes.
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)
def test_partial_updates_leave_what_a_model_has(
    order: str | None,
    mode: str,
    version: str,
    partitioned: bool,
    overwrites: tuple[str, ...],
    loads: list[tuple[list[Row], tuple[str, ...]]],
    buckets: bool,
) -> None:
    folder = Path.cwd() / f"world-{next(_numbers)}"
    folder.mkdir()
    warehouse = folder / "warehouse"
    lake = CommandLine(warehouse, engine="inline")
    # PyIceberg alone does not create tables of format version 3.
    pyiceberg_patches.apply()
    spec = BY_PART if partitioned else PartitionSpec()
    make_table(warehouse, schema=SCHEMA, spec=spec, format_version=version)
    flags = ["--deletes", "copy-on-write" if version == "1" else mode]
    flags += [order, "at"] if order else []
    flags += ["--null-overwrites", ",".join(overwrites)] if overwrites else []
    model = _Model(order, set(overwrites))
    with pytest.MonkeyPatch.context() as patch:
        if buckets:
            patch.setattr(upsert_execution, "_BUCKET_ROWS", 2)
            patch.setattr(match_tasks, "_CHUNK_ROWS", 2)
            patch.setattr(dedup_tasks, "_BATCH_ROWS", 1)
        for rows, left_out in loads:
            names = [name for name in TYPES if name not in set(left_out) - set(overwrites)]
            expected = model.load(rows, names)
            result = load(lake, source(folder, rows, names), *flags)["result"]
            if order != "--sequence":
                del expected["rows_stale"]
            assert {name: result[name] for name in expected} == expected
            assert result["rows_written"] == result["rows_inserted"] + result["rows_updated"]
            assert rows_of(warehouse) == in_order([valid(row) for row in model.rows.values()])
    assert data_files(warehouse) == held(warehouse)


@pytest.mark.parametrize("mode", MODES)
def test_a_row_moves_to_another_partition_with_the_values_that_it_keeps(
    lake: CommandLine, warehouse: Path, tmp_path: Path, mode: str
) -> None:
    make_table(warehouse, schema=SCHEMA, spec=BY_PART)
    load(lake, source(tmp_path, [{"id": 1, "part": "a", "at": 1.0, "tags": ["x"]}]))
    csv = tmp_path / "moved.csv"
    csv.write_text("id,part\n1,b\n")
    done = load(lake, csv, "--deletes", mode)
    assert rows_of(warehouse) == [{"id": 1, "part": "b", "at": 1.0, "tags": ["x"]}]
    assert done["plan"]["merge"] == "partial-update"
    assert lake.ok("scan", "db.t", "--where", "part = 'a'")["result"]["rows"] == 0


def test_a_new_row_without_a_required_column_is_an_error_and_an_old_one_keeps_its_value(
    lake: CommandLine, warehouse: Path, tmp_path: Path
) -> None:
    needs = Schema(*SCHEMA.fields[:2], NestedField(3, "at", DoubleType(), required=True))
    make_table(warehouse, schema=needs)
    load(lake, source(tmp_path, [{"id": 1, "part": "a", "at": 1.0}], ["id", "part", "at"]))
    before = files_below(warehouse)
    new = source(tmp_path, [{"id": 1, "part": "b"}, {"id": 2, "part": "b"}], ["id", "part"])
    failed = lake("ingest", "db.t", new, *PARTIAL)
    assert failed.exit_code == 7
    assert "a new key and without a value for the required column at" in failed.stderr
    assert files_below(warehouse) == before
    old = source(tmp_path, [{"id": 1, "part": "b", "at": None}], ["id", "part", "at"])
    load(lake, old)
    assert rows_of(warehouse) == [{"id": 1, "part": "b", "at": 1.0}]
    failed = lake("ingest", "db.t", old, *PARTIAL, "--null-overwrites", "at")
    assert failed.exit_code == 7
    assert "NULL in the required column at" in failed.stderr


@pytest.mark.parametrize("mode", MODES)
def test_the_loser_of_a_race_merges_into_the_winners_row(
    lake: CommandLine, warehouse: Path, tmp_path: Path, mode: str
) -> None:
    make_table(warehouse, schema=SCHEMA)
    load(lake, source(tmp_path, [{"id": 1, "part": "old", "at": 1.0}, {"id": 2, "at": 1.0}]))
    other = source(tmp_path, [{"id": 1, "tags": ["theirs"]}, {"id": 3, "tags": ["theirs"]}])
    race = lake.with_faults(after(lambda: load(lake, other, "--deletes", mode)))
    mine = source(tmp_path, [{"id": key, "part": "ours"} for key in (1, 3, 4)])
    done = load(race, mine, "--deletes", mode)
    assert rows_of(warehouse) == in_order(
        [
            {"id": 1, "part": "ours", "at": 1.0, "tags": ["theirs"]},
            {"id": 2, "at": 1.0},
            {"id": 3, "part": "ours", "tags": ["theirs"]},
            {"id": 4, "part": "ours"},
        ]
    )
    assert (done["result"]["rows_inserted"], done["result"]["rows_updated"]) == (1, 2)
    assert data_files(warehouse) == held(warehouse)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", ["position", "equality"])
def test_a_row_that_is_deleted_meanwhile_does_not_come_back(
    lake: CommandLine, warehouse: Path, tmp_path: Path, mode: str, kind: str
) -> None:
    make_table(warehouse, schema=SCHEMA)
    rows = [{"id": 1, "part": "a", "at": 1.0}, {"id": 2, "part": "a", "at": 1.0}]
    load(lake, source(tmp_path, rows))
    log = tmp_path / "log.csv"
    log.write_text("op,id,part,at\n-D,1,a,1.0\n")
    changes = ("--changes-column", "op", "--key", "id", "--changes-mode", "upsert")
    kept = source(tmp_path, rows[1:])
    deletion = (log, *changes) if kind == "equality" else (kept, "--overwrite-where", "part = 'a'")
    race = lake.with_faults(after(lambda: lake.ok("ingest", "db.t", *deletion)))
    load(race, source(tmp_path, [{"id": 1, "tags": ["ours"]}]), "--deletes", mode)
    # PyIceberg does not read equality deletes.
    out = tmp_path / "rows.parquet"
    lake.ok("scan", "db.t", "--output", out)
    found = in_order([valid(row) for row in pq.read_table(out).to_pylist()])
    assert found == in_order([{"id": 1, "tags": ["ours"]}, rows[1]])


def test_new_columns_are_added_and_old_rows_keep_the_others(
    lake: CommandLine, warehouse: Path, tmp_path: Path
) -> None:
    make_table(warehouse, schema=SCHEMA)
    load(lake, source(tmp_path, [{"id": 1, "part": "a"}, {"id": 2, "part": "a"}]))
    csv = tmp_path / "more.csv"
    csv.write_text("id,more\n1,5\n3,6\n")
    load(lake, csv, "--evolve")
    assert rows_of(warehouse) == in_order(
        [{"id": 1, "part": "a", "more": 5}, {"id": 2, "part": "a"}, {"id": 3, "more": 6}]
    )


def test_a_new_table_has_the_merged_rows(
    lake: CommandLine, warehouse: Path, tmp_path: Path
) -> None:
    path = source(tmp_path, [{"id": 1, "part": "a"}, {"id": 1, "at": 2.0}, {"id": 2}])
    done = load(lake, path, "--create")
    assert rows_of(warehouse) == [{"id": 1, "part": "a", "at": 2.0}, {"id": 2}]
    assert (done["result"]["rows_inserted"], done["result"]["rows_written"]) == (2, 2)


def test_rows_with_an_unusable_key_are_set_aside(
    lake: CommandLine, warehouse: Path, tmp_path: Path
) -> None:
    make_table(warehouse, schema=SCHEMA)
    load(lake, source(tmp_path, [{"id": 1, "part": "a"}]))
    csv = tmp_path / "some.csv"
    csv.write_text("id,at\n1,2\n,3\n2,bad\n")
    done = load(lake, csv, "--max-rejects", "99", "--rejects", str(tmp_path / "bad.csv"))
    assert (done["result"]["rows_rejected"], done["result"]["rows_read"]) == (2, 3)
    assert rows_of(warehouse) == [{"id": 1, "part": "a", "at": 2.0}]


def test_several_rows_of_a_key_in_the_table_are_refused(
    lake: CommandLine, warehouse: Path, tmp_path: Path
) -> None:
    make_table(warehouse, schema=SCHEMA)
    path = source(tmp_path, [{"id": 1, "part": "a"}])
    lake.ok("ingest", "db.t", path)
    lake.ok("ingest", "db.t", path)
    failed = lake("ingest", "db.t", path, *PARTIAL)
    assert failed.exit_code == 3
    assert "several rows" in failed.stderr


def test_files_with_different_columns_and_a_match_filter(
    lake: CommandLine, warehouse: Path, tmp_path: Path
) -> None:
    make_table(warehouse, schema=SCHEMA, spec=BY_PART)
    load(lake, source(tmp_path, [{"id": 1, "part": "a"}, {"id": 2, "part": "b"}]))
    drop = tmp_path / "drop"
    drop.mkdir()
    source(drop, [{"id": key, "at": 1.0} for key in (1, 2)], ["id", "at"])
    source(drop, [{"id": key, "tags": ["x"]} for key in (1, 2)], ["id", "tags"])
    load(lake, drop, "--match-where", "part = 'b'")
    assert rows_of(warehouse) == in_order(
        [
            {"id": 1, "part": "a"},
            {"id": 1, "at": 1.0, "tags": ["x"]},
            {"id": 2, "part": "b", "at": 1.0, "tags": ["x"]},
        ]
    )


def test_watched_files_are_merged_once_each(
    lake: CommandLine, warehouse: Path, tmp_path: Path
) -> None:
    make_table(warehouse, schema=SCHEMA)
    drop = tmp_path / "drop"
    drop.mkdir()
    watch = ("--watch", drop, "--stream", "s", "--state", tmp_path / "state", "--once")
    words = ("ingest", "db.t", *watch, *PARTIAL, "--sequence", "at", "--settle", "0s")
    for row, expected in (
        ({"id": 1, "part": "a", "at": 5.0}, {"id": 1, "part": "a", "at": 5.0}),
        ({"id": 1, "tags": ["x"], "at": 6.0}, {"id": 1, "part": "a", "at": 6.0, "tags": ["x"]}),
        ({"id": 1, "part": "b", "at": 4.0}, {"id": 1, "part": "a", "at": 6.0, "tags": ["x"]}),
    ):
        source(drop, [row])
        lake.ok(*words)
        assert rows_of(warehouse) == [expected]
    assert lake.ok(*words)["status"] == "nothing-to-do"


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (("--deletes", "equality"), 2),
        (("--repair-duplicates",), 2),
        (("--stage",), 2),
        (("--null-overwrites", "id"), 2),
        (("--null-overwrites", "tags.element"), 2),
        (("--null-overwrites", "none"), 7),
        (("--null-overwrites", "tags"), 7),
    ],
)
def test_options_that_contradict_are_refused(
    lake: CommandLine, warehouse: Path, tmp_path: Path, options: tuple[str, ...], code: int
) -> None:
    make_table(warehouse, schema=SCHEMA)
    path = source(tmp_path, [{"id": 1, "part": "a"}], ["id", "part"])
    assert lake("ingest", "db.t", path, *PARTIAL, *options).exit_code == code


def test_other_loads_refuse_the_columns_in_which_null_is_a_value(
    lake: CommandLine, warehouse: Path, tmp_path: Path
) -> None:
    make_table(warehouse, schema=SCHEMA)
    path = source(tmp_path, [{"id": 1, "part": "a"}])
    by_key = ("--upsert", "--key", "id", "--null-overwrites", "part")
    for options in (by_key, by_key[2:]):
        assert lake("ingest", "db.t", path, *options).exit_code == 2


@pytest.mark.spark
@pytest.mark.parametrize("mode", MODES)
def test_a_partial_update_on_spark_merges_the_same_rows(
    lake: CommandLine, warehouse: Path, tmp_path: Path, mode: str
) -> None:
    make_table(warehouse, schema=SCHEMA, spec=BY_PART, format_version="3")
    load(lake, source(tmp_path, [{"id": key, "part": "a", "at": 5.0} for key in range(20)]))
    lake.engine = "spark"
    rows = [{"id": key, "part": "b", "at": float(key - 10)} for key in range(10, 30)]
    drop = tmp_path / "drop"
    drop.mkdir()
    source(drop, rows[::2])
    source(drop, rows[1::2])
    load(lake, drop, "--sequence", "at", "--deletes", mode)
    expected = [{"id": key, "part": "a", "at": 5.0} for key in range(15)]
    assert rows_of(warehouse) == in_order([*expected, *rows[5:]])
