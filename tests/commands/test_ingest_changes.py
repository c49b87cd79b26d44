"""`lake ingest --changes-column`: a change log leaves the rows that it describes, or an error and no change."""

from __future__ import annotations

import csv as csv_module
import itertools
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType
from support.cli.command_line import CommandLine
from support.tables.change_logs import Model, shown, write_log
from support.tables.csv_files import csv_changes
from support.tables.iceberg_tables import files_below, make_table, open_session, request_of
from support.tiers import examples

from lake.core.base.errors import CommitConflictError
from lake.core.load.changelog_load.load import execute_changes
from lake.core.load.changelog_load.plan import ChangeOptions, plan_changelog_load
from lake.core.load.ingest import plan as planning
from lake.core.load.ingest.execute import execute
from lake.core.load.ingest.plan import plan_ingest

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "part", StringType(), required=True),
    NestedField(3, "value", LongType(), required=True),
    identifier_field_ids=[1],
)
BY_PART = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "part"))
BY_BUCKET = PartitionSpec(PartitionField(1, 1000, BucketTransform(4), "b"))
UNPARTITIONED = PartitionSpec()
UPSERT = ["--changes-column", "op", "--changes-mode", "upsert"]
RETRACT = ["--changes-column", "op", "--changes-mode", "retract"]
_numbers = itertools.count()


@pytest.mark.parametrize("version", ["2", "3"])
@pytest.mark.parametrize(
    ("spec", "key"),
    [(UNPARTITIONED, "id"), (BY_PART, "id,part"), (BY_BUCKET, "id")],
    ids=["unpartitioned", "by part", "by bucket"],
)
def test_upserts_leave_the_last_row_of_each_key(
    lake: CommandLine, tmp_path: Path, version: str, spec: PartitionSpec, key: str
) -> None:
    make_table(lake.warehouse, schema=SCHEMA, spec=spec, format_version=version)
    model = Model(key.split(","), seed=1)
    for suffix in (".csv", ".parquet", ".csv"):
        log = write_log(tmp_path / f"log{suffix}", model.upserts(120))
        document = lake.ok("ingest", "db.t", log, *UPSERT, "--key", key)

        assert document["result"]["rows_read"] == 120
        assert document["result"]["rows_inserted"] is None
        assert document["result"]["delete_files"] > 0
        assert shown(lake.scanned()) == shown(list(model.rows.values()))


@pytest.mark.parametrize("version", ["2", "3"])
@pytest.mark.parametrize("spec", [UNPARTITIONED, BY_PART], ids=["unpartitioned", "by part"])
def test_a_retracting_log_moves_rows_between_partitions(
    lake: CommandLine, tmp_path: Path, version: str, spec: PartitionSpec
) -> None:
    make_table(lake.warehouse, schema=SCHEMA, spec=spec, format_version=version)
    model = Model(["id"], seed=2)
    for _ in range(3):
        log = write_log(tmp_path / "log.parquet", model.retractions(100))
        lake.ok("ingest", "db.t", log, *RETRACT)

        assert shown(lake.scanned()) == shown(list(model.rows.values()))


@pytest.mark.parametrize(
    ("mode", "expected"),
    [(UPSERT, {1: 2, 2: 1, 3: 3}), (RETRACT, {1: 2, 2: 1, 3: 3})],
    ids=["upsert", "retract"],
)
def test_deletes_are_left_out_and_counted_and_updates_are_not(
    lake: CommandLine, tmp_path: Path, mode: list[str], expected: dict[int, int]
) -> None:
    make_table(lake.warehouse, schema=SCHEMA)
    lake.ok(
        "ingest",
        "db.t",
        csv_changes(tmp_path / "a.csv", "+I,1,x,1", "+I,2,x,1"),
        *mode,
        "--key",
        "id",
    )
    log = ["-U,1,x,1", "+U,1,x,2", "-D,2,x,1", "+I,3,x,3", "-D,3,x,3"]

    done = lake.ok(
        *("ingest", "db.t", csv_changes(tmp_path / "b.csv", *log), *mode, "--key", "id"),
        "--ignore-deletes",
    )

    assert done["result"]["deletes_ignored"] == 2
    assert done["result"]["rows_read"] == 5
    assert {row["id"]: row["value"] for row in lake.scanned()} == expected
    assert len(lake.scanned()) == 3


def test_a_log_of_ignored_deletes_changes_nothing(lake: CommandLine, tmp_path: Path) -> None:
    make_table(lake.warehouse, schema=SCHEMA)
    lake.ok("ingest", "db.t", csv_changes(tmp_path / "a.csv", "+I,1,x,1"), *UPSERT, "--key", "id")
    log = csv_changes(tmp_path / "b.csv", "-D,1,x,1")

    done = lake.ok("ingest", "db.t", log, *UPSERT, "--key", "id", "--ignore-deletes")

    assert done["status"] == "nothing-to-do"
    assert done["result"]["deletes_ignored"] == 1
    assert len(lake.scanned()) == 1


@pytest.mark.spark
@pytest.mark.parametrize("spec", [UNPARTITIONED, BY_BUCKET], ids=["unpartitioned", "by bucket"])
def test_spark_keeps_the_order_of_each_keys_changes(
    lake: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spec: PartitionSpec
) -> None:
    make_table(lake.warehouse, schema=SCHEMA, spec=spec)
    model = Model(["id"], seed=3)
    logs = tmp_path / "logs"
    logs.mkdir()
    for number in range(6):
        write_log(logs / f"{number}.csv", model.upserts(60))
    # As many tasks as for large files.
    monkeypatch.setattr(planning, "_SMALLEST_TASK_BYTES", 1)
    spark = CommandLine(lake.warehouse, engine="spark")
    document = spark.ok("ingest", "db.t", logs, *UPSERT)

    assert document["result"]["rows_read"] == 360
    assert shown(lake.scanned()) == shown(list(model.rows.values()))


def test_the_first_log_makes_the_table_without_equality_deletes(
    lake: CommandLine, tmp_path: Path
) -> None:
    log = csv_changes(
        tmp_path / "log.csv", "+I,1,x,1", "+U,1,x,2", "-D,2,,", "INSERT,3,x,3", "delete,3,,"
    )
    document = lake.ok("ingest", "db.t", log, "--create", *UPSERT, "--key", "id")

    assert document["plan"]["mode"] == "changes"
    assert document["plan"]["key"] == ["id"]
    assert [column["name"] for column in document["plan"]["schema"]] == ["id", "part", "value"]
    assert document["result"]["rows_written"] == 3
    assert document["result"]["delete_files"] == 1
    assert lake.scanned() == [{"id": 1, "part": "x", "value": 2}]


def test_a_log_of_deletes_alone_is_a_delete(lake: CommandLine, tmp_path: Path) -> None:
    make_table(lake.warehouse, schema=SCHEMA)
    lake.ok("ingest", "db.t", csv_changes(tmp_path / "log.csv", "+I,1,x,1", "+I,2,x,2"), *UPSERT)
    lake.ok("ingest", "db.t", csv_changes(tmp_path / "log.csv", "-D,1,,"), *UPSERT)

    assert lake.scanned() == [{"id": 2, "part": "x", "value": 2}]
    (newest, _) = lake.ok("snapshots", "db.t")["result"]["snapshots"]
    assert newest["operation"] == "delete"


def test_a_log_that_does_nothing_commits_nothing(lake: CommandLine, tmp_path: Path) -> None:
    make_table(lake.warehouse, schema=SCHEMA)
    document = lake.ok("ingest", "db.t", csv_changes(tmp_path / "log.csv", "-U,1,x,1"), *UPSERT)

    assert document["status"] == "nothing-to-do"
    assert document["snapshot_ids"] == []


def test_a_second_run_of_an_id_does_nothing(lake: CommandLine, tmp_path: Path) -> None:
    make_table(lake.warehouse, schema=SCHEMA)
    log = csv_changes(tmp_path / "log.csv", "+I,1,x,1")
    first = lake.ok("ingest", "db.t", log, *RETRACT, "--run-id", "r")
    second = lake.ok("ingest", "db.t", log, *RETRACT, "--run-id", "r")

    assert (first["status"], second["status"]) == ("done", "nothing-to-do")
    assert len(lake.scanned()) == 1


def test_a_dry_run_shows_the_key_and_writes_nothing(lake: CommandLine, tmp_path: Path) -> None:
    make_table(lake.warehouse, schema=SCHEMA)
    log = csv_changes(tmp_path / "log.csv", "+I,1,x,1")
    before = files_below(lake.warehouse)
    document = lake.ok("ingest", "db.t", log, *UPSERT, "--dry-run")

    assert document["status"] == "dry-run"
    assert document["plan"]["key"] == ["id"]
    assert document["plan"]["changes_column"] == "op"
    assert document["plan"]["changes_mode"] == "upsert"
    assert files_below(lake.warehouse) == before


def test_new_columns_of_a_log_are_added_but_not_what_its_rows_do(
    lake: CommandLine, tmp_path: Path
) -> None:
    make_table(lake.warehouse, schema=SCHEMA)
    log = tmp_path / "log.json"
    log.write_text('{"op": "+I", "id": 1, "part": "x", "value": 1, "note": "n"}\n')
    lake.ok("ingest", "db.t", log, *UPSERT, "--evolve")

    assert lake.scanned() == [{"id": 1, "part": "x", "value": 1, "note": "n"}]
    assert lake.table().schema().column_names[-1] == "note"


def test_of_two_loads_at_once_the_later_commit_replaces_the_others_row(
    lake: CommandLine, tmp_path: Path
) -> None:
    make_table(lake.warehouse, schema=SCHEMA)
    slow = csv_changes(tmp_path / "slow.csv", "+I,1,x,1", "+I,2,x,1")
    fast = csv_changes(tmp_path / "fast.csv", "+I,1,x,2", "+I,3,x,2")
    session = open_session(lake.warehouse)
    options = ChangeOptions(changes_column="op", changes_mode="upsert")
    plan = plan_changelog_load(session, "db.t", request_of(slow), options)
    lake.ok("ingest", "db.t", fast, *UPSERT)
    execute_changes(session, plan)

    found = sorted((row["id"], row["value"]) for row in lake.scanned())
    assert found == [(1, 1), (2, 1), (3, 2)]


BAD_LOGS = [
    (UPSERT, ["+I,1,x,1", "+X,2,x,2"], "'+X' in the column op"),
    (UPSERT, ["+I,1,x,1", ",2,x,2"], "NULL in the column op"),
    (UPSERT, ["+I,1,x,1", "-D,,x,"], "NULL in the key column id"),
    (UPSERT, ["+I,1,x,1", "+U,2,x,"], "NULL in the required column value"),
    (RETRACT, ["+I,1,x,1", "-D,1,,"], "NULL in the required column part"),
]


@pytest.mark.parametrize(("mode", "lines", "message"), BAD_LOGS)
def test_a_bad_row_is_reported_and_nothing_is_left(
    lake: CommandLine, tmp_path: Path, mode: list[str], lines: list[str], message: str
) -> None:
    make_table(lake.warehouse, schema=SCHEMA)
    before = files_below(lake.warehouse)
    result = lake("--json", "ingest", "db.t", csv_changes(tmp_path / "log.csv", *lines), *mode)

    assert result.exit_code == 7
    assert message in result.json()["error"]["message"]
    assert files_below(lake.warehouse) == before


@pytest.mark.parametrize("engine", ["inline", "spark"])
def test_rows_without_a_key_are_set_aside_in_their_order(
    lake: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    make_table(lake.warehouse, schema=SCHEMA)
    logs = tmp_path / "logs"
    logs.mkdir()
    csv_changes(logs / "a.csv", "+I,1,x,1", "-D,,,", "+I,,x,2")
    csv_changes(logs / "b.csv", "-U,,x,3", "+U,2,x,4")
    monkeypatch.setattr(planning, "_SMALLEST_TASK_BYTES", 1)
    before = files_below(lake.warehouse)
    document = CommandLine(lake.warehouse, engine=engine).ok(
        "ingest",
        "db.t",
        logs,
        *UPSERT,
        "--max-rejects",
        "99",
        "--rejects",
        tmp_path / "rejects.csv",
    )

    assert document["result"]["rows_rejected"] == 3
    assert document["result"]["rows_written"] == 2
    with (tmp_path / "rejects.csv").open(newline="") as file:
        rejected = list(csv_module.DictReader(file))
    assert [row["_row"] for row in rejected] == ["-D,,,", "+I,,x,2", "-U,,x,3"]
    assert [row["_line"] for row in rejected] == ["3", "4", "2"]
    assert [row["op"] for row in rejected] == ["-D", "+I", "-U"]
    assert sorted(row["id"] for row in lake.scanned()) == [1, 2]
    assert not [path for path in files_below(lake.warehouse) - before if "rejects" in str(path)]


def test_a_log_without_the_column_is_refused(lake: CommandLine, tmp_path: Path) -> None:
    make_table(lake.warehouse, schema=SCHEMA)
    log = tmp_path / "log.csv"
    log.write_text("id,part,value\n1,x,1\n")
    result = lake("--json", "ingest", "db.t", log, *UPSERT)

    assert result.exit_code == 7
    assert "no column op" in result.json()["error"]["message"]


def test_a_key_without_a_partitions_source_is_refused_with_the_reason(
    lake: CommandLine, tmp_path: Path
) -> None:
    make_table(lake.warehouse, schema=SCHEMA, spec=BY_PART)
    log = csv_changes(tmp_path / "log.csv", "+I,1,x,1")
    result = lake("--json", "ingest", "db.t", log, *UPSERT, "--key", "id")

    assert result.exit_code == 3
    message = result.json()["error"]["message"]
    assert "source column part of the partition field part is not in the key" in message
    assert "would remain" in message
    assert lake("ingest", "db.t", log, *RETRACT, "--key", "id").exit_code == 0


def test_a_table_with_files_of_another_spec_is_refused(lake: CommandLine, tmp_path: Path) -> None:
    table = make_table(lake.warehouse, schema=SCHEMA, spec=BY_BUCKET)
    table.append(pa.table({"id": [1], "part": ["x"], "value": [1]}, schema=_arrow()))
    with table.update_spec() as update:
        update.add_field("part", IdentityTransform(), "part")
    log = csv_changes(tmp_path / "log.csv", "+I,1,x,1")
    result = lake("--json", "ingest", "db.t", log, *UPSERT, "--key", "id,part")

    assert result.exit_code == 3
    assert "other partition specs" in result.json()["error"]["message"]


def test_a_spec_that_changes_while_a_log_is_loaded_is_a_conflict(
    lake: CommandLine, tmp_path: Path
) -> None:
    table = make_table(lake.warehouse, schema=SCHEMA, spec=BY_BUCKET)
    session = open_session(lake.warehouse)
    ours = request_of(csv_changes(tmp_path / "ours.csv", "+U,1,x,2"))
    plan = plan_changelog_load(
        session, "db.t", ours, ChangeOptions(changes_column="op", changes_mode="upsert")
    )
    with table.update_spec() as update:
        update.remove_field("b")
        update.add_field("id", BucketTransform(8), "b8")
    # Of the new spec, which the plan's equality deletes do not reach.
    lake.ok("ingest", "db.t", csv_changes(tmp_path / "theirs.csv", "+I,1,x,1"), *UPSERT)

    with pytest.raises(CommitConflictError):
        execute_changes(session, plan)
    assert [row["value"] for row in lake.scanned()] == [1]


def test_a_writer_of_the_old_spec_while_a_log_is_loaded_is_a_conflict(
    lake: CommandLine, tmp_path: Path
) -> None:
    table = make_table(lake.warehouse, schema=SCHEMA, spec=BY_BUCKET)
    stale = open_session(lake.warehouse)
    rows = csv_changes(tmp_path / "theirs.csv", "+I,1,x,1")
    late = plan_changelog_load(
        stale,
        "db.t",
        request_of(rows),
        ChangeOptions(changes_column="op", changes_mode="upsert"),
    )
    appended = request_of(csv_of_rows(tmp_path / "rows.csv", "1,x,1"))
    late_append = plan_ingest(stale, "db.t", appended)
    with table.update_spec() as update:
        update.remove_field("b")
        update.add_field("id", BucketTransform(8), "b8")
    session = open_session(lake.warehouse)
    ours = request_of(csv_changes(tmp_path / "ours.csv", "+U,1,x,2"))
    plan = plan_changelog_load(
        session, "db.t", ours, ChangeOptions(changes_column="op", changes_mode="upsert")
    )
    execute(stale, late_append)

    with pytest.raises(CommitConflictError, match="other partition specs"):
        execute_changes(session, plan)
    with pytest.raises(CommitConflictError):
        execute_changes(stale, late)
    assert [row["value"] for row in lake.scanned()] == [1]


def csv_of_rows(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(["id,part,value", *lines]) + "\n")
    return path


def _arrow() -> pa.Schema:
    kinds = [("id", pa.int64()), ("part", pa.string()), ("value", pa.int64())]
    return pa.schema([pa.field(name, kind, nullable=False) for name, kind in kinds])


def test_format_version_1_has_no_deletes(lake: CommandLine, tmp_path: Path) -> None:
    make_table(lake.warehouse, schema=SCHEMA, format_version="1")
    result = lake("ingest", "db.t", csv_changes(tmp_path / "log.csv", "+I,1,x,1"), *UPSERT)

    assert result.exit_code == 3


@pytest.mark.parametrize(
    "options",
    [
        ["--changes-column", "op"],
        ["--ignore-deletes"],
        ["--changes-mode", "upsert"],
        ["--changes-column", "op", "--changes-mode", "append"],
        [*UPSERT, "--overwrite"],
        [*UPSERT, "--upsert"],
        [*UPSERT, "--order-by", "value"],
        ["--changes-column", "value", "--changes-mode", "upsert"],
        ["--key", "id"],
    ],
    ids=" ".join,
)
def test_options_that_contradict_each_other_are_refused(
    lake: CommandLine, tmp_path: Path, options: list[str]
) -> None:
    make_table(lake.warehouse, schema=SCHEMA)
    log = csv_changes(tmp_path / "log.csv", "+I,1,x,1")

    assert lake("ingest", "db.t", log, *options).exit_code == 2


def test_a_tables_rows_are_not_a_log_and_a_log_needs_a_key(
    lake: CommandLine, tmp_path: Path
) -> None:
    make_table(lake.warehouse)
    log = tmp_path / "log.csv"
    log.write_text("op,id,name\n+I,1,x\n")

    assert lake("ingest", "db.t", log, *UPSERT).exit_code == 2
    assert lake("ingest", "db.t", "--from-table", "db.t", *UPSERT, "--key", "id").exit_code == 2


CHANGES = st.lists(
    st.tuples(st.sampled_from(["+I", "+U", "-U", "-D"]), st.integers(0, 4), st.integers(0, 99)),
    min_size=1,
    max_size=20,
)


@given(logs=st.lists(CHANGES, min_size=1, max_size=3), size=st.sampled_from(["1B", "200B", "1MB"]))
@settings(
    deadline=None,
    max_examples=examples(10),
    suppress_health_check=[HealthCheck.too_slow],
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)
def test_a_local_merge_leaves_the_rows_that_a_log_leaves(
    logs: list[list[tuple[str, int, int]]], size: str
) -> None:
    folder = Path.cwd() / f"merged-{next(_numbers)}"
    folder.mkdir()
    lake = CommandLine(folder / "warehouse", engine="inline")
    make_table(folder / "warehouse", schema=SCHEMA)
    model: dict[int, int] = {}
    for number, log in enumerate(logs):
        # Several files are several units of one task.
        drop = folder / f"log-{number}"
        drop.mkdir()
        for part, changes in enumerate((log[:7], log[7:])):
            lines = [f"{kind},{key},p,{value}" for kind, key, value in changes]
            csv_changes(drop / f"{part}.csv", *lines)
        result = lake.ok("ingest", "db.t", drop, *UPSERT, "--local-merge", size)["result"]
        for kind, key, value in log:
            if kind == "-D":
                model.pop(key, None)
            elif kind != "-U":
                model[key] = value
        last = {key: kind for kind, key, _ in log if kind != "-U"}
        changed = [kind for kind, _, _ in log if kind != "-U"]
        if size == "1MB":
            assert result["changes_merged"] == len(changed) - len(last)
            assert result["rows_written"] == sum(kind != "-D" for kind in last.values())
        assert result["rows_read"] == len(log)
    assert {row["id"]: row["value"] for row in lake.scanned()} == model


def test_a_local_merge_needs_a_log_whose_changes_replace_rows(
    lake: CommandLine, tmp_path: Path
) -> None:
    make_table(lake.warehouse, schema=SCHEMA)
    log = csv_changes(tmp_path / "log.csv", "+I,1,a,1")
    merge = ("--local-merge", "64MB")
    assert lake("ingest", "db.t", log, *RETRACT, *merge).exit_code == 2
    assert lake("ingest", "db.t", log, *merge).exit_code == 2
    assert lake("ingest", "db.t", log, *UPSERT, "--local-merge", "much").exit_code == 2
    done = lake.ok("ingest", "db.t", log, *UPSERT, "--local-merge", "off")
    assert "changes_merged" not in done["result"]
