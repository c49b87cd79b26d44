"""`lake scan`: the right rows, the right refusals, and nothing left behind."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from types import ModuleType

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import DoubleType, IntegerType, LongType, NestedField, StringType, StructType
from support.cli.command_line import CommandLine
from support.tables.iceberg_tables import make_table, pyiceberg_table

from lake.core.data.formats.parquet import footer, reader

NESTED = Schema(
    NestedField(1, "id", IntegerType(), required=False),
    NestedField(2, "name", StringType(), required=False),
    NestedField(
        3,
        "at",
        StructType(
            NestedField(4, "x", DoubleType(), required=False),
            NestedField(5, "y", DoubleType(), required=False),
        ),
        required=False,
    ),
)


@pytest.fixture
def four(warehouse: Path) -> list[str]:
    """A table of four appends, rows (0, "n0") to (3, "n3"); returns the snapshot ids, oldest first."""
    table = make_table(warehouse)
    ids = []
    for number in range(4):
        rows = pa.table({"id": pa.array([number], pa.int64()), "name": [f"n{number}"]})
        table.append(rows)
        ids.append(str(table.metadata.current_snapshot_id))
    return ids


def read(lake: CommandLine, *options: object) -> list[dict[str, object]]:
    """Return the rows that a scan writes to standard output."""
    result = lake("scan", "db.t", "--output", "-", "--output-format", "json", *options)
    assert result.exit_code == 0, result
    return [json.loads(line) for line in result.stdout.splitlines()]


def ids_of(lake: CommandLine, *options: object) -> list[object]:
    """Return the sorted ids of a scan."""
    return sorted(row["id"] for row in read(lake, *options))  # type: ignore[type-var]


def test_a_snapshot_is_read_by_id_tag_branch_and_time(
    lake: CommandLine, warehouse: Path, four: list[str]
) -> None:
    table = pyiceberg_table(warehouse)
    table.manage_snapshots().create_tag(int(four[1]), "audit").create_branch(
        int(four[2]), "work"
    ).commit()
    second = table.snapshot_by_id(int(four[1]))
    assert second is not None

    assert ids_of(lake) == [0, 1, 2, 3]
    assert ids_of(lake, "--snapshot", four[0]) == [0]
    assert ids_of(lake, "--snapshot", "audit") == [0, 1]
    assert ids_of(lake, "--snapshot", "work") == [0, 1, 2]
    assert ids_of(lake, "--branch", "work") == [0, 1, 2]
    moment = f"@{second.timestamp_ms // 1000}"
    assert lake("scan", "db.t", "--snapshot", moment).exit_code == 2
    assert lake("scan", "db.t", "--snapshot", "@1999-01-01").exit_code == 7
    assert ids_of(lake, "--snapshot", "@2999-01-01") == [0, 1, 2, 3]


def test_an_increment_is_exclusive_of_its_start_and_inclusive_of_its_end(
    lake: CommandLine, four: list[str]
) -> None:
    first, second, third, fourth = four

    assert ids_of(lake, "--from-snapshot", first) == [1, 2, 3]
    assert ids_of(lake, "--from-snapshot", first, "--to-snapshot", third) == [1, 2]
    assert ids_of(lake, "--from-snapshot", second, "--inclusive") == [1, 2, 3]
    assert ids_of(lake, "--to-snapshot", second) == [0, 1]
    assert ids_of(lake, "--from-snapshot", fourth) == []


def test_an_expired_start_is_legal_while_its_child_lives(
    lake: CommandLine, four: list[str]
) -> None:
    first, second, third, fourth = four
    lake.ok("expire", "db.t", "--retain-last", "2", "--older-than", "0s", "--unsafe-retention")

    assert ids_of(lake, "--from-snapshot", second) == [2, 3]
    result = lake("--json", "scan", "db.t", "--from-snapshot", first)
    assert result.exit_code == 7
    message = result.json()["error"]["message"]
    assert first in message
    assert fourth in message
    whole = lake("--json", "scan", "db.t", "--to-snapshot", fourth)
    assert whole.json()["plan"]["records"] == 2
    assert any("expired" in text for text in whole.json()["warnings"])
    assert ids_of(lake, "--from-snapshot", third) == [3]


def test_a_start_that_was_rolled_back_is_not_an_ancestor(
    lake: CommandLine, warehouse: Path, four: list[str]
) -> None:
    table = pyiceberg_table(warehouse)
    table.manage_snapshots().rollback_to_snapshot(int(four[1])).commit()

    result = lake("--json", "scan", "db.t", "--from-snapshot", four[3])

    assert result.exit_code == 7
    assert four[3] in result.json()["error"]["message"]
    assert four[1] in result.json()["error"]["message"]


def test_overwrites_and_rewrites_are_skipped_and_named(
    lake: CommandLine, warehouse: Path, four: list[str]
) -> None:
    table = pyiceberg_table(warehouse)
    table.delete("id == 0")
    lake.ok("compact", "db.t", "--min-input-files", "2")
    table.refresh()
    table.append(pa.table({"id": pa.array([9], pa.int64()), "name": ["n9"]}))

    document = lake.ok("scan", "db.t", "--from-snapshot", four[3], "--plan")

    assert document["plan"]["records"] == 1
    warnings = " ".join(document["warnings"])
    assert "delete" in warnings
    assert "replace" in warnings
    assert ids_of(lake, "--from-snapshot", four[0]) == [1, 2, 3, 9]


def test_merged_manifests_show_each_row_once(lake: CommandLine, warehouse: Path) -> None:
    table = make_table(warehouse, commit__manifest__min_count_to_merge="2")
    start = None
    for number in range(6):
        source = warehouse / "s.parquet"
        pq.write_table(pa.table({"id": pa.array([number], pa.int64())}), source)
        lake.ok("ingest", "db.t", source)
        table.refresh()
        if number == 2:
            start = table.metadata.current_snapshot_id

    assert ids_of(lake, "--from-snapshot", start) == [3, 4, 5]
    assert ids_of(lake) == list(range(6))


def test_a_preview_shows_as_many_rows_as_the_limit(lake: CommandLine, tmp_path: Path) -> None:
    source = tmp_path / "rows.csv"
    source.write_text("id\n" + "".join(f"{number}\n" for number in range(100)))
    lake.ok("ingest", "db.t", source, "--create")

    def shown(*words: object) -> list[int]:
        result = lake.ok("scan", "db.t", *words)["result"]
        assert result["rows"] == len(result["preview"])
        return [row["id"] for row in result["preview"]]

    assert shown() == list(range(20))
    assert shown("--limit", 50) == list(range(50))
    assert shown("--limit", 500) == list(range(100))
    assert shown("--limit", 3) == list(range(3))


def test_filter_projection_and_limit(lake: CommandLine, warehouse: Path) -> None:
    table = make_table(warehouse, schema=NESTED)
    rows = [
        {
            "id": number,
            "name": None if number == 3 else f"n{number}",
            "at": None if number == 4 else {"x": number / 2, "y": -1.0},
        }
        for number in range(6)
    ]
    table.append(pa.Table.from_pylist(rows, schema=table.schema().as_arrow()))

    assert read(lake, "--where", "id > 3", "--select", "id") == [{"id": 4}, {"id": 5}]
    assert ids_of(lake, "--where", "name is null") == [3]
    assert ids_of(lake, "--where", "name != 'n1'") == [0, 2, 4, 5]
    assert ids_of(lake, "--where", "at.x >= 2.5") == [5]
    assert read(lake, "--select", "at.x", "--where", "id = 2") == [{"at": {"x": 1.0}}]
    assert read(lake, "--select", "name", "--where", "at.y < 0 and id = 1") == [{"name": "n1"}]
    assert len(read(lake, "--limit", 4)) == 4
    assert read(lake, "--limit", 0) == []
    assert ids_of(lake, "--ignore-case", "--where", "ID = 2", "--select", "Id") == [2]
    assert lake("scan", "db.t", "--where", "ID = 2").exit_code == 7
    assert lake("scan", "db.t", "--select", "nope").exit_code == 7
    assert lake("scan", "db.t", "--where", "id = 'x'").exit_code == 7
    assert lake("scan", "db.t", "--where", "id >").exit_code == 7


def test_columns_are_followed_by_id_through_renames_drops_and_promotions(
    lake: CommandLine, warehouse: Path
) -> None:
    table = make_table(warehouse, schema=NESTED)
    table.append(
        pa.Table.from_pylist(
            [{"id": 1, "name": "old", "at": {"x": 1.0, "y": 2.0}}],
            schema=table.schema().as_arrow(),
        )
    )
    first = str(table.metadata.current_snapshot_id)
    with table.update_schema(allow_incompatible_changes=True) as update:
        update.update_column("id", LongType()).rename_column("id", "key")
        update.delete_column("name")
        update.rename_column("at.x", "east")
    with table.update_schema() as update:
        update.add_column("name", StringType())
    table.append(
        pa.Table.from_pylist(
            [{"key": 2**40, "name": "new", "at": {"east": 3.0, "y": 4.0}}],
            schema=table.schema().as_arrow(),
        )
    )

    found = sorted(read(lake), key=lambda row: str(row["key"]))
    assert found == [
        {"key": 1, "at": {"east": 1.0, "y": 2.0}, "name": None},
        {"key": 2**40, "at": {"east": 3.0, "y": 4.0}, "name": "new"},
    ]
    assert read(lake, "--snapshot", first) == [{"id": 1, "name": "old", "at": {"x": 1.0, "y": 2.0}}]


@pytest.mark.parametrize("suffix", ["parquet", "csv", "json", "arrow"])
def test_each_format_can_be_read_back_by_ingest(
    lake: CommandLine, warehouse: Path, tmp_path: Path, four: list[str], suffix: str
) -> None:
    output = tmp_path / f"rows.{suffix}"
    document = lake.ok("scan", "db.t", "--output", output)
    assert document["result"]["rows"] == 4
    assert document["result"]["bytes_written"] == output.stat().st_size

    lake.ok("ingest", "db.copy", output, "--create")
    copy = pyiceberg_table(warehouse, "db.copy").scan().to_arrow()
    assert sorted(copy["name"].to_pylist()) == ["n0", "n1", "n2", "n3"]


@pytest.mark.parametrize("engine", ["inline", "spark"])
def test_a_folder_gets_files_and_a_suffix_one_file_on_both_engines(
    warehouse: Path, tmp_path: Path, four: list[str], engine: str
) -> None:
    lake = CommandLine(warehouse, engine=engine)
    folder, single = tmp_path / "folder", tmp_path / "one.csv"

    lake.ok("scan", "db.t", "--output", folder, "--split-open-cost", "128MB")
    lake.ok("scan", "db.t", "--output", single)

    assert sorted(pq.read_table(folder)["id"].to_pylist()) == [0, 1, 2, 3]
    assert len(list(folder.iterdir())) == 4
    with single.open() as file:
        assert sorted(row["name"] for row in csv.DictReader(file)) == ["n0", "n1", "n2", "n3"]


def test_an_existing_output_stays_unless_it_may_be_replaced(
    lake: CommandLine, tmp_path: Path, four: list[str]
) -> None:
    output = tmp_path / "rows.csv"
    output.write_text("mine")

    assert lake("scan", "db.t", "--output", output).exit_code == 2
    assert output.read_text() == "mine"
    assert lake("scan", "db.t", "--output", output, "--replace").exit_code == 0
    assert "n0" in output.read_text()


def test_a_broken_data_file_leaves_no_output(
    lake: CommandLine, warehouse: Path, tmp_path: Path, four: list[str]
) -> None:
    victim = next(warehouse.rglob("*.parquet"))
    data = bytearray(victim.read_bytes())
    data[20] ^= 0xFF
    victim.write_bytes(data[:-9])
    output = tmp_path / "out" / "rows.csv"
    output.parent.mkdir()

    result = lake("--json", "scan", "db.t", "--output", output)

    assert result.exit_code == 7
    assert victim.name in result.json()["error"]["message"]
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize(
    "options",
    [
        ["--snapshot", "1", "--from-snapshot", "2"],
        ["--inclusive"],
        ["--split-size", "0"],
        ["--split-lookback", "0"],
        ["--output-format", "xml"],
        ["--output-format", "csv"],
        ["--limit", "-1"],
    ],
    ids=" ".join,
)
def test_contradicting_options_are_usage_errors(
    lake: CommandLine, four: list[str], options: list[str]
) -> None:
    assert lake("--json", "scan", "db.t", *options).exit_code == 2


def test_standard_output_cannot_be_data_and_a_document(lake: CommandLine, four: list[str]) -> None:
    assert lake("--json", "scan", "db.t", "--output", "-").exit_code == 2


def test_the_preview_shows_rows_and_the_plan_counts_all(lake: CommandLine, four: list[str]) -> None:
    document = lake.ok("scan", "db.t")

    assert len(document["result"]["preview"]) == 4
    assert document["plan"]["records"] == 4
    assert document["plan"]["files"] == 4
    assert document["plan"]["splits"] == 1


def test_an_empty_table_has_nothing_to_scan(lake: CommandLine, warehouse: Path) -> None:
    make_table(warehouse)

    document = lake.ok("scan", "db.t")

    assert document["status"] == "nothing-to-do"
    assert document["result"]["preview"] == []


@pytest.mark.parametrize(
    ("module", "bound", "message"),
    [
        (footer, "_MAX_FOOTER_BYTES", "its footer claims"),
        (reader, "_MAX_ROW_GROUPS", "row groups"),
    ],
    ids=["footer", "row groups"],
)
def test_a_data_file_whose_footer_is_beyond_all_bounds_is_refused(
    lake: CommandLine, monkeypatch: pytest.MonkeyPatch, module: ModuleType, bound: str, message: str
) -> None:
    make_table(lake.warehouse).append(pa.table({"id": pa.array([1], pa.int64()), "name": ["x"]}))
    monkeypatch.setattr(module, bound, 0)
    result = lake("--json", "scan", "db.t")

    assert result.exit_code == 7
    assert result.json()["error"]["kind"] == "corrupt"
    assert message in result.json()["error"]["message"]


def test_columns_may_have_the_names_of_keys_of_the_document(lake: CommandLine) -> None:
    lake.load("id,error,warnings\n1,x,y\n", "--create")

    document = lake.ok("scan", "db.t")

    assert document["result"]["preview"] == [{"id": 1, "error": "x", "warnings": "y"}]


@pytest.mark.parametrize("option", [(), ("--changes",), ("--plan",)])
def test_a_part_of_a_key_of_a_map_is_not_selected(
    lake: CommandLine, option: tuple[str, ...]
) -> None:
    lake.ok("create", "db.t", "id long", "m map<struct<x: int>, struct<x: int, y: int>>")
    (lake.warehouse.parent / "rows.json").write_text('{"id": 1, "m": [[{"x": 1}, {"y": 2}]]}\n')
    lake.ok("ingest", "db.t", lake.warehouse.parent / "rows.json")

    refused = lake("scan", "db.t", "--select", "id,m.key.x", *option)

    assert refused.exit_code == 2
    assert "m.key.x is part of a key of a map" in refused.stderr
    for name, value in (("m.key", {"x": None, "y": 2}), ("m.value.y", {"y": 2})):
        assert read(lake, "--select", name) == [{"m": [[{"x": 1}, value]]}]
