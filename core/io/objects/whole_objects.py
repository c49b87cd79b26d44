"""Read and write whole objects of a bucket with one request each, by `obstore` (Rust's `object_store`).

A request takes a quarter of the processor time of Arrow's client, which asks for the length first and writes in three
requests, and a fifth of botocore's. The store's own error, not a text about it, decides what is repeated; nothing is
repeated here. The client cannot say which objects of a bulk delete failed, which condition of a write was not met or
what time the store has: botocore makes these requests.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

import pyarrow as pa

from lake.core.base.clock import Clock, SystemClock
from lake.core.io.objects.requests import (
    NOT_A_RESPONSE,
    NOT_FOUND,
    NOT_THERE,
    Keys,
    StoreError,
    UnsupportedError,
    refusal,
)

if TYPE_CHECKING:
    from obstore.store import ClientConfig, S3Credential

_T = TypeVar("_T")
# Reasons for which another client may be able to make a request.
UNTRUSTED = "no trusted connection"
# A key with an empty part, which S3 allows.
UNUSUAL_KEY = "the object's key"
_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>\s*([^<\s]{1,80})\s*</Code>")
_REDIRECTS = range(300, 400)
_NO_RANGE = 416
# The end of every request, which the read timeout ends before if nothing arrives.
_LONGEST = "1h"
# object_store panics on the addresses of other servers.
_HOST = re.compile(r"[A-Za-z0-9.\-]+|\[[0-9A-Fa-f:.]+\]")
# The reasons for which there is no answer, in the words of Rust's HTTP client; and whether the next try may succeed.
_NO_ANSWER = (
    (re.compile("dns error|failed to lookup"), "failed to resolve the name of the host", False),
    (re.compile("ConnectionRefused|[Cc]onnection refused"), "connection refused", False),
    (re.compile("TimedOut|timed out"), "timed out", True),
)


# This client refuses certificates that the others accept, such as one that signs itself and may sign others.
_NOT_TRUSTED = re.compile("InvalidCertificate|InvalidMessage|CorruptMessage|AlertReceived")


@dataclass(frozen=True, slots=True)
class Address:
    """Where a bucket is, and how it is asked.

    Args:
        bucket: its name.
        endpoint: the URI of the store; with the bucket's name in the host if `is_virtual`.
        region: the region that requests are signed for.
        is_virtual: whether the host names the bucket; otherwise the path does.
        authorities: the file of additional trusted authorities; None for the system's only.
        connect_seconds: how long a connection may take.
        read_seconds: how long nothing may arrive.
    """

    bucket: str
    endpoint: str
    region: str
    is_virtual: bool = False
    authorities: str | None = None
    connect_seconds: float = 10.0
    read_seconds: float = 60.0


@dataclass(frozen=True, slots=True)
class Found:
    """An object: its length in bytes, and its contents; None if it is longer than was asked for."""

    size: int
    data: pa.Buffer | None


class _Runtime:
    """The process in which the client's threads are: they do not exist in its forks, where requests would hang."""

    process: int | None = None

    @classmethod
    def require(cls) -> None:
        """Check that this process is not a fork of one that has made requests.

        Raises:
            UnsupportedError: it is one.
        """
        cls.process = cls.process or os.getpid()
        if cls.process != os.getpid():
            raise UnsupportedError("a fork of a process that has made requests")


@dataclass
class WholeObjects:
    """The objects of one bucket; threads may share it.

    Args:
        address: where the bucket is.
        keys: returns the current keys; called again after some minutes.
        renews: whether the keys change.
        clock: the source of the time.
    """

    address: Address
    keys: Keys = field(repr=False)
    renews: bool = False
    clock: Clock | None = None
    _is_trusted: bool = field(default=True, init=False)

    def get(self, key: str, most: int | None = None) -> Found | None:
        """Return an object; None if it does not exist.

        Args:
            key: the object's key.
            most: the contents of a longer object are not returned.

        Raises:
            StoreError: the store refused the request, or did not answer.
            UnsupportedError: this client does not support the request.
        """

        def request() -> Found:
            found = self._client.get(self._store, key)
            _check_time(found.meta["last_modified"])
            size = int(found.meta["size"])
            if most is not None and size > most:
                return Found(size, None)
            data = pa.py_buffer(found.bytes())
            if len(data) != size:
                raise StoreError(f"AWS Error NETWORK_CONNECTION: got {len(data)} of {size} bytes")
            return Found(size, data)

        return self._unless(NOT_FOUND, request)

    def part(self, key: str, start: int, size: int) -> bytes | None:
        """Return bytes of an object, fewer than requested at its end; None if it does not exist.

        Raises:
            StoreError: the store refused the request, or did not answer.
            UnsupportedError: this client does not support the request.
        """

        def request() -> bytes:
            options = {"range": (start, start + size)}
            found = self._client.get(self._store, key, options=options)
            _check_time(found.meta["last_modified"])
            return bytes(found.bytes())

        if size <= 0:
            return b""
        try:
            return self._unless(NOT_FOUND, request)
        except StoreError as error:
            if error.status == _NO_RANGE:
                return b""
            raise

    def put(self, key: str, data: bytes | pa.Buffer) -> None:
        """Write an object, over another of the same key if there is one.

        Raises:
            StoreError: the store refused the request, or did not answer.
            UnsupportedError: this client does not support the request.
        """
        self._call(
            lambda: self._client.put(self._store, key, memoryview(data), use_multipart=False)
        )

    def create(self, key: str, data: bytes) -> bool:
        """Write an object only if there is none of its key; return False if the store says that there may be one.

        Raises:
            StoreError: the store refused the request, or did not answer.
            UnsupportedError: the store or this client does not support the request.
        """
        from obstore import exceptions  # noqa: PLC0415 - door: remote stores only

        def request() -> bool:
            try:
                self._client.put(self._store, key, data, mode="create", use_multipart=False)
            except (exceptions.AlreadyExistsError, exceptions.PreconditionError):
                return False
            return True

        return self._call(request)

    def _unless(self, status: int, work: Callable[[], _T]) -> _T | None:
        try:
            return self._call(work)
        except StoreError as error:
            if error.status == status:
                return None
            raise

    def _call(self, work: Callable[[], _T]) -> _T:
        _Runtime.require()
        if not self._is_trusted:
            raise UnsupportedError(UNTRUSTED)
        from obstore import exceptions  # noqa: PLC0415 - door: remote stores only

        try:
            return work()
        except StoreError:
            raise
        except ValueError:
            raise UnsupportedError(UNUSUAL_KEY) from None
        except (exceptions.BaseError, OSError) as error:
            # The text of an answer may repeat the request, with its secrets.
            known = self._known(str(error))
            self._is_trusted = str(known) != UNTRUSTED
            raise known from None

    def _known(self, text: str) -> Exception:
        """Return the error for the text of one of the client's."""
        return _translated(text)

    @property
    def _client(self) -> Any:
        import obstore  # noqa: PLC0415 - door: remote stores only

        return obstore

    @cached_property
    def _store(self) -> Any:
        from obstore.store import S3Store  # noqa: PLC0415 - door: remote stores only

        address = self.address
        return S3Store(
            address.bucket,
            # What is not stated would be read from the environment.
            endpoint=address.endpoint,
            aws_endpoint_url_s3=address.endpoint,
            region=address.region,
            virtual_hosted_style_request=address.is_virtual,
            skip_signature=False,
            client_options=self._options(),
            retry_config={"max_retries": 0},
            credential_provider=self._credentials,
        )

    def _options(self) -> ClientConfig:
        address = self.address
        options: ClientConfig = {
            "allow_http": address.endpoint.startswith("http:"),
            "connect_timeout": f"{round(address.connect_seconds * 1000)}ms",
            "read_timeout": f"{round(address.read_seconds * 1000)}ms",
            "timeout": _LONGEST,
        }
        if address.authorities:
            with open(address.authorities, "rb") as file:
                options["root_certificate"] = file.read()
        return options

    def _credentials(self) -> S3Credential:
        access, secret, token = self.keys()
        return {
            "access_key_id": access,
            "secret_access_key": secret,
            "token": token,
            "expires_at": self._renewal() if self.renews else None,
        }

    def _renewal(self) -> datetime:
        """Return when the client asks for the keys again, and the five minutes by which it is early."""
        now_ms = (self.clock or SystemClock()).now_ms()
        return datetime.fromtimestamp(now_ms / 1000, UTC) + timedelta(minutes=10)


def is_supported(endpoint: str) -> bool:
    """Whether the URI of a store is one that this client can ask."""
    try:
        parts = urlsplit(endpoint)
        port = parts.port
    except ValueError:
        return False
    host = parts.netloc if port is None else parts.netloc.rpartition(":")[0]
    is_plain = not (parts.query or parts.fragment) and parts.path in {"", "/"}
    return parts.scheme in {"http", "https"} and is_plain and bool(_HOST.fullmatch(host))


def _check_time(changed: datetime) -> None:
    """Check that an answer has the time of an object's last change, as every answer of S3 has.

    Raises:
        StoreError: it has none, for example because it is a page of a portal.
    """
    if not changed.timestamp():
        raise StoreError("AWS Error UNKNOWN: the response is not an object", NOT_A_RESPONSE)


def _translated(text: str) -> StoreError | UnsupportedError:
    """Return the error for the text of one of the client's."""
    status = _STATUS.search(text)
    if status:
        number, code = int(status[1]), _CODE.search(text)
        if number in _REDIRECTS:
            # The bucket is in another region, which the other clients find.
            return UnsupportedError("redirected")
        return refusal(number, code[1] if code else "UNKNOWN")
    if "credential" in text:
        return UnsupportedError("no credentials")
    if "extract metadata" in text:
        return StoreError("AWS Error UNKNOWN: the response has no ETag", NOT_A_RESPONSE)
    if _NOT_TRUSTED.search(text):
        return UnsupportedError(UNTRUSTED)
    for pattern, why, may_succeed in _NO_ANSWER:
        if pattern.search(text):
            code_ = "" if may_succeed else NOT_THERE
            return StoreError(f"AWS Error NETWORK_CONNECTION: {why}", code=code_)
    return StoreError("AWS Error NETWORK_CONNECTION: the connection failed")
