"""Requests to S3 about single objects, by two clients with the same keys.

Each request is made in one way:

- `lake.core.io.objects.whole_objects` reads and writes whole objects, and reads parts of them;
- botocore makes the requests whose answers say more than contents: bulk deletes, exclusive creation with the store's
  time, and the ends of unfinished uploads. Its session finds keys, regions and endpoints as AWS's own tools do;
- Arrow's client, by `lake.core.io.storage.storage`, lists, asks for lengths, and reads and writes long objects.

Keys come from the configuration, from the catalog, or from the sources of AWS's own tools. Configurations with an
assumed role or a proxy are only supported by Arrow's client, which then makes the first kind of requests too.
"""

from __future__ import annotations

import os
import re
import socket
import ssl
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from email.utils import parsedate_to_datetime
from functools import cached_property, lru_cache, partial
from typing import Any, ClassVar, TypeVar
from urllib.parse import urlsplit

import pyarrow as pa

from lake.core.base.clock import Backoff
from lake.core.io.objects.requests import (
    BACKOFF,
    BUSY_CODES,
    CONFLICT,
    NOT_A_RESPONSE,
    NOT_FOUND,
    NOT_THERE,
    TRIES,
    UNTRIED,
    Keys,
    ShouldContinue,
    StoredObject,
    StoreError,
    UnsupportedError,
    always,
    refusal,
    retried,
)
from lake.core.io.objects.whole_objects import Address, Found, WholeObjects, is_supported
from lake.core.io.storage.errors import refused_connection, unknown_host

# The keys of one bulk delete, and the bulk deletes that are sent at the same time.
MOST_KEYS = 1000
AT_ONCE = 4
REGION = "us-east-1"
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
_T = TypeVar("_T")
# The hosts of Amazon's own stores, which name the bucket.
_AMAZON = re.compile(r"\.amazonaws\.com(\.cn)?(:\d+)?/?$")
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


class S3:
    """One bucket, by one set of credentials; threads may share it."""

    # How many objects one request deletes, and the files that are deleted before the table is read again.
    keys_of_request: ClassVar[int] = MOST_KEYS
    most_deleted: ClassVar[int] = AT_ONCE * MOST_KEYS

    def __init__(
        self,
        connection: _Connection,
        bucket: str,
        whole: WholeObjects | None,
        backoff: Backoff = BACKOFF,
    ) -> None:
        self._connection = connection
        self._bucket = bucket
        self._whole = whole
        self._backoff = backoff

    @classmethod
    def of(cls, properties: Mapping[str, str], bucket: str) -> S3 | None:
        """Return the client of a bucket; None if only Arrow's client supports the settings."""
        if any(_first(properties, name) for name in _ARROW_ONLY):
            return None
        connection = _Connection(properties)
        try:
            return cls(connection, bucket, _whole_objects(connection, bucket))
        except UnsupportedError:
            return None

    def waiting(self, backoff: Backoff) -> S3:
        """Return the same bucket with other waits between requests that are repeated."""
        return S3(self._connection, self._bucket, self._whole, backoff)

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
            except StoreError as error:
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
            if error.status in _NOT_MET or (over and error.status == NOT_FOUND):
                return None
            raise

    def put(self, key: str, data: bytes | bytearray | pa.Buffer) -> None:
        """Write an object in one request.

        Raises:
            UnsupportedError: only Arrow's client supports the settings.
            StoreError: the store refused the request or did not answer.
        """
        whole = self._objects()
        self._retry(lambda: whole.put(key, data))

    def write_new(self, key: str, data: bytes) -> bool:
        """Write an object that does not exist; return False if there is another one of its key.

        One conditional request is enough. If the store answers that the object exists, it is read: the answer to the
        request that created it may have been lost, or the store may only have been uncertain.

        Raises:
            UnsupportedError: the store does not support conditional requests, or only Arrow's client its settings.
            StoreError: the store refused the request or did not answer.
        """
        whole = self._objects()

        def request() -> bool:
            if whole.create(key, data):
                return True
            found = whole.get(key, len(data))
            if found is None:
                raise refusal(_CONFLICT, CONFLICT)
            return found.data is not None and bytes(found.data) == data

        return self._retry(request)

    def read(self, key: str, most: int | None = None) -> Found | None:
        """Return an object, without its contents if it is longer than ``most`` bytes; None if it does not exist.

        Raises:
            UnsupportedError: only Arrow's client supports the settings.
            StoreError: the store refused the request or did not answer.
        """
        whole = self._objects()
        return self._retry(lambda: whole.get(key, most))

    def read_part(self, key: str, start: int, size: int) -> bytes | None:
        """Return bytes of an object, fewer than requested at its end; None if it does not exist; see `read`."""
        whole = self._objects()
        return self._retry(lambda: whole.part(key, start, size))

    def _objects(self) -> WholeObjects:
        if self._whole is None:
            raise UnsupportedError("the store's address")
        return self._whole

    def _put(self, key: str, data: bytes, condition: Mapping[str, str]) -> str:
        answer = self._ask("put_object", Key=key, Body=data, **condition)
        if not answer.get("ETag"):
            raise StoreError("AWS Error UNKNOWN: the response has no ETag", NOT_A_RESPONSE)
        return str(answer["ETag"])

    def get(self, key: str, most: int) -> StoredObject | None:
        """Return a small object; None if it does not exist."""

        def request() -> StoredObject:
            answer = _call(self._client.get_object, Bucket=self._bucket, Key=key)
            data = _body(answer, most)
            if answer.get("LastModified") is None:
                raise StoreError("AWS Error UNKNOWN: the response is not an object", NOT_A_RESPONSE)
            now = _seconds(answer["ResponseMetadata"]["HTTPHeaders"].get("date", ""))
            return StoredObject(
                data, answer.get("ETag", ""), now - answer["LastModified"].timestamp()
            )

        try:
            return self._retry(request)
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
        asked = getattr(self._client, call)
        return self._retry(lambda: _call(asked, Bucket=self._bucket, **arguments))

    def _retry(self, work: Callable[[], _T]) -> _T:
        return retried(work, self._backoff)


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
        raise refusal(status, code) from error
    except exceptions.EndpointConnectionError as error:
        raise StoreError(f"AWS Error NETWORK_CONNECTION: {error}", code=NOT_THERE) from error
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


class _Connection:
    """How a store is reached: botocore's session and client, each made when it is needed.

    Args:
        properties: those of the storage, see `completed`.

    Raises:
        UnsupportedError: there is only one of the two keys.
    """

    def __init__(self, properties: Mapping[str, str]) -> None:
        self.properties = properties
        self.static = [_first(properties, name) for name in ("access-key-id", "secret-access-key")]
        if bool(self.static[0]) != bool(self.static[1]):
            raise UnsupportedError("one key")

    @cached_property
    def session(self) -> Any:
        """The session, which finds what is not configured."""
        from botocore import handlers, session  # noqa: PLC0415 - door: remote stores only

        opened = session.Session()
        # The Expect header costs one more round trip for each small object.
        opened.unregister("before-call.s3", handlers.add_expect_header)
        return opened

    @property
    def endpoint(self) -> str | None:
        """The configured URI of the store; None for Amazon's, or another that the session knows."""
        endpoint = self.properties.get("s3.endpoint")
        return endpoint if not endpoint or "://" in endpoint else f"https://{endpoint}"

    @cached_property
    def region(self) -> str:
        """The region.

        Raises:
            UnsupportedError: there is none; Arrow's client may find that of a bucket.
        """
        region = _first(self.properties, "region") or self._found(
            lambda: self.session.get_config_variable("region")
        )
        if not region:
            raise UnsupportedError("no region")
        return str(region)

    def seconds(self, name: str, default: float) -> float:
        """Return a configured timeout.

        Raises:
            UnsupportedError: it is not a number.
        """
        try:
            return float(self.properties.get(f"s3.{name}-timeout") or default)
        except ValueError as error:
            raise UnsupportedError(name) from error

    @cached_property
    def keys(self) -> Keys:
        """Returns the current keys.

        Raises:
            UnsupportedError: there are none.
        """
        access, secret = self.static
        if access and secret:
            token = _first(self.properties, "session-token")
            return lambda: (access, secret, token)
        credentials = self._found(self.session.get_credentials)
        if not credentials:
            raise UnsupportedError("no keys")

        def current() -> tuple[str, str, str | None]:
            frozen = credentials.get_frozen_credentials()
            return frozen.access_key, frozen.secret_key, frozen.token

        return current

    @cached_property
    def client(self) -> Any:
        """The client.

        Raises:
            UnsupportedError: it would reach another store than Arrow does, or there are no keys.
        """
        from botocore import config  # noqa: PLC0415 - door: remote stores only

        options = config.Config(
            connect_timeout=self.seconds("connect", _CONNECT_SECONDS),
            read_timeout=self.seconds("request", _READ_SECONDS),
            max_pool_connections=_CONNECTIONS,
            retries={"total_max_attempts": 1},
            s3={"addressing_style": "path" if self.endpoint else "auto"},
            # Stores other than Amazon's may not support its newer checksums.
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
        )
        access, secret = self.static
        # Without keys, botocore would fail at the first request only.
        _ = self.keys
        return self._found(
            lambda: self.session.create_client(
                "s3",
                region_name=self.region,
                endpoint_url=self.endpoint,
                aws_access_key_id=access,
                aws_secret_access_key=secret,
                aws_session_token=_first(self.properties, "session-token") if access else None,
                config=options,
            )
        )

    @staticmethod
    def _found(work: Callable[[], _T]) -> _T:
        """Call botocore; Arrow may accept settings that AWS's own tools cannot use."""
        from botocore import exceptions  # noqa: PLC0415 - door: remote stores only

        try:
            return work()
        except (exceptions.BotoCoreError, ValueError) as error:
            raise UnsupportedError(type(error).__name__) from error


def _whole_objects(connection: _Connection, bucket: str) -> WholeObjects | None:
    """Return the client for whole objects of a bucket; None if it does not support the store's address.

    Raises:
        UnsupportedError: only Arrow's client supports the settings.
    """
    endpoint, keys = connection.endpoint or connection.client.meta.endpoint_url, connection.keys
    is_virtual = not connection.endpoint and "." not in bucket and bool(_AMAZON.search(endpoint))
    if is_virtual:
        endpoint = endpoint.replace("://", f"://{bucket}.", 1)
    # Redirected to another host, this client would send the session token there.
    if not is_supported(endpoint) or keys()[2]:
        return None
    address = Address(
        bucket,
        endpoint,
        connection.region,
        is_virtual=is_virtual,
        authorities=os.environ.get("AWS_CA_BUNDLE"),
        connect_seconds=connection.seconds("connect", _CONNECT_SECONDS),
        read_seconds=connection.seconds("request", _READ_SECONDS),
    )
    return WholeObjects(address, keys, renews=not all(connection.static))


def _first(properties: Mapping[str, str], name: str) -> str | None:
    """Return a property under either of its two names, as PyIceberg's `_initialize_s3_fs` does."""
    return properties.get(f"s3.{name}") or properties.get(f"client.{name}")


def _seconds(text: str) -> float:
    try:
        return parsedate_to_datetime(text).timestamp()
    except (TypeError, ValueError):
        return 0.0
