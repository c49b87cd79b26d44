"""What the environment of a process does to a command: configuration, working folder, limits, standard streams."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from support.cli.command_line import CommandLine

_ENVIRONMENT = {"PATH": os.environ["PATH"], "HOME": "/nonexistent"}


def run(*words: str, cwd: Path, **variables: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "lake.cli", "--json", *words],
        cwd=cwd,
        env={**_ENVIRONMENT, **variables},
        capture_output=True,
        check=False,
        timeout=120,
    )


def error_of(done: subprocess.CompletedProcess[bytes]) -> dict[str, Any]:
    error: dict[str, Any] = json.loads(done.stdout)["error"]
    assert error["kind"] != "defect", done.stderr.decode()
    assert b"Traceback" not in done.stderr
    return error


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"".join(b" " * depth + b"a:\n" for depth in range(600)), "nested too deeply"),
        (b"catalog:\n  x\xff:\n    uri: y\n", "is not text in UTF-8"),
        (b"", "is empty"),
    ],
    ids=["nested", "bytes", "empty"],
)
def test_a_configuration_that_cannot_be_read_is_named(
    tmp_path: Path, content: bytes, words: str
) -> None:
    path = tmp_path / ".pyiceberg.yaml"
    path.write_bytes(content)

    done = run("config", cwd=tmp_path, PYICEBERG_HOME=str(tmp_path))

    assert done.returncode == 7
    message = error_of(done)["message"]
    assert str(path) in message
    assert words in message


@pytest.mark.parametrize("kind", ["dangling", "loop", "pipe", "folder"])
@pytest.mark.parametrize("name", ["lake.toml", ".pyiceberg.yaml"])
def test_settings_that_are_not_a_file_are_not_passed_by(
    tmp_path: Path, name: str, kind: str
) -> None:
    path = tmp_path / name
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to({"dangling": "nowhere", "loop": name}[kind])

    done = run("tables", cwd=tmp_path)

    assert done.returncode == 7
    assert f"{path} is not a regular file" in error_of(done)["message"]


@pytest.mark.parametrize("words", [("config",), ("--warehouse", "/nowhere", "tables")])
def test_a_working_folder_that_was_removed_is_named_as_the_cause(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    line = [sys.executable, "-m", "lake.cli", "--json", *words]

    done = subprocess.run(
        ["/bin/sh", "-c", 'rmdir ../gone; exec "$@"', "sh", *line],
        cwd=gone,
        env=_ENVIRONMENT,
        capture_output=True,
        check=False,
    )

    assert done.returncode == 7
    assert error_of(done)["message"] == "the working folder does not exist any more"


@pytest.mark.parametrize("words", [("--version",), ("--help",), ("ingest", "--help"), ("config",)])
def test_an_output_that_cannot_be_written_is_not_said_to_be_the_storage(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "lake.cli", *words],
            cwd=tmp_path,
            env=_ENVIRONMENT,
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
        )

    assert done.returncode == 7
    assert b"error: cannot write to standard output: No space left on device" in done.stderr
    assert b"storage" not in done.stderr


@pytest.mark.parametrize(
    ("raised", "words"),
    [
        (MemoryError(), "not enough memory"),
        (RuntimeError("can't start new thread"), "no more threads"),
        (ImportError("x.so: failed to map segment from shared object"), "not enough memory"),
    ],
    ids=["memory", "threads", "library"],
)
def test_a_machine_without_memory_or_threads_is_not_a_defect(
    tmp_path: Path, raised: Exception, words: str
) -> None:
    lake = CommandLine(tmp_path / "warehouse", engine="inline")
    source = tmp_path / "a.csv"
    source.write_text("id\n1\n")

    def refused(thread: threading.Thread) -> None:
        # A command goes on without the thread that notes signals.
        raise RuntimeError("can't start new thread") if thread.name == "signals" else raised

    with patch.object(threading.Thread, "start", refused):
        result = lake("--json", "ingest", "db.t", source, "--create")

    assert result.exit_code == 7
    error = result.json()["error"]
    assert (error["kind"], words in error["message"]) == ("storage", True), error
    lake.ok("ingest", "db.t", source, "--create")
    assert lake.ok("scan", "db.t")["result"]["rows"] == 1


@pytest.mark.parametrize("broken", ["full", "left", "closed"])
def test_messages_that_cannot_be_written_do_not_change_how_a_command_ends(
    tmp_path: Path, broken: str
) -> None:
    # A delimiter that is found, and columns without rows, are warnings.
    source = tmp_path / "a.csv"
    source.write_text("id;name\n1;a\n")
    redirection = {"full": "2>/dev/full", "closed": "2>&-", "left": ""}[broken]
    reader, left = os.pipe()
    os.close(reader)

    def ended(*words: str | Path) -> int:
        line = [sys.executable, "-m", "lake.cli", "--warehouse", "w", "--progress", "lines", *words]
        return subprocess.run(
            ["/bin/sh", "-c", f'exec "$@" {redirection}', "sh", *map(str, line)],
            cwd=tmp_path,
            env=_ENVIRONMENT,
            stdout=subprocess.DEVNULL,
            stderr=left,
            check=False,
            timeout=120,
        ).returncode

    assert ended("ingest", "db.t", source, "--create") == 0
    assert ended("scan", "db.nothing") == 7
    assert ended("scan") == 2
    assert CommandLine(tmp_path / "w").ok("scan", "db.t")["result"]["rows"] == 1
    os.close(left)


def test_without_a_home_folder_the_run_log_needs_a_name(
    lake: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    lake.load("id\n1\n", "--create")
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)

    # A container's user that the system does not know.
    with patch("pwd.getpwuid", side_effect=KeyError):
        refused = lake("--json", "maintain")
        done = lake("maintain", "--log", work / "runs.jsonl")

    assert refused.exit_code == 2
    assert refused.json()["error"]["hint"] == "set XDG_STATE_HOME, or name the file with --log"
    assert done.exit_code == 0
    # Not a folder named ~.
    assert [path.name for path in work.iterdir()] == ["runs.jsonl"]
