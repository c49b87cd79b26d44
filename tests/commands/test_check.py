"""`lake check` through the command line, on tables that are damaged by hand."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from struct import pack
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.cli.command_line import CommandLine
from support.tables import flink_fixtures
from support.tables.flink_fixtures import FlinkFixture
from support.tables.iceberg_tables import pyiceberg_catalog


@pytest.fixture
def table(lake: CommandLine, tmp_path: Path) -> CommandLine:
    rows = tmp_path / "rows.csv"
    rows.write_text("id,name\n1,a\n2,b\n")
    lake.ok("ingest", "db.t", rows, "--create")
    lake.ok("ingest", "db.t", rows)
    return lake


def _metadata(lake: CommandLine) -> Path:
    location = pyiceberg_catalog(lake.warehouse).load_table("db.t").metadata_location
    return Path(location.removeprefix("file://"))


def _lists(lake: CommandLine) -> list[Path]:
    return sorted(_metadata(lake).parent.glob("snap-*.avro"))


def _manifests(lake: CommandLine) -> list[Path]:
    return [p for p in sorted(_metadata(lake).parent.glob("*.avro")) if p not in _lists(lake)]


def _edited(change: Callable[[Any], None]) -> Callable[[CommandLine], None]:
    def edit(lake: CommandLine) -> None:
        path = _metadata(lake)
        document = json.loads(path.read_text())
        change(document)
        path.write_text(json.dumps(document))

    return edit


def _statistics(document: Any, snapshot_id: int | None = None) -> None:
    document["statistics"] = [
        {
            "snapshot-id": snapshot_id or document["current-snapshot-id"],
            "statistics-path": document["location"] + "/metadata/none.puffin",
            "file-size-in-bytes": 10,
            "file-footer-size-in-bytes": 5,
            "blob-metadata": [],
        }
    ]


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def _total(key: str, value: str, index: int = -1) -> Callable[[Any], None]:
    return lambda document: document["snapshots"][index]["summary"].update({key: value})


def _member(key: str, value: int) -> Callable[[Any], None]:
    return lambda document: document["snapshots"][-1].update({key: value})


def _swap(document: Any) -> None:
    first, second = document["snapshots"]
    first["manifest-list"] = second["manifest-list"]


def _entries(change: Callable[[list[Any]], None]) -> Callable[[CommandLine], None]:
    """Change the entries of the first snapshot's only manifest; its list declares the new length."""

    def edit(lake: CommandLine) -> None:
        first = pyiceberg_catalog(lake.warehouse).load_table("db.t").snapshots()[0]
        place = Path(first.manifest_list.removeprefix("file://"))
        (row,), _, _ = _avro(place)
        manifest = Path(row["manifest_path"].removeprefix("file://"))
        entries, schema, header = _avro(manifest)
        change(entries)
        is_data = entries[0]["data_file"]["content"] == 0
        _write(manifest, entries, schema, header | {"content": "data" if is_data else "deletes"})
        for path in _lists(lake):
            rows, schema, header = _avro(path)
            for row in rows:
                if row["manifest_path"].endswith(manifest.name):
                    row["manifest_length"] = manifest.stat().st_size
                    row["content"] = int(not is_data)
                    row["added_files_count"] = len(entries)
                    row["added_rows_count"] = sum(
                        entry["data_file"]["record_count"] for entry in entries
                    )
            _write(path, rows, schema, header)

    return edit


def _avro(path: Path) -> tuple[list[Any], Any, dict[str, str]]:
    with path.open("rb") as file:
        reader = fastavro.reader(file)
        return list(reader), json.loads(reader.metadata["avro.schema"]), dict(reader.metadata)


def _write(path: Path, rows: list[Any], schema: Any, header: dict[str, str]) -> None:
    kept = {key: value for key, value in header.items() if not key.startswith(("avro.", "lake."))}
    with path.open("wb") as file:
        fastavro.writer(file, schema, rows, codec="deflate", metadata=kept)


def _file(**values: Any) -> Callable[[list[Any]], None]:
    return lambda entries: entries[0]["data_file"].update(values)


def _specs(document: Any) -> None:
    document["partition-specs"][0]["spec-id"] = document["default-spec-id"] = 7


DAMAGES = {
    "a branch of no snapshot": (
        "R001",
        _edited(lambda document: document["refs"].update(x={"type": "tag", "snapshot-id": 7})),
    ),
    "a spec does not exist": ("M003", _edited(_specs)),
    "a file is in a snapshot twice": ("E001", _entries(lambda found: found.append(found[0]))),
    "an equality delete has no columns": ("E002", _entries(_file(content=2))),
    "an entry newer than its manifest": (
        "M002",
        _entries(lambda found: found[0].update(sequence_number=99)),
    ),
    "a manifest list is gone": ("L001", lambda lake: _lists(lake)[0].unlink()),
    "a manifest list is cut": ("L002", lambda lake: _cut(_lists(lake)[0])),
    "a manifest list is empty": ("L002", lambda lake: _lists(lake)[0].write_bytes(b"")),
    "a manifest list is not Avro": ("L002", lambda lake: _lists(lake)[0].write_bytes(b"x" * 99)),
    "a manifest is gone": ("M001", lambda lake: _manifests(lake)[0].unlink()),
    "a manifest is cut": ("M002", lambda lake: _cut(_manifests(lake)[0])),
    "a manifest is empty": ("M002", lambda lake: _manifests(lake)[0].write_bytes(b"")),
    "a list is too short": ("L003", _edited(_total("total-data-files", "9", 0))),
    "a total no list explains": ("T001", _edited(_total("total-data-files", "9"))),
    "rows are miscounted": ("T001", _edited(_total("total-records", "9"))),
    "files are miscounted": ("T001", _edited(_total("total-data-files", "1"))),
    "statistics are gone": ("S002", _edited(_statistics)),
    "statistics of nothing": ("S001", _edited(lambda document: _statistics(document, 7))),
    "a schema does not exist": ("R002", _edited(_member("schema-id", 77))),
    "a list of a later snapshot": ("L004", _edited(_swap)),
    "a snapshot beyond the table": ("R003", _edited(_member("sequence-number", 99))),
}


def _data(lake: CommandLine) -> list[Path]:
    return sorted(_metadata(lake).parent.parent.glob("data/**/*.parquet"))


def _link(lake: CommandLine) -> None:
    path = _data(lake)[0]
    moved = path.rename(path.with_suffix(".moved"))
    path.symlink_to(moved)


def _lengthen(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"x")


def _delete_file(change: Callable[[Path], None]) -> Callable[[CommandLine], None]:
    """Upsert a key, and damage the delete file."""

    def damage(lake: CommandLine) -> None:
        before = _data(lake)
        rows = lake.warehouse.parent / "rows.csv"
        rows.write_text("id,name\n1,c\n")
        upsert = ("--upsert", "--key", "id", "--deletes", "position")
        lake.ok("ingest", "db.t", rows, *upsert, "--repair-duplicates")
        path = next(path for path in _data(lake) if path not in before and "deletes" in path.name)
        change(path)

    return damage


FILE_DAMAGES = {
    "a data file is gone": ("F001", lambda lake: _data(lake)[0].unlink()),
    "a data file is a link": ("F001", _link),
    "a delete file is gone": ("F002", _delete_file(Path.unlink)),
    "a data file is cut": ("F003", lambda lake: _cut(_data(lake)[0])),
    "a data file has more bytes": ("F003", lambda lake: _lengthen(_data(lake)[0])),
    "a data file is empty": ("F003", lambda lake: _data(lake)[0].write_bytes(b"")),
    "a delete file is cut": ("F003", _delete_file(_cut)),
}


def _metric(column: str, key: int, value: Any) -> Callable[[CommandLine], None]:
    def change(entries: list[Any]) -> None:
        pairs = entries[0]["data_file"][column]
        next(pair for pair in pairs if pair["key"] == key)["value"] = value

    return _entries(change)


def _other_file(rows: pa.Table) -> Callable[[CommandLine], None]:
    """Put another Parquet file in the place of the data file of the first snapshot."""

    def damage(lake: CommandLine) -> None:
        first = pyiceberg_catalog(lake.warehouse).load_table("db.t").snapshots()[0]
        (row,), _, _ = _avro(Path(first.manifest_list.removeprefix("file://")))
        (entry,), _, _ = _avro(Path(row["manifest_path"].removeprefix("file://")))
        path = Path(entry["data_file"]["file_path"].removeprefix("file://"))
        pq.write_table(rows, path)
        _entries(_file(file_size_in_bytes=path.stat().st_size))(lake)

    return damage


def _fields(*kinds: pa.DataType) -> pa.Schema:
    return pa.schema(
        [
            pa.field(name, kind, metadata={"PARQUET:field_id": str(number)})
            for number, (name, kind) in enumerate(zip(("id", "name"), kinds, strict=True), 1)
        ]
    )


_PLAIN = _fields(pa.int64(), pa.string())
_ROW_DAMAGES = {
    "rows are miscounted": ("D002", _entries(_file(record_count=1))),
    "a lower bound excludes a row": ("D004", _metric("lower_bounds", 1, pack("<q", 2))),
    "an upper bound excludes a row": ("D004", _metric("upper_bounds", 2, b"a")),
    "a bound has another type": ("D004", _metric("upper_bounds", 1, b"a")),
    "NULLs are miscounted": ("D005", _metric("null_value_counts", 1, 2)),
    "a NULL is not counted": (
        "D005",
        _other_file(pa.table({"id": [1, None], "name": ["a", "b"]}, _PLAIN)),
    ),
    "one NULL of two rows is counted": ("D008", _metric("null_value_counts", 1, 1)),
    "a column has another type": (
        "D003",
        _other_file(pa.table({"id": ["x", "y"], "name": ["a", "b"]}, _fields(*[pa.string()] * 2))),
    ),
    "a text is not valid": (
        "D004",
        _other_file(
            pa.table({"id": [1, 2], "name": pa.array([b"\xff", b"\xfe"]).view(pa.string())}, _PLAIN)
        ),
    ),
    "two columns of one id": (
        "D001",
        _other_file(
            pa.table(
                {"id": [1, 2], "name": ["a", "b"]},
                pa.schema(
                    [_PLAIN.field(0), _PLAIN.field(1).with_metadata(_PLAIN.field(0).metadata)]
                ),
            )
        ),
    ),
}


def _scramble(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:-40] + b"x" * 40)


@pytest.mark.parametrize("name", _ROW_DAMAGES)
def test_footers_that_contradict_manifests_are_named_by_their_code(
    table: CommandLine, name: str
) -> None:
    code, damage = _ROW_DAMAGES[name]
    damage(table)

    found = table("--json", "check", "db.t", "--rows")

    findings = json.loads(found.stdout)["result"]["findings"]
    assert {item["code"] for item in findings} - {"T001"} == {code}
    assert found.exit_code == (6 if code == "D008" else 7)


@pytest.mark.parametrize(
    "damage", [lambda lake: _scramble(_data(lake)[0]), _delete_file(_scramble)]
)
def test_a_footer_that_cannot_be_read_is_damage(
    table: CommandLine, damage: Callable[[CommandLine], None]
) -> None:
    damage(table)
    assert table.ok("check", "db.t", "--files")["result"]["findings"] == []
    (finding,) = json.loads(table("--json", "check", "db.t", "--rows").stdout)["result"]["findings"]
    assert finding["code"] == "D001"


@pytest.mark.parametrize("damage", ["content", "data"])
def test_a_deletion_vector_is_compared_with_its_entry_and_its_data_file(
    lake: CommandLine, tmp_path: Path, damage: str
) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text("id,name\n1,a\n2,b\n")
    lake.ok("ingest", "db.t", rows, "--create", "--property", "format-version=3")
    rows.write_text("id,name\n2,c\n")
    lake.ok("ingest", "db.t", rows, "--upsert", "--key", "id", "--deletes", "position")
    assert lake.ok("check", "db.t", "--rows")["result"]["findings"] == []

    if damage == "data":
        _entries(_file(record_count=1))(lake)
    else:
        (vector,) = _metadata(lake).parent.parent.glob("data/**/*.puffin")
        data = bytearray(vector.read_bytes())
        data[20] ^= 1
        vector.write_bytes(data)

    found = json.loads(lake("--json", "check", "db.t", "--rows").stdout)["result"]["findings"]
    codes = {"D002", "V002"} if damage == "data" else {"V001"}
    assert {item["code"] for item in found} - {"T001"} == codes


@pytest.mark.parametrize("deletes", ["position", "equality", "copy-on-write"])
@pytest.mark.parametrize("kind", ["parquet", "orc", "avro"])
def test_files_of_all_formats_agree_with_their_manifests(
    lake: CommandLine, tmp_path: Path, kind: str, deletes: str
) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text("id,name,at,ok\n1,a,2026-01-01T10:00:00,true\n2,,,\n")
    lake.ok("ingest", "db.t", rows, "--create", "--property", f"write.format.default={kind}")
    lake.ok("ingest", "db.t", rows, "--upsert", "--key", "id", "--deletes", deletes)
    result = lake.ok("check", "db.t", "--rows")["result"]
    assert (result["level"], result["findings"]) == ("rows", [])


def test_a_table_without_damage_has_no_findings(table: CommandLine) -> None:
    found = table.ok("check", "db.t")
    assert found["status"] == "done"
    assert found["result"]["findings"] == []
    assert found["result"]["level"] == "metadata"


def test_each_file_is_looked_up_once(table: CommandLine) -> None:
    table.ok("manifests", "db.t", "--target-size", "1KB")
    result = table.ok("check", "db.t", "--files")["result"]
    assert (result["level"], result["files"], result["findings"]) == ("files", 2, [])


@pytest.mark.parametrize("name", DAMAGES)
def test_damage_is_named_by_its_code(table: CommandLine, name: str) -> None:
    code, damage = DAMAGES[name]
    damage(table)
    found = table("--json", "check", "db.t")
    document = json.loads(found.stdout)
    found_codes = {item["code"]: item["message"] for item in document["result"]["findings"]}
    assert code in found_codes
    damaged = document["result"]["errors"] > 0
    assert document["status"] == ("damaged" if damaged else "suspect")
    assert found.exit_code == (7 if damaged else 6)


@pytest.mark.parametrize("name", FILE_DAMAGES)
def test_damaged_files_are_named_by_their_code(table: CommandLine, name: str) -> None:
    code, damage = FILE_DAMAGES[name]
    damage(table)
    assert table.ok("check", "db.t")["result"]["findings"] == []

    found = table("--json", "check", "db.t", "--files")

    (finding,) = json.loads(found.stdout)["result"]["findings"]
    assert finding["code"] == code
    assert found.exit_code == 7


@pytest.mark.parametrize("name", flink_fixtures.names())
def test_tables_that_flink_wrote_have_no_findings(
    flink: Callable[[str], FlinkFixture], name: str
) -> None:
    fixture = flink(name)
    lake = CommandLine(fixture.warehouse, catalog_type=fixture.catalog_type)
    found = lake.ok("check", fixture.table, "--rows")
    assert found["result"]["findings"] == []
