"""`--on-commit`: a program of the user that gets the document of a command that changed the table."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from support.cli.command_line import CommandLine
from support.tables.iceberg_tables import ids_in

from lake.commands import commit_hook
from lake.commands.commit_hook import run_hook
from lake.core.base.outcome import Outcome
from lake.core.load.continuous.totals import Totals


@pytest.fixture
def hook(tmp_path: Path) -> str:
    """Return a command that appends what it reads, and its environment, to a file."""
    program = tmp_path / "hook.py"
    program.write_text(
        "import json, os, sys\n"
        f"with open({str(tmp_path / 'seen')!r}, 'a') as file:\n"
        "    json.dump([json.load(sys.stdin), dict(os.environ)], file)\n"
        "    file.write('\\n')\n"
    )
    return f"'{sys.executable}' '{program}'"


def seen(tmp_path: Path) -> list[tuple[dict[str, Any], dict[str, str]]]:
    path = tmp_path / "seen"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def source(tmp_path: Path, *ids: int) -> Path:
    path = tmp_path / f"{ids[0]}.csv"
    path.write_text("id\n" + "".join(f"{number}\n" for number in ids))
    return path


def test_each_command_that_changes_the_table_reports_its_document(
    lake: CommandLine, tmp_path: Path, hook: str
) -> None:
    report = ("--on-commit", hook)
    documents = [
        lake.ok("ingest", "db.t", source(tmp_path, 1), "--create", *report),
        lake.ok("ingest", "db.t", source(tmp_path, 2), *report),
        lake.ok("compact", "db.t", "--rewrite-all", *report),
        lake.ok("expire", "db.t", "--older-than", "0s", "--unsafe-retention", *report),
    ]
    lake.ok("ingest", "db.t", source(tmp_path, 3), "--stage", "--run-id", "r", *report)
    documents.append(lake.ok("replay", "db.t", "--all-staged", *report))

    found = [document for document, _ in seen(tmp_path)]
    assert [document["command"] for document in found] == [
        *("ingest", "ingest", "compact", "expire", "replay")
    ]
    for document, printed in zip(found, documents, strict=True):
        for key in ("status", "snapshot_ids", "result", "operation_id", "plan"):
            assert document[key] == printed[key]


def test_a_watched_folder_reports_each_epoch_once(
    lake: CommandLine, tmp_path: Path, hook: str
) -> None:
    folder = tmp_path / "drop"
    folder.mkdir()
    for number in (1, 2):
        source(folder, number)
    words = ("ingest", "db.t", "--create", "--watch", folder, "--stream", "s", "--once")
    lake.ok(
        *(*words, "--state", tmp_path / "state", "--settle", "0s", "--commit-files", 1),
        *("--on-commit", hook),
    )

    found = [document for document, _ in seen(tmp_path)]
    assert [document["result"]["rows_written"] for document in found] == [1, 1]
    assert len({document["snapshot_ids"][0] for document in found}) == 2


def test_nothing_runs_without_a_commit(lake: CommandLine, tmp_path: Path, hook: str) -> None:
    report = ("--on-commit", hook)
    lake.ok("ingest", "db.t", source(tmp_path, 1), "--create", "--run-id", "r")
    lake.ok("ingest", "db.t", source(tmp_path, 1), "--run-id", "r", *report)
    lake.ok("ingest", "db.t", source(tmp_path, 2), "--dry-run", *report)
    lake.ok("compact", "db.t", *report)
    lake.ok("expire", "db.t", *report)
    lake.ok("replay", "db.t", *report)
    assert lake("ingest", "db.t", tmp_path / "none.csv", *report).exit_code == 7

    assert seen(tmp_path) == []


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("/nowhere/program", "cannot be started"),
        (f"'{sys.executable}' -c 'import sys; sys.exit(3)'", "exit code 3"),
        ("true; touch x", "cannot be started"),
    ],
)
def test_a_failure_is_a_warning_and_the_commit_remains(
    lake: CommandLine, tmp_path: Path, command: str, reason: str
) -> None:
    document = lake.ok("ingest", "db.t", source(tmp_path, 1), "--create", "--on-commit", command)

    (warning,) = document["warnings"]
    assert reason in warning
    assert document["status"] == "done"
    assert ids_in(lake.warehouse) == [1]


@pytest.mark.parametrize("command", ["", "'open"])
def test_a_command_that_cannot_be_split_is_refused_before_anything_is_loaded(
    lake: CommandLine, tmp_path: Path, command: str
) -> None:
    result = lake("ingest", "db.t", source(tmp_path, 1), "--create", "--on-commit", command)

    assert (result.exit_code, "--on-commit" in result.stderr) == (2, True)
    assert not (lake.warehouse / "db").exists()


def test_secrets_do_not_reach_the_program(
    lake: CommandLine, tmp_path: Path, hook: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hidden-value-1")
    monkeypatch.setenv("PYICEBERG_CATALOG__PROD__CREDENTIAL", "hidden-value-2")
    monkeypatch.setenv("LANG", "C.UTF-8")
    path = source(tmp_path, 1).rename(tmp_path / "hidden-value-1.csv")

    lake.ok("ingest", "db.t", path, "--create", "--on-commit", hook)

    ((document, environment),) = seen(tmp_path)
    assert "hidden-value" not in json.dumps([document, environment])
    assert environment["LANG"] == "C.UTF-8"
    assert document["status"] == "done"


def test_variables_of_any_name_are_kept_back_unless_programs_need_them(
    lake: CommandLine, tmp_path: Path, hook: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hidden = (
        *(
            "MYSQL_PWD",
            "DB_PASS",
            "GITHUB_PAT",
            "REDISCLI_AUTH",
            "SLACK_WEBHOOK_URL",
            "NPM_CONFIG__AUTH",
        ),
        *("KUBECONFIG_DATA", "LAKE_WAREHOUSE", "PGPASSWORD", "X", "XDG_SESSION_SECRET"),
    )
    for number, name in enumerate(hidden):
        monkeypatch.setenv(name, f"hidden-value-{number}")
    monkeypatch.setenv("DATABASE_URL", "postgresql://me:hidden-value@db/x")
    monkeypatch.setenv("https_proxy", "http://me:hidden-value@proxy:3128")
    monkeypatch.setenv("http_proxy", "http://proxy:3128")
    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.setenv("LAKE_HOOK_CHANNEL", "night")

    lake.ok("ingest", "db.t", source(tmp_path, 1), "--create", "--on-commit", hook)

    ((document, environment),) = seen(tmp_path)
    assert "hidden-value" not in json.dumps([document, environment])
    assert environment.keys().isdisjoint({*hidden, "DATABASE_URL", "https_proxy"})
    assert environment["http_proxy"] == "http://proxy:3128"
    assert (environment["TZ"], environment["LAKE_HOOK_CHANNEL"]) == ("UTC", "night")
    assert environment["PATH"]


def test_a_program_that_hangs_is_stopped_with_its_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    child, start = tmp_path / "child", commit_hook._start

    def begun(words: Sequence[str]) -> subprocess.Popen[str]:
        # Its time begins when it hangs: a busy machine may take longer to start it.
        process = start(words)
        while not child.exists():
            assert process.poll() is None
            time.sleep(0.01)
        return process

    monkeypatch.setattr(commit_hook, "_start", begun)
    words = ["sh", "-c", f"sleep 600 & echo $! > {child}.new; mv {child}.new {child}; wait"]

    problem = run_hook(words, "{}\n", limit_seconds=0.5)

    assert problem is not None
    assert "stopped after 0.5 seconds" in problem
    assert ends(int(child.read_text()))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_program_ends_with_the_service_that_started_it(
    lake: CommandLine, tmp_path: Path, number: signal.Signals
) -> None:
    started, folder = tmp_path / "pids", tmp_path / "new"
    script = f"sleep 300 & echo $$ $! > {started}.new; mv {started}.new {started}; wait"
    folder.mkdir()
    source(tmp_path, 1).rename(folder / "1.csv")
    watch = ["--watch", folder, "--stream", "s", "--state", tmp_path / "state", "--settle", "0s"]
    words = ["ingest", "db.t", *watch, "--create", "--on-commit", f"sh -c '{script}'"]
    process = subprocess.Popen(
        [sys.executable, "-m", "lake.cli", "--warehouse", lake.warehouse, *words],
        stderr=subprocess.PIPE,
    )
    while not started.exists():
        assert process.poll() is None
        time.sleep(0.01)

    process.send_signal(number)
    process.communicate(timeout=50)

    assert process.returncode == 0
    assert ids_in(lake.warehouse) == [1]
    for pid in started.read_text().split():
        assert ends(int(pid))


def test_a_program_also_gets_a_commit_after_which_a_stop_came(
    lake: CommandLine, tmp_path: Path, hook: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(totals: Totals, outcome: Outcome, files: int) -> None:
        signal.raise_signal(signal.SIGTERM)
        add(totals, outcome, files)

    folder, add = tmp_path / "new", Totals.add
    folder.mkdir()
    source(tmp_path, 1).rename(folder / "1.csv")
    source(tmp_path, 2).rename(folder / "2.csv")
    watch = ["--watch", folder, "--stream", "s", "--state", tmp_path / "state", "--settle", "0s"]
    words = ["ingest", "db.t", *watch, "--create", "--commit-files", 1, "--on-commit", hook]
    monkeypatch.setattr(Totals, "add", stopped)

    document = lake.ok(*words)

    ((reported, _),) = seen(tmp_path)
    assert reported["snapshot_ids"] == document["snapshot_ids"]
    assert document["result"]["stopped_by"] == "signal"
    assert ids_in(lake.warehouse) == [1]


def is_running(pid: int) -> bool:
    """Whether a process runs; one that has ended may wait for its parent to notice."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def ends(pid: int) -> bool:
    """Whether a process that was killed ends: it is not waited for, and a busy machine takes some time for it."""
    until = time.monotonic() + 60
    while is_running(pid) and time.monotonic() < until:
        time.sleep(0.01)
    return not is_running(pid)
