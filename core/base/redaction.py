"""Remove secrets from text for users and logs: the last step before any text leaves lake."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from urllib.parse import quote, quote_plus

from lake.core.base.errors import LakeError
from lake.core.base.options import quote_options

MASK = "***"
# lake's own texts may list many columns; texts of libraries and servers are cut to a line where they enter.
MAX_TEXT = 4000

# A configuration key that contains one of these names a secret.
_SECRET_KEYS = re.compile(
    r"secret|token|passw(?:or)?d|passphrase|credential|key|authorization|\bsas\b|sas[-_.]?token"
    r"|session|signature|oauth|private|cookie|connection[-_.]?string|^header\.",
    re.IGNORECASE,
)
# Many environment variables contain such words but no secret (XDG_SESSION_TYPE, SSH_KEY_PATH).
_SECRET_VARIABLES = re.compile(
    r"secret|token|passw(?:or)?d|passphrase|credential|(?:access|account|api|auth|master|sas)_?key"
    r"|signature|connection_?string|_(?:sas|pwd|pass|pat|pw)$",
    re.IGNORECASE,
)
_CATALOG_VARIABLE = "PYICEBERG_"
# Properties of Azure that end with the name of an account or a host.
_SECRETS_OF_ACCOUNTS = re.compile(r"^adls\.(?:sas-token|connection-string)\.")
# Addresses and switches are not secrets, and masking them would make an error useless.
_PUBLIC_KEYS = re.compile(
    r"(?:uri|url|endpoint|type|enabled|file|path|dir|scope|impl|region|timeout|ms"
    r"|delegation|agent|accept|content-type|encoding)$",
    re.IGNORECASE,
)
# Masking shorter values would mask ordinary words.
_SHORTEST = 6

_NAME = (
    r"(?:secret|token|passw(?:or)?d|passphrase|credential|access[-_.]?key|account[-_.]?key|api[-_.]?key"
    r"|private[-_.]?key|session[-_.]?key|signature|oauth|authorization|sas[-_.]token)"
)
_VALUE = r"""(?:"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^\s"',;&}\])]+)"""
# What looks like a name of a secret and its value, but is a path and an error: `/data/secret: …`, `tokens.csv: …`.
_PATH = (
    r"(?:(?<!/)|(?![\w.-]++:\s))"
    r"(?![\w.-]+?\.(?:csv|tsv|parquet|pq|jsonl?|ndjson|avro|orc|arrows?|ipc|feather|gz|bz2|zst|lz4|txt|log|db)[\"']?:)"
)
# Foreign texts may be long: each pattern starts at most once per word and does not backtrack across words.
_PATTERNS = (
    (
        re.compile(r"(authorization[\"']?\s*[:=]\s*[\"']?)[^\"',;\r\n}]+", re.IGNORECASE),
        rf"\1{MASK}",
    ),
    (re.compile(r"(cookie[\"']?\s*[:=]\s*[\"']?)[^\"'\r\n}]+", re.IGNORECASE), rf"\1{MASK}"),
    (re.compile(r"\b(bearer|basic)\s+[\w.~+/=-]{6,}", re.IGNORECASE), rf"\1 {MASK}"),
    (
        re.compile(
            rf"(?<![\w.-]){_PATH}(?=[\w.-]*?{_NAME})([\w.-]++[\"']?\s*[=:]\s*){_VALUE}",
            re.IGNORECASE,
        ),
        rf"\1{MASK}",
    ),
    # Presigned URLs of S3, Google Cloud Storage and Azure.
    (
        re.compile(
            r"([?&](?:X-(?:Amz|Goog)-(?:Signature|Credential|Security-Token)|sig|AWSAccessKeyId)=)"
            r"[^&\s\"']+",
            re.IGNORECASE,
        ),
        rf"\1{MASK}",
    ),
    (re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{12,}\b"), MASK),
    # A JSON web token.
    (re.compile(r"(?<![\w-])eyJ[\w-]{8,}+\.[\w-]{8,}+\.[\w-]*"), MASK),
    (
        re.compile(
            r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|$)",
            re.DOTALL,
        ),
        MASK,
    ),
)
# A word with a URL in it; the user name begins after the slashes.
_ADDRESS = re.compile(r"(?<!\S)\S*?://\S*+")
_USER = re.compile(r"://[^\s/:@]*+:")
_BIDIRECTIONAL = frozenset(
    "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
)
_UNPRINTABLE = frozenset({"Cc", "Cs", "Zl", "Zp"})


def is_secret(key: str) -> bool:
    """Whether a configuration key names a secret."""
    is_public = _PUBLIC_KEYS.search(key) and not _SECRETS_OF_ACCOUNTS.search(key)
    return bool(_SECRET_KEYS.search(key)) and not is_public


def is_secret_variable(name: str) -> bool:
    """Whether an environment variable may contain a secret; those of PyIceberg's configuration may."""
    return name.startswith(_CATALOG_VARIABLE) or bool(
        _SECRET_VARIABLES.search(name) and not _PUBLIC_KEYS.search(name)
    )


class Redactor:
    """Masks known secrets and text that looks like a secret."""

    def __init__(self) -> None:
        self._values: set[str] = set()

    def learn_environment(self, environment: Mapping[str, str]) -> None:
        """Remember the values of environment variables that contain secrets."""
        for name, value in environment.items():
            if name.startswith(_CATALOG_VARIABLE):
                key = name.split("__", 2)[-1].replace("__", ".").replace("_", "-")
                self.learn({key: value})
            elif is_secret_variable(name):
                self._add(value)
            else:
                self._learn_passwords(value)

    def learn(self, properties: Mapping[str, object], prefix: str = "") -> None:
        """Remember the values of properties whose keys name secrets; mappings may be nested."""
        for key, value in properties.items():
            name = f"{prefix}{key}"
            if isinstance(value, Mapping):
                self.learn(value, f"{name}.")
                continue
            self._learn_passwords(str(value))
            if is_secret(name):
                self._add(str(value))

    def __call__(self, text: str, *, limit: int | None = MAX_TEXT) -> str:
        """Return the text without secrets and control characters, cut to a maximum length."""
        for value in sorted(self._values, key=len, reverse=True):
            text = text.replace(value, MASK)
        text = self._without_cut_value(text)
        text = _ADDRESS.sub(_without_user, text)
        for pattern, replacement in _PATTERNS:
            text = pattern.sub(replacement, text)
        text = printable(text)
        return text if limit is None or len(text) <= limit else text[: limit - 1] + "…"

    def _without_cut_value(self, text: str) -> str:
        """Mask the end of a text if it is the beginning of a secret that was cut before it came here."""
        end = text.rstrip(")]}'\" …")
        for value in self._values:
            for length in range(min(len(value), len(end)), _SHORTEST - 1, -1):
                if end.endswith(value[:length]):
                    return end[:-length] + MASK + text[len(end) :]
        return text

    def _learn_passwords(self, text: str) -> None:
        for address in _ADDRESS.findall(text):
            if found := _password(address):
                self._add(address[slice(*found)])

    def _add(self, value: str) -> None:
        # `client:secret` is one credential of two parts, either of which a server may repeat; and a connection string
        # has members.
        members = [part.partition("=")[2] for part in value.split(";")] if ";" in value else ()
        for part in {value, *value.split(":"), *members}:
            if len(part) >= _SHORTEST:
                spelled = (repr(part)[1:-1], json.dumps(part)[1:-1])
                self._values.update({part, quote(part, safe=""), quote_plus(part), *spelled})


def mask(error: LakeError, redact: Callable[[str], str]) -> None:
    """Remove the secrets from what an error says."""
    error.message = redact(error.message)
    error.hint = error.hint and redact(error.hint)
    error.args = (quote_options(error.message),)


@contextmanager
def shown_as(name: str, paths: Iterable[str]) -> Iterator[None]:
    """Let errors have a name that the user knows in the place of the paths of temporary files."""
    try:
        yield
    except LakeError as error:
        for path in paths:
            mask(error, lambda text, path=path: text.replace(path, name))  # type: ignore[misc]
        raise


def has_password(text: str) -> bool:
    """Whether a text contains an address with a password."""
    return any(_password(address) for address in _ADDRESS.findall(text))


def _password(address: str) -> tuple[int, int] | None:
    """Return the span of the password in ``user:password@``; it may contain an unescaped @ or slash."""
    end = address.rfind("@")
    found = _USER.search(address, 0, max(end, 0))
    return (found.end(), end) if found else None


def _without_user(found: re.Match[str]) -> str:
    address = found[0]
    if span := _password(address):
        begin = address.rfind("://", 0, span[0]) + len("://")
        return f"{address[:begin]}{MASK}{address[span[1] :]}"
    return address


def printable(text: str) -> str:
    """Replace control and direction characters, so that a name cannot control a terminal."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        "�"
        if char in _BIDIRECTIONAL
        or (char not in "\n\t" and unicodedata.category(char) in _UNPRINTABLE)
        else char
        for char in text
    )


def one_line(text: str) -> str:
    """Return the text as one printable line, so that a name cannot imitate a separate line."""
    if text.isascii() and text.isprintable():
        return text
    return " ".join(printable(text).split("\n")).replace("\t", " ")
