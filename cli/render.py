"""Print outcomes and errors: data to standard output, messages to standard error.

On a terminal Rich draws tables, without interpreting data as markup; a pipe gets tab-separated
lines.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from lake.cli.cells import plain_text, report_cells
from lake.cli.display import Display
from lake.cli.flags import with_flags
from lake.cli.messages import Messages, subject
from lake.cli.sentences import each_table
from lake.cli.sentences.modules import found_nothing, module_of
from lake.cli.sentences.next_step import next_step
from lake.cli.sentences.scan import previewed
from lake.core.base.clock import Clock
from lake.core.base.errors import LakeError, ReportedError, StoppedError
from lake.core.base.facts import SCALARS, AlreadyRunning, EachTableResult, Facts, RunFacts
from lake.core.base.outcome import Detail, Outcome, Status
from lake.core.base.plain import base64_text
from lake.core.base.redaction import one_line
from lake.core.base.units import format_duration, iso_time
from lake.core.read.exports.facts import ReadResult

_DEFECT_HINT = "this is a defect of lake: please report it with the trace above"

# The counts of a result that say what a command had done before it failed.
_DONE = frozenset(
    ("epochs", "rows", "rows_written", "files", "files_loaded", "messages", "bytes_written")
)

# The counts of a result that say what was not loaded or not handed over, also by a command that ends with 0.
_LOST = ("rows_rejected", "files_set_aside", "messages_set_aside", "gaps")
# Commands whose tables are their result, as long as they change nothing. Those of `check` are what is wrong.
_LISTINGS = frozenset(
    (
        *("catalogs", "clean", "config", "consumers", "deletes", "inspect", "partitions", "ref"),
        *("health", "replay", "runs", "scan", "show", "snapshots", "tables", "tag"),
    )
)


class Renderer:
    """Prints how a command ended.

    Args:
        as_json: print exactly one JSON document on stdout.
        redact: removes secrets from a text and cuts it to a length.
        clock: measures the command's duration.
        origin: returns where the command ran, for the document: the keys ``catalog``, ``host`` and ``version``.
        options: the global options that were given, for the command that continues this one.
        rest: the other arguments after the command.
    """

    def __init__(
        self,
        *,
        as_json: bool,
        redact: Callable[..., str],
        clock: Clock,
        origin: Callable[[], Mapping[str, str | None]] = dict,
        options: Sequence[str] = (),
        rest: Sequence[str] = (),
    ) -> None:
        self.as_json = as_json
        self._redact = redact
        self._clock = clock
        self._started = clock.monotonic()
        self._started_ms = clock.now_ms()
        self._origin = origin
        self._options = options
        self._rest = rest

    def success(
        self,
        outcome: Outcome,
        warnings: Sequence[str],
        *,
        quiet: bool,
        display: Display,
        rows_on_stdout: bool = False,
    ) -> None:
        """Print the outcome of a command.

        Args:
            outcome: what was done.
            warnings: those of the session that were not printed yet.
            quiet: print only what is wrong, and the tables of a command that changed nothing.
            display: the user's choices for a terminal.
            rows_on_stdout: standard output contains rows, so the sentence goes to standard error.
        """
        warning_lines = self._clean([*outcome.warnings, *warnings], outcome.command)
        if self.as_json:
            self._print_document(self._document(outcome, warning_lines))
            return
        messages = self._messages(outcome.command, outcome.table, display)
        for warning in warning_lines:
            messages.warning(warning)
        wrong = _is_wrong(outcome)
        if quiet and not wrong and not _is_asked_for(outcome):
            return
        tables = [detail for detail in outcome.details if detail.rows]
        mark = _print_tables(tables, display)
        if not quiet or wrong:
            summary = self._summary(outcome, mark if len(tables) == 1 else "")
        else:
            summary = "\n".join(self._notes(outcome))
        # Rows on a pipe or in a file are data, so the summary goes to standard error.
        if quiet or rows_on_stdout or (tables and not sys.stdout.isatty()):
            if summary:
                messages.outcome(_name(outcome), summary)
            return
        first, *rest = f"{_name(outcome)}: {summary}".split("\n")
        sys.stdout.write("\n".join([*display.wrapped(first, sys.stdout), *rest]) + "\n")
        sys.stdout.flush()

    def table(
        self,
        ending: Outcome | LakeError,
        *,
        command: str | None,
        table: str,
        quiet: bool,
        display: Display,
    ) -> None:
        """Print how a command that works on several tables ended for one of them; a document contains all of them."""
        if self.as_json:
            return
        messages = self._messages(command, table, display)
        if isinstance(ending, LakeError):
            hint = self._line(ending.hint, command) if ending.hint else None
            messages.error(self._line(ending.message, command), {"hint": hint})
        elif _is_wrong(ending) or not (
            found_nothing(ending) or (quiet and not _is_asked_for(ending))
        ):
            messages.outcome(
                table, "\n".join([one_line(" · ".join(self._parts(ending))), *self._notes(ending)])
            )

    def warning(
        self, text: str, *, command: str | None, table: str | None, display: Display
    ) -> None:
        """Print one warning."""
        self._messages(command, table, display).warning(self._line(text, command))

    def note(
        self,
        text: str,
        facts: Mapping[str, str],
        *,
        command: str | None,
        table: str | None,
        display: Display,
    ) -> None:
        """Print a line to standard error while the command works; as JSON, a document with the facts."""
        line = self._line(text, command)
        if not self.as_json:
            self._messages(command, table, display).outcome("", line)
            return
        document = {"command": command, "table": table, **facts, "message": line}
        sys.stderr.write(_json_text(self._without_secrets(document)))
        sys.stderr.flush()

    def document(self, outcome: Outcome, warnings: Sequence[str]) -> str:
        """Return the JSON document of an outcome as one line, with secrets masked in all its texts."""
        found = self._document(
            outcome, self._clean([*outcome.warnings, *warnings], outcome.command)
        )
        return _json_text(self._without_secrets(_json_ready(found)))

    def _without_secrets(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._redact(value, limit=None)
        if isinstance(value, Mapping):
            return {key: self._without_secrets(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self._without_secrets(item) for item in value]
        return value

    def failure(
        self,
        error: ReportedError,
        warnings: Sequence[str],
        *,
        command: str | None,
        table: str | None,
        branch: str | None,
        display: Display,
    ) -> None:
        """Print the error of a command."""
        messages = self._messages(command, table, display)
        warning_lines = self._clean(warnings, command)
        message = self._line(error.message, command)
        hint = self._line(error.hint, command) if error.hint else None
        if self.as_json:
            document = self._error_document(error, warning_lines, command, table, branch)
            self._print_document(document)
        else:
            for warning in warning_lines:
                messages.warning(warning)
        if ended := self._stopped(error, command):
            messages.outcome(subject(command, None), ended)
            return
        done = self._redact(_counts(error.result))
        messages.error(
            message, {"operation id": error.operation_id, "done before": done, "hint": hint}
        )

    def _stopped(self, error: ReportedError, command: str | None) -> str:
        """Return what a command of several actions had done before a signal stopped it; empty for another end."""
        if not command or not isinstance(error, StoppedError):
            return ""
        module = module_of(command)
        found = module.stopped(error) if hasattr(module, "stopped") else None
        if found is None:
            return ""
        outcome, text = found
        return self._lines(replace(outcome, command=command), [text])

    def error_document(
        self, error: ReportedError, warnings: Sequence[str], *, command: str | None
    ) -> str:
        """Return the JSON document of an error as one line, with secrets masked in all its texts."""
        found = self._error_document(error, self._clean(warnings, command), command, None, None)
        return _json_text(self._without_secrets(_json_ready(found)))

    def _error_document(
        self,
        error: ReportedError,
        warnings: Sequence[str],
        command: str | None,
        table: str | None,
        branch: str | None,
    ) -> dict[str, Any]:
        outcome = Outcome(
            command=command or "",
            table=table or "",
            branch=branch,
            status=Status(error.status),
            operation_id=error.operation_id,
            result=error.result,
        )
        hint = self._line(error.hint, command) if error.hint else None
        return {
            **self._document(outcome, warnings),
            "command": command,
            "table": table,
            "error": {
                "kind": error.kind,
                "message": self._line(error.message, command),
                "hint": hint,
            },
        }

    def trace(self, text: str, *, command: str | None, table: str | None) -> LakeError:
        """Print the trace of an unexpected exception; return it as an error to print."""
        trace = self._redact(text.rstrip(), limit=None)
        self._messages(command, table, Display()).trace(trace)
        return LakeError(text.rstrip().rsplit("\n", 1)[-1], hint=_DEFECT_HINT)

    def _messages(self, command: str | None, table: str | None, display: Display) -> Messages:
        return Messages(self._clock, self._redact(subject(command, table)), display)

    def clean(self, text: str, command: str | None) -> str:
        """Return a text of the core as one line, without secrets and with the command's flags."""
        return self._line(text, command)

    def _clean(self, texts: Sequence[str], command: str | None) -> list[str]:
        return list(dict.fromkeys(self._line(text, command) for text in texts))

    def _line(self, text: str, command: str | None) -> str:
        """Return a text of the core as one line, without secrets and with the command's flags."""
        return one_line(self._redact(with_flags(text, command)))

    def _document(self, outcome: Outcome, warnings: Sequence[str]) -> dict[str, Any]:
        base = outcome.base_snapshot_id
        return {
            "command": outcome.command,
            "table": outcome.table,
            "branch": outcome.branch,
            "status": str(outcome.status),
            "operation_id": outcome.operation_id,
            "base_snapshot_id": None if base is None else str(base),
            "snapshot_ids": [str(item) for item in outcome.snapshot_ids],
            "plan": self._clean_errors(outcome.plan, outcome.command),
            "result": self._clean_errors(outcome.result, outcome.command),
            "warnings": list(warnings),
            "seconds": round(self._clock.monotonic() - self._started, 3),
            "started_at": iso_time(self._started_ms),
            "finished_at": iso_time(self._clock.now_ms()),
            **self._origin(),
        }

    def _clean_errors(self, facts: Facts, command: str) -> dict[str, Any]:
        """Return a plan or result; the errors and warnings of its rows are cleaned as those of a command are."""
        document = facts.document()
        for name, rows in facts.values().items():
            # Rows of data are not facts, and stay as they are.
            if isinstance(rows, list | tuple) and any(isinstance(row, Facts) for row in rows[:1]):
                document[name] = [self._clean_row(row, command) for row in document[name]]
        return document

    def _clean_row(self, row: dict[str, Any], command: str) -> dict[str, Any]:
        if row.keys().isdisjoint(("error", "warnings")):
            return row
        cleaned = dict(row)
        if "error" in row:
            cleaned["error"] = self._clean_error(row["error"], command)
        if "warnings" in row:
            cleaned["warnings"] = self._clean(row["warnings"], command)
        return cleaned

    def _clean_error(
        self, error: Mapping[str, str | None] | None, command: str
    ) -> dict[str, str | None] | None:
        if error is None:
            return None
        return {
            key: None if text is None else self._line(text, command) for key, text in error.items()
        }

    def _print_document(self, document: Mapping[str, Any]) -> None:
        sys.stdout.write(_document_text(document))
        sys.stdout.flush()

    def _parts(self, outcome: Outcome, mark: str = "") -> list[str]:
        parts = [sentence(outcome, mark)]
        if outcome.snapshot_ids:
            ids = ", ".join(str(item) for item in outcome.snapshot_ids)
            parts.append(f"snapshot{'s' * (len(outcome.snapshot_ids) > 1)} {ids}")
        return parts

    def _summary(self, outcome: Outcome, mark: str = "") -> str:
        return self._lines(outcome, self._parts(outcome, mark))

    def _lines(self, outcome: Outcome, parts: Sequence[str]) -> str:
        took = format_duration(self._clock.monotonic() - self._started)
        lines = [one_line(" · ".join([*parts, took])), *self._notes(outcome)]
        following = next_step(outcome, self._options, self._rest)
        if following:
            lines.append(f"next: {one_line(self._redact(following))}")
        return "\n".join(lines)

    def _notes(self, outcome: Outcome) -> list[str]:
        return [self._line(note, outcome.command) for note in outcome.notes]


def _is_wrong(outcome: Outcome) -> bool:
    """Whether an outcome is printed however quiet the command is: something was left out, lost or found."""
    return outcome.exit_code != 0 or any(map(outcome.result.values().get, _LOST))


def _is_asked_for(outcome: Outcome) -> bool:
    """Whether the tables of an outcome are what the command was run for: it changed nothing."""
    if outcome.status is Status.DRY_RUN:
        return True
    changed = (
        outcome.operation_id
        or outcome.snapshot_ids
        or "committed_checkpoints" in outcome.result.values()
    )
    return outcome.command in _LISTINGS and not changed


def _counts(result: Facts) -> str:
    """Return the counts of what was done as one line; the rest of a result is for scripts."""
    shown = {key: value for key, value in result.values().items() if key in _DONE and value}
    if isinstance(result, EachTableResult):
        shown["tables"] = sum(row.error is None for row in result.tables)
    return one_line(
        ", ".join(
            f"{key.replace('_', ' ')} {report_cells(key, [value])[0]}"
            for key, value in shown.items()
        )
    )


def _name(outcome: Outcome) -> str:
    """Return what an outcome is about: the table, or the command if it has no table."""
    return one_line(outcome.table or f"lake {outcome.command}")


def _print_tables(tables: Sequence[Detail], display: Display) -> str:
    """Print tables and return what is said about columns of the last one that were left out."""
    mark = ""
    for detail in tables:
        if len(tables) > 1:
            sys.stdout.write(f"\n{one_line(detail.title)}\n")
        mark = _print_table(detail, display)
        if mark and len(tables) > 1:
            sys.stdout.write(f"{mark}\n")
    sys.stdout.flush()
    return mark


def _print_table(detail: Detail, display: Display) -> str:
    """Print a table and return what is said about columns that were left out."""
    if not sys.stdout.isatty():
        for row in (detail.columns, *detail.rows):
            sys.stdout.write("\t".join(map(plain_text, row)) + "\n")
        return ""
    from lake.cli import tables  # noqa: PLC0415 - only a terminal needs Rich

    console = display.console(sys.stdout)
    types = detail.types or [""] * len(detail.columns)
    rows = [*detail.rows]
    columns = [
        tables.column(name, [row[number] for row in rows], types[number], detail.root)
        for number, name in enumerate(detail.columns)
    ]
    layout = tables.fit(columns, console.width, every=display.all_columns, first=detail.first)
    vertical = display.vertical or detail.vertical
    lines = tables.draw_records(columns, console.width) if vertical else layout.lines()
    for line in lines:
        console.print(line)
    return "" if vertical else layout.mark


def _json_text(document: Mapping[str, Any]) -> str:
    return json.dumps(document, default=str, allow_nan=False) + "\n"


def _document_text(document: Mapping[str, Any]) -> str:
    """Return a command's document as JSON; few have values that JSON cannot represent, and only these are copied."""
    try:
        return json.dumps(document, default=_json_value, allow_nan=False) + "\n"
    except (TypeError, ValueError):
        return _json_text(_json_ready(document))


def _json_value(value: Any) -> Any:
    return _json_ready(value) if isinstance(value, bytes | Mapping) else str(value)


def _json_ready(value: Any) -> Any:
    """Return the value with NaN, infinities and bytes as text, which JSON cannot represent."""
    if value is None or type(value) in SCALARS:
        return value
    if isinstance(value, Mapping):
        return {str(key): _json_ready(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_json_ready(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, "NaN")
    return base64_text(value) if isinstance(value, bytes) else value


def sentence(outcome: Outcome, hidden: str = "") -> str:
    """Return what a command did, without the table's name, the snapshot and the time it took.

    Args:
        outcome: what was done.
        hidden: how many columns of the table that was printed were left out; empty if none were.
    """
    if isinstance(outcome.result, EachTableResult):
        return each_table.sentence(outcome, outcome.result)
    if outcome.status is Status.ALREADY_RUNNING and outcome.command != "maintain":
        return _already_running(outcome)
    if outcome.command == "scan" and ReadResult.of(outcome.result).preview is not None:
        return previewed(outcome, hidden)
    text: str = module_of(outcome.command).sentence(outcome)
    return f"{text} · {hidden}" if hidden else text


def _already_running(outcome: Outcome) -> str:
    result = outcome.result
    running = result.running if isinstance(result, AlreadyRunning) else RunFacts()
    if running.command is None:
        return "already running: another command of lake works on this table"
    return (
        f"already running: lake {running.command} on {running.host} "
        f"(process {running.pid}) since {running.since}; nothing to do"
    )
