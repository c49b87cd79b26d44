"""`lake alter` through the command line; PyIceberg reads the tables."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.table.metadata import TableMetadata
from support.cli.command_line import CommandLine
from support.tables.iceberg_tables import (
    after,
    applied_then,
)

_COLUMNS = ("id int not null", "day date", "place struct<x: float>", "tags list<int>")


def create(lake: CommandLine, *options: object) -> TableMetadata:
    lake.ok("create", "db.t", *_COLUMNS, *options)
    return lake.table().metadata


def test_columns_are_added_renamed_widened_and_dropped_in_one_commit(lake: CommandLine) -> None:
    before = create(lake)
    result = lake.ok(
        *("alter", "db.t", "--add-column", "name string comment 'n'", "--drop-column", "day"),
        *("--add-column", "place.y double", "--rename-column", "place=spot"),
        *("--widen", "id=long", "--widen", "place.x=double", "--widen", "tags.element=long"),
    )["result"]

    now = lake.table().metadata
    schema = now.schema()
    assert [item.name for item in schema.fields] == ["id", "spot", "tags", "name"]
    old = before.schema()
    assert schema.find_field("spot.x").field_id == old.find_field("place.x").field_id
    assert schema.find_field("spot.y").field_id > before.last_column_id
    assert str(schema.find_type("id")) == str(schema.find_type("tags.element")) == "long"
    assert len(now.metadata_log) == len(before.metadata_log) + 1
    assert result["renamed_columns"] == {"place": "spot", "place.x": "spot.x"}
    assert result["dropped_columns"] == ["day"]
    assert result["added_columns"] == ["name", "spot.y"]


def test_rows_are_read_as_before_the_change(lake: CommandLine) -> None:
    lake.load("id,amount,old\n1,10,x\n", "--create", "--partition-by", "id")
    lake.ok(
        *("alter", "db.t", "--rename-column", "amount=total", "--drop-column", "old"),
        *("--add-column", "old string", "--partition-by", "bucket(4, id)", "--sort-by", "id"),
    )
    lake.load("id,total,old\n2,20,y\n", "--create")

    assert lake.rows(by="id") == [
        {"id": 1, "total": 10, "old": None},
        {"id": 2, "total": 20, "old": "y"},
    ]


def test_a_rename_and_its_reversal_use_the_first_schema_again(lake: CommandLine) -> None:
    before = create(lake)
    lake.ok("alter", "db.t", "--rename-column", "day=date")
    lake.ok("alter", "db.t", "--rename-column", "date=day")

    now = lake.table().metadata
    assert (now.current_schema_id, len(now.schemas)) == (before.current_schema_id, 2)


def test_two_columns_exchange_their_names(lake: CommandLine) -> None:
    lake.load("id,a,b\n1,x,y\n", "--create")
    first = lake.table().schema().find_field("a").field_id
    names = ("--rename-column", "a=b", "--rename-column", "b=a")
    # The new partitioning has the new names.
    lake.ok("alter", "db.t", *names, "--partition-by", "b")
    assert [item.source_id for item in lake.table().spec().fields] == [first]
    assert lake.rows(by="id") == [{"id": 1, "b": "x", "a": "y"}]


def test_properties_are_set_and_removed_and_follow_the_names_of_columns(lake: CommandLine) -> None:
    metrics = "write.metadata.metrics.column."
    create(lake, "--property", f"{metrics}day=full", "--property", "owner=a", "--property", "x=1")
    lake.ok(
        *("alter", "db.t", "--set", "owner=b", "--unset", "x", "--unset", "none"),
        *("--rename-column", "day=date"),
    )

    assert lake.table().metadata.properties == {f"{metrics}date": "full", "owner": "b"}
    assert lake.ok("alter", "db.t", "--set", "owner=b")["status"] == "nothing-to-do"


@pytest.mark.parametrize("second", ["id=day", "id=tags"])
def test_properties_follow_names_that_columns_pass_on(lake: CommandLine, second: str) -> None:
    metrics = "write.metadata.metrics.column."
    create(lake, *("--property", f"{metrics}day=full", "--property", f"{metrics}id=none"))
    chain = ["--rename-column", "day=id", "--rename-column", second]
    lake.ok("alter", "db.t", *chain, "--rename-column", "tags=other")

    new = second.removeprefix("id=")
    expected = {f"{metrics}id": "full", f"{metrics}{new}": "none"}
    assert lake.table().metadata.properties == expected


def test_the_columns_with_bloom_filters_in_orc_follow_new_names(lake: CommandLine) -> None:
    filters = "write.orc.bloom.filter.columns"
    create(lake, "--property", f"{filters}=day, place.x,id,none")
    changes = ("--rename-column", "day=id", "--rename-column", "id=day", "--rename-column")
    lake.ok("alter", "db.t", *changes, "place=spot")
    assert lake.table().metadata.properties == {filters: "id,spot.x,day,none"}
    lake.ok("alter", "db.t", "--drop-column", "day")
    assert lake.table().metadata.properties == {filters: "id,spot.x,none"}


@pytest.mark.parametrize(
    "change",
    [
        ("--widen", "spots.key.x=long"),
        ("--add-column", "spots.key.y int"),
        ("--rename-column", "spots.key.x=y"),
        ("--drop-column", "spots.key.x"),
        ("--widen", "counts.key=long"),
    ],
)
def test_the_keys_of_maps_are_not_changed(lake: CommandLine, change: tuple[str, str]) -> None:
    maps = ("spots map<struct<x: int, z: int>, int>", "counts map<int, int>")
    lake.ok("create", "db.t", "id int", *maps)
    before = lake.table().metadata

    refused = lake("alter", "db.t", *change, "--add-column", "other int")

    assert refused.exit_code == 3
    assert "is part of a key of a map" in refused.stderr
    assert lake.table().metadata == before
    lake.ok("alter", "db.t", "--widen", "counts.value=long", "--drop-column", "spots")


@pytest.mark.parametrize("version", [2, 3])
def test_a_partition_field_that_returns_keeps_its_id(lake: CommandLine, version: int) -> None:
    create(lake, "--partition-by", "day(day)", "--format-version", version)
    lake.ok("alter", "db.t", "--partition-by", "bucket(4, id), month(day)")
    lake.ok("alter", "db.t", "--partition-by", "day(day), bucket(4, id)")
    fields = [(item.field_id, str(item.transform)) for item in lake.table().metadata.spec().fields]
    assert fields == [(1000, "day"), (1001, "bucket[4]")]

    lake.ok("alter", "db.t", "--partition-by", "day(day)")
    assert lake.table().metadata.default_spec_id == 0
    lake.ok("alter", "db.t", "--partition-by", "")
    assert lake.table().metadata.spec().is_unpartitioned()
    assert lake.table().metadata.last_partition_id == 1002


def test_format_version_1_replaces_removed_partition_fields_by_void(lake: CommandLine) -> None:
    create(lake, "--partition-by", "day(day), id", "--format-version", "1")
    lake.ok("alter", "db.t", "--partition-by", "bucket(4, id)")
    fields = [
        (item.field_id, item.name, str(item.transform))
        for item in lake.table().metadata.spec().fields
    ]

    assert fields == [
        (1000, "day_day", "void"),
        (1001, "id", "void"),
        (1002, "id_bucket", "bucket[4]"),
    ]
    lake.load("id,day\n1,2026-01-01\n", "--create")
    assert lake.rows(by="id")[0]["id"] == 1


def test_the_sort_order_and_the_format_version_change(lake: CommandLine) -> None:
    create(lake, "--format-version", "1")
    lake.ok("alter", "db.t", "--sort-by", "id desc, day", "--format-version", "3")
    now = lake.table().metadata
    assert (now.format_version, now.default_sort_order_id) == (3, 1)
    lake.ok("alter", "db.t", "--sort-by", "")
    assert lake.table().metadata.sort_order().is_unsorted
    lake.load("id,day\n1,2026-01-01\n", "--create")
    assert lake.rows(by="id")[0]["id"] == 1


def test_a_preview_changes_nothing(lake: CommandLine) -> None:
    before = create(lake)
    plan = lake.ok("alter", "db.t", "--add-column", "x int", "--dry-run")["plan"]
    assert plan["added_columns"] == ["x"]
    assert lake.table().metadata == before


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ((), 2),
        (("--drop-column", "day"), 3),
        (("--drop-column", "id"), 3),
        (("--drop-column", "place"), 3),
        (("--drop-column", "tags.element"), 3),
        (("--drop-column", "none"), 7),
        (("--rename-column", "none=x"), 7),
        (("--rename-column", "day=id"), 2),
        (("--rename-column", "day=_pos"), 7),
        (("--rename-column", "tags=day_day"), 3),
        (("--add-column", "day int"), 2),
        (("--add-column", "x int not null"), 3),
        (("--add-column", "day_day int"), 3),
        (("--add-column", "none.x int"), 7),
        (("--add-column", "day.x int"), 2),
        (("--add-column", "x timestamp_ns"), 3),
        (("--widen", "id=string"), 3),
        (("--widen", "place.x=float", "--widen", "id=date"), 3),
        (("--drop-column", "tags", "--widen", "tags=long"), 2),
        (("--drop-column", "spot", "--add-column", "spot.y int"), 2),
        (("--drop-column", "spot", "--rename-column", "spot.x=y"), 2),
        (("--set", "uuid=1"), 2),
        (("--set", "format-version=3"), 2),
        (("--set", "a=1", "--unset", "a"), 2),
        (("--set", "lake.run-ids=x"), 3),
        (("--unset", "lake.run-ids"), 3),
        (("--set", "lake.maintain.compct.when=files > 1"), 2),
        (("--set", "lake.maintain.window=at night"), 2),
        (("--set", "lake.maintain.expire.older-than=1d"), 3),
        (("--set", "encryption.key-id=x"), 3),
        (("--set", "s3.secret-access-key=x"), 3),
        (("--set", "write.format.default=xls"), 2),
        (("--set", "write.metadata.metrics.column.none=full"), 2),
        (("--partition-by", "day(id)"), 2),
        (("--partition-by", "none"), 7),
        (("--partition-by", "tags.element"), 2),
        (("--partition-by", "bucket(4, tags.element)", "--dry-run"), 2),
        (("--sort-by", "tags"), 2),
        (("--format-version", "1"), 3),
    ],
)
def test_a_change_that_breaks_the_table_is_refused(
    lake: CommandLine, arguments: tuple[str, ...], code: int
) -> None:
    layout = ("--partition-by", "day(day)", "--sort-by", "place.x", "--key", "id")
    create(lake, *layout)
    lake.ok("alter", "db.t", "--add-column", "spot struct<x: int>")
    before = lake.table().metadata
    assert lake("alter", "db.t", *arguments).exit_code == code
    assert lake.table().metadata == before


@pytest.mark.parametrize(
    "arguments",
    [
        ("--rename-column", "day=x", "--add-column", "day string"),
        ("--rename-column", "day=id", "--rename-column", "id=day"),
        ("--drop-column", "tags", "--add-column", "id_bucket int"),
        ("--rename-column", "place.x=y", "--add-column", "place.x int"),
    ],
)
def test_the_name_of_a_partition_field_is_not_given_to_another_column(
    lake: CommandLine, arguments: tuple[str, ...]
) -> None:
    create(lake, "--partition-by", "day, bucket(4, id)")
    # As Spark names it.
    with lake.table().update_spec() as change:
        change.add_field("place.x", "identity", "place.x")
    lake.ok("alter", "db.t", "--partition-by", "")
    before = lake.table().metadata

    assert lake("alter", "db.t", *arguments).exit_code == 3
    assert lake.table().metadata == before
    # The column itself may get its name back, and another one after it was dropped.
    for renamed in ("day=x", "x=day"):
        lake.ok("alter", "db.t", "--rename-column", renamed)
    with lake.table().update_schema() as schema:
        schema.delete_column("day")
    lake.ok("alter", "db.t", "--add-column", "day string")
    assert lake.ok("check", "db.t")["result"]["errors"] == 0


@pytest.mark.usefixtures("unlocked")
def test_a_change_is_planned_again_on_the_table_of_another_writer(lake: CommandLine) -> None:
    create(lake)
    other = lake.with_faults(after(lambda: lake.ok("alter", "db.t", "--add-column", "theirs int")))
    other.ok("alter", "db.t", "--add-column", "ours int", "--partition-by", "day(day)")

    schema = lake.table().metadata.schema()
    assert [item.name for item in schema.fields][-2:] == ["theirs", "ours"]
    assert len(set(schema.field_ids)) == len(schema.field_ids)


@pytest.mark.usefixtures("unlocked")
def test_a_property_is_set_though_another_writer_changes_the_columns(lake: CommandLine) -> None:
    create(lake)
    other = lake.with_faults(after(lambda: lake.ok("alter", "db.t", "--add-column", "theirs int")))

    assert other.ok("alter", "db.t", "--set", "owner=us")["status"] == "done"
    assert lake.table().metadata.properties["owner"] == "us"
    assert lake.table().metadata.schema().find_field("theirs")


@pytest.mark.usefixtures("unlocked")
def test_a_change_that_does_not_fit_any_more_is_a_conflict(lake: CommandLine) -> None:
    create(lake)
    other = lake.with_faults(after(lambda: lake.ok("alter", "db.t", "--add-column", "x string")))
    assert other("alter", "db.t", "--add-column", "x int").exit_code == 4
    assert str(lake.table().metadata.schema().find_type("x")) == "string"


def test_a_change_whose_answer_is_lost_is_recognised(lake: CommandLine) -> None:
    create(lake)
    other = lake.with_faults(applied_then(TimeoutError("no answer")))
    assert other.ok("alter", "db.t", "--drop-column", "day")["status"] == "done"


def test_a_name_mapping_gets_new_columns_and_names(lake: CommandLine, tmp_path: Path) -> None:
    mapping = '[{"field-id": 1, "names": ["id"]}, {"field-id": 2, "names": ["day"]}]'
    create(lake, "--property", f"schema.name-mapping.default={mapping}")
    lake.ok("alter", "db.t", "--rename-column", "day=date", "--add-column", "x int")

    found = lake.table().name_mapping()
    assert found is not None
    assert [item.names for item in found.root] == [["id"], ["day", "date"], ["x"]]


@pytest.mark.parametrize("branch", ["main", "old"])
def test_a_float_that_equality_deletes_compare_is_widened_when_they_are_gone(
    lake: CommandLine, branch: str
) -> None:
    lake.ok("create", "db.t", "id int", "x float", "y float", "--property", "format-version=2")
    lake.load("id,x,y\n1,0.5,0.5\n2,1.5,1.5\n", "--create")
    if branch != "main":
        lake.ok("ref", "db.t", "--branch-create", branch)
    keyed = ("--upsert", "--key", "x", "--deletes", "equality", "--branch", branch)
    lake.load("id,x,y\n3,0.5,0.5\n", "--create", *keyed)

    for dry in ((), ("--dry-run",)):
        refused = lake("alter", "db.t", "--widen", "x=double", *dry)
        assert refused.exit_code == 3
        assert "equality deletes compare the column x" in refused.stderr
    lake.ok("alter", "db.t", "--widen", "y=double")
    lake.ok("deletes", "db.t", "--convert", "--branch", branch)
    lake.ok("alter", "db.t", "--widen", "x=double")

    left = lake.ok("scan", "db.t", "--snapshot", branch)["result"]["preview"]
    assert sorted(row["id"] for row in left) == [2, 3]
