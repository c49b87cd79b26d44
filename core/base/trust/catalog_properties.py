"""The rule for `.pyiceberg.yaml` in the working folder: which properties of a catalog count.

Code never counts: classes, logins that PyIceberg imports, database drivers. An address counts in a folder that is not
trusted if no secret goes there but those of the same file: a secret of the environment for the same catalog, and
what client libraries find themselves (AWS's and Google's logins, ``.netrc``, ``.pgpass``).
"""

from __future__ import annotations

import netrc
import os
import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from lake.core.base.redaction import has_password, is_secret
from lake.core.base.trust.project_settings import is_foreign_place
from lake.core.base.trust.withheld import Withheld, names_code, needs_trust

_CODE = re.compile(r"(?:^|[.-])impl$|^auth(?:\.|$)")
# Kinds of logins that use only what is written beside them.
_PLAIN_LOGINS = frozenset({"noop", "basic", "oauth2", "legacyoauth2"})
_DATABASES = frozenset(
    {
        *("sqlite", "sqlite+pysqlite", "postgresql", "postgresql+psycopg2", "postgresql+psycopg"),
        *("postgresql+asyncpg", "postgresql+pg8000"),
    }
)
# Parameters of a PostgreSQL address that name neither a server nor a file.
_PLAIN_PARAMETERS = frozenset({"sslmode", "connect_timeout", "application_name"})
# Properties that choose one of the user's own logins, or how well secrets are protected on their way.
_LOGINS = re.compile(
    r"profile-name$|credentials?-file$|kerberos|role-arn$|session-kwargs$|^rest\.sigv4-enabled$|^ssl(?:\.|$)"
    r"|^lake\.allow-plain-http$|-scheme$|\bsigner\b"
)
_SERVERS = frozenset({"uri", "oauth2-server-uri"})
_PLACES = re.compile(
    r"\.(?:endpoint|proxy-uri|account-host|host|token-uri|server-uri|service\.host)$|authority$"
)
_REGION = re.compile(r"region$")
_PLAIN_REGION = re.compile(r"[\w-]{1,63}")
# The first words of properties of stores, and of AWS's catalogs, which the catalog's server does not get.
_AWS_CATALOGS = ("glue", "dynamodb")
_AWS = ("s3", "client", *_AWS_CATALOGS)
_STORES = (*_AWS, "adls", "gcs", "hdfs", "hf", "oss")
_POSTGRES_LOGINS = ("PGPASSWORD", "PGPASSFILE", "PGSERVICE", "PGSERVICEFILE")
_OFF = frozenset({"", "false", "0", "no"})


def withheld_properties(
    catalog: str,
    found: Mapping[str, Any],
    above: Mapping[str, Any],
    source: str,
    *,
    trusted: bool,
) -> dict[str, Withheld]:
    """Return the properties that do not count, by their keys.

    Args:
        catalog: the name of the catalog.
        found: its properties in a file of the working folder.
        above: its properties in more trusted sources, which replace those of the file.
        source: the path of the file.
        trusted: whether the user trusts the folder.
    """
    folder = os.path.dirname(source)
    withheld = {}
    for key, value in found.items():
        name = f"{key} of catalog {catalog}"
        if _chooses_code(key, value, {**found, **above}):
            place = f"write it to ~/.pyiceberg.yaml, with the rest of catalog {catalog}"
            withheld[key] = names_code(name, source, place)
        elif not (trusted or above.get(key)) and (
            reason := _foreign_secret(key, value, found, above)
        ):
            withheld[key] = needs_trust(name, source, folder, reason)
    return withheld


def _chooses_code(key: str, value: Any, effective: Mapping[str, Any]) -> bool:
    if key == "auth" and isinstance(value, Mapping):
        kind = str(value.get("type", "")).lower()
        return kind not in _PLAIN_LOGINS or bool(set(value) - {"type", kind})
    if _CODE.search(key):
        return True
    kind = str(effective.get("type") or "").lower()
    scheme = str(value).strip().partition(":")[0].lower()
    # The name of another database is the name of its driver, and a driver may load the library that an address names.
    known = _DATABASES if kind else {*_DATABASES, "http", "https", "thrift"}
    return key == "uri" and kind in {"", "sql", "in-memory"} and scheme not in known


def _foreign_secret(
    key: str, value: Any, found: Mapping[str, Any], above: Mapping[str, Any]
) -> str | None:
    """Return a clause about the secret of a more trusted source that a property would use or send; None without."""
    text = str(value).strip()
    if _LOGINS.search(key):
        off = not isinstance(value, Mapping) and text.lower() in _OFF
        return None if off else "chooses how your own logins are used"
    family = key.partition(".")[0]
    if key == "warehouse":
        return "names a server that could receive your login" if is_foreign_place(text) else None
    if _REGION.search(key):
        return None if _PLAIN_REGION.fullmatch(text) else "is not a region, and becomes an address"
    if key == "auth" or key in _SERVERS:
        secret = next(_secrets(above, lambda word: word not in _STORES), None)
        if secret or key == "auth":
            return secret and f"would receive {_variable(secret)}"
        return _login_of_client(text, above)
    if not _PLACES.search(key):
        return None
    words = _AWS if family in _AWS else (family,)
    if secret := next(_secrets(above, lambda word: word in words), None):
        return f"would receive {_variable(secret)}"
    return None if _has_own_login(family, found) else "would receive this machine's own login"


def _secrets(above: Mapping[str, Any], belongs: Any) -> Iterator[str]:
    """Yield the keys of secrets among properties whose first words belong to what an address serves."""
    for key, value in above.items():
        word = key.partition(".")[0]
        if belongs(word) and (is_secret(key) or has_password(str(value)) or key == "auth"):
            yield key


def _variable(key: str) -> str:
    return f"the secret '{key}' of your environment"


def _has_own_login(family: str, found: Mapping[str, Any]) -> bool:
    """Whether a file contains the login of a store itself, or says that there is none."""
    # The client of a catalog does not use the keys of a store.
    families = {family, "client"} if family in _AWS else {family}
    own = [key for key in found if key.partition(".")[0] in families and found[key]]
    if family not in _AWS_CATALOGS and any(
        key.endswith(("anonymous", "anon")) and str(found[key]).lower() == "true" for key in own
    ):
        return True
    if family in _AWS:
        return {"access-key-id", "secret-access-key"} <= {key.partition(".")[2] for key in own}
    return any(is_secret(key) for key in own)


def _login_of_client(address: str, above: Mapping[str, Any]) -> str | None:
    """Return a clause about a login that a client library would find for an address; None if there is none."""
    if address.startswith("postgresql"):
        return _login_of_database(address)
    if not address.lower().startswith("http"):
        return None
    if str(above.get("rest.sigv4-enabled", "")).lower() not in _OFF:
        return "would receive this machine's own login"
    if _is_in_netrc(address):
        return "would receive a password of your .netrc"
    return None


def _login_of_database(address: str) -> str | None:
    try:
        parts = urlsplit(address)
        asked = dict(parse_qsl(parts.query, keep_blank_values=True))
        password = parts.password
    except ValueError:
        return "cannot be parsed"
    if asked.keys() - _PLAIN_PARAMETERS:
        return "has parameters that may name a server or a file"
    if password:
        return None
    if any(os.environ.get(name) for name in _POSTGRES_LOGINS) or os.path.exists(
        os.path.expanduser("~/.pgpass")
    ):
        return "would receive your own password of PostgreSQL"
    return None


def _is_in_netrc(address: str) -> bool:
    """Whether the client of HTTP would log in by a ``.netrc`` file, which may have an entry for any host."""
    named = os.environ.get("NETRC")
    for path in (named,) if named else ("~/.netrc", "~/_netrc"):
        place = os.path.expanduser(path)
        if not os.path.exists(place):
            continue
        try:
            return netrc.netrc(place).authenticators(urlsplit(address).hostname or "") is not None
        except (netrc.NetrcParseError, OSError, ValueError):
            # The client ignores it.
            return False
    return False
