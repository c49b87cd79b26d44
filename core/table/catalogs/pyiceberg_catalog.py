"""The base class of all backends, which send their requests to a PyIceberg catalog."""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property, partial
from shlex import quote
from typing import Any

from pyiceberg.catalog import Catalog as PyIcebergCatalog
from pyiceberg.catalog import load_catalog
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError, RESTError
from pyiceberg.io import load_file_io
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import CommitTableResponse, CreateTableTransaction, StagedTable
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.sorting import SortOrder
from pyiceberg.table.update import TableRequirement, TableUpdate

from lake.core.base import locations
from lake.core.base.clock import Clock, Ids, SystemClock, SystemIds
from lake.core.base.errors import (
    BadInputError,
    CorruptFileError,
    LakeError,
    NotATableError,
    NotFoundError,
    OutOfRangeError,
)
from lake.core.base.options import Option
from lake.core.base.units import iso_time
from lake.core.io.objects.requests import BACKOFF
from lake.core.io.storage.credentials import CredentialProvider, Credentials
from lake.core.io.storage.storage import Storage
from lake.core.table.catalogs import pyiceberg_patches
from lake.core.table.catalogs.catalog import CommitResult, Table, split_identifier
from lake.core.table.catalogs.errors import catalog_errors
from lake.core.table.catalogs.trust import file_properties, storage_properties
from lake.core.table.metadata.files import check, earlier_metadata, is_metadata_name
from lake.core.table.metadata.format_upgrades import with_version_3_upgrade
from lake.core.table.metadata.roots import roots_of

_Names = tuple[str, ...]
_Begin = Callable[[], CreateTableTransaction]


class _Written(threading.local):
    """The metadata files of a commit. Several threads may commit at a time, each to another table."""

    def __init__(self) -> None:
        self.files: list[str] = []


class PyIcebergBackend(ABC):
    """A `lake.core.table.catalogs.catalog.Catalog` that sends its requests to a PyIceberg catalog.

    Args:
        name: the catalog's name.
        properties: its configuration, which may contain secrets.
        clock: the time of requests; waits between them.
        ids: the source of identifiers and random numbers.
    """

    def __init__(
        self,
        name: str,
        properties: Mapping[str, Any],
        clock: Clock | None = None,
        ids: Ids | None = None,
    ) -> None:
        self.name = name
        self.configured = properties
        self._written = _Written()
        # Properties that came with tables, such as vended credentials: output must not contain them.
        self.vended: list[Mapping[str, object]] = []
        # Also the time of commits, if metadata is written in this process.
        self._clock = clock or SystemClock()
        self._ids = ids or SystemIds()

    # Capabilities

    @property
    def is_served(self) -> bool:
        """Whether commits are sent to a server, which may apply one after the sending process has ended."""
        return True

    @property
    @abstractmethod
    def writes_metadata(self) -> bool:
        """Whether PyIceberg writes a table's metadata files in this process."""

    @property
    def makes_metadata(self) -> bool:
        """Whether a commit builds the table's new metadata in this process, from the metadata that was read."""
        return self.writes_metadata

    @property
    def has_entries(self) -> bool:
        """Whether a table is an entry that can be dropped, renamed and registered; False if it is a folder."""
        return True

    @property
    def database(self) -> str | None:
        """The file of a catalog in SQLite; None for any other catalog."""
        return None

    @property
    def written_metadata(self) -> list[str]:
        """The metadata files that PyIceberg wrote for the last commit of this thread."""
        return self._written.files

    def _record(self, location: str) -> None:
        """Record a metadata file that PyIceberg wrote for the commit of this thread."""
        self._written.files.append(location)

    def metadata_locations(self) -> list[tuple[str, str]]:
        """Return names and metadata files of all tables; nothing if the catalog cannot list them in one request."""
        return []

    # Opening

    @cached_property
    def handle(self) -> PyIcebergCatalog:
        """The PyIceberg catalog."""
        pyiceberg_patches.apply()
        return self._open()

    @abstractmethod
    def _open(self) -> PyIcebergCatalog:
        """Open the PyIceberg catalog."""

    def _load_catalog(self) -> PyIcebergCatalog:
        logging.getLogger("pyiceberg").setLevel(logging.ERROR)
        return load_catalog(self.name, **self.configured)

    def _now_ms(self) -> int:
        return self._clock.now_ms()

    # Tables

    def load(self, identifier: str) -> Table:
        """Load a table by ``namespace.table``.

        Raises:
            NotFoundError: the table does not exist.
            NotATableError: the name is that of a view.
            RefusedError: the table has a feature that lake does not support.
            CorruptFileError: the catalog states no metadata file, or one that is missing or cannot be read. Where its
                place is known, the hint contains the commands that go back to the newest one before it that can be
                read.
        """
        try:
            return self._load(identifier)
        except OutOfRangeError:
            raise
        except CorruptFileError as error:
            place = self._damaged_file(identifier, error)
            if place is None:
                raise
            named = error.message if place in error.message else f"{error.message} ({place})"
            raise CorruptFileError(named, hint=self._remedy(identifier, place)) from error

    def _load(self, identifier: str) -> Table:
        names = split_identifier(identifier)
        with catalog_errors(f"table {identifier}", self):
            try:
                found = self.handle.load_table(names)
            except NoSuchTableError as error:
                if self._is_view(names):
                    raise NotATableError(
                        f"{identifier} is a view, not a table", hint="give the name of a table"
                    ) from error
                raise self._no_table(identifier) from error
        # Only a table that does not exist yet has none, but PyIceberg accepts such an answer of a REST server.
        if not found.metadata_location:
            raise CorruptFileError(f"the catalog states no metadata file of table {identifier}")
        check(found.metadata, identifier)
        return self._table(identifier, found, self._vender(identifier))

    def _damaged_file(self, identifier: str, error: CorruptFileError) -> str | None:  # noqa: ARG002
        """Return the metadata file of a table that could not be loaded; None if it is not known."""
        return dict(self.metadata_locations()).get(identifier)

    def _remedy(self, identifier: str, place: str) -> str:
        """Return what to do about a metadata file that is missing or cannot be read."""
        storage = Storage(storage_properties(self.configured))
        folder = place.rpartition("/")[0]
        try:
            found = earlier_metadata(storage, place, self._is_version)
            if found is None:
                return f"restore it from a backup: {folder} contains no older metadata file that can be read"
            older, metadata, others = found
            steps = self._steps_back(identifier, place, older, storage)
        except LakeError as error:
            return f"restore it from a backup; {folder} cannot be listed: {error.message}"
        more = f" ({others:,} older metadata files are there)" if others else ""
        return (
            f"restore it from a backup, or set the table back to the state of {iso_time(metadata.last_updated_ms)}: "
            f"{steps}; later commits are lost{more}"
        )

    def _is_version(self, name: str) -> bool:
        """Whether a file in the folder of a table's metadata may be one of its metadata files, by its name."""
        return is_metadata_name(name)

    def _steps_back(self, identifier: str, place: str, older: str, storage: Storage) -> str:  # noqa: ARG002
        """Return the commands that make an older metadata file the current one instead of a damaged one."""
        return f"`lake register {quote(identifier)} {quote(older)}`"

    def exists(self, identifier: str) -> bool:
        """Whether the table exists."""
        try:
            self.load(identifier)
        except (NotFoundError, NotATableError):
            return False
        return True

    def _is_view(self, names: _Names) -> bool:
        """Whether the catalog reports that a name is that of a view; False if it does not report views."""
        try:
            return self.handle.view_exists(names)
        except (NotImplementedError, RESTError):
            # A catalog may not support views, or may not allow every user to read them.
            return False

    @property
    def place(self) -> str:
        """Where the catalog is, for messages."""
        return str(self.configured.get("uri", ""))

    def _no_table(self, identifier: str) -> NotFoundError:
        place = f" ({self.place})" if self.place else ""
        return NotFoundError(
            f"table {identifier} does not exist in catalog {self.name}{place}",
            hint=f"check the name, and {Option.CATALOG} or {Option.WAREHOUSE}",
        )

    def _table(
        self, identifier: str, found: IcebergTable, vend: Callable[[], Credentials] | None
    ) -> Table:
        credentials = self._credentials(identifier, found)
        self._hide(credentials)
        return Table(
            identifier=identifier,
            metadata=found.metadata,
            metadata_location=found.metadata_location,
            storage=Storage(
                renewed=CredentialProvider(credentials, vend, self._clock),
                roots=roots_of(found.metadata),
                backoff=replace(BACKOFF, clock=self._clock, ids=self._ids),
            ),
            catalog=self,
            handle=found,
        )

    # Credentials

    def _credentials(self, identifier: str, found: IcebergTable) -> Credentials:  # noqa: ARG002
        """Return the credentials that came with a table."""
        return Credentials(
            storage_properties(file_properties(found, found.catalog.properties)),
        )

    def _vender(self, identifier: str) -> Callable[[], Credentials] | None:  # noqa: ARG002
        """Return a function that requests a table's credentials again; None if the catalog vends none."""
        return None

    def _stage_vender(
        self,
        identifier: str,  # noqa: ARG002
        begin: _Begin,  # noqa: ARG002
        location: str,  # noqa: ARG002
    ) -> Callable[[], Credentials] | None:
        """Return a function that requests the credentials of a table that does not exist yet; see `_vender`."""
        return None

    def _hide(self, given: Credentials) -> None:
        self.vended += [part for part in given.parts() if part not in self.vended]

    # Creation

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
        """Return a table that does not exist yet; see `Catalog.stage`."""
        names = split_identifier(identifier)
        self.refuse_commits(identifier)
        begin = partial(self._begin, names, schema, spec, sort_order, dict(properties))
        described = False
        with catalog_errors(f"table {identifier}", self):
            try:
                transaction = begin()
            except NoSuchNamespaceError:
                described = not make_namespace
                if make_namespace:
                    self.make_namespace(identifier)
                    transaction = begin()
                else:
                    transaction = self.describe(names, schema, spec, sort_order, dict(properties))
        # The table is created at the time of its first commit, not now.
        staged = transaction._table.metadata.model_copy(update={"last_updated_ms": 0})  # noqa: SLF001
        transaction._table.metadata = staged  # noqa: SLF001
        self._refuse_truncated_names(staged)
        vend = self._stage_vender(identifier, begin, staged.location)
        found = self._table(identifier, transaction._table, vend)  # noqa: SLF001
        # PyIceberg has no public method that adds a snapshot from a caller to a creating transaction.
        return Table(
            identifier=identifier,
            metadata=found.metadata,
            metadata_location=found.metadata_location,
            storage=found.storage,
            catalog=self,
            handle=found.handle,
            creating=tuple(with_version_3_upgrade(update) for update in transaction._updates),  # noqa: SLF001
            described=described,
        )

    def _begin(
        self,
        names: _Names,
        schema: Schema,
        spec: PartitionSpec,
        sort_order: SortOrder,
        properties: dict[str, str],
    ) -> CreateTableTransaction:
        """Begin the creation of a table at the location that the catalog chooses.

        Raises:
            NoSuchNamespaceError: the namespace does not exist, so the catalog does not choose a location.
        """
        return self.handle.create_table_transaction(
            names, schema, partition_spec=spec, sort_order=sort_order, properties=properties
        )

    def describe(
        self,
        names: _Names,
        schema: Schema,
        spec: PartitionSpec,
        sort_order: SortOrder,
        properties: dict[str, str],
    ) -> CreateTableTransaction:
        """Describe a new table at its location in the warehouse folder; nothing is opened."""
        location = locations.join(str(self.configured.get("warehouse", "")), *names)
        metadata = new_table_metadata(
            location=location,
            schema=schema,
            partition_spec=spec,
            sort_order=sort_order,
            properties=properties,
        )
        return CreateTableTransaction(
            StagedTable(
                identifier=names,
                metadata=metadata,
                metadata_location=locations.join(location, "metadata", "00000.metadata.json"),
                io=load_file_io({}, location),
                catalog=NoopCatalog(self.name),
            )
        )

    def make_namespace(self, identifier: str) -> None:
        """Create a table's namespace if it does not exist."""
        names = split_identifier(identifier)[:-1]
        what = f"namespace {'.'.join(names)}"
        try:
            with catalog_errors(what, self):
                self.handle.create_namespace_if_not_exists(names)
        except BadInputError:
            # PyIceberg checks for the namespace before it creates it: another process may have created it meanwhile.
            with catalog_errors(what, self):
                is_made = self.handle.namespace_exists(names)
            if not is_made:
                raise

    # Commits

    def refuse_commits(self, identifier: str, metadata: TableMetadata | None = None) -> None:  # noqa: ARG002
        """Refuse a table to which nothing can be committed; see `Catalog.refuse_commits`."""
        if metadata is not None:
            self._refuse_truncated_names(metadata)

    def _refuse_truncated_names(self, metadata: TableMetadata) -> None:
        if self.writes_metadata:
            for root in roots_of(metadata):
                pyiceberg_patches.refuse_truncated_name(root)

    def send(
        self,
        table: Table,
        requirements: tuple[TableRequirement, ...],
        updates: tuple[TableUpdate, ...],
        clock: Clock,
    ) -> CommitResult:
        """Commit one atomic change. PyIceberg's exceptions are not translated."""
        self.written_metadata.clear()
        self._clock = clock
        return self._result(self.handle.commit_table(table.handle, requirements, updates))

    def report(self, table: Table, build: Callable[[], Mapping[str, Any]]) -> None:
        """Send a report to the catalog's server; see `Catalog.report`. Most catalogs take none."""
        del table, build

    def drop(self, table: Table) -> None:
        """Remove a table's entry; see `Catalog.drop`."""
        self.handle.drop_table(split_identifier(table.identifier))

    def rename(self, identifier: str, name: str) -> None:
        """Give a table another name; see `Catalog.rename`."""
        self.handle.rename_table(split_identifier(identifier), split_identifier(name))

    def register(self, identifier: str, metadata_location: str) -> None:
        """Add an entry for a table; see `Catalog.register`."""
        self.handle.register_table(split_identifier(identifier), metadata_location)

    def metadata_files(self, table: Table) -> list[str]:
        """Return a table's metadata files in the order of deletion; see `Catalog.metadata_files`."""
        return table.logged_files

    def _result(self, answer: CommitTableResponse) -> CommitResult:
        return CommitResult(answer.metadata)
