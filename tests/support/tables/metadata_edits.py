"""Table metadata of a warehouse with one table, read and edited as plain JSON."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

Plain = dict[str, Any]


def metadata_path(warehouse: Path) -> Path:
    """Return the current metadata file of the only table, of an embedded or a hadoop catalog."""
    hints = list(warehouse.glob("*/*/metadata/version-hint.text"))
    if hints:
        return hints[0].with_name(f"v{hints[0].read_text()}.metadata.json")
    with sqlite3.connect(warehouse / "catalog.db") as database:
        ((location,),) = database.execute("SELECT metadata_location FROM iceberg_tables")
    # Java writes one slash, lake three.
    return Path(urlsplit(location).path)


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


def java_would_refuse(plain: Plain) -> list[str]:
    """Return which of the rules for times in the constructor of Iceberg Java's TableMetadata do not hold."""
    minute, problems = 60_000, []
    for name in ("snapshot-log", "metadata-log"):
        times = [entry["timestamp-ms"] for entry in plain[name]]
        if any(later - earlier < -minute for earlier, later in pairwise(times)):
            problems.append(f"{name} is not sorted: {times}")
        if times and plain["last-updated-ms"] - times[-1] < -minute:
            problems.append(f"last-updated-ms is before the end of {name}")
    return problems
