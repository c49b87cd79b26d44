"""`lake expire` as scripts call it."""

from __future__ import annotations

import itertools
import os
import shutil
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.cli.command_line import CommandLine
from support.tables.delete_files import commit_deletes, equality_file
from support.tables.iceberg_tables import (
    files_below,
    ids_in,
    make_table,
    open_session,
    pyiceberg_catalog,
    pyiceberg_table,
)
from support.tables.metadata_edits import edit_metadata

from lake.core.base.clock import SystemClock

COUNTS = {
    "snapshots",
    "refs",
    "data_files",
    "position_delete_files",
    "equality_delete_files",
    "manifests",
    "manifest_lists",
    "statistics_files",
    "bytes",
}
# Why the other snapshots are kept.
REASONS = {"kept_snapshots", "kept_refs", "max_snapshot_age_ms"}


@pytest.fixture
def snapshots(warehouse: Path) -> list[str]:
    """A table that was filled and emptied three times, so that files become garbage."""
    table = make_table(warehouse)
    ids = []
    for number in range(3):
        rows = pa.table({"id": pa.array([number], pa.int64()), "name": [f"n{number}"]})
        table.overwrite(rows)
        ids.append(str(table.metadata.current_snapshot_id))
    return ids


def test_a_dry_run_counts_and_touches_nothing(
    lake: CommandLine, warehouse: Path, snapshots: list[str]
) -> None:
    before = files_below(warehouse)

    document = lake.ok("expire", "db.t", "--older-than", "0s", "--unsafe-retention", "--dry-run")

    assert document["status"] == "dry-run"
    assert set(document["plan"]) == COUNTS | REASONS | {"engine"}
    assert document["plan"]["kept_snapshots"] == {"referenced": 1}
    assert document["plan"]["kept_refs"] == ["main"]
    assert document["plan"]["data_files"] == 2
    assert document["plan"]["bytes"] > 0
    assert files_below(warehouse) == before


def test_the_result_is_what_the_dry_run_promised(
    lake: CommandLine, warehouse: Path, snapshots: list[str]
) -> None:
    options = ("expire", "db.t", "--older-than", "0s", "--unsafe-retention")
    promised = lake.ok(*options, "--dry-run")["plan"]

    document = lake.ok(*options)

    assert document["result"] == {**promised, "failed_deletes": 0}
    assert ids_in(warehouse) == [2]
    assert lake.ok(*options)["status"] == "nothing-to-do"


def test_a_day_is_the_least_unless_the_user_insists(
    lake: CommandLine, snapshots: list[str]
) -> None:
    result = lake("--json", "expire", "db.t", "--older-than", "23h")

    assert result.exit_code == 3
    assert result.json()["status"] == "refused"
    assert "--unsafe-retention" in result.json()["error"]["hint"]


def test_one_snapshot_is_expired_by_its_name(
    lake: CommandLine, warehouse: Path, snapshots: list[str]
) -> None:
    document = lake.ok("expire", "db.t", "--snapshot", snapshots[0])

    assert document["result"]["snapshots"] == 1
    left = [str(item.snapshot_id) for item in pyiceberg_table(warehouse).snapshots()]
    assert snapshots[0] not in left
    assert snapshots[2] in left


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (["--older-than", "soon"], 2),
        (["--retain-last", "0"], 2),
        (["--snapshot", "12345"], 7),
        (["--snapshot", "main"], 3),
        (["--branch", "nope"], 7),
        (["--nope"], 2),
    ],
    ids=str,
)
def test_bad_options_change_nothing(
    lake: CommandLine, warehouse: Path, snapshots: list[str], options: list[str], code: int
) -> None:
    before = files_below(warehouse)

    result = lake("--json", "expire", "db.t", *options)

    assert result.exit_code == code
    assert result.json()["error"]["message"]
    assert files_below(warehouse) == before


def test_only_one_branchs_snapshots_go_when_a_branch_is_named(
    lake: CommandLine, warehouse: Path, snapshots: list[str]
) -> None:
    table = pyiceberg_table(warehouse)
    table.manage_snapshots().create_branch(int(snapshots[0]), "side").commit()
    options = ("--older-than", "0s", "--unsafe-retention", "--branch", "side")

    assert lake.ok("expire", "db.t", *options)["status"] == "nothing-to-do"


def test_verbose_lists_every_file_with_its_reason(lake: CommandLine, snapshots: list[str]) -> None:
    result = lake(
        "--verbose", "expire", "db.t", "--older-than", "0s", "--unsafe-retention", "--dry-run"
    )

    assert result.stdout.count(".parquet") == 2
    assert "expired snapshots" in result.stdout


def test_files_of_a_table_in_this_ones_folder_stay(lake: CommandLine, warehouse: Path) -> None:
    outer = make_table(warehouse)
    place = f"{outer.location()}/inner"
    inner = pyiceberg_catalog(warehouse).create_table("db.inner", outer.schema(), location=place)
    inner.append(pa.table({"id": pa.array([1], pa.int64()), "name": ["theirs"]}))
    theirs = [task.file.file_path for task in inner.scan().plan_files()]
    outer.add_files(theirs)
    outer.overwrite(pa.table({"id": pa.array([2], pa.int64()), "name": ["ours"]}))

    document = lake.ok("expire", "db.t", "--older-than", "0s", "--unsafe-retention")

    assert document["result"]["snapshots"] == 2
    assert "in a nested table's folders" in " ".join(document["warnings"])
    assert ids_in(warehouse, "db.inner") == [1]


def test_a_dropped_column_by_which_rows_are_deleted_stays_known(
    lake: CommandLine, warehouse: Path
) -> None:
    rows = pa.table({"id": pa.array([1, 2], pa.int64()), "name": ["a", "b"]})
    make_table(warehouse).append(rows)
    table = open_session(warehouse).table("db.t")
    commit_deletes(table, equality_file(table, [{"name": "a"}], ["name"]))
    with pyiceberg_table(warehouse).update_schema() as update:
        update.delete_column("name")
    pyiceberg_table(warehouse).append(rows.select(["id"]).slice(0, 1))

    lake.ok("expire", "db.t", "--older-than", "0s", "--unsafe-retention", "--clean-metadata")

    assert lake.ok("scan", "db.t")["result"]["preview"] == [{"id": 1}, {"id": 2}]
    assert len(pyiceberg_table(warehouse).metadata.schemas) == 2


def test_a_staged_run_keeps_the_partition_spec_and_the_schema_that_it_needs(
    lake: CommandLine, warehouse: Path, tmp_path: Path
) -> None:
    clean = ("expire", "db.t", "--older-than", "0s", "--unsafe-retention", "--clean-metadata")
    file = tmp_path / "rows.csv"
    file.write_text("id,name\n1,a\n2,b\n")
    lake.ok("create", "db.t", "id long", "name string", "--partition-by", "bucket(4, id)")
    lake.ok("ingest", "db.t", file, "--stage", "--run-id", "r")
    lake.ok("alter", "db.t", "--partition-by", "name", "--add-column", "added long")
    lake.ok("alter", "db.t", "--drop-column", "added")

    lake.ok(*clean)
    replayed = lake.ok("replay", "db.t", "--all-staged")

    assert replayed["result"]["committed_runs"] == ["r"]
    assert ids_in(warehouse) == [1, 2]
    lake.ok("compact", "db.t", "--rewrite-all")
    lake.ok("ingest", "db.t", file)
    assert lake.ok(*clean)["status"] == "done"
    metadata = pyiceberg_table(warehouse).metadata
    assert (len(metadata.partition_specs), len(metadata.schemas)) == (1, 1)


def test_metadata_stays_if_it_is_not_known_what_a_checkpoint_needs(
    lake: CommandLine, warehouse: Path, tmp_path: Path
) -> None:
    file = tmp_path / "rows.csv"
    file.write_text("id,name\n1,a\n")
    lake.ok("create", "db.t", "id long", "name string", "--partition-by", "bucket(4, id)")
    lake.ok("ingest", "db.t", file, "--stage", "--run-id", "r")
    lake.ok("alter", "db.t", "--partition-by", "name")
    [manifest] = (warehouse / "db" / "t" / "metadata").glob("*.avro")
    manifest.write_bytes(b"Obj")

    done = lake.ok("expire", "db.t", "--older-than", "0s", "--unsafe-retention", "--clean-metadata")

    assert done["status"] == "nothing-to-do"
    assert "no schema and no partition spec is removed" in " ".join(done["warnings"])
    assert len(pyiceberg_table(warehouse).metadata.partition_specs) == 2


def test_files_of_a_table_with_two_names_stay(
    lake: CommandLine, warehouse: Path, snapshots: list[str]
) -> None:
    catalog = pyiceberg_catalog(warehouse)
    before = catalog.load_table("db.t")
    catalog.register_table("db.again", before.metadata_location)
    before.overwrite(pa.table({"id": pa.array([9], pa.int64()), "name": ["n9"]}))
    beside = {"write.metadata.path": f"{before.location()}/metadata"}
    catalog.create_table("db.beside", before.schema(), properties=beside).append(
        pa.table({"id": pa.array([1], pa.int64()), "name": ["n1"]})
    )
    options = ("expire", "db.t", "--older-than", "0s", "--unsafe-retention")

    result = lake("--json", *options)

    assert (result.exit_code, result.json()["status"]) == (3, "refused")
    assert "db.again" in result.json()["error"]["message"]
    assert lake.ok(*options, "--keep-files")["result"]["snapshots"] == 6
    assert ids_in(warehouse, "db.again") == [2]
    catalog.drop_table("db.again")
    assert lake.ok(*options)["status"] in {"done", "nothing-to-do"}


def test_a_folder_that_becomes_a_link_while_files_go_leads_to_no_others(
    lake: CommandLine,
    warehouse: Path,
    snapshots: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data, moved, others = warehouse / "db" / "t" / "data", tmp_path / "moved", tmp_path / "others"
    shutil.copytree(data, others)
    real = os.unlink

    def unlink(path: str, **options: Any) -> None:
        if path.endswith(".parquet") and not moved.exists():
            data.rename(moved)
            data.symlink_to(others)
        real(path, **options)

    monkeypatch.setattr(os, "unlink", unlink)
    lake("expire", "db.t", "--older-than", "0s", "--unsafe-retention")

    assert len(list(moved.iterdir())) < 3
    assert len(list(others.iterdir())) == 3


def test_a_plan_counts_no_file_that_a_kept_snapshot_reaches_by_another_manifest(
    lake: CommandLine, tmp_path: Path
) -> None:
    merging = "commit.manifest.min-count-to-merge=2"
    for number in range(2):
        (tmp_path / "rows.csv").write_text(f"id\n{number}\n")
        lake.ok("ingest", "db.t", tmp_path / "rows.csv", "--create", "--property", merging)

    document = lake.ok("expire", "db.t", "--older-than", "0s", "--unsafe-retention", "--dry-run")

    assert {key: document["plan"][key] for key in ("snapshots", "data_files", "manifests")} == {
        "snapshots": 1,
        "data_files": 0,
        "manifests": 1,
    }


@pytest.mark.parametrize("ref", ["main", "tag"])
def test_nothing_expires_if_a_ref_names_a_snapshot_that_the_table_lacks(
    lake: CommandLine, warehouse: Path, snapshots: list[str], ref: str
) -> None:
    if ref == "tag":
        lake.ok("ref", "db.t", "--tag", "tag", "--at", snapshots[1])
    lost = int(snapshots[1 if ref == "tag" else 2])

    def lose(plain: dict[str, Any]) -> None:
        plain["snapshots"] = [s for s in plain["snapshots"] if s["snapshot-id"] != lost]

    edit_metadata(warehouse, lose)
    before = files_below(warehouse)

    result = lake("expire", "db.t", "--older-than", "0s", "--unsafe-retention")

    assert result.exit_code == 7, result
    assert f"{ref} points to snapshot {lost}, which the table does not have" in result.stderr
    assert files_below(warehouse) == before


def test_ages_count_from_the_beginning_of_the_command(
    lake: CommandLine, snapshots: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # A command may wait for the lock of the table for minutes before it makes its plan.
    times = itertools.count(time.time_ns() // 1_000_000, 2_000)
    monkeypatch.setattr(SystemClock, "now_ms", lambda _clock: next(times))
    options = ("--older-than", "30s", "--unsafe-retention")

    plan = lake.ok("expire", "db.t", *options, "--dry-run")["plan"]
    result = lake.ok("expire", "db.t", *options)["result"]

    assert plan["max_snapshot_age_ms"] == result["max_snapshot_age_ms"] == 30_000
