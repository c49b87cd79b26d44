"""Read objects of a bucket, or parts of them, and write whole ones, with one request each, by `obstore`.

Its client is Rust's `object_store`.

A request takes a quarter of the processor time of Arrow's client, which asks for the length first and writes in three
requests, and a fifth of botocore's. The store's own error, not a text about it, decides what is repeated; nothing is
repeated here. The client cannot say which objects of a bulk delete failed, which condition of a write was not met or
what time the store has: botocore makes these requests.

**Redirects.** The client follows redirected reads to any host, and sends the session token there (so does Arrow's
client). So all hosts but the store's, and those below its name, are asked through a proxy that does not exist:
nothing reaches them. Redirected writes, and redirects from https to http, are not followed either. With a proxy of
the user's, redirected reads go through it; what redirects there has the token already, without the key that signs.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

import pyarrow as pa

from lake.core.io.objects.requests import (
    ANONYMOUS,
    NOT_A_RESPONSE,
    NOT_FOUND,
    NOT_THERE,
    Keys,
    StoreError,
    UnsupportedError,
    refusal,
    timed_out,
)
from lake.core.io.objects.waits import awaited

if TYPE_CHECKING:
    from obstore import SuffixRange
    from obstore.store import ClientConfig, S3Credential

_T = TypeVar("_T")
UNTRUSTED = "no trusted connection"
_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>\s*([^<\s]{1,80})\s*</Code>")
_REDIRECTS, _REDIRECT = range(300, 400), 307
_NO_RANGE = 416
# The end of every request, which the read timeout ends before if nothing arrives.
_LONGEST = "1h"
# A write of more bytes than these may take as much longer: nothing arrives before all of them are sent.
_MANY_BYTES, SENDING_SECONDS = 1024 * 1024, 240.0
# Where no server can be: connections to it are refused at once.
_NOWHERE = "127.0.0.1:0"
# object_store panics on the addresses of other servers.
_HOST = re.compile(r"[A-Za-z0-9.\-]+|\[[0-9A-Fa-f:.]+\]")
# The reasons for which there is no answer, in the words of Rust's HTTP client.
_NOT_THERE = (
    (re.compile("dns error|failed to lookup"), "failed to resolve the name of the host"),
    (re.compile("ConnectionRefused|[Cc]onnection refused"), "connection refused"),
)
_TIMED_OUT = re.compile("TimedOut|timed out")


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
        proxy: the URI of the proxy, with its password; None to ask the store itself.
        connect_seconds: how long a connection may take.
        read_seconds: how long nothing may arrive.
    """

    bucket: str
    endpoint: str
    region: str
    is_virtual: bool = False
    authorities: str | None = None
    proxy: str | None = field(default=None, repr=False)
    connect_seconds: float = 10.0
    read_seconds: float = 60.0

    @property
    def host(self) -> str:
        """The host and the port that are asked."""
        return urlsplit(self.endpoint).netloc


@dataclass(frozen=True, slots=True)
class Found:
    """An object: its length in bytes, its contents (None if it is longer than was asked for), and its ETag."""

    size: int
    data: pa.Buffer | None
    tag: str = ""


@dataclass(frozen=True, slots=True)
class Part:
    """Bytes of an object.

    Args:
        size: the length of the whole object in bytes.
        tag: the ETag of its version.
        start: the position of the first byte.
        data: the bytes.
    """

    size: int
    tag: str
    start: int
    data: pa.Buffer


class Runtime:
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
        keys: those that requests are signed with, which do not change.
    """

    address: Address
    keys: Keys
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
                raise _shortened(len(data), size)
            return Found(size, data, found.meta["e_tag"] or "")

        return self._unless(NOT_FOUND, request)

    def has_any(self, prefix: str) -> bool:
        """Whether there is an object below a prefix that ends at a slash; see `get`."""
        from obstore import exceptions  # noqa: PLC0415 - door: remote stores only

        def request() -> bool:
            try:
                return any(self._client.list(self._store, prefix))
            except exceptions.InvalidPathError:
                # There is an object, with a key that this client does not support.
                return True

        return bool(self._unless(NOT_FOUND, request))

    def part(self, key: str, start: int, size: int) -> Part | None:
        """Return bytes of an object, fewer than requested at its end; None if it does not exist.

        Raises:
            StoreError: the store refused the request, or did not answer.
            UnsupportedError: this client does not support the request.
        """
        nothing = Part(0, "", start, pa.py_buffer(b""))
        if size <= 0:
            return nothing
        try:
            return self._ranged(key, (start, start + size))
        except StoreError as error:
            if error.status == _NO_RANGE:
                return nothing
            raise

    def end(self, key: str, most: int) -> Part | None:
        """Return the last bytes of an object, all of a small one; None if it does not exist.

        Raises:
            StoreError: the store refused the request, or did not answer.
            UnsupportedError: the store or this client does not support the request.
        """
        try:
            return self._ranged(key, {"suffix": most})
        except StoreError as error:
            if error.status not in {_NO_RANGE, NOT_A_RESPONSE}:
                raise
        # An empty object has no last bytes; and a store may answer with all of a small object.
        found = self.get(key, most)
        if found is None:
            return None
        if found.data is None:
            raise UnsupportedError("ranges")
        return Part(found.size, "", 0, found.data)

    def _ranged(self, key: str, wanted: tuple[int, int] | SuffixRange) -> Part | None:
        def request() -> Part:
            found = self._client.get(self._store, key, options={"range": wanted})
            meta, (start, stop) = found.meta, found.range
            _check_time(meta["last_modified"])
            data = pa.py_buffer(found.bytes())
            if data.size != stop - start:
                raise _shortened(data.size, stop - start)
            return Part(int(meta["size"]), meta["e_tag"] or "", start, data)

        return self._unless(NOT_FOUND, request)

    def head(self, key: str) -> tuple[int, int] | None:
        """Return an object's length in bytes and its last change in ms since 1970; None if it does not exist.

        Raises:
            StoreError: the store refused the request, or did not answer.
            UnsupportedError: this client does not support the request.
        """

        def request() -> tuple[int, int]:
            meta = self._client.head(self._store, key)
            _check_time(meta["last_modified"])
            return int(meta["size"]), round(meta["last_modified"].timestamp() * 1000)

        try:
            return self._unless(NOT_FOUND, request)
        except StoreError as error:
            # The answer has no body that says why: the keys may have expired.
            raise StoreError(f"{error} during HeadObject", error.status, error.code) from None

    def put(self, key: str, data: bytes | pa.Buffer) -> None:
        """Write an object, over another of the same key if there is one.

        Raises:
            StoreError: the store refused the request, or did not answer.
            UnsupportedError: this client does not support the request.
        """
        view = memoryview(data).cast("B")

        def request() -> None:
            store = self._slow_store if view.nbytes > _MANY_BYTES else self._store
            self._client.put(store, key, view, use_multipart=False)

        self._call(request)

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
        Runtime.require()
        if not self._is_trusted:
            raise UnsupportedError(UNTRUSTED)
        from obstore import exceptions  # noqa: PLC0415 - door: remote stores only

        try:
            return awaited(self.address.host, work)
        except StoreError:
            raise
        except ValueError:
            # A key with an empty part, which S3 allows.
            raise UnsupportedError("the object's key") from None
        except (exceptions.BaseError, OSError) as error:
            # The text of an answer may repeat the request, with its secrets.
            known = self._known(str(error))
            self._is_trusted = str(known) != UNTRUSTED
            raise known from None

    def _known(self, text: str) -> Exception:
        """Return the error for the text of one of the client's."""
        if _TIMED_OUT.search(text) and not _STATUS.search(text):
            return timed_out(self.address.host)
        return _translated(text)

    @property
    def _client(self) -> Any:
        import obstore  # noqa: PLC0415 - door: remote stores only

        return obstore

    @cached_property
    def _store(self) -> Any:
        return self._open(self._options(), {"max_retries": 0})

    @cached_property
    def _slow_store(self) -> Any:
        """The store for writes of many bytes."""
        return self._open(self._options(SENDING_SECONDS), {"max_retries": 0})

    def _open(self, options: ClientConfig, retries: Any) -> Any:
        from obstore.store import S3Store  # noqa: PLC0415 - door: remote stores only

        address = self.address
        return S3Store(
            address.bucket,
            endpoint=address.endpoint,
            aws_endpoint_url_s3=address.endpoint,
            region=address.region,
            virtual_hosted_style_request=address.is_virtual,
            skip_signature=self.keys == ANONYMOUS,
            client_options=options,
            retry_config=retries,
            credential_provider=self._credentials,
        )

    def _options(self, sending_seconds: float = 0.0) -> ClientConfig:
        address = self.address
        options: ClientConfig = {
            "allow_http": address.endpoint.startswith("http:"),
            "connect_timeout": f"{round(address.connect_seconds * 1000)}ms",
            "read_timeout": f"{round((address.read_seconds + sending_seconds) * 1000)}ms",
            "timeout": _LONGEST,
            # What is not stated would be read from the environment.
            "proxy_url": address.proxy or f"http://{_NOWHERE}",
            "proxy_excludes": "" if address.proxy else urlsplit(address.endpoint).hostname or "",
        }
        if address.authorities:
            with open(address.authorities, "rb") as file:
                options["root_certificate"] = file.read()
        return options

    def _credentials(self) -> S3Credential:
        keys = self.keys
        return {
            "access_key_id": keys.access,
            "secret_access_key": keys.secret,
            "token": keys.token,
            "expires_at": None,
        }


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


def _shortened(found: int, promised: int) -> StoreError:
    return StoreError(f"AWS Error NETWORK_CONNECTION: got {found} of {promised} bytes")


def _translated(text: str) -> StoreError | UnsupportedError:
    """Return the error for the text of one of the client's."""
    status = _STATUS.search(text)
    if status:
        number, code = int(status[1]), _CODE.search(text)
        if number in _REDIRECTS:
            return _redirected(number)
        return refusal(number, code[1] if code else "UNKNOWN")
    if "extract metadata" in text:
        return StoreError("AWS Error UNKNOWN: the response has no ETag", NOT_A_RESPONSE)
    if "non-partial" in text:
        return StoreError("AWS Error UNKNOWN: the response is not a part", NOT_A_RESPONSE)
    if _NOT_TRUSTED.search(text):
        return UnsupportedError(UNTRUSTED)
    if f"{_NOWHERE}," in text or "BareRedirect" in text:
        return _redirected(_REDIRECT)
    for pattern, why in _NOT_THERE:
        if pattern.search(text):
            return StoreError(f"AWS Error NETWORK_CONNECTION: {why}", code=NOT_THERE)
    return StoreError("AWS Error NETWORK_CONNECTION: the connection failed")


def _redirected(status: int) -> StoreError:
    # Arrow's client, which would follow it, is not asked.
    text = f"AWS Error REDIRECTED (HTTP status {status}): the store names another host or region"
    return StoreError(text, status, "Redirected")
