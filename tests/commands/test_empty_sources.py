"""Sources without rows: they make a table, and replace rows only where that is asked for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet as pq
import pytest
from support.cli.command_line import CommandLine
from support.tables.iceberg_tables import (
    after,
    applied_then,
    files_below,
    ids_in,
    make_table,
    pyiceberg_table,
)

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("op", pa.string())])
EMPTY = SCHEMA.empty_table()
CHANGES = ["--changes-column", "op", "--changes-mode"]


def parquet(folder: Path, rows: pa.Table = EMPTY, name: str = "in.parquet") -> Path:
    pq.write_table(rows, folder / name)
    return folder / name


def rows(*numbers: int) -> pa.Table:
    return pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "name": ["n"] * len(numbers),
            "op": ["+I"] * len(numbers),
        }
    )


def write_arrow(path: Path) -> None:
    with pa.ipc.new_file(path, SCHEMA) as out:
        out.write(EMPTY)


WRITERS: dict[str, Callable[[Path], Any]] = {
    "parquet": lambda path: pq.write_table(EMPTY, path),
    "orc": lambda path: pyarrow.orc.write_table(EMPTY, path),
    "arrow": write_arrow,
    "csv": lambda path: path.write_text("id,name,op\n"),
}


@pytest.mark.parametrize("suffix", WRITERS)
def test_a_source_without_rows_makes_the_table(
    lake: CommandLine, warehouse: Path, tmp_path: Path, suffix: str
) -> None:
    source = tmp_path / f"in.{suffix}"
    WRITERS[suffix](source)

    document = lake.ok("ingest", "db.t", source, "--create")

    assert document["status"] == "done"
    assert len(document["snapshot_ids"]) == 1
    assert document["result"]["rows_written"] == document["result"]["data_files"] == 0
    said = ["the source has no rows, so the columns of its CSV files are text"]
    assert document["warnings"] == (said if suffix == "csv" else [])
    table = pyiceberg_table(warehouse)
    assert [field.name for field in table.schema().fields] == ["id", "name", "op"]
    assert str(table.schema().find_type("id")) == ("string" if suffix == "csv" else "long")
    assert lake.ok("scan", "db.t")["result"]["rows"] == 0
    assert lake.ok("ingest", "db.t", source, "--create")["status"] == "nothing-to-do"
    lake.ok("compact", "db.t")
    lake.ok("expire", "db.t")


@pytest.mark.parametrize(
    "options",
    [
        ["--overwrite"],
        ["--overwrite-where", "id = 1"],
        ["--replace-partitions"],
        ["--upsert", "--key", "id"],
        ["--upsert", "--key", "id", "--deletes", "equality"],
        [*CHANGES, "upsert", "--key", "id"],
        [*CHANGES, "retract", "--key", "id"],
        ["--partition-by", "id", "--sort-by", "name", "--property", "format-version=3"],
    ],
    ids=" ".join,
)
def test_each_kind_of_load_makes_the_table(
    lake: CommandLine, warehouse: Path, tmp_path: Path, options: list[str]
) -> None:
    source = parquet(tmp_path)

    document = lake.ok("ingest", "db.t", source, "--create", *options)

    assert (document["status"], document["warnings"]) == ("done", [])
    lake.ok(
        "ingest",
        "db.t",
        parquet(tmp_path, rows(1)),
        *options[: 0 if "--sort-by" in options else None],
    )
    assert [row["id"] for row in lake.ok("scan", "db.t")["result"]["preview"]] == [1]


def test_another_table_without_rows_makes_the_table(
    lake: CommandLine, warehouse: Path, tmp_path: Path
) -> None:
    lake.ok("ingest", "db.source", parquet(tmp_path), "--create")
    make_table(warehouse, "db.bare")

    assert lake.ok("ingest", "db.t", "--from-table", "db.source", "--create")["status"] == "done"
    assert lake.ok("ingest", "db.u", "--from-table", "db.bare", "--create")["status"] == "done"
    assert ids_in(warehouse) == ids_in(warehouse, "db.u") == []


def test_a_run_id_counts_for_a_run_without_rows(lake: CommandLine, tmp_path: Path) -> None:
    first = lake.ok("ingest", "db.t", parquet(tmp_path), "--create", "--run-id", "r")

    again = lake.ok("ingest", "db.t", parquet(tmp_path, rows(1)), "--create", "--run-id", "r")

    assert (first["status"], again["status"]) == ("done", "nothing-to-do")


@pytest.mark.parametrize(("name", "text"), [("x.csv", ""), ("x.json", ""), ("x.json", "\n\n")])
def test_a_source_without_columns_makes_no_table(
    lake: CommandLine, warehouse: Path, tmp_path: Path, name: str, text: str
) -> None:
    (tmp_path / name).write_text(text)
    pq.write_table(pa.table({}), tmp_path / "none.parquet")

    results = [lake("ingest", "db.t", tmp_path / one, "--create") for one in (name, "none.parquet")]

    assert [result.exit_code for result in results] == [7, 7]
    assert all("has no columns" in result.stderr for result in results), results
    assert not warehouse.exists() or files_below(warehouse) == set()


def test_a_dry_run_makes_nothing(lake: CommandLine, warehouse: Path, tmp_path: Path) -> None:
    document = lake.ok("ingest", "db.t", parquet(tmp_path), "--create", "--dry-run")

    assert (document["status"], document["plan"]["creates_table"]) == ("dry-run", True)
    assert not warehouse.exists()


def test_of_two_runs_that_create_a_table_one_reports_the_other(
    lake: CommandLine, warehouse: Path, tmp_path: Path
) -> None:
    source = parquet(tmp_path)
    other = parquet(tmp_path, rows(1), "other.parquet")

    def create() -> None:
        lake.ok("ingest", "db.t", other, "--create")

    # The folder of a catalog is made before its session is opened.
    lake.ok("ingest", "db.first", source, "--create")
    late = lake.with_faults(after(create))("ingest", "db.t", source, "--create")

    assert late.exit_code == 4, late
    assert ids_in(warehouse) == [1]
    left = [path for path in files_below(warehouse) if path.startswith("db/t/")]
    assert sorted(Path(path).suffix for path in left) == [".avro", ".avro", ".json", ".parquet"]
    assert lake.ok("ingest", "db.t", source, "--create")["status"] == "nothing-to-do"


def test_a_creation_whose_answer_is_lost_is_found(
    lake: CommandLine, warehouse: Path, tmp_path: Path
) -> None:
    source = parquet(tmp_path)
    lake.ok("ingest", "db.first", source, "--create")

    lost = lake.with_faults(applied_then(ConnectionError("gone")))
    document = lost.ok("ingest", "db.t", source, "--create")

    assert document["status"] == "done"
    assert ids_in(warehouse) == []


# Overwrites


@pytest.mark.parametrize(
    "options", [["--overwrite"], ["--overwrite-where", "id < 3"]], ids=" ".join
)
def test_an_overwrite_without_rows_keeps_the_old_ones_and_says_so(
    lake: CommandLine, warehouse: Path, tmp_path: Path, options: list[str]
) -> None:
    lake.ok("ingest", "db.t", parquet(tmp_path, rows(1, 2, 3)), "--create")
    before = files_below(warehouse)

    document = lake.ok("ingest", "db.t", parquet(tmp_path), *options)

    assert document["status"] == "nothing-to-do"
    assert document["warnings"] == [
        "the source has no rows: nothing was replaced (--allow-empty removes the old rows)"
    ]
    assert files_below(warehouse) == before


@pytest.mark.parametrize(
    ("options", "kept"),
    [(["--overwrite"], []), (["--overwrite-where", "id < 3"], [3, 4])],
    ids=["all", "some"],
)
@pytest.mark.parametrize("engine", ["inline", "spark"])
def test_allow_empty_removes_them(
    warehouse: Path, tmp_path: Path, engine: str, options: list[str], kept: list[int]
) -> None:
    lake = CommandLine(warehouse, engine=engine)
    lake.ok("ingest", "db.t", parquet(tmp_path, rows(1, 2, 3)), "--create")
    lake.ok("ingest", "db.t", parquet(tmp_path, rows(4)))
    lake.ok("ingest", "db.t", parquet(tmp_path, rows(1)))
    asked = (*options, "--allow-empty", "--run-id", "r")

    document = lake.ok("ingest", "db.t", parquet(tmp_path), *asked)

    assert (document["status"], document["warnings"]) == ("done", [])
    assert ids_in(warehouse) == kept
    assert lake.ok("ingest", "db.t", tmp_path / "in.parquet", *asked)["status"] == "nothing-to-do"
    once_more = lake.ok("ingest", "db.t", tmp_path / "in.parquet", *options, "--allow-empty")
    assert once_more["status"] == "nothing-to-do"
    newest = pyiceberg_table(warehouse).current_snapshot()
    assert newest is not None
    assert newest.summary is not None
    assert newest.summary["total-records"] == str(len(kept))


@pytest.mark.parametrize(
    "options", [[], ["--replace-partitions"], ["--upsert", "--key", "id"]], ids=" ".join
)
def test_allow_empty_needs_an_overwrite(
    lake: CommandLine, tmp_path: Path, options: list[str]
) -> None:
    result = lake("ingest", "db.t", parquet(tmp_path), "--create", "--allow-empty", *options)

    assert result.exit_code == 2
    assert "--allow-empty needs --overwrite or --overwrite-where" in result.stderr


def test_a_location_provider_is_warned_of_by_the_load_that_sets_it(
    lake: CommandLine, tmp_path: Path
) -> None:
    named = ("--property", "write.location-provider.impl=com.example.Places")

    document = lake.ok("ingest", "db.t", parquet(tmp_path), "--create", *named)

    assert any("write.location-provider.impl" in text for text in document["warnings"])
