"""Translate the errors of stores and disks; one that refuses, is busy or is full is not a defect of lake."""

from __future__ import annotations

import errno
import os
import re

import pyarrow as pa

from lake.core.base.errors import (
    BadInputError,
    LakeError,
    NotAuthorisedError,
    NotFoundError,
    StorageError,
    TimedOutError,
)
from lake.core.io.objects.requests import refused_connection, unknown_host

# The AWS SDK's error names, which Arrow repeats, and HTTP statuses for errors that the SDK has no name for.
_REFUSED = re.compile(
    r"access.?denied|HTTP status 40[13]\b|expired.?token|invalid.?access.?key|signature.?does.?not.?match"
    r"|(?:invalid|unrecognized).?client|invalid.?token|authenticationfailed"
    # S3 refuses an expired token with status 400; the reason is only in the body, which Arrow does not read here.
    r"|HTTP status 400\) during (?:Head|Get)",
    re.IGNORECASE,
)
_BUSY = re.compile(
    r"slow.?down|throttl|service.?unavailable|internal.?(?:failure|error)|request.?time|network.?connection"
    r"|HTTP status (?:429|5\d\d)\b|timed? ?out\b|timeout was reached",
    re.IGNORECASE,
)
_OF_A_STORE = re.compile(r"\b(?:AWS|Google|Azure) Error\b|HTTP status \d{3}\b", re.IGNORECASE)
# The text with which Python and Arrow repeat the system's error number.
_REPEATED = re.compile(r"^\[Errno \d+\] |\.? Detail: \[errno \d+\] [\w /-]*")
# Numbers of curl's errors in Arrow's texts. Source: libcurl, libcurl-errors(3).
_CURL = re.compile(r"curlCode: (\d+)")
_CURL_HOST, _CURL_REFUSED, _CURL_TLS = frozenset({5, 6}), 7, frozenset({35, 51, 58, 60, 77})
_CURL_SILENT = 28
# The texts of urllib3, by which botocore connects.
_UNRESOLVED = re.compile(
    r"failed to resolve|name or service not known|NameResolutionError", re.IGNORECASE
)
_REFUSED_CONNECTION = "NETWORK_CONNECTION: connection refused"
_NO_ANSWER = re.compile(r"(\S+) did not answer in time")
_NOT_TRUSTED = re.compile(r"certificate verify failed|\[SSL: ", re.IGNORECASE)
# Arrow's message for any refusal whose body is longer than the range that it requested.
_MUFFLED = "flush response stream"
_LENGTH = 300
# The system's errors for a path that cannot exist.
_IMPOSSIBLE_PATH = frozenset({errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP, errno.ENXIO})
_UNREACHABLE = {
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
    errno.ENOSPC: "free space on that disk and run the command again",
    errno.EDQUOT: "free space within the quota and run the command again",
    errno.EFBIG: "allow larger files (ulimit -f)",
    errno.EMFILE: "allow more open files (ulimit -n)",
    errno.ENFILE: "allow more open files",
}


def storage_error(error: OSError, location: str = "") -> LakeError | None:
    """Return lake's error for an error of a store or a disk; None if it cannot be classified."""
    if isinstance(error, BrokenPipeError):
        return None
    text = " ".join(str(error).split())[:_LENGTH]
    if isinstance(error, PermissionError) or error.errno == errno.EROFS or _REFUSED.search(text):
        refused = f"no permission for {location}" if location else "the storage refused access"
        return NotAuthorisedError(f"{refused}: {_reason(error, text)}")
    if unreachable := _unreachable_store(text):
        return unreachable
    if silent := _NO_ANSWER.search(text):
        return TimedOutError(
            f"the storage does not answer: {silent[1]}",
            hint="check its address and the network, then run the command again",
        )
    if isinstance(error, TimeoutError) or _BUSY.search(text):
        return TimedOutError(f"the storage is too busy: {text}", hint="run the command again")
    if error.errno in _IMPOSSIBLE_PATH:
        return BadInputError(f"not a valid path: {location or text}")
    if error.errno in _UNREACHABLE:
        return TimedOutError(f"the storage is unreachable: {text}", hint="run the command again")
    if isinstance(error, FileNotFoundError) and location:
        return NotFoundError(f"no such file: {location}")
    if isinstance(error, IsADirectoryError) and location:
        return BadInputError(f"{location} is a folder, not a file")
    if error.errno is None and not _OF_A_STORE.search(text):
        return None
    reason = _reason(error, text)
    message = f"{location}: {reason}" if location else f"the storage failed: {reason}"
    return StorageError(message, hint=_HINTS.get(error.errno or 0))


def _unreachable_store(text: str) -> LakeError | None:
    """Return the error for a store to which there is no connection, by the number of curl's error in Arrow's text."""
    number = _curl_error(text)
    if number in _CURL_HOST or _UNRESOLVED.search(text):
        return unknown_host(text)
    if number in _CURL_TLS or _NOT_TRUSTED.search(text):
        return distrusted(text)
    if number == _CURL_REFUSED or _REFUSED_CONNECTION in text:
        return refused_connection(text)
    return None


def distrusted(text: str) -> StorageError:
    """Return the error for a store whose certificate is not trusted, or whose encrypted connection failed."""
    return StorageError(
        f"no trusted encrypted connection to the storage: {text}",
        hint="if the authority is your own, set AWS_CA_BUNDLE to its file; check http or https in s3.endpoint",
    )


def is_distrust(error: OSError) -> bool:
    """Whether Arrow reports a failed encrypted connection, by the number of curl's error in its text."""
    return _curl_error(str(error)) in _CURL_TLS


def is_silence(error: OSError) -> bool:
    """Whether Arrow reports a host that did not answer in time, by the number of curl's error in its text."""
    return _curl_error(str(error)) == _CURL_SILENT


def _curl_error(text: str) -> int | None:
    """Return the number of curl's error in Arrow's text; None if there is none."""
    found = _CURL.search(text)
    return int(found[1]) if found else None


def is_muffled(error: BaseException) -> bool:
    """Whether Arrow does not say why a store refused a read, and did not repeat it: the store may only be busy."""
    return _MUFFLED in str(error)


def is_refusal(error: BaseException) -> bool:
    """Whether a store may have refused the credentials, so that new ones may help."""
    known = storage_error(error) if isinstance(error, OSError) else error
    return isinstance(known, NotAuthorisedError) or _MUFFLED in str(known)


def _reason(error: OSError, text: str) -> str:
    """Return an error's text, preceded by the meaning of the system's error number."""
    if error.errno is None:
        return text
    meaning = os.strerror(error.errno)
    detail = _REPEATED.sub("", text).strip()
    return f"{meaning.lower()} ({detail})" if detail and detail != meaning else meaning.lower()


class translate_errors:  # noqa: N801 - reads as a statement
    """Translates the errors of file systems into lake's errors.

    Args:
        location: the file or folder that is read or written, for messages.
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
            # For example a name with an empty part, which S3 allows and Arrow does not.
            raise BadInputError(f"{self._location}: {error}") from error
