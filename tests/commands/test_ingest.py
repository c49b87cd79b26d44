"""`lake ingest`: the rows that were meant, once, or an error that says why and leaves nothing behind."""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from pyarrow import feather
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import (
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
)
from support.cli.command_line import CommandLine
from support.tables.delete_files import commit_deletes, equality_file, position_file, vectors
from support.tables.iceberg_tables import (
    SCHEMA,
    files_below,
    ids_in,
    make_table,
    open_session,
    pyiceberg_table,
)

ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "name": ["a", None, "c"]})
EVENTS = pa.table(
    {
        "id": pa.array([1, 2, 3, 4], pa.int64()),
        "day": ["mon", "mon", "tue", None],
        "amount": pa.array([1.5, None, -0.0, 2.25]),
    }
)
NESTED = pa.table({"id": [1], "tags": [[{"k": "a"}]]})
BY_DAY = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "day"))


def table_of(warehouse: Path, name: str = "db.t") -> Table:
    """Return the table as PyIceberg sees it."""
    return pyiceberg_table(warehouse, name)


def rows_of(warehouse: Path, name: str = "db.t") -> list[dict[str, Any]]:
    """Return the rows that PyIceberg reads, by id."""
    found = table_of(warehouse, name).scan().to_arrow().to_pylist()
    return sorted(found, key=lambda row: row["id"])


def write_parquet(path: Path, rows: pa.Table, **options: Any) -> Path:
    pq.write_table(rows, path, **options)
    return path


def write_csv(path: Path, rows: pa.Table) -> Path:
    pacsv.write_csv(rows, path)
    return path


def write_json(path: Path, rows: pa.Table) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows.to_pylist()))
    return path


def write_gzip(path: Path, rows: pa.Table) -> Path:
    plain = write_csv(path.with_suffix(""), rows)
    path.write_bytes(gzip.compress(plain.read_bytes()))
    plain.unlink()
    return path


def write_stream(path: Path, rows: pa.Table) -> Path:
    with pa.ipc.new_stream(path, rows.schema) as stream:
        stream.write_table(rows)
    return path


def write_feather(path: Path, rows: pa.Table) -> Path:
    feather.write_feather(rows, path, compression="zstd")
    return path


WRITERS: dict[str, Callable[[Path, pa.Table], Path]] = {
    "x.parquet": write_parquet,
    "x.pq": write_parquet,
    "x.csv": write_csv,
    "x.csv.gz": write_gzip,
    "x.json": write_json,
    "x.jsonl": write_json,
    "x.ndjson": write_json,
    "x.arrow": write_stream,
    "x.ipc": write_stream,
    "x.feather": write_feather,
}


@pytest.mark.parametrize("name", WRITERS)
def test_a_file_of_each_format_makes_a_table_and_is_read_back(
    lake: CommandLine, warehouse: Path, tmp_path: Path, name: str
) -> None:
    done = lake.ok("ingest", "db.t", WRITERS[name](tmp_path / name, ROWS), "--create")

    assert rows_of(warehouse) == ROWS.to_pylist()
    assert done["status"] == "done"
    assert done["result"] == {
        "rows_read": 3,
        "rows_written": 3,
        "rows_inserted": 3,
        "rows_updated": 0,
        "rows_rejected": 0,
        "data_files": 1,
        "delete_files": 0,
        "bytes_written": table_of(warehouse).inspect.files()["file_size_in_bytes"].to_pylist()[0],
    }
    snapshot = table_of(warehouse).current_snapshot()
    assert snapshot is not None
    assert done["snapshot_ids"] == [str(snapshot.snapshot_id)]
    assert snapshot.summary["lake.operation-id"] == done["operation_id"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["csv", "json", "arrow", "parquet"])
def test_standard_input_is_a_source(
    lake: CommandLine, warehouse: Path, tmp_path: Path, kind: str
) -> None:
    writer = {"csv": write_csv, "json": write_json, "arrow": write_stream, "parquet": write_parquet}
    data = writer[kind](tmp_path / "input", ROWS).read_bytes()

    result = lake.process("ingest", "db.t", "-", "--format", kind, "--create", stdin=data)

    assert result.exit_code == 0, result
    assert rows_of(warehouse) == ROWS.to_pylist()


def test_globs_folders_and_urls_are_resolved_and_hidden_files_left_out(
    lake: CommandLine, warehouse: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "in" / "deep"
    folder.mkdir(parents=True)
    for number in range(4):
        write_parquet(folder / f"part-{number}.parquet", pa.table({"id": [number]}))
    (folder / "_SUCCESS").touch()
    (folder / ".hidden.parquet").write_text("no parquet")
    (folder / "_temporary").mkdir()
    (folder / "_temporary" / "x.parquet").write_text("no parquet")

    by_folder = lake.ok("ingest", "db.t", tmp_path / "in", "--create")
    by_glob = lake.ok("ingest", "db.t", folder / "part-[01].parquet")
    by_url = lake.ok("ingest", "db.t", f"file://{folder}/part-2.parquet")

    assert [done["result"]["rows_read"] for done in (by_folder, by_glob, by_url)] == [4, 2, 1]
    assert [row["id"] for row in rows_of(warehouse)] == [0, 0, 1, 1, 2, 2, 3]


@pytest.mark.parametrize("spelling", ["same", "url", "glob", "link", "folder"])
def test_a_file_named_twice_in_any_spelling_is_refused(
    lake: CommandLine, warehouse: Path, tmp_path: Path, spelling: str
) -> None:
    make_table(warehouse)
    path = write_parquet(tmp_path / "x.parquet", ROWS)
    (tmp_path / "link.parquet").symlink_to(path)
    (tmp_path / "sub").mkdir()
    second = {
        "same": path,
        "url": f"file://{path}",
        "glob": tmp_path / "x.par*",
        "link": tmp_path / "link.parquet",
        "folder": f"{tmp_path}/sub/../x.parquet",
    }[spelling]

    result = lake("ingest", "db.t", path, second)

    assert result.exit_code == 7
    assert (
        "x.parquet is named twice" in result.stderr
        or "link.parquet is named twice" in result.stderr
    )
    assert rows_of(warehouse) == []


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["missing.parquet"], 7, "no such file"),
        (["missing*.parquet"], 7, "no file matches"),
        (["x.unknown"], 7, "x.unknown is not known"),
        (["x.orc"], 7, "x.orc cannot be read"),
        (["x.avro"], 7, "x.avro is cut short"),
        (["x.parquet", "--format", "xml"], 2, "is not one of"),
        (["x.csv"], 7, "x.csv, line 2: 2 columns expected, 1 found"),
        (["x.parquet", "--overwrite", "--replace-partitions"], 2, "contradict each other"),
        (["x.parquet", "--overwrite", "--overwrite-where", "id > 1"], 2, "contradict each other"),
        (["x.parquet", "--from-table", "db.t"], 2, "contradict each other"),
        ([], 2, "nothing to load"),
        (["x.parquet", "--partition-by", "id"], 2, "need --create"),
        (["x.parquet", "--distribution", "range"], 2, "needs a sort order or a partition spec"),
        (["x.parquet", "--distribution", "odd"], 2, "is not one of none, hash, range"),
        (["x.parquet", "--target-size", "big"], 2, "not a size"),
        (["x.parquet", "--branch", "other"], 7, "no branch named other"),
        (["x.parquet", "--overwrite-where", "nope > 1"], 7, "no column nope"),
        (["x.parquet", "--overwrite-where", "id >"], 7, "cannot read the filter"),
        (["x.parquet", "--overwrite-where", "id > 'x'"], 7, "cannot be compared"),
        (["x.parquet", "--upsert"], 2, "--upsert requires --key"),
        (["x.parquet", "--upsert", "--overwrite"], 2, "--overwrite"),
        (["x.parquet", "--key", "id"], 2, "--key"),
        (["x.parquet", "--deletes", "equality"], 2, "--deletes"),
        (["x.parquet", "--stage", "--create"], 2, "--stage and --create"),
        (["x.parquet", "--stage", "--overwrite"], 2, "--stage and --overwrite"),
        (["x.parquet", "--stage", "--upsert", "--key", "id"], 2, "--deletes position"),
        (["x.parquet", "--discard", "r"], 2, "--discard takes"),
        (["x.parquet", "--changes-column", "op"], 2, "go together"),
        (["x.parquet", "--max-rejects", "1"], 2, "needs --rejects"),
        (["-"], 2, "--format"),
    ],
)
def test_a_request_that_cannot_be_met_says_why_and_changes_nothing(
    lake: CommandLine,
    warehouse: Path,
    tmp_path: Path,
    arguments: list[str],
    code: int,
    said: str,
) -> None:
    make_table(warehouse)
    write_parquet(tmp_path / "x.parquet", ROWS)
    for name in ("x.unknown", "x.orc", "x.avro"):
        (tmp_path / name).write_bytes(b"x")
    (tmp_path / "x.csv").write_bytes(b"id,name\n1\n")
    before = files_below(warehouse)

    result = lake("--json", "ingest", "db.t", *arguments)

    document = result.json()
    assert (result.exit_code, document["status"]) == (code, "refused" if code == 3 else "failed")
    assert said in f"{document['error']['message']} {document['error']['hint']}"
    assert files_below(warehouse) == before


def test_a_table_that_is_not_there_is_named_with_the_option_that_makes_it(
    lake: CommandLine, warehouse: Path, tmp_path: Path
) -> None:
    result = lake("ingest", "db.t", write_parquet(tmp_path / "x.parquet", ROWS))

    assert result.exit_code == 7
    assert "db.t" in result.stderr
    assert "--create" in result.stderr
    assert not warehouse.exists()


# Creation


def test_a_dry_run_shows_the_plan_and_touches_nothing(
    lake: CommandLine, warehouse: Path, tmp_path: Path
) -> None:
    path = tmp_path / "x.csv"
    path.write_text("id,at,code\n1,2020-01-01 10:00:00,007\n2,2020-01-02,8\n")

    done = lake.ok(
        "ingest", "db.t", path, "--create", "--partition-by", "day(at), bucket(4, id)", "--dry-run"
    )

    assert not warehouse.exists()
    assert done["status"] == "dry-run"
    assert done["plan"] == {
        "mode": "append",
        "creates_table": True,
        "sources": [str(path)],
        "files": 1,
        "bytes": path.stat().st_size,
        "format": "csv",
        "delimiters": [","],
        "encodings": ["utf-8"],
        "schema": [
            {"name": "id", "type": "long", "required": False},
            {"name": "at", "type": "timestamp", "required": False},
            {"name": "code", "type": "string", "required": False},
        ],
        "new_columns": [],
        "type_notes": [],
        "filled_columns": [],
        "write_defaults": [],
        "partition_spec": ["day(at) as at_day", "bucket[4](id) as id_bucket"],
        "distribution": "hash",
        "engine": "inline",
        "removed_files": 0,
        "rewritten_files": 0,
        "sample_rows": [
            {"id": 1, "at": "2020-01-01T10:00:00.000000", "code": "007"},
            {"id": 2, "at": "2020-01-02T00:00:00.000000", "code": "8"},
        ],
    }


def test_csv_types_hold_for_the_whole_file_not_only_its_beginning(
    lake: CommandLine, warehouse: Path, tmp_path: Path
) -> None:
    # 200,000 rows are several blocks; the last row changes every column's type.
    lines = [f"{n},{n},{n},2020-01-01,\n" for n in range(400_000)]
    path = tmp_path / "x.csv"
    path.write_text(
        "id,whole,mixed,at,late\n" + "".join(lines) + "400000,1.5,x,2020-01-01 10:00:00,7\n"
    )

    lake.ok("ingest", "db.t", path, "--create")

    fields = {field.name: str(field.field_type) for field in table_of(warehouse).schema().fields}
    assert fields == {
        "id": "long",
        "whole": "double",
        "mixed": "string",
        "at": "timestamp",
        "late": "long",
    }
    assert table_of(warehouse).scan(row_filter="late == 7").to_arrow()["mixed"].to_pylist() == ["x"]


def test_create_makes_namespace_spec_order_and_properties_in_the_first_commit(
    lake: CommandLine, warehouse: Path, tmp_path: Path
) -> None:
    path = write_parquet(tmp_path / "x.parquet", EVENTS)

    lake.ok(
        *(
            "ingest",
            "deep.t",
            path,
            "--create",
            "--partition-by",
            "day, truncate(1, day), void(id)",
        ),
        *("--sort-by", "amount desc nulls last, id", "--property", "a.b=c", "--property", "d="),
    )

    table = table_of(warehouse, "deep.t")
    assert [(f.name, str(f.transform)) for f in table.spec().fields] == [
        ("day", "identity"),
        ("day_trunc", "truncate[1]"),
        ("id_null", "void"),
    ]
    assert [str(field) for field in table.sort_order().fields] == [
        "3 DESC NULLS LAST",
        "1 ASC NULLS FIRST",
    ]
    assert (table.properties["a.b"], table.properties["d"]) == ("c", "")
    assert table.metadata.format_version == 2
    assert len(table.metadata.snapshots) == 1
    assert rows_of(warehouse, "deep.t") == EVENTS.to_pylist()


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (["--partition-by", "day(nope)"], 7, "no column named nope"),
        (["--partition-by", "day(day)"], 2, "cannot partition day (string) by day"),
        (["--partition-by", "split(day)"], 2, "not a partition transform"),
        (["--partition-by", "bucket(0, id)"], 2, "not a partition transform"),
        (["--partition-by", "day,"], 2, "not a partition term"),
        (["--sort-by", "day sideways"], 2, "not a sort term"),
        (["--property", "oops"], 2, "--property"),
        (["--property", "format-version=9"], 2, "one of 1, 2, 3"),
        (["--property", "write.format.default=lance"], 2, "write.format.default is 'lance'"),
        (["--property", "write.delete.format.default=x"], 2, "one of parquet, orc, avro"),
        (["--branch", "b"], 2, "no branch b"),
    ],
)
def test_a_table_that_cannot_be_made_leaves_nothing(
    lake: CommandLine, warehouse: Path, tmp_path: Path, options: list[str], code: int, said: str
) -> None:
    path = write_parquet(tmp_path / "x.parquet", EVENTS)

    result = lake("ingest", "db.t", path, "--create", *options)

    assert (result.exit_code, said in result.stderr) == (code, True), result
    assert not warehouse.exists()


def test_a_failing_row_leaves_no_table_and_no_folder(
    lake: CommandLine, warehouse: Path, tmp_path: Path
) -> None:
    good = write_parquet(tmp_path / "a.parquet", pa.table({"id": list(range(1000))}))
    bad = write_parquet(tmp_path / "b.parquet", pa.table({"id": pa.array([2**63], pa.uint64())}))

    result = lake("ingest", "db.t", good, bad, "--create", "--partition-by", "bucket(4, id)")

    assert result.exit_code == 7
    assert "column id of" in result.stderr
    assert "row 1: '9223372036854775808' is not a valid long" in result.stderr
    assert not warehouse.exists() or list(warehouse.iterdir()) == []


def test_create_uses_an_existing_table_and_reports_what_it_ignores(
    lake: CommandLine, warehouse: Path, tmp_path: Path
) -> None:
    path = write_parquet(tmp_path / "x.parquet", EVENTS)
    options = ("--create", "--partition-by", "day")

    lake.ok("ingest", "db.t", path, *options)
    same = lake.ok("ingest", "db.t", path, *options)
    other = lake.ok("ingest", "db.t", path, "--create", "--partition-by", "id", "--property", "a=b")

    again = "the same files were loaded before"
    assert [text[: len(again)] for text in same["warnings"]] == [again]
    assert len(other["warnings"]) == 3
    assert len(rows_of(warehouse)) == 12
    assert len(table_of(warehouse).metadata.partition_specs) == 1


def test_format_version_1_can_be_asked_for(
    lake: CommandLine, warehouse: Path, tmp_path: Path
) -> None:
    path = write_parquet(tmp_path / "x.parquet", ROWS)

    lake.ok("ingest", "db.t", path, "--create", "--property", "format-version=1")
    lake.ok("ingest", "db.t", path)

    assert table_of(warehouse).metadata.format_version == 1
    assert len(rows_of(warehouse)) == 6


def test_a_table_of_version_3_is_made_and_appended_to(
    lake: CommandLine, warehouse: Path, tmp_path: Path
) -> None:
    path = write_parquet(tmp_path / "x.parquet", ROWS)

    lake.ok("ingest", "db.t", path, "--create", "--property", "format-version=3")
    lake.ok("ingest", "db.t", path)

    metadata = table_of(warehouse).metadata
    assert (metadata.format_version, metadata.next_row_id) == (3, 2 * ROWS.num_rows)
    assert len(rows_of(warehouse)) == 2 * ROWS.num_rows


def test_an_encrypted_table_is_not_written(
    lake: CommandLine, warehouse: Path, tmp_path: Path
) -> None:
    table = make_table(warehouse)
    with table.transaction() as change:
        change.set_properties({"encryption.key-id": "k"})

    result = lake("ingest", "db.t", write_parquet(tmp_path / "x.parquet", ROWS))

    assert result.exit_code == 3
    assert "is encrypted" in result.stderr


@pytest.mark.parametrize("version", ["2", "3"])
@pytest.mark.parametrize("kind", ["position", "equality"])
@pytest.mark.parametrize(
    ("options", "left"),
    [
        (["--overwrite"], [3]),
        (["--overwrite-where", "id >= 2 and id < 4"], [3, 4]),
        (["--replace-partitions"], [3]),
        ([], [2, 3, 4]),
    ],
)
def test_a_deleted_row_comes_back_by_no_mode(
    lake: CommandLine,
    warehouse: Path,
    tmp_path: Path,
    kind: str,
    options: list[str],
    left: list[int],
    version: str,
) -> None:
    for name, ids in (("a", [1, 2, 4]), ("b", [3])):
        pq.write_table(pa.table({"id": ids}), tmp_path / f"{name}.parquet")
    made = ("--create", "--property", f"format-version={version}")
    lake.ok("ingest", "db.t", tmp_path / "a.parquet", *made)
    table = open_session(warehouse).table("db.t")
    (path,) = table_of(warehouse).inspect.files()["file_path"].to_pylist()
    if kind == "equality":
        commit_deletes(table, equality_file(table, [{"id": 1}], ["id"]))
    elif version == "2":
        commit_deletes(table, position_file(table, [(path, 0)]))
    else:
        commit_deletes(table, *vectors(table, {path: [0]}))

    lake.ok("ingest", "db.t", tmp_path / "b.parquet", *options)

    found = lake.ok("scan", "db.t")["result"]["preview"]
    assert sorted(row["id"] for row in found) == left


# The schema check


def test_all_mismatches_are_reported_at_once_and_nothing_is_written(
    lake: CommandLine, warehouse: Path, tmp_path: Path
) -> None:
    make_table(
        warehouse,
        schema=Schema(
            NestedField(1, "id", LongType(), required=True),
            NestedField(2, "name", StringType(), required=False),
            NestedField(3, "Amount", IntegerType(), required=False),
            NestedField(4, "at", TimestampType(), required=False),
        ),
    )
    first = write_parquet(
        tmp_path / "a.parquet",
        pa.table({"name": [1], "amount": [1], "at": pa.array([0], pa.timestamp("us", "UTC"))}),
    )
    second = write_parquet(tmp_path / "b.parquet", pa.table({"id": [1], "Amount": [2**40]}))
    before = files_below(warehouse)

    result = lake("ingest", "db.t", first, second)

    assert result.exit_code == 7
    for said in (
        f"{first} lacks the required column id (long)",
        "has column name as long, the table as string",
        "has column amount (long), which the table lacks (did you mean Amount?)",
        "has column at as timestamptz, the table as timestamp",
        f"{second} has column Amount as long, the table as int",
    ):
        assert said in result.stderr
    assert files_below(warehouse) == before


def test_columns_that_could_not_be_read_back_or_named_are_refused(
    lake: CommandLine, tmp_path: Path
) -> None:
    path = tmp_path / "rows.json"
    path.write_text('{"a": {"c": 1}}\n')
    lake.ok("ingest", "db.t", path, "--create")
    deep = f'{{"d": {"[" * 60}1{"]" * 60}}}'
    for text, said in (('{"a.b": 1, "a": {"b": 1, "c": 2}}', "the name a.b"), (deep, "deeper")):
        path.write_text(f"{text}\n")
        for words in (("db.t", path, "--evolve"), ("db.new", path, "--create")):
            result = lake("--json", "ingest", *words)
            assert result.exit_code == 7
            assert said in result.json()["error"]["message"]
    assert lake("snapshots", "db.new").exit_code == 7


def test_a_secret_is_not_written_into_a_tables_metadata(lake: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("id\n1\n")
    secret = ("--property", "s3.secret-access-key=canary-4d1f")

    result = lake("--json", "ingest", "db.t", tmp_path / "rows.csv", "--create", *secret)

    assert (result.exit_code, result.json()["error"]["kind"]) == (3, "refused")
    assert "canary" not in result.stdout + result.stderr
    assert not lake.warehouse.exists()


def test_a_time_beyond_the_range_of_python_is_reported(lake: CommandLine, tmp_path: Path) -> None:
    rows = pa.table({"t": pa.array([1, 2**60], pa.timestamp("s"))})
    with (
        pa.OSFile(str(tmp_path / "t.arrow"), "wb") as sink,
        pa.ipc.new_file(sink, rows.schema) as f,
    ):
        f.write_table(rows)

    result = lake("--json", "ingest", "db.t", tmp_path / "t.arrow", "--create")

    assert result.exit_code == 7
    assert "row 2" in result.json()["error"]["message"]


def test_a_null_in_a_required_column_is_refused(
    lake: CommandLine, warehouse: Path, tmp_path: Path
) -> None:
    make_table(warehouse, schema=Schema(NestedField(1, "id", LongType(), required=True)))
    rows = pa.table({"id": pa.array([*range(100), None], pa.int64())})
    before = files_below(warehouse)

    result = lake("ingest", "db.t", write_parquet(tmp_path / "x.parquet", rows))

    assert result.exit_code == 7
    assert "NULL in the required column id" in result.stderr
    assert files_below(warehouse) == before


def test_evolve_adds_columns_and_nested_fields_in_the_same_commit(
    lake: CommandLine, warehouse: Path, tmp_path: Path
) -> None:
    first = pa.table({"id": [1], "at": [{"x": 1}], "tags": [[{"k": "a"}]]})
    second = pa.table(
        {"new": ["n"], "at": [{"y": 2.5, "x": 2}], "id": [2], "tags": [[{"v": True}]]}
    )
    lake.ok("ingest", "db.t", write_parquet(tmp_path / "a.parquet", first), "--create")

    refused = lake("ingest", "db.t", write_parquet(tmp_path / "b.parquet", second))
    done = lake.ok("ingest", "db.t", tmp_path / "b.parquet", "--evolve")
    again = lake.ok("ingest", "db.t", tmp_path / "a.parquet", "--evolve")

    assert refused.exit_code == 7
    for said in ("column new (string)", "column at.y (double)", "column tags.element.v (boolean)"):
        assert said in refused.stderr
    assert sorted(done["plan"]["new_columns"]) == ["at.y", "new", "tags.element.v"]
    assert again["plan"]["new_columns"] == []
    assert rows_of(warehouse)[2] == {
        "id": 2,
        "at": {"x": 2, "y": 2.5},
        "tags": [{"k": None, "v": True}],
        "new": "n",
    }
    metadata = table_of(warehouse).metadata
    assert (len(metadata.schemas), len(metadata.snapshots)) == (2, 3)
    assert [snapshot.schema_id for snapshot in metadata.snapshots] == [0, 1, 1]


def test_evolve_adds_fields_of_structs_in_lists_and_maps(
    lake: CommandLine, warehouse: Path, tmp_path: Path
) -> None:
    def written(name: str, inner: pa.DataType, value: dict[str, Any]) -> Path:
        several = pa.array([[value]], pa.list_(inner))
        mapped = pa.array([[("k", value)]], pa.map_(pa.string(), inner))
        return write_parquet(
            tmp_path / name, pa.table({"id": [value["x"]], "l": several, "m": mapped})
        )

    old, new = {"x": 1}, {"x": 2, "y": "b"}
    narrow = pa.struct([("x", pa.int64())])
    wide = pa.struct([("x", pa.int64()), ("y", pa.string())])
    lake.ok("ingest", "db.t", written("a.parquet", narrow, old), "--create")

    refused = lake("ingest", "db.t", written("b.parquet", wide, new))
    lake.ok("ingest", "db.t", tmp_path / "b.parquet", "--evolve")

    assert refused.exit_code == 7
    assert rows_of(warehouse) == [
        {"id": 1, "l": [old | {"y": None}], "m": [("k", old | {"y": None})]},
        {"id": 2, "l": [new], "m": [("k", new)]},
    ]


@pytest.mark.parametrize("options", [(), ("--max-rejects", "0", "--rejects", "bad.json")])
def test_evolve_reads_nested_values_of_json_as_the_table_has_them(
    lake: CommandLine, tmp_path: Path, options: tuple[str, ...]
) -> None:
    lake.ok(
        *("create", "db.t", "id long", "m map<int, string>", "l list<double>"),
        *("s struct<d: double, m: map<struct<x: int>, int>>", "n list<struct<d: double>>"),
    )
    rows: list[dict[str, Any]] = [
        {"id": 1, "m": [[1, "a"]], "l": [0.5, "NaN"], "s": {"d": "NaN", "m": [[{"x": 1}, 2]]}},
        {"id": 2, "m": [], "l": [1], "s": {"d": 1.5, "m": None}, "n": [{"d": "NaN"}, {"d": 1}]},
    ]
    source = tmp_path / "rows.json"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = lake.ok("ingest", "db.t", source, "--evolve", *options)
    assert done["plan"]["new_columns"] == []
    expected = [{"n": None, **row} for row in rows]
    assert sorted(lake.scanned(), key=lambda row: row["id"]) == expected

    rows[1]["s"]["new"], rows[0]["n"] = "text", [{"d": 2, "new": [[1], [2.5]]}]
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = lake.ok("ingest", "db.t", source, "--evolve", *options)
    assert {"s.new", "n.element.new"} < set(done["plan"]["new_columns"])
    found = [row for row in lake.scanned("--where", "id = 1") if row["n"] is not None]
    assert found[0]["n"] == [{"d": 2, "new": [[1], [2.5]]}]


def test_evolve_adds_no_fields_to_the_keys_of_maps(
    lake: CommandLine, warehouse: Path, tmp_path: Path
) -> None:
    key = pa.struct([("x", pa.int64()), ("y", pa.int64())])
    pairs = [({"x": 1, "y": 1}, 1), ({"x": 1, "y": 2}, 2)]
    source = pa.table({"m": pa.array([pairs], pa.map_(key, pa.int64()))})
    write_parquet(tmp_path / "a.parquet", source)
    lake.ok("create", "db.t", "m map<struct<x: long>, long>")

    for options in ((), ("--evolve",)):
        refused = lake("ingest", "db.t", tmp_path / "a.parquet", *options)
        assert refused.exit_code == 7
        assert "has column m.key.y (long), which the table lacks" in refused.stderr
        assert "--evolve" not in refused.stderr
    assert rows_of(warehouse) == []


def test_a_new_column_with_the_name_of_a_partition_field_is_refused(
    lake: CommandLine, tmp_path: Path
) -> None:
    source = tmp_path / "rows.csv"
    source.write_text("id\n1\n")
    lake.ok("ingest", "db.t", source, "--create", "--partition-by", "bucket(4, id)")
    source.write_text("id,id_bucket\n2,1\n")

    assert lake("ingest", "db.t", source, "--evolve").exit_code == 3
    new = lake("ingest", "db.new", source, "--create", "--partition-by", "bucket(4, id)")
    assert new.exit_code == 2
    assert "the partition field id_bucket has the name of a column" in new.stderr


def test_new_columns_join_the_name_mapping(
    lake: CommandLine, warehouse: Path, tmp_path: Path
) -> None:
    first = pa.table({"id": [1], "at": [{"x": 1}], "all": [[{"x": 1}]]})
    lake.ok("ingest", "db.t", write_parquet(tmp_path / "a.parquet", first), "--create")
    # Adding files without field ids gives the table a name mapping.
    table_of(warehouse).add_files([str(tmp_path / "a.parquet")])

    wider = {"x": 2, "y": "b"}
    second = pa.table({"id": [2], "at": [wider], "all": [[wider]], "new": ["n"]})
    path = write_parquet(tmp_path / "b.parquet", second)
    lake.ok("ingest", "db.t", path, "--evolve")
    table_of(warehouse).add_files([str(path)])

    assert (
        lake.ok("scan", "db.t", "--where", "id = 2")["result"]["preview"]
        == [{"id": 2, "at": wider, "all": [wider], "new": "n"}] * 2
    )


def test_evolve_infers_new_csv_columns_from_the_whole_file(
    lake: CommandLine, warehouse: Path, tmp_path: Path
) -> None:
    make_table(warehouse)
    path = tmp_path / "x.csv"
    path.write_text("id,score\n1,1\n2,2.5\n")

    lake.ok("ingest", "db.t", path, "--evolve")

    assert [row["score"] for row in rows_of(warehouse)] == [1.0, 2.5]


def test_narrow_numbers_widen_and_inexact_times_are_refused(
    lake: CommandLine, warehouse: Path, tmp_path: Path
) -> None:
    make_table(
        warehouse,
        schema=Schema(
            NestedField(1, "id", LongType(), required=False),
            NestedField(2, "at", TimestampType(), required=False),
        ),
    )
    exact = pa.table({"id": pa.array([1], pa.int8()), "at": pa.array([1000], pa.timestamp("ns"))})
    inexact = pa.table({"id": [2, 3], "at": pa.array([1000, 1001], pa.timestamp("ns"))})

    lake.ok("ingest", "db.t", write_parquet(tmp_path / "a.parquet", exact))
    result = lake("ingest", "db.t", write_parquet(tmp_path / "b.parquet", inexact))

    assert result.exit_code == 7
    assert "column at of" in result.stderr
    assert "row 2:" in result.stderr
    assert [row["id"] for row in rows_of(warehouse)] == [1]


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("x.csv", "id,name\n1,a\nx,b\n", "column id of {path}, row 2: 'x' is not a valid long"),
        ("x.csv", "id,name\n1,a\n2\n", "x.csv, line 3: 2 columns expected, 1 found"),
        ("x.csv", "id,nome\n1,a\n", "has column nome (string), which the table lacks"),
        ("x.csv", "id,id\n1,2\n", "has two columns named id"),
        ("x.csv", 'id,name\n1,"a"\n2,"cut he', "{path} ends inside a quoted value"),
        ("x.csv", 'id,name\n1,"a ""b"\n2,"cut here""', "{path} ends inside a quoted value"),
        (
            "x.csv",
            "id\n99999999999999999999\n",
            "row 1: '99999999999999999999' is not a valid long",
        ),
        (
            "x.json",
            '{"id": 1}\n\n{"id": "x"}\n',
            "column id of {path}, line 3: '\"x\"' is not a valid long",
        ),
        ("x.json", '{"id": 1}\n{"id": 1.5}\n', "line 2"),
        ("x.json", '{"id": 1}\n{"id": 2, "nope": 3}\n', "column nope (long)"),
        ("x.json", '{"id": 1}\n{"id": 2\n', "line 2 of {path} cannot be read"),
        ("x.json", "[1]\n", "line 1 of {path} is not a JSON object"),
        ("x.json", '{"id": 1, "id": 2}\n', "an object has a name twice"),
        ("x.parquet", "PAR1 oh no PAR1", "cannot be read"),
        ("x.arrow", "ARROW1 oh no", "cannot be read"),
    ],
)
def test_a_bad_file_is_named_with_the_place_and_nothing_stays(
    lake: CommandLine, warehouse: Path, tmp_path: Path, name: str, text: str, said: str
) -> None:
    make_table(warehouse)
    path = tmp_path / name
    path.write_text(text)
    before = files_below(warehouse)

    result = lake("ingest", "db.t", path)

    assert result.exit_code == 7
    assert said.format(path=path) in result.stderr
    assert files_below(warehouse) == before


def test_odd_quotes_inside_values_do_not_make_a_csv_file_look_cut(
    lake: CommandLine, warehouse: Path, tmp_path: Path
) -> None:
    make_table(warehouse)
    path = tmp_path / "x.csv"
    path.write_text('id,name\n1,a 5" pipe\n2,"line\n""two"\n3,"end"')

    lake.ok("ingest", "db.t", path)

    names = [row["name"] for row in rows_of(warehouse)]
    assert names == ['a 5" pipe', 'line\n"two', "end"]


@pytest.mark.parametrize("part", [0.3, 0.6, 0.9])
def test_a_parquet_file_that_is_corrupt_in_the_middle_leaves_nothing(
    lake: CommandLine, warehouse: Path, tmp_path: Path, part: float
) -> None:
    make_table(warehouse)
    rows = pa.table({"id": list(range(50_000))})
    path = write_parquet(
        tmp_path / "x.parquet", rows, row_group_size=5000, write_page_checksum=True
    )
    data = bytearray(path.read_bytes())
    data[int(len(data) * part)] ^= 0xFF
    path.write_bytes(data)
    before = files_below(warehouse)

    result = lake("ingest", "db.t", path)

    assert result.exit_code == 7, result
    assert files_below(warehouse) == before


def test_a_column_that_stands_only_in_folder_names_is_not_loaded_as_null(
    lake: CommandLine, warehouse: Path, tmp_path: Path
) -> None:
    make_table(warehouse)
    folder = tmp_path / "in" / "name=a"
    folder.mkdir(parents=True)
    write_parquet(folder / "x.parquet", pa.table({"id": [1]}))

    result = lake("ingest", "db.t", tmp_path / "in")

    assert result.exit_code == 7
    assert "has column name only in its folder's name" in result.stderr


@pytest.mark.parametrize(
    ("name", "text"), [("x.csv", ""), ("x.csv", "id,name\n"), ("x.json", ""), ("x.json", "\n\n")]
)
def test_empty_input_commits_nothing(
    lake: CommandLine, warehouse: Path, tmp_path: Path, name: str, text: str
) -> None:
    make_table(warehouse)
    path = tmp_path / name
    path.write_text(text)
    before = files_below(warehouse)

    appended = lake.ok("ingest", "db.t", path)
    replaced = lake.ok("ingest", "db.t", path, "--overwrite")

    assert appended["status"] == replaced["status"] == "nothing-to-do"
    empty = [] if text else [f"{path} is empty (0 bytes)"]
    assert (appended["snapshot_ids"], appended["warnings"]) == ([], empty)
    assert replaced["warnings"] == [
        *empty,
        "the source has no rows: nothing was replaced (--allow-empty removes the old rows)",
    ]
    assert files_below(warehouse) == before


# Modes


def test_overwrite_replaces_every_row(lake: CommandLine, warehouse: Path, tmp_path: Path) -> None:
    lake.ok("ingest", "db.t", write_parquet(tmp_path / "a.parquet", EVENTS), "--create")
    new = pa.table({"id": [9]})

    done = lake.ok("ingest", "db.t", write_parquet(tmp_path / "b.parquet", new), "--overwrite")

    assert [row["id"] for row in rows_of(warehouse)] == [9]
    assert done["plan"]["removed_files"] == 1
    summary = table_of(warehouse).metadata.current_snapshot().summary  # type: ignore[union-attr]
    assert summary is not None
    assert (summary.operation.value, summary["deleted-records"]) == ("overwrite", "4")


def test_overwrite_where_takes_only_rows_for_which_the_filter_is_true(
    lake: CommandLine, warehouse: Path, tmp_path: Path
) -> None:
    rows = pa.table({"id": [1, 2, 3, 4, 5], "x": pa.array([1.0, None, float("nan"), 5.0, -0.0])})
    lake.ok("ingest", "db.t", write_parquet(tmp_path / "a.parquet", rows), "--create")
    whole = pa.table({"id": [6, 7], "x": [7.0, 8.0]})
    lake.ok("ingest", "db.t", write_parquet(tmp_path / "b.parquet", whole))
    untouched = pa.table({"id": [8], "x": [1.0]})
    lake.ok("ingest", "db.t", write_parquet(tmp_path / "c.parquet", untouched))
    new = write_parquet(tmp_path / "d.parquet", pa.table({"id": [9], "x": [6.0]}))

    done = lake.ok("ingest", "db.t", new, "--overwrite-where", "x >= 5")

    # NaN is not among the numbers from 5 on, and NULL compares with nothing.
    assert [row["id"] for row in rows_of(warehouse)] == [1, 2, 3, 5, 8, 9]
    assert done["plan"]["removed_files"] == 1
    assert done["plan"]["rewritten_files"] == 1
    assert done["result"]["rows_written"] == 1


def test_overwrite_where_refuses_source_rows_outside_its_filter(
    lake: CommandLine, warehouse: Path, tmp_path: Path
) -> None:
    lake.ok("ingest", "db.t", write_parquet(tmp_path / "a.parquet", EVENTS), "--create")
    before = files_below(warehouse)

    result = lake("ingest", "db.t", tmp_path / "a.parquet", "--overwrite-where", "day == 'mon'")

    assert result.exit_code == 7
    assert "has a row outside --overwrite-where: " in result.stderr
    assert files_below(warehouse) == before


def test_a_file_without_a_matching_row_is_not_rewritten(
    lake: CommandLine, warehouse: Path, tmp_path: Path
) -> None:
    rows = pa.table({"id": [1, 9]})
    lake.ok("ingest", "db.t", write_parquet(tmp_path / "a.parquet", rows), "--create")
    before = {entry["file_path"] for entry in table_of(warehouse).inspect.files().to_pylist()}
    new = write_parquet(tmp_path / "b.parquet", pa.table({"id": [5]}))

    done = lake.ok("ingest", "db.t", new, "--overwrite-where", "id == 5")

    after = {entry["file_path"] for entry in table_of(warehouse).inspect.files().to_pylist()}
    assert before < after
    assert done["result"]["data_files"] == 1
    assert [row["id"] for row in rows_of(warehouse)] == [1, 5, 9]


def test_replace_partitions_replaces_only_those_that_get_rows(
    lake: CommandLine, warehouse: Path, tmp_path: Path
) -> None:
    path = write_parquet(tmp_path / "a.parquet", EVENTS)
    lake.ok("ingest", "db.t", path, "--create", "--partition-by", "day")
    new = pa.table({"id": [8, 9], "day": ["mon", None]})

    lake.ok("ingest", "db.t", write_parquet(tmp_path / "b.parquet", new), "--replace-partitions")

    assert [(row["id"], row["day"]) for row in rows_of(warehouse)] == [
        (3, "tue"),
        (8, "mon"),
        (9, None),
    ]
    summary = table_of(warehouse).metadata.current_snapshot().summary  # type: ignore[union-attr]
    assert summary is not None
    assert summary["replace-partitions"] == "true"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param(pa.array([0.5, math.nan]), pa.array([-math.nan]), id="nan"),
        pytest.param(pa.array([0.0, -0.0]), pa.array([-0.0]), id="zeros"),
        # Python has no times after the year 9999.
        pytest.param(
            pa.array([0, 10**18], pa.timestamp("us")),
            pa.array([10**18], pa.timestamp("us")),
            id="far",
        ),
    ],
)
def test_replace_partitions_distinguishes_partitions_as_java_does(
    lake: CommandLine, warehouse: Path, tmp_path: Path, first: pa.Array, second: pa.Array
) -> None:
    path = write_parquet(tmp_path / "a.parquet", pa.table({"id": [1, 2], "x": first}))
    lake.ok("ingest", "db.t", path, "--create", "--partition-by", "x")
    path = write_parquet(tmp_path / "b.parquet", pa.table({"id": [3], "x": second}))

    lake.ok("ingest", "db.t", path, "--replace-partitions")

    assert ids_in(warehouse) == [1, 3]


def test_a_branch_is_written_and_main_stays(
    lake: CommandLine, warehouse: Path, tmp_path: Path
) -> None:
    path = write_parquet(tmp_path / "a.parquet", ROWS)
    lake.ok("ingest", "db.t", path, "--create")
    table = table_of(warehouse)
    head = table.current_snapshot()
    assert head is not None
    table.manage_snapshots().create_branch(head.snapshot_id, "audit").commit()

    lake.ok("ingest", "db.t", path, "--branch", "audit")

    table = table_of(warehouse)
    assert len(rows_of(warehouse)) == 3
    audit = table.metadata.refs["audit"].snapshot_id
    assert table.scan(snapshot_id=audit).to_arrow().num_rows == 6


def test_another_table_is_a_source_and_its_types_are_kept(
    lake: CommandLine, warehouse: Path, tmp_path: Path
) -> None:
    rows = EVENTS.append_column("key", pa.array([bytes(16)] * 4, pa.uuid()))
    lake.ok("ingest", "db.a", write_parquet(tmp_path / "a.parquet", rows), "--create")

    done = lake.ok("ingest", "db.b", "--from-table", "db.a", "--create", "--partition-by", "day")
    missing = lake("ingest", "db.b", "--from-table", "db.nope")

    assert rows_of(warehouse, "db.b") == rows_of(warehouse, "db.a")
    assert str(table_of(warehouse, "db.b").schema().find_type("key")) == "uuid"
    assert done["result"]["data_files"] == 3
    assert missing.exit_code == 7


# Runs


def test_a_second_run_of_the_same_id_does_nothing_even_without_its_source(
    lake: CommandLine, warehouse: Path, tmp_path: Path
) -> None:
    path = write_parquet(tmp_path / "a.parquet", ROWS)
    first = lake.ok("ingest", "db.t", path, "--create", "--run-id", "r1")
    other = lake.ok("ingest", "db.t", path, "--run-id", "r2")
    path.unlink()
    before = files_below(warehouse)

    again = lake.ok("ingest", "db.t", path, "--create", "--run-id", "r1")

    assert (first["status"], other["status"], again["status"]) == ("done", "done", "nothing-to-do")
    assert again["result"]["rows_written"] == 0
    assert len(rows_of(warehouse)) == 6
    assert files_below(warehouse) == before


def test_a_run_id_outlives_its_snapshot_by_30_days(
    lake: CommandLine, warehouse: Path, tmp_path: Path
) -> None:
    path = write_parquet(tmp_path / "a.parquet", ROWS)
    lake.ok("ingest", "db.t", path, "--create", "--run-id", "r1")
    lake.ok("ingest", "db.t", path, "--overwrite")
    expired = lake.ok("expire", "db.t", "--older-than", "0s", "--unsafe-retention")
    assert expired["result"]["snapshots"] == 1

    again = lake.ok("ingest", "db.t", path, "--run-id", "r1")
    later = open_session(warehouse)
    known = json.loads(later.table("db.t").properties["lake.run-ids"])

    assert again["status"] == "nothing-to-do"
    assert list(known) == ["r1"]


# Distribution


def test_hash_gives_each_partition_one_file_and_none_gives_each_task_its_own(
    lake: CommandLine, warehouse: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lake.core.load.ingest.plan._SMALLEST_TASK_BYTES", 1)
    monkeypatch.setattr("lake.core.engine.inline.os.cpu_count", lambda: 2)
    make_table(
        warehouse, schema=Schema(SCHEMA.fields[0], NestedField(2, "day", StringType())), spec=BY_DAY
    )
    for name in "abcd":
        write_parquet(tmp_path / f"{name}.parquet", EVENTS.select(["id", "day"]))
    sources = [tmp_path / f"{name}.parquet" for name in "abcd"]

    hashed = lake.ok("ingest", "db.t", *sources)
    loose = lake.ok("ingest", "db.t", *sources, "--distribution", "none")

    assert (hashed["plan"]["distribution"], hashed["result"]["data_files"]) == ("hash", 3)
    assert (loose["plan"]["distribution"], loose["result"]["data_files"]) == ("none", 6)
    assert len(rows_of(warehouse)) == 32


def test_hash_on_an_unpartitioned_table_warns_only_when_it_was_asked_for(
    lake: CommandLine, warehouse: Path, tmp_path: Path
) -> None:
    make_table(warehouse, write__distribution_mode="hash")
    path = write_parquet(tmp_path / "x.parquet", ROWS)

    quiet = lake.ok("ingest", "db.t", path)
    asked = lake.ok("ingest", "db.t", path, "--distribution", "hash")

    assert (quiet["plan"]["distribution"], quiet["warnings"]) == ("none", [])
    assert len(asked["warnings"]) == 2
    assert asked["warnings"][1].startswith("the table is unpartitioned")


def test_files_are_rolled_near_the_target_size(
    lake: CommandLine, warehouse: Path, tmp_path: Path
) -> None:
    rows = pa.table(
        {"id": list(range(400_000)), "text": [f"{n * 7919 % 400_000:x}" for n in range(400_000)]}
    )
    path = write_parquet(tmp_path / "x.parquet", rows, compression="none", use_dictionary=False)

    lake.ok("ingest", "db.t", path, "--create", "--target-size", "512KB")

    sizes = table_of(warehouse).inspect.files()["file_size_in_bytes"].to_pylist()
    assert len(sizes) > 2
    assert max(sizes) < 2 * 512 * 1024
    assert table_of(warehouse).scan().count() == 400_000


# Both engines


def test_a_table_is_made_filled_and_overwritten_on_each_engine(
    lake_on: CommandLine, warehouse: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lake.core.load.ingest.plan._SMALLEST_TASK_BYTES", 1)
    first = write_parquet(tmp_path / "a.parquet", EVENTS)
    second = write_csv(tmp_path / "b.csv", EVENTS)
    third = write_json(tmp_path / "c.json", pa.table({"id": [9], "day": ["tue"], "amount": [0.5]}))

    done = lake_on.ok(
        *("ingest", "db.t", first, second, "--create", "--partition-by", "day, bucket(2, id)")
    )
    lake_on.ok("ingest", "db.t", third, "--overwrite-where", "day == 'tue' and amount < 1")

    assert done["plan"]["engine"] == lake_on.engine
    assert done["result"]["data_files"] == 3
    expected = [row for row in EVENTS.to_pylist() if row["day"] != "tue" for _ in range(2)]
    assert rows_of(warehouse) == [*expected, {"id": 9, "day": "tue", "amount": 0.5}]


def test_a_load_that_one_task_reads_starts_no_spark(
    warehouse: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lake.core.engine.selection.INLINE_BYTES", 1)
    lake = CommandLine(warehouse, engine="auto")
    one = write_parquet(tmp_path / "a.parquet", EVENTS)
    other = write_parquet(tmp_path / "b.parquet", EVENTS)

    done = lake.ok("ingest", "db.t", one, "--create")
    several = lake.ok("ingest", "db.t", one, other, "--dry-run")
    upsert = lake.ok("ingest", "db.t", one, "--upsert", "--key", "id", "--dry-run")

    assert done["plan"]["engine"] == "inline"
    assert several["plan"]["engine"] == "spark"
    # An upsert also reads the table.
    assert upsert["plan"]["engine"] == "spark"
    assert rows_of(warehouse) == EVENTS.to_pylist()


def test_each_partition_and_bucket_has_one_writer_on_each_engine(
    lake_on: CommandLine, warehouse: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four sources are read by tasks of their own, and each of them contains every partition and bucket."""
    monkeypatch.setattr("lake.core.load.ingest.plan._SMALLEST_TASK_BYTES", 1)
    rows = pa.table({"id": list(range(40)), "day": ["mon", "tue"] * 20})
    sources = [write_parquet(tmp_path / f"{name}.parquet", rows) for name in "abcd"]

    lake_on.ok("ingest", "db.t", *sources, "--create", "--partition-by", "day, bucket(4, id)")

    files = table_of(warehouse).inspect.files()
    partitions = [tuple(partition.values()) for partition in files["partition"].to_pylist()]
    assert len(partitions) == len(set(partitions)) == 8
    assert sum(files["record_count"].to_pylist()) == 160


def test_a_bad_row_stops_each_engine_and_leaves_nothing(
    lake_on: CommandLine, warehouse: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lake.core.load.ingest.plan._SMALLEST_TASK_BYTES", 1)
    make_table(warehouse, schema=Schema(NestedField(1, "id", LongType(), required=True)))
    good = write_parquet(tmp_path / "a.parquet", pa.table({"id": list(range(1000))}))
    bad = tmp_path / "b.csv"
    bad.write_text("id\n1\ntwo\n")
    before = files_below(warehouse)

    result = lake_on("ingest", "db.t", good, bad)

    assert result.exit_code == 7
    assert f"column id of {bad}, row 2: 'two' is not a valid long" in result.stderr
    assert files_below(warehouse) == before


@pytest.mark.parametrize(
    "mode", [["--overwrite"], ["--overwrite-where", "id > 0"], ["--replace-partitions"]]
)
@pytest.mark.parametrize("made", [True, False])
def test_overwriting_nothing_adds_the_rows(
    lake: CommandLine, warehouse: Path, tmp_path: Path, mode: list[str], made: bool
) -> None:
    if made:
        make_table(warehouse)

    done = lake.ok("ingest", "db.t", write_parquet(tmp_path / "x.parquet", ROWS), "--create", *mode)

    assert done["status"] == "done"
    assert rows_of(warehouse) == ROWS.to_pylist()


@pytest.mark.parametrize(
    "mode", [["--overwrite"], ["--overwrite-where", "id < 3"], ["--replace-partitions"]]
)
def test_an_overwrite_may_evolve_the_table(
    lake: CommandLine, warehouse: Path, tmp_path: Path, mode: list[str]
) -> None:
    lake.ok("ingest", "db.t", write_parquet(tmp_path / "x.parquet", ROWS), "--create")
    new = pa.table({"id": [1], "extra": ["e"]})

    lake.ok("ingest", "db.t", write_parquet(tmp_path / "y.parquet", new), "--evolve", *mode)

    kept = [{"id": 3, "name": "c", "extra": None}] if "--overwrite-where" in mode else []
    assert rows_of(warehouse) == [{"id": 1, "name": None, "extra": "e"}, *kept]


def test_files_of_an_older_partition_spec_are_overwritten_too(
    lake: CommandLine, warehouse: Path, tmp_path: Path
) -> None:
    path = write_parquet(tmp_path / "x.parquet", EVENTS)
    lake.ok("ingest", "db.t", path, "--create", "--partition-by", "day")
    with table_of(warehouse).update_spec() as update:
        update.remove_field("day").add_field("id", "bucket[2]", "id_bucket")
    lake.ok("ingest", "db.t", path)
    new = write_parquet(tmp_path / "y.parquet", pa.table({"id": [7], "day": ["mon"]}))

    lake.ok("ingest", "db.t", new, "--overwrite-where", "day == 'mon' and id != 2")

    assert [(row["id"], row["day"]) for row in rows_of(warehouse)] == [
        (2, "mon"),
        (2, "mon"),
        (3, "tue"),
        (3, "tue"),
        (4, None),
        (4, None),
        (7, "mon"),
    ]


def test_a_required_part_of_a_nested_column_may_not_be_null(
    lake: CommandLine, warehouse: Path, tmp_path: Path
) -> None:
    inner = StructType(NestedField(4, "x", LongType(), required=True))
    make_table(
        warehouse,
        schema=Schema(
            NestedField(1, "at", inner, required=False),
            NestedField(
                2, "tags", ListType(5, StringType(), element_required=True), required=False
            ),
            NestedField(
                3,
                "map",
                MapType(6, StringType(), 7, LongType(), value_required=True),
                required=False,
            ),
        ),
    )
    good = pa.table({"at": [{"x": 1}, None], "tags": [["a"], None]})
    map_type = pa.map_(pa.string(), pa.int64())
    bad = {
        "at.x": pa.table({"at": [{"x": 1}, {"x": None}]}),
        "tags.element": pa.table({"tags": [["a"], ["b", None]]}),
        "map.value": pa.table({"map": pa.array([[("a", 1)], [("b", None)]], map_type)}),
    }

    lake.ok("ingest", "db.t", write_parquet(tmp_path / "x.parquet", good))
    for name, rows in bad.items():
        result = lake("ingest", "db.t", write_parquet(tmp_path / "y.parquet", rows))

        assert result.exit_code == 7
        assert f"NULL in the required column {name}" in result.stderr


def test_csv_cells_of_nested_columns_hold_json(
    lake: CommandLine, warehouse: Path, tmp_path: Path
) -> None:
    lake.ok("ingest", "db.t", write_parquet(tmp_path / "x.parquet", NESTED), "--create")
    path = tmp_path / "x.csv"
    path.write_text('id,tags\n2,"[{""k"": ""b""}]"\n3,\n')

    lake.ok("ingest", "db.t", path)
    path.write_text("id,tags\n4,oops\n")
    result = lake("ingest", "db.t", path)

    # PyIceberg reads a NULL list of structs as an empty one.
    lines = lake("scan", "db.t", "--output", "-", "--output-format", "json").stdout.splitlines()
    rows = sorted((json.loads(line) for line in lines), key=lambda row: row["id"])
    assert [row["tags"] for row in rows] == [[{"k": "a"}], [{"k": "b"}], None]
    assert f"column tags of {path}, row 1: 'oops' is not a valid list" in result.stderr


_NUMBERS = [
    "write.parquet.row-group-size-bytes",
    "write.parquet.page-size-bytes",
    "write.parquet.dict-size-bytes",
    "write.target-file-size-bytes",
    "write.delete.target-file-size-bytes",
    "write.metadata.metrics.max-inferred-column-defaults",
    "commit.retry.num-retries",
    "commit.retry.total-timeout-ms",
    "commit.manifest.target-size-bytes",
    "commit.manifest.min-count-to-merge",
]


@pytest.mark.parametrize(
    ("text", "code"), [("²", 2), ("9" * 5000, 2), ("-1", 2), (str(2**31 - 1), 0)]
)
def test_immense_numbers_in_properties_stop_no_command_and_other_texts_do(
    lake: CommandLine, tmp_path: Path, text: str, code: int
) -> None:
    (tmp_path / "x.csv").write_text("id,name\n1,a\n2,b\n")
    made = make_table(lake.warehouse)
    made.append(pa.table({"id": pa.array([1, 3], pa.int64()), "name": ["x", "y"]}))
    with made.transaction() as changing:
        changing.set_properties(dict.fromkeys(_NUMBERS, text))

    upsert = lake("ingest", "db.t", tmp_path / "x.csv", "--upsert", "--key", "id")
    compact = lake("compact", "db.t", "--rewrite-all")

    assert (upsert.exit_code, compact.exit_code) == (code, code), (upsert, compact)
    assert ids_in(lake.warehouse) == ([1, 3] if code else [1, 2, 3])


def test_a_metrics_mode_of_many_digits_is_reported(lake: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("id,name\n1,a\n")
    make_table(lake.warehouse, **{"write.metadata.metrics.default": f"truncate({'9' * 5000})"})
    result = lake("ingest", "db.t", tmp_path / "x.csv")
    assert result.exit_code == 2
    assert "write.metadata.metrics.default" in result.stderr


@pytest.mark.parametrize("more", [[], ["--partition-by", "name"]])
def test_as_many_tasks_write_as_are_asked_for(
    lake: CommandLine, tmp_path: Path, more: list[str]
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for number in range(6):
        (source / f"{number}.csv").write_text(f"id,name\n{number},a\n")
    files = {}
    for count in (1, 3):
        table = f"db.t{count}"
        words = ["--write-parallelism", count, "--distribution", "none", "--create", *more]
        document = lake.ok("ingest", table, source, *words)
        files[count] = document["result"]["data_files"]
        assert document["result"]["rows_written"] == 6

    assert files == {1: 1, 3: 3}
    refused = lake("ingest", "db.t1", source, "--write-parallelism", "0")
    assert (refused.exit_code, "--write-parallelism 0" in refused.stderr) == (2, True)
