"""From errors to exit codes and streams: the one funnel."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from support.cli.command_line import CommandLine
from support.tables.iceberg_tables import make_table, open_session

from lake.core.base import errors
from lake.core.base.errors import LakeError
from lake.core.base.settings import Settings
from lake.core.transaction.session import Session

ERRORS = [
    (errors.InvalidRequestError("m"), 2, "failed", "invalid-request"),
    (errors.RefusedError("m"), 3, "refused", "refused"),
    (errors.CommitConflictError("m"), 4, "conflict", "conflict"),
    (errors.CommitUnknownError("m"), 5, "unknown", "unknown"),
    (errors.BadInputError("m"), 7, "failed", "bad-input"),
    (errors.NotFoundError("m"), 7, "failed", "not-found"),
    (errors.CorruptFileError("m"), 7, "failed", "corrupt"),
    (errors.StorageError("m"), 7, "failed", "storage"),
    (errors.LockedError("m"), 8, "failed", "locked"),
    (errors.NotAuthorisedError("m"), 9, "failed", "not-authorised"),
    (errors.TimedOutError("m"), 10, "failed", "timed-out"),
    (errors.OutOfTimeError("m"), 10, "partial", "out-of-time"),
    (errors.StoppedError(2), 130, "failed", "stopped"),
    (errors.StoppedError(15), 143, "failed", "stopped"),
    (errors.EngineError("m"), 1, "failed", "engine"),
]
KEYS = {
    "command",
    "table",
    "branch",
    "status",
    "operation_id",
    "base_snapshot_id",
    "snapshot_ids",
    "plan",
    "result",
    "warnings",
    "seconds",
    "started_at",
    "finished_at",
    "catalog",
    "host",
    "version",
    "error",
}


def failing(lake: CommandLine, error: Exception) -> CommandLine:
    """Return a command line whose session cannot be opened."""

    def refuse(_: Settings) -> Session:
        raise error

    return CommandLine(lake.warehouse, open_session=refuse)


@pytest.mark.parametrize(("error", "code", "status", "kind"), ERRORS)
def test_each_error_has_its_exit_code_and_one_json_document(
    lake: CommandLine, error: LakeError, code: int, status: str, kind: str
) -> None:
    error.hint = "do that"

    result = failing(lake, error)("--json", "snapshots", "db.t")

    document = result.json()
    assert result.exit_code == code
    assert set(document) == KEYS
    assert (document["command"], document["table"]) == ("snapshots", "db.t")
    assert (document["status"], document["error"]["kind"]) == (status, kind)
    assert document["error"] == {"kind": kind, "message": error.message, "hint": "do that"}
    assert document["catalog"] is None


def test_a_document_names_the_catalog_that_was_opened_even_if_the_command_failed(
    lake: CommandLine,
) -> None:
    result = lake("--json", "snapshots", "db.none")

    assert (result.exit_code, result.json()["catalog"]) == (7, "lake")


def test_an_error_is_printed_on_stderr_only_with_its_hint_on_a_line_of_its_own(
    lake: CommandLine,
) -> None:
    error = errors.CommitConflictError("another writer won", hint="run it again")

    result = failing(lake, error)("snapshots", "db.t")

    assert (result.exit_code, result.stdout) == (4, "")
    assert re.sub(r"(?m)^20\S{8}T\S{8}Z ", "", result.stderr) == (
        "lake snapshots db.t: error: another writer won\nlake snapshots db.t: hint: run it again\n"
    )


def test_an_unknown_outcome_names_the_operation_to_look_for(lake: CommandLine) -> None:
    error = errors.CommitUnknownError("the catalog did not answer")
    error.operation_id = "7f3a"

    result = failing(lake, error)("snapshots", "db.t")
    document = failing(lake, error)("--json", "snapshots", "db.t").json()

    assert result.exit_code == 5
    assert "operation id: 7f3a\n" in result.stderr
    assert (document["status"], document["operation_id"]) == ("unknown", "7f3a")


def test_a_defect_exits_1_with_its_trace_on_stderr_and_one_json_document(
    lake: CommandLine,
) -> None:
    result = failing(lake, ZeroDivisionError("boom"))("--json", "snapshots", "db.t")

    assert result.exit_code == 1
    assert result.json()["error"]["kind"] == "defect"
    assert result.json()["error"]["message"] == "ZeroDivisionError: boom"
    assert "Traceback (most recent call last)" in result.stderr
    assert "report" in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["snapshots"],
        ["snapshots", "db.t", "db.u"],
        ["snapshots", "db.t", "--no-such-option"],
        ["no-such-command"],
        ["--engine", "duck", "snapshots", "db.t"],
        ["--catalog-type", "rest", "snapshots", "db.t"],
        ["--master", "local[2]", "--remote", "sc://x", "snapshots", "db.t"],
        ["--spark-conf", "novalue", "snapshots", "db.t"],
        ["--spark-conf", "a=1", "--spark-conf", "a=2", "snapshots", "db.t"],
        ["snapshots", "no_namespace"],
        ["snapshots", "db..t"],
        ["--token", "abc", "snapshots", "db.t"],
    ],
)
def test_a_request_that_cannot_be_parsed_exits_2_in_words_and_in_json(
    lake: CommandLine, arguments: list[str]
) -> None:
    words, document = lake(*arguments), lake("--json", *arguments)

    assert (words.exit_code, document.exit_code) == (2, 2)
    assert words.stdout == ""
    assert re.match(r"\S+Z lake[^:]*: error: ", words.stderr)
    assert document.json()["error"]["kind"] == "invalid-request"


@pytest.mark.parametrize(
    ("name", "reason"),
    [("a\0b.parquet", "contains the character NUL"), ("a\udc80b", "is not text in UTF-8")],
)
def test_an_argument_that_cannot_be_read_exits_2(lake: CommandLine, name: str, reason: str) -> None:
    for words in (("scan", "db.t", "--output", name), ("replay", "db.t", "--checkpoint", name)):
        result = lake("--json", *words)

        assert result.exit_code == 2
        assert reason in result.json()["error"]["message"]


def test_no_command_shows_the_help_and_exits_2() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "lake.cli"], capture_output=True, text=True, check=False
    )

    assert done.returncode == 2
    assert "snapshots" in done.stderr
    assert "error: no command given" in done.stderr
    assert done.stdout == ""


def test_json_is_understood_behind_the_command_too(lake: CommandLine) -> None:
    result = lake("snapshots", "db.t", "--json")

    assert (result.exit_code, result.json()["error"]["kind"]) == (7, "not-found")


def test_a_missing_table_leaves_no_warehouse_behind(lake: CommandLine) -> None:
    assert lake("snapshots", "db.t").exit_code == 7
    assert not lake.warehouse.exists()


def test_several_configured_catalogs_need_a_choice_but_help_needs_none(
    lake: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ONE", "TWO"):
        monkeypatch.setenv(f"PYICEBERG_CATALOG__{name}__TYPE", "sql")

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "lake.cli", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    assert run("snapshots", "db.t").returncode == 2
    assert "--catalog" in run("snapshots", "db.t").stderr
    assert run("snapshots", "--help").returncode == 0


def test_a_newline_in_a_name_cannot_pretend_to_be_a_message(lake: CommandLine) -> None:
    result = lake("snapshots", "db.t\nerror: all is lost\x1b[2J")

    assert all(re.match(r"\S+Z lake snapshots ", line) for line in result.stderr.splitlines())
    assert "\x1b" not in result.stderr


def test_secrets_of_environment_and_options_show_nowhere(
    lake: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYICEBERG_CATALOG__PROD__CREDENTIAL", "canary-id:canary-secret")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "canary/aws+key")
    monkeypatch.setenv("PYICEBERG_CATALOG__PROD__URI", "https://user:canary-word@host/")
    spoken = (
        "canary-id and canary-secret and canary/aws+key canary-word canary%2Faws%2Bkey conf-canary"
        " remote-canary and so on"
    )
    setting = ["--spark-conf", "spark.x.secret=conf-canary"]
    setting += ["--remote", "sc://host:1/;user_id=me;token=remote-canary"]

    def crash(_: Settings) -> Session:
        raise RuntimeError(spoken)

    def refuse(settings: Settings) -> Session:
        session = open_session(lake.warehouse)
        session.warn(f"odd: {spoken}")
        session.catalog = Broken(spoken)  # type: ignore[assignment]
        return session

    for opened in (crash, refuse):
        for mode in ([], ["--json"], ["-v"]):
            result = CommandLine(lake.warehouse, open_session=opened)(
                *mode, *setting, "snapshots", "db.t"
            )
            assert "canary" not in result.stdout + result.stderr
            assert "***" in result.stderr


class Broken:
    """A catalog whose answers repeat what they were sent."""

    name = "broken"
    configured: dict[str, Any] = {}
    vended: dict[str, Any] = {}

    def __init__(self, text: str) -> None:
        self.text = text

    def load(self, _: str) -> None:
        raise errors.BadInputError(self.text, hint=self.text)


@pytest.mark.parametrize(
    "text",
    [
        "catalog:\n  prod:\n    header.x: canary: canary\n",
        "catalog:\n  prod: {uri: canary}\n",
        "catalog:\n  prod:\n    uri: !canary x\n",
        "catalog:\n  prod:\n    uri: canary\n    uri: canary\n",
        "catalog:\n  prod: canary\n",
        "catalog: canary\n",
        "- canary\n",
        "\x01canary",
    ],
)
def test_an_unreadable_configuration_is_reported_without_its_contents(
    lake: CommandLine, text: str
) -> None:
    Path(os.environ["PYICEBERG_HOME"], ".pyiceberg.yaml").write_text(text)

    for mode in ("--json", "--verbose"):
        result = lake(mode, "snapshots", "db.t")
        assert result.exit_code == 7
        assert re.search(
            r"configuration cannot be read|\.pyiceberg\.yaml(, line \d)?: invalid YAML",
            result.stderr,
        )
        assert "Traceback" not in result.stderr
        assert "canary" not in result.stdout + result.stderr


def test_a_secret_on_the_command_line_works_but_is_warned_about(lake: CommandLine) -> None:
    make_table(lake.warehouse)

    document = lake.ok("--spark-conf", "spark.ssl.keyPassword=hush-hush", "snapshots", "db.t")

    assert "spark.ssl.keyPassword" in document["warnings"][0]
    assert "hush" not in document["warnings"][0]


def test_what_follows_two_dashes_is_not_an_option(lake: CommandLine) -> None:
    result = lake("snapshots", "--", "--json")

    assert (result.exit_code, result.stdout) == (2, "")
    assert "--json" in result.stderr


def test_a_reader_that_closes_the_pipe_early_is_not_a_failure(lake: CommandLine) -> None:
    table = make_table(lake.warehouse)
    for _ in range(3):
        table.append(_rows())
    lake.ok("snapshots", "db.t")
    read, write = os.pipe()
    os.close(read)

    done = subprocess.run(
        [sys.executable, "-m", "lake.cli", *lake.arguments("snapshots", "db.t")],
        stdout=write,
        stderr=subprocess.PIPE,
        check=False,
    )
    os.close(write)

    assert (done.returncode, done.stderr) == (0, b"")


def test_a_full_disk_behind_stdout_is_an_error_without_a_trace(lake: CommandLine) -> None:
    make_table(lake.warehouse)
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "lake.cli", *lake.arguments("--json", "snapshots", "db.t")],
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
            text=True,
        )

    assert done.returncode == 7
    assert "Z lake snapshots db.t: error: cannot write to standard output" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "closed", "code"),
    [
        (["snapshots", "db.t"], ">&- 2>&-", 0),
        (["--json", "snapshots", "db.none"], "2>&-", 7),
        (["snapshots", "db.none"], "2>/dev/full", 7),
        (["scan", "db.t", "--output", "-", "--output-format", "csv"], ">&-", 2),
        (["ingest", "db.t", "-", "--format", "csv"], "<&-", 7),
    ],
    ids=["both", "errors", "full errors", "rows", "input"],
)
def test_streams_that_are_closed_or_full_are_not_a_defect(
    lake: CommandLine, arguments: list[str], closed: str, code: int
) -> None:
    make_table(lake.warehouse)
    line = shlex.join([sys.executable, "-m", "lake.cli", *lake.arguments(*arguments)])
    done = subprocess.run(
        f"{line} {closed}", shell=True, capture_output=True, text=True, check=False
    )

    assert done.returncode == code
    assert "Traceback" not in done.stderr
    assert "--json" not in arguments or json.loads(done.stdout)["status"] == "failed"


def test_the_version_is_the_distributions() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "lake.cli", "--version"], capture_output=True, text=True, check=True
    )

    assert done.stdout.split() == ["lake", "0.1.0"]


def test_a_thread_of_pyarrow_that_still_runs_does_not_change_how_a_command_ends() -> None:
    script = textwrap.dedent(
        """
        import atexit, sys, time
        from pyarrow import csv
        from lake.cli.__main__ import run

        class Endless:
            closed = False

            def read(self, size=-1):
                time.sleep(0.2)
                return b"1\\n" * (size // 2)

        reader = csv.open_csv(Endless(), csv.ReadOptions(block_size=1024, use_threads=False))
        sys.argv = ["lake", "--version"]
        code = run()
        sys.stdout.write("last words")
        atexit.register(sys.stderr.write, "handlers run")
        raise SystemExit(code)
        """
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stderr) == (0, "handlers run")
    assert done.stdout == "lake 0.1.0\nlast words"


def test_a_document_holds_ids_as_strings_and_no_error_on_success(lake: CommandLine) -> None:
    make_table(lake.warehouse).append(_rows())

    result = lake("--json", "snapshots", "db.t")

    document = json.loads(result.stdout)
    assert set(document) == KEYS - {"error"}
    assert isinstance(document["base_snapshot_id"], str)
    assert result.stderr == ""


def _rows() -> Any:
    import pyarrow as pa

    return pa.table({"id": pa.array([1], pa.int64()), "name": ["x"]})
