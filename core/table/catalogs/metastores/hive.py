"""The Hive metastore. A commit holds the table's lock, as that of Iceberg Java, and checks that it still does.

For tables and catalogs with `engine.hive.lock-enabled=false`, whose other writers take no lock, it also names the
metadata file that it replaces. Metastores of the versions that Iceberg Java demands for this compare it (HIVE-26882).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, cast
from urllib.parse import urlsplit

from hive_metastore.ThriftHiveMetastore import Client
from hive_metastore.ttypes import (
    CheckLockRequest,
    EnvironmentContext,
    GetTableRequest,
    GetTablesRequest,
    InvalidObjectException,
    InvalidOperationException,
    LockState,
    MetaException,
    NoSuchLockException,
    NoSuchObjectException,
    TxnAbortedException,
    UnlockRequest,
)
from pyiceberg import exceptions as theirs
from pyiceberg.catalog import (
    AVAILABLE_CATALOGS,
    LOCATION,
    METADATA_LOCATION,
    PREVIOUS_METADATA_LOCATION,
    WAREHOUSE_LOCATION,
    CatalogType,
    hive,
)
from pyiceberg.catalog import Catalog as PyIcebergCatalog
from pyiceberg.table import Table as IcebergTable
from pyiceberg.typedef import EMPTY_DICT, Identifier, Properties
from pyiceberg.types import TimestampNanoType, TimestamptzNanoType
from pyiceberg.utils.properties import property_as_bool
from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.Thrift import TApplicationException, TException
from thrift.transport.TSocket import TSocket
from thrift.transport.TTransport import (
    TBufferedTransport,
    TSaslClientTransport,
    TTransportException,
)

from lake.core.base import locations
from lake.core.io.objects.requests import StoreError
from lake.core.io.objects.waits import awaited
from lake.core.spec.types.specification_types import GeographyType, GeometryType, VariantType
from lake.core.table.catalogs.catalog import Table, split_identifier
from lake.core.table.catalogs.metastores.other import ServiceBackend

_PORT = 9083
_CONNECT_MS, _READ_MS = 10_000, 60_000
_CHANGED = "has been modified"
_LOCKS = "engine.hive.lock-enabled"
# What engines other than Hive see of columns whose types Hive does not have. PyIceberg fails at them, after it has
# written the metadata.
_TYPES = {
    TimestampNanoType: "timestamp",
    TimestamptzNanoType: "timestamp with local time zone",
    GeometryType: "binary",
    GeographyType: "binary",
    VariantType: "binary",
}


class _Client(Client):  # type: ignore[misc]
    """PyIceberg's calls, as metastores of all versions know them, and with the conditions of a commit."""

    # Whether all writers of the catalog take locks.
    only_locks = True

    def get_table(self, dbname: str, tbl_name: str) -> Any:
        """Return an entry; newer metastores do not have the call of this name."""
        asked = GetTableRequest(dbName=dbname, tblName=tbl_name)
        older = partial(super().get_table, dbname, tbl_name)
        return _known(lambda: self.get_table_req(asked).table, older)

    def get_table_objects_by_name(self, dbname: str, tbl_names: list[str]) -> Any:
        """Return entries; newer metastores do not have the call of this name."""
        asked = GetTablesRequest(dbName=dbname, tblNames=tbl_names)
        older = partial(super().get_table_objects_by_name, dbname, tbl_names)
        return _known(lambda: self.get_table_objects_by_name_req(asked).tables, older)

    def lock(self, rqst: Any) -> Any:
        """Request the lock that commits to a table take."""
        granted = super().lock(rqst)
        self.lock_id = granted.lockid
        return granted

    def unlock(self, rqst: Any) -> None:
        """Release a lock; it ends by itself otherwise, and the outcome of what it protected is known."""
        with suppress(TException):
            super().unlock(rqst)

    def alter_table_with_environment_context(
        self,
        dbname: str,
        tbl_name: str,
        new_tbl: Any,
        environment_context: Any,  # noqa: ARG002
    ) -> None:
        """Replace an entry that has the metadata file that the new one names as the previous one."""
        before = new_tbl.parameters.get(PREVIOUS_METADATA_LOCATION)
        self.replace_entry(dbname, tbl_name, new_tbl, before)

    def replace_entry(self, database: str, name: str, entry: Any, before: str | None) -> None:
        """Replace an entry that has a metadata file.

        Raises:
            CommitFailedException: the lock has ended, or the entry has another file.
        """
        properties = {hive.DO_NOT_UPDATE_STATS: hive.DO_NOT_UPDATE_STATS_DEFAULT}
        if not self.only_locks or entry.parameters.get(_LOCKS, "true").lower() == "false":
            properties["expected_parameter_key"] = METADATA_LOCATION
            properties["expected_parameter_value"] = before or ""
        context = EnvironmentContext(properties=properties)
        try:
            self.check_lock(CheckLockRequest(lockid=self.lock_id))
        except (NoSuchLockException, TxnAbortedException) as error:
            raise theirs.CommitFailedException(
                f"the lock of {database}.{name} ended before the commit"
            ) from error
        try:
            super().alter_table_with_environment_context(database, name, entry, context)
        except MetaException as error:
            if _CHANGED in str(error.message):
                raise theirs.CommitFailedException(
                    f"{database}.{name} has another metadata file now"
                ) from error
            raise


def _known(newer: Callable[[], Any], older: Callable[[], Any]) -> Any:
    """Return the answer to a call, or to an older one if the metastore does not know the first."""
    try:
        return newer()
    except TApplicationException as error:
        if error.type != TApplicationException.UNKNOWN_METHOD:
            raise
    return older()


class _Socket(TSocket):  # type: ignore[misc]
    """A connection whose reader a stop signal ends."""

    def read(self, sz: int) -> Any:
        """Return bytes of an answer.

        Raises:
            TTransportException: there is none, or the command was stopped.
        """
        try:
            return awaited(f"{self.host}:{self.port}", partial(super().read, sz))
        except StoreError as error:
            raise TTransportException(TTransportException.TIMED_OUT, str(error)) from error


class _Connections(hive._HiveClient):  # noqa: SLF001
    """Opens a connection for each use, to the first address that answers, with time limits.

    PyIceberg's has one transport for all threads, so that one would read the answer to another, and waits forever.
    """

    def __init__(self, properties: Mapping[str, Any]) -> None:
        texts = {key: str(value) for key, value in properties.items()}
        self._addresses = [address.strip() for address in texts["uri"].split(",")]
        self._only_locks = property_as_bool(texts, _LOCKS, default=True)
        self._has_kerberos = property_as_bool(texts, hive.HIVE_KERBEROS_AUTH, default=False)
        self._service = texts.get(
            hive.HIVE_KERBEROS_SERVICE_NAME, hive.HIVE_KERBEROS_SERVICE_NAME_DEFAULT
        )
        self._user = texts["ugi"].split(":") if "ugi" in texts else None
        self._used = threading.local()

    def __enter__(self) -> Any:
        """Open a connection.

        Raises:
            TTransportException: no address answers.
        """
        transport = self._opened()
        self._open_ones.append(transport)
        client = _Client(TBinaryProtocol(transport))
        client.only_locks = self._only_locks
        if self._user:
            client.set_ugi(*self._user)
        return client

    def __exit__(self, *_: object) -> None:
        """Close the connection."""
        self._open_ones.pop().close()

    @property
    def _open_ones(self) -> list[Any]:
        """The connections of this thread."""
        found: list[Any] = vars(self._used).setdefault("transports", [])
        return found

    def _opened(self) -> Any:
        for address in self._addresses:
            parts = urlsplit(address)
            socket = _Socket(parts.hostname, parts.port or _PORT)
            socket.setTimeout(_CONNECT_MS)
            transport = (
                TSaslClientTransport(socket, host=parts.hostname, service=self._service)
                if self._has_kerberos
                else TBufferedTransport(socket)
            )
            try:
                transport.open()
            except TTransportException:
                if address == self._addresses[-1]:
                    raise
            else:
                socket.setTimeout(_READ_MS)
                return transport
        raise TTransportException(message="no address is configured")


class BoundedHiveCatalog(hive.HiveCatalog):
    """A Hive metastore, with a time limit for each request."""

    @staticmethod
    def _create_hive_client(properties: dict[str, str]) -> Any:
        return _Connections(properties)

    def create_namespace(
        self, namespace: str | Identifier, properties: Properties = EMPTY_DICT
    ) -> None:
        """Create a namespace in the catalog's warehouse, as Iceberg Java, and not in that of the metastore.

        Raises:
            NamespaceAlreadyExistsError: it exists already.
        """
        folder = f"{self.identifier_to_database(namespace)}.db"
        if warehouse := self.properties.get(WAREHOUSE_LOCATION):
            properties = {LOCATION: locations.join(warehouse, folder), **properties}
        super().create_namespace(namespace, properties)

    def drop_same(self, table: Table) -> None:
        """Remove a table's entry if it has the table's metadata file.

        Raises:
            CommitFailedException: it has another one, or another process holds the lock.
            NoSuchTableError: there is none.
        """
        database, name = split_identifier(table.identifier)

        def drop(client: Any) -> None:
            entry = self._get_hive_table(client, database, name)
            place = entry.parameters.get(METADATA_LOCATION)
            if place != table.metadata_location:
                raise theirs.CommitFailedException(
                    f"{table.identifier} has another metadata file now"
                )
            client.drop_table(dbname=database, name=name, deleteData=False)

        self._locked(database, name, drop)

    def rename_table(
        self, from_identifier: str | Identifier, to_identifier: str | Identifier
    ) -> IcebergTable:
        """Give a table another name. PyIceberg takes no lock: a commit at that time would be lost.

        Raises:
            CommitFailedException: another process holds the lock.
            TableAlreadyExistsError: another table has the name.
            NoSuchTableError: there is no such table.
        """
        database, name = self.identifier_to_database_and_table(from_identifier)
        new_database, new_name = self.identifier_to_database_and_table(to_identifier)
        if self.table_exists(to_identifier):
            raise theirs.TableAlreadyExistsError(f"{new_database}.{new_name} exists already")

        def rename(client: Any) -> None:
            entry = self._get_hive_table(client, database, name)
            before = entry.parameters.get(METADATA_LOCATION)
            entry.dbName, entry.tableName = new_database, new_name
            client.replace_entry(database, name, entry, before)

        self._locked(database, name, rename)
        return self.load_table(to_identifier)

    def _locked(self, database: str, name: str, work: Callable[[Any], None]) -> None:
        """Work with the lock that commits to a table take.

        Raises:
            CommitFailedException: another process holds it.
        """
        with self._client as client:
            lock = client.lock(self._create_lock_request(database, name))
            try:
                if lock.state != LockState.ACQUIRED:
                    self._wait_for_lock(database, name, lock.lockid, client)
                work(client)
            except theirs.WaitingForLockException as error:
                raise theirs.CommitFailedException(
                    f"another process holds the lock of {database}.{name}"
                ) from error
            finally:
                client.unlock(UnlockRequest(lockid=lock.lockid))


class HiveBackend(ServiceBackend):
    """A Hive metastore."""

    errors = (TException,)

    def refusal(self, error: Exception) -> Exception | None:
        """Return PyIceberg's exception for an answer after which a change certainly was not made; None for others."""
        certain = (InvalidObjectException, InvalidOperationException, NoSuchObjectException)
        return theirs.BadRequestError(str(error)) if isinstance(error, certain) else None

    def _load_catalog(self) -> PyIcebergCatalog:
        cast("dict[Any, str]", hive.HIVE_PRIMITIVE_TYPES).update(_TYPES)
        AVAILABLE_CATALOGS[CatalogType.HIVE] = lambda name, properties: BoundedHiveCatalog(
            name, **properties
        )
        return super()._load_catalog()
