"""`lake stats --partitions` through the command line; PyIceberg and PyArrow judge the files."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table.update import RemovePartitionStatisticsUpdate
from pyiceberg.transforms import IdentityTransform
from support.cli.command_line import CommandLine
from support.tables.iceberg_tables import (
    after,
    applied_then,
    files_below,
    make_table,
    pyiceberg_table,
)
from support.tables.metadata_edits import edit_metadata

STATS = ("stats", "db.t", "--partitions")
BY_NAME = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "name"))
# PyIceberg's name of each column that has another one.
_NAMES = {"data_record_count": "record_count", "data_file_count": "file_count"}


def rows(*names: str | None) -> pa.Table:
    return pa.table({"id": pa.array(range(len(names)), pa.int64()), "name": pa.array(names)})


@pytest.fixture
def table(warehouse: Path) -> Any:
    made = make_table(warehouse, spec=BY_NAME)
    made.append(rows("b", "a", "b", None))
    made.append(rows("b"))
    return made


def entries(warehouse: Path) -> list[Any]:
    return list(pyiceberg_table(warehouse).metadata.partition_statistics)


def files_of(warehouse: Path) -> list[Path]:
    return sorted(warehouse.rglob("partition-stats-*"))


def stored(warehouse: Path) -> list[dict[str, Any]]:
    """Return the rows of the only file."""
    (path,) = files_of(warehouse)
    return pq.read_table(path).to_pylist()


def by_pyiceberg(warehouse: Path) -> list[dict[str, Any]]:
    """Return PyIceberg's numbers of the partitions with the names of a statistics file."""
    found = pyiceberg_table(warehouse).inspect.partitions().to_pylist()
    names = {old: new for new, old in _NAMES.items()}
    return [{names.get(name, name): value for name, value in row.items()} for row in found]


def inspected(lake: CommandLine) -> list[dict[str, Any]]:
    """Return the rows of `lake inspect partitions`."""
    out = lake.warehouse.parent / "partitions.parquet"
    lake.ok("inspect", "db.t", "partitions", "--output", out, "--replace")
    return pq.read_table(out).to_pylist()


def drop_column(warehouse: Path, name: str) -> None:
    """Drop a column as another writer does, although an earlier spec has it."""
    with pyiceberg_table(warehouse).update_schema() as update:
        update.delete_column(name)


def agree(own: list[dict[str, Any]], judged: list[dict[str, Any]]) -> None:
    """Compare the counts of partitions."""

    def key(row: dict[str, Any]) -> str:
        return repr(sorted(row["partition"].items()))

    for mine, other in zip(sorted(own, key=key), sorted(judged, key=key), strict=True):
        same = mine.keys() & other.keys() - {"last_updated_at"}
        assert {"data_record_count", "position_delete_file_count", "spec_id"} <= same
        assert {name: mine[name] for name in same} == {name: other[name] for name in same}
        assert mine["last_updated_at"] == round(other["last_updated_at"].timestamp() * 1000)


def test_the_contents_of_each_partition_are_counted(
    lake: CommandLine, warehouse: Path, table: Any
) -> None:
    before = files_below(warehouse)
    plan = lake.ok(*STATS, "--dry-run")
    assert plan["status"] == "dry-run"
    assert plan["plan"] == {
        "partitions": 3,
        "data_files": 4,
        "delete_files": 0,
        "records": 5,
        "bytes": plan["plan"]["bytes"],
    }
    assert files_below(warehouse) == before

    done = lake.ok(*STATS)

    (entry,) = entries(warehouse)
    assert entry.snapshot_id == table.refresh().metadata.current_snapshot_id
    assert entry.statistics_path == done["result"]["partition_statistics_file"]
    (path,) = files_of(warehouse)
    assert entry.statistics_path == f"file://{path}"
    assert re.fullmatch(rf"partition-stats-{entry.snapshot_id}-[0-9a-f-]{{36}}\.parquet", path.name)
    assert path.parent == warehouse / "db" / "t" / "metadata"
    assert path.stat().st_size == entry.file_size_in_bytes == done["result"]["bytes_written"]
    assert [row["partition"]["name"] for row in stored(warehouse)] == [None, "a", "b"]
    agree(stored(warehouse), by_pyiceberg(warehouse))
    assert len(pyiceberg_table(warehouse).metadata.snapshots) == 2
    assert not entries(warehouse)[0].model_extra


@pytest.mark.parametrize("version", [2, 3])
def test_delete_files_and_deletion_vectors_are_counted(
    lake: CommandLine, tmp_path: Path, warehouse: Path, version: int
) -> None:
    source, few = tmp_path / "rows.csv", tmp_path / "few.csv"
    source.write_text("id,part\n1,a\n2,a\n3,b\n4,\n")
    few.write_text("id,part\n1,a\n2,a\n")
    chosen = ("--property", f"format-version={version}")
    lake.ok("ingest", "db.t", source, "--create", "--partition-by", "part", *chosen)
    lake.ok("ingest", "db.t", few, "--upsert", "--key", "id", "--deletes", "position")
    lake.ok("ingest", "db.t", few, "--upsert", "--key", "id,part", "--deletes", "equality")

    assert lake.ok(*STATS)["plan"]["delete_files"] == 2

    found = {row["partition"]["part"]: row for row in stored(warehouse)}
    assert found["a"]["data_record_count"] == 6
    assert found["a"]["position_delete_record_count"] == 2
    assert found["a"]["position_delete_file_count"] == (1 if version == 2 else 0)
    assert found["a"].get("dv_count") == (None if version == 2 else 1)
    assert found["a"]["equality_delete_record_count"] == 2
    assert found["a"]["equality_delete_file_count"] == 1
    assert found["b"]["data_record_count"] == found[None]["data_record_count"] == 1
    if version == 2:
        agree(stored(warehouse), by_pyiceberg(warehouse))
    for row in inspected(lake):
        own = found[row["partition"]["part"]]
        vectors = own.get("dv_count") or 0
        assert row["record_count"] == own["data_record_count"]
        assert row["file_count"] == own["data_file_count"]
        assert row["position_delete_file_count"] == own["position_delete_file_count"] + vectors
        same = ("position_delete_record_count", "equality_delete_record_count")
        same += ("equality_delete_file_count", "last_updated_snapshot_id", "spec_id")
        assert [row[name] for name in same] == [own[name] for name in same]
    required = [
        field.name for field in pq.read_schema(files_of(warehouse)[0]) if not field.nullable
    ]
    assert ("dv_count" in required) == ("position_delete_file_count" in required) == (version == 3)


def test_a_snapshot_is_described_once(lake: CommandLine, warehouse: Path, table: Any) -> None:
    first = lake.ok(*STATS)
    again = lake.ok(*STATS)
    assert again["status"] == "nothing-to-do"
    assert again["result"] == {
        "partition_statistics_file": first["result"]["partition_statistics_file"]
    }
    assert lake.ok(*STATS, "--dry-run")["status"] == "nothing-to-do"
    assert lake.ok("stats", "db.t")["status"] == "done"
    assert lake.ok(*STATS)["status"] == "nothing-to-do"

    table.refresh()
    table.append(rows("c"))
    assert lake.ok(*STATS)["status"] == "done"
    assert len(entries(warehouse)) == len(files_of(warehouse)) == 2
    assert len(pyiceberg_table(warehouse).metadata.statistics) == 1


def test_a_branch_is_described(lake: CommandLine, warehouse: Path, table: Any) -> None:
    head = table.metadata.current_snapshot_id
    lake.ok("ref", "db.t", "--branch-create", "audit")
    table.refresh()
    table.append(rows("z"))

    assert lake.ok(*STATS, "--branch", "audit")["plan"]["partitions"] == 3
    assert [item.snapshot_id for item in entries(warehouse)] == [head]
    assert lake(*STATS, "--branch", "missing").exit_code == 7


def test_a_table_without_snapshots_has_nothing_to_describe(
    lake: CommandLine, warehouse: Path
) -> None:
    make_table(warehouse, spec=BY_NAME)
    make_table(warehouse, "db.plain")

    assert lake.ok(*STATS)["status"] == "nothing-to-do"
    assert lake.ok("stats", "db.plain", "--partitions")["status"] == "nothing-to-do"


def test_a_table_without_partitions_is_refused(lake: CommandLine, warehouse: Path) -> None:
    make_table(warehouse).append(rows("a"))

    result = lake("--json", *STATS)

    assert result.exit_code == 3
    assert "the table is not partitioned" in result.json()["error"]["message"]
    assert files_of(warehouse) == []


def test_columns_are_not_chosen_with_partitions(lake: CommandLine, table: Any) -> None:
    result = lake("--json", *STATS, "--select", "id")

    assert result.exit_code == 2
    assert "--select chooses columns" in result.json()["error"]["message"]
    assert table is not None


def test_partitions_of_several_specs_have_one_type(
    lake: CommandLine, tmp_path: Path, warehouse: Path
) -> None:
    source = tmp_path / "rows.csv"
    source.write_text("id,day,name\n1,2026-01-30,aa\n2,2026-01-31,ab\n3,,\n")
    lake.ok("ingest", "db.t", source, "--create", "--partition-by", "day")
    lake.ok("alter", "db.t", "--partition-by", "truncate(name, 1)")
    lake.ok("ingest", "db.t", source)
    lake.ok("alter", "db.t", "--partition-by", "")
    lake.ok("ingest", "db.t", source)

    lake.ok(*STATS)

    found = stored(warehouse)
    kind = pq.read_schema(files_of(warehouse)[0]).field("partition").type
    assert [field.name for field in kind] == ["day", "name_trunc"]
    assert [field.metadata[b"PARQUET:field_id"] for field in kind] == [b"1000", b"1001"]
    shown = [
        (str(row["partition"]["day"]), row["partition"]["name_trunc"], row["spec_id"])
        for row in found
    ]
    unpartitioned = max(row["spec_id"] for row in found)
    assert shown == [
        ("None", None, 0),
        ("None", None, 1),
        ("None", None, unpartitioned),
        ("None", "a", 1),
        ("2026-01-30", None, 0),
        ("2026-01-31", None, 0),
    ]
    assert [row["data_record_count"] for row in found] == [1, 1, 3, 2, 1, 1]


@pytest.mark.parametrize("version", [1, 2])
def test_dropped_partition_fields_are_described(
    lake: CommandLine, warehouse: Path, version: int
) -> None:
    made = make_table(warehouse, spec=BY_NAME, **{"format-version": str(version)})
    made.append(rows("a", "b"))
    with made.update_spec() as update:
        update.remove_field("name")
        update.add_identity("id")
    made.append(rows("c"))

    lake.ok(*STATS)

    found = [(*row["partition"].values(), row["data_record_count"]) for row in stored(warehouse)]
    assert found == [(None, 0, 1), ("a", None, 1), ("b", None, 1)]
    shown = inspected(lake)
    assert sorted(row["record_count"] for row in shown) == [1, 1, 1]
    assert [row["partition"] for row in stored(warehouse)] == sorted(
        (row["partition"] for row in shown), key=lambda one: [str(value) for value in one.values()]
    )


def test_a_dropped_source_column_is_left_out(
    lake: CommandLine, tmp_path: Path, warehouse: Path
) -> None:
    source = tmp_path / "rows.csv"
    source.write_text("id,part,more\n1,a,x\n2,a,y\n3,b,x\n")
    lake.ok("ingest", "db.t", source, "--create", "--partition-by", "part,more")
    lake.ok("alter", "db.t", "--partition-by", "part")
    drop_column(warehouse, "more")

    lake.ok(*STATS)

    found = [(row["partition"], row["data_record_count"]) for row in stored(warehouse)]
    assert found == [({"part": "a"}, 2), ({"part": "b"}, 1)]


def test_a_table_whose_source_columns_are_all_dropped_is_refused(
    lake: CommandLine, tmp_path: Path, warehouse: Path
) -> None:
    source = tmp_path / "rows.csv"
    source.write_text("id,part\n1,a\n")
    lake.ok("ingest", "db.t", source, "--create", "--partition-by", "part")
    lake.ok("alter", "db.t", "--partition-by", "")
    drop_column(warehouse, "part")

    assert lake(*STATS).exit_code == 3


def test_a_partition_that_the_snapshot_emptied_has_a_row_without_files(
    lake: CommandLine, warehouse: Path, table: Any
) -> None:
    table.delete("name = 'a'")

    lake.ok(*STATS)

    found = {row["partition"]["name"]: row for row in stored(warehouse)}
    assert (found["a"]["data_file_count"], found["a"]["data_record_count"]) == (0, 0)
    assert found["a"]["last_updated_snapshot_id"] == table.metadata.current_snapshot_id
    assert found["b"]["data_file_count"] == 2
    table.append(rows("c"))
    for path in files_of(warehouse):
        path.unlink()
    lake.ok(*STATS)
    assert "a" not in {row["partition"]["name"] for row in stored(warehouse)}


def test_the_last_change_is_unknown_if_its_snapshot_expired(
    lake: CommandLine, warehouse: Path, table: Any
) -> None:
    lake.ok("expire", "db.t", "--older-than", "0s", "--unsafe-retention", "--retain-last", "1")

    lake.ok(*STATS)

    found = {row["partition"]["name"]: row for row in stored(warehouse)}
    assert found["a"]["last_updated_at"] is found["a"]["last_updated_snapshot_id"] is None
    assert found["b"]["last_updated_snapshot_id"] == table.metadata.current_snapshot_id


@pytest.mark.parametrize(
    ("file_format", "ending"), [("parquet", "parquet"), ("avro", "avro"), ("orc", "parquet")]
)
def test_the_file_has_the_format_of_the_table_if_java_reads_it(
    lake: CommandLine, tmp_path: Path, warehouse: Path, file_format: str, ending: str
) -> None:
    source = tmp_path / "rows.csv"
    source.write_text("id,part\n1,a\n2,b\n")
    chosen = ("--property", f"write.format.default={file_format}")
    lake.ok("ingest", "db.t", source, "--create", "--partition-by", "part", *chosen)

    assert lake.ok(*STATS)["plan"]["partitions"] == 2

    (path,) = files_of(warehouse)
    assert path.suffix == f".{ending}"


def test_the_file_is_written_to_the_folder_of_metadata(
    lake: CommandLine, tmp_path: Path, warehouse: Path, table: Any
) -> None:
    folder = warehouse / "db" / "t" / "elsewhere"
    lake.ok("alter", "db.t", "--set", f"write.metadata.path=file://{folder}")

    lake.ok(*STATS)

    assert [path.parent for path in files_of(warehouse)] == [folder]
    assert tmp_path.exists()
    assert table is not None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda plain: plain["partition-specs"][0]["fields"][0].update(transform="zorder"),
            "transform that lake does not know",
        ),
        (
            lambda plain: plain["partition-specs"].append(
                {"spec-id": 1, "fields": [{**BY_ID, "name": "name"}]}
            ),
            "two partition fields are named name",
        ),
        (
            lambda plain: plain["partition-specs"].append(
                {"spec-id": 1, "fields": [{**BY_ID, "field-id": 1000}]}
            ),
            "have the same id",
        ),
    ],
)
def test_partitions_without_a_type_are_refused(
    lake: CommandLine,
    warehouse: Path,
    table: Any,
    change: Callable[[dict[str, Any]], Any],
    message: str,
) -> None:
    edit_metadata(warehouse, change)

    result = lake("--json", *STATS)

    assert result.exit_code == 3
    assert message in result.json()["error"]["message"]
    assert files_of(warehouse) == []
    assert table is not None


BY_ID = {"source-id": 1, "field-id": 1001, "name": "id", "transform": "identity"}


def test_the_file_is_removed_if_the_snapshot_expires_meanwhile(warehouse: Path, table: Any) -> None:
    described = table.metadata.current_snapshot_id

    def expire() -> None:
        now = pyiceberg_table(warehouse)
        now.append(rows("z"))
        now.maintenance.expire_snapshots().by_id(described).commit()

    result = CommandLine(warehouse).with_faults(after(expire))("--json", *STATS)

    assert result.exit_code == 4
    assert "expired meanwhile" in result.json()["error"]["message"]
    assert files_of(warehouse) == []


def test_the_commit_is_repeated_after_another_one(warehouse: Path, table: Any) -> None:
    described = table.metadata.current_snapshot_id

    def append() -> None:
        pyiceberg_table(warehouse).append(rows("z"))

    result = CommandLine(warehouse).with_faults(after(append))("--json", *STATS)

    assert result.json()["status"] == "done"
    assert [item.snapshot_id for item in entries(warehouse)] == [described]
    assert len(files_of(warehouse)) == 1


def test_one_of_two_runs_at_the_same_time_gives_the_snapshot_its_file(
    warehouse: Path, table: Any
) -> None:
    other = CommandLine(warehouse)

    result = CommandLine(warehouse).with_faults(after(lambda: other.ok(*STATS)))("--json", *STATS)

    assert result.json()["status"] == "done"
    (entry,) = entries(warehouse)
    assert entry.statistics_path == result.json()["result"]["partition_statistics_file"]
    assert entry.snapshot_id == table.metadata.current_snapshot_id


@pytest.mark.parametrize("applied", [True, False])
def test_the_file_is_kept_if_the_outcome_of_the_commit_is_unknown(
    warehouse: Path, table: Any, applied: bool
) -> None:
    error = ConnectionError("lost")

    def lost(commit: Callable[[], Any]) -> Any:
        return applied_then(error)(commit) if applied else _raise(error)

    result = CommandLine(warehouse).with_faults(lost)("--json", *STATS)

    assert result.exit_code == (0 if applied else 5)
    assert len(files_of(warehouse)) == 1
    assert len(entries(warehouse)) == applied
    assert table is not None


def _raise(error: Exception) -> None:
    raise error


def test_other_commands_know_the_file(lake: CommandLine, warehouse: Path, table: Any) -> None:
    old = ("--older-than", "0s", "--unsafe-retention")
    lake.ok(*STATS)
    (first,) = files_of(warehouse)
    assert lake.ok("check", "db.t", "--files")["result"]["findings"] == []
    clean = ("clean", "db.t", *old, "--delete", "--max-share", "100%")
    assert lake.ok(*clean)["plan"]["orphans"] == 0
    assert first.exists()

    table.refresh()
    table.append(rows("c"))
    lake.ok(*STATS)
    done = lake.ok("expire", "db.t", *old, "--retain-last", "1")
    assert done["plan"]["statistics_files"] == 1
    assert not first.exists()
    (second,) = files_of(warehouse)
    assert lake.ok("check", "db.t", "--files")["result"]["findings"] == []

    assert second.exists()
    lake.ok("drop", "db.t", "--purge", "--yes")
    assert files_of(warehouse) == []


def test_a_file_whose_entry_was_removed_is_an_orphan(
    lake: CommandLine, warehouse: Path, table: Any
) -> None:
    lake.ok(*STATS)
    (entry,) = entries(warehouse)
    remove = RemovePartitionStatisticsUpdate(snapshot_id=entry.snapshot_id)
    table.catalog.commit_table(table.refresh(), (), (remove,))

    lake.ok("clean", "db.t", "--older-than", "0s", "--unsafe-retention", "--delete")

    assert files_of(warehouse) == []


def test_a_lost_file_is_reported_and_its_entry_is_repaired(
    lake: CommandLine, warehouse: Path, table: Any
) -> None:
    lake.ok(*STATS)
    (path,) = files_of(warehouse)
    path.unlink()

    found = lake("--json", "check", "db.t")
    assert [item["code"] for item in found.json()["result"]["findings"]] == ["S002"]
    lake.ok("check", "db.t", "--repair", "statistics", "--yes")

    assert entries(warehouse) == []
    assert lake.ok(*STATS)["status"] == "done"
    assert lake.ok("check", "db.t")["result"]["findings"] == []
    assert table is not None


def _other_columns(path: Path) -> None:
    pq.write_table(pa.table({"id": range(100)}), path)


def _other_bytes(path: Path) -> None:
    path.write_bytes(b"x" * path.stat().st_size)


def _no_file(path: Path) -> None:
    path.unlink()


@pytest.mark.parametrize("file_format", ["parquet", "avro"])
@pytest.mark.parametrize(
    ("damage", "code"), [(_other_columns, "S003"), (_other_bytes, "S003"), (_no_file, "S002")]
)
def test_a_file_that_cannot_be_read_is_reported_and_replaced(
    lake: CommandLine,
    warehouse: Path,
    table: Any,
    file_format: str,
    damage: Callable[[Path], None],
    code: str,
) -> None:
    lake.ok("alter", "db.t", "--set", f"write.format.default={file_format}")
    lake.ok(*STATS)
    (path,) = files_of(warehouse)
    damage(path)

    def resize(plain: dict[str, Any]) -> None:
        if path.exists():
            plain["partition-statistics"][0]["file-size-in-bytes"] = path.stat().st_size

    edit_metadata(warehouse, resize)
    found = lake("--json", "check", "db.t").json()["result"]["findings"]
    assert [(item["code"], item["place"]) for item in found] == [(code, f"file://{path}")]

    assert lake.ok(*STATS)["status"] == "done"

    (entry,) = entries(warehouse)
    assert entry.statistics_path != f"file://{path}"
    assert lake.ok("check", "db.t")["result"]["findings"] == []
    assert lake.ok(*STATS)["status"] == "nothing-to-do"
    assert table is not None
