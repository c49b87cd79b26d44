"""`lake inspect` through the command line; PyIceberg's metadata tables are the judge."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.transforms import YearTransform
from support.cli.command_line import CommandLine
from support.tables.iceberg_tables import pyiceberg_table

from lake.core.read.inspection import deletes_table
from lake.core.table.manifests import read


@pytest.fixture
def inspected(lake: CommandLine) -> CommandLine:
    """A warehouse with a table of three snapshots, of which one was rolled back, and a tag."""
    rows = lake.warehouse.parent / "rows.csv"
    rows.write_text("id,name\n1,a\n2,b\n")
    lake.ok("ingest", "db.t", rows, "--create")
    lake.ok("tag", "db.t", "first", "--retain", "30d")
    lake.ok("ingest", "db.t", rows)
    lake.ok("rollback", "db.t", "first")
    lake.ok("ingest", "db.t", rows)
    return lake


def _rows(table: pa.Table) -> list[dict[str, Any]]:
    return [
        {
            name: value.replace(tzinfo=None) if hasattr(value, "tzinfo") else value
            for name, value in row.items()
        }
        for row in table.to_pylist()
    ]


@pytest.mark.parametrize(
    ("kind", "column", "where"),
    [
        ("files", "record_count", "file_path LIKE 'file:%' AND content = 0"),
        ("files", "upper_bounds", "record_count = 2"),
        ("entries", "data_file", "status = 1"),
        ("entries", "sequence_number", "data_file.record_count = 2"),
        ("partitions", "file_count", "record_count = 4"),
    ],
)
def test_columns_that_are_not_selected_can_be_filtered(
    inspected: CommandLine, tmp_path: Path, kind: str, column: str, where: str
) -> None:
    every, some = tmp_path / "every.parquet", tmp_path / "some.parquet"
    inspected.ok("inspect", "db.t", kind, "--output", every)
    inspected.ok("inspect", "db.t", kind, "--select", column, "--where", where, "--output", some)

    found = pq.read_table(some)
    assert found.num_rows > 0
    assert found.equals(pq.read_table(every, columns=[column]))


@pytest.mark.parametrize("kind", ["snapshots", "refs", "history", "metadata-log"])
def test_metadata_tables_are_those_of_pyiceberg(
    inspected: CommandLine, tmp_path: Path, kind: str
) -> None:
    out = tmp_path / "out.parquet"
    inspected.ok("inspect", "db.t", kind, "--output", out)
    judge = pyiceberg_table(inspected.warehouse).inspect
    method = {"metadata-log": "metadata_log_entries"}.get(kind, kind)
    expected = getattr(judge, method)()
    if kind == "refs":
        # PyIceberg shows the names as dictionary-encoded text.
        expected = expected.set_column(1, "type", expected["type"].cast(pa.string()))

    found = pq.read_table(out)
    assert found.column_names == expected.column_names
    assert _rows(found) == [
        {
            **row,
            **(
                {"operation": row["operation"].removeprefix("Operation.").lower()}
                if "operation" in row
                else {}
            ),
        }
        for row in _rows(expected)
    ]


def test_rows_and_columns_are_selected(inspected: CommandLine, tmp_path: Path) -> None:
    tags = inspected.ok(
        "inspect", "db.t", "refs", "--where", "type = 'TAG'", "--select", "name,type"
    )
    assert tags["result"]["preview"] == [{"name": "first", "type": "TAG"}]
    assert tags["plan"]["rows_found"] == 2
    out = tmp_path / "out.csv"
    inspected.ok(
        "inspect",
        "db.t",
        "history",
        "--limit",
        "1",
        "--select",
        "is_current_ancestor",
        "--output",
        out,
    )
    assert out.read_text() == '"is_current_ancestor"\ntrue\n'
    unknown = inspected("--json", "inspect", "db.t", "refs", "--select", "nothing")
    assert (unknown.exit_code, unknown.json()["error"]["kind"]) == (7, "not-found")
    assert inspected("inspect", "db.t", "nothing").exit_code == 2
    assert inspected("inspect", "db.t", "refs", "--limit", "-1").exit_code == 2


@pytest.mark.parametrize(
    ("kind", "method"),
    [
        ("files", "files"),
        ("data-files", "data_files"),
        ("delete-files", "delete_files"),
        ("entries", "entries"),
        ("manifests", "manifests"),
        ("partitions", "partitions"),
    ],
)
@pytest.mark.parametrize("window", [1, 8 * 1024 * 1024], ids=["one", "all"])
def test_tables_of_manifests_are_those_of_pyiceberg(
    lake: CommandLine,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    method: str,
    window: int,
) -> None:
    monkeypatch.setattr(read, "_STREAMED_BYTES", window)
    rows = tmp_path / "rows.csv"
    rows.write_text("id,day,name\n1,2026-01-30,a\n2,2026-01-31,\n3,,c\n")
    some = tmp_path / "some.csv"
    some.write_text("id,day,name\n2,2026-01-31,new\n")
    lake.ok("ingest", "db.t", rows, "--create", "--partition-by", "day")
    lake.ok("ingest", "db.t", some, "--upsert", "--key", "id", "--deletes", "position")
    lake.ok("ingest", "db.t", some, "--upsert", "--key", "id", "--deletes", "copy-on-write")
    out = tmp_path / "out.parquet"

    done = lake.ok("inspect", "db.t", kind, "--output", out)

    found = pq.read_table(out).to_pylist()
    judge = lake.table().inspect
    expected = getattr(judge, method)().to_pylist()
    # PyIceberg shows other columns in `readable_metrics`, and gives each file's partition to its specs.
    names = [name for name in found[0] if name in expected[0] and name != "data_file"]
    assert len(names) >= 4
    assert by_text(found, names) == by_text(expected, names)
    assert done["result"]["rows"] == len(expected)
    assert done["plan"]["rows_found"] in {None, len(expected)}


def by_text(rows: list[dict[str, Any]], names: list[str]) -> list[str]:
    def plain(value: Any) -> Any:
        return value.replace(tzinfo=None) if hasattr(value, "tzinfo") else value

    return sorted(str({name: plain(row[name]) for name in names}) for row in rows)


def test_files_of_another_snapshot_or_branch_are_shown(inspected: CommandLine) -> None:
    def count(*more: str) -> int:
        return inspected.ok("inspect", "db.t", "files", *more)["result"]["rows"]

    inspected.ok("ref", "db.t", "--branch-create", "audit", "--at", "first")

    assert (count(), count("--snapshot", "first"), count("--branch", "audit")) == (2, 1, 1)
    for arguments, code in (
        (("files", "--snapshot", "nothing"), 7),
        (("files", "--branch", "nothing"), 7),
        (("refs", "--snapshot", "first"), 2),
        (("files", "--where", "nothing = 1"), 7),
    ):
        assert inspected("inspect", "db.t", *arguments).exit_code == code, arguments


@pytest.mark.parametrize("kind", ["files", "entries", "manifests", "partitions", "properties"])
def test_an_empty_table_has_no_rows(lake: CommandLine, tmp_path: Path, kind: str) -> None:
    lake.ok("create", "db.t", "id long", "day date", "--partition-by", "day")
    out = tmp_path / "out.csv"

    done = lake.ok("inspect", "db.t", kind, "--output", out)

    assert done["result"]["rows"] == 0
    assert len(out.read_text().splitlines()) == 1


def test_filters_and_columns_apply_to_files(inspected: CommandLine) -> None:
    found = inspected.ok(
        *("inspect", "db.t", "files", "--where", "record_count = 2 and content = 0"),
        *("--select", "file_format,record_count", "--limit", "1"),
    )

    assert found["result"]["preview"] == [{"file_format": "PARQUET", "record_count": 2}]
    assert found["plan"]["rows_found"] == 2


def test_properties_are_shown_without_secrets(inspected: CommandLine) -> None:
    inspected.ok("alter", "db.t", "--set", "comment=daily", "--set", "job.password=x1y2z3")

    result = inspected("inspect", "db.t", "properties")

    assert "daily" in result.stdout
    assert "x1y2z3" not in result.stdout + result.stderr


def test_a_manifest_that_cannot_be_read_ends_the_command(inspected: CommandLine) -> None:
    for path in inspected.warehouse.rglob("*-m0.avro"):
        path.write_bytes(path.read_bytes()[:-7])

    failed = inspected("--json", "inspect", "db.t", "files")

    assert failed.exit_code == 7


def test_a_field_that_was_dropped_and_another_of_its_name_are_both_shown(
    lake: CommandLine, tmp_path: Path
) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text("id,day\n1,2026-01-30\n")
    version = ("--property", "format-version=1")
    lake.ok("ingest", "db.t", rows, "--create", "--partition-by", "month(day)", *version)
    with lake.table().update_spec() as update:
        update.remove_field("day_month")
    with lake.table().update_spec() as update:
        update.add_field("day", YearTransform(), "day_month")
    lake.ok("ingest", "db.t", rows)

    for kind in ("files", "partitions"):
        shown = lake.ok("inspect", "db.t", kind, "--select", "partition")["result"]["preview"]
        assert [len(row["partition"]) for row in shown] == [2, 2]


def test_a_partition_with_null_is_not_one_with_rows_of_no_partition(
    lake: CommandLine, tmp_path: Path
) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text("id,day\n1,2026-01-30\n2,\n")
    lake.ok("ingest", "db.t", rows, "--create", "--partition-by", "day")
    lake.ok("alter", "db.t", "--partition-by", "")
    rows.write_text("id,day\n3,\n4,2026-01-31\n5,\n")
    lake.ok("ingest", "db.t", rows)

    shown = lake.ok("inspect", "db.t", "partitions")["result"]["preview"]

    found = {(row["partition"]["day"], row["spec_id"], row["record_count"]) for row in shown}
    assert found == {("2026-01-30", 0, 1), (None, 0, 1), (None, 1, 3)}


def test_a_field_whose_column_was_dropped_is_left_out(lake: CommandLine, tmp_path: Path) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text("id,day,r\n1,2026-01-30,a\n2,2026-01-30,b\n")
    lake.ok("ingest", "db.t", rows, "--create", "--partition-by", "r")
    table = lake.table()
    with table.update_spec() as update:
        update.remove_field("r")
        update.add_identity("day")
    with lake.table().update_schema() as change:
        change.delete_column("r")
    rows.write_text("id,day\n9,2026-01-30\n")
    lake.ok("ingest", "db.t", rows)

    shown = lake.ok("inspect", "db.t", "partitions")["result"]["preview"]

    assert [(row["partition"], row["record_count"]) for row in shown] == [
        ({"day": "2026-01-30"}, 1),
        ({"day": None}, 2),
    ]


@pytest.mark.parametrize(("field", "value"), [(0, b"\x01"), (1, b"\xff\xfe")])
def test_a_bound_of_another_type_is_damage(
    lake: CommandLine, tmp_path: Path, field: int, value: bytes
) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text("id,day,r\n1,2026-01-30,a\n")
    lake.ok("ingest", "db.t", rows, "--create", "--partition-by", "day,r")
    (place,) = lake.warehouse.rglob("snap-*.avro")
    with place.open("rb") as file:
        reader = fastavro.reader(file)
        schema, found = json.loads(reader.metadata["avro.schema"]), list(reader)
    found[0]["partitions"][field]["lower_bound"] = value
    with place.open("wb") as file:
        fastavro.writer(file, schema, found)

    failed = lake("--json", "inspect", "db.t", "manifests")

    assert (failed.exit_code, failed.json()["error"]["kind"]) == (7, "bad-input")


@pytest.mark.parametrize("version", [2, 3])
def test_deletes_are_the_deleted_positions(
    lake: CommandLine, tmp_path: Path, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deletes_table, "_PIECE", 2)
    rows, out = tmp_path / "rows.csv", tmp_path / "deletes.parquet"
    rows.write_text("id,day\n" + "".join(f"{number},{'ab'[number % 2]}\n" for number in range(20)))
    new = ("--create", "--partition-by", "day", "--property", f"format-version={version}")
    lake.ok("ingest", "db.t", rows, *new)
    lake.ok("inspect", "db.t", "deletes", "--output", out)
    assert pq.read_table(out).num_rows == 0

    before = lake.table().scan().to_arrow()
    rows.write_text("id,day\n1,a\n4,a\n6,a\n10,a\n12,a\n3,b\n")
    lake.ok("ingest", "db.t", rows, "--upsert", "--key", "id,day", "--deletes", "position")
    lake.ok("inspect", "db.t", "deletes", "--output", out, "--replace")
    found = pq.read_table(out).to_pylist()
    files = {row["file_path"]: row for row in _written(lake, tmp_path, "data-files")}
    deletes = {row["file_path"]: row for row in _written(lake, tmp_path, "delete-files")}
    gone = set()
    for row in found:
        data, file = files[row["file_path"]], deletes[row["delete_file_path"]]
        assert row["partition"] == data["partition"] == file["partition"]
        assert (row["row"], row["spec_id"]) == (None, 0)
        if version == 3:
            assert row["content_offset"] == file["content_offset"]
            assert row["content_size_in_bytes"] == file["content_size_in_bytes"]
        day = row["partition"]["day"]
        gone.add([x["id"] for x in before.to_pylist() if x["day"] == day][row["pos"]])
    assert len(found) == len(gone) == sum(file["record_count"] for file in deletes.values())
    assert gone == {4, 6, 10, 12, 3}
    where = lake.ok("inspect", "db.t", "deletes", "--where", "pos = 2", "--select", "pos")
    assert where["result"]["preview"] == [{"pos": 2}]


def _written(lake: CommandLine, folder: Path, kind: str) -> list[dict[str, Any]]:
    out = folder / f"{kind}.parquet"
    lake.ok("inspect", "db.t", kind, "--output", out, "--replace")
    return pq.read_table(out).to_pylist()
