"""`lake scan` on tables that changed: schemas, partition specs, files of other writers, format version 3."""

from __future__ import annotations

import itertools
import json
import random
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, DayTransform, IdentityTransform
from pyiceberg.types import IntegerType, LongType, NestedField, StringType, TimestampType
from support.cli.command_line import CommandLine
from support.tables.iceberg_tables import make_table, open_session, write_file

from lake.core.transaction.commit.commit import CommitRequest, commit_snapshot
from lake.core.transaction.commit.operations import AppendFiles

BY_ID = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "id"))
NAMED = ["a", "b", "c"]


def read(lake: CommandLine, *options: object) -> list[dict[str, Any]]:
    """Return the rows that a scan writes to standard output, sorted."""
    result = lake("scan", "db.t", "--output", "-", "--output-format", "json", *options)
    assert result.exit_code == 0, result
    return sorted((json.loads(line) for line in result.stdout.splitlines()), key=str)


def head(table: Any) -> str:
    return str(table.metadata.current_snapshot_id)


def test_a_past_snapshot_is_filtered_by_columns_that_are_gone(
    lake: CommandLine, warehouse: Path
) -> None:
    table = make_table(warehouse, spec=BY_ID)
    table.append(pa.table({"id": pa.array([1, 2, 3], pa.int64()), "name": NAMED}))
    first = head(table)
    with table.update_spec() as update:
        update.remove_field("id")
    with table.update_schema(allow_incompatible_changes=True) as update:
        update.delete_column("id")
    table.append(pa.table({"name": ["z"]}))

    assert read(lake) == [{"name": name} for name in [*NAMED, "z"]]
    assert read(lake, "--where", "name = 'b'") == [{"name": "b"}]
    assert read(lake, "--snapshot", first, "--where", "id = 2") == [{"id": 2, "name": "b"}]
    assert read(lake, "--from-snapshot", first, "--inclusive", "--where", "name > 'b'") == [
        {"name": "c"},
        {"name": "z"},
    ]
    assert lake("scan", "db.t", "--where", "id = 2").exit_code == 7
    document = lake.ok("scan", "db.t", "--snapshot", first, "--where", "id = 2", "--plan")
    assert document["plan"]["files"] == 1
    assert document["plan"]["skipped_files"] == 2


def test_a_partition_column_that_was_widened_since_is_still_pruned(
    lake: CommandLine, warehouse: Path
) -> None:
    schema = Schema(
        NestedField(1, "id", IntegerType(), required=False),
        NestedField(2, "name", StringType(), required=False),
    )
    table = make_table(warehouse, schema=schema, spec=BY_ID)
    table.append(pa.table({"id": pa.array([1, 2, 3], pa.int32()), "name": NAMED}))
    first = head(table)
    with table.update_schema() as update:
        update.update_column("id", LongType())
    table.append(pa.table({"id": pa.array([2, 2**40], pa.int64()), "name": ["y", "z"]}))

    for options in ([], ["--snapshot", first]):
        document = lake.ok("scan", "db.t", "--where", "id = 2", "--plan", *options)
        assert document["plan"]["files"] == (1 if options else 2)
    assert read(lake, "--snapshot", first, "--where", "id = 2") == [{"id": 2, "name": "b"}]
    assert read(lake, "--where", "id >= 3") == [
        {"id": 2**40, "name": "z"},
        {"id": 3, "name": "c"},
    ]


def test_a_branch_is_read_with_the_current_schema_and_a_tag_with_its_own(
    lake: CommandLine, warehouse: Path
) -> None:
    table = make_table(warehouse)
    table.append(pa.table({"id": pa.array([1], pa.int64()), "name": ["a"]}))
    table.manage_snapshots().create_tag(int(head(table)), "old").create_branch(
        int(head(table)), "work"
    ).commit()
    with table.update_schema() as update:
        update.rename_column("name", "title")
        update.add_column("more", LongType())

    assert read(lake, "--snapshot", "old") == [{"id": 1, "name": "a"}]
    for options in (["--snapshot", "work"], ["--branch", "work"], ["--snapshot", "main"], []):
        assert read(lake, *options) == [{"id": 1, "title": "a", "more": None}]


def test_a_snapshot_whose_schema_is_lost_is_refused(lake: CommandLine, warehouse: Path) -> None:
    table = make_table(warehouse)
    table.append(pa.table({"id": pa.array([1], pa.int64())}))
    first = head(table)
    with table.update_schema() as update:
        update.add_column("more", LongType())
    path = Path(table.metadata_location.removeprefix("file://"))
    text = json.loads(path.read_text())
    text["schemas"] = [schema for schema in text["schemas"] if schema["schema-id"] == 1]
    path.write_text(json.dumps(text))

    assert lake("scan", "db.t").exit_code == 0
    result = lake("scan", "db.t", "--snapshot", first)
    assert result.exit_code == 7
    assert "schema 0" in result.stderr


def test_files_of_several_specs_are_pruned_each_by_its_own(
    lake: CommandLine, warehouse: Path
) -> None:
    schema = Schema(
        NestedField(1, "id", LongType(), required=False),
        NestedField(2, "at", TimestampType(), required=False),
    )
    table = make_table(warehouse, schema=schema)
    kind = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us"))])

    def append(ids: range) -> None:
        at = [86_400_000_000 * (number // 10) for number in ids]
        table.append(
            pa.table([pa.array(ids, pa.int64()), pa.array(at, pa.timestamp("us"))], schema=kind)
        )

    append(range(30))
    with table.update_spec() as update:
        update.add_field("at", DayTransform(), "day")
    append(range(30, 60))
    with table.update_spec() as update:
        update.remove_field("day")
        update.add_field("id", BucketTransform(4), "bucket")
    append(range(60, 90))

    assert [row["id"] for row in read(lake)] == sorted(
        range(90), key=lambda number: f"{{'id': {number},"
    )
    document = lake.ok("scan", "db.t", "--where", "at >= '1970-01-05T00:00:00'", "--plan")
    assert document["plan"]["skipped_manifests"] + document["plan"]["skipped_files"] >= 2
    found = read(lake, "--where", "at >= '1970-01-05T00:00:00'")
    assert sorted(row["id"] for row in found) == list(range(40, 90))
    assert [row["id"] for row in read(lake, "--where", "id = 77")] == [77]
    assert lake.ok("scan", "db.t", "--where", "id = 77", "--plan")["plan"]["files"] == 1


def test_files_without_ids_are_read_by_the_name_mapping(
    lake: CommandLine, warehouse: Path, tmp_path: Path
) -> None:
    table = make_table(warehouse)
    path = tmp_path / "foreign.parquet"
    pq.write_table(pa.table({"name": ["x"], "id": pa.array([7], pa.int64())}), path)
    table.add_files([str(path)])
    with table.update_schema() as update:
        update.rename_column("name", "title")
    assert "schema.name-mapping.default" in table.properties

    assert read(lake) == [{"id": 7, "title": "x"}]
    assert read(lake, "--select", "title", "--where", "id = 7") == [{"title": "x"}]


def test_a_column_that_only_the_partition_knows_comes_from_the_metadata(
    lake: CommandLine, warehouse: Path
) -> None:
    make_table(warehouse, spec=BY_ID)
    session = open_session(warehouse)
    table = session.table("db.t")
    file = write_file(table, [1, 2], partition=((40).to_bytes(8, "little"),))
    local = Path(file.path.removeprefix("file://"))
    pq.write_table(pq.read_table(local).drop_columns(["id"]), local)
    operation = AppendFiles(added=[_described(file, local)])
    commit_snapshot(session, table, operation, CommitRequest(operation_id=str(uuid.uuid4())))

    assert read(lake) == [{"id": 40, "name": "n1"}, {"id": 40, "name": "n2"}]
    assert read(lake, "--where", "id = 40 and name = 'n2'", "--select", "id") == [{"id": 40}]
    assert read(lake, "--where", "id = 1") == []


def _described(file: Any, path: Path) -> Any:
    return replace(file, size_bytes=path.stat().st_size)


@pytest.mark.parametrize("with_offsets", [True, False])
@pytest.mark.parametrize("engine", ["inline", "spark"])
def test_each_row_is_read_once_however_files_are_cut(
    warehouse: Path, tmp_path: Path, with_offsets: bool, engine: str
) -> None:
    make_table(warehouse)
    session = open_session(warehouse)
    table = session.table("db.t")
    files, start = [], 0
    for rows in (1, 1000, 2500, 10):
        file = write_file(table, range(start, start + rows))
        local = Path(file.path.removeprefix("file://"))
        pq.write_table(pq.read_table(local), local, row_group_size=300)
        footer = pq.read_metadata(local)
        starts = [
            footer.row_group(n).column(0).dictionary_page_offset
            for n in range(footer.num_row_groups)
        ]
        described = _described(file, local)
        if with_offsets:
            described = replace(described, split_offsets=tuple(starts))
        files.append(described)
        start += rows
    commit_snapshot(
        session, table, AppendFiles(added=files), CommitRequest(operation_id=str(uuid.uuid4()))
    )
    lake = CommandLine(warehouse, engine=engine)

    seen = set()
    for size in random.Random(1).sample(range(100, 40_000), 3 if engine == "inline" else 1):
        output = tmp_path / f"rows-{size}"
        document = lake.ok(
            "scan", "db.t", "--split-size", f"{size}B", "--split-open-cost", "0", "--output", output
        )
        assert sorted(pq.read_table(output)["id"].to_pylist()) == list(range(start))
        seen.add(document["plan"]["splits"])
    assert max(seen) > 4


def test_the_tables_properties_cut_it_unless_options_do(lake: CommandLine, warehouse: Path) -> None:
    table = make_table(warehouse, read__split__target_size="1000000")
    for number in range(3):
        table.append(pa.table({"id": pa.array([number], pa.int64())}))

    def splits(*options: object) -> int:
        return int(lake.ok("scan", "db.t", "--plan", *options)["plan"]["splits"])

    assert splits() == 3
    assert splits("--split-size", "128MB") == 1
    assert splits("--split-size", "8MB") == 2
    assert splits("--split-open-cost", "0") == 1
    with table.transaction() as change:
        change.set_properties({"read.split.target-size": "many"})
    refused = lake("scan", "db.t", "--plan")
    assert (refused.exit_code, "read.split.target-size" in refused.stderr) == (2, True)
    assert lake("scan", "db.t", "--plan", "--split-lookback", "0").exit_code == 2


def test_a_table_of_version_3_without_deletes_is_read(lake: CommandLine, warehouse: Path) -> None:
    table = make_table(warehouse)
    table.append(pa.table({"id": pa.array([1], pa.int64()), "name": ["a"]}))
    path = Path(table.metadata_location.removeprefix("file://"))
    upgraded = json.loads(path.read_text()) | {"format-version": 3, "next-row-id": 0}
    added = {"id": 3, "name": "more", "type": "string", "required": False, "initial-default": "new"}
    upgraded["schemas"][0]["fields"].append(added)
    path.write_text(json.dumps(upgraded | {"last-column-id": 3}))

    assert read(lake) == [{"id": 1, "name": "a", "more": "new"}]
    assert read(lake, "--where", "more = 'new'", "--select", "id") == [{"id": 1}]
    assert read(lake, "--where", "more is null") == []


def test_twenty_appends_in_manifests_that_were_merged_make_increments_that_fit(
    lake: CommandLine, warehouse: Path
) -> None:
    table = make_table(
        warehouse, commit__manifest__min_count_to_merge="3", commit__manifest_merge__enabled="true"
    )
    ids = []
    for number in range(12):
        table.append(pa.table({"id": pa.array([number], pa.int64())}))
        ids.append(head(table))
        if number == 5:
            table.delete("id == 2")

    found = []
    for start, end in itertools.pairwise(ids):
        found += read(lake, "--from-snapshot", start, "--to-snapshot", end, "--select", "id")
    assert sorted(row["id"] for row in found) == list(range(1, 12))
    whole = read(lake, "--from-snapshot", ids[0], "--select", "id")
    assert sorted(row["id"] for row in whole) == list(range(1, 12))
    pruned = lake.ok("scan", "db.t", "--from-snapshot", ids[0], "--where", "id = 7", "--plan")
    assert pruned["plan"]["files"] == 1
    assert pruned["plan"]["skipped_files"] == 10
    assert any("overwrite" in text or "delete" in text for text in pruned["warnings"])


@pytest.mark.parametrize(
    "ids",
    [(1, 1), (1, None), (1, 0), (1, 18)],
    ids=["given twice", "lost", "of no column", "of a column to come"],
)
def test_a_file_whose_ids_are_damaged_is_not_read_as_one_without_the_column(
    lake: CommandLine, ids: tuple[int | None, ...]
) -> None:
    """A Parquet footer has no checksum: one wrong bit would make a column's values NULL."""
    make_table(lake.warehouse).append(pa.table({"id": pa.array([1], pa.int64()), "name": ["x"]}))
    (path,) = lake.warehouse.rglob("*.parquet")
    rows = pq.read_table(path)
    fields = [
        field.with_metadata({} if number is None else {"PARQUET:field_id": str(number)})
        for field, number in zip(rows.schema, ids, strict=True)
    ]
    pq.write_table(rows.cast(pa.schema(fields)), path)
    result = lake("--json", "scan", "db.t")

    assert result.exit_code == 7
    assert result.json()["error"]["kind"] == "corrupt"
    assert str(path) in result.json()["error"]["message"]


def test_a_filter_that_leaves_one_partition_opens_only_its_manifests(
    lake: CommandLine, warehouse: Path
) -> None:
    table = make_table(warehouse, spec=BY_ID)
    for number in range(4):
        table.append(pa.table({"id": pa.array([number], pa.int64()), "name": ["x"]}))
    snapshot = table.metadata.current_snapshot()
    assert snapshot is not None
    for manifest in snapshot.manifests(table.io):
        assert manifest.partitions is not None
        if manifest.partitions[0].lower_bound != (2).to_bytes(8, "little"):
            Path(manifest.manifest_path.removeprefix("file://")).unlink()
    plan = lake.ok("scan", "db.t", "--where", "id = 2", "--plan")["plan"]
    assert (plan["files"], plan["skipped_manifests"]) == (1, 3)
    assert lake("scan", "db.t", "--plan").exit_code != 0
