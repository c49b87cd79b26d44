"""The Iceberg table to which `lake maintain` and `lake apply` append their runs; PyIceberg reads it."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from pyiceberg.expressions import EqualTo
from pyiceberg.types import StringType
from support.cli.command_line import CommandLine
from support.tables.iceberg_tables import (
    after,
    files_below,
    make_table,
    named_rows,
    pyiceberg_catalog,
    refused_with,
)
from support.tables.neglected_tables import Warehouse

from lake.cli.main import main
from lake.core.maintain.run_log.runs_table import COLUMNS

NAME = "ops.runs"
EXPIRE = ("--only", "expire", "--runs-table", NAME)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "runs.jsonl"


def make(warehouse: Path) -> None:
    """Make a table of some snapshots, and a namespace for the table of runs."""
    table = make_table(warehouse)
    for number in range(2):
        table.append(named_rows(number))
    pyiceberg_catalog(warehouse).create_namespace("ops")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    """The warehouse, made once."""
    return Warehouse(tmp_path_factory.mktemp("runs"), make)


@pytest.fixture
def lake(made: Warehouse, tmp_path: Path) -> CommandLine:
    """`lake` on the warehouse, with a policy that lets its table expire each time."""
    (tmp_path / "policy.toml").write_text('["db.*".expire]\nwhen = "files > 0"\n')
    return made.restored()


@pytest.fixture
def words(tmp_path: Path, log: Path) -> tuple[object, ...]:
    """A run of `lake maintain` that has something to do each time."""
    return ("maintain", "--policy", tmp_path / "policy.toml", "--log", log, *EXPIRE)


def rows_of(lake: CommandLine, name: str = NAME) -> list[dict[str, Any]]:
    """Return the rows of the table of runs as PyIceberg reads them, the oldest first."""
    rows: list[dict[str, Any]] = lake.table(name).scan().to_arrow().sort_by("ended_at").to_pylist()
    return rows


def warnings_of(lake: CommandLine, *words: object) -> list[str]:
    """Return the warnings of a run that did its work."""
    document = lake.ok(*words)
    assert document["status"] in {"done", "nothing-to-do"}
    assert [row["action"] for row in document["result"]["actions"]] == ["expire"]
    warnings: list[str] = document["warnings"]
    return warnings


def test_a_run_is_one_commit_with_a_row_for_each_action(
    lake: CommandLine, words: tuple[object, ...], log: Path
) -> None:
    make_table(lake.warehouse, "db.u").append(named_rows(1))

    document = lake.ok(*words)

    assert document["warnings"] == []
    table = lake.table(NAME)
    assert len(table.snapshots()) == 1
    logged = [json.loads(line) for line in log.read_text().splitlines()]
    rows = rows_of(lake)
    assert [row["table_name"] for row in rows] == [line["table"] for line in logged]
    assert {row["table_name"] for row in rows} == {"db.t", "db.u"}
    for row, line in zip(rows, logged, strict=True):
        assert row["run_id"] == line["run"] == document["result"]["run"]
        assert row["ended_at"] == datetime.fromisoformat(line["at"])
        for name in ("host", "catalog", "table_uuid", "action", "status", "seconds", "bytes"):
            assert row[name] == line[name], name
        for name in ("forecast", "before", "after", "operation_id", "error"):
            assert row[name] == line[name], name
        assert list(map(str, row["snapshot_ids"])) == line["snapshot_ids"]
    assert [field.name for field in table.schema().fields] == COLUMNS.names
    assert str(table.spec().fields[0].transform) == "month"
    assert len(table.scan(EqualTo("table_name", "db.u")).to_arrow()) == 1

    assert lake.ok(*words)["result"]["run"] in {row["run_id"] for row in rows_of(lake)}
    assert len(lake.table(NAME).snapshots()) == 2


def test_a_run_with_nothing_to_do_commits_nothing(lake: CommandLine, log: Path) -> None:
    lake.ok("maintain", "--log", log, *EXPIRE)

    assert not pyiceberg_catalog(lake.warehouse).table_exists(NAME)


def test_a_dry_run_and_a_plan_append_nothing_and_apply_does(
    lake: CommandLine, words: tuple[object, ...], tmp_path: Path, log: Path
) -> None:
    before = files_below(lake.warehouse)
    lake.ok(*words, "--dry-run")
    lake.ok(*words, "--plan", tmp_path / "plan.json")
    assert files_below(lake.warehouse) == before

    document = lake.ok("apply", tmp_path / "plan.json", "--log", log, "--runs-table", NAME)

    assert [row["run_id"] for row in rows_of(lake)] == [document["result"]["run"]]


def test_the_runs_of_the_table_are_shown_and_the_log_is_not_read(
    lake: CommandLine, words: tuple[object, ...], log: Path
) -> None:
    lake.ok(*words)
    by_log = lake.ok("runs", "--log", log)["result"]
    log.unlink()

    result = lake.ok("runs", "--runs-table", NAME)["result"]

    assert (result["log"], result["runs_table"], result["found"]) == (None, NAME, True)
    assert (result["runs"], result["actions"]) == (by_log["runs"], by_log["actions"])
    assert lake.ok("runs", "--runs-table", NAME, "--since", "1h")["result"]["matching"] == 1
    assert lake.ok("runs", "db.x", "--runs-table", NAME)["result"]["matching"] == 0
    missing = lake("runs", "--runs-table", "ops.other")
    assert (missing.exit_code, "there is no table ops.other" in missing.stdout) == (0, True)
    assert lake("runs", "--runs-table", NAME, "--log", log).exit_code == 2
    assert lake("runs", "--runs-table", "db.t").exit_code == 3


def test_rows_that_are_not_runs_are_counted_and_decide_nothing(
    lake: CommandLine, words: tuple[object, ...]
) -> None:
    lake.ok(*words)
    (row,) = rows_of(lake)
    table = lake.table(NAME)
    odd = {**row, "status": "fine"}, {**row, "ended_at": None}, {**row, "seconds": float("nan")}
    failed = [{**row, "status": "failed", "error": {"kind": "x", "message": "m", "hint": None}}] * 9
    table.append(pa.Table.from_pylist([*odd, *failed], schema=table.schema().as_arrow()))

    result = lake.ok("runs", "--runs-table", NAME)["result"]

    assert (result["unreadable"], result["matching"], result["waiting"]) == (2, 11, [])
    # Back-off uses the log only.
    assert warnings_of(lake, *words) == []


def test_a_missing_namespace_is_a_warning_and_the_work_is_done(
    lake: CommandLine, words: tuple[object, ...]
) -> None:
    (warning,) = warnings_of(lake, *words[:-1], "nowhere.runs")

    assert "nowhere.runs: the namespace nowhere" in warning
    assert not pyiceberg_catalog(lake.warehouse).namespace_exists("nowhere")


def test_a_table_of_something_else_is_never_changed(
    lake: CommandLine, words: tuple[object, ...]
) -> None:
    make_table(lake.warehouse, "ops.orders").append(named_rows(1))
    before = lake.table("ops.orders").metadata_location

    (warning,) = warnings_of(lake, *words[:-1], "ops.orders")

    assert "ops.orders is not a table of runs: it has no column ended_at" in warning
    assert lake.table("ops.orders").metadata_location == before
    assert lake("maintain", "--runs-table", "orders").exit_code == 2


def test_columns_of_others_stay_null_and_missing_ones_are_added(
    lake: CommandLine, words: tuple[object, ...]
) -> None:
    lake.ok(*words)
    with lake.table(NAME).update_schema() as change:
        change.delete_column("saved_seconds")
        change.delete_column(("before", "manifests"))
        change.add_column("comment", StringType())

    assert warnings_of(lake, *words) == []

    old, new = rows_of(lake)
    assert (old["comment"], new["comment"]) == (None, None)
    assert (old["before"]["manifests"], old["saved_seconds"]) == (None, None)
    assert new["before"]["manifests"] is not None
    assert {"saved_seconds", *COLUMNS.names} <= set(lake.table(NAME).schema().column_names)


def test_a_column_with_another_type_is_a_warning(
    lake: CommandLine, words: tuple[object, ...]
) -> None:
    lake.ok(*words)
    with lake.table(NAME).update_schema() as change:
        change.delete_column("seconds")
    with lake.table(NAME).update_schema() as change:
        change.add_column("seconds", StringType())
    before = files_below(lake.warehouse / "ops")

    (warning,) = warnings_of(lake, *words)

    assert "column seconds is" in warning
    assert files_below(lake.warehouse / "ops") == before


def test_another_host_may_create_the_table_first(
    lake: CommandLine, words: tuple[object, ...], tmp_path: Path
) -> None:
    other = CommandLine(lake.warehouse)

    def create() -> None:
        other.ok(*words[:-1], NAME, "--log", tmp_path / "other.jsonl")

    raced = lake.with_faults(after(create))

    assert warnings_of(raced, *words) == []
    assert len(rows_of(lake)) == 2


def test_a_commit_that_fails_leaves_a_warning_and_no_file(
    lake: CommandLine, words: tuple[object, ...]
) -> None:
    lake.ok(*words)
    before = files_below(lake.warehouse / "ops")
    failing = lake.with_faults(*[refused_with(CommitFailedException("busy"))] * 20)

    (warning,) = warnings_of(failing, *words)

    assert f"the runs were not appended to the table {NAME}" in warning
    assert files_below(lake.warehouse / "ops") == before


def test_a_commit_of_unknown_outcome_keeps_its_files(
    lake: CommandLine, words: tuple[object, ...]
) -> None:
    lake.ok(*words)
    before = files_below(lake.warehouse / "ops")
    unknown = CommitStateUnknownException("no answer")
    failing = lake.with_faults(*[refused_with(unknown)] * 20)

    (warning,) = warnings_of(failing, *words)

    assert NAME in warning
    assert any(".parquet" in path for path in files_below(lake.warehouse / "ops") - before)


def test_a_run_that_is_stopped_appends_what_it_did(
    lake: CommandLine, tmp_path: Path, log: Path
) -> None:
    make_table(lake.warehouse, "db.u").append(named_rows(1))
    lake.table("db.u").append(named_rows(2))
    policy = tmp_path / "compact.toml"
    policy.write_text('["db.*".compact]\nwhen = "files > 1"\nmin-input-files = 2\n')
    words = ("maintain", "--policy", policy, "--log", log, "--only", "compact")

    def stop(commit: Callable[[], Any]) -> Any:
        signal.raise_signal(signal.SIGTERM)
        return commit()

    result = lake.with_faults(stop)("--json", *words, "--runs-table", NAME)

    assert result.exit_code == 128 + signal.SIGTERM
    (done,) = result.json()["result"]["actions"]
    assert [(row["table_name"], row["status"]) for row in rows_of(lake)] == [
        (done["table"], "done")
    ]


def test_a_stop_while_runs_are_appended_ends_the_run_with_what_it_did(
    lake: CommandLine, words: tuple[object, ...]
) -> None:
    lake.ok(*words)
    before = files_below(lake.warehouse / "ops")

    def stop(_commit: Callable[[], Any]) -> Any:
        signal.raise_signal(signal.SIGTERM)
        raise CommitFailedException("busy")

    result = lake.with_faults(stop)("--json", *words)

    assert result.exit_code == 128 + signal.SIGTERM
    assert [row["action"] for row in result.json()["result"]["actions"]] == ["expire"]
    assert files_below(lake.warehouse / "ops") == before


def test_the_name_comes_from_the_option_before_a_policy(
    lake: CommandLine, tmp_path: Path, log: Path
) -> None:
    policy = tmp_path / "named.toml"
    policy.write_text('runs-table = "ops.by_policy"\n["db.*".expire]\nwhen = "files > 0"\n')
    words = ("maintain", "--only", "expire", "--log", log, "--policy", policy)

    lake.ok(*words)
    lake.ok(*words, "--runs-table", "ops.by_option")

    assert len(rows_of(lake, "ops.by_policy")) == len(rows_of(lake, "ops.by_option")) == 1
    for text in ("3", '"orders"'):
        policy.write_text(f"runs-table = {text}\n")
        result = lake("--json", *words)
        assert (result.exit_code, f"runs-table in {policy}" in result.stdout) == (2, True)


def test_the_project_file_names_the_table_if_its_folder_is_trusted(
    lake: CommandLine, words: tuple[object, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.ok(*words, "--plan", tmp_path / "plan.json")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lake.toml").write_text('[maintain]\nruns-table = "ops.by_project"\n')
    apply = ("apply", tmp_path / "plan.json", "--log", tmp_path / "log.jsonl")

    (warning,) = warnings_of(lake, *apply)
    assert "does not trust" in warning
    assert lake(*words[:-2]).exit_code == 3
    lake.ok("config", "--trust")
    assert warnings_of(lake, *apply) == []
    assert warnings_of(lake, *words[:-2]) == []

    assert len(rows_of(lake, "ops.by_project")) == 2


def test_the_configuration_of_a_catalog_names_the_table(
    lake: CommandLine, words: tuple[object, ...]
) -> None:
    Path(os.environ["PYICEBERG_HOME"], ".pyiceberg.yaml").write_text(
        f"catalog:\n  lake:\n    type: sql\n    uri: sqlite:///{lake.warehouse}/catalog.db\n"
        f"    warehouse: file://{lake.warehouse}\n    lake.runs-table: ops.by_catalog\n"
    )

    assert main([str(word) for word in words[:-2]]) == 0

    assert len(rows_of(lake, "ops.by_catalog")) == 1


def test_a_catalog_of_folders_has_a_table_of_runs_too(tmp_path: Path, log: Path) -> None:
    lake = CommandLine(tmp_path / "folders", catalog_type="hadoop")
    lake.load("id\n1\n", "--create")
    words = ("maintain", "--only", "clean", "--log", log, "--runs-table")

    assert "namespace ops does not exist" in lake.ok(*words, "ops.runs")["warnings"][0]
    assert lake.ok(*words, "db.runs", "--policy", always(tmp_path))["warnings"] == []

    rows = lake.scanned(table="db.runs")
    assert [(row["table_name"], row["action"]) for row in rows] == [("db.t", "clean")]


def always(folder: Path) -> Path:
    """Return a policy that lets files be searched for each time."""
    path = folder / "always.toml"
    path.write_text('["*".clean]\nwhen = "files > 0"\n')
    return path
