"""One Avro record beside its schema is decoded as fastavro encodes it; what would never end is corrupt."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.tiers import examples

from lake.core.base.errors import CorruptFileError
from lake.core.table.flink.avro_datum import read_by_field_id
from lake.core.table.flink.byte_reader import ByteReader

_SIMPLE: list[tuple[Any, st.SearchStrategy[Any]]] = [
    ("null", st.none()),
    ("boolean", st.booleans()),
    ("int", st.integers(-(2**31), 2**31 - 1)),
    ("long", st.integers(-(2**63), 2**63 - 1)),
    ("bytes", st.binary(max_size=9)),
    ("string", st.text(max_size=9)),
]


@st.composite
def _typed(draw: st.DrawFn, depth: int = 2) -> tuple[Any, Any, Any]:
    """Return a type, a value of it for the encoder, and the same as it must be decoded."""
    kinds = ["simple"] if depth == 0 else ["simple", "optional", "array", "record", "fixed", "map"]
    kind = draw(st.sampled_from(kinds))
    if kind == "simple":
        name, values = draw(st.sampled_from(_SIMPLE))
        value = draw(values)
        wrapped = draw(st.booleans())
        return ({"type": name} if wrapped else name), value, value
    if kind == "fixed":
        data = draw(st.binary(min_size=1, max_size=5))
        return {"type": "fixed", "name": _name(draw), "size": len(data)}, data, data
    inner, value, decoded = draw(_typed(depth - 1))
    if kind == "optional":
        if inner == "null" or isinstance(inner, list) or inner == {"type": "null"}:
            return inner, value, decoded
        absent = draw(st.booleans())
        return ["null", inner], *((None, None) if absent else (value, decoded))
    if kind == "record":
        fields = [{"name": "a", "type": inner}, {"name": "b", "type": "string"}]
        record = {"type": "record", "name": _name(draw), "fields": fields}
        return record, {"a": value, "b": "ü"}, [decoded, "ü"]
    if inner in ("null", {"type": "null"}):
        inner, value, decoded = "int", 7, 7
    if kind == "map":
        return {"type": "map", "values": inner}, {"k": value}, [(b"k", decoded)]
    number = draw(st.integers(0, 3))
    return {"type": "array", "items": inner}, [value] * number, [decoded] * number


def _name(draw: st.DrawFn) -> str:
    return f"n{draw(st.uuids()).hex}"


def _encode(schema: Any, record: Any) -> bytes:
    target = io.BytesIO()
    fastavro.schemaless_writer(target, fastavro.parse_schema(schema), record)
    return target.getvalue()


def _decode(schema: Any, data: bytes) -> dict[int, Any]:
    return read_by_field_id(json.dumps(schema), ByteReader(memoryview(data), "x"))


@given(columns=st.lists(_typed(), max_size=4))
@settings(max_examples=examples(100), deadline=None)
def test_records_are_decoded_by_field_id(columns: list[tuple[Any, Any, Any]]) -> None:
    fields = [
        {"name": f"c{index}", "type": kind, "field-id": 500 + index}
        for index, (kind, _, _) in enumerate(columns)
    ]
    schema = {"type": "record", "name": "r", "fields": fields}
    data = _encode(schema, {f"c{index}": value for index, (_, value, _) in enumerate(columns)})
    decoded = {500 + index: expected for index, (_, _, expected) in enumerate(columns)}
    assert _decode(schema, data) == decoded
    for length in range(len(data)):
        with pytest.raises(CorruptFileError):
            _decode(schema, data[:length])


def test_types_are_found_by_name_with_and_without_their_namespace() -> None:
    point = {
        "type": "record",
        "name": "point",
        "namespace": "a.b",
        "fields": [{"name": "x", "type": "int"}],
    }
    fields = [
        {"name": "p", "type": point, "field-id": 1},
        {"name": "q", "type": "a.b.point", "field-id": 2},
        {"name": "e", "type": {"type": "enum", "name": "s", "symbols": ["A", "B"]}, "field-id": 3},
        {"name": "f", "type": "float", "field-id": 4},
        {"name": "d", "type": "double", "field-id": 5},
    ]
    schema = {"type": "record", "name": "r", "fields": fields}
    record = {"p": {"x": 1}, "q": {"x": -2}, "e": "B", "f": 1.0, "d": 2.0}
    found = _decode(schema, _encode(schema, record))
    assert (found[1], found[2], found[3]) == ([1], [-2], "B")
    assert (len(found[4]), len(found[5])) == (4, 8)


def _fields(*kinds: Any) -> dict[str, Any]:
    fields = [{"name": str(i), "type": kind, "field-id": i} for i, kind in enumerate(kinds)]
    return {"type": "record", "name": "r", "fields": fields}


def _doubling(levels: int) -> dict[str, Any]:
    """Return a schema whose record has two to the power of ``levels`` parts, of no bytes each."""
    kind: Any = {"type": "record", "name": "t0", "fields": []}
    for level in range(1, levels):
        fields = [{"name": "a", "type": kind}, {"name": "b", "type": f"t{level - 1}"}]
        kind = {"type": "record", "name": f"t{level}", "fields": fields}
    return _fields(kind)


_BOMBS: dict[str, tuple[Any, bytes]] = {
    "not JSON": ("{", b""),
    "a list": ([], b""),
    "not a record": ({"type": "string"}, b"\x00"),
    "a field of no type": ({"type": "record", "fields": [{"name": "a"}]}, b""),
    "a number as a field": ({"type": "record", "fields": [7]}, b""),
    "a field of no id": ({"type": "record", "fields": [{"name": "a", "type": "int"}]}, b"\x00"),
    "an unknown type": (_fields("varint"), b"\x00"),
    "a type of no name": (_fields({"type": "record"}), b"\x00"),
    "a number as a type": (_fields(7), b"\x00"),
    "itself": (_fields("r"), b""),
    "a union of itself": (_fields(["null", "r"]), b"\x02" * 99),
    "a choice beyond": (_fields(["null", "int"]), b"\x04"),
    "a negative choice": (_fields(["null", "int"]), b"\x01"),
    "a choice of none": (_fields([]), b"\x00"),
    "a negative length": (_fields("bytes"), b"\x01"),
    "a length beyond": (_fields("string"), b"\xfe\xff\xff\xff\x0f"),
    "a text that is not UTF-8": (_fields("string"), b"\x02\xff"),
    "a list of nothings": (_fields({"type": "array", "items": "null"}), b"\xfe\xff\xff\xff\x0f"),
    "a list beyond": (_fields({"type": "array", "items": "int"}), b"\xfe\xff\xff\xff\x0f"),
    "a fixed type beyond": (_fields({"type": "fixed", "size": 2**62}), b"\x00"),
    "a fixed type below": (_fields({"type": "fixed", "size": -1}), b"\x00"),
    "a number too long": (_fields("long"), b"\xff" * 10),
    "a number too large": (_fields("long"), b"\xff" * 9 + b"\x7f"),
    "a boolean of two": (_fields("boolean"), b"\x02"),
    "bytes behind": (_fields("int"), b"\x00\x00"),
    "a doubling schema": (_doubling(30), b""),
    "a deep schema": (_fields({"type": {"type": {"type": "int"}}} | {"x": 1}), b""),
}


@pytest.mark.parametrize("name", list(_BOMBS))
def test_bombs_are_corrupt(name: str) -> None:
    schema, data = _BOMBS[name]
    source = schema if isinstance(schema, str) else json.dumps(schema)
    with pytest.raises(CorruptFileError):
        read_by_field_id(source, ByteReader(memoryview(data), "x"))


def test_a_schema_deeper_than_the_stack_is_corrupt() -> None:
    with pytest.raises(CorruptFileError):
        read_by_field_id("[" * 60_000, ByteReader(memoryview(b""), "x"))
