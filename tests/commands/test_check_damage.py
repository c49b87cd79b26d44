"""`lake check` names each kind of damage by its code, on tables that are damaged by hand."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from struct import pack
from typing import Any, NamedTuple
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.cli.command_line import CommandLine
from support.tables import damage as by_hand
from support.tables.built_once import BuiltOnce
from support.tables.damage import (
    Damage,
    Plain,
    data_files,
    edited,
    entries_edited,
    entry_edited,
    file_changed,
    file_edited,
    file_replaced,
    lists_of,
    manifests_of,
    metric_edited,
    rows_edited,
)
from support.tables.delete_files import commit_deletes, position_file, vectors
from support.tables.iceberg_tables import open_session
from support.tables.metadata_edits import edit_metadata, read_metadata

from lake.core.base.settings import Settings
from lake.core.engine.inline import InlineEngine
from lake.core.maintain.checking import snapshot_contents
from lake.core.maintain.checking.findings import KINDS
from lake.core.table.manifests import batches
from lake.core.transaction import session as sessions
from lake.core.transaction.session import Session

ROOT = Path(__file__).parents[2]
_HOUR_MS = 3_600_000


def _ingest(lake: CommandLine, rows: str, *options: str) -> None:
    path = lake.warehouse.parent / "rows.csv"
    path.write_text(rows)
    lake.ok("ingest", "db.t", path, *options)


def _plain(lake: CommandLine, *options: str) -> None:
    _ingest(lake, "id,name\n1,a\n2,b\n", "--create", *options)
    _ingest(lake, "id,name\n3,a\n4,b\n")


def _upserted(deletes: str, *options: str) -> Callable[[CommandLine], None]:
    def create(lake: CommandLine) -> None:
        _plain(lake, *options)
        _ingest(lake, "id,name\n1,c\n", "--upsert", "--key", "id", "--deletes", deletes)

    return create


def _nested(lake: CommandLine) -> None:
    path = lake.warehouse.parent / "rows.parquet"
    rows = [{"a": {"b": 1, "c": {"d": "x"}}, "e": 1.5}, {"a": {"b": 3, "c": None}, "e": 2.5}]
    pq.write_table(pa.Table.from_pylist(rows), path)
    lake.ok("ingest", "db.t", path, "--create")


def _several_specs(lake: CommandLine) -> None:
    """Make a table with delete manifests of two specs, one of which has no live entries."""
    options = ("--partition-by", "name", "--property", "write.delete.mode=merge-on-read")
    _ingest(lake, "id,name\n1,a\n2,a\n", "--create", *options)
    lake.ok("delete", "db.t", "--where", "id = 1")
    lake.ok("alter", "db.t", "--partition-by", "truncate(10, id)")
    _ingest(lake, "id,name\n13,d\n14,d\n15,d\n")
    lake.ok("delete", "db.t", "--where", "id = 13")
    lake.ok("compact", "db.t", "--rewrite-all", "--where", "id < 10")


_V3 = ("--property", "format-version=3")
TABLES: dict[str, Callable[[CommandLine], None]] = {
    "plain": _plain,
    "version 1": lambda lake: _plain(lake, "--property", "format-version=1"),
    "version 3": lambda lake: _plain(lake, *_V3),
    "partitioned": lambda lake: _plain(lake, "--partition-by", "name"),
    "by truncated ids": lambda lake: _plain(lake, "--partition-by", "truncate(10, id)"),
    "position deletes": _upserted("position"),
    "equality deletes": _upserted("equality"),
    "vectors": _upserted("position", *_V3),
    "several specs": _several_specs,
    "structs": _nested,
    "numbers": lambda lake: _ingest(lake, "x\n1.5\nNaN\n", "--create"),
}


def _of_snapshot(index: int, **values: Any) -> Damage:
    members = {key.replace("_", "-"): value for key, value in values.items()}
    return edited(lambda plain: plain["snapshots"][index].update(members))


def _total(key: str, value: str, index: int = -1) -> Damage:
    return edited(lambda plain: plain["snapshots"][index]["summary"].update({key: value}))


def _refs(plain: Plain) -> None:
    plain["refs"]["main"]["snapshot-id"] = plain["snapshots"][0]["snapshot-id"]


def _cycle(plain: Plain) -> None:
    first, second = plain["snapshots"]
    first["parent-snapshot-id"] = second["snapshot-id"]


def _orphan(plain: Plain) -> None:
    plain["snapshots"][-1]["parent-snapshot-id"] = 7


def _same_number(plain: Plain) -> None:
    first, second = plain["snapshots"]
    second["sequence-number"] = first["sequence-number"]


def _swap(plain: Plain) -> None:
    first, second = plain["snapshots"]
    first["manifest-list"] = second["manifest-list"]


def _older_child(plain: Plain) -> None:
    plain["snapshots"][-1]["timestamp-ms"] -= _HOUR_MS


def _log_order(plain: Plain) -> None:
    plain["snapshot-log"][0]["timestamp-ms"] += _HOUR_MS


def _spec_id(plain: Plain) -> None:
    plain["partition-specs"][0]["spec-id"] = plain["default-spec-id"] = 7


def _repeated_id(plain: Plain) -> None:
    plain["schemas"][0]["fields"][1]["id"] = 1


def _retyped(plain: Plain) -> None:
    plain["schemas"][0]["fields"][1]["type"] = "double"


def _reused(plain: Plain) -> None:
    (schema,) = plain["schemas"]
    fields = schema["fields"]
    without = {**schema, "schema-id": 1, "fields": fields[:1]}
    again = {**schema, "schema-id": 2, "fields": [fields[0], {**fields[1], "name": "other"}]}
    plain["schemas"] += [without, again]
    plain["current-schema-id"] = 2


def _second_schema(plain: Plain) -> None:
    plain["schemas"].append(plain["schemas"][0])


def _lost_source(plain: Plain) -> None:
    fields = plain["schemas"][0]["fields"]
    plain["schemas"].append({**plain["schemas"][0], "schema-id": 1, "fields": fields[:1]})
    plain["current-schema-id"] = 1


def _renamed_field(plain: Plain) -> None:
    for spec in plain["partition-specs"]:
        for field in spec["fields"]:
            field["name"] = "id"


def _lost_order(plain: Plain) -> None:
    field = {
        "source-id": 9,
        "transform": "identity",
        "direction": "asc",
        "null-order": "nulls-first",
    }
    plain["sort-orders"].append({"order-id": 1, "fields": [field]})
    plain["default-sort-order-id"] = 1


def _other_spec(plain: Plain) -> None:
    plain["partition-specs"][0]["fields"][0]["transform"] = "void"


def _statistics(snapshot_id: int | None = None, **values: Any) -> Damage:
    """Let a snapshot have a statistics file with some content."""

    def damage(lake: CommandLine) -> None:
        lake.ok("stats", "db.t")

        def change(plain: Plain) -> None:
            (item,) = plain["statistics"]
            item.update({key.replace("_", "-"): value for key, value in values.items()})
            item["snapshot-id"] = snapshot_id or item["snapshot-id"]

        edit_metadata(lake.warehouse, change)

    return damage


def _blobs(lake: CommandLine) -> None:
    _statistics()(lake)
    edit_metadata(
        lake.warehouse,
        lambda plain: plain["statistics"][0]["blob-metadata"][0].update({"fields": [9]}),
    )


def _statistics_file(change: Callable[[Path], object]) -> Damage:
    def damage(lake: CommandLine) -> None:
        _statistics()(lake)
        (item,) = read_metadata(lake.warehouse)["statistics"]
        change(by_hand.local(item["statistics-path"]))

    return damage


def _previous(change: Callable[[Path], object]) -> Damage:
    """Change the metadata file before the current one."""

    def damage(lake: CommandLine) -> None:
        log = read_metadata(lake.warehouse)["metadata-log"]
        change(by_hand.local(log[-1]["metadata-file"]))

    return damage


def _other_uuid(path: Path) -> None:
    plain = json.loads(path.read_text())
    plain["table-uuid"] = "11111111-2222-3333-4444-555555555555"
    path.write_text(json.dumps(plain))


def _enlarge(plain: Plain) -> None:
    plain["snapshots"][0]["summary"]["padding"] = "x" * 6_000_000


def _second_name(lake: CommandLine) -> None:
    location = open_session(lake.warehouse).table("db.t").metadata_location
    catalog = open_session(lake.warehouse).catalog.handle
    catalog.register_table("db.copy", location)


def _moved(lake: CommandLine) -> None:
    path = data_files(lake)[0]
    outside = lake.warehouse.parent / path.name
    shutil.copy(path, outside)
    file_edited(file_path=f"file://{outside}")(lake)


def _deletes(write: Callable[[Any, str], list[Any]]) -> Damage:
    """Commit delete files for the oldest data file, or for a name."""

    def damage(lake: CommandLine) -> None:
        table = open_session(lake.warehouse).table("db.t")
        commit_deletes(table, *write(table, f"file://{data_files(lake)[0]}"))

    return damage


def _second_vector(lake: CommandLine) -> None:
    """Let a copy of a vector's entry name another file."""
    path = data_files(lake, 1)[0]
    copy = path.with_name("copy.puffin")
    shutil.copy(path, copy)

    def change(entries: list[Any]) -> None:
        second = {**entries[0]["data_file"], "file_path": f"file://{copy}"}
        entries.append({**entries[0], "data_file": second})

    entries_edited(change, 1)(lake)


def _as_position_file(lake: CommandLine) -> None:
    """Let a copy of a vector's entry be that of a position delete file."""

    def change(entries: list[Any]) -> None:
        changes = {
            "file_path": entries[0]["data_file"]["file_path"] + ".x",
            "file_format": "PARQUET",
        }
        changes |= {"content_offset": None, "content_size_in_bytes": None}
        entries.append({**entries[0], "data_file": {**entries[0]["data_file"], **changes}})

    entries_edited(change, 1)(lake)


def _bare_vector(lake: CommandLine) -> None:
    """Replace a Puffin file by its blob alone, as early versions of DuckDB write it."""
    path = data_files(lake, 1)[0]
    (entry,), _, _ = by_hand.read_avro(manifests_of(lake, 1)[0])
    file = entry["data_file"]
    start, size = file["content_offset"], file["content_size_in_bytes"]
    path.write_bytes(path.read_bytes()[start : start + size])
    file_edited(1, content_offset=0, file_size_in_bytes=size)(lake)


def _entry_schema(lake: CommandLine) -> None:
    """Put the schema of manifest entries where that of the table belongs, as DuckDB once did."""
    _, _, header = by_hand.read_avro(manifests_of(lake)[0])
    fields = [
        {"id": 0, "name": "status", "required": True, "type": "int"},
        {"id": 2, "name": "data_file", "required": True, "type": "string"},
    ]
    schema = json.dumps({"type": "struct", "schema-id": 0, "fields": fields})
    assert "schema" in header
    entries_edited(lambda entries: None, header={"schema": schema})(lake)


def _negative_rows(lake: CommandLine) -> None:
    file_edited(record_count=-1)(lake)
    rows_edited(lambda row: row.update(added_rows_count=2))(lake)


def _same_pair(lake: CommandLine) -> None:
    """Give an equality delete file the sequence number of its data."""
    entry_edited(1, sequence_number=2, file_sequence_number=3)(lake)


def _summary(**values: Any) -> Damage:
    return rows_edited(lambda row: row["partitions"][0].update(values))


def _row_ids(plain: Plain) -> None:
    first, second = plain["snapshots"]
    second["first-row-id"] = first["first-row-id"]


def _renamed_file(plain: Plain) -> None:
    plain["schemas"][0]["fields"][0]["id"] = 8
    plain["last-column-id"] = 8


def _struct_bound(lake: CommandLine) -> None:
    """Lower the upper bound of a field of a struct."""
    schema = open_session(lake.warehouse).table("db.t").schema
    metric_edited("upper_bounds", schema.find_field("a.b").field_id, pack("<q", 2))(lake)


def _require(lake: CommandLine) -> None:
    """Let a column be required of which a file has no values."""
    file_replaced(
        pa.table({"id": [1, None], "name": ["a", "b"]}, _COLUMNS), write_statistics=False
    )(lake)
    edit_metadata(
        lake.warehouse, lambda plain: plain["schemas"][0]["fields"][0].update(required=True)
    )


def _fields(*kinds: pa.DataType, ids: tuple[int, ...] = (1, 2)) -> pa.Schema:
    return pa.schema(
        [
            pa.field(name, kind, metadata={"PARQUET:field_id": str(number)})
            for number, name, kind in zip(ids, ("id", "name"), kinds, strict=False)
        ]
    )


_COLUMNS = _fields(pa.int64(), pa.string())
_TEXTS = _fields(pa.string(), pa.string())


def _link(path: Path) -> None:
    moved = path.rename(path.with_suffix(".moved"))
    path.symlink_to(moved)


class Kind(NamedTuple):
    """A kind of damage: the code that names it, the table, what is done, and other codes that may name it too."""

    code: str
    table: str
    damage: Damage
    also: set[str] = set()


METADATA = {
    "the metadata log's last file is gone": Kind("G002", "plain", _previous(Path.unlink)),
    "the metadata log's last file is damaged": Kind("G003", "plain", _previous(by_hand.cut)),
    "the metadata log's last file is of another table": Kind(
        "G003", "plain", _previous(_other_uuid)
    ),
    "the snapshot log is not sorted": Kind("G001", "plain", edited(_log_order)),
    "the metadata ends before its log": Kind(
        "G001", "plain", edited(lambda plain: plain.update({"last-updated-ms": 1}))
    ),
    "the metadata is large": Kind("G004", "plain", edited(_enlarge)),
    "two tables in one folder": Kind("G005", "plain", _second_name),
    "a file outside the folder": Kind("G006", "plain", _moved),
    "a tag of no snapshot": Kind(
        "R001",
        "plain",
        edited(lambda plain: plain["refs"].update(x={"type": "tag", "snapshot-id": 7})),
    ),
    "a schema does not exist": Kind("R002", "plain", _of_snapshot(-1, schema_id=77)),
    "a snapshot beyond the table": Kind(
        "R003", "plain", _of_snapshot(-1, sequence_number=99), {"E007", "L007"}
    ),
    "main is not the current snapshot": Kind("R004", "plain", edited(_refs)),
    "main is a tag": Kind(
        "R004", "plain", edited(lambda plain: plain["refs"]["main"].update(type="tag"))
    ),
    "parents form a cycle": Kind("R005", "plain", edited(_cycle), {"R007"}),
    "a parent does not exist": Kind("R006", "plain", edited(_orphan)),
    "two snapshots of one sequence number": Kind(
        "R007", "plain", edited(_same_number), {"E007", "L004", "L007"}
    ),
    "a snapshot is older than its parent": Kind("R008", "plain", edited(_older_child)),
    "two schemas of one id": Kind("C001", "plain", edited(_second_schema)),
    "two columns of one id": Kind("C002", "plain", edited(_repeated_id), {"C005"}),
    "the last column id is too low": Kind(
        "C003", "plain", edited(lambda plain: plain.update({"last-column-id": 1}))
    ),
    "the last partition id is too low": Kind(
        "C004", "partitioned", edited(lambda plain: plain.update({"last-partition-id": 999}))
    ),
    "a column has the id of one of another type": Kind("C005", "plain", edited(_retyped)),
    "a column has the id of a dropped one": Kind("C005", "plain", edited(_reused)),
    "a partition field of no column": Kind("C006", "partitioned", edited(_lost_source)),
    "a sort order of no column": Kind("C006", "plain", edited(_lost_order)),
    "a partition field has the name of a column": Kind(
        "C007", "partitioned", edited(_renamed_field)
    ),
    "the next row id is too low": Kind(
        "N001", "version 3", edited(lambda plain: plain.update({"next-row-id": 1}))
    ),
    "two snapshots of the same row ids": Kind("N002", "version 3", edited(_row_ids)),
    "two files of the same row ids": Kind(
        "N002", "version 3", rows_edited(lambda row: row.update(first_row_id=1))
    ),
    "a manifest without row ids": Kind(
        "N003", "version 3", rows_edited(lambda row: row.update(first_row_id=None))
    ),
    "a manifest list is gone": Kind("L001", "plain", lambda lake: lists_of(lake)[0].unlink()),
    "a manifest list is cut": Kind("L002", "plain", lambda lake: by_hand.cut(lists_of(lake)[0])),
    "a manifest list is empty": Kind(
        "L002", "plain", lambda lake: _void(lists_of(lake)[0].write_bytes(b""))
    ),
    "a manifest list is not Avro": Kind(
        "L002", "plain", lambda lake: _void(lists_of(lake)[0].write_bytes(b"x" * 99))
    ),
    "a list is too short": Kind("L003", "plain", _total("total-data-files", "9", 0)),
    "a list of a later snapshot": Kind("L004", "plain", edited(_swap), {"T002"}),
    "a lower partition bound excludes a file": Kind(
        "L005", "partitioned", _summary(lower_bound=b"b")
    ),
    "an upper partition bound excludes a file": Kind(
        "L005", "partitioned", _summary(upper_bound=b"a")
    ),
    "a partition summary without bounds": Kind("L005", "partitioned", _summary(lower_bound=None)),
    "too many partition summaries": Kind(
        "L005",
        "partitioned",
        rows_edited(lambda row: row["partitions"].append(row["partitions"][0])),
    ),
    "the minimum sequence number is too high": Kind(
        "L006", "plain", rows_edited(lambda row: row.update(min_sequence_number=9))
    ),
    "a manifest of another sequence number": Kind(
        "L007", "plain", rows_edited(lambda row: row.update(sequence_number=2)), {"L004", "E007"}
    ),
    "a manifest is gone": Kind("M001", "plain", lambda lake: manifests_of(lake)[0].unlink()),
    "a manifest is cut": Kind("M002", "plain", lambda lake: by_hand.cut(manifests_of(lake)[0])),
    "a manifest is empty": Kind(
        "M002", "plain", lambda lake: _void(manifests_of(lake)[0].write_bytes(b""))
    ),
    "a manifest has other counts": Kind(
        "M002", "plain", rows_edited(lambda row: row.update(added_files_count=2)), {"T002"}
    ),
    "an entry newer than its manifest": Kind("M002", "plain", entry_edited(sequence_number=99)),
    "an entry of unknown status": Kind("M002", "plain", entry_edited(status=7), {"L003"}),
    "a negative number of rows": Kind("M002", "plain", _negative_rows),
    "a negative size": Kind("M002", "plain", file_edited(file_size_in_bytes=-1)),
    "a spec does not exist": Kind("M003", "plain", edited(_spec_id)),
    "a header of another content": Kind(
        "M004", "plain", entries_edited(lambda entries: None, header={"content": "deletes"})
    ),
    "a header of another spec": Kind(
        "M004", "plain", entries_edited(lambda entries: None, header={"partition-spec-id": "3"})
    ),
    "a header of a later format": Kind(
        "M004", "plain", entries_edited(lambda entries: None, header={"format-version": "3"})
    ),
    "a spec of the same id has another transform": Kind("M005", "partitioned", edited(_other_spec)),
    "a header with the schema of entries": Kind("M006", "plain", _entry_schema),
    "a file is in a snapshot twice": Kind(
        "E001",
        "plain",
        entries_edited(lambda entries: entries.append(entries[0])),
        {"T001", "T002"},
    ),
    "an equality delete has no columns": Kind(
        "E002", "equality deletes", file_edited(1, equality_ids=None)
    ),
    "a vector ends after its file": Kind(
        "E003", "vectors", file_edited(1, content_size_in_bytes=99_999)
    ),
    "an equality delete of an unknown column": Kind(
        "E004", "equality deletes", file_edited(1, equality_ids=[77])
    ),
    "position deletes of an unknown file": Kind(
        "E005", "position deletes", file_edited(1, referenced_data_file="file:///none.parquet")
    ),
    "equality deletes without older data": Kind(
        "E005", "equality deletes", entry_edited(1, sequence_number=0), {"L006"}
    ),
    "a delete file of the same sequence number as its data": Kind(
        "E006", "equality deletes", _same_pair, {"L006"}
    ),
    "an entry newer than when it was added": Kind(
        "E007", "plain", entry_edited(sequence_number=1, file_sequence_number=0)
    ),
    "a vector without its data file": Kind(
        "E008", "vectors", file_edited(1, referenced_data_file=None), {"V005"}
    ),
    "a vector without an offset": Kind("E008", "vectors", file_edited(1, content_offset=None)),
    "a sort order that does not exist": Kind("E009", "plain", file_edited(sort_order_id=5)),
    "two vectors of one data file": Kind("V003", "vectors", _second_vector, {"T001"}),
    "a vector and a position delete file of one data file": Kind(
        "V004", "vectors", _as_position_file, {"T001"}
    ),
    "a vector of an unknown file": Kind(
        "V005", "vectors", file_edited(1, referenced_data_file="file:///none.parquet")
    ),
    "a vector older than its data file": Kind(
        "V006", "vectors", entry_edited(1, sequence_number=0), {"L006"}
    ),
    "a total no list explains": Kind("T001", "plain", _total("total-data-files", "9"), {"L003"}),
    "rows are miscounted": Kind("T001", "plain", _total("total-records", "9")),
    "files are miscounted": Kind("T001", "plain", _total("total-data-files", "1")),
    "deletes are miscounted": Kind(
        "T001", "position deletes", _total("total-position-deletes", "9")
    ),
    "added files are miscounted": Kind("T002", "plain", _total("added-data-files", "2", 0)),
    "statistics of nothing": Kind("S001", "plain", _statistics(7)),
    "statistics are gone": Kind("S002", "plain", _statistics_file(Path.unlink)),
    "statistics have another size": Kind("S002", "plain", _statistics_file(by_hand.lengthen)),
    "statistics without a footer": Kind("S003", "plain", _statistics_file(by_hand.flip(-1))),
    "statistics of another column": Kind("S003", "plain", _blobs),
}
FILES = {
    "a data file is gone": Kind("F001", "plain", file_changed(Path.unlink)),
    "a data file is a link": Kind("F001", "plain", file_changed(_link)),
    "a delete file is gone": Kind("F002", "position deletes", file_changed(Path.unlink, 1)),
    "a data file is cut": Kind("F003", "plain", file_changed(by_hand.cut)),
    "a data file has more bytes": Kind("F003", "plain", file_changed(by_hand.lengthen)),
    "a data file is empty": Kind("F003", "plain", file_changed(lambda path: path.write_bytes(b""))),
    "a delete file is cut": Kind("F003", "position deletes", file_changed(by_hand.cut, 1)),
    "a partition outside the bounds": Kind(
        "P001", "by truncated ids", file_edited(partition={"id_trunc_10": 10}), {"L005"}
    ),
}
ROWS = {
    "a file has fewer rows": Kind("D002", "plain", file_edited(record_count=1), {"T001"}),
    "a lower bound excludes a row": Kind(
        "D004", "plain", metric_edited("lower_bounds", 1, pack("<q", 2))
    ),
    "an upper bound excludes a row": Kind("D004", "plain", metric_edited("upper_bounds", 2, b"a")),
    "a bound has another type": Kind("D004", "plain", metric_edited("upper_bounds", 1, b"a")),
    "a bound excludes a field of a struct": Kind("D004", "structs", _struct_bound),
    "NULLs are miscounted": Kind("D005", "plain", metric_edited("null_value_counts", 1, 2)),
    "a NULL is not counted": Kind(
        "D005", "plain", file_replaced(pa.table({"id": [1, None], "name": ["a", "b"]}, _COLUMNS))
    ),
    "one NULL of two rows is counted": Kind(
        "D008", "plain", metric_edited("null_value_counts", 1, 1)
    ),
    "a column has another type": Kind(
        "D003", "plain", file_replaced(pa.table({"id": ["x", "y"], "name": ["a", "b"]}, _TEXTS))
    ),
    "a text is not valid": Kind(
        "D004",
        "plain",
        file_replaced(
            pa.table(
                {"id": [1, 2], "name": pa.array([b"\xff", b"\xfe"]).view(pa.string())}, _COLUMNS
            )
        ),
    ),
    "a file has two columns of one id": Kind(
        "D001",
        "plain",
        file_replaced(
            pa.table(
                {"id": [1, 2], "name": ["a", "b"]},
                _fields(pa.int64(), pa.string(), ids=(1, 1)),
            )
        ),
    ),
    "a data file's footer is damaged": Kind("D001", "plain", file_changed(by_hand.scramble)),
    "a delete file's footer is damaged": Kind(
        "D001", "position deletes", file_changed(by_hand.scramble, 1)
    ),
    "an equality delete file lacks a column": Kind(
        "D006", "equality deletes", file_edited(1, equality_ids=[1, 2])
    ),
    "a file of an unknown format": Kind("D007", "plain", file_edited(file_format="LANCE")),
    "a vector is damaged": Kind("V001", "vectors", file_changed(by_hand.flip(20), 1)),
    "a vector has other positions": Kind(
        "V001", "vectors", file_edited(1, record_count=2), {"T001"}
    ),
    "a vector deletes a row after the end": Kind(
        "V002", "version 3", _deletes(lambda table, path: vectors(table, {path: [7]}))
    ),
    "a vector without a Puffin file": Kind("V007", "vectors", _bare_vector),
}
DEEP = {
    "a page is damaged": Kind("D009", "plain", file_changed(by_hand.flip(60))),
    "a page of a delete file is damaged": Kind(
        "D009", "position deletes", file_changed(by_hand.flip(60), 1)
    ),
    "values outside the bounds": Kind(
        "D004",
        "plain",
        file_replaced(
            pa.table({"id": [1, 9], "name": ["a", "b"]}, _COLUMNS), write_statistics=False
        ),
    ),
    "NULLs that nothing counts": Kind(
        "D005",
        "plain",
        file_replaced(
            pa.table({"id": [1, None], "name": ["a", "b"]}, _COLUMNS), write_statistics=False
        ),
    ),
    "NaNs are miscounted": Kind("D005", "numbers", metric_edited("nan_value_counts", 1, 0)),
    "a required column has NULL": Kind("D009", "plain", _require),
    "rows of another partition": Kind(
        "P001",
        "partitioned",
        file_replaced(pa.table({"id": [1], "name": ["c"]}, _COLUMNS), write_statistics=False),
        {"D004"},
    ),
    "a position after the end of a file": Kind(
        "V002", "plain", _deletes(lambda table, path: [position_file(table, [(path, 7)])])
    ),
    "an equality delete file of another type": Kind(
        "D009",
        "equality deletes",
        file_replaced(pa.table({"id": ["x"]}, _fields(pa.string())), 1),
    ),
}
DAMAGES = {
    **{name: (kind, "metadata") for name, kind in METADATA.items()},
    **{name: (kind, "files") for name, kind in FILES.items()},
    **{name: (kind, "rows") for name, kind in ROWS.items()},
    **{name: (kind, "deep") for name, kind in DEEP.items()},
}


def _void(_: object) -> None:
    return None


def _codes(lake: CommandLine, level: str) -> tuple[dict[str, str], Any, int]:
    options = () if level == "metadata" else (f"--{level}",)
    found = lake("--json", "check", "db.t", *options)
    document = json.loads(found.stdout)
    codes = {item["code"]: item["severity"] for item in document["result"]["findings"]}
    return codes, document, found.exit_code


def _table(built_once: BuiltOnce, name: str) -> CommandLine:
    """Return a warehouse with one of the `TABLES`."""
    folder = built_once.folder(name, lambda folder: TABLES[name](CommandLine(folder / "warehouse")))
    return CommandLine(folder / "warehouse")


@pytest.fixture
def in_tasks(monkeypatch: pytest.MonkeyPatch) -> Callable[[Settings], Session]:
    """Open sessions in which a task reads each manifest."""
    monkeypatch.setattr(batches, "_TASK_BYTES", 1)

    def opened(settings: Settings) -> Session:
        session = sessions.open_session(settings)
        session.manifest_engine = lambda _: InlineEngine(1)  # type: ignore[method-assign]
        return session

    return opened


def _in_parts(lake: CommandLine, level: str) -> Any:
    """Return what a check finds that keeps the files on disk, as it does those of large tables."""
    with patch.object(snapshot_contents, "MEMORY_BYTES", 0):
        return _codes(lake, level)[1]


def _sorted(document: Any) -> list[tuple[str, str, str]]:
    found = document["result"]["findings"]
    return sorted((item["code"], item["place"], item["message"]) for item in found)


@pytest.mark.parametrize("name", DAMAGES)
def test_damage_is_named_by_its_code(
    built_once: BuiltOnce, name: str, in_tasks: Callable[[Settings], Session]
) -> None:
    kind, level = DAMAGES[name]
    lake = _table(built_once, kind.table)
    kind.damage(lake)

    codes, document, exit_code = _codes(lake, level)

    assert kind.code in codes
    assert set(codes) <= {kind.code, *kind.also}
    severities = set(codes.values())
    status, expected = ("done", 0) if severities == {"note"} else ("suspect", 6)
    if "error" in severities:
        status, expected = "damaged", 7
    assert (document["status"], exit_code) == (status, expected)
    assert _sorted(_in_parts(lake, level)) == _sorted(document)
    if level == "metadata":
        of_tasks = CommandLine(lake.warehouse, open_session=in_tasks)
        assert _sorted(_codes(of_tasks, level)[1]) == _sorted(document)


@pytest.mark.parametrize("name", TABLES)
def test_tables_without_damage_have_no_findings(built_once: BuiltOnce, name: str) -> None:
    lake = _table(built_once, name)
    for level in ("metadata", "deep"):
        assert _codes(lake, level)[0] == {}
        assert _sorted(_in_parts(lake, level)) == []


@pytest.mark.parametrize("name", FILES)
def test_damage_of_files_is_not_looked_for_in_metadata(built_once: BuiltOnce, name: str) -> None:
    kind = FILES[name]
    lake = _table(built_once, kind.table)
    kind.damage(lake)
    assert kind.code not in _codes(lake, "metadata")[0]


def test_at_least_45_kinds_of_damage_are_made_by_hand() -> None:
    assert len(DAMAGES) >= 45


def test_the_manual_lists_each_code_with_its_meaning() -> None:
    manual = (ROOT / "commands/README.md").read_text()
    listed = re.findall(r"^\| `([A-Z]\d{3})` \| (\w+) \| .+ \| (.+) \| (.+) \|$", manual, re.M)
    assert listed == [(code, *kind[:3]) for code, kind in KINDS.items()]
