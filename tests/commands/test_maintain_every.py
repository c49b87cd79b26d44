"""`lake maintain --every`: one process that makes a round after the other."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.cli.command_line import CommandLine, Result
from support.tables.iceberg_tables import make_table
from support.tables.neglected_tables import add_files, append

from lake.core.base.clock import SystemClock
from lake.core.base.errors import StorageError
from lake.core.base.settings import Settings
from lake.core.maintain.rounds import tables
from lake.core.maintain.run_log.run_log import RunLog, default_path
from lake.core.table.catalogs.sql import EmbeddedBackend
from lake.core.transaction.session import Session, open_session

pytestmark = pytest.mark.usefixtures("in_an_object_store")
_STOPPED = 128 + signal.SIGTERM
ONLY = ("--only", "compact")


class Waits(SystemClock):
    """A clock that does not wait: something happens instead, and a stop signal comes in the last wait."""

    def __init__(self, *happens: Callable[[], object]) -> None:
        self.happens = list(happens)
        self.waits: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        if self.happens:
            self.happens.pop(0)()
        else:
            signal.raise_signal(signal.SIGTERM)


def rounds(lake: CommandLine, clock: Waits, *words: object) -> Result:
    """Run rounds until the last wait."""

    def opened(settings: Settings) -> Session:
        return open_session(settings, clock=clock)

    return CommandLine(lake.warehouse, open_session=opened)("maintain", "--every", "1h", *words)


def files_of(lake: CommandLine, name: str) -> int:
    return len(lake.table(name).inspect.data_files())


def logged() -> list[tuple[str, str]]:
    """Return the tables and statuses in the run log."""
    return [(entry.table, entry.status) for entry in RunLog(default_path()).read().entries]


def test_files_of_earlier_rounds_take_no_memory(lake: CommandLine) -> None:
    make_table(lake.warehouse, "db.a")
    add_files(lake.warehouse, "db.a", 12)
    sessions: list[Session] = []
    protected: list[set[str]] = []
    clock = Waits(lambda: protected.append(sessions[0].protected_files.copy()))

    def opened(settings: Settings) -> Session:
        sessions.append(open_session(settings, clock=clock))
        return sessions[-1]

    CommandLine(lake.warehouse, open_session=opened)("maintain", "--every", "1h", *ONLY)

    assert (logged(), protected) == ([("db.a", "done")], [set()])


def test_each_round_looks_again_until_a_stop_signal(lake: CommandLine, tmp_path: Path) -> None:
    status = tmp_path / "status.json"
    seen: list[dict[str, Any]] = []
    make_table(lake.warehouse, "db.a")
    add_files(lake.warehouse, "db.a", 12)

    def look() -> None:
        seen.append(json.loads(status.read_text()))

    def another() -> None:
        look()
        make_table(lake.warehouse, "db.b")
        add_files(lake.warehouse, "db.b", 12)

    clock = Waits(another, look, look)

    result = rounds(lake, clock, *ONLY, "--status", status)

    assert result.exit_code == _STOPPED
    assert logged() == [("db.a", "done"), ("db.b", "done")]
    assert (files_of(lake, "db.a"), files_of(lake, "db.b")) == (1, 1)
    assert [one["state"] for one in seen] == ["waiting"] * 3
    assert [one["rounds"] for one in seen] == [1, 2, 3]
    assert [one["last"]["status"] for one in seen] == ["done", "done", "nothing-to-do"]
    assert [one["last"]["actions"] for one in seen] == [1, 1, 0]
    assert all(3500 < seconds <= 3600 for seconds in clock.waits)


def test_a_round_that_fails_does_not_end_the_process(
    lake: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    status, seen = tmp_path / "status.json", []
    make_table(lake.warehouse, "db.a")
    add_files(lake.warehouse, "db.a", 12)
    listing = tables.selected

    def down(*_: Any, **__: Any) -> Any:
        raise StorageError("the catalog answers 503 password=hunter2hunter2")

    monkeypatch.setattr(tables, "selected", down)

    def up() -> None:
        seen.append(json.loads(status.read_text())["last"])
        monkeypatch.setattr(tables, "selected", listing)

    result = rounds(lake, Waits(up), *ONLY, "--status", status)

    assert result.exit_code == _STOPPED
    assert (seen[0]["status"], seen[0]["error"]) == ("failed", "storage")
    assert logged() == [("db.a", "done")]
    assert "the catalog answers 503" in result.stderr
    assert "hunter2" not in result.stdout + result.stderr + status.read_text()


def test_a_table_that_has_not_changed_is_not_read_again(
    lake: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("db.a", "db.b"):
        make_table(lake.warehouse, name)
        append(lake.warehouse, name, 1)
    read: list[str] = []
    look = tables.look

    def counted(table: Any, *arguments: Any, **options: Any) -> Any:
        read.append(table.identifier)
        return look(table, *arguments, **options)

    monkeypatch.setattr(tables, "look", counted)

    def change() -> None:
        assert sorted(read) == ["db.a", "db.b"]
        read.clear()
        append(lake.warehouse, "db.b", 1)

    rounds(lake, Waits(change), *ONLY)

    assert read == ["db.b"]


def test_a_property_that_is_set_between_rounds_counts(lake: CommandLine) -> None:
    make_table(lake.warehouse, "db.a")
    append(lake.warehouse, "db.a", 1)

    def forbid() -> None:
        add_files(lake.warehouse, "db.a", 12)
        with lake.table("db.a").transaction() as change:
            change.set_properties({"lake.maintain.enabled": "false"})

    rounds(lake, Waits(forbid, lambda: None), *ONLY)

    assert files_of(lake, "db.a") == 13


def test_a_log_that_cannot_be_written_is_one_warning_however_many_rounds_there_are(
    lake: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        make_table(lake.warehouse, f"db.t{number}")
        add_files(lake.warehouse, f"db.t{number}", 12)

    def full(*_: Any) -> None:
        raise StorageError("the run log cannot be written: no space left on device")

    monkeypatch.setattr(RunLog, "append", full)
    sessions: list[Session] = []

    def opened(settings: Settings) -> Session:
        sessions.append(open_session(settings, clock=Waits(lambda: None, lambda: None)))
        return sessions[0]

    CommandLine(lake.warehouse, open_session=opened)("maintain", "--every", "1h", *ONLY)

    (warning,) = sessions[0].warnings
    assert warning.startswith("the run log cannot be written: no space left on device; ")


def test_programs_run_after_rounds_without_and_with_failures(
    lake: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import json, sys\nfound = json.load(sys.stdin)\n"
        f"with open({str(tmp_path / 'seen')!r}, 'a') as file:\n"
        "    file.write(f\"{sys.argv[1]} {found['command']} {found['status']}\\n\")\n"
    )
    make_table(lake.warehouse, "db.a")
    append(lake.warehouse, "db.a", 1)
    load = EmbeddedBackend.load

    def broken(*_: Any) -> Any:
        raise StorageError("the disk is broken")

    def fail() -> None:
        monkeypatch.setattr(EmbeddedBackend, "load", broken)

    def mend() -> None:
        monkeypatch.setattr(EmbeddedBackend, "load", load)

    hooks = [
        *("--on-done", f"{sys.executable} {program} done"),
        *("--on-failure", f"{sys.executable} {program} failure"),
    ]
    result = rounds(lake, Waits(fail, mend), *ONLY, *hooks)

    # The line of the round is followed by one for what failed.
    assert "lake maintain: 1 failed\n" in result.stderr
    assert "db.a: the disk is broken\n" in result.stderr

    lines = (tmp_path / "seen").read_text().splitlines()
    assert lines[:3] == [
        "done maintain nothing-to-do",
        "failure maintain partial",
        "done maintain nothing-to-do",
    ]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--every", "1h", "--dry-run"), "--dry-run contradicts --every"),
        (("--every", "1h", "--plan", "x"), "--plan contradicts --every"),
        (("--every", "1h", "--init", "x"), "--init contradicts --every"),
        (("--every", "0s"), "--every must be > 0"),
        (("--status", "x"), "--status needs --every"),
        (("--every", "1h", "--on-done", "'"), "--on-done"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_options_that_contradict_each_other_are_refused(
    lake: CommandLine, words: tuple[str, ...], message: str
) -> None:
    make_table(lake.warehouse)

    result = lake("--json", "maintain", *words)

    assert result.exit_code == 2
    assert message in result.json()["error"]["message"]


EXPIRES = '["*"]\nexpire.when = "snapshots > 1"\n'
FORBIDS = '["db.a"]\nenabled = false\n'


def expiring(lake: CommandLine) -> None:
    """Make a table whose snapshots expire, and which does not change between the rounds."""
    make_table(lake.warehouse, "db.a", history__expire__max_snapshot_age_ms="1")
    append(lake.warehouse, "db.a", 3)


def snapshots_of(lake: CommandLine, name: str) -> int:
    return len(lake.table(name).metadata.snapshots)


def test_each_round_reads_the_policy_again(lake: CommandLine, tmp_path: Path) -> None:
    expiring(lake)
    policy, found = tmp_path / "policy.toml", []
    policy.write_text(FORBIDS + EXPIRES)

    def allow() -> None:
        found.append(snapshots_of(lake, "db.a"))
        policy.write_text(EXPIRES)

    def forbid() -> None:
        found.append(snapshots_of(lake, "db.a"))
        append(lake.warehouse, "db.a", 2)
        policy.write_text(FORBIDS + EXPIRES)

    def end() -> None:
        found.append(snapshots_of(lake, "db.a"))

    rounds(lake, Waits(allow, forbid, end), "--only", "expire", "--policy", policy)

    assert found == [3, 1, 3]


@pytest.mark.parametrize("wrong", ["gone", "broken", "unknown", "open"])
def test_a_round_does_nothing_while_the_policy_cannot_be_used(
    lake: CommandLine, tmp_path: Path, wrong: str
) -> None:
    make_table(lake.warehouse, "db.b")
    policy, status = tmp_path / "policy.toml", tmp_path / "status.json"
    policy.write_text(EXPIRES)
    seen: list[dict[str, Any]] = []

    def spoil() -> None:
        expiring(lake)
        if wrong == "gone":
            policy.unlink()
        elif wrong == "open":
            policy.chmod(0o666)
        else:
            policy.write_text({"broken": '["db', "unknown": "[db]\nenabeld = false\n"}[wrong])

    def mend() -> None:
        seen.append(json.loads(status.read_text()) | {"snapshots": snapshots_of(lake, "db.a")})
        policy.write_text(EXPIRES)
        policy.chmod(0o600)

    def end() -> None:
        seen.append(json.loads(status.read_text()) | {"snapshots": snapshots_of(lake, "db.a")})

    words = ("--only", "expire", "--policy", policy, "--status", status)
    result = rounds(lake, Waits(spoil, mend, end), *words)

    assert result.exit_code == _STOPPED
    refused = "refused" if wrong == "open" else "failed"
    assert [one["last"]["status"] for one in seen] == [refused, "done"]
    kinds = {"unknown": "invalid-request", "open": "refused"}
    assert seen[0]["last"]["error"] == kinds.get(wrong, "bad-input")
    assert [one["snapshots"] for one in seen] == [3, 1]
    assert str(policy) in result.stderr


def test_a_policy_that_was_wrong_from_the_beginning_ends_the_process(
    lake: CommandLine, tmp_path: Path
) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text("[db]\nenabeld = false\n")

    assert rounds(lake, Waits(), "--policy", policy).exit_code == 2


def test_the_project_file_is_read_again_and_its_warnings_end(
    lake: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expiring(lake)
    monkeypatch.chdir(tmp_path)
    project, found = tmp_path / "lake.toml", []
    project.write_text(
        "[maintain.\"db.aa\"]\nenabled = false\n[maintain.'*'.expire]\nevery = '1d'\n"
    )
    lake.ok("config", "--trust")
    program = tmp_path / "program.py"
    program.write_text(
        f"import sys\nopen({str(tmp_path / 'seen')!r}, 'a').write(sys.stdin.read())\n"
    )

    def change() -> None:
        project.write_text("[maintain.'*'.expire]\nwhen = 'snapshots > 1'\n")

    words = ("--only", "expire", "--on-done", f"{sys.executable} {program}")
    result = rounds(lake, Waits(change), *words)

    found = [json.loads(line) for line in (tmp_path / "seen").read_text().splitlines()]
    assert [one["status"] for one in found] == ["nothing-to-do", "done"]
    assert [len(one["warnings"]) for one in found] == [1, 0]
    assert result.stderr.count("selects no table; did you mean db.a?") == 1
