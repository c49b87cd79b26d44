"""Table metadata of an embedded catalog, read and edited as plain JSON."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

Plain = dict[str, Any]


def metadata_path(warehouse: Path) -> Path:
    """Return the current metadata file of the only table."""
    with sqlite3.connect(warehouse / "catalog.db") as database:
        ((location,),) = database.execute("SELECT metadata_location FROM iceberg_tables")
    return Path(location.removeprefix("file://"))


def read_metadata(warehouse: Path) -> Plain:
    """Return the current metadata of the only table."""
    plain: Plain = json.loads(metadata_path(warehouse).read_text())
    return plain


def edit_metadata(warehouse: Path, change: Callable[[Plain], object]) -> Plain:
    """Change the current metadata file of the only table in its place, and return what it holds then."""
    path = metadata_path(warehouse)
    plain: Plain = json.loads(path.read_text())
    change(plain)
    path.write_text(json.dumps(plain))
    return plain


def retype(name: str, text: str) -> Callable[[Plain], None]:
    """Return an edit that gives a column another type in all schemas."""

    def change(plain: Plain) -> None:
        for schema in plain["schemas"]:
            for field in schema["fields"]:
                if field["name"] == name:
                    field["type"] = text

    return change
