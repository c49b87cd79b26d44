"""Azure's stores (Blob Storage, Data Lake Storage, OneLake): their client by the properties of PyIceberg's FileIO.

A location is ``abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/PATH``, or ``abfss://CONTAINER/PATH`` with the account
in ``adls.account-name``. Logins: the properties ``adls.…``, or the sources of Azure's own tools: the environment
(``AZURE_…``), workload identity, the login of ``az``, managed identity.

A location may come from a table's metadata, which others write. No secret goes to the server of a location, unless it
is Azure's or a configured one, nor to an account other than the configured one.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from lake.core.base.errors import BadInputError
from lake.core.io.objects.cloud_objects import CloudObjects, Entry, Login
from lake.core.io.objects.requests import NOT_FOUND, StoreError
from lake.core.io.objects.whole_objects import Address, Part, is_supported

if TYPE_CHECKING:
    from obstore.store import ClientConfig

_HOST = re.compile(
    r"([a-z0-9-]{1,64})(?:\.[a-z0-9-]{1,16})?\.(?:blob|dfs)(\.core\.(?:windows\.net|chinacloudapi\.cn"
    r"|usgovcloudapi\.net)|\.fabric\.microsoft\.com|\.storage\.azure\.net)",
    re.IGNORECASE,
)
_CLOUD = ".core.windows.net"
# The metadata of a folder.
_FOLDER = "hdi_isfolder"
# The secrets that are a login alone, each by the property of PyIceberg, the first one first; and the other settings.
_SECRETS = {"token": "token", "account-key": "access_key", "sas-token": "sas_token"}
_FORMS = {
    "token": re.compile(r"[!-~]+"),
    "account-key": re.compile(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?"),
    "sas-token": re.compile(r"\??[^=&\s]+=[^&\s]*(?:&[^=&\s]+=[^&\s]*)*"),
}
# Logins for one account, and the settings with which the client uses no login of the environment.
_OF_ACCOUNT = re.compile(r"(?:sas-token|connection-string)\.")
_OWN = frozenset({"credential_provider", "skip_signature"})
_CLIENT = {"client-id": "client_id", "client-secret": "client_secret", "tenant-id": "tenant_id"}
_SETTINGS = frozenset({*_SECRETS, *_CLIENT})
# The members of a connection string.
_MEMBERS = {
    "accountname": "account-name",
    "accountkey": "account-key",
    "sharedaccesssignature": "sas-token",
    "blobendpoint": "endpoint",
    "endpointsuffix": "suffix",
}
# Variables with which the client logs in without others.
_VARIABLES = re.compile(
    r"AZURE_(?:STORAGE_(?:(?:ACCOUNT|ACCESS|MASTER|SAS)_KEY|SAS_TOKEN|TOKEN|CLIENT_ID)|CLIENT_ID|USE_AZURE_CLI"
    r"|FEDERATED_TOKEN_FILE|MSI_ENDPOINT|IDENTITY_ENDPOINT|SKIP_SIGNATURE)"
)
# Those that it prefers to a client's secret.
_PREFERRED = re.compile(r"AZURE_STORAGE_(?:(?:ACCOUNT|ACCESS|MASTER)_KEY|TOKEN)")


class AzureObjects(CloudObjects):
    """The objects of a container."""

    name = "Azure"
    _login_hint = "log in with az login, set AZURE_STORAGE_ACCOUNT_KEY, or set adls.account-key or adls.sas-token"
    _tag = "e_tag"
    most_keys = keys_of_request = 256

    @classmethod
    def of(cls, properties: Mapping[str, str], authority: str) -> AzureObjects:
        """Return the client of a container.

        Args:
            properties: storage properties.
            authority: the container, and behind an @ the host.

        Raises:
            BadInputError: the account is not known, or another than the configured one, or has no login.
        """
        container, _, host = authority.partition("@")
        found = _settings_of(properties, host)
        account, endpoint = _account(found, host)
        if not is_supported(endpoint.removesuffix(f"/{account}")):
            raise BadInputError("the endpoint of Azure's store is not the address of a server")
        login = _login(found)
        is_azures = _HOST.fullmatch(urlsplit(endpoint).hostname or "")
        if not (is_azures or login.keys() & _OWN) and any(map(_OF_ACCOUNT.match, found)):
            raise BadInputError(f"there is no login for the account {account} at {endpoint}")
        return cls(Address(container, endpoint, ""), {"account_name": account, **login})

    def end(self, key: str, most: int) -> Part | None:
        """Return the last bytes of an object, all of a small one; None if it does not exist.

        Azure knows no ranges that count from the end: a large object takes a second request.

        Raises:
            StoreError: the store refused a request or did not answer, or the object was replaced.
        """
        begin = self.part(key, 0, most)
        if begin is None or begin.size <= most:
            return begin
        end = self.part(key, begin.size - most, most)
        if end and end.tag != begin.tag:
            # Without a status, it is asked for again.
            raise StoreError("Azure Error: the object was replaced between two requests")
        return end

    def find(self, key: str) -> Entry | None:
        """Return an object's description; None if it does not exist, or is a folder.

        With a hierarchical namespace, a folder has the description of an empty object.

        Raises:
            StoreError: the store refused a request, or did not answer.
        """
        found = super().find(key)
        if found is None or found.size:
            return found

        def is_folder() -> bool:
            described = self._client.get(self._store, key, options={"head": True})
            return bool(described.attributes.get(_FOLDER) == "true")

        return None if self._unless(NOT_FOUND, is_folder) else found

    def _open(self, options: ClientConfig, retries: Any) -> Any:
        from obstore.store import AzureStore  # noqa: PLC0415 - door: remote stores only

        return AzureStore(
            self.address.bucket,
            endpoint=self.address.endpoint,
            client_options=options,
            retry_config=retries,
            **self._settings,
        )


def _settings_of(properties: Mapping[str, str], host: str) -> dict[str, str]:
    """Return the properties of Azure by their names without ``adls.``, with those of a connection string.

    A connection string contains a login of its own: an address in it receives no other secret.

    Raises:
        BadInputError: it contains none.
    """
    given = {
        key.removeprefix("adls."): str(value)
        for key, value in properties.items()
        if key.startswith("adls.") and value
    }
    if text := given.get(f"connection-string.{host}") or given.get("connection-string"):
        pairs = [part.partition("=") for part in text.split(";")]
        members = {name.strip().lower(): value for name, _, value in pairs if value}
        stated = {_MEMBERS[name]: value for name, value in members.items() if name in _MEMBERS}
        if not stated.keys() & _SETTINGS:
            raise BadInputError(
                "adls.connection-string contains neither AccountKey nor SharedAccessSignature"
            )
        return {key: value for key, value in given.items() if key not in _SETTINGS} | stated
    account = host.partition(".")[0]
    # A catalog's server vends a signature for each account, by its host or its name.
    for name in (host, account):
        if vended := given.get(f"sas-token.{name}"):
            return {**given, "sas-token": vended, "account-name": account}
    return given


def _account(found: Mapping[str, str], host: str) -> tuple[str, str]:
    """Return an account's name and the URI of its store.

    Raises:
        BadInputError: there is none, or it is not the configured one.
    """
    configured = found.get("account-name", "")
    scheme = found.get("blob-storage-scheme") or "https"
    authority = found.get("blob-storage-authority") or ""
    hosts = {found.get("account-host"), authority, found.get("dfs-storage-authority")} - {None, ""}
    named = _HOST.fullmatch(host)
    if host and not named and host not in hosts:
        raise BadInputError(
            f"{host} is not a host of Azure",
            hint="if the server is your own, name it by adls.blob-storage-authority",
        )
    account = (
        named[1].lower()
        if named
        else configured or os.environ.get("AZURE_STORAGE_ACCOUNT_NAME", "")
    )
    if not account:
        raise BadInputError(
            "the location does not name an account of Azure",
            hint="use abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/…, or set adls.account-name",
        )
    if configured and account != configured.lower():
        raise BadInputError(
            f"the location is in the account {account}, but the settings are those of {configured}"
        )
    if endpoint := found.get("endpoint"):
        return account, endpoint.rstrip("/")
    if authority and not authority.startswith("."):
        # An emulator names the account by the path.
        is_named = authority.lower().startswith(f"{account}.")
        return (
            account,
            f"{scheme}://{authority}" if is_named else f"{scheme}://{authority}/{account}",
        )
    if named:
        return account, f"https://{host.lower().replace('.dfs.', '.blob.')}"
    suffix = authority or f".blob.{found.get('suffix') or _CLOUD[1:]}"
    return account, f"{scheme}://{found.get('account-host') or account + suffix}"


def _login(found: Mapping[str, str]) -> dict[str, Any]:
    """Return the settings of a login; none of them if the client finds its own in the environment.

    Raises:
        BadInputError: the settings are not valid, or the client would use the environment's login instead.
    """
    if found.get("anon", "").lower() == "true":
        return {"skip_signature": True}
    given = [key for key in _SECRETS if found.get(key)]
    if given and (given != ["sas-token"] or not found.get("client-secret")):
        if not _FORMS[given[0]].fullmatch(found[given[0]]):
            raise BadInputError(f"adls.{given[0]} is incomplete, or not one of Azure")
        return {"credential_provider": Login((_SECRETS[given[0]], found[given[0]]))}
    settings: dict[str, Any] = {name: found[key] for key, name in _CLIENT.items() if found.get(key)}
    preferred = sorted(filter(_PREFERRED.fullmatch, os.environ))
    if settings and preferred:
        raise BadInputError(
            f"{preferred[0]} in the environment would be used instead of adls.client-id",
            hint="remove one of them",
        )
    if settings or any(_VARIABLES.fullmatch(name) for name in os.environ):
        return settings
    # Without all of these, the client asks for a managed identity.
    folder = os.environ.get("AZURE_CONFIG_DIR") or os.path.expanduser("~/.azure")
    is_logged_in = os.path.exists(os.path.join(folder, "azureProfile.json"))
    return {"use_azure_cli": True} if is_logged_in and shutil.which("az") else {}
