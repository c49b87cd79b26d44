"""What can go wrong: one hierarchy, each class with the exit code that cron sees.

Many classes may share a code; a code means one thing to the person who reads cron's mail.
Anything that escapes and is no `LakeError` is a defect of lake: Python's exit code 1.
"""

from __future__ import annotations

from typing import ClassVar


class LakeError(Exception):
    """A failure with a message for people and, where there is one, a hint what to do next.

    Args:
        message: what happened, with the values that matter; lower case, no full stop.
        hint: what the reader can do about it, as a sentence of its own.

    `operation_id` names the commit whose outcome is open, where there is one.
    """

    exit_code: ClassVar[int] = 1
    kind: ClassVar[str] = "defect"
    status: ClassVar[str] = "failed"

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.operation_id: str | None = None


class InvalidRequestError(LakeError):
    """An option cannot be parsed or contradicts another."""

    exit_code = 2
    kind = "invalid-request"


class RefusedError(LakeError):
    """A safety rule forbids it; nothing was changed."""

    exit_code = 3
    kind = "refused"
    status = "refused"


class CommitConflictError(LakeError):
    """Another writer won and the plan no longer holds; nothing was changed."""

    exit_code = 4
    kind = "conflict"
    status = "conflict"


class ConflictingFilesError(CommitConflictError):
    """Another writer changed files that the plan was about to replace; `paths` names them."""

    def __init__(self, message: str, paths: frozenset[str], *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.paths = paths


class CommitUnknownError(LakeError):
    """The catalog never answered: the commit may have landed, so no file was removed."""

    exit_code = 5
    kind = "unknown"
    status = "unknown"


class BadInputError(LakeError):
    """Something given to lake cannot be read or is not what it should be."""

    exit_code = 7
    kind = "bad-input"


class NotATableError(BadInputError):
    """The name is that of a view."""


class NotFoundError(BadInputError):
    """A table, snapshot, branch, column or source does not exist."""

    kind = "not-found"


class CorruptFileError(BadInputError):
    """A file's bytes are not what the table's metadata or its format promises."""

    kind = "corrupt"


class StorageError(LakeError):
    """A disk or store fails: it is full, broken or away, or the system gives no more of something."""

    exit_code = 7
    kind = "storage"


class LockedError(LakeError):
    """Another run holds the table and the wait for it ran out."""

    exit_code = 8
    kind = "locked"


class NotAuthorisedError(LakeError):
    """The catalog or the storage refused the credentials."""

    exit_code = 9
    kind = "not-authorised"


class TimedOutError(LakeError):
    """Something took longer than it may."""

    exit_code = 10
    kind = "timed-out"


class EngineError(LakeError):
    """The engine could not start or lost a task for a reason of its own (a defect or a machine)."""

    kind = "engine"


class StoppedError(LakeError):
    """The user or the system asked lake to stop; exit code 128 + the signal's number."""

    kind = "stopped"

    def __init__(self, signal_number: int) -> None:
        super().__init__("stopped before the end; nothing half-done is visible")
        self.signal_number = signal_number
