"""Requests to S3 about single objects, by clients with the same keys (`lake.core.io.objects.s3_connection`).

Each request is made in one way:

- `lake.core.io.objects.whole_objects` reads objects and parts of them, asks for lengths, and writes whole ones;
- botocore makes the requests whose answers say more than contents: bulk deletes, exclusive creation with the store's
  time, and uploads in parts and their ends. Its session finds keys, regions and endpoints as AWS's own tools do;
- Arrow's client, by `lake.core.io.storage.store_listing`, lists.

Where AWS's own tools find no keys, Arrow's client makes the requests of the others too.
"""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import Callable, Iterator, Mapping, Sequence
from email.utils import parsedate_to_datetime
from functools import lru_cache
from typing import Any, ClassVar, TypeVar
from urllib.parse import urlsplit

from lake.core.base.clock import Backoff
from lake.core.base.errors import LakeError
from lake.core.io.objects.bucket import Bucket
from lake.core.io.objects.requests import (
    BACKOFF,
    BUSY_CODES,
    CONFLICT,
    NOT_A_RESPONSE,
    NOT_FOUND,
    NOT_THERE,
    TRIES,
    UNTRIED,
    ShouldContinue,
    StoredObject,
    StoreError,
    Tries,
    UnsupportedError,
    always,
    refusal,
    refused_connection,
    timed_out,
    unknown_host,
)
from lake.core.io.objects.s3_connection import CONNECT_SECONDS, Connection, first
from lake.core.io.objects.waits import awaited
from lake.core.io.objects.whole_objects import Runtime, WholeObjects

# The keys of one bulk delete.
MOST_KEYS = 1000
_MAX_LISTED = 10_000
# Keys that XML can represent and that Arrow does not normalise to another key.
_PLAIN_KEY = re.compile(r"(?!\.{1,2}(?:/|$))[^\x00-\x1f\x7f\ufffe\uffff]+", re.DOTALL)
_T = TypeVar("_T")
_CONFLICT = 409
_NOT_MET = frozenset({_CONFLICT, 412})


def require_reachable(properties: Mapping[str, Any]) -> None:
    """Check that the host of a store can be connected to, before requests are repeated for minutes.

    Args:
        properties: those of the storage, see `completed`.

    Raises:
        TimedOutError: its name cannot be resolved, or it refuses connections.
    """
    if properties.get("s3.proxy-uri"):
        return
    endpoint = properties.get("s3.endpoint")
    region = first(properties, "region")
    amazon = f"https://s3.{region}.amazonaws.com" if region else "https://s3.amazonaws.com"
    if not endpoint and str(region).startswith("cn-"):
        amazon += ".cn"
    address = str(endpoint or amazon)
    parts = urlsplit(address if "://" in address else f"https://{address}")
    port = parts.port or (80 if parts.scheme == "http" else 443)
    try:
        _connect(parts.hostname or "", port, only_resolve=not endpoint)
    except socket.gaierror as error:
        raise unknown_host(f"{parts.hostname} ({error.strerror})") from error
    except ConnectionRefusedError as error:
        raise refused_connection(f"{parts.hostname}, port {port}") from error
    except (OSError, UnicodeError):
        # Arrow reports other failures with their reasons.
        return


@lru_cache(maxsize=16)
def _connect(host: str, port: int, *, only_resolve: bool) -> None:
    """Connect to a host once, or only look up its name; only a success is remembered."""
    if only_resolve:
        socket.getaddrinfo(host, port)
    else:
        socket.create_connection((host, port), CONNECT_SECONDS).close()


@lru_cache(maxsize=16)
def is_certified(endpoint: str, authorities: str) -> bool:
    """Return whether this Python can make an encrypted connection to a store.

    Args:
        endpoint: the store's URI.
        authorities: the file of the trusted authorities; empty for the system's.

    Returns:
        False if the certificate or the encryption is refused; True if the store does not encrypt, or does not answer.
    """
    parts = urlsplit(endpoint)
    if parts.scheme != "https" or not parts.hostname:
        return True
    try:
        context = ssl.create_default_context(cafile=authorities or None)
        with (
            socket.create_connection(
                (parts.hostname, parts.port or 443), CONNECT_SECONDS
            ) as connection,
            context.wrap_socket(connection, server_hostname=parts.hostname),
        ):
            return True
    except ssl.SSLError:
        return False
    except (OSError, UnicodeError):
        return True


class S3(Bucket):
    """One bucket, by one set of credentials; threads may share it."""

    # How many objects one request deletes, and the files that are deleted before the table is read again.
    keys_of_request: ClassVar[int] = MOST_KEYS
    most_deleted: ClassVar[int] = Bucket.deletions_at_once * MOST_KEYS

    def __init__(self, connection: Connection, backoff: Backoff = BACKOFF) -> None:
        self._connection = connection
        self._backoff = backoff

    def waiting(self, backoff: Backoff) -> S3:
        """Return the same bucket with other waits between requests that are repeated."""
        return S3(self._connection, backoff)

    def may_succeed(self, error: BaseException) -> bool:
        """Return whether a request of Arrow's that failed may succeed now, see `Connection`."""
        used = self._connection.used_by_arrow
        return used is not None and self._connection.may_succeed(error, used)

    def for_arrow(self) -> dict[str, str]:
        """Return the properties with which PyIceberg makes Arrow's client of the bucket."""
        return self._connection.for_arrow()

    @property
    def host(self) -> str:
        """The host of the store, and its port."""
        return self._connection.host

    @property
    def most_keys(self) -> int:
        """How many objects one request deletes."""
        return MOST_KEYS

    @property
    def _client(self) -> Any:
        return self._connection.client

    def delete(
        self, keys: Sequence[str], should_continue: ShouldContinue = always
    ) -> dict[str, str]:
        """Delete at most `MOST_KEYS` objects with one request; return the reasons of failures by key.

        A missing object counts as deleted. A request that a busy store refuses is repeated while ``should_continue``
        returns True.

        Raises:
            UnsupportedError: the store does not support bulk deletes.
        """
        remaining, failed = list(keys), dict[str, str]()
        for attempt in range(1, TRIES + 1):
            if not should_continue():
                return failed | dict.fromkeys(remaining, UNTRIED)
            listed = {"Quiet": False, "Objects": [{"Key": key} for key in remaining]}
            try:
                answer = self._ask("delete_objects", Delete=listed)
            except (StoreError, LakeError) as error:
                return failed | dict.fromkeys(remaining, str(error))
            # A response that is not S3's, for example a proxy's page, does not name any key.
            codes = dict.fromkeys(remaining, "UNKNOWN")
            for item in answer.get("Deleted", ()):
                codes.pop(item.get("Key", ""), None)
            codes |= {item.get("Key"): item.get("Code", "") for item in answer.get("Errors", ())}
            failed |= {key: f"AWS Error {codes[key]}" for key in remaining if key in codes}
            remaining = [key for key in remaining if BUSY_CODES.search(codes.get(key, ""))]
            if not remaining or attempt == TRIES:
                return failed
            failed = {key: why for key, why in failed.items() if key not in remaining}
            self._backoff.wait(attempt)
        return failed

    def create(self, key: str, data: bytes, *, over: str | None = None) -> str | None:
        """Create an object, or replace the version with ETag ``over``; return the new ETag.

        Returns:
            None if another writer created or replaced the object first.

        Raises:
            UnsupportedError: the store does not support conditional requests.
            StoreError: the store refused the request or did not answer.
        """
        condition = {"IfNoneMatch": "*"} if over is None else {"IfMatch": over}
        try:
            return self._put(key, data, condition)
        except StoreError as error:
            # Without a condition on a version, 404 means that the bucket does not exist.
            if error.status in _NOT_MET or (over and error.status == NOT_FOUND):
                return None
            raise

    def head(self, key: str) -> tuple[int, int] | None:
        """Return an object's length in bytes and its last change in ms; None if it does not exist."""
        return self.retry(lambda: self.objects().head(key))

    def ask_for_upload(self, call: str, key: str, **arguments: Any) -> Any:
        """Make one of botocore's requests for an object that is written in parts, and return its answer.

        Raises:
            UnsupportedError: the store does not support the request, or this process is a fork of one with requests.
            StoreError: the store refused the request or did not answer.
        """
        Runtime.require()
        return self._ask(call, Key=key, **arguments)

    def objects(self) -> WholeObjects:
        """Return the client with the current keys."""
        return self._connection.whole

    def contested(self) -> Exception:
        """Return the error of an object that other writers create and delete meanwhile."""
        return refusal(_CONFLICT, CONFLICT)

    def _put(self, key: str, data: bytes, condition: Mapping[str, str]) -> str:
        answer = self._ask("put_object", Key=key, Body=data, **condition)
        if not answer.get("ETag"):
            raise StoreError("AWS Error UNKNOWN: the response has no ETag", NOT_A_RESPONSE)
        return str(answer["ETag"])

    def get(self, key: str, most: int) -> StoredObject | None:
        """Return a small object; None if it does not exist."""

        def request() -> StoredObject:
            bucket = self._connection.bucket
            answer = _call(self.host, self._client.get_object, Bucket=bucket, Key=key)
            data = _body(self.host, answer, most)
            if answer.get("LastModified") is None:
                raise StoreError("AWS Error UNKNOWN: the response is not an object", NOT_A_RESPONSE)
            now = _seconds(answer["ResponseMetadata"]["HTTPHeaders"].get("date", ""))
            return StoredObject(
                data, answer.get("ETag", ""), now - answer["LastModified"].timestamp()
            )

        try:
            return self.retry(request)
        except StoreError as error:
            if error.status == NOT_FOUND:
                return None
            raise

    def remove(self, key: str) -> None:
        """Delete one object."""
        self._ask("delete_object", Key=key)

    def abort_uploads(self, prefix: str, name_part: str = "") -> int:
        """Abort unfinished uploads to keys with a prefix that contain a text; return their number."""
        ended = 0
        for key, upload in [item for item in self._uploads(prefix) if name_part in item[0]]:
            self._ask("abort_multipart_upload", Key=key, UploadId=upload)
            ended += 1
        return ended

    def _uploads(self, prefix: str) -> Iterator[tuple[str, str]]:
        after: dict[str, str] = {}
        for _ in range(0, _MAX_LISTED, MOST_KEYS):
            answer = self._ask("list_multipart_uploads", Prefix=prefix, **after)
            for item in answer.get("Uploads", ()):
                if item["Key"].startswith(prefix):
                    yield item["Key"], item["UploadId"]
            if not answer.get("IsTruncated") or not answer.get("NextKeyMarker"):
                return
            marks = {"KeyMarker": "NextKeyMarker", "UploadIdMarker": "NextUploadIdMarker"}
            after = {name: answer[mark] for name, mark in marks.items() if answer.get(mark)}

    def _ask(self, call: str, **arguments: Any) -> Any:
        return self.retry(
            lambda: _call(
                self.host,
                getattr(self._client, call),
                Bucket=self._connection.bucket,
                **arguments,
            )
        )

    def retry(self, work: Callable[[], _T]) -> _T:
        """Call ``work`` until the store is neither too busy nor unreachable, at most `TRIES` times.

        A request is repeated at once if the keys changed, or the bucket's region was found.
        """
        tries = Tries()
        while True:
            used = None
            try:
                used = self._connection.used
                return work()
            except (StoreError, UnsupportedError) as error:
                goes_on = tries.go_on(error)
                if tries.made < TRIES and self._connection.may_succeed(error, used):
                    continue
                if not goes_on:
                    raise
            self._backoff.wait(tries.made)


def _call(host: str, call: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """Call a client of a host and translate its errors.

    Raises:
        StoreError: the store refused the request, or did not answer.
        UnsupportedError: the store does not support the request.
    """
    from botocore import exceptions, parsers  # noqa: PLC0415 - door: remote stores only

    try:
        return awaited(host, lambda: call(*arguments, **named))
    except exceptions.ClientError as error:
        # The rest of a store's error may repeat the request, with its secrets.
        code = str(error.response.get("Error", {}).get("Code", "UNKNOWN"))[:80]
        status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
        raise refusal(status, code) from error
    except (exceptions.ConnectTimeoutError, exceptions.ReadTimeoutError) as error:
        raise timed_out(host) from error
    except exceptions.EndpointConnectionError as error:
        raise StoreError(f"AWS Error NETWORK_CONNECTION: {error}", code=NOT_THERE) from error
    except (exceptions.BotoCoreError, parsers.ResponseParserError) as error:
        raise StoreError(f"AWS Error NETWORK_CONNECTION: {error}") from error


def _body(host: str, answer: Any, most: int) -> bytes:
    """Return the first bytes of a response.

    Raises:
        StoreError: the response was truncated.
    """
    body = answer["Body"]
    try:
        data = bytes(_call(host, body.read, most))
    finally:
        body.close()
    promised = min(int(answer.get("ContentLength", len(data))), most)
    if len(data) != promised:
        raise StoreError(f"AWS Error NETWORK_CONNECTION: got {len(data)} of {promised} bytes")
    return data


def is_plain(key: str) -> bool:
    """Whether every client interprets a key, or a folder's prefix, the same, and XML can represent it."""
    return all(_PLAIN_KEY.fullmatch(part) for part in key.removesuffix("/").split("/"))


def _seconds(text: str) -> float:
    try:
        return parsedate_to_datetime(text).timestamp()
    except (TypeError, ValueError):
        return 0.0
