"""`lake stats` through the command line; PyIceberg and the DataSketches library read the statistics."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import datasketches
import pyarrow as pa
import pytest
from support.cli.command_line import CommandLine
from support.tables.iceberg_tables import (
    applied_then,
    make_table,
    pyiceberg_table,
)


def rows(start: int, count: int) -> pa.Table:
    ids = range(start, start + count)
    names = [None if one % 7 == 0 else f"n{one % 5}" for one in ids]
    return pa.table({"id": pa.array(ids, pa.int64()), "name": names})


@pytest.fixture
def table(warehouse: Path) -> Any:
    made = make_table(warehouse)
    made.append(rows(0, 20))
    made.append(rows(10, 20))
    return made


def statistics(warehouse: Path) -> list[Any]:
    return list(pyiceberg_table(warehouse).metadata.statistics)


def test_the_distinct_values_of_each_column_are_counted(
    lake: CommandLine, warehouse: Path, table: Any
) -> None:
    plan = lake.ok("stats", "db.t", "--dry-run")
    assert plan["plan"] == {
        "columns": ["id", "name"],
        "data_files": 2,
        "rows": 40,
        "rows_at_most": 40,
        "bytes": plan["plan"]["bytes"],
    }
    assert statistics(warehouse) == []

    done = lake.ok("stats", "db.t")

    ndv = {column["name"]: column["ndv"] for column in done["result"]["columns"]}
    assert ndv == {"id": 30, "name": 5}
    (file,) = statistics(warehouse)
    assert file.snapshot_id == table.refresh().metadata.current_snapshot_id
    assert [blob.properties for blob in file.blob_metadata] == [{"ndv": "30"}, {"ndv": "5"}]
    assert [blob.fields for blob in file.blob_metadata] == [[1], [2]]
    data = Path(file.statistics_path.removeprefix("file://")).read_bytes()
    assert len(data) == file.file_size_in_bytes == done["result"]["bytes_written"]
    assert data[-file.file_footer_size_in_bytes :][:4] == b"PFA1" == data[:4] == data[-4:]
    sketch = datasketches.compact_theta_sketch.deserialize(data[4 : 4 + 16 + 30 * 8])
    assert sketch.get_estimate() == 30


def test_deleted_rows_are_not_counted(lake: CommandLine, tmp_path: Path, table: Any) -> None:
    table.delete("id >= 20")
    keys = tmp_path / "keys.csv"
    keys.write_text("id,name,op\n" + "".join(f"{one},,-D\n" for one in range(5, 20)))
    change = ("--changes-column", "op", "--changes-mode", "upsert", "--key", "id")
    lake.ok("ingest", "db.t", keys, *change)

    done = lake.ok("stats", "db.t", "--select", "id")

    assert done["result"]["columns"] == [{"name": "id", "id": 1, "ndv": 5}]


def test_a_snapshot_is_described_once(lake: CommandLine, warehouse: Path, table: Any) -> None:
    lake.ok("stats", "db.t", "--select", "name")
    again = ("stats", "db.t", "--select", "name")
    assert lake.ok(*again)["status"] == "nothing-to-do"
    assert "the snapshot has these statistics already" in lake(*again).stdout

    assert lake.ok("stats", "db.t")["status"] == "done"
    (file,) = statistics(warehouse)
    assert len(file.blob_metadata) == 2
    table.refresh()
    table.append(rows(100, 1))
    assert lake.ok("stats", "db.t")["result"]["columns"][0]["ndv"] == 31
    assert len(statistics(warehouse)) == 2


def test_a_table_without_rows_has_nothing_to_describe(lake: CommandLine, warehouse: Path) -> None:
    make_table(warehouse)

    assert lake.ok("stats", "db.t")["status"] == "nothing-to-do"
    assert "the branch has no snapshot to describe" in lake("stats", "db.t").stdout


@pytest.mark.parametrize(("select", "code"), [("missing", 7), ("tags", 2)])
def test_columns_that_cannot_be_described_are_refused(
    lake: CommandLine, tmp_path: Path, select: str, code: int
) -> None:
    source = tmp_path / "rows.json"
    source.write_text('{"id": 1, "tags": ["a"]}\n')
    lake.ok("ingest", "db.t", source, "--create")

    assert lake("stats", "db.t", "--select", select).exit_code == code
    assert lake.ok("stats", "db.t")["plan"]["columns"] == ["id"]


def files_of(warehouse: Path) -> list[Path]:
    return sorted(warehouse.rglob("*.stats"))


def test_the_file_is_removed_if_the_snapshot_expires_meanwhile(warehouse: Path, table: Any) -> None:
    described = table.metadata.current_snapshot_id

    def expire(commit: Any) -> Any:
        now = pyiceberg_table(warehouse)
        now.append(rows(50, 1))
        now.maintenance.expire_snapshots().by_id(described).commit()
        return commit()

    result = CommandLine(warehouse, engine="inline").with_faults(expire)("--json", "stats", "db.t")

    assert result.exit_code == 4
    assert "expired meanwhile" in result.json()["error"]["message"]
    assert files_of(warehouse) == []


def test_the_file_is_kept_if_the_outcome_of_the_commit_is_unknown(
    warehouse: Path, table: Any
) -> None:
    result = CommandLine(warehouse, engine="inline").with_faults(
        applied_then(ConnectionError("lost"))
    )("--json", "stats", "db.t")

    assert result.exit_code in {0, 5}
    assert len(files_of(warehouse)) == 1
    assert len(statistics(warehouse)) == 1
    assert table is not None
