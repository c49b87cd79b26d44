"""Change logs that lake loads, read by Iceberg Java after every load."""

from __future__ import annotations

import datetime
import decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.cli.command_line import CommandLine
from support.peers.java_peer import JavaPeer
from support.tables.change_logs import Model, shown, write_log
from support.tiers import in_turn

pytestmark = pytest.mark.java

_UPSERT, _RETRACT = "upsert", "retract"


def java_rows(java: JavaPeer, warehouse: Path) -> list[dict[str, Any]]:
    return java.sql(warehouse, "SELECT id, part, value FROM {c}.db.t")


@pytest.mark.parametrize(
    ("partitioned", "mode", "key", "version"),
    in_turn(
        [
            (None, _UPSERT, "id"),
            ("part", _UPSERT, "id,part"),
            ("bucket(4, id)", _UPSERT, "id"),
            (None, _RETRACT, "id"),
            ("part", _RETRACT, "id"),
        ],
        [2, 3],
    ),
    ids=lambda value: str(value).replace(" ", ""),
)
def test_java_reads_the_rows_that_a_log_leaves(
    lake: CommandLine,
    java: JavaPeer,
    tmp_path: Path,
    version: int,
    partitioned: str | None,
    mode: str,
    key: str,
) -> None:
    model = Model(key.split(","), seed=version)
    creation = ["--create", "--property", f"format-version={version}"]
    creation += ["--partition-by", partitioned] if partitioned else []
    for number in range(4):
        log = model.upserts(100) if mode == _UPSERT else model.retractions(60)
        path = write_log(tmp_path / "log.parquet", log)
        options = ["--changes-column", "op", "--changes-mode", mode, "--key", key]
        options += ["--local-merge", "1KB"] if mode == _UPSERT and number % 2 else []
        lake.ok("ingest", "db.t", path, *options, *([] if number else creation))

        assert shown(java_rows(java, lake.warehouse)) == shown(list(model.rows.values()))
    found = java.sql(
        lake.warehouse,
        "SELECT content, file_format, count(*) AS n FROM {c}.db.t.delete_files GROUP BY ALL",
    )
    kinds = {(row["content"], row["file_format"]) for row in found}
    assert kinds == {(1, "PARQUET" if version == 2 else "PUFFIN"), (2, "PARQUET")}


@pytest.mark.parametrize(
    ("version", "deletes"), [(1, "copy-on-write"), (2, "position"), (3, "position")]
)
def test_java_reads_one_row_of_a_key_that_moved_to_another_partition(
    lake: CommandLine, java: JavaPeer, tmp_path: Path, version: int, deletes: str
) -> None:
    model = Model(["id"], seed=version)
    creation = ["--create", "--property", f"format-version={version}", "--partition-by", "part"]
    for number in range(3):
        path = write_log(tmp_path / "log.parquet", model.upserts(60))
        options = ["--changes-column", "op", "--changes-mode", _UPSERT, "--key", "id"]
        options += ["--deletes", deletes]
        lake.ok("ingest", "db.t", path, *options, *([] if number else creation))

        assert shown(java_rows(java, lake.warehouse)) == shown(list(model.rows.values()))
    found = java.sql(lake.warehouse, "SELECT DISTINCT content FROM {c}.db.t.delete_files")
    assert [row["content"] for row in found] == ([] if version == 1 else [1])


def test_changes_that_java_adds_to_a_table_are_applied_to_another_one(
    lake: CommandLine, java: JavaPeer
) -> None:
    lake.ok("create", "db.log", "op string, id long, part string, value long")
    follow = ["ingest", "db.t", "--from-table", "db.log", "--follow", "--stream", "s", "--once"]
    follow += ["--create", "--partition-by", "part", "--property", "format-version=3"]
    follow += ["--changes-column", "op", "--changes-mode", _UPSERT, "--deletes", "position"]
    follow += ["--sequence", "value", "--key", "id"]
    for changes in (
        ["('+I', 1, 'x', 1)", "('+I', 2, 'x', 1)", "('+I', 3, 'y', 1)"],
        ["('+U', 1, 'z', 3)", "('+U', 1, 'y', 2)", "('-D', 2, NULL, 2)", "('+U', 4, 'z', 2)"],
        ["('+U', 3, 'x', 4)", "('+U', 1, 'x', 2)", "('-D', 4, NULL, 5)"],
    ):
        # Each row is a file: rows of one commit have no order.
        java.sql(
            lake.warehouse,
            "INSERT INTO {c}.db.log SELECT /*+ REPARTITION(4) */ * FROM VALUES "
            + ", ".join(changes),
        )
        lake.ok(*follow)

    found = {(row["id"], row["part"], row["value"]) for row in java_rows(java, lake.warehouse)}
    assert found == {(1, "z", 3), (3, "x", 4)}


@pytest.mark.parametrize("version", [2, 3])
def test_what_a_log_left_java_compacts_to_the_same_rows(
    lake: CommandLine, java: JavaPeer, tmp_path: Path, version: int
) -> None:
    model = Model(["id"], seed=9)
    creation = ["--create", "--property", f"format-version={version}"]
    for number in range(3):
        path = write_log(tmp_path / "log.csv", model.upserts(100))
        options = ["--changes-column", "op", "--changes-mode", _UPSERT, "--key", "id"]
        lake.ok("ingest", "db.t", path, *options, *([] if number else creation))
    java.sql(
        lake.warehouse,
        "CALL {c}.system.rewrite_data_files(table => 'db.t', options => map('rewrite-all', 'true'))",
    )

    assert shown(java_rows(java, lake.warehouse)) == shown(list(model.rows.values()))


def test_java_finds_keys_of_every_type(lake: CommandLine, java: JavaPeer, tmp_path: Path) -> None:
    key = {
        "flag": pa.bool_(),
        "small": pa.int32(),
        "price": pa.decimal128(9, 2),
        "wide": pa.decimal128(30, 4),
        "day": pa.date32(),
        "ts": pa.timestamp("us"),
        "tz": pa.timestamp("us", "UTC"),
        "name": pa.string(),
        "raw": pa.binary(),
        "f": pa.float32(),
        "d": pa.float64(),
    }
    schema = pa.schema([("op", pa.string()), *key.items(), ("value", pa.int64())])
    first = [{"op": "+I", **_key(number), "value": number} for number in range(60)]
    second = [{"op": "-D", **_key(number), "value": None} for number in range(0, 60, 3)]
    second += [{"op": "+U", **_key(number), "value": -number} for number in range(1, 60, 3)]
    options = ["--changes-column", "op", "--changes-mode", _UPSERT, "--key", ",".join(key)]
    for number, log in enumerate((first, second)):
        pq.write_table(pa.Table.from_pylist(log, schema), tmp_path / "log.parquet")
        creation = ["--partition-by", "bucket(3, name), day(tz)", "--create"]
        lake.ok(
            "ingest", "db.t", tmp_path / "log.parquet", *options, *creation[: 0 if number else 3]
        )

    found = java.sql(lake.warehouse, "SELECT value FROM {c}.db.t")
    expected = [-number if number % 3 == 1 else number for number in range(60) if number % 3]
    assert sorted(row["value"] for row in found) == sorted(expected)
    out = tmp_path / "rows.parquet"
    lake.ok("scan", "db.t", "--select", "value", "--output", out)
    assert sorted(pq.read_table(out)["value"].to_pylist()) == sorted(expected)


def _key(number: int) -> dict[str, Any]:
    moment = datetime.datetime(1969, 12, 30, 22) + datetime.timedelta(hours=number, microseconds=1)
    return {
        "flag": number % 2 == 0,
        "small": number // 2 - 10,
        "price": decimal.Decimal(number - 30) / 100,
        "wide": decimal.Decimal(number - 30) ** 5 / 10000,
        "day": datetime.date(1970, 1, 1) + datetime.timedelta(days=number - 30),
        "ts": moment,
        "tz": moment.replace(tzinfo=datetime.UTC),
        "name": ["", "a", "é\U0001f600", "x" * 300][number % 4],
        "raw": bytes([255, number]) * (number % 3),
        "f": [0.0, -0.0, float("inf"), 1.5][number % 4],
        "d": [-0.0, 0.0, 1e300][number % 3],
    }
