"""Catalogs and tables, as the rest of the core sees them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

from lake.core.base import locations
from lake.core.base.errors import InvalidRequestError, NotFoundError
from lake.core.spec.properties.table_properties import DATA_PATH, METADATA_PATH
from lake.core.table.metadata.roots import roots_of, unlisted

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog as PyIcebergCatalog
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table as IcebergTable
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.sorting import SortOrder
    from pyiceberg.table.update import TableRequirement, TableUpdate

    from lake.core.base.clock import Clock
    from lake.core.io.storage.storage import Storage

# Databases limit their columns to 255 characters; servers may have names of more levels.
_LONGEST_NAME, _SHOWN_NAME = 2048, 80


@dataclass(frozen=True, slots=True)
class CommitResult:
    """A catalog's answer to a commit.

    Args:
        metadata: the table's metadata after the commit.
        warnings: what failed after the commit, without an effect on it.
    """

    metadata: TableMetadata
    warnings: tuple[str, ...] = ()


class Catalog(Protocol):
    """A catalog of tables, which is opened when it is first used.

    Every backend (`sql`, `hadoop`, `rest`, `other`) implements it. Callers read its capabilities from its
    attributes, not from its type or its configuration.
    """

    @property
    def name(self) -> str:
        """The catalog's name."""

    @property
    def configured(self) -> Mapping[str, Any]:
        """Its configuration, which may contain secrets."""

    @property
    def vended(self) -> Sequence[Mapping[str, object]]:
        """Properties that came with tables, such as vended credentials: output must not contain them."""

    @property
    def handle(self) -> PyIcebergCatalog:
        """The PyIceberg catalog."""

    @property
    def is_served(self) -> bool:
        """Whether commits are sent to a server, which may apply one after the sending process has ended."""

    @property
    def writes_metadata(self) -> bool:
        """Whether PyIceberg writes a table's metadata files in this process."""

    @property
    def makes_metadata(self) -> bool:
        """Whether a commit builds the table's new metadata in this process, from the metadata that was read."""

    @property
    def has_entries(self) -> bool:
        """Whether a table is an entry that can be dropped, renamed and registered; False if it is a folder."""

    @property
    def database(self) -> str | None:
        """The file of a catalog in SQLite; None for any other catalog."""

    @property
    def written_metadata(self) -> Sequence[str]:
        """The metadata files that the last commit of this thread wrote in this process."""

    def load(self, identifier: str) -> Table:
        """Load a table by ``namespace.table``.

        Raises:
            NotFoundError: the table does not exist.
            NotATableError: the name is that of a view.
            RefusedError: the table has a feature that lake does not support.
        """

    def exists(self, identifier: str) -> bool:
        """Whether the table exists."""

    def stage(
        self,
        identifier: str,
        schema: Schema,
        spec: PartitionSpec,
        sort_order: SortOrder,
        properties: Mapping[str, str],
        *,
        make_namespace: bool = True,
    ) -> Table:
        """Return a table that does not exist yet; the first commit to it creates it.

        A catalog chooses the location of a table only if the namespace exists. A missing namespace is created; if
        `make_namespace` is false, the table is only described. REST catalogs also stage the creation on the server,
        which discards it after a time. Nothing else is written.
        """

    def make_namespace(self, identifier: str) -> None:
        """Create a table's namespace if it does not exist."""

    def refuse_commits(self, identifier: str, metadata: TableMetadata | None = None) -> None:
        """Refuse a table to which nothing can be committed, before anything is written.

        Args:
            identifier: the table's name.
            metadata: the table's metadata; None if the table is about to be created.

        Raises:
            RefusedError: the catalog cannot commit to the table.
        """

    def send(
        self,
        table: Table,
        requirements: tuple[TableRequirement, ...],
        updates: tuple[TableUpdate, ...],
        clock: Clock,
    ) -> CommitResult:
        """Commit one atomic change. PyIceberg's exceptions are not translated."""

    def report(self, table: Table, build: Callable[[], Mapping[str, Any]]) -> None:
        """Send a report about a commit or a scan to the catalog's server in the background, if it takes reports.

        Only then it is built. Nothing is raised, and whether it arrived is not known.
        """

    def drop(self, table: Table) -> None:
        """Remove a table's entry; its files stay. PyIceberg's exceptions are not translated.

        A database removes the entry only if it still has the table's metadata file; Glue and Hive check this before.
        Other catalogs have no such condition.
        """

    def rename(self, identifier: str, name: str) -> None:
        """Give a table another name; its files stay. PyIceberg's exceptions are not translated."""

    def register(self, identifier: str, metadata_location: str) -> None:
        """Add an entry for a table that has a metadata file. PyIceberg's exceptions are not translated."""

    def metadata_files(self, table: Table) -> list[str]:
        """Return a table's metadata files in the order in which a purge deletes them; the current file is the last.

        Raises:
            RefusedError: without the current file, another file in the folder would become the current one.
        """

    def metadata_locations(self) -> list[tuple[str, str]]:
        """Return names and metadata files of all tables; nothing if the catalog cannot list them in one request.

        Tables of other catalogs in the same database are named ``namespace.table of catalog``.
        """


@dataclass(frozen=True)
class Table:
    """A table at one time: its metadata, the location of the metadata file, and access to its files.

    `creating` contains the updates that create a table that does not exist yet. They are part of the first
    commit, so that a failure before it leaves no empty table. If a table is only `described`, its namespace does
    not exist yet and lake chose the location: stage the table again before writing to it.
    """

    identifier: str
    metadata: TableMetadata
    metadata_location: str
    storage: Storage
    catalog: Catalog
    handle: IcebergTable = field(repr=False)
    creating: tuple[TableUpdate, ...] = ()
    described: bool = False

    @property
    def schema(self) -> Schema:
        """The current schema."""
        return self.metadata.schema()

    @property
    def spec(self) -> PartitionSpec:
        """The partition spec that new files are written with."""
        return self.metadata.spec()

    @property
    def properties(self) -> Mapping[str, str]:
        """The table's properties."""
        return self.metadata.properties

    @cached_property
    def roots(self) -> list[str]:
        """The locations whose files belong to this table alone."""
        return roots_of(self.metadata)

    @property
    def data_location(self) -> str:
        """The location of new data files."""
        return DATA_PATH.of(self.properties) or locations.join(self.metadata.location, "data")

    @property
    def metadata_folder(self) -> str:
        """The location of new manifests and manifest lists."""
        return METADATA_PATH.of(self.properties) or locations.join(
            self.metadata.location, "metadata"
        )

    @property
    def logged_files(self) -> list[str]:
        """The locations of the metadata files in the table's log and, as the last one, of the current one."""
        logged = (entry.metadata_file for entry in self.metadata.metadata_log)
        return list(dict.fromkeys([*logged, self.metadata_location]))

    def require_listed(self, folder: str, listed: Collection[object]) -> None:
        """Refuse an empty listing of the folder that contains the table's metadata file.

        Raises:
            StorageError: the storage, or a proxy in front of it, listed no files in a folder that contains files.
        """
        here = self.metadata_location.rpartition("/")[0]
        if not (listed or self.creating) and locations.folded(
            folder.rstrip("/")
        ) == locations.folded(here):
            raise unlisted(folder, self.metadata_location)

    def is_still(self, earlier: Table) -> bool:
        """Whether this is a table that was loaded earlier, and not a new one of its name."""
        named = self.identifier == earlier.identifier
        return named and self.metadata.table_uuid == earlier.metadata.table_uuid

    def refreshed(self) -> Table:
        """Load the table again.

        Raises:
            NotFoundError: the table was dropped, or another table now has its name.
        """
        now = self.catalog.load(self.identifier)
        if not self.creating and not now.is_still(self):
            raise NotFoundError(
                f"table {self.identifier} was dropped meanwhile, and another table has its name",
                hint="run the command again to work on the new table",
            )
        now.storage.share(self.storage)
        return now

    def send(
        self,
        requirements: tuple[TableRequirement, ...],
        updates: tuple[TableUpdate, ...],
        clock: Clock,
    ) -> CommitResult:
        """Commit one atomic change. PyIceberg's exceptions are not translated."""
        return self.catalog.send(self, requirements, updates, clock)


def split_identifier(identifier: str) -> tuple[str, ...]:
    """Split ``namespace.table``.

    Raises:
        InvalidRequestError: the namespace is missing, a part is empty or not allowed in a path, or the name is long.
    """
    if len(identifier) > _LONGEST_NAME:
        raise InvalidRequestError(
            f"{identifier[:_SHOWN_NAME]!r}… is too long for the name of a table: {len(identifier)} characters",
            hint=f"the limit is {_LONGEST_NAME}",
        )
    names = tuple(identifier.split("."))
    odd = any(not name or name in {"..", "."} or "/" in name or "\x00" in name for name in names)
    if len(names) == 1 or odd:
        raise InvalidRequestError(
            f"{identifier!r} is not the name of a table", hint="write it as namespace.table"
        )
    return names
