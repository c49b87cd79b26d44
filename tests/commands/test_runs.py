"""`lake runs`: what the log of `lake maintain` says, without a catalog."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.cli.command_line import CommandLine
from support.cli.run_logs import DAY, HOUR, MINUTE, compacted, entry, failed, logged

from lake.core.base.facts import ErrorFacts
from lake.core.base.options import Option
from lake.core.maintain.run_log.entries import Measures


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "runs.jsonl"


def rows_of(text: str, title: str) -> list[dict[str, str]]:
    """Return the rows of a table that was printed to a pipe."""
    lines = text.split(f"\n{title}\n", 1)[1].split("\n\n", maxsplit=1)[0].splitlines()
    head, *rows = (line.split("\t") for line in lines)
    return [dict(zip(head, row, strict=True)) for row in rows]


def test_runs_are_shown_newest_first_with_what_they_saved(lake: CommandLine, log: Path) -> None:
    expired = entry(
        age_ms=HOUR, action="expire", before=Measures(snapshots=1_200), after=Measures(snapshots=20)
    )
    logged(log, compacted(age_ms=2 * HOUR), expired)

    result = lake("runs", "--log", log)

    assert result.exit_code == 0
    newest, oldest = rows_of(result.stdout, "runs")
    assert (newest["action"], newest["snapshots"]) == ("expire", "1,200 → 20")
    assert (oldest["files"], oldest["delete_files"]) == ("3,600 → 6", "4 → 0")
    assert (oldest["saved_s"], oldest["forecast_s"]) == ("2.0", "1.5")
    assert oldest["bytes_rewritten"] == str(1 << 30)
    assert "2 runs; 4.0s of work saved scans 2.0s" in result.stderr


def test_a_round_of_lake_maintain_is_shown(lake: CommandLine, log: Path, tmp_path: Path) -> None:
    for number in range(4):
        lake.load(f"id\n{number}\n", *["--create"] * (number == 0))
    policy = tmp_path / "policy.toml"
    policy.write_text('["*".compact]\nwhen = "files >= 4"\nmin-input-files = 2\n')
    lake.ok("maintain", "--policy", policy, "--only", "compact", "--log", log)

    (run,) = lake.ok("runs", "db.t", "--log", log)["result"]["runs"]

    table = lake.table()
    assert (run["action"], run["status"]) == ("compact", "done")
    assert (run["before"]["files"], run["after"]["files"]) == (4, 1)
    assert run["table_uuid"] == str(table.metadata.table_uuid)
    assert run["snapshot_ids"] == [str(table.current_snapshot().snapshot_id)]
    assert run["saved_seconds"] > 0


def test_a_document_contains_the_entries_the_actions_and_what_waits(
    lake: CommandLine, log: Path
) -> None:
    useless = compacted(after_s=3.0, table="db.u", table_uuid="uuid-2", seconds=4.0)
    logged(log, compacted(age_ms=HOUR), useless, failed(action="expire", seconds=1.0))

    result = lake.ok("runs", "--log", log)["result"]

    assert (result["log"], result["found"], result["matching"]) == (str(log), True, 3)
    assert [run["action"] for run in result["runs"]] == ["expire", "compact", "compact"]
    first = result["runs"][-1]
    assert (first["saved_seconds"], first["before"]["files"], first["snapshot_ids"]) == (
        2.0,
        3_600,
        ["1", "2"],
    )
    assert result["runs"][0]["error"]["kind"] == "storage"
    assert result["actions"] == [
        {
            "action": "compact",
            "runs": 2,
            "failed": 0,
            "seconds": 6.0,
            "bytes": 2 << 30,
            "saved_seconds": 2.0,
            "saved_per_gb": 1.0,
            "saved_per_second": 0.333,
        },
        {
            "action": "expire",
            "runs": 1,
            "failed": 1,
            "seconds": 1.0,
            "bytes": 0,
            "saved_seconds": None,
            "saved_per_gb": None,
            "saved_per_second": None,
        },
    ]
    (waiting,) = result["waiting"]
    assert (waiting["table"], waiting["action"]) == ("db.u", "compact")
    assert waiting["reason"] == "it saved nothing last time"


def test_an_action_that_failed_three_times_is_named_with_the_time_of_the_next_attempt(
    lake: CommandLine, log: Path
) -> None:
    last = failed(age_ms=MINUTE)
    logged(log, failed(age_ms=3 * MINUTE), failed(age_ms=2 * MINUTE), last)

    result = lake("runs", "--log", log)

    assert "db.t: lake maintain does not repeat compact before " in result.stderr
    assert "it failed 3 times in a row" in result.stderr
    assert "db.t: compact failed 3 times, the last time at " in result.stderr
    assert "the disk is full (free space on it)" in result.stderr
    (waiting,) = lake.ok("runs", "--log", log)["result"]["waiting"]
    assert waiting["until"] > last.at


@pytest.mark.parametrize("limit", [1, 2, 0])
def test_failures_that_are_not_listed_are_counted(lake: CommandLine, log: Path, limit: int) -> None:
    other = failed(age_ms=5 * MINUTE, action="clean")
    logged(log, other, *(failed(age_ms=age * MINUTE) for age in (3, 2, 1)))

    result = lake("runs", "--log", log, "--limit", limit)

    assert "db.t: compact failed 3 times, the last time at " in result.stderr
    assert ("db.t: clean failed at " in result.stderr) == (limit == 0)


def test_a_table_a_namespace_or_a_pattern_chooses_the_tables(lake: CommandLine, log: Path) -> None:
    names = ("db.events", "db.users", "prod.eu.orders")
    logged(log, *(entry(table=name, table_uuid=name) for name in names))

    def tables(*arguments: str) -> list[str]:
        found = lake.ok("runs", *arguments, "--log", log)["result"]
        return sorted(run["table"] for run in found["runs"])

    assert tables() == [*names]
    assert tables("db.users") == ["db.users"]
    assert tables("db") == ["db.events", "db.users"]
    assert tables("prod.*") == ["prod.eu.orders"]
    assert tables("db.user") == []
    assert tables("db.users", "prod.*", "db.user") == ["db.users", "prod.eu.orders"]
    assert lake.ok("runs", "db.users", "--log", log)["table"] == "db.users"


def test_runs_of_the_future_are_named_in_a_warning(lake: CommandLine, log: Path) -> None:
    logged(log, entry(age_ms=HOUR), entry(age_ms=-HOUR), entry(age_ms=-2 * HOUR))
    said = f"2 runs have a time in the future in {log}, and no effect: the clock of a machine"
    lake.load("id\n1\n", "--create")

    (warning,) = lake.ok("runs", "--log", log)["warnings"]
    assert warning.startswith(said)
    (warning,) = lake.ok("maintain", "--dry-run", "--log", log)["warnings"]
    assert warning.startswith(said)


def test_options_choose_runs_by_time_action_and_failure(lake: CommandLine, log: Path) -> None:
    logged(
        log,
        entry(age_ms=8 * DAY, action="clean"),
        entry(age_ms=HOUR, action="expire"),
        failed(age_ms=MINUTE, action="manifests"),
    )

    def actions(*options: str) -> list[str]:
        return [run["action"] for run in lake.ok("runs", "--log", log, *options)["result"]["runs"]]

    assert actions() == ["manifests", "expire", "clean"]
    assert actions("--since", "7d") == ["manifests", "expire"]
    assert actions("--since", "2000-01-01") == ["manifests", "expire", "clean"]
    assert actions("--action", "clean,expire") == ["expire", "clean"]
    assert actions("--failed") == ["manifests"]
    assert actions("--failed", "--action", "clean") == []


def test_twenty_runs_are_listed_unless_more_are_asked_for(lake: CommandLine, log: Path) -> None:
    logged(log, *(entry(age_ms=(30 - number) * MINUTE) for number in range(25)))

    def counts(*options: object) -> tuple[int, int]:
        result = lake.ok(*options, "runs", "--log", log)["result"]
        return len(result["runs"]), result["actions"][0]["runs"]

    assert counts() == (20, 25)
    assert counts("-v") == (25, 25)
    assert len(lake.ok("runs", "--log", log, "--limit", 0)["result"]["runs"]) == 25
    assert len(lake.ok("runs", "--log", log, "--limit", 1)["result"]["runs"]) == 1
    assert "5 older runs are not listed" in lake("runs", "--log", log).stderr


def test_the_catalog_is_a_column_if_there_are_several(lake: CommandLine, log: Path) -> None:
    logged(log, entry(catalog="prod"))
    assert "catalog" not in rows_of(lake("runs", "--log", log).stdout, "runs")[0]

    logged(log, entry(catalog="staging", table_uuid="uuid-2"))
    rows = rows_of(lake("runs", "--log", log).stdout, "runs")
    assert {row["catalog"] for row in rows} == {"prod", "staging"}


def test_a_catalog_that_is_given_chooses_its_tables(log: Path) -> None:
    logged(log, entry(catalog="prod"), entry(catalog="staging", table_uuid="uuid-2"))
    command = [sys.executable, "-m", "lake.cli", "--json", "--catalog", "staging", "runs"]

    done = subprocess.run([*command, "--log", log], capture_output=True, check=True)

    assert [run["catalog"] for run in json.loads(done.stdout)["result"]["runs"]] == ["staging"]


def test_without_a_log_the_sentence_says_where_it_was_looked_for(
    lake: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    place = str(tmp_path / "state" / "lake" / "runs.jsonl")

    result = lake("runs")

    assert result.exit_code == 0
    assert result.stderr == ""
    # A test's folder has a long name, and the sentence takes several lines.
    assert f"no runs; there is no log {place}" in " ".join(result.stdout.split())
    found = lake.ok("runs")["result"]
    assert (found["log"], found["found"], found["runs"]) == (place, False, [])


def test_a_log_without_runs_that_were_asked_for_is_named(lake: CommandLine, log: Path) -> None:
    logged(log, entry())

    result = lake("runs", "db.other", "--log", log)

    assert (result.exit_code, result.stderr) == (0, "")
    assert f"db.other: no runs in {log}" in " ".join(result.stdout.split())


def test_lines_that_are_not_entries_are_counted_in_a_warning(lake: CommandLine, log: Path) -> None:
    logged(log, entry())
    with log.open("ab") as file:
        file.write(b'{"at": "2026-01-31T0')
    logged(log, entry())

    result = lake("runs", "--log", log)

    assert result.exit_code == 0
    assert len(rows_of(result.stdout, "runs")) == 2
    assert f"warning: 1 line is not a run in {log}" in result.stderr
    assert lake.ok("runs", "--log", log)["result"]["unreadable"] == 1


@pytest.mark.parametrize("kind", ["folder", "pipe"])
def test_a_log_that_is_not_a_file_is_refused(lake: CommandLine, log: Path, kind: str) -> None:
    log.mkdir() if kind == "folder" else os.mkfifo(log)

    result = lake("runs", "--log", log)

    assert result.exit_code == 7
    assert "hint: choose another file with --log" in result.stderr


def test_a_log_that_may_not_be_read_is_an_error_of_the_storage(
    lake: CommandLine, log: Path
) -> None:
    log.symlink_to(log.name)

    result = lake("--json", "runs", "--log", log)

    assert (result.exit_code, result.json()["error"]["kind"]) == (7, "storage")


def test_the_names_and_errors_of_a_log_control_no_terminal(lake: CommandLine, log: Path) -> None:
    hostile = "db.\x1b[2J\x07\u202et\nlake runs: all is well"
    error = ErrorFacts(kind="storage\x1b[2J", message="a\x1b[2Jb\nc", hint="\x1b]0;x\x07")
    logged(log, entry(table=hostile, action="compact\x1b[2J"))
    logged(log, *(failed(age_ms=n, table=hostile, error=error) for n in (3, 2, 1)))

    for options in ((), ("-v",), ("--json",)):
        result = lake(*options, "runs", "--log", log)
        assert result.exit_code == 0
        printed = result.stdout + result.stderr
        assert not set(printed) & {"\x1b", "\x07", "\u202e"}
        assert "\nlake runs: all is well" not in printed


def test_errors_are_printed_with_flags_and_without_secrets(lake: CommandLine, log: Path) -> None:
    message = f"password=hunter2 was refused; use {Option.RETAIN_LAST}"
    logged(log, failed(action="expire", error=ErrorFacts(kind="x", message=message, hint=None)))

    document, shown = lake.ok("runs", "--log", log), lake("runs", "--log", log)

    expected = "password=*** was refused; use lake expire --retain-last"
    assert document["result"]["runs"][0]["error"]["message"] == expected
    assert expected in shown.stderr
    assert "hunter2" not in shown.stdout + shown.stderr + str(document)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (("--limit", "-1"), "--limit must not be negative"),
        (("--since", "soon"), "--since: 'soon' is neither an age nor a time"),
        (("--action", "compact,,expire"), "empty name"),
        (("--action", "compct"), "--action names the unknown action 'compct'"),
        (("--action", "expire,compct"), "hint: did you mean compact?"),
    ],
)
def test_options_that_make_no_sense_are_refused(
    lake: CommandLine, log: Path, options: tuple[str, ...], named: str
) -> None:
    result = lake("runs", "--log", log, *options)

    assert result.exit_code == 2
    assert named in result.stderr


def test_a_log_is_read_without_a_catalog_and_without_libraries_for_data(
    log: Path, tmp_path: Path
) -> None:
    logged(log, compacted())
    (tmp_path / ".pyiceberg.yaml").write_text("catalog: [not, a, catalog\n")
    code = (
        "import sys; from lake.cli.main import main; code = main();"
        "heavy = {'numpy', 'pyarrow', 'pyiceberg', 'pyspark', 'requests'} & set(sys.modules);"
        "print(code, sorted(heavy))"
    )

    done = subprocess.run(
        [sys.executable, "-c", code, "runs", "db.*", "--log", log],
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout.splitlines()[-1] == "0 []", done
