"""`lake check` through the command line, on tables without damage."""

from __future__ import annotations

from collections.abc import Callable
from itertools import cycle, product
from pathlib import Path
from typing import Any

import pytest
from support.cli.command_line import CommandLine
from support.tables import flink_fixtures, pyiceberg_tables
from support.tables.flink_fixtures import FlinkFixture
from support.tiers import chosen

from lake.core.io.storage.storage import Storage
from lake.core.maintain.checking import surroundings


@pytest.fixture
def table(lake: CommandLine, tmp_path: Path) -> CommandLine:
    rows = tmp_path / "rows.csv"
    rows.write_text("id,name\n1,a\n2,b\n")
    lake.ok("ingest", "db.t", rows, "--create")
    lake.ok("ingest", "db.t", rows)
    return lake


@pytest.mark.parametrize("deletes", ["position", "equality", "copy-on-write"])
@pytest.mark.parametrize("kind", ["parquet", "orc", "avro"])
def test_files_of_all_formats_agree_with_their_manifests(
    lake: CommandLine, tmp_path: Path, kind: str, deletes: str
) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text("id,name,at,ok\n1,a,2026-01-01T10:00:00,true\n2,,,\n")
    lake.ok("ingest", "db.t", rows, "--create", "--property", f"write.format.default={kind}")
    lake.ok("ingest", "db.t", rows, "--upsert", "--key", "id", "--deletes", deletes)
    result = lake.ok("check", "db.t", "--deep")["result"]
    assert (result["level"], result["findings"]) == ("deep", [])


def test_a_table_without_damage_has_no_findings(table: CommandLine) -> None:
    found = table.ok("check", "db.t")
    assert found["status"] == "done"
    assert found["result"]["findings"] == []
    assert found["result"]["level"] == "metadata"


def test_each_file_is_looked_up_once(table: CommandLine) -> None:
    table.ok("manifests", "db.t", "--target-size", "1KB")
    result = table.ok("check", "db.t", "--files")["result"]
    assert (result["level"], result["files"], result["findings"]) == ("files", 2, [])


@pytest.mark.parametrize("name", flink_fixtures.names())
def test_tables_that_flink_wrote_have_no_findings(
    flink: Callable[[str], FlinkFixture], name: str
) -> None:
    fixture = flink(name)
    lake = CommandLine(fixture.warehouse, catalog_type=fixture.catalog_type)
    found = lake.ok("check", fixture.table, "--deep")
    assert found["result"]["findings"] == []


_EXPIRE = ("--older-than", "0s", "--retain-last", "1", "--unsafe-retention")


def _unharmed(lake: CommandLine) -> None:
    """Assert that no step left anything that is worse than a note."""
    found = lake.ok("check", "db.t", "--deep")["result"]
    assert [item for item in found["findings"] if item["severity"] != "note"] == []


_TRANSFORMS = [name for name in pyiceberg_tables.SPECS if name != "unpartitioned"]
_UPGRADED = ("1", "2 to 3")


@pytest.mark.parametrize(
    ("version", "transform"),
    [
        *((version, "unpartitioned") for version in pyiceberg_tables.VERSIONS),
        *chosen(
            # A night tries all of them (tests/soak/nights.py).
            list(zip(cycle(_UPGRADED), _TRANSFORMS)),
            list(product(_UPGRADED, _TRANSFORMS)),
        ),
    ],
)
def test_tables_that_pyiceberg_wrote_have_no_findings(
    tmp_path: Path, version: str, transform: str
) -> None:
    lake = CommandLine(pyiceberg_tables.course(tmp_path, version, transform).warehouse)
    assert lake.ok("check", "db.t", "--deep")["result"]["findings"] == []
    lake.ok("compact", "db.t", "--rewrite-all", "--min-input-files", "1")
    lake.ok("expire", "db.t", *_EXPIRE)
    assert lake.ok("check", "db.t", "--deep")["result"]["findings"] == []


@pytest.mark.parametrize(
    ("version", "deletes"),
    [
        (1, "copy-on-write"),
        *chosen(
            [(2, "equality"), (2, "position"), (3, "position")],
            list(product((2, 3), ("position", "equality", "copy-on-write"))),
        ),
    ],
)
def test_the_life_of_a_table_leaves_no_findings(
    lake: CommandLine, tmp_path: Path, version: int, deletes: str
) -> None:
    rows = tmp_path / "rows.csv"
    upsert = ("--upsert", "--key", "id,part", "--deletes", deletes)
    rows.write_text("id,part,n\n1,a,1\n2,b,2\n3,a,3\n")
    options = ("--partition-by", "part", "--sort-by", "n")
    lake.ok("ingest", "db.t", rows, "--create", *options, "--property", f"format-version={version}")
    rows.write_text("id,part,n\n1,a,4\n4,c,5\n")
    first = lake.ok("ingest", "db.t", rows, *upsert)["snapshot_ids"][-1]
    _unharmed(lake)
    lake.ok("tag", "db.t", "old")
    lake.ok("alter", "db.t", "--add-column", "more string", "--rename-column", "n=number")
    if deletes != "equality":
        lake.ok("alter", "db.t", "--partition-by", "part, bucket(2, id)")
    rows.write_text("id,part,number,more\n2,b,6,x\n5,a,7,y\n")
    lake.ok("ingest", "db.t", rows, *upsert)
    _unharmed(lake)
    lake.ok("ref", "db.t", "--branch-create", "audit")
    lake.ok("ingest", "db.t", rows, "--branch", "audit")
    lake.ok("compact", "db.t", "--rewrite-all", "--min-input-files", "1")
    _unharmed(lake)
    lake.ok("manifests", "db.t", "--target-size", "1KB")
    lake.ok("rollback", "db.t", first, "--any")
    _unharmed(lake)
    rows.write_text("id,part,number,more\n2,b,8,z\n6,a,7,y\n")
    lake.ok("ingest", "db.t", rows, *upsert)
    lake.ok("expire", "db.t", *_EXPIRE)
    _unharmed(lake)


def test_an_earlier_metadata_file_that_a_commit_removes_meanwhile_is_not_damage(
    lake: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text("id,name\n1,a\n2,b\n")
    short_log = (
        *("--property", "write.metadata.delete-after-commit.enabled=true"),
        *("--property", "write.metadata.previous-versions-max=1"),
    )
    lake.ok("ingest", "db.t", rows, "--create", *short_log)
    lake.ok("ingest", "db.t", rows)
    real, commits = surroundings.read_metadata, iter(range(2))

    def read(storage: Storage, location: str) -> Any:
        for _ in commits:
            lake.ok("ingest", "db.t", rows)
        return real(storage, location)

    monkeypatch.setattr(surroundings, "read_metadata", read)

    assert lake.ok("check", "db.t")["result"]["findings"] == []
    assert lake.ok("scan", "db.t")["result"]["rows"] == 8
