"""`lake snapshots` through the command line, on tables that PyIceberg wrote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.expressions import EqualTo
from support.cli.command_line import CommandLine
from support.tables.iceberg_tables import make_table, named_rows
from support.tables.metadata_edits import edit_metadata, read_metadata

ROW_KEYS = [
    "snapshot_id",
    "parent_id",
    "committed_at",
    "operation",
    "added_files",
    "removed_files",
    "added_rows",
    "removed_rows",
    "refs",
    "job_id",
    "checkpoint_id",
    "query_id",
    "epoch_id",
    "operation_id",
    "source",
    "command",
    "run_id",
    "user",
]


@pytest.fixture
def table(warehouse: Path) -> Any:
    made = make_table(warehouse)
    made.append(named_rows(1, 2))
    flink = {
        "flink.job-id": "a1b2",
        "flink.operator-id": "0001",
        "flink.max-committed-checkpoint-id": "17",
        "lake.operation-id": "op-1",
    }
    made.append(named_rows(3), snapshot_properties=flink)
    made.delete(EqualTo("id", 3))
    return made


def test_a_branchs_snapshots_come_newest_first_with_the_contracts_keys(
    lake: CommandLine, table: Any
) -> None:
    document = lake.ok("snapshots", "db.t")

    found = document["result"]["snapshots"]
    theirs = list(table.snapshots())[::-1]
    assert [list(row) for row in found] == [ROW_KEYS] * 3
    assert [row["snapshot_id"] for row in found] == [str(item.snapshot_id) for item in theirs]
    assert [row["parent_id"] for row in found] == [*(r["snapshot_id"] for r in found[1:]), None]
    assert [row["operation"] for row in found] == ["delete", "append", "append"]
    assert [row["added_rows"] for row in found] == [0, 1, 2]
    assert [row["removed_rows"] for row in found] == [1, 0, 0]
    assert [row["added_files"] for row in found] == [0, 1, 1]
    assert [row["removed_files"] for row in found] == [1, 0, 0]
    assert document["base_snapshot_id"] == found[0]["snapshot_id"]
    assert document["snapshot_ids"] == []


def test_flinks_job_and_checkpoint_and_lakes_operation_are_shown(
    lake: CommandLine, table: Any
) -> None:
    found = lake.ok("snapshots", "db.t")["result"]["snapshots"][1]

    assert (found["job_id"], found["checkpoint_id"], found["operation_id"]) == (
        "a1b2",
        "17",
        "op-1",
    )


def test_refs_are_named_and_a_branch_shows_its_own_lineage(lake: CommandLine, table: Any) -> None:
    first, second, _ = (item.snapshot_id for item in table.snapshots())
    table.manage_snapshots().create_tag(first, "v1").create_branch(second, "audit").commit()

    main = lake.ok("snapshots", "db.t")["result"]["snapshots"]
    audit = lake.ok("snapshots", "db.t", "--branch", "audit")

    assert [row["refs"] for row in main] == [["main"], ["audit"], ["v1"]]
    assert [row["snapshot_id"] for row in audit["result"]["snapshots"]] == [str(second), str(first)]
    assert audit["branch"] == "audit"
    assert audit["base_snapshot_id"] == str(second)


def test_all_adds_what_no_branch_reaches(lake: CommandLine, table: Any) -> None:
    first, *_, third = (item.snapshot_id for item in table.snapshots())
    table.manage_snapshots().rollback_to_snapshot(first).commit()

    assert len(lake.ok("snapshots", "db.t")["result"]["snapshots"]) == 1
    everything = lake.ok("snapshots", "db.t", "--all")["result"]["snapshots"]

    assert len(everything) == 3
    assert everything[0]["snapshot_id"] == str(third)


def test_a_limit_keeps_the_newest(lake: CommandLine, table: Any) -> None:
    everything = lake.ok("snapshots", "db.t")["result"]["snapshots"]

    for limit in (0, 1, 2, 9):
        found = lake.ok("snapshots", "db.t", "--limit", limit)["result"]["snapshots"]
        assert found == everything[:limit]
    refused = lake("--json", "snapshots", "db.t", "--limit=-1")
    assert refused.exit_code == 2
    assert refused.json()["error"]["message"] == "--limit must not be negative: -1"


def test_the_first_digits_of_an_id_are_accepted_wherever_a_snapshot_is_named(
    lake: CommandLine, table: Any
) -> None:
    first, second, _ = (str(item.snapshot_id) for item in table.snapshots())

    def scanned(*options: str) -> dict[str, Any]:
        return lake.ok("scan", "db.t", *options)["result"]

    assert scanned("--snapshot", second[:6]) == scanned("--snapshot", second)
    bounds = ("--from-snapshot", first[:7], "--to-snapshot", second[:8])
    assert [row["id"] for row in scanned(*bounds)["preview"]] == [3]
    assert scanned("--changes", *bounds) == scanned(
        "--changes", "--from-snapshot", first, "--to-snapshot", second
    )
    short = lake("scan", "db.t", "--snapshot", second[:5])
    assert short.exit_code == 7
    lake.ok("expire", "db.t", "--snapshot", first[:10])
    left = lake.ok("snapshots", "db.t")["result"]["snapshots"]
    assert first not in {row["snapshot_id"] for row in left}
    # The id of an expired parent can still begin an increment.
    rest = scanned("--from-snapshot", first[:9], "--to-snapshot", second)
    assert [row["id"] for row in rest["preview"]] == [3]


def test_an_empty_table_has_none(lake: CommandLine, warehouse: Path) -> None:
    make_table(warehouse)

    document = lake.ok("snapshots", "db.t")

    assert (document["status"], document["result"]) == ("done", {"snapshots": []})
    assert document["base_snapshot_id"] is None


def test_a_pipe_gets_a_line_a_snapshot_and_all_of_it_when_verbose(
    lake: CommandLine, table: Any
) -> None:
    short, full = lake("snapshots", "db.t"), lake("--verbose", "snapshots", "db.t")

    table = [line.split("\t") for line in short.stdout.splitlines()]
    assert [len(cells) for cells in table] == [7] * 4
    assert table[1][2:] == ["delete", "-1", "-1", "main", ""]
    assert [cells[6] for cells in table] == ["flink", "", "a1b2 chk-17", ""]
    header, *lines = full.stdout.splitlines()
    assert header.split("\t") == ROW_KEYS
    assert [line.split("\t")[3] for line in lines] == ["delete", "append", "append"]


def test_flinks_column_is_short_and_only_where_flink_wrote(
    lake: CommandLine, warehouse: Path, flink: Any
) -> None:
    make_table(warehouse).append(named_rows(1))
    other = flink("b-append-pending")

    plain = lake("snapshots", "db.t").stdout
    shown = CommandLine(other.warehouse)("snapshots", other.table).stdout

    assert "flink" not in plain
    job = other.truth["replay"]["job"][:7]
    labels = [line.split("\t")[-1] for line in shown.splitlines()]
    assert labels == ["flink", f"{job} chk-3", f"{job} chk-2", f"{job} chk-1"]


@pytest.mark.parametrize("options", [["--branch", "nope"], ["--branch", "v1"]])
def test_an_unknown_branch_exits_7_with_the_refs(
    lake: CommandLine, table: Any, options: list[str]
) -> None:
    table.manage_snapshots().create_tag(table.current_snapshot().snapshot_id, "v1").commit()

    result = lake("--json", "snapshots", "db.t", *options)

    assert result.exit_code == 7
    assert options[1] in result.json()["error"]["message"]


def test_figures_that_mean_nothing_are_null(lake: CommandLine, table: Any) -> None:
    path = Path(table.metadata_location.removeprefix("file://"))
    metadata = json.loads(path.read_text())
    for snapshot in metadata["snapshots"]:
        snapshot["timestamp-ms"] = 1 << 62
        snapshot["summary"] |= {"added-records": "\u00b2", "deleted-records": "9" * 5000}
    metadata["last-updated-ms"] = 1 << 62
    metadata["snapshot-log"] = []
    path.write_text(json.dumps(metadata))

    found = lake.ok("snapshots", "db.t")["result"]["snapshots"]

    assert [row["committed_at"] for row in found] == [None] * 3
    assert [(row["added_rows"], row["removed_rows"]) for row in found] == [(None, None)] * 3
    assert lake("snapshots", "db.t").exit_code == 0


def test_metadata_that_grew_too_large_is_reported(lake: CommandLine, table: Any) -> None:
    path = Path(table.metadata_location.removeprefix("file://"))
    metadata = json.loads(path.read_text())
    # Histories of as many commits, on no branch any more.
    one = metadata["snapshots"][0]
    metadata["snapshots"] += [
        {**one, "snapshot-id": number, "sequence-number": 0, "parent-snapshot-id": None}
        for number in range(1, 12_001)
    ]
    path.write_text(json.dumps(metadata))

    (warning,) = lake.ok("snapshots", "db.t")["warnings"]

    size = path.stat().st_size / 1024**2
    assert size > 5
    assert f"db.t has {size:.1f} MB (snapshots 12,003, schemas 1)" in warning


@pytest.mark.parametrize("damage", [b"", b"{", b"null", b'{"format-version": 2}', b"\xff\xfe"])
def test_metadata_that_cannot_be_read_exits_7(lake: CommandLine, table: Any, damage: bytes) -> None:
    Path(table.metadata_location.removeprefix("file://")).write_bytes(damage)

    result = lake("--json", "snapshots", "db.t")

    assert (result.exit_code, result.json()["error"]["kind"]) == (7, "corrupt")


def test_values_of_a_summary_that_are_not_texts_are_read_as_texts(
    lake: CommandLine, table: Any, warehouse: Path
) -> None:
    other: dict[str, Any] = {"added-records": 7, "lake.user": 1.5, "other": {"a": [1]}}

    def mix(metadata: dict[str, Any]) -> None:
        metadata["snapshots"][0]["summary"] |= other

    edit_metadata(warehouse, mix)

    *_, first = lake.ok("snapshots", "db.t")["result"]["snapshots"]
    assert (first["added_rows"], first["user"]) == (7, "1.5")

    lake.ok("tag", "db.t", "x")

    assert read_metadata(warehouse)["snapshots"][0]["summary"].items() >= other.items()


def test_parents_that_form_a_cycle_are_refused(
    lake: CommandLine, table: Any, warehouse: Path
) -> None:
    def close(metadata: dict[str, Any]) -> None:
        first, *_, last = metadata["snapshots"]
        first["parent-snapshot-id"] = last["snapshot-id"]

    head = edit_metadata(warehouse, close)["current-snapshot-id"]

    for arguments in (["snapshots", "db.t"], ["expire", "db.t", "--dry-run"]):
        result = lake("--json", *arguments)
        message = f"the ancestry of snapshot {head} is a cycle"
        assert (result.exit_code, result.json()["error"]["message"]) == (7, message)
