"""A pattern in place of a table: one command line for many tables."""

from __future__ import annotations

import json
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from support.cli.command_line import CommandLine
from support.tables.iceberg_tables import open_session, pyiceberg_catalog

from lake.core.base.errors import EngineError, StorageError
from lake.core.engine import selection
from lake.core.engine.inline import InlineEngine
from lake.core.table.catalogs import names
from lake.core.transaction import each_table
from lake.core.transaction.session import Session

NAMES = ("db.a", "db.b", "db.c")
COMPACT = ("compact", "db.*", "--min-input-files", "2")
EXPIRE = ("--older-than", "0s", "--retain-last", "1", "--unsafe-retention")


@pytest.fixture(autouse=True)
def _three_tables(lake: CommandLine) -> None:
    for name in NAMES:
        for number in range(2):
            lake.load(f"id\n{number}\n", "--create", table=name)


def files_of(lake: CommandLine, name: str) -> int:
    return len(lake.table(name).inspect.files())


def by_table(document: dict[str, Any]) -> dict[str, Any]:
    return {row["table"]: row for row in document["result"]["tables"]}


def damage(lake: CommandLine, name: str) -> None:
    """Remove the metadata file of a table."""
    Path(lake.table(name).metadata_location.removeprefix("file://")).unlink()


def test_each_matching_table_is_compacted_and_no_other_one(lake: CommandLine) -> None:
    lake.load("id\n1\n", "--create", table="other.t")
    lake.load("id\n2\n", table="other.t")

    document = lake.ok(*COMPACT)

    assert (document["status"], document["table"]) == ("done", "db.*")
    rows = by_table(document)
    assert list(rows) == list(NAMES)
    for name in NAMES:
        assert (rows[name]["status"], rows[name]["error"]) == ("done", None)
        assert rows[name]["result"]["rewritten_files"] == 2
        assert rows[name]["snapshot_ids"] == [str(lake.table(name).current_snapshot().snapshot_id)]
        assert files_of(lake, name) == 1
        assert [row["id"] for row in lake.rows(name, by="id")] == [0, 1]
    assert files_of(lake, "other.t") == 2
    again = lake.ok(*COMPACT)
    assert again["status"] == "nothing-to-do"
    assert {row["status"] for row in again["result"]["tables"]} == {"nothing-to-do"}


@pytest.mark.parametrize(
    "verb",
    [
        ("check",),
        ("clean",),
        ("deletes",),
        ("expire", *EXPIRE),
        ("manifests", "--rewrite-all"),
        ("stats",),
    ],
    ids=lambda verb: verb[0],
)
def test_a_row_of_a_pattern_is_what_the_command_does_to_the_table_alone(
    lake: CommandLine, verb: tuple[str, ...]
) -> None:
    name, *options = verb
    alone = lake.ok(name, "db.c", *options)

    rows = by_table(lake.ok(name, "d?.[ab]", *options))

    assert list(rows) == ["db.a", "db.b"]
    first, second = rows["db.a"], rows["db.b"]
    assert first["status"] == second["status"] == alone["status"]
    for part in ("plan", "result"):
        assert set(first[part]) == set(second[part]) == set(alone[part])


def test_a_dry_run_counts_the_tables_with_work_and_changes_none(lake: CommandLine) -> None:
    lake.ok("compact", "db.b", "--min-input-files", "2")

    result = lake(*COMPACT, "--dry-run")

    assert result.exit_code == 0
    assert "db.*: dry run: 3 tables: 2 with work, 1 with nothing to do" in result.stdout
    assert result.stdout.endswith("compact 'db.*' --min-input-files 2\n")
    assert "compact db.a: dry run: would rewrite 2 files" in result.stderr
    assert "db.b" not in result.stderr
    assert [files_of(lake, name) for name in NAMES] == [2, 1, 2]


@pytest.mark.parametrize("jobs", ["1", "3"])
def test_a_table_that_fails_does_not_stop_the_others(lake: CommandLine, jobs: str) -> None:
    damage(lake, "db.a")
    alone = lake("--json", "compact", "db.a").json()["error"]

    result = lake("--json", *COMPACT, "--jobs", jobs)

    document = result.json()
    assert (result.exit_code, document["status"]) == (6, "partial")
    rows = by_table(document)
    assert (rows["db.a"]["status"], rows["db.a"]["error"]) == ("failed", alone)
    assert [rows[name]["status"] for name in ("db.b", "db.c")] == ["done", "done"]
    said = lake("-q", *COMPACT)
    assert said.exit_code == 6
    assert "compact db.a: error: " in said.stderr
    assert "3 tables: 2 with nothing to do, 1 failed" in said.stderr + said.stdout


def test_damage_of_one_table_is_the_exit_code_of_a_check(lake: CommandLine) -> None:
    manifest = lake.table("db.b").current_snapshot().manifests(lake.table("db.b").io)[0]
    Path(manifest.manifest_path.removeprefix("file://")).write_bytes(b"damaged")

    result = lake("--json", "check", "db.*")

    assert result.exit_code == 7
    assert [row["status"] for row in result.json()["result"]["tables"]] == [
        "done",
        "damaged",
        "done",
    ]
    assert lake("check", "db.*").stdout.endswith("check db.b\n")


def test_a_mistake_in_the_options_is_reported_once(lake: CommandLine) -> None:
    result = lake("--json", *COMPACT, "--strategy", "sort", "--max-commits", "3")

    assert (result.exit_code, result.json()["status"]) == (2, "failed")
    assert result.json()["result"] == {}
    assert result.stderr.count("error:") == 1


@pytest.mark.parametrize(
    "line",
    [
        ("check", "db.*", "--repair", "refs"),
        ("clean", "db.*", "--output", "orphans.csv"),
        ("clean", "db.*", "--purge", "x"),
        ("expire", "db.*", "--snapshot", "1"),
    ],
    ids=lambda line: line[2],
)
def test_an_option_of_one_table_contradicts_a_pattern(
    lake: CommandLine, line: tuple[str, ...]
) -> None:
    result = lake(*line)

    assert result.exit_code == 2
    assert f"{line[2]} is for one table, and db.* is a pattern" in result.stderr


def test_a_pattern_without_a_table_ends_with_7(lake: CommandLine) -> None:
    result = lake("compact", "nope.*")

    assert result.exit_code == 7
    assert "no table matches nope.*" in result.stderr


def test_a_table_that_was_dropped_meanwhile_has_no_row(
    lake: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    spaces = list(names.namespaces_of(open_session(lake.warehouse).catalog))
    pyiceberg_catalog(lake.warehouse).drop_table("db.b")
    monkeypatch.setattr(each_table, "namespaces_of", lambda *_: iter(spaces))

    assert list(by_table(lake.ok(*COMPACT))) == ["db.a", "db.c"]


def test_a_namespace_that_cannot_be_listed_has_a_row(
    lake: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    spaces = list(names.namespaces_of(open_session(lake.warehouse).catalog))
    spaces.append(names.Namespace("dbx", error=StorageError("the catalog is down")))
    monkeypatch.setattr(each_table, "namespaces_of", lambda *_: iter(spaces))

    result = lake("--json", "check", "*")

    assert result.exit_code == 6
    rows = by_table(result.json())
    assert rows["dbx"]["error"]["message"] == "the catalog is down"
    assert rows["db.c"]["status"] == "done"
    assert list(by_table(lake("--json", "check", "db.*").json())) == list(NAMES)


def test_tables_after_the_first_are_worked_on_at_the_same_time(
    lake: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    running, first = InlineEngine.run, iter([True])
    two = threading.Barrier(2, timeout=30)

    def meet(engine: InlineEngine, *arguments: Any, **options: Any) -> Any:
        if not next(first, False):
            two.wait()
        return running(engine, *arguments, **options)

    monkeypatch.setattr(InlineEngine, "run", meet)

    rows = by_table(lake.ok(*COMPACT, "--jobs", "2"))

    assert [(name, row["status"]) for name, row in rows.items()] == [
        (name, "done") for name in NAMES
    ]
    assert [row["id"] for name in NAMES for row in lake.rows(name, by="id")] == [0, 1] * 3


def test_several_jobs_need_a_pattern(lake: CommandLine) -> None:
    result = lake("compact", "db.a", "--jobs", "2")

    assert result.exit_code == 2
    assert "--jobs is for a pattern, and db.a is a table" in result.stderr


def test_the_program_after_a_commit_runs_for_each_table(lake: CommandLine, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    program = tmp_path / "program.py"
    program.write_text(
        f"import sys\nwith open({str(seen)!r}, 'a') as file:\n    file.write(sys.stdin.read())\n"
    )

    lake.ok(*COMPACT, "--on-commit", f"{sys.executable} {program}")

    documents = [json.loads(line) for line in seen.read_text().splitlines()]
    assert [document["table"] for document in documents] == list(NAMES)
    assert [document["result"]["rewritten_files"] for document in documents] == [2, 2, 2]


def test_a_stop_after_the_commit_of_one_table_leaves_the_next_one(
    lake: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    do = each_table._Run.do

    def stopped(run: Any, session: Session, number: int) -> None:
        do(run, session, number)
        if number == 0:
            # The signal comes when the commit was the last change of the command for this table.
            signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(each_table._Run, "do", stopped)
    result = lake("--json", *COMPACT)

    assert result.exit_code == 128 + signal.SIGTERM
    document = result.json()
    assert document["error"]["kind"] == "stopped"
    assert list(by_table(document)) == ["db.a"]
    assert "done before: tables 1" in result.stderr
    assert [files_of(lake, name) for name in NAMES] == [1, 2, 2]


def test_a_stop_within_a_table_leaves_it_as_it_was(
    lake: CommandLine, stopping_at: Callable[[str], None]
) -> None:
    stopping_at("db.b")

    result = lake("--json", *COMPACT)

    assert result.exit_code == 128 + signal.SIGTERM
    rows = by_table(result.json())
    assert [rows[name]["status"] for name in rows] == ["done", "failed"]
    assert rows["db.b"]["error"]["kind"] == "stopped"
    assert [files_of(lake, name) for name in NAMES] == [1, 2, 2]


@pytest.fixture
def stopping_at(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Return a function that lets a signal come while the command works on a table."""
    begin = each_table._Run._ending

    def install(table: str) -> None:
        def ending(run: Any, session: Session, name: str, **options: Any) -> Any:
            if name == table:
                command = run._command

                def stopped(of_thread: Session, of: str) -> Any:
                    signal.raise_signal(signal.SIGTERM)
                    return command(of_thread, of)

                run._command = stopped
            return begin(run, session, name, **options)

        monkeypatch.setattr(each_table._Run, "_ending", ending)

    return install


@pytest.mark.parametrize("jobs", ["1", "3"])
def test_each_row_has_the_warnings_of_its_table(lake: CommandLine, jobs: str) -> None:
    lake.ok("alter", "db.b", "--set", "write.location-provider.impl=com.example.Places")
    alone = lake.ok("compact", "db.b", "--rewrite-all")["warnings"]

    document = lake.ok(*COMPACT, "--rewrite-all", "--jobs", jobs)

    rows = by_table(document)
    assert alone
    assert rows["db.b"]["warnings"] == alone
    assert rows["db.a"]["warnings"] == rows["db.c"]["warnings"] == document["warnings"] == []


def test_one_engine_works_on_all_tables(lake: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    choose, engines = selection.choose_engine, []

    def counted(*arguments: Any) -> Any:
        engines.append(choose(*arguments))
        return engines[-1]

    monkeypatch.setattr(selection, "choose_engine", counted)

    lake.ok(*COMPACT)

    assert len(engines) == 1


def test_an_engine_that_breaks_is_replaced_for_the_next_table(
    lake: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken(InlineEngine):
        def run(self, *_arguments: Any, **_options: Any) -> Any:
            raise EngineError("the JVM has ended")

    engines: list[InlineEngine] = [Broken(), InlineEngine()]
    monkeypatch.setattr(selection, "choose_engine", lambda *_: engines.pop(0))

    result = lake("--json", *COMPACT)

    assert (result.exit_code, engines) == (6, [])
    rows = by_table(result.json())
    assert [rows[name]["status"] for name in NAMES] == ["failed", "done", "done"]
    assert rows["db.a"]["error"]["message"] == "the JVM has ended"


@pytest.mark.parametrize("command", ["check", "health", "tables", "maintain"])
def test_a_namespace_that_a_pattern_cannot_select_from_is_not_listed(
    lake: CommandLine, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    lake.load("id\n1\n", "--create", table="other.t")
    lake.load("id\n1\n", "--create", table="db2.t")
    listed: list[str] = []
    real = SqlCatalog.list_tables

    def list_tables(catalog: SqlCatalog, namespace: Any) -> Any:
        listed.append(".".join(namespace))
        return real(catalog, namespace)

    monkeypatch.setattr(SqlCatalog, "list_tables", list_tables)

    lake.ok(command, "db*", *(["--dry-run"] if command == "maintain" else []))

    assert set(listed) == {"db", "db2"}


def test_namespaces_are_listed_at_the_same_time(
    lake: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.load("id\n1\n", "--create", table="other.t")
    both = threading.Barrier(2, timeout=20)
    real = SqlCatalog.list_tables

    def list_tables(catalog: SqlCatalog, namespace: Any) -> Any:
        both.wait()
        return real(catalog, namespace)

    monkeypatch.setattr(SqlCatalog, "list_tables", list_tables)

    found = lake.ok("tables")["result"]["tables"]
    assert [row["table"] for row in found] == [*NAMES, "other.t"]
