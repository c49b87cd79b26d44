"""The errors that the interface raises: a class for each reason, which scripts distinguish by their exit codes."""

from lake.core.base.errors import (
    BadInputError,
    CommitConflictError,
    CommitUnknownError,
    CorruptFileError,
    EngineError,
    InvalidRequestError,
    LakeError,
    LockedError,
    NotAuthorisedError,
    NotFoundError,
    RefusedError,
    StorageError,
    TimedOutError,
)

__all__ = [
    "BadInputError",
    "CommitConflictError",
    "CommitUnknownError",
    "CorruptFileError",
    "EngineError",
    "InvalidRequestError",
    "LakeError",
    "LockedError",
    "NotAuthorisedError",
    "NotFoundError",
    "RefusedError",
    "StorageError",
    "TimedOutError",
]
