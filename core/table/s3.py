"""Requests to S3 for which Arrow has no call: bulk deletes, exclusive creation, uploads left open.

Signed as AWS's signature version 4 says, with the keys that Arrow would use, as far as they can be known here:
of the configuration, the catalog, the environment or a profile; roles and machines' own are left to Arrow.
"""

from __future__ import annotations

import base64
import configparser
import hashlib
import hmac
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit
from xml.etree import ElementTree as ET
from xml.sax.saxutils import escape

from lake.core.clock import SystemClock, SystemIds
from lake.core.redaction import Redactor

if TYPE_CHECKING:
    import urllib3

MOST_KEYS = 1000
REGION = "us-east-1"
_TRIES = 6
_LONGEST_WAIT_SECONDS = 8.0
_CONNECT_SECONDS, _READ_SECONDS = 10.0, 60.0
_CONNECTIONS = 32
_AT_ONCE = 4
_MAX_ANSWER = 8 * 1024 * 1024
_MAX_LISTED = 10_000
_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
_REGIONS = ("AWS_REGION", "AWS_DEFAULT_REGION")
# Settings under which others than these keys and hosts count; Arrow knows them.
_ARROWS = ("role-arn", "proxy-uri", "anonymous", "force-virtual-addressing")
# What XML can carry, and no name that Arrow takes for another.
_PLAIN_KEY = re.compile(r"(?!\.{1,2}(?:/|$))[^\x00-\x1f\x7f\ufffe\uffff]+", re.DOTALL)
_BUSY = frozenset({429, 500, 502, 503, 504})
_BUSY_CODES = re.compile(r"slow.?down|internal.?error|unavailable|throttl|timeout", re.IGNORECASE)
# Stores that speak S3 but not this part of it.
_UNKNOWN = frozenset({405, 411, 501})
_UNKNOWN_CODES = re.compile("NotImplemented|MalformedXML|InvalidRequest|MethodNotAllowed")


class UnsupportedError(Exception):
    """The store does not know such requests."""


class StoreError(OSError):
    """The store refused, or did not answer; its text is like that of Arrow's errors."""


def completed(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return storage properties with what AWS's own tools take from the environment: endpoint and region.

    With an endpoint of one's own and no region, Arrow would ask AWS for the bucket's.
    """
    found = dict(properties)
    if os.environ.get("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "").lower() != "true":
        _fill(found, "s3.endpoint", _ENDPOINTS)
    if found.get("s3.endpoint"):
        _fill(found, "s3.region", _REGIONS)
        if not (found.get("s3.region") or found.get("client.region")):
            found["s3.region"] = REGION
    return found


def _fill(properties: dict[str, Any], key: str, names: Iterable[str]) -> None:
    told = next((os.environ[name] for name in names if os.environ.get(name)), None)
    if told and not properties.get(key) and not properties.get(key.replace("s3.", "client.")):
        properties[key] = told


@dataclass(frozen=True, slots=True)
class _Keys:
    access: str = field(repr=False)
    secret: str = field(repr=False)
    token: str | None = field(repr=False)


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def code(self) -> str:
        """S3's name of what went wrong, if it says one."""
        found = re.search(rb"<Code>([\w.]{1,80})</Code>", self.body)
        return found.group(1).decode() if found else ""

    @property
    def is_busy(self) -> bool:
        return self.status in _BUSY or bool(_BUSY_CODES.search(self.code))

    @property
    def error(self) -> StoreError:
        return StoreError(f"AWS Error {self.code or 'UNKNOWN'} (HTTP status {self.status})")


@dataclass(frozen=True, slots=True)
class Held:
    """An object that is there: its contents, its version's tag, and its age in seconds by the store's clock."""

    data: bytes
    tag: str
    age_seconds: float


class S3:
    """One bucket, by one set of credentials; threads may share it."""

    def __init__(self, properties: Mapping[str, str], bucket: str, keys: _Keys) -> None:
        self._keys = keys
        self._region = _first(properties, "region") or REGION
        endpoint = properties.get("s3.endpoint")
        parts = urlsplit(endpoint if endpoint and "://" in endpoint else f"https://{endpoint}")
        suffix = ".cn" if self._region.startswith("cn-") else ""
        host = f"s3.{self._region}.amazonaws.com{suffix}"
        self._scheme = parts.scheme
        self._host, self._base = parts.netloc.rpartition("@")[2], f"/{quote(bucket)}"
        if not endpoint:
            # A certificate covers no bucket with a dot in its name.
            self._host, self._base = (
                (host, self._base) if "." in bucket else (f"{bucket}.{host}", "")
            )
        self._pool = _pool(
            float(properties.get("s3.connect-timeout") or _CONNECT_SECONDS),
            float(properties.get("s3.request-timeout") or _READ_SECONDS),
        )

    @classmethod
    def of(cls, properties: Mapping[str, str], bucket: str) -> S3 | None:
        """Return the way to a bucket; None where only Arrow knows it."""
        if any(
            properties.get(f"s3.{name}") or properties.get(f"client.{name}") for name in _ARROWS
        ):
            return None
        keys = _keys(properties)
        known = properties.get("s3.endpoint") or _first(properties, "region")
        return cls(properties, bucket, keys) if keys and known else None

    def delete(self, keys: Sequence[str]) -> dict[str, str]:
        """Delete at most `MOST_KEYS` objects by one request; return why some could not be.

        One that is not there counts as deleted. What the store is too busy for is asked for again.

        Raises:
            UnsupportedError: the store does not know such requests.
        """
        left, failed = list(keys), dict[str, str]()
        for attempt in range(1, _TRIES + 1):
            try:
                answer = self._ask("POST", "", {"delete": ""}, _wanted(left))
            except StoreError as error:
                return failed | dict.fromkeys(left, str(error))
            told = _failures(answer.body)
            busy = [key for key in left if key in told and _BUSY_CODES.search(told[key])]
            failed |= {key: f"AWS Error {code}" for key, code in told.items() if key in left}
            if not busy or attempt == _TRIES:
                return failed
            failed = {key: why for key, why in failed.items() if key not in busy}
            left = busy
            _wait(attempt)
        return failed

    def delete_all(self, keys: Sequence[str]) -> dict[str, str]:
        """Delete objects, some requests at once; see `delete`."""
        some = [keys[start : start + MOST_KEYS] for start in range(0, len(keys), MOST_KEYS)]
        with ThreadPoolExecutor(min(_AT_ONCE, len(some)) or 1) as pool:
            return {key: why for told in pool.map(self.delete, some) for key, why in told.items()}

    def create(self, key: str, data: bytes, *, over: str | None = None) -> str | None:
        """Create an object, or replace the version with a tag; return its tag, or None where another was first.

        Raises:
            UnsupportedError: the store does not know conditions.
            StoreError: it refused or did not answer.
        """
        condition = {"If-None-Match": "*"} if over is None else {"If-Match": over}
        answer = self._send("PUT", key, {}, data, condition)
        if answer.status in {404, 409, 412}:
            return None
        self._check(answer)
        return answer.headers.get("etag", "")

    def put(self, key: str, data: bytes) -> None:
        """Write an object in one request."""
        self._ask("PUT", key, {}, data)

    def get(self, key: str, most: int) -> Held | None:
        """Return a small object; None where there is none."""
        answer = self._send("GET", key, {}, b"", {"Range": f"bytes=0-{most - 1}"})
        if answer.status == 404:  # noqa: PLR2004 - HTTP's own number
            return None
        # An empty object has no such range.
        if answer.status != 416:  # noqa: PLR2004
            self._check(answer)
        headers = answer.headers
        written, now = (_time(headers.get(name, "")) for name in ("last-modified", "date"))
        return Held(answer.body[:most], headers.get("etag", ""), now - written)

    def remove(self, key: str) -> None:
        """Delete one object."""
        self._ask("DELETE", key, {}, b"")

    def abort_uploads(self, prefix: str, name_part: str = "") -> int:
        """End uploads begun and never finished, to keys of a prefix with a text in them; return how many."""
        ended = 0
        for key, upload in [item for item in self._uploads(prefix) if name_part in item[0]]:
            self._ask("DELETE", key, {"uploadId": upload}, b"")
            ended += 1
        return ended

    def _uploads(self, prefix: str) -> Iterator[tuple[str, str]]:
        after: dict[str, str] = {}
        for _ in range(0, _MAX_LISTED, MOST_KEYS):
            query = {"uploads": "", "prefix": prefix, **after}
            root = _parsed(self._ask("GET", "", query, b"").body)
            for item in root.iter("Upload"):
                if (key := item.findtext("Key") or "").startswith(prefix):
                    yield key, item.findtext("UploadId") or ""
            marks = (root.findtext("NextKeyMarker"), root.findtext("NextUploadIdMarker"))
            if root.findtext("IsTruncated") != "true" or not marks[0]:
                return
            after = {"key-marker": marks[0], "upload-id-marker": marks[1] or ""}

    def _ask(self, method: str, key: str, query: Mapping[str, str], body: bytes) -> _Answer:
        answer = self._send(method, key, query, body, {})
        self._check(answer)
        return answer

    def _check(self, answer: _Answer) -> None:
        if answer.status in _UNKNOWN or _UNKNOWN_CODES.search(answer.code):
            raise UnsupportedError(answer.code or str(answer.status))
        if not 200 <= answer.status < 300:  # noqa: PLR2004 - HTTP's own numbers
            raise answer.error

    def _send(
        self,
        method: str,
        key: str,
        query: Mapping[str, str],
        body: bytes,
        headers: Mapping[str, str],
    ) -> _Answer:
        for attempt in range(1, _TRIES + 1):
            try:
                answer = self._once(method, key, query, body, headers)
            except StoreError:
                if attempt == _TRIES:
                    raise
            else:
                if not answer.is_busy or attempt == _TRIES:
                    return answer
            _wait(attempt)
        raise StoreError("never asked")

    def _once(
        self,
        method: str,
        key: str,
        query: Mapping[str, str],
        body: bytes,
        headers: Mapping[str, str],
    ) -> _Answer:
        import urllib3  # noqa: PLC0415 - remote stores only

        path = f"{self._base}/{quote(key, safe='/-_.~')}"
        asked = "&".join(
            f"{quote(k, safe='')}={quote(v, safe='')}" for k, v in sorted(query.items())
        )
        signed = self._signed(method, path, asked, body, headers)
        address = f"{self._scheme}://{self._host}{path}{'?' if asked else ''}{asked}"
        try:
            response = self._pool.request(
                method,
                address,
                body=body or None,
                headers=signed,
                redirect=False,
                retries=False,
                preload_content=False,
            )
            try:
                content = response.read(_MAX_ANSWER, decode_content=True)
            finally:
                response.release_conn()
        except (urllib3.exceptions.HTTPError, OSError) as error:
            redact = Redactor()
            redact.learn({"token": self._keys.token or "", "secret": self._keys.secret})
            raise StoreError(f"AWS Error NETWORK_CONNECTION: {redact(str(error))}") from error
        told = {name.lower(): text for name, text in response.headers.items()}
        return _Answer(response.status, told, content)

    def _signed(
        self, method: str, path: str, query: str, body: bytes, headers: Mapping[str, str]
    ) -> dict[str, str]:
        """Return all headers of a request (AWS Signature Version 4, as for S3)."""
        moment = datetime.fromtimestamp(SystemClock().now_ms() / 1000, UTC)
        day, time = moment.strftime("%Y%m%d"), moment.strftime("%Y%m%dT%H%M%SZ")
        digest = hashlib.sha256(body).hexdigest()
        sent = {"host": self._host, "x-amz-content-sha256": digest, "x-amz-date": time}
        if self._keys.token:
            sent["x-amz-security-token"] = self._keys.token
        if method == "POST":
            # Of a bulk delete S3 demands a checksum of its own.
            sum_ = hashlib.md5(body, usedforsecurity=False).digest()
            sent["content-md5"] = base64.b64encode(sum_).decode()
        sent.update({name.lower(): text for name, text in headers.items()})
        names = ";".join(sorted(sent))
        lines = "".join(f"{name}:{sent[name].strip()}\n" for name in sorted(sent))
        request = f"{method}\n{path}\n{query}\n{lines}\n{names}\n{digest}"
        scope = f"{day}/{self._region}/s3/aws4_request"
        hashed = hashlib.sha256(request.encode()).hexdigest()
        key = f"AWS4{self._keys.secret}".encode()
        for part in scope.split("/"):
            key = hmac.digest(key, part.encode(), "sha256")
        text = f"AWS4-HMAC-SHA256\n{time}\n{scope}\n{hashed}"
        signature = hmac.digest(key, text.encode(), "sha256").hex()
        sent["authorization"] = (
            f"AWS4-HMAC-SHA256 Credential={self._keys.access}/{scope}, "
            f"SignedHeaders={names}, Signature={signature}"
        )
        return {**sent, "content-length": str(len(body))}


def is_plain(key: str) -> bool:
    """Whether a key, or the prefix of a folder, means the same to every reader and XML can carry it."""
    return all(_PLAIN_KEY.fullmatch(part) for part in key.removesuffix("/").split("/"))


@lru_cache(maxsize=4)
def _pool(connect: float, read: float) -> urllib3.PoolManager:
    import urllib3  # noqa: PLC0415 - remote stores only

    authorities = os.environ.get("AWS_CA_BUNDLE") or None
    return urllib3.PoolManager(
        num_pools=8,
        maxsize=_CONNECTIONS,
        timeout=urllib3.Timeout(connect=connect, read=read),
        ca_certs=authorities,
    )


def _first(properties: Mapping[str, str], name: str) -> str | None:
    """Return a property under its two names, those of `_initialize_s3_fs` of PyIceberg."""
    return properties.get(f"s3.{name}") or properties.get(f"client.{name}")


def _keys(properties: Mapping[str, str]) -> _Keys | None:
    access, secret = (_first(properties, name) for name in ("access-key-id", "secret-access-key"))
    if access and secret:
        return _Keys(access, secret, _first(properties, "session-token"))
    if access or secret:
        return None
    environment = os.environ
    if environment.get("AWS_ACCESS_KEY_ID") and environment.get("AWS_SECRET_ACCESS_KEY"):
        return _Keys(
            environment["AWS_ACCESS_KEY_ID"],
            environment["AWS_SECRET_ACCESS_KEY"],
            environment.get("AWS_SESSION_TOKEN"),
        )
    return _keys_of_profile()


def _keys_of_profile() -> _Keys | None:
    """Return the keys that a profile holds itself."""
    default = Path.home() / ".aws" / "credentials"
    place = os.environ.get("AWS_SHARED_CREDENTIALS_FILE") or default
    parser = configparser.RawConfigParser()
    try:
        parser.read(place, encoding="utf-8")
        profile = os.environ.get("AWS_PROFILE") or os.environ.get("AWS_DEFAULT_PROFILE")
        told = dict(parser.items(profile or "default"))
    except (OSError, ValueError, configparser.Error):
        return None
    access, secret = told.get("aws_access_key_id"), told.get("aws_secret_access_key")
    if not access or not secret:
        return None
    return _Keys(access, secret, told.get("aws_session_token") or None)


def _wanted(keys: Iterable[str]) -> bytes:
    listed = "".join(f"<Object><Key>{escape(key)}</Key></Object>" for key in keys)
    space = "http://s3.amazonaws.com/doc/2006-03-01/"
    return f'<Delete xmlns="{space}"><Quiet>true</Quiet>{listed}</Delete>'.encode()


def _failures(body: bytes) -> dict[str, str]:
    """Return the keys that a bulk delete's answer names as failed, and why."""
    return {
        item.findtext("Key") or "": item.findtext("Code") or "UNKNOWN"
        for item in _parsed(body).iter("Error")
    }


def _parsed(body: bytes) -> ET.Element:
    """Parse an answer; names lose their name spaces.

    Raises:
        StoreError: it is no XML.
    """
    try:
        # Expat bounds what entities grow to, and the answer is bounded itself.
        root = ET.fromstring(body)  # noqa: S314
    except ET.ParseError as error:
        raise StoreError(f"AWS Error UNKNOWN (HTTP status 200): no XML: {error}") from error
    for item in root.iter():
        item.tag = item.tag.rpartition("}")[2]
    return root


def _wait(attempt: int) -> None:
    base = min(0.1 * 2**attempt, _LONGEST_WAIT_SECONDS)
    SystemClock().sleep(base * (0.5 + SystemIds().jitter() / 2))


def _time(text: str) -> float:
    try:
        return parsedate_to_datetime(text).timestamp()
    except (TypeError, ValueError):
        return 0.0
