"""Write defaults: columns that a source lacks are filled, NULLs that it gives stay, whatever loads it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet as pq
import pytest
from support.cli.command_line import CommandLine
from support.tables.iceberg_tables import make_table, pyiceberg_table

FIELDS = [
    {"id": 2, "name": "name", "type": "string", "required": False},
    {"id": 3, "name": "d", "type": "int", "initial-default": 5, "write-default": 7},
    {
        "id": 4,
        "name": "p",
        "type": {
            "type": "struct",
            "fields": [
                {"id": 5, "name": "x", "type": "int", "required": False},
                {"id": 6, "name": "y", "type": "double", "required": True, "write-default": 1.5},
            ],
        },
    },
]
UPSERT = ("--upsert", "--missing", "default")
OLD = {"id": 0, "name": "n", "d": 5, "p": None}


def table_with(
    warehouse: Path, fields: list[dict[str, Any]] = FIELDS, **changed: object
) -> Callable[[], list[dict[str, Any]]]:
    """Make a table of version 3 with one row from before most of its columns; return what reads it."""
    table = make_table(warehouse)
    table.append(pa.table({"id": pa.array([0], pa.int64()), "name": ["n"]}))
    path = Path(table.metadata_location.removeprefix("file://"))
    metadata = json.loads(path.read_text()) | {"format-version": 3, "next-row-id": 1}
    metadata["last-column-id"] = 20
    fields = [{"required": False, **field} for field in fields]
    metadata["schemas"][0]["fields"][1:] = fields
    path.write_text(json.dumps(metadata | changed))

    def read() -> list[dict[str, Any]]:
        target = warehouse.parent / "read.parquet"
        target.unlink(missing_ok=True)
        CommandLine(warehouse).ok("scan", "db.t", "--output", target)
        rows: list[dict[str, Any]] = pq.read_table(target).to_pylist()
        return sorted(rows, key=lambda row: (row["id"] is None, row["id"]))

    return read


def filled(number: int, **given: object) -> dict[str, Any]:
    return {"id": number, "name": None, "d": 7, "p": None} | given


def parquet(folder: Path, rows: pa.Table, name: str = "in.parquet") -> Path:
    pq.write_table(rows, folder / name)
    return folder / name


def ids(*numbers: int) -> pa.Table:
    return pa.table({"id": pa.array(numbers, pa.int64())})


def lines(folder: Path, *rows: dict[str, Any] | str) -> Path:
    path = folder / "in.json"
    path.write_text(
        "".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows)
    )
    return path


def write_orc(path: Path, rows: pa.Table) -> None:
    pyarrow.orc.write_table(rows, path)


def write_arrow(path: Path, rows: pa.Table) -> None:
    with pa.ipc.new_file(path, rows.schema) as out:
        out.write(rows)


def write_csv(path: Path, rows: pa.Table) -> None:
    path.write_text("id\n" + "".join(f"{number}\n" for number in rows["id"].to_pylist()))


def write_json(path: Path, rows: pa.Table) -> None:
    lines(path.parent, *rows.to_pylist()).rename(path)


WRITERS: dict[str, Callable[[Path, pa.Table], Any]] = {
    "parquet": lambda path, rows: pq.write_table(rows, path),
    "orc": write_orc,
    "arrow": write_arrow,
    "csv": write_csv,
    "json": write_json,
}


@pytest.mark.parametrize("suffix", WRITERS)
def test_a_column_that_a_file_lacks_is_filled(
    lake: CommandLine, warehouse: Path, tmp_path: Path, suffix: str
) -> None:
    read = table_with(warehouse)
    source = tmp_path / f"in.{suffix}"
    WRITERS[suffix](source, ids(1, 2))

    lake.ok("ingest", "db.t", source)

    assert read() == [OLD, filled(1), filled(2)]


@pytest.mark.parametrize("mode", ["position", "copy-on-write"])
def test_a_partial_update_fills_new_rows_only(
    lake: CommandLine, warehouse: Path, tmp_path: Path, mode: str
) -> None:
    read = table_with(warehouse)
    merge = ("--upsert", "--key", "id", "--merge", "partial-update", "--deletes", mode)
    lake.ok("ingest", "db.t", parquet(tmp_path, ids(0, 1)), *merge)
    assert read() == [OLD, filled(1)]
    source = tmp_path / "nulls.csv"
    source.write_text("id,name,d\n0,,\n1,m,\n2,,\n")

    lake.ok("ingest", "db.t", source, *merge)
    assert read() == [OLD, filled(1, name="m"), filled(2)]

    lake.ok("ingest", "db.t", source, *merge, "--null-overwrites", "d")
    assert read() == [OLD | {"d": None}, filled(1, name="m", d=None), filled(2, d=None)]


def test_an_avro_file_and_another_table_are_filled_too(
    lake: CommandLine, warehouse: Path, tmp_path: Path
) -> None:
    read = table_with(warehouse)
    source = parquet(tmp_path, ids(1))
    avro = ("--create", "--property", "write.format.default=avro")
    lake.ok("ingest", "db.source", source, *avro)
    (written,) = (warehouse / "db" / "source" / "data").glob("*.avro")

    lake.ok("ingest", "db.t", "--from-table", "db.source")
    lake.ok("ingest", "db.t", written, "--overwrite-where", "id = 1")

    assert read() == [OLD, filled(1)]


@pytest.mark.parametrize("engine", ["inline", "spark"])
def test_files_of_one_load_are_distinguished_on_each_engine(
    warehouse: Path, tmp_path: Path, engine: str
) -> None:
    read = table_with(warehouse)
    given = pa.table({"id": pa.array([3, 4], pa.int64()), "d": pa.array([None, 8], pa.int32())})
    sources = parquet(tmp_path, ids(1, 2)), parquet(tmp_path, given, "given.parquet")

    CommandLine(warehouse, engine=engine).ok("ingest", "db.t", *sources, "--union-columns")

    assert read() == [OLD, filled(1), filled(2), filled(3, d=None), filled(4, d=8)]


@pytest.mark.parametrize(
    ("options", "gone"),
    [
        (["--overwrite"], True),
        (["--overwrite-where", "id < 5"], True),
        (["--replace-partitions"], True),
        ([*UPSERT, "--key", "id"], False),
        ([*UPSERT, "--key", "id", "--deletes", "equality"], False),
        ([*UPSERT, "--key", "id", "--deletes", "copy-on-write"], False),
        (["--stage", "--run-id", "r"], False),
    ],
    ids=lambda value: " ".join(value[-4:]) if isinstance(value, list) else "",
)
def test_each_kind_of_load_fills(
    lake: CommandLine, warehouse: Path, tmp_path: Path, options: list[str], gone: bool
) -> None:
    read = table_with(warehouse)

    lake.ok("ingest", "db.t", parquet(tmp_path, ids(1, 2)), *options)
    if "--stage" in options:
        lake.ok("ingest", "db.t", tmp_path / "in.parquet", "--run-id", "r")

    assert read() == [*([] if gone else [OLD]), filled(1), filled(2)]


def test_an_upsert_replaces_a_row_by_one_with_defaults(
    lake: CommandLine, warehouse: Path, tmp_path: Path
) -> None:
    read = table_with(warehouse)
    lake.ok("ingest", "db.t", lines(tmp_path, {"id": 0, "d": 1, "name": "x"}), "--overwrite")

    lake.ok("ingest", "db.t", parquet(tmp_path, ids(0)), *UPSERT, "--key", "id")

    assert read() == [filled(0)]


@pytest.mark.parametrize("mode", ["upsert", "retract"])
def test_rows_of_a_change_log_are_filled(
    lake: CommandLine, warehouse: Path, tmp_path: Path, mode: str
) -> None:
    read = table_with(warehouse)
    log = lines(
        tmp_path,
        {"id": 1, "op": "+I"},
        {"id": 2, "op": "+I", "d": None},
        {"id": 2, "op": "-U", "d": None},
        {"id": 2, "op": "+U", "name": "new"},
        {"id": 0, "op": "-D"},
    )

    marks = ("--changes-column", "op", "--changes-mode", mode, "--key", "id")
    lake.ok("ingest", "db.t", log, *marks, "--missing", "default")

    assert read() == [filled(1), filled(2, name="new")]


def test_a_line_of_json_lacks_a_key_or_gives_null(
    lake: CommandLine, warehouse: Path, tmp_path: Path
) -> None:
    read = table_with(warehouse)
    source = lines(
        tmp_path,
        {"id": 1},
        {"id": 2, "d": None},
        {"id": 3, "d": 9, "p": {"x": 1}},
        {"id": 4, "p": {"x": None, "y": 2.5}},
        r'{"id": 5, "\u0064": 3, "p": {"\u0079": 4.5}}',
        {"id": 6, "name": '"d": "y":'},
    )

    lake.ok("ingest", "db.t", source)

    assert read() == [
        OLD,
        filled(1),
        filled(2, d=None),
        filled(3, d=9, p={"x": 1, "y": 1.5}),
        filled(4, p={"x": None, "y": 2.5}),
        filled(5, d=3, p={"x": None, "y": 4.5}),
        filled(6, name='"d": "y":'),
    ]


def test_lines_of_json_that_all_lack_a_key_are_filled(
    lake: CommandLine, warehouse: Path, tmp_path: Path
) -> None:
    read = table_with(warehouse)

    lake.ok("ingest", "db.t", lines(tmp_path, {"id": 1}, {"id": 2, "p": {"x": 3}}))

    assert read() == [OLD, filled(1), filled(2, p={"x": 3, "y": 1.5})]


def test_null_in_a_required_field_of_json_is_refused_all_the_same(
    lake: CommandLine, warehouse: Path, tmp_path: Path
) -> None:
    table_with(warehouse)

    result = lake("ingest", "db.t", lines(tmp_path, {"id": 1, "p": {"y": None}}))

    assert result.exit_code == 7
    assert "NULL in the required column p.y" in result.stderr


def test_an_empty_cell_of_csv_is_a_null_that_the_source_gives(
    lake: CommandLine, warehouse: Path, tmp_path: Path
) -> None:
    read = table_with(warehouse)
    source = tmp_path / "in.csv"
    source.write_text('id,d,p\n1,,\n2,3,"{""x"": 4}"\n')

    lake.ok("ingest", "db.t", source)

    assert read() == [OLD, filled(1, d=None), filled(2, d=3, p={"x": 4, "y": 1.5})]


def test_a_required_column_with_a_default_may_be_lacking(
    lake: CommandLine, warehouse: Path, tmp_path: Path
) -> None:
    field = {"id": 3, "name": "d", "type": "int", "required": True}
    defaults = {"initial-default": 5, "write-default": 7}
    read = table_with(warehouse, [FIELDS[0], {**field, **defaults}])

    lake.ok("ingest", "db.t", parquet(tmp_path, ids(1)))

    assert [row["d"] for row in read()] == [5, 7]
    table_with(warehouse.parent / "other", [FIELDS[0], {**field, "initial-default": 5}])
    other = CommandLine(warehouse.parent / "other")
    result = other("ingest", "db.t", tmp_path / "in.parquet")
    assert result.exit_code == 7
    assert "lacks the required column d" in result.stderr


@pytest.mark.parametrize(
    "options",
    [
        ["--upsert"],
        ["--upsert", "--deletes", "equality"],
        ["--changes-column", "op", "--changes-mode", "upsert"],
        ["--changes-column", "op", "--changes-mode", "retract"],
    ],
    ids=" ".join,
)
def test_a_key_is_not_filled(
    lake: CommandLine, warehouse: Path, tmp_path: Path, options: list[str]
) -> None:
    """Every row that lacks the key would have the same one: all but one would be lost."""
    read = table_with(warehouse)
    rows = ids(1, 2)
    if "op" in options:
        rows = rows.append_column("op", pa.array(["+I", "+I"]))
    source = parquet(tmp_path, rows)

    command = ("ingest", "db.t", source, *options, "--missing", "default", "--key", "d")
    result = lake(*command)
    document = lake.ok(*command, "--max-rejects", "99", "--rejects", tmp_path / "bad.json")

    assert result.exit_code == 7
    assert "has NULL in the key column d" in result.stderr
    assert document["status"] == "nothing-to-do"
    assert document["result"]["rows_rejected"] == 2
    assert read() == [OLD]


def test_the_dry_run_shows_what_is_filled(
    lake: CommandLine, warehouse: Path, tmp_path: Path
) -> None:
    table_with(warehouse)
    given = pa.array([{"x": 1}], pa.struct([("x", pa.int32())]))
    source = parquet(tmp_path, ids(1).append_column("p", given))

    document = lake.ok("ingest", "db.t", source, "--dry-run")

    assert document["plan"]["write_defaults"] == [
        {"name": "d", "value": 7},
        {"name": "p.y", "value": 1.5},
    ]
    assert "write default" in lake("ingest", "db.t", source, "--dry-run").stdout
    whole = lines(tmp_path, {"id": 1, "d": 2, "p": {"x": 1, "y": 2.0}})
    assert lake.ok("ingest", "db.t", whole, "--dry-run")["plan"]["write_defaults"] == []


def test_new_columns_have_no_default_and_the_others_keep_theirs(
    lake: CommandLine, warehouse: Path, tmp_path: Path
) -> None:
    read = table_with(warehouse)
    wider = ids(1).append_column("more", pa.array(["m"]))

    lake.ok("ingest", "db.t", parquet(tmp_path, wider), "--evolve")
    lake.ok("ingest", "db.t", parquet(tmp_path, ids(2)))

    assert read() == [
        OLD | {"more": None},
        filled(1, more="m"),
        filled(2, more=None),
    ]
    schema = pyiceberg_table(warehouse).schema()
    assert schema.find_field("d").write_default == 7
    assert schema.find_field("d").initial_default == 5
    assert schema.find_field("p.y").write_default == 1.5
    assert schema.find_field("more").write_default is None


def test_filled_values_decide_partition_and_order(
    lake: CommandLine, warehouse: Path, tmp_path: Path
) -> None:
    by_d = {"name": "d", "transform": "identity", "source-id": 3, "field-id": 1000}
    downwards = {"direction": "desc", "null-order": "nulls-last"}
    ordered = {"transform": "identity", "source-id": 3, **downwards}
    changed = {
        "partition-specs": [{"spec-id": 0, "fields": []}, {"spec-id": 1, "fields": [by_d]}],
        "default-spec-id": 1,
        "last-partition-id": 1000,
        "sort-orders": [{"order-id": 1, "fields": [ordered]}],
        "default-sort-order-id": 1,
    }
    read = table_with(warehouse, **changed)
    given = pa.table({"id": pa.array([1, 2], pa.int64()), "d": pa.array([6, 8], pa.int32())})
    sources = parquet(tmp_path, given), parquet(tmp_path, ids(3), "lacking.parquet")

    lake.ok("ingest", "db.t", *sources, "--union-columns", "--distribution", "range")

    assert [row["d"] for row in read()] == [5, 6, 8, 7]
    folders = {path.parent.name for path in warehouse.rglob("*.parquet")}
    assert {"d=6", "d=7", "d=8"} <= folders


@pytest.mark.parametrize(("kind", "value"), [("int", "many"), ("int", 2**40), ("string", 7)])
def test_a_default_that_its_type_cannot_hold_is_reported(
    lake: CommandLine, warehouse: Path, tmp_path: Path, kind: str, value: object
) -> None:
    field = {"id": 3, "name": "d", "type": kind, "write-default": value}
    table_with(warehouse, [FIELDS[0], field])

    result = lake("ingest", "db.t", parquet(tmp_path, ids(1)))

    assert result.exit_code == 7, result
    assert "default of column d" in result.stderr


def test_a_default_keeps_its_value_when_a_float_becomes_a_double(
    lake: CommandLine, warehouse: Path
) -> None:
    fields = [
        {"id": 3, "name": "f", "type": "float", "initial-default": 0.1, "write-default": 0.3},
        {"id": 4, "name": "i", "type": "int", "initial-default": 5},
    ]
    read = table_with(warehouse, fields)
    before = read()

    lake.ok("alter", "db.t", "--widen", "f=double", "--widen", "i=long")

    # As in Iceberg Java: the value that a float of 32 bits has.
    assert read() == before == [{"id": 0, "f": 0.10000000149011612, "i": 5}]
    lake.load("id\n1\n")
    assert read()[1]["f"] == 0.30000001192092896
    (found,) = (item for item in pyiceberg_table(warehouse).schema().fields if item.name == "f")
    assert found.initial_default == before[0]["f"]
