"""Commands whose manifests Spark's executors read do what they do without it: judged by PyIceberg."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import IdentityTransform
from support.cli.command_line import CommandLine
from support.tables.iceberg_tables import ids_in, make_table, pyiceberg_table
from support.tables.metadata_edits import edit_metadata

pytestmark = pytest.mark.spark

SPEC = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "id"))
EXPIRE = ("expire", "db.t", "--older-than", "0s", "--unsafe-retention", "--retain-last", "1")
OLD = 1_700_000_000


@pytest.fixture
def lake(warehouse: Path) -> CommandLine:
    return CommandLine(warehouse, engine="spark")


@pytest.fixture(params=[1, 3])
def table(request: pytest.FixtureRequest, warehouse: Path) -> Path:
    """The folder of a table of one format version, whose last snapshot lacks some files of those before it."""
    made = make_table(warehouse, spec=SPEC, format_version=str(min(request.param, 2)))
    for number in range(4):
        ids = pa.array([number, number + 10], pa.int64())
        pyiceberg_table(warehouse).append(pa.table({"id": ids, "name": ["a", "b"]}))
    pyiceberg_table(warehouse).delete("id = 2 or id = 11")
    if request.param > 2:
        # PyIceberg does not write to tables of this version.
        CommandLine(warehouse).ok("alter", "db.t", "--format-version", "3")
    return Path(made.metadata.location.removeprefix("file://"))


def data_files(folder: Path) -> set[str]:
    return {path.name for path in (folder / "data").rglob("*.parquet")}


def live_files(warehouse: Path) -> set[str]:
    found = pyiceberg_table(warehouse).inspect.files()["file_path"].to_pylist()
    return {path.rpartition("/")[2] for path in found}


def test_exactly_the_files_of_expired_snapshots_and_no_orphans_go(
    lake: CommandLine, warehouse: Path, table: Path
) -> None:
    ids = ids_in(warehouse)
    orphan = table / "data" / "lost.parquet"
    orphan.write_text("x")
    os.utime(orphan, (OLD, OLD))
    assert len(data_files(table)) == 9

    shown = lake(*EXPIRE, "--dry-run")
    done = lake.ok(*EXPIRE)

    assert "Spark read the manifests" in shown.stderr
    assert done["plan"]["engine"] == "spark"
    assert done["result"]["data_files"] == 2
    assert data_files(table) == {*live_files(warehouse), orphan.name}
    assert ids_in(warehouse) == ids

    listed = lake.ok("clean", "db.t")
    cleaned = lake.ok("clean", "db.t", "--delete")

    assert listed["plan"]["engine"] == "spark"
    assert listed["plan"]["orphans"] == 1
    assert cleaned["result"]["deleted"] == 1
    assert data_files(table) == live_files(warehouse)
    assert ids_in(warehouse) == ids


@pytest.mark.parametrize("table", [2], indirect=True)
def test_a_damaged_manifest_of_a_retained_snapshot_stops_the_commands(
    lake: CommandLine, warehouse: Path, table: Path
) -> None:
    manifests = pyiceberg_table(warehouse).inspect.manifests()["path"].to_pylist()
    Path(manifests[0].removeprefix("file://")).write_bytes(b"Obj\x01")
    before = data_files(table)

    for command in (EXPIRE, ("clean", "db.t", "--delete")):
        failed = lake(*command)
        assert failed.exit_code == 7
        assert "the table's metadata declares" in failed.stderr
    assert data_files(table) == before


@pytest.mark.parametrize("table", [3], indirect=True)
def test_a_check_finds_what_it_finds_in_this_process(
    lake: CommandLine, warehouse: Path, table: Path
) -> None:
    def lessen(document: dict[str, Any]) -> None:
        document["snapshots"][-1]["summary"]["total-records"] = "1"

    manifests = pyiceberg_table(warehouse).inspect.all_manifests()["path"].unique().to_pylist()
    Path(manifests[0].removeprefix("file://")).write_bytes(b"Obj\x01")
    edit_metadata(warehouse, lessen)

    here = CommandLine(warehouse, engine="inline")("--json", "check", "db.t")
    there = lake("--json", "check", "db.t")

    found = here.json()["result"]
    assert {"M002"} <= {item["code"] for item in found["findings"]}
    assert there.json()["result"] == {**found, "engine": "spark"}
    assert here.exit_code == there.exit_code == 7
    assert "Spark read the manifests" in lake("check", "db.t").stderr
