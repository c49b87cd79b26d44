"""File locations as Iceberg writes them: exact parsing, and whether one location contains another.

A location is ``scheme://authority/path``, ``file:/path`` or a plain absolute path. Nothing is decoded:
``%2F``, ``#`` and ``?`` are ordinary characters of a name, as they are for every writer.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from functools import lru_cache

from lake.core.base.errors import BadInputError

_SCHEME = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*):(//[^/]*)?(/.*|)$", re.DOTALL)
# Control characters, and the characters that end a path in a URL.
_CUTTING = "\x00-\x1f\x7f#?"
_CUT = re.compile(f"[{_CUTTING}]")
_UNSAFE_TO_DELETE = re.compile(f"[{_CUTTING}\u202a-\u202e\u2066-\u2069]")
# Engines use any of these schemes for the same object.
SAME_STORE = {
    "s3a": "s3",
    "s3n": "s3",
    "gcs": "gs",
    "abfs": "abfss",
    "wasb": "abfss",
    "wasbs": "abfss",
}
# Azure's hosts have two names.
_BLOB_STORES = frozenset({"wasb", "wasbs"})
MAX_LOCATION = 4096
_ROOT_PARTS = 2


@dataclass(frozen=True, slots=True)
class Location:
    """A parsed location: ``scheme`` (``file`` for plain paths), ``authority``, ``path`` from its slash on."""

    scheme: str
    authority: str
    path: str

    @property
    def is_local(self) -> bool:
        """Whether the location is on this machine's file system."""
        return self.scheme == "file"


def parse(location: str) -> Location:
    """Parse a location.

    Raises:
        BadInputError: it is empty, relative with a scheme, too long, or contains a NUL.
    """
    return _absolute(location) or Location("file", "", os.path.abspath(location))


@lru_cache(maxsize=1024)
def _absolute(location: str) -> Location | None:
    """Parse a location; return None for a path that depends on the working folder."""
    if not location or len(location) > MAX_LOCATION or "\x00" in location:
        raise BadInputError(f"not a usable location: {location[:80]!r}")
    found = _SCHEME.match(location)
    if not found:
        is_absolute = location.startswith("/")
        return Location("file", "", os.path.abspath(location)) if is_absolute else None
    scheme, authority, path = found.group(1).lower(), (found.group(2) or "//")[2:], found.group(3)
    if not path.startswith("/"):
        if authority and not path:
            path = "/"
        else:
            raise BadInputError(f"not a usable location: {location[:80]!r}")
    if scheme in _BLOB_STORES:
        authority = authority.replace(".blob.", ".dfs.", 1)
    return Location(SAME_STORE.get(scheme, scheme), authority, path)


def store_of(location: str) -> tuple[str, str]:
    """Return the scheme and the authority of a location, which name its store.

    Raises:
        BadInputError: see `parse`.
    """
    parsed = parse(location)
    return parsed.scheme, parsed.authority


def has_scheme(location: str) -> bool:
    """Whether a text is a location with a scheme, not a path of this machine."""
    return bool(_SCHEME.match(location))


def canonical(location: str) -> str:
    """Return one text per object: scheme aliases, ``file:`` spellings and repeated slashes are normalised.

    ``..`` and ``.`` are kept: `deletable` decides whether such a name may be deleted.
    """
    parsed = parse(location)
    path = re.sub("/{2,}", "/", parsed.path)
    return f"{parsed.scheme}://{parsed.authority}{path}"


def folded(location: str) -> str:
    """Return `canonical`'s text, or the location itself if it cannot be parsed."""
    try:
        return canonical(location)
    except BadInputError:
        return location


def is_truncated(name: str) -> bool:
    """Whether URL parsing would truncate or alter this name."""
    return bool(_CUT.search(name))


def join(base: str, *names: str) -> str:
    """Append names to a location, with one slash between."""
    return "/".join([base.rstrip("/"), *names])


def within(location: str, root: str) -> bool:
    """Whether the location is below the root, by name."""
    return canonical(location).startswith(canonical(root).rstrip("/") + "/")


def deletable(location: str, roots: list[str]) -> bool:
    """Whether lake may delete this file: it is below one of the table's own roots by name and has no unsafe part.

    Unsafe are ``.`` and ``..`` segments, control and direction characters, ``#`` or ``?``, which other readers treat
    as the end of the name, and a slash at the end, which file systems ignore. A root must itself have two parts:
    ``s3://bucket`` owns nothing.
    """
    if location.endswith("/"):  # check: trailing-slash
        return False
    try:
        text = canonical(location)
        path = parse(location).path
    except BadInputError:
        return False
    # check: unsafe-path-parts
    if _UNSAFE_TO_DELETE.search(text) or any(part in {".", ".."} for part in path.split("/")):
        return False
    return text.startswith(_owned(tuple(roots)))


def ownable(root: str) -> bool:
    """Whether a folder may belong to a table: absolute, without ``..``, not ``/`` and not directly below it."""
    try:
        parsed = parse(root)
    except BadInputError:
        return False
    if not parsed.is_local:
        return ".." not in parsed.path.split("/")
    return (root.startswith("/") or bool(_SCHEME.match(root))) and _deep_enough(root)


@lru_cache(maxsize=16)
def _owned(roots: tuple[str, ...]) -> tuple[str, ...]:
    """Return the canonical prefixes of the locations below a table's roots."""
    return tuple(canonical(root).rstrip("/") + "/" for root in roots if _deep_enough(root))


def _deep_enough(root: str) -> bool:
    parsed = parse(root)
    parts = [part for part in (parsed.authority, *parsed.path.split("/")) if part]
    return len(parts) >= _ROOT_PARTS and ".." not in parts  # check: not-a-bucket-root


def public_form(location: str) -> str:
    """Return a location without what may be a secret: the user, the query and the fragment of a URL."""
    if not has_scheme(location):
        return location
    scheme, _, rest = location.partition("://")
    rest = re.split(r"[?#]", rest, maxsplit=1)[0]
    host, slash, path = rest.partition("/")
    return f"{scheme}://{host.rpartition('@')[2]}{slash}{path}"
