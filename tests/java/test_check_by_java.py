"""`lake check` finds no damage in tables that Iceberg Java wrote."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.cli.command_line import CommandLine
from support.peers.java_peer import JavaPeer
from support.tables.iceberg_tables import pyiceberg_catalog

pytestmark = pytest.mark.java
_LATER = "TIMESTAMP '2100-01-01 00:00:00'"


@pytest.mark.slow
@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_table_that_java_changed_in_many_ways_has_no_findings(
    warehouse: Path, java: JavaPeer, version: int
) -> None:
    pyiceberg_catalog(warehouse).create_namespace("db")
    mode = "copy-on-write" if version == 1 else "merge-on-read"
    modes = ", ".join(f"'write.{verb}.mode'='{mode}'" for verb in ("delete", "update", "merge"))
    properties = f"PARTITIONED BY (day) TBLPROPERTIES ('format-version'='{version}', {modes})"

    for statement in (
        f"CREATE TABLE {{c}}.db.t (id bigint, day date, name string) USING iceberg {properties}",
        "INSERT INTO {c}.db.t SELECT id, date_add(DATE '2026-01-01', CAST(id % 3 AS INT)), 'a' FROM range(90)",
        "DELETE FROM {c}.db.t WHERE id % 7 = 0",
        "ALTER TABLE {c}.db.t ADD PARTITION FIELD bucket(4, id)",
        "UPDATE {c}.db.t SET name = 'b' WHERE id % 5 = 0",
        "ALTER TABLE {c}.db.t CREATE TAG old",
        "ALTER TABLE {c}.db.t ADD COLUMN more int",
        "CALL {c}.system.rewrite_data_files(table => 'db.t', options => map('rewrite-all', 'true'))",
        "CALL {c}.system.rewrite_manifests('db.t')",
        "DELETE FROM {c}.db.t WHERE day = DATE '2026-01-02'",
        "CALL {c}.system.compute_table_stats(table => 'db.t')",
        f"CALL {{c}}.system.expire_snapshots(table => 'db.t', retain_last => 2, older_than => {_LATER})",
        "INSERT OVERWRITE {c}.db.t SELECT * FROM {c}.db.t WHERE id < 9",
    ):
        java.sql(warehouse, statement)

    result = CommandLine(warehouse).ok("check", "db.t", "--rows")["result"]

    assert result["findings"] == []
    assert result["manifests"] >= 3
