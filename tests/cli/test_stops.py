"""Ctrl-C and SIGTERM, sent to a real process."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from support.cli.command_line import CommandLine

from lake.cli.process.signals import SignalHandlers
from lake.core.transaction.session import Session

_STOPPED = "Z lake snapshots db.t: error: stopped; no partial change is visible\n"
# Waits for signals where the work would be, then takes its time to clean up.
PROGRAM = textwrap.dedent(
    """
    import sys, threading, time
    from lake.cli.main import main
    from lake.core.transaction.session import open_session

    def slow(settings):
        session = open_session(settings)

        class Catalog:
            name = "slow"
            configured = {}
            vended = {}

            def load(self, name):
                print("working", file=sys.stderr, flush=True)
                time.sleep(60)

        def close():
            print("closing", file=sys.stderr, flush=True)
            time.sleep(float(sys.argv[1]))
            print("closed", file=sys.stderr, flush=True)

        session.catalog = Catalog()
        session.close = close
        return session

    raise SystemExit(main(["--json", "--warehouse", "w", "snapshots", "db.t"], open_session=slow))
    """
)


def start(tmp_path: Path, seconds_to_close: float) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(seconds_to_close)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
    )
    assert process.stderr is not None
    assert process.stderr.readline() == "working\n"
    return process


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_stops_the_work_closes_the_session_and_exits_128_and_its_number(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    process = start(tmp_path, 0)
    process.send_signal(number)
    out, err = process.communicate(timeout=300)

    assert process.returncode == code
    assert "closed" in err
    assert '"kind": "stopped"' in out
    assert out.count("\n") == 1
    assert "Traceback" not in err


def test_a_second_signal_does_not_disturb_the_clean_up(tmp_path: Path) -> None:
    process = start(tmp_path, 0.5)
    process.send_signal(signal.SIGTERM)
    assert process.stderr is not None
    assert process.stderr.readline() == "closing\n"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=300)

    assert process.returncode == 143
    assert err.startswith("closed\n")


def test_a_third_signal_kills_a_clean_up_that_hangs(tmp_path: Path) -> None:
    process = start(tmp_path, 60)
    process.send_signal(signal.SIGTERM)
    assert process.stderr is not None
    assert process.stderr.readline() == "closing\n"
    process.send_signal(signal.SIGINT)
    # Of two at once the kernel gives one to another thread, and the main one sleeps on: on a busy machine, until the
    # next one.
    while process.poll() is None:
        time.sleep(0.5)
        process.send_signal(signal.SIGTERM)
    process.communicate(timeout=300)

    assert process.returncode in (-signal.SIGTERM, -signal.SIGINT)


@pytest.mark.slow
def test_a_signal_after_the_end_of_the_work_does_not_change_how_it_ended(tmp_path: Path) -> None:
    program = textwrap.dedent(
        """
        import atexit, os, signal, sys
        import lake.cli.main as cli
        from lake.cli.__main__ import run

        if len(sys.argv) == 1:
            cli._print_ending = lambda *_: os.kill(os.getpid(), signal.SIGTERM)
        else:
            atexit.register(os.kill, os.getpid(), signal.SIGTERM)
        sys.argv = ["lake", "--warehouse", "w", "snapshots", "db.t"]
        raise SystemExit(run())
        """
    )
    for words in ([], ["as the process ends"]):
        command = [sys.executable, "-c", program, *words]
        assert subprocess.run(command, check=False, cwd=tmp_path).returncode == 7


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_entry_point_handles_signals_before_it_imports_anything(
    tmp_path: Path, number: int
) -> None:
    program = textwrap.dedent(
        f"""
        import os, sys

        class Finder:
            def find_spec(self, name, *_):
                if name.partition(".")[0] != "lake":
                    sys.meta_path = [other for other in sys.meta_path if other is not self]
                    os.kill(os.getpid(), {int(number)})

        for name in ("enum", "signal", "typing"):
            sys.modules.pop(name, None)
        sys.meta_path.insert(0, Finder())
        sys.argv = ["lake", "--warehouse", "w", "snapshots", "db.t"]
        from lake.cli.__main__ import run
        raise SystemExit(run())
        """
    )
    done = subprocess.run(
        [sys.executable, "-c", program], check=False, cwd=tmp_path, capture_output=True, text=True
    )

    assert done.returncode == 128 + number
    assert done.stderr.endswith(_STOPPED)
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("module", ["lake.cli.main", "pyarrow", "lake.commands.snapshots"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_lake_is_imported_ends_it_in_one_line(
    tmp_path: Path, module: str, number: int
) -> None:
    program = textwrap.dedent(
        f"""
        import os, sys
        from lake.cli.__main__ import run

        class Finder:
            def find_spec(self, name, *_):
                if name == "{module}":
                    os.kill(os.getpid(), {int(number)})

        sys.meta_path.insert(0, Finder())
        sys.argv = ["lake", "--json", "--warehouse", "w", "snapshots", "db.t"]
        raise SystemExit(run())
        """
    )
    done = subprocess.run(
        [sys.executable, "-c", program], check=False, cwd=tmp_path, capture_output=True, text=True
    )

    assert done.returncode == 128 + number
    assert done.stderr.endswith(_STOPPED)
    assert done.stderr.count("\n") == 1
    document = json.loads(done.stdout)
    assert (document["command"], document["error"]["kind"]) == ("snapshots", "stopped")


def test_a_signal_while_the_handlers_are_installed_ends_the_command(
    lake: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = SignalHandlers._begin_watch

    def begun(handlers: SignalHandlers) -> None:
        signal.raise_signal(signal.SIGTERM)
        begin(handlers)

    monkeypatch.setattr(SignalHandlers, "_begin_watch", begun)
    result = lake("--json", "snapshots", "db.t")

    assert result.exit_code == 128 + signal.SIGTERM
    assert result.json()["error"]["kind"] == "stopped"


def test_a_signal_while_a_class_is_made_is_not_taken_for_a_defect(
    lake: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Named:
        def __set_name__(self, owner: object, name: str) -> None:
            signal.raise_signal(signal.SIGTERM)

    # As an import of a library does. Before 3.12, Python turns the exception into another one.
    monkeypatch.setattr(Session, "table", lambda *_: type("Made", (), {"name": Named()}))
    result = lake("--json", "snapshots", "db.t")

    assert result.exit_code == 128 + signal.SIGTERM
    assert result.json()["error"]["kind"] == "stopped"
