"""The errors of requests to an object store, whichever client makes them, and how often they are repeated."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from lake.core.base.clock import Backoff
from lake.core.base.errors import TimedOutError
from lake.core.base.interrupts import STOPPED

_T = TypeVar("_T")
# A busy store is asked for one to two minutes, as by Java's S3FileIO, with shorter waits at first. If it refuses a
# third of all requests, one of a million fails.
TRIES = 12
# A store that is silent for as long as a request may take is asked once more; a stopped command asks three times.
_SILENT_TRIES, _LAST_TRIES = 2, 3
# The waits between requests that a busy store refuses.
BACKOFF = Backoff(0.2, 20.0, (0.5, 1.0))
# The reported reason for objects whose delete was not attempted.
UNTRIED = "not tried"
ShouldContinue = Callable[[], bool]
# The code of a condition that another request, which has not ended, made uncertain.
CONFLICT = "ConditionalRequestConflict"
BUSY_CODES = re.compile(
    rf"slow.?down|internal.?error|unavailable|throttl|timeout|{CONFLICT}", re.IGNORECASE
)
_BUSY = frozenset({429, 500, 502, 503, 504})
# The code of an error without a response: the host's name cannot be resolved, or it refuses connections.
NOT_THERE = "EndpointConnectionError"
# The code of an error without a response in time.
SILENT = "TimedOut"
# Responses of stores that do not implement a part of S3.
_UNKNOWN = frozenset({405, 411, 501})
_UNKNOWN_CODES = re.compile(
    "NotImplemented|MalformedXML|InvalidRequest|MethodNotAllowed|MissingContentMD5"
)
NOT_FOUND = 404
# A successful status with a response that is not S3's, for example from a proxy.
NOT_A_RESPONSE = 203
# The texts of refusals because the keys have expired, and because the bucket is in another region.
EXPIRED = re.compile(
    r"expired.?token|invalid.?(?:access.?key|token)|token.?refresh.?required|request.?expired"
    # Without a body, or with one that Arrow does not read, any refusal may be one of them.
    r"|HTTP status 400\) during (?:Head|Get)|flush response stream",
    re.IGNORECASE,
)
REDIRECTED = re.compile(r"HTTP status 30\d|PermanentRedirect|AuthorizationHeaderMalformed")
Sink = Any


def always() -> bool:
    """Return True: the default for `ShouldContinue`."""
    return True


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An existing object: its contents, its ETag, and its age in seconds by the store's clock."""

    data: bytes
    tag: str
    age_seconds: float


@dataclass(frozen=True, slots=True)
class Keys:
    """The access key, the secret key, and the session token if there is one; all are secret."""

    access: str = field(repr=False)
    secret: str = field(repr=False)
    token: str | None = field(default=None, repr=False)


# The keys of requests that are not signed.
ANONYMOUS = Keys("", "")


class UnsupportedError(Exception):
    """The store, or this client, does not support the request."""


class StoreError(OSError):
    """The store refused the request, or did not answer; the text resembles Arrow's errors."""

    def __init__(self, text: str, status: int = 0, code: str = "") -> None:
        super().__init__(text)
        self.status = status
        self.code = code

    @property
    def is_busy(self) -> bool:
        """Whether the same request may succeed soon; a host that is not there does not appear soon."""
        if self.code == NOT_THERE:
            return False
        return not self.status or self.status in _BUSY or bool(BUSY_CODES.search(self.code))


def timed_out(host: str) -> StoreError:
    """Return the error of a host that did not accept a connection, or did not answer, in time."""
    return StoreError(f"AWS Error NETWORK_CONNECTION: {host} did not answer in time", code=SILENT)


def unknown_host(text: str) -> TimedOutError:
    """Return the error for a store whose host name cannot be resolved."""
    return TimedOutError(
        f"the host name of the storage cannot be resolved: {text}",
        hint="check the endpoint and the region (s3.endpoint, s3.region), and the name server of this machine",
    )


def refused_connection(text: str) -> TimedOutError:
    """Return the error for a store whose host refuses connections."""
    return TimedOutError(
        f"the storage refused the connection: {text}",
        hint="check s3.endpoint, and that the server runs, then run the command again",
    )


def refusal(status: int, code: str) -> StoreError | UnsupportedError:
    """Return the error for a store's answer with a status of HTTP and a code of S3."""
    if status in _UNKNOWN or _UNKNOWN_CODES.search(code):
        return UnsupportedError(code)
    return StoreError(f"AWS Error {code} (HTTP status {status})", status, code)


@dataclass
class Tries:
    """How often a request was made.

    Args:
        made: all of them.
        silent: those that the store did not answer in time.
    """

    made: int = 0
    silent: int = 0

    def go_on(self, error: Exception) -> bool:
        """Count a request that failed, and return whether it is made again."""
        self.made += 1
        if not (isinstance(error, StoreError) and error.is_busy):
            return False
        self.silent += error.code == SILENT
        most = _LAST_TRIES if STOPPED.is_set() else TRIES
        return self.made < most and self.silent < _SILENT_TRIES


def retried(work: Callable[[], _T], backoff: Backoff) -> _T:
    """Call ``work`` until the store is neither too busy nor unreachable, at most `TRIES` times."""
    tries = Tries()
    while True:
        try:
            return work()
        except StoreError as error:
            if not tries.go_on(error):
                raise
        backoff.wait(tries.made)
