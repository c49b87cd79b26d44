"""The local tables on which commands are killed; their state can be saved and restored.

Tables on a store and in a catalog's server: see `world.served_places`.
"""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil
from support.cli.command_line import CommandLine

from lake.core.base.settings import Settings
from lake.core.table.catalogs import pyiceberg_patches
from lake.core.table.catalogs.selection import open_catalog
from lake.core.transaction.session import Session
from world.reference import local

TABLE = "db.t"
_VERSION = re.compile(r"v([0-9]+)\.metadata\.json")


@dataclass(frozen=True)
class PlacedFile:
    """A file of a table: its location, its size in bytes, and when it was written, in µs since 1970."""

    location: str
    size: int
    modified_us: int


class Place:
    """A warehouse on a local disk with the tables of a command, in a SQL catalog on SQLite.

    Args:
        folder: a folder of its own.
    """

    # Whether the catalog is on a server.
    is_served = False
    # The first arguments of the command line after the warehouse.
    _options: tuple[str, ...] = ()

    def __init__(self, folder: Path) -> None:
        # Files of commands that belong to no table are in it too.
        self.warehouse = folder / "warehouse"
        self._saved = folder / "saved"

    @property
    def arguments(self) -> list[str]:
        """The first arguments of the command line."""
        return ["--warehouse", str(self.warehouse), *self._options]

    @property
    def environment(self) -> Mapping[str, str]:
        """The additional environment of the command line."""
        return {}

    @property
    def _settings(self) -> Settings:
        return Settings(warehouse=str(self.warehouse))

    def session(self) -> Session:
        """Open the catalog in this process."""
        pyiceberg_patches.apply()
        with patch.dict(os.environ, self.environment):
            return Session(settings=self._settings, catalog=open_catalog(self._settings))

    def run(self, *arguments: str) -> None:
        """Run a command line in this process."""
        with patch.dict(os.environ, self.environment):
            _Line(self).ok(*arguments)

    def local(self, location: str) -> str:
        """Return the path of a local file with the content that a file had when tables were last read."""
        return local(location)

    def metadata(self) -> TableMetadata | None:
        """Return the first of the current tables; None if there is none."""
        return next(iter(self.tables()), None)

    def tables(self) -> list[TableMetadata]:
        """Return the current tables, by name; `local` then returns files as they are now."""
        self._refresh()
        return [
            TableMetadataUtil.parse_raw(Path(self.local(location)).read_text())
            for location in self.locations().values()
        ]

    def locations(self) -> Mapping[str, str]:
        """Return the metadata files of the tables by name, in the order of names."""
        return _located(self.warehouse / "catalog.db")

    def files(self) -> list[PlacedFile]:
        """Return all files of tables."""
        found = [path for path in (self.warehouse / "db").rglob("*") if path.is_file()]
        return [
            PlacedFile(f"file://{path}", status.st_size, status.st_mtime_ns // 1000)
            for path in found
            for status in [path.stat()]
        ]

    def wait(self) -> None:
        """Wait until the files that exist are older than now."""

    def keep(self, path: Path) -> str:
        """Return the location of a source of this machine in the tables' storage, for a table that takes the file."""
        return str(path)

    def _refresh(self) -> None:
        """Make `local` return files as they are now."""

    def save(self, name: str) -> None:
        """Save the current state."""
        shutil.rmtree(self._saved / name, ignore_errors=True)
        shutil.copytree(self.warehouse, self._saved / name)

    def restore(self, name: str) -> bool:
        """Restore a saved state; if there is none with that name, remove everything."""
        if known := (self._saved / name).exists():
            self.bring(self._saved / name)
        else:
            shutil.rmtree(self.warehouse, ignore_errors=True)
            self.warehouse.mkdir(parents=True)
        return known

    def bring(self, copy: Path) -> None:
        """Replace the warehouse by a copy."""
        shutil.rmtree(self.warehouse, ignore_errors=True)
        shutil.copytree(copy, self.warehouse)


class _Line(CommandLine):
    """Calls `lake` on a place."""

    def __init__(self, place: Place) -> None:
        super().__init__(place.warehouse)
        self._place = place

    def arguments(self, *arguments: object) -> list[str]:
        return [*self._place.arguments, *map(str, arguments)]


class FolderPlace(Place):
    """A warehouse with one table in a Hadoop catalog."""

    _options = ("--catalog-type", "hadoop")

    @property
    def _settings(self) -> Settings:
        return Settings(warehouse=str(self.warehouse), catalog_type="hadoop")

    def locations(self) -> Mapping[str, str]:
        found = {}
        for folder in sorted((self.warehouse / "db").glob("*/metadata")):
            # The hint may be outdated: the highest version is the current one.
            named = {
                int(match[1]): str(path)
                for path in folder.glob("v*")
                if (match := _VERSION.fullmatch(path.name))
            }
            if named:
                found[f"db.{folder.parent.name}"] = named[max(named)]
        return found


def _located(database: Path) -> dict[str, str]:
    if not database.exists():
        return {}
    with closing(sqlite3.connect(database)) as connection:
        if not _has_tables(connection):
            return {}
        query = (
            "SELECT table_namespace || '.' || table_name, metadata_location FROM iceberg_tables"
            " ORDER BY table_namespace, table_name"
        )
        return dict(connection.execute(query))


def _has_tables(connection: Any) -> bool:
    query = "SELECT count(*) FROM sqlite_master WHERE name = 'iceberg_tables'"
    return bool(connection.execute(query).fetchone()[0])


LOCAL = {"sql": Place, "hadoop": FolderPlace}
SERVED = ("postgres", "rest")
KINDS = (*LOCAL, *SERVED)
