"""Rows that cannot be loaded: `--rejects` takes each of them with its place and the reason, and nothing else."""

from __future__ import annotations

import csv
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType
from support.cli.command_line import CommandLine
from support.tables.iceberg_tables import files_below, ids_in, pyiceberg_catalog

from lake.core.base.errors import StorageError
from lake.core.data.sources.acceptance import Acceptance, RejectedRows
from lake.core.data.sources.batches import source_batches
from lake.core.data.sources.discovery import Source
from lake.core.io.storage.storage import Storage
from lake.core.load.ingest import load

GOOD = b"id,name,n\n0,a,1\n"
BAD = b"""id,name,n
1,a,1
2,b
x,c,3

4,"d
e",5
5,f,oops
6,g,7,8
7,h,9
"""
REJECTED = [
    ("3", "3 columns expected, 2 found", "2,b"),
    ("4", "column id of {path}, row 3: 'x' is not a valid long", "x,c,3"),
    ("8", "column n of {path}, row 5: 'oops' is not a valid long", "5,f,oops"),
    ("9", "3 columns expected, 4 found", "6,g,7,8"),
]


@pytest.fixture
def made(lake_on: CommandLine, tmp_path: Path) -> CommandLine:
    """`lake` on each engine, with a table of three columns."""
    (tmp_path / "good.csv").write_bytes(GOOD)
    lake_on.ok("ingest", "db.t", tmp_path / "good.csv", "--create")
    return lake_on


def rejected(path: Path) -> list[tuple[str, str, str]]:
    with path.open(newline="") as file:
        return [(row["_line"], row["_reason"], row["_row"]) for row in csv.DictReader(file)]


def counts(document: dict[str, Any]) -> tuple[int, int, int]:
    result = document["result"]
    return result["rows_read"], result["rows_written"], result["rows_rejected"]


@pytest.mark.parametrize("distribution", ["none", "range"])
def test_bad_rows_of_csv_are_set_aside_with_line_reason_and_text(
    lake_on: CommandLine, warehouse: Path, tmp_path: Path, distribution: str
) -> None:
    good, bad = tmp_path / "good.csv", tmp_path / "bad.csv"
    good.write_bytes(GOOD)
    bad.write_bytes(BAD)
    lake_on.ok("ingest", "db.t", good, "--create", "--sort-by", "id")
    rejects = tmp_path / "rejects.csv"

    document = lake_on.ok(
        "ingest",
        "db.t",
        bad,
        "--max-rejects",
        "99",
        "--rejects",
        rejects,
        "--distribution",
        distribution,
    )

    assert counts(document) == (7, 3, 4)
    assert ids_in(warehouse) == [0, 1, 4, 7]
    assert rejected(rejects) == [(a, b.format(path=bad), c) for a, b, c in REJECTED]
    assert not [path for path in files_below(warehouse) if "rejects" in str(path)]


def test_bad_rows_of_json_are_set_aside(lake: CommandLine, warehouse: Path, tmp_path: Path) -> None:
    good, bad = tmp_path / "good.csv", tmp_path / "bad.json"
    good.write_bytes(GOOD)
    lake.ok("ingest", "db.t", good, "--create")
    lines = [
        '{"id": 1, "name": "a"}', "", "not JSON", '{"id": "x"}', "[1]", '{"id": 2, "nope": 3}',
        '{"id": ' + "[" * 300 + "]" * 300 + "}", "null", '{"id": 3}',
    ]  # fmt: skip
    bad.write_text("\n".join(lines))
    rejects = tmp_path / "rejects.json"

    document = lake.ok("ingest", "db.t", bad, "--max-rejects", "99", "--rejects", rejects)

    assert counts(document) == (8, 2, 6)
    assert ids_in(warehouse) == [0, 1, 3]
    found = [json.loads(line) for line in rejects.read_text().splitlines()]
    assert [row["_line"] for row in found] == [3, 4, 5, 6, 7, 8]
    assert [row["_row"] for row in found] == lines[2:8]
    assert "is nested more than 200 levels deep" in found[4]["_reason"]


def test_bad_rows_of_parquet_are_set_aside(
    lake: CommandLine, warehouse: Path, tmp_path: Path
) -> None:
    good, bad, rejects = (tmp_path / name for name in ("good.csv", "bad.parquet", "rejects.csv"))
    good.write_text("id,at\n0,2024-01-01 00:00:00\n")
    lake.ok("ingest", "db.t", good, "--create")
    # The second time has nanoseconds, which the column does not keep.
    times = pa.array([1000, 1001, 2000], pa.timestamp("ns"))
    pq.write_table(pa.table({"id": [1, 2, 3], "at": times}), bad)

    document = lake.ok("ingest", "db.t", bad, "--max-rejects", "99", "--rejects", rejects)

    assert counts(document) == (3, 2, 1)
    assert ids_in(warehouse) == [0, 1, 3]
    ((line, reason, row),) = rejected(rejects)
    assert line == "2"
    assert "it has nanoseconds" in reason
    assert row.startswith("id: 2, at: ")


def test_rows_outside_an_overwrite_or_without_a_required_value_are_set_aside(
    lake: CommandLine, warehouse: Path, tmp_path: Path
) -> None:
    schema = Schema(
        NestedField(1, "id", LongType(), required=True), NestedField(2, "name", StringType())
    )
    catalog = pyiceberg_catalog(warehouse)
    catalog.create_namespace("db")
    catalog.create_table("db.t", schema)
    bad, rejects = tmp_path / "bad.csv", tmp_path / "rejects.csv"
    bad.write_text("id,name\n1,a\n,b\n3,c\n4,d\n")

    document = lake.ok(
        "ingest",
        "db.t",
        bad,
        "--overwrite-where",
        "id < 4",
        "--max-rejects",
        "99",
        "--rejects",
        rejects,
    )

    assert counts(document) == (4, 2, 2)
    assert ids_in(warehouse) == [1, 3]
    assert rejected(rejects) == [
        ("3", "NULL in the required column id", ",b"),
        ("5", "the row does not match the overwrite's filter", "4,d"),
    ]


def test_an_upsert_sets_aside_rows_with_bad_keys_and_bad_values(
    made: CommandLine, warehouse: Path, tmp_path: Path
) -> None:
    bad, rejects = tmp_path / "bad.csv", tmp_path / "rejects.csv"
    bad.write_text("id,name,n\n1,a,1\n,b,2\n1,again,3\n3,c,oops\n")

    document = made.ok(
        "ingest",
        "db.t",
        bad,
        "--upsert",
        "--key",
        "id",
        "--max-rejects",
        "99",
        "--rejects",
        rejects,
    )

    assert (document["result"]["rows_read"], document["result"]["rows_rejected"]) == (4, 2)
    assert ids_in(warehouse) == [0, 1]
    assert [(line, row) for line, _, row in rejected(rejects)] == [("3", ",b,2"), ("5", "3,c,oops")]
    with rejects.open(newline="") as file:
        assert [row["name"] for row in csv.DictReader(file)] == ["b", ""]


def test_too_many_rejects_stop_the_load(lake: CommandLine, warehouse: Path, tmp_path: Path) -> None:
    good, bad, rejects = (tmp_path / name for name in ("good.csv", "bad.csv", "rejects.csv"))
    good.write_bytes(GOOD)
    bad.write_bytes(BAD)
    lake.ok("ingest", "db.t", good, "--create")
    before = files_below(warehouse)
    options = ["ingest", "db.t", bad, "--max-rejects", "99", "--rejects", rejects, "--max-rejects"]

    result = lake("--json", *options, 3)

    assert result.exit_code == 7
    assert "more than 3 rows cannot be loaded, for example" in result.json()["error"]["message"]
    assert files_below(warehouse) == before
    assert not rejects.exists()
    assert counts(lake.ok(*options, 4)) == (7, 3, 4)


def test_the_limit_counts_the_rows_of_all_files(lake: CommandLine, tmp_path: Path) -> None:
    good, rejects = tmp_path / "good.csv", tmp_path / "rejects.csv"
    good.write_bytes(GOOD)
    lake.ok("ingest", "db.t", good, "--create")
    files = [tmp_path / f"{number}.csv" for number in range(3)]
    for file in files:
        file.write_text("id,name,n\nx,a,1\n")

    result = lake(
        "ingest", "db.t", *files, "--max-rejects", "99", "--rejects", rejects, "--max-rejects", 2
    )

    assert result.exit_code == 7
    assert not rejects.exists()


def test_an_overwrite_whose_rows_are_all_rejected_replaces_nothing(
    lake: CommandLine, warehouse: Path, tmp_path: Path
) -> None:
    good, bad, rejects = (tmp_path / name for name in ("good.csv", "bad.csv", "rejects.csv"))
    good.write_bytes(GOOD)
    bad.write_text("id,name,n\nx,a,1\n")
    lake.ok("ingest", "db.t", good, "--create")

    document = lake.ok(
        "ingest",
        "db.t",
        bad,
        "--overwrite",
        "--allow-empty",
        "--max-rejects",
        "99",
        "--rejects",
        rejects,
    )

    assert document["status"] == "nothing-to-do"
    assert counts(document) == (1, 0, 1)
    assert ids_in(warehouse) == [0]
    assert len(rejected(rejects)) == 1


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--upsert", "--key", "id"],
        ["--changes-column", "op", "--changes-mode", "upsert", "--key", "id"],
    ],
)
def test_a_table_is_not_created_if_all_rows_are_rejected(
    lake: CommandLine, tmp_path: Path, options: list[str]
) -> None:
    bad, rejects = tmp_path / "bad.csv", tmp_path / "rejects.csv"
    bad.write_text("id,op\n1\n2,+I,3\n")

    document = lake.ok(
        "ingest", "db.t", bad, "--create", *options, "--max-rejects", "99", "--rejects", rejects
    )

    assert document["status"] == "nothing-to-do"
    assert counts(document) == (2, 0, 2)
    assert lake("snapshots", "db.t").exit_code == 7


def test_a_run_that_was_loaded_does_nothing_though_its_rejects_are_there(
    lake: CommandLine, warehouse: Path, tmp_path: Path
) -> None:
    good, bad, rejects = (tmp_path / name for name in ("good.csv", "bad.csv", "rejects.csv"))
    good.write_bytes(GOOD)
    bad.write_bytes(BAD)
    lake.ok("ingest", "db.t", good, "--create")
    options = ["ingest", "db.t", bad, "--run-id", "r", "--max-rejects", "99", "--rejects", rejects]

    first, second = lake.ok(*options), lake.ok(*options)

    assert (first["status"], second["status"]) == ("done", "nothing-to-do")
    assert ids_in(warehouse) == [0, 1, 4, 7]
    assert len(rejected(rejects)) == 4


def test_a_load_that_fails_after_its_commit_keeps_its_rejects(
    lake: CommandLine, warehouse: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good, bad, rejects = (tmp_path / name for name in ("good.csv", "bad.csv", "rejects.csv"))
    good.write_bytes(GOOD)
    bad.write_bytes(BAD)
    lake.ok("ingest", "db.t", good, "--create")
    real = load.commit_snapshot

    def failing(*arguments: Any, **options: Any) -> Any:
        real(*arguments, **options)
        raise StorageError("the disk is full")

    monkeypatch.setattr(load, "commit_snapshot", failing)
    failed = lake("ingest", "db.t", bad, "--max-rejects", "99", "--rejects", rejects)

    assert failed.exit_code != 0
    assert ids_in(warehouse) == [0, 1, 4, 7]
    assert len(rejected(rejects)) == 4


def test_a_new_table_gets_the_rows_that_can_be_read(
    lake: CommandLine, warehouse: Path, tmp_path: Path
) -> None:
    ragged, rejects = tmp_path / "x.csv", tmp_path / "rejects.csv"
    ragged.write_text("id,name\n1,a\n2\n3,b\n")
    lines, more = tmp_path / "x.json", tmp_path / "more.csv"
    lines.write_text('{"id": 1}\n{"id": \n')

    csv_load = lake.ok(
        "ingest", "db.t", ragged, "--create", "--max-rejects", "99", "--rejects", rejects
    )
    json_load = lake.ok(
        "ingest", "db.u", lines, "--create", "--max-rejects", "99", "--rejects", more
    )

    assert counts(csv_load) == (3, 2, 1)
    assert counts(json_load) == (2, 1, 1)
    assert ids_in(warehouse) == [1, 3]


class Collected:
    """Keeps rejected rows."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.lines: list[int | None] = []

    def add(self, found: RejectedRows) -> None:
        """Keep rows."""
        self.texts += found.texts
        self.lines += found.lines


CELLS = st.sampled_from(["1", "22", "", "x", '"a,b"', '"two\nlines"', "3.5", "NULL", '"9"'])
ROWS = st.lists(st.lists(CELLS, min_size=1, max_size=4).map(",".join), max_size=30)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=ROWS, blank=st.booleans())
def test_each_row_of_csv_is_either_loaded_or_rejected(
    tmp_path: Path, rows: list[str], blank: bool
) -> None:
    # An empty line is not a row.
    rows = [row for row in rows if row]
    path = tmp_path / "x.csv"
    path.write_text("a,b\n" + "".join(f"{row}\n{chr(10) * blank}" for row in rows))
    schema = Schema(NestedField(1, "a", LongType()), NestedField(2, "b", StringType()))
    source = Source(path=str(path), format="csv", size_bytes=1)
    collected = Collected()

    loaded = source_batches(Storage(), source, schema, Acceptance(rejects=collected))

    taken = [row for batch in loaded for row in batch.to_pylist()]
    parsed = {row: next(csv.reader([row.replace("\n", "\v")])) for row in rows}
    good = [row for row in rows if _fits(parsed[row])]
    assert [row["a"] for row in taken] == [_number(parsed[row][0]) for row in good]
    assert Counter(collected.texts) == Counter(row for row in rows if not _fits(parsed[row]))
    content = path.read_text().split("\n")
    for line, text in zip(collected.lines, collected.texts, strict=True):
        assert line is not None
        assert content[line - 1] == text.split("\n")[0]


def _fits(cells: list[str]) -> bool:
    return len(cells) == 2 and (cells[0] in {"", "NULL"} or cells[0].isdigit())


def _number(cell: str) -> int | None:
    return int(cell) if cell.isdigit() else None
