"""Requests to S3 for which Arrow has no function: bulk deletes, exclusive creation, aborting uploads.

They use the same keys as Arrow: from the configuration, from the catalog, or from the sources of AWS's own tools.
Configurations with an assumed role or a proxy are only supported by Arrow's client.
"""

from __future__ import annotations

import os
import re
import socket
import ssl
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from functools import lru_cache, partial
from typing import Any, TypeVar
from urllib.parse import urlsplit

from lake.core.base.clock import Backoff
from lake.core.io.storage.errors import refused_connection, unknown_host

# The keys of one bulk delete, and the bulk deletes that are sent at the same time.
MOST_KEYS = 1000
AT_ONCE = 4
REGION = "us-east-1"
# A busy store is asked for one to two minutes, as by Java's S3FileIO, with shorter waits at first. If it refuses a
# third of all requests, one of a million fails.
_TRIES = 12
# The waits between requests that a busy store refuses.
BACKOFF = Backoff(0.2, 20.0, (0.5, 1.0))
# Arrow's waits are 50 ms, 100 ms and so on, without a limit: 102 s together.
ARROW_TRIES = 12
_CONNECT_SECONDS, _READ_SECONDS = 10.0, 60.0
_CONNECTIONS = 32
_MAX_LISTED = 10_000
_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
_REGIONS = ("AWS_REGION", "AWS_DEFAULT_REGION")
# Settings that only Arrow's client supports (assumed role, proxy, anonymous access, virtual addressing).
_ARROW_ONLY = ("role-arn", "proxy-uri", "anonymous", "force-virtual-addressing")
# Keys that XML can represent and that Arrow does not normalise to another key.
_PLAIN_KEY = re.compile(r"(?!\.{1,2}(?:/|$))[^\x00-\x1f\x7f\ufffe\uffff]+", re.DOTALL)
_BUSY = frozenset({429, 500, 502, 503, 504})
_BUSY_CODES = re.compile(r"slow.?down|internal.?error|unavailable|throttl|timeout", re.IGNORECASE)
# The code of an error without a response: the host's name cannot be resolved, or it refuses connections.
_NOT_THERE = "EndpointConnectionError"
# Responses of stores that do not implement this part of S3.
_UNKNOWN = frozenset({405, 411, 501})
_UNKNOWN_CODES = re.compile(
    "NotImplemented|MalformedXML|InvalidRequest|MethodNotAllowed|MissingContentMD5"
)
_NOT_FOUND = 404
# A successful status with a response that is not S3's, for example from a proxy.
_NOT_A_RESPONSE = 203
# The reported reason for objects whose delete was not attempted.
UNTRIED = "not tried"
ShouldContinue = Callable[[], bool]
_T = TypeVar("_T")
_NOT_MET = frozenset({409, 412})


def always() -> bool:
    """Return True: the default for `ShouldContinue`."""
    return True


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
    region = _first(properties, "region")
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
        socket.create_connection((host, port), _CONNECT_SECONDS).close()


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
                (parts.hostname, parts.port or 443), _CONNECT_SECONDS
            ) as connection,
            context.wrap_socket(connection, server_hostname=parts.hostname),
        ):
            return True
    except ssl.SSLError:
        return False
    except (OSError, UnicodeError):
        return True


class UnsupportedError(Exception):
    """The store does not support the request."""


class StoreError(OSError):
    """The store refused the request, or did not answer; the text resembles Arrow's errors."""

    def __init__(self, text: str, status: int = 0, code: str = "") -> None:
        super().__init__(text)
        self.status = status
        self.code = code

    @property
    def is_busy(self) -> bool:
        """Whether the same request may succeed soon; a host that is not there does not appear soon."""
        if self.code == _NOT_THERE:
            return False
        return not self.status or self.status in _BUSY or bool(_BUSY_CODES.search(self.code))


def completed(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return storage properties with the endpoint and region that AWS's own tools take from the environment.

    With a custom endpoint and no region, Arrow would ask AWS for the bucket's region.
    """
    complete = dict(properties)
    if os.environ.get("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "").lower() != "true":
        _fill(complete, "s3.endpoint", _ENDPOINTS)
    if complete.get("s3.endpoint"):
        _fill(complete, "s3.region", _REGIONS)
        if not (complete.get("s3.region") or complete.get("client.region")):
            complete["s3.region"] = REGION
    return complete


def _fill(properties: dict[str, Any], key: str, names: Iterable[str]) -> None:
    value = next((os.environ[name] for name in names if os.environ.get(name)), None)
    if value and not properties.get(key) and not properties.get(key.replace("s3.", "client.")):
        properties[key] = value


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An existing object: its contents, its ETag, and its age in seconds by the store's clock."""

    data: bytes
    tag: str
    age_seconds: float


class S3:
    """One bucket, by one set of credentials; threads may share it."""

    def __init__(self, client: Any, bucket: str, backoff: Backoff = BACKOFF) -> None:
        self._client = client
        self._bucket = bucket
        self._backoff = backoff

    @classmethod
    def of(cls, properties: Mapping[str, str], bucket: str) -> S3 | None:
        """Return the client of a bucket; None if only Arrow's client supports the settings."""
        if any(_first(properties, name) for name in _ARROW_ONLY):
            return None
        client = _client(properties)
        return cls(client, bucket) if client else None

    def waiting(self, backoff: Backoff) -> S3:
        """Return the same bucket with other waits between requests that are repeated."""
        return S3(self._client, self._bucket, backoff)

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
        for attempt in range(1, _TRIES + 1):
            if not should_continue():
                return failed | dict.fromkeys(remaining, UNTRIED)
            listed = {"Quiet": False, "Objects": [{"Key": key} for key in remaining]}
            try:
                answer = self._ask("delete_objects", Delete=listed)
            except StoreError as error:
                return failed | dict.fromkeys(remaining, str(error))
            # A response that is not S3's, for example a proxy's page, does not name any key.
            codes = dict.fromkeys(remaining, "UNKNOWN")
            for item in answer.get("Deleted", ()):
                codes.pop(item.get("Key", ""), None)
            codes |= {item.get("Key"): item.get("Code", "") for item in answer.get("Errors", ())}
            failed |= {key: f"AWS Error {codes[key]}" for key in remaining if key in codes}
            remaining = [key for key in remaining if _BUSY_CODES.search(codes.get(key, ""))]
            if not remaining or attempt == _TRIES:
                return failed
            failed = {key: why for key, why in failed.items() if key not in remaining}
            self._backoff.wait(attempt)
        return failed

    def delete_all(
        self, keys: Sequence[str], should_continue: ShouldContinue = always
    ) -> dict[str, str]:
        """Delete objects with several concurrent requests; see `delete`."""
        parts = [keys[start : start + MOST_KEYS] for start in range(0, len(keys), MOST_KEYS)]
        with ThreadPoolExecutor(min(AT_ONCE, len(parts)) or 1) as pool:
            each = pool.map(partial(self.delete, should_continue=should_continue), parts)
            return {key: why for failed in each for key, why in failed.items()}

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
            if error.status in _NOT_MET or (over and error.status == _NOT_FOUND):
                return None
            raise

    def put(self, key: str, data: bytes) -> None:
        """Write an object in one request."""
        self._put(key, data, {})

    def _put(self, key: str, data: bytes, condition: Mapping[str, str]) -> str:
        answer = self._ask("put_object", Key=key, Body=data, **condition)
        if not answer.get("ETag"):
            raise StoreError("AWS Error UNKNOWN: the response has no ETag", _NOT_A_RESPONSE)
        return str(answer["ETag"])

    def get(self, key: str, most: int) -> StoredObject | None:
        """Return a small object; None if it does not exist."""

        def request() -> StoredObject:
            answer = _call(self._client.get_object, Bucket=self._bucket, Key=key)
            data = _body(answer, most)
            if answer.get("LastModified") is None:
                raise StoreError(
                    "AWS Error UNKNOWN: the response is not an object", _NOT_A_RESPONSE
                )
            now = _seconds(answer["ResponseMetadata"]["HTTPHeaders"].get("date", ""))
            return StoredObject(
                data, answer.get("ETag", ""), now - answer["LastModified"].timestamp()
            )

        try:
            return self._retry(request)
        except StoreError as error:
            if error.status == _NOT_FOUND:
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
        asked = getattr(self._client, call)
        return self._retry(lambda: _call(asked, Bucket=self._bucket, **arguments))

    def _retry(self, work: Callable[[], _T]) -> _T:
        """Call ``work`` until the store is neither too busy nor unreachable, at most `_TRIES` times."""
        for attempt in range(1, _TRIES + 1):
            try:
                return work()
            except StoreError as error:
                if not error.is_busy or attempt == _TRIES:
                    raise
            self._backoff.wait(attempt)
        raise StoreError("never asked")


def _call(call: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """Call a client and translate its errors.

    Raises:
        StoreError: the store refused the request, or did not answer.
        UnsupportedError: the store does not support the request.
    """
    from botocore import exceptions, parsers  # noqa: PLC0415 - door: remote stores only

    try:
        return call(*arguments, **named)
    except exceptions.ClientError as error:
        # The rest of a store's error may repeat the request, with its secrets.
        code = str(error.response.get("Error", {}).get("Code", "UNKNOWN"))[:80]
        status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
        if status in _UNKNOWN or _UNKNOWN_CODES.search(code):
            raise UnsupportedError(code) from error
        raise StoreError(f"AWS Error {code} (HTTP status {status})", status, code) from error
    except exceptions.EndpointConnectionError as error:
        raise StoreError(f"AWS Error NETWORK_CONNECTION: {error}", code=_NOT_THERE) from error
    except (exceptions.BotoCoreError, parsers.ResponseParserError) as error:
        raise StoreError(f"AWS Error NETWORK_CONNECTION: {error}") from error


def _body(answer: Any, most: int) -> bytes:
    """Return the first bytes of a response.

    Raises:
        StoreError: the response was truncated.
    """
    body = answer["Body"]
    try:
        data = bytes(_call(body.read, most))
    finally:
        body.close()
    promised = min(int(answer.get("ContentLength", len(data))), most)
    if len(data) != promised:
        raise StoreError(f"AWS Error NETWORK_CONNECTION: got {len(data)} of {promised} bytes")
    return data


def is_plain(key: str) -> bool:
    """Whether every client interprets a key, or a folder's prefix, the same, and XML can represent it."""
    return all(_PLAIN_KEY.fullmatch(part) for part in key.removesuffix("/").split("/"))


def _client(properties: Mapping[str, str]) -> Any:
    """Return a client; None if it would reach another store than Arrow does, or there are no keys."""
    from botocore import config, exceptions, handlers, session  # noqa: PLC0415 - door: remote stores only

    access, secret = (_first(properties, name) for name in ("access-key-id", "secret-access-key"))
    if bool(access) != bool(secret):
        return None
    endpoint = properties.get("s3.endpoint")
    options = config.Config(
        connect_timeout=float(properties.get("s3.connect-timeout") or _CONNECT_SECONDS),
        read_timeout=float(properties.get("s3.request-timeout") or _READ_SECONDS),
        max_pool_connections=_CONNECTIONS,
        retries={"total_max_attempts": 1},
        s3={"addressing_style": "path" if endpoint else "auto"},
        # Stores other than Amazon's may not support its newer checksums.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
    )
    try:
        opened = session.Session()
        # The Expect header costs one more round trip for each small object.
        opened.unregister("before-call.s3", handlers.add_expect_header)
        region = _first(properties, "region") or opened.get_config_variable("region")
        if not region or not (access or opened.get_credentials()):
            return None
        return opened.create_client(
            "s3",
            region_name=region,
            endpoint_url=endpoint if not endpoint or "://" in endpoint else f"https://{endpoint}",
            aws_access_key_id=access,
            aws_secret_access_key=secret,
            aws_session_token=_first(properties, "session-token") if access else None,
            config=options,
        )
    except (exceptions.BotoCoreError, ValueError):
        # Arrow may accept settings that AWS's own tools cannot use.
        return None


def _first(properties: Mapping[str, str], name: str) -> str | None:
    """Return a property under either of its two names, as PyIceberg's `_initialize_s3_fs` does."""
    return properties.get(f"s3.{name}") or properties.get(f"client.{name}")


def _seconds(text: str) -> float:
    try:
        return parsedate_to_datetime(text).timestamp()
    except (TypeError, ValueError):
        return 0.0
