"""How a bucket of S3 is reached: its address, its region, its keys, and the clients that use them.

Keys come from the first of these: the configuration or the catalog; none, for anonymous requests; an assumed role;
what AWS's own tools find (environment, profiles, SSO, web identity, containers, instances). All clients use the same
keys, address, proxy and authorities, and are made again when the keys change.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import cached_property, partial
from threading import RLock
from typing import Any, Generic, NamedTuple, TypeVar
from urllib.parse import urlsplit

from lake.core.base.clock import Clock, SystemClock
from lake.core.base.errors import NotAuthorisedError
from lake.core.io.objects.requests import (
    ANONYMOUS,
    EXPIRED,
    NOT_THERE,
    REDIRECTED,
    Keys,
    StoreError,
    UnsupportedError,
)
from lake.core.io.objects.whole_objects import Address, WholeObjects, is_supported

REGION = "us-east-1"
CONNECT_SECONDS, _READ_SECONDS = 10.0, 60.0
_CONNECTIONS = 32
_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
_REGIONS = ("AWS_REGION", "AWS_DEFAULT_REGION")
_KEYS = ("access-key-id", "secret-access-key", "session-token")
_ROLE_SESSION = "lake"
# The file of trusted authorities, which PyIceberg does not give to Arrow's client.
AUTHORITIES = "s3.authorities"
_NOT_ARROWS = {"s3.role-arn", "client.role-arn", "s3.role-session-name", "client.role-session-name"}
# New keys are not looked for again for this long, if a store refuses them too.
_PAUSE_MS = 10_000
# The hosts of Amazon's own stores, which name the bucket.
_AMAZON = re.compile(r"\.amazonaws\.com(\.cn)?(:\d+)?/?$")
_ON = frozenset({"y", "yes", "t", "true", "on", "1"})
_OFF = frozenset({"n", "no", "f", "false", "off", "0"})
_T = TypeVar("_T")


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
    value = _environment(names)
    if value and not properties.get(key) and not properties.get(key.replace("s3.", "client.")):
        properties[key] = value


def _environment(names: Iterable[str]) -> str | None:
    return next((os.environ[name] for name in names if os.environ.get(name)), None)


def first(properties: Mapping[str, str], name: str) -> str | None:
    """Return a property under either of its two names, as PyIceberg's `_initialize_s3_fs` does."""
    return properties.get(f"s3.{name}") or properties.get(f"client.{name}")


class Used(NamedTuple):
    """What a request is signed with: the keys, and the region."""

    keys: Keys
    region: str


class Connection:
    """How one bucket is reached; threads may share it.

    Args:
        properties: those of the storage, see `completed`.
        bucket: the bucket's name.
        clock: the source of the time.

    Raises:
        UnsupportedError: the settings are not complete, or only Arrow's client can use them.
    """

    def __init__(
        self, properties: Mapping[str, str], bucket: str, clock: Clock | None = None
    ) -> None:
        self._properties = properties
        self.bucket = bucket
        self._clock = clock or SystemClock()
        self._silent_until_ms = 0
        self.used_by_arrow: Used | None = None
        self._lock = RLock()
        self._client = _OfKeys(self._new_client, self._lock)
        self._whole = _OfKeys(self._new_whole, self._lock)
        access, secret, token = (first(properties, name) for name in _KEYS)
        if bool(access) != bool(secret) or (token and not access):
            raise UnsupportedError("a part of the keys")
        self._fixed: Keys | None = None
        if access and secret:
            self._fixed = Keys(access, secret, token)
        elif self._is_on("anonymous"):
            self._fixed = ANONYMOUS
        # What cannot be used is found before the first request.
        _ = self._source, self.region, self._is_virtual, self._seconds

    @property
    def keys(self) -> Keys:
        """The current keys.

        Raises:
            StoreError: the service that gives them refused, or did not answer.
            NotAuthorisedError: there are none any more.
        """
        if self._fixed:
            return self._fixed
        from botocore import exceptions  # noqa: PLC0415 - door: remote stores only

        try:
            found = self._source.get_frozen_credentials()
        except exceptions.ClientError as error:
            code = str(error.response.get("Error", {}).get("Code", "UNKNOWN"))[:80]
            status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
            text = f"AWS Error {code} (HTTP status {status}) during {error.operation_name}"
            raise StoreError(text, int(status), code) from error
        except (exceptions.HTTPClientError, exceptions.ConnectionError) as error:
            text = f"AWS Error NETWORK_CONNECTION: no answer about keys: {error}"
            is_there = not isinstance(error, exceptions.EndpointConnectionError)
            raise StoreError(text, code="" if is_there else NOT_THERE) from error
        except exceptions.BotoCoreError as error:
            raise NotAuthorisedError(
                f"no keys for the storage: {error}",
                hint="log in again, or check the profile or the role that AWS's own tools use here",
            ) from error
        return Keys(found.access_key, found.secret_key, found.token)

    @property
    def used(self) -> Used:
        """What the next request is signed with; see `keys`."""
        return Used(self.keys, self.region)

    @property
    def client(self) -> Any:
        """Botocore's client with the current keys; see `keys`."""
        return self._client.with_keys(self.keys)

    @property
    def whole(self) -> WholeObjects:
        """The client for whole objects with the current keys; see `keys`.

        Raises:
            UnsupportedError: it does not support the store's address.
        """
        return self._whole.with_keys(self.keys)

    def for_arrow(self) -> dict[str, str]:
        """Return the properties with which PyIceberg makes Arrow's client; see `keys`."""
        keys, region = self.used_by_arrow = self.used
        found = {
            "s3.region": region,
            "s3.access-key-id": keys.access,
            "s3.secret-access-key": keys.secret,
            "s3.session-token": keys.token,
            "s3.proxy-uri": self._proxy(self._url),
            AUTHORITIES: self._authorities,
        }
        # Arrow would assume the role again.
        kept = {k: v for k, v in self._properties.items() if k not in _NOT_ARROWS}
        return kept | {key: text for key, text in found.items() if text}

    def may_succeed(self, error: BaseException, used: Used | None) -> bool:
        """Return whether a request that failed may succeed now: with other keys, or in another region; see `keys`.

        Args:
            error: its error.
            used: what it was signed with; None if there were no keys for it.
        """
        text = str(error)
        with self._lock:
            if used and REDIRECTED.search(text):
                return self._is_elsewhere(used.region)
            return bool(EXPIRED.search(text)) and self._are_other(used and used.keys)

    def _are_other(self, refused: Keys | None) -> bool:
        """Return whether there are other keys than those that a store refused; look for some if not."""
        if self._fixed:
            return False
        if refused and self.keys != refused:
            return True
        now_ms = self._clock.now_ms()
        if now_ms < self._silent_until_ms:
            return False
        self._silent_until_ms = now_ms + _PAUSE_MS
        # The files of AWS's own tools are read again, and services are asked again.
        for name in ("_source", "_session"):
            vars(self).pop(name, None)
        return self.keys != refused

    def _is_elsewhere(self, region: str) -> bool:
        """Return whether the bucket is in another region; find it if not known."""
        if self._endpoint:
            return False
        if self.region == region:
            with suppress(UnsupportedError):
                self.region = self._found_region(region)
            self._client.forget()
            self._whole.forget()
            vars(self).pop("_url", None)
        return self.region != region

    @property
    def _configured_region(self) -> str | None:
        return first(self._properties, "region") or _environment(_REGIONS)

    @cached_property
    def region(self) -> str:
        """The region: the configured one, else that of AWS's own tools, else the bucket's on Amazon's stores."""
        region = self._configured_region or _known(
            lambda: self._session.get_config_variable("region")
        )
        return str(region) if region else self._found_region(REGION)

    def _found_region(self, asked: str) -> str:
        """Ask Amazon for the region of the bucket, which is in its answer even if access is denied.

        Raises:
            UnsupportedError: there is no such bucket, or no answer.
        """
        from botocore import exceptions  # noqa: PLC0415 - door: remote stores only

        client = _known(lambda: self._new_client(ANONYMOUS, asked))
        try:
            answer = _known(lambda: client.head_bucket(Bucket=self.bucket))
        except exceptions.ClientError as error:
            answer = error.response
        headers = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {})
        region = str(headers.get("x-amz-bucket-region", ""))
        if not re.fullmatch(r"[\w-]{1,63}", region):
            raise UnsupportedError("no region")
        return region

    @cached_property
    def _session(self) -> Any:
        """Botocore's session, which finds what is not configured."""
        from botocore import handlers, session  # noqa: PLC0415 - door: remote stores only

        opened = session.Session(profile=first(self._properties, "profile-name"))
        # The Expect header costs one more round trip for each small object.
        opened.unregister("before-call.s3", handlers.add_expect_header)
        if self._configured_region:
            # The services that give keys have regions too.
            opened.set_config_variable("region", self._configured_region)
        return opened

    @cached_property
    def _source(self) -> Any:
        """Botocore's credentials, which are renewed before they end; None if the keys are fixed."""
        if self._fixed:
            return None
        found = _known(self._session.get_credentials)
        if not found:
            raise UnsupportedError("no keys")
        role = first(self._properties, "role-arn")
        if not role:
            return found
        from botocore import credentials  # noqa: PLC0415 - door: remote stores only

        name = first(self._properties, "role-session-name") or _ROLE_SESSION
        create = partial(
            self._session.create_client, region_name=self.region, config=self._config()
        )
        fetcher = credentials.AssumeRoleCredentialFetcher(
            create, found, role, extra_args={"RoleSessionName": name}
        )
        return credentials.DeferredRefreshableCredentials(fetcher.fetch_credentials, "assume-role")

    @property
    def _endpoint(self) -> str | None:
        """The configured URI of the store; None for Amazon's, or another that the session knows."""
        endpoint = self._properties.get("s3.endpoint")
        return endpoint if not endpoint or "://" in endpoint else f"https://{endpoint}"

    @cached_property
    def _url(self) -> str:
        """The URI of the store, without the bucket."""
        return self._endpoint or str(self.client.meta.endpoint_url)

    @property
    def host(self) -> str:
        """The store's host and port, without the bucket."""
        return urlsplit(self._url).netloc.rpartition("@")[2]

    def _proxy(self, url: str) -> str | None:
        """Return the proxy for a URI: the configured one, else that of the environment, by botocore's rules."""
        proxy = self._properties.get("s3.proxy-uri")
        if proxy:
            return proxy
        from urllib.request import getproxies, proxy_bypass  # noqa: PLC0415 - door: remote stores only

        if proxy_bypass(urlsplit(url).netloc):
            return None
        return getproxies().get(url.partition(":")[0])

    @property
    def _authorities(self) -> str | None:
        """The file of trusted authorities; that of a profile if AWS's own tools are needed anyway."""
        file = os.environ.get("AWS_CA_BUNDLE")
        if file or (self._fixed and self._endpoint):
            return file
        return _known(lambda: self._session.get_config_variable("ca_bundle"))  # type: ignore[no-any-return]

    @cached_property
    def _seconds(self) -> tuple[float, float]:
        """The timeouts of connections and of reads."""
        names = (("connect", CONNECT_SECONDS), ("request", _READ_SECONDS))
        try:
            connect, read = (
                float(self._properties.get(f"s3.{name}-timeout") or default)
                for name, default in names
            )
        except ValueError as error:
            raise UnsupportedError("a timeout") from error
        return connect, read

    @cached_property
    def _is_virtual(self) -> bool:
        return self._is_on("force-virtual-addressing")

    def _is_on(self, name: str) -> bool:
        text = str(first(self._properties, name) or "no").lower()
        if text not in _ON | _OFF:
            raise UnsupportedError(name)
        return text in _ON

    def _config(self, **options: Any) -> Any:
        """Return botocore's options, for S3 and for the service that gives keys."""
        from botocore import config  # noqa: PLC0415 - door: remote stores only

        proxy = self._properties.get("s3.proxy-uri")
        connect, read = self._seconds
        return config.Config(
            connect_timeout=connect,
            read_timeout=read,
            max_pool_connections=_CONNECTIONS,
            retries={"total_max_attempts": 1},
            proxies={"http": proxy, "https": proxy} if proxy else None,
            **options,
        )

    def _new_client(self, keys: Keys, region: str | None = None) -> Any:
        from botocore import UNSIGNED  # noqa: PLC0415 - door: remote stores only

        style = "path" if self._endpoint else "auto"
        is_signed = keys != ANONYMOUS
        options = self._config(
            signature_version=None if is_signed else UNSIGNED,
            s3={"addressing_style": "virtual" if self._is_virtual else style},
            # Stores other than Amazon's may not support its newer checksums.
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
        )
        return _known(
            lambda: self._session.create_client(
                "s3",
                region_name=region or self.region,
                endpoint_url=self._endpoint,
                aws_access_key_id=keys.access if is_signed else None,
                aws_secret_access_key=keys.secret if is_signed else None,
                aws_session_token=keys.token,
                config=options,
            )
        )

    def _new_whole(self, keys: Keys) -> WholeObjects:
        url = self._url
        is_amazon = not self._endpoint and bool(_AMAZON.search(url))
        is_virtual = self._is_virtual or (is_amazon and "." not in self.bucket)
        if is_virtual:
            url = url.replace("://", f"://{self.bucket}.", 1)
        if not is_supported(url):
            raise UnsupportedError("the store's address")
        connect, read = self._seconds
        address = Address(
            self.bucket,
            url,
            self.region,
            is_virtual=is_virtual,
            authorities=self._authorities,
            proxy=self._proxy(url),
            connect_seconds=connect,
            read_seconds=read,
        )
        return WholeObjects(address, keys)


class _OfKeys(Generic[_T]):
    """A client that is made when it is needed, and again when the keys change.

    Args:
        make: makes it of keys.
        lock: is held meanwhile.
    """

    def __init__(self, make: Callable[[Keys], _T], lock: RLock) -> None:
        self._make = make
        self._lock = lock
        self._made: tuple[Keys, _T] | None = None

    def with_keys(self, keys: Keys) -> _T:
        """Return the client with these keys."""
        with self._lock:
            if self._made is None or self._made[0] != keys:
                self._made = (keys, self._make(keys))
            return self._made[1]

    def forget(self) -> None:
        """Make the client again when it is needed next."""
        self._made = None


def _known(work: Callable[[], _T]) -> _T:
    """Call botocore; Arrow may accept settings that AWS's own tools cannot use."""
    from botocore import exceptions  # noqa: PLC0415 - door: remote stores only

    try:
        return work()
    except (exceptions.BotoCoreError, ValueError) as error:
        raise UnsupportedError(type(error).__name__) from error
