"""What people, pipes and scripts get to see."""

from __future__ import annotations

import io
import json
import math
import pkgutil
from collections.abc import Iterator
from dataclasses import fields as dataclass_fields
from dataclasses import is_dataclass
from importlib import import_module
from typing import Any

import pytest
from support.tables.iceberg_tables import FixedClock

import lake.commands
import lake.core
from lake.cli import render
from lake.cli.display import Display
from lake.cli.render import Renderer, sentence
from lake.core.base.errors import CommitUnknownError, LakeError
from lake.core.base.facts import Facts
from lake.core.base.outcome import Detail, InterruptedResult, Outcome, Status
from lake.core.base.redaction import Redactor
from lake.core.maintain.compaction.facts import CompactionFacts, CompactionResult
from lake.core.read.continuous.facts import FollowResult
from lake.core.read.continuous.position import Gap, GapKind, Position
from lake.core.read.exports.facts import ReadResult
from lake.core.read.inspection.facts import TableFacts, TablesResult

GAP = Gap(GapKind.EXPIRED, Position(3), head=7)
START = "2027-01-15T08:00:00Z lake compact db.t: "
HOSTILE = "[red]x[/]\x1b[2J\n:smile: s3://b/[p=1]/y.parquet"


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def outcome(**changes: Any) -> Outcome:
    values: dict[str, Any] = {
        "command": "compact",
        "table": "db.t",
        "status": Status.DONE,
        "result": CompactionResult(rewritten_files=1234, rewritten_bytes=3 << 20),
        "details": [Detail("files", ["path", "size_bytes"], [[HOSTILE, 2048], ["b", None]])],
        "snapshot_ids": [(1 << 62) + 1],
        **changes,
    }
    return Outcome(**values)


def shown(
    monkeypatch: pytest.MonkeyPatch, stream: io.StringIO, ended: Outcome, *, as_json: bool = False
) -> str:
    monkeypatch.setattr("sys.stdout", stream)
    renderer = Renderer(as_json=as_json, redact=Redactor(), clock=FixedClock())
    renderer.success(ended, [], quiet=False, display=Display())
    return stream.getvalue()


def test_a_pipe_gets_tab_separated_lines_and_the_summary_goes_to_stderr(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = shown(monkeypatch, io.StringIO(), outcome())

    lines = text.splitlines()
    assert lines[0] == "path\tsize_bytes"
    assert lines[1] == "[red]x[/]�[2J :smile: s3://b/[p=1]/y.parquet\t2048"
    assert lines[2:] == ["b\t"]
    assert capsys.readouterr().err.startswith(f"{START}1,234 files → 0")


def test_a_terminal_gets_a_table_in_which_data_is_not_interpreted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    text = shown(monkeypatch, Terminal(), outcome())

    assert "[red]x[/]�[2J :smile: s3://b/[p=1]/y.parquet" in text
    assert "2.0 KB" in text
    assert "3.0 MB" in text
    assert f"snapshot {(1 << 62) + 1}" in text
    assert "failed groups" not in text


def test_a_document_has_text_for_what_json_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"a": math.nan, "b": -math.inf, "c": b"\x00\xff", "d": HOSTILE, "e": [math.inf, 1.5]}]
    ended = outcome(result=ReadResult(preview=rows))

    text = shown(monkeypatch, io.StringIO(), ended, as_json=True)

    document = json.loads(text, parse_constant=pytest.fail)
    assert text.count("\n") == 1
    assert document["snapshot_ids"] == [str((1 << 62) + 1)]
    assert document["result"]["preview"] == [
        {"a": "NaN", "b": "-Infinity", "c": "AP8=", "d": HOSTILE, "e": ["Infinity", 1.5]}
    ]


def test_a_document_says_when_and_where_the_command_ran(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, stream = FixedClock(1_700_000_000_123), io.StringIO()
    monkeypatch.setattr("sys.stdout", stream)
    origin = {"catalog": "prod", "host": "mill", "version": "1.0"}
    renderer = Renderer(as_json=True, redact=Redactor(), clock=clock, origin=lambda: origin)
    clock.sleep(2.5)
    renderer.failure(
        LakeError("m"), [], command="expire", table="db.t", branch=None, display=Display()
    )

    document = json.loads(stream.getvalue())
    assert document["started_at"] == "2023-11-14T22:13:20.123Z"
    assert document["finished_at"] == "2023-11-14T22:13:22.623Z"
    assert document["seconds"] == 2.5
    assert {key: document[key] for key in origin} == origin


def test_quiet_prints_only_warnings(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    renderer = Renderer(as_json=False, redact=Redactor(), clock=FixedClock())
    renderer.success(
        outcome(warnings=["beware", "beware"]), ["also"], quiet=True, display=Display()
    )

    assert capsys.readouterr() == ("", f"{START}warning: beware\n{START}warning: also\n")


def failure(monkeypatch: pytest.MonkeyPatch, stream: io.StringIO, color: str = "auto") -> str:
    """Return what a failure with a warning prints on standard error."""
    monkeypatch.setattr("sys.stderr", stream)
    error = CommitUnknownError("no answer", hint="run it again")
    error.operation_id = "7f3a"
    Renderer(as_json=False, redact=Redactor(), clock=FixedClock()).failure(
        error,
        ["beware"],
        command="compact",
        table="db.t",
        branch=None,
        display=Display(color=color),
    )
    return stream.getvalue()


def test_off_a_terminal_each_line_names_the_time_the_command_and_the_table(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert failure(monkeypatch, io.StringIO()) == "".join(
        f"{START}{line}\n"
        for line in (
            "warning: beware",
            "error: no answer",
            "operation id: 7f3a",
            "hint: run it again",
        )
    )


def test_on_a_terminal_a_message_names_the_command_and_the_table_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert failure(monkeypatch, Terminal(), "never") == (
        "lake compact db.t: warning: beware\nlake compact db.t: error: no answer\n"
        "operation id: 7f3a\nhint: run it again\n"
    )
    assert "\x1b[1;31merror\x1b[0m: no answer" in failure(monkeypatch, Terminal())


def failed_with_result(*, as_json: bool) -> None:
    error = LakeError("history expired", hint="choose a start")
    error.result = FollowResult(epochs=40, bytes_written=3 << 20, gaps=[GAP], rows=1234)
    Renderer(as_json=as_json, redact=Redactor(), clock=FixedClock()).failure(
        error, [], command="scan", table="db.t", branch="main", display=Display()
    )


def test_a_failure_shows_what_was_done_before(capsys: pytest.CaptureFixture[str]) -> None:
    failed_with_result(as_json=False)

    lines = capsys.readouterr().err.splitlines()
    assert [line.partition("db.t: ")[2] for line in lines] == [
        "error: history expired",
        "done before: epochs 40, rows 1,234, bytes written 3.0 MB",
        "hint: choose a start",
    ]


def test_a_failure_before_which_nothing_was_done_says_nothing_of_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    error = LakeError("history expired")
    error.result = InterruptedResult(done=FollowResult(), own=GAP)
    Renderer(as_json=False, redact=Redactor(), clock=FixedClock()).failure(
        error, [], command="scan", table="db.t", branch="main", display=Display()
    )

    assert "done before" not in capsys.readouterr().err


def test_the_document_of_a_failure_contains_what_was_done_before(
    capsys: pytest.CaptureFixture[str],
) -> None:
    failed_with_result(as_json=True)

    document = json.loads(capsys.readouterr().out)
    assert document["status"] == "failed"
    result = document["result"]
    assert [result[name] for name in ("epochs", "bytes_written", "rows")] == [40, 3 << 20, 1234]
    assert result["gaps"] == [GAP.document()]


def test_counts_that_are_chosen_by_name_are_fields_of_results() -> None:
    for package in (lake.core, lake.commands):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if module.name.endswith(".facts"):
                import_module(module.name)
    fields = {
        item.name for kind in _kinds(Facts) if is_dataclass(kind) for item in dataclass_fields(kind)
    }

    assert {*render._LOST, *render._DONE} <= fields


def _kinds(kind: type) -> Iterator[type]:
    yield kind
    for child in kind.__subclasses__():
        yield from _kinds(child)


def test_a_dry_run_shows_its_plan() -> None:
    ended = outcome(status=Status.DRY_RUN, plan=CompactionFacts(groups=3), details=[])
    renderer = Renderer(as_json=False, redact=Redactor(), clock=FixedClock())

    assert "3 groups" in renderer._summary(ended)


def test_hidden_columns_are_reported_in_place_of_the_number_of_columns() -> None:
    detail = Detail("rows", ["a", "b", "c"], [[1, 2, 3]], ["int", "int", "int"])
    preview = outcome(command="scan", result=ReadResult(rows=1, preview=[]), details=[detail])
    assert sentence(preview) == "1 row · 3 columns"
    assert sentence(preview, "3 columns, 2 shown") == "1 row · 3 columns, 2 shown"
    listed = TablesResult(tables=[TableFacts(catalog="c", namespace="db", table="db.t")])
    report = outcome(command="tables", result=listed, details=[detail])
    assert sentence(report, "3 columns, 2 shown") == "1 table · 3 columns, 2 shown"
