"""PyIceberg's REST catalog, bounded: each request has a time limit, and goes to configured hosts only.

Without a limit a server that stalls would hold a cron job for ever. And a server may tell its clients to go
on elsewhere, by a redirect or by its configuration: they would carry their credentials there. Limits are set
as for Java's client, by `rest.client.connection-timeout-ms` and `rest.client.socket-timeout-ms`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import requests
from pyiceberg.catalog.rest import Capability, RestCatalog, auth
from pyiceberg.exceptions import RESTError
from requests.adapters import HTTPAdapter
from urllib3.util.retry import Retry

from lake.core.errors import RefusedError
from lake.core.table.credentials import Credentials
from lake.core.table.foreign_code import as_configured, check_store, storage_properties

_CONNECT_MS, _CONNECT = "rest.client.connection-timeout-ms", 10_000
_READ_MS, _READ = "rest.client.socket-timeout-ms", 60_000
# Where credentials may go.
_ADDRESSES = ("uri", "oauth2-server-uri")
# Requests that change nothing are sent again; what changes something never is.
_AGAIN = Retry(
    total=3,
    read=1,
    status_forcelist=(429, 502, 503, 504),
    allowed_methods=("GET", "HEAD"),
    backoff_factor=0.2,
    respect_retry_after_header=False,
    raise_on_status=False,
)
_PORTS = {"http": 80, "https": 443}


class BoundedRestCatalog(RestCatalog):
    """A REST catalog as the user configured it."""

    # Tables may come with properties, and credentials, of the server's.
    vends = True
    # What opens each table's store, as it came last.
    vended: dict[tuple[str, ...], Credentials]

    def __init__(self, name: str, **properties: Any) -> None:
        self._configured = dict(properties)
        self._limits = tuple(
            _seconds(properties, key, default)
            for key, default in ((_CONNECT_MS, _CONNECT), (_READ_MS, _READ))
        )
        # One way of logging in has no session of ours.
        post = _limited(requests.post, self._limits)
        auth.requests = SimpleNamespace(post=post)  # type: ignore[attr-defined,assignment]
        self.vended = {}
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
        """Ask for a table's credentials once more.

        A server that gave some by prefix has an address for nothing else; others are asked for the table.
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
        # The first thing that happens to a new session, before it fetches a token.
        super()._config_headers(session)
        for scheme in _PORTS:
            session.mount(f"{scheme}://", HTTPAdapter(max_retries=_AGAIN))
        known = [self._configured[key] for key in _ADDRESSES if key in self._configured]
        session.send = _guarded(session.send, self._limits, known)  # type: ignore[method-assign]

    def _fetch_config(self) -> None:
        super()._fetch_config()
        self.properties = as_configured(self.properties, self._configured)


def check_host(address: str, known: list[str]) -> None:
    """Refuse an address on a host that is none of those known, or that lacks their encryption.

    Raises:
        RefusedError: it is one.
    """
    scheme, host, port = _origin(address)
    origins = [_origin(item) for item in known]
    if (scheme, host, port) in origins or (
        scheme == "https" and any(host == item[1] for item in origins)
    ):
        return
    place = f"{scheme}://{host}:{port}"
    raise RefusedError(
        f"the catalog's server sends its clients on to {place}, which is not configured",
        hint=f"if that is right, set the catalog's uri (or oauth2-server-uri) to {place}",
    )


def _origin(address: str) -> tuple[str, str, int | None]:
    parts = urlsplit(address)
    scheme = parts.scheme.lower()
    return scheme, (parts.hostname or "").lower(), parts.port or _PORTS.get(scheme)


def _guarded(
    send: Callable[..., requests.Response], limits: tuple[float, ...], known: list[str]
) -> Callable[..., requests.Response]:
    def guarded(request: requests.PreparedRequest, **options: Any) -> requests.Response:
        check_host(str(request.url), known)
        return send(request, **{**options, "timeout": options.get("timeout") or limits})

    return guarded


def _limited(
    post: Callable[..., requests.Response], limits: tuple[float, ...]
) -> Callable[..., requests.Response]:
    def limited(*arguments: Any, **options: Any) -> requests.Response:
        return post(*arguments, **{"timeout": limits, **options})

    return limited


def _seconds(properties: Mapping[str, Any], key: str, default: int) -> float:
    text = str(properties.get(key, ""))
    return (int(text) if text.isdigit() and int(text) else default) / 1000
