"""Objects of Google's and Azure's stores, each operation by `obstore`.

Beyond whole objects, which every store has: conditional replacement, lists, deletions and parts of large objects. All
of a store's answers are checked as those of S3 are; no request is repeated here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from lake.core.base.errors import NotAuthorisedError
from lake.core.io.objects.requests import (
    ANONYMOUS,
    NOT_A_RESPONSE,
    NOT_FOUND,
    TRIES,
    StoreError,
    UnsupportedError,
    refusal,
    timed_out,
)
from lake.core.io.objects.waits import awaited
from lake.core.io.objects.whole_objects import SENDING_SECONDS, UNTRUSTED, Address, WholeObjects

if TYPE_CHECKING:
    from obstore.store import ClientConfig

_T = TypeVar("_T")
# A large object is written in parts of this length, several at the same time.
_PART_BYTES = 8 * 1024 * 1024
_PARTS_AT_ONCE = 4
# The setting of a login, and the end of one that is asked for before each request.
_LOGIN_SETTING = "credential_provider"
_ASKED_AGAIN = datetime.fromtimestamp(0, UTC)
_FIRST_WAIT, _LONGEST_WAIT = timedelta(milliseconds=200), timedelta(seconds=20)
_LONGEST_RETRY = timedelta(minutes=3)
# A status with which a request is not repeated.
_NOT_SUPPORTED = 501
# The client's words about one object of a request for many.
_OF_ONE = re.compile(r"Bulk delete request failed for key .*\(code: (\d{3})\)(?:\n|$)")
# The client's words about requests for a login.
_LOGIN = re.compile("Error performing token request|get-access-token|service account")


@dataclass(frozen=True, slots=True)
class Entry:
    """An object, or a folder, which is the common beginning of keys.

    Args:
        key: the key; without the slash at the end of a folder's.
        size: its length in bytes; 0 for a folder.
        changed_seconds: its last change in seconds since 1970; None for a folder.
        tag: what identifies this version of the object.
    """

    key: str
    size: int = 0
    changed_seconds: float | None = None
    tag: str = ""


@dataclass(frozen=True, slots=True)
class Login:
    """What a store is given as the login, whatever the environment contains: `obstore` would prefer that.

    Args:
        secret: the kind of the secret in the words of `obstore`, and the secret.
    """

    secret: tuple[str, str] = field(repr=False)

    def __call__(self) -> dict[str, str | None]:
        """Return the secret as `obstore` asks for it; it has no known end."""
        return {self.secret[0]: self.secret[1], "expires_at": None}


class CloudObjects(WholeObjects):
    """The objects of one bucket of Google, or of one container of Azure; threads may share it.

    Args:
        address: where the bucket is; the region does not count.
        settings: the store's configuration of `obstore`, with the secrets.
    """

    name: ClassVar[str]
    _login_hint: ClassVar[str]
    # The member of an object's description that identifies its version.
    _tag: ClassVar[str]
    # The objects that one call deletes, and those that one request deletes.
    most_keys: ClassVar[int]
    keys_of_request: ClassVar[int]

    def __init__(self, address: Address, settings: dict[str, Any]) -> None:
        super().__init__(address, ANONYMOUS)
        self._settings = settings

    def replace(self, key: str, data: bytes, over: str | None) -> str | None:
        """Write an object if there is none, or the version ``over`` is there; return the new version's tag.

        Returns:
            None if the condition is not met.

        Raises:
            StoreError: the store refused the request, or did not answer.
        """
        from obstore import exceptions  # noqa: PLC0415 - door: remote stores only

        mode: Any = "create" if over is None else {self._tag: over}

        def request() -> str | None:
            try:
                done = self._client.put(self._store, key, data, mode=mode, use_multipart=False)
            except (exceptions.AlreadyExistsError, exceptions.PreconditionError):
                return None
            tag = done.get(self._tag)
            if not tag:
                raise StoreError(f"{self.name} Error: the response has no version", NOT_A_RESPONSE)
            return str(tag)

        return self._call(request)

    def versioned(self, key: str, most: int) -> tuple[Entry, bytes] | None:
        """Return an object's description, and its first ``most`` bytes; None if it does not exist."""

        def request() -> tuple[Entry, bytes]:
            found = self._client.get(self._store, key, options={"range": (0, most)})
            return self._entry(found.meta), bytes(found.bytes())

        return self._unless(NOT_FOUND, request)

    def find(self, key: str) -> Entry | None:
        """Return an object's description; None if it does not exist.

        Raises:
            StoreError: the store refused the request, or did not answer.
        """
        return self._unless(NOT_FOUND, lambda: self._entry(self._client.head(self._store, key)))

    def entries(self, folder: str, *, recursive: bool) -> list[Entry]:
        """Return what is in a folder, or all objects below it.

        Args:
            folder: the beginning of the keys without its slash; empty for the whole bucket.
            recursive: whether the objects of the folders below are returned instead of these folders.

        Raises:
            StoreError: the store refused the request, or did not answer.
        """

        def request() -> list[Entry]:
            prefix = folder or None
            if recursive:
                found = self._client.list(self._store, prefix, chunk_size=1000)
                return [self._entry(meta) for part in found for meta in part]
            answer = self._client.list_with_delimiter(self._store, prefix)
            folders = [Entry(str(key)) for key in answer["common_prefixes"]]
            return folders + [self._entry(meta) for meta in answer["objects"]]

        return self._call(request)

    def delete(self, keys: Sequence[str]) -> None:
        """Delete objects by one call.

        Raises:
            StoreError: some objects may not be deleted; with the status 404 also if one did not exist.
        """

        def request() -> None:
            try:
                self._client.delete(self._store, keys)
            except FileNotFoundError:
                raise StoreError(f"{self.name} Error: no such object", NOT_FOUND) from None

        self._call(request)

    def renewing(self, newest: Callable[[], CloudObjects]) -> CloudObjects:
        """Return the client whose requests have the login that the newest client has then."""
        if not isinstance(self._login, Login):
            return self

        def login() -> dict[str, Any]:
            return {**newest()._login(), "expires_at": _ASKED_AGAIN}  # noqa: SLF001 - of this class

        return type(self)(self.address, {**self._settings, _LOGIN_SETTING: login})

    @property
    def _login(self) -> Any:
        return self._settings.get(_LOGIN_SETTING)

    def writer(self, key: str) -> Any:
        """Return a file that writes a large object in parts; the object exists when it is closed."""
        return self._call(
            lambda: self._client.open_writer(
                self._patient_store, key, buffer_size=_PART_BYTES, max_concurrency=_PARTS_AT_ONCE
            )
        )

    def send(self, work: Callable[[], Any]) -> Any:
        """Call a method of a `writer`, with the errors of requests translated."""
        return self._call(work)

    @cached_property
    def _patient_store(self) -> Any:
        """The store for uploads, whose parts only the client can repeat."""
        waits = {"init_backoff": _FIRST_WAIT, "max_backoff": _LONGEST_WAIT, "base": 2}
        retries = {"max_retries": TRIES - 1, "backoff": waits, "retry_timeout": _LONGEST_RETRY}
        return self._open(self._options(SENDING_SECONDS), retries)

    def _open(self, options: ClientConfig, retries: Any) -> Any:
        raise NotImplementedError

    def _options(self, sending_seconds: float = 0.0) -> ClientConfig:
        # The client asks for logins by the same options: at other hosts, and through the environment's proxies.
        # It sends a login to no host that the store redirects to.
        options = super()._options(sending_seconds)
        del options["proxy_url"], options["proxy_excludes"]
        return options

    def _call(self, work: Callable[[], _T]) -> _T:
        """Call the client; there is no other one for what it does not support.

        Raises:
            StoreError: the store refused the request, or did not answer.
            NotAuthorisedError: there is no login.
        """
        try:
            return super()._call(work)
        except UnsupportedError as error:
            self._is_trusted = True
            why = "certificate verify failed" if str(error) == UNTRUSTED else error
            raise StoreError(f"{self.name} Error: {why}", _NOT_SUPPORTED) from None
        except StoreError as error:
            text = str(error).replace("AWS", self.name, 1)
            raise StoreError(text, error.status, error.code) from None

    def _known(self, text: str) -> Exception:
        if of_one := _OF_ONE.search(text):
            return refusal(int(of_one[1]), "UNKNOWN")
        known = super()._known(text)
        is_busy = isinstance(known, StoreError) and known.status and known.is_busy
        if _LOGIN.search(text) and not is_busy:
            return NotAuthorisedError(
                f"no login for {self.name}, to ask for {self.address.bucket}", hint=self._login_hint
            )
        return known

    def seconds(self) -> float:
        """Return the time of the store's clock, in seconds since 1970.

        Raises:
            StoreError: the store did not answer.
        """
        # The client does not return headers. Any answer has the time; this one needs no login.
        from http.client import HTTPException  # noqa: PLC0415 - costs 0.1 s, locks that are held only
        from urllib.request import Request, urlopen  # noqa: PLC0415

        asked, host = Request(self.address.endpoint, method="HEAD"), self.address.host  # noqa: S310

        def request() -> tuple[str, int]:
            try:
                with urlopen(asked, timeout=self.address.connect_seconds) as answer:  # noqa: S310
                    return answer.headers.get("Date", ""), NOT_A_RESPONSE
            except (OSError, HTTPException) as error:
                if isinstance(getattr(error, "reason", error), TimeoutError):
                    raise timed_out(host) from None
                # An answer with the status of an error is an error with headers.
                headers = getattr(error, "headers", None)
                if headers is None:
                    text = f"{self.name} Error NETWORK_CONNECTION: {error}"
                    raise StoreError(text) from None
                return headers.get("Date", ""), getattr(error, "code", NOT_A_RESPONSE)

        text, status = awaited(host, request)
        try:
            return parsedate_to_datetime(text).timestamp()
        except (TypeError, ValueError):
            raise StoreError(f"{self.name} Error: the response has no time", status) from None

    def _entry(self, meta: Any) -> Entry:
        changed = meta["last_modified"].timestamp()
        if not changed:
            raise StoreError(f"{self.name} Error: the response is not an object", NOT_A_RESPONSE)
        return Entry(meta["path"], int(meta["size"]), changed, str(meta[self._tag] or ""))
