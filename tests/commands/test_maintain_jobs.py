"""`lake maintain --jobs` and `lake apply --jobs`: several tables at a time end as one after the other does."""

from __future__ import annotations

import json
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from support.cli.command_line import CommandLine
from support.tables.iceberg_tables import make_table, named_rows
from support.tables.neglected_tables import Warehouse, add_files, rows_of, run

from lake.commands import actions
from lake.core.base.errors import StoppedError
from lake.core.base.interrupts import STOPPED
from lake.core.engine.inline import InlineEngine
from lake.core.maintain.rounds.options import Call
from lake.core.maintain.run_log.run_log import RunLog, default_path
from lake.core.transaction.session import Session

pytestmark = pytest.mark.usefixtures("in_an_object_store")
MEND = ("maintain", "--only", "expire,compact,deletes,manifests,stats")
_SECONDS = 30


@pytest.fixture(scope="module")
def similar(tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    """Four tables that need the same compaction, made once."""

    def make(warehouse: Path) -> None:
        for name in "abcd":
            make_table(warehouse, f"db.{name}")
            add_files(warehouse, f"db.{name}", 20)

    return Warehouse(tmp_path_factory.mktemp("similar"), make)


@pytest.fixture
def lake(similar: Warehouse) -> CommandLine:
    """`lake` on four tables that need the same compaction."""
    return similar.restored()


def found(result: dict[str, Any]) -> dict[str, list[tuple[str, ...]]]:
    """Return what a result says of its tables, without what differs from run to run."""
    keys = ("table", "action", "status", "reason", "bytes")
    return {
        part: [tuple(str(row.get(key)) for key in keys) for row in result[part]]
        for part in ("actions", "left_alone", "rest", "failed", "pending")
    }


class Order:
    """Lets the actions of several threads begin in an order that a test chooses.

    Args:
        picks: chooses the thread that goes on, among those that wait.
    """

    def __init__(self, picks: str) -> None:
        self._picks = iter(picks)
        self._waiting: list[threading.Event] = []
        self._lock = threading.Lock()
        self.run_action = actions.run_action

    def __call__(self, context: Any, session: Session, call: Call) -> Any:
        mine = threading.Event()
        with self._lock:
            self._waiting.append(mine)
        # Most threads have come after this time. The order matters, and not that it is kept.
        mine.wait(0.02)
        with self._lock:
            pick = int(next(self._picks, "0")) % len(self._waiting)
            self._waiting.pop(pick).set()
        return self.run_action(context, session, call)


@pytest.mark.parametrize("picks", ["", "3210321"])
def test_several_tables_at_a_time_end_as_one_after_the_other(
    neglected: Warehouse, monkeypatch: pytest.MonkeyPatch, picks: str
) -> None:
    alone = found(run(neglected.restored(), *MEND, "--jobs", "1")[1])
    # The times of the first run would change the forecasts of the second one.
    Path(default_path()).unlink()
    lake = neglected.restored()
    rows = rows_of(lake)
    monkeypatch.setattr("lake.commands.maintain.run_action", Order(picks))

    code, result = run(lake, *MEND, "--jobs", "4")

    assert (code, found(result)) == (0, alone)
    assert rows_of(lake) == rows
    again = run(lake, *MEND, "--jobs", "4")[1]
    assert again["actions"] == []
    assert len(RunLog(default_path()).read().entries) == len(alone["actions"])


def test_tables_are_worked_on_at_the_same_time(
    lake: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    all_four = threading.Barrier(4, timeout=_SECONDS)
    running = InlineEngine.run

    def meet(engine: InlineEngine, *arguments: Any, **options: Any) -> Any:
        all_four.wait()
        return running(engine, *arguments, **options)

    monkeypatch.setattr(InlineEngine, "run", meet)

    code, result = run(lake, *MEND, "--jobs", "4")

    assert code == 0
    assert [row["table"] for row in result["actions"]] == ["db.a", "db.b", "db.c", "db.d"]


def test_the_line_of_each_table_names_it_and_its_action(lake: CommandLine) -> None:
    result = lake(*MEND, "--jobs", "4")

    assert result.exit_code == 0
    lines = [line for line in result.stderr.splitlines() if "compact" in line]
    assert len(lines) == 4
    for name in "abcd":
        (line,) = (line for line in lines if f"db.{name}" in line)
        assert "20 files" in line


def test_a_program_after_a_commit_runs_for_one_table_at_a_time(
    lake: CommandLine, tmp_path: Path
) -> None:
    seen, program = tmp_path / "seen", tmp_path / "program.py"
    # A second one at the same time finds the file.
    program.write_text(
        f"import os, sys\nos.close(os.open({str(tmp_path / 'one')!r}, os.O_CREAT | os.O_EXCL))\n"
        f"with open({str(seen)!r}, 'a') as file:\n    file.write(sys.stdin.read())\n"
        f"os.unlink({str(tmp_path / 'one')!r})\n"
    )

    code, result = run(lake, *MEND, "--jobs", "4", "--on-commit", f"{sys.executable} -S {program}")

    assert code == 0
    documents = [json.loads(line) for line in seen.read_text().splitlines()]
    assert sorted((document["table"], document["command"]) for document in documents) == [
        (row["table"], row["action"]) for row in result["actions"]
    ]
    assert [row["warnings"] for row in result["actions"]] == [[], [], [], []]


def test_the_budget_of_bytes_is_one_for_all_threads(lake: CommandLine) -> None:
    rows = rows_of(lake, ["db.a", "db.b", "db.c", "db.d"])
    size = sum(lake.table("db.a").inspect.data_files()["file_size_in_bytes"].to_pylist())
    words = (*MEND, "--jobs", "4", "--max-bytes", f"{2 * size}B")

    code, result = run(lake, *words)

    assert code == 6
    assert sum(row["bytes"] for row in result["actions"]) == 2 * size
    assert [row["status"] for row in result["actions"]] == ["done", "done"]
    assert len(result["rest"]) == 2
    assert run(lake, *words)[0] == 0
    assert rows_of(lake, ["db.a", "db.b", "db.c", "db.d"]) == rows


def test_a_stop_ends_all_threads_with_what_was_done(
    lake: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ["db.a", "db.b", "db.c", "db.d"]
    rows, two = rows_of(lake, names), threading.Barrier(2, timeout=_SECONDS)
    running = InlineEngine.run

    def stop(engine: InlineEngine, *arguments: Any, **options: Any) -> Any:
        if two.wait() == 0:
            signal.raise_signal(signal.SIGTERM)
        assert STOPPED.wait(_SECONDS)
        return running(engine, *arguments, **options)

    monkeypatch.setattr(InlineEngine, "run", stop)

    result = lake("--json", *MEND, "--jobs", "2")

    assert result.exit_code == 128 + signal.SIGTERM
    document = result.json()
    assert document["error"]["kind"] == "stopped"
    ended = document["result"]["actions"]
    # What was in hand ends with a commit or stops before it; nothing else begins.
    assert [row["table"] for row in ended] == ["db.a", "db.b"]
    assert {row["status"] for row in ended} <= {"done", "partial", StoppedError(0).status}
    logged = RunLog(default_path()).read().entries
    assert sorted(entry.table for entry in logged) == ["db.a", "db.b"]
    assert not any(entry.is_failure for entry in logged)
    monkeypatch.setattr(InlineEngine, "run", running)
    assert run(lake, *MEND, "--jobs", "2")[0] == 0
    assert rows_of(lake, names) == rows
    for name in names:
        orphans = lake.ok("clean", name, "--older-than", "0s", "--unsafe-retention")
        assert orphans["plan"]["orphans"] == 0


def test_what_fails_in_a_thread_is_a_row_and_the_others_go_on(
    lake: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path(lake.table("db.b").metadata_location.removeprefix("file://")).unlink()
    run_action = actions.run_action

    def broken(context: Any, session: Session, call: Call) -> Any:
        if call.table == "db.c":
            session.warn("only of c")
            return run_action(context, session, call._replace(options={"target-size": "1B"}))
        return run_action(context, session, call)

    monkeypatch.setattr("lake.commands.maintain.run_action", broken)

    code, result = run(lake, *MEND, "--jobs", "4")

    assert code == 6
    assert [(row["table"], row["action"]) for row in result["failed"]] == [
        ("db.b", None),
        ("db.c", "compact"),
    ]
    assert {row["table"]: row["warnings"] for row in result["actions"]} == {
        "db.a": [],
        "db.c": ["only of c"],
        "db.d": [],
    }


def test_a_plan_is_applied_to_several_tables_at_a_time(lake: CommandLine, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    lake.ok(*MEND, "--plan", plan)
    lake.table("db.b").append(named_rows(1000))

    code, result = run(lake, "apply", plan, "--jobs", "4")

    assert code == 6
    assert [row["table"] for row in result["actions"]] == ["db.a", "db.c", "db.d"]
    assert [row["table"] for row in result["rest"]] == ["db.b"]


def test_the_status_file_names_all_actions_that_run(
    lake: CommandLine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    both, seen = threading.Barrier(2, timeout=_SECONDS), list[dict[str, Any]]()
    status, running = tmp_path / "status.json", InlineEngine.run

    def look(engine: InlineEngine, *arguments: Any, **options: Any) -> Any:
        if both.wait() == 0:
            seen.append(json.loads(status.read_text()))
        both.wait()
        return running(engine, *arguments, **options)

    def stop(*_: object) -> None:
        raise StoppedError(signal.SIGTERM)

    monkeypatch.setattr(InlineEngine, "run", look)
    monkeypatch.setattr("lake.core.base.clock.SystemClock.sleep", stop)

    lake(*MEND, "--jobs", "2", "--every", "1h", "--status", status)

    names = [[item["table"] for item in document["running"]] for document in seen]
    assert sorted(map(sorted, names)) == [["db.a", "db.b"], ["db.c", "db.d"]]
    assert seen[0]["action"] == seen[0]["running"][0]
    assert json.loads(status.read_text())["running"] == []


@pytest.mark.parametrize("number", ["0", "65"])
@pytest.mark.parametrize("verb", ["maintain", "apply", "check"])
def test_a_number_of_jobs_that_is_not_allowed_is_refused(
    lake: CommandLine, tmp_path: Path, verb: str, number: str
) -> None:
    words: list[str | Path] = ["db.*"] if verb == "check" else []
    if verb == "apply":
        words.append(tmp_path / "plan.json")
        lake.ok(*MEND, "--plan", *words)

    result = lake(verb, *words, "--jobs", number)

    assert result.exit_code == 2
    assert f"--jobs {number} is not between 1 and 64" in result.stderr
