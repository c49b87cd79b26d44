"""The tables on which commands are killed, in each kind of catalog; their state can be saved and restored."""

from __future__ import annotations

import re
import shutil
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil
from sqlalchemy import create_engine, inspect, text

TABLE = "db.t"
_TABLES = ("iceberg_tables", "iceberg_namespace_properties")
_VERSION = re.compile(r"v([0-9]+)\.metadata\.json")


class Place:
    """A warehouse on a local disk with the tables of a command, in a SQL catalog on SQLite.

    Args:
        folder: a folder of its own.
    """

    def __init__(self, folder: Path) -> None:
        self.warehouse = folder / "warehouse"
        self._saved = folder / "saved"

    @property
    def arguments(self) -> list[str]:
        """The first arguments of the command line."""
        return ["--warehouse", str(self.warehouse)]

    def metadata(self) -> TableMetadata | None:
        """Return the first of the current tables; None if there is none."""
        return next(iter(self.tables()), None)

    def tables(self) -> list[TableMetadata]:
        """Return the current tables, by name."""
        return [_read(location) for location in self.locations().values()]

    def locations(self) -> Mapping[str, str]:
        """Return the metadata files of the tables by name, in the order of names."""
        return _located(self.warehouse / "catalog.db")

    def files(self) -> frozenset[str]:
        """Return all files of tables."""
        found = (path for path in (self.warehouse / "db").rglob("*") if path.is_file())
        return frozenset(f"file://{path}" for path in found)

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


class FolderPlace(Place):
    """A warehouse with one table in a Hadoop catalog."""

    @property
    def arguments(self) -> list[str]:
        return [*super().arguments, "--catalog-type", "hadoop"]

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


class ServedPlace(Place):
    """Local files in a SQL catalog on a server; commands find it as `prod` in their environment.

    Args:
        folder: a folder of its own.
        uri: the catalog's URI, with a separate database.
    """

    def __init__(self, folder: Path, uri: str) -> None:
        super().__init__(folder)
        self._engine = create_engine(uri)
        self._rows: dict[str, dict[str, list[dict[str, Any]]]] = {}
        self.environment = {
            "PYICEBERG_CATALOG__PROD__TYPE": "sql",
            "PYICEBERG_CATALOG__PROD__URI": uri,
            "PYICEBERG_CATALOG__PROD__WAREHOUSE": f"file://{self.warehouse}",
        }

    @property
    def arguments(self) -> list[str]:
        return ["--catalog", "prod"]

    def locations(self) -> Mapping[str, str]:
        rows = self._select("iceberg_tables")
        found = {_name(row): str(row["metadata_location"]) for row in rows}
        return dict(sorted(found.items()))

    def _select(self, table: str) -> list[dict[str, Any]]:
        if not inspect(self._engine).has_table(table):
            return []
        with self._engine.connect() as connection:
            found = connection.execute(text(f"SELECT * FROM {table}"))
            return [dict(row) for row in found.mappings()]

    def save(self, name: str) -> None:
        super().save(name)
        self._rows[name] = {table: self._select(table) for table in _TABLES}

    def restore(self, name: str) -> bool:
        for table in _TABLES:
            if not inspect(self._engine).has_table(table):
                continue
            with self._engine.begin() as connection:
                connection.execute(text(f"DELETE FROM {table}"))
                for row in self._rows.get(name, {}).get(table, []):
                    columns = ", ".join(row)
                    values = ", ".join(f":{column}" for column in row)
                    insert = f"INSERT INTO {table} ({columns}) VALUES ({values})"
                    connection.execute(text(insert), row)
        return super().restore(name)


def _name(row: Mapping[str, Any]) -> str:
    return f"{row['table_namespace']}.{row['table_name']}"


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


def _read(location: str) -> TableMetadata:
    return TableMetadataUtil.parse_raw(Path(location.removeprefix("file://")).read_text())


PLACES = {"sql": Place, "hadoop": FolderPlace}
