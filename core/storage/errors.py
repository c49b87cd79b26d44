"""What a store's own errors mean in lake's words: a store that refuses, is busy or full is no defect of lake."""

from __future__ import annotations

import errno
import os
import re

import pyarrow as pa

from lake.core.errors import (
    BadInputError,
    LakeError,
    NotAuthorisedError,
    NotFoundError,
    StorageError,
    TimedOutError,
)

# The names are those of the AWS SDK, which Arrow repeats; the numbers stand in for names it does not know.
_REFUSED = re.compile(
    r"access.?denied|HTTP status 40[13]\b|expired.?token|invalid.?access.?key|signature.?does.?not.?match"
    r"|(?:invalid|unrecognized).?client|invalid.?token|authenticationfailed"
    # S3 refuses a token that expired with 400, and says why only in a body that these do not read.
    r"|HTTP status 400\) during (?:Head|Get)",
    re.IGNORECASE,
)
_BUSY = re.compile(
    r"slow.?down|throttl|service.?unavailable|internal.?(?:failure|error)|request.?time|network.?connection"
    r"|HTTP status (?:429|5\d\d)\b|timed? ?out\b|timeout was reached",
    re.IGNORECASE,
)
_OF_A_STORE = re.compile(r"\bAWS Error\b|HTTP status \d{3}\b|google::cloud|azure", re.IGNORECASE)
# How Python and Arrow repeat the system's number.
_REPEATED = re.compile(r"^\[Errno \d+\] |\.? Detail: \[errno \d+\] [\w /-]*")
# What Arrow makes of any refusal that is longer than what it wanted to read.
_MUFFLED = "flush response stream"
_LENGTH = 300
# A name under which nothing can lie.
_NO_PLACE = frozenset({errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP, errno.ENXIO})
_AWAY = {
    errno.ECONNABORTED,
    errno.ECONNREFUSED,
    errno.ECONNRESET,
    errno.EHOSTDOWN,
    errno.EHOSTUNREACH,
    errno.ENETDOWN,
    errno.ENETRESET,
    errno.ENETUNREACH,
    errno.ENOTCONN,
}
_HINTS = {
    errno.ENOSPC: "make room on that disk and run the command again",
    errno.EDQUOT: "make room within the quota and run the command again",
    errno.EFBIG: "allow larger files (ulimit -f)",
    errno.EMFILE: "allow more open files (ulimit -n)",
    errno.ENFILE: "allow more open files",
}


def storage_error(error: OSError, location: str = "") -> LakeError | None:
    """Return what an error of a store or a disk means; None where it does not tell.

    Args:
        error: what was raised.
        location: what it is about, where that is known.
    """
    if isinstance(error, BrokenPipeError):
        return None
    text = " ".join(str(error).split())[:_LENGTH]
    if isinstance(error, PermissionError) or error.errno == errno.EROFS or _REFUSED.search(text):
        refused = f"not allowed to touch {location}" if location else "the storage refused"
        return NotAuthorisedError(f"{refused}: {_reason(error, text)}")
    if isinstance(error, TimeoutError) or _BUSY.search(text):
        return TimedOutError(f"the storage is too busy: {text}", hint="run the command again")
    if error.errno in _NO_PLACE:
        return BadInputError(f"no file can lie there: {location or text}")
    if error.errno in _AWAY:
        return TimedOutError(f"the storage is away: {text}", hint="run the command again")
    if isinstance(error, FileNotFoundError) and location:
        return NotFoundError(f"no such file: {location}")
    if isinstance(error, IsADirectoryError) and location:
        return BadInputError(f"{location} is a folder, not a file")
    if error.errno is None and not _OF_A_STORE.search(text):
        return None
    reason = _reason(error, text)
    message = f"{location}: {reason}" if location else f"the storage failed: {reason}"
    return StorageError(message, hint=_HINTS.get(error.errno or 0))


def is_refusal(error: BaseException) -> bool:
    """Whether a store may have refused the credentials, so that others could help."""
    known = storage_error(error) if isinstance(error, OSError) else error
    return isinstance(known, NotAuthorisedError) or _MUFFLED in str(known)


def _reason(error: OSError, text: str) -> str:
    """Return an error's own words, with what the system's number means in front."""
    if error.errno is None:
        return text
    meaning = os.strerror(error.errno)
    said = _REPEATED.sub("", text).strip()
    return f"{meaning.lower()} ({said})" if said and said != meaning else meaning.lower()


class translate_errors:  # noqa: N801 - reads as a statement
    """Turns the errors of file systems into lake's.

    Args:
        location: what is read or written, for messages.
    """

    def __init__(self, location: str) -> None:
        self._location = location

    def __enter__(self) -> None:
        return None

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        known = storage_error(error, self._location) if isinstance(error, OSError) else None
        if known is not None:
            raise known from error
        if isinstance(error, pa.ArrowInvalid):
            # Such as a name with an empty part, which S3 knows and Arrow does not.
            raise BadInputError(f"{self._location}: {error}") from error
