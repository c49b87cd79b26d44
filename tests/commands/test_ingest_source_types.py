"""Types of sources that Iceberg does not have, or that a new table has in format version 3 only."""

from __future__ import annotations

import decimal
import uuid
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hostile.parquet_edits import footer, with_footer
from pyarrow import orc
from support.cli.command_line import CommandLine

V3 = ("--property", "format-version=3")
# What a column's entry in Parquet's footer has at its end, in Thrift's compact form: the annotation.
VARIANT = bytes.fromhex("5c0c2013010000")
ENUM = bytes.fromhex("25084c4c0000")
INTERVAL = bytes.fromhex("252a")


class Geometry(pa.ExtensionType):  # type: ignore[misc]
    """Makes PyArrow write Parquet's GEOMETRY, or GEOGRAPHY if edges are given."""

    def __init__(self, edges: bytes) -> None:
        self.edges = edges
        super().__init__(pa.binary(), "geoarrow.wkb")

    def __arrow_ext_serialize__(self) -> bytes:
        return b'{"edges": "%s"}' % self.edges if self.edges else b"{}"


def write(folder: Path, name: str = "source.parquet", **columns: Any) -> Path:
    path = folder / name
    table = pa.table(columns)
    if name.endswith(".orc"):
        orc.write_table(table, path)
    elif name.endswith(".arrow"):
        with pa.ipc.new_file(path, table.schema) as file:
            file.write_table(table)
    else:
        pq.write_table(table, path, store_schema=False)
    return path


def annotate(path: Path, name: str, annotation: bytes, children: bytes = b"") -> Path:
    """Give a column of a Parquet file an annotation that PyArrow cannot write."""
    data = path.read_bytes()
    old = b"\x18" + bytes([len(name.encode())]) + name.encode() + children
    thrift = footer(data)
    assert thrift.count(old + b"\x00") == 1
    path.write_bytes(with_footer(data, thrift.replace(old + b"\x00", old + annotation + b"\x00")))
    return path


def types_of(document: dict[str, Any]) -> dict[str, str]:
    return {column["name"]: column["type"] for column in document["plan"]["schema"]}


def preview(lake: CommandLine, table: str = "db.t") -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = lake.ok("scan", table)["result"]["preview"]
    return rows


@pytest.mark.parametrize("name", ["s.parquet", "s.arrow"])
def test_a_column_without_a_type_is_unknown_in_version_3_and_a_string_with_a_warning_in_2(
    name: str, lake: CommandLine, tmp_path: Path
) -> None:
    path = write(tmp_path, name, id=[1], n=pa.nulls(1))

    old = lake.ok("ingest", "db.old", path, "--create")
    new = lake.ok("ingest", "db.t", path, "--create", *V3)

    assert types_of(old) == {"id": "long", "n": "string"}
    (warning,) = old["warnings"]
    assert "column n has no type" in warning
    assert types_of(new) == {"id": "long", "n": "unknown"}
    assert not new["warnings"]
    assert preview(lake) == [{"id": 1, "n": None}]


@pytest.mark.parametrize("name", ["e.csv", "e.json"])
def test_a_column_of_a_text_file_without_a_value_is_a_string(
    name: str, lake: CommandLine, tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_text("id,n\n1,\n" if name == "e.csv" else '{"id": 1, "n": null}\n')

    done = lake.ok("ingest", "db.t", path, "--create", *V3)

    assert types_of(done) == {"id": "long", "n": "string"}
    assert not done["warnings"]


def test_evolve_gives_an_unknown_column_the_type_of_a_source(
    lake: CommandLine, tmp_path: Path
) -> None:
    nulls = pa.array([{"a": 1, "u": None}], pa.struct([("a", pa.int32()), ("u", pa.null())]))
    lake.ok("ingest", "db.t", write(tmp_path, id=[1], n=pa.nulls(1), s=nulls), "--create", *V3)
    known = pa.array([{"a": 2, "u": "x"}], pa.struct([("a", pa.int32()), ("u", pa.string())]))
    path = write(tmp_path, id=[2], n=[7], s=known)

    refused = lake("ingest", "db.t", path)
    done = lake.ok("ingest", "db.t", path, "--evolve")

    assert refused.exit_code == 7
    assert "column n as long, the table as unknown (--evolve sets its type)" in refused.stderr
    assert types_of(done)["n"] == "long"
    assert sorted(preview(lake), key=lambda row: row["id"]) == [
        {"id": 1, "n": None, "s": {"a": 1, "u": None}},
        {"id": 2, "n": 7, "s": {"a": 2, "u": "x"}},
    ]
    lake.ok("compact", "db.t", "--rewrite-all", "--verify")
    assert [row["n"] for row in sorted(preview(lake), key=lambda row: row["id"])] == [None, 7]


@pytest.mark.parametrize("name", ["s.parquet", "s.arrow", "s.orc"])
@pytest.mark.parametrize("zone", [None, "UTC"])
def test_nanoseconds_are_kept_in_version_3_and_never_lost_in_2(
    name: str, zone: str | None, lake: CommandLine, tmp_path: Path
) -> None:
    kind = pa.timestamp("ns", zone)
    exact = write(tmp_path, f"exact-{name}", id=[1], ts=pa.array([1_000], kind))
    fine = write(tmp_path, f"fine-{name}", id=[2, 3], ts=pa.array([2_000, 3_001], kind))
    expected = "timestamp" if zone is None else "timestamptz"

    made = lake.ok("ingest", "db.old", exact, "--create")
    refused = lake("ingest", "db.old", fine)
    kept = lake.ok("ingest", "db.t", fine, "--create", *V3)

    assert types_of(made)["ts"] == expected
    (warning,) = made["warnings"]
    assert f"(with --property format-version=3 it becomes {expected}_ns)" in warning
    assert refused.exit_code == 7
    for part in ("column ts", "row 2", "it has nanoseconds", "--property format-version=3"):
        assert part in refused.stderr
    assert types_of(kept)["ts"] == f"{expected}_ns"
    assert [row["ts"].rstrip("Z")[-9:] for row in preview(lake)] == ["000002000", "000003001"]
    assert len(preview(lake, "db.old")) == 1


def test_a_time_with_nanoseconds_is_refused_with_what_to_do(
    lake: CommandLine, tmp_path: Path
) -> None:
    path = write(tmp_path, at=pa.array([1_001], pa.time64("ns")))

    refused = lake("ingest", "db.t", path, "--create", *V3)

    assert refused.exit_code == 7
    assert "round the values to microseconds" in refused.stderr
    assert "column at is time_ns" in refused.stderr


@pytest.mark.parametrize(("edges", "kind"), [(b"", "GEOMETRY"), (b"spherical", "GEOGRAPHY")])
@pytest.mark.parametrize("nested", [False, True])
def test_geometry_and_geography_never_become_binary_in_silence(
    edges: bytes, kind: str, nested: bool, lake: CommandLine, tmp_path: Path
) -> None:
    shapes = pa.ExtensionArray.from_storage(Geometry(edges), pa.array([bytes(21)]))
    column = pa.StructArray.from_arrays([shapes], ["x"]) if nested else shapes
    path = write(tmp_path, id=[1], g=column)
    bytes_only = pa.array([{"x": b""}]) if nested else pa.array([b""])
    plain = write(tmp_path, "plain.parquet", id=[0], g=bytes_only)

    refused = lake("ingest", "db.t", path, "--create", *V3)
    assert refused.exit_code == 3
    assert f"column {'g.x' if nested else 'g'} is Parquet's {kind}" in refused.stderr

    lake.ok("ingest", "db.t", plain, "--create")
    lake.ok("ingest", "db.t", path)
    assert len(preview(lake)) == 2


def test_an_interval_is_refused_and_an_enum_is_a_text(lake: CommandLine, tmp_path: Path) -> None:
    spans = annotate(write(tmp_path, i=pa.array([bytes(12)], pa.binary(12))), "i", INTERVAL)
    words = annotate(write(tmp_path, "e.parquet", e=pa.array([b"red"])), "e", ENUM)

    refused = lake("ingest", "db.t", spans, "--create")
    made = lake.ok("ingest", "db.t", words, "--create")

    assert refused.exit_code == 3
    assert "column i is Parquet's INTERVAL" in refused.stderr
    assert types_of(made) == {"e": "string"}
    assert preview(lake) == [{"e": "red"}]


@pytest.mark.parametrize("shredded", [False, True])
@pytest.mark.parametrize("nested", [False, True])
def test_a_variant_never_becomes_a_struct(
    shredded: bool, nested: bool, lake: CommandLine, tmp_path: Path
) -> None:
    parts = [("metadata", pa.binary()), ("value", pa.binary())]
    parts += [("typed_value", pa.int64())] if shredded else []
    kind = pa.struct(parts)
    value = {"metadata": b"\x01\x00\x00", "value": b"\x0c\x07"}
    column = pa.array(
        [{"v": value}] if nested else [value], pa.struct([("v", kind)]) if nested else kind
    )
    named = {"s" if nested else "v": column}
    plain = write(tmp_path, "plain.parquet", id=[1], **named)
    lake.ok("ingest", "db.structs", plain, "--create")
    # How many children the group has: 2 or 3, as Thrift has numbers.
    children = bytes([0x15, 6 if shredded else 4])
    path = annotate(write(tmp_path, id=[1], **named), "v", VARIANT, children)

    for options in (("db.t", path, "--create", *V3), ("db.structs", path)):
        refused = lake("ingest", *options)
        assert refused.exit_code == 3, refused
        assert f"column {'s.v' if nested else 'v'} of {path} is Parquet's VARIANT" in refused.stderr
    assert len(preview(lake, "db.structs")) == 1


@pytest.mark.parametrize("name", ["v.w", "v.", ".v", "v (x) {", "v\u2028", "v\n", "v;\nw"])
@pytest.mark.parametrize("struct", ["", "s", "s.t"])
@pytest.mark.parametrize("other", ["n.m", "n;\n;\n;\n;\n"])
def test_a_variant_is_found_whatever_its_name_contains(
    struct: str, name: str, other: str, lake: CommandLine, tmp_path: Path
) -> None:
    value = {"metadata": b"\x01\x00\x00", "value": b"\x0c\x07"}
    column = pa.array([value], pa.struct([("metadata", pa.binary()), ("value", pa.binary())]))
    if struct:
        column = pa.StructArray.from_arrays([column, pa.array([1])], [name, other])
    written = write(tmp_path, **{"id": [1], other: [1], struct or name: column, "z.z": [2]})
    path = annotate(written, name, VARIANT, b"\x15\x04")

    refused = lake("--json", "ingest", "db.t", path, "--create", *V3)

    assert refused.exit_code == 3, refused
    message = refused.json()["error"]["message"]
    assert "is Parquet's VARIANT" in message
    if f"{name}{other}".isprintable():
        full = f"{struct}.{name}" if struct else name
        assert message.startswith(f"column {full} of {path} ")


def test_an_extension_that_arrow_does_not_know_is_reported(
    lake: CommandLine, tmp_path: Path
) -> None:
    named = pa.field("g", pa.binary(), metadata={"ARROW:extension:name": "geoarrow.wkb"})
    table = pa.table({"g": pa.array([b"x"])}).cast(pa.schema([named]))
    path = tmp_path / "g.arrow"
    with pa.ipc.new_file(path, table.schema) as file:
        file.write_table(table)

    (warning,) = lake.ok("ingest", "db.t", path, "--create", "--dry-run")["warnings"]

    assert warning.startswith("column g has the extension type geoarrow.wkb")


def test_a_table_of_version_2_does_not_take_the_types_of_version_3_of_another(
    lake: CommandLine, tmp_path: Path
) -> None:
    times = pa.array([{"ts": 1}], pa.struct([("ts", pa.timestamp("ns"))]))
    lake.ok("ingest", "db.t", write(tmp_path, id=[1], n=pa.nulls(1), s=times), "--create", *V3)

    refused = lake("ingest", "db.old", "--from-table", "db.t", "--create")
    lake.ok("ingest", "db.new", "--from-table", "db.t", "--create", *V3)

    assert refused.exit_code == 3
    assert "column n of db.t is of the type unknown" in refused.stderr
    assert "--property format-version=3" in refused.stderr
    assert preview(lake, "db.new") == preview(lake)


def test_a_new_table_is_not_partitioned_by_the_values_of_a_fixed_column(
    lake: CommandLine, tmp_path: Path
) -> None:
    path = write(tmp_path, id=[1], f=pa.array([b"abcde"], pa.binary(5)))

    refused = lake("ingest", "db.t", path, "--create", "--partition-by", "f")
    lake.ok("ingest", "db.t", path, "--create", "--partition-by", "bucket(4, f)")
    again = lake.ok("ingest", "db.t", path, "--create", "--partition-by", "f")

    assert refused.exit_code == 3
    assert (
        "Iceberg Java cannot read a table that is partitioned by the values of f" in refused.stderr
    )
    assert "bucket(16, f)" in refused.stderr
    assert "is partitioned by" in again["warnings"][0]


def avro(folder: Path, kind: dict[str, Any], value: object) -> Path:
    path = folder / f"{kind['logicalType']}.avro"
    fields = [{"name": "x", "type": ["null", kind]}]
    with path.open("wb") as file:
        fastavro.writer(file, {"type": "record", "name": "r", "fields": fields}, [{"x": value}])
    return path


@pytest.mark.parametrize(
    ("kind", "value", "named"),
    [
        (
            {"type": "fixed", "name": "d", "size": 12, "logicalType": "duration"},
            bytes(12),
            "duration",
        ),
        ({"type": "bytes", "logicalType": "big-decimal"}, b"\x00", "big-decimal"),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 50, "scale": 0},
            decimal.Decimal(7),
            "decimal of 50 digits",
        ),
    ],
)
def test_logical_types_of_avro_never_become_bytes_in_silence(
    kind: dict[str, Any], value: object, named: str, lake: CommandLine, tmp_path: Path
) -> None:
    refused = lake("ingest", "db.t", avro(tmp_path, kind, value), "--create")

    assert refused.exit_code == 3, refused
    assert f"column x is Avro's {named}" in refused.stderr


def test_a_uuid_of_avro_is_a_uuid(lake: CommandLine, tmp_path: Path) -> None:
    kind = {"type": "fixed", "name": "u", "size": 16, "logicalType": "uuid"}
    path = avro(tmp_path, kind, uuid.UUID(int=7).bytes)

    made = lake.ok("ingest", "db.t", path, "--create")

    assert types_of(made) == {"x": "uuid"}
    assert preview(lake) == [{"x": str(uuid.UUID(int=7))}]
