"""`lake maintain --every --status`: the file that a probe reads."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

import pytest
from support.cli.command_line import CommandLine
from support.tables.iceberg_tables import open_session

from lake.core.base.clock import SystemClock


class Hurried(SystemClock):
    """The machine's clock; a process that would wait for the next round fails instead."""

    def sleep(self, seconds: float) -> None:
        raise AssertionError("it waits for the next round")


@pytest.fixture
def hurried(tmp_path: Path) -> CommandLine:
    warehouse = tmp_path / "warehouse"
    return CommandLine(warehouse, open_session=lambda _: open_session(warehouse, Hurried()))


REPEATED = ("-q", "maintain", "--every", "10m", "--status")


def test_a_status_file_in_the_folder_of_a_table_is_refused_and_not_left_there(
    lake: CommandLine, hurried: CommandLine
) -> None:
    lake.load("id\n1\n", "--create")
    status = lake.warehouse / "db/t/metadata/status.json"

    refused = hurried(*REPEATED, status)

    assert refused.exit_code == 3
    assert not status.exists()


@pytest.mark.parametrize("name", ["metadata", "list", "text", "long", "link"])
def test_a_file_that_is_not_a_status_file_is_not_replaced(
    lake: CommandLine, hurried: CommandLine, tmp_path: Path, name: str
) -> None:
    lake.load("id\n1\n", "--create")
    contents = {
        "list": "[]",
        "text": "at, since, state",
        "long": json.dumps({"at": 1, "since": 1, "state": 1, "text": "x" * 100_000}),
    }
    path = tmp_path / "file"
    if name == "metadata":
        path = max((lake.warehouse / "db/t/metadata").glob("*.metadata.json"))
    elif name == "link":
        path.symlink_to("nowhere")
    else:
        path.write_text(contents[name])
    before = path.read_bytes() if path.exists() else None

    refused = hurried(*REPEATED, path)

    assert refused.exit_code == 2
    assert f"{path} is not a status file" in refused.stderr
    assert (path.read_bytes() if path.exists() else None) == before


@pytest.mark.parametrize("before", ["", '{"at": "", "since": "", "state": "working"}'])
def test_sigterm_ends_the_wait_and_the_file_says_how_the_last_round_ended(
    lake: CommandLine, tmp_path: Path, before: str
) -> None:
    lake.load("id\n1\n", "--create")
    path = tmp_path / "status.json"
    path.write_text(before)
    process = lake.start(*REPEATED, path, "--log", tmp_path / "runs.jsonl")
    try:
        deadline = time.monotonic() + 60
        while '"state": "waiting"' not in path.read_text() and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        output, errors = process.communicate(timeout=30)
    finally:
        process.kill()

    status = json.loads(path.read_text())
    assert (status["rounds"], status["last"]["error"]) == (1, None)
    assert (status["state"], status["next_round"]) == ("stopped", None)
    assert process.returncode == 143
    assert output == b""
    assert "lake maintain: stopped between rounds; 1 round has ended · " in errors.decode()
    assert "error" not in errors.decode()
