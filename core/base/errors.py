"""The error hierarchy; each class has the exit code that cron sees.

Several classes may share a code; a code has one meaning for the reader of cron's mail.
An exception that is not a `ReportedError` is a defect of lake: Python's exit code 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import ClassVar

from lake.core.base.facts import ErrorFacts, Facts, NoFacts
from lake.core.base.options import quote_options

_SHOWN_COLUMNS = 40
_SIMILAR = 0.6


class ReportedError(BaseException):
    """What ends a command early, with a message for the user and, if possible, a hint what to do next.

    Args:
        message: what happened, with the values that matter; lower case, no full stop.
        hint: what the user can do about it, as a separate sentence.

    Both refer to options by members of `Option`; `str` of an error contains the options' names in backquotes.
    `operation_id` names the commit whose outcome is unknown, if there is one. `result` contains what the command had
    done before it failed, with the keys of `Outcome.result`.
    """

    exit_code: ClassVar[int] = 1
    kind: ClassVar[str] = "defect"
    status: ClassVar[str] = "failed"

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(quote_options(message))
        self.message = message
        self.hint = hint
        self.operation_id: str | None = None
        self.result: Facts = NoFacts()

    def facts(self) -> ErrorFacts:
        """Return the error for the outcome of a command that goes on without what failed."""
        return ErrorFacts(kind=self.kind, message=self.message, hint=self.hint)


class LakeError(ReportedError, Exception):
    """A failure."""


class InvalidRequestError(LakeError):
    """An option cannot be parsed or contradicts another."""

    exit_code = 2
    kind = "invalid-request"


class RefusedError(LakeError):
    """A safety rule forbids the operation; nothing was changed."""

    exit_code = 3
    kind = "refused"
    status = "refused"


class CommitConflictError(LakeError):
    """Another writer committed first and the plan no longer holds; nothing was changed."""

    exit_code = 4
    kind = "conflict"
    status = "conflict"


class ConflictingFilesError(CommitConflictError):
    """Another writer changed files that the plan was going to replace; `paths` names them."""

    def __init__(self, message: str, paths: frozenset[str], *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.paths = paths


class CommitUnknownError(LakeError):
    """The catalog did not answer: the commit may have succeeded, so no file was removed."""

    exit_code = 5
    kind = "unknown"
    status = "unknown"


class BadInputError(LakeError):
    """Something given to lake cannot be read or is not valid."""

    exit_code = 7
    kind = "bad-input"


class NotATableError(BadInputError):
    """The name refers to a view."""


class NotFoundError(BadInputError):
    """A table, snapshot, branch, column or source does not exist."""

    kind = "not-found"


def nearest(name: str, known: Iterable[str], *, similarity: float = _SIMILAR) -> str | None:
    """Return the known name that a user most likely meant; None if no name is similar. Case does not matter."""
    by_folded: dict[str, str] = {}
    for one in known:
        by_folded.setdefault(one.casefold(), one)
    similar = get_close_matches(name.casefold(), by_folded, n=1, cutoff=similarity)
    return by_folded[similar[0]] if similar else None


def did_you_mean(
    name: str, known: Iterable[str], more: str = "", *, similarity: float = _SIMILAR
) -> str | None:
    """Return the hint for an unknown name: the nearest known one, if any, and then what else helps."""
    meant = nearest(name, known, similarity=similarity)
    return " ".join(filter(None, (meant and f"did you mean {meant}?", more))) or None


def unknown_column(name: str, columns: Sequence[str], where: str | None = None) -> NotFoundError:
    """Return the error for a name that no column has."""
    message = f"{where} has no column {name}" if where else f"no column named {name}"
    return NotFoundError(message, hint=did_you_mean(name, columns, listed_columns(columns)))


def listed_columns(columns: Sequence[str]) -> str:
    """Return the names of columns for a hint; of many, the first ones."""
    more = " …" if len(columns) > _SHOWN_COLUMNS else ""
    return f"columns: {', '.join(columns[:_SHOWN_COLUMNS])}{more}"


class CorruptFileError(BadInputError):
    """A file's bytes contradict the table's metadata or the file's format."""

    kind = "corrupt"


class OutOfRangeError(CorruptFileError):
    """Numbers in a table's metadata do not fit the types that the specification gives them.

    Args:
        message: what happened.
        found: the place and a description of each number.
    """

    def __init__(self, message: str, found: Sequence[tuple[str, str]]) -> None:
        super().__init__(message)
        self.found = found


class StorageError(LakeError):
    """A disk or object store fails (full, broken or unreachable), or a system resource is exhausted."""

    exit_code = 7
    kind = "storage"


class LockedError(LakeError):
    """Another run holds the table's lock, and waiting for it timed out."""

    exit_code = 8
    kind = "locked"


class NotAuthorisedError(LakeError):
    """The catalog or the storage refused the credentials."""

    exit_code = 9
    kind = "not-authorised"


class TimedOutError(LakeError):
    """An operation exceeded its time limit."""

    exit_code = 10
    kind = "timed-out"


class SilentError(TimedOutError):
    """A server took a request, or a connection, and did not answer within the time limit."""


class OutOfTimeError(TimedOutError):
    """The time that a run has for its work ended, see `RunContext.require_time`; what is left is for the next run."""

    kind = "out-of-time"
    status = "partial"


class EngineError(LakeError):
    """The engine could not start, or lost a task because of a defect or a machine failure."""

    kind = "engine"


class StoppedError(ReportedError):  # check: stop-is-no-failure
    """The user or the system asked lake to stop; exit code 128 + the signal's number.

    It is not an `Exception`, because it can be raised at any point: code that goes on after a failure, here or in a
    library, must not go on after a stop.
    """

    kind = "stopped"

    def __init__(self, signal_number: int) -> None:
        super().__init__("stopped; no partial change is visible")
        self.signal_number = signal_number


# The same request may succeed later: these errors say nothing about what was asked for.
TRANSIENT_ERRORS = (StorageError, TimedOutError)
