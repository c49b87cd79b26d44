"""Upserts that look at the table's row: `--sequence`, `--merge first-row` and `--match-where`."""

from __future__ import annotations

import itertools
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
from pyiceberg.types import DoubleType, LongType, NestedField, StringType
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

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "part", StringType(), required=False),
    NestedField(3, "at", DoubleType(), required=False),
)
BY_PART = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "part"))
MODES = ("position", "copy-on-write")
Row = tuple[int | None, str | None, float | None]
_numbers = itertools.count()


@pytest.fixture(autouse=True)
def _inline(lake: CommandLine) -> None:
    lake.engine = "inline"


def source(folder: Path, rows: list[Row]) -> Path:
    names, types = ["id", "part", "at"], [pa.int64(), pa.string(), pa.float64()]
    columns = [pa.array([row[at] for row in rows], kind) for at, kind in enumerate(types)]
    path = folder / f"source-{next(_numbers):04d}.parquet"
    pq.write_table(pa.table(columns, names=names), path)
    return path


def load(lake: CommandLine, path: Path, *options: str) -> dict[str, Any]:
    """Upsert by id into db.t; return the outcome."""
    return lake.ok("ingest", "db.t", path, "--upsert", "--key", "id", *options)


def rows_of(warehouse: Path) -> list[Row]:
    """Return the rows that PyIceberg reads, sorted."""
    found = pyiceberg_table(warehouse).scan().to_arrow().to_pylist()
    return sorted(((row["id"], row["part"], row["at"]) for row in found), key=repr)


def operations(warehouse: Path) -> list[str]:
    table = pyiceberg_table(warehouse)
    return [item.summary.operation.value for item in table.snapshots() if item.summary]


SOURCE_ROWS = st.lists(
    st.tuples(
        st.integers(0, 5),
        st.sampled_from(["a", "b", None]),
        st.none() | st.integers(0, 3).map(float),
    ),
    min_size=1,
    max_size=6,
)


def _age(row: Row) -> float:
    return -1.0 if row[2] is None else row[2]


@given(
    option=st.sampled_from(["sequence", "first-row", "first-row by at"]),
    mode=st.sampled_from(MODES),
    version=st.sampled_from(["1", "2", "3"]),
    partitioned=st.booleans(),
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
def test_loads_leave_what_a_model_has(
    option: str,
    mode: str,
    version: str,
    partitioned: bool,
    loads: list[list[Row]],
    buckets: bool,
) -> None:
    folder = Path.cwd() / f"world-{next(_numbers)}"
    folder.mkdir()
    warehouse = folder / "warehouse"
    lake = CommandLine(warehouse, engine="inline")
    spec = BY_PART if partitioned else PartitionSpec()
    make_table(warehouse, schema=SCHEMA, spec=spec, format_version=version)
    if version == "1":
        mode = "copy-on-write"
    flags = {
        "sequence": ("--sequence", "at", "--deletes", mode),
        "first-row": ("--merge", "first-row"),
        "first-row by at": ("--merge", "first-row", "--order-by", "at"),
    }[option]
    model: dict[int | None, Row] = {}
    with pytest.MonkeyPatch.context() as patch:
        if buckets:
            patch.setattr(upsert_execution, "_BUCKET_ROWS", 2)
            patch.setattr(match_tasks, "_CHUNK_ROWS", 2)
            patch.setattr(dedup_tasks, "_BATCH_ROWS", 1)
        for rows in loads:
            before, dropped = dict(model), 0
            best: dict[int | None, Row] = {}
            for row in rows:
                key = row[0]
                old = best.get(key)
                if option == "sequence":
                    wins = old is None or _age(row) >= _age(old)
                else:
                    wins = old is None or (option != "first-row" and _age(row) < _age(old))
                best[key] = row if wins or old is None else old
            for key, row in best.items():
                old = before.get(key)
                if old is not None and (option != "sequence" or _age(row) < _age(old)):
                    dropped += 1
                else:
                    model[key] = row
            done = load(lake, source(folder, rows), *flags)
            result = done["result"]
            assert result["rows_stale" if option == "sequence" else "rows_skipped"] == dropped
            assert result["rows_written"] == len(best) - dropped
            assert result["rows_inserted"] + result["rows_updated"] == result["rows_written"]
            assert (done["status"] == "nothing-to-do") == (dropped == len(best))
            assert rows_of(warehouse) == sorted(model.values(), key=repr)
    assert not [name for name in files_below(warehouse) if name.endswith(".arrow")]


@pytest.mark.parametrize("mode", MODES)
def test_a_late_row_does_not_move_a_newer_one_back(
    lake: CommandLine, warehouse: Path, tmp_path: Path, mode: str
) -> None:
    make_table(warehouse, schema=SCHEMA, spec=BY_PART)
    options = ("--sequence", "at", "--deletes", mode)
    load(lake, source(tmp_path, [(1, "a", 5.0), (2, "a", 5.0)]), *options)
    done = load(lake, source(tmp_path, [(1, "b", 4.0), (2, "b", 6.0)]), *options)
    assert rows_of(warehouse) == [(1, "a", 5.0), (2, "b", 6.0)]
    assert (done["result"]["rows_stale"], done["result"]["rows_updated"]) == (1, 1)
    assert done["plan"]["sequence"] == "at"


def test_rows_that_are_all_stale_commit_nothing_and_leave_no_file(
    lake: CommandLine, warehouse: Path, tmp_path: Path
) -> None:
    make_table(warehouse, schema=SCHEMA)
    load(lake, source(tmp_path, [(1, "a", 5.0)]), "--sequence", "at")
    before = files_below(warehouse)
    done = load(lake, source(tmp_path, [(1, "b", 4.0)]), "--sequence", "at")
    assert (done["status"], done["result"]["rows_stale"]) == ("nothing-to-do", 1)
    assert files_below(warehouse) == before


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("mine", "stale"), [(3.0, 1), (9.0, 0)])
def test_the_loser_of_a_race_compares_sequences_again(
    lake: CommandLine, warehouse: Path, tmp_path: Path, mode: str, mine: float, stale: int
) -> None:
    make_table(warehouse, schema=SCHEMA)
    options = ("--sequence", "at", "--deletes", mode)
    load(lake, source(tmp_path, [(1, "old", 1.0), (2, "old", 1.0)]), *options)
    other = source(tmp_path, [(1, "theirs", 5.0)])
    race = lake.with_faults(after(lambda: load(lake, other, *options)))
    done = load(race, source(tmp_path, [(1, "ours", mine), (2, "ours", 2.0)]), *options)
    first = (1, "theirs", 5.0) if stale else (1, "ours", mine)
    assert rows_of(warehouse) == [first, (2, "ours", 2.0)]
    assert done["result"]["rows_stale"] == stale
    held = {
        row["file_path"].removeprefix(f"file://{warehouse}/")
        for row in pyiceberg_table(warehouse).inspect.all_files().to_pylist()
    }
    assert {name for name in files_below(warehouse) if name.startswith("db/t/data/")} == held


def test_a_row_that_was_stale_is_loaded_if_the_newer_one_is_gone_at_the_commit(
    lake: CommandLine, warehouse: Path, tmp_path: Path
) -> None:
    make_table(warehouse, schema=SCHEMA)
    load(lake, source(tmp_path, [(1, "old", 5.0), (2, "old", 5.0)]), "--sequence", "at")
    path = source(tmp_path, [(3, "new", 1.0)])
    race = lake.with_faults(after(lambda: lake.ok("ingest", "db.t", path, "--overwrite")))
    mine = source(tmp_path, [(1, "ours", 4.0), (2, "ours", 6.0), (3, "ours", 0.0)])
    done = load(race, mine, "--sequence", "at")
    assert rows_of(warehouse) == [(1, "ours", 4.0), (2, "ours", 6.0), (3, "new", 1.0)]
    assert done["result"]["rows_stale"] == 1


@pytest.mark.parametrize("options", [("--sequence", "at"), ("--merge", "first-row")])
def test_a_merge_that_races_a_compaction_gives_each_key_once(
    lake: CommandLine, warehouse: Path, tmp_path: Path, options: tuple[str, ...]
) -> None:
    make_table(warehouse, schema=SCHEMA)
    for number in range(3):
        load(lake, source(tmp_path, [(number, "old", 5.0), (10 + number, "old", 5.0)]))
    race = lake.with_faults(after(lambda: lake.ok("compact", "db.t", "--rewrite-all")))
    mine = source(tmp_path, [(0, "ours", 4.0), (1, "ours", 6.0), (99, "ours", 4.0)])
    load(race, mine, *options)
    newer = (
        1,
        "ours" if "--sequence" in options else "old",
        6.0 if "--sequence" in options else 5.0,
    )
    kept = [(key, "old", 5.0) for key in (0, 2, 10, 11, 12)]
    assert rows_of(warehouse) == sorted([*kept, newer, (99, "ours", 4.0)], key=repr)


@pytest.mark.parametrize("version", ["1", "2", "3"])
def test_two_racing_first_rows_give_one_row_and_appends(
    lake: CommandLine, warehouse: Path, tmp_path: Path, version: str
) -> None:
    make_table(warehouse, schema=SCHEMA, format_version=version)
    options = ("--merge", "first-row")
    other = source(tmp_path, [(1, "theirs", 1.0)])
    race = lake.with_faults(after(lambda: load(lake, other, *options)))
    done = load(race, source(tmp_path, [(1, "ours", 2.0), (2, "ours", 2.0)]), *options)
    assert rows_of(warehouse) == [(1, "theirs", 1.0), (2, "ours", 2.0)]
    assert (done["result"]["rows_skipped"], done["result"]["rows_inserted"]) == (1, 1)
    assert done["plan"]["deletes"] == "none"
    assert operations(warehouse) == ["append", "append"]


@pytest.mark.parametrize("mode", MODES)
def test_only_rows_of_the_match_filter_are_compared(
    lake: CommandLine, warehouse: Path, tmp_path: Path, mode: str
) -> None:
    make_table(warehouse, schema=SCHEMA)
    load(lake, source(tmp_path, [(1, "a", 1.0), (2, "b", 1.0), (3, "b", 1.0)]))
    mine = source(tmp_path, [(1, "c", 2.0), (2, "c", 2.0)])
    done = load(lake, mine, "--match-where", "part = 'b'", "--deletes", mode)
    assert (done["result"]["rows_inserted"], done["result"]["rows_updated"]) == (1, 1)
    assert rows_of(warehouse) == [(1, "a", 1.0), (1, "c", 2.0), (2, "c", 2.0), (3, "b", 1.0)]
    assert any("--match-where" in warning for warning in done["warnings"])


def test_a_sequence_that_is_nan_is_set_aside(
    lake: CommandLine, warehouse: Path, tmp_path: Path
) -> None:
    make_table(warehouse, schema=SCHEMA)
    path = source(tmp_path, [(1, "a", float("nan")), (2, "a", None)])
    failed = lake("ingest", "db.t", path, "--upsert", "--key", "id", "--sequence", "at")
    assert failed.exit_code == 7
    assert "NaN in the sequence column at" in failed.stderr
    done = load(
        lake,
        path,
        "--sequence",
        "at",
        "--max-rejects",
        "99",
        "--rejects",
        str(tmp_path / "bad.csv"),
    )
    assert done["result"]["rows_rejected"] == 1
    assert rows_of(warehouse) == [(2, "a", None)]


def test_a_source_without_the_sequence_is_refused(
    lake: CommandLine, warehouse: Path, tmp_path: Path
) -> None:
    make_table(warehouse, schema=SCHEMA)
    path = tmp_path / "rows.csv"
    path.write_text("id,part\n1,a\n")
    failed = lake("ingest", "db.t", path, "--upsert", "--key", "id", "--sequence", "at")
    assert failed.exit_code == 7
    assert "a source does not have this column" in failed.stderr


@pytest.mark.parametrize(
    "options",
    [
        ("--sequence", "at"),
        ("--merge", "first-row"),
        ("--match-where", "id = 1"),
        ("--upsert", "--key", "id", "--sequence", "at", "--deletes", "equality"),
        ("--upsert", "--key", "id", "--match-where", "id = 1", "--deletes", "equality"),
        ("--upsert", "--key", "id", "--merge", "first-row", "--deletes", "position"),
        ("--upsert", "--key", "id", "--merge", "first-row", "--sequence", "at"),
        ("--upsert", "--key", "id", "--merge", "last-row"),
        ("--upsert", "--key", "id", "--merge", "first-row", "--stage"),
    ],
)
def test_options_that_contradict_are_refused(
    lake: CommandLine, warehouse: Path, tmp_path: Path, options: tuple[str, ...]
) -> None:
    make_table(warehouse, schema=SCHEMA)
    failed = lake("ingest", "db.t", source(tmp_path, [(1, "a", 1.0)]), *options)
    assert failed.exit_code == 2


def test_epochs_of_a_stream_compare_sequences_and_keep_the_position_if_all_rows_are_stale(
    lake: CommandLine, warehouse: Path, tmp_path: Path
) -> None:
    make_table(warehouse, schema=SCHEMA)
    load(lake, source(tmp_path, [(1, "kept", 5.0)]))
    follow = ("--from-table", "db.s", "--follow", "--stream", "c", "--once")
    words = ("ingest", "db.t", *follow, "--upsert", "--key", "id", "--sequence", "at")
    lake.ok("ingest", "db.s", "--create", source(tmp_path, [(1, "late", 4.0)]))
    lake.ok(*words)
    assert rows_of(warehouse) == [(1, "kept", 5.0)]
    lake.ok("ingest", "db.s", source(tmp_path, [(1, "new", 6.0)]))
    assert lake.ok(*words)["result"]["epochs"] == 1
    assert rows_of(warehouse) == [(1, "new", 6.0)]
    assert lake.ok(*words)["status"] == "nothing-to-do"


def test_watched_files_compare_sequences(
    lake: CommandLine, warehouse: Path, tmp_path: Path
) -> None:
    make_table(warehouse, schema=SCHEMA)
    drop = tmp_path / "drop"
    drop.mkdir()
    watch = ("--watch", drop, "--stream", "s", "--state", tmp_path / "state", "--once")
    words = ("ingest", "db.t", *watch, "--upsert", "--key", "id", "--sequence", "at")
    for rows, expected in (
        ([(1, "a", 5.0), (2, "a", 5.0)], [(1, "a", 5.0), (2, "a", 5.0)]),
        ([(1, "b", 4.0), (2, "b", 6.0)], [(1, "a", 5.0), (2, "b", 6.0)]),
        ([(1, "c", 1.0)], [(1, "a", 5.0), (2, "b", 6.0)]),
    ):
        source(drop, rows)
        lake.ok(*words, "--settle", "0s")
        assert rows_of(warehouse) == expected
    assert lake.ok(*words)["status"] == "nothing-to-do"


@pytest.mark.spark
@pytest.mark.parametrize("options", [("--sequence", "at"), ("--merge", "first-row")])
def test_a_merge_on_spark_drops_the_same_rows(
    lake: CommandLine, warehouse: Path, tmp_path: Path, options: tuple[str, ...]
) -> None:
    make_table(warehouse, schema=SCHEMA, spec=BY_PART, format_version="3")
    load(lake, source(tmp_path, [(key, "a", 5.0) for key in range(20)]))
    lake.engine = "spark"
    rows: list[Row] = [(key, "b", float(key)) for key in range(10, 30)]
    files = [source(tmp_path, rows[::2]), source(tmp_path, rows[1::2])]
    for path in files:
        load(lake, path, *options)
    newer = "--sequence" in options
    expected: list[Row] = [(key, "a", 5.0) for key in range(10 if newer else 20)]
    expected += rows if newer else rows[10:]
    assert rows_of(warehouse) == sorted(expected, key=repr)
