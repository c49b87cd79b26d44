"""The files that `lake maintain` writes: it replaces no file of another kind, and adds to none."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from support.cli.command_line import CommandLine
from support.cli.run_logs import HOUR, compacted, entry
from support.tables.iceberg_tables import make_table
from support.tables.neglected_tables import append

from lake.core.maintain.run_log.run_log import RunLog

CRONTAB = "30 2 * * *  lake -q --catalog prod maintain\n"
POLICY = '["*"]\nenabled = false\n'


@pytest.fixture
def lake(tmp_path: Path) -> CommandLine:
    """`lake` on a table whose snapshots expire."""
    warehouse = tmp_path / "warehouse"
    make_table(warehouse, "db.t", history__expire__max_snapshot_age_ms="1")
    append(warehouse, "db.t", 3)
    return CommandLine(warehouse, engine="inline")


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    """A policy by which snapshots expire."""
    path = tmp_path / "due.toml"
    path.write_text('["*"]\nexpire.when = "snapshots > 1"\nclean.enabled = false\n')
    return path


def snapshots(lake: CommandLine) -> int:
    return len(lake.table("db.t").metadata.snapshots)


@pytest.mark.parametrize("text", [POLICY, "{}", '{"format": 1}', "[]", "\0", '{"actions": []}'])
def test_a_file_that_is_not_a_plan_is_not_replaced_by_one(
    lake: CommandLine, tmp_path: Path, text: str
) -> None:
    path = tmp_path / "policy.toml"
    path.write_text(text)

    refused = lake("--json", "maintain", "--plan", path)

    assert refused.exit_code == 2
    assert refused.json()["error"]["message"] == f"{path} is not a plan of lake maintain"
    assert path.read_text() == text


def test_a_plan_replaces_an_empty_file_and_another_plan(
    lake: CommandLine, tmp_path: Path, policy: Path
) -> None:
    path = tmp_path / "plan.json"
    path.touch()

    lake.ok("maintain", "--plan", path, "--policy", policy)
    first = json.loads(path.read_text())
    lake.ok("maintain", "--plan", path, "--only", "stats")

    assert [row["action"] for row in first["actions"]] == ["expire"]
    assert json.loads(path.read_text())["actions"] == []


def test_a_link_to_nowhere_and_a_pipe_are_not_replaced_by_a_plan(
    lake: CommandLine, tmp_path: Path
) -> None:
    link, pipe = tmp_path / "link", tmp_path / "pipe"
    link.symlink_to("nowhere")
    os.mkfifo(pipe)

    assert [lake("maintain", "--plan", path).exit_code for path in (link, pipe)] == [2, 2]
    assert link.is_symlink()
    assert pipe.is_fifo()


@pytest.mark.parametrize(
    "text", [CRONTAB, POLICY, '{"at": "2026-01-01", "since": "", "state": "waiting"}\n', "\xff\n"]
)
@pytest.mark.parametrize("command", ["maintain", "apply"])
def test_nothing_is_done_if_the_log_is_another_file(
    lake: CommandLine, tmp_path: Path, policy: Path, text: str, command: str
) -> None:
    log, plan = tmp_path / "crontab", tmp_path / "plan.json"
    log.write_text(text, "latin-1")
    lake.ok("maintain", "--policy", policy, "--plan", plan)
    words = ["--policy", policy] if command == "maintain" else [plan]

    refused = lake("--json", command, *words, "--log", log)

    assert (refused.exit_code, refused.json()["error"]["message"]) == (7, f"{log} is not a run log")
    assert log.read_text("latin-1") == text
    assert snapshots(lake) == 3


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n",
        entry(age_ms=HOUR).line() + "\n",
        # A run was killed while it wrote the first line, or the second one.
        entry(age_ms=HOUR).line()[:40] + "\n",
        "\n" + entry(age_ms=HOUR).line()[:40],
        "added by hand\n" + compacted(age_ms=HOUR).line() + "\n",
    ],
    ids=range(6),
)
def test_a_log_is_continued_although_a_line_is_cut_off(
    lake: CommandLine, tmp_path: Path, policy: Path, text: str
) -> None:
    log = tmp_path / "runs.jsonl"
    log.write_text(text)

    lake.ok("maintain", "--policy", policy, "--log", log)

    assert RunLog(str(log)).read().entries[-1].action == "expire"
    assert log.read_text().startswith(text)


def test_a_file_that_has_the_name_of_the_renamed_log_is_not_replaced(
    lake: CommandLine, tmp_path: Path, policy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lake.core.maintain.run_log.run_log._LARGEST", 10)
    log, other = tmp_path / "runs.jsonl", tmp_path / "runs.jsonl.1"
    other.write_text(CRONTAB)

    lake.ok("maintain", "--policy", policy, "--log", log)
    append(lake.warehouse, "db.t", 2)
    lake.ok("maintain", "--policy", policy, "--log", log)

    assert other.read_text() == CRONTAB
    assert len(log.read_text().splitlines()) == 2
    other.unlink()
    append(lake.warehouse, "db.t", 2)
    lake.ok("maintain", "--policy", policy, "--log", log)
    assert not log.exists()
    assert len(other.read_text().splitlines()) == 3


def a_file(state: Path) -> Path:
    """Let the folder of the log be a file."""
    (state / "lake").write_text("")
    return state


def a_loop(state: Path) -> Path:
    """Let the folder of the log be a link to itself."""
    (state / "lake").symlink_to("lake")
    return state


def nowhere(_: Path) -> Path:
    """Let the folder of the log be one that cannot be created."""
    return Path("/proc/nope")


@pytest.mark.parametrize("make", [a_file, a_loop, nowhere])
def test_a_log_that_can_be_neither_read_nor_written_is_a_warning_that_says_what_is_lost(
    lake: CommandLine,
    tmp_path: Path,
    policy: Path,
    monkeypatch: pytest.MonkeyPatch,
    make: Callable[[Path], Path],
) -> None:
    state = tmp_path / "state"
    state.mkdir()
    monkeypatch.setenv("XDG_STATE_HOME", str(make(state)))

    document = lake.ok("maintain", "--policy", policy)

    assert snapshots(lake) == 1
    lost = "repeats `clean` and actions with `every`, and does not wait after failures"
    assert document["warnings"][-1].endswith(f"; the next run {lost}")
    assert all(text.endswith(lost) for text in document["warnings"])
    assert lake("runs").exit_code == (0 if make is nowhere else 7)
    append(lake.warehouse, "db.t", 3)
    make_table(lake.warehouse, "db.u", history__expire__max_snapshot_age_ms="1")
    append(lake.warehouse, "db.u", 3)
    assert lake("maintain", "--policy", policy).stderr.count(" cannot be written: ") == 1
