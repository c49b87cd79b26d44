"""`lake ingest --changes-mode upsert --deletes position`: a key whose partition changed stays one row."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType
from support.cli.command_line import CommandLine
from support.tables.change_logs import Row, shown, write_log
from support.tables.csv_files import csv_changes
from support.tables.iceberg_tables import files_below, make_table, open_session, request_of

from lake.core.load.upsert.execute import execute_upsert
from lake.core.load.upsert.options import UpsertOptions
from lake.core.load.upsert.plan import plan_upsert

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "part", StringType(), required=True),
    NestedField(3, "value", LongType(), required=True),
    identifier_field_ids=[1],
)
BY_PART = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "part"))
BY_VALUE = PartitionSpec(PartitionField(3, 1000, BucketTransform(3), "v"))
LOG = ("--changes-column", "op", "--changes-mode", "upsert")
LOOKUP = (*LOG, "--deletes", "position")
MODES = [
    ("1", "copy-on-write"),
    ("2", "copy-on-write"),
    ("2", "position"),
    ("3", "copy-on-write"),
    ("3", "position"),
]


def rows_of(lake: CommandLine) -> list[Row]:
    if lake.table().metadata.format_version < 3:
        return lake.rows()
    return lake.scanned()


def log_of(chance: random.Random, count: int) -> list[Row]:
    """Return changes of few keys that move between partitions; a delete has the key only."""
    log = []
    for _ in range(count):
        kind, key = chance.choice(["+I", "+U", "+U", "-U", "-D"]), chance.randrange(30)
        row: Row = {"op": kind, "id": key, "part": None, "value": None}
        if kind != "-D":
            row |= {"part": chance.choice("xyz"), "value": chance.randrange(1000)}
        log.append(row)
    return log


def after(rows: dict[int, Row], log: list[Row], *, ignore_deletes: bool = False) -> dict[int, Row]:
    """Return the rows by key after the changes of a log, one after the other."""
    rows = dict(rows)
    for change in log:
        if change["op"] == "-D" and not ignore_deletes:
            rows.pop(change["id"], None)
        elif change["op"] in {"+I", "+U"}:
            rows[change["id"]] = {name: change[name] for name in ("id", "part", "value")}
    return rows


@pytest.mark.parametrize(("version", "deletes"), MODES)
@pytest.mark.parametrize("spec", [BY_PART, BY_VALUE], ids=["by part", "by bucket of a value"])
def test_keys_that_move_between_partitions_stay_one_row_and_the_counts_are_exact(
    lake: CommandLine, tmp_path: Path, version: str, deletes: str, spec: PartitionSpec
) -> None:
    make_table(lake.warehouse, schema=SCHEMA, spec=spec, format_version=version)
    chance, rows = random.Random(int(version)), {}
    for count in (60, 40, 10):
        log = log_of(chance, count)
        old, rows = rows, after(rows, log)
        inserted, deleted = rows.keys() - old.keys(), old.keys() - rows.keys()
        changed = {change["id"] for change in log if change["op"] != "-U"}

        path = write_log(tmp_path / "log.csv", log)
        result = lake.ok("ingest", "db.t", path, *LOG, "--deletes", deletes)["result"]

        assert shown(rows_of(lake)) == shown(list(rows.values()))
        assert result["rows_read"] == count
        assert result["rows_inserted"] == len(inserted)
        assert result["rows_updated"] == len(changed & rows.keys() & old.keys())
        assert result["rows_deleted"] == len(deleted)
        assert result["rows_written"] == result["rows_inserted"] + result["rows_updated"]


def test_one_commit_deletes_the_old_row_and_adds_the_new_one(
    lake: CommandLine, tmp_path: Path
) -> None:
    make_table(lake.warehouse, schema=SCHEMA, spec=BY_PART)
    lake.ok("ingest", "db.t", csv_changes(tmp_path / "a.csv", "+I,1,x,1", "+I,2,x,1"), *LOOKUP)

    done = lake(
        "ingest", "db.t", csv_changes(tmp_path / "b.csv", "-U,1,x,1", "+U,1,y,2", "-D,2,,"), *LOOKUP
    )

    assert "applied 3 changes: 1 updated, 1 deleted" in done.stdout
    assert rows_of(lake) == [{"id": 1, "part": "y", "value": 2}]
    (newest, _) = lake.ok("snapshots", "db.t")["result"]["snapshots"]
    assert newest["operation"] == "overwrite"
    metadata = lake.table().metadata
    summary = metadata.current_snapshot().summary
    assert summary.additional_properties["added-position-deletes"] == "2"
    assert summary.additional_properties["total-equality-deletes"] == "0"


def test_a_key_of_the_partition_is_still_needed_without_reading_the_table(
    lake: CommandLine, tmp_path: Path
) -> None:
    make_table(lake.warehouse, schema=SCHEMA, spec=BY_PART)
    log = csv_changes(tmp_path / "a.csv", "+I,1,x,1")
    for mode in (LOG, (*LOG, "--deletes", "equality")):
        refused = lake("--json", "ingest", "db.t", log, *mode)
        assert refused.exit_code == 3
        assert "--deletes position" in refused.json()["error"]["hint"]


@pytest.mark.parametrize("lines", [["-D,7,,"], ["-U,1,x,1"], ["+I,7,x,1", "-D,7,,"]])
def test_changes_without_an_effect_commit_nothing(
    lake: CommandLine, tmp_path: Path, lines: list[str]
) -> None:
    make_table(lake.warehouse, schema=SCHEMA, spec=BY_PART)
    lake.ok("ingest", "db.t", csv_changes(tmp_path / "a.csv", "+I,1,x,1"), *LOOKUP)
    before = files_below(lake.warehouse)

    done = lake.ok("ingest", "db.t", csv_changes(tmp_path / "b.csv", *lines), *LOOKUP)

    assert done["status"] == "nothing-to-do"
    assert files_below(lake.warehouse) == before


def test_ignored_deletes_are_counted(lake: CommandLine, tmp_path: Path) -> None:
    make_table(lake.warehouse, schema=SCHEMA, spec=BY_PART)
    log = ["+I,1,x,1", "-D,1,,", "+I,2,y,1", "+U,2,z,2", "-D,3,,"]

    done = lake.ok(
        "ingest", "db.t", csv_changes(tmp_path / "a.csv", *log), *LOOKUP, "--ignore-deletes"
    )

    assert (done["result"]["rows_inserted"], done["result"]["deletes_ignored"]) == (2, 2)
    assert sorted(row["part"] for row in rows_of(lake)) == ["x", "z"]


def test_the_first_log_makes_the_table(lake: CommandLine, tmp_path: Path) -> None:
    log = csv_changes(tmp_path / "a.csv", "+I,1,x,1", "+U,1,y,2", "-D,2,,", "+I,3,x,3", "-D,3,,")
    words = ("--create", "--partition-by", "part", "--key", "id")

    done = lake.ok("ingest", "db.t", log, *LOOKUP, *words)

    assert (done["result"]["rows_inserted"], done["result"]["rows_deleted"]) == (1, 0)
    assert rows_of(lake) == [{"id": 1, "part": "y", "value": 2}]


def test_of_two_loads_at_once_the_later_one_finds_the_moved_row(
    lake: CommandLine, tmp_path: Path
) -> None:
    make_table(lake.warehouse, schema=SCHEMA, spec=BY_PART)
    lake.ok("ingest", "db.t", csv_changes(tmp_path / "a.csv", "+I,1,x,1", "+I,2,x,1"), *LOOKUP)
    slow = csv_changes(tmp_path / "slow.csv", "+U,1,z,3", "-D,2,,")
    session = open_session(lake.warehouse)
    options = UpsertOptions(changes_column="op", deletes="position")
    plan = plan_upsert(session, "db.t", request_of(slow), options)
    lake.ok("ingest", "db.t", csv_changes(tmp_path / "b.csv", "+U,1,y,2", "+U,2,y,2"), *LOOKUP)

    execute_upsert(session, plan)

    assert rows_of(lake) == [{"id": 1, "part": "z", "value": 3}]


@pytest.mark.parametrize("deletes", ["position", "copy-on-write"])
def test_late_changes_and_late_deletes_are_stale(
    lake: CommandLine, tmp_path: Path, deletes: str
) -> None:
    make_table(lake.warehouse, schema=SCHEMA, spec=BY_PART)
    words = (*LOG, "--deletes", deletes, "--sequence", "value")
    lake.ok(
        "ingest",
        "db.t",
        csv_changes(tmp_path / "a.csv", "+I,1,x,5", "+I,2,x,5", "+I,3,x,5"),
        *words,
    )
    log = csv_changes(tmp_path / "b.csv", "+U,1,y,4", "-D,2,,4", "-D,3,,6", "+U,4,y,2", "+U,4,z,1")

    done = lake.ok("ingest", "db.t", log, *words)

    result = done["result"]
    counts = [result[f"rows_{name}"] for name in ("inserted", "updated", "deleted", "stale")]
    assert counts == [1, 0, 1, 2]
    found = sorted((row["id"], row["part"], row["value"]) for row in rows_of(lake))
    assert found == [(1, "x", 5), (2, "x", 5), (4, "y", 2)]


def test_an_older_row_after_a_delete_is_warned_of(lake: CommandLine, tmp_path: Path) -> None:
    make_table(lake.warehouse, schema=SCHEMA, spec=BY_PART)
    words = (*LOOKUP, "--sequence", "value")
    in_order = lake.ok(
        "ingest", "db.t", csv_changes(tmp_path / "a.csv", "+I,1,x,1", "-D,1,,5"), *words
    )
    late = lake.ok("ingest", "db.t", csv_changes(tmp_path / "b.csv", "-D,1,,5", "+I,1,y,3"), *words)

    assert not any("older row" in text for text in in_order["warnings"])
    assert any("older row of 1 key:" in text for text in late["warnings"])
    assert rows_of(lake) == []
    # The table does not know of the delete.
    lake.ok("ingest", "db.t", csv_changes(tmp_path / "c.csv", "+I,1,y,3"), *words)
    assert rows_of(lake) == [{"id": 1, "part": "y", "value": 3}]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--changes-mode", "retract", "--deletes", "position"), "retract"),
        ((*LOOKUP[2:], "--local-merge", "1MB"), "--local-merge"),
        ((*LOOKUP[2:], "--order-by", "value"), "--order-by"),
        ((*LOOKUP[2:], "--merge", "first-row"), "--merge"),
        ((*LOG[2:], "--sequence", "value"), "--sequence"),
    ],
)
def test_options_that_contradict_each_other(
    lake: CommandLine, tmp_path: Path, words: tuple[str, ...], message: str
) -> None:
    make_table(lake.warehouse, schema=SCHEMA, spec=BY_PART)
    log = csv_changes(tmp_path / "a.csv", "+I,1,x,1")

    refused = lake("--json", "ingest", "db.t", log, "--changes-column", "op", *words)

    assert refused.exit_code == 2
    assert message in refused.json()["error"]["message"]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["+I,1,x,1", "+X,2,x,2"], "'+X' in the column op"),
        (["+I,1,x,1", "-D,,x,"], "NULL in the key column id"),
        (["+I,1,x,1", "+U,2,x,"], "NULL in the required column value"),
    ],
)
def test_a_bad_row_is_reported_and_nothing_is_left(
    lake: CommandLine, tmp_path: Path, lines: list[str], message: str
) -> None:
    make_table(lake.warehouse, schema=SCHEMA, spec=BY_PART)
    before = files_below(lake.warehouse)

    refused = lake("--json", "ingest", "db.t", csv_changes(tmp_path / "a.csv", *lines), *LOOKUP)

    assert refused.exit_code == 7
    assert message in refused.json()["error"]["message"]
    assert files_below(lake.warehouse) == before


def test_rejected_changes_keep_their_kind(lake: CommandLine, tmp_path: Path) -> None:
    make_table(lake.warehouse, schema=SCHEMA, spec=BY_PART)
    log = csv_changes(tmp_path / "a.csv", "+I,1,x,1", "-D,,,", "+U,1,y,2")

    done = lake.ok(
        "ingest", "db.t", log, *LOOKUP, "--max-rejects", "99", "--rejects", tmp_path / "bad.csv"
    )

    assert done["result"]["rows_rejected"] == 1
    assert rows_of(lake) == [{"id": 1, "part": "y", "value": 2}]
    assert "-D" in (tmp_path / "bad.csv").read_text()
