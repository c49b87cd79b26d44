"""`--on-commit`: a command of the user that runs after a commit and reads the JSON document of lake's command."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress

from lake.core.base.errors import InvalidRequestError
from lake.core.base.interrupts import uninterrupted
from lake.core.base.outcome import Outcome, Status
from lake.core.base.redaction import has_password
from lake.core.maintain.expiration.facts import ExpirationFacts

# A hook that hangs would keep the lock of a cron job's next run, and a stream from its next epoch.
LIMIT_SECONDS = 60
_STANDARD_ERROR = 2
# What programs need to run and to reach a network, and what the user chose for this purpose.
_PASSED = re.compile(
    r"PATH|HOME|USER|LOGNAME|SHELL|PWD|HOSTNAME|LANG|LANGUAGE|LC_\w+|TZ|TZDIR|TERM|COLUMNS|LINES|NO_COLOR"
    r"|TMPDIR|TMP|TEMP|XDG_[A-Z]+_(?:HOME|DIR|DIRS)|DBUS_SESSION_BUS_ADDRESS|MAILTO|CRON_TZ|INVOCATION_ID"
    r"|LD_LIBRARY_PATH|VIRTUAL_ENV|CONDA_PREFIX|PYTHON(?:PATH|HOME|UTF8|UNBUFFERED|IOENCODING|SAFEPATH)|JAVA_HOME"
    r"|SSL_CERT_(?:FILE|DIR)|CURL_CA_BUNDLE|REQUESTS_CA_BUNDLE"
    r"|(?:http|https|ftp|all|no)_proxy|(?:HTTP|HTTPS|FTP|ALL|NO)_PROXY"
)
_CHOSEN = re.compile("LAKE_HOOK_")


def hook_words(command: str, option: str = "--on-commit") -> list[str]:
    """Return the program and the arguments of a hook; no shell interprets them.

    Args:
        command: the command line.
        option: the option that contains it, for messages.

    Raises:
        InvalidRequestError: there is no program, or a quote is not closed.
    """
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise InvalidRequestError(f"{option} {command!r} cannot be split: {error}") from error
    if not words:
        raise InvalidRequestError(f"{option} needs a program")
    return words


def has_commit(outcome: Outcome) -> bool:
    """Whether a command changed the table."""
    if outcome.status not in {Status.DONE, Status.PARTIAL}:
        return False
    expired = ExpirationFacts.of(outcome.result)
    return bool(outcome.snapshot_ids or expired.snapshots or expired.refs)


def run_hook(
    words: Sequence[str], document: str, *, limit_seconds: float = LIMIT_SECONDS
) -> str | None:
    """Run a hook with a document on its standard input; return why it failed, or None.

    Its output goes to standard error: standard output belongs to lake's command. Of the environment it gets the
    variables of `_PASSED` only, because a secret may have any name.
    """
    process: subprocess.Popen[str] | None = None
    try:
        # A signal during the start would leave a hook that nothing knows of.
        with uninterrupted():
            process = _start(words)
        process.communicate(document, timeout=limit_seconds)
    except (OSError, ValueError) as error:
        if process is not None:
            _kill(process)
            raise
        reason = error.strerror if isinstance(error, OSError) else str(error)
        return f"{words[0]} cannot be started: {reason}"
    except subprocess.TimeoutExpired:
        _kill(process)
        return f"{words[0]} was stopped after {limit_seconds:g} seconds"
    except BaseException:
        # A signal stops this command, and afterwards nothing would stop the hook.
        _kill(process)
        raise
    code = process.returncode
    return None if code == 0 else f"{words[0]} ended with exit code {code}"


def _start(words: Sequence[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(  # noqa: S603 - the user's own command line
        words,
        stdin=subprocess.PIPE,
        stdout=_STANDARD_ERROR,
        text=True,
        env=_public(os.environ),
        start_new_session=True,
    )


def _kill(process: subprocess.Popen[str] | None) -> None:
    """End a hook and its own children, which belong to its session; nothing if it was not started."""
    if process is None:
        return
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _public(environment: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value
        for name, value in environment.items()
        if _CHOSEN.match(name) or (_PASSED.fullmatch(name) and not has_password(value))
    }
