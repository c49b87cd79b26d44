"""Marks in the names of metadata files, by which a catalog recognizes those that commits through it wrote.

A commit that is killed leaves its metadata file. It looks like a commit to the same table through another catalog,
whose files must not be deleted. The first digits of the UUID in the file's name show which catalog it was: they are
a hash of this machine, the catalog's name and address and, for SQLite, of the database file, so that a copy of the
database has another mark. A mark that changes, for example with the name of the machine, is only not recognized.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
from collections.abc import Mapping
from typing import Any

_DIGITS = 12
_NAME = re.compile(r"(.*/[0-9]+-)([0-9a-f]{8})-([0-9a-f]{4})(-[^/]*)", re.DOTALL)
_SECRETS = re.compile(r"//[^/]*@")


def mark_of(name: str, properties: Mapping[str, Any], database: str | None) -> str:
    """Return the mark of a catalog: 12 hexadecimal digits.

    Args:
        name: the catalog's name.
        properties: its properties.
        database: the file of a catalog in SQLite; None for any other catalog.
    """
    parts = [platform.node(), name]
    if database is None:
        parts += [
            f"{key}={_SECRETS.sub('//', str(properties.get(key)))}"
            for key in ("type", "uri", "warehouse")
        ]
    else:
        path = os.path.realpath(database)
        try:
            status = os.stat(path)
            parts += [path, str(status.st_dev), str(status.st_ino)]
        except OSError:
            # A database that is about to be created.
            parts.append(path)
    return hashlib.sha256("\0".join(parts).encode(errors="replace")).hexdigest()[:_DIGITS]


def marked(location: str, mark: str) -> str:
    """Return the location of a metadata file with a mark in its name; unchanged if the name has no UUID."""
    found = _NAME.fullmatch(location)
    return f"{found[1]}{mark[:8]}-{mark[8:]}{found[4]}" if found else location


def has_mark(location: str, mark: str) -> bool:
    """Whether the name of a metadata file has a mark."""
    found = _NAME.fullmatch(location)
    return found is not None and f"{found[2]}{found[3]}" == mark
