"""Change logs that lake loads, read by Iceberg Java after every load."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from change_logs import Model, shown, write_log
from command_line import CommandLine
from java_peer import JavaPeer

pytestmark = pytest.mark.java

_UPSERT, _RETRACT = "upsert", "retract"


def java_rows(java: JavaPeer, warehouse: Path) -> list[dict[str, Any]]:
    return java.sql(warehouse, "SELECT id, part, value FROM {c}.db.t")


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize(
    ("partitioned", "mode", "key"),
    [
        (None, _UPSERT, "id"),
        ("part", _UPSERT, "id,part"),
        ("bucket(4, id)", _UPSERT, "id"),
        (None, _RETRACT, "id"),
        ("part", _RETRACT, "id"),
    ],
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
        lake.ok("ingest", "db.t", path, *options, *([] if number else creation))

        assert shown(java_rows(java, lake.warehouse)) == shown(list(model.rows.values()))
    found = java.sql(
        lake.warehouse,
        "SELECT content, file_format, count(*) AS n FROM {c}.db.t.delete_files GROUP BY ALL",
    )
    kinds = {(row["content"], row["file_format"]) for row in found}
    assert kinds == {(1, "PARQUET" if version == 2 else "PUFFIN"), (2, "PARQUET")}


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
