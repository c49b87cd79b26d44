"""Where `lake scan` puts rows: every shape and format, on both engines, whole or not at all."""

from __future__ import annotations

import csv
import gzip
import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.cli.command_line import CommandLine
from support.tables.built_once import BuiltOnce
from support.tables.delete_files import commit_equality_delete, commit_position_delete
from support.tables.iceberg_tables import (
    files_below,
    make_table,
    pyiceberg_table,
)
from world.power import Disk

FILES, ROWS = 6, 50


def _build(folder: Path) -> None:
    made = make_table(folder / "warehouse")
    for number in range(FILES):
        ids = range(number * ROWS, (number + 1) * ROWS)
        made.append(pa.table({"id": pa.array(ids, pa.int64()), "name": [f"n{id_}" for id_ in ids]}))


@pytest.fixture
def warehouse(built_once: BuiltOnce) -> Path:
    """The folder of a catalog with the table db.t: six files of fifty rows, ids 0 to 299."""
    return built_once.folder("table", _build) / "warehouse"


@pytest.fixture
def table(warehouse: Path) -> Path:
    """The warehouse, for a test that uses no other fixture of it."""
    return warehouse


def data_files(warehouse: Path) -> list[Path]:
    return sorted(warehouse.rglob("data/**/*.parquet"))


def spoil(path: Path) -> None:
    """Break a data file's pages; its footer stays."""
    data = bytearray(path.read_bytes())
    data[10:60] = bytes(50)
    path.write_bytes(data)


@pytest.mark.spark
def test_one_file_holds_the_rows_in_one_order_on_both_engines(table: Path, tmp_path: Path) -> None:
    found = {}
    for engine in ("inline", "spark"):
        output = tmp_path / f"{engine}.csv"
        lake = CommandLine(table, engine=engine)
        document = lake.ok("scan", "db.t", "--output", output, "--split-open-cost", "128MB")
        assert document["result"] == {
            "rows": FILES * ROWS,
            "bytes_written": output.stat().st_size,
            "files": 1,
        }
        assert document["plan"]["splits"] == FILES
        found[engine] = output.read_text()

    assert found["inline"] == found["spark"]
    ids = [int(row["id"]) for row in csv.DictReader(found["inline"].splitlines())]
    assert sorted(ids) == list(range(FILES * ROWS))


@pytest.mark.spark
@pytest.mark.parametrize("name", ["rows.parquet", "rows.csv", "rows.json", "rows.arrow"])
def test_uuids_are_written_to_one_file_on_spark(warehouse: Path, tmp_path: Path, name: str) -> None:
    value = "00000000-0000-0000-0000-0000000000aa"
    inline, spark = (CommandLine(warehouse, engine=engine) for engine in ("inline", "spark"))
    inline.ok("create", "db.ids", "id long", "u uuid", "s struct<u: uuid>")
    nested = f'"{{""u"": ""{value}""}}"'
    inline.load(f"id,u,s\n1,{value},{nested}\n2,,\n", table="db.ids")

    spark.ok("scan", "db.ids", "--output", tmp_path / name)

    inline.ok("create", "db.copy", "--from", "db.ids")
    inline.ok("ingest", "db.copy", tmp_path / name)
    assert inline.scanned(table="db.copy") == inline.scanned(table="db.ids")
    assert [row["u"] for row in inline.scanned(table="db.ids")] == [value, None]
    changes = inline("scan", "db.ids", "--changes", "--output", "-")
    assert spark("scan", "db.ids", "--changes", "--output", "-").stdout == changes.stdout


@pytest.mark.parametrize("name", ["rows.parquet", "rows.arrow"])
def test_uuids_inside_other_values_stay_uuids(
    lake: CommandLine, warehouse: Path, tmp_path: Path, name: str
) -> None:
    value = "00000000-0000-0000-0000-0000000000aa"
    columns = "s struct<u: uuid>, l list<uuid>, m map<uuid, struct<u: list<uuid>>>"
    required = "r struct<u: uuid not null, l: list<uuid not null>>"
    lake.ok("create", "db.ids", "id long", columns, required)
    row = {"id": 1, "s": {"u": value}, "l": [value, None], "m": {value: {"u": [value]}}}
    row["r"] = {"u": value, "l": [value]}
    rows = [row, {"id": 2}, {"id": 3, "s": {}, "l": [], "m": {value: None}}]
    source = tmp_path / "rows.json"
    source.write_text("".join(f"{json.dumps(item)}\n" for item in rows))
    lake.ok("ingest", "db.ids", source)

    lake.ok("scan", "db.ids", "--output", tmp_path / name)

    lake.ok("ingest", "db.copy", tmp_path / name, "--create")
    made, copy = (pyiceberg_table(warehouse, name) for name in ("db.ids", "db.copy"))
    wanted = str(made.schema().as_struct()).replace("required", "optional")
    assert str(copy.schema().as_struct()) == wanted
    assert lake.scanned(table="db.copy") == lake.scanned(table="db.ids")


@pytest.mark.parametrize("format_name", ["parquet", "csv", "json", "arrow"])
def test_a_folder_holds_a_file_for_each_split(
    table: Path, tmp_path: Path, lake: CommandLine, format_name: str
) -> None:
    output = tmp_path / "rows"

    document = lake.ok(
        "scan", "db.t", "--output", output, "--output-format", format_name,
        "--split-open-cost", "64MB", "--where", "id >= 60",
    )  # fmt: skip

    names = sorted(path.name for path in output.iterdir())
    assert names == [f"part-0000{number}.{format_name}" for number in range(3)]
    assert document["result"]["files"] == 3
    assert document["result"]["rows"] == FILES * ROWS - 60
    assert document["result"]["bytes_written"] == sum(p.stat().st_size for p in output.iterdir())
    lake.ok("ingest", "db.copy", output, "--create")
    copy = pyiceberg_table(table, "db.copy").scan().to_arrow()
    assert sorted(copy["id"].to_pylist()) == list(range(60, FILES * ROWS))


@pytest.mark.parametrize(
    "extra", [["--where", "id < 0"], ["--limit", "0"], ["--where", "id = -1 or name = 'x'"]]
)
@pytest.mark.parametrize("name", ["rows", "rows.parquet"])
def test_an_output_without_rows_has_the_columns(
    table: Path, tmp_path: Path, lake: CommandLine, name: str, extra: list[str]
) -> None:
    document = lake.ok("scan", "db.t", "--output", tmp_path / name, *extra)

    assert document["result"]["rows"] == 0
    assert document["result"]["files"] == 1
    assert document["result"]["bytes_written"] > 0
    assert pq.read_table(tmp_path / name).schema.names == ["id", "name"]


def test_nothing_new_is_nothing_to_do_and_an_empty_file(
    table: Path, tmp_path: Path, lake: CommandLine
) -> None:
    head = pyiceberg_table(table).metadata.current_snapshot_id

    document = lake.ok("scan", "db.t", "--from-snapshot", head, "--output", tmp_path / "new.csv")

    assert document["status"] == "nothing-to-do"
    assert document["plan"]["snapshots"] == 0
    assert (tmp_path / "new.csv").read_text() == '"id","name"\n'


def test_a_limit_is_exact_over_all_files(table: Path, tmp_path: Path, lake: CommandLine) -> None:
    for name in ("some", "some.json"):
        document = lake.ok("scan", "db.t", "--limit", ROWS + 7, "--output", tmp_path / name)
        assert document["result"]["rows"] == ROWS + 7
    assert len((tmp_path / "some.json").read_text().splitlines()) == ROWS + 7
    assert pq.read_table(tmp_path / "some").num_rows == ROWS + 7
    found = lake("scan", "db.t", "--limit", 3, "--where", "id >= 250", "--output", "-")
    assert len(found.stdout.splitlines()) == 4


def test_a_preview_reads_no_more_than_it_shows(table: Path, lake: CommandLine) -> None:
    for path in data_files(table):
        spoil(path)
    assert lake("scan", "db.t").exit_code == 7

    table_ = pyiceberg_table(table)
    table_.append(pa.table({"id": pa.array(range(100), pa.int64()), "name": ["x"] * 100}))
    found = lake.ok("scan", "db.t", "--split-open-cost", "128MB")

    assert len(found["result"]["preview"]) == found["result"]["rows"] == 20
    assert found["plan"]["records"] == FILES * ROWS + 100


def test_a_preview_is_shown_as_rows_and_a_pipe_gets_only_them(
    table: Path, lake: CommandLine
) -> None:
    result = lake("scan", "db.t", "--limit", "2", "--select", "name,id")

    assert result.exit_code == 0
    header, *rows = [line.split("\t") for line in result.stdout.splitlines()]
    assert header == ["name", "id"]
    assert len(rows) == 2


def test_columns_come_in_the_order_in_which_they_are_named(
    table: Path, tmp_path: Path, lake: CommandLine
) -> None:
    lake.ok("scan", "db.t", "--select", "name,id", "--output", tmp_path / "rows.parquet")

    found = pq.read_table(tmp_path / "rows.parquet")
    assert found.column_names == ["name", "id"]
    assert all(f"n{row['id']}" == row["name"] for row in found.to_pylist())


@pytest.mark.parametrize("name", ["out/rows.json", "out/rows", "out/rows.parquet"])
def test_a_broken_data_file_leaves_nothing_behind_on_both_engines(
    table: Path, tmp_path: Path, lake_on: CommandLine, name: str
) -> None:
    victim = data_files(table)[3]
    spoil(victim)
    before = files_below(table)
    (tmp_path / "out").mkdir()

    result = lake_on(
        "--json", "scan", "db.t", "--output", tmp_path / name, "--split-open-cost", "128MB"
    )

    assert result.exit_code == 7
    assert result.json()["error"]["kind"] == "corrupt"
    assert victim.name in result.json()["error"]["message"]
    assert list((tmp_path / "out").iterdir()) == []
    assert files_below(table) == before


@pytest.mark.parametrize("damage", ["cut", "changed"])
def test_a_broken_manifest_is_named_before_anything_is_written(
    table: Path, tmp_path: Path, lake: CommandLine, damage: str
) -> None:
    victim = sorted(table.rglob("metadata/*-m0.avro"))[0]
    data = victim.read_bytes()
    victim.write_bytes(data[:-20] if damage == "cut" else data[:-40] + bytes(40))

    (tmp_path / "out").mkdir()
    result = lake("--json", "scan", "db.t", "--output", tmp_path / "out" / "rows.csv")

    assert result.exit_code == 7
    assert victim.name in result.json()["error"]["message"]
    assert list((tmp_path / "out").iterdir()) == []


def test_a_file_with_other_rows_than_the_metadata_says_is_refused(
    table: Path, tmp_path: Path, lake: CommandLine
) -> None:
    first, second = data_files(table)[:2]
    found = pq.read_table(first)
    pq.write_table(found.slice(1), second)

    result = lake("--json", "scan", "db.t", "--output", tmp_path / "rows.csv")

    assert result.exit_code == 7
    assert "49 rows" in result.json()["error"]["message"]
    assert not (tmp_path / "rows.csv").exists()


@pytest.mark.parametrize("kind", ["position", "equality"])
def test_deleted_rows_are_left_out_but_of_what_was_appended(
    table: Path, tmp_path: Path, lake: CommandLine, kind: str
) -> None:
    handle = pyiceberg_table(table)
    before = handle.metadata.current_snapshot_id
    if kind == "position":
        path = handle.inspect.data_files()["file_path"][0].as_py()
        commit_position_delete(table, path, 0)
    else:
        commit_equality_delete(table, [1])

    assert lake.ok("scan", "db.t", "--plan")["plan"]["delete_files"] == 1
    for extra in (["--output", tmp_path / "x.csv"], ["--output", tmp_path / "folder"]):
        assert lake.ok("scan", "db.t", *extra)["result"]["rows"] == FILES * ROWS - 1
    # What was appended was appended, whatever became of it.
    assert lake.ok("scan", "db.t", "--snapshot", before)["result"]["rows"] == 20
    found = lake.ok("scan", "db.t", "--to-snapshot", "main")
    assert found["plan"]["delete_files"] == 0
    assert found["plan"]["records"] == FILES * ROWS
    assert any("delete" in text for text in found["warnings"])


def test_a_cluster_cannot_write_here_so_this_process_reads(table: Path, tmp_path: Path) -> None:
    lake = CommandLine(table, engine="auto")

    found = lake.ok(
        "--master", "spark://nowhere.invalid:7077", "scan", "db.t", "--output", tmp_path / "rows"
    )

    assert found["result"]["rows"] == FILES * ROWS
    assert any("rows are read in this process" in text for text in found["warnings"])


def test_text_may_be_compressed(table: Path, tmp_path: Path, lake: CommandLine) -> None:
    output = tmp_path / "rows.json.gz"

    lake.ok("scan", "db.t", "--output", output)

    lines = gzip.decompress(output.read_bytes()).splitlines()
    assert sorted(json.loads(line)["id"] for line in lines) == list(range(FILES * ROWS))
    lake.ok("ingest", "db.copy", output, "--create")


def test_a_replaced_folder_keeps_nothing_of_the_old(
    table: Path, tmp_path: Path, lake: CommandLine
) -> None:
    output = tmp_path / "rows"
    lake.ok("scan", "db.t", "--output", output, "--split-open-cost", "128MB")
    assert len(list(output.iterdir())) == FILES

    assert lake("scan", "db.t", "--output", output).exit_code == 2
    lake.ok("scan", "db.t", "--output", output, "--replace")
    assert len(list(output.iterdir())) == 1

    (output / "mine.txt").touch()
    assert lake("scan", "db.t", "--output", output, "--replace").exit_code == 3
    assert (output / "mine.txt").exists()


def test_the_tables_own_folder_takes_no_output(table: Path, lake: CommandLine) -> None:
    before = files_below(table)

    result = lake("scan", "db.t", "--output", table / "db" / "t" / "data" / "more.parquet")

    assert result.exit_code == 3
    assert files_below(table) == before


@pytest.mark.slow
def test_standard_output_is_rows_only_and_may_be_left_early(table: Path) -> None:
    lake = CommandLine(table)
    for format_name in ("csv", "json"):
        whole = lake.process("scan", "db.t", "--output", "-", "--output-format", format_name)
        assert whole.exit_code == 0
        assert len(whole.stdout.splitlines()) == FILES * ROWS + (format_name == "csv")
        (summary,) = whole.stderr.splitlines()
        assert f"{FILES * ROWS} rows" in summary

    command = [sys.executable, "-m", "lake.cli", *lake.arguments("scan", "db.t", "--output", "-")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert b"Traceback" not in process.stderr.read()
    assert process.returncode == 0


@pytest.mark.slow
def test_binary_formats_go_to_standard_output_too(table: Path, tmp_path: Path) -> None:
    for format_name in ("parquet", "arrow"):
        command = [
            sys.executable, "-m", "lake.cli", "--warehouse", str(table),
            "scan", "db.t", "--output", "-", "--output-format", format_name,
        ]  # fmt: skip
        data = subprocess.run(command, capture_output=True, check=True, cwd=tmp_path).stdout
        found = (
            pq.read_table(pa.BufferReader(data))
            if format_name == "parquet"
            else pa.ipc.open_stream(data).read_all()
        )
        assert sorted(found["id"].to_pylist()) == list(range(FILES * ROWS))


@pytest.mark.parametrize(
    "options",
    [
        ["--output", "rows.xyz"],
        ["--output", "s3://bucket/rows.csv"],
        ["--output", "file:/rows.csv"],
        ["--output", "rows.parquet.gz"],
        ["--output", "-", "--replace"],
        ["--replace"],
        ["--output", "rows.csv", "--output-format", "xml"],
    ],
    ids=" ".join,
)
def test_outputs_that_make_no_sense_are_usage_errors(
    table: Path, lake: CommandLine, options: list[str]
) -> None:
    assert lake("scan", "db.t", *options).exit_code == 2
    assert os.listdir() == ["home"]


def test_csv_has_the_words_that_spark_reads_for_nan_and_infinity(
    lake: CommandLine, tmp_path: Path
) -> None:
    numbers = [1.0, math.nan, math.inf, -math.inf, None, -0.0]
    source = tmp_path / "source.parquet"
    columns = {
        "id": range(6),
        "d": pa.array(numbers, pa.float64()),
        "f": pa.array(numbers, pa.float32()),
        "s": ["nan", "inf", 'a"b', "", None, "x"],
    }
    pq.write_table(pa.table(columns), source)
    lake.ok("ingest", "db.other", source, "--create")

    lake.ok("scan", "db.other", "--output", tmp_path / "rows.csv")

    lines = (tmp_path / "rows.csv").read_text().splitlines()
    assert lines[2] == '1,"NaN","NaN","inf"'
    assert lines[3] == '2,"Infinity","Infinity","a""b"'
    assert lines[4] == '3,"-Infinity","-Infinity",""'
    lake.ok("ingest", "db.back", tmp_path / "rows.csv", "--create")
    for name in ("other", "back"):
        lake.ok("scan", f"db.{name}", "--output", tmp_path / f"{name}.json")
    rows = (tmp_path / "other.json").read_text()
    assert '"NaN"' in rows
    assert (tmp_path / "back.json").read_text() == rows


@pytest.mark.parametrize("word", ["inf", "Infinity", "INFINITY", "+inf"])
def test_any_word_for_infinity_is_loaded(lake: CommandLine, tmp_path: Path, word: str) -> None:
    source = tmp_path / "source.csv"
    source.write_text(f"id,d\n1,0.5\n2,{word}\n3,nan\n4,NaN\n")
    lake.ok("ingest", "db.other", source, "--create")

    found = lake.ok("scan", "db.other")["result"]["preview"]

    assert [row["d"] for row in found] == [0.5, "Infinity", "NaN", "NaN"]


def test_bytes_in_json_are_base64_and_are_loaded_again(lake: CommandLine, tmp_path: Path) -> None:
    source = tmp_path / "source.parquet"
    rows = pa.table({"id": [1], "b": pa.array([b"\x00\x00\xff"], pa.binary())})
    pq.write_table(rows, source)
    lake.ok("ingest", "db.other", source, "--create")

    assert lake.ok("scan", "db.other")["result"]["preview"] == [{"id": 1, "b": "AAD/"}]
    lake.ok("scan", "db.other", "--output", tmp_path / "rows.json")
    assert json.loads((tmp_path / "rows.json").read_text()) == {"id": 1, "b": "AAD/"}
    lake.ok("ingest", "db.other", tmp_path / "rows.json")
    assert [row["b"] for row in lake.ok("scan", "db.other")["result"]["preview"]] == [
        "AAD/",
        "AAD/",
    ]


@pytest.mark.parametrize("name", ["rows.csv", "rows.json.gz", "rows"])
@pytest.mark.parametrize("replaced", [False, True])
def test_an_output_survives_a_power_failure_after_the_command(
    table: Path, tmp_path: Path, name: str, *, replaced: bool
) -> None:
    folder, left = tmp_path / "out", tmp_path / "left"
    folder.mkdir()
    lake = CommandLine(table)
    if replaced:
        lake.ok("scan", "db.t", "--limit", 3, "--output", folder / name)
    disk = Disk(folder, trusted="never")
    with disk.watched():
        lake.ok("scan", "db.t", "--output", folder / name, "--replace")

    disk.copy(left)
    assert contents(left) == contents(folder)
    assert contents(left)


def test_rejected_rows_survive_a_power_failure_after_the_load(
    warehouse: Path, tmp_path: Path
) -> None:
    (tmp_path / "rows.csv").write_text("id\n1\nx\n")
    folder, left = tmp_path / "out", tmp_path / "left"
    folder.mkdir()
    lake = CommandLine(warehouse)
    (tmp_path / "first.csv").write_text("id\n1\n")
    lake.ok("ingest", "db.u", tmp_path / "first.csv", "--create")
    disk = Disk(folder, trusted="never")
    with disk.watched():
        lake.ok(
            "ingest",
            "db.u",
            tmp_path / "rows.csv",
            "--max-rejects",
            "99",
            "--rejects",
            folder / "bad.csv",
        )

    disk.copy(left)
    assert contents(left) == contents(folder)
    assert contents(left)


def contents(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in files_below(folder)}
