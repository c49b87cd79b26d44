"""JSON lines: Arrow's reader and the exact one agree, and bad lines are named."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
)
from support.tiers import examples

from lake.core.base.errors import BadInputError
from lake.core.data.sources.batches import source_batches
from lake.core.data.sources.discovery import Source
from lake.core.data.sources.json import blocks, inference, typed
from lake.core.data.sources.json.exact import exact_rows
from lake.core.io.storage.storage import Storage
from lake.core.spec.types.arrow_schema import arrow_schema


def optional(number: int, name: str, kind: Any) -> NestedField:
    return NestedField(number, name, kind, required=False)


SCHEMA = Schema(
    optional(1, "i", IntegerType()),
    optional(2, "l", LongType()),
    optional(3, "d", DoubleType()),
    optional(4, "b", BooleanType()),
    optional(5, "s", StringType()),
    optional(6, "m", DecimalType(9, 2)),
    optional(7, "day", DateType()),
    optional(8, "at", TimestamptzType()),
    optional(9, "list", ListType(20, IntegerType(), element_required=False)),
    optional(10, "in", StructType(optional(21, "x", FloatType()), optional(22, "y", DateType()))),
)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "i": st.integers(-(2**31), 2**31 - 1),
    "l": st.integers(-(2**63), 2**63 - 1),
    "d": st.one_of(st.floats(allow_nan=False, allow_infinity=False), st.integers(-5, 5)),
    "b": st.booleans(),
    "s": st.text(st.characters(exclude_categories=["Cs"]), max_size=9),
    "m": st.one_of(st.integers(-(10**7) + 1, 10**7 - 1), st.sampled_from(["1.25", "-0.5", 1.5])),
    "day": st.dates().map(str),
    "at": st.sampled_from(
        ["2020-01-01T10:00:00Z", "2020-01-01T10:00:00+02:00", "2020-01-01 10:00:00"]
    ),
    "list": st.lists(st.one_of(st.none(), st.integers(-9, 9)), max_size=3),
    "in": st.fixed_dictionaries(
        {},
        optional={
            "x": st.floats(width=32, allow_nan=False, allow_infinity=False),
            "y": st.dates().map(str),
        },
    ),
}
ROW = st.fixed_dictionaries(
    {}, optional={name: st.one_of(st.none(), values) for name, values in VALUES.items()}
)


def block_of(*lines: str) -> blocks.Block:
    return blocks.Block("".join(line + "\n" for line in lines).encode(), 1)


def source_of(path: Path, text: str | bytes) -> Source:
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return Source(path=str(path), format="json", size_bytes=len(text))


def read(path: Path, text: str | bytes, schema: Schema) -> list[dict[str, Any]]:
    found = source_batches(Storage(), source_of(path, text), schema)
    return [row for batch in found for row in batch.to_pylist()]


def small_blocks(patch: pytest.MonkeyPatch, size: int) -> None:
    patch.setattr(blocks, "_BLOCK_BYTES", size)


@settings(max_examples=examples(150), deadline=None)
@given(rows=st.lists(ROW, min_size=1, max_size=6), ascii_only=st.booleans())
def test_both_readers_give_the_same_rows(rows: list[dict[str, Any]], ascii_only: bool) -> None:
    block = block_of(*(json.dumps(row, ensure_ascii=ascii_only) for row in rows))
    forms = typed.forms_of(SCHEMA)
    assert forms is not None

    source = Source(path="f", format="json", size_bytes=1)
    fast = typed.typed_rows(block, forms, SCHEMA, source)
    raw = exact_rows(block, SCHEMA, source)
    exact = raw.convert(0, raw.size)

    assert fast is not None
    assert fast.schema.equals(arrow_schema(SCHEMA), check_metadata=True)
    assert fast.equals(exact)
    for number, row in enumerate(rows):
        for name in ("i", "l", "b", "s", "list"):
            assert fast.column(name)[number].as_py() == row.get(name)


DEFAULTS = Schema(
    optional(1, "i", IntegerType()).model_copy(update={"write_default": 7}),
    optional(2, "s", StringType()).model_copy(update={"write_default": '"i"'}),
    optional(
        3,
        "in",
        StructType(
            optional(4, "i", LongType()).model_copy(update={"write_default": 8}),
            optional(5, "x", IntegerType()),
        ),
    ),
    optional(
        6,
        "list",
        ListType(
            7,
            StructType(optional(8, "y", DoubleType()).model_copy(update={"write_default": 0.5})),
            element_required=False,
        ),
    ),
)
FILLED = {"i": 7, "s": '"i"'}
OBJECT = st.fixed_dictionaries({}, optional={"i": st.none() | st.just(1), "x": st.just(2)})
ELEMENT = st.fixed_dictionaries({}, optional={"y": st.none() | st.just(1.5)})
DEFAULTED_ROW = st.fixed_dictionaries(
    {},
    optional={
        "i": st.none() | st.just(3),
        "s": st.none() | st.just("t"),
        "in": st.none() | OBJECT,
        "list": st.none() | st.lists(st.none() | ELEMENT, max_size=2),
    },
)


def with_defaults(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row as the specification has it: absent fields filled, NULLs kept."""
    nested, elements = row.get("in"), row.get("list")
    return {
        **FILLED,
        **row,
        "in": None if nested is None else {"i": 8, "x": None, **nested},
        "list": elements and [one if one is None else {"y": 0.5, **one} for one in elements],
    }


@settings(max_examples=examples(150), deadline=None)
@given(rows=st.lists(DEFAULTED_ROW, min_size=1, max_size=5), width=st.sampled_from([1, 1 << 20]))
def test_what_a_line_lacks_is_filled_and_null_stays(rows: list[dict[str, Any]], width: int) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        small_blocks(patch, width)
        text = "".join(json.dumps(row) + "\n" for row in rows)

        found = read(Path(folder) / "x.json", text, DEFAULTS)

    assert found == [with_defaults(row) for row in rows]


@pytest.mark.parametrize("size", [1, 7, 40, 1 << 20])
@pytest.mark.parametrize("end", ["", "\n", "\n\n \r\n"])
def test_lines_are_read_whole_wherever_blocks_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, end: str
) -> None:
    small_blocks(monkeypatch, size)
    text = "\r\n\n".join(f'{{"i": {n}, "s": "é{n}"}}' for n in range(9)) + end

    rows = read(tmp_path / "x.json", "\ufeff" + text, SCHEMA)

    assert [(row["i"], row["s"]) for row in rows] == [(n, f"é{n}") for n in range(9)]


def test_what_arrow_refuses_is_read_exactly(tmp_path: Path) -> None:
    schema = Schema(
        optional(1, "d", DoubleType()),
        optional(2, "i", IntegerType()),
        optional(3, "map", MapType(10, StringType(), 11, DateType(), value_required=False)),
        optional(4, "big", DecimalType(38, 20)),
    )
    lines = [
        '{"d": "NaN", "i": 2.0, "map": {"a": "2020-01-01", "b": null}}',
        '{"d": "-Infinity", "map": [["a", "2020-01-02"]], "big": 123456789012345678.12345678901234567890}',
    ]

    rows = read(tmp_path / "x.json", "\n".join(lines), schema)

    assert repr(rows[0]["d"]) == "nan"
    assert (rows[0]["i"], rows[1]["d"]) == (2, float("-inf"))
    assert [[(k, str(v)) for k, v in row["map"]] for row in rows] == [
        [("a", "2020-01-01"), ("b", "None")],
        [("a", "2020-01-02")],
    ]
    assert str(rows[1]["big"]) == "123456789012345678.12345678901234567890"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"i": "1"}', "column i of {path}, line 3: '\"1\"' is not a valid int"),
        ('{"i": 1.5}', "line 3: '\"1.5\"' is not a valid int"),
        ('{"i": 2147483648}', "line 3: '2147483648' is not a valid int"),
        ('{"i": true}', "line 3: 'true' is not a valid int"),
        ('{"l": 1e30}', "line 3: '\"1E+30\"' is not a valid long"),
        ('{"d": 1e999}', "line 3:"),
        ('{"d": "one"}', "line 3: '\"one\"' is not a valid double"),
        ('{"b": 1}', "line 3: '1' is not a valid boolean"),
        ('{"s": 1}', "line 3: '1' is not a valid string"),
        ('{"m": 1.234}', "line 3: '1.234' is not a valid decimal(9, 2)"),
        ('{"day": 18000}', "line 3: '18000' is not a valid date"),
        ('{"day": "2020-02-30"}', "line 3: '2020-02-30' is not a valid date"),
        ('{"at": "noon"}', "line 3: 'noon' is not a valid timestamptz"),
        ('{"list": 5}', "line 3: '5' is not a valid list<int>"),
        ('{"list": [1, "x"]}', "column list.element of {path}, line 3: '\"x\"' is not a valid int"),
        ('{"in": {"x": 1e39}}', "line 3: '1e+39' is not a valid float"),
        ('{"in": {"z": 1}}', "column in.z of {path}, line 3"),
        ('{"in": [1]}', "column in of {path}, line 3"),
        ('{"zz": 1}', "line 3 of {path} has 'zz', which is not a column"),
        ('{"i": 1', "line 3 of {path} cannot be read"),
        ('{"i": 1, "i": 2}', "line 3 of {path} cannot be read: an object has a name twice"),
        ("[1]", "line 3 of {path} is not a JSON object"),
        ("7", "line 3 of {path} is not a JSON object"),
    ],
)
def test_a_bad_line_is_named_with_what_is_wrong(tmp_path: Path, line: str, said: str) -> None:
    path = tmp_path / "x.json"

    with pytest.raises(BadInputError) as caught:
        read(path, f'{{"i": 1}}\n\n{line}\n{{"i": 2}}\n', SCHEMA)

    assert said.format(path=path) in caught.value.message


def test_bytes_that_are_not_utf8_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="line 2 .* is not UTF-8"):
        read(tmp_path / "x.json", b'{"s": "a"}\n{"s": "\xff"}\n', SCHEMA)


def test_a_line_without_end_is_not_gathered_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_blocks(monkeypatch, 10)
    monkeypatch.setattr(blocks, "LONGEST_OBJECT", 100)

    with pytest.raises(BadInputError, match="longer than 100 bytes"):
        read(tmp_path / "x.json", '{"s": "' + "x" * 1000 + '"}', SCHEMA)


@pytest.mark.parametrize("size", [1, 1 << 20])
def test_columns_are_inferred_over_all_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    small_blocks(monkeypatch, size)
    rows = [
        {"n": 1, "at": "2020-01-01T10:00:00Z", "day": "2020-01-01", "in": {"x": 1}, "list": []},
        {"n": 1.5, "at": None, "day": "2020-01-02", "in": {"y": "2020-01-01"}, "none": None},
        {"late": True, "list": [1], "day": "2020-01-03T10:00:00", "text": "2020-01-01"},
        {"text": "x"},
    ]
    source = source_of(tmp_path / "x.json", "\n".join(json.dumps(row) for row in rows))

    found = inference.infer_columns(Storage(), source)

    assert {item.name: str(item.type) for item in found} == {
        "n": "double",
        "at": "timestamp[us, tz=UTC]",
        "day": "timestamp[us]",
        "in": "struct<x: int64, y: string>",
        "list": "list<item: int64>",
        "none": "null",
        "late": "bool",
        "text": "string",
    }


@pytest.mark.parametrize("size", [1, 1 << 20])
@pytest.mark.parametrize("second", ['{"a": "x"}', '{"a": [1]}', '{"a": {"b": 1}}', '{"a": true}'])
def test_a_column_of_two_kinds_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, second: str
) -> None:
    small_blocks(monkeypatch, size)
    source = source_of(tmp_path / "x.json", f'{{"a": 1}}\n{second}\n')

    with pytest.raises(BadInputError, match="a"):
        inference.infer_columns(Storage(), source)


def test_no_lines_have_no_columns(tmp_path: Path) -> None:
    source = source_of(tmp_path / "x.json", "\n\n")

    assert inference.infer_columns(Storage(), source) is None
    assert inference.first_columns(Storage(), source) is None
    assert (
        pa.Table.from_batches(
            source_batches(Storage(), source, SCHEMA), arrow_schema(SCHEMA)
        ).num_rows
        == 0
    )


@pytest.mark.parametrize("line", ['{"s":' + "[" * 100_000, '{"s":' * 100_000, '{"s":[' * 10_000])
def test_a_deep_line_takes_no_process_down(tmp_path: Path, line: str) -> None:
    with pytest.raises(BadInputError, match="line 2 .* is nested more than 200 levels deep"):
        read(tmp_path / "x.json", '{"s": "a"}\n' + line, SCHEMA)


def test_brackets_in_texts_add_no_depth(tmp_path: Path) -> None:
    text = "[{" * 1000 + '\\"]'
    (row,) = read(tmp_path / "x.json", '{"s": "' + text + '"}', SCHEMA)
    assert row["s"] == "[{" * 1000 + '"]'


def test_a_text_without_an_end_is_read_once(tmp_path: Path) -> None:
    # If it were searched again from each of its quotes, it would take hours.
    with pytest.raises(BadInputError, match="Unterminated string"):
        read(tmp_path / "x.json", '{"s": "' + "[" * 300 + '\\"' * 1_000_000, SCHEMA)


def test_half_a_character_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="line 1 .* a lone surrogate"):
        read(tmp_path / "x.json", '{"s": "\\ud800"}', SCHEMA)


@pytest.mark.parametrize("line", ["null", "[1]", "1", '"x"', "  null", "\tnull\r"])
def test_lines_without_an_object_take_no_process_down(tmp_path: Path, line: str) -> None:
    for text in (line + "\n", '{"s": "a"}\n' + line):
        source = source_of(tmp_path / "x.json", text)
        with pytest.raises(BadInputError, match="is not a JSON object"):
            inference.infer_columns(Storage(), source)
