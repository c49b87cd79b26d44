"""The entry point: run one command, print its result or error, and return its exit code."""

from __future__ import annotations

import errno
import logging
import os
import re
import select
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from io import TextIOWrapper
from itertools import pairwise
from typing import TYPE_CHECKING

import typer

from lake.cli.app import (
    VERBS,
    OpenSession,
    State,
    arrange_arguments,
    installed_version,
    root_command,
)
from lake.cli.arguments import CommandLine
from lake.cli.manual import manual_sections, show_manual
from lake.cli.messages import Messages, subject
from lake.cli.process.signals import SignalHandlers
from lake.cli.process.standard_error import drop_what_cannot_be_written
from lake.cli.render import Renderer
from lake.cli.telemetry.begin import begun
from lake.core.base.clock import SystemClock
from lake.core.base.errors import (
    InvalidRequestError,
    LakeError,
    ReportedError,
    StoppedError,
    StorageError,
    did_you_mean,
)
from lake.core.base.outcome import Outcome, Status
from lake.core.base.process_identity import host_name
from lake.core.base.redaction import Redactor
from lake.core.base.settings import Settings

if TYPE_CHECKING:
    from lake.core.transaction.session import Session

_SIGNAL_CODES = 128
_NOT_A_NUMBER = re.compile(
    r"Invalid value for '(?P<option>[^']+)'.*\bvalid (?P<kind>integer|number)", re.DOTALL
)
# Options that users expect by another verb's name, and that are not the most similar one.
_OTHER_NAMES: Mapping[tuple[str | None, str], str] = {
    ("compact", "--filter"): "--where",
    ("compact", "--min-files"): "--min-input-files",
    ("expire", "--keep"): "--retain-last",
    ("ingest", "--mode"): "--overwrite",
    ("scan", "--filter"): "--where",
}
_UNKNOWN_OPTION = re.compile(r"(No such option: (\S+))(?: \(Possible options?: (.+)\))?$")
_NO_OUTPUT = "cannot write to standard output"
_NOT_MAPPED = re.compile("failed to map segment|cannot allocate memory", re.IGNORECASE)
_FILTERS = frozenset({"--where", "--overwrite-where"})
# How a command ended: its outcome, its error, an unexpected exception, or the exit code of help.
_Ending = Outcome | ReportedError | Exception | int


def main(
    argv: Sequence[str] | None = None,
    *,
    open_session: OpenSession | None = None,
    early: Sequence[int] = (),
    since: float | None = None,
) -> int:
    """Run one command and return its exit code.

    Args:
        argv: the arguments after the program's name; None for the process's own.
        open_session: creates the session from the global options; tests replace it.
        early: the signals received before the command's handlers are installed.
        since: the monotonic time at which the process began; None for a caller that goes on after the command.
    """
    if argv is None:
        _open_streams()
    line, mistake = _arranged(sys.argv[1:] if argv is None else argv)
    as_json = "--json" in line.options
    state = State(
        open_session=open_session or _open_session,
        as_json=as_json,
        command=line.command if line.command in VERBS else None,
        table=_table_named(line),
        begun=since,
    )
    if as_json:
        # The document contains the version. A command that fails for lack of open files cannot read it at its end.
        installed_version()
    redact = _redaction(state)
    renderer = Renderer(
        as_json=as_json,
        redact=redact,
        clock=SystemClock(),
        origin=partial(_origin, state),
        options=line.options,
        rest=line.rest,
    )
    state.clean = lambda text: renderer.clean(text, state.command)
    state.run_ended = partial(_run_ended, state, renderer)
    state.bind = partial(_bind, renderer)
    state.bind(state)
    if argv is None:
        _own_the_process(redact)
        state.before_verb = partial(_prepare_imports, state)
    if state.command is not None and mistake is None:
        warn = state.early_warnings.append
        state.trace = begun(state.command, os.environ, installed_version, state.clean, warn)
    with SignalHandlers(own_process=argv is None) as handlers:
        ending = mistake or _work(line, state, handlers, early)
        _run_programs(state, renderer, ending)
        handlers.release(_exit_code(ending))
        code = _print_ending(ending, state, renderer)
        state.trace.end(ending, code, {"catalog": state.catalog_name, "table": state.table})
        return code


def _bind(renderer: Renderer, state: State) -> None:
    """Let the functions that print while the command works use a state."""
    state.landed = partial(_report, state, renderer)
    state.announce = partial(_announce, state, renderer)
    state.note = partial(_note, state, renderer)
    state.table_ended = partial(_table_ended, state, renderer)


def _work(
    line: CommandLine, state: State, handlers: SignalHandlers, early: Sequence[int]
) -> _Ending:
    """Run the command and close its session. Exceptions are returned, not raised."""
    state.ignore_stops, state.accept_stops = handlers.ignore, handlers.accept
    try:
        try:
            handlers.replay_early(early)
            ending = _run(line, state)
        finally:
            handlers.ignore()
    except StoppedError as error:
        ending = error
    if isinstance(ending, StoppedError) and handlers.first is not None:
        # A stopped task does not know which signal stopped it.
        done, ending = ending.result, StoppedError(handlers.first)
        ending.result = done
    try:
        state.close()
    except Exception as error:  # noqa: BLE001 - reported as a defect
        return error
    return ending


def _run(line: CommandLine, state: State) -> _Ending:
    arguments = line.arguments
    for option, argument in pairwise(["", *arguments]):
        reason = _unreadable(argument, option)
        if reason:
            return InvalidRequestError(f"{argument!r} {reason}")
    try:
        if line.manual is not None:
            show_manual(line.manual)
            return 0
        ended = root_command().main(
            args=arguments, prog_name="lake", standalone_mode=False, obj=state
        )
    except ReportedError as error:
        return error
    except typer.TyperException as error:
        return _usage_error(error, line)
    except BrokenPipeError as error:
        return 0 if _reader_left() else error
    except SystemExit:
        # Typer exits when any pipe breaks.
        return 0 if _reader_left() else LakeError("the other side closed a connection")
    except OSError as error:
        from lake.core.io.storage.errors import storage_error  # noqa: PLC0415 - door: no PyArrow for help

        return _output_error(error, state) or storage_error(error) or error
    except Exception as error:  # noqa: BLE001 - reported as a defect, with its trace
        return _stop_in(error) or _exhaustion(error) or error
    if isinstance(ended, Outcome):
        return _named(ended, state)
    return ended if isinstance(ended, int) else 0


def _stop_in(error: BaseException) -> StoppedError | None:
    """Return the stop that caused an error; None if none did. Before 3.12, Python replaces it in `__set_name__`."""
    cause = error.__cause__
    if cause is None or isinstance(cause, StoppedError):
        return cause
    return _stop_in(cause)


def _named(outcome: Outcome, state: State) -> Outcome:
    """Return an outcome with its command, and with the table and branch that the user gave unless it has others."""
    return replace(
        outcome,
        command=state.command or "",
        table=outcome.table or state.table or "",
        branch=outcome.branch or state.branch,
    )


def _output_error(error: OSError, state: State) -> StorageError | None:
    """Return the error for help or a version that cannot be written; None if the command got further than that."""
    if state.opened is not None or error.filename is not None or error.errno != errno.ENOSPC:
        return None
    _abandon_stdout()
    return StorageError(f"{_NO_OUTPUT}: {error.strerror}")


def _exhaustion(error: Exception) -> StorageError | None:
    """Return the error for a process that gets no more memory or threads; None for any other error."""
    if isinstance(error, RuntimeError) and "can't start new thread" in str(error):
        return StorageError(
            "the system starts no more threads", hint="allow more processes (ulimit -u) or memory"
        )
    # A library that cannot be mapped cannot be imported.
    if isinstance(error, MemoryError) or (
        isinstance(error, ImportError) and _NOT_MAPPED.search(str(error))
    ):
        return StorageError(
            "there is not enough memory",
            hint="allow more memory (ulimit -v), or end other programs",
        )
    return None


def _unreadable(argument: str, option: str) -> str:
    """Return why an argument is not valid; empty if it is.

    A filter may contain any character. Names of files and tables must not contain NUL.
    """
    try:
        argument.encode()
    except UnicodeEncodeError:
        return "is not text in UTF-8"
    flag = argument.partition("=")[0] if argument.startswith("--") else option
    if "\0" in argument and flag not in _FILTERS:
        return "contains the character NUL"
    return ""


def _print_ending(ending: _Ending, state: State, renderer: Renderer) -> int:
    """Print how the command ended and return its exit code."""
    code = _exit_code(ending)
    try:
        if isinstance(ending, Outcome):
            if not state.has_reported:
                _report(state, renderer, ending)
            renderer.success(
                ending,
                state.unprinted,
                quiet=state.quiet,
                display=state.display,
                rows_on_stdout=state.rows_on_stdout,
            )
        elif isinstance(ending, ReportedError | Exception):
            renderer.failure(
                _as_error(ending, state, renderer),
                state.unprinted,
                command=state.command,
                table=state.table,
                branch=state.branch,
                display=state.display,
            )
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader closed the pipe. The command's effects remain.
        _abandon_stdout()
    except OSError as error:
        # Standard error may fail too; then nothing can be reported.
        with suppress(OSError):
            Messages(SystemClock(), subject(state.command, state.table), state.display).error(
                f"{_NO_OUTPUT}: {error.strerror}{_done(ending)}", {}
            )
        _abandon_stdout()
        # A script repeats after exit code 7, and would make the change again.
        changed = isinstance(ending, Outcome) and ending.has_changes
        return code or (Status.PARTIAL.exit_code if changed else StorageError.exit_code)
    return code


def _done(ending: _Ending) -> str:
    """Return what remains although it could not be printed; empty for nothing."""
    if not (isinstance(ending, Outcome) and ending.has_changes):
        return ""
    commits = ", ".join(map(str, ending.snapshot_ids))
    return f"; the command did its work{f' (snapshot {commits})' if commits else ''}"


def _report(state: State, renderer: Renderer, outcome: Outcome) -> None:
    """Run the user's program after a commit; its failure is a warning, because the commit remains."""
    if not state.on_commit:
        return
    with state.printing:
        _run_after_commit(state, renderer, outcome)


def _run_after_commit(state: State, renderer: Renderer, outcome: Outcome) -> None:
    from lake.commands.commit_hook import has_commit, run_hook  # noqa: PLC0415 - rarely needed

    outcome = _named(outcome, state)
    if not has_commit(outcome):
        return
    state.has_reported = True
    problem = run_hook(state.on_commit, renderer.document(outcome, state.warnings))
    if problem:
        state.session.warn(f"--on-commit failed after the commit: {problem}")


def _table_ended(state: State, renderer: Renderer, table: str, ending: Outcome | LakeError) -> None:
    """Run the user's program after a commit to one of several tables, and print how it ended."""
    state.table = table
    state.trace.end_table(ending)
    if isinstance(ending, Outcome):
        ending = _named(ending, state)
        if not state.has_reported:
            _report(state, renderer, ending)
    with state.printing:
        state.hide_progress()
        renderer.table(
            ending, command=state.command, table=table, quiet=state.quiet, display=state.display
        )


def _run_ended(state: State, renderer: Renderer, ending: Outcome | LakeError) -> None:
    """Print how one of several runs of a command ended, and run the user's program."""
    state.begin_table(None, None)
    state.trace.end_round(ending)
    if isinstance(ending, Outcome):
        ending = _named(ending, state)
    state.hide_progress()
    renderer.table(
        ending, command=state.command, table="", quiet=state.quiet, display=state.display
    )
    _run_programs(state, renderer, ending)


def _run_programs(state: State, renderer: Renderer, ending: _Ending) -> None:
    """Run the user's program for a run that ended with or without failures; a stop is neither."""
    code = _exit_code(ending)
    words = state.on_failure if code else state.on_done
    if not words or not isinstance(ending, Outcome | LakeError):
        return
    from lake.commands.commit_hook import run_hook  # noqa: PLC0415 - rarely needed

    if isinstance(ending, Outcome):
        document = renderer.document(ending, state.warnings)
    else:
        document = renderer.error_document(ending, state.warnings, command=state.command)
    problem = run_hook(words, document)
    if problem and state.opened is not None:
        state.opened.warn(f"--on-{'failure' if code else 'done'} failed: {problem}")


def _note(state: State, renderer: Renderer, text: str, facts: Mapping[str, str]) -> None:
    """Print at once what must be known if the process is killed: it prints nothing then."""
    with state.printing:
        state.hide_progress()
        renderer.note(text, facts, command=state.command, table=state.table, display=state.display)


def _announce(state: State, renderer: Renderer, text: str) -> None:
    """Print a warning when it occurs; in JSON mode the document contains it."""
    if renderer.as_json:
        return
    state.announced.add(text)
    with state.printing:
        state.hide_progress()
        renderer.warning(text, command=state.command, table=state.table, display=state.display)


def _as_error(ending: ReportedError | Exception, state: State, renderer: Renderer) -> ReportedError:
    if isinstance(ending, ReportedError):
        return ending
    trace = "".join(traceback.format_exception(ending))
    return renderer.trace(trace, command=state.command, table=state.table)


def _exit_code(ending: _Ending) -> int:
    if isinstance(ending, int):
        return ending
    if isinstance(ending, StoppedError):
        return _SIGNAL_CODES + ending.signal_number
    return ending.exit_code if isinstance(ending, Outcome | ReportedError) else 1


def _usage_error(error: typer.TyperException, line: CommandLine) -> LakeError | int:
    """Convert Typer's usage error to lake's; for a bare ``lake`` print the help first."""
    known = line.command if line.command in VERBS else None
    hint = f"see lake {known} --help" if known else _command_hint(line.command)
    message = _plain_message(error.format_message(), line)
    if unknown := _UNKNOWN_OPTION.match(message):
        message, name, possible = unknown.groups(default="")
        other = _OTHER_NAMES.get((known, name))
        similar = [other] if other else list(filter(None, possible.split(", ")))
        hint = did_you_mean(name, similar, similarity=0.0) or hint
    if message.startswith("Missing argument 'TABLE'"):
        hint = f"name a table: lake {known} db.events; lake tables lists them"
    if message.startswith("Usage:"):
        sys.stderr.write(message + "\n")
        return InvalidRequestError("no command given", hint=hint)
    return InvalidRequestError(message[:1].lower() + message[1:].rstrip("."), hint=hint)


def _command_hint(name: str | None) -> str:
    """Return what to type instead of a command that does not exist."""
    return did_you_mean(name or "", VERBS) or "see lake --help for the commands and options"


def _plain_message(message: str, line: CommandLine) -> str:
    """Return Typer's message about a number in the form of lake's own messages."""
    found = _NOT_A_NUMBER.match(message)
    if found is None:
        return message
    option = found["option"].rpartition(" ")[2]
    arguments = line.arguments
    given = [after for before, after in pairwise(arguments) if before == option]
    given += [word.partition("=")[2] for word in arguments if word.startswith(f"{option}=")]
    wanted = "a whole number" if found["kind"] == "integer" else "a number"
    return f"{option} takes {wanted}, not {given[-1]!r}" if given else message


def _arranged(arguments: Sequence[str]) -> tuple[CommandLine, InvalidRequestError | None]:
    """Return the command line with global options in front, or as it is and what is wrong with it."""
    try:
        line = arrange_arguments(arguments)
    except InvalidRequestError as error:
        options = [text for text in arguments if text == "--json"]
        return CommandLine(options=options, rest=list(arguments)), error
    if line.command == "version":
        return CommandLine(options=[*line.options, "--version"]), None
    if line.command == "help":
        return _help_line(line)
    return line, None


def _help_line(line: CommandLine) -> tuple[CommandLine, InvalidRequestError | None]:
    """Return the command line of `lake help TOPIC`, and what is wrong with the topic."""
    topic = next((text for text in line.rest if not text.startswith("-")), None)
    if "--manual" in line.rest:
        return CommandLine(options=line.options, manual=topic or ""), None
    verb = topic if topic in VERBS else None
    shown = CommandLine(options=line.options, command=verb, rest=["--help"])
    if topic is None or topic in {*VERBS, "help", "version"}:
        return shown, None
    is_section = topic in manual_sections()
    hint = f"lake help {topic} --manual" if is_section else _command_hint(topic)
    return shown, InvalidRequestError(f"no such command {topic!r}", hint=hint)


def _table_named(line: CommandLine) -> str | None:
    """Return the table's name as given, for errors that occur before the verb runs."""
    return next((text for text in line.rest if not text.startswith("-") and "." in text), None)


def _open_session(settings: Settings) -> Session:
    from lake.core.transaction.session import open_session  # noqa: PLC0415 - door: help opens no session

    return open_session(settings)


def _origin(state: State) -> dict[str, str | None]:
    return {"catalog": state.catalog_name, "host": host_name(), "version": installed_version()}


def _redaction(state: State) -> Callable[..., str]:
    """Return a redaction function that collects the secrets only when it is called."""

    def redact(text: str, *, limit: int | None = 500) -> str:
        redactor = state.opened.redactor() if state.opened else Redactor()
        redactor.learn_environment(os.environ)
        if state.settings:
            redactor.learn(state.settings.spark_conf)
            # sc://host:port/;token=…;user_id=…
            parts = (state.settings.remote or "").split(";")[1:]
            redactor.learn({key: text for key, _, text in (part.partition("=") for part in parts)})
        return redactor(text, limit=limit)

    return redact


def _open_streams() -> None:
    """Open the null device for closed standard streams: no file may get their numbers."""
    closed = [number for number in range(3) if not _is_open(number)]
    for _ in closed:
        # The system assigns the lowest free number, which is the first closed stream's.
        os.open(os.devnull, os.O_RDWR)
    if sys.stdout is None:
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115 - open until the process ends
    if sys.stderr is None:
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115
    drop_what_cannot_be_written()


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def _own_the_process(redact: Callable[..., str]) -> None:
    """Silence the warnings and logs of libraries, and redact the traces of threads."""
    if not sys.warnoptions:
        warnings.simplefilter("ignore")
    logging.getLogger().addHandler(logging.NullHandler())
    # The locale of a cron job may lack a character; print the rest of the line all the same.
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")

    def print_trace(details: threading.ExceptHookArgs) -> None:
        trace = traceback.format_exception(
            details.exc_type, details.exc_value, details.exc_traceback
        )
        sys.stderr.write(redact("".join(trace), limit=None))

    threading.excepthook = print_trace


def _prepare_imports(state: State) -> None:
    """Prepare the libraries that a verb imports.

    Raises:
        BadInputError: PyIceberg could not be imported, because it reads its configuration then.
        RefusedError: a file of the configuration belongs to another user.
    """
    from lake.core.base.arrow import keep_pandas_out  # noqa: PLC0415 - door: no PyArrow for help
    from lake.core.table.catalogs.configuration import read_configuration  # noqa: PLC0415 - door: as above

    in_folder = state.settings is not None and state.settings.warehouse is not None
    read_configuration(working_folder=not in_folder)
    keep_pandas_out()


def _reader_left() -> bool:
    """Whether the reader of standard output closed its pipe, as opposed to a server its connection."""
    watched = select.poll()
    try:
        watched.register(sys.stdout.fileno(), select.POLLERR)
    except (OSError, ValueError):
        return False
    if not any(event & select.POLLERR for _, event in watched.poll(0)):
        return False
    _abandon_stdout()
    return True


def _abandon_stdout() -> None:
    """Discard the buffer of standard output, so that the interpreter's exit prints no error."""
    null_device = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null_device, sys.stdout.fileno())
    os.close(null_device)
