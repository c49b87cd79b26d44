"""Only the user's configuration chooses the code that runs here and the stores that are used.

PyIceberg imports any module that a property names, and also reads such properties from tables and from catalog
servers: a writer of a table could run code on every machine that reads the table.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lake.core.base.errors import RefusedError
from lake.core.base.redaction import is_secret
from lake.core.base.trust.catalog_properties import has_own_login

if TYPE_CHECKING:
    from pyiceberg.table import Table as IcebergTable

# Properties that name Python code to import, or choose how this client logs in.
_CODE = frozenset(
    {
        *("py-io-impl", "py-catalog-impl", "s3.retry-strategy-impl", "auth", "ssl"),
        *("s3.profile-name", "client.profile-name"),
    }
)
# Properties that storage needs; a catalog's own secrets are not among them.
STORAGE = ("s3.", "adls.", "gcs.", "hdfs.", "client.", "oss.", "hf.")
# Properties that locate a store.
_PLACES = re.compile(r"\.(?:endpoint|proxy-uri|account-host|service\.host|token-uri)$|authority$")


def as_configured(given: Mapping[str, Any], configured: Mapping[str, Any]) -> dict[str, Any]:
    """Return the properties, with those that choose code taken from the user's configuration only."""
    own = {key: configured[key] for key in _CODE & configured.keys()}
    return {**{key: value for key, value in given.items() if key not in _CODE}, **own}


def file_properties(found: IcebergTable, configured: Mapping[str, Any]) -> dict[str, Any]:
    """Return the properties of a table's FileIO, without those that only the table's metadata sets.

    Those could send the user's credentials to a store that a writer of the table chose. Iceberg Java ignores them
    too.
    """
    properties = dict(found.io.properties)
    for key, value in found.metadata.properties.items():
        if properties.get(key) == value and found.config.get(key) != value:
            if key in configured:
                properties[key] = configured[key]
            else:
                del properties[key]
    return properties


def storage_properties(properties: Mapping[str, object]) -> dict[str, str]:
    """Return the properties that storage needs."""
    return {
        key: str(value)
        for key, value in properties.items()
        if key.startswith(STORAGE) and value is not None
    }


def refuse_secrets(properties: Mapping[str, str]) -> None:
    """Refuse to write credentials into a new table's metadata, which every reader of the table can read.

    Raises:
        RefusedError: a property is a credential of the storage.
    """
    for key in properties:
        if key.startswith(STORAGE) and is_secret(key):
            raise RefusedError(
                f"{key} would be stored in the table's metadata, which every reader of the table can read",
                hint="set it in the catalog's configuration; lake does not use a table's own value",
            )


def check_store(properties: Mapping[str, str], configured: Mapping[str, str]) -> None:
    """Refuse a store that a server chose for credentials that are not the server's.

    Args:
        properties: the properties that would open a table's store.
        configured: the storage properties of the user's configuration.

    Raises:
        RefusedError: the properties combine the server's store with the user's credentials.
    """
    for key, place in properties.items():
        family = key.split(".", maxsplit=1)[0]
        if not _PLACES.search(key) or configured.get(key) == place:
            continue
        keys = [name for name in properties if name.startswith(f"{family}.") and is_secret(name)]
        if not has_own_login(family, properties) or any(
            properties[name] == configured.get(name) for name in keys
        ):
            raise RefusedError(
                f"the catalog's server sets {key} to {place}, but did not provide the credentials for it",
                hint=f"if the address is right, set the catalog's {key} to it",
            )


def without_storage(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return the properties without those that storage needs."""
    return {key: value for key, value in properties.items() if not key.startswith(STORAGE)}
