"""Schemas become trees: names are resolved, and what would never end or fill the memory is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lake.core.io.avro.schema import AvroType, UnsupportedSchemaError, parse_schema


def record(name: str, *kinds: Any) -> dict[str, Any]:
    fields = [{"name": f"c{index}", "type": kind} for index, kind in enumerate(kinds)]
    return {"type": "record", "name": name, "fields": fields}


def parse(schema: Any) -> AvroType:
    return parse_schema(json.dumps(schema))


def arrays(levels: int) -> Any:
    kind: Any = "int"
    for _ in range(levels):
        kind = {"type": "array", "items": kind}
    return kind


def chain(levels: int) -> Any:
    """Return a record of records, each of which contains the one before by its name."""
    return record("r", *(record(f"t{n}", f"t{n - 1}" if n else "int") for n in range(levels)))


def doubling(levels: int) -> Any:
    return record(
        "r", *(record(f"t{n}", *[f"t{n - 1}" if n else "null"] * 2) for n in range(levels))
    )


def test_a_type_is_found_by_each_of_its_names() -> None:
    point = {**record("point", "int"), "namespace": "a.b"}

    first, *others = parse(record("r", {"type": point}, "point", "a.b.point")).parts

    assert first.name == "record"
    assert [kind is first for kind in others] == [True, True]


def test_attributes_are_those_of_the_innermost_object() -> None:
    day = {"type": "int", "logicalType": "date"}

    kind = parse({"type": {"type": day, "logicalType": "other"}})

    assert (kind.name, kind.attributes) == ("int", day)


@pytest.mark.parametrize(
    ("kind", "null_at"),
    [
        (["null", "int"], 0),
        ([record("r", "int"), {"type": "null"}], 1),
        (["null", "int", "long"], None),
        (["null", "null"], None),
        ([], None),
        ("null", None),
    ],
)
def test_null_is_found_in_a_choice_of_it_and_one_other_type(kind: Any, null_at: int | None) -> None:
    assert parse(kind).null_at == null_at


def test_a_record_of_null_only_is_empty() -> None:
    nothing = record("n", "null", record("e"))

    assert parse(nothing).is_empty
    assert not parse(record("r", nothing, ["null", "int"])).is_empty
    assert not parse({"type": "array", "items": "null"}).is_empty


@pytest.mark.parametrize(
    "schema",
    [arrays(201), chain(201), doubling(30), record("r", *["int"] * 20_000), ["int"] * 20_000],
    ids=["nested", "nested by names", "doubling", "fields", "branches"],
)
def test_a_schema_that_is_too_large_is_refused(schema: Any) -> None:
    with pytest.raises(ValueError, match="the schema is too large"):
        parse(schema)


def test_a_schema_that_is_almost_too_large_is_parsed() -> None:
    assert parse(arrays(199)).depth == 200
    assert parse(record("r", *["int"] * 19_999)).size == 20_000
    assert sum(1 for _ in parse(doubling(10)).nodes()) == parse(doubling(10)).size


@pytest.mark.parametrize("schema", [record("r", "r"), record("r", ["null", record("s", "r")])])
def test_a_record_that_contains_itself_is_not_supported(schema: Any) -> None:
    with pytest.raises(UnsupportedSchemaError, match="r contains itself"):
        parse(schema)
