"""PyIceberg's REST catalog, with a time limit for each request, and requests to configured hosts only.

Without a limit, a stalled server would block a cron job forever. A server may also direct its clients to another
host, by a redirect or by its configuration, and they would send their credentials to that host. The limits are the
properties of Java's client, `rest.client.connection-timeout-ms` and `rest.client.socket-timeout-ms`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from ipaddress import ip_address
from shlex import quote
from typing import Any, cast
from urllib.parse import urlsplit
from uuid import UUID

import requests
from pyiceberg.catalog import AVAILABLE_CATALOGS, CatalogType
from pyiceberg.catalog import Catalog as PyIcebergCatalog
from pyiceberg.catalog.rest import SIGV4, Capability, Endpoint, HttpMethod, RestCatalog
from pyiceberg.exceptions import NoSuchTableError, RESTError
from pyiceberg.table import CreateTableTransaction
from pyiceberg.table import Table as IcebergTable
from pyiceberg.utils.properties import property_as_bool
from requests.adapters import HTTPAdapter
from urllib3.util.retry import Retry

from lake.core.base.clock import Backoff, Clock, Ids
from lake.core.base.errors import CorruptFileError, LakeError, NotFoundError, RefusedError
from lake.core.base.options import Option
from lake.core.base.redaction import is_secret
from lake.core.base.units import natural_number
from lake.core.io.objects.requests import StoreError
from lake.core.io.objects.waits import awaited
from lake.core.io.storage.credentials import Credentials
from lake.core.io.storage.storage import Storage
from lake.core.spec.properties.values import whole
from lake.core.table.catalogs import pyiceberg_patches
from lake.core.table.catalogs.catalog import Table, split_identifier
from lake.core.table.catalogs.errors import catalog_errors, words
from lake.core.table.catalogs.pyiceberg_catalog import PyIcebergBackend
from lake.core.table.catalogs.trust import as_configured, check_store, storage_properties
from lake.core.table.metadata.files import MAX_TEXT_BYTES
from lake.core.table.reporting.sender import Sender

_CONNECT_MS = whole("rest.client.connection-timeout-ms", 10_000, least=1)
_READ_MS = whole("rest.client.socket-timeout-ms", 60_000, least=1)
# The properties with the addresses that may receive credentials.
_ADDRESSES = ("uri", "oauth2-server-uri")
# In a server's message.
_METADATA_FILE = re.compile(r"(?:[a-z][a-z0-9+.-]*:)?/[^\s'\"]+\.metadata\.json(?:\.gz)?(?![\w.])")
_PLAIN = "lake.allow-plain-http"
_LOGIN = re.compile(r"token|credential|auth(\..*)?")
# The longest wait that lake accepts from a server, in seconds.
_LONGEST_PAUSE = 10.0
# How often a change is sent that certainly had no effect, or that the server applies only once.
_ATTEMPTS = 3
_TOO_MANY = 429
_CONFLICT = 409
# Reports: the endpoint, the property, the longest wait for an answer, and the first status that refuses a report.
_METRICS = Endpoint(
    http_method=HttpMethod.POST,
    path="/v1/{prefix}/namespaces/{namespace}/tables/{table}/metrics",
)
_REPORTING, _REPORT_SECONDS, _REDIRECT = "rest-metrics-reporting-enabled", 2.0, 300
# Answers after which a change may have been applied.
_UNCERTAIN = frozenset({500, 502, 503, 504})
_KEY, _KEY_LIFETIME = "Idempotency-Key", "idempotency-key-lifetime"


class _BoundedRetry(Retry):
    """Retries as configured, with a limit on the wait that the server requests."""

    def get_retry_after(self, response: Any) -> float | None:
        """Return the seconds that the server asks its clients to wait, up to a limit."""
        seconds = super().get_retry_after(response)
        return None if seconds is None else min(seconds, _LONGEST_PAUSE)


# For requests that change nothing. `_sent_safely` decides when a change is sent again.
_RETRIES = _BoundedRetry(
    total=3,
    read=1,
    status_forcelist=(429, 502, 503, 504),
    allowed_methods=("GET", "HEAD"),
    backoff_factor=0.2,
    raise_on_status=False,
)
_Send = Callable[..., requests.Response]
_PIECE = 1024 * 1024


class _BoundedAdapter(HTTPAdapter):
    """Reads answers up to the limit of table metadata, which a compressed one could exceed by any factor.

    Args:
        sign: adds a signature to a request; None if requests are not signed.
    """

    def __init__(self, sign: Callable[[requests.PreparedRequest], None] | None = None) -> None:
        super().__init__(max_retries=_RETRIES)
        self._sign = sign

    def send(
        self, request: requests.PreparedRequest, *args: Any, **options: Any
    ) -> requests.Response:
        """Sign a request and send it."""
        if self._sign is not None:
            self._sign(request)
        return super().send(request, *args, **options)

    def build_response(self, req: Any, resp: Any) -> requests.Response:
        """Return the answer, read.

        Raises:
            ContentDecodingError: it is larger, or not compressed as it says. The request may have had its effect.
        """
        answer = super().build_response(req, resp)
        data = bytearray()
        for piece in answer.iter_content(_PIECE):
            data += piece
            if len(data) > MAX_TEXT_BYTES:
                answer.close()
                # The traceback of the error would keep it in memory until a garbage collection.
                data.clear()
                raise requests.exceptions.ContentDecodingError(
                    f"the answer of {urlsplit(str(req.url)).netloc} has more than {MAX_TEXT_BYTES} bytes"
                )
        # As `Response.content` keeps it.
        answer._content = bytes(data)  # noqa: SLF001
        return answer


_PORTS = {"http": 80, "https": 443}


class BoundedRestCatalog(RestCatalog):
    """A REST catalog as the user configured it."""

    # The newest storage credentials of each table.
    vended: dict[tuple[str, ...], Credentials]

    def __init__(self, name: str, clock: Clock, ids: Ids, /, **properties: Any) -> None:
        """Open the catalog.

        Args:
            name: the catalog's name.
            clock: the time of requests; waits between them.
            ids: the source of the requests' idempotency keys.
            properties: the catalog's configuration.

        Raises:
            RefusedError: the catalog's credentials would be sent over a network without encryption.
            InvalidRequestError: a timeout is not a positive whole number.
        """
        _refuse_plain_text(properties)
        pyiceberg_patches.apply_to_rest()
        self._configured = dict(properties)
        self._clock, self._ids = clock, ids
        self._backoff = Backoff(0.2, _LONGEST_PAUSE, clock=clock, ids=ids)
        texts = {key: str(value) for key, value in properties.items()}
        self._limits = tuple(setting.of(texts) / 1000 for setting in (_CONNECT_MS, _READ_MS))
        pyiceberg_patches.limit_logins(_limited(requests.post, self._limits))
        self.vended = {}
        self._reports = Sender(self._send_report)
        # Whether the server applies changes with the same idempotency key only once.
        self._has_keys = False
        super().__init__(name, **properties)

    def _response_to_table(self, identifier_tuple: tuple[str, ...], table_response: Any) -> Any:
        self._keep(identifier_tuple, table_response)
        return super()._response_to_table(identifier_tuple, table_response)

    def _response_to_staged_table(
        self, identifier_tuple: tuple[str, ...], table_response: Any
    ) -> Any:
        self._keep(identifier_tuple, table_response)
        return super()._response_to_staged_table(identifier_tuple, table_response)

    def _keep(self, identifier: tuple[str, ...], answer: Any) -> None:
        self.vended[identifier] = self._credentials(
            storage_properties(as_configured(answer.config, {})), answer.storage_credentials
        )

    def _credentials(self, vended: Mapping[str, str], by_prefix: Iterable[Any]) -> Credentials:
        grants = tuple(
            (item.prefix, storage_properties(as_configured(item.config, {}))) for item in by_prefix
        )
        own = storage_properties(self.properties)
        for given in ({}, *(given for _, given in grants)):
            check_store({**own, **vended, **given}, storage_properties(self._configured))
        return Credentials({**own, **vended}, grants)

    def vend(self, identifier: tuple[str, ...]) -> Credentials:
        """Request a table's credentials again.

        A server that vended credentials by prefix may have an endpoint for credentials alone. From any other server,
        the whole table is loaded.
        """
        known = self.vended.get(identifier)
        if known and known.grants and Capability.V1_LOAD_CREDENTIALS in self._supported_endpoints:
            with suppress(RESTError):
                answer = self._load_credentials(identifier)
                fresh = self._credentials({}, answer.storage_credentials)
                return Credentials(known.properties, fresh.grants)
        self.load_table(identifier)
        return self.vended[identifier]

    def _config_headers(self, session: requests.Session) -> None:
        # PyIceberg calls this method first for a new session, before it fetches a token.
        super()._config_headers(session)
        for scheme in _PORTS:
            session.mount(f"{scheme}://", _BoundedAdapter())
        known = [self._configured[key] for key in _ADDRESSES if key in self._configured]
        send = _guarded(session.send, self._limits, known)
        session.send = self._sent_safely(send)  # type: ignore[method-assign]

    def _init_sigv4(self, session: requests.Session) -> None:
        # As the user configured it. PyIceberg's own adapter would also send changes a second time.
        if _is_signed(self._configured):
            from lake.core.table.catalogs.aws import Signer  # noqa: PLC0415 - catalogs of AWS only

            session.mount(self.uri, _BoundedAdapter(sign=Signer(self.name, self._configured)))

    def _sent_safely(self, send: _Send) -> _Send:
        """Wrap a session's send: a change is sent again only if it cannot be applied twice."""

        def sent(request: requests.PreparedRequest, **options: Any) -> requests.Response:
            changes = request.method not in {"GET", "HEAD"}
            keyed = changes and self._has_keys
            uncertain: requests.Response | requests.RequestException | None = None
            if keyed:
                request.headers[_KEY] = _time_ordered_uuid(self._clock, self._ids)
            for attempt in range(1, _ATTEMPTS + 1):
                try:
                    answer = send(request, **options)
                except (requests.ConnectionError, requests.Timeout) as error:
                    if not keyed or attempt == _ATTEMPTS:
                        raise
                    uncertain, pause = error, 0.0
                else:
                    may_have_applied = keyed and answer.status_code in _UNCERTAIN
                    uncertain = answer if may_have_applied else uncertain
                    again = may_have_applied or (changes and answer.status_code == _TOO_MANY)
                    if not again or attempt == _ATTEMPTS:
                        break
                    pause = _pause(answer)
                self._backoff.wait(attempt, at_least=pause)
            answer = _decisive(uncertain, answer)
            self._learn(request, answer)
            return answer

        return sent

    def _learn(self, request: requests.PreparedRequest, answer: requests.Response) -> None:
        if answer.ok and urlsplit(str(request.url)).path.endswith("/v1/config"):
            with suppress(ValueError):
                found = answer.json()
                self._has_keys = isinstance(found, dict) and bool(found.get(_KEY_LIFETIME))

    def report(self, identifier: tuple[str, ...], build: Callable[[], Mapping[str, Any]]) -> None:
        """Send a report about a table in the background, if the server takes reports.

        As Iceberg Java, but a server that does not list its endpoints gets reports only if the property says so.
        """
        wanted = str(self.properties.get(_REPORTING, "")).lower()
        if wanted == "false" or (wanted != "true" and _METRICS not in self._supported_endpoints):
            return
        path = self._split_identifier_for_path(identifier)
        self._reports.add(
            self.url("namespaces/{namespace}/tables/{table}/metrics", **path), build()
        )

    def _send_report(self, address: str, report: Mapping[str, Any]) -> bool:
        """Send a report, and return whether the server took it."""
        try:
            # Requests of the commands go on meanwhile, in their own session. Its connections may be shared.
            session = requests.Session()
            session.headers.update(self._session.headers)
            session.adapters = self._session.adapters
            session.auth, session.cert = self._session.auth, self._session.cert
            session.verify = self._session.verify
            known = [self._configured[key] for key in _ADDRESSES if key in self._configured]
            limits = tuple(min(limit, _REPORT_SECONDS) for limit in self._limits)
            session.send = _guarded(session.send, limits, known)  # type: ignore[method-assign]
            return session.post(address, json=report, allow_redirects=False).status_code < _REDIRECT
        except (requests.RequestException, RESTError, LakeError, OSError, ValueError, KeyError):
            # A failed login is one of these.
            return False

    def _refresh_token(self) -> None:
        """Fetch a new token: the server treats the present one as expired."""
        super()._refresh_token()
        provider = getattr(self._auth_manager, "token_provider", None)
        if provider is not None:
            provider._token = None  # noqa: SLF001 - the provider itself only checks the time

    def _fetch_config(self) -> None:
        super()._fetch_config()
        self.properties = as_configured(self.properties, self._configured)


class RestBackend(PyIcebergBackend):
    """A REST catalog."""

    @property
    def writes_metadata(self) -> bool:
        """Whether PyIceberg writes a table's metadata files in this process."""
        return False

    def report(self, table: Table, build: Callable[[], Mapping[str, Any]]) -> None:
        """Send a report to the server; see `Catalog.report`."""
        self._rest.report(split_identifier(table.identifier), build)

    def _open(self) -> PyIcebergCatalog:
        AVAILABLE_CATALOGS[CatalogType.REST] = self._bounded
        with catalog_errors(f"catalog {self.name}", self):
            handle = self._load_catalog()
        pyiceberg_patches.ignore_table_storage_properties(handle, is_vending=True)
        return handle

    def _bounded(self, name: str, properties: Mapping[str, Any]) -> PyIcebergCatalog:
        return BoundedRestCatalog(name, self._clock, self._ids, **properties)

    def _load(self, identifier: str) -> Table:
        """Load a table; a server answers that it is not found also if only its metadata file is missing."""
        try:
            return super()._load(identifier)
        except NotFoundError as error:
            cause = error.__cause__
            if isinstance(cause, NoSuchTableError) and _METADATA_FILE.search(str(cause)):
                raise CorruptFileError(
                    f"the server of catalog {self.name} cannot read the metadata of table {identifier}: "
                    f"{words(cause)}"
                ) from cause
            raise

    def _damaged_file(self, identifier: str, error: CorruptFileError) -> str | None:  # noqa: ARG002
        """Return the metadata file that a server names in its message; None without one."""
        found = _METADATA_FILE.search(str(error.__cause__))
        return None if found is None else found[0]

    def _steps_back(self, identifier: str, place: str, older: str, storage: Storage) -> str:  # noqa: ARG002
        """Return the commands; `lake` cannot drop a table that it cannot load."""
        catalog, table = f"{Option.CATALOG} {quote(self.name)}", quote(identifier)
        return (
            f"`pyiceberg {catalog} drop table {table} && lake {catalog} register {table} {quote(older)}` "
            "(no file is deleted)"
        )

    def drop(self, table: Table) -> None:
        """Remove a table's entry, and look whether it is gone; see `Catalog.drop`.

        PyIceberg takes any successful answer for that of the server: a page of a proxy, or the table itself after a
        redirect, which makes a question of the request.
        """
        super().drop(table)
        with suppress(LakeError):
            if self.load(table.identifier).metadata.table_uuid == table.metadata.table_uuid:
                raise RESTError("the table is still there")

    @property
    def _rest(self) -> BoundedRestCatalog:
        return cast("BoundedRestCatalog", self.handle)

    def _credentials(self, identifier: str, found: IcebergTable) -> Credentials:
        vended = self._rest.vended.get(split_identifier(identifier))
        return super()._credentials(identifier, found) if vended is None else vended

    def _vender(self, identifier: str) -> Callable[[], Credentials]:
        return self._vending(identifier, partial(self._rest.vend, split_identifier(identifier)))

    def _stage_vender(
        self, identifier: str, begin: Callable[[], CreateTableTransaction], location: str
    ) -> Callable[[], Credentials]:
        def ask() -> Credentials:
            # The creation is staged again. The server may choose another location with other credentials.
            if begin()._table.metadata.location != location:  # noqa: SLF001
                raise NotFoundError(f"the catalog now has another location for table {identifier}")
            return self._rest.vended[split_identifier(identifier)]

        return self._vending(identifier, ask)

    def _vending(
        self, identifier: str, ask: Callable[[], Credentials]
    ) -> Callable[[], Credentials]:
        def vend() -> Credentials:
            with catalog_errors(f"table {identifier}", self):
                given = ask()
            self._hide(given)
            return given

        return vend


def check_host(address: str, known: list[str]) -> None:
    """Refuse an address on a host that is not configured, or one with less encryption than configured.

    Raises:
        RefusedError: requests must not be sent to the address.
    """
    scheme, host, port = _origin(address)
    origins = [_origin(item) for item in known]
    if (scheme, host, port) in origins or (
        scheme == "https" and any(host == item[1] for item in origins)
    ):
        return
    place = f"{scheme}://{host}:{port}"
    raise RefusedError(
        f"the catalog's server directs its clients to {place}, which is not configured",
        hint=f"if that address is right, set the catalog's uri (or oauth2-server-uri) to {place}",
    )


def _refuse_plain_text(properties: Mapping[str, Any]) -> None:
    allowed = str(properties.get(_PLAIN, "false")).lower() == "true"
    if allowed or not _logs_in(properties):
        return
    for key in _ADDRESSES:
        scheme, host, port = _origin(str(properties.get(key, "")))
        if scheme == "http" and not _is_here(host):
            raise RefusedError(
                f"credentials would be sent to {scheme}://{host}:{port} without encryption",
                hint=f"use https, or set the catalog's {_PLAIN} to true if the network is private",
            )


def _logs_in(properties: Mapping[str, Any]) -> bool:
    """Whether requests to the catalog contain credentials. The storage's keys are not sent to the catalog."""
    keys = [key.lower() for key in properties]
    return (
        _is_signed(properties)
        or any(_LOGIN.fullmatch(key) for key in keys)
        or any(key.startswith("header.") and is_secret(key) for key in keys)
        or any(urlsplit(str(properties.get(key, ""))).username for key in _ADDRESSES)
    )


def _is_signed(properties: Mapping[str, Any]) -> bool:
    """Whether requests are signed with credentials of AWS."""
    return property_as_bool(
        {key: str(value) for key, value in properties.items()}, SIGV4, default=False
    )


def _is_here(host: str) -> bool:
    """Whether a host is this machine, which is reached without a network."""
    with suppress(ValueError):
        return ip_address(host).is_loopback
    return host == "localhost" or host.endswith(".localhost")


def _origin(address: str) -> tuple[str, str, int | None]:
    parts = urlsplit(address)
    scheme = parts.scheme.lower()
    return scheme, (parts.hostname or "").lower(), parts.port or _PORTS.get(scheme)


def _decisive(
    uncertain: requests.Response | requests.RequestException | None, last: requests.Response
) -> requests.Response:
    """Return the response to act on.

    After an attempt without an answer, the refusal of a retry proves nothing, so that attempt's error is raised.

    Raises:
        RequestException: an earlier attempt got no answer, and may have been applied.
    """
    if uncertain is None or last.ok or last.status_code == _CONFLICT:
        return last
    if isinstance(uncertain, requests.RequestException):
        raise uncertain
    return uncertain


def _pause(answer: requests.Response) -> float:
    """Return the seconds that a server asks its clients to wait, up to a limit."""
    seconds = natural_number(answer.headers.get("Retry-After", ""))
    return min(float(seconds or 0), _LONGEST_PAUSE)


def _time_ordered_uuid(clock: Clock, ids: Ids) -> str:
    """Return a new UUID of version 7 (RFC 9562), which the REST specification requires for keys."""
    random = UUID(ids.uuid()).int
    moment = clock.now_ms() & ((1 << 48) - 1)
    high = (moment << 16) | (7 << 12) | ((random >> 64) & 0xFFF)
    low = (0b10 << 62) | (random & ((1 << 62) - 1))
    return str(UUID(int=(high << 64) | low))


def _guarded(send: _Send, limits: tuple[float, ...], known: list[str]) -> _Send:
    def guarded(request: requests.PreparedRequest, **options: Any) -> requests.Response:
        check_host(str(request.url), known)
        options["timeout"] = options.get("timeout") or limits
        return _awaited(str(request.url), lambda: send(request, **options))

    return guarded


def _limited(post: _Send, limits: tuple[float, ...]) -> _Send:
    def limited(url: str, *arguments: Any, **options: Any) -> requests.Response:
        options = {"timeout": limits, **options}
        return _awaited(url, lambda: post(url, *arguments, **options))

    return limited


def _awaited(url: str, work: Callable[[], requests.Response]) -> requests.Response:
    """Make a request and return its answer.

    Raises:
        Timeout: the command was stopped, and there is no answer. Whether the request was processed is unknown.
    """
    try:
        return awaited(urlsplit(url).netloc, work)
    except StoreError as error:
        raise requests.Timeout(str(error)) from error
