"""`lake create` through the command line; PyIceberg reads the tables."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.cli.command_line import CommandLine
from support.tables.iceberg_tables import (
    after,
    applied_then,
    files_below,
)

from lake.core.base.errors import InvalidRequestError
from lake.core.spec.types.type_syntax import parse_columns
from lake.core.spec.types.type_text import type_text


def test_a_table_has_the_columns_the_layout_and_the_properties_that_were_given(
    lake: CommandLine,
) -> None:
    result = lake.ok(
        *("create", "db.t", "id bigint not null", "ts timestamptz comment 'it''s late'"),
        *("tags array<struct<`a b`: int not null, m: map<string, decimal(9, 2)>>>", "x fixed[4]"),
        *("--partition-by", "day(ts), bucket(4, id)", "--sort-by", "id desc"),
        *("--key", "id", "--property", "owner=me", "--format-version", "3"),
    )["result"]

    metadata = lake.table().metadata
    schema = metadata.schema()
    assert str(schema.find_type("tags.element.m")) == "map<string, decimal(9, 2)>"
    assert schema.find_field("tags.element.a b").required
    assert schema.find_field("ts").doc == "it's late"
    assert [schema.find_column_name(one) for one in schema.identifier_field_ids] == ["id"]
    assert [str(item.transform) for item in metadata.spec().fields] == ["day", "bucket[4]"]
    assert metadata.sort_order().fields[0].direction.name == "DESC"
    assert (metadata.format_version, metadata.properties) == (3, {"owner": "me"})
    assert metadata.snapshots == []
    assert result["partition_by"] == ["day(ts)", "bucket(4, id)"]
    assert result["columns"][0] == {"name": "id", "type": "long", "required": True, "key": True}


def test_columns_come_from_a_file_or_another_table(lake: CommandLine, tmp_path: Path) -> None:
    source = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"id": pa.array([1], pa.int32()), "name": ["a"]}), source)
    lake.ok("create", "db.a", "--from", source, "--key", "id")
    lake.ok("create", "db.b", "--from", "db.a")

    assert lake.table("db.a").metadata.schema() == lake.table("db.b").metadata.schema()
    lake.ok("ingest", "db.b", source)


def test_a_preview_writes_nothing(lake: CommandLine) -> None:
    assert lake.ok("create", "db.t", "id long", "--dry-run")["status"] == "dry-run"
    assert not lake.warehouse.exists() or files_below(lake.warehouse) == set()


def test_an_existing_table_is_refused_or_left_as_it_is(lake: CommandLine) -> None:
    lake.ok("create", "db.t", "id long")

    assert lake("create", "db.t", "id long").exit_code == 3
    again = lake.ok("create", "db.t", "other long", "--if-not-exists")
    assert again["status"] == "nothing-to-do"
    assert [row["name"] for row in again["plan"]["columns"]] == ["id"]


@pytest.mark.parametrize(("option", "code"), [((), 4), (("--if-not-exists",), 0)])
def test_a_table_that_another_process_creates_meanwhile_is_not_changed(
    lake: CommandLine, option: tuple[str, ...], code: int
) -> None:
    other = lake.with_faults(after(lambda: lake.ok("create", "db.t", "theirs long")))

    assert other("create", "db.t", "ours long", *option).exit_code == code
    assert lake.table().metadata.schema().column_names == ["theirs"]


def test_a_table_whose_creation_was_not_answered_is_recognised(lake: CommandLine) -> None:
    other = lake.with_faults(applied_then(TimeoutError("no answer")))

    assert other.ok("create", "db.t", "id long")["status"] == "done"


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ((), 2),
        (("id long", "--from", "db.none"), 2),
        (("id foo",), 2),
        (("id long", "id int"), 2),
        (("s struct<a: int, a: long>",), 2),
        (("d decimal(39, 2)",), 2),
        (("id long garbage",), 2),
        (("x " + "list<" * 200 + "int" + ">" * 200,), 2),
        (("id long", "--key", "none"), 7),
        (("x double", "--key", "x"), 2),
        (("x timestamp_ns",), 3),
        (("x unknown not null", "--format-version", "3"), 3),
        (("x unknown", "--key", "x", "--format-version", "3"), 3),
        (("x map<unknown, int>", "--format-version", "3"), 3),
        (("x struct<a: int, b: list<unknown not null>>", "--format-version", "3"), 3),
        (("_pos long",), 7),
        (("id long", "--partition-by", "day(id)"), 2),
        (("id long", "--property", "uuid=1"), 2),
        (("id long", "--property", "s3.secret-access-key=x"), 3),
        (("id long", "--format-version", "9"), 2),
        (("--from", "db.none"), 7),
    ],
)
def test_a_definition_that_is_not_valid_creates_nothing(
    lake: CommandLine, arguments: tuple[str, ...], code: int
) -> None:
    assert lake("create", "db.t", *arguments).exit_code == code
    assert lake("snapshots", "db.t").exit_code == 7


_LEAVES = st.sampled_from(["int", "long", "string", "decimal(9, 2)", "fixed[3]", "timestamptz"])
_TYPES = st.recursive(
    _LEAVES,
    lambda inner: st.one_of(
        inner.map(lambda kind: f"list<{kind}>"),
        inner.map(lambda kind: f"map<string, {kind}>"),
        st.lists(inner, min_size=1, max_size=3).map(
            lambda kinds: f"struct<{', '.join(f'f{n}: {kind}' for n, kind in enumerate(kinds))}>"
        ),
    ),
    max_leaves=8,
)


def test_columns_may_be_in_one_argument_or_in_several(lake: CommandLine) -> None:
    one = (
        "id long not null, tags list<string>, price decimal(9, 2) comment 'a, b', map map<int, int>"
    )
    lake.ok("create", "db.t", one, "day date")
    names = ["id", "tags", "price", "map", "day"]
    assert [item.name for item in lake.table().metadata.schema().fields] == names
    lake.ok("alter", "db.t", "--add-column", "x int, y struct<a: int, b: int>")
    assert [item.name for item in lake.table().metadata.schema().fields] == [*names, "x", "y"]


@pytest.mark.parametrize(
    "text", ["id long,", ",", "id long,, x int", "id long x int", "a int, a int"]
)
def test_columns_that_are_not_separated_by_commas_are_refused(lake: CommandLine, text: str) -> None:
    assert lake("create", "db.t", text).exit_code == 2


@given(_TYPES)
def test_a_type_that_is_printed_is_parsed_as_the_same_type(text: str) -> None:
    assert type_text(parse_columns([f"x {text}"]).fields[0].field_type) == text


@given(st.text(max_size=40))
def test_any_text_is_a_column_or_is_refused(text: str) -> None:
    with contextlib.suppress(InvalidRequestError):
        assert len(parse_columns([text]).fields) == 1
