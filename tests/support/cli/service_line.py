"""`lake` on a catalog that PyIceberg's own configuration names, and the same catalog by PyIceberg alone."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pacsv
import yaml
from pyiceberg.catalog import Catalog, load_catalog

from support.cli.command_line import CommandLine

CATALOG = "prod"


class ConfiguredLine(CommandLine):
    """Calls `lake` in a folder whose `.pyiceberg.yaml` names the catalog; the command line does not."""

    def __init__(self, folder: Path, *, engine: str = "auto") -> None:
        super().__init__(folder / "unused", engine=engine)

    def arguments(self, *arguments: object) -> list[str]:
        """Return the whole command line behind the program's name."""
        return ["--engine", self.engine, *(str(argument) for argument in arguments)]


@dataclass
class Service:
    """A catalog and the storage of its tables, each test with its own.

    Args:
        kind: what it is, for test names.
        properties: PyIceberg's configuration of the catalog.
        folder: where commands run and sources are written.
        list_files: names all files of this test's tables.
        namespace: one that no other test has.
        judge: what PyIceberg alone needs in addition.
    """

    kind: str
    properties: Mapping[str, Any]
    folder: Path
    list_files: Callable[[], set[str]]
    namespace: str = "db"
    judge: Mapping[str, str] = field(default_factory=dict)

    def line(self, engine: str = "auto") -> ConfiguredLine:
        """Return the command line; its configuration is a file, as users have it."""
        home = Path(os.environ["PYICEBERG_HOME"])
        text = yaml.safe_dump({"catalog": {CATALOG: dict(self.properties)}})
        (home / ".pyiceberg.yaml").write_text(text)
        return ConfiguredLine(self.folder, engine=engine)

    def catalog(self) -> Catalog:
        """Open the catalog by PyIceberg alone."""
        return load_catalog(CATALOG, **self.properties, **self.judge)

    def table(self, name: str = "t") -> str:
        """Return a table's whole name."""
        return f"{self.namespace}.{name}"

    def rows(self, name: str = "t", **options: Any) -> list[tuple[Any, ...]]:
        """Return a table's rows as PyIceberg reads them, sorted."""
        data = self.catalog().load_table(self.table(name)).scan(**options).to_arrow()
        columns = sorted(data.column_names)
        return sorted(zip(*(data[column].to_pylist() for column in columns), strict=True), key=repr)

    def unreferenced(self, name: str = "t") -> set[str]:
        """Return the files below a table that no retained snapshot or metadata file names."""
        table = self.catalog().load_table(self.table(name))
        io = table.io
        named = {table.metadata_location, *(e.metadata_file for e in table.metadata.metadata_log)}
        described = (*table.metadata.statistics, *table.metadata.partition_statistics)
        named |= {file.statistics_path for file in described}
        for snapshot in table.metadata.snapshots:
            named.add(snapshot.manifest_list)
            for manifest in snapshot.manifests(io):
                named.add(manifest.manifest_path)
                for entry in manifest.fetch_manifest_entry(io, discard_deleted=False):
                    named.add(entry.data_file.file_path)
        below = _plain(table.location())
        known = {_plain(location) for location in named}
        return {file for file in self.list_files() if file.startswith(below + "/")} - known


def csv(folder: Path, file: str, /, **columns: Any) -> Path:
    """Write a source."""
    path = folder / file
    pacsv.write_csv(pa.table(columns), path)
    return path


def _plain(location: str) -> str:
    """Return a location as a store's own listing names it."""
    return re.sub(r"^(?:file:(?://)?|s3://|gs://)|^abfss://([^@/]*)@[^/]*", r"\1", location)
