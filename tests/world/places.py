"""Where the tables lie that commands are killed on: each kind of catalog, put back as it was in a moment."""

from __future__ import annotations

import re
import shutil
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil

TABLE = "db.t"
_VERSION = re.compile(r"v([0-9]+)\.metadata\.json")


class Place:
    """A warehouse on a local disk with one table, in a SQL catalog on SQLite.

    Args:
        folder: one of its own.
    """

    def __init__(self, folder: Path) -> None:
        self.warehouse = folder / "warehouse"
        self._saved = folder / "saved"

    @property
    def arguments(self) -> list[str]:
        """What the command line begins with."""
        return ["--warehouse", str(self.warehouse)]

    def metadata(self) -> TableMetadata | None:
        """Return the table as it is; None if there is none."""
        location = self._location()
        return None if location is None else _read(location)

    def _location(self) -> str | None:
        return next(iter(_located(self.warehouse / "catalog.db")), None)

    def files(self) -> frozenset[str]:
        """Return all files of tables."""
        found = (path for path in (self.warehouse / "db").rglob("*") if path.is_file())
        return frozenset(f"file://{path}" for path in found)

    def save(self, name: str) -> None:
        """Remember how it is."""
        shutil.rmtree(self._saved / name, ignore_errors=True)
        shutil.copytree(self.warehouse, self._saved / name)

    def restore(self, name: str) -> bool:
        """Put back what was saved; where there is nothing of that name, all is gone."""
        if known := (self._saved / name).exists():
            self.bring(self._saved / name)
        else:
            shutil.rmtree(self.warehouse, ignore_errors=True)
            self.warehouse.mkdir(parents=True)
        return known

    def bring(self, copy: Path) -> None:
        """Put a copy of the warehouse in its place."""
        shutil.rmtree(self.warehouse, ignore_errors=True)
        shutil.copytree(copy, self.warehouse)


class FolderPlace(Place):
    """The same in a hadoop catalog."""

    @property
    def arguments(self) -> list[str]:
        return [*super().arguments, "--catalog-type", "hadoop"]

    def _location(self) -> str | None:
        folder = self.warehouse / "db" / "t" / "metadata"
        # The hint may be behind: what counts is the highest version.
        named = {
            int(match[1]): str(path)
            for path in folder.glob("v*")
            if (match := _VERSION.fullmatch(path.name))
        }
        return named[max(named)] if named else None


def _located(database: Path) -> Iterable[str]:
    if not database.exists():
        return []
    with closing(sqlite3.connect(database)) as connection:
        if not _has_tables(connection):
            return []
        query = "SELECT metadata_location FROM iceberg_tables WHERE table_name = 't'"
        return [row[0] for row in connection.execute(query)]


def _has_tables(connection: Any) -> bool:
    query = "SELECT count(*) FROM sqlite_master WHERE name = 'iceberg_tables'"
    return bool(connection.execute(query).fetchone()[0])


def _read(location: str) -> TableMetadata:
    return TableMetadataUtil.parse_raw(Path(location.removeprefix("file://")).read_text())


PLACES = {"sql": Place, "hadoop": FolderPlace}
