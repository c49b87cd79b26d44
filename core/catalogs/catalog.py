"""Open catalogs and tables, and send commits: the one door to PyIceberg's catalogs."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from lake.core import locations
from lake.core.catalogs.configuration import read_configuration
from lake.core.catalogs.opening import (
    catalog_errors,
    is_view,
    open_handle,
    record_metadata,
    refuse_truncated_name,
    retry_missing_metadata,
    settle_metadata,
)
from lake.core.catalogs.trust import file_properties, storage_properties
from lake.core.clock import Clock, SystemClock
from lake.core.errors import (
    BadInputError,
    InvalidRequestError,
    NotATableError,
    NotFoundError,
    RefusedError,
    StorageError,
)
from lake.core.metadata.roots import roots_of
from lake.core.properties.table_properties import DATA_PATH, METADATA_PATH
from lake.core.settings import DEFAULT_CATALOG, DEFAULT_WAREHOUSE, Settings
from lake.core.storage.credentials import CredentialProvider, Credentials
from lake.core.storage.s3 import completed
from lake.core.storage.storage import Storage

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.table import CommitTableResponse, CreateTableTransaction
    from pyiceberg.table import Table as IcebergTable
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.sorting import SortOrder
    from pyiceberg.table.update import TableRequirement, TableUpdate

_SQLITE_WAIT_SECONDS = 60
HADOOP = "hadoop"
# What stands for another character in an address.
_ESCAPED = re.compile("%[0-9A-Fa-f]{2}")
_IN_FOLDERS = "its folder is that of a hadoop catalog's table: say --catalog-type hadoop"


@dataclass(frozen=True)
class Table:
    """A table as it was at one moment: its metadata, where that lies, and how to reach its files.

    `creating` holds the updates that make the table when it does not exist yet (`--create`): they go
    into the first commit, so a failure before it leaves no empty table behind.
    """

    identifier: str
    metadata: TableMetadata
    metadata_location: str
    storage: Storage
    catalog: TableCatalog
    handle: IcebergTable = field(repr=False)
    creating: tuple[TableUpdate, ...] = ()

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
        """Where data files go."""
        return DATA_PATH.of(self.properties) or locations.join(self.metadata.location, "data")

    @property
    def metadata_folder(self) -> str:
        """Where manifests and manifest lists go."""
        return METADATA_PATH.of(self.properties) or locations.join(
            self.metadata.location, "metadata"
        )

    def require_listed(self, folder: str, listed: Collection[object]) -> None:
        """Refuse a listing that shows nothing where the table's metadata file lies.

        Raises:
            StorageError: the storage, or what answers in its place, told of no files though there are.
        """
        here = self.metadata_location.rpartition("/")[0]
        if not (listed or self.creating) and locations.folded(
            folder.rstrip("/")
        ) == locations.folded(here):
            raise StorageError(
                f"the storage lists nothing in {folder}, where {self.metadata_location} lies",
                hint="run the command again when it answers as it should",
            )

    def refreshed(self) -> Table:
        """Return the table as it is now.

        Raises:
            NotFoundError: it was dropped, or another one has its name.
        """
        now = self.catalog.load(self.identifier)
        if not self.creating and now.metadata.table_uuid != self.metadata.table_uuid:
            raise NotFoundError(
                f"table {self.identifier} was dropped meanwhile, and another one has its name",
                hint="run the command again if it is meant for the new one",
            )
        return now

    def send(
        self,
        requirements: tuple[TableRequirement, ...],
        updates: tuple[TableUpdate, ...],
        clock: Clock,
    ) -> CommitTableResponse:
        """Ask the catalog for one atomic change; whatever PyIceberg raises comes through unchanged."""
        self.catalog.written_metadata.clear()
        self.catalog.clock = clock
        return self.catalog.handle.commit_table(self.handle, requirements, updates)


class TableCatalog:
    """A PyIceberg catalog that is opened when first needed.

    Args:
        name: the catalog's name.
        properties: its configuration, which may hold secrets.
        database: the file of an embedded catalog, which reading never creates.
    """

    def __init__(
        self, name: str, properties: Mapping[str, Any], *, database: str | None = None
    ) -> None:
        self.name = name
        self.configured = properties
        self._database = database
        # Metadata files that PyIceberg wrote, in this process, for the commit sent last.
        self.written_metadata: list[str] = []
        # Says when a commit is made where metadata is written in this process.
        self.clock: Clock = SystemClock()
        # What tables came with, e.g. vended credentials: whoever prints must know what to hide.
        self.vended: list[Mapping[str, object]] = []

    @cached_property
    def handle(self) -> Catalog:
        """The PyIceberg catalog."""
        from lake.core.catalogs import pyiceberg_patches  # noqa: PLC0415

        pyiceberg_patches.apply()
        if self.is_hadoop:
            return self._open_hadoop()
        if self._database:
            os.makedirs(os.path.dirname(self._database), exist_ok=True)
        handle = open_handle(self.name, self.configured)
        settle_metadata(handle, self._now_ms)
        record_metadata(handle, self.written_metadata)
        retry_missing_metadata(handle)
        return handle

    def _now_ms(self) -> int:
        return self.clock.now_ms()

    @property
    def is_hadoop(self) -> bool:
        """Whether it is a folder of tables, which PyIceberg does not know."""
        return str(self.configured.get("type", "")).lower() == HADOOP

    @property
    def is_served(self) -> bool:
        """Whether commits are sent to a server, which may carry one out after its sender is gone."""
        return not self.is_hadoop and not str(self.configured.get("uri", "")).startswith("sqlite:")

    @property
    def database(self) -> str | None:
        """The file of a catalog on SQLite, None for any other catalog."""
        address = str(self.configured.get("uri", ""))
        if not address.startswith("sqlite:"):
            return None
        return address.removeprefix("sqlite:///").partition("?")[0]

    @property
    def writes_metadata(self) -> bool:
        """Whether PyIceberg writes a table's metadata files in this process."""
        # An embedded catalog is not opened before a commit.
        return self._database is not None or hasattr(self.handle, "_write_metadata")

    @property
    def makes_metadata(self) -> bool:
        """Whether a commit makes the table's new metadata in this process, from what it was read from."""
        return self.is_hadoop or self.writes_metadata

    def _open_hadoop(self) -> Catalog:
        from lake.core.catalogs.hadoop import HadoopCatalog  # noqa: PLC0415

        properties = {key: str(value) for key, value in self.configured.items()}
        warehouse = properties.get("warehouse")
        if not warehouse:
            raise BadInputError(
                f"catalog {self.name} is of type {HADOOP} but has no warehouse",
                hint="set its warehouse to the folder with the tables",
            )
        return HadoopCatalog(
            self.name,
            warehouse,
            Storage(storage_properties(properties)),
            properties,
            self._now_ms,
        )

    def refuse_commits(self, identifier: str, metadata: TableMetadata | None = None) -> None:
        """Refuse a table to which nothing can be committed, before anything is written.

        Args:
            identifier: its name.
            metadata: None where it is about to be made.

        Raises:
            RefusedError: it is in a hadoop catalog that cannot take commits to it, or such a table lies where
                it is to be made.
        """
        if metadata is None and self._lies_in_folders(identifier):
            raise RefusedError(f"{identifier} is a hadoop catalog's table", hint=_IN_FOLDERS)
        if self.is_hadoop:
            from lake.core.catalogs.hadoop import HadoopCatalog  # noqa: PLC0415

            handle = self.handle
            if isinstance(handle, HadoopCatalog):
                handle.refuse_commits(split_identifier(identifier), metadata)
        if metadata is not None:
            self._refuse_cut_names(metadata)

    def _refuse_cut_names(self, metadata: TableMetadata) -> None:
        if self.writes_metadata:
            for root in roots_of(metadata):
                refuse_truncated_name(root)

    def load(self, identifier: str) -> Table:
        """Load a table by ``namespace.table``.

        Raises:
            NotFoundError: there is none.
            NotATableError: a view has the name.
            RefusedError: it has something that lake does not support.
        """
        from pyiceberg.exceptions import NoSuchTableError  # noqa: PLC0415

        from lake.core.metadata.files import check  # noqa: PLC0415

        names = split_identifier(identifier)
        if self._database and not os.path.exists(self._database):
            raise self._no_table(identifier)
        with catalog_errors(f"table {identifier}", database=self.database):
            try:
                found = self.handle.load_table(names)
            except NoSuchTableError as error:
                if is_view(self.handle, names):
                    raise NotATableError(
                        f"{identifier} is a view, not a table", hint="choose another name"
                    ) from error
                raise self._no_table(identifier) from error
        check(found.metadata, identifier)
        return self._table(identifier, found, self._vender(identifier))

    def _stage_vender(
        self, identifier: str, begin: Callable[[], CreateTableTransaction], location: str
    ) -> Callable[[], Credentials] | None:
        """Return how to ask once more for credentials of a table that does not exist yet: it is begun again."""
        vended: Mapping[tuple[str, ...], Credentials] | None = getattr(
            vars(self).get("handle"), "vended", None
        )
        if vended is None:
            return None

        def ask() -> Credentials:
            # A server may have chosen another place, for which these would be.
            if begin()._table.metadata.location != location:  # noqa: SLF001
                raise NotFoundError(f"table {identifier} would lie elsewhere by now")
            return vended[split_identifier(identifier)]

        return partial(self._vend, identifier, ask)

    def _vender(self, identifier: str) -> Callable[[], Credentials] | None:
        """Return how to ask for a table's credentials once more; None where the catalog gives none."""
        ask: Callable[[tuple[str, ...]], Credentials] | None = getattr(self.handle, "vend", None)
        if ask is None:
            return None
        return partial(self._vend, identifier, partial(ask, split_identifier(identifier)))

    def _vend(self, identifier: str, ask: Callable[[], Credentials]) -> Credentials:
        with catalog_errors(f"table {identifier}"):
            given = ask()
        self._hide(given)
        return given

    def _no_table(self, identifier: str) -> NotFoundError:
        hint = "check the name and --catalog or --warehouse"
        return NotFoundError(
            f"table {identifier} does not exist in catalog {self.name}",
            hint=_IN_FOLDERS if self._lies_in_folders(identifier) else hint,
        )

    def _lies_in_folders(self, identifier: str) -> bool:
        """Whether the folder where the embedded catalog would have a table holds a hadoop catalog's."""
        if not self._database:
            return False
        from lake.core.metadata.files import VERSION_HINT  # noqa: PLC0415

        folder = os.path.join(os.path.dirname(self._database), *split_identifier(identifier))
        return os.path.exists(os.path.join(folder, "metadata", VERSION_HINT))

    def exists(self, identifier: str) -> bool:
        """Whether the table is there."""
        try:
            self.load(identifier)
        except (NotFoundError, NotATableError):
            return False
        return True

    def stage(
        self,
        identifier: str,
        schema: Schema,
        spec: PartitionSpec,
        sort_order: SortOrder,
        properties: Mapping[str, str],
        *,
        dry_run: bool = False,
    ) -> Table:
        """Return a table that does not exist yet; the first commit to it makes it.

        Nothing is written but a missing namespace, without which a catalog chooses no location, and, on
        REST catalogs, a staged creation that expires by itself. A dry run makes no namespace.
        """
        from lake.core.metadata.format_upgrades import upgrading  # noqa: PLC0415

        names = split_identifier(identifier)
        self.refuse_commits(identifier)
        with catalog_errors(f"table {identifier}"):
            if self._database or self.is_hadoop:
                transaction = self._stage_offline(names, schema, spec, sort_order, properties)
            else:
                transaction = self._stage_online(
                    names, schema, spec, sort_order, properties, dry_run=dry_run
                )
        begin = partial(
            self._stage_online, names, schema, spec, sort_order, properties, dry_run=dry_run
        )
        # PyIceberg's time of making it up is not the time of the commit that makes it.
        unmade = transaction._table.metadata.model_copy(update={"last_updated_ms": 0})  # noqa: SLF001
        transaction._table.metadata = unmade  # noqa: SLF001
        location = unmade.location
        self._refuse_cut_names(unmade)
        vend = self._stage_vender(identifier, begin, location)
        staged = self._table(identifier, transaction._table, vend)  # noqa: SLF001
        # PyIceberg offers no public way to add a snapshot of one's own to a creating transaction.
        return Table(
            identifier=identifier,
            metadata=staged.metadata,
            metadata_location=staged.metadata_location,
            storage=staged.storage,
            catalog=self,
            handle=staged.handle,
            creating=tuple(upgrading(update) for update in transaction._updates),  # noqa: SLF001
        )

    def _stage_online(
        self,
        names: tuple[str, ...],
        schema: Schema,
        spec: PartitionSpec,
        sort_order: SortOrder,
        properties: Mapping[str, str],
        *,
        dry_run: bool,
    ) -> CreateTableTransaction:
        """Begin to make a table where the catalog wants it to lie."""
        from pyiceberg.exceptions import NoSuchNamespaceError  # noqa: PLC0415

        def staged() -> CreateTableTransaction:
            return self.handle.create_table_transaction(
                names,
                schema,
                partition_spec=spec,
                sort_order=sort_order,
                properties=dict(properties),
            )

        try:
            return staged()
        except NoSuchNamespaceError:
            if dry_run:
                return self._stage_offline(names, schema, spec, sort_order, properties)
            self.make_namespace(".".join(names))
            return staged()

    def _stage_offline(
        self,
        names: tuple[str, ...],
        schema: Schema,
        spec: PartitionSpec,
        sort_order: SortOrder,
        properties: Mapping[str, str],
    ) -> CreateTableTransaction:
        """Describe a new table where it lies in a catalog that is a warehouse folder; nothing is opened."""
        from pyiceberg.catalog.noop import NoopCatalog  # noqa: PLC0415
        from pyiceberg.io import load_file_io  # noqa: PLC0415
        from pyiceberg.table import CreateTableTransaction, StagedTable  # noqa: PLC0415
        from pyiceberg.table.metadata import new_table_metadata  # noqa: PLC0415

        location = locations.join(str(self.configured.get("warehouse", "")), *names)
        metadata = new_table_metadata(
            location=location,
            schema=schema,
            partition_spec=spec,
            sort_order=sort_order,
            properties=dict(properties),
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
        """Make a table's namespace where it is missing."""
        names = split_identifier(identifier)[:-1]
        try:
            with catalog_errors(f"namespace {'.'.join(names)}"):
                self.handle.create_namespace_if_not_exists(names)
        except BadInputError:
            # PyIceberg looks first and makes it then: another process may have been faster.
            if not self.handle.namespace_exists(names):
                raise

    def _table(
        self, identifier: str, found: IcebergTable, vend: Callable[[], Credentials] | None = None
    ) -> Table:
        return Table(
            identifier=identifier,
            metadata=found.metadata,
            metadata_location=found.metadata_location,
            storage=Storage(
                renewed=CredentialProvider(self._credentials(identifier, found), vend),
                roots=roots_of(found.metadata),
            ),
            catalog=self,
            handle=found,
        )

    def _credentials(self, identifier: str, found: IcebergTable) -> Credentials:
        """Return what opens a table's store, as it came."""
        # A catalog that was not opened has vended nothing: a dry run leaves it so.
        opened = vars(self).get("handle")
        vended: Mapping[tuple[str, ...], Credentials] = getattr(opened, "vended", {})
        came = vended.get(split_identifier(identifier))
        if came is None:
            given = file_properties(found, found.catalog.properties)
            came = Credentials(storage_properties(given))
        self._hide(came)
        return came

    def _hide(self, given: Credentials) -> None:
        self.vended += [part for part in given.parts() if part not in self.vended]


def open_catalog(settings: Settings) -> TableCatalog:
    """Choose the catalog that the options and PyIceberg's configuration name; nothing is opened yet.

    Raises:
        InvalidRequestError: several are configured and none was chosen.
        NotFoundError: the named one is not configured.
        BadInputError: the configuration cannot be read.
    """
    # PyIceberg cannot even be loaded with one that it does not understand.
    configuration = read_configuration()
    if settings.warehouse is not None:
        return _embedded(settings.catalog or DEFAULT_CATALOG, settings)
    configured, default = sorted(configuration.catalogs), configuration.default
    name = settings.catalog
    if name is None:
        if not configured:
            return _embedded(DEFAULT_CATALOG, settings)
        name = default if default in configured else None
        if name is None and len(configured) == 1:
            name = configured[0]
        if name is None:
            raise InvalidRequestError(
                "several catalogs are configured",
                hint=f"choose with --catalog: {', '.join(configured)}",
            )
    if name not in configured:
        if not configured and name == DEFAULT_CATALOG:
            return _embedded(name, settings)
        raise NotFoundError(
            f"no catalog named {name} is configured",
            hint=f"configured: {', '.join(configured) or 'none'} (see .pyiceberg.yaml)",
        )
    return TableCatalog(name, completed(configuration.catalogs[name]))


def split_identifier(identifier: str) -> tuple[str, ...]:
    """Split ``namespace.table``.

    Raises:
        InvalidRequestError: it has no namespace or an empty part.
    """
    names = tuple(identifier.split("."))
    odd = any(not name or name in {"..", "."} or "/" in name or "\x00" in name for name in names)
    if len(names) == 1 or odd:
        raise InvalidRequestError(
            f"not a table name: {identifier!r}", hint="write it as namespace.table"
        )
    return names


def _embedded(name: str, settings: Settings) -> TableCatalog:
    if settings.catalog_type == HADOOP:
        warehouse = settings.warehouse or DEFAULT_WAREHOUSE
        located = warehouse if ":/" in warehouse else os.path.abspath(warehouse)
        return TableCatalog(name, {"type": HADOOP, "warehouse": located})
    folder = _local_folder(settings.warehouse or DEFAULT_WAREHOUSE)
    if locations.is_truncated(folder) or _ESCAPED.search(folder):
        raise InvalidRequestError(
            f"a catalog's address cannot name the folder {folder!r}",
            hint="choose one without #, ?, % and control characters, or --catalog-type hadoop",
        )
    database = os.path.join(folder, "catalog.db")
    return TableCatalog(
        name,
        {
            "type": "sql",
            "uri": f"sqlite:///{database}?timeout={_SQLITE_WAIT_SECONDS}",
            "warehouse": f"file://{folder}",
        },
        database=database,
    )


def _local_folder(warehouse: str) -> str:
    if not locations.has_scheme(warehouse):
        return os.path.abspath(warehouse)
    place = locations.parse(warehouse)
    if not place.is_local or place.authority:
        raise InvalidRequestError(
            f"--warehouse is a folder of this machine, not {warehouse!r}",
            hint="configure a catalog for tables elsewhere, or say --catalog-type hadoop",
        )
    return os.path.abspath(place.path)
