"""Requests to S3 for which Arrow has no call: bulk deletes, exclusive creation, uploads left open.

They go out with the keys that Arrow would use, as far as these are keys: of the configuration, the catalog, or
wherever AWS's own tools look. Roles to be assumed and proxies of the configuration are left to Arrow.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Any, TypeVar

from lake.core.clock import Backoff

MOST_KEYS = 1000
REGION = "us-east-1"
_TRIES = 6
# The waits between requests that a busy store refuses.
BACKOFF = Backoff(0.2, 8.0, (0.5, 1.0))
_CONNECT_SECONDS, _READ_SECONDS = 10.0, 60.0
_CONNECTIONS = 32
_AT_ONCE = 4
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
_UNKNOWN_CODES = re.compile(
    "NotImplemented|MalformedXML|InvalidRequest|MethodNotAllowed|MissingContentMD5"
)
_NOT_FOUND = 404
# One of another kind, by something in between.
_NOT_AN_ANSWER = 203
# Why something was not deleted that nobody tried to.
UNTRIED = "not tried"
ShouldContinue = Callable[[], bool]
_T = TypeVar("_T")
_NOT_MET = frozenset({_NOT_FOUND, 409, 412})


def always() -> bool:
    """Go on."""
    return True


class UnsupportedError(Exception):
    """The store does not know such requests."""


class StoreError(OSError):
    """The store refused, or did not answer; its text is like that of Arrow's errors."""

    def __init__(self, text: str, status: int = 0, code: str = "") -> None:
        super().__init__(text)
        self.status = status
        self.code = code

    @property
    def is_busy(self) -> bool:
        """Whether the same request may do later."""
        return not self.status or self.status in _BUSY or bool(_BUSY_CODES.search(self.code))


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
class Held:
    """An object that is there: its contents, its version's tag, and its age in seconds by the store's clock."""

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
        """Return the way to a bucket; None where only Arrow knows it."""
        if any(_first(properties, name) for name in _ARROWS):
            return None
        client = _client(properties)
        return cls(client, bucket) if client else None

    def waiting(self, backoff: Backoff) -> S3:
        """Return the same bucket with other waits between requests that are repeated."""
        return S3(self._client, self._bucket, backoff)

    def delete(
        self, keys: Sequence[str], should_continue: ShouldContinue = always
    ) -> dict[str, str]:
        """Delete at most `MOST_KEYS` objects by one request; return why some could not be.

        A missing object counts as deleted. A request that a busy store refuses is repeated while ``should_continue``
        returns True.

        Raises:
            UnsupportedError: the store does not know such requests.
        """
        left, failed = list(keys), dict[str, str]()
        for attempt in range(1, _TRIES + 1):
            if not should_continue():
                return failed | dict.fromkeys(left, UNTRIED)
            listed = {"Quiet": False, "Objects": [{"Key": key} for key in left]}
            try:
                answer = self._ask("delete_objects", Delete=listed)
            except StoreError as error:
                return failed | dict.fromkeys(left, str(error))
            # A page of something in between names none of them.
            told = dict.fromkeys(left, "UNKNOWN")
            for item in answer.get("Deleted", ()):
                told.pop(item.get("Key", ""), None)
            told |= {item.get("Key"): item.get("Code", "") for item in answer.get("Errors", ())}
            failed |= {key: f"AWS Error {told[key]}" for key in left if key in told}
            left = [key for key in left if _BUSY_CODES.search(told.get(key, ""))]
            if not left or attempt == _TRIES:
                return failed
            failed = {key: why for key, why in failed.items() if key not in left}
            self._backoff.wait(attempt)
        return failed

    def delete_all(
        self, keys: Sequence[str], should_continue: ShouldContinue = always
    ) -> dict[str, str]:
        """Delete objects, some requests at once; see `delete`."""
        some = [keys[start : start + MOST_KEYS] for start in range(0, len(keys), MOST_KEYS)]
        with ThreadPoolExecutor(min(_AT_ONCE, len(some)) or 1) as pool:
            each = pool.map(partial(self.delete, should_continue=should_continue), some)
            return {key: why for told in each for key, why in told.items()}

    def create(self, key: str, data: bytes, *, over: str | None = None) -> str | None:
        """Create an object, or replace the version with a tag; return its tag, or None where another was first.

        Raises:
            UnsupportedError: the store does not know conditions.
            StoreError: it refused or did not answer.
        """
        condition = {"IfNoneMatch": "*"} if over is None else {"IfMatch": over}
        try:
            return self._put(key, data, condition)
        except StoreError as error:
            if error.status in _NOT_MET:
                return None
            raise

    def put(self, key: str, data: bytes) -> None:
        """Write an object in one request."""
        self._put(key, data, {})

    def _put(self, key: str, data: bytes, condition: Mapping[str, str]) -> str:
        answer = self._ask("put_object", Key=key, Body=data, **condition)
        if not answer.get("ETag"):
            raise StoreError("AWS Error UNKNOWN: an answer that tells of no object", _NOT_AN_ANSWER)
        return str(answer["ETag"])

    def get(self, key: str, most: int) -> Held | None:
        """Return a small object; None where there is none."""

        def look() -> Held:
            answer = _told(self._client.get_object, Bucket=self._bucket, Key=key)
            data = _body(answer, most)
            if answer.get("LastModified") is None:
                raise StoreError("AWS Error UNKNOWN: an answer that is no object", _NOT_AN_ANSWER)
            now = _seconds(answer["ResponseMetadata"]["HTTPHeaders"].get("date", ""))
            return Held(data, answer.get("ETag", ""), now - answer["LastModified"].timestamp())

        try:
            return self._again(look)
        except StoreError as error:
            if error.status == _NOT_FOUND:
                return None
            raise

    def remove(self, key: str) -> None:
        """Delete one object."""
        self._ask("delete_object", Key=key)

    def abort_uploads(self, prefix: str, name_part: str = "") -> int:
        """End uploads begun and never finished, to keys of a prefix with a text in them; return how many."""
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
        return self._again(lambda: _told(asked, Bucket=self._bucket, **arguments))

    def _again(self, work: Callable[[], _T]) -> _T:
        """Call ``work`` until the store is neither too busy nor away, at most `_TRIES` times."""
        for attempt in range(1, _TRIES + 1):
            try:
                return work()
            except StoreError as error:
                if not error.is_busy or attempt == _TRIES:
                    raise
            self._backoff.wait(attempt)
        raise StoreError("never asked")


def _told(call: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """Call a client.

    Raises:
        StoreError: the store refused, or did not answer.
        UnsupportedError: it does not know such requests.
    """
    from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415 - remote stores only
    from botocore.parsers import ResponseParserError  # noqa: PLC0415

    try:
        return call(*arguments, **named)
    except ClientError as error:
        # What else a store says may hold what it was sent.
        code = str(error.response.get("Error", {}).get("Code", "UNKNOWN"))[:80]
        status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
        if status in _UNKNOWN or _UNKNOWN_CODES.search(code):
            raise UnsupportedError(code) from error
        raise StoreError(f"AWS Error {code} (HTTP status {status})", status, code) from error
    except (BotoCoreError, ResponseParserError) as error:
        raise StoreError(f"AWS Error NETWORK_CONNECTION: {error}") from error


def _body(answer: Any, most: int) -> bytes:
    """Return the first bytes of an answer.

    Raises:
        StoreError: the store ended it too soon.
    """
    body = answer["Body"]
    try:
        data = bytes(_told(body.read, most))
    finally:
        body.close()
    promised = min(int(answer.get("ContentLength", len(data))), most)
    if len(data) != promised:
        raise StoreError(f"AWS Error NETWORK_CONNECTION: {len(data)} of {promised} bytes came")
    return data


def is_plain(key: str) -> bool:
    """Whether a key, or the prefix of a folder, means the same to every reader and XML can carry it."""
    return all(_PLAIN_KEY.fullmatch(part) for part in key.removesuffix("/").split("/"))


def _client(properties: Mapping[str, str]) -> Any:
    """Return a client; None where it would go elsewhere than Arrow, or has no keys."""
    from botocore import handlers  # noqa: PLC0415 - remote stores only
    from botocore.config import Config  # noqa: PLC0415
    from botocore.exceptions import BotoCoreError  # noqa: PLC0415
    from botocore.session import Session  # noqa: PLC0415

    access, secret = (_first(properties, name) for name in ("access-key-id", "secret-access-key"))
    if bool(access) != bool(secret):
        return None
    endpoint = properties.get("s3.endpoint")
    config = Config(
        connect_timeout=float(properties.get("s3.connect-timeout") or _CONNECT_SECONDS),
        read_timeout=float(properties.get("s3.request-timeout") or _READ_SECONDS),
        max_pool_connections=_CONNECTIONS,
        retries={"total_max_attempts": 1},
        s3={"addressing_style": "path" if endpoint else "auto"},
        # Other stores than Amazon's do not know its newer checksums.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
    )
    try:
        session = Session()
        # The question whether a body may come is one more round trip for each small object.
        session.unregister("before-call.s3", handlers.add_expect_header)
        region = _first(properties, "region") or session.get_config_variable("region")
        if not region or not (access or session.get_credentials()):
            return None
        return session.create_client(
            "s3",
            region_name=region,
            endpoint_url=endpoint if not endpoint or "://" in endpoint else f"https://{endpoint}",
            aws_access_key_id=access,
            aws_secret_access_key=secret,
            aws_session_token=_first(properties, "session-token") if access else None,
            config=config,
        )
    except (BotoCoreError, ValueError):
        # What AWS's own tools cannot make sense of, Arrow may.
        return None


def _first(properties: Mapping[str, str], name: str) -> str | None:
    """Return a property under its two names, those of `_initialize_s3_fs` of PyIceberg."""
    return properties.get(f"s3.{name}") or properties.get(f"client.{name}")


def _seconds(text: str) -> float:
    try:
        return parsedate_to_datetime(text).timestamp()
    except (TypeError, ValueError):
        return 0.0
